//! `kill -9` at random moments: nothing lost, first occurrences in order, and repeats re-run a whole stretch.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, SOON};
use e2e::kill;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_kills_at_random_moments_lose_nothing_and_keep_order() -> Result<()> {
    kill_under_load("kills", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_without_the_state_file_lose_nothing_either() -> Result<()> {
    kill_under_load("stateless", false).await
}

/// Kills the connector three times while writers go on, and checks everything at the end.
async fn kill_under_load(name: &str, with_state: bool) -> Result<()> {
    let fixture = Fixture::new(name).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let mut config = fixture.config();
    if !with_state {
        config = config.without("state.directory");
    }
    let (ledger, seed) = kill::three_times_under_load(&fixture, &config, &mut consumer).await?;
    let connector = fixture.start_with(&config).await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns)
        .await
        .with_context(|| format!("seed {seed}"))?;
    ensure!(ledger.len() > 300, "only {} events", ledger.len());
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_transaction_sends_all_of_it() -> Result<()> {
    let fixture = Fixture::new("midway").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 10, n, jsonb_build_object('text', repeat('x', 500))
             FROM generate_series(1, 30000) n",
        )
        .await?;
    consumer.wait_for_events(5000, SOON).await?;
    connector.kill()?;
    let read = consumer.read_to_end().await?.len();
    ensure!(read < 30_000, "the kill came too late: {read} records");
    let connector = fixture.start().await?;
    consumer
        .wait_for_events(30_000, Duration::from_secs(60))
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let ledger = e2e::ledger::Ledger::from_table(&fixture.client().await?).await?;
    let summary = check(&ledger, consumer.read_to_end().await?, Repeats::Reruns)?;
    // No position inside a transaction can be confirmed, so it starts over.
    ensure!(summary.repeats == read, "{} repeats", summary.repeats);
    connector.stop().await
}
