//! Brokers stopped or frozen: the server stays content, nothing is confirmed early, nothing is lost or repeated.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::scale;
use e2e::servers::{NODE, Servers};
use e2e::slot::{Position, Slot};
use e2e::wait;
use e2e::writer::Load;

/// How the broker goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// Its process ends and its port closes.
    Stopped,
    /// It keeps its connections and says nothing.
    Frozen,
}

impl Outage {
    fn begin(self, fixture: &Fixture) -> Result<()> {
        let kafka = &fixture.servers.kafka;
        match self {
            Self::Stopped => tokio::task::block_in_place(|| kafka.stop_node(NODE)),
            Self::Frozen => kafka.pause_node(NODE),
        }
    }

    fn end(self, fixture: &Fixture) -> Result<()> {
        let kafka = &fixture.servers.kafka;
        match self {
            Self::Stopped => tokio::task::block_in_place(|| kafka.start_node(NODE)),
            Self::Frozen => kafka.resume_node(NODE),
        }
    }
}

/// A fixture on the broker that may be stopped, whose server cuts a silent walsender after `wal_sender_timeout`.
async fn fragile(name: &str, wal_sender_timeout: &str) -> Result<Fixture> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, name).await?;
    fixture.set_sender_timeout(wal_sender_timeout).await?;
    Ok(fixture)
}

/// A status update every second is due three times within `wal_sender_timeout`; this leaves room for a busy machine.
const REPLY_AGE_MAX_MS: f64 = 3900.0;

/// For the whole `span`: the same walsender, replies in time, and no position beyond `limit` confirmed.
async fn server_is_content(
    slot: &Slot,
    walsender: i32,
    limit: Position,
    span: Duration,
) -> Result<()> {
    wait::throughout("the server is content", span, async || {
        let state = slot.state().await?;
        ensure!(
            state.active_pid == Some(walsender),
            "walsender {walsender} became {:?}",
            state.active_pid
        );
        ensure!(
            state.confirmed < limit,
            "{} is confirmed although nothing from {limit} on can be acknowledged",
            state.confirmed
        );
        let age = slot.reply_age_ms().await?;
        ensure!(age < REPLY_AGE_MAX_MS, "no reply for {age} ms");
        Ok(true)
    })
    .await
}

fn no_timeout_in_server_log(fixture: &Fixture) -> Result<()> {
    let log = fixture.servers.postgres.log();
    let cut = log.lines().find(|line| {
        line.contains("terminating walsender process due to replication timeout")
            && line.contains(&fixture.role)
    });
    ensure!(cut.is_none(), "the server cut the connection: {cut:?}");
    Ok(())
}

async fn outage_under_load(name: &str, outage: Outage, span: Duration) -> Result<()> {
    let fixture = fragile(name, "4s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    // Whether the client bumps its epoch: it then sends again what may stand in the log already (its issue 4953).
    let config = fixture
        .config()
        .with_text("log.level", "info,kafka=debug")
        .with_kafka("debug", "eos");
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    let load = Load::steady(40);
    let seed = load.seed;
    let load = load.start(&fixture).await?;
    consumer.wait_for_events(200, SOON).await?;
    outage.begin(&fixture)?;
    // What is committed from here on cannot be acknowledged; the row is the proof that something is.
    load.goes_on_for(20, SOON).await?;
    let limit = slot.wal_position().await?;
    server_is_content(&slot, walsender, limit, span).await?;
    load.goes_on_for(20, SOON).await?;
    outage.end(&fixture)?;
    load.goes_on_for(100, SOON).await?;
    let ledger = load.stop().await?;
    consumer
        .wait_for_events(ledger.len(), Duration::from_secs(60))
        .await?;
    slot.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    let now = slot.walsender().await?;
    ensure!(
        now == walsender,
        "walsender {walsender} became {now}: a lost connection excuses repeats, and there should be none\n{}",
        connector.log()
    );
    check(&ledger, records, Repeats::Forbidden)
        .with_context(|| format!("seed {seed}; {}", repeated_places(records)))
        .with_context(|| changes_of_leader(&fixture))
        .with_context(|| connector.log())?;
    no_timeout_in_server_log(&fixture)?;
    connector.stop().await
}

/// What the broker tells of itself being fenced and leading again, as it may after a freeze longer than its session.
fn changes_of_leader(fixture: &Fixture) -> String {
    let log = fixture.servers.kafka.log(NODE);
    let words = ["fence", "Fence", "leader epoch", "LeaderEpoch"];
    let lines = log
        .lines()
        .filter(|line| words.iter().any(|word| line.contains(word)));
    let mut newest: Vec<&str> = lines.rev().take(60).collect();
    newest.reverse();
    newest.join("\n")
}

/// Where events that stand twice stand. Whether they are neighbours, and which stretch they belong to, tells a client that
/// sent again from a connector that read again.
fn repeated_places(records: &[Record]) -> String {
    let mut first: HashMap<&str, &Record> = HashMap::new();
    let mut text = String::from("repeated:");
    for record in records {
        if let Some(before) = first.insert(record.id(), record) {
            let (key, id) = (record.key_text(), record.id());
            let (partition, from, to) = (record.partition, before.offset, record.offset);
            text.push_str(&format!(
                "\n  {id} (key {key}) in partition {partition} at {from} and {to}"
            ));
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_stopped_for_thirty_seconds_costs_nothing() -> Result<()> {
    outage_under_load("stopped", Outage::Stopped, Duration::from_secs(30)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_frozen_for_three_sender_timeouts_costs_nothing() -> Result<()> {
    outage_under_load("frozen", Outage::Frozen, Duration::from_secs(12)).await
}

/// B01: small queues, a large backlog, and a broker that freezes after the first records.
async fn slow_sink(name: &str, statement: &str, repetitions: usize) -> Result<()> {
    let fixture = fragile(name, scale::pick("4s", "5s")).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with("kafka.in_flight_records_max", "1000");
    let client = fixture.client().await?;
    for _ in 0..repetitions {
        client.batch_execute(statement).await?;
    }
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    consumer.wait_for_events(500, SOON).await?;
    Outage::Frozen.begin(&fixture)?;
    let limit = slot.wal_position().await?;
    let frozen_for = Duration::from_secs(scale::pick(10, 25));
    server_is_content(&slot, walsender, limit, frozen_for).await?;
    let stopped_at = slot.confirmed().await?;
    // Nothing is acknowledged, so nothing moves at all.
    wait::throughout(
        "the position stands still",
        Duration::from_secs(2),
        async || Ok(slot.confirmed().await? == stopped_at),
    )
    .await?;
    Outage::Frozen.end(&fixture)?;
    let ledger = Ledger::from_table(&client).await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Forbidden).await?;
    ensure!(ledger.len() == 50_000 && slot.walsender().await? == walsender);
    no_timeout_in_server_log(&fixture)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b01_a_frozen_broker_does_not_stop_feedback_over_many_transactions() -> Result<()> {
    let statement = "
        INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
        SELECT 'order', 'k' || n % 20, nextval('versions'), jsonb_build_object('text', repeat('x', 1000))
        FROM generate_series(1, 100) n";
    slow_sink(
        "slow_many",
        &format!("CREATE SEQUENCE IF NOT EXISTS versions; {statement}"),
        500,
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b01_a_frozen_broker_does_not_stop_feedback_within_one_transaction() -> Result<()> {
    let statement = "
        INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
        SELECT 'order', 'k' || n % 20, n, jsonb_build_object('text', repeat('x', 1000))
        FROM generate_series(1, 50000) n";
    slow_sink("slow_one", statement, 1).await
}

/// B18: longer without a broker than any client time-out, and every record still arrives.
async fn outage_beyond_every_timeout(name: &str, outage: Outage) -> Result<()> {
    let fixture = fragile(name, "4s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = short_timeouts(fixture.config());
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    outage.begin(&fixture)?;
    let limit = slot.wal_position().await?;
    for n in 1..=100 {
        fixture.insert(&client, n).await?;
    }
    let walsender = slot.walsender().await?;
    let limit = limit.max(slot.confirmed().await?);
    wait::throughout(
        "nothing is confirmed",
        Duration::from_secs(scale::pick(15, 30)),
        async || Ok(slot.confirmed().await? <= limit),
    )
    .await?;
    outage.end(&fixture)?;
    consumer
        .wait_for_events(101, Duration::from_secs(60))
        .await?;
    slot.catches_up(SOON).await?;
    let mut keys: Vec<i32> = consumer
        .read_to_end()
        .await?
        .iter()
        .filter_map(|record| record.key_text().parse().ok())
        .collect();
    keys.sort_unstable();
    ensure!(keys == (0..=100).collect::<Vec<_>>(), "arrived: {keys:?}");
    ensure!(slot.walsender().await? == walsender);
    connector.stop().await
}

/// Time-outs of the client that a shorter outage must outlast.
fn short_timeouts(config: Config) -> Config {
    config
        .with_kafka("socket.timeout.ms", "4000")
        .with_kafka("request.timeout.ms", "4000")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b18_records_outlive_a_stopped_broker() -> Result<()> {
    outage_beyond_every_timeout("b18_stopped", Outage::Stopped).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b18_records_outlive_a_frozen_broker() -> Result<()> {
    outage_beyond_every_timeout("b18_frozen", Outage::Frozen).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_full_queue_slows_reading_down_and_nothing_else() -> Result<()> {
    let fixture = Fixture::new("full_queue").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let rows = scale::pick(50_000, 300_000);
    fixture
        .sql(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 20, n, jsonb_build_object('text', repeat('x', 200))
             FROM generate_series(1, {rows}) n",
        ))
        .await?;
    let config = fixture
        .config()
        .with("kafka.in_flight_records_max", scale::pick("100", "1000"));
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    consumer
        .wait_for_events(rows / 10, Duration::from_secs(90))
        .await?;
    let early_kb = connector.memory_kb("VmHWM")?;
    consumer
        .wait_for_events(rows, Duration::from_secs(90))
        .await?;
    slot.catches_up(SOON).await?;
    let peak_kb = connector.memory_kb("VmHWM")?;
    ensure!(
        peak_kb < early_kb + 8 * 1024,
        "{early_kb} kB after a tenth, {peak_kb} kB in the end"
    );
    ensure!(slot.walsender().await? == walsender, "it was cut");
    let paused = connector
        .metric("posthaste_backpressure_paused_seconds_total")
        .await?;
    ensure!(paused > 0.1, "it never waited: {paused} s");
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    let complaints = complaints(&connector);
    ensure!(complaints.is_empty(), "it complained: {complaints:?}");
    connector.stop().await
}

/// B19: a stop while the queue is full and a backlog waits behind it ends in time, and costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_a_stop_while_the_queue_is_full_ends_within_the_drain_limit() -> Result<()> {
    let fixture = fragile("full_stop", "20s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 20, n, jsonb_build_object('text', repeat('x', 200))
             FROM generate_series(1, 20000) n",
        )
        .await?;
    let config = fixture
        .config()
        .with("kafka.in_flight_records_max", "100")
        .with_text("kafka.drain_timeout", "2s");
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(500, SOON).await?;
    Outage::Frozen.begin(&fixture)?;
    let full = wait::until_true("the queue to be full", SOON, async || {
        Ok(connector.metric("posthaste_events_in_flight").await? > 99.5)
    })
    .await;
    connector.signal(xtask::process::Signal::TERM)?;
    // The limit, and a little for a busy machine.
    let code = connector.exit_code(Duration::from_secs(6)).await;
    Outage::Frozen.end(&fixture)?;
    full?;
    let code = code?;
    ensure!(code == 4, "exit code {code}: {}", connector.log());
    let connector = fixture.start().await?;
    consumer.wait_for_events(20_000, 3 * SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let ledger = Ledger::from_table(&fixture.client().await?).await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Reruns)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_while_the_broker_is_away_ends_at_the_drain_limit_with_code_4() -> Result<()> {
    let fixture = fragile("drain", "20s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with_text("kafka.drain_timeout", "2s");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    // Enough keys to have used every partition: before its first acknowledgement one takes a single record at a time.
    for n in 1..=30 {
        fixture.insert(&client, n).await?;
    }
    consumer.wait_for_records(30, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    Outage::Frozen.begin(&fixture)?;
    for n in 31..=37 {
        fixture.insert(&client, n).await?;
    }
    let in_flight = async || connector.metric("posthaste_events_in_flight").await;
    wait::until_true("the events to be in flight", SOON, async || {
        Ok((in_flight().await? - 7.0).abs() < 0.5)
    })
    .await
    .with_context(|| connector.log())?;
    connector.signal(xtask::process::Signal::TERM)?;
    let code = connector.exit_code(Duration::from_secs(6)).await?;
    ensure!(code == 4, "exit code {code}");
    // The number of what stays unconfirmed is told, under the code of this case.
    ensure!(
        !connector
            .messages_with(&["PH0706: ", " 7 records"])
            .is_empty(),
        "{}",
        connector.log()
    );
    Outage::Frozen.end(&fixture)?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(37, SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_brokers_is_one_line_when_it_begins_and_one_when_it_ends() -> Result<()> {
    let fixture = fragile("told", "20s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    Outage::Stopped.begin(&fixture)?;
    fixture.insert(&client, 2).await?;
    let noticed = wait::until_true("/readyz to tell it", Duration::from_secs(30), async || {
        Ok(!connector.is_ready().await)
    })
    .await;
    let alive = connector.get("/healthz").await;
    let shown = wait::until_true("the event that waits to show", SOON, async || {
        let page = connector.get("/metrics").await?;
        Ok(
            page.metric("posthaste_oldest_unacknowledged_age_seconds", "") > 0.5
                && page.metric("posthaste_replication_lag_bytes", "") > 0.5,
        )
    })
    .await;
    Outage::Stopped.end(&fixture)?;
    noticed?;
    ensure!(alive?.status == 200, "a restart would not help");
    shown?;
    consumer
        .wait_for_records(2, Duration::from_secs(30))
        .await?;
    connector.ready().await?;
    for word in ["\"lost: ", "\"resumed: "] {
        let lines = connector.lines_with(&[word]);
        ensure!(
            lines.len() == 1,
            "lines with {word}: {lines:#?}\n{}",
            connector.log()
        );
    }
    let complaints = complaints(&connector);
    ensure!(
        complaints.len() <= 2,
        "more than an outage needs: {complaints:#?}"
    );
    connector.stop().await
}

/// The promise of `/readyz`: events wait, none is acknowledged, and within half a minute it says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_wait_make_it_not_ready_within_half_a_minute() -> Result<()> {
    let fixture = fragile("not_ready", "20s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    Outage::Frozen.begin(&fixture)?;
    fixture.insert(&client, 2).await?;
    let not_ready = wait::until_true("not ready", Duration::from_secs(30), async || {
        Ok(!connector.is_ready().await)
    })
    .await;
    Outage::Frozen.end(&fixture)?;
    not_ready?;
    wait::until_true("ready again", SOON, async || Ok(connector.is_ready().await)).await?;
    consumer.wait_for_events(2, SOON).await?;
    connector.stop().await
}

/// Lines of the log above the level of information.
fn complaints(connector: &Connector) -> Vec<String> {
    let mut lines = connector.lines_with(&["\"ERROR\""]);
    lines.extend(connector.lines_with(&["\"WARN\""]));
    lines
}
