//! What a pipeline is put into: a server to open, a publisher to start, a clock. The system's, or a model of them.

use std::fmt::Debug;
use std::future::Future;

use pgoutput::Lsn;
use sink::{
    BrokerProbe, KafkaProducer, PositionTopic, Producer, Publisher, TransactionConfig,
    TransactionalProducer,
};

use crate::clock::{Clock, SystemClock};
use crate::config::Pipeline as Settings;
use crate::feed::Feed;
use crate::metrics::PipelineMetrics;
use crate::parked_table::{ParkedTable, ServerLog};
use crate::parking::Parking;
use crate::policy::RunError;
use crate::positions::Positions;
use crate::preconditions::{Checked, Wanted};
use crate::publishing::{Publishing, ThreadEnded};
use crate::settings;
use crate::source::{Opened, Source};

/// Where a pipeline gets its connections, its publisher and the time from.
///
/// The binary has [`System`]. The simulation drives the same supervisor with another.
pub trait Surroundings: Debug {
    /// A server that fits, before the stream is started.
    type Opened: Opening;
    /// The clock.
    type Clock: Clock;
    /// Where positions are kept, where delivery is exactly once.
    type Positions: Positions;

    /// The clock.
    fn clock(&self) -> Self::Clock;

    /// Connects and checks every precondition.
    ///
    /// # Errors
    ///
    /// A connection that fails, a precondition that does not hold, or a slot in use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections.
    fn open(
        &mut self,
        settings: &Settings,
        wanted: &Wanted,
    ) -> impl Future<Output = Result<Self::Opened, RunError>>;

    /// Starts a publisher that has published nothing; a transactional one where there is a configuration for it.
    ///
    /// # Errors
    ///
    /// The client refuses its configuration, or the operating system a thread.
    fn start_publishing(
        &self,
        settings: &Settings,
        transactions: Option<&TransactionConfig>,
        metrics: &PipelineMetrics,
    ) -> Result<Publishing, RunError>;

    /// Where the positions of that publisher are kept.
    fn positions(&self, settings: &Settings, transactions: &TransactionConfig) -> Self::Positions;
}

/// A server on which everything was checked.
pub trait Opening {
    /// Its stream.
    type Feed: Feed;
    /// Its tables of parked and skipped events.
    type Table: ParkedTable + ServerLog;

    /// What the checks found.
    fn checked(&self) -> &Checked;

    /// The tables, over a connection of their own. To be called once.
    ///
    /// # Errors
    ///
    /// The connection was lost.
    fn table(&mut self, settings: &Settings)
    -> impl Future<Output = Result<Self::Table, RunError>>;

    /// Starts the stream.
    ///
    /// # Errors
    ///
    /// The server refuses, or the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    fn start(
        self,
        settings: &Settings,
        wanted: &Wanted,
        start: Lsn,
    ) -> impl Future<Output = Result<Self::Feed, RunError>>;
}

/// PostgreSQL, Kafka and the system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Surroundings for System {
    type Opened = Opened;
    type Clock = SystemClock;
    type Positions = PositionTopic;

    fn clock(&self) -> SystemClock {
        SystemClock
    }

    async fn open(&mut self, settings: &Settings, wanted: &Wanted) -> Result<Opened, RunError> {
        Opened::open(settings, wanted).await
    }

    fn start_publishing(
        &self,
        settings: &Settings,
        transactions: Option<&TransactionConfig>,
        metrics: &PipelineMetrics,
    ) -> Result<Publishing, RunError> {
        let config = settings::kafka_config(settings);
        let Some(transactions) = transactions else {
            let producer = KafkaProducer::new(&config)?;
            let probe = producer.probe();
            return start_thread(settings, producer, probe, metrics);
        };
        let producer = TransactionalProducer::new(&config, transactions.clone())?;
        let probe = producer.probe();
        start_thread(settings, producer, probe, metrics)
    }

    fn positions(&self, settings: &Settings, transactions: &TransactionConfig) -> PositionTopic {
        settings::position_topic(settings, transactions)
    }
}

fn start_thread<P: Producer + Send + 'static>(
    settings: &Settings,
    producer: P,
    probe: BrokerProbe,
    metrics: &PipelineMetrics,
) -> Result<Publishing, RunError> {
    let publisher = Publisher::new(producer, settings::limits(settings), Lsn::ZERO);
    let started = Publishing::start(publisher, Some(probe), metrics.clone());
    started.map_err(|source| RunError::System {
        what: "a thread",
        source,
    })
}

impl Opening for Opened {
    type Feed = Source;
    type Table = Parking;

    fn checked(&self) -> &Checked {
        Self::checked(self)
    }

    async fn table(&mut self, settings: &Settings) -> Result<Parking, RunError> {
        let sql = self.take_sql().ok_or(ThreadEnded)?;
        Parking::new(sql, &settings.poison.schema, &settings.source.slot).await
    }

    async fn start(
        self,
        settings: &Settings,
        wanted: &Wanted,
        start: Lsn,
    ) -> Result<Source, RunError> {
        Self::start(self, settings, wanted, start).await
    }
}
