//! The catalog for the router that follows Debezium: columns, defaults and types of the outbox tables, read at each connect.
//!
//! It is read again when a table has changed. The stream says neither whether a column may be NULL nor what its default is, and Debezium's records show both.

use std::time::Duration;

use pgoutput::Lsn;
use router::TableName;
use router::connect::{Catalog, CatalogColumn, CatalogType, CatalogTypeKind};
use tokio_postgres::{Client, Row};
use tracing::debug;

use crate::catalog_watch::Outdated;
use crate::config::Pipeline as Settings;
use crate::policy::RunError;
use crate::preconditions::{CheckError, Wanted};
use crate::preconditions_table::Table;
use crate::settings::connect_options;

/// Reads it where Debezium is followed: no other record shows it.
pub(crate) async fn read_if_shown(
    sql: &Client,
    wanted: &Wanted,
    tables: &[Table],
) -> Result<Option<Catalog>, CheckError> {
    if wanted.connect.is_none() {
        return Ok(None);
    }
    let named: Vec<_> = tables
        .iter()
        .map(|table| (table.oid, &table.name))
        .collect();
    read(sql, &named).await.map(Some)
}

/// Reads what the catalog has about these tables and the types of their columns.
pub(crate) async fn read(
    sql: &Client,
    tables: &[(u32, &TableName)],
) -> Result<Catalog, CheckError> {
    let mut catalog = Catalog::new();
    for (oid, table) in tables {
        for row in sql.query(COLUMNS, &[oid]).await? {
            let name: String = row.try_get(0)?;
            let about = CatalogColumn {
                not_null: row.try_get(1)?,
                default_expression: row.try_get(2)?,
            };
            catalog.insert_column(&table.schema, &table.name, &name, about);
        }
    }
    let oids: Vec<u32> = tables.iter().map(|(oid, _)| *oid).collect();
    for row in sql.query(TYPES, &[&oids]).await? {
        let oid: u32 = row.try_get(0)?;
        let name: String = row.try_get(1)?;
        let kind = kind(&row)?;
        catalog.insert_type(oid, CatalogType { name, kind });
    }
    Ok(catalog)
}

/// Reads it about one table that was changed while its rows are read, and says at which position all of it held already.
///
/// # Errors
/// The server cannot be reached, or there is no answer in [`READ_ANEW_TIMEOUT`].
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn read_anew(
    settings: &Settings,
    outdated: &Outdated,
) -> Result<(Lsn, Catalog), RunError> {
    let reading = async {
        let options = connect_options(settings).await?;
        let connecting = replication::connect_sql(&options).await;
        let sql = connecting.map_err(CheckError::from)?;
        // The stream may be ahead of what others see: a commit is sent as soon as it is written, and is visible only
        // when its standbys have it too.
        while !is_visible(&sql, outdated.xid).await? {
            tokio::time::sleep(VISIBLE_PAUSE).await;
        }
        let position = wal_position(&sql).await?;
        let catalog = read(&sql, &[(outdated.oid, &outdated.table)]).await?;
        debug!(table = %outdated.table, %position, "the table was changed: read the catalog again");
        Ok((position, catalog))
    };
    let read = tokio::time::timeout(READ_ANEW_TIMEOUT, reading).await;
    read.unwrap_or(Err(RunError::CatalogUnread {
        table: outdated.table.to_string(),
    }))
}

async fn is_visible(sql: &Client, xid: u32) -> Result<bool, CheckError> {
    let row = sql.query_one(VISIBLE, &[&i64::from(xid)]).await?;
    Ok(row.try_get(0)?)
}

async fn wal_position(sql: &Client) -> Result<Lsn, CheckError> {
    let statement = "SELECT (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::pg_catalog.int8";
    let position: i64 = sql.query_one(statement, &[]).await?.try_get(0)?;
    Ok(Lsn::new(u64::try_from(position).unwrap_or(0)))
}

/// Meanwhile no status goes to the server, so it is well below any `wal_sender_timeout` in use.
const READ_ANEW_TIMEOUT: Duration = Duration::from_secs(10);
const VISIBLE_PAUSE: Duration = Duration::from_millis(20);

/// The stream has the lower half of a transaction's number; the upper one is that of the nearest number to the newest.
const VISIBLE: &str = "\
    SELECT pg_catalog.pg_visible_in_snapshot( \
        (newest + ahead - CASE WHEN ahead >= 2147483648 THEN 4294967296 ELSE 0 END)::pg_catalog.text::pg_catalog.xid8, snapshot) \
    FROM (SELECT snapshot, newest, ($1::pg_catalog.int8 - newest % 4294967296 + 4294967296) % 4294967296 AS ahead \
          FROM (SELECT s AS snapshot, pg_catalog.pg_snapshot_xmax(s)::pg_catalog.text::pg_catalog.int8 AS newest \
                FROM pg_catalog.pg_current_snapshot() AS s) AS n) AS a";

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
