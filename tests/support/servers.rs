//! The servers: one PostgreSQL and one Kafka that all ordinary tests share, and one of each that may be ill-treated.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::MutexGuard;
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::postgres::{Postgres, PostgresOptions};

/// The servers of one test, and its turn with those that it has for itself.
///
/// Nothing here stops a server: the shared ones live until the test process ends, when their watchdogs
/// (see `xtask::process::Daemon`) stop them and remove their folders, however it ends.
pub struct Servers {
    /// The database server.
    pub postgres: Arc<Postgres>,
    /// The broker.
    pub kafka: Arc<Kafka>,
    turns: Vec<MutexGuard<'static, ()>>,
}

impl Servers {
    /// Both shared: a test keeps to its own database, role, slot and topics, and disturbs nobody.
    ///
    /// # Errors
    /// A server does not start.
    pub fn shared() -> Result<Self> {
        Ok(Self {
            postgres: SHARED_POSTGRES.get()?,
            kafka: SHARED_KAFKA.get()?,
            turns: Vec::new(),
        })
    }

    /// A Kafka that this test may stop and freeze until it drops the value; it is healthy at the start.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn with_fragile_kafka() -> Result<Self> {
        let turn = KAFKA_TURN.lock().await;
        let kafka = FRAGILE_KAFKA.get()?;
        // The test before may have failed while its broker was frozen or stopped.
        kafka.resume_node(NODE).ok();
        tokio::task::block_in_place(|| kafka.start_node(NODE)).ok();
        Ok(Self {
            postgres: SHARED_POSTGRES.get()?,
            kafka,
            turns: vec![turn],
        })
    }

    /// A PostgreSQL that this test may restart until it drops the value; it runs at the start.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn with_fragile_postgres() -> Result<Self> {
        let turn = POSTGRES_TURN.lock().await;
        let postgres = FRAGILE_POSTGRES.get()?;
        // The test before may have failed while its server was down.
        tokio::task::block_in_place(|| postgres.start_again()).ok();
        Ok(Self {
            postgres,
            kafka: SHARED_KAFKA.get()?,
            turns: vec![turn],
        })
    }

    /// Both to restart and to stop, for one test at a time.
    ///
    /// # Errors
    /// A server does not start.
    pub async fn all_fragile() -> Result<Self> {
        let mut servers = Self::with_fragile_kafka().await?;
        let mut others = Self::with_fragile_postgres().await?;
        servers.postgres = others.postgres;
        servers.turns.append(&mut others.turns);
        Ok(servers)
    }

    /// A PostgreSQL of this test's own, for settings that need a start.
    ///
    /// # Errors
    /// A server does not start.
    pub fn with_own_postgres(options: PostgresOptions) -> Result<Self> {
        let postgres = tokio::task::block_in_place(|| Postgres::start(options))?;
        Ok(Self {
            postgres: Arc::new(postgres),
            kafka: SHARED_KAFKA.get()?,
            turns: Vec::new(),
        })
    }

    /// Servers that the caller has started and may ill-treat as it likes.
    pub fn of(postgres: Arc<Postgres>, kafka: Arc<Kafka>) -> Self {
        Self {
            postgres,
            kafka,
            turns: Vec::new(),
        }
    }

    /// A Kafka of this test's own, for settings that need a start.
    ///
    /// # Errors
    /// A server does not start.
    pub fn with_own_kafka(kafka: Kafka) -> Result<Self> {
        Ok(Self {
            postgres: SHARED_POSTGRES.get()?,
            kafka: Arc::new(kafka),
            turns: Vec::new(),
        })
    }

    /// True if this test has a server for itself.
    pub fn exclusive(&self) -> bool {
        !self.turns.is_empty()
    }
}

/// The number of the only Kafka node.
pub const NODE: usize = 0;

static SHARED_POSTGRES: Once<Postgres> = Once::new("shared PostgreSQL", start_postgres);
static SHARED_KAFKA: Once<Kafka> = Once::new("shared Kafka", start_kafka);
static FRAGILE_POSTGRES: Once<Postgres> = Once::new("PostgreSQL to restart", start_postgres);
static FRAGILE_KAFKA: Once<Kafka> = Once::new("Kafka to stop", start_kafka);
static POSTGRES_TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static KAFKA_TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A server started by the first test that needs it.
struct Once<T> {
    name: &'static str,
    start: fn() -> Result<T>,
    server: Mutex<Option<Arc<T>>>,
}

impl<T> Once<T> {
    const fn new(name: &'static str, start: fn() -> Result<T>) -> Self {
        Self {
            name,
            start,
            server: Mutex::new(None),
        }
    }

    fn get(&self) -> Result<Arc<T>> {
        tokio::task::block_in_place(|| {
            let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(running) = server.as_ref() {
                return Ok(Arc::clone(running));
            }
            let started = Arc::new((self.start)().context(self.name)?);
            *server = Some(Arc::clone(&started));
            Ok(started)
        })
    }
}

fn start_postgres() -> Result<Postgres> {
    let settings = [
        // A slot and a walsender for each test that runs or has failed, and connections for its writers.
        ("max_replication_slots", "100"),
        ("max_wal_senders", "100"),
        ("max_connections", "300"),
        // Positions are checked within seconds, so the server's own bookkeeping has to keep up.
        ("checkpoint_timeout", "30s"),
        ("max_wal_size", "256MB"),
        ("log_replication_commands", "on"),
    ];
    Postgres::start(PostgresOptions {
        settings: settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..PostgresOptions::default()
    })
}

fn start_kafka() -> Result<Kafka> {
    Kafka::start(KafkaOptions {
        // Two of them run at the same time, beside the compiler on a small machine.
        heap_mb: 256,
        ..KafkaOptions::default()
    })
}
