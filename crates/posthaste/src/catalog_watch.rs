//! Whether the catalog is as new as the stream: a table may be changed while its rows are read. Pure.
//!
//! Where Debezium is followed, records show defaults, optionality and the make of types, which the stream does not carry. The
//! server sends a Relation message again after each change of a table. So one that belongs to a transaction committed after
//! the catalog was read asks for another reading, before any row that follows it is taken.

use pgoutput::{Lsn, Relation, TransactionId};
use router::TableName;

use crate::routing::Routing;

/// When the catalog was read, and what has changed since. Without a catalog nothing is ever outdated.
#[derive(Debug, Default)]
pub(crate) struct CatalogWatch {
    read_at: Option<Lsn>,
    transaction: Option<TransactionId>,
    outdated: Option<Outdated>,
}

/// A table that may have changed after the catalog was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outdated {
    /// The table.
    pub oid: u32,
    /// Its name in the stream.
    pub table: TableName,
    /// Whose changes have to be visible to the next reading.
    pub xid: u32,
}

impl CatalogWatch {
    /// The catalog says what held at `position` or later.
    pub(crate) fn read_at(&mut self, position: Lsn) {
        self.read_at = Some(position);
        self.outdated = None;
    }

    /// The relations that follow are of this transaction.
    pub(crate) fn begin(&mut self, transaction: TransactionId) {
        self.transaction = Some(transaction);
    }

    /// Hands a relation to the router, and takes note of one whose records show the catalog.
    pub(crate) fn note(&mut self, relation: &Relation, routing: &mut Routing) {
        routing.handle_relation(relation);
        if routing.shows_catalog(relation) {
            self.judge(relation);
        }
    }

    fn judge(&mut self, relation: &Relation) {
        let (Some(read_at), Some(transaction)) = (self.read_at, self.transaction) else {
            return;
        };
        // A commit record that begins where the reading stood was written after it.
        if transaction.final_lsn >= read_at {
            self.outdated = Some(Outdated {
                oid: relation.id,
                table: TableName {
                    schema: relation.namespace.clone(),
                    name: relation.name.clone(),
                },
                xid: transaction.xid,
            });
        }
    }

    /// The table about which the catalog has to be read again before the next row.
    pub(crate) fn outdated(&self) -> Option<&Outdated> {
        self.outdated.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use pgoutput::PgTimestamp;

    use super::*;

    fn relation() -> Relation {
        Relation {
            id: 7,
            namespace: "public".to_owned(),
            name: "outbox".to_owned(),
            replica_identity: b'd',
            columns: Vec::new(),
        }
    }

    fn at(final_lsn: u64) -> TransactionId {
        TransactionId {
            final_lsn: Lsn::new(final_lsn),
            commit_time: PgTimestamp::new(0),
            xid: 5,
        }
    }

    #[test]
    fn what_committed_after_the_reading_asks_for_another() {
        for (commit, expected) in [(99, false), (100, true), (101, true)] {
            let mut watch = CatalogWatch::default();
            watch.read_at(Lsn::new(100));
            watch.begin(at(commit));
            watch.judge(&relation());
            assert_eq!(watch.outdated().is_some(), expected, "{commit}");
        }
    }

    #[test]
    fn a_reading_behind_the_change_settles_it() {
        let mut watch = CatalogWatch::default();
        watch.read_at(Lsn::new(100));
        watch.begin(at(150));
        watch.judge(&relation());
        let outdated = watch.outdated().cloned().expect("outdated");
        assert_eq!((outdated.oid, outdated.xid), (7, 5));
        watch.read_at(Lsn::new(200));
        assert_eq!(watch.outdated(), None);
        // The same transaction again, after a reconnect.
        watch.begin(at(150));
        watch.judge(&relation());
        assert_eq!(watch.outdated(), None);
    }

    #[test]
    fn without_a_catalog_there_is_nothing_to_read() {
        let mut watch = CatalogWatch::default();
        watch.begin(at(150));
        watch.judge(&relation());
        assert_eq!(watch.outdated(), None);
    }
}
