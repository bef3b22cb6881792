//! Going on from Debezium on its own slot: stored offsets as Debezium writes them, and what arrives after `takeover` and `run`.
//!
//! Connect itself is not here: `real_connect/takeover.rs` has it. Offsets are made from what waits in the slot.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};
use e2e::produce::Producer;
use e2e::takeover::{Ended, PREFIX, announced, configuration, state, takeover, takeover_from};
use e2e::wait;
use serde_json::{Value, json};
use tokio_postgres::Client;

const NAME: &str = "orders-outbox";

/// Rows of the transaction in whose middle a process is killed.
const MANY: usize = 20_000;

/// A place with a connector's configuration.
struct Place {
    fixture: Fixture,
    client: Client,
    config: Value,
}

/// A change that waits in the slot.
#[derive(Debug, Clone, Copy)]
struct Change {
    kind: u8,
    lsn: u64,
    xid: u32,
    /// Of a COMMIT: where it ends.
    end: u64,
}

impl Place {
    async fn new(name: &str) -> Result<Self> {
        let fixture = Fixture::new(name).await?;
        let config = configuration(&fixture, NAME);
        Ok(Self {
            client: fixture.client().await?,
            config,
            fixture,
        })
    }

    /// Inserts events of one transaction.
    async fn insert(&self, ids: &[&str]) -> Result<()> {
        let rows: Vec<String> = ids.iter().map(|id| values(id)).collect();
        let rows = rows.join(", ");
        self.client
            .batch_execute(&format!(
                "INSERT INTO public.outbox (aggregatetype, aggregateid, type) VALUES {rows}"
            ))
            .await?;
        Ok(())
    }

    async fn waiting(&self) -> Result<Vec<Change>> {
        let rows = self
            .client
            .query(
                "SELECT (lsn - '0/0')::int8, xid::text, data FROM pg_logical_slot_peek_binary_changes(
                     $1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)",
                &[&self.fixture.slot, &self.fixture.publication],
            )
            .await?;
        let mut changes = Vec::new();
        for row in rows {
            let (lsn, xid, data): (i64, String, Vec<u8>) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let kind = *data.first().context("a message")?;
            let end = match kind {
                // Flags, where the record begins, where it ends.
                b'C' => u64::from_be_bytes(data[10..18].try_into()?),
                _ => 0,
            };
            changes.push(Change {
                kind,
                lsn: u64::try_from(lsn)?,
                xid: xid.parse()?,
                end,
            });
        }
        Ok(changes)
    }

    /// Runs `takeover` with what Connect would answer about this offset.
    async fn takeover(&self, offset: &Value, arguments: &[&str]) -> Result<Ended> {
        let answer =
            json!({ "offsets": [{ "partition": { "server": PREFIX }, "offset": offset }] });
        takeover(&self.fixture, &self.config, &answer, arguments).await
    }

    async fn takeover_from(&self, offsets: &str, arguments: &[&str]) -> Result<Ended> {
        takeover_from(&self.fixture, &self.config, offsets, arguments).await
    }

    fn state(&self) -> String {
        state(&self.fixture)
    }

    fn handover(&self) -> PathBuf {
        let name = format!("{}.takeover.json", self.fixture.slot);
        self.fixture.state_directory().join(name)
    }

    fn start(&self) -> Result<Connector> {
        let brokers = self.fixture.servers.kafka.bootstrap();
        let state = self.state();
        let arguments = [
            "--brokers",
            &brokers,
            "--log-format",
            "json",
            "--set",
            &state,
        ];
        Connector::start_file("connector.json", &self.config.to_string(), &arguments, &[])
    }

    /// Runs until everything is confirmed, and gives the keys that arrived, in the order of the only partition that a key has.
    async fn run_to_the_end(&self) -> Result<Vec<String>> {
        let mut consumer = self.fixture.consumer(&["order"])?;
        let connector = self.start()?;
        connector.ready().await?;
        self.fixture.watch_slot().await?.catches_up(SOON).await?;
        // What the server wrote since the takeover moves the position past it.
        self.client.execute("SELECT pg_switch_wal()", &[]).await?;
        self.fixture.watch_slot().await?.catches_up(SOON).await?;
        wait::until_true("the take-over file to be used up", SOON, async || {
            Ok(!self.handover().exists())
        })
        .await?;
        connector.stop().await?;
        let mut keys: Vec<String> = consumer
            .read_to_end()
            .await?
            .iter()
            .map(|record| record.key_text().to_owned())
            .collect();
        keys.sort();
        Ok(keys)
    }
}

fn values(id: &str) -> String {
    format!("('order', '{id}', 'created')")
}

/// The offset of the n-th insert, as Debezium 3.6 stores it.
fn offset_at(changes: &[Change], n: usize) -> Result<Value> {
    let (place, row) = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| change.kind == b'I')
        .nth(n)
        .context("that many inserts")?;
    let before = changes.iter().take(place);
    let commit = before
        .rev()
        .find(|change| change.kind == b'C')
        .context("a commit before it")?;
    Ok(
        json!({ "lsn_proc": row.lsn, "messageType": "INSERT", "lsn_commit": commit.end, "lsn": row.lsn,
        "txId": row.xid, "ts_usec": 1_790_000_000_123_456_i64 }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_variant_sends_what_it_announced() -> Result<()> {
    for (variant, expected, announced) in [
        (
            "at-least-once",
            vec!["b1", "b2", "b3", "c1"],
            "at most 3 events are sent again if Connect was stopped in order, at most 4",
        ),
        (
            "skip",
            vec!["b3", "c1"],
            "at most 0 events are sent again if Connect was stopped in order, at most 2",
        ),
    ] {
        let place = Place::new("takeover_variant").await?;
        place.insert(&["a1", "a2"]).await?;
        place.insert(&["b1", "b2", "b3"]).await?;
        place.insert(&["c1"]).await?;
        let changes = place.waiting().await?;
        let offset = offset_at(&changes, 3)?;
        let before = place.fixture.watch_slot().await?.state().await?;
        let state = place.state();
        let dry = place
            .takeover(&offset, &["--variant", variant, "--set", &state])
            .await?;
        ensure!(
            dry.code == 0 && dry.text.contains("dry run"),
            "{}",
            dry.text
        );
        ensure!(!place.handover().exists(), "{}", dry.text);
        let done = place
            .takeover(&offset, &["--variant", variant, "--yes", "--set", &state])
            .await?;
        ensure!(
            done.code == 0 && done.text.contains(announced),
            "{}",
            done.text
        );
        let after = place.fixture.watch_slot().await?.state().await?;
        ensure!(
            (before.confirmed, before.restart, None)
                == (after.confirmed, after.restart, after.active_pid),
            "the slot moved: {before:?} {after:?}"
        );
        let arrived = place.run_to_the_end().await?;
        ensure!(arrived == expected, "{variant}: {arrived:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_the_skipped_stretch_neither_loses_nor_skips_more() -> Result<()> {
    let place = Place::new("takeover_kill").await?;
    place.insert(&["first"]).await?;
    place
        .client
        .batch_execute(&format!(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type)
             SELECT 'order', n::text, 'created' FROM generate_series(1, {MANY}) n"
        ))
        .await?;
    place.insert(&["last"]).await?;
    let offset = offset_at(&place.waiting().await?, MANY / 2)?;
    let state = place.state();
    let done = place
        .takeover(&offset, &["--variant", "skip", "--yes", "--set", &state])
        .await?;
    ensure!(done.code == 0, "{}", done.text);
    let mut consumer = place.fixture.consumer(&["order"])?;
    for _ in 0..2 {
        let connector = place.start()?;
        consumer.wait_for_records(1, SOON).await?;
        connector.kill()?;
        place.fixture.watch_slot().await?.released().await?;
    }
    let connector = place.start()?;
    connector.ready().await?;
    place.fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    let records = consumer.read_to_end().await?;
    let mut keys: Vec<&str> = records.iter().map(Record::key_text).collect();
    keys.sort_unstable();
    keys.dedup();
    // The offset is that of the row MANY / 2, since `first` was insert 0.
    let mut expected: Vec<String> = (MANY / 2 + 1..=MANY).map(|n| n.to_string()).collect();
    expected.push("last".to_owned());
    expected.sort_unstable();
    ensure!(
        keys == expected,
        "{} keys arrived, {} expected",
        keys.len(),
        expected.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_began_early_and_ended_late_is_skipped_by_its_number() -> Result<()> {
    let place = Place::new("takeover_early").await?;
    let early = place.fixture.client().await?;
    let insert = |id| {
        format!(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type) VALUES {}",
            values(id)
        )
    };
    early
        .batch_execute(&format!("BEGIN; {}", insert("early1")))
        .await?;
    let later = place.fixture.client().await?;
    later
        .batch_execute(&format!("BEGIN; {}", insert("later1")))
        .await?;
    place.insert(&["between"]).await?;
    early
        .batch_execute(&format!("{}; COMMIT", insert("early2")))
        .await?;
    later
        .batch_execute(&format!("{}; COMMIT", insert("later2")))
        .await?;
    // between, early1, early2, later1, later2: early1 lies before the end of `between`, later1 before the end of both.
    let offset = offset_at(&place.waiting().await?, 1)?;
    ensure!(
        offset["lsn"].as_u64() < offset["lsn_commit"].as_u64(),
        "{offset}"
    );
    let state = place.state();
    let done = place
        .takeover(&offset, &["--variant", "skip", "--yes", "--set", &state])
        .await?;
    ensure!(done.code == 0, "{}", done.text);
    let arrived = place.run_to_the_end().await?;
    ensure!(arrived == ["early2", "later1", "later2"], "{arrived:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_copy_that_share_the_stored_position_are_sent_again() -> Result<()> {
    let place = Place::new("takeover_copy").await?;
    place.insert(&["a"]).await?;
    place
        .client
        .batch_execute(
            // With every default given, the rows go into the page, and into the WAL, together.
            r"COPY public.outbox (id, aggregatetype, aggregateid, type) FROM PROGRAM
              $$for n in 1 2 3 4 5; do printf '00000000-0000-0000-0000-00000000000%s\torder\tcopied%s\tcreated\n' $n $n; done$$",
        )
        .await?;
    let changes = place.waiting().await?;
    let inserts: Vec<_> = changes
        .iter()
        .filter(|change| change.kind == b'I')
        .collect();
    ensure!(inserts.len() == 6, "{inserts:?}");
    ensure!(
        inserts[1].lsn == inserts[5].lsn,
        "the server gave each row its place: {inserts:?}"
    );
    let mut offset = offset_at(&changes, 3)?;
    let state = place.state();
    let uncounted = place
        .takeover(&offset, &["--variant", "skip", "--set", &state])
        .await?;
    ensure!(
        announced(&uncounted.text, "skip")?.0 == 5,
        "{}",
        uncounted.text
    );
    // From 3.7 on the number is stored.
    offset["lsn_events_processed"] = json!(3);
    let done = place
        .takeover(&offset, &["--variant", "skip", "--yes", "--set", &state])
        .await?;
    ensure!(done.code == 0, "{}", done.text);
    let arrived = place.run_to_the_end().await?;
    ensure!(arrived == ["copied4", "copied5"], "{arrived:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_lose_events_is_refused_by_name() -> Result<()> {
    let place = Place::new("takeover_refused").await?;
    place.insert(&["a"]).await?;
    place.insert(&["b"]).await?;
    let changes = place.waiting().await?;
    let offset = offset_at(&changes, 1)?;
    let refused = async |what: &str, offset: &Value, words: &[&str]| {
        let ended = place.takeover(offset, &["--yes"]).await?;
        ensure!(ended.code == 3, "{what}: {} {}", ended.code, ended.text);
        for word in words {
            ensure!(
                ended.text.contains(word),
                "{what}: {word} in {}",
                ended.text
            );
        }
        anyhow::Ok(())
    };
    let mut ahead = offset.clone();
    ahead["lsn"] = json!(1_u64 << 50);
    refused("ahead of the server", &ahead, &["PH0804", "another server"]).await?;
    let mut snapshot = offset.clone();
    snapshot["snapshot"] = json!(true);
    refused("a snapshot", &snapshot, &["PH0804", "snapshot"]).await?;
    refused("deleted", &Value::Null, &["PH0802", "deleted"]).await?;
    refused(
        "no state directory",
        &offset,
        &["PH0806", "state.directory"],
    )
    .await?;
    // Somebody reads the slot.
    let reader = place.start()?;
    reader.ready().await?;
    let state = place.state();
    let held = place.takeover(&offset, &["--yes", "--set", &state]).await?;
    ensure!(held.code == 3, "{}", held.text);
    ensure!(
        held.text.contains("PH0805") && held.text.contains(&format!("/connectors/{NAME}/stop")),
        "{}",
        held.text
    );
    place.fixture.watch_slot().await?.catches_up(SOON).await?;
    reader.stop().await?;
    // … and has confirmed more than the offset says.
    place.fixture.watch_slot().await?.released().await?;
    refused(
        "the slot leads",
        &offset,
        &["PH0804", "may never have been published"],
    )
    .await?;
    place
        .fixture
        .sql(&format!(
            "SELECT pg_drop_replication_slot('{}')",
            place.fixture.slot
        ))
        .await?;
    refused("no slot", &offset, &["PH0309", "in no slot"]).await?;
    ensure!(!place.handover().exists());
    Ok(())
}

/// Ends with this code, and says all of these words.
fn said(ended: &Ended, code: i32, words: &[&str]) -> Result<()> {
    ensure!(ended.code == code, "{} {}", ended.code, ended.text);
    for word in words {
        ensure!(ended.text.contains(word), "{word} in {}", ended.text);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offsets_topic_is_read_for_this_connector_alone() -> Result<()> {
    let place = Place::new("takeover_topic").await?;
    place.insert(&["a"]).await?;
    place.insert(&["b"]).await?;
    let offset = offset_at(&place.waiting().await?, 1)?;
    let topic = place.fixture.topic("connect-offsets");
    let kafka = &place.fixture.servers.kafka;
    tokio::task::block_in_place(|| {
        kafka.create_topic(&topic, 5, &[("cleanup.policy", "compact")])
    })?;
    let producer = Producer::new(&kafka.bootstrap())?;
    let from = format!("topic:{topic}");
    let state = place.state();
    let arguments = ["--set", state.as_str()];
    let take = async |offsets: &str| place.takeover_from(offsets, &arguments).await;
    said(&take(&from).await?, 3, &["PH0802"])?;
    let key = |name: &str, prefix: &str| json!([name, { "server": prefix }]).to_string();
    let mut other = offset.clone();
    other["lsn_commit"] = json!(1);
    for (name, prefix, value) in [
        (NAME, PREFIX, &other),
        (NAME, "store", &other),
        ("billing", PREFIX, &other),
        (NAME, PREFIX, &offset),
        ("billing", PREFIX, &other),
    ] {
        let (key, value) = (key(name, prefix), value.to_string());
        producer
            .send(&topic, Some(key.as_bytes()), Some(value.as_bytes()))
            .await?;
    }
    let found = take(&from).await?;
    said(&found, 0, &[])?;
    ensure!(
        announced(&found.text, "at-least-once")? == (1, 1),
        "{}",
        found.text
    );
    let renamed = ["--connector", "shipping", "--set", &state];
    let renamed = place.takeover_from(&from, &renamed).await?;
    said(&renamed, 3, &["PH0802", "shipping", "billing"])?;
    said(&take("topic:no.such.topic").await?, 3, &["PH0803"])?;
    said(&take("topic").await?, 3, &["PH0801", "--worker"])?;
    let tombstone = key(NAME, PREFIX);
    producer
        .send(&topic, Some(tombstone.as_bytes()), None)
        .await?;
    said(&take(&from).await?, 3, &["PH0802", "deleted"])?;
    producer.send(&topic, Some(b"order-1"), Some(b"{}")).await?;
    said(&take(&from).await?, 3, &["PH0801"])
}
