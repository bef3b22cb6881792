//! The same rows through Debezium and through Posthaste: the records have to be the same, byte for byte.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::Consumer;
use e2e::debezium::Worker;
use e2e::fixture::{Fixture, PASSWORD};
use e2e::random::Random;
use serde_json::{Value, json};

use crate::comparer::{Rule, compare, tells_each_planted_byte};
use crate::kafka_lines::{self, Line};
use crate::rows::{self, COLUMNS, FAILS, TOPICS};

/// Rows of each configuration.
const ROWS: usize = 2_000;
/// Debezium takes a second for them; a busy machine takes its time.
const ARRIVAL: Duration = Duration::from_secs(180);
/// After which it is asked whether both still run.
const LOOK: Duration = Duration::from_secs(5);

/// A configuration: keys of the connector beside those that all share, and what the comparison allows.
struct Case {
    name: &'static str,
    keys: Value,
    expands: bool,
    /// Numbers of floating point reach the records.
    has_fractions: bool,
}

pub(crate) const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
pub(crate) const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";

/// As the plainest of the contract's configurations, with a header.
fn plain() -> Case {
    let keys = json!({
        "key.converter": STRING,
        "value.converter": STRING,
        "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
        "transforms.outbox.table.field.event.timestamp": "occurred_at",
    });
    Case {
        name: "plain",
        keys,
        expands: false,
        has_fractions: false,
    }
}

/// Every column as a header, and the partition of a column.
fn headers() -> Case {
    let all = list(|name| format!("{name}:header"), |_| true);
    let keys = json!({
        "key.converter": STRING,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "transforms.outbox.table.fields.additional.placement": format!("partition_no:partition,id:header,doc:header:Doc,{all}"),
        "transforms.outbox.table.field.event.timestamp": "occurred_us",
    });
    Case {
        name: "headers",
        keys,
        expands: false,
        has_fractions: true,
    }
}

/// Every column in an envelope with schemas, and headers as JSON.
fn schemas() -> Case {
    let all = list(|name| format!("{name}:envelope"), |_| true);
    let keys = json!({
        "key.converter": JSON,
        "value.converter": JSON,
        "header.converter": JSON,
        "transforms.outbox.table.field.event.payload": "doc",
        "transforms.outbox.table.field.event.schema.version": "c_int4",
        "transforms.outbox.table.fields.additional.placement": format!("{all},type:envelope:eventType,c_mood:header,c_bytea:header:raw"),
        "transforms.outbox.table.field.event.timestamp": "occurred_at",
    });
    Case {
        name: "schemas",
        keys,
        expands: false,
        has_fractions: true,
    }
}

/// Expanded JSON without schemas; events on which the task fails are skipped there.
fn expansion() -> Case {
    let keys = json!({
        "key.converter": STRING,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "transforms.outbox.table.expand.json.payload": "true",
        "transforms.outbox.table.json.payload.null.behavior": "optional_bytes",
        "transforms.outbox.table.fields.additional.placement": "type:header,c_short:header",
        "transforms.outbox.table.field.event.timestamp": "occurred_at",
    });
    Case {
        name: "expansion",
        keys,
        expands: true,
        has_fractions: false,
    }
}

/// Expanded JSON with schemas, without members that are null.
fn expansion_with_schemas() -> Case {
    let keys = json!({
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "errors.tolerance": "all",
        "transforms.outbox.table.expand.json.payload": "true",
        "transforms.outbox.table.fields.additional.placement": "type:envelope:kind,number:header",
        "transforms.outbox.table.field.event.timestamp": "occurred_at",
        "transforms.outbox.table.op.invalid.behavior": "error",
    });
    Case {
        name: "expansion_with_schemas",
        keys,
        expands: true,
        has_fractions: false,
    }
}

/// Bytes as they are, an own pattern, tombstones, a number as the key.
fn bytes() -> Case {
    let keys = json!({
        "binary.handling.mode": "bytes",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": "io.debezium.converters.BinaryDataConverter",
        "value.converter.delegate.converter.type": JSON,
        "value.converter.delegate.converter.type.schemas.enable": "false",
        "header.converter": STRING,
        "transforms.outbox.table.field.event.key": "number",
        "transforms.outbox.table.field.event.payload": "body",
        "transforms.outbox.route.tombstone.on.empty.payload": "true",
        "transforms.outbox.route.topic.regex": "(?<region>[a-z]+)(?:\\.(?<kind>.*))?",
        "transforms.outbox.table.fields.additional.placement": "partition_no:partition,c_double:header,c_texts:header,c_hstore:header",
        "transforms.outbox.table.field.event.timestamp": "occurred_us",
    });
    Case {
        name: "bytes",
        keys,
        expands: false,
        has_fractions: true,
    }
}

/// Types in their other modes, as headers.
fn modes() -> Case {
    let all = list(|name| format!("{name}:header"), |_| true);
    let keys = json!({
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "binary.handling.mode": "base64",
        "key.converter": STRING,
        "value.converter": STRING,
        "transforms.outbox.table.field.event.payload": "doc",
        "transforms.outbox.route.tombstone.on.empty.payload": "true",
        "transforms.outbox.table.fields.additional.placement": format!("{all},body:header"),
        "transforms.outbox.table.field.event.timestamp": "occurred_at",
    });
    Case {
        name: "modes",
        keys,
        expands: false,
        has_fractions: true,
    }
}

pub(crate) fn list(place: impl Fn(&str) -> String, keep: impl Fn(&str) -> bool) -> String {
    let names = COLUMNS.iter().map(|column| column.name);
    let places: Vec<String> = names.filter(|name| keep(name)).map(place).collect();
    places.join(",")
}

/// One worker for all, and one configuration at a time: connectors that come and go make it pause the others.
pub(crate) static WORKER: tokio::sync::Mutex<Option<Worker>> = tokio::sync::Mutex::const_new(None);

async fn compared(case: Case) -> Result<()> {
    let seed = Random::run_seed();
    let mut worker = WORKER.lock().await;
    let fixture = prepared(&case).await?;
    let worker = started(&mut worker, &fixture)?;
    run(worker, &fixture, &case, seed)
        .await
        .with_context(|| format!("E2E_SEED={seed}"))
}

/// The worker, started by whoever comes first.
pub(crate) fn started<'a>(worker: &'a mut Option<Worker>, fixture: &Fixture) -> Result<&'a Worker> {
    if worker.is_none() {
        let bootstrap = fixture.servers.kafka.bootstrap();
        *worker = Some(Worker::start(&bootstrap, "compare")?);
    }
    worker.as_ref().context("a worker")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_records_are_the_same() -> Result<()> {
    compared(plain()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_every_type_are_the_same() -> Result<()> {
    compared(headers()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelopes_with_schemas_are_the_same() -> Result<()> {
    compared(schemas()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expanded_json_is_the_same() -> Result<()> {
    compared(expansion()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expanded_json_with_schemas_is_the_same() -> Result<()> {
    compared(expansion_with_schemas()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_bytes_are_the_same() -> Result<()> {
    compared(bytes()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_in_their_other_modes_are_the_same() -> Result<()> {
    compared(modes()).await
}

/// A table with its publication, a slot for each side, and the topics of both.
async fn prepared(case: &Case) -> Result<Fixture> {
    let fixture = Fixture::bare(&format!("compare_{}", case.name)).await?;
    fixture.sql(&rows::definition()).await?;
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE public.outbox",
            fixture.publication
        ))
        .await?;
    create_slots(&fixture).await?;
    create_topics(&fixture, TOPICS)?;
    Ok(fixture)
}

/// Makes the slots of both sides; the publication is there.
pub(crate) async fn create_slots(fixture: &Fixture) -> Result<()> {
    fixture.create_slot().await?;
    let theirs = slot_of(fixture, "theirs");
    let statement = format!("SELECT pg_create_logical_replication_slot('{theirs}', 'pgoutput')");
    fixture.sql(&statement).await
}

/// Makes the topics of both sides.
pub(crate) fn create_topics(fixture: &Fixture, names: &[&str]) -> Result<()> {
    for topic in SIDES.iter().flat_map(|side| topics(fixture, side, names)) {
        let partitions = if topic.ends_with("keyless") { 1 } else { 3 };
        let kafka = &fixture.servers.kafka;
        tokio::task::block_in_place(|| kafka.create_topic(&topic, partitions, KEPT))?;
    }
    Ok(())
}

/// Their times go back to 1970: Kafka would delete them as too old within a minute.
const KEPT: &[(&str, &str)] = &[("retention.ms", "-1")];
pub(crate) const SIDES: [&str; 2] = ["theirs", "ours"];

async fn run(worker: &Worker, fixture: &Fixture, case: &Case, seed: u64) -> Result<()> {
    let name = fixture.database.as_str();
    worker.put(name, &config(fixture, case, "theirs")).await?;
    let ours = config(fixture, case, "ours").to_string();
    let brokers = fixture.servers.kafka.bootstrap();
    let connector = Connector::start_file("connector.json", &ours, &["--brokers", &brokers], &[])?;
    connector.ready().await?;
    let client = fixture.client().await?;
    for statements in rows::transactions(&mut Random::new(seed), ROWS, case.expands) {
        client
            .batch_execute(&statements)
            .await
            .context(statements)?;
    }
    let failing = failing(&client, case).await?;
    let mut read = Vec::new();
    for (side, count) in SIDES.into_iter().zip([ROWS - failing.len(), ROWS]) {
        let both_run = || both_run(worker, name, &connector);
        let lines = lines(fixture, side, TOPICS, count, both_run).await;
        read.push(lines.context(side)?);
    }
    let verbatim = connector
        .metric("posthaste_payloads_verbatim_total")
        .await?;
    ensure!(
        verbatim.to_string() == failing.len().to_string(),
        "{verbatim} payloads sent as they are"
    );
    worker.call("DELETE", &format!("/connectors/{name}"), "")?;
    connector.stop().await?;
    let [theirs, ours] = read.as_slice() else {
        anyhow::bail!("two sides");
    };
    let mut rules = vec![Rule::RunId];
    if case.expands {
        rules.push(Rule::TaskFails(failing));
    }
    if case.has_fractions && has_old_digits()? {
        rules.push(Rule::OldJavaDigits);
    }
    compare(theirs, ours, &rules)?;
    tells_each_planted_byte(theirs, &rules)
}

/// Nobody waits for records of one who is gone.
pub(crate) fn both_run(worker: &Worker, name: &str, connector: &Connector) -> Result<()> {
    let status = worker.status(name)?.to_string();
    ensure!(!status.contains("\"FAILED\""), "Debezium: {status}");
    let ended = connector.try_exit_code()?.is_some();
    ensure!(!ended, "posthaste ended: {}", connector.log());
    Ok(())
}

/// Ids of the events on which Debezium's task fails, with the ends of our values.
async fn failing(client: &tokio_postgres::Client, case: &Case) -> Result<HashMap<String, String>> {
    if !case.expands {
        return Ok(HashMap::new());
    }
    let statement = "SELECT id::text, payload::text FROM public.outbox WHERE type = $1";
    let rows = client.query(statement, &[&FAILS]).await?;
    let mut failing = HashMap::new();
    for row in &rows {
        let (id, payload): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let text = match case.name {
            "expansion" => payload,
            // Beside a schema it is a string.
            _ => format!(
                r#"{{"payload":{},"kind":"{FAILS}"}}}}"#,
                Value::from(payload)
            ),
        };
        failing.insert(id, kafka_lines::escaped(&text));
    }
    Ok(failing)
}

/// Whether this machine's Java writes more digits than a number needs.
pub(crate) fn has_old_digits() -> Result<bool> {
    // The answer goes to standard error: `openjdk version "17.0.15" …`.
    let output = std::process::Command::new("java")
        .arg("-version")
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let major = text
        .split('"')
        .nth(1)
        .and_then(|version| version.split('.').next());
    let major: u32 = major
        .unwrap_or_default()
        .parse()
        .context("Java's version")?;
    Ok(major < 19)
}

fn topics(fixture: &Fixture, side: &str, names: &[&str]) -> Vec<String> {
    let names = names.iter();
    names
        .map(|topic| format!("{side}.{}.{topic}", fixture.database))
        .collect()
}

pub(crate) fn slot_of(fixture: &Fixture, side: &str) -> String {
    match side {
        "theirs" => format!("{}_theirs", fixture.slot),
        _ => fixture.slot.clone(),
    }
}

fn config(fixture: &Fixture, case: &Case, side: &str) -> Value {
    let mut config = json!({
        "name": fixture.database,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": fixture.servers.postgres.port().to_string(),
        "database.user": "postgres",
        "database.password": PASSWORD,
        "database.dbname": fixture.database,
        "topic.prefix": "srv",
        "slot.name": slot_of(fixture, side),
        "publication.name": fixture.publication,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public\\.outbox",
        "snapshot.mode": "no_data",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": format!("{side}.{}.$0", fixture.database),
    });
    if let (Some(config), Some(keys)) = (config.as_object_mut(), case.keys.as_object()) {
        config.extend(keys.clone());
    }
    config
}

/// Waits for this many records of a side, and reads them with Kafka's own consumer, without the topics' prefix.
pub(crate) async fn lines(
    fixture: &Fixture,
    side: &str,
    topic_names: &[&str],
    count: usize,
    both_run: impl Fn() -> Result<()>,
) -> Result<Vec<Line>> {
    let kafka = &fixture.servers.kafka;
    let topics = topics(fixture, side, topic_names);
    let mut consumer = Consumer::new(&kafka.bootstrap(), &topics)?;
    let started = Instant::now();
    while let Err(error) = consumer.wait_for_records(count, LOOK).await {
        both_run()?;
        ensure!(started.elapsed() < ARRIVAL, "{error}");
    }
    let records = consumer.read_to_end().await?;
    let mut lines = Vec::new();
    for topic in &topics {
        let count = records
            .iter()
            .filter(|record| record.topic == *topic)
            .count();
        lines.extend(kafka_lines::read(kafka, topic, count)?);
    }
    for line in &mut lines {
        line.topic = line.topic.trim_start_matches(side).to_owned();
    }
    Ok(lines)
}
