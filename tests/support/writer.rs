//! Concurrent writers: interleaved transactions of mixed sizes, some rolled back in whole or to a savepoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement, Transaction};

use crate::fixture::{Fixture, connect};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::wait;

/// How a load is written.
#[derive(Debug, Clone)]
pub struct Load {
    /// Writers at the same time; each writes to every aggregate.
    pub writers: usize,
    /// Aggregates, so Kafka keys.
    pub aggregates: usize,
    /// Committed rows after which the load ends by itself.
    pub rows: usize,
    /// Time between two transactions of one writer; none for as fast as it goes.
    pub pace: Option<Duration>,
    /// Where the random choices start.
    pub seed: u64,
}

/// Writers that run in the background.
pub struct Running {
    shared: Arc<Shared>,
    writers: JoinSet<Result<Ledger>>,
    url: String,
}

struct Shared {
    load: Load,
    url: String,
    stop: AtomicBool,
    /// Rows in transactions that were begun to be committed.
    planned: AtomicUsize,
    committed: AtomicUsize,
}

/// Writers of the usual load: more than the four at least that each aggregate needs.
const WRITERS: usize = 8;

/// How long a writer tries to get its connection back.
const OUTAGE_MAX: Duration = Duration::from_secs(180);

/// One event: the version is taken under the aggregate's row lock, which is held until the commit, so that the
/// order of versions is the order of commits.
const INSERT: &str = "
    WITH taken AS (
        UPDATE public.aggregate SET version = version + 1 WHERE id = $1 RETURNING version
    )
    INSERT INTO public.outbox (aggregatetype, aggregateid, type, aggregate_version, payload)
    SELECT 'order', $1, 'changed', version,
           jsonb_build_object('version', version, 'text', repeat('x', (version % 200)::int))
    FROM taken
    RETURNING id::text, aggregate_version";

impl Load {
    /// The usual load, up to `rows` committed rows.
    pub fn new(rows: usize) -> Self {
        Self {
            writers: WRITERS,
            aggregates: 20,
            rows,
            pace: None,
            seed: Random::run_seed(),
        }
    }

    /// A load without an end, of about `transactions_per_second`.
    pub fn steady(transactions_per_second: u32) -> Self {
        let writers = u32::try_from(WRITERS).unwrap_or(1);
        Self {
            pace: Some(Duration::from_secs(1) * writers / transactions_per_second.max(1)),
            ..Self::new(usize::MAX)
        }
    }

    /// Writes the whole load and gives what was committed.
    ///
    /// # Errors
    /// A statement failed, or the table does not hold what the writers were told.
    pub async fn run(self, fixture: &Fixture) -> Result<Ledger> {
        self.start(fixture).await?.finish().await
    }

    /// Starts the writers.
    ///
    /// # Errors
    /// The aggregates cannot be made.
    pub async fn start(self, fixture: &Fixture) -> Result<Running> {
        let client = fixture.client().await?;
        let last = i32::try_from(self.aggregates)?;
        client
            .execute(
                "INSERT INTO public.aggregate (id) SELECT 'a' || n FROM generate_series(1, $1) n
                 ON CONFLICT DO NOTHING",
                &[&last],
            )
            .await?;
        let shared = Arc::new(Shared {
            url: fixture.admin_url(),
            stop: AtomicBool::new(false),
            planned: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            load: self,
        });
        let mut writers = JoinSet::new();
        for index in 0..shared.load.writers {
            writers.spawn(write(Arc::clone(&shared), index));
        }
        Ok(Running {
            url: fixture.admin_url(),
            shared,
            writers,
        })
    }
}

impl Running {
    /// Rows whose commit was answered so far.
    pub fn committed(&self) -> usize {
        self.shared.committed.load(Ordering::Relaxed)
    }

    /// Waits until so many more rows are committed than now.
    ///
    /// # Errors
    /// They are not within the deadline.
    pub async fn goes_on_for(&self, rows: usize, deadline: Duration) -> Result<()> {
        let goal = self.committed().saturating_add(rows);
        wait::until_true("the writers to commit more rows", deadline, async || {
            Ok(self.committed() >= goal)
        })
        .await
    }

    /// Lets each writer end its transaction, then gives what was committed.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub async fn stop(self) -> Result<Ledger> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.finish().await
    }

    /// Waits until the load has come to its own end, then gives what was committed.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub async fn finish(mut self) -> Result<Ledger> {
        let mut told = Ledger::default();
        while let Some(ended) = self.writers.join_next().await {
            told.extend(ended??);
        }
        let ledger = Ledger::from_table(&connect(&self.url).await?).await?;
        // The table is the truth, since a commit's answer may be lost; but what was answered must be in it.
        for (id, event) in told.iter() {
            ensure!(
                ledger.get(id) == Some(event),
                "committed event {id} is not in the table"
            );
        }
        Ok(ledger)
    }
}

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Commit,
    Rollback,
    /// Commit, but without a middle part that is rolled back to its savepoint.
    PartlyRolledBack,
}

async fn write(shared: Arc<Shared>, index: usize) -> Result<Ledger> {
    let seed = shared.load.seed.wrapping_add(index as u64);
    let mut random = Random::new(seed);
    let mut ledger = Ledger::default();
    let mut pace = shared.load.pace.map(tokio::time::interval);
    let connect = || wait::retry("connect to the server", OUTAGE_MAX, || open(&shared.url));
    let mut connection = connect().await?;
    while let Some(size) = shared.next_size(&mut random) {
        if let Some(pace) = pace.as_mut() {
            pace.tick().await;
        }
        let plan = Plan::draw(&mut random, size, shared.load.aggregates);
        match transact(&mut connection, &plan).await {
            Ok(committed) => {
                shared
                    .committed
                    .fetch_add(committed.len(), Ordering::Relaxed);
                ledger.extend(committed);
            }
            // Only a lost connection is survived; a refused statement is a fault of the test.
            Err(error) if is_lost(&error) => {
                connection = connect().await?;
            }
            Err(error) => return Err(error.context(format!("writer {index}, seed {seed}"))),
        }
    }
    Ok(ledger)
}

struct Connection {
    client: Client,
    insert: Statement,
}

async fn open(url: &str) -> Result<Connection> {
    let client = connect(url).await?;
    let insert = client.prepare(INSERT).await?;
    Ok(Connection { client, insert })
}

/// Closed by the server's end (57P01, 57P02, 57P03) or without a word.
fn is_lost(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<tokio_postgres::Error>())
        .any(|error| {
            error.is_closed()
                || error
                    .code()
                    .is_none_or(|code| code.code().starts_with("57P"))
        })
}

impl Shared {
    /// Rows of the next transaction, `None` at the end of the load.
    fn next_size(&self, random: &mut Random) -> Option<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let size = match random.below(100) {
            0..40 => 1,
            40..80 => 2 + random.below(9),
            80..98 => 11 + random.below(40),
            _ => 200,
        };
        let before = self.planned.fetch_add(size, Ordering::Relaxed);
        let left = self.load.rows.saturating_sub(before);
        (left > 0).then(|| size.min(left))
    }
}

struct Plan {
    fate: Fate,
    /// Keys of the rows that are committed, ascending so that no two writers lock crosswise.
    keys: Vec<String>,
}

impl Plan {
    fn draw(random: &mut Random, size: usize, aggregates: usize) -> Self {
        let mut touched: Vec<usize> = (0..1 + random.below(4))
            .map(|_| 1 + random.below(aggregates))
            .collect();
        touched.sort_unstable();
        let keys = (0..size)
            .filter_map(|row| touched.get(row * touched.len() / size))
            .map(|number| format!("a{number}"));
        // Ascending by text, as the locks must be.
        let mut keys: Vec<String> = keys.collect();
        keys.sort_unstable();
        let fate = match random.below(100) {
            0..84 => Fate::Commit,
            84..92 => Fate::Rollback,
            _ => Fate::PartlyRolledBack,
        };
        Self { fate, keys }
    }
}

async fn transact(connection: &mut Connection, plan: &Plan) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    if plan.fate == Fate::Rollback {
        // The same rows, given up first: none of them may ever be seen.
        let transaction = connection.client.transaction().await?;
        insert(&transaction, &connection.insert, &plan.keys).await?;
        transaction.rollback().await?;
    }
    let mut transaction = connection.client.transaction().await?;
    let (before, after) = plan.keys.split_at(plan.keys.len() / 2);
    ledger.extend(insert(&transaction, &connection.insert, before).await?);
    if plan.fate == Fate::PartlyRolledBack {
        let savepoint = transaction.savepoint("part").await?;
        insert(&savepoint, &connection.insert, after).await?;
        savepoint.rollback().await?;
    }
    ledger.extend(insert(&transaction, &connection.insert, after).await?);
    transaction.commit().await?;
    Ok(ledger)
}

async fn insert(
    transaction: &Transaction<'_>,
    statement: &Statement,
    keys: &[String],
) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    for key in keys {
        let row = transaction
            .query_one(statement, &[key])
            .await
            .context("insert an event")?;
        ledger.insert(row.try_get(0)?, key.clone(), row.try_get(1)?);
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_locked_in_ascending_order() {
        let mut random = Random::new(3);
        for size in 1..200 {
            let plan = Plan::draw(&mut random, size, 20);
            assert_eq!(plan.keys.len(), size);
            assert!(plan.keys.is_sorted());
        }
    }

    #[test]
    fn a_load_ends_at_its_number_of_rows() {
        let shared = Shared {
            load: Load::new(1000),
            url: String::new(),
            stop: AtomicBool::new(false),
            planned: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
        };
        let mut random = Random::new(1);
        let mut rows = 0;
        while let Some(size) = shared.next_size(&mut random) {
            rows += size;
        }
        assert_eq!(rows, 1000);
    }
}
