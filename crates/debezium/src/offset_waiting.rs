//! What waits in the slot, counted: how many events repeat, and which rows share the stored position.

use pgoutput::Lsn;

use crate::offset::{Plan, SkipRule};

/// A row of an outbox that waits in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRow {
    /// Its transaction; none for a logical message that stands outside of any.
    pub transaction: Option<u32>,
    /// Where that transaction's COMMIT record begins; of such a message, its own position.
    pub final_lsn: Lsn,
    /// Its own position.
    pub lsn: Lsn,
}

/// The rows that wait from the start of a [`Plan`] on. Remembers counts and no row.
#[derive(Debug, Clone)]
pub struct Waiting {
    start: Lsn,
    /// Of the open transaction; if the offset does not name it, of the first that has rows.
    transaction: Option<u32>,
    position: Lsn,
    rows: u64,
    open: OpenRows,
    /// Messages outside of any transaction that arrived before the open one: published before it, and named by no offset.
    messages_before: u64,
    past_open: bool,
}

/// Rows of the open transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OpenRows {
    before: u64,
    at: u64,
    after: u64,
}

/// The most events that are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// If Connect stopped in order.
    pub after_stop: u64,
    /// If it was killed: all that wait may have been published since it last stored its offset.
    pub after_kill: u64,
}

impl Waiting {
    /// Nothing seen yet. All variants of one takeover count the same rows.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            start: plan.start,
            transaction: plan.open.and_then(|open| open.transaction),
            position: plan.open.map_or(Lsn::ZERO, |open| open.done),
            rows: 0,
            open: OpenRows::default(),
            messages_before: 0,
            past_open: plan.open.is_none(),
        }
    }

    /// The next row, in the order of the stream.
    pub fn push(&mut self, row: WaitingRow) {
        if row.final_lsn < self.start {
            return;
        }
        self.rows += 1;
        let Some(transaction) = row.transaction else {
            // The server sends such a message when it reads it, and a transaction at its COMMIT: none comes amid its rows.
            self.past_open |= self.open != OpenRows::default();
            self.messages_before += u64::from(!self.past_open);
            return;
        };
        if *self.transaction.get_or_insert(transaction) != transaction {
            self.past_open = true;
            return;
        }
        let open = &mut self.open;
        match row.lsn.cmp(&self.position) {
            std::cmp::Ordering::Less => open.before += 1,
            std::cmp::Ordering::Equal => open.at += 1,
            std::cmp::Ordering::Greater => open.after += 1,
        }
    }

    /// Whether the open transaction is behind, if there is one: it is the first that has rows.
    #[must_use]
    pub fn is_past_open(&self) -> bool {
        self.past_open
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl Plan {
    /// The rows to skip, now that it is known how many share the stored position.
    #[must_use]
    pub fn skip_resolved(&self, waiting: &Waiting) -> Option<SkipRule> {
        self.skip.map(|rule| rule.resolve(waiting.open.at))
    }

    /// The most events that repeat, given what waits in the slot.
    #[must_use]
    pub fn repeats_max(&self, waiting: &Waiting) -> Repeats {
        use crate::offset::AtPosition::{Send, SkipFirst, SkipIfAlone};
        let OpenRows { before, at, after } = waiting.open;
        let messages = waiting.messages_before;
        let skipped_at = match self.skip_resolved(waiting).map(|rule| rule.at) {
            Some(SkipFirst(count)) => count.min(at),
            Some(Send | SkipIfAlone) | None => 0,
        };
        match (self.open, self.skip) {
            (None, _) => Repeats {
                after_stop: 0,
                after_kill: waiting.rows,
            },
            // The whole transaction counts: the last flush may have waited in vain.
            (Some(_), None) => Repeats {
                after_stop: messages + before + at + after,
                after_kill: waiting.rows,
            },
            (Some(_), Some(_)) => Repeats {
                after_stop: messages + at - skipped_at,
                after_kill: waiting.rows - before - skipped_at,
            },
        }
    }
}
