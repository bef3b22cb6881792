//! A table that is changed while Debezium and Posthaste read it.

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::fixture::Fixture;
use serde_json::{Value, json};

use crate::compare::{
    SIDES, STRING, WORKER, both_run, create_slots, create_topics, lines, started,
};
use crate::comparer::{Rule, compare};
use crate::contract::{Sides, now_ms};

/// Columns, defaults and types that turn up while both read are shown by both in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_changed_while_it_is_read_gives_the_same_records() -> Result<()> {
    let mut worker = WORKER.lock().await;
    let fixture = Fixture::bare("contract_changes").await?;
    let topics = ["order"];
    prepare(&fixture, &topics).await?;
    let sides = sides()?;
    let (name, began) = (fixture.database.as_str(), now_ms()?);
    let worker = started(&mut worker, &fixture)?;
    worker
        .put(name, &Value::from(sides.keys(&fixture, "theirs")))
        .await?;
    let (file, text) = sides.file(&sides.keys(&fixture, "ours"));
    let brokers = fixture.servers.kafka.bootstrap();
    let arguments = ["--brokers", &brokers, "--log-level", "info,posthaste=debug"];
    let connector = Connector::start_file(file, &text, &arguments, &[])?;
    connector.ready().await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    let mut count = 0;
    let mut read = Vec::new();
    for (change, columns, values) in CHANGES {
        let insert = format!(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, payload{columns}) VALUES ('order', 'o', '{{}}'{values})"
        );
        // In the transaction of the change itself, and in one after it.
        fixture
            .sql(&format!("BEGIN; {change}; {insert}; COMMIT"))
            .await?;
        fixture.sql(&insert).await?;
        count += 2;
        read.clear();
        // Debezium asks the catalog of now, so the next change waits until both have read this one.
        for side in SIDES {
            let look = || both_run(worker, name, &connector);
            let lines = lines(&fixture, side, &topics, count, look).await;
            read.push(lines.with_context(|| format!("{side} after {change}"))?);
        }
    }
    worker.call("DELETE", &format!("/connectors/{name}"), "")?;
    let readings = connector.lines_with(&["read the catalog again"]);
    ensure!(readings.len() >= CHANGES.len(), "{readings:?}");
    ensure!(slot.walsender().await? == walsender, "on one connection");
    let nulled = connector.metric("posthaste_rows_nulled_total").await?;
    ensure!(nulled.to_string() == "4", "{nulled} rows with a NULL");
    ensure!(!connector.lines_with(&["PH0512", "nan_"]).is_empty());
    connector.stop().await?;
    let [theirs, ours] = read.as_slice() else {
        anyhow::bail!("two sides");
    };
    let last = ours.last().context("a record")?;
    ensure!(
        last.headers
            .iter()
            .any(|(name, value)| name == "late_mood" && value.contains("sad")),
        "{last:?}"
    );
    compare(
        theirs,
        ours,
        &[Rule::RunId, Rule::ReadTime(began..=now_ms()?)],
    )
}

async fn prepare(fixture: &Fixture, topics: &[&str]) -> Result<()> {
    fixture
        .sql(&format!(
            "CREATE TABLE public.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
               aggregateid text NOT NULL, type text, payload jsonb);
             CREATE PUBLICATION {} FOR TABLE public.outbox",
            fixture.publication
        ))
        .await?;
    create_slots(fixture).await?;
    create_topics(fixture, topics)
}

fn sides() -> Result<Sides> {
    let late = ["late_mood", "late_price", "late_list", "late_text", "type"];
    let names: Vec<&str> = [&late[..], &NOT_NUMBERS, &NESTED].concat();
    let keys = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "topic.prefix": "late",
        "table.include.list": "public\\.outbox",
        "publication.autocreate.mode": "disabled",
        "key.converter": STRING,
        "value.converter": STRING,
        "header.converter": "org.apache.kafka.connect.json.JsonConverter",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.table.field.additional.missing": "ignore",
    });
    let Value::Object(contract_keys) = keys else {
        anyhow::bail!("no keys");
    };
    Ok(Sides {
        contract_keys,
        router: "outbox",
        replacement: "${routedByValue}",
        places: names
            .iter()
            .map(|name| format!("{name}:header"))
            .collect::<Vec<_>>()
            .join(","),
        has_time: false,
        case: "changes/connector.json",
    })
}

/// Columns of the rows whose values cannot be converted.
const NOT_NUMBERS: [&str; 6] = [
    "nan",
    "nan_infinite",
    "nan_scaled",
    "nan_default",
    "nan_not_null",
    "nan_list",
];
/// Of those whose values are arrays of arrays. Not of text, of which Debezium sends another one each time.
const NESTED: [&str; 8] = [
    "in_ints",
    "in_bools",
    "in_dates",
    "in_numbers",
    "in_doubles",
    "in_moments",
    "in_times",
    "in_bytes",
];

/// A change of the table, and a row that shows it: columns and values beside the usual ones.
const CHANGES: &[(&str, &str, &str)] = &[
    ("SELECT 1", "", ""),
    (
        "CREATE TYPE late AS ENUM ('ok', 'sad'); ALTER TABLE public.outbox ADD COLUMN late_mood late DEFAULT 'ok'",
        ", late_mood",
        ", NULL",
    ),
    (
        "CREATE DOMAIN late_price AS numeric(10,2); ALTER TABLE public.outbox ADD COLUMN late_price late_price",
        ", late_price",
        ", 1.5",
    ),
    (
        "ALTER TABLE public.outbox ADD COLUMN late_list int4[], ADD COLUMN late_text varchar(9) NOT NULL DEFAULT 'a'",
        ", late_list, late_mood",
        ", '{1,NULL}', 'sad'",
    ),
    (
        "ALTER TABLE public.outbox ALTER COLUMN late_mood SET DEFAULT 'sad'",
        ", late_mood",
        ", NULL",
    ),
    (
        "UPDATE public.outbox SET late_mood = 'ok' WHERE late_mood IS NULL; ALTER TABLE public.outbox ALTER COLUMN late_mood SET NOT NULL",
        ", late_mood",
        ", 'sad'",
    ),
    (
        "ALTER TABLE public.outbox ADD COLUMN nan numeric, ADD COLUMN nan_infinite numeric, ADD COLUMN nan_scaled numeric(10,2),
           ADD COLUMN nan_default numeric(10,2) DEFAULT 1.5, ADD COLUMN nan_not_null numeric(10,2) NOT NULL DEFAULT 3.25,
           ADD COLUMN nan_list numeric[]",
        ", nan, nan_infinite, nan_scaled, nan_default, nan_not_null, nan_list",
        ", 'NaN', '-Infinity', 'NaN', 'NaN', 'NaN', '{1,NaN}'",
    ),
    (
        "ALTER TABLE public.outbox ADD COLUMN in_ints int4[], ADD COLUMN in_bools bool[], ADD COLUMN in_dates date[],
           ADD COLUMN in_numbers numeric[], ADD COLUMN in_doubles float8[], ADD COLUMN in_moments timestamptz[],
           ADD COLUMN in_times timestamp[], ADD COLUMN in_bytes bytea[]",
        ", in_ints, in_bools, in_dates, in_numbers, in_doubles, in_moments, in_times, in_bytes",
        ", '{{1,2},{3,4}}', '[0:1][1:1]={{t},{f}}', '{{2024-01-01},{NULL}}', '{{1},{2}}', '{{1.5},{2}}', '{{2024-01-01},{NULL}}',
           '{{2024-01-01},{NULL}}', '{{a},{b}}'",
    ),
];
