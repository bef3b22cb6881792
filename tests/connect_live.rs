//! A Debezium connector's file under a running process: its table changes, and the passwords that it points to are rotated.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::Repeats;
use e2e::connector::Connector;
use e2e::consumer::Record;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::takeover::configuration;
use e2e::writer::Load;
use serde_json::{Value, json};
use xtask::scratch::Scratch;

use crate::connect::{set, start};

/// The keys of a connector on the fixture's outbox.
fn keys(fixture: &Fixture, others: &[(&str, &str)]) -> Result<Value> {
    let mut config = configuration(fixture, "live");
    let mut keys = config.get_mut("config").context("keys")?.take();
    set(&mut keys, others);
    Ok(keys)
}

fn header(record: &Record, name: &str) -> Result<Value> {
    let text = record.header(name).context("a header")?;
    Ok(serde_json::from_str(text)?)
}

/// What shows columns' types and defaults, of columns that need not be there.
const SHOWN: [(&str, &str); 3] = [
    (
        "header.converter",
        "org.apache.kafka.connect.json.JsonConverter",
    ),
    ("transforms.outbox.table.field.additional.missing", "ignore"),
    (
        "transforms.outbox.table.fields.additional.placement",
        "mood:header,price:header",
    ),
];

const NEW_TYPES: &str = "
    CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN price AS numeric(10,2);
    ALTER TABLE public.outbox ADD COLUMN mood mood DEFAULT 'sad', ADD COLUMN price price NOT NULL DEFAULT 0";

/// Another type for the same column, and another default: both would be wrong as they were.
const OTHER_TYPE: &str = "
    CREATE TYPE temper AS ENUM ('sad', 'ok', 'great');
    ALTER TABLE public.outbox ALTER COLUMN mood DROP DEFAULT;
    ALTER TABLE public.outbox ALTER COLUMN mood TYPE temper USING mood::text::temper;
    ALTER TABLE public.outbox ALTER COLUMN mood SET DEFAULT 'great'";

fn insert(columns: &str, values: &str) -> String {
    format!(
        "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload{columns})
         VALUES ('order', 'o-1', 'made', '{{}}'{values})"
    )
}

fn mood(allowed: &str, default: &str) -> Value {
    json!({ "schema": { "type": "string", "optional": true, "name": "io.debezium.data.Enum", "version": 1,
        "parameters": { "allowed": allowed }, "default": default }, "payload": default })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_turns_up_is_known_before_its_first_row() -> Result<()> {
    let fixture = Fixture::new("live_types").await?;
    let config = keys(&fixture, &SHOWN)?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = start(&fixture, &config, &[]).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    fixture.sql(&insert("", "")).await?;
    let row = insert(", mood, price", ", NULL, 1.5");
    // In one transaction: nobody else has seen the type before its first row is in the stream. The catalog is that of the
    // moment of reading, there and here, so the next change waits for the row.
    for (change, count) in [(NEW_TYPES, 2), (OTHER_TYPE, 3)] {
        let transaction = format!("BEGIN; {change}; {row}; COMMIT");
        fixture.sql(&transaction).await?;
        consumer.wait_for_records(count, SOON).await?;
    }
    let [first, second, third] = consumer.records() else {
        anyhow::bail!("three records");
    };
    ensure!(first.header("mood").is_none(), "{first:?}");
    let seen = header(second, "mood")?;
    ensure!(seen == mood("ok,sad", "sad"), "{second:?}");
    let price = header(second, "price")?;
    let name = price.pointer("/schema/name").and_then(Value::as_str);
    ensure!(
        name == Some("org.apache.kafka.connect.data.Decimal"),
        "{price}"
    );
    let optional = price.pointer("/schema/optional");
    ensure!(optional == Some(&Value::Bool(false)), "{price}");
    let seen = header(third, "mood")?;
    ensure!(seen == mood("sad,ok,great", "great"), "{third:?}");
    ensure!(slot.walsender().await? == walsender, "on one connection");
    let shown = |record: &Record| -> Vec<_> {
        let names = ["mood", "price"];
        let headers = record.headers.iter();
        let of_test = headers.filter(|(name, _)| names.contains(&name.as_str()));
        of_test.cloned().collect()
    };
    let before = shown(third);
    connector.stop().await?;

    // A process that reads the catalog at its start makes the same of such a row.
    let connector = start(&fixture, &config, &[]).await?;
    fixture.sql(&row).await?;
    let records = consumer.wait_for_records(4, SOON).await?;
    let last = records.last().context("a record")?;
    ensure!(before.len() == 2 && shown(last) == before, "{last:?}");
    connector.stop().await
}

/// Rotates the password twice under load; after each terminated backend the connector is back with the new one.
async fn rotates(
    fixture: &Fixture,
    reference: &str,
    write: impl Fn(&str) -> Result<()>,
) -> Result<()> {
    write(PASSWORD)?;
    let config = keys(fixture, &[("database.password", reference)])?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = start(fixture, &config, &[]).await?;
    let slot = fixture.watch_slot().await?;
    let load = Load::steady(40).start(fixture).await?;
    consumer.wait_for_events(50, SOON).await?;
    let passwords = ["rotated-once", "rotated-twice"];
    for password in passwords {
        let before = slot.walsender().await?;
        write(password)?;
        let role = &fixture.role;
        fixture
            .sql(&format!(
                "ALTER ROLE {role} PASSWORD '{password}';
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
            ))
            .await?;
        slot.has_another_walsender(before, SOON).await?;
        load.goes_on_for(50, SOON).await?;
    }
    let ledger = load.stop().await?;
    all_arrive(fixture, &mut consumer, &ledger, Repeats::Reruns).await?;
    connector.stop().await?;
    for password in [PASSWORD].into_iter().chain(passwords) {
        ensure!(!connector.log().contains(password), "a password is shown");
    }
    Ok(())
}

fn put(file: &Path, text: &str) -> Result<()> {
    // As Kubernetes does it: another file in the place of the old one.
    let new = file.with_extension("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(&new, file)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_a_properties_file_is_looked_up_at_every_connect() -> Result<()> {
    let fixture = Fixture::new("live_file").await?;
    let folder = Scratch::new("live")?;
    let file = folder.path().join("orders.properties");
    let reference = format!("${{file:{}:db.password}}", file.display());
    rotates(&fixture, &reference, |password| {
        put(&file, &format!("other=1\ndb.password={password}\n"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_a_folder_of_secrets_is_looked_up_at_every_connect() -> Result<()> {
    let fixture = Fixture::new("live_directory").await?;
    let folder = Scratch::new("live")?;
    let file = folder.path().join("password");
    let reference = format!("${{directory:{}:password}}", folder.path().display());
    rotates(&fixture, &reference, |password| put(&file, password)).await
}

/// Whoever wrote `table.include.list` has no `source.tables` to correct.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_told_in_the_words_of_the_file() -> Result<()> {
    let fixture = Fixture::new("live_words").await?;
    let brokers = fixture.servers.kafka.bootstrap();
    for (key, value, words) in [
        (
            "table.include.list",
            "public.nothing",
            ["PH0315", "table.include.list"],
        ),
        (
            "transforms.outbox.table.field.event.key",
            "nothing",
            ["PH0317", "the Event Router's option"],
        ),
        ("slot.name", "nothing", ["PH0309", "--create"]),
        (
            "database.user",
            "nobody_here",
            ["PH0202", "database.password"],
        ),
    ] {
        let config = keys(&fixture, &[(key, value)])?;
        let arguments = ["--brokers", &brokers, "--fail-fast"];
        let text = config.to_string();
        let refused = Connector::start_file("connector.json", &text, &arguments, &[])?;
        let code = refused.exit_code(SOON).await?;
        ensure!(code == 3, "exit code {code}: {}", refused.log());
        let told = refused.messages_with(&words);
        ensure!(told.len() == 1, "{words:?}: {}", refused.log());
        for ours in ["source.", "[router]", "router."] {
            ensure!(!told[0].contains(ours), "{ours}: {told:?}");
        }
    }
    Ok(())
}
