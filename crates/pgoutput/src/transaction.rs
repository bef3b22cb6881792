//! Stage 4 of 9: `Row` and `Commit`, from messages in order; every row carries its transaction.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::error::{DecodeError, Violation};
use crate::message::{Message, RelationIds};
use crate::relation::{Relation, Relations};
use crate::value::Tuple;
use crate::{Lsn, PgTimestamp};

/// Follows one stream from its start and gives every message its context.
///
/// Rows are handed on as they arrive and never gathered: memory does not grow with a transaction.
/// An error leaves the state as it was before the message; the stream cannot be continued behind it.
///
/// ```text
///                     Begin
///        ┌──────┐ ───────────────▶ ┌─────────────────────────────┐
///    ──▶ │ Idle │                  │ InTransaction               │ ──┐ Insert → Row
///   new  └──────┘ ◀─────────────── │   transaction: what Begin   │   │ Update, Delete, Truncate,
///         │    ▲       Commit      │     said                    │   │ Origin → Ignored
///         └────┘  (same position   │   insert_count              │   │ transactional Message
///   in both states: as in Begin)   └─────────────────────────────┘ ◀─┘   → Logical
///   Relation → cached, Type → Ignored,
///   non-transactional Message → Logical              reset: from anywhere to Idle
/// ```
#[derive(Debug, Default)]
pub struct Transactions {
    relations: Relations,
    state: State,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Idle,
    InTransaction {
        transaction: TransactionId,
        insert_count: u64,
    },
}

/// What Begin said about a transaction; unique within a cluster's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId {
    /// Where its commit record begins: the order of transactions in the stream.
    pub final_lsn: Lsn,
    /// When it committed.
    pub commit_time: PgTimestamp,
    /// Its transaction id; wraps around in the life of a cluster.
    pub xid: u32,
}

/// What a message means where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A transaction's rows follow.
    Begin(TransactionId),
    /// A relation is described, for the first time or anew; it holds for the rows from here on.
    Relation(&'a Relation),
    /// A row was inserted.
    Insert(Row<'a>),
    /// Understood, and of no consequence for an outbox.
    Ignored(Operation),
    /// Somebody called `pg_logical_emit_message`.
    Logical {
        /// The transaction it belongs to; `None` when it stands for itself.
        transaction: Option<TransactionId>,
        /// Where it is in the log.
        lsn: Lsn,
        /// Names its purpose.
        prefix: &'a str,
        /// Its bytes.
        content: &'a [u8],
    },
    /// The transaction is complete: the only place where progress may stop.
    Commit {
        /// The transaction.
        transaction: TransactionId,
        /// Confirming this, and nothing less, keeps the transaction from coming again.
        end_lsn: Lsn,
    },
}

/// What kind of message was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A row was updated.
    Update,
    /// A row was deleted.
    Delete,
    /// Tables were truncated.
    Truncate,
    /// The transaction came from another server.
    Origin,
    /// A type that is not built in was named.
    Type,
}

/// One inserted row and everything needed to judge it.
///
/// Invariant: `tuple` has as many values as `relation` has columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The transaction it belongs to.
    pub transaction: TransactionId,
    /// Its number among all inserts of the transaction that were received, from 0.
    pub insert_index: u64,
    /// Where the insert is in the log; says nothing about the order of rows in the stream.
    pub lsn: Lsn,
    /// Its table, as it was when the row was written.
    pub relation: &'a Relation,
    /// Its values.
    pub tuple: Tuple<'a>,
}

impl Transactions {
    /// At the start of a stream: no relation known, no transaction open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next message, which came with `start_lsn` in its envelope.
    ///
    /// # Errors
    /// `Protocol` when the message cannot come here. The caller should end the stream and report.
    pub fn handle<'a>(
        &'a mut self,
        start_lsn: Lsn,
        message: Message<'a>,
    ) -> Result<Step<'a>, DecodeError> {
        let at = |message| Place {
            message,
            lsn: start_lsn,
        };
        match message {
            Message::Begin {
                final_lsn,
                commit_time,
                xid,
            } => self.begin(
                at("Begin"),
                TransactionId {
                    final_lsn,
                    commit_time,
                    xid,
                },
            ),
            Message::Commit {
                commit_lsn,
                end_lsn,
                commit_time: _,
            } => self.commit(at("Commit"), commit_lsn, end_lsn),
            Message::Relation(relation) => Ok(self.describe(relation)),
            Message::Insert { relation_id, new } => self.insert(at("Insert"), relation_id, new),
            Message::Update {
                relation_id,
                old,
                new,
            } => self.ignore_update(at("Update"), relation_id, old, new),
            Message::Delete { relation_id, old } => {
                self.ignore_delete(at("Delete"), relation_id, old)
            }
            Message::Truncate {
                options: _,
                relation_ids,
            } => self.ignore_truncate(at("Truncate"), relation_ids),
            Message::Origin {
                commit_lsn: _,
                name: _,
            } => self
                .open(at("Origin"))
                .map(|_| Step::Ignored(Operation::Origin)),
            Message::Type {
                oid: _,
                namespace: _,
                name: _,
            } => Ok(Step::Ignored(Operation::Type)),
            Message::Logical {
                transactional,
                lsn,
                prefix,
                content,
            } => {
                let transaction = if transactional {
                    Some(self.open(at("Message"))?)
                } else {
                    None
                };
                Ok(Step::Logical {
                    transaction,
                    lsn,
                    prefix,
                    content,
                })
            }
        }
    }

    /// Forgets everything, for a new stream: the server will describe every relation again.
    pub fn reset(&mut self) {
        self.relations.clear();
        self.state = State::Idle;
        debug_assert!(!self.is_open());
        debug_assert!(self.relations.is_empty());
    }

    /// Whether a transaction has begun and not yet committed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::InTransaction { .. })
    }

    /// The newest description of a relation.
    #[must_use]
    pub fn relation(&self, id: u32) -> Option<&Relation> {
        self.relations.get(id)
    }

    fn begin(&mut self, place: Place, new: TransactionId) -> Result<Step<'_>, DecodeError> {
        if let State::InTransaction { transaction, .. } = self.state {
            let open_final_lsn = transaction.final_lsn;
            return Err(place.violates(Violation::NestedBegin { open_final_lsn }));
        }
        self.state = State::InTransaction {
            transaction: new,
            insert_count: 0,
        };
        debug_assert!(self.is_open());
        debug_assert_eq!(self.open(place), Ok(new));
        Ok(Step::Begin(new))
    }

    fn commit(
        &mut self,
        place: Place,
        commit_lsn: Lsn,
        end_lsn: Lsn,
    ) -> Result<Step<'_>, DecodeError> {
        let transaction = self.open(place)?;
        let final_lsn = transaction.final_lsn;
        if commit_lsn != final_lsn {
            return Err(place.violates(Violation::CommitMismatch {
                final_lsn,
                commit_lsn,
            }));
        }
        if end_lsn <= commit_lsn {
            return Err(place.violates(Violation::CommitEnd {
                commit_lsn,
                end_lsn,
            }));
        }
        self.state = State::Idle;
        debug_assert!(!self.is_open());
        debug_assert!(
            final_lsn < end_lsn,
            "checked above, on what the server sent"
        );
        Ok(Step::Commit {
            transaction,
            end_lsn,
        })
    }

    fn describe(&mut self, relation: Relation) -> Step<'_> {
        let id = relation.id;
        let column_count = relation.columns.len();
        let cached = self.relations.replace(relation);
        debug_assert_eq!(cached.id, id);
        debug_assert_eq!(
            cached.columns.len(),
            column_count,
            "the new one, not the one before"
        );
        Step::Relation(cached)
    }

    // The row's own relation id counts, never the Relation last described: with
    // publish_via_partition_root the server describes the partition as well, and then sends the
    // row under the root's id.
    fn insert<'a>(
        &'a mut self,
        place: Place,
        relation_id: u32,
        tuple: Tuple<'a>,
    ) -> Result<Step<'a>, DecodeError> {
        let State::InTransaction {
            transaction,
            insert_count,
        } = &mut self.state
        else {
            return Err(place.violates(Violation::OutsideTransaction));
        };
        let relation = known(&self.relations, place, relation_id)?;
        fits(place, relation, &tuple)?;
        let insert_index = *insert_count;
        *insert_count += 1;
        debug_assert_eq!(relation.id, relation_id);
        debug_assert_eq!(relation.columns.len(), tuple.column_count());
        let transaction = *transaction;
        Ok(Step::Insert(Row {
            transaction,
            insert_index,
            lsn: place.lsn,
            relation,
            tuple,
        }))
    }

    // What is ignored is checked all the same: a tuple that does not fit its relation means that
    // the next row to be published may not fit either.
    fn ignore_update(
        &self,
        place: Place,
        relation_id: u32,
        old: Option<Tuple<'_>>,
        new: Tuple<'_>,
    ) -> Result<Step<'_>, DecodeError> {
        self.open(place)?;
        let relation = known(&self.relations, place, relation_id)?;
        if let Some(old) = old {
            fits(place, relation, &old)?;
        }
        fits(place, relation, &new)?;
        Ok(Step::Ignored(Operation::Update))
    }

    fn ignore_delete(
        &self,
        place: Place,
        relation_id: u32,
        old: Tuple<'_>,
    ) -> Result<Step<'_>, DecodeError> {
        self.open(place)?;
        fits(place, known(&self.relations, place, relation_id)?, &old)?;
        Ok(Step::Ignored(Operation::Delete))
    }

    fn ignore_truncate(
        &self,
        place: Place,
        relation_ids: RelationIds<'_>,
    ) -> Result<Step<'_>, DecodeError> {
        self.open(place)?;
        for relation_id in relation_ids.iter() {
            known(&self.relations, place, relation_id)?;
        }
        Ok(Step::Ignored(Operation::Truncate))
    }

    fn open(&self, place: Place) -> Result<TransactionId, DecodeError> {
        match self.state {
            State::InTransaction { transaction, .. } => Ok(transaction),
            State::Idle => Err(place.violates(Violation::OutsideTransaction)),
        }
    }
}

/// Which message is being handled, for errors.
#[derive(Clone, Copy)]
struct Place {
    message: &'static str,
    lsn: Lsn,
}

impl Place {
    fn violates(self, violation: Violation) -> DecodeError {
        DecodeError::Protocol {
            message: self.message,
            lsn: self.lsn,
            violation,
        }
    }
}

// Takes the cache alone, so that the state beside it can be changed while a relation is borrowed.
fn known(relations: &Relations, place: Place, relation_id: u32) -> Result<&Relation, DecodeError> {
    let unknown = || place.violates(Violation::UnknownRelation { relation_id });
    relations.get(relation_id).ok_or_else(unknown)
}

fn fits(place: Place, relation: &Relation, tuple: &Tuple<'_>) -> Result<(), DecodeError> {
    let (expected, found) = (relation.columns.len(), tuple.column_count());
    if expected == found {
        return Ok(());
    }
    Err(place.violates(Violation::ColumnCount {
        relation: relation.full_name(),
        expected,
        found,
    }))
}
