//! Where to go on from what Debezium stored of its position: read it, compare it with the slot, say what repeats.
//!
//! Debezium's position is the offset that Connect stored; the slot is confirmed some time later. [`read_bytes`] takes the
//! offset from any form it comes in, [`plan`] says from where to stream and what of it has been published already.
//!
//! **Invariant.** A plan may repeat, never leave out: it starts at a place before which everything is known to be
//! published, and skips only rows that the offset itself names as done. Where that cannot be said, there is no plan.

use std::fmt;

use pgoutput::Lsn;

pub use crate::offset_read::{OffsetError, OffsetLog, read, read_bytes};
pub use crate::offset_skip::{AtPosition, SkipRule, Skipper};
pub use crate::offset_waiting::{Repeats, Waiting, WaitingRow};

/// What Connect has stored for one connector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredOffset {
    /// The last event's position.
    pub lsn: Option<Lsn>,
    /// The last position whose event was handled in full.
    pub lsn_proc: Option<Lsn>,
    /// The end of the last COMMIT before that event.
    pub lsn_commit: Option<Lsn>,
    /// `INSERT`, `COMMIT`, …: what the last event was.
    pub message_type: Option<String>,
    /// The transaction of the last event.
    pub transaction: Option<u32>,
    /// How many events at exactly `lsn` are done; from 3.7 on.
    pub events_processed: Option<u64>,
    /// Whether a snapshot was going on and has not ended.
    pub snapshot_open: bool,
    /// Whether an incremental snapshot was going on.
    pub incremental_snapshot_open: bool,
}

/// What to do with the transaction that may have been published in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Send it again as a whole.
    AtLeastOnce,
    /// Skip the rows that the offset names as done.
    Skip,
}

/// What is known of slot and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// `confirmed_flush_lsn`.
    pub confirmed: Lsn,
    /// The server's current position, to tell an offset of another server.
    pub wal_end: Lsn,
    /// Whether the slot may lead: `lsn.flush.mode=connector_and_driver`.
    pub may_lead: bool,
}

/// From where to stream, and what repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// For START_REPLICATION.
    pub start: Lsn,
    /// The transaction in whose middle the offset stands.
    pub open: Option<OpenTransaction>,
    /// Rows not to send again.
    pub skip: Option<SkipRule>,
    /// How it was found, for people.
    pub explanation: Vec<String>,
    /// The most transactions that are sent again, if Connect was stopped in order: 0 or 1.
    pub repeated_transactions_max: u64,
}

/// A transaction of which Connect has published at least a part, and whose end is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its number, if the offset says it.
    pub transaction: Option<u32>,
    /// Its rows up to here are done.
    pub done: Lsn,
}

/// Why there is no plan, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct Refusal {
    /// What stands in the way.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Refusal {
    fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            fix: fix.into(),
        }
    }
}

/// Where to start, by the contract's step 5.
///
/// # Errors
/// When a gap is possible, or the offset is not this server's, or it cannot be told what has been published.
pub fn plan(slot: &Slot, offset: &StoredOffset, variant: Variant) -> Result<Plan, Refusal> {
    refuse_open_snapshot(offset)?;
    let Some(stored) = offset.lsn_commit.or(offset.lsn_proc).or(offset.lsn) else {
        return Err(Refusal::new(
            "the stored offset has no position (neither lsn_commit nor lsn_proc nor lsn)",
            "check that it is this connector's; if it never streamed, start with what the slot has instead of taking over",
        ));
    };
    let newest = [offset.lsn, offset.lsn_proc, Some(stored)]
        .into_iter()
        .flatten()
        .max();
    refuse_other_server(slot, newest.unwrap_or(stored))?;
    let mut explanation = vec![format!(
        "the slot has confirmed {}; Connect stored {stored} as the end of the last transaction before its last event",
        slot.confirmed
    )];
    if slot.confirmed > stored {
        leading_slot(slot, stored, &mut explanation)?;
    } else if slot.confirmed < stored {
        explanation.push(format!(
            "what lies between was published and not yet confirmed: the stream starts at {stored}"
        ));
    }
    let start = slot.confirmed.max(stored);
    let open = open_transaction(offset);
    let mut plan = Plan {
        start,
        open,
        skip: None,
        explanation,
        repeated_transactions_max: u64::from(open.is_some()),
    };
    match open {
        None => plan.explanation.push(
            "the last event ended a transaction: nothing repeats after an orderly stop".to_owned(),
        ),
        Some(open) => in_transaction(&mut plan, offset, &open, variant)?,
    }
    Ok(plan)
}

fn refuse_open_snapshot(offset: &StoredOffset) -> Result<(), Refusal> {
    if offset.snapshot_open {
        return Err(Refusal::new(
            "the stored offset is from the middle of a snapshot, so that not all of its rows are published",
            "let Debezium finish its snapshot and publish one event after it, then stop it again",
        ));
    }
    if offset.incremental_snapshot_open {
        return Err(Refusal::new(
            "the stored offset is from the middle of an incremental snapshot",
            "let Debezium finish it, or stop it with a signal `stop-snapshot`, then stop the connector again",
        ));
    }
    Ok(())
}

fn refuse_other_server(slot: &Slot, stored: Lsn) -> Result<(), Refusal> {
    if stored <= slot.wal_end {
        return Ok(());
    }
    Err(Refusal::new(
        format!(
            "the stored offset {stored} lies ahead of the server, which is at {}: it belongs to another server \
                or to a time before a restore",
            slot.wal_end
        ),
        "check host and database; after a restore, compare the outbox table with the topics before going on",
    ))
}

/// A slot ahead of the offset: what lies between is never sent again, so it has to be known that nothing is there.
fn leading_slot(slot: &Slot, stored: Lsn, explanation: &mut Vec<String>) -> Result<(), Refusal> {
    if !slot.may_lead {
        return Err(Refusal::new(
            format!(
                "the slot has confirmed {}, which is ahead of the stored offset {stored}: events between them \
                    may never have been published, and the server does not send them again",
                slot.confirmed
            ),
            "check that the offset is this connector's newest and that nobody moved the slot (pg_replication_slot_advance, a slot made anew); compare the outbox table with the topics for that stretch. Only with lsn.flush.mode=connector_and_driver is this in order",
        ));
    }
    explanation.push(
        "the slot leads, as lsn.flush.mode=connector_and_driver allows: the driver confirmed what \
        held no events"
            .to_owned(),
    );
    Ok(())
}

/// The transaction of the last event, unless that event was its end.
///
/// The positions do not tell: a transaction that began early and ended late has rows before the end of another one that
/// was published before it.
fn open_transaction(offset: &StoredOffset) -> Option<OpenTransaction> {
    if offset.message_type.as_deref() == Some("COMMIT") {
        return None;
    }
    let lsn = offset.lsn.or(offset.lsn_proc)?;
    Some(OpenTransaction {
        transaction: offset.transaction,
        // What is not handled in full does not count as done.
        done: offset.lsn_proc.map_or(lsn, |processed| processed.min(lsn)),
    })
}

fn in_transaction(
    plan: &mut Plan,
    offset: &StoredOffset,
    open: &OpenTransaction,
    variant: Variant,
) -> Result<(), Refusal> {
    let name = offset.transaction.map_or_else(
        || "of unknown number".to_owned(),
        |transaction| transaction.to_string(),
    );
    plan.explanation.push(format!(
        "the last event, at {}, stands inside transaction {name}, whose end is not \
        stored: it may be published in part or as a whole",
        open.done
    ));
    if variant == Variant::AtLeastOnce {
        plan.explanation
            .push("it is sent again as a whole, with the same `id` headers".to_owned());
        return Ok(());
    }
    let Some(transaction) = offset.transaction else {
        return Err(Refusal::new(
            "the stored offset does not name its transaction, so rows cannot be told from those of others",
            "take over without skipping: at most one transaction repeats",
        ));
    };
    let rule = skip_rule(offset, transaction, open.done);
    plan.explanation.push(format!(
        "{rule}; later transactions are sent as a whole, whatever their rows' positions"
    ));
    plan.skip = Some(rule);
    Ok(())
}

/// BEGIN has the position of the first row, which is not done then. What a type unknown here means for the row at its own
/// position is not known either.
fn skip_rule(offset: &StoredOffset, transaction: u32, done: Lsn) -> SkipRule {
    let row = matches!(
        offset.message_type.as_deref(),
        Some("INSERT" | "UPDATE" | "DELETE" | "TRUNCATE")
    );
    let processed_in_full = offset.lsn.is_none_or(|lsn| lsn == done);
    let at = match offset.events_processed {
        _ if !row || !processed_in_full => AtPosition::Send,
        Some(count) => AtPosition::SkipFirst(count),
        None => AtPosition::SkipIfAlone,
    };
    SkipRule {
        transaction,
        position: done,
        at,
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "start at {}", self.start)?;
        for line in &self.explanation {
            writeln!(f, "- {line}")?;
        }
        write!(
            f,
            "at most {} transaction repeats after an orderly stop",
            self.repeated_transactions_max
        )
    }
}
