//! `Message`: what the output plugin says, in the words of the PostgreSQL manual. Data only.

use std::fmt;

use crate::{Lsn, PgTimestamp, Relation, Tuple};

/// One message of pgoutput protocol version 1 ("Logical Replication Message Formats" in the manual).
///
/// Borrows text and values from the bytes it was decoded from; only a [`Relation`] owns its names,
/// because it outlives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction's changes follow, all of them and nobody else's, up to its Commit.
    Begin {
        /// Where its commit record begins.
        final_lsn: Lsn,
        /// When it committed.
        commit_time: PgTimestamp,
        /// Its transaction id.
        xid: u32,
    },
    /// The transaction is complete.
    Commit {
        /// Where its commit record begins: Begin's `final_lsn` again.
        commit_lsn: Lsn,
        /// Where its commit record ends: confirming this and nothing less keeps it from coming again.
        end_lsn: Lsn,
        /// When it committed.
        commit_time: PgTimestamp,
    },
    /// The transaction was replicated to this server from elsewhere.
    Origin {
        /// Its position on the server it came from; 0/0 as pgoutput sends it.
        commit_lsn: Lsn,
        /// The origin's name.
        name: &'a str,
    },
    /// Describes a table before its first change, and again when its definition changed.
    Relation(Relation),
    /// Names a data type that is not built in, before a Relation that uses it.
    ///
    /// For a domain the server sends the domain's oid with the names of its *base* type.
    Type {
        /// The type in `pg_type`.
        oid: u32,
        /// The schema; the wire's empty string has already become `pg_catalog`.
        namespace: &'a str,
        /// The name.
        name: &'a str,
    },
    /// A row was inserted.
    Insert {
        /// The relation, by its id.
        relation_id: u32,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row was updated.
    Update {
        /// The relation, by its id.
        relation_id: u32,
        /// The row before, or its key ([`Tuple::kind`]); absent when the replica identity did not change.
        old: Option<Tuple<'a>>,
        /// The row after.
        new: Tuple<'a>,
    },
    /// A row was deleted.
    Delete {
        /// The relation, by its id.
        relation_id: u32,
        /// The row, or its key ([`Tuple::kind`]).
        old: Tuple<'a>,
    },
    /// Tables were truncated together.
    Truncate {
        /// Bit 1: CASCADE, bit 2: RESTART IDENTITY.
        options: u8,
        /// The relations, by their ids.
        relation_ids: RelationIds<'a>,
    },
    /// What somebody wrote with `pg_logical_emit_message` ("Message" in the manual).
    Logical {
        /// Whether it belongs to the open transaction; otherwise it stands for itself.
        transactional: bool,
        /// Where it is in the log.
        lsn: Lsn,
        /// Names its purpose.
        prefix: &'a str,
        /// Its bytes, in no particular encoding.
        content: &'a [u8],
    },
}

/// The relations of a [`Message::Truncate`], as a slice of the message.
///
/// Invariant: a whole number of four-byte ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RelationIds<'a> {
    bytes: &'a [u8],
}

impl<'a> RelationIds<'a> {
    /// `bytes` beyond a whole number of ids would be ignored; the decoder takes exactly as many as it counted.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(
            bytes.len() % size_of::<u32>(),
            0,
            "cut by the decoder to whole ids"
        );
        Self { bytes }
    }

    /// The ids in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (ids, _) = self.bytes.as_chunks();
        ids.iter().copied().map(u32::from_be_bytes)
    }

    /// How many relations were truncated.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<u32>()
    }

    /// Whether there is none; the server sends no such message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl fmt::Debug for RelationIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relation_ids_are_read_from_the_message() {
        let ids = RelationIds::new(b"\0\0\x40\0\0\0\x40\x01");
        assert_eq!(ids.iter().collect::<Vec<_>>(), [0x4000, 0x4001]);
        assert_eq!((ids.len(), ids.is_empty()), (2, false));
        assert_eq!(format!("{ids:?}"), "[16384, 16385]");
    }
}
