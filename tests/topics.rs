//! Topic names made from rows: the illegal ones are held before they reach a broker.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::scale;
use e2e::wait;

/// Names that Kafka does not take, and how the message shows them.
const ILLEGAL: &[(&str, &str)] = &[
    ("order created", "order created"),
    ("order/created", "order/created"),
    ("foo@bar", "foo@bar"),
    ("foo$bar", "foo$bar"),
    ("Größe", "Größe"),
    ("order\n", "order\\n"),
];

async fn is_held(fixture: &Fixture, name: &str, shown: &str, topic_rule: &str) -> Result<()> {
    let config = fixture.config().with_text("router.topic", topic_rule);
    let connector = Connector::start(&config)?;
    connector.ready().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    insert(&client, "order", "before").await?;
    slot.catches_up(SOON).await?;
    let before = slot.confirmed().await?;
    let id = insert(&client, name, "held").await?;
    let behind = slot.wal_position().await?;
    insert(&client, "order", "after").await?;
    let inserted = Instant::now();
    let code = connector.exit_code(SOON).await?;
    ensure!(
        // Without asking a broker; what those do not know of is told after ten.
        inserted.elapsed() < Duration::from_secs(6),
        "{name:?} was noticed after {:?}",
        inserted.elapsed()
    );
    ensure!(code == 3, "{name:?}: exit code {code}");
    let lines = connector.messages_with(&["PH0503: ", &id, "aggregatetype", shown]);
    ensure!(lines.len() == 1, "{name:?}: {}", connector.log());
    let confirmed = slot.confirmed().await?;
    ensure!(
        confirmed >= before && confirmed < behind,
        "{name:?}: the position went from {before} to {confirmed}, the event ends before {behind}"
    );
    Ok(())
}

async fn insert(client: &tokio_postgres::Client, kind: &str, key: &str) -> Result<String> {
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, aggregateid) VALUES ($1, $2) RETURNING id::text",
            &[&kind, &key],
        )
        .await?;
    Ok(row.try_get(0)?)
}

/// Sets the slot behind everything, as an operator may who has decided about the event.
async fn pass_over(fixture: &Fixture) -> Result<()> {
    fixture.watch_slot().await?.released().await?;
    fixture
        .sql(&format!(
            "SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())",
            fixture.slot
        ))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_an_illegal_topic_name_is_held_before_it_reaches_a_broker() -> Result<()> {
    let fixture = Fixture::new("b16").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    for (round, (name, shown)) in ILLEGAL.iter().enumerate() {
        is_held(&fixture, name, shown, &fixture.topic("{aggregatetype}")).await?;
        pass_over(&fixture).await?;
        // Each round delivers the event before; the one after is passed over together with the held one.
        let records = consumer.wait_for_records(round + 1, SOON).await?;
        ensure!(records.iter().all(|record| record.key_text() == "before"));
    }
    ensure!(consumer.read_to_end().await?.len() == ILLEGAL.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_a_name_that_is_empty_dots_or_too_long_is_held() -> Result<()> {
    let fixture = Fixture::new("b16_bare").await?;
    let kafka = &fixture.servers.kafka;
    // With the aggregate type alone as the topic; `order` is shared by all tests that do this, so it may exist.
    kafka.create_topic("order", 1, &[]).ok();
    let long = "a".repeat(250);
    for (name, shown) in [("", "empty"), ("..", ".."), (long.as_str(), "249")] {
        is_held(&fixture, name, shown, "{aggregatetype}").await?;
        pass_over(&fixture).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_names_that_differ_in_case_are_two_topics() -> Result<()> {
    let fixture = Fixture::new("b16_case").await?;
    let mut consumer: Consumer = fixture.consumer(&["order", "Order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    insert(&client, "order", "lower").await?;
    insert(&client, "Order", "upper").await?;
    for record in consumer.wait_for_records(2, SOON).await? {
        let expected = if record.topic.ends_with(".order") {
            "lower"
        } else {
            "upper"
        };
        ensure!(
            record.key_text() == expected,
            "{} in {}",
            record.key_text(),
            record.topic
        );
    }
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b21_a_topic_that_appears_later_gets_its_event_without_a_restart() -> Result<()> {
    let fixture = Fixture::new("b21").await?;
    let mut orders = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_kafka("allow.auto.create.topics", "false");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    insert(&client, "ghost", "1").await?;
    let behind = slot.wal_position().await?;
    insert(&client, "order", "2").await?;
    let ghost = fixture.topic("ghost");
    // The cause is told while the event waits, or the process ends with it: both leave it to be delivered.
    connector.prints(&[&ghost], Duration::from_secs(35)).await?;
    ensure!(
        slot.confirmed().await? < behind,
        "confirmed past an event without a topic"
    );
    let missing_for = Duration::from_secs(scale::pick(0, 60));
    wait::throughout("nothing is confirmed", missing_for, async || {
        Ok(slot.confirmed().await? < behind)
    })
    .await?;
    let mut ghosts = fixture.consumer(&["ghost"])?;
    let restarted = match connector.try_exit_code()? {
        None => None,
        Some(code) => {
            ensure!(code == 3, "exit code {code}");
            Some(fixture.start_with(&config).await?)
        }
    };
    ghosts.wait_for_events(1, Duration::from_secs(30)).await?;
    orders.wait_for_events(1, SOON).await?;
    slot.catches_up(SOON).await?;
    restarted.as_ref().unwrap_or(&connector).stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_a_c_a_record_larger_than_the_client_takes_is_held_with_its_id() -> Result<()> {
    let fixture = Fixture::new("b17_a").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let client = fixture.client().await?;
    client
        .batch_execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, aggregate_version, payload)
             SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'k', n,
                    jsonb_build_object('text', repeat('x', CASE WHEN n = 51 THEN 2000000 ELSE 1000 END))
             FROM generate_series(1, 101) n",
        )
        .await?;
    let behind = slot.wal_position().await?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    let lines = connector.messages_with(&["PH0602: ", "00000000-0000-0000-0000-000000000051"]);
    ensure!(lines.len() == 1, "{}", connector.log());
    ensure!(slot.confirmed().await? < behind);
    for record in consumer.read_to_end().await? {
        let n: u32 = record.id().rsplit('-').next().unwrap_or("").parse()?;
        ensure!(n < 51, "event {n} of the same key overtook the refused one");
    }
    // After both limits are raised everything arrives.
    let topic = fixture.topic("order");
    fixture
        .servers
        .kafka
        .alter_topic_config(&topic, "max.message.bytes", Some("4000000"))?;
    let config = fixture.config().with_kafka("message.max.bytes", "4000000");
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(101, SOON).await?;
    slot.catches_up(SOON).await?;
    let ledger = e2e::ledger::Ledger::from_table(&client).await?;
    e2e::checker::check(
        &ledger,
        consumer.read_to_end().await?,
        e2e::checker::Repeats::Reruns,
    )?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_a_record_larger_than_the_broker_takes_stops_everything_behind_it() -> Result<()> {
    let fixture = Fixture::new("b17_b").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_kafka("message.max.bytes", "10000000")
        // Each record in a batch of its own, so that the refusal hits one alone.
        .with_kafka("batch.num.messages", "1");
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let client = fixture.client().await?;
    client
        .batch_execute(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, aggregate_version, payload)
             SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'k', n,
                    jsonb_build_object('text', (SELECT string_agg(md5(n::text || m), '') FROM generate_series(
                        1, CASE WHEN n = 51 THEN 62500 ELSE 30 END) m))
             FROM generate_series(1, 101) n",
        )
        .await?;
    let behind = slot.wal_position().await?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    let lines = connector.messages_with(&["PH0602: ", "000000000051", "the broker"]);
    ensure!(lines.len() == 1, "{}", connector.log());
    ensure!(slot.confirmed().await? < behind);
    for record in consumer.read_to_end().await? {
        let n: u32 = record.id().rsplit('-').next().unwrap_or("").parse()?;
        ensure!(n < 51, "event {n} of the same key overtook the refused one");
    }
    // After the topic's limit is raised everything arrives.
    let topic = fixture.topic("order");
    let kafka = &fixture.servers.kafka;
    kafka.alter_topic_config(&topic, "max.message.bytes", Some("4000000"))?;
    let connector = fixture.start_with(&config).await?;
    consumer.wait_for_events(101, SOON).await?;
    slot.catches_up(SOON).await?;
    let ledger = e2e::ledger::Ledger::from_table(&client).await?;
    let records = consumer.read_to_end().await?;
    e2e::checker::check(&ledger, records, e2e::checker::Repeats::Reruns)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_c_a_record_that_fits_once_it_is_compressed_is_delivered() -> Result<()> {
    let fixture = Fixture::new("b17_c").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_kafka("message.max.bytes", "10000000")
        .with_kafka("compression.type", "zstd");
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload)
             VALUES ('order', 'k', jsonb_build_object('text', repeat('x', 5000000)))",
        )
        .await?;
    let records = consumer.wait_for_events(1, SOON).await?;
    let payload_bytes = records[0].payload_text().len();
    ensure!(payload_bytes > 5_000_000, "{payload_bytes}");
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_stays_away_is_one_outage_however_often_it_is_tried() -> Result<()> {
    let fixture = Fixture::new("away").await?;
    let config = fixture
        .config()
        .with_kafka("allow.auto.create.topics", "false")
        .with_kafka("topic.metadata.propagation.max.ms", "1000")
        .with_text("retry.backoff_max", "1s");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    insert(&client, "ghost", "1").await?;
    wait::until_true("three attempts", Duration::from_secs(60), async || {
        let page = connector.get("/metrics").await?;
        let tries = page.metric("posthaste_retries_total", "target=\"kafka\"");
        // A stream that runs again has not delivered anything yet.
        ensure!(tries < 0.5 || !connector.is_ready().await);
        Ok(tries > 2.5)
    })
    .await?;
    let mut ghosts = fixture.consumer(&["ghost"])?;
    ghosts.wait_for_events(1, Duration::from_secs(30)).await?;
    connector.ready().await?;
    for word in ["\"lost: ", "\"resumed: "] {
        let lines = connector.lines_with(&[word]);
        ensure!(lines.len() == 1, "{word}: {}", connector.log());
    }
    let page = connector.get("/metrics").await?;
    ensure!(page.metric("posthaste_reconnects_total", "target=\"kafka\"") == 1.0);
    connector.stop().await
}
