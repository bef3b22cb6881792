//! Stage 4 of 9: `Row` and `Commit`, from messages in order; every row carries its transaction.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::error::{DecodeError, Violation};
use crate::message::{Message, RelationIds};
use crate::relation::{Relation, Relations};
use crate::row_id::RowId;
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

impl State {
    /// The open transaction, and the number of its next insert or message.
    fn count(&mut self, place: Place) -> Result<(TransactionId, u64), DecodeError> {
        let Self::InTransaction {
            transaction,
            insert_count,
        } = self
        else {
            return Err(place.violates(Violation::OutsideTransaction));
        };
        let index = *insert_count;
        *insert_count += 1;
        debug_assert!(*insert_count > index);
        Ok((*transaction, index))
    }
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
        /// Its number in the transaction, counted together with the rows ([`Row::insert_index`]); 0 when it stands
        /// for itself: then its place in the log is its identity.
        insert_index: u64,
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
    /// Its number among all inserts and transactional logical messages of the transaction that were received, from
    /// 0, before anything is filtered. With the transaction's `final_lsn` it is the row's identity.
    pub insert_index: u64,
    /// Where the insert is in the log; says nothing about the order of rows in the stream.
    pub lsn: Lsn,
    /// Its table, as it was when the row was written.
    pub relation: &'a Relation,
    /// Its values.
    pub tuple: Tuple<'a>,
}

impl Row<'_> {
    /// Its identity in the log.
    #[must_use]
    pub fn id(&self) -> RowId {
        RowId {
            commit_lsn: self.transaction.final_lsn,
            insert_index: self.insert_index,
        }
    }
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
                let (transaction, insert_index) = if transactional {
                    let (transaction, index) = self.state.count(at("Message"))?;
                    (Some(transaction), index)
                } else {
                    (None, 0)
                };
                Ok(Step::Logical {
                    transaction,
                    insert_index,
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

    /// Counts a message that was too large to be taken, so that the rows behind it keep their numbers. `head` is its
    /// beginning.
    pub fn pass_over(&mut self, head: &[u8]) {
        let is_counted = matches!(head, [b'I', ..] | [b'M', TRANSACTIONAL, ..]);
        if let State::InTransaction { insert_count, .. } = &mut self.state
            && is_counted
        {
            *insert_count += 1;
        }
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
        self.open(place)?;
        let relation = known(&self.relations, place, relation_id)?;
        fits(place, relation, &tuple)?;
        let (transaction, insert_index) = self.state.count(place)?;
        debug_assert_eq!(relation.id, relation_id);
        debug_assert_eq!(relation.columns.len(), tuple.column_count());
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

/// The flags of a logical message that belongs to a transaction.
const TRANSACTIONAL: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, decode};

    const XID: u32 = 7;
    const LSN: Lsn = Lsn::new(0x2A);

    fn transaction(final_lsn: u64) -> TransactionId {
        TransactionId {
            final_lsn: Lsn::new(final_lsn),
            commit_time: PgTimestamp::new(1),
            xid: XID,
        }
    }

    fn begin(final_lsn: u64) -> Message<'static> {
        Message::Begin {
            final_lsn: Lsn::new(final_lsn),
            commit_time: PgTimestamp::new(1),
            xid: XID,
        }
    }

    fn commit(commit_lsn: u64, end_lsn: u64) -> Message<'static> {
        Message::Commit {
            commit_lsn: Lsn::new(commit_lsn),
            end_lsn: Lsn::new(end_lsn),
            commit_time: PgTimestamp::new(1),
        }
    }

    fn relation(id: u32, columns: &[&str]) -> Message<'static> {
        let column = |name: &&str| Column {
            key: false,
            name: (*name).to_owned(),
            type_oid: 25,
            type_modifier: -1,
        };
        Message::Relation(Relation {
            id,
            namespace: "public".to_owned(),
            name: format!("t{id}"),
            replica_identity: b'd',
            columns: columns.iter().map(column).collect(),
        })
    }

    // All of relation 1 and of a single null column, unless the name says otherwise.
    fn insert() -> Message<'static> {
        decode(b"I\0\0\0\x01N\0\x01n").unwrap()
    }

    fn insert_of_two_columns() -> Message<'static> {
        decode(b"I\0\0\0\x01N\0\x02nn").unwrap()
    }

    fn update() -> Message<'static> {
        decode(b"U\0\0\0\x01K\0\x01nN\0\x01n").unwrap()
    }

    fn delete() -> Message<'static> {
        decode(b"D\0\0\0\x01K\0\x01n").unwrap()
    }

    fn truncate() -> Message<'static> {
        decode(b"T\0\0\0\x01\0\0\0\0\x01").unwrap()
    }

    fn origin() -> Message<'static> {
        Message::Origin {
            commit_lsn: Lsn::ZERO,
            name: "o",
        }
    }

    fn logical(transactional: bool) -> Message<'static> {
        Message::Logical {
            transactional,
            lsn: Lsn::new(9),
            prefix: "p",
            content: b"c",
        }
    }

    fn after(messages: impl IntoIterator<Item = Message<'static>>) -> Transactions {
        let mut transactions = Transactions::new();
        for message in messages {
            transactions.handle(LSN, message).unwrap();
        }
        transactions
    }

    #[track_caller]
    fn refuse(transactions: &mut Transactions, message: Message<'static>, expected: &str) {
        let was_open = transactions.is_open();
        let error = transactions.handle(LSN, message).unwrap_err().to_string();
        assert_eq!(error, expected);
        assert_eq!(transactions.is_open(), was_open, "an error changes nothing");
    }

    #[test]
    fn a_transaction_from_begin_to_commit() {
        let mut transactions = Transactions::new();
        assert_eq!(
            transactions.handle(LSN, begin(80)),
            Ok(Step::Begin(transaction(80)))
        );
        assert!(transactions.is_open());
        transactions.handle(LSN, relation(1, &["a"])).unwrap();
        assert!(matches!(
            transactions.handle(LSN, insert()),
            Ok(Step::Insert(_))
        ));
        let commit = transactions.handle(LSN, commit(80, 90));
        let expected = Step::Commit {
            transaction: transaction(80),
            end_lsn: Lsn::new(90),
        };
        assert_eq!(commit, Ok(expected));
        assert!(!transactions.is_open());
    }

    #[test]
    fn rows_are_numbered_over_all_tables_and_anew_per_transaction() {
        let mut transactions = after([begin(80), relation(1, &["a"]), relation(2, &["a"])]);
        let other_table = || decode(b"I\0\0\0\x02N\0\x01n").unwrap();
        let mut index = |message| match transactions.handle(LSN, message) {
            Ok(Step::Insert(row)) => Some((row.relation.id, row.insert_index)),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(index(insert()), Some((1, 0)));
        assert_eq!(index(other_table()), Some((2, 1)));
        assert_eq!(index(update()), None);
        assert_eq!(index(insert()), Some((1, 2)));
        assert_eq!(index(commit(80, 90)), None);
        assert_eq!(index(begin(180)), None);
        assert_eq!(index(insert()), Some((1, 0)));
    }

    #[test]
    fn a_row_carries_its_position_and_transaction() {
        let mut transactions = after([begin(80), relation(1, &["a"])]);
        match transactions.handle(Lsn::new(77), insert()) {
            Ok(Step::Insert(row)) => {
                assert_eq!((row.lsn, row.transaction), (Lsn::new(77), transaction(80)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_relation_described_again_holds_from_there_on() {
        let mut transactions = after([begin(80), relation(1, &["a"])]);
        transactions.handle(LSN, insert()).unwrap();
        transactions.handle(LSN, relation(1, &["a", "b"])).unwrap();
        match transactions.handle(LSN, insert_of_two_columns()) {
            Ok(Step::Insert(row)) => assert_eq!(row.relation.column("b"), Some(1)),
            other => panic!("{other:?}"),
        }
        refuse(
            &mut transactions,
            insert(),
            "Insert message at 0/2A breaks the protocol: 1 columns for relation public.t1, which was described with 2",
        );
    }

    #[test]
    fn a_row_belongs_to_its_own_relation_not_to_the_last_described() {
        let mut transactions = after([begin(80), relation(1, &["a"]), relation(2, &["x", "y"])]);
        match transactions.handle(LSN, insert()) {
            Ok(Step::Insert(row)) => assert_eq!(row.relation.id, 1),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn housekeeping_is_ignored() {
        let mut transactions = after([begin(80), relation(1, &["a"])]);
        let data_type = Message::Type {
            oid: 1,
            namespace: "n",
            name: "t",
        };
        for (message, operation) in [
            (update(), Operation::Update),
            (delete(), Operation::Delete),
            (truncate(), Operation::Truncate),
            (origin(), Operation::Origin),
            (data_type, Operation::Type),
        ] {
            assert_eq!(
                transactions.handle(LSN, message),
                Ok(Step::Ignored(operation))
            );
        }
    }

    #[test]
    fn logical_messages_inside_and_outside() {
        let mut transactions = Transactions::new();
        let step = |transaction, insert_index| {
            Ok(Step::Logical {
                transaction,
                insert_index,
                lsn: Lsn::new(9),
                prefix: "p",
                content: b"c",
            })
        };
        assert_eq!(transactions.handle(LSN, logical(false)), step(None, 0));
        transactions.handle(LSN, begin(80)).unwrap();
        assert_eq!(
            transactions.handle(LSN, logical(true)),
            step(Some(transaction(80)), 0)
        );
        assert_eq!(transactions.handle(LSN, logical(false)), step(None, 0));
        assert_eq!(
            transactions.handle(LSN, logical(true)),
            step(Some(transaction(80)), 1)
        );
        assert!(transactions.is_open());
    }

    #[test]
    fn rows_are_counted_with_messages_and_with_what_was_too_large() {
        let mut transactions = after([relation(1, &["a"])]);
        let index = |transactions: &mut Transactions| match transactions.handle(LSN, insert()) {
            Ok(Step::Insert(row)) => row.insert_index,
            other => panic!("{other:?}"),
        };
        transactions.pass_over(b"I");
        transactions.handle(LSN, begin(80)).unwrap();
        assert_eq!(index(&mut transactions), 0);
        transactions.handle(LSN, logical(true)).unwrap();
        transactions.handle(LSN, logical(false)).unwrap();
        assert_eq!(index(&mut transactions), 2);
        for head in [b"I\0\0\0", b"M\x01\0\0", b"M\0\0\0", b"U\0\0\0"] {
            transactions.pass_over(head);
        }
        assert_eq!(index(&mut transactions), 5);
        transactions.handle(LSN, commit(80, 90)).unwrap();
        transactions.handle(LSN, begin(100)).unwrap();
        assert_eq!(index(&mut transactions), 0);
    }

    #[test]
    fn changes_outside_a_transaction_are_refused() {
        let mut transactions = after([relation(1, &["a"])]);
        for (message, name) in [
            (insert(), "Insert"),
            (update(), "Update"),
            (delete(), "Delete"),
            (truncate(), "Truncate"),
            (origin(), "Origin"),
            (logical(true), "Message"),
            (commit(80, 90), "Commit"),
        ] {
            let text =
                format!("{name} message at 0/2A breaks the protocol: no transaction is open");
            refuse(&mut transactions, message, &text);
        }
    }

    #[test]
    fn changes_of_an_unknown_relation_are_refused() {
        let mut transactions = after([begin(80), relation(2, &["a"])]);
        for (message, name) in [
            (insert(), "Insert"),
            (update(), "Update"),
            (delete(), "Delete"),
            (truncate(), "Truncate"),
        ] {
            let text = format!(
                "{name} message at 0/2A breaks the protocol: relation 1 was never described"
            );
            refuse(&mut transactions, message, &text);
        }
    }

    #[test]
    fn tuples_that_do_not_fit_are_refused_also_when_ignored() {
        let mut transactions = after([begin(80), relation(1, &["a", "b"])]);
        let two_new = decode(b"U\0\0\0\x01K\0\x01nN\0\x02nn").unwrap();
        let two_old = decode(b"U\0\0\0\x01O\0\x02nnN\0\x01n").unwrap();
        for (message, name) in [
            (insert(), "Insert"),
            (two_new, "Update"),
            (two_old, "Update"),
            (delete(), "Delete"),
        ] {
            let text = format!(
                "{name} message at 0/2A breaks the protocol: 1 columns for relation public.t1, which was described with 2"
            );
            refuse(&mut transactions, message, &text);
        }
    }

    #[test]
    fn a_refused_row_is_not_counted() {
        let mut transactions = after([begin(80), relation(1, &["a"])]);
        transactions
            .handle(LSN, insert_of_two_columns())
            .unwrap_err();
        match transactions.handle(LSN, insert()) {
            Ok(Step::Insert(row)) => assert_eq!(row.insert_index, 0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_nested_begin_is_refused() {
        refuse(
            &mut after([begin(80)]),
            begin(90),
            "Begin message at 0/2A breaks the protocol: the transaction committing at 0/50 is still open",
        );
    }

    #[test]
    fn a_commit_of_something_else_is_refused() {
        refuse(
            &mut after([begin(80)]),
            commit(81, 90),
            "Commit message at 0/2A breaks the protocol: commit at 0/51 of a transaction announced for 0/50",
        );
    }

    #[test]
    fn a_commit_that_ends_before_it_begins_is_refused() {
        for end_lsn in [0, 79, 80] {
            let mut transactions = after([begin(80)]);
            assert!(matches!(
                transactions.handle(LSN, commit(80, end_lsn)),
                Err(DecodeError::Protocol {
                    violation: Violation::CommitEnd { .. },
                    ..
                })
            ));
            assert!(transactions.is_open());
        }
    }

    #[test]
    fn reset_forgets_transaction_and_relations() {
        let mut transactions = after([begin(80), relation(1, &["a"])]);
        assert_eq!(
            transactions
                .relation(1)
                .map(|relation| relation.columns.len()),
            Some(1)
        );
        transactions.reset();
        assert!(!transactions.is_open());
        assert_eq!(transactions.relation(1), None);
        transactions.handle(LSN, begin(80)).unwrap();
        assert!(transactions.handle(LSN, insert()).is_err());
    }
}
