//! Stop and start by an operator: nothing repeated, nothing lost, exit code 0.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::servers::Servers;
use e2e::wait;
use e2e::writer::Load;
use xtask::postgres::StopMode;
use xtask::process::Signal;

/// Rounds of the cases that ask for many; the full run has the stated number.
const ROUNDS: usize = 5;

/// The same in the full run.
const ROUNDS_FULL: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b27_stops_right_after_the_last_acknowledgement_repeat_nothing() -> Result<()> {
    let fixture = Fixture::new("b27").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    // Only the last word can have told the server: the interval is longer than a round.
    let config = fixture.config().with_text("source.status_interval", "10s");
    let mut expected = 0;
    for round in 0..scale::pick(ROUNDS, ROUNDS_FULL) {
        let connector = fixture.start_with(&config).await?;
        for _ in 0..scale::pick(200, 1000) {
            expected += 1;
            fixture.insert(&client, expected).await?;
        }
        consumer
            .wait_for_records(usize::try_from(expected)?, SOON)
            .await?;
        let signal = if round % 2 == 0 {
            Signal::TERM
        } else {
            Signal::INT
        };
        let told = Instant::now();
        connector.signal(signal)?;
        let code = connector.exit_code(Duration::from_secs(10)).await?;
        ensure!(
            code == 0,
            "round {round}: exit code {code} after {signal:?}"
        );
        ensure!(
            told.elapsed() < Duration::from_secs(8),
            "round {round}: the end took {:?}",
            told.elapsed()
        );
        let left = slot.rows_to_come(&fixture.publication).await?;
        ensure!(
            left == 0,
            "round {round}: {left} acknowledged rows are not confirmed"
        );
        ensure!(consumer.read_to_end().await?.len() == usize::try_from(expected)?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b27_stops_in_the_middle_of_the_load_repeat_nothing() -> Result<()> {
    let fixture = Fixture::new("b27_load").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let load = Load::steady(100);
    let seed = load.seed;
    let load = load.start(&fixture).await?;
    for round in 0..scale::pick(ROUNDS, ROUNDS_FULL) {
        let connector = fixture.start().await?;
        consumer
            .wait_for_events(consumer.distinct() + 200, SOON)
            .await?;
        let signal = if round % 2 == 0 {
            Signal::INT
        } else {
            Signal::TERM
        };
        connector.signal(signal)?;
        let code = connector.exit_code(Duration::from_secs(10)).await?;
        ensure!(
            code == 0,
            "round {round}: exit code {code} after {signal:?}"
        );
    }
    let ledger = load.stop().await?;
    let connector = fixture.start().await?;
    consumer
        .wait_for_events(ledger.len(), Duration::from_secs(60))
        .await?;
    connector.stop().await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)
        .with_context(|| format!("seed {seed}"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_within_a_large_transaction_repeats_nothing() -> Result<()> {
    let fixture = Fixture::new("stop_midway").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version)
             SELECT 'order', 'k' || n % 10, n FROM generate_series(1, 20000) n",
        )
        .await?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(100, SOON).await?;
    connector.signal(Signal::TERM)?;
    let code = connector.exit_code(Duration::from_secs(15)).await?;
    let ledger = e2e::ledger::Ledger::from_table(&fixture.client().await?).await?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(ledger.len(), SOON).await?;
    connector.stop().await?;
    // Either the transaction was drained to its end, or the limit was reached and told.
    let repeats = if code == 0 {
        Repeats::Forbidden
    } else {
        Repeats::Reruns
    };
    ensure!(code == 0 || code == 4, "exit code {code}");
    check(&ledger, consumer.read_to_end().await?, repeats)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_idle_stops_and_starts_leave_no_trace() -> Result<()> {
    let fixture = Fixture::new("idle_stops").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    let first = fixture.start().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    first.stop().await?;
    for _ in 0..5 {
        let connector = fixture.start().await?;
        let told = Instant::now();
        connector.stop().await?;
        // Idle, nothing has to be drained: far from `kafka.drain_timeout`, which is ten seconds.
        ensure!(
            told.elapsed() < Duration::from_secs(6),
            "{:?}",
            told.elapsed()
        );
    }
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}

/// The server moves `confirmed_flush_lsn` back over a restart when it had not written the slot; the state file
/// holds what we knew.
async fn server_restart_in_between(name: &str, mode: StopMode) -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, name).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    for round in 0..3 {
        let connector = fixture.start().await?;
        let client = fixture.client().await?;
        for n in 0..20 {
            fixture.insert(&client, round * 20 + n).await?;
        }
        consumer
            .wait_for_records(usize::try_from((round + 1) * 20)?, SOON)
            .await?;
        connector.stop().await?;
        drop(client);
        tokio::task::block_in_place(|| fixture.servers.postgres.restart(mode))?;
    }
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 999).await?;
    consumer.wait_for_records(61, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let read = consumer.read_to_end().await?.len();
    ensure!(read == 61, "{} repeats", read - 61);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_server_restart_between_stop_and_start_repeats_nothing() -> Result<()> {
    server_restart_in_between("restart_fast", StopMode::Fast).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immediate_server_restart_between_stop_and_start_repeats_nothing() -> Result<()> {
    server_restart_in_between("restart_immediate", StopMode::Immediate).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_state_file_a_server_restart_loses_nothing() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, "restart_stateless").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().without("state.directory");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    for n in 1..=20 {
        fixture.insert(&client, n).await?;
    }
    consumer.wait_for_records(20, SOON).await?;
    connector.stop().await?;
    drop(client);
    tokio::task::block_in_place(|| fixture.servers.postgres.restart(StopMode::Immediate))?;
    let client = fixture.client().await?;
    fixture.insert(&client, 21).await?;
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(21, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b27_a_second_signal_ends_at_once() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "second").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with_text("kafka.drain_timeout", "60s");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.servers.kafka.pause_node(e2e::servers::NODE)?;
    fixture.insert(&client, 2).await?;
    let slot = fixture.watch_slot().await?;
    wait::until_true("the event to be in flight", SOON, async || {
        Ok(connector.metric("posthaste_events_in_flight").await? > 0.5)
    })
    .await?;
    connector.signal(Signal::TERM)?;
    connector.prints(&["SIGTERM"], SOON).await?;
    connector.signal(Signal::TERM)?;
    let told = Instant::now();
    let code = connector.exit_code(Duration::from_secs(5)).await?;
    ensure!(
        told.elapsed() < Duration::from_secs(5),
        "{:?}",
        told.elapsed()
    );
    ensure!(code == 4, "exit code {code}");
    ensure!(
        connector.messages_with(&["PH0707: "]).len() == 1,
        "{}",
        connector.log()
    );
    fixture.servers.kafka.resume_node(e2e::servers::NODE)?;
    slot.released().await?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(2, SOON).await?;
    connector.stop().await
}

/// B28: the server's own fast shutdown is not held up by a connected reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b28_a_fast_shutdown_of_the_server_is_not_held_up() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, "b28").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    for (n, prelude) in [
        "SELECT 1",
        "CREATE TABLE IF NOT EXISTS other (text text);
         INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 2000)",
        "INSERT INTO outbox (aggregatetype, aggregateid) VALUES ('order', 'acked')",
    ]
    .into_iter()
    .enumerate()
    {
        fixture.sql(prelude).await?;
        if n == 2 {
            consumer.wait_for_records(1, SOON).await?;
        }
        let told = Instant::now();
        let postgres = &fixture.servers.postgres;
        tokio::task::block_in_place(|| postgres.stop(StopMode::Fast))?;
        ensure!(
            told.elapsed() < Duration::from_secs(5),
            "case {n}: the server's stop took {:?}",
            told.elapsed()
        );
        tokio::task::block_in_place(|| postgres.start_again())?;
        connector.ready().await?;
    }
    ensure!(consumer.read_to_end().await?.len() == 1);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b28_an_event_in_flight_is_not_confirmed_to_please_a_shutdown() -> Result<()> {
    let fixture = Fixture::on(Servers::all_fragile().await?, "b28_unacked").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with_text("kafka.drain_timeout", "1s");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let (postgres, kafka) = (&fixture.servers.postgres, &fixture.servers.kafka);
    tokio::task::block_in_place(|| kafka.stop_node(e2e::servers::NODE))?;
    fixture.insert(&client, 2).await?;
    wait::until_true("the event to be in flight", SOON, async || {
        Ok(connector.metric("posthaste_events_in_flight").await? > 0.5)
    })
    .await?;
    drop(client);
    let server = std::sync::Arc::clone(postgres);
    let stopping = tokio::task::spawn_blocking(move || server.stop(StopMode::Fast));
    // As documented, the server waits: ending our connection or confirming the event would both be wrong.
    let waits = wait::throughout("the server waits", Duration::from_secs(3), async || {
        Ok(!stopping.is_finished())
    })
    .await;
    connector.signal(Signal::TERM)?;
    let code = connector.exit_code(Duration::from_secs(10)).await;
    let stopped = stopping.await;
    tokio::task::block_in_place(|| kafka.start_node(e2e::servers::NODE))?;
    tokio::task::block_in_place(|| postgres.start_again())?;
    waits?;
    stopped??;
    ensure!(code? == 4, "{}", connector.log());
    let connector = fixture.start().await?;
    consumer.wait_for_records(2, SOON).await?;
    connector.stop().await
}
