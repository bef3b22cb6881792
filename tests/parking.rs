//! Events that can never be published: parked, with what follows of their aggregate, and published in the end.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::connector::{Connector, command};
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};
use e2e::wait;
use tokio_postgres::Client;

fn parking(fixture: &Fixture) -> Config {
    fixture.config().with_text("poison.on_poison", "park")
}

/// Events `from` to `to` of one key, each a transaction of its own; every tenth a bystander of another key. Event 50 is too
/// large for the topic, and small enough for the client.
pub(crate) async fn write(client: &Client, from: i32, to: i32) -> Result<()> {
    for n in from..=to {
        let size = if n == 50 { 300_000 } else { 200 };
        client
            .execute(
                "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
                 SELECT 'order', key, version, jsonb_build_object('text', (SELECT string_agg(md5($1::int::text || m), '')
                        FROM generate_series(1, size / 32) m))
                 FROM (VALUES ('k', $1::int::bigint, $2::int), ('other-' || $1, 1, 200)) AS event (key, version, size)
                 WHERE key = 'k' OR $1 % 10 = 0",
                &[&n, &size],
            )
            .await?;
    }
    Ok(())
}

/// Versions of key `k` by first occurrence.
async fn firsts(client: &Client, records: &[Record]) -> Result<Vec<i64>> {
    let rows = client
        .query(
            "SELECT id::text, aggregate_version FROM outbox WHERE aggregateid = 'k'",
            &[],
        )
        .await?;
    let versions: std::collections::HashMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut firsts = Vec::new();
    for version in records
        .iter()
        .filter_map(|record| versions.get(record.id()))
    {
        if !firsts.contains(version) {
            firsts.push(*version);
        }
    }
    Ok(firsts)
}

async fn waiting(client: &Client) -> Result<i64> {
    let row = client
        .query_one(
            "SELECT count(*) FROM posthaste.parked WHERE state IN ('held', 'queued')",
            &[],
        )
        .await?;
    Ok(row.try_get(0)?)
}

pub(crate) async fn until_waiting(client: &Client, rows: i64) -> Result<()> {
    let what = format!("{rows} parked rows");
    wait::until_true(&what, Duration::from_secs(40), async || {
        Ok(waiting(client).await? == rows)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_event_50_of_100_is_parked_with_all_behind_it_and_published_after_the_repair()
-> Result<()> {
    let fixture = Fixture::new("park_50").await?;
    fixture.create_poison_tables().await?;
    let topic = fixture.topic("order");
    let kafka = &fixture.servers.kafka;
    let mut orders = fixture.consumer(&["order"])?;
    kafka.alter_topic_config(&topic, "max.message.bytes", Some("100000"))?;
    let client = fixture.client().await?;
    // Written before the start, so that neighbours share batches and several requests are in flight.
    write(&client, 1, 100).await?;
    let config = parking(&fixture).with_kafka("batch.size", "20000");
    let connector = fixture.start_with(&config).await?;
    until_waiting(&client, 51).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = orders.read_to_end().await?.to_vec();
    ensure!(firsts(&client, &records).await? == (1..=49).collect::<Vec<_>>());
    let others = records.iter().filter(|record| record.key_text() != "k");
    let others: std::collections::HashSet<_> = others.map(Record::id).collect();
    ensure!(others.len() == 10, "{} of other keys", others.len());
    ensure!(connector.metric("posthaste_parked_rows").await? == 51.0);
    // New ones of the aggregate wait behind, and survive a crash.
    write(&client, 101, 105).await?;
    until_waiting(&client, 56).await?;
    connector.kill()?;
    let connector = fixture.start_with(&config).await?;
    write(&client, 106, 106).await?;
    until_waiting(&client, 57).await?;
    let listed = command(&config, &["parked", "list"])?;
    ensure!(
        listed.contains("held") && listed.contains("PH0602"),
        "{listed}"
    );
    kafka.alter_topic_config(&topic, "max.message.bytes", None)?;
    let said = command(&config, &["parked", "retry", "--aggregate-id", "k"])?;
    ensure!(said.contains("1 held events queued"), "{said}");
    // Written while the queue empties.
    write(&client, 107, 150).await?;
    until_waiting(&client, 0).await?;
    write(&client, 151, 160).await?;
    // 160 of the key, and a bystander with every tenth.
    orders.wait_for_events(176, SOON).await?;
    let records = orders.read_to_end().await?.to_vec();
    ensure!(firsts(&client, &records).await? == (1..=160).collect::<Vec<_>>());
    let ledger = e2e::ledger::Ledger::from_table(&client).await?;
    e2e::checker::check(&ledger, &records, e2e::checker::Repeats::Reruns)?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(connector.metric("posthaste_parked_published_total").await? >= 57.0);
    connector.stop().await
}

async fn insert(client: &Client, kind: &str, key: Option<&str>) -> Result<String> {
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ($1, $2, '{}') RETURNING id::text",
            &[&kind, &key],
        )
        .await?;
    Ok(row.try_get(0)?)
}

async fn number_of(client: &Client, id: &str) -> Result<String> {
    let row = client
        .query_one(
            "SELECT id::text FROM posthaste.parked WHERE event_id = $1",
            &[&id],
        )
        .await?;
    Ok(row.try_get(0)?)
}

/// As it is it is refused again, with the next attempt counted.
async fn is_refused_again(
    client: &Client,
    config: &Config,
    connector: &Connector,
    id: &str,
    number: &str,
) -> Result<()> {
    command(config, &["parked", "retry", number])?;
    connector.prints(&["held again", "PH0503"], SOON).await?;
    wait::until_true("the attempt to be counted", SOON, async || {
        let row = client
            .query_one(
                "SELECT attempts FROM posthaste.parked WHERE event_id = $1 AND state = 'held'",
                &[&id],
            )
            .await;
        Ok(row.is_ok_and(|row| row.get::<_, i32>(0) == 2))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_a_parked_event_is_shown_edited_refused_again_published_or_discarded() -> Result<()> {
    let fixture = Fixture::new("park_edit").await?;
    fixture.create_poison_tables().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let config = parking(&fixture);
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    // The aggregate is of the row as it is; in the topic's name it has no place. Without a key nothing waits behind.
    let bad = insert(&client, "or/der", Some("a")).await?;
    let alone = insert(&client, "or/der", None).await?;
    let flows = insert(&client, "order", None).await?;
    let behind = insert(&client, "or/der", Some("a")).await?;
    let given_up = insert(&client, "or/der", Some("b")).await?;
    orders.wait_for_events(1, SOON).await?;
    until_waiting(&client, 4).await?;
    let [bad_number, behind_number] = [
        number_of(&client, &bad).await?,
        number_of(&client, &behind).await?,
    ];
    let alone_number = number_of(&client, &alone).await?;
    let shown = command(&config, &["parked", "show", &bad_number])?;
    ensure!(
        shown.contains("PH0503") && shown.contains("aggregatetype = or/der"),
        "{shown}"
    );
    is_refused_again(&client, &config, &connector, &bad, &bad_number).await?;
    for number in [&bad_number, &behind_number, &alone_number] {
        // The one behind is queued already; only held ones can be edited, so it is refused once it may go.
        command(
            &config,
            &["parked", "edit", number, "--column", "aggregatetype=order"],
        )
        .ok();
    }
    command(&config, &["parked", "retry", &bad_number, &alone_number])?;
    orders.wait_for_events(3, SOON).await?;
    wait::until_true("the one behind to be held itself", SOON, async || {
        let listed = command(&config, &["parked", "list"])?;
        Ok(listed
            .lines()
            .any(|line| line.contains(&behind) && line.contains("held")))
    })
    .await?;
    command(
        &config,
        &[
            "parked",
            "edit",
            &behind_number,
            "--column",
            "aggregatetype=order",
        ],
    )?;
    let discarded = number_of(&client, &given_up).await?;
    command(&config, &["parked", "discard", &discarded])?;
    command(&config, &["parked", "retry", "--all"])?;
    orders.wait_for_events(4, SOON).await?;
    until_waiting(&client, 0).await?;
    let records = orders.read_to_end().await?;
    let ids: Vec<&str> = records.iter().map(Record::id).collect();
    ensure!(
        ids.len() == 4 && ids.contains(&flows.as_str()) && !ids.contains(&given_up.as_str()),
        "{ids:?}"
    );
    let place = |id: &str| ids.iter().position(|found| *found == id);
    ensure!(place(&bad) < place(&behind), "{ids:?}");
    ensure!(command(&config, &["parked", "list"])?.contains("no parked events"));
    connector.stop().await
}

/// Parks a row of which the payload is too large to be read, with what follows of its aggregate, and publishes both.
async fn large_is_parked_and_published(fixture: &Fixture) -> Result<()> {
    fixture.create_poison_tables().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let config = parking(fixture).with_text("source.frame_bytes_max", "16KiB");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload, aggregate_version)
             VALUES ('order', 'a', jsonb_build_object('text', repeat('x', 10000000)), 7) RETURNING id::text",
            &[],
        )
        .await?;
    let large: String = row.try_get(0)?;
    let behind = insert(&client, "order", Some("a")).await?;
    insert(&client, "order", Some("b")).await?;
    orders.wait_for_events(1, SOON).await?;
    until_waiting(&client, 2).await?;
    slot.catches_up(SOON).await?;
    let number = number_of(&client, &large).await?;
    let shown = command(&config, &["parked", "show", &number])?;
    for part in [
        "PH0402",
        "payload = (not known",
        "aggregateid = a",
        "aggregate_version = 7",
    ] {
        ensure!(shown.contains(part), "{shown}");
    }
    ensure!(shown.matches("(not known").count() == 1, "{shown}");
    command(&config, &["parked", "retry", &number])?;
    connector.prints(&["held again", "PH0509"], SOON).await?;
    let edit = ["parked", "edit", &number, "--column", "payload={}"];
    command(&config, &edit)?;
    wait::until_true("it to be held again", SOON, async || {
        Ok(command(&config, &["parked", "retry", &number])?.contains("1 held"))
    })
    .await?;
    orders.wait_for_events(3, SOON).await?;
    let records = orders.read_to_end().await?;
    let ids: Vec<&str> = records
        .iter()
        .filter(|r| r.key_text() == "a")
        .map(Record::id)
        .collect();
    ensure!(ids == [large.as_str(), behind.as_str()], "{ids:?}");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_too_large_to_be_read_is_parked_with_what_is_known_of_it() -> Result<()> {
    large_is_parked_and_published(&Fixture::new("park_large").await?).await
}

/// All the connector needs of a large row stands behind what makes it large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_too_large_to_be_read_is_parked_also_where_its_payload_stands_first() -> Result<()> {
    let fixture = Fixture::bare("park_large_first").await?;
    fixture.create_payload_first().await?;
    large_is_parked_and_published(&fixture).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_it_stops_before_the_next_event() -> Result<()> {
    let fixture = Fixture::new("park_limit").await?;
    fixture.create_poison_tables().await?;
    let _orders = fixture.consumer(&["order"])?;
    let config = parking(&fixture).with("poison.parked_rows_max", "2");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    for _ in 0..2 {
        insert(&client, "or/der", Some("a")).await?;
    }
    until_waiting(&client, 2).await?;
    slot.catches_up(SOON).await?;
    insert(&client, "or/der", Some("a")).await?;
    let behind = slot.wal_position().await?;
    ensure!(connector.exit_code(SOON).await? == 3);
    ensure!(connector.messages_with(&["PH0507: ", "2 rows"]).len() == 1);
    ensure!(slot.confirmed().await? < behind && waiting(&client).await? == 2);
    Ok(())
}

async fn refused(config: &Config, code: &str) -> Result<()> {
    let connector = Connector::start(config)?;
    ensure!(connector.exit_code(SOON).await? == 3);
    ensure!(connector.messages_with(&[code, "fix: "]).len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_and_rights_are_checked_at_the_start() -> Result<()> {
    let fixture = Fixture::new("park_check").await?;
    let config = parking(&fixture);
    refused(&config, "PH0333: ").await?;
    fixture.create_poison_tables().await?;
    let client = fixture.client().await?;
    let revoke = format!("REVOKE UPDATE ON posthaste.parked FROM {}", fixture.role);
    client.batch_execute(&revoke).await?;
    refused(&config, "PH0334: ").await?;
    fixture.create_poison_tables().await?;
    let connector = fixture.start_with(&config).await?;
    insert(&client, "or/der", Some("a")).await?;
    until_waiting(&client, 1).await?;
    connector.stop().await?;
    refused(&fixture.config(), "PH0335: ").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_our_own_schema_are_never_events() -> Result<()> {
    let fixture = Fixture::bare("park_own").await?;
    fixture
        .sql("CREATE TABLE public.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, \
              aggregateid text, type text, payload jsonb)")
        .await?;
    fixture.create_poison_tables().await?;
    let publication = format!("CREATE PUBLICATION {} FOR ALL TABLES", fixture.publication);
    fixture.sql(&publication).await?;
    fixture.create_slot().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(&parking(&fixture)).await?;
    let client = fixture.client().await?;
    insert(&client, "or/der", Some("a")).await?;
    insert(&client, "order", Some("b")).await?;
    orders.wait_for_events(1, SOON).await?;
    until_waiting(&client, 1).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(orders.read_to_end().await?.len() == 1);
    connector.stop().await
}
