//! Columns that come, go and change their names: each row is read by the layout it was written with.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::consumer::{Consumer, Record};
use e2e::fixture::{Fixture, SOON};
use e2e::slot::Position;

/// `type` and the later `traceparent` as optional headers.
fn config(fixture: &Fixture) -> Config {
    fixture.config().with(
        "router.headers",
        r#"[{ column = "type", optional = true }, { column = "traceparent", optional = true }]"#,
    )
}

const CHANGES: &str = "
    BEGIN;
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'created', '{\"n\": 1}');
    ALTER TABLE outbox ADD COLUMN traceparent text DEFAULT 'tp';
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload, traceparent)
        VALUES ('order', '2', 'created', '{\"n\": 2}', 'zz');
    COMMIT;
    ALTER TABLE outbox DROP COLUMN type;
    INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '3', '{\"n\": 3}');
    ALTER TABLE outbox RENAME COLUMN traceparent TO tp2;
    INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '4', '{\"n\": 4}');";

async fn four_right_records(consumer: &mut Consumer) -> Result<()> {
    consumer.wait_for_records(4, SOON).await?;
    let mut records: Vec<&Record> = consumer.read_to_end().await?.iter().collect();
    records.sort_by_key(|record| record.key_text());
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            (
                record.key_text(),
                record.payload_text(),
                record.header("type"),
                record.header("traceparent"),
            )
        })
        .collect();
    let expected = [
        ("1", "{\"n\": 1}", Some("created"), None),
        ("2", "{\"n\": 2}", Some("created"), Some("zz")),
        ("3", "{\"n\": 3}", None, Some("tp")),
        ("4", "{\"n\": 4}", None, None),
    ];
    ensure!(found == expected, "arrived: {found:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b08_columns_change_while_streaming() -> Result<()> {
    let fixture = Fixture::new("b08").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config(&fixture)).await?;
    let walsender = fixture.watch_slot().await?.walsender().await?;
    run_each(&fixture, CHANGES).await?;
    four_right_records(&mut consumer).await?;
    ensure!(fixture.watch_slot().await?.walsender().await? == walsender);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b08_columns_changed_while_stopped_are_replayed_in_one_go() -> Result<()> {
    let fixture = Fixture::new("b08_replay").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config(&fixture)).await?;
    connector.stop().await?;
    run_each(&fixture, CHANGES).await?;
    let connector = fixture.start_with(&config(&fixture)).await?;
    four_right_records(&mut consumer).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b08_a_renamed_required_column_stops_with_the_reason_and_the_way_out() -> Result<()> {
    let fixture = Fixture::new("b08_rename").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config(&fixture)).await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 4).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    client
        .batch_execute("ALTER TABLE outbox RENAME COLUMN aggregateid TO agg")
        .await?;
    let before = slot.wal_position().await?;
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, agg, payload) VALUES ('order', '5', '{}') RETURNING id::text",
            &[],
        )
        .await?;
    let id: String = row.try_get(0)?;
    let behind = slot.wal_position().await?;
    let code = connector.exit_code(Duration::from_secs(10)).await?;
    ensure!(code == 3, "exit code {code}");
    let lines = connector.messages_with(&["PH0501: ", "aggregateid", &id, "renaming"]);
    ensure!(lines.len() == 1, "{}", connector.log());
    ensure!(
        lines
            .iter()
            .all(|line| names_position_between(line, before, behind)),
        "no position from {before} to {behind} in {lines:?}"
    );
    ensure!(slot.confirmed().await? < behind, "confirmed past the event");
    // Old WAL keeps its names, so renaming back does not help, and the precondition is content again.
    client
        .batch_execute("ALTER TABLE outbox RENAME COLUMN agg TO aggregateid")
        .await?;
    let connector = e2e::connector::Connector::start(&config(&fixture))?;
    let code = connector.exit_code(Duration::from_secs(15)).await?;
    ensure!(code == 3 && !connector.messages_with(&["PH0501: ", &id]).is_empty());
    ensure!(slot.confirmed().await? < behind);
    client
        .batch_execute("ALTER TABLE outbox RENAME COLUMN aggregateid TO agg")
        .await?;
    let mapped = config(&fixture).with_text("router.aggregate_id", "agg");
    let connector = fixture.start_with(&mapped).await?;
    consumer.wait_for_records(2, SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 2 && records.iter().any(|record| record.key_text() == "5"));
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_rewritten_goes_on() -> Result<()> {
    let fixture = Fixture::new("rewritten").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    for statement in [
        "ALTER TABLE outbox ALTER COLUMN aggregate_version TYPE text",
        "VACUUM FULL outbox",
        "ALTER TABLE outbox ALTER COLUMN payload TYPE json",
    ] {
        client.batch_execute(statement).await?;
    }
    fixture
        .sql("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '2', '{\"b\":  2}')")
        .await?;
    consumer.wait_for_records(2, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 2);
    ensure!(
        records
            .iter()
            .any(|record| record.payload_text() == "{\"b\":  2}")
    );
    connector.stop().await
}

/// Whether the line names a position that the event may have.
fn names_position_between(line: &str, first: Position, last: Position) -> bool {
    line.split([' ', ',', ';', ':', '(', ')'])
        .filter_map(|word| Position::parse(word).ok())
        .any(|position| first <= position && position <= last)
}

/// Each statement on its own, as an application sends them; only BEGIN to COMMIT belong together.
async fn run_each(fixture: &Fixture, statements: &str) -> Result<()> {
    let client = fixture.client().await?;
    for statement in statements.split(';').filter(|text| !text.trim().is_empty()) {
        client.batch_execute(statement).await?;
    }
    Ok(())
}
