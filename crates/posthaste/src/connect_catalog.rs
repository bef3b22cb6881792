//! The catalog for the router that follows Debezium: columns, defaults and types of the outbox tables, read at each connect.
//!
//! The stream says neither whether a column may be NULL nor what its default is, and Debezium's records show both.

use router::connect::{Catalog, CatalogColumn, CatalogType, CatalogTypeKind};
use tokio_postgres::{Client, Row};

use crate::preconditions::CheckError;
use crate::preconditions_table::Table;

/// Reads what the catalog has about these tables and the types of their columns.
pub(crate) async fn read(sql: &Client, tables: &[Table]) -> Result<Catalog, CheckError> {
    let mut catalog = Catalog::new();
    for table in tables {
        for row in sql.query(COLUMNS, &[&table.oid]).await? {
            let name: String = row.try_get(0)?;
            let about = CatalogColumn {
                not_null: row.try_get(1)?,
                default_expression: row.try_get(2)?,
            };
            catalog.insert_column(&table.name.schema, &table.name.name, &name, about);
        }
    }
    let oids: Vec<u32> = tables.iter().map(|table| table.oid).collect();
    for row in sql.query(TYPES, &[&oids]).await? {
        let oid: u32 = row.try_get(0)?;
        let name: String = row.try_get(1)?;
        let kind = kind(&row)?;
        catalog.insert_type(oid, CatalogType { name, kind });
    }
    Ok(catalog)
}

fn kind(row: &Row) -> Result<CatalogTypeKind, CheckError> {
    let word: String = row.try_get(2)?;
    Ok(match word.as_str() {
        "d" => CatalogTypeKind::Domain {
            base_oid: row.try_get(3)?,
            type_modifier: row.try_get(4)?,
        },
        "e" => CatalogTypeKind::Enum {
            labels: row.try_get(6)?,
        },
        "c" => CatalogTypeKind::Composite,
        "a" => CatalogTypeKind::Array {
            element_oid: row.try_get(5)?,
        },
        _ => CatalogTypeKind::Base,
    })
}

/// A generated column's expression is no default: no INSERT leaves the column to it.
const COLUMNS: &str = "\
    SELECT a.attname::pg_catalog.text, a.attnotnull, \
           CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END \
    FROM pg_catalog.pg_attribute a \
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
    WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped";

/// The columns' types and whatever these are made of: elements of arrays, bases of domains.
const TYPES: &str = "\
    WITH RECURSIVE used (oid) AS ( \
        SELECT a.atttypid FROM pg_catalog.pg_attribute a \
        WHERE a.attrelid = ANY ($1::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped \
      UNION \
        SELECT CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.typelem END \
        FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid \
        WHERE t.typbasetype <> 0 OR t.typelem <> 0) \
    SELECT t.oid, t.typname::pg_catalog.text, \
           CASE WHEN t.typtype <> 'd' AND t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc \
                THEN 'a' ELSE t.typtype::pg_catalog.text END, \
           t.typbasetype, t.typtypmod, t.typelem, \
           ARRAY (SELECT e.enumlabel::pg_catalog.text FROM pg_catalog.pg_enum e \
                  WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) \
    FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid";
