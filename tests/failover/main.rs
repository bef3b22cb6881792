//! Failover to a real standby, on PostgreSQL 17 and later. Run by `cargo xtask test --only failover`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON, connect};
use e2e::ledger::Ledger;
use e2e::servers::Servers;
use e2e::slot::Position;
use e2e::wait;
use e2e::writer::Load;
use tokio_postgres::Client;
use xtask::postgres::{Postgres, PostgresOptions, StopMode};
use xtask::postgres_versions::bin_dir;
use xtask::process::Signal;

/// A primary with the outbox, and a standby that keeps its failover slots in step.
struct Pair {
    fixture: Fixture,
    standby: Arc<Postgres>,
}

/// The slot synchronization of a server sleeps up to half a minute.
const SYNCHRONIZED_WITHIN: Duration = Duration::from_secs(90);
/// From a promotion until everything is delivered.
const DELIVERED_WITHIN: Duration = Duration::from_secs(90);

const OUTBOX: &str = "
    CREATE TABLE outbox (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        aggregatetype text NOT NULL, aggregateid text, type text, payload jsonb, aggregate_version bigint);
    CREATE TABLE aggregate (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0);";

/// Each row in a transaction of its own, as the writers of [`Load`] make them.
const WRITE_400: &str = "
    DO $$ BEGIN
      FOR n IN 1..400 LOOP
        WITH taken AS (
          UPDATE aggregate SET version = version + 1 WHERE id = 'a' || (1 + n % 20) RETURNING id, version)
        INSERT INTO outbox (aggregatetype, aggregateid, type, aggregate_version, payload)
        SELECT 'order', id, 'changed', version, '{}' FROM taken;
        COMMIT;
      END LOOP;
    END $$";

impl Pair {
    async fn new(name: &str, major: u32) -> Result<Self> {
        let programs = tokio::task::block_in_place(|| bin_dir(major))?;
        let servers = Servers::with_own_postgres(PostgresOptions {
            bin_dir: Some(programs),
            ..PostgresOptions::default()
        })?;
        let fixture = Fixture::bare_on(servers, name).await?;
        let settings = [
            ("sync_replication_slots", "on"),
            ("hot_standby_feedback", "on"),
        ];
        let primary = &fixture.servers.postgres;
        let standby = tokio::task::block_in_place(|| primary.standby(&settings))?;
        fixture.sql(OUTBOX).await?;
        fixture
            .sql(&format!(
                "ALTER TABLE outbox OWNER TO {0}; GRANT CREATE ON DATABASE {1} TO {0}",
                fixture.role, fixture.database
            ))
            .await?;
        Ok(Self {
            fixture,
            standby: Arc::new(standby),
        })
    }

    /// Both servers in one URL; the connector makes the failover slot by itself.
    fn config(&self) -> Config {
        let primary = &self.fixture.servers.postgres;
        let url = primary.url(&self.fixture.role, Some(PASSWORD), &self.fixture.database);
        let one = format!("127.0.0.1:{}/", primary.port());
        let both = format!(
            "127.0.0.1:{},127.0.0.1:{}/",
            primary.port(),
            self.standby.port()
        );
        let url = url.replace(&one, &both) + "?target_session_attrs=read-write";
        self.fixture
            .config()
            .with_text("source.url", &url)
            .with("source.create", "true")
            .with("source.failover", "true")
            .with_text("retry.backoff_max", "1s")
    }

    async fn standby_client(&self) -> Result<Client> {
        connect(&self.standby.url("postgres", None, &self.fixture.database)).await
    }

    /// Waits until the standby has the slot for good.
    async fn synchronized(&self) -> Result<()> {
        let client = self.standby_client().await?;
        wait::until_true("the slot on the standby", SYNCHRONIZED_WITHIN, async || {
            // Tells the standby of running transactions, which the server does by itself every 15 s.
            self.fixture.sql("SELECT pg_log_standby_snapshot()").await?;
            let row = client
                .query_opt(
                    "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = $1",
                    &[&self.fixture.slot],
                )
                .await?;
            Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
        })
        .await
        .with_context(|| self.standby.log())
    }

    /// Waits until the standby has replayed everything that is written now.
    async fn caught_up(&self) -> Result<()> {
        let written = self.fixture.watch_slot().await?.wal_position().await?;
        let client = self.standby_client().await?;
        wait::until_true("the standby to replay", SOON, async || {
            let row = client
                .query_one("SELECT pg_last_wal_replay_lsn()::text", &[])
                .await?;
            Ok(Position::parse(row.try_get(0)?)? >= written)
        })
        .await
    }

    /// Kills the primary for good and promotes the standby.
    async fn fail_over(&self) -> Result<Client> {
        let primary = &self.fixture.servers.postgres;
        tokio::task::block_in_place(|| primary.kill())?;
        self.standby.psql("postgres", "SELECT pg_promote()")?;
        self.standby_client().await
    }
}

/// Everything in the promoted server's table was read, each key in order.
async fn all_delivered(
    client: &Client,
    consumer: &mut e2e::consumer::Consumer,
    connector: &Connector,
) -> Result<Ledger> {
    let ledger = Ledger::from_table(client).await?;
    wait::until_true("every event of the table", DELIVERED_WITHIN, async || {
        let records = consumer.read_to_end().await?;
        let read: std::collections::HashSet<&str> =
            records.iter().map(|record| record.id()).collect();
        Ok(ledger.iter().all(|(id, _)| read.contains(id)))
    })
    .await
    .with_context(|| connector.log())?;
    Ok(ledger)
}

async fn promotion(name: &str, major: u32) -> Result<()> {
    let pair = Pair::new(name, major).await?;
    let fixture = &pair.fixture;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&pair.config()).await?;
    // Readers of failover slots then never get ahead of the standby.
    let primary = &fixture.servers.postgres;
    primary.set("synchronized_standby_slots", "standby")?;
    let load = Load::steady(30).start(fixture).await?;
    pair.synchronized().await?;
    consumer.wait_for_events(100, SOON).await?;
    // What follows, only the promoted server can deliver.
    connector.signal(Signal::STOP)?;
    load.goes_on_for(200, SOON).await?;
    let before = load.stop().await?;
    pair.caught_up().await?;
    let client = pair.fail_over().await?;
    connector.signal(Signal::CONT)?;
    client.batch_execute(WRITE_400).await?;
    let ledger = all_delivered(&client, &mut consumer, &connector).await?;
    ensure!(ledger.len() == before.len() + 400, "{} rows", ledger.len());
    check(&ledger, consumer.read_to_end().await?, Repeats::Reruns)?;
    ensure!(
        connector.lines_with(&["\"resumed: "]).len() == 1,
        "{}",
        connector.log()
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_delivers_what_the_primary_could_not_on_17() -> Result<()> {
    promotion("promoted_17", 17).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_delivers_what_the_primary_could_not_on_18() -> Result<()> {
    promotion("promoted_18", 18).await
}

/// The promoted server never had what was published last, and writes other rows at the same positions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_at_reused_positions_are_not_skipped_in_silence() -> Result<()> {
    let pair = Pair::new("reused", 17).await?;
    let fixture = &pair.fixture;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&pair.config()).await?;
    let load = Load::steady(30).start(fixture).await?;
    pair.synchronized().await?;
    load.goes_on_for(100, SOON).await?;
    let before = load.stop().await?;
    pair.caught_up().await?;
    let standby = Arc::clone(&pair.standby);
    tokio::task::block_in_place(|| standby.stop(StopMode::Fast))?;
    // Published, and then lost with the primary.
    fixture.sql(WRITE_400).await?;
    consumer.wait_for_events(before.len() + 400, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let published = slot.confirmed().await?;
    drop(slot);
    tokio::task::block_in_place(|| {
        fixture.servers.postgres.kill()?;
        standby.start_again()
    })?;
    standby.psql("postgres", "SELECT pg_promote()")?;
    let client = pair.standby_client().await?;
    client.batch_execute(WRITE_400).await?;
    let reused = client
        .query_one("SELECT pg_current_wal_lsn()::text", &[])
        .await?;
    let reused = Position::parse(reused.try_get(0)?)?;
    ensure!(
        reused > published,
        "{reused} is not past {published}: the positions are not reused"
    );
    let code = connector.exit_code(DELIVERED_WITHIN).await?;
    let told = connector.messages_with(&["PH0420: "]);
    ensure!(code == 3 && told.len() == 1, "code {code}: {told:?}");
    // Somebody has looked at it; the rows are still there to be read.
    let accepting = ["--accept-slot-position"];
    let connector = Connector::start_with(&pair.config(), &accepting, &[])?;
    let ledger = all_delivered(&client, &mut consumer, &connector).await?;
    ensure!(ledger.len() == before.len() + 400, "{} rows", ledger.len());
    // What is lost in the database stands in the topic, and is no event of the ledger.
    let kept: Vec<_> = consumer
        .read_to_end()
        .await?
        .iter()
        .filter(|record| ledger.get(record.id()).is_some())
        .cloned()
        .collect();
    check(&ledger, &kept, Repeats::Reruns)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_slot_is_made_on_request() -> Result<()> {
    let pair = Pair::new("requested", 18).await?;
    let connector = pair.fixture.start_with(&pair.config()).await?;
    let client = pair.fixture.client().await?;
    let row = client
        .query_one(
            "SELECT failover FROM pg_replication_slots WHERE slot_name = $1",
            &[&pair.fixture.slot],
        )
        .await?;
    let failover: bool = row.try_get(0)?;
    ensure!(failover, "the slot is no failover slot");
    ensure!(connector.messages_with(&["PH0338"]).is_empty());
    connector.stop().await
}
