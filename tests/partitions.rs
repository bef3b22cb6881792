//! Partitioned outbox tables: rows arrive under the table's name, whatever partition holds them.

use anyhow::{Result, bail, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};
use e2e::wait;

const TABLES: &str = "
    CREATE TABLE ob (
        id int, aggregatetype text, aggregateid text, payload jsonb, day date, PRIMARY KEY (id, day)
    ) PARTITION BY RANGE (day);
    CREATE TABLE ob_1 PARTITION OF ob FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
    CREATE TABLE ob_2 (
        payload jsonb, day date NOT NULL, id int NOT NULL, aggregateid text, aggregatetype text);
    ALTER TABLE ob ATTACH PARTITION ob_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');";

/// A fixture with the partitioned table, published with this option.
async fn partitioned(name: &str, via_root: bool) -> Result<(Fixture, Config)> {
    let fixture = Fixture::bare(name).await?;
    fixture.sql(TABLES).await?;
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE ob WITH (publish_via_partition_root = {via_root})",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let config = fixture
        .config()
        .with("source.tables", Fixture::list(&["ob"]));
    Ok((fixture, config))
}

async fn insert(fixture: &Fixture, id: i32, day: &str) -> Result<()> {
    fixture
        .sql(&format!(
            "INSERT INTO ob (id, aggregatetype, aggregateid, payload, day)
             VALUES ({id}, 'order', 'key {id}', '{{\"n\": {id}}}', '{day}')"
        ))
        .await
}

/// The records are those of these ids, each with its own key and payload.
fn are_right(records: &[Record], ids: &[i32]) -> Result<()> {
    let mut found: Vec<_> = records
        .iter()
        .map(|record| (record.id(), record.key_text(), record.payload_text()))
        .collect();
    found.sort_unstable();
    let texts: Vec<_> = ids
        .iter()
        .map(|id| {
            (
                id.to_string(),
                format!("key {id}"),
                format!("{{\"n\": {id}}}"),
            )
        })
        .collect();
    let expected: Vec<_> = texts
        .iter()
        .map(|(id, key, payload)| (id.as_str(), key.as_str(), payload.as_str()))
        .collect();
    ensure!(found == expected, "arrived: {found:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b09_a_c_d_rows_of_all_partitions_arrive_through_the_root() -> Result<()> {
    let (fixture, config) = partitioned("b09_a", true).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&config).await?;
    insert(&fixture, 1, "2026-01-10").await?;
    insert(&fixture, 2, "2026-02-10").await?;
    insert(&fixture, 3, "2026-01-11").await?;
    fixture
        .sql(
            "CREATE TABLE ob_3 (day date NOT NULL, aggregatetype text, dropped text, id int NOT NULL,
                                aggregateid text, payload jsonb);
             ALTER TABLE ob_3 DROP COLUMN dropped;
             ALTER TABLE ob ATTACH PARTITION ob_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')",
        )
        .await?;
    insert(&fixture, 4, "2026-03-10").await?;
    are_right(consumer.wait_for_records(4, SOON).await?, &[1, 2, 3, 4])?;
    // A row that moves is a Delete and an Insert for the server, so the same id may come twice.
    fixture
        .sql("UPDATE ob SET day = '2026-02-20' WHERE id = 1")
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    match records.len() {
        4 => {}
        5 => are_right(records, &[1, 1, 2, 3, 4])?,
        count => bail!("{count} records"),
    }
    ensure!(connector.is_ready().await);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b09_b_without_the_root_rows_arrive_all_the_same_or_the_start_is_refused() -> Result<()> {
    let (fixture, config) = partitioned("b09_b", false).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = Connector::start(&config)?;
    let ended = wait::until("ready or refused", SOON, async || {
        if connector.is_ready().await {
            return Ok(Some(None));
        }
        Ok(connector.try_exit_code()?.map(Some))
    })
    .await?;
    if let Some(code) = ended {
        let told = connector.messages_with(&[
            "PH0326: ",
            &fixture.publication,
            "publish_via_partition_root",
        ]);
        ensure!(
            code == 3 && told.len() == 1,
            "exit code {code}: {}",
            connector.log()
        );
        return Ok(());
    }
    insert(&fixture, 1, "2026-01-10").await?;
    insert(&fixture, 2, "2026-02-10").await?;
    are_right(consumer.wait_for_records(2, SOON).await?, &[1, 2])?;
    connector.stop().await
}
