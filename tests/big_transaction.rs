//! One transaction of 200 000 rows: all of it, in order, with flat memory.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::wait;

/// The product's aim for its peak, whatever the size of a transaction.
const PEAK_KB_MAX: u64 = 64 * 1024;

/// The transaction's rows hold several times this, so a reader that gathered them could not hide it.
const GROWTH_KB_MAX: u64 = 24 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_two_hundred_thousand_rows_in_one_transaction_take_flat_memory() -> Result<()> {
    let fixture = Fixture::new("big").await?;
    fixture
        .sql(&format!(
            "ALTER ROLE {} SET wal_sender_timeout = '10s'",
            fixture.role
        ))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    // A usual load first: what it takes is the measure.
    insert(&client, 1, 2000).await?;
    consumer.wait_for_events(2000, SOON).await?;
    slot.catches_up(SOON).await?;
    let usual_kb = connector.memory_kb("VmHWM")?;
    insert(&client, 2001, 202_000).await?;
    let end = slot.wal_position().await?;
    consumer
        .wait_for_events(100_000, Duration::from_secs(90))
        .await?;
    let confirmed = slot.confirmed().await?;
    let all = 202_000;
    if consumer.read_to_end().await?.len() < all {
        ensure!(
            confirmed < end,
            "{confirmed} is confirmed with half of the transaction sent"
        );
    }
    consumer
        .wait_for_events(all, Duration::from_secs(90))
        .await?;
    slot.reaches(end, SOON).await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    let ledger = Ledger::from_table(&client).await?;
    let summary = check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    ensure!(summary.events == all);
    ensure!(
        slot.walsender().await? == walsender,
        "the walsender was cut"
    );
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    ensure!(
        peak_kb < usual_kb + GROWTH_KB_MAX,
        "{usual_kb} kB before, {peak_kb} kB after"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_of_another_table_takes_flat_memory_too() -> Result<()> {
    let fixture = Fixture::bare("big_other").await?;
    fixture
        .sql(&format!(
            "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload text);
             CREATE TABLE other (n int, text text);
             CREATE PUBLICATION {} FOR ALL TABLES",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    fixture
        .sql("INSERT INTO other SELECT n, repeat('x', 500) FROM generate_series(1, 100000) n")
        .await?;
    let end = slot.wal_position().await?;
    slot.reaches(end, Duration::from_secs(60)).await?;
    wait::until_true("the connector is ready", SOON, async || {
        Ok(connector.is_ready().await)
    })
    .await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    connector.stop().await
}

async fn insert(client: &tokio_postgres::Client, first: i64, last: i64) -> Result<()> {
    client
        .execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 1000, n, jsonb_build_object('text', repeat('x', 500))
             FROM generate_series($1::bigint, $2) n",
            &[&first, &last],
        )
        .await?;
    Ok(())
}
