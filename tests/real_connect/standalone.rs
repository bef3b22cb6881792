//! A standalone worker: its two properties files and its file of offsets are all that is needed to go on from it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::connector::{Connector, binary};
use e2e::consumer::Record;
use e2e::debezium::Worker;
use e2e::fixture::Fixture;
use e2e::takeover::{configuration, state};
use serde_json::{Map, Value};
use xtask::connect::ConnectOptions;
use xtask::scratch::Scratch;

const NAME: &str = "outbox";
/// Of each side.
const ROWS: i32 = 30;
/// On a machine that others use as well.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standalone_workers_own_files_are_enough_to_go_on() -> Result<()> {
    let fixture = Fixture::new("standalone").await?;
    let options = ConnectOptions {
        standalone: true,
        ..ConnectOptions::default()
    };
    let worker = Worker::start_with(&fixture.servers.kafka.bootstrap(), &options)?;
    let keys = keys(&fixture)?;
    worker.put(NAME, &Value::from(keys.clone())).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    for n in 0..ROWS {
        fixture.insert(&client, n).await?;
    }
    let rows = usize::try_from(ROWS)?;
    consumer.wait_for_events(rows, LONG).await?;
    tokio::task::block_in_place(|| worker.process().stop())?;
    fixture.watch_slot().await?.released().await?;
    for n in ROWS..ROWS * 2 {
        fixture.insert(&client, n).await?;
    }

    let folder = Scratch::new("standalone")?;
    let file = folder.path().join("connector.properties");
    let text = properties(&keys);
    std::fs::write(&file, &text)?;
    let worker_file = worker.process().properties_file();
    let mut takeover = Command::new(binary()?);
    takeover.args(["debezium", "takeover", "--variant", "skip", "--yes", "-c"]);
    takeover
        .arg(&file)
        .arg("--worker")
        .arg(&worker_file)
        .arg("--offsets")
        .arg(worker.process().offsets_file())
        .args(["--set", &state(&fixture)]);
    let output = tokio::task::spawn_blocking(move || takeover.output()).await??;
    let said = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(output.status.success(), "{said}");

    let worker_path = worker_file.to_string_lossy();
    let state = state(&fixture);
    let arguments = ["--worker", &worker_path, "--set", &state];
    let connector = Connector::start_file("connector.properties", &text, &arguments, &[])?;
    connector.ready().await?;
    consumer.wait_for_events(rows * 2, LONG).await?;
    connector.stop().await?;
    let records = consumer.read_to_end().await?;
    ensure!(
        records.len() == rows * 2,
        "{} repeated\n{said}",
        records.len() - rows * 2
    );
    let (theirs, ours) = records.split_at(rows);
    for (their, our) in theirs.iter().zip(ours) {
        same_form(their, our)?;
    }
    Ok(())
}

/// Without converters: those of the worker hold, which are `JsonConverter` with schemas.
fn keys(fixture: &Fixture) -> Result<Map<String, Value>> {
    let mut body = configuration(fixture, NAME);
    let keys = body.get_mut("config").map(Value::take);
    let Some(Value::Object(mut keys)) = keys else {
        anyhow::bail!("no keys");
    };
    ensure!(keys.remove("key.converter").is_some() && keys.remove("value.converter").is_some());
    keys.insert("name".into(), NAME.into());
    Ok(keys)
}

fn properties(keys: &Map<String, Value>) -> String {
    let line = |(key, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default().replace('\\', "\\\\");
        format!("{key}={value}\n")
    };
    keys.iter().map(line).collect()
}

/// Everything but what a row and a run have of their own.
fn same_form(their: &Record, our: &Record) -> Result<()> {
    let schema = |text: &str| -> Result<Value> {
        let value: Value = serde_json::from_str(text)?;
        Ok(value.get("schema").context("a schema")?.clone())
    };
    ensure!(
        schema(their.key_text())? == schema(our.key_text())?,
        "{their:?} {our:?}"
    );
    ensure!(
        schema(their.payload_text())? == schema(our.payload_text())?,
        "{their:?} {our:?}"
    );
    let headers = |record: &Record| -> Vec<(String, Option<Vec<u8>>)> {
        let headers = record.headers.iter().cloned();
        let blank = |(name, value): (String, Option<Vec<u8>>)| {
            let is_own = name == "id" || name.ends_with(".runId");
            let value = value.filter(|_| !is_own);
            (name, value)
        };
        headers.map(blank).collect()
    };
    ensure!(headers(their) == headers(our), "{their:?} {our:?}");
    Ok(())
}
