//! `Relation`: what a table looked like when its next rows were written, and the cache of them by id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A table as a Relation message described it.
///
/// It holds for the rows that follow, until a Relation message with the same id replaces it: the
/// catalog as it is today may differ, so names and types are taken from here and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The id by which rows refer to it; with `publish_via_partition_root` the root's.
    pub id: u32,
    /// The schema; the wire's empty string has already become `pg_catalog`.
    pub namespace: String,
    /// The table.
    pub name: String,
    /// `relreplident` of `pg_class`: `b'd'`, `b'n'`, `b'f'` or `b'i'`.
    pub replica_identity: u8,
    /// The published columns in the order of the tuples' values; without dropped and unpublished ones.
    pub columns: Vec<Column>,
}

/// A column of a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Whether it is part of the replica identity.
    pub key: bool,
    /// Its name, unquoted.
    pub name: String,
    /// Its type in `pg_type`.
    pub type_oid: u32,
    /// `atttypmod`, -1 when the type has none.
    pub type_modifier: i32,
}

impl Relation {
    /// The position of the column with exactly this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Schema and table for messages; unquoted, so not for SQL.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }
}

/// The newest description of each relation.
///
/// Never evicts, because the server sends a description once per connection and not again: it is as
/// large as the set of published tables that saw a change, and the server holds the same set.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    by_id: HashMap<u32, Relation>,
}

impl Relations {
    /// Takes `relation` in place of what was known under its id.
    pub(crate) fn replace(&mut self, relation: Relation) -> &Relation {
        match self.by_id.entry(relation.id) {
            Entry::Occupied(mut entry) => {
                entry.insert(relation);
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(relation),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Relation> {
        self.by_id.get(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(id: u32, columns: &[&str]) -> Relation {
        let column = |name: &&str| Column {
            key: false,
            name: (*name).to_owned(),
            type_oid: 25,
            type_modifier: -1,
        };
        Relation {
            id,
            namespace: "public".to_owned(),
            name: "outbox".to_owned(),
            replica_identity: b'd',
            columns: columns.iter().map(column).collect(),
        }
    }

    #[test]
    fn columns_are_found_by_exact_name() {
        let relation = relation(1, &["id", "Id", "payload"]);
        assert_eq!(relation.column("Id"), Some(1));
        assert_eq!(relation.column("payload"), Some(2));
        assert_eq!(relation.column("ID"), None);
    }

    #[test]
    fn a_later_description_replaces_only_its_own_id() {
        let mut relations = Relations::default();
        relations.replace(relation(1, &["a"]));
        relations.replace(relation(2, &["b"]));
        assert_eq!(relations.replace(relation(1, &["a", "c"])).columns.len(), 2);
        assert_eq!(relations.get(1).unwrap().column("c"), Some(1));
        assert_eq!(relations.get(2).unwrap().columns.len(), 1);
        assert_eq!(relations.get(3), None);
    }
}
