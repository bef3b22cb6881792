//! Poison events: rows that can never be published as they are. What becomes of each, next to the rows that are well.
//!
//! Pure. Whether something is poison is decided in `policy`; here it is done: the row is passed over, replaced by a dead
//! letter, or put aside to be parked. What is put aside has to be durable before the batch it came with is handed over.

use pgoutput::{LeftOut, Row, RowId};
use router::connect::Routed;
use router::{RecordBuffer, RowSummary};
use sink::{Batch, Entry};

use crate::codes::Code;
use crate::dead_letter::DeadLetters;
use crate::explain;
use crate::intake::IntakeError;
use crate::parked_row::ParkedRow;
use crate::policy::{self, OnPoison};
use crate::routing::Routing;
use crate::watchlist::{SkipRequest, Watchlist};

/// What is done with poison events.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The action.
    pub action: OnPoison,
    /// Whether every row that makes no record counts, as `errors.tolerance=all` has it.
    pub tolerant: bool,
    /// Where dead letters go; empty unless that is the action.
    pub dead_letters: DeadLetters,
    /// Most rows that may wait in the table.
    pub parked_rows_max: u64,
    /// Most bytes that may wait there.
    pub parked_bytes_max: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            action: OnPoison::Halt,
            tolerant: false,
            dead_letters: DeadLetters::default(),
            parked_rows_max: 100_000,
            parked_bytes_max: 1 << 30,
        }
    }
}

/// Why an event is poison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Where on the path it was refused.
    pub stage: Stage,
    /// The code that a halt would have ended with.
    pub code: Code,
    /// What is wrong, without anything of the payload.
    pub text: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// A stage of the path that can refuse an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It was too large to be read.
    Read,
    /// It could not be routed.
    Route,
    /// Kafka, or its client, refused it.
    Publish,
    /// Nothing: it only follows one that was refused.
    Behind,
}

impl Stage {
    /// The word in headers and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Route => "route",
            Self::Publish => "publish",
            Self::Behind => "behind",
        }
    }
}

/// What was done with poison events since the last [`Poison::take_tally`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Put aside because of themselves.
    pub parked: u64,
    /// Put aside because of an earlier one of their aggregate.
    pub behind: u64,
    /// Replaced by dead letters.
    pub dead_lettered: u64,
    /// Passed over by configuration.
    pub skipped: u64,
    /// Passed over by a person's decision.
    pub skipped_by_request: u64,
}

/// What has to be written down before the batch is handed over.
#[derive(Debug, Default)]
pub struct Aside {
    /// Rows to park, in stream order.
    pub rows: Vec<ParkedRow>,
    /// Requests that were used up, with the row each was used on.
    pub skipped: Vec<(SkipRequest, RowId)>,
    bytes: u64,
}

impl Aside {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.skipped.is_empty()
    }
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Became {
    Routed(Routed),
    /// Nothing of it is left for the batch.
    Settled,
}

/// The rules at work on one connection.
#[derive(Debug, Default)]
pub struct Poison {
    rules: Rules,
    watchlist: Watchlist,
    aside: Aside,
    tally: Tally,
    /// Of the first one since the last [`Self::take_told`].
    told: Option<Reason>,
    scratch: RecordBuffer,
}

impl Poison {
    /// The rules, with what is known of rows to come.
    #[must_use]
    pub fn new(rules: Rules, watchlist: Watchlist) -> Self {
        Self {
            rules,
            watchlist,
            ..Self::default()
        }
    }

    /// What is known of rows to come.
    pub fn watchlist(&mut self) -> &mut Watchlist {
        &mut self.watchlist
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What has to be written down before the batch is handed over.
    #[must_use]
    pub fn aside(&self) -> &Aside {
        &self.aside
    }

    /// The same, to be written down now.
    pub fn take_aside(&mut self) -> Aside {
        std::mem::take(&mut self.aside)
    }

    /// Whether so much is put aside that no more should be read before it is written down.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.aside.bytes >= ASIDE_BYTES_MAX || self.aside.rows.len() >= ASIDE_ROWS_MAX
    }

    /// The counts since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Why the first poison event since the last call is one.
    pub fn take_told(&mut self) -> Option<Reason> {
        self.told.take()
    }

    /// Routes a row, or does with it what the rules say.
    pub(crate) fn take(
        &mut self,
        row: &Row<'_>,
        routing: &mut Routing,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Became, IntakeError> {
        if self.watchlist.is_active()
            && let Some(became) = self.watched(row, routing, now_ms, batch)?
        {
            return Ok(became);
        }
        match routing.route(row, now_ms, &mut batch.records) {
            Ok(routed) => Ok(Became::Routed(routed)),
            Err(source) => {
                let lsn = row.lsn;
                self.refuse(IntakeError::Route { lsn, source }, row, ALL, routing, batch)
            }
        }
    }

    /// A logical message that makes no record. It has no columns to park or to make a dead letter of, so it is passed over
    /// or stops.
    #[cold]
    pub(crate) fn take_message(&mut self, error: IntakeError) -> Result<(), IntakeError> {
        if self.rules.action != OnPoison::Skip || !policy::is_poison(&error, self.rules.tolerant) {
            return Err(error);
        }
        self.tally.skipped += 1;
        self.told.get_or_insert_with(|| explain::reason(&error));
        Ok(())
    }

    /// Does what the rules say with a row that was too large to be read. Of its columns those left out are NULL.
    pub(crate) fn take_too_large(
        &mut self,
        error: IntakeError,
        row: &Row<'_>,
        left_out: &LeftOut,
        routing: &Routing,
        batch: &mut Batch,
    ) -> Result<Became, IntakeError> {
        let id = row.id();
        let event_id = routing.summary(row).and_then(|summary| summary.id);
        if self.watchlist.is_settled(id) || self.skip(id, event_id) {
            return Ok(Became::Settled);
        }
        self.refuse(error, row, left_out, routing, batch)
    }

    /// A row of which something may be known; `None` if nothing is.
    fn watched(
        &mut self,
        row: &Row<'_>,
        routing: &mut Routing,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Option<Became>, IntakeError> {
        let id = row.id();
        let Some(summary) = routing.summary(row) else {
            return Ok(None);
        };
        if self.watchlist.is_settled(id) || self.skip(id, summary.id) {
            return Ok(Some(Became::Settled));
        }
        let is_parked = self.watchlist.is_parked(&summary);
        if let Some(reason) = self.watchlist.condemned(id) {
            let reason = reason.clone();
            if self.rules.action == OnPoison::DeadLetterTopic {
                // The record that was refused, as far as it can be made.
                self.scratch.clear();
                drop(routing.route(row, now_ms, &mut self.scratch));
            }
            return self.put_away(reason, row, ALL, routing, batch).map(Some);
        }
        if is_parked {
            return self.put_behind(row, &summary).map(Some);
        }
        Ok(None)
    }

    fn skip(&mut self, row: RowId, event_id: Option<&[u8]>) -> bool {
        let Some(request) = self.watchlist.take_skip(row, event_id) else {
            return false;
        };
        self.tally.skipped_by_request += 1;
        self.aside.skipped.push((request, row));
        true
    }

    #[cold]
    fn refuse(
        &mut self,
        error: IntakeError,
        row: &Row<'_>,
        left_out: &LeftOut,
        routing: &Routing,
        batch: &mut Batch,
    ) -> Result<Became, IntakeError> {
        if self.rules.action == OnPoison::Halt || !policy::is_poison(&error, self.rules.tolerant) {
            return Err(error);
        }
        let knows_aggregate = |summary: RowSummary<'_>| {
            let mut columns = summary.aggregate_columns.into_iter().flatten();
            columns.all(|column| left_out.bytes_of(column).is_none())
        };
        if self.rules.action == OnPoison::Park && !routing.summary(row).is_some_and(knows_aggregate)
        {
            return Err(match error {
                IntakeError::TooLarge {
                    table,
                    lsn,
                    size_bytes,
                } => IntakeError::AggregateUnknown {
                    table,
                    lsn,
                    size_bytes,
                },
                other => other,
            });
        }
        self.scratch.clear();
        self.put_away(explain::reason(&error), row, left_out, routing, batch)
    }

    /// Does what the rules say. A record in `scratch` is the one that was refused.
    fn put_away(
        &mut self,
        reason: Reason,
        row: &Row<'_>,
        left_out: &LeftOut,
        routing: &Routing,
        batch: &mut Batch,
    ) -> Result<Became, IntakeError> {
        let Some(summary) = routing.summary(row) else {
            return Ok(Became::Settled);
        };
        let became = match self.rules.action {
            OnPoison::Park => {
                let parked = ParkedRow::new(row, &summary, left_out, reason.clone());
                self.park(parked)?;
                self.tally.parked += 1;
                Became::Settled
            }
            OnPoison::DeadLetterTopic => {
                let refused = (!self.scratch.is_empty()).then(|| self.scratch.get(0));
                let letters = &self.rules.dead_letters;
                let out = &mut batch.records;
                letters.write(row, &summary, left_out, refused, &reason, out);
                self.tally.dead_lettered += 1;
                Became::Routed(Routed::Record)
            }
            // With halt nothing is condemned, and what cannot be routed was returned as an error.
            OnPoison::Skip | OnPoison::Halt => {
                self.tally.skipped += 1;
                Became::Settled
            }
        };
        self.told.get_or_insert(reason);
        Ok(became)
    }

    fn put_behind(
        &mut self,
        row: &Row<'_>,
        summary: &RowSummary<'_>,
    ) -> Result<Became, IntakeError> {
        let reason = Reason {
            stage: Stage::Behind,
            code: Code::ParkedBehind,
            text: "an earlier event of its aggregate is parked".to_owned(),
            attempts: 0,
        };
        self.park(ParkedRow::new(row, summary, ALL, reason))?;
        self.tally.behind += 1;
        Ok(Became::Settled)
    }

    fn park(&mut self, row: ParkedRow) -> Result<(), IntakeError> {
        let bytes = row.bytes();
        let waiting = self.watchlist.waiting;
        if waiting.rows >= self.rules.parked_rows_max
            || waiting.bytes.saturating_add(bytes) > self.rules.parked_bytes_max
        {
            return Err(IntakeError::ParkingFull {
                row: row.row,
                table: row.table.to_string(),
                rows: waiting.rows,
                bytes: waiting.bytes,
            });
        }
        self.watchlist.park(row.aggregate(), bytes);
        self.aside.bytes += bytes;
        self.aside.rows.push(row);
        Ok(())
    }
}

/// Enters what became of a row into the batch.
pub(crate) fn enter(became: Became, inserts: u64, batch: &mut Batch) {
    if became == Became::Routed(Routed::Record) {
        batch.entries.push(Entry::Record { inserts });
    }
}

/// All columns of a row are known.
const ALL: &LeftOut = &LeftOut::NOTHING;

/// Rows put aside are written down when they hold this many bytes.
const ASIDE_BYTES_MAX: u64 = 1024 * 1024;

/// … or when there are this many.
const ASIDE_ROWS_MAX: usize = 1000;

#[cfg(test)]
#[path = "poison_tests.rs"]
mod tests;
