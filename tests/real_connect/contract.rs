//! The configurations of the contract through Debezium and through Posthaste, on rows with a column of every type.
//!
//! They are the files that `crates/debezium` has as test cases. Names, addresses and passwords are the test's; each places the
//! columns of every type as well, and no other key is changed. `no_data` is added where `snapshot.mode` is not given: Debezium
//! would take a snapshot of the empty table first.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::debezium::Worker;
use e2e::fixture::{Fixture, PASSWORD};
use e2e::random::Random;
use serde_json::{Map, Value, json};

use crate::compare::{
    SIDES, WORKER, both_run, create_slots, create_topics, has_old_digits, lines, list, slot_of,
    started,
};
use crate::comparer::{Rule, compare};
use crate::rows::{self, COLUMNS, TYPES};

/// Enough that every value of every column comes several times.
const ROWS: usize = 150;
const ROWS_A_TRANSACTION: usize = 10;

/// A configuration, the table that it reads, and how a row of it is written.
struct Contract {
    /// Its folder in `crates/debezium/tests/cases`.
    case: &'static str,
    /// The alias of its Event Router.
    router: &'static str,
    /// What is done before; the publication is of `table`.
    table: &'static str,
    setup: &'static str,
    topics: &'static [&'static str],
    replacement: &'static str,
    /// Where the columns of every type are put.
    placement: &'static str,
    /// Columns whose text there is an address in Java's memory, so that no two runs have the same.
    left_out: &'static [&'static str],
    row: fn(&mut Random, usize, &str) -> Row,
    /// Whether a column gives the records their time.
    has_time: bool,
}

/// Columns and their values as SQL.
type Row = (Vec<&'static str>, Vec<String>);

fn id(random: &mut Random, n: usize) -> String {
    format!("'{:08x}-0000-4000-8000-{n:012x}'", random.below(1 << 30))
}

fn nullable_json(random: &mut Random) -> String {
    match random.percent(8) {
        true => "NULL".into(),
        false => rows::quoted(&rows::json(random, 2)),
    }
}

fn topic(random: &mut Random, topics: &[&str]) -> String {
    let at = random.below(topics.len());
    rows::quoted(topics.get(at).unwrap_or(&"none"))
}

const A: Contract = Contract {
    case: "a_rest_body/connector.json",
    router: "outbox",
    table: "public.outbox",
    setup: "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
              type text NOT NULL, payload jsonb",
    topics: &["order", "Invoice"],
    replacement: "${routedByValue}",
    placement: "header",
    left_out: &[],
    row: |random, n, topic| {
        let names = vec!["id", "aggregatetype", "aggregateid", "type", "payload"];
        let values = vec![id(random, n), topic.into(), rows::text(random, 9), rows::text(random, 9), nullable_json(random)];
        (names, values)
    },
    has_time: false,
};

const B: Contract = Contract {
    case: "b_bare_map/connector.json",
    router: "route",
    table: "billing.outbox_events",
    setup: "CREATE SCHEMA billing; CREATE TABLE billing.dbz_heartbeat (id int PRIMARY KEY, ts timestamptz);
            CREATE TABLE billing.outbox_events (event_id uuid PRIMARY KEY, aggregate_type text, aggregate_id bigint,
              event_payload jsonb, occurred_at timestamp(3), event_type text, tenant_id int, trace_id text DEFAULT 'none'",
    topics: &["invoice.v1", "credit.v1"],
    replacement: "${routedByValue}",
    placement: "header",
    left_out: &[],
    row: |random, n, topic| {
        let names = vec!["event_id", "aggregate_type", "aggregate_id", "event_payload", "occurred_at", "event_type", "tenant_id", "trace_id"];
        let values = vec![
            id(random, n), topic.into(), rows::integer(random), nullable_json(random), rows::event_time(random),
            rows::nullable(random, 10, |random| rows::text(random, 9)), random.below(50).to_string(),
            rows::nullable(random, 50, |random| rows::text(random, 9)),
        ];
        (names, values)
    },
    has_time: true,
};

const C: Contract = Contract {
    case: "c_raw_bytes/connector.json",
    router: "outbox",
    table: "public.outboxevent",
    setup: "CREATE TABLE public.outboxevent (id uuid, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text,
              payload bytea, partition_no int, schema_id int",
    topics: &["account.opened", "order.placed"],
    replacement: "${domain}.${entity}",
    placement: "header",
    left_out: &["c_numeric", "c_bit5", "c_varbit", "c_point"],
    row: |random, n, topic| {
        let names = vec!["id", "aggregatetype", "aggregateid", "type", "payload", "partition_no", "schema_id"];
        let partition = rows::nullable(random, 50, |random| random.below(3).to_string());
        let schema = rows::nullable(random, 10, |random| random.below(9).to_string());
        let values = vec![
            id(random, n), topic.into(), rows::text(random, 9), "'t'".into(), rows::body(random), partition, schema,
        ];
        (names, values)
    },
    has_time: false,
};

const D: Contract = Contract {
    case: "d_json/connector.json",
    router: "outbox",
    table: "public.outbox",
    setup: "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
              type text NOT NULL, payload jsonb, schema_version int NOT NULL, created_by text DEFAULT 'nobody'",
    topics: &["order", "Invoice"],
    replacement: "${routedByValue}",
    placement: "envelope",
    left_out: &[],
    row: |random, n, topic| {
        let names = vec!["id", "aggregatetype", "aggregateid", "type", "payload", "schema_version", "created_by"];
        let values = vec![
            id(random, n), topic.into(), rows::text(random, 9), rows::text(random, 9), nullable_json(random),
            (n / 50 + 1).to_string(), rows::nullable(random, 50, |random| rows::text(random, 9)),
        ];
        (names, values)
    },
    has_time: false,
};

const F: Contract = Contract {
    case: "f_new_names/connector.properties",
    router: "outbox",
    table: "public.outbox",
    setup: "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregate_id int, payload json",
    topics: &["order", "Invoice"],
    replacement: "${routedByValue}",
    placement: "header",
    left_out: &[],
    row: |random, n, topic| {
        let names = vec!["id", "aggregatetype", "aggregate_id", "payload"];
        let values = vec![
            id(random, n),
            topic.into(),
            rows::integer(random),
            nullable_json(random),
        ];
        (names, values)
    },
    has_time: false,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_a_rest_body_gives_the_same_records() -> Result<()> {
    same(&A).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_expanded_json_beside_a_heartbeat_gives_the_same_records() -> Result<()> {
    same(&B).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_raw_bytes_give_the_same_records() -> Result<()> {
    same(&C).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d_an_envelope_with_schemas_gives_the_same_records() -> Result<()> {
    same(&D).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_the_new_names_give_the_same_records() -> Result<()> {
    same(&F).await
}

async fn same(contract: &Contract) -> Result<()> {
    let seed = Random::run_seed();
    let mut worker = WORKER.lock().await;
    let label = contract.case.split('/').next().unwrap_or_default();
    let fixture = Fixture::bare(&format!("contract_{label}")).await?;
    fixture.sql(TYPES).await?;
    let columns = rows::definitions();
    fixture
        .sql(&format!("{}{columns})", contract.setup))
        .await?;
    let heartbeat = if contract.case.starts_with('b') {
        ", billing.dbz_heartbeat"
    } else {
        ""
    };
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE {}{heartbeat}",
            fixture.publication, contract.table
        ))
        .await?;
    create_slots(&fixture).await?;
    create_topics(&fixture, contract.topics)?;
    let mut random = Random::new(seed);
    let statements: Vec<String> = (0..ROWS)
        .map(|n| {
            let topic = topic(&mut random, contract.topics);
            let (names, values) = (contract.row)(&mut random, n, &topic);
            rows::insert(&mut random, n, contract.table, names, values)
        })
        .collect();
    let transactions: Vec<String> = statements
        .chunks(ROWS_A_TRANSACTION)
        .map(|rows| format!("BEGIN; {}; COMMIT", rows.join(";\n")))
        .collect();
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let kept = |name: &str| !contract.left_out.contains(&name);
    ensure!(contract.left_out.iter().all(|name| names.contains(name)));
    let places = list(|name| format!("{name}:{}", contract.placement), kept);
    let sides = Sides {
        contract_keys: keys_of(contract.case)?,
        router: contract.router,
        replacement: contract.replacement,
        places,
        has_time: contract.has_time,
        case: contract.case,
    };
    let worker = started(&mut worker, &fixture)?;
    let running = sides.run(worker, &fixture, contract.topics, ROWS, &transactions);
    running.await.with_context(|| format!("E2E_SEED={seed}"))
}

/// (e): no table. The content has members of every type that JSON knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e_messages_give_the_same_records() -> Result<()> {
    let seed = Random::run_seed();
    let mut random = Random::new(seed);
    let mut worker = WORKER.lock().await;
    let fixture = Fixture::bare("contract_e").await?;
    fixture
        .sql(&format!("CREATE PUBLICATION {}", fixture.publication))
        .await?;
    create_slots(&fixture).await?;
    let topics = ["order", "Invoice"];
    create_topics(&fixture, &topics)?;
    let transactions: Vec<String> = (0..ROWS)
        .map(|n| {
            let content = json!({
                "id": format!("m-{n}"),
                "aggregatetype": topics.get(random.below(2)),
                "aggregateid": if n % 3 == 0 { Value::from(n) } else { Value::from(rows::text(&mut random, 9)) },
                "payload": rows::json(&mut random, 2),
                "whole": random.below(1000),
                "long": 5_000_000_000_u64 + u64::try_from(random.below(1 << 40)).unwrap_or(0),
                "half": f64::from(u32::try_from(random.below(1000)).unwrap_or(0)) + 0.5,
                "flag": random.percent(50),
                "text": rows::text(&mut random, 20),
            });
            let content = rows::quoted(&content.to_string());
            let prefix = if random.percent(80) { "outbox" } else { "other" };
            let (transactional, end) = (random.percent(50), random.percent(80));
            let end = if end { "COMMIT" } else { "ROLLBACK" };
            format!("BEGIN; SELECT pg_logical_emit_message({transactional}, '{prefix}', {content}); {end}")
        })
        .collect();
    // What is rolled back is gone if it belongs to its transaction.
    let sent = |statement: &&String| {
        statement.contains("'outbox'")
            && (statement.contains("(false") || statement.ends_with("COMMIT"))
    };
    let count = transactions.iter().filter(sent).count();
    let places = ["whole", "long", "half", "flag", "text"].map(|name| format!("{name}:header"));
    let sides = Sides {
        contract_keys: keys_of("e_messages/connector.json")?,
        router: "outbox",
        replacement: "${routedByValue}",
        places: places.join(","),
        has_time: false,
        case: "e_messages/connector.json",
    };
    let worker = started(&mut worker, &fixture)?;
    let running = sides.run(worker, &fixture, &topics, count, &transactions);
    running.await.with_context(|| format!("E2E_SEED={seed}"))
}

/// The keys of a case's file.
fn keys_of(case: &str) -> Result<Map<String, Value>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/../crates/debezium/tests/cases/{case}");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    if case.ends_with(".properties") {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        return Ok(pairs
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect());
    }
    let mut body: Value = serde_json::from_str(&text)?;
    let keys = body.get_mut("config").map(Value::take).unwrap_or(body);
    match keys {
        Value::Object(keys) => Ok(keys),
        other => anyhow::bail!("no keys: {other}"),
    }
}

/// One configuration for two readers.
pub(crate) struct Sides {
    pub(crate) contract_keys: Map<String, Value>,
    pub(crate) router: &'static str,
    pub(crate) replacement: &'static str,
    pub(crate) places: String,
    pub(crate) has_time: bool,
    pub(crate) case: &'static str,
}

impl Sides {
    pub(crate) fn keys(&self, fixture: &Fixture, side: &str) -> Map<String, Value> {
        let mut keys = self.contract_keys.clone();
        let prefix = keys.get("topic.prefix").cloned();
        let mut set = |key: &str, value: String| keys.insert(key.to_owned(), value.into());
        set("name", fixture.database.clone());
        set("database.hostname", "127.0.0.1".into());
        set("database.port", fixture.servers.postgres.port().to_string());
        set("database.user", "postgres".into());
        set("database.password", PASSWORD.into());
        set("database.dbname", fixture.database.clone());
        set("slot.name", slot_of(fixture, side));
        set("publication.name", fixture.publication.clone());
        let option = |name: &str| format!("transforms.{}.{name}", self.router);
        let replacement = format!("{side}.{}.{}", fixture.database, self.replacement);
        set(&option("route.topic.replacement"), replacement);
        let key = option("table.fields.additional.placement");
        let own = self.contract_keys.get(&key).and_then(Value::as_str);
        let own = own.map_or_else(String::new, |own| format!("{own},"));
        set(&key, format!("{own}{}", self.places));
        // One broker, and one replica.
        for group in ["default", "compacted"] {
            let key = format!("topic.creation.{group}.replication.factor");
            if self.contract_keys.contains_key(&key) {
                set(&key, "1".into());
            }
        }
        if self.contract_keys.contains_key("database.sslmode") {
            set("database.sslmode", "disable".into());
            keys.remove("database.sslrootcert");
        }
        keys.entry("snapshot.mode").or_insert("no_data".into());
        debug_assert_eq!(keys.get("topic.prefix").cloned(), prefix);
        keys
    }

    /// The file as ours reads it: in the form that it has.
    pub(crate) fn file(&self, keys: &Map<String, Value>) -> (&'static str, String) {
        if self.case.ends_with(".properties") {
            let line = |(key, value): (&String, &Value)| {
                let value = value.as_str().unwrap_or_default().replace('\\', "\\\\");
                format!("{key}={value}\n")
            };
            return ("connector.properties", keys.iter().map(line).collect());
        }
        let text = match self.case.starts_with('a') {
            true => json!({ "name": keys.get("name"), "config": keys }).to_string(),
            false => Value::from(keys.clone()).to_string(),
        };
        ("connector.json", text)
    }

    async fn run(
        &self,
        worker: &Worker,
        fixture: &Fixture,
        topics: &[&str],
        count: usize,
        transactions: &[String],
    ) -> Result<()> {
        let name = fixture.database.as_str();
        let began = now_ms()?;
        let theirs = Value::from(self.keys(fixture, "theirs"));
        worker.put(name, &theirs).await?;
        let (file, text) = self.file(&self.keys(fixture, "ours"));
        let brokers = fixture.servers.kafka.bootstrap();
        let connector = Connector::start_file(file, &text, &["--brokers", &brokers], &[])?;
        connector.ready().await?;
        let client = fixture.client().await?;
        for statements in transactions {
            let done = client.batch_execute(statements).await;
            done.context(statements.clone())?;
        }
        let mut read = Vec::new();
        for side in SIDES {
            let look = || both_run(worker, name, &connector);
            let lines = lines(fixture, side, topics, count, look).await;
            read.push(lines.context(side)?);
        }
        worker.call("DELETE", &format!("/connectors/{name}"), "")?;
        connector.stop().await?;
        let [theirs, ours] = read.as_slice() else {
            anyhow::bail!("two sides");
        };
        ensure!(theirs.len() == count && ours.len() == count);
        let mut rules = Vec::new();
        // Messages have no context headers.
        if !self.case.starts_with('e') {
            rules.push(Rule::RunId);
        }
        if !self.has_time {
            rules.push(Rule::ReadTime(began..=now_ms()?));
        }
        if !self.case.starts_with('e') && has_old_digits()? {
            rules.push(Rule::OldJavaDigits);
        }
        compare(theirs, ours, &rules)
    }
}

pub(crate) fn now_ms() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}
