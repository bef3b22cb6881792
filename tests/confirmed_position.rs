//! The confirmed position: never ahead of an acknowledgement, never backwards, always the end of a commit.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::random::Random;
use e2e::scale;
use e2e::servers::{NODE, Servers};
use e2e::slot::Position;
use e2e::wait;
use e2e::writer::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b03_keepalives_confirm_nothing_while_an_event_is_in_flight() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "b03").await?;
    fixture.set_sender_timeout(scale::pick("2s", "5s")).await?;
    fixture.sql("CREATE TABLE other (text text)").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_text("source.status_interval", "300ms");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    // The producer has its connection before the broker freezes.
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    fixture.servers.kafka.pause_node(NODE)?;
    fixture.insert(&client, 1).await?;
    let after_commit = slot.wal_position().await?;
    wait::throughout(
        "the event is unconfirmed",
        Duration::from_secs(scale::pick(8, 20)),
        async || {
            client
                .execute("INSERT INTO other VALUES (repeat('x', 1000))", &[])
                .await?;
            // Its commit ends at or before the second bracket, so reaching the bracket would pass it.
            Ok(slot.confirmed().await? < after_commit)
        },
    )
    .await?;
    connector.kill()?;
    fixture.servers.kafka.resume_node(NODE)?;
    slot.released().await?;
    ensure!(slot.confirmed().await? < after_commit);
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(2, SOON).await?;
    // Control: idle, with everything acknowledged, the position does follow the keepalives.
    client
        .execute(
            "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 1000)",
            &[],
        )
        .await?;
    slot.catches_up(SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b04_five_clean_restarts_repeat_nothing_and_confirm_the_commits_end() -> Result<()> {
    let fixture = Fixture::new("b04").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    // Without the state file the slot alone has to be right.
    let config = fixture.config().without("state.directory");
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let connector = fixture.start_with(&config).await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    connector.stop().await?;
    // A slot that stands at the commit record's begin instead of its end would send the row again.
    let left = slot.rows_to_come(&fixture.publication).await?;
    ensure!(left == 0, "{left} rows are not confirmed");
    let mut confirmed = slot.confirmed().await?;
    for round in 1..=5 {
        let connector = fixture.start_with(&config).await?;
        slot.catches_up(SOON).await?;
        let quiet_for = Duration::from_secs(scale::pick(0, 15));
        wait::throughout("nothing is repeated", quiet_for, async || {
            Ok(consumer.read_to_end().await?.len() == 1)
        })
        .await
        .with_context(|| format!("round {round}"))?;
        connector.stop().await?;
        slot.released().await?;
        let now = slot.confirmed().await?;
        ensure!(
            now >= confirmed,
            "round {round}: back from {confirmed} to {now}"
        );
        confirmed = now;
    }
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b04_no_status_update_goes_backwards_even_over_reconnects() -> Result<()> {
    let fixture = Fixture::new("b04_monotone").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_text("source.status_interval", "200ms");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    for round in 0..3 {
        let before = slot.confirmed().await?;
        let walsender = slot.terminate_walsender().await?;
        let flushed = wait::until("the first status update after the reconnect", SOON, async || {
            let row = client
                .query_opt(
                    "SELECT flush_lsn::text FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid
                     WHERE slot_name = $1 AND pid <> $2 AND flush_lsn IS NOT NULL",
                    &[&fixture.slot, &walsender],
                )
                .await?;
            row.map(|row| Position::parse(row.get(0))).transpose()
        })
        .await?;
        ensure!(
            flushed >= before,
            "round {round}: the first status after the reconnect said {flushed}, before it was {before}"
        );
    }
    ensure!(consumer.read_to_end().await?.len() == 1);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_an_overtaken_transaction_arrives_in_commit_order() -> Result<()> {
    let fixture = Fixture::new("b05").await?;
    let mut consumer = one_partition(&fixture)?;
    let connector = fixture.start().await?;
    let mut session_a = fixture.client().await?;
    let session_b = fixture.client().await?;
    let a = session_a.transaction().await?;
    a.execute(&event("A1"), &[]).await?;
    session_b.execute(&event("B1"), &[]).await?;
    a.execute(&event("A2"), &[]).await?;
    a.commit().await?;
    consumer.wait_for_records(3, SOON).await?;
    let keys: Vec<&str> = consumer
        .read_to_end()
        .await?
        .iter()
        .map(e2e::consumer::Record::key_text)
        .collect();
    ensure!(keys == ["B1", "A1", "A2"], "order of arrival: {keys:?}");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_a_crash_between_the_two_commits_neither_loses_nor_repeats() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "b05_crash").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    let mut session_a = fixture.client().await?;
    let session_b = fixture.client().await?;
    let a = session_a.transaction().await?;
    a.execute(&event("A1"), &[]).await?;
    session_b.execute(&event("B1"), &[]).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    fixture.servers.kafka.pause_node(NODE)?;
    a.execute(&event("A2"), &[]).await?;
    a.commit().await?;
    connector.kill()?;
    fixture.servers.kafka.resume_node(NODE)?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(3, SOON).await?;
    slot.catches_up(SOON).await?;
    let mut keys: Vec<&str> = consumer
        .read_to_end()
        .await?
        .iter()
        .map(e2e::consumer::Record::key_text)
        .collect();
    keys.sort_unstable();
    // What was frozen in the broker's socket may come out as well; what was confirmed may not come again.
    let b1 = keys.iter().filter(|key| **key == "B1").count();
    ensure!(
        b1 == 1 && keys.contains(&"A1") && keys.contains(&"A2"),
        "arrived: {keys:?}"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_twenty_sessions_and_two_kills_keep_every_event_in_commit_order() -> Result<()> {
    let fixture = Fixture::new("b05_sessions").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let mut load = Load::new(10_000);
    load.writers = 20;
    let seed = load.seed;
    let mut random = Random::new(seed);
    let load = load.start(&fixture).await?;
    for _ in 0..2 {
        let connector = fixture.start().await?;
        consumer
            .wait_for_events(consumer.distinct() + 1 + random.below(2000), SOON)
            .await?;
        connector.kill()?;
    }
    let connector = fixture.start().await?;
    let ledger = load.finish().await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns)
        .await
        .with_context(|| format!("seed {seed}"))?;
    ensure!(ledger.len() == 10_000);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_confirmed_as_a_whole_or_not_at_all() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "whole").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with("kafka.in_flight_records_max", "50");
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let before = slot.confirmed().await?;
    client
        .execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version)
             SELECT 'order', 'k' || n % 5, n FROM generate_series(1, 20000) n",
            &[],
        )
        .await?;
    let end = slot.wal_position().await?;
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(1000, SOON).await?;
    fixture.servers.kafka.pause_node(NODE)?;
    let halfway = slot.confirmed().await?;
    ensure!(
        halfway < end,
        "the transaction was over too soon for this test: {halfway}"
    );
    wait::throughout("no part is confirmed", Duration::from_secs(3), async || {
        // The slot's own start may be confirmed, nothing between there and the end.
        Ok(slot.confirmed().await? < end)
    })
    .await?;
    ensure!(slot.confirmed().await? >= before);
    fixture.servers.kafka.resume_node(NODE)?;
    slot.reaches(end, Duration::from_secs(60)).await?;
    let ledger = Ledger::from_table(&client).await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    connector.stop().await
}

fn event(key: &str) -> String {
    format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '{key}', '{{}}')"
    )
}

/// A topic of one partition, so that the order of different keys can be seen.
fn one_partition(fixture: &Fixture) -> Result<e2e::consumer::Consumer> {
    let topic = fixture.topic("order");
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| kafka.create_topic(&topic, 1, &[]))?;
    e2e::consumer::Consumer::new(&kafka.bootstrap(), &[topic])
}
