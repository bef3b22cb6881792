//! Events that can never be published: dead letters, passing over by configuration, and one by one by decision.

use anyhow::{Context, Result, ensure};
use e2e::config::Config;
use e2e::connector::{Connector, command};
use e2e::consumer::{Consumer, Record};
use e2e::fixture::{Fixture, SOON};
use e2e::wait;
use tokio_postgres::Client;

/// The 101 events of B17: one key, the 51st so large that neither limit of 1 MB takes it.
pub(crate) const B17: &str = "
    INSERT INTO outbox (id, aggregatetype, aggregateid, aggregate_version, payload)
    SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'k', n,
           jsonb_build_object('text', (SELECT string_agg(md5(n::text || m), '') FROM generate_series(
               1, CASE WHEN n = 51 THEN 62500 ELSE 30 END) m))
    FROM generate_series(1, 101) n";

pub(crate) const EVENT_51: &str = "00000000-0000-0000-0000-000000000051";

async fn insert(client: &Client, kind: &str, key: Option<&str>) -> Result<String> {
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ($1, $2, '{\"n\": 1}') RETURNING id::text",
            &[&kind, &key],
        )
        .await?;
    Ok(row.try_get(0)?)
}

fn with_dead_letters(fixture: &Fixture, config: Config) -> Config {
    config
        .with_text("poison.on_poison", "dead-letter-topic")
        .with_text("poison.dead_letter_topic", &fixture.topic("dead"))
}

fn numbers(records: &[Record]) -> Result<Vec<u32>> {
    let number = |record: &Record| Ok(record.id().rsplit('-').next().unwrap_or("").parse()?);
    records.iter().map(number).collect()
}

/// Each of 1 to `last` but 51, first occurrences in order.
pub(crate) fn check_all_but_51(records: &[Record], last: u32) -> Result<()> {
    let mut firsts = Vec::new();
    for number in numbers(records)? {
        if !firsts.contains(&number) {
            firsts.push(number);
        }
    }
    let expected: Vec<u32> = (1..=last).filter(|number| *number != 51).collect();
    ensure!(firsts == expected, "{firsts:?}");
    Ok(())
}

async fn dead_letter(fixture: &Fixture, config: Config, stage: &str, side: &str) -> Result<()> {
    let mut orders = fixture.consumer(&["order"])?;
    let mut dead = fixture.consumer(&["dead"])?;
    let connector = fixture
        .start_with(&with_dead_letters(fixture, config))
        .await?;
    let client = fixture.client().await?;
    client.batch_execute(B17).await?;
    let slot = fixture.watch_slot().await?;
    orders.wait_for_events(100, SOON).await?;
    dead.wait_for_events(1, SOON).await?;
    slot.catches_up(SOON).await?;
    check_all_but_51(orders.read_to_end().await?, 101)?;
    let letters = dead.read_to_end().await?;
    ensure!(letters.len() == 1, "{} dead letters", letters.len());
    let letter = &letters[0];
    ensure!(
        letter.id() == EVENT_51 && letter.key_text() == "k",
        "{letter:?}"
    );
    let header = |name: &str| letter.header(name).unwrap_or_default().to_owned();
    ensure!(header("posthaste.error.code") == "PH0602", "{letter:?}");
    ensure!(header("posthaste.error.stage") == stage, "{letter:?}");
    ensure!(
        header("posthaste.error.message").contains(side),
        "{letter:?}"
    );
    ensure!(header("posthaste.source.table") == "public.outbox");
    ensure!(
        header("posthaste.source.row").ends_with("#50"),
        "{letter:?}"
    );
    ensure!(header("posthaste.source.lsn").contains('/'));
    ensure!(header("posthaste.original.topic") == fixture.topic("order"));
    ensure!(!header("posthaste.attempts").is_empty());
    // Larger than a dead letter may be: what is left out is said.
    let left_out: u64 = header("posthaste.payload.bytes_left_out").parse()?;
    ensure!(left_out > 1_900_000, "{left_out}");
    let page = connector.get("/metrics").await?;
    ensure!(page.metric("posthaste_poison_events_total", "action=\"dead_lettered\"") >= 1.0);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_a_with_dead_letters_all_others_arrive_and_the_position_moves_on() -> Result<()> {
    let fixture = Fixture::new("b17_a_dead").await?;
    dead_letter(&fixture, fixture.config(), "publish", "our client").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_with_dead_letters_all_others_arrive_and_the_position_moves_on() -> Result<()> {
    let fixture = Fixture::new("b17_b_dead").await?;
    let config = fixture.config().with_kafka("message.max.bytes", "10000000");
    dead_letter(&fixture, config, "publish", "the broker").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_with_skip_the_others_arrive_and_it_is_counted() -> Result<()> {
    let fixture = Fixture::new("b17_skip").await?;
    let mut orders = fixture.consumer(&["order"])?;
    let config = fixture.config().with_text("poison.on_poison", "skip");
    let connector = fixture.start_with(&config).await?;
    fixture.client().await?.batch_execute(B17).await?;
    orders.wait_for_events(100, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    check_all_but_51(orders.read_to_end().await?, 101)?;
    let page = connector.get("/metrics").await?;
    ensure!(page.metric("posthaste_poison_events_total", "action=\"skipped\"") == 1.0);
    connector.prints(&["passed over", "PH0602"], SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_with_dead_letters_what_has_no_legal_topic_goes_there_with_its_payload() -> Result<()> {
    let fixture = Fixture::new("b16_dead").await?;
    let mut orders = fixture.consumer(&["order"])?;
    let mut dead = fixture.consumer(&["dead"])?;
    let config = with_dead_letters(&fixture, fixture.config());
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    insert(&client, "order", Some("1")).await?;
    let held = insert(&client, "order/created", Some("1")).await?;
    insert(&client, "order", Some("1")).await?;
    orders.wait_for_events(2, SOON).await?;
    let letters = dead.wait_for_events(1, SOON).await?;
    let letter = &letters[0];
    ensure!(
        letter.id() == held && letter.key_text() == "1" && letter.payload_text() == "{\"n\": 1}"
    );
    ensure!(
        letter.header("posthaste.error.code") == Some("PH0503"),
        "{letter:?}"
    );
    ensure!(
        letter.header("posthaste.error.stage") == Some("route"),
        "{letter:?}"
    );
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(
        connector.lines_with(&["lost: "]).is_empty(),
        "no connection was given up"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_letter_of_a_row_too_large_to_be_read_has_its_key_wherever_that_stands()
-> Result<()> {
    let fixture = Fixture::bare("dead_large").await?;
    fixture.create_payload_first().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let mut dead = fixture.consumer(&["dead"])?;
    let config = with_dead_letters(&fixture, fixture.config());
    let connector = fixture
        .start_with(&config.with_text("source.frame_bytes_max", "16KiB"))
        .await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let row = client
        .query_one(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload)
             VALUES ('order', '1', to_jsonb(repeat('x', 100000))) RETURNING id::text",
            &[],
        )
        .await?;
    let large: String = row.try_get(0)?;
    insert(&client, "order", Some("1")).await?;
    orders.wait_for_events(1, SOON).await?;
    let letters = dead.wait_for_events(1, SOON).await?;
    let letter = &letters[0];
    ensure!(
        letter.id() == large && letter.key_text() == "1",
        "{letter:?}"
    );
    for (name, value) in [
        ("posthaste.error.code", "PH0402"),
        ("posthaste.error.stage", "read"),
        // With the two quotes that make it JSON.
        ("posthaste.payload.bytes_left_out", "100002"),
    ] {
        ensure!(letter.header(name) == Some(value), "{name}: {letter:?}");
    }
    slot.catches_up(SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_is_refused_stops() -> Result<()> {
    let fixture = Fixture::new("dead_refused").await?;
    let _orders = fixture.consumer(&["order"])?;
    let kafka = &fixture.servers.kafka;
    kafka.create_topic(&fixture.topic("dead"), 1, &[("max.message.bytes", "100")])?;
    let config = with_dead_letters(&fixture, fixture.config());
    let connector = fixture.start_with(&config).await?;
    insert(&fixture.client().await?, "order/created", Some("1")).await?;
    ensure!(connector.exit_code(SOON).await? == 3);
    ensure!(
        connector
            .messages_with(&["PH0602: ", &fixture.topic("dead")])
            .len()
            == 1
    );
    Ok(())
}

/// The position in the log as the message of a halt says it.
pub(crate) fn row_in(message: &str) -> Result<String> {
    let behind = message.split("it is row ").nth(1).context("no row named")?;
    let end = behind.find([';', ' ', ':']).unwrap_or(behind.len());
    Ok(behind[..end].to_owned())
}

async fn halts(config: &Config, code: &str) -> Result<String> {
    let connector = Connector::start(config)?;
    ensure!(connector.exit_code(SOON).await? == 3);
    let messages = connector.messages_with(&[code, "it is row"]);
    messages.into_iter().next().context("no message")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b16_a_held_event_is_passed_over_by_decision_by_id_and_by_position() -> Result<()> {
    let fixture = Fixture::new("b16_skip").await?;
    fixture.create_poison_tables().await?;
    let mut orders = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    insert(&client, "order", Some("1")).await?;
    let held = insert(&client, "order created", Some("1")).await?;
    insert(&client, "order", Some("1")).await?;
    insert(&client, "order@", Some("1")).await?;
    insert(&client, "order", Some("1")).await?;
    let config = fixture.config();
    let message = halts(&config, "PH0503: ").await?;
    ensure!(message.contains(&held), "{message}");
    let said = command(
        &config,
        &["skip", "--event", &held, "--reason", "agreed with sales"],
    )?;
    ensure!(said.contains(&held), "{said}");
    let message = halts(&config, "PH0503: ").await?;
    ensure!(!message.contains(&held), "{message}");
    command(&config, &["skip", "--row", &row_in(&message)?])?;
    let connector = fixture.start_with(&config).await?;
    orders.wait_for_events(3, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(
        orders.read_to_end().await?.len() == 3,
        "nothing is repeated"
    );
    let audit = client
        .query_one(
            "SELECT count(*) FILTER (WHERE skipped_at IS NOT NULL AND commit_lsn IS NOT NULL), max(reason) FROM posthaste.skipped",
            &[],
        )
        .await?;
    ensure!(
        audit.try_get::<_, i64>(0)? == 2 && audit.try_get::<_, &str>(1)? == "agreed with sales"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_b_a_halt_names_the_one_refused_event_and_it_can_be_passed_over() -> Result<()> {
    let fixture = Fixture::new("b17_b_halt").await?;
    fixture.create_poison_tables().await?;
    let mut orders: Consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    client.batch_execute(B17).await?;
    let config = fixture.config().with_kafka("message.max.bytes", "10000000");
    let message = halts(&config, "PH0602: ").await?;
    ensure!(
        message.contains(EVENT_51) && message.contains("the broker"),
        "{message}"
    );
    let row = row_in(&message)?;
    ensure!(row.ends_with("#50"), "{row}");
    for number in numbers(orders.read_to_end().await?)? {
        ensure!(
            number < 51,
            "event {number} of the same key overtook the refused one"
        );
    }
    command(&config, &["skip", "--row", &row])?;
    let connector = fixture.start_with(&config).await?;
    orders.wait_for_events(100, SOON).await?;
    check_all_but_51(orders.read_to_end().await?, 101)?;
    let skipped = || connector.metric("posthaste_poison_events_total");
    wait::until_true("the skip to be counted", SOON, async || {
        Ok(skipped().await? == 1.0)
    })
    .await?;
    connector.stop().await
}
