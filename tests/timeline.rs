//! After a promotion: a position that the new timeline contains goes on, one that it lacks stops with the lost range.

use std::process::Command;

use anyhow::{Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::servers::Servers;
use e2e::writer::Load;
use xtask::postgres::{Postgres, PostgresOptions, StopMode};
use xtask::process::output;

async fn fixture(name: &str) -> Result<Fixture> {
    let servers = Servers::with_own_postgres(PostgresOptions::default())?;
    Fixture::on(servers, name).await
}

fn exactly_once(fixture: &Fixture) -> Config {
    fixture
        .config()
        .with_text("kafka.delivery", "exactly-once")
        .with_text(
            "kafka.position_topic",
            &format!("{}.positions", fixture.slot),
        )
}

/// The cluster comes up as a standby of nobody and is promoted, as one is whose primary is gone.
fn promote(postgres: &Postgres) -> Result<()> {
    std::fs::write(postgres.data_dir().join("standby.signal"), "")?;
    postgres.start_again()?;
    postgres.psql("postgres", "SELECT pg_promote()")?;
    Ok(())
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    output(Command::new("cp").arg("-a").arg(from).arg(to)).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_behind_the_position_loses_and_repeats_nothing() -> Result<()> {
    let fixture = fixture("promoted").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture);
    let connector = fixture.start_with(&config).await?;
    Load::new(200).run(&fixture).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    let postgres = &fixture.servers.postgres;
    tokio::task::block_in_place(|| {
        postgres.stop(StopMode::Fast)?;
        promote(postgres)
    })?;
    let connector = fixture.start_with(&config).await?;
    Load::new(200).run(&fixture).await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    consumer.wait_for_events(ledger.len(), SOON).await?;
    check(&ledger, consumer.records(), Repeats::Forbidden)?;
    connector.stop().await
}

/// A standby that lacks the end of the WAL: what stood there was published and is gone, and new events take its positions.
async fn lost_wal(name: &str, config: impl Fn(&Fixture) -> Config) -> Result<()> {
    let fixture = fixture(name).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = config(&fixture);
    let connector = fixture.start_with(&config).await?;
    let first = Load::new(50).run(&fixture).await?.len();
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    let postgres = &fixture.servers.postgres;
    let data = postgres.data_dir();
    let standby = data.with_extension("standby");
    tokio::task::block_in_place(|| {
        postgres.stop(StopMode::Fast)?;
        copy(&data, &standby)?;
        postgres.start_again()
    })?;
    let connector = fixture.start_with(&config).await?;
    let before = Load::new(100).run(&fixture).await?.len();
    let lost = before - first;
    consumer.wait_for_events(before, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    tokio::task::block_in_place(|| {
        postgres.stop(StopMode::Fast)?;
        std::fs::remove_dir_all(&data)?;
        std::fs::rename(&standby, &data)?;
        promote(postgres)
    })?;
    Load::new(300).run(&fixture).await?;
    let refused = Connector::start(&config)?;
    ensure!(refused.exit_code(SOON).await? == 3, "{}", refused.log());
    let told = refused.messages_with(&["PH0420", "no longer exist in the database"]);
    ensure!(told.len() == 1, "{}", refused.log());
    let accepted = Connector::start_with(&config, &["--accept-slot-position"], &[])?;
    accepted.ready().await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    consumer.wait_for_events(ledger.len() + lost, SOON).await?;
    accepted.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_that_lost_published_events_stops() -> Result<()> {
    lost_wal("lost_wal", Fixture::config).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_that_lost_published_events_stops_with_exactly_once_too() -> Result<()> {
    lost_wal("lost_once", |fixture| {
        exactly_once(fixture).without("state.directory")
    })
    .await
}
