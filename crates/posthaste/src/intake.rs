//! Stages 2 to 5 in a row: Intake. One frame in, finished records and marks of the stream out.
//!
//! Pure: it decides nothing about connections or time. What it cannot turn into a record is an
//! error that names table, event and position, and nothing after that row is taken.

use pgoutput::{
    DecodeError, Envelope, Lsn, Message, Operation, Relation, Step, Transactions, decode,
    peek_relation_id,
};
use router::{RouteError, Router};
use sink::{Batch, Entry};
use thiserror::Error;

/// The decoder, the transaction state and the router of one connection.
#[derive(Debug)]
pub struct Intake {
    transactions: Transactions,
    router: Router,
    ignored: Ignored,
    newest: Lsn,
}

/// What one frame told about the stream itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A change; `wal_end` is how far the server has read.
    Data {
        /// The server's position.
        wal_end: Lsn,
    },
    /// A keepalive.
    Keepalive {
        /// The server's position.
        wal_end: Lsn,
        /// The server wants an answer at once.
        reply_requested: bool,
    },
}

/// Rows and messages that moved the position and nothing else, since the last [`Intake::take_ignored`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ignored {
    /// Inserts into tables that are no outbox.
    pub inserts: u64,
    /// Updates of any table.
    pub updates: u64,
    /// Deletes of any table.
    pub deletes: u64,
    /// Truncates of any table.
    pub truncates: u64,
    /// Logical decoding messages.
    pub messages: u64,
}

/// Why a frame could not be taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IntakeError {
    /// The bytes are not what the protocol says; the stream cannot be trusted any further.
    #[error("the replication stream cannot be decoded")]
    Decode(#[from] DecodeError),
    /// A row of the outbox cannot become a record: a poison event.
    #[error("a row at LSN {lsn} cannot be routed")]
    Route {
        /// Position of the row.
        lsn: Lsn,
        /// Which column of which table, and why.
        #[source]
        source: RouteError,
    },
    /// A row of the outbox is larger than `frame_bytes_max`: a poison event.
    #[error("a row of {table} at LSN {lsn} is too large: {size_bytes} bytes")]
    TooLarge {
        /// The outbox table.
        table: String,
        /// Position of the row.
        lsn: Lsn,
        /// Size of the whole frame.
        size_bytes: u64,
    },
}

impl Intake {
    /// Fresh state for a new connection: relations are always sent again.
    #[must_use]
    pub fn new(router: Router) -> Self {
        Self {
            transactions: Transactions::new(),
            router,
            ignored: Ignored::default(),
            newest: Lsn::ZERO,
        }
    }

    /// Takes one `CopyData` body, appending what it yields to the batch.
    ///
    /// # Errors
    ///
    /// See [`IntakeError`]. The batch keeps everything taken before and nothing of the failed row.
    pub fn handle_frame(&mut self, frame: &[u8], batch: &mut Batch) -> Result<Taken, IntakeError> {
        match Envelope::parse(frame)? {
            Envelope::XLogData {
                start_lsn,
                wal_end,
                message,
                ..
            } => {
                self.handle_message(start_lsn, message, batch)?;
                Ok(Taken::Data { wal_end })
            }
            Envelope::Keepalive {
                wal_end,
                reply_requested,
                ..
            } => {
                // Inside a transaction the server's position says nothing about what we have.
                if !self.transactions.is_open() {
                    batch.entries.push(Entry::Idle { wal_end });
                }
                Ok(Taken::Keepalive {
                    wal_end,
                    reply_requested,
                })
            }
        }
    }

    /// Takes the beginning of a frame whose body was larger than `frame_bytes_max` and was read past.
    ///
    /// # Errors
    ///
    /// [`IntakeError::TooLarge`] for a row of an outbox; rows of other tables are ignored like any other.
    pub fn handle_too_large(&mut self, size_bytes: u64, head: &[u8]) -> Result<Taken, IntakeError> {
        let (start_lsn, wal_end, message) = match Envelope::parse(head)? {
            Envelope::XLogData {
                start_lsn,
                wal_end,
                message,
                ..
            } => (start_lsn, wal_end, message),
            Envelope::Keepalive { wal_end, .. } => return Ok(Taken::Data { wal_end }),
        };
        let outbox = peek_relation_id(message)
            .filter(|id| self.router.is_outbox(*id))
            .and_then(|id| self.transactions.relation(id));
        match outbox {
            // Only an insert makes a record; an update or delete of the outbox never does.
            Some(relation) if message.first() == Some(&b'I') => Err(IntakeError::TooLarge {
                table: table_name(relation),
                lsn: start_lsn,
                size_bytes,
            }),
            _ => {
                self.ignored.inserts += 1;
                Ok(Taken::Data { wal_end })
            }
        }
    }

    /// Whether the stream is inside a transaction.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.transactions.is_open()
    }

    /// Where the commit of the newest transaction begins that was begun on this connection; zero for none.
    #[must_use]
    pub fn newest(&self) -> Lsn {
        self.newest
    }

    /// The counts since the last call.
    pub fn take_ignored(&mut self) -> Ignored {
        std::mem::take(&mut self.ignored)
    }

    fn handle_message(
        &mut self,
        start_lsn: Lsn,
        message: &[u8],
        batch: &mut Batch,
    ) -> Result<(), IntakeError> {
        let message = decode(message)?;
        if let Message::Type {
            oid,
            namespace,
            name,
        } = &message
        {
            // The server names a domain's base type here, before the first row that uses it.
            self.router.handle_type(*oid, namespace, name);
        }
        match self.transactions.handle(start_lsn, message)? {
            Step::Begin(transaction) => {
                self.newest = transaction.final_lsn;
                batch.entries.push(Entry::Begin(transaction));
            }
            Step::Commit { end_lsn, .. } => batch.entries.push(Entry::Commit { end_lsn }),
            Step::Relation(relation) => self.router.handle_relation(relation),
            Step::Insert(row) => {
                let lsn = row.lsn;
                let routed = self
                    .router
                    .route(&row, &mut batch.records)
                    .map_err(|source| IntakeError::Route { lsn, source })?;
                if routed {
                    batch.entries.push(Entry::Record);
                } else {
                    self.ignored.inserts += 1;
                }
            }
            Step::Ignored(operation) => self.ignored.count(operation),
            Step::Logical { .. } => self.ignored.messages += 1,
        }
        Ok(())
    }
}

impl Ignored {
    fn count(&mut self, operation: Operation) {
        match operation {
            Operation::Update => self.updates += 1,
            Operation::Delete => self.deletes += 1,
            Operation::Truncate => self.truncates += 1,
            // Descriptions of the stream, not changes of a table.
            Operation::Origin | Operation::Type => {}
        }
    }
}

fn table_name(relation: &Relation) -> String {
    format!("{}.{}", relation.namespace, relation.name)
}
