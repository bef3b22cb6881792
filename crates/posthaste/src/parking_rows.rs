//! How a parked row stands in its table.

use pgoutput::{Column, Lsn, PgTimestamp, RowId};
use router::TableName;
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Error, Row, Statement, Transaction};

use crate::codes::Code;
use crate::parked_row::{ParkedColumn, ParkedRow};
use crate::parking::stored_row_id;
use crate::poison::{Reason, Stage};

/// The columns of an INSERT, in the order of [`insert`].
pub(crate) const INSERT_COLUMNS: &str = "slot, commit_lsn, insert_index, state, aggregate_type, aggregate_id, event_id, stage, code, \
    reason, attempts, source_schema, source_table, lsn, xid, commit_micros, column_names, column_types, \
    column_type_modifiers, column_values, column_known, bytes";

/// What follows a held event is published by itself once that is gone; the event itself waits for a person.
fn first_state(reason: &Reason) -> &'static str {
    match reason.stage {
        Stage::Behind => "queued",
        Stage::Read | Stage::Route | Stage::Publish => "held",
    }
}

pub(crate) async fn insert(
    transaction: &Transaction<'_>,
    statement: &Statement,
    slot: &str,
    row: &ParkedRow,
) -> Result<(), Error> {
    let (commit_lsn, insert_index) = stored_row_id(row.row);
    let columns = &row.columns;
    let names: Vec<&str> = columns.iter().map(|c| c.column.name.as_str()).collect();
    let types: Vec<u32> = columns.iter().map(|c| c.column.type_oid).collect();
    let modifiers: Vec<i32> = columns.iter().map(|c| c.column.type_modifier).collect();
    let values: Vec<Option<&[u8]>> = columns.iter().map(|c| c.value.as_deref()).collect();
    let known: Vec<bool> = columns.iter().map(|c| c.is_known).collect();
    transaction
        .execute(
            statement,
            &[
                &slot,
                &commit_lsn,
                &insert_index,
                &first_state(&row.reason),
                &row.aggregate_type,
                &row.aggregate_id,
                &row.event_id,
                &row.reason.stage.name(),
                &row.reason.code.to_string(),
                &row.reason.text.replace('\0', "\u{fffd}"),
                &i32::try_from(row.reason.attempts).unwrap_or(i32::MAX),
                &row.table.schema,
                &row.table.name,
                &PgLsn::from(row.lsn.as_u64()),
                &i64::from(row.xid),
                &row.commit_time.unix_micros(),
                &names,
                &types,
                &modifiers,
                &values,
                &known,
                &i64::try_from(row.bytes()).unwrap_or(i64::MAX),
            ],
        )
        .await
        .map(drop)
}

/// A row as [`Parking::publishable`](crate::parking::Parking::publishable) selects it.
pub(crate) fn parked_row(row: &Row) -> Result<ParkedRow, Error> {
    let index: i64 = row.try_get(2)?;
    let xid: i64 = row.try_get(11)?;
    let attempts: i32 = row.try_get(7)?;
    let names: Vec<String> = row.try_get(13)?;
    let types: Vec<u32> = row.try_get(14)?;
    let modifiers: Vec<i32> = row.try_get(15)?;
    let values: Vec<Option<Vec<u8>>> = row.try_get(16)?;
    let known: Vec<bool> = row.try_get(17)?;
    let described = names.into_iter().zip(types).zip(modifiers);
    let columns = described.zip(values).zip(known);
    let columns =
        columns.map(
            |((((name, type_oid), type_modifier), value), is_known)| ParkedColumn {
                column: Column {
                    key: false,
                    name,
                    type_oid,
                    type_modifier,
                },
                value,
                is_known,
            },
        );
    Ok(ParkedRow {
        row: RowId {
            commit_lsn: stored_lsn(row.try_get(1)?),
            insert_index: u64::try_from(index).unwrap_or(0),
        },
        commit_time: PgTimestamp::from_unix_micros(row.try_get(12)?),
        xid: u32::try_from(xid).unwrap_or(0),
        lsn: stored_lsn(row.try_get(10)?),
        table: TableName {
            schema: row.try_get(8)?,
            name: row.try_get(9)?,
        },
        aggregate_type: row.try_get(3)?,
        aggregate_id: row.try_get(4)?,
        event_id: row.try_get(5)?,
        reason: Reason {
            stage: Stage::Route,
            code: Code::Unexpected,
            text: row.try_get(6)?,
            attempts: u32::try_from(attempts).unwrap_or(0),
        },
        columns: columns.collect(),
    })
}

pub(crate) fn stored_lsn(lsn: PgLsn) -> Lsn {
    Lsn::new(u64::from(lsn))
}
