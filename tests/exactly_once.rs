//! Exactly once: a read-committed consumer sees each event once, in order, whatever is killed, cut, frozen or taken over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::kill;
use e2e::ledger::Ledger;
use e2e::servers::{NODE, Servers};
use e2e::wait;
use e2e::writer::Load;
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::process::Signal;

/// The usual configuration with a position topic of the test's own.
fn exactly_once(fixture: &Fixture) -> Config {
    fixture
        .config()
        .with_text("kafka.delivery", "exactly-once")
        .with_text("kafka.position_topic", &position_topic(fixture))
        // A transaction of a process that is gone ends soon, where nobody comes after it.
        .with_text("kafka.transaction_timeout", "10s")
}

fn position_topic(fixture: &Fixture) -> String {
    format!("{}.positions", fixture.slot)
}

/// Everything that read-committed consumers see, with a fresh consumer that starts at the beginning.
async fn seen(fixture: &Fixture) -> Result<Consumer> {
    let mut consumer = Consumer::new(
        &fixture.servers.kafka.bootstrap(),
        &[fixture.topic("order")],
    )?;
    consumer.read_committed_to_end().await?;
    Ok(consumer)
}

/// Waits until the whole ledger is there, and demands that nothing repeats.
async fn each_once(fixture: &Fixture, consumer: &mut Consumer, ledger: &Ledger) -> Result<()> {
    consumer
        .wait_for_events(ledger.len(), Duration::from_secs(90))
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    check(ledger, seen(fixture).await?.records(), Repeats::Forbidden)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_kills_at_random_moments_repeat_nothing() -> Result<()> {
    let fixture = Fixture::new("once_kills").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    // Without the state file, so that only the position topic can know.
    let config = exactly_once(&fixture).without("state.directory");
    let (ledger, seed) = kill::three_times_under_load(&fixture, &config, &mut consumer).await?;
    let connector = fixture.start_with(&config).await?;
    each_once(&fixture, &mut consumer, &ledger)
        .await
        .with_context(|| format!("seed {seed}"))?;
    ensure!(ledger.len() > 300, "only {} events", ledger.len());
    let committed = connector
        .metric("posthaste_kafka_transactions_total")
        .await?;
    ensure!(committed > 0.0, "no Kafka transaction was counted");
    connector.stop().await
}

/// The position inside a transaction counts to the row: what was committed of it does not come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_large_transaction_repeats_none_of_it() -> Result<()> {
    let fixture = Fixture::new("once_large").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture).with("kafka.transaction_records_max", "1000");
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 10, n, jsonb_build_object('text', repeat('x', 500))
             FROM generate_series(1, 30000) n",
        )
        .await?;
    consumer.wait_for_events(3000, SOON).await?;
    connector.kill()?;
    let before = seen(&fixture).await?.records().len();
    ensure!(
        (3000..30_000).contains(&before),
        "{before} records at the kill"
    );
    let connector = fixture.start_with(&config).await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    // The server sent the whole transaction again, and what was done of it was passed over.
    let page = connector.get("/metrics").await?;
    let passed = page.metric("posthaste_rows_ignored_total", "operation=\"done\"");
    ensure!(passed >= 3000.0, "{passed} rows passed over");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_connection_repeats_nothing() -> Result<()> {
    let fixture = Fixture::new("once_cut").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&exactly_once(&fixture)).await?;
    let load = Load::steady(150).start(&fixture).await?;
    for round in 1..=3 {
        consumer
            .wait_for_events(consumer.distinct() + 100, SOON)
            .await
            .with_context(|| format!("round {round}"))?;
        fixture
            .sql(&format!(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{}'",
                fixture.slot
            ))
            .await?;
    }
    let ledger = load.stop().await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stops_and_comes_back_repeats_nothing() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, "once_broker").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&exactly_once(&fixture)).await?;
    let load = Load::steady(60).start(&fixture).await?;
    consumer.wait_for_events(50, SOON).await?;
    tokio::task::block_in_place(|| fixture.servers.kafka.stop_node(NODE))?;
    load.goes_on_for(100, SOON).await?;
    tokio::task::block_in_place(|| fixture.servers.kafka.start_node(NODE))?;
    load.goes_on_for(50, SOON).await?;
    let ledger = load.stop().await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    let fenced = connector.lines_with(&["PH0620"]);
    ensure!(
        fenced.is_empty(),
        "an outage was taken for a takeover: {fenced:?}"
    );
    connector.stop().await
}

/// The frozen one wakes when another has taken over: whatever it still sends is fenced off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_instance_that_wakes_after_a_takeover_repeats_nothing() -> Result<()> {
    let fixture = Fixture::new("once_zombie").await?;
    fixture.set_sender_timeout("3s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture).with_text("kafka.transaction_interval", "1s");
    let first = fixture.start_with(&config).await?;
    let load = Load::steady(150).start(&fixture).await?;
    consumer.wait_for_events(100, SOON).await?;
    first.signal(Signal::STOP)?;
    let second = Connector::start(&config.clone().without("state.directory"))?;
    second
        .prints(&["streaming from"], Duration::from_secs(60))
        .await?;
    consumer
        .wait_for_events(consumer.distinct() + 200, SOON)
        .await?;
    first.signal(Signal::CONT)?;
    first.prints(&["standing by"], SOON).await?;
    consumer
        .wait_for_events(consumer.distinct() + 200, SOON)
        .await?;
    let ledger = load.stop().await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    let fenced = second.lines_with(&["PH0620"]);
    ensure!(
        fenced.is_empty(),
        "the owner of the slot was fenced: {fenced:?}"
    );
    // What became of its last records it does not know, and would say so with its exit code.
    first.kill()?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_waits_fences_nobody() -> Result<()> {
    let fixture = Fixture::new("once_standby").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture);
    let active = fixture.start_with(&config).await?;
    let standby = Connector::start(&config.clone().without("state.directory"))?;
    standby.prints(&["standing by"], SOON).await?;
    let ledger = Load::new(500).run(&fixture).await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    let trouble = active.lines_with(&["lost:"]);
    ensure!(trouble.is_empty(), "{trouble:?}");
    active.kill()?;
    standby.ready().await?;
    standby.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_topic_that_was_deleted_stops_the_start() -> Result<()> {
    let fixture = Fixture::new("once_missing").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = exactly_once(&fixture);
    let connector = fixture.start_with(&config).await?;
    let ledger = Load::new(100).run(&fixture).await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    connector.stop().await?;
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| kafka.delete_topic(&position_topic(&fixture)))?;
    let refused = Connector::start(&config)?;
    ensure!(
        refused.exit_code(Duration::from_secs(60)).await? != 0,
        "it started"
    );
    refused
        .prints(&["PH0621", "--accept-slot-position"], SOON)
        .await?;
    let accepted = Connector::start_with(&config, &["--accept-slot-position"], &[])?;
    accepted.ready().await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    accepted.stop().await
}

/// The server has sent rows, but nothing was published yet and the slot has not moved: no position can be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_was_cut_short_is_followed_by_another_first_start() -> Result<()> {
    // Nobody can claim a transactional id while the coordinator's topic lacks a replica.
    let kafka = tokio::task::block_in_place(|| {
        Kafka::start(KafkaOptions {
            properties: vec![("transaction.state.log.min.isr".into(), "2".into())],
            ..KafkaOptions::default()
        })
    })?;
    let servers = Servers::of(Servers::shared()?.postgres, Arc::new(kafka));
    let fixture = Fixture::on(servers, "once_cut").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let ledger = Load::new(100).run(&fixture).await?;
    let config = exactly_once(&fixture).without("state.directory");
    let cut = Connector::start(&config)?;
    let client = fixture.client().await?;
    wait::until_true("the slot to be read", SOON, async || {
        let read = "SELECT EXISTS (SELECT FROM pg_stat_replication_slots WHERE slot_name = $1 AND total_txns > 0)";
        Ok(client.query_one(read, &[&fixture.slot]).await?.try_get(0)?)
    })
    .await?;
    cut.kill()?;
    let kafka = &fixture.servers.kafka;
    kafka.alter_topic_config("__transaction_state", "min.insync.replicas", Some("1"))?;
    let connector = fixture.start_with(&config).await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    connector.stop().await
}

/// Rows are counted in the stream of one publication; through another one the count would mean other rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_publication_in_the_middle_of_a_transaction_stops() -> Result<()> {
    let fixture = Fixture::new("once_publication").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    fixture
        .sql("CREATE PUBLICATION once_other FOR TABLE public.outbox WITH (publish = 'insert')")
        .await?;
    let config = exactly_once(&fixture).with("kafka.transaction_records_max", "1000");
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k', n, jsonb_build_object('text', repeat('x', 500))
             FROM generate_series(1, 30000) n",
        )
        .await?;
    consumer.wait_for_events(2000, SOON).await?;
    connector.kill()?;
    let changed = config.clone().with_text("source.publication", "once_other");
    let refused = Connector::start(&changed)?;
    ensure!(
        refused.exit_code(Duration::from_secs(60)).await? != 0,
        "it started"
    );
    refused
        .prints(&["PH0623", &fixture.publication], SOON)
        .await?;
    let connector = fixture.start_with(&config).await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    each_once(&fixture, &mut consumer, &ledger).await?;
    connector.stop().await
}
