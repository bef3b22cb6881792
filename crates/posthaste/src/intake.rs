//! Stages 2 to 5 in a row: Intake. One frame in, finished records and marks of the stream out.
//!
//! Pure: it decides nothing about connections, and is told the time. What it cannot turn into a record is an error that
//! names table, event and position, and nothing after that row is taken, unless it was told to pass such rows over.

use debezium::offset::{SkipRule, Skipper};
use pgoutput::{
    DecodeError, Envelope, InsertExcerpt, Lsn, Message, Operation, Relation, RowId, Step,
    TransactionId, Transactions, decode, peek_relation_id,
};
use router::RouteError;
use router::connect::{Catalog, LogicalMessage, Routed, Tolerated};
use sink::{Batch, Entry, Position};
use thiserror::Error;

use crate::catalog_watch::{CatalogWatch, Outdated};
use crate::done::{Done, Misfit};
use crate::poison::{self, Became, Poison};
use crate::reach::Reach;
use crate::routing::Routing;

/// The decoder, the transaction state and the router of one connection.
#[derive(Debug)]
pub struct Intake {
    transactions: Transactions,
    done: Done,
    routing: Routing,
    tolerance: Tolerance,
    poison: Poison,
    /// Rows of this schema are ours, and never events.
    own_schema: String,
    catalog: CatalogWatch,
    ignored: Ignored,
    tolerated_told: Tolerated,
    reach: Reach,
    /// Where the record stands, outside any transaction, that no commit or keepalive has followed yet.
    dangling: Option<Lsn>,
    /// What Debezium has sent of the stream, while that may still come.
    taken_over: Option<TakenOver>,
}

/// Rows that were published before this stream began, by the Debezium that read the slot.
#[derive(Debug, Clone)]
pub struct TakenOver {
    skipper: Skipper,
    until: Lsn,
}

impl TakenOver {
    /// The rows of a rule, whose transaction commits before `until`.
    #[must_use]
    pub fn new(rule: SkipRule, until: Lsn) -> Self {
        Self {
            skipper: Skipper::new(rule),
            until,
        }
    }

    /// Whether a row or a message was published; then it counts as ignored.
    fn is_done(&mut self, transaction: TransactionId, lsn: Lsn, ignored: &mut Ignored) -> bool {
        let done = self.skipper.is_done(transaction.xid, lsn);
        ignored.taken_over += u64::from(done);
        done
    }

    /// Whether no row can come any more that the rule is about, now that this transaction begins.
    fn is_over(&self, begun: TransactionId) -> bool {
        self.skipper.is_over() || begun.final_lsn >= self.until
    }
}

/// What is done where the native pipeline always goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// An UPDATE of an outbox stops the stream, instead of being ignored.
    pub stop_at_updates: bool,
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
    /// Rows and messages of an outbox that the configuration filters out.
    pub filtered: u64,
    /// Rows and messages that were passed over because they can never be published.
    pub skipped: u64,
    /// Rows and messages that Debezium had published before it was taken over from.
    pub taken_over: u64,
    /// Rows and messages of which the committed position says that they are published, with exactly-once.
    pub done: u64,
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
    /// The same, and it cannot be parked: not all of its aggregate is known.
    #[error(
        "a row of {table} at LSN {lsn} is too large: {size_bytes} bytes, and its aggregate is not known"
    )]
    AggregateUnknown {
        /// The outbox table.
        table: String,
        /// Position of the row.
        lsn: Lsn,
        /// Size of the whole frame.
        size_bytes: u64,
    },
    /// A row has to be parked, and there is no room left.
    #[error("row {row} of {table} cannot be parked: {rows} rows with {bytes} bytes are")]
    ParkingFull {
        /// The row.
        row: RowId,
        /// The outbox table.
        table: String,
        /// Rows that wait.
        rows: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The stream is not the one in which the committed position was taken.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// An UPDATE of the outbox, which the configuration forbids.
    #[error("a row of {table} was updated, at LSN {lsn}")]
    Updated {
        /// The outbox table.
        table: String,
        /// Position of the change.
        lsn: Lsn,
    },
}

impl Intake {
    /// Fresh state for a new connection: relations are always sent again.
    #[must_use]
    pub fn new(routing: impl Into<Routing>, tolerance: Tolerance) -> Self {
        Self {
            transactions: Transactions::new(),
            done: Done::default(),
            routing: routing.into(),
            tolerance,
            poison: Poison::default(),
            own_schema: String::new(),
            catalog: CatalogWatch::default(),
            ignored: Ignored::default(),
            tolerated_told: Tolerated::default(),
            reach: Reach::default(),
            dangling: None,
            taken_over: None,
        }
    }

    /// Leaves out what Debezium has published.
    pub fn take_over(&mut self, taken_over: Option<TakenOver>) {
        self.taken_over = taken_over;
    }

    /// The same, with rules for poison events, and with the schema that is our own.
    #[must_use]
    pub fn with_poison(mut self, poison: Poison, own_schema: &str) -> Self {
        self.poison = poison;
        self.own_schema = own_schema.to_owned();
        self
    }

    /// What is done with poison events, and what was.
    pub fn poison(&mut self) -> &mut Poison {
        &mut self.poison
    }

    /// Passes over what comes again up to `position`. Call it before the first frame.
    #[must_use]
    pub fn behind(mut self, position: Position) -> Self {
        self.done = Done::new(position);
        self
    }

    /// The router's catalog says what held at `position` or later. Call it before the first frame.
    pub fn catalog_read_at(&mut self, position: Lsn) {
        self.catalog.read_at(position);
    }

    /// The table about which the catalog has to be read again before the next frame is taken.
    #[must_use]
    pub fn outdated_catalog(&self) -> Option<&Outdated> {
        self.catalog.outdated()
    }

    /// Takes what a later reading of the catalog says; it was made at `position` or later.
    pub fn extend_catalog(&mut self, position: Lsn, later: Catalog) {
        self.routing.extend_catalog(later);
        self.catalog.read_at(position);
    }

    /// Takes one `CopyData` body, appending what it yields to the batch. `now_ms` is the wall clock.
    ///
    /// # Errors
    ///
    /// See [`IntakeError`]. The batch keeps everything taken before and nothing of the failed row.
    pub fn handle_frame(
        &mut self,
        frame: &[u8],
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<Taken, IntakeError> {
        match Envelope::parse(frame)? {
            Envelope::XLogData {
                start_lsn,
                wal_end,
                message,
                ..
            } => {
                self.handle_message(start_lsn, message, now_ms, batch)?;
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
                    self.followed_by(wal_end);
                }
                Ok(Taken::Keepalive {
                    wal_end,
                    reply_requested,
                })
            }
        }
    }

    /// Takes what an [`InsertSkim`](pgoutput::InsertSkim) kept of a frame whose body was larger than `frame_bytes_max` and
    /// was read past.
    ///
    /// # Errors
    ///
    /// [`IntakeError::TooLarge`] for a row of an outbox, unless the rules for poison events say something else; rows of
    /// other tables are ignored like any other.
    pub fn handle_too_large(
        &mut self,
        size_bytes: u64,
        excerpt: &[u8],
        batch: &mut Batch,
    ) -> Result<Taken, IntakeError> {
        let (start_lsn, wal_end, message) = match Envelope::parse(excerpt)? {
            Envelope::XLogData {
                start_lsn,
                wal_end,
                message,
                ..
            } => (start_lsn, wal_end, message),
            Envelope::Keepalive { wal_end, .. } => return Ok(Taken::Data { wal_end }),
        };
        // Only an insert makes a record; an update or delete of the outbox never does.
        let insert = match peek_relation_id(message) {
            Some(id) if self.routing.is_outbox(id) => InsertExcerpt::read(message)?,
            _ => None,
        };
        let Some(insert) = insert else {
            self.transactions.pass_over(message);
            self.ignored.inserts += 1;
            return Ok(Taken::Data { wal_end });
        };
        let step = self
            .transactions
            .handle(start_lsn, decode(&insert.message)?)?;
        if let Step::Insert(row) = step {
            let error = IntakeError::TooLarge {
                table: table_name(row.relation),
                lsn: start_lsn,
                size_bytes,
            };
            let is_done = self.done.has(row.insert_index);
            let place = (Some(row.transaction), row.lsn);
            if is_published(is_done, self.taken_over.as_mut(), place, &mut self.ignored) {
                return Ok(Taken::Data { wal_end });
            }
            let became =
                self.poison
                    .take_too_large(error, &row, &insert.left_out, &self.routing, batch)?;
            poison::enter(became, row.insert_index + 1, batch);
        }
        Ok(Taken::Data { wal_end })
    }

    /// Whether the stream is inside a transaction.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.transactions.is_open()
    }

    /// Whether a record was read that stands outside any transaction, and nothing after it that a position could follow.
    ///
    /// A position passes such a record only by a later commit or keepalive: whoever stops reading before one would have it
    /// sent again.
    #[must_use]
    pub fn is_dangling(&self) -> bool {
        self.dangling.is_some()
    }

    /// How far was read on this connection: to the newest transaction that was begun, or to the newest message that is a
    /// record of its own, whichever is later.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The counts since the last call.
    pub fn take_ignored(&mut self) -> Ignored {
        std::mem::take(&mut self.ignored)
    }

    /// What was sent since the last call although not all of it could be made what it was asked to be.
    pub fn take_tolerated(&mut self) -> Tolerated {
        let all = self.routing.tolerated();
        let told = std::mem::replace(&mut self.tolerated_told, all);
        Tolerated {
            payloads_verbatim: all.payloads_verbatim - told.payloads_verbatim,
            rows_nulled: all.rows_nulled - told.rows_nulled,
        }
    }

    /// The column of the newest row of which a value could not be converted and was sent as NULL.
    #[must_use]
    pub fn nulled_column(&self) -> Option<&str> {
        self.routing.nulled_column()
    }

    fn handle_message(
        &mut self,
        start_lsn: Lsn,
        message: &[u8],
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<(), IntakeError> {
        let message = decode(message)?;
        self.note_type(&message);
        self.judge_update(start_lsn, &message)?;
        match self.transactions.handle(start_lsn, message)? {
            Step::Begin(transaction) => {
                self.done.begin(&transaction)?;
                self.reach = self.reach.max(Reach::transaction(transaction.final_lsn));
                self.catalog.begin(transaction);
                self.taken_over
                    .take_if(|taken_over| taken_over.is_over(transaction));
                batch.entries.push(Entry::Begin(transaction));
            }
            Step::Commit { end_lsn, .. } => {
                self.done.commit()?;
                batch.entries.push(Entry::Commit { end_lsn });
                self.dangling = None;
                if let Some(taken_over) = &mut self.taken_over {
                    taken_over.skipper.handle_commit();
                }
            }
            Step::Relation(relation) if relation.namespace == self.own_schema => {}
            Step::Relation(relation) => self.catalog.note(relation, &mut self.routing),
            Step::Insert(row) => {
                let is_done = self.done.has(row.insert_index);
                let taken_over = self.taken_over.as_mut();
                let taken_over = taken_over.filter(|_| self.routing.is_outbox(row.relation.id));
                let place = (Some(row.transaction), row.lsn);
                if is_published(is_done, taken_over, place, &mut self.ignored) {
                    return Ok(());
                }
                let became = self.poison.take(&row, &mut self.routing, now_ms, batch)?;
                poison::enter(became, row.insert_index + 1, batch);
                match became {
                    Became::Routed(Routed::NotOutbox) => self.ignored.inserts += 1,
                    Became::Routed(Routed::Dropped(_)) => self.ignored.filtered += 1,
                    Became::Routed(Routed::Record) | Became::Settled => {}
                }
            }
            Step::Ignored(operation) => self.ignored.count(operation),
            Step::Logical {
                transaction,
                insert_index,
                lsn,
                prefix,
                content,
            } => {
                let is_inside = transaction.is_some();
                let is_done = self.done.has_logical(is_inside, insert_index, lsn);
                let (taken_over, place) = (self.taken_over.as_mut(), (transaction, lsn));
                if is_published(is_done, taken_over, place, &mut self.ignored) {
                    return Ok(());
                }
                let message = LogicalMessage {
                    transaction,
                    insert_index,
                    lsn,
                    prefix,
                    content,
                };
                let entry = entry_of(&message);
                let routed = self
                    .routing
                    .route_message(message, now_ms, &mut batch.records);
                self.settle_message(routed, lsn, entry, batch)?;
            }
        }
        Ok(())
    }

    /// The server names a domain's base type before the first row that uses it.
    fn note_type(&mut self, message: &Message<'_>) {
        if let Message::Type {
            oid,
            namespace,
            name,
        } = message
        {
            self.routing.handle_type(*oid, namespace, name);
        }
    }

    fn settle_message(
        &mut self,
        routed: Result<Routed, RouteError>,
        lsn: Lsn,
        entry: Entry,
        batch: &mut Batch,
    ) -> Result<(), IntakeError> {
        let is_alone = matches!(entry, Entry::Message { .. });
        match self.settle(routed, lsn, entry, batch)? {
            Some(Routed::NotOutbox) => self.ignored.messages += 1,
            Some(Routed::Record) if is_alone => {
                self.reach = self.reach.max(Reach::message(lsn));
                self.dangling = Some(lsn);
            }
            _ => {}
        }
        Ok(())
    }

    /// Enters what became of a message; `None` if it was passed over.
    fn settle(
        &mut self,
        routed: Result<Routed, RouteError>,
        lsn: Lsn,
        entry: Entry,
        batch: &mut Batch,
    ) -> Result<Option<Routed>, IntakeError> {
        match &routed {
            Ok(Routed::Record) => batch.entries.push(entry),
            Ok(Routed::Dropped(_)) => self.ignored.filtered += 1,
            Ok(Routed::NotOutbox) | Err(_) => {}
        }
        match routed {
            Ok(routed) => Ok(Some(routed)),
            Err(source) => {
                self.poison
                    .take_message(IntakeError::Route { lsn, source })?;
                Ok(None)
            }
        }
    }

    /// The server stands at `position`, between transactions. A message's place is the end of its log record: a server
    /// that is idle after it stands just there, and starts behind it when asked to start there. What it said while the
    /// message was still being sent means a place before it.
    fn followed_by(&mut self, position: Lsn) {
        self.dangling.take_if(|message| position >= *message);
    }

    /// `table.op.invalid.behavior=fatal`.
    fn judge_update(&self, lsn: Lsn, message: &Message<'_>) -> Result<(), IntakeError> {
        let Message::Update { relation_id, .. } = message else {
            return Ok(());
        };
        if !self.tolerance.stop_at_updates || !self.routing.is_outbox(*relation_id) {
            return Ok(());
        }
        let table = self.transactions.relation(*relation_id).map(table_name);
        Err(IntakeError::Updated {
            table: table.unwrap_or_default(),
            lsn,
        })
    }
}

/// Whether a row or message was published before: by Debezium, or by an earlier attempt of ours, of which `is_done` tells.
fn is_published(
    is_done: bool,
    taken_over: Option<&mut TakenOver>,
    (transaction, lsn): (Option<TransactionId>, Lsn),
    ignored: &mut Ignored,
) -> bool {
    if let (Some(taken_over), Some(transaction)) = (taken_over, transaction)
        && taken_over.is_done(transaction, lsn, ignored)
    {
        return true;
    }
    ignored.done += u64::from(is_done);
    is_done
}

fn entry_of(message: &LogicalMessage<'_>) -> Entry {
    match message.transaction {
        Some(_) => Entry::Record {
            inserts: message.insert_index + 1,
        },
        None => Entry::Message { lsn: message.lsn },
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

#[cfg(test)]
#[path = "intake_tests.rs"]
pub(crate) mod tests;
