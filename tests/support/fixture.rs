//! One test's own place on the servers: a database, a role, a publication, a slot, and a prefix for its topics.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::{Client, NoTls};
use xtask::scratch::Scratch;

use crate::config::{Config, quoted};
use crate::connector::Connector;
use crate::consumer::Consumer;
use crate::servers::Servers;
use crate::slot::Slot;

/// The fixture of `field-problems.md`, with a column for the version that the checker needs.
const OUTBOX: &str = "
    CREATE TABLE public.outbox (
        id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        aggregatetype     text NOT NULL,
        aggregateid       text,
        type              text,
        payload           jsonb,
        aggregate_version bigint);
    CREATE TABLE public.aggregate (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0);";

/// Partitions of a test's topics: more than one, so that order holds because of keys and not by chance.
const PARTITIONS: i32 = 3;

/// Password of every connector role.
pub const PASSWORD: &str = "s3cret-of-the-connector";

/// One test's own place on the servers. Dropping it drops its slots, so that they keep no WAL.
pub struct Fixture {
    /// Name of the database.
    pub database: String,
    /// Name of the connector's role, which may log in and replicate and has no other right.
    pub role: String,
    /// Name of the slot.
    pub slot: String,
    /// Name of the publication.
    pub publication: String,
    /// The servers.
    pub servers: Servers,
    prefix: String,
    folder: Scratch,
}

impl Fixture {
    /// A database with the outbox table, its publication and then its slot.
    ///
    /// # Errors
    /// A server or a statement fails.
    pub async fn new(name: &str) -> Result<Self> {
        Self::on(Servers::shared()?, name).await
    }

    /// As [`Fixture::new`], on other servers than the shared ones.
    ///
    /// # Errors
    /// A server or a statement fails.
    pub async fn on(servers: Servers, name: &str) -> Result<Self> {
        let fixture = Self::bare_on(servers, name).await?;
        fixture.sql(OUTBOX).await?;
        fixture
            .sql(&format!(
                "CREATE PUBLICATION {} FOR TABLE public.outbox WITH (publish = 'insert')",
                fixture.publication
            ))
            .await?;
        fixture.create_slot().await?;
        Ok(fixture)
    }

    /// An empty database and the role; what the test needs in it, it makes itself.
    ///
    /// # Errors
    /// A server or a statement fails.
    pub async fn bare(name: &str) -> Result<Self> {
        Self::bare_on(Servers::shared()?, name).await
    }

    /// As [`Fixture::bare`], on other servers than the shared ones.
    ///
    /// # Errors
    /// A server or a statement fails.
    pub async fn bare_on(servers: Servers, name: &str) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}_{number}");
        let fixture = Self {
            database: format!("db_{name}"),
            role: format!("role_{name}"),
            slot: format!("slot_{name}"),
            publication: format!("pub_{name}"),
            prefix: name.clone(),
            folder: Scratch::new("state")?,
            servers,
        };
        let admin = connect(&fixture.servers.postgres.url("postgres", None, "postgres")).await?;
        admin
            .batch_execute(&format!(
                "CREATE ROLE {} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
                fixture.role
            ))
            .await?;
        admin
            .batch_execute(&format!("CREATE DATABASE {}", fixture.database))
            .await?;
        Ok(fixture)
    }

    /// Makes an outbox table in which the payload stands before all other columns, its publication and its slot.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn create_payload_first(&self) -> Result<()> {
        self.sql(&format!(
            "CREATE TABLE public.outbox (
                 payload jsonb, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
                 aggregateid text, aggregate_version bigint);
             CREATE PUBLICATION {} FOR TABLE public.outbox WITH (publish = 'insert')",
            self.publication
        ))
        .await?;
        self.create_slot().await
    }

    /// Makes the tables for parked and skipped events, as `sql/` has them, for the test's role.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn create_poison_tables(&self) -> Result<()> {
        self.sql(include_str!("../../sql/004_poison.sql")).await?;
        self.sql(&format!(
            "GRANT USAGE ON SCHEMA posthaste TO {0};
             GRANT SELECT, INSERT, UPDATE, DELETE ON posthaste.parked, posthaste.skipped TO {0}",
            self.role
        ))
        .await
    }

    /// Creates the slot, as one does after the publication.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn create_slot(&self) -> Result<()> {
        self.sql(&format!(
            "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')",
            self.slot
        ))
        .await
    }

    /// After how long without a word the server gives the connector up, such as `3s`; for sessions to come.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn set_sender_timeout(&self, time: &str) -> Result<()> {
        let role = &self.role;
        self.sql(&format!(
            "ALTER ROLE {role} SET wal_sender_timeout = '{time}'"
        ))
        .await
    }

    /// Runs statements as superuser in the test's database.
    ///
    /// # Errors
    /// A statement fails.
    pub async fn sql(&self, statements: &str) -> Result<()> {
        self.client()
            .await?
            .batch_execute(statements)
            .await
            .with_context(|| format!("SQL: {statements}"))
    }

    /// Major version of the server, for what older ones do not have.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn major_version(&self) -> Result<i32> {
        let row = self
            .client()
            .await?
            .query_one(
                "SELECT current_setting('server_version_num')::int / 10000",
                &[],
            )
            .await?;
        Ok(row.try_get(0)?)
    }

    /// A superuser's connection to the test's database.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn client(&self) -> Result<Client> {
        connect(&self.admin_url()).await
    }

    /// URL of a superuser's connection to the test's database.
    pub fn admin_url(&self) -> String {
        self.servers.postgres.url("postgres", None, &self.database)
    }

    /// Inserts one event `order` with this aggregate id and gives its id.
    ///
    /// # Errors
    /// The statement fails.
    pub async fn insert(&self, client: &Client, n: i32) -> Result<String> {
        let row = client
            .query_one(
                "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
                 VALUES ('order', $1::int::text, 'created', jsonb_build_object('n', $1::int))
                 RETURNING id::text",
                &[&n],
            )
            .await?;
        Ok(row.try_get(0)?)
    }

    /// The connector's configuration for this place.
    pub fn config(&self) -> Config {
        let postgres = &self.servers.postgres;
        Config::default()
            .with_text(
                "source.url",
                &postgres.url(&self.role, Some(PASSWORD), &self.database),
            )
            .with_text("source.slot", &self.slot)
            .with_text("source.publication", &self.publication)
            .with("source.tables", r#"["public.outbox"]"#)
            .with_text("source.status_interval", "1s")
            .with_text("router.topic", &self.topic("{aggregatetype}"))
            .with_text("kafka.brokers", &self.servers.kafka.bootstrap())
            .with_text("state.directory", &self.state_directory().to_string_lossy())
            .with_text("log.format", "json")
    }

    /// Where the connector keeps its state from one process to the next.
    pub fn state_directory(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Starts the connector with the usual configuration and waits until it streams.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start(&self) -> Result<Connector> {
        self.start_with(&self.config()).await
    }

    /// Starts the connector with this configuration and waits until it streams.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start_with(&self, config: &Config) -> Result<Connector> {
        let connector = Connector::start(config)?;
        connector.ready().await?;
        Ok(connector)
    }

    /// The topic of an aggregate type.
    pub fn topic(&self, aggregate_type: &str) -> String {
        format!("{}.outbox.event.{aggregate_type}", self.prefix)
    }

    /// Makes the topics of these aggregate types and a consumer that reads them.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn consumer(&self, aggregate_types: &[&str]) -> Result<Consumer> {
        let topics: Vec<String> = aggregate_types
            .iter()
            .map(|aggregate_type| self.topic(aggregate_type))
            .collect();
        let kafka = &self.servers.kafka;
        tokio::task::block_in_place(|| {
            topics
                .iter()
                .try_for_each(|topic| kafka.create_topic(topic, PARTITIONS, &[]))
        })?;
        Consumer::new(&kafka.bootstrap(), &topics)
    }

    /// The slot, watched from outside.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn watch_slot(&self) -> Result<Slot> {
        Ok(Slot::new(self.client().await?, &self.slot))
    }

    /// A list of names as a TOML literal.
    pub fn list(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        format!("[{}]", names.join(", "))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Best effort: a slot left behind costs disk until the server goes with the test process.
        let drop_slots = format!(
            "DO $$ DECLARE slot record; BEGIN
               FOR tries IN 1..50 LOOP
                 SELECT * INTO slot FROM pg_replication_slots WHERE database = '{}' LIMIT 1;
                 EXIT WHEN NOT FOUND;
                 IF slot.active_pid IS NULL THEN
                   PERFORM pg_drop_replication_slot(slot.slot_name);
                 ELSE
                   PERFORM pg_terminate_backend(slot.active_pid), pg_sleep(0.1);
                 END IF;
               END LOOP;
             END $$",
            self.database
        );
        self.servers.postgres.psql("postgres", &drop_slots).ok();
    }
}

/// Within which a small thing that works has happened, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// Connects and drives the connection in the background.
///
/// # Errors
/// The server does not answer or refuses.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its end shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}
