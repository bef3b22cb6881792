//! More configurations of the contract: raw bytes with created topics, envelopes with schemas, old names explained.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::connector::{Connector, binary};
use e2e::consumer::{Consumer, Record};
use e2e::fixture::{Fixture, PASSWORD, SOON};
use serde_json::Value;
use xtask::scratch::Scratch;

use crate::connect::{check_headers, of_test, set, start};

const ID: &str = "6d1b3d33-3d6a-4a7c-9d6c-0d8a4a1d7f10";
const RAW_BYTES: &str = "
    CREATE TABLE public.outboxevent (id uuid, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text,
        payload bytea, partition_no int, schema_id int)";

/// The contract's (c), of this test: its topics get the fixture's prefix, and one replica.
async fn raw_bytes(fixture: &Fixture, secrets: &Scratch) -> Result<Value> {
    std::fs::write(secrets.path().join("password"), PASSWORD)?;
    fixture.sql(RAW_BYTES).await?;
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE public.outboxevent",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let mut config = of_test(fixture, "c_raw_bytes", "payments")?;
    let password = format!("${{directory:{}:password}}", secrets.path().display());
    set(
        &mut config,
        &[
            ("database.password", &password),
            ("topic.creation.default.replication.factor", "1"),
            ("topic.creation.compacted.replication.factor", "1"),
            ("topic.creation.compacted.include", r".*\.account\..*"),
            (
                "transforms.outbox.route.topic.replacement",
                &fixture.topic("${domain}.${entity}"),
            ),
        ],
    );
    Ok(config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_raw_bytes_go_to_topics_created_as_the_groups_say() -> Result<()> {
    let fixture = Fixture::bare("connect_c").await?;
    let secrets = Scratch::new("secrets")?;
    let config = raw_bytes(&fixture, &secrets).await?;
    let kafka = &fixture.servers.kafka;
    let [account, order, early] =
        ["account.opened", "order.placed", "order.early"].map(|name| fixture.topic(name));
    tokio::task::block_in_place(|| kafka.create_topic(&early, 5, &[]))?;
    let connector = start(&fixture, &config, &[]).await?;
    // The pattern does not match the last one: its topic is the raw value.
    let unmatched = format!("Raw-{}", fixture.database);
    fixture
        .sql(&format!(
            "INSERT INTO public.outboxevent VALUES
               ('{ID}', 'account.opened', 'a-1', 't', '\\x00ff7f', 2, 7),
               ('{ID}', 'order.placed', 'o-1', 't', NULL, NULL, NULL),
               ('{ID}', 'order.early', 'order-1', 't', '\\x', NULL, 9),
               ('{ID}', '{unmatched}', 'o-1', 't', '\\x61', 0, 9)"
        ))
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    let topics = [
        account.clone(),
        order.clone(),
        early.clone(),
        unmatched.clone(),
    ];
    let mut consumer = Consumer::new(&kafka.bootstrap(), &topics)?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 4, "{records:?}");
    let of = |topic: &str| records.iter().find(|record| record.topic == topic);
    let opened = of(&account).context("account")?;
    ensure!(
        opened.payload.as_deref() == Some(&[0, 0xFF, 0x7F]),
        "{opened:?}"
    );
    ensure!(
        opened.key_text() == "a-1" && opened.partition == 2,
        "{opened:?}"
    );
    check_headers(opened, "payments", &[("id", ID), ("schema_id", "7")])?;
    let placed = of(&order).context("order")?;
    ensure!(placed.payload.is_none(), "a tombstone: {placed:?}");
    check_headers(placed, "payments", &[("id", ID), ("schema_id", "<null>")])?;
    let empty = of(&early).context("early")?;
    ensure!(
        empty.payload.as_deref() == Some(&[]),
        "no tombstone: {empty:?}"
    );
    ensure!(of(&unmatched).is_some_and(|record| record.payload_text() == "a"));
    let partitions = |topic: &str| {
        tokio::task::block_in_place(|| kafka.partitions(topic)).map(|partitions| partitions.len())
    };
    ensure!(partitions(&account)? == 24 && partitions(&order)? == 12);
    ensure!(partitions(&early)? == 5, "one that exists is left alone");
    ensure!(described(&fixture, &account)?.contains("cleanup.policy=compact"));
    ensure!(!described(&fixture, &order)?.contains("cleanup.policy"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_cannot_be_created_is_told_with_its_group() -> Result<()> {
    let fixture = Fixture::bare("connect_creation").await?;
    let secrets = Scratch::new("secrets")?;
    let mut config = raw_bytes(&fixture, &secrets).await?;
    // One broker, and so no two replicas.
    set(
        &mut config,
        &[("topic.creation.default.replication.factor", "2")],
    );
    let connector = start(&fixture, &config, &[]).await?;
    fixture
        .sql(&format!(
            "INSERT INTO public.outboxevent VALUES ('{ID}', 'order.placed', 'o-1', 't', '\\x61', NULL, 7)"
        ))
        .await?;
    let words = [
        "INVALID_REPLICATION_FACTOR",
        "group `default`",
        "replication factor 2",
    ];
    connector.prints(&words, SOON).await?;
    // Somebody creates it; nothing was lost meanwhile.
    let topic = fixture.topic("order.placed");
    tokio::task::block_in_place(|| fixture.servers.kafka.create_topic(&topic, 1, &[]))?;
    let mut consumer = Consumer::new(&fixture.servers.kafka.bootstrap(), &[topic])?;
    let records = consumer.wait_for_records(1, SOON).await?;
    ensure!(records.first().map(Record::payload_text) == Some("a"));
    connector.stop().await
}

fn described(fixture: &Fixture, topic: &str) -> Result<String> {
    let kafka = &fixture.servers.kafka;
    let class = "org.apache.kafka.tools.TopicCommand";
    let bootstrap = kafka.bootstrap();
    let arguments = [
        "--bootstrap-server",
        &bootstrap,
        "--describe",
        "--topic",
        topic,
    ];
    tokio::task::block_in_place(|| kafka.tool(class, &arguments))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d_avro_is_refused_and_an_envelope_with_schemas_is_exact() -> Result<()> {
    let fixture = Fixture::bare("connect_d").await?;
    let refused = Connector::start_file(
        "connector.json",
        &of_test(&fixture, "d_avro", "inventory")?.to_string(),
        &["--brokers", &fixture.servers.kafka.bootstrap()],
        &[],
    )?;
    ensure!(refused.exit_code(SOON).await? == 2, "{}", refused.log());
    let avro = "io.confluent.connect.avro.AvroConverter";
    ensure!(refused.log().contains(avro), "{}", refused.log());
    fixture
        .sql(&format!(
            "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
                 type text NOT NULL, payload jsonb, schema_version int NOT NULL, created_by text DEFAULT 'nobody');
             CREATE PUBLICATION {} FOR TABLE public.outbox",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let mut config = of_test(&fixture, "d_json", "inventory")?;
    let replacement = fixture.topic("${routedByValue}");
    set(
        &mut config,
        &[
            ("database.password", PASSWORD),
            ("transforms.outbox.route.topic.replacement", &replacement),
        ],
    );
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = start(&fixture, &config, &[]).await?;
    fixture
        .sql(&format!(
            "INSERT INTO public.outbox VALUES ('{ID}', 'order', '42', 'created', '{{\"é\": [1]}}', 3, NULL)"
        ))
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    let record = records.first().context("a record")?;
    let key = r#"{"schema":{"type":"string","optional":false},"payload":"42"}"#;
    ensure!(record.key_text() == key, "{}", record.key_text());
    let value = concat!(
        r#"{"schema":{"type":"struct","fields":["#,
        r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"},"#,
        r#"{"type":"string","optional":false,"field":"eventType"},"#,
        r#"{"type":"string","optional":true,"default":"nobody","field":"author"}],"#,
        r#""optional":false,"name":"inventory.public.outbox.order.Value","version":3},"#,
        r#""payload":{"payload":"{\"é\": [1]}","eventType":"created","author":"nobody"}}"#,
    );
    ensure!(record.payload_text() == value, "{}", record.payload_text());
    check_headers(record, "inventory", &[("id", ID), ("ce_type", "created")])?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_old_names_are_explained_line_by_line_and_the_new_ones_run() -> Result<()> {
    let fixture = Fixture::bare("connect_f").await?;
    let report = checked("f_old_names")?;
    let fixes = [
        ("database.server.name", "`topic.prefix=legacy`"),
        ("table.whitelist", "`table.include.list=public.outbox`"),
        ("plugin.name", "write pgoutput"),
        ("snapshot.mode", "write no_data"),
        ("heartbeat.topics.prefix", "`topic.heartbeat.prefix=__hb`"),
        ("slot.seek.to.known.offset.on.start", "remove it"),
        (
            "transforms.outbox.table.field.event.payload.id",
            "`transforms.outbox.table.field.event.key=aggregate_id`",
        ),
        (
            "transforms.outbox.debezium.expand.json.payload",
            "`transforms.outbox.table.expand.json.payload=true`",
        ),
    ];
    for (old, fix) in fixes {
        let start = format!("refused  {old} (");
        let lines: Vec<&str> = report
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        ensure!(
            matches!(lines.as_slice(), [line] if line.contains(fix)),
            "{old}: {report}"
        );
    }
    fixture
        .sql(&format!(
            "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregate_id int, payload json);
             CREATE PUBLICATION {} FOR TABLE public.outbox",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let mut text = std::fs::read_to_string(case("f_new_names"))?;
    let port = fixture.servers.postgres.port();
    // Properties: the last one of a name counts.
    text.push_str(&format!(
        "\ndatabase.hostname=127.0.0.1\ndatabase.port={port}\ndatabase.user={}\ndatabase.password={PASSWORD}\n\
         database.dbname={}\nslot.name={}\npublication.name={}\n\
         transforms.outbox.route.topic.replacement={}\n",
        fixture.role,
        fixture.database,
        fixture.slot,
        fixture.publication,
        fixture.topic("${routedByValue}"),
    ));
    let mut consumer = fixture.consumer(&["order"])?;
    let brokers = fixture.servers.kafka.bootstrap();
    let arguments = ["--brokers", &brokers];
    let connector = Connector::start_file("connector.properties", &text, &arguments, &[])?;
    connector.ready().await?;
    fixture
        .sql(&format!(
            "INSERT INTO public.outbox VALUES ('{ID}', 'order', 42, '{{\"a\":1,\"n\":null,\"s\":\"é\"}}')"
        ))
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    let record = records.first().context("a record")?;
    ensure!(record.key_text() == "42", "{record:?}");
    // What StringConverter makes of expanded JSON, there and here.
    ensure!(
        record.payload_text() == "Struct{a=1,s=é}",
        "{}",
        record.payload_text()
    );
    check_headers(record, "legacy", &[("id", ID)])?;
    connector.stop().await
}

fn case(name: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    format!("{root}/../crates/debezium/tests/cases/{name}/connector.properties")
}

/// What `posthaste debezium check` says; it has to say that `run` would not start.
fn checked(name: &str) -> Result<String> {
    let mut command = Command::new(binary()?);
    let output = command.args(["debezium", "check", &case(name)]).output()?;
    ensure!(output.status.code() == Some(2), "{}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
