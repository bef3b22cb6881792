//! Start: what can heal is retried, told once, and not ready meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::servers::{NODE, Servers};
use e2e::wait;
use xtask::postgres::{PostgresOptions, StopMode};
use xtask::process::Signal;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_retried_and_a_stop_ends_the_wait_within_a_second() -> Result<()> {
    let fixture = Fixture::new("unreachable").await?;
    let port = xtask::scratch::free_port()?;
    let url = format!("postgres://{}:{PASSWORD}@127.0.0.1:{port}/x", fixture.role);
    // Waits so long that the signal falls into one.
    let config = fixture
        .config()
        .with_text("source.url", &url)
        .with_text("retry.backoff_initial", "30s")
        .with_text("retry.backoff_max", "30s");
    let connector = Connector::start(&config)?;
    connector.prints(&["PH0201"], SOON).await?;
    ensure!(!connector.is_ready().await);
    ensure!(connector.get("/healthz").await?.status == 200);
    let told = Instant::now();
    connector.signal(Signal::TERM)?;
    let code = connector.exit_code(SOON).await?;
    ensure!(
        // The wait that it falls into lasts thirty.
        told.elapsed() < Duration::from_secs(5),
        "{:?}",
        told.elapsed()
    );
    ensure!(code == 0, "exit code {code}");
    ensure!(
        connector.messages_with(&["PH0201: "]).len() == 1,
        "one line an outage"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_fast_ends_on_what_would_be_retried() -> Result<()> {
    let fixture = Fixture::new("fail_fast").await?;
    let port = xtask::scratch::free_port()?;
    let url = format!("postgres://{}:{PASSWORD}@127.0.0.1:{port}/x", fixture.role);
    let config = fixture.config().with_text("source.url", &url);
    refuses_fast(&config, "PH0201").await?;
    let dead = fixture
        .config()
        .with_text("kafka.brokers", &format!("127.0.0.1:{port}"));
    refuses_fast(&dead, "PH0601").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_the_look_for_brokers_that_fail_fast_begins_with() -> Result<()> {
    let fixture = Fixture::new("stop_fast").await?;
    // Takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let brokers = silent.local_addr()?.to_string();
    let config = fixture.config().with_text("kafka.brokers", &brokers);
    let connector = Connector::start_with(&config, &["--fail-fast"], &[])?;
    connector.prints(&["posthaste starting"], SOON).await?;
    let told = Instant::now();
    connector.signal(Signal::TERM)?;
    let code = connector.exit_code(SOON).await?;
    ensure!(
        told.elapsed() < Duration::from_secs(1),
        "{:?}",
        told.elapsed()
    );
    ensure!(code == 0, "exit code {code}: {}", connector.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_later_is_found() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, "later").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    drop(client);
    let postgres = &fixture.servers.postgres;
    tokio::task::block_in_place(|| postgres.stop(StopMode::Fast))?;
    let connector = Connector::start(&fixture.config())?;
    let waiting = connector.prints(&["PH0201"], SOON).await;
    tokio::task::block_in_place(|| postgres.start_again())?;
    waiting?;
    connector.ready().await?;
    consumer.wait_for_records(1, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_start_later_are_found_and_readiness_waits_for_them() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "brokers_later").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| kafka.stop_node(NODE))?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    let connector = Connector::start(&fixture.config())?;
    let slot = fixture.watch_slot().await?;
    slot.walsender().await?;
    let not_ready = wait::throughout(
        "not ready without a broker",
        Duration::from_secs(2),
        async || Ok(!connector.is_ready().await),
    )
    .await;
    tokio::task::block_in_place(|| kafka.start_node(NODE))?;
    not_ready?;
    connector.ready().await?;
    consumer.wait_for_records(1, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_j_a_standby_is_waited_for_until_it_is_promoted() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions::default())?;
    let fixture = Fixture::on(servers, "b31_j").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let postgres = &fixture.servers.postgres;
    tokio::task::block_in_place(|| {
        postgres.stop(StopMode::Fast)?;
        std::fs::write(postgres.data_dir().join("standby.signal"), "")?;
        postgres.start_again()
    })?;
    let connector = Connector::start(&fixture.config())?;
    connector.prints(&["PH0318"], SOON).await?;
    ensure!(!connector.is_ready().await);
    refuses_fast(&fixture.config(), "PH0318").await?;
    postgres.psql("postgres", "SELECT pg_promote()")?;
    connector.ready().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    connector.stop().await
}

/// With `--fail-fast`, what would be waited for ends the process.
async fn refuses_fast(config: &Config, code: &str) -> Result<()> {
    let connector = Connector::start_with(config, &["--fail-fast"], &[])?;
    let found = connector.exit_code(SOON).await?;
    ensure!(
        found == 3 && connector.messages_with(&[&format!("{code}: ")]).len() == 1,
        "exit code {found}: {}",
        connector.log()
    );
    Ok(())
}
