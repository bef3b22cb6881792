//! Exactly once beside events that can never be published: parked and retried, dead letters, passed over, held.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::{Connector, command};
use e2e::consumer::{Consumer, Record};
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::wait;
use tokio_postgres::Client;
use xtask::process::Signal;

use crate::parking::{until_waiting, write};
use crate::poison::{B17, EVENT_51, check_all_but_51, row_in};

/// Without the state file, so that only the position topic can know.
fn exactly_once(fixture: &Fixture, on_poison: &str) -> Config {
    fixture
        .config()
        .without("state.directory")
        .with_text("poison.on_poison", on_poison)
        .with_text("kafka.delivery", "exactly-once")
        .with_text(
            "kafka.position_topic",
            &format!("{}.positions", fixture.slot),
        )
        .with_text("kafka.transaction_timeout", "10s")
}

/// All that read-committed consumers see of a topic.
async fn seen(fixture: &Fixture, kind: &str) -> Result<Vec<Record>> {
    committed(fixture, &fixture.topic(kind)).await
}

async fn committed(fixture: &Fixture, topic: &str) -> Result<Vec<Record>> {
    let kafka = &fixture.servers.kafka;
    let mut consumer = Consumer::new(&kafka.bootstrap(), &[topic.to_owned()])?;
    Ok(consumer.read_committed_to_end().await?.to_vec())
}

/// The position records, oldest first. There is a `#` in the name of a row and nowhere else.
async fn positions(fixture: &Fixture) -> Result<Vec<String>> {
    let records = committed(fixture, &format!("{}.positions", fixture.slot)).await?;
    Ok(records
        .iter()
        .map(|record| record.payload_text().to_owned())
        .collect())
}

/// The whole table was seen, each event once, in order per key.
async fn each_once(fixture: &Fixture, client: &Client) -> Result<()> {
    let ledger = Ledger::from_table(client).await?;
    check(&ledger, &seen(fixture, "order").await?, Repeats::Forbidden).map(drop)
}

/// How many events of key `k` were seen, none of them twice and none out of order.
async fn seen_of_k(fixture: &Fixture) -> Result<usize> {
    let records = seen(fixture, "order").await?;
    let ids: Vec<&str> = records.iter().map(Record::id).collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    ensure!(distinct.len() == ids.len(), "{ids:?}");
    Ok(records
        .iter()
        .filter(|record| record.key_text() == "k")
        .count())
}

/// The topic of orders takes records of up to so many bytes.
fn limit(fixture: &Fixture, bytes: Option<&str>) -> Result<()> {
    let topic = fixture.topic("order");
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| kafka.alter_topic_config(&topic, "max.message.bytes", bytes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_event_50_of_100_is_parked_with_all_behind_it_and_each_is_seen_once() -> Result<()> {
    let fixture = Fixture::new("once_park_50").await?;
    fixture.create_poison_tables().await?;
    let mut orders = fixture.consumer(&["order"])?;
    limit(&fixture, Some("100000"))?;
    let client = fixture.client().await?;
    // Written before the start, so that the refused one stands in the middle of a Kafka transaction.
    write(&client, 1, 100).await?;
    let config = exactly_once(&fixture, "park").with_kafka("batch.size", "20000");
    let connector = fixture.start_with(&config).await?;
    until_waiting(&client, 51).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(seen_of_k(&fixture).await? == 49);
    ensure!(orders.wait_for_events(59, SOON).await?.len() == 59);
    // What was read before the parking and is published after it: the record says which part of the log it rests on.
    let rests =
        |text: &String| text.contains("parked_lsn") && !text.contains("\"parked_lsn\":\"0/0\"");
    ensure!(positions(&fixture).await?.iter().any(rests));
    // The position knows of them: a crash changes nothing.
    connector.kill()?;
    let connector = fixture.start_with(&config).await?;
    write(&client, 101, 105).await?;
    until_waiting(&client, 56).await?;
    limit(&fixture, None)?;
    command(&config, &["parked", "retry", "--aggregate-id", "k"])?;
    // Written while the queue empties.
    write(&client, 106, 130).await?;
    until_waiting(&client, 0).await?;
    write(&client, 131, 140).await?;
    // 140 of the key, and a bystander with every tenth.
    orders.wait_for_events(154, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    each_once(&fixture, &client).await?;
    let positions = positions(&fixture).await?;
    let names_rows = |text: &String| text.contains('#');
    ensure!(positions.iter().any(names_rows), "{positions:?}");
    ensure!(!positions.last().is_some_and(names_rows), "{positions:?}");
    connector.stop().await
}

/// Events 50 to 52 are parked and retried. All are in Kafka, 51 and 52 not noted: somebody holds a lock on one of them. (50 fills
/// a batch of its own.)
async fn sent_and_not_noted<'a>(
    fixture: &Fixture,
    config: &Config,
    client: &Client,
    locker: &'a mut Client,
) -> Result<tokio_postgres::Transaction<'a>> {
    write(client, 1, 52).await?;
    until_waiting(client, 3).await?;
    limit(fixture, None)?;
    let lock = locker.transaction().await?;
    lock.execute(
        "SELECT FROM posthaste.parked WHERE state = 'queued' ORDER BY commit_lsn LIMIT 1 FOR UPDATE",
        &[],
    )
    .await?;
    command(config, &["parked", "retry", "--aggregate-id", "k"])?;
    wait::until_true("the retried events", Duration::from_secs(60), async || {
        Ok(seen_of_k(fixture).await? == 52)
    })
    .await?;
    Ok(lock)
}

async fn states(client: &Client) -> Result<String> {
    let states = "SELECT string_agg(state, ' ' ORDER BY commit_lsn) FROM posthaste.parked";
    Ok(client.query_one(states, &[]).await?.try_get(0)?)
}

/// Everything settles, and what comes after goes its usual way.
async fn settles(fixture: &Fixture, client: &Client) -> Result<()> {
    until_waiting(client, 0).await?;
    ensure!(states(client).await? == "published published published");
    write(client, 53, 60).await?;
    wait::until_true("the events after it", SOON, async || {
        Ok(seen_of_k(fixture).await? == 60)
    })
    .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    each_once(fixture, client).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_the_kafka_transaction_and_its_note_repeats_nothing() -> Result<()> {
    let fixture = Fixture::new("once_park_kill").await?;
    fixture.create_poison_tables().await?;
    let _orders = fixture.consumer(&["order"])?;
    limit(&fixture, Some("100000"))?;
    let (client, mut locker) = (fixture.client().await?, fixture.client().await?);
    let config = exactly_once(&fixture, "park");
    let connector = fixture.start_with(&config).await?;
    let lock = sent_and_not_noted(&fixture, &config, &client, &mut locker).await?;
    connector.kill()?;
    lock.rollback().await?;
    // Its server process may still have been at it: then it was noted after all, or not at all.
    let noted = states(&client).await?;
    ensure!(
        noted == "published queued queued" || noted == "published published published",
        "{noted}"
    );
    // Somebody has given one up meanwhile. It was published all the same.
    let not_noted = "UPDATE posthaste.parked SET state = 'queued' WHERE stage = 'behind'";
    client.execute(not_noted, &[]).await?;
    let number = "SELECT id::text FROM posthaste.parked ORDER BY commit_lsn DESC LIMIT 1";
    let number: String = client.query_one(number, &[]).await?.try_get(0)?;
    command(&config, &["parked", "discard", &number])?;
    let connector = fixture.start_with(&config).await?;
    connector
        .prints(&["are noted so", "\"rows\":2"], SOON)
        .await?;
    settles(&fixture, &client).await?;
    connector.stop().await
}

/// The position is read by another process, whose note waits for the lock, and is tried again; the frozen one cannot write
/// anything more when it wakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_frozen_before_its_note_repeats_nothing_and_parks_nothing_more() -> Result<()> {
    let fixture = Fixture::new("once_park_ice").await?;
    fixture.create_poison_tables().await?;
    let _orders = fixture.consumer(&["order"])?;
    limit(&fixture, Some("100000"))?;
    let (client, mut locker) = (fixture.client().await?, fixture.client().await?);
    let config = exactly_once(&fixture, "park");
    let first = fixture.start_with(&config).await?;
    let second = Connector::start(&config)?;
    second.prints(&["standing by"], SOON).await?;
    let lock = sent_and_not_noted(&fixture, &config, &client, &mut locker).await?;
    first.signal(Signal::STOP)?;
    let session: i32 = client
        .query_one(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database =
                (SELECT oid FROM pg_database WHERE datname = current_database())",
            &[],
        )
        .await
        .context("the session that parks")?
        .try_get(0)?;
    let take_the_slot = format!(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{}'",
        fixture.slot
    );
    fixture.sql(&take_the_slot).await?;
    let lives = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    wait::until_true("the frozen one's session to end", SOON, async || {
        Ok(client.query_one(lives, &[&session]).await?.get::<_, i64>(0) == 0)
    })
    .await?;
    // It is noted before anything else is published, or not at all.
    second.prints(&["lost: ", "PH0"], SOON).await?;
    ensure!(states(&client).await? == "published queued queued");
    lock.rollback().await?;
    second.prints(&["are noted so"], SOON).await?;
    first.signal(Signal::CONT)?;
    first.prints(&["standing by"], SOON).await?;
    settles(&fixture, &client).await?;
    first.kill()?;
    second.stop().await
}

/// Event 51 of 101 in one transaction is refused by the broker.
async fn start_with_51(fixture: &Fixture, config: &Config) -> Result<Connector> {
    fixture.client().await?.batch_execute(B17).await?;
    let config = config.clone().with_kafka("message.max.bytes", "10000000");
    fixture.start_with(&config).await
}

/// All others were seen, each once, in order.
async fn all_but_51(fixture: &Fixture, orders: &mut Consumer) -> Result<()> {
    orders.wait_for_events(100, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = seen(fixture, "order").await?;
    ensure!(records.len() == 100, "{} records", records.len());
    check_all_but_51(&records, 101)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_a_dead_letter_and_all_others_are_seen_once() -> Result<()> {
    let fixture = Fixture::new("once_dead").await?;
    let mut orders = fixture.consumer(&["order"])?;
    let _dead = fixture.consumer(&["dead"])?;
    let config = exactly_once(&fixture, "dead-letter-topic")
        .with_text("poison.dead_letter_topic", &fixture.topic("dead"));
    let connector = start_with_51(&fixture, &config).await?;
    all_but_51(&fixture, &mut orders).await?;
    connector.kill()?;
    let connector = fixture.start_with(&config).await?;
    all_but_51(&fixture, &mut orders).await?;
    let letters = seen(&fixture, "dead").await?;
    ensure!(
        letters.len() == 1 && letters[0].id() == EVENT_51,
        "{letters:?}"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_one_is_passed_over_and_all_others_are_seen_once() -> Result<()> {
    let fixture = Fixture::new("once_skip").await?;
    let mut orders = fixture.consumer(&["order"])?;
    let connector = start_with_51(&fixture, &exactly_once(&fixture, "skip")).await?;
    all_but_51(&fixture, &mut orders).await?;
    connector.prints(&["passed over", "PH0602"], SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_a_halt_names_the_refused_event_and_after_a_decision_all_others_are_seen_once()
-> Result<()> {
    let fixture = Fixture::new("once_halt").await?;
    fixture.create_poison_tables().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture, "halt");
    fixture.client().await?.batch_execute(B17).await?;
    let tolerant = config.clone().with_kafka("message.max.bytes", "10000000");
    let halting = Connector::start(&tolerant)?;
    ensure!(halting.exit_code(SOON).await? == 3);
    let message = halting.messages_with(&["PH0602: ", EVENT_51, "it is row"]);
    let row = row_in(message.first().context("no message")?)?;
    let records = seen(&fixture, "order").await?;
    ensure!(records.len() == 50, "{} records before it", records.len());
    command(&config, &["skip", "--row", &row])?;
    let connector = fixture.start_with(&tolerant).await?;
    all_but_51(&fixture, &mut orders).await?;
    connector.stop().await
}
