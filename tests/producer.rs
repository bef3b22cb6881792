//! Field problem B20: the broker no longer knows our producer. It is made anew, and everything unconfirmed comes again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::Repeats;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::servers::{NODE, Servers};
use e2e::wait;
use e2e::writer::{Load, Running};

/// A connector under a load of 200 events a second, the first of them delivered and confirmed.
async fn steady(name: &str) -> Result<(Fixture, Connector, Running)> {
    let fixture = Fixture::on(Servers::with_fragile_kafka().await?, name).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_kafka("socket.timeout.ms", "4000")
        .with_kafka("request.timeout.ms", "4000");
    let connector = fixture.start_with(&config).await?;
    let load = Load::steady(60).start(&fixture).await?;
    consumer.wait_for_events(200, SOON).await?;
    Ok((fixture, connector, load))
}

/// The rows that were written before are no longer looked for: their records may be gone from the topic.
async fn forget_the_past(fixture: &Fixture, load: Running) -> Result<()> {
    let ledger = load.stop().await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(!ledger.is_empty());
    fixture.sql("TRUNCATE outbox").await
}

/// B20 b: every record of the topic is gone from the broker, and with them what it knew of its producers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b20_b_a_broker_whose_log_was_wiped_gets_everything_unconfirmed() -> Result<()> {
    let (fixture, connector, load) = steady("b20_b").await?;
    forget_the_past(&fixture, load).await?;
    let kafka = &fixture.servers.kafka;
    kafka.pause_node(NODE)?;
    // Of these nothing can be acknowledged any more, and many are on their way.
    let load = Load::steady(60).start(&fixture).await?;
    load.goes_on_for(300, SOON).await?;
    tokio::task::block_in_place(|| -> Result<()> {
        kafka.kill_node(NODE)?;
        let data = kafka.folder().join(format!("node-{NODE}")).join("data");
        let topic = fixture.topic("order");
        let mut wiped = 0;
        for entry in std::fs::read_dir(&data)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&format!("{topic}-")) {
                std::fs::remove_dir_all(&path)?;
                wiped += 1;
            }
        }
        ensure!(wiped == 3, "{wiped} partitions in {}", data.display());
        kafka.start_node(NODE)
    })?;
    load.goes_on_for(200, SOON).await?;
    let ledger = load.stop().await?;
    let mut consumer = e2e::consumer::Consumer::new(&kafka.bootstrap(), &[fixture.topic("order")])?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns)
        .await
        .with_context(|| connector.log())?;
    wait::until_true("ready again", SOON, async || Ok(connector.is_ready().await)).await?;
    new_producers_are_counted_and_told(&connector).await?;
    connector.stop().await
}

/// The end of a producer is told once each time, and every new one is counted. None has to end: these brokers take up
/// with a producer that they no longer know.
async fn new_producers_are_counted_and_told(connector: &Connector) -> Result<()> {
    let page = connector.get("/metrics").await?;
    let counted = page.metric("posthaste_producers_recreated_total", "");
    let told = connector.messages_with(&["Kafka producer re-created after "]);
    let fatal = page.metric("posthaste_errors_total", "kind=\"PH0608\"");
    ensure!(
        told.len() as f64 == fatal && counted >= fatal,
        "{fatal} ends, {counted} new ones, told {told:#?}"
    );
    Ok(())
}

/// B20 c: frozen for longer than every time-out of the client, with many records in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b20_c_a_broker_frozen_beyond_the_clients_time_outs() -> Result<()> {
    let (fixture, connector, load) = steady("b20_c").await?;
    let kafka = &fixture.servers.kafka;
    kafka.pause_node(NODE)?;
    load.goes_on_for(200, SOON).await?;
    let frozen_for = Duration::from_secs(scale::pick(10, 90));
    let told = wait::throughout("the process lives", frozen_for, async || {
        Ok(connector.get("/healthz").await?.status == 200)
    });
    let told = told.await;
    kafka.resume_node(NODE)?;
    told?;
    load.goes_on_for(200, SOON).await?;
    let ledger = load.stop().await?;
    let mut consumer = e2e::consumer::Consumer::new(&kafka.bootstrap(), &[fixture.topic("order")])?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns).await?;
    wait::until_true("ready again", SOON, async || Ok(connector.is_ready().await)).await?;
    new_producers_are_counted_and_told(&connector).await?;
    connector.stop().await
}
