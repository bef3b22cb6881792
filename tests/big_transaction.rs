//! Big transactions of every kind: all of what was committed, in order, with flat memory.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::scale;
use e2e::servers::Servers;
use e2e::wait;
use xtask::postgres::{PostgresOptions, StopMode};

/// The product's aim for its peak, whatever the size of a transaction.
const PEAK_KB_MAX: u64 = 64 * 1024;

/// The transaction's rows hold several times this, so a reader that gathered them could not hide it.
const GROWTH_KB_MAX: u64 = 24 * 1024;

/// The cage of B29, in bytes: what it may write to. Address space alone costs nothing, and its threads and the Kafka client
/// reserve more of that.
const CAGE: &str = "--data=268435456:";

/// The size of a row's text, so that the full run has rows of a kilobyte.
const TEXT_BYTES: i32 = 500;
const TEXT_BYTES_FULL: i32 = 1000;

/// All of it, on a busy machine.
const DELIVERED_WITHIN: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_a_transaction_of_very_many_rows_takes_flat_memory() -> Result<()> {
    let rows = scale::pick(200_000, 1_000_000);
    let fixture = Fixture::new("big").await?;
    fixture.set_sender_timeout("10s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    connector.limit(CAGE)?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    // A usual load first: what it takes is the measure.
    insert(&client, 1, 2000).await?;
    consumer.wait_for_events(2000, SOON).await?;
    slot.catches_up(SOON).await?;
    let usual_kb = connector.memory_kb("VmHWM")?;
    insert(&client, 2001, 2000 + rows).await?;
    let end = slot.wal_position().await?;
    consumer
        .wait_for_events(usize::try_from(rows / 2)?, DELIVERED_WITHIN)
        .await?;
    let confirmed = slot.confirmed().await?;
    let all = usize::try_from(2000 + rows)?;
    if consumer.read_to_end().await?.len() < all {
        ensure!(
            confirmed < end,
            "{confirmed} is confirmed with half of the transaction sent"
        );
    }
    consumer.wait_for_events(all, DELIVERED_WITHIN).await?;
    slot.reaches(end, SOON).await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    let ledger = Ledger::from_table(&client).await?;
    let summary = check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    ensure!(summary.events == all);
    ensure!(
        slot.walsender().await? == walsender,
        "the walsender was cut"
    );
    tell(&format!(
        "{rows} rows: {usual_kb} kB before, peak {peak_kb} kB"
    ));
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    ensure!(
        peak_kb < usual_kb + GROWTH_KB_MAX,
        "{usual_kb} kB before, {peak_kb} kB after"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_a_large_transaction_of_another_table_takes_flat_memory_too() -> Result<()> {
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
        .sql(&format!(
            "INSERT INTO other SELECT n, repeat('x', 500) FROM generate_series(1, {}) n",
            scale::pick(100_000, 1_000_000)
        ))
        .await?;
    let end = slot.wal_position().await?;
    slot.reaches(end, DELIVERED_WITHIN).await?;
    wait::until_true("the connector is ready", SOON, async || {
        Ok(connector.is_ready().await)
    })
    .await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    connector.stop().await
}

/// In the middle of the transaction the process dies: it starts over, and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b29_a_kill_in_the_middle_of_a_big_transaction_starts_it_over() -> Result<()> {
    let rows = scale::pick(50_000, 1_000_000);
    let fixture = Fixture::new("big_killed").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let before = slot.confirmed().await?;
    insert(&client, 1, rows).await?;
    let end = slot.wal_position().await?;
    // Slowly enough to be killed in the middle.
    let slow = fixture.config().with("kafka.in_flight_records_max", "200");
    let connector = fixture.start_with(&slow).await?;
    connector.limit(CAGE)?;
    let middle = rows / scale::pick(20, 2);
    consumer
        .wait_for_events(usize::try_from(middle)?, DELIVERED_WITHIN)
        .await?;
    connector.kill()?;
    let killed_at = consumer.read_to_end().await?.len();
    let all = usize::try_from(rows)?;
    ensure!(
        killed_at < all,
        "it was too quick to be killed in the middle"
    );
    slot.released().await?;
    ensure!(slot.confirmed().await? <= end && slot.confirmed().await? >= before);
    let connector = fixture.start().await?;
    connector.limit(CAGE)?;
    consumer.wait_for_events(all, DELIVERED_WITHIN).await?;
    slot.reaches(end, SOON).await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    let ledger = Ledger::from_table(&client).await?;
    let summary = check(&ledger, consumer.read_to_end().await?, Repeats::Reruns)?;
    ensure!(summary.events == all && summary.repeats >= killed_at);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_subtransactions_half_of_them_rolled_back() -> Result<()> {
    let count = scale::pick(4_000, 20_000);
    let fixture = Fixture::new("big_subtransactions").await?;
    fixture.set_sender_timeout("10s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    fixture
        .sql(&format!(
            "DO $$ BEGIN FOR n IN 1..{count} LOOP BEGIN
               INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
               VALUES ('order', 'k' || n % 100, n, jsonb_build_object('n', n));
               IF n % 2 = 0 THEN RAISE EXCEPTION 'undone'; END IF;
             EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$"
        ))
        .await?;
    let end = slot.wal_position().await?;
    let kept = usize::try_from(count / 2)?;
    consumer.wait_for_events(kept, DELIVERED_WITHIN).await?;
    slot.reaches(end, SOON).await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    ensure!(ledger.len() == kept);
    check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    ensure!(
        slot.walsender().await? == walsender,
        "the walsender was cut"
    );
    let peak_kb = connector.memory_kb("VmHWM")?;
    ensure!(peak_kb < PEAK_KB_MAX, "peak {peak_kb} kB");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_transactions_are_events_when_they_are_committed() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("max_prepared_transactions".into(), "10".into())],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::on(servers, "two_phase").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    for (name, first, last) in [("kept", 1, 2_000), ("undone", 2_001, 3_000)] {
        client.batch_execute("BEGIN").await?;
        insert(&client, first, last).await?;
        client
            .batch_execute(&format!("PREPARE TRANSACTION '{name}'"))
            .await?;
    }
    insert(&client, 3_001, 3_010).await?;
    consumer.wait_for_events(10, SOON).await?;
    drop(client);
    // What is prepared outlives the server.
    let postgres = &fixture.servers.postgres;
    tokio::task::block_in_place(|| postgres.restart(StopMode::Fast))?;
    let client = fixture.client().await?;
    ensure!(
        consumer.read_to_end().await?.len() == 10,
        "something prepared went out"
    );
    for end in ["ROLLBACK PREPARED 'undone'", "COMMIT PREPARED 'kept'"] {
        client.batch_execute(end).await?;
    }
    consumer
        .wait_for_events(2_010, Duration::from_secs(60))
        .await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let read = consumer.read_to_end().await?;
    ensure!(read.len() == 2_010, "{} records", read.len());
    let mut order = std::collections::HashMap::<&str, Vec<i64>>::new();
    let ledger = Ledger::from_table(&client).await?;
    for record in read {
        let event = ledger.get(record.id()).context("not committed")?;
        order
            .entry(record.key_text())
            .or_default()
            .push(event.version);
    }
    // In the order of commits: what was prepared first comes after what was committed before it.
    for (key, versions) in &order {
        let late = versions.iter().skip_while(|version| **version > 3_000);
        ensure!(
            late.clone().all(|version| *version <= 3_000) && late.is_sorted(),
            "{key}: {versions:?}"
        );
    }
    connector.stop().await
}

async fn insert(client: &tokio_postgres::Client, first: i64, last: i64) -> Result<()> {
    client
        .execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 1000, n, jsonb_build_object('text', repeat('x', $3::int))
             FROM generate_series($1::bigint, $2) n",
            &[&first, &last, &scale::pick(TEXT_BYTES, TEXT_BYTES_FULL)],
        )
        .await?;
    Ok(())
}

/// Shown with `--nocapture`, and when the test fails.
#[expect(clippy::print_stderr, reason = "a figure for whoever asks for it")]
fn tell(text: &str) {
    eprintln!("{text}");
}
