//! The harness: Debezium runs, stops through REST, dies, comes back, and tells its offsets.

use anyhow::{Context, Result, ensure};
use e2e::debezium::Worker;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::wait;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debezium_goes_on_after_a_stop_and_after_a_kill() -> Result<()> {
    let fixture = Fixture::new("worker").await?;
    let worker = Worker::start(&fixture.servers.kafka.bootstrap(), "worker")?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    worker.put("outbox", &config(&fixture)).await?;

    let mut ids = vec![fixture.insert(&client, 1).await?];
    consumer.wait_for_events(1, SOON).await?;
    worker.stop("outbox").await?;
    let stopped = worker.offset("outbox")?.context("an offset")?;
    ensure!(
        stopped.get("lsn").is_some_and(Value::is_number),
        "{stopped}"
    );
    worker.set_offset("outbox", "srv", &stopped)?;
    ids.push(fixture.insert(&client, 2).await?);
    worker.resume("outbox").await?;
    consumer.wait_for_events(2, SOON).await?;

    wait::until_true("the offset to be stored", SOON, async || {
        Ok(worker.offset("outbox")?.as_ref() != Some(&stopped))
    })
    .await?;
    tokio::task::block_in_place(|| worker.process().kill())?;
    ids.push(fixture.insert(&client, 3).await?);
    tokio::task::block_in_place(|| worker.process().start_again())?;
    worker.running("outbox").await?;
    let records = consumer.wait_for_events(3, SOON).await?;
    for id in &ids {
        ensure!(records.iter().any(|record| record.id() == id), "no {id}");
    }
    Ok(())
}

fn config(fixture: &Fixture) -> Value {
    json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": fixture.servers.postgres.port().to_string(),
        "database.user": "postgres",
        "database.password": PASSWORD,
        "database.dbname": fixture.database,
        "topic.prefix": "srv",
        "slot.name": fixture.slot,
        "publication.name": fixture.publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": fixture.topic("${routedByValue}"),
    })
}
