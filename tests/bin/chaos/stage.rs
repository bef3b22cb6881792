//! The servers of all rounds, and the proxies between them and the connector.

use std::sync::Arc;

use anyhow::{Context, Result};
use e2e::proxy::{Link, Proxy};
use e2e::servers::Servers;
use e2e::wait;
use tokio::task::spawn_blocking;
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::postgres::{Postgres, PostgresOptions};
use xtask::scratch::free_port;

/// One PostgreSQL and three Kafka nodes (replication factor 3, two in-sync replicas at least), each behind a proxy.
pub(crate) struct Stage {
    pub(crate) postgres: Arc<Postgres>,
    pub(crate) kafka: Arc<Kafka>,
    /// Between the connector and PostgreSQL; the writers do not go through it.
    pub(crate) postgres_link: Proxy,
    /// Between the connector and each node; the consumer does not go through them.
    pub(crate) kafka_links: Vec<Proxy>,
}

/// Nodes of the Kafka cluster.
pub(crate) const NODES: usize = 3;

impl Stage {
    pub(crate) async fn start() -> Result<Self> {
        let kafka = spawn_blocking(start_kafka);
        let postgres = Arc::new(spawn_blocking(start_postgres).await??);
        let kafka = Arc::new(kafka.await??);
        let postgres_link = Proxy::start(free_port()?, postgres.port()).await?;
        let mut kafka_links = Vec::new();
        for ends in kafka.proxied() {
            kafka_links.push(Proxy::start(ends.port, ends.node_port).await?);
        }
        Ok(Self {
            postgres,
            kafka,
            postgres_link,
            kafka_links,
        })
    }

    pub(crate) fn servers(&self) -> Servers {
        Servers::of(Arc::clone(&self.postgres), Arc::clone(&self.kafka))
    }

    /// Addresses of the proxies, for the connector.
    pub(crate) fn brokers(&self) -> String {
        let addresses: Vec<String> = self
            .kafka_links
            .iter()
            .map(|link| format!("127.0.0.1:{}", link.port()))
            .collect();
        addresses.join(",")
    }

    pub(crate) fn open_links(&self) {
        self.postgres_link.set(Link::Open);
        for link in &self.kafka_links {
            link.set(Link::Open);
        }
    }

    /// Removes what a round has made.
    pub(crate) async fn forget(
        &self,
        database: &str,
        role: &str,
        topics: Vec<String>,
    ) -> Result<()> {
        let kafka = Arc::clone(&self.kafka);
        let postgres = Arc::clone(&self.postgres);
        let statements = [
            format!("DROP DATABASE {database} WITH (FORCE)"),
            format!("DROP ROLE {role}"),
        ];
        spawn_blocking(move || {
            for statement in statements {
                postgres.psql("postgres", &statement)?;
            }
            for topic in topics {
                // There are positions only where they are needed.
                kafka.delete_topic(&topic).ok();
            }
            Ok(())
        })
        .await?
    }

    /// Waits until a new topic could be replicated everywhere, by making one.
    pub(crate) async fn is_whole(&self, topic: &str) -> Result<()> {
        wait::retry("a topic on all nodes", WHOLE_WITHIN, || async {
            let (kafka, topic) = (Arc::clone(&self.kafka), topic.to_owned());
            spawn_blocking(move || {
                kafka.delete_topic(&topic).ok();
                kafka.create_topic(&topic, PARTITIONS, &[])
            })
            .await?
        })
        .await
        .context("the cluster did not heal")
    }
}

/// A node that was frozen or killed has to be taken back by the controller first.
const WHOLE_WITHIN: std::time::Duration = std::time::Duration::from_secs(90);

/// More than one, so that order holds because of keys and not by chance.
const PARTITIONS: i32 = 3;

fn start_postgres() -> Result<Postgres> {
    let settings = [
        ("max_connections", "100"),
        ("checkpoint_timeout", "30s"),
        ("max_wal_size", "256MB"),
        ("log_replication_commands", "on"),
    ];
    Postgres::start(PostgresOptions {
        settings: owned(&settings),
        ..PostgresOptions::default()
    })
}

fn start_kafka() -> Result<Kafka> {
    let properties = [
        // A node that says nothing is given up within seconds, as it is within many in earnest.
        ("broker.session.timeout.ms", "3000"),
        ("broker.heartbeat.interval.ms", "500"),
        ("replica.lag.time.max.ms", "3000"),
        // Small: three nodes share the machine with everything else.
        ("num.network.threads", "2"),
        ("num.io.threads", "2"),
        ("background.threads", "2"),
        ("log.index.size.max.bytes", "1048576"),
        ("file.delete.delay.ms", "1000"),
    ];
    Kafka::start(KafkaOptions {
        nodes: 3,
        proxied: true,
        heap_mb: 256,
        properties: owned(&properties),
        ..KafkaOptions::default()
    })
}

fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
