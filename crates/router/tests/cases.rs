//! The contract, as data: each file of `tests/cases` holds cases of one part of it, and each case feeds relations and
//! rows to a router of its own.
//!
//! A row names only the columns that matter; `id`, `aggregatetype`, `aggregateid` and `payload` are `1`, `order`,
//! `o-1` and `{}` unless said otherwise. A record names only the parts that matter, and the rest is what such a row
//! gives under the defaults. Bytes are written as text, `null`, `{"hex": "00ff"}`, `{"repeat": ["a", 250]}`, or a
//! list of these; a row's value may also be `{"unsupported": "toast"}` or `{"unsupported": "binary"}`.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use pgoutput::{Relation, Value};
use router::{Record, RecordBuffer, RouteError, Router, RouterConfig};
use serde::Deserialize;

mod fixture;

macro_rules! case_files {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check_file(stringify!($name)); })*
        const CASE_FILES: &[&str] = &[$(stringify!($name)),*];
    };
}

case_files!(
    bytea,
    headers,
    keys,
    nulls,
    partitions,
    payloads,
    schema_changes,
    timestamps,
    topics,
    unsupported,
);

#[test]
fn every_case_file_is_run() {
    let mut found: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, CASE_FILES);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    tables: Vec<router::TableName>,
    #[serde(default)]
    config: RouterConfig,
    /// Domain to base type, by the numbers that stand for the types in `relation`.
    #[serde(default)]
    base_types: HashMap<u32, u32>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Step {
    Relation {
        /// Columns and types, in order.
        relation: Vec<(String, Type)>,
        #[serde(default = "relation_id")]
        id: u32,
        #[serde(default = "public")]
        schema: String,
        #[serde(default = "outbox")]
        table: String,
    },
    Record {
        row: BTreeMap<String, Bytes>,
        #[serde(default = "relation_id")]
        of: u32,
        record: Expected,
    },
    Error {
        row: BTreeMap<String, Bytes>,
        #[serde(default = "relation_id")]
        of: u32,
        error: String,
        says: Vec<String>,
    },
    Nothing {
        row: BTreeMap<String, Bytes>,
        of: u32,
        nothing: bool,
    },
}

fn relation_id() -> u32 {
    7
}

fn public() -> String {
    "public".to_owned()
}

fn outbox() -> String {
    "outbox".to_owned()
}

/// A type's name, or an oid of the case's own.
#[derive(Deserialize)]
#[serde(untagged)]
enum Type {
    Name(String),
    Oid(u32),
}

impl Type {
    fn oid(&self) -> u32 {
        match self {
            Self::Oid(oid) => *oid,
            Self::Name(name) => match name.as_str() {
                "bool" => 16,
                "bytea" => 17,
                "int8" => 20,
                "int2" => 21,
                "int4" => 23,
                "text" => 25,
                "json" => 114,
                "inet" => 869,
                "text[]" => 1009,
                "bpchar" => 1042,
                "date" => 1082,
                "timestamp" => 1114,
                "timestamptz" => 1184,
                "interval" => 1186,
                "numeric" => 1700,
                "uuid" => 2950,
                "jsonb" => 3802,
                other => panic!("no oid is known for {other}"),
            },
        }
    }
}

#[derive(Deserialize, Clone)]
#[serde(untagged, deny_unknown_fields)]
enum Bytes {
    Null,
    Text(String),
    Hex { hex: String },
    Repeat { repeat: (String, usize) },
    List(Vec<Self>),
    Unsupported { unsupported: String },
}

impl Bytes {
    fn read(&self) -> Option<Vec<u8>> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::Hex { hex } => {
                let digits: Vec<_> = hex.chars().collect();
                let byte = |pair: &[char]| {
                    u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()
                };
                Some(digits.chunks(2).map(byte).collect())
            }
            Self::Repeat {
                repeat: (text, times),
            } => Some(text.repeat(*times).into_bytes()),
            Self::List(parts) => Some(parts.iter().flat_map(|part| part.read().unwrap()).collect()),
            Self::Unsupported { .. } => panic!("not among expected bytes"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default = "default_topic")]
    topic: Bytes,
    #[serde(default = "default_key")]
    key: Bytes,
    #[serde(default = "default_value")]
    value: Bytes,
    #[serde(default = "default_headers")]
    headers: Vec<(String, Bytes)>,
    #[serde(default = "default_timestamp_ms")]
    timestamp_ms: Option<i64>,
    #[serde(default)]
    partition: Option<i32>,
}

fn default_topic() -> Bytes {
    Bytes::Text("outbox.event.order".to_owned())
}

fn default_key() -> Bytes {
    Bytes::Text("o-1".to_owned())
}

fn default_value() -> Bytes {
    Bytes::Text("{}".to_owned())
}

fn default_headers() -> Vec<(String, Bytes)> {
    vec![("id".to_owned(), Bytes::Text("1".to_owned()))]
}

fn default_timestamp_ms() -> Option<i64> {
    Some(fixture::COMMIT_TIME.unix_micros() / 1000)
}

impl Expected {
    fn check(&self, record: &Record<'_>, at: &str) {
        let topic = self.topic.read().unwrap();
        assert_eq!(
            record.topic,
            String::from_utf8(topic).unwrap(),
            "{at}: topic"
        );
        assert_bytes(record.key, &self.key, &format!("{at}: key"));
        assert_bytes(record.payload, &self.value, &format!("{at}: value"));
        let names: Vec<_> = record.headers().map(|(name, _)| name).collect();
        let expected: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected, "{at}: headers");
        for ((name, value), (_, expected)) in record.headers().zip(&self.headers) {
            assert_bytes(value, expected, &format!("{at}: header {name}"));
        }
        assert_eq!(record.timestamp_ms, self.timestamp_ms, "{at}: timestamp");
        assert_eq!(record.partition, self.partition, "{at}: partition");
    }
}

#[track_caller]
fn assert_bytes(actual: Option<&[u8]>, expected: &Bytes, at: &str) {
    let expected = expected.read();
    let shown = actual.map(String::from_utf8_lossy);
    let expected_shown = expected.as_deref().map(String::from_utf8_lossy);
    assert!(
        actual == expected.as_deref(),
        "{at}: {shown:?} is not {expected_shown:?}"
    );
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn check_file(name: &str) {
    let path = folder().join(name).with_extension("json");
    let text = std::fs::read_to_string(path).unwrap();
    let cases: Vec<Case> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!cases.is_empty(), "{name}");
    for case in cases {
        check_case(case);
    }
}

fn check_case(case: Case) {
    let tables = match case.tables.as_slice() {
        [] => vec!["public.outbox".parse().unwrap()],
        tables => tables.to_vec(),
    };
    let mut router = Router::new(RouterConfig {
        tables,
        ..case.config
    })
    .unwrap();
    router.set_base_types(case.base_types);
    let mut relations = HashMap::new();
    for (index, step) in case.steps.iter().enumerate() {
        let at = format!("{}, step {index}", case.name);
        let (row, of) = match step {
            Step::Relation {
                relation,
                id,
                schema,
                table,
            } => {
                let columns = relation
                    .iter()
                    .map(|(name, kind)| (name.as_str(), kind.oid()));
                let relation = fixture::relation(*id, schema, table, columns);
                router.handle_relation(&relation);
                relations.insert(*id, relation);
                continue;
            }
            Step::Record { row, of, .. }
            | Step::Error { row, of, .. }
            | Step::Nothing { row, of, .. } => (row, of),
        };
        let routed = route(&mut router, &relations[of], row, &at);
        check_routed(step, &routed, &at);
    }
}

fn check_routed(step: &Step, routed: &Result<Option<RecordBuffer>, RouteError>, at: &str) {
    match (step, routed) {
        (Step::Record { record, .. }, Ok(Some(out))) => record.check(&out.get(0), at),
        (Step::Nothing { nothing: true, .. }, Ok(None)) => {}
        (Step::Error { error, says, .. }, Err(found)) => {
            assert!(format!("{found:?}").starts_with(error), "{at}: {found:?}");
            let message = found.to_string();
            for part in says {
                assert!(
                    message.contains(part),
                    "{at}: {part:?} is not in {message:?}"
                );
            }
            assert!(!message.contains("secret"), "{at}: {message}");
        }
        (_, Ok(_)) => panic!("{at}: made something else"),
        (_, Err(error)) => panic!("{at}: {error}"),
    }
}

/// What the router makes of one row.
fn route(
    router: &mut Router,
    relation: &Relation,
    row: &BTreeMap<String, Bytes>,
    at: &str,
) -> Result<Option<RecordBuffer>, RouteError> {
    for name in row.keys() {
        assert!(relation.column(name).is_some(), "{at}: no column {name}");
    }
    let given: Vec<_> = relation
        .columns
        .iter()
        .map(|column| match row.get(&column.name) {
            Some(value) => value.clone(),
            None => default_field(&column.name, at),
        })
        .collect();
    let texts: Vec<_> = given
        .iter()
        .map(|value| match value {
            Bytes::Unsupported { .. } => None,
            text => text.read(),
        })
        .collect();
    let values: Vec<_> = given
        .iter()
        .zip(&texts)
        .map(|(given, text)| match (given, text) {
            (Bytes::Unsupported { unsupported }, _) if unsupported == "toast" => {
                Value::UnchangedToast
            }
            (Bytes::Unsupported { .. }, _) => Value::Binary(b"secret"),
            (_, Some(text)) => Value::Text(text),
            (_, None) => Value::Null,
        })
        .collect();
    let message = fixture::insert(relation.id, &values);
    let mut out = RecordBuffer::new();
    let made = router.route(&fixture::row(relation, &message), &mut out)?;
    assert_eq!(out.len(), usize::from(made), "{at}");
    Ok(made.then_some(out))
}

fn default_field(column: &str, at: &str) -> Bytes {
    let text = match column {
        "id" => "1",
        "aggregatetype" => "order",
        "aggregateid" => "o-1",
        "payload" => "{}",
        other => panic!("{at}: the row has no value for {other}"),
    };
    Bytes::Text(text.to_owned())
}
