//! Stage 6 of 9, its input: a batch, the stretch of the stream that the reader hands to the publisher.

use pgoutput::{Lsn, RowId, TransactionId};
use router::RecordBuffer;

/// A stretch of the stream in stream order. Cleared and reused, so that an event costs no allocation.
///
/// Invariant: there are as many [`Entry::Record`]s, [`Entry::Message`]s and [`Entry::Parked`]s together as `records`, and the
/// n-th stands for the n-th. A transaction may begin in one batch and end in a later one.
#[derive(Debug, Default)]
pub struct Batch {
    /// What is to be sent.
    pub records: RecordBuffer,
    /// What the stream said, in its order.
    pub entries: Vec<Entry>,
    pub(crate) cursor: Cursor,
}

impl Batch {
    /// An empty batch; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.entries.clear();
        self.entries.shrink_to(RETAINED_ENTRIES_MAX);
        self.cursor = Cursor::default();
    }

    /// Records that the publisher has not taken yet.
    #[must_use]
    pub fn records_left(&self) -> usize {
        self.records.len().saturating_sub(self.cursor.record)
    }

    /// Whether it says nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// One thing the stream said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A transaction begins.
    Begin(TransactionId),
    /// The next of the batch's records, inside a transaction.
    Record {
        /// How many inserts of its transaction were received up to and including it, counted before anything is
        /// filtered; a logical message that belongs to the transaction counts as an insert. With the `final_lsn` of
        /// its [`Begin`](Self::Begin) this identifies the event, however often the stream is read.
        inserts: u64,
    },
    /// The next of the batch's records, a logical message outside any transaction.
    Message {
        /// Where it is in the log: its identity.
        lsn: Lsn,
    },
    /// The next of the batch's records, made of a row that was parked and is published again; outside any transaction.
    Parked(RowId),
    /// What was parked before the next records is durable, and the database's log has it up to here. It comes before
    /// those records in their batch.
    ParkedUpTo {
        /// A place behind the commit that parked them.
        lsn: Lsn,
    },
    /// Every [`Parked`](Self::Parked) row before this is noted in its table as published.
    ParkedNoted {
        /// A place behind the commit that noted it.
        lsn: Lsn,
    },
    /// The transaction ended here.
    Commit {
        /// Where its commit record ends: the place where the position may stand.
        end_lsn: Lsn,
    },
    /// A keepalive outside a transaction: the server has sent everything before this place.
    Idle {
        /// That place.
        wal_end: Lsn,
    },
}

/// Which event a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventIdentity {
    /// A row, or a message that belongs to a transaction and is counted like one.
    Row(RowId),
    /// A message outside any transaction, by its place in the log.
    Message(Lsn),
    /// A row that was parked and is published again.
    Parked(RowId),
}

/// How much of a batch the publisher has taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) entry: usize,
    pub(crate) record: usize,
    /// The attempt that began to take it; a batch is never finished in another one.
    pub(crate) attempt: Option<u64>,
}

/// What [`Batch::clear`] keeps of the list of entries.
const RETAINED_ENTRIES_MAX: usize = 16_384;
