//! Parking: the tables of parked and skipped events in the source database, over a connection of our own.
//!
//! The promise: when [`Parking::write`] has returned, the rows are durable, and parking one again changes nothing. Commands
//! of a person and the running connector meet in these tables and nowhere else.

use std::collections::HashSet;

use pgoutput::{Lsn, RowId};
use replication::quote_ident;
use tokio_postgres::types::PgLsn;
use tokio_postgres::{Client, Row};

use crate::codes::{Code, Problem};
use crate::parked_row::ParkedRow;
use crate::parking_rows::{INSERT_COLUMNS, insert, parked_row, stored_lsn};
use crate::poison::{Aside, Reason};
use crate::policy::RunError;
use crate::preconditions::CheckError;
use crate::watchlist::{Aggregate, SkipRequest, SkippedEvent, Waiting, Watchlist};

/// The tables of one slot.
#[derive(Debug)]
pub struct Parking {
    sql: Client,
    schema_name: String,
    /// The same, in quotes.
    schema: String,
    pub(crate) slot: String,
}

/// Which of the tables are there, and what of them may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// `parked` can be read and written.
    pub parked: Access,
    /// `skipped` can be.
    pub skipped: Access,
}

/// What a role may do with a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There is none.
    Missing,
    /// It lacks a right.
    Refused,
    /// All that is needed.
    Granted,
}

impl Parking {
    /// Takes a connection for the tables of this schema and slot.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn new(sql: Client, schema: &str, slot: &str) -> Result<Self, RunError> {
        let parking = Self {
            sql,
            schema_name: schema.to_owned(),
            schema: quote_ident(schema),
            slot: slot.to_owned(),
        };
        // The role's own settings must not make "written" mean less than durable, nor let a lock hold the stream for long.
        parking
            .batch("SET synchronous_commit = on; SET lock_timeout = '5s'; SET statement_timeout = '30s'; \
                    SET default_transaction_read_only = off")
            .await?;
        Ok(parking)
    }

    /// Takes the tables over from whoever parked before: this session is the only one of the slot from here on. Whoever owns
    /// the slot calls it, before [`Self::load`].
    ///
    /// A process that was frozen and lost its slot knows nothing of that when it wakes. Would it still write down what it had
    /// read, the row would be published from the table, and the new owner had published it from the stream. So its session is
    /// ended first.
    ///
    /// # Errors
    ///
    /// The connection was lost, or the other session does not end in time.
    pub async fn take_over(&self) -> Result<(), RunError> {
        let key = "pg_catalog.hashtextextended('posthaste.parked ' || $1::text, 0)";
        let tried = format!("SELECT pg_catalog.pg_try_advisory_lock({key})");
        let rows = self.query(&tried, &[&self.slot]).await?;
        if rows.first().map_or(Ok(false), |row| get(row, 0))? {
            return Ok(());
        }
        // The two halves of the key, as pg_locks shows it. A session of another role is not ours to end.
        self.query(
            &format!(
                "SELECT pg_catalog.pg_terminate_backend(l.pid) \
                 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
                 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.usename = current_user \
                   AND a.datname = pg_catalog.current_database() \
                   AND (l.classid::bigint << 32 | l.objid::bigint) = {key}"
            ),
            &[&self.slot],
        )
        .await?;
        self.query(
            &format!("SELECT pg_catalog.pg_advisory_lock({key})"),
            &[&self.slot],
        )
        .await
        .map(drop)
    }

    /// What there is, and what the role may do with it.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn tables(&self) -> Result<Tables, RunError> {
        Ok(Tables {
            parked: self
                .access("parked", &["SELECT", "INSERT", "UPDATE", "DELETE"])
                .await?,
            skipped: self.access("skipped", &["SELECT", "UPDATE"]).await?,
        })
    }

    async fn access(&self, table: &str, rights: &[&str]) -> Result<Access, RunError> {
        // Without USAGE on the schema the name itself is refused, so the catalogs are asked.
        let row = self
            .sql
            .query_opt(
                "SELECT c.oid, pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname::pg_catalog.text = $1 AND c.relname::pg_catalog.text = $2",
                &[&self.schema_name, &table],
            )
            .await
            .map_err(lost)?;
        let Some(row) = row else {
            return Ok(Access::Missing);
        };
        let (oid, usage): (u32, bool) = (get(&row, 0)?, get(&row, 1)?);
        for right in rights {
            let row = self
                .sql
                .query_one(
                    "SELECT pg_catalog.has_table_privilege($1::pg_catalog.oid, $2)",
                    &[&oid, right],
                )
                .await
                .map_err(lost)?;
            if !usage || !get::<bool>(&row, 0)? {
                return Ok(Access::Refused);
            }
        }
        Ok(Access::Granted)
    }

    /// Says which table or right is missing.
    #[must_use]
    pub fn complain(&self, table: &str, access: Access) -> Option<Problem> {
        let name = format!("{}.{table}", self.schema);
        match access {
            Access::Granted => None,
            Access::Missing => Some(
                Problem::new(Code::ParkingMissing, format!("table {name}"))
                    .found("no such table")
                    .needed("the tables for parked and skipped events in the source database")
                    .fix("run sql/004_poison.sql there, as the owner of the database"),
            ),
            Access::Refused => Some(
                Problem::new(Code::ParkingRights, format!("table {name}"))
                    .found("a right is missing")
                    .needed("SELECT, INSERT, UPDATE and DELETE for the connector's role, and USAGE on the schema")
                    .fix(format!(
                        "GRANT USAGE ON SCHEMA {0} TO role; GRANT SELECT, INSERT, UPDATE, DELETE ON {0}.parked, {0}.skipped TO role",
                        self.schema
                    )),
            ),
        }
    }

    /// Fills in what is known of rows to come: the stream starts at `start`. What is done with and lies before it is forgotten.
    /// If some are in the table already, a position behind all their commits is returned.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn load(
        &self,
        start: Lsn,
        watchlist: &mut Watchlist,
    ) -> Result<Option<Lsn>, RunError> {
        self.forget_before(start).await?;
        let rows = self
            .query(
                "SELECT commit_lsn, insert_index FROM {schema}.parked WHERE slot = $1 AND commit_lsn >= $2",
                &[&self.slot, &PgLsn::from(start.as_u64())],
            )
            .await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(row_id).collect();
        let rows = rows?;
        let has_some = !rows.is_empty();
        watchlist.settle(rows);
        let (aggregates, waiting) = self.waiting().await?;
        watchlist.set_parked(aggregates, waiting);
        Ok(if has_some {
            Some(self.wal_position().await?)
        } else {
            None
        })
    }

    /// The events that a person has decided to pass over and that may still come: also those that were passed over already
    /// and come again, since the stream starts at `start`.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn skip_requests(&self, start: Lsn) -> Result<Vec<SkipRequest>, RunError> {
        let rows = self
            .query(
                "SELECT id, event_id, commit_lsn, insert_index FROM {schema}.skipped \
                 WHERE slot = $1 AND (skipped_at IS NULL OR commit_lsn >= $2) ORDER BY id LIMIT 10000",
                &[&self.slot, &PgLsn::from(start.as_u64())],
            )
            .await?;
        rows.iter().map(skip_request).collect()
    }

    /// Aggregates with rows that wait, and how much waits in all.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn waiting(&self) -> Result<(HashSet<Aggregate>, Waiting), RunError> {
        let rows = self
            .query(
                "SELECT aggregate_type, aggregate_id, pg_catalog.count(*), pg_catalog.sum(bytes)::bigint \
                 FROM {schema}.parked WHERE slot = $1 AND state IN ('held', 'queued') GROUP BY 1, 2",
                &[&self.slot],
            )
            .await?;
        let mut aggregates = HashSet::new();
        let mut waiting = Waiting::default();
        for row in &rows {
            let (kind, id): (Option<&[u8]>, Option<&[u8]>) = (get(row, 0)?, get(row, 1)?);
            aggregates.extend(Aggregate::of(kind, id));
            waiting.rows += number(row, 2)?;
            waiting.bytes += number(row, 3)?;
        }
        Ok((aggregates, waiting))
    }

    /// Writes down what was put aside, in one transaction, and returns a position behind its commit.
    ///
    /// # Errors
    ///
    /// The connection was lost: it is not known whether it is written, and writing it again is right.
    ///
    /// # Cancel safety
    ///
    /// As for errors.
    pub async fn write(&mut self, aside: &Aside) -> Result<Lsn, RunError> {
        let statement = self.text(&format!(
            "INSERT INTO {{schema}}.parked ({INSERT_COLUMNS}) VALUES \
             ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) \
             ON CONFLICT (slot, commit_lsn, insert_index) DO NOTHING"
        ));
        let skipped = self.text(
            "UPDATE {schema}.skipped SET skipped_at = coalesce(skipped_at, now()), commit_lsn = $2, insert_index = $3 WHERE id = $1",
        );
        let transaction = self.sql.transaction().await.map_err(lost)?;
        if !aside.rows.is_empty() {
            let statement = transaction.prepare(&statement).await.map_err(lost)?;
            for row in &aside.rows {
                insert(&transaction, &statement, &self.slot, row)
                    .await
                    .map_err(lost)?;
            }
        }
        for (request, row) in &aside.skipped {
            let (lsn, index) = stored_row_id(*row);
            transaction
                .execute(&skipped, &[&request.number, &lsn, &index])
                .await
                .map_err(lost)?;
        }
        transaction.commit().await.map_err(lost)?;
        self.wal_position().await
    }

    /// How far the log is on disk. Behind every commit of ours, each of which waited for that; and behind all that was ever sent.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn wal_position(&self) -> Result<Lsn, RunError> {
        let statement = "SELECT pg_catalog.pg_current_wal_flush_lsn()";
        let row = self.sql.query_one(statement, &[]).await.map_err(lost)?;
        Ok(stored_lsn(get(&row, 0)?))
    }

    /// Rows that may be published now, in stream order: queued, passed by the position, and with nothing of their aggregate
    /// held before them.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn publishable(
        &self,
        confirmed: Lsn,
        rows_max: i64,
    ) -> Result<Vec<ParkedRow>, RunError> {
        let rows = self
            .query(
                "SELECT id, commit_lsn, insert_index, aggregate_type, aggregate_id, event_id, reason, attempts, \
                        source_schema, source_table, lsn, xid, commit_micros, column_names, column_types, \
                        column_type_modifiers, column_values, column_known \
                 FROM {schema}.parked p \
                 WHERE slot = $1 AND state = 'queued' AND commit_lsn < $2 AND NOT EXISTS ( \
                    SELECT FROM {schema}.parked held \
                    WHERE held.slot = p.slot AND held.state = 'held' AND held.aggregate_id = p.aggregate_id \
                      AND held.aggregate_type IS NOT DISTINCT FROM p.aggregate_type \
                      AND (held.commit_lsn, held.insert_index) < (p.commit_lsn, p.insert_index)) \
                 ORDER BY commit_lsn, insert_index LIMIT $3",
                &[&self.slot, &PgLsn::from(confirmed.as_u64()), &rows_max],
            )
            .await?;
        let queued = rows.iter().map(|row| parked_row(row).map_err(lost));
        queued.collect()
    }

    /// These rows are acknowledged, whatever a person made of them meanwhile. Returns a position behind the commit.
    ///
    /// # Errors
    ///
    /// The connection was lost: it is not known whether they are noted, and noting them again is right.
    pub async fn published(&self, rows: &[RowId]) -> Result<Lsn, RunError> {
        let (lsns, indexes): (Vec<PgLsn>, Vec<i64>) =
            rows.iter().copied().map(stored_row_id).unzip();
        self.execute(
            "UPDATE {schema}.parked p SET state = 'published', changed_at = now() \
             FROM ROWS FROM (pg_catalog.unnest($2::pg_lsn[]), pg_catalog.unnest($3::bigint[])) AS done (commit_lsn, insert_index) \
             WHERE p.slot = $1 AND p.commit_lsn = done.commit_lsn AND p.insert_index = done.insert_index \
               AND p.state <> 'published'",
            &[&self.slot, &lsns, &indexes],
        )
        .await?;
        self.wal_position().await
    }

    /// This row was refused again, by the router or by Kafka.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    pub async fn refused(&self, row: RowId, reason: &Reason) -> Result<(), RunError> {
        let (lsn, index) = stored_row_id(row);
        self.execute(
            "UPDATE {schema}.parked SET state = 'held', attempts = attempts + 1, stage = $4, code = $5, reason = $6, \
                    changed_at = now() \
             WHERE slot = $1 AND commit_lsn = $2 AND insert_index = $3 AND state = 'queued'",
            &[
                &self.slot,
                &lsn,
                &index,
                &reason.stage.name(),
                &reason.code.to_string(),
                &reason.text,
            ],
        )
        .await
    }

    /// Forgets what is done with and lies before `position`: it cannot come again. A server that crashed may go back, so a day
    /// is waited.
    async fn forget_before(&self, position: Lsn) -> Result<(), RunError> {
        self.execute(
            "DELETE FROM {schema}.parked WHERE slot = $1 AND state IN ('published', 'discarded') AND commit_lsn < $2 \
             AND changed_at < now() - interval '1 day'",
            &[&self.slot, &PgLsn::from(position.as_u64())],
        )
        .await
    }

    /// The statement with the schema's name.
    pub(crate) fn text(&self, statement: &str) -> String {
        statement.replace("{schema}", &self.schema)
    }

    pub(crate) fn slot(&self) -> &str {
        &self.slot
    }

    pub(crate) async fn query(
        &self,
        statement: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, RunError> {
        let statement = self.text(statement);
        self.sql
            .query(statement.as_str(), parameters)
            .await
            .map_err(lost)
    }

    async fn execute(
        &self,
        statement: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<(), RunError> {
        let statement = self.text(statement);
        let done = self.sql.execute(statement.as_str(), parameters).await;
        done.map(drop).map_err(lost)
    }

    async fn batch(&self, statements: &str) -> Result<(), RunError> {
        self.sql.batch_execute(statements).await.map_err(lost)
    }
}

/// What goes wrong with these tables is judged like any trouble of a connection for queries.
pub(crate) fn lost(error: tokio_postgres::Error) -> RunError {
    CheckError::from(error).into()
}

pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, RunError> {
    row.try_get(at).map_err(lost)
}

fn number(row: &Row, at: usize) -> Result<u64, RunError> {
    let number: i64 = get(row, at)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn row_id(row: &Row) -> Result<RowId, RunError> {
    Ok(RowId {
        commit_lsn: stored_lsn(get(row, 0)?),
        insert_index: number(row, 1)?,
    })
}

fn skip_request(row: &Row) -> Result<SkipRequest, RunError> {
    let (lsn, index): (Option<PgLsn>, Option<i64>) = (get(row, 2)?, get(row, 3)?);
    let event = match (get::<Option<String>>(row, 1)?, lsn, index) {
        (_, Some(lsn), Some(index)) => SkippedEvent::Row(RowId {
            commit_lsn: stored_lsn(lsn),
            insert_index: u64::try_from(index).unwrap_or(0),
        }),
        (id, _, _) => SkippedEvent::Id(id.unwrap_or_default()),
    };
    Ok(SkipRequest {
        number: get(row, 0)?,
        event,
    })
}

pub(crate) fn stored_row_id(row: RowId) -> (PgLsn, i64) {
    let index = i64::try_from(row.insert_index).unwrap_or(i64::MAX);
    (PgLsn::from(row.commit_lsn.as_u64()), index)
}
