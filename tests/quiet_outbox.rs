//! Nothing in the outbox while others write: the slot still moves, and nothing is written to the source for it.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::slot::Position;
use e2e::wait;
use tokio_postgres::Client;

/// "Within seconds": a status interval of one second, and the server's own pace.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(8);

/// Bursts of WAL that have nothing to do with the outbox; after each the slot must follow.
async fn bursts(fixture: &Fixture, neighbour: &Client) -> Result<()> {
    let slot = fixture.watch_slot().await?;
    let before = slot.state().await?;
    neighbour
        .batch_execute("CREATE TABLE IF NOT EXISTS other (text text)")
        .await?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    // Three minutes with a burst a second and a switch every ten, or three bursts.
    for round in 0..scale::pick(3, 180) {
        neighbour
            .execute(
                "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 5000)",
                &[],
            )
            .await?;
        if round % scale::pick(1, 10) == 0 {
            neighbour
                .batch_execute("SELECT pg_switch_wal(); CHECKPOINT")
                .await?;
            slot.catches_up(FOLLOWS_WITHIN).await?;
        }
        if scale::is_full() {
            second.tick().await;
        }
    }
    let after = slot.state().await?;
    ensure!(
        after.confirmed.0 - before.confirmed.0 > 3 * 5000 * 1000,
        "the position moved from {} to {} only",
        before.confirmed,
        after.confirmed
    );
    // The server moves it when it next notes the running transactions, which a checkpoint makes it do.
    wait::until_true("restart_lsn to move", SOON, async || {
        neighbour.batch_execute("CHECKPOINT").await?;
        Ok(slot.state().await?.restart > before.restart)
    })
    .await
}

/// Nothing but what the test itself wrote: the connector needs no write to move on.
async fn nothing_written_by_the_connector(fixture: &Fixture) -> Result<()> {
    let rows = fixture
        .client()
        .await?
        .query(
            "SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
             WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1",
            &[],
        )
        .await?;
    let tables: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let own = ["aggregate", "other", "outbox"];
    ensure!(
        tables.iter().all(|table| own.contains(&table.as_str())),
        "tables: {tables:?}"
    );
    Ok(())
}

async fn one_event_before_and_one_after(name: &str, sender_timeout: &str) -> Result<()> {
    let fixture = Fixture::new(name).await?;
    fixture.set_sender_timeout(sender_timeout).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    bursts(&fixture, &client).await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    nothing_written_by_the_connector(&fixture).await?;
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == 2);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_a_a_busy_table_in_the_same_database() -> Result<()> {
    one_event_before_and_one_after("quiet_a", "60s").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_b_a_busy_table_in_another_database() -> Result<()> {
    let fixture = Fixture::new("quiet_b").await?;
    let neighbour = Fixture::bare("neighbour").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    bursts(&fixture, &neighbour.client().await?).await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_c_a_server_that_never_asks_for_a_reply() -> Result<()> {
    one_event_before_and_one_after("quiet_c", "0").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_d_an_outbox_that_never_had_a_row() -> Result<()> {
    let fixture = Fixture::new("quiet_d").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    bursts(&fixture, &client).await?;
    ensure!(consumer.read_to_end().await?.is_empty());
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_other_tables_is_passed_while_catching_up() -> Result<()> {
    let fixture = Fixture::new("catching_up").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    client
        .batch_execute("CREATE TABLE other (text text)")
        .await?;
    for n in 1..=5 {
        client
            .execute(
                "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 2000)",
                &[],
            )
            .await?;
        fixture.insert(&client, n).await?;
    }
    let connector = fixture.start().await?;
    consumer.wait_for_records(5, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(FOLLOWS_WITHIN).await?;
    ensure!(slot.confirmed().await? > Position(0));
    connector.stop().await
}
