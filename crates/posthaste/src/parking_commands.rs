//! What a person does with the tables of parked and skipped events.

use std::collections::HashSet;

use pgoutput::RowId;
use tokio_postgres::types::ToSql;

use crate::parking::{Access, Parking, Tables, get, stored_row_id};
use crate::policy::RunError;

/// A line of the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) number: i64,
    pub(crate) row: String,
    pub(crate) state: String,
    pub(crate) aggregate: String,
    pub(crate) event_id: String,
    pub(crate) code: String,
    pub(crate) attempts: i32,
    pub(crate) parked_at: String,
    pub(crate) reason: String,
}

/// One event with its columns.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) listed: Listed,
    pub(crate) table: String,
    pub(crate) stage: String,
    pub(crate) columns: Vec<(String, Option<Vec<u8>>, bool)>,
}

/// Which events a command is about.
#[derive(Debug)]
pub(crate) enum Selection<'a> {
    Numbers(&'a [i64]),
    Aggregate {
        id: &'a str,
        of_type: Option<&'a str>,
    },
    All,
}

const LISTED: &str = "id, commit_lsn::text || '#' || insert_index, state, \
    coalesce(pg_catalog.encode(aggregate_type, 'escape'), '-'), coalesce(pg_catalog.encode(aggregate_id, 'escape'), '-'), \
    coalesce(event_id, '-'), code, attempts, pg_catalog.to_char(parked_at, 'YYYY-MM-DD HH24:MI:SS'), reason";

impl Parking {
    /// Event ids of the rows that wait in the table or were given up, of whichever slot, and of those that were passed over.
    pub(crate) async fn set_aside(&self, tables: Tables) -> Result<HashSet<String>, RunError> {
        let mut ids = HashSet::new();
        let sources = [
            (tables.parked, "parked", "state <> 'published'"),
            (tables.skipped, "skipped", "skipped_at IS NOT NULL"),
        ];
        for (access, table, condition) in sources {
            if access != Access::Granted {
                continue;
            }
            let statement = format!(
                "SELECT event_id FROM {{schema}}.{table} WHERE {condition} AND event_id IS NOT NULL"
            );
            for row in self.query(&statement, &[]).await? {
                ids.insert(get(&row, 0)?);
            }
        }
        Ok(ids)
    }

    pub(crate) async fn list(
        &self,
        aggregate_id: Option<&str>,
        all: bool,
        limit: u32,
    ) -> Result<Vec<Listed>, RunError> {
        let rows = self
            .query(
                &format!(
                    "SELECT {LISTED} FROM {{schema}}.parked \
                     WHERE slot = $1 AND ($2 OR state IN ('held', 'queued')) AND ($3::bytea IS NULL OR aggregate_id = $3) \
                     ORDER BY commit_lsn, insert_index LIMIT $4"
                ),
                &[&self.slot(), &all, &aggregate_id.map(str::as_bytes), &i64::from(limit)],
            )
            .await?;
        rows.iter().map(listed).collect()
    }

    pub(crate) async fn show(&self, number: i64) -> Result<Option<Shown>, RunError> {
        let rows = self
            .query(
                &format!(
                    "SELECT {LISTED}, source_schema || '.' || source_table, stage, column_names, column_values, column_known \
                     FROM {{schema}}.parked WHERE slot = $1 AND id = $2"
                ),
                &[&self.slot(), &number],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let names: Vec<String> = get(row, 12)?;
        let values: Vec<Option<Vec<u8>>> = get(row, 13)?;
        let known: Vec<bool> = get(row, 14)?;
        let columns = names.into_iter().zip(values).zip(known);
        Ok(Some(Shown {
            listed: listed(row)?,
            table: get(row, 10)?,
            stage: get(row, 11)?,
            columns: columns
                .map(|((name, value), known)| (name, value, known))
                .collect(),
        }))
    }

    /// Changes a column of an event that is held; whether there is such a one.
    pub(crate) async fn edit(
        &self,
        number: i64,
        column: &str,
        value: Option<&[u8]>,
    ) -> Result<bool, RunError> {
        let changed = self
            .query(
                "UPDATE {schema}.parked SET \
                    column_values[pg_catalog.array_position(column_names, $3)] = $4, \
                    column_known[pg_catalog.array_position(column_names, $3)] = true, changed_at = now() \
                 WHERE slot = $1 AND id = $2 AND state = 'held' AND $3 = ANY(column_names) RETURNING id",
                &[&self.slot(), &number, &column, &value],
            )
            .await?;
        Ok(!changed.is_empty())
    }

    /// Queues held events; how many.
    pub(crate) async fn queue(&self, selection: Selection<'_>) -> Result<usize, RunError> {
        self.set_state("queued", "'held'", selection).await
    }

    /// Gives events up; how many.
    pub(crate) async fn discard(&self, selection: Selection<'_>) -> Result<usize, RunError> {
        self.set_state("discarded", "'held', 'queued'", selection)
            .await
    }

    async fn set_state(
        &self,
        state: &str,
        from: &str,
        selection: Selection<'_>,
    ) -> Result<usize, RunError> {
        let (id, of_type);
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&self.slot, &state];
        let condition = match &selection {
            Selection::All => "true",
            Selection::Numbers(numbers) => {
                parameters.push(numbers);
                "id = ANY($3)"
            }
            Selection::Aggregate {
                id: text,
                of_type: kind,
            } => {
                (id, of_type) = (text.as_bytes(), kind.map(str::as_bytes));
                parameters.push(&id);
                parameters.push(&of_type);
                "aggregate_id = $3 AND ($4::bytea IS NULL OR aggregate_type = $4)"
            }
        };
        let statement = format!(
            "UPDATE {{schema}}.parked SET state = $2, changed_at = now() \
             WHERE slot = $1 AND state IN ({from}) AND {condition} RETURNING id"
        );
        Ok(self.query(&statement, &parameters).await?.len())
    }

    /// Asks for an event to be passed over; the number of the entry in the audit log.
    pub(crate) async fn request_skip(
        &self,
        event: Option<&str>,
        row: Option<RowId>,
        reason: Option<&str>,
    ) -> Result<i64, RunError> {
        let row = row.map(stored_row_id);
        let (lsn, index) = (row.map(|row| row.0), row.map(|row| row.1));
        let rows = self
            .query(
                "INSERT INTO {schema}.skipped (slot, event_id, commit_lsn, insert_index, reason) \
                 VALUES ($1, $2, $3, $4, $5) RETURNING id",
                &[&self.slot(), &event, &lsn, &index, &reason],
            )
            .await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    }
}

fn listed(row: &tokio_postgres::Row) -> Result<Listed, RunError> {
    let (of_type, id): (String, String) = (get(row, 3)?, get(row, 4)?);
    Ok(Listed {
        number: get(row, 0)?,
        row: get(row, 1)?,
        state: get(row, 2)?,
        aggregate: format!("{of_type}/{id}"),
        event_id: get(row, 5)?,
        code: get(row, 6)?,
        attempts: get(row, 7)?,
        parked_at: get(row, 8)?,
        reason: get(row, 9)?,
    })
}
