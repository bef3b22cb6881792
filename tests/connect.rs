//! A Debezium connector's own file runs here: configurations of the contract, with names and passwords of the test.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use serde_json::{Value, json};
use xtask::scratch::Scratch;

/// Rounds of a stop and a start with a message as the last thing on the stream.
const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rest_body_gives_the_records_of_debezium() -> Result<()> {
    let fixture = Fixture::new("connect_a").await?;
    let secrets = Scratch::new("secrets")?;
    let file = secrets.path().join("orders.properties");
    std::fs::write(&file, format!("db.password={PASSWORD}\n"))?;
    let mut config = of_test(&fixture, "a_rest_body", "orders")?;
    let keys = config.get_mut("config").context("a body of REST")?;
    set(
        keys,
        &[
            (
                "database.password",
                &format!("${{file:{}:db.password}}", file.display()),
            ),
            (
                "transforms.outbox.route.topic.replacement",
                &fixture.topic("${routedByValue}"),
            ),
        ],
    );
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = start(&fixture, &config, &[]).await?;
    let before = now_ms()?;
    let client = fixture.client().await?;
    let row = client
        .query_one(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('order', 'o-1', 'created', '{\"n\":  1}') RETURNING id::text",
            &[],
        )
        .await?;
    let id: String = row.try_get(0)?;
    // Dropped by the router, there and here.
    fixture
        .sql("UPDATE public.outbox SET type = 'x'; DELETE FROM public.outbox")
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    let record = records.first().context("a record")?;
    ensure!(record.key_text() == "o-1" && record.payload_text() == "{\"n\": 1}");
    check_headers(record, "orders", &[("id", &id), ("eventType", "created")])?;
    let timestamp = record.timestamp_ms.context("a timestamp")?;
    ensure!(
        (before..=now_ms()?).contains(&timestamp),
        "the time of reading, not {timestamp}"
    );
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    ensure!(!connector.log().contains(PASSWORD), "{}", connector.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_event_leaves_the_table_as_the_record_of_debezium() -> Result<()> {
    let fixture = Fixture::new("connect_park").await?;
    fixture.create_poison_tables().await?;
    let mut config = of_test(&fixture, "a_rest_body", "orders")?;
    let keys = config.get_mut("config").context("a body of REST")?;
    let replacement = fixture.topic("${routedByValue}");
    let set_keys = [
        ("database.password", PASSWORD),
        ("transforms.outbox.route.topic.replacement", &replacement),
    ];
    set(keys, &set_keys);
    let mut consumer = fixture.consumer(&["order"])?;
    let environment = [("POSTHASTE__POISON__ON_POISON", "park")];
    let connector = start(&fixture, &config, &environment).await?;
    let client = fixture.client().await?;
    client
        .batch_execute(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('or/der', 'o-1', 'created', '{\"n\":  1}'), ('order', 'o-2', 'created', '{}')",
        )
        .await?;
    consumer.wait_for_records(1, SOON).await?;
    // Plain SQL does what the commands do.
    e2e::wait::until_true("the event to be parked and queued", SOON, async || {
        let changed = client
            .execute(
                "UPDATE posthaste.parked SET state = 'queued',
                     column_values[array_position(column_names, 'aggregatetype')] = convert_to('order', 'UTF8')
                 WHERE state = 'held' AND code = 'PH0503'",
                &[],
            )
            .await?;
        Ok(changed == 1)
    })
    .await?;
    let records = consumer.wait_for_records(2, SOON).await?;
    let record = records.iter().find(|record| record.key_text() == "o-1");
    let record = record.context("the parked one")?;
    ensure!(record.payload_text() == "{\"n\": 1}", "{record:?}");
    let id = record.id().to_owned();
    check_headers(record, "orders", &[("id", &id), ("eventType", "created")])?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_a_bare_map_expands_json_and_leaves_the_heartbeat_out() -> Result<()> {
    let fixture = Fixture::bare("connect_b").await?;
    fixture
        .sql(
            "CREATE SCHEMA billing;
             CREATE TABLE billing.outbox_events (event_id uuid PRIMARY KEY, aggregate_type text, aggregate_id bigint,
                 event_payload jsonb, occurred_at timestamp(3), event_type text, tenant_id int, trace_id text DEFAULT 'none');
             CREATE TABLE billing.dbz_heartbeat (id int PRIMARY KEY, ts timestamptz);
             CREATE PUBLICATION dbz_publication FOR TABLE billing.outbox_events, billing.dbz_heartbeat",
        )
        .await?;
    fixture.create_slot().await?;
    let mut config = of_test(&fixture, "b_bare_map", "billing")?;
    set(
        &mut config,
        &[
            ("publication.name", "dbz_publication"),
            ("database.sslmode", "disable"),
            (
                "transforms.route.route.topic.replacement",
                &fixture.topic("${routedByValue}.v1"),
            ),
        ],
    );
    remove(&mut config, "database.sslrootcert");
    let environment = [
        ("BILLING_DB_HOST", "127.0.0.1"),
        ("BILLING_DB_USER", fixture.role.as_str()),
        ("BILLING_DB_PASSWORD", PASSWORD),
    ];
    let mut consumer = fixture.consumer(&["invoice.v1"])?;
    let connector = start(&fixture, &config, &environment).await?;
    let id = "6d1b3d33-3d6a-4a7c-9d6c-0d8a4a1d7f10";
    fixture
        .sql(&format!(
            "INSERT INTO billing.dbz_heartbeat VALUES (1, now());
             INSERT INTO billing.outbox_events VALUES ('{id}', 'invoice', 42, '{{\"total\": 1.50, \"note\": null, \"lines\": [1, 2]}}',
                 '2024-02-29 12:00:00.123', 'paid', 7, NULL)"
        ))
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    let record = records.first().context("a record")?;
    ensure!(record.key_text() == "42", "{record:?}");
    let payload = r#"{"note":null,"lines":[1,2],"total":1.5}"#;
    ensure!(
        same_members(record.payload_text(), payload)?,
        "{}",
        record.payload_text()
    );
    ensure!(record.timestamp_ms == Some(1_709_208_000_123), "{record:?}");
    let mapped = [
        ("id", id),
        ("eventType", "paid"),
        ("tenant_id", "7"),
        // The column's default stands in the place of NULL, as there.
        ("traceparent", "none"),
    ];
    check_headers(record, "billing", &mapped)?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e_a_message_that_ends_the_stream_is_sent_once_over_five_restarts() -> Result<()> {
    let fixture = Fixture::bare("connect_e").await?;
    let mut config = of_test(&fixture, "e_messages", "fleet")?;
    set(
        &mut config,
        &[
            ("database.password", PASSWORD),
            (
                "transforms.outbox.route.topic.replacement",
                &fixture.topic("${routedByValue}"),
            ),
        ],
    );
    fixture
        .sql(&format!("CREATE PUBLICATION {}", fixture.publication))
        .await?;
    fixture.create_slot().await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let connector = start(&fixture, &config, &[]).await?;
        for transactional in [true, false] {
            let id = format!("{round}-{transactional}");
            emit(&fixture, transactional, "other", &id).await?;
            // The last thing on the stream: nothing after it moves the position.
            emit(&fixture, transactional, "outbox", &id).await?;
            expected.push(id);
        }
        consumer.wait_for_records(expected.len(), SOON).await?;
        connector.stop().await?;
        // A start and a stop with nothing new.
        start(&fixture, &config, &[]).await?.stop().await?;
    }
    let records = consumer.read_to_end().await?;
    let mut ids: Vec<&str> = records.iter().map(Record::id).collect();
    ids.sort_unstable();
    expected.sort_unstable();
    ensure!(ids == expected, "arrived {ids:?}");
    for record in records {
        ensure!(record.key_text() == "o-1", "{record:?}");
        ensure!(record.payload_text() == "hello", "{record:?}");
        // Messages have no context headers, there and here.
        ensure!(record.headers.len() == 1, "{record:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_is_refused_with_both_ways_until_create_says_so() -> Result<()> {
    let fixture = Fixture::bare("connect_first").await?;
    let mut config = of_test(&fixture, "e_messages", "fleet")?;
    set(&mut config, &[("database.password", PASSWORD)]);
    fixture
        .sql(&format!(
            "GRANT CREATE ON DATABASE {} TO {}",
            fixture.database, fixture.role
        ))
        .await?;
    let brokers = fixture.servers.kafka.bootstrap();
    let arguments = ["--brokers", &brokers, "--fail-fast"];
    let refused = Connector::start_file("connector.json", &config.to_string(), &arguments, &[])?;
    let code = refused.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}: {}", refused.log());
    let lines = refused.messages_with(&["PH0303: ", "takeover", "--create"]);
    ensure!(lines.len() == 1, "{}", refused.log());
    let arguments = ["--brokers", &brokers, "--create"];
    let connector = Connector::start_file("connector.json", &config.to_string(), &arguments, &[])?;
    connector.ready().await?;
    connector.stop().await
}

async fn emit(fixture: &Fixture, transactional: bool, prefix: &str, id: &str) -> Result<()> {
    let content =
        json!({ "id": id, "aggregatetype": "order", "aggregateid": "o-1", "payload": "hello" });
    fixture
        .client()
        .await?
        .execute(
            "SELECT pg_logical_emit_message($1, $2, $3::text)",
            &[&transactional, &prefix, &content.to_string()],
        )
        .await?;
    Ok(())
}

/// A configuration of the contract, with this test's server, names and role.
pub(crate) fn of_test(fixture: &Fixture, case: &str, prefix: &str) -> Result<Value> {
    let path = format!(
        "{}/../crates/debezium/tests/cases/{case}/connector.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let mut config: Value = serde_json::from_str(&text)?;
    let keys = match config.get_mut("config") {
        Some(keys) => keys,
        None => &mut config,
    };
    let port = fixture.servers.postgres.port().to_string();
    let by_variable = keys
        .get("database.user")
        .and_then(Value::as_str)
        .is_some_and(|user| user.starts_with("${"));
    if !by_variable {
        set(
            keys,
            &[
                ("database.hostname", "127.0.0.1"),
                ("database.user", &fixture.role),
            ],
        );
    }
    set(
        keys,
        &[
            ("database.port", &port),
            ("database.dbname", &fixture.database),
            ("topic.prefix", prefix),
            ("slot.name", &fixture.slot),
            ("publication.name", &fixture.publication),
        ],
    );
    Ok(config)
}

pub(crate) fn set(keys: &mut Value, values: &[(&str, &str)]) {
    if let Some(keys) = keys.as_object_mut() {
        for (key, value) in values {
            keys.insert((*key).to_owned(), Value::from(*value));
        }
    }
}

pub(crate) fn remove(keys: &mut Value, key: &str) {
    if let Some(keys) = keys.as_object_mut() {
        keys.remove(key);
    }
}

pub(crate) async fn start(
    fixture: &Fixture,
    config: &Value,
    environment: &[(&str, &str)],
) -> Result<Connector> {
    let brokers = fixture.servers.kafka.bootstrap();
    let arguments = ["--brokers", &brokers, "--log-format", "json"];
    let connector = Connector::start_file(
        "connector.json",
        &config.to_string(),
        &arguments,
        environment,
    )?;
    connector.ready().await?;
    Ok(connector)
}

/// The headers in their order: those of the context, whose run is anybody's, and then the mapped ones.
pub(crate) fn check_headers(record: &Record, prefix: &str, mapped: &[(&str, &str)]) -> Result<()> {
    let context = "__debezium.context.";
    let names = ["connectorLogicalName", "taskId", "connectorName", "runId"];
    let run_id = record
        .header(&format!("{context}runId"))
        .unwrap_or_default();
    ensure!(run_id.len() == 36, "{record:?}");
    let values = [prefix, "0", "postgresql", run_id];
    let mut expected: Vec<(String, &str)> = names
        .iter()
        .zip(values)
        .map(|(name, value)| (format!("{context}{name}"), value))
        .collect();
    expected.extend(
        mapped
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value)),
    );
    let headers: Vec<(String, &str)> = record
        .headers
        .iter()
        .map(|(name, value)| {
            let value = value.as_deref().unwrap_or(b"<null>");
            (
                name.clone(),
                std::str::from_utf8(value).unwrap_or("<not UTF-8>"),
            )
        })
        .collect();
    ensure!(headers == expected, "{headers:?}");
    Ok(())
}

/// jsonb keeps no order of members; that of the text is the server's.
fn same_members(one: &str, other: &str) -> Result<bool> {
    let (one, other): (Value, Value) = (serde_json::from_str(one)?, serde_json::from_str(other)?);
    Ok(one == other)
}

pub(crate) fn now_ms() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}
