//! Reconciling: rows that stand in the outbox table and never reached their topics, found and, on request, published.
//!
//! For what a lost slot left behind. Everything is judged in one snapshot of the table, taken before the ends of the topics
//! were looked up and after the slot, where there is one, has passed it: what the stream is still going to deliver is never
//! taken for missing.

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use pgoutput::{Lsn, PgTimestamp};
use router::connect::Routed;
use router::{Record, RecordBuffer};
use sink::TopicReader;
use tokio_postgres::Client;

use crate::captured;
use crate::clock::Now;
use crate::codes::{Code, Problem};
use crate::commands::printing::unwritten;
use crate::config::Pipeline;
use crate::connect_catalog;
use crate::explain;
use crate::parking::{Access, Parking};
use crate::policy::RunError;
use crate::preconditions::CheckError;
use crate::preconditions_server::Server;
use crate::preconditions_table::{Table, base_types};
use crate::reconcile_judge::{CLOCK_MARGIN_MS, Candidates, Fate, ROWS_MAX};
use crate::reconcile_progress::progress;
use crate::reconcile_rows::{OutboxRow, OutboxRows, Plan, Range};
use crate::reconcile_send::Sender;
use crate::reconcile_topics::{kept_since, see_partition};
use crate::routing::Routing;
use crate::run_id;
use crate::settings;
use crate::slot::Slot;
use crate::takeover_offset::unreadable;

/// What to look for, and what to do with what is found.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Which rows.
    pub range: Range,
    /// The column that says when a row was written; `created_at` where there is one.
    pub time_column: Option<String>,
    /// Whether missing rows are published.
    pub publish: bool,
    /// Whether rows whose record may have been there and gone are published too.
    pub include_unknown: bool,
    /// How long to wait for the slot to pass the rows.
    pub wait: Duration,
}

/// What was found and done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows whose record is in its topic.
    pub published: u64,
    /// Rows whose record would still be there, and is not.
    pub missing: u64,
    /// Rows whose record may have been there and gone.
    pub unknown: u64,
    /// Rows that are parked, or that a person decided to pass over.
    pub set_aside: u64,
    /// Rows that make no record: filtered out, or not routable.
    pub without_record: u64,
    /// Records published now.
    pub sent: u64,
}

/// Compares and, if asked to, publishes. Rows that are not published are listed on `out`.
///
/// # Errors
///
/// What kept the comparison from being made, or a record from being published. A second run goes on from there.
pub async fn run(
    pipeline: &Pipeline,
    wish: &Wish,
    out: &mut dyn Write,
) -> Result<Outcome, RunError> {
    let options = settings::connect_options(pipeline).await?;
    let sql = replication::connect_sql(&options)
        .await
        .map_err(CheckError::from)?;
    let server = Server::read(&sql).await?;
    server.judge()?;
    let mut wanted = settings::wanted(pipeline)?;
    wanted.create = false;
    let wanted = captured::with_tables(&sql, &wanted).await?;
    let mut tables = Vec::with_capacity(wanted.tables.len());
    for name in &wanted.tables {
        let table = Table::read(&sql, name, &server.database).await?;
        table.judge(&wanted.columns)?;
        tables.push(table);
    }
    let catalog = connect_catalog::read_if_shown(&sql, &wanted, &tables).await?;
    let mapped = tables
        .iter()
        .flat_map(|table| table.mapped_types(&wanted.columns));
    let base_types = base_types(&sql, mapped.collect()).await?;
    let routing = Routing::new(pipeline, &run_id::new(), base_types, catalog)?;
    sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await
        .map_err(CheckError::from)?;
    let mut run = Run {
        pipeline,
        wish,
        sql: &sql,
        routing,
        records: RecordBuffer::new(),
        outcome: Outcome::default(),
        set_aside: HashSet::new(),
    };
    let mut candidates = run.collect(&tables).await?;
    run.await_slot(server.version).await?;
    run.read_set_aside().await?;
    run.compare(&mut candidates).await?;
    run.settle(&tables, &candidates, out).await?;
    Ok(run.outcome)
}

/// One run's parts.
struct Run<'a> {
    pipeline: &'a Pipeline,
    wish: &'a Wish,
    sql: &'a Client,
    routing: Routing,
    records: RecordBuffer,
    outcome: Outcome,
    /// Event ids of the rows that are in our own tables; `poison.parked_rows_max` bounds them.
    set_aside: HashSet<String>,
}

impl<'a> Run<'a> {
    /// First pass: remembers every row by its topic and event id.
    async fn collect(&mut self, tables: &[Table]) -> Result<Candidates, RunError> {
        let mut candidates = Candidates::default();
        let bar = progress("rows read");
        for table in tables {
            let mut rows = self.open(table).await?;
            self.routing.handle_relation(rows.relation());
            let Self {
                routing, records, ..
            } = self;
            rows.each(&mut |row| {
                bar.inc(1);
                let Some(record) = routed(routing, records, row)? else {
                    return Ok(());
                };
                let id = event_id(&record).unwrap_or_default();
                candidates.insert(record.topic, id).map_err(|error| {
                    Problem::new(Code::ConfigValue, "range")
                        .found(error.to_string())
                        .needed(format!("at most {ROWS_MAX}"))
                        .fix("take smaller ranges, one after another")
                })
            })
            .await?;
        }
        bar.finish_and_clear();
        candidates.seal();
        Ok(candidates)
    }

    /// Waits until the stream has delivered what the snapshot saw. Without a slot nothing more will come.
    async fn await_slot(&self, version: u32) -> Result<(), RunError> {
        let name = &self.pipeline.source.slot;
        let seen = self.sql.query_one(WAL_POSITION, &[]).await;
        let seen: String = seen
            .and_then(|row| row.try_get(0))
            .map_err(CheckError::from)?;
        let seen: Lsn = seen.parse().unwrap_or(Lsn::ZERO);
        let deadline = Instant::now() + self.wish.wait;
        loop {
            let Some(slot) = Slot::read(self.sql, version, name).await? else {
                return Ok(());
            };
            let confirmed = slot.confirmed.unwrap_or(Lsn::ZERO);
            if confirmed >= seen || slot.invalidation.is_some() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(behind(name, confirmed, seen, slot.active).into());
            }
            tokio::time::sleep(SLOT_LOOK_GAP).await;
        }
    }

    /// What is parked will be published from there, or not at all. Read after the slot has passed the rows, as until then
    /// more of them may be parked; and before the ends of the topics are looked up, as until then more may be published.
    async fn read_set_aside(&mut self) -> Result<(), RunError> {
        let options = settings::connect_options(self.pipeline).await?;
        let sql = replication::connect_sql(&options)
            .await
            .map_err(CheckError::from)?;
        let source = &self.pipeline.source;
        let parking = Parking::new(sql, &self.pipeline.poison.schema, &source.slot).await?;
        let tables = parking.tables().await?;
        if let (Access::Refused, Some(problem)) =
            (tables.parked, parking.complain("parked", tables.parked))
        {
            return Err(problem.into());
        }
        self.set_aside = parking.set_aside(tables).await?;
        Ok(())
    }

    /// Looks every topic through, from where the range begins to its present end.
    async fn compare(&self, candidates: &mut Candidates) -> Result<(), RunError> {
        let config = settings::kafka_config(self.pipeline);
        let from_ms = self.since_ms().await?;
        let mut reader = TopicReader::new(&config)?;
        let topics: Vec<String> = candidates.topics().map(str::to_owned).collect();
        for topic in topics {
            // Without the right to know, the careful answer.
            let compacted = sink::is_compacted(&config, &topic).await.unwrap_or(true);
            let bar = progress(&format!("records of {topic} compared"));
            let mut kept_since_ms = compacted.then_some(i64::MAX);
            for partition in 0..reader.partitions(&topic).map_err(unreadable)? {
                let place = (topic.as_str(), partition);
                kept_since_ms = kept_since_ms.max(kept_since(&mut reader, place)?);
                see_partition(&mut reader, place, from_ms, &mut |id| {
                    bar.inc(1);
                    candidates.see(&topic, id);
                })?;
            }
            candidates.set_kept_since(&topic, kept_since_ms);
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// Second pass: lists what is not published, and publishes what is asked for, in the order of the rows.
    async fn settle(
        &mut self,
        tables: &[Table],
        candidates: &Candidates,
        out: &mut dyn Write,
    ) -> Result<(), RunError> {
        let wish = self.wish;
        let mut sender = match wish.publish {
            true => Some(Sender::start(self.pipeline)?),
            false => None,
        };
        for table in tables {
            let mut rows = self.open(table).await?;
            self.routing.handle_relation(rows.relation());
            let Self {
                routing,
                records,
                outcome,
                set_aside,
                ..
            } = self;
            let mut refused = None;
            let passed = rows
                .each(&mut |row| {
                    let Some(record) = routed(routing, records, row)? else {
                        outcome.without_record += 1;
                        return Ok(());
                    };
                    let id = event_id(&record).unwrap_or_default();
                    let fate = candidates.fate(record.topic, id, row.written_at);
                    if fate != Fate::Published
                        && row.event_id.is_some_and(|id| set_aside.contains(id))
                    {
                        outcome.set_aside += 1;
                        return Ok(());
                    }
                    let chosen = outcome.count(fate, wish.include_unknown);
                    if fate != Fate::Published {
                        list(out, fate, &record, row.written_at)?;
                    }
                    if let Some(sender) = sender.as_mut().filter(|_| chosen) {
                        sender.send(&record).map_err(|error| {
                            let problem = explain::publish(error.clone());
                            refused = Some(error);
                            problem
                        })?;
                        outcome.sent += 1;
                    }
                    Ok(())
                })
                .await;
            if let Some(error) = refused {
                return Err(error.into());
            }
            passed?;
        }
        if let Some(mut sender) = sender {
            sender.finish()?;
        }
        Ok(())
    }

    async fn open(&self, table: &Table) -> Result<OutboxRows<'a>, RunError> {
        let mapping = &self.pipeline.router;
        let id = self
            .pipeline
            .connect
            .as_ref()
            .map_or(mapping.id.as_str(), |connect| {
                connect.event_router.table_field_event_id.as_str()
            });
        let asked = self.wish.time_column.as_deref();
        let time = asked.or_else(|| table.column(TIME_COLUMN).map(|_| TIME_COLUMN));
        if let Some(name) = asked.filter(|name| table.column(name).is_none()) {
            return Err(Problem::new(Code::ConfigValue, "--time-column")
                .found(format!("{name:?}"))
                .needed(format!("a column of {}", table.name))
                .fix("name a column of type timestamp or timestamptz")
                .into());
        }
        let plan = Plan {
            table: &table.name,
            oid: table.oid,
            partitioned: table.is_partitioned(),
            range: &self.wish.range,
            id,
            time,
        };
        Ok(OutboxRows::open(self.sql, &plan).await?)
    }

    /// Where in the topics the range begins: no record is older than its row. Only where records carry the time of the
    /// commit or a later one.
    async fn since_ms(&self) -> Result<Option<i64>, RunError> {
        let follows_clock = self.pipeline.connect.is_none()
            && !matches!(
                self.pipeline.router.timestamp,
                router::TimestampSource::Column(_)
            );
        let Some(since) = self.wish.range.since.as_ref().filter(|_| follows_clock) else {
            return Ok(None);
        };
        let row = self.sql.query_one(MILLIS, &[since]).await;
        let millis: i64 = row
            .and_then(|row| row.try_get(0))
            .map_err(CheckError::from)?;
        Ok(Some(millis.saturating_sub(CLOCK_MARGIN_MS)))
    }
}

impl Outcome {
    /// Counts the row; whether it is to be published.
    fn count(&mut self, fate: Fate, include_unknown: bool) -> bool {
        match fate {
            Fate::Published => {
                self.published += 1;
                false
            }
            Fate::Missing => {
                self.missing += 1;
                true
            }
            Fate::Unknown => {
                self.unknown += 1;
                include_unknown
            }
        }
    }

    /// Whether rows are left that are not in their topics, as far as is known.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.missing + self.unknown == self.sent
    }
}

/// The row's record, alone in the buffer; `None` if it makes none.
fn routed<'r>(
    routing: &mut Routing,
    records: &'r mut RecordBuffer,
    row: &OutboxRow<'_>,
) -> Result<Option<Record<'r>>, Problem> {
    records.clear();
    let now_ms = Now::read().wall.unix_micros() / 1_000;
    // A row that cannot be routed was none for the stream either.
    match routing.route(&row.row, now_ms, records) {
        Ok(Routed::Record) => Ok(records.iter().next()),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn event_id<'r>(record: &Record<'r>) -> Option<&'r [u8]> {
    record
        .headers()
        .find(|(name, _)| *name == ID_HEADER)
        .and_then(|(_, value)| value)
}

/// One line: fate, topic, event id, time.
fn list(
    out: &mut dyn Write,
    fate: Fate,
    record: &Record<'_>,
    written_at: Option<PgTimestamp>,
) -> Result<(), Problem> {
    let word = match fate {
        Fate::Published => "published",
        Fate::Missing => "missing",
        Fate::Unknown => "unknown",
    };
    let id = event_id(record).unwrap_or_default();
    let id = id.get(..ID_BYTES_MAX).unwrap_or(id);
    let at = written_at.map_or_else(String::new, |at| (at.unix_micros() / 1_000).to_string());
    writeln!(
        out,
        "{word}\t{}\t{}\t{at}",
        record.topic,
        String::from_utf8_lossy(id).escape_debug()
    )
    .map_err(unwritten)
}

fn behind(slot: &str, confirmed: Lsn, seen: Lsn, active: bool) -> Problem {
    let problem = Problem::new(Code::SlotBehind, format!("replication slot {slot}")).needed(format!(
        "the slot to have passed {seen}, so that what it is still going to deliver is not taken for missing"
    ));
    if active {
        problem
            .found(format!("confirmed up to {confirmed}"))
            .fix("wait until the pipeline has caught up, or give a longer --wait")
    } else {
        problem
            .found(format!("confirmed up to {confirmed}, and nobody reads it"))
            .fix("start `posthaste run` and try again; if the slot is not to be read any more, drop it")
    }
}

/// The header that names an event, in our records and in Debezium's.
pub(crate) const ID_HEADER: &str = "id";

/// The time column of `sql/`.
const TIME_COLUMN: &str = "created_at";

/// How much of an event id is shown.
const ID_BYTES_MAX: usize = 128;

/// Time between two looks at the slot.
const SLOT_LOOK_GAP: Duration = Duration::from_millis(250);

const WAL_POSITION: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text";

const MILLIS: &str = "SELECT (pg_catalog.date_part('epoch', $1::pg_catalog.text::pg_catalog.timestamptz) * 1000)::pg_catalog.int8";
