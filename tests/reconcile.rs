//! `posthaste reconcile`: what a lost slot left behind is found, told apart from what only went from the topic, and published.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::config::Config;
use e2e::connector::binary;
use e2e::fixture::{Fixture, SOON};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio_postgres::Client;
use xtask::scratch::Scratch;

/// What the command did.
struct Done {
    code: Option<i32>,
    lines: Vec<String>,
    error: String,
}

impl Done {
    /// The event ids listed with this word.
    fn ids(&self, word: &str) -> Vec<&str> {
        let fields = self.lines.iter().map(|line| line.split('\t'));
        fields
            .filter_map(|mut fields| {
                (fields.next() == Some(word))
                    .then(|| fields.nth(1))
                    .flatten()
            })
            .collect()
    }
}

/// Runs `posthaste reconcile` to its end.
async fn reconcile(config: &Config, arguments: &[&str]) -> Result<Done> {
    let folder = Scratch::new("reconcile")?;
    let file = folder.path().join("posthaste.toml");
    std::fs::write(&file, config.render())?;
    let mut command = Command::new(binary()?);
    command.args(["reconcile", "-c"]).arg(&file).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await?
        .context("run posthaste")?;
    Ok(Done {
        code: output.status.code(),
        lines: String::from_utf8(output.stdout)?
            .lines()
            .map(str::to_owned)
            .collect(),
        error: String::from_utf8(output.stderr)?,
    })
}

async fn insert(fixture: &Fixture, client: &Client, count: i32) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(fixture.insert(client, n).await?);
    }
    Ok(ids)
}

/// Rows that no slot will ever bring.
async fn insert_without_a_slot(
    fixture: &Fixture,
    client: &Client,
    count: i32,
) -> Result<Vec<String>> {
    fixture
        .sql(&format!(
            "SELECT pg_drop_replication_slot('{}')",
            fixture.slot
        ))
        .await?;
    let ids = insert(fixture, client, count).await?;
    fixture.create_slot().await?;
    std::fs::remove_dir_all(fixture.state_directory())?;
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_behind_a_lost_slot_are_listed_and_published_on_request() -> Result<()> {
    let fixture = Fixture::new("reconcile").await?;
    fixture
        .sql("ALTER TABLE outbox ADD COLUMN created_at timestamptz NOT NULL DEFAULT now()")
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    let config = fixture.config().with("router.headers", r#"["type"]"#);

    let connector = fixture.start_with(&config).await?;
    insert(&fixture, &client, 10).await?;
    consumer.wait_for_events(10, SOON).await?;
    connector.stop().await?;
    let lost = insert_without_a_slot(&fixture, &client, 5).await?;
    let connector = fixture.start_with(&config).await?;
    insert(&fixture, &client, 10).await?;
    consumer.wait_for_events(20, SOON).await?;

    needs_select(&fixture, &config).await?;
    leaves_out_what_was_skipped(&fixture, &config, &lost).await?;
    let found = reconcile(&config, &["--since", "today"]).await?;
    ensure!(found.code == Some(5), "{:?}: {}", found.code, found.error);
    ensure!(found.ids("missing") == lost, "{:?}", found.lines);
    ensure!(found.ids("unknown").is_empty());
    ensure!(
        consumer.read_to_end().await?.len() == 20,
        "a look sends nothing"
    );

    let sent = reconcile(&config, &["--all", "--publish"]).await?;
    ensure!(sent.code == Some(0), "{:?}: {}", sent.code, sent.error);
    consumer.wait_for_events(25, SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 25, "{} records", records.len());
    for (n, id) in lost.iter().enumerate() {
        let record = records.iter().find(|record| record.id() == id);
        let record = record.context("a lost row")?;
        ensure!(record.header("posthaste-reconciled").is_some());
        ensure!(record.header("type") == Some("created"));
        ensure!(record.key_text() == n.to_string());
        ensure!(record.payload_text() == format!("{{\"n\": {n}}}"));
    }
    ensure!(
        records
            .iter()
            .filter(|record| record.header("posthaste-reconciled").is_some())
            .count()
            == 5
    );

    // A second run finds what the first has sent.
    let again = reconcile(&config, &["--all", "--publish"]).await?;
    ensure!(
        again.code == Some(0) && again.lines.len() == 1,
        "{:?}",
        again.lines
    );
    ensure!(
        again
            .lines
            .iter()
            .any(|line| line.starts_with("25 in their topics, 0 missing")),
        "{:?}",
        again.lines
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_older_than_the_topic_are_unknown_and_sent_only_when_that_is_asked_for() -> Result<()>
{
    let fixture = Fixture::new("reconcile_unknown").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    fixture
        .sql(&format!("GRANT SELECT ON outbox TO {}", fixture.role))
        .await?;
    let connector = fixture.start().await?;
    insert(&fixture, &client, 30).await?;
    consumer.wait_for_events(30, SOON).await?;
    connector.stop().await?;
    delete_records(&fixture, &fixture.topic("order")).await?;
    let lost = insert_without_a_slot(&fixture, &client, 3).await?;
    let connector = fixture.start().await?;

    let found = reconcile(&fixture.config(), &["--all", "--publish"]).await?;
    ensure!(found.code == Some(5), "{:?}: {}", found.code, found.error);
    ensure!(found.ids("missing").is_empty(), "{:?}", found.lines);
    ensure!(found.ids("unknown").len() == 33, "{:?}", found.lines);
    ensure!(
        consumer.read_to_end().await?.len() == 30,
        "nothing was sent"
    );

    let range = ["--from-id", &lost[0], "--to-id", &lost[0]];
    let arguments = [&range[..], &["--publish", "--include-unknown"]].concat();
    let sent = reconcile(&fixture.config(), &arguments).await?;
    ensure!(sent.code == Some(0), "{:?}: {}", sent.code, sent.error);
    let records = consumer.wait_for_events(31, SOON).await?;
    ensure!(records.last().is_some_and(|record| record.id() == lost[0]));
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_the_slot_is_still_going_to_deliver_are_not_taken_for_missing() -> Result<()> {
    let fixture = Fixture::new("reconcile_behind").await?;
    fixture.consumer(&["order"])?;
    fixture
        .sql(&format!("GRANT SELECT ON outbox TO {}", fixture.role))
        .await?;
    insert(&fixture, &fixture.client().await?, 3).await?;
    let refused = reconcile(&fixture.config(), &["--all", "--publish", "--wait", "1s"]).await?;
    ensure!(
        refused.code == Some(3),
        "{:?}: {}",
        refused.code,
        refused.error
    );
    ensure!(
        refused.error.contains("PH0341") && refused.error.contains("nobody reads it"),
        "{}",
        refused.error
    );
    let wrong = reconcile(&fixture.config(), &["--from-id", "no uuid"]).await?;
    ensure!(wrong.code == Some(2), "{:?}: {}", wrong.code, wrong.error);
    ensure!(wrong.error.contains("no uuid"), "{}", wrong.error);
    Ok(())
}

/// Streaming needs no right on the table; comparing does, and says which.
async fn needs_select(fixture: &Fixture, config: &Config) -> Result<()> {
    let refused = reconcile(config, &["--all"]).await?;
    ensure!(
        refused.code == Some(3),
        "{:?}: {}",
        refused.code,
        refused.error
    );
    ensure!(
        refused.error.contains("PH0340") && refused.error.contains("GRANT SELECT"),
        "{}",
        refused.error
    );
    fixture
        .sql(&format!("GRANT SELECT ON outbox TO {}", fixture.role))
        .await
}

/// What a person decided to pass over is not missing.
async fn leaves_out_what_was_skipped(
    fixture: &Fixture,
    config: &Config,
    lost: &[String],
) -> Result<()> {
    fixture.sql(include_str!("../sql/004_poison.sql")).await?;
    fixture
        .sql(&format!(
            "GRANT USAGE ON SCHEMA posthaste TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA posthaste TO {role};
             INSERT INTO posthaste.skipped (slot, event_id, skipped_at) VALUES ('{slot}', '{id}', now())",
            role = fixture.role,
            slot = fixture.slot,
            id = lost[0],
        ))
        .await?;
    let found = reconcile(config, &["--since", "today"]).await?;
    ensure!(found.ids("missing") == lost[1..], "{:?}", found.lines);
    ensure!(
        found.lines.iter().any(|line| line.contains("1 set aside")),
        "{:?}",
        found.lines
    );
    fixture.sql("DELETE FROM posthaste.skipped").await
}

/// Everything the topic holds goes, as retention would have it.
async fn delete_records(fixture: &Fixture, topic: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", fixture.servers.kafka.bootstrap())
        .create()?;
    let mut ends = TopicPartitionList::new();
    for partition in 0..3 {
        ends.add_partition_offset(topic, partition, Offset::End)?;
    }
    let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(20)));
    let deleted = admin.delete_records(&ends, &options).await?;
    for element in deleted.elements() {
        element.error()?;
    }
    Ok(())
}
