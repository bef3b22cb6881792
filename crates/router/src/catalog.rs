//! Stage 5 of 9, the catalog: what the stream does not say about columns and types, as SQL has it.

use std::collections::HashMap;

/// What `pg_type`, `pg_enum`, `pg_attribute` and `pg_attrdef` say of the outbox tables and their types.
///
/// The stream names columns and the oids of their types, and no more. Whether a column may be NULL, its default, and
/// what a type is made of, come from here. What is missing here is taken as Debezium takes it: the column is nullable
/// and has no default.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    types: HashMap<u32, CatalogType>,
    tables: HashMap<(String, String), HashMap<String, CatalogColumn>>,
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogType {
    /// `typname`.
    pub name: String,
    /// What it is made of.
    pub kind: CatalogTypeKind,
}

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CatalogTypeKind {
    /// Nothing else; also ranges and whatever is none of the following.
    Base,
    /// `typtype = 'd'`.
    Domain {
        /// `typbasetype`.
        base_oid: u32,
        /// `typtypmod`.
        type_modifier: i32,
    },
    /// `typtype = 'e'`.
    Enum {
        /// `enumlabel`, by `enumsortorder`.
        labels: Vec<String>,
    },
    /// `typtype = 'c'`.
    Composite,
    /// `typelem`, where `typsubscript` is `array_subscript_handler`.
    Array {
        /// `typelem`.
        element_oid: u32,
    },
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogColumn {
    /// `attnotnull`.
    pub not_null: bool,
    /// `pg_get_expr(adbin, adrelid)`: `'{}'::jsonb`, `now()`, `nextval('s'::regclass)`. Not of generated columns.
    pub default_expression: Option<String>,
}

impl Catalog {
    /// One that knows nothing but the built-in types.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a type, or replaces it.
    pub fn insert_type(&mut self, oid: u32, catalog_type: CatalogType) {
        self.types.insert(oid, catalog_type);
    }

    /// Adds a column, or replaces it.
    pub fn insert_column(&mut self, schema: &str, table: &str, column: &str, about: CatalogColumn) {
        self.tables
            .entry((schema.to_owned(), table.to_owned()))
            .or_default()
            .insert(column.to_owned(), about);
    }

    /// Takes over what a later reading says. What only the earlier one has stays: a column that was dropped meanwhile may
    /// still come in rows written before.
    pub fn extend(&mut self, later: Self) {
        self.types.extend(later.types);
        for (table, columns) in later.tables {
            self.tables.entry(table).or_default().extend(columns);
        }
    }

    pub(crate) fn type_by_oid(&self, oid: u32) -> Option<&CatalogType> {
        self.types.get(&oid)
    }

    pub(crate) fn columns(
        &self,
        schema: &str,
        table: &str,
    ) -> Option<&HashMap<String, CatalogColumn>> {
        self.tables.get(&(schema.to_owned(), table.to_owned()))
    }
}
