//! What arrives: committed rows, each once, in order per key, byte for byte.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::{Repeats, check};
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::writer::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_rows_of_interleaved_transactions_arrive_once_and_in_order() -> Result<()> {
    let fixture = Fixture::new("many").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let load = Load::new(10_000);
    let seed = load.seed;
    let ledger = load.run(&fixture).await?;
    ensure!(ledger.len() == 10_000, "{} rows were written", ledger.len());
    let summary = all_arrive(&fixture, &mut consumer, &ledger, Repeats::Forbidden)
        .await
        .map_err(|error| error.context(format!("seed {seed}")))?;
    ensure!(summary.events == 10_000 && summary.repeats == 0);
    for record in consumer.records() {
        let version = ledger.get(record.id()).map(|event| event.version);
        let payload: serde_json::Value = serde_json::from_str(record.payload_text())?;
        ensure!(
            payload.get("version").and_then(serde_json::Value::as_i64) == version,
            "event {} carries another event's payload",
            record.id()
        );
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_from_before_the_start_arrives() -> Result<()> {
    let fixture = Fixture::new("backlog").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let ledger = Load::new(1000).run(&fixture).await?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(ledger.len(), SOON).await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Forbidden)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_and_a_rollback_to_a_savepoint_produce_nothing() -> Result<()> {
    let fixture = Fixture::new("rollback").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let mut client = fixture.client().await?;
    let rolled_back = client.transaction().await?;
    insert(&rolled_back, "1").await?;
    rolled_back.rollback().await?;
    let mut committed = client.transaction().await?;
    insert(&committed, "2").await?;
    let savepoint = committed.savepoint("here").await?;
    insert(&savepoint, "3").await?;
    savepoint.rollback().await?;
    let savepoint = committed.savepoint("there").await?;
    insert(&savepoint, "4").await?;
    savepoint.commit().await?;
    insert(&committed, "5").await?;
    committed.commit().await?;
    consumer.wait_for_records(3, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let mut keys = keys(consumer.read_to_end().await?);
    keys.sort_unstable();
    ensure!(keys == ["2", "4", "5"], "arrived: {keys:?}");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_deleted_in_its_own_transaction_still_yields_its_record() -> Result<()> {
    let fixture = Fixture::new("deleted").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let mut client = fixture.client().await?;
    let transaction = client.transaction().await?;
    insert(&transaction, "1").await?;
    transaction.execute("DELETE FROM outbox", &[]).await?;
    transaction.commit().await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(keys(records) == ["1"]);
    ensure!(records.iter().all(|record| record.payload.is_some()));
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_deletes_truncates_and_other_tables_only_move_the_position() -> Result<()> {
    let fixture = Fixture::new("ignored").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    fixture
        .sql(&format!(
            "CREATE TABLE other (id int PRIMARY KEY, text text);
             ALTER PUBLICATION {0} ADD TABLE other;
             ALTER PUBLICATION {0} SET (publish = 'insert, update, delete, truncate')",
            fixture.publication
        ))
        .await?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, SOON).await?;
    let slot = fixture.watch_slot().await?;
    for statement in [
        "UPDATE outbox SET payload = '{\"changed\": true}'",
        "UPDATE outbox SET id = gen_random_uuid()",
        "DELETE FROM outbox WHERE aggregateid = '1'",
        "TRUNCATE outbox",
        "INSERT INTO other SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n",
        "UPDATE other SET text = 'y'",
        "TRUNCATE other, outbox",
    ] {
        client.execute(statement, &[]).await?;
        slot.catches_up(SOON).await?;
    }
    fixture.insert(&client, 3).await?;
    consumer.wait_for_records(3, SOON).await?;
    slot.catches_up(SOON).await?;
    let mut keys = keys(consumer.read_to_end().await?);
    keys.sort_unstable();
    ensure!(keys == ["1", "2", "3"], "arrived: {keys:?}");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_headers_and_time_are_those_of_the_row_and_its_transaction() -> Result<()> {
    let fixture = Fixture::new("headers").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let headers = r#"["type", { column = "aggregate_version", name = "version" }, { column = "absent", optional = true }]"#;
    let connector = fixture
        .start_with(&fixture.config().with("router.headers", headers))
        .await?;
    let client = fixture.client().await?;
    let before_ms = now_ms();
    client
        .execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, aggregate_version)
             VALUES ('order', 'Kä é/1', 'created', '{\"a\": 1.50}', 42), ('order', 'Kä é/1', NULL, NULL, NULL)",
            &[],
        )
        .await?;
    let ids: Vec<String> = client
        .query("SELECT id::text FROM outbox ORDER BY type NULLS LAST", &[])
        .await?
        .iter()
        .map(|row| row.get(0))
        .collect();
    let records = consumer.wait_for_records(2, SOON).await?;
    let after_ms = now_ms();
    let [full, empty] = records else {
        anyhow::bail!("{} records", records.len())
    };
    ensure!(full.key_text() == "Kä é/1" && full.payload_text() == r#"{"a": 1.50}"#);
    let expected = [
        ("id".to_owned(), Some(ids[0].clone().into_bytes())),
        ("type".to_owned(), Some(b"created".to_vec())),
        ("version".to_owned(), Some(b"42".to_vec())),
    ];
    ensure!(full.headers == expected, "headers: {:?}", full.headers);
    let expected = [
        ("id".to_owned(), Some(ids[1].clone().into_bytes())),
        ("type".to_owned(), None),
        ("version".to_owned(), None),
    ];
    ensure!(empty.headers == expected, "headers: {:?}", empty.headers);
    ensure!(
        empty.payload.is_none(),
        "SQL NULL is a null value, not {:?}",
        empty.payload
    );
    for record in [full, empty] {
        let time = record.timestamp_ms.unwrap_or_default();
        ensure!(
            (before_ms..=after_ms).contains(&time),
            "the commit was between {before_ms} and {after_ms}, not {time}"
        );
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_outbox_tables_and_types_go_to_their_topics() -> Result<()> {
    let fixture = Fixture::new("tables").await?;
    let mut consumer = fixture.consumer(&["order", "invoice"])?;
    fixture
        .sql(&format!(
            "CREATE TABLE second (LIKE outbox INCLUDING ALL);
             ALTER PUBLICATION {} ADD TABLE second",
            fixture.publication
        ))
        .await?;
    let tables = Fixture::list(&["public.outbox", "second"]);
    let connector = fixture
        .start_with(&fixture.config().with("source.tables", tables))
        .await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid) VALUES ('order', '1'), ('invoice', '2');
             INSERT INTO second (aggregatetype, aggregateid) VALUES ('invoice', '3')",
        )
        .await?;
    let records = consumer.wait_for_records(3, SOON).await?;
    let mut places: Vec<(&str, &str)> = records
        .iter()
        .map(|record| (record.key_text(), record.topic.as_str()))
        .collect();
    places.sort_unstable();
    let (order, invoice) = (fixture.topic("order"), fixture.topic("invoice"));
    ensure!(places == [("1", &*order), ("2", &*invoice), ("3", &*invoice)]);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_go_to_the_partition_that_java_clients_choose() -> Result<()> {
    let fixture = Fixture::new("murmur").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid)
             SELECT 'order', n FROM generate_series(1, 20) n",
        )
        .await?;
    for record in consumer.wait_for_records(20, SOON).await? {
        let key = record.key.as_deref().unwrap_or_default();
        ensure!(
            record.partition == murmur2_partition(key, 3),
            "key {} lies in partition {}",
            record.key_text(),
            record.partition
        );
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_migrations_are_enough_for_a_role_with_the_least_rights() -> Result<()> {
    let fixture = Fixture::bare("migrations").await?;
    let postgres = &fixture.servers.postgres;
    // Idempotent: the second round changes nothing and fails nowhere.
    for _ in 0..2 {
        tokio::task::block_in_place(|| xtask::migrations::apply(postgres, &fixture.database))?;
    }
    fixture
        .sql(&format!("ALTER ROLE posthaste PASSWORD '{PASSWORD}'"))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let url = postgres.url("posthaste", Some(PASSWORD), &fixture.database);
    // The publication is there, so only the slot is made, which needs no more than REPLICATION.
    let config = fixture
        .config()
        .with_text("source.url", &url)
        .with_text("source.publication", "outbox")
        .with("source.create", "true")
        .with("router.headers", r#"["type", "schema_version"]"#)
        .with("router.timestamp", r#"{ column = "created_at" }"#);
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, schema_version, created_at)
             VALUES ('order', '1', 'created', '{}', 3, '2026-02-03 04:05:06.789+00')",
        )
        .await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    ensure!(
        records.iter().all(|record| {
            record.header("type") == Some("created")
                && record.header("schema_version") == Some("3")
                && record.timestamp_ms == Some(1_770_091_506_789)
        }),
        "{records:?}"
    );
    connector.stop().await
}

async fn insert(client: &impl tokio_postgres::GenericClient, key: &str) -> Result<()> {
    client
        .execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', $1, '{}')",
            &[&key],
        )
        .await?;
    Ok(())
}

fn keys(records: &[e2e::consumer::Record]) -> Vec<&str> {
    records
        .iter()
        .map(e2e::consumer::Record::key_text)
        .collect()
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}

/// Kafka's own choice for a key, written after the description of murmur2 with seed 0x9747b28c.
fn murmur2_partition(key: &[u8], partitions: i32) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let size = u32::try_from(key.len()).unwrap_or(0);
    let mut hash = 0x9747_b28c_u32 ^ size;
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = chunk
            .iter()
            .rev()
            .fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = rest
            .iter()
            .rev()
            .fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        hash = (hash ^ word).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    let positive = i32::try_from(hash & 0x7fff_ffff).unwrap_or(0);
    positive % partitions
}
