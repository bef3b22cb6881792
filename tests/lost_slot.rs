//! Field problem B23 while streaming: the server gives the slot up under a connector that cannot deliver.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::servers::{NODE, Servers};
use e2e::slot::Position;
use e2e::wait;
use xtask::postgres::PostgresOptions;
use xtask::postgres_versions::bin_dir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_a_slot_invalidated_while_the_broker_is_stopped_ends_the_process() -> Result<()> {
    let mut servers = Servers::with_fragile_kafka().await?;
    let small = [("min_wal_size", "32MB"), ("max_wal_size", "32MB")];
    let own = Servers::with_own_postgres(PostgresOptions {
        settings: small
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..PostgresOptions::default()
    })?;
    servers.postgres = own.postgres;
    let fixture = Fixture::on(servers, "b23_streaming").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let confirmed = slot.confirmed().await?;
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| kafka.stop_node(NODE))?;
    for n in 1..=3 {
        fixture.insert(&client, n).await?;
    }
    let keep = scale::pick("1MB", "16MB");
    fixture
        .servers
        .postgres
        .set("max_slot_wal_keep_size", keep)?;
    client
        .batch_execute("CREATE TABLE other (text text)")
        .await?;
    // The server counts the slot as lost when it has ended the walsender, so from then on the clock runs.
    wait::until_true("the server to give the slot up", SOON, async || {
        client
            .batch_execute(
                "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 5000);
                 SELECT pg_switch_wal(); CHECKPOINT",
            )
            .await?;
        let row = client
            .query_one(
                "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1",
                &[&fixture.slot],
            )
            .await?;
        Ok(row.try_get::<_, Option<&str>>(0)? == Some("lost"))
    })
    .await?;
    let lost = Instant::now();
    let code = connector.exit_code(SOON).await;
    let took = lost.elapsed();
    tokio::task::block_in_place(|| kafka.start_node(NODE))?;
    ensure!(code? == 3, "{}", connector.log());
    ensure!(took < Duration::from_secs(10), "it took {took:?}");
    let told =
        connector.messages_with(&["PH0313: ", &fixture.slot, "invalidated", "may be missing"]);
    ensure!(told.len() == 1, "{}", connector.log());
    // The last position it names is the one that Kafka acknowledged, and nothing was made in place of the slot.
    ensure!(
        told.iter()
            .all(|line| names_position_at_least(line, confirmed)),
        "{told:?}, confirmed {confirmed}"
    );
    still_lost(&client).await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    made_anew_on_request(&fixture, &mut consumer, confirmed).await
}

/// With the flag: the slot is made anew, with a loud warning and the gap in the metrics; once, and then no more.
async fn made_anew_on_request(
    fixture: &Fixture,
    consumer: &mut Consumer,
    confirmed: Position,
) -> Result<()> {
    let connector = Connector::start_with(&fixture.config(), &["--recreate-lost-slot"], &[])?;
    connector.ready().await?;
    let told = connector.messages_with(&["PH0339: ", &fixture.slot, "reconcile"]);
    ensure!(told.len() == 1, "{}", connector.log());
    ensure!(connector.lines_with(&["\"WARN\"", "PH0339"]).len() == 1);
    let start = connector.metric("posthaste_slot_gap_start_lsn").await?;
    let end = connector.metric("posthaste_slot_gap_end_lsn").await?;
    ensure!(
        start >= as_number(confirmed) && end > start,
        "a gap from {start} to {end}, confirmed {confirmed}"
    );
    let client = fixture.client().await?;
    fixture.insert(&client, 4).await?;
    // Events 1 to 3 are in the gap.
    consumer.wait_for_records(2, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    connector.stop().await?;
    let connector = fixture.start().await?;
    ensure!(connector.metric("posthaste_slot_gap_end_lsn").await? < 0.5);
    fixture.insert(&client, 5).await?;
    consumer.wait_for_records(3, SOON).await?;
    slot.catches_up(SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == 3);
    connector.stop().await
}

/// B23 with exactly-once, and a slot that is gone altogether: told, not made anew by itself; on request it is, and what the
/// position topic says of the old one does not hold the new one up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_a_slot_that_is_gone_is_made_anew_on_request_with_exactly_once_too() -> Result<()> {
    let fixture = Fixture::new("b23_gone").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_text("kafka.delivery", "exactly-once")
        .with_text(
            "kafka.position_topic",
            &format!("{}.positions", fixture.slot),
        )
        .with("source.create", "true");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_events(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    connector.stop().await?;
    slot.released().await?;
    fixture
        .sql(&format!(
            "SELECT pg_drop_replication_slot('{}')",
            fixture.slot
        ))
        .await?;
    fixture.insert(&client, 2).await?;
    let connector = Connector::start(&config)?;
    let code = connector.exit_code(SOON).await?;
    ensure!(
        code == 3
            && connector
                .messages_with(&["PH0331: ", "--recreate-lost-slot"])
                .len()
                == 1,
        "exit code {code}: {}",
        connector.log()
    );
    let connector = Connector::start_with(&config, &["--recreate-lost-slot"], &[])?;
    connector.ready().await?;
    ensure!(connector.messages_with(&["PH0339: "]).len() == 1);
    fixture.insert(&client, 3).await?;
    consumer.wait_for_events(2, SOON).await?;
    connector.stop().await?;
    let connector = fixture.start_with(&config).await?;
    fixture.insert(&client, 4).await?;
    consumer.wait_for_events(3, SOON).await?;
    connector.stop().await?;
    let kafka = fixture.servers.kafka.bootstrap();
    let mut seen = Consumer::new(&kafka, &[fixture.topic("order")])?;
    let records = seen.read_committed_to_end().await?;
    let mut keys: Vec<&str> = records
        .iter()
        .map(e2e::consumer::Record::key_text)
        .collect();
    keys.sort_unstable();
    ensure!(keys == ["1", "3", "4"], "{keys:?}");
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "positions of these tests are small"
)]
fn as_number(position: Position) -> f64 {
    position.0 as f64
}

/// B23 on 18 and later: the server gives up a slot that nobody has read for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_a_slot_that_was_idle_for_too_long_is_told_and_never_replaced() -> Result<()> {
    // The servers of the usual run know no such limit, so the full run starts one that does.
    let bin_dir = scale::is_full().then(|| bin_dir(18)).transpose()?;
    let servers = Servers::with_own_postgres(PostgresOptions {
        bin_dir,
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::on(servers, "b23_idle").await?;
    if fixture.major_version().await? < 18 {
        return Ok(());
    }
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    connector.stop().await?;
    slot.released().await?;
    let confirmed = slot.confirmed().await?;
    fixture.insert(&client, 1).await?;
    fixture
        .servers
        .postgres
        .set("idle_replication_slot_timeout", "1s")?;
    wait::until_true("the server to give the slot up", SOON, async || {
        client.batch_execute("CHECKPOINT").await?;
        let row = client
            .query_one(
                "SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = $1",
                &[&fixture.slot],
            )
            .await?;
        Ok(row.try_get::<_, Option<&str>>(0)? == Some("idle_timeout"))
    })
    .await?;
    let began = Instant::now();
    let connector = Connector::start(&fixture.config())?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "{}", connector.log());
    ensure!(began.elapsed() < Duration::from_secs(10));
    let told =
        connector.messages_with(&["PH0313: ", &fixture.slot, "idle_timeout", "may be missing"]);
    ensure!(
        told.len() == 1
            && told
                .iter()
                .all(|line| names_position_at_least(line, confirmed)),
        "{}",
        connector.log()
    );
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}

/// Nothing was made in place of the slot.
async fn still_lost(client: &tokio_postgres::Client) -> Result<()> {
    let row = client
        .query_one(
            "SELECT count(*), min(wal_status) FROM pg_replication_slots",
            &[],
        )
        .await?;
    ensure!(
        row.try_get::<_, i64>(0)? == 1 && row.try_get::<_, Option<&str>>(1)? == Some("lost"),
        "the slot was replaced"
    );
    Ok(())
}

/// The text after "last confirmed position" is one, and none before `least`.
fn names_position_at_least(line: &str, least: Position) -> bool {
    let named = line
        .split("last confirmed position ")
        .nth(1)
        .and_then(|rest| rest.split([';', ' ']).next());
    named
        .and_then(|text| Position::parse(text).ok())
        .is_some_and(|position| position >= least)
}
