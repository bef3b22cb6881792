//! Types of keys and payloads: PostgreSQL's own text form, bytea as its bytes, NULL apart from empty.

use anyhow::{Context, Result, ensure};
use e2e::config::Config;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};

/// A bare fixture whose outbox has these column definitions beside `id` and `aggregatetype`.
async fn outbox(name: &str, columns: &str) -> Result<(Fixture, Config)> {
    let fixture = Fixture::bare(name).await?;
    fixture
        .sql(&format!(
            "CREATE TABLE outbox (
                 id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregatetype text DEFAULT 'order', {columns});
             CREATE PUBLICATION {} FOR TABLE outbox WITH (publish = 'insert')",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let config = fixture.config();
    Ok((fixture, config))
}

/// Records in the order of their ids.
fn by_id(records: &[Record]) -> Vec<&Record> {
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_by_key(|record| record.id().parse::<u32>().unwrap_or(u32::MAX));
    records
}

/// The key types of the case, a value of each as SQL, and the text that must become the key.
const KEYS: &[(&str, &str, &str)] = &[
    (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("numeric", "1e-20", "0.00000000000000000001"),
    ("numeric", "'NaN'", "NaN"),
    ("label", "'l'", "l"),
    ("mood", "'it''s,odd'", "it's,odd"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("pair", "'(\"a,b\",3)'", "(\"a,b\",3)"),
    ("text[]", "'{\"a,b\",NULL}'", "{\"a,b\",NULL}"),
    ("char(5)", "'x'", "x    "),
    ("boolean", "true", "t"),
    ("inet", "'::1'", "::1"),
    ("interval", "'26 hours'", "26:00:00"),
    (
        "timestamptz",
        "'2026-01-02 03:04:05.678+02'",
        "2026-01-02 01:04:05.678+00",
    ),
    (
        "double precision",
        "0.1::float8 + 0.2",
        "0.30000000000000004",
    ),
    ("bytea", "'\\x00ff'", "\\x00ff"),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("json", "'{ \"a\":1}'", "{ \"a\":1}"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b12_a_key_of_any_type_is_postgresqls_own_text() -> Result<()> {
    let fixture = Fixture::bare("b12").await?;
    fixture
        .sql(
            "CREATE DOMAIN label AS text; CREATE TYPE mood AS ENUM ('it''s,odd');
             CREATE TYPE pair AS (a text, b int)",
        )
        .await?;
    let citext = fixture.sql("CREATE EXTENSION citext").await.is_ok();
    let mut keys = KEYS.to_vec();
    if citext {
        keys.push(("citext", "'Ab'", "Ab"));
    }
    let names: Vec<String> = (0..keys.len()).map(|n| format!("key_{n}")).collect();
    for (name, (column, _, _)) in names.iter().zip(&keys) {
        fixture
            .sql(&format!(
                "CREATE TABLE {name} (
                     id int GENERATED ALWAYS AS IDENTITY, aggregatetype text, aggregateid {column}, payload text)"
            ))
            .await?;
    }
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert')",
            fixture.publication,
            names.join(", ")
        ))
        .await?;
    fixture.create_slot().await?;
    let types: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut consumer = fixture.consumer(&types)?;
    let config = fixture
        .config()
        .with("source.tables", Fixture::list(&types))
        // The key's type also as a header, which takes the same form.
        .with(
            "router.headers",
            r#"[{ column = "aggregateid", name = "same" }]"#,
        );
    let connector = fixture.start_with(&config).await?;
    for (name, (_, value, _)) in names.iter().zip(&keys) {
        fixture
            .sql(&format!(
                "INSERT INTO {name} (aggregatetype, aggregateid, payload) VALUES ('{name}', {value}, 'x')"
            ))
            .await?;
    }
    let records = consumer.wait_for_records(keys.len(), SOON).await?;
    for (name, (column, _, expected)) in names.iter().zip(&keys) {
        let topic = fixture.topic(name);
        let record = records
            .iter()
            .find(|record| record.topic == topic)
            .with_context(|| format!("no record for a key of type {column}"))?;
        ensure!(
            record.key_text() == *expected && record.header("same") == Some(expected),
            "{column}: key {:?}, header {:?}, expected {expected:?}",
            record.key_text(),
            record.header("same")
        );
        ensure!(record.id() == "1", "id {:?}", record.id());
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_a_bytea_payload_arrives_as_its_bytes_under_either_output_format() -> Result<()> {
    let (fixture, config) = outbox("b13", "aggregateid text, payload bytea").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let all: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = {
        let mut random = e2e::random::Random::new(13);
        (0..2_000_000)
            .map(|_| random.number().to_le_bytes()[0])
            .collect()
    };
    let payloads: [&[u8]; 4] = [b"\x00\xff\x5c\x27", b"", &all, &large];
    // 2 MB is more than the client's and the broker's defaults take.
    let topic = fixture.topic("order");
    fixture
        .servers
        .kafka
        .alter_topic_config(&topic, "max.message.bytes", Some("4000000"))?;
    let config = config.with_kafka("message.max.bytes", "4000000");
    let client = fixture.client().await?;
    for format in ["hex", "escape"] {
        fixture
            .sql(&format!(
                "ALTER ROLE {} SET bytea_output = '{format}'",
                fixture.role
            ))
            .await?;
        let connector = fixture.start_with(&config).await?;
        for payload in payloads {
            client
                .execute(
                    "INSERT INTO outbox (aggregateid, payload) VALUES ('k', $1)",
                    &[&payload],
                )
                .await?;
        }
        let count = if format == "hex" { 4 } else { 8 };
        consumer.wait_for_records(count, SOON).await?;
        connector.stop().await?;
    }
    for (record, payload) in by_id(consumer.records())
        .iter()
        .zip(payloads.iter().cycle())
    {
        ensure!(
            record.payload.as_deref() == Some(*payload),
            "event {}: {} bytes, expected {}",
            record.id(),
            record.payload.as_ref().map_or(0, Vec::len),
            payload.len()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_a_domain_over_bytea_is_bytea() -> Result<()> {
    let fixture = Fixture::bare("b13_domain").await?;
    fixture
        .sql(&format!(
            "CREATE DOMAIN inner_blob AS bytea; CREATE DOMAIN blob AS inner_blob;
             CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload blob);
             CREATE PUBLICATION {} FOR TABLE outbox",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    fixture
        .sql("INSERT INTO outbox VALUES (1, 'order', 'k', '\\x00ff')")
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    ensure!(
        records
            .iter()
            .all(|record| record.payload.as_deref() == Some(&[0, 255][..]))
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b14_json_is_not_rewritten() -> Result<()> {
    let (fixture, config) = outbox("b14", "aggregateid text, payload json").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config).await?;
    let deep = format!("{}1{}", "[".repeat(2000), "]".repeat(2000));
    let texts = [
        r#"{"b" : 1,  "a":"\u0000", "b":2, "n":1E400, "big":12345678901234567890.10}"#,
        "[]",
        r#"{"tags":[],"x":[{},[1,"a",null]]}"#,
        r#""text""#,
        " 1 ",
        &deep,
        r#""\ud800""#,
        "\"😀 \u{10FFFF} é\"",
        "{\n\t\"a\" :\r\n 1 }",
    ];
    let client = fixture.client().await?;
    for text in texts {
        client
            .execute(
                "INSERT INTO outbox (aggregateid, payload) VALUES ('k', $1::text::json)",
                &[&text],
            )
            .await?;
    }
    let records = consumer.wait_for_records(texts.len(), SOON).await?;
    for (record, text) in by_id(records).iter().zip(texts) {
        ensure!(
            record.payload_text() == text,
            "event {}: {} became {}",
            record.id(),
            text.chars().take(80).collect::<String>(),
            record.payload_text().chars().take(80).collect::<String>()
        );
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b14_jsonb_is_the_stored_form() -> Result<()> {
    let (fixture, config) = outbox("b14_b", "aggregateid text, payload jsonb").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    for text in [
        r#"{"b":1,"a":2.50,"a":3,"n":1e40}"#,
        "[1.0, 1.00]",
        r#"{"é": "\u00e9"}"#,
    ] {
        client
            .execute(
                "INSERT INTO outbox (aggregateid, payload) VALUES ('k', $1::text::jsonb)",
                &[&text],
            )
            .await?;
    }
    let rows = client
        .query("SELECT payload::text FROM outbox ORDER BY id", &[])
        .await?;
    let records = consumer.wait_for_records(rows.len(), SOON).await?;
    for (record, row) in by_id(records).iter().zip(&rows) {
        let stored: &str = row.try_get(0)?;
        ensure!(
            record.payload_text() == stored,
            "{} is not {stored}",
            record.payload_text()
        );
    }
    connector.stop().await
}

/// -1 for null, as a console consumer prints it.
fn length(bytes: Option<&Vec<u8>>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(-2))
}

async fn null_and_empty(name: &str, column: &str, payloads: &[(Option<&str>, i64)]) -> Result<()> {
    let (fixture, config) = outbox(name, &format!("aggregateid text, payload {column}")).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let keys = [(None, -1), (Some(""), 0), (Some("null"), 4)];
    let statement =
        format!("INSERT INTO outbox (aggregateid, payload) VALUES ($1, $2::text::{column})");
    let mut expected = Vec::new();
    for (key, key_length) in keys {
        for (payload, payload_length) in payloads {
            client.execute(&statement, &[&key, payload]).await?;
            expected.push((key_length, *payload_length));
        }
    }
    let records = consumer.wait_for_records(expected.len(), SOON).await?;
    let found: Vec<_> = by_id(records)
        .iter()
        .map(|record| (length(record.key.as_ref()), length(record.payload.as_ref())))
        .collect();
    ensure!(
        found == expected,
        "(key, payload) lengths: {found:?}, expected {expected:?}"
    );
    ensure!(
        connector.lines_with(&["\"WARN\""]).is_empty(),
        "NULL is no reason for a warning"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b15_null_empty_and_the_word_null_stay_apart_in_text() -> Result<()> {
    let payloads = [(None, -1), (Some(""), 0), (Some("null"), 4), (Some("x"), 1)];
    null_and_empty("b15_text", "text", &payloads).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b15_sql_null_and_json_null_stay_apart_in_jsonb() -> Result<()> {
    let payloads = [(None, -1), (Some("null"), 4), (Some("\"\""), 2)];
    null_and_empty("b15_jsonb", "jsonb", &payloads).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b15_a_null_aggregate_type_is_held_with_column_and_event_id() -> Result<()> {
    let (fixture, config) = outbox("b15_type", "aggregateid text, payload text").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    fixture
        .sql("INSERT INTO outbox (aggregateid) VALUES ('before')")
        .await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    fixture
        .sql("INSERT INTO outbox (aggregatetype, aggregateid) VALUES (NULL, 'held')")
        .await?;
    let behind = slot.wal_position().await?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    let lines = connector.messages_with(&["PH0502: ", "aggregatetype", "event 2 "]);
    ensure!(lines.len() == 1, "{}", connector.log());
    ensure!(slot.confirmed().await? < behind);
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_above_the_in_flight_budget_is_admitted_alone() -> Result<()> {
    let (fixture, config) = outbox("budget", "aggregateid text, payload bytea").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = config.with_text("kafka.in_flight_bytes_max", "64KiB");
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregateid, payload)
             SELECT 'k', convert_to(repeat('x', CASE WHEN n = 5 THEN 700000 ELSE 10 END), 'UTF8')
             FROM generate_series(1, 10) n",
        )
        .await?;
    let records = consumer.wait_for_records(10, SOON).await?;
    let ids: Vec<&str> = records.iter().map(Record::id).collect();
    ensure!(
        ids == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
        "{ids:?}"
    );
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_above_the_frame_limit_is_held_and_never_buffered() -> Result<()> {
    let (fixture, config) = outbox("frame", "aggregateid text, payload text").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = config.with_text("source.frame_bytes_max", "64KiB");
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    fixture
        .sql("INSERT INTO outbox (aggregateid, payload) VALUES ('k', 'small')")
        .await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    fixture
        .sql("INSERT INTO outbox (aggregateid, payload) VALUES ('k', repeat('x', 100000000))")
        .await?;
    let behind = slot.wal_position().await?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    let lines = connector.messages_with(&["PH0402: ", "public.outbox", "1000000"]);
    ensure!(lines.len() == 1, "{}", connector.log());
    ensure!(slot.confirmed().await? < behind);
    ensure!(consumer.read_to_end().await?.len() == 1);
    Ok(())
}
