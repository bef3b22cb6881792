//! Field problem B23 while streaming: the server gives the slot up under a connector that cannot deliver.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::servers::{NODE, Servers};
use e2e::wait;
use xtask::postgres::PostgresOptions;

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
fn names_position_at_least(line: &str, least: e2e::slot::Position) -> bool {
    let named = line
        .split("last confirmed position ")
        .nth(1)
        .and_then(|rest| rest.split([';', ' ']).next());
    named
        .and_then(|text| e2e::slot::Position::parse(text).ok())
        .is_some_and(|position| position >= least)
}
