//! Golden cases: what the real Event Router and the real converters made of the same rows, byte for byte.
//!
//! `smt/cases.txt` has one block per case: the router's options, the payload's text, and what came out - topic,
//! partition, timestamp, headers under `SimpleHeaderConverter`, and key and value under each converter. Where Debezium
//! throws, [`RULES`] and [`SMT_RULES`] say what happens here; a rule that matches nothing fails.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use std::collections::BTreeSet;

use pgoutput::{Column, Relation, Value};
use router::connect::{
    Catalog, CatalogColumn, ConnectConfig, ConnectRouter, ContextHeaders, ConverterConfig,
    EventRouterConfig, JsonConverterConfig, MissingBehavior, Placement, Routed, TimeMode,
};
use router::{ConnectConfigError, RecordBuffer, RouteError};

mod fixture;

const NOW_MS: i64 = 1_700_000_000_123;
const CASES: &str = include_str!("smt/cases.txt");

#[test]
fn every_case_gives_what_debezium_gave() {
    let cases = parse(CASES);
    assert_eq!(cases.len(), 62);
    let names: BTreeSet<_> = cases.iter().map(|case| (case.name, case.payload)).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");
    let mut used = BTreeSet::new();
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(why) = check(case, &mut used) {
            failures.push(format!(
                "{} payload={:?}\n    {why}",
                case.name, case.payload
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} cases differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    let rules = RULES.iter().map(|rule| rule.says);
    let smt_rules = SMT_RULES.iter().map(|(name, _)| *name);
    let unused: Vec<_> = rules
        .chain(smt_rules)
        .filter(|rule| !used.contains(rule))
        .collect();
    assert!(unused.is_empty(), "rules that match nothing: {unused:?}");
}

/// What happens here where a converter throws in Java.
struct Rule {
    /// Part of the exception's text.
    says: &'static str,
    ours: Ours,
}

enum Ours {
    /// The row is refused: nothing better can be done than to say so.
    Refused,
    /// The JSON text stands as it is; beside a schema, as a string under the column's schema.
    JsonText,
}

const RULES: [Rule; 4] = [
    Rule {
        says: "Invalid schema type for ByteArrayConverter",
        ours: Ours::Refused,
    },
    Rule {
        says: "requires a delegate.converter.type",
        ours: Ours::Refused,
    },
    Rule {
        says: "Invalid type for ARRAY",
        ours: Ours::JsonText,
    },
    Rule {
        says: "Invalid type for STRUCT",
        ours: Ours::JsonText,
    },
];

/// What happens here where the Event Router itself throws, by the case's name.
enum Smt {
    /// The configuration is refused.
    Config(fn(&ConnectConfigError) -> bool),
    /// The option's text is refused before it becomes part of a configuration.
    Option,
    /// The row is refused.
    Row(fn(&RouteError) -> bool),
    /// There is a record.
    Record(fn(&router::Record<'_>) -> bool),
}

const SMT_RULES: [(&str, Smt); 18] = [
    (
        "envelope+expand root array",
        Smt::Record(|record| {
            record.payload == Some(br#"{"payload":[1],"eventType":"OrderCreated"}"#)
        }),
    ),
    ("missing field", Smt::Row(is_missing)),
    // 3.6 forgot the old name of the option; here it still says what it said.
    (
        "legacy error.on.missing",
        Smt::Record(|record| record.header_count() == 1),
    ),
    ("placement not pair", Smt::Option),
    (
        "partition bigint",
        Smt::Record(|record| record.partition == Some(5)),
    ),
    (
        "partition smallint",
        Smt::Record(|record| record.partition == Some(5)),
    ),
    (
        "regex custom no named group",
        Smt::Config(|error| matches!(error, ConnectConfigError::Replacement { .. })),
    ),
    (
        "bad regex",
        Smt::Config(|error| matches!(error, ConnectConfigError::Pattern { .. })),
    ),
    ("missing id col", Smt::Row(is_missing)),
    (
        "empty key cfg",
        Smt::Config(|error| matches!(error, ConnectConfigError::Name { .. })),
    ),
    ("missing payload col", Smt::Row(is_missing)),
    ("missing route col", Smt::Row(is_missing)),
    (
        "route null",
        Smt::Row(|error| matches!(error, RouteError::NullAggregateType { .. })),
    ),
    (
        "event ts null",
        Smt::Record(|record| record.timestamp_ms == Some(NOW_MS)),
    ),
    (
        "event ts io.debezium.time.MicroTime",
        Smt::Row(|error| matches!(error, RouteError::BadValue { .. })),
    ),
    (
        "event ts timestamptz",
        Smt::Record(|record| record.timestamp_ms == Some(NOW_MS)),
    ),
    (
        "event ts connect",
        Smt::Record(|record| record.timestamp_ms == Some(NOW_MS)),
    ),
    ("op.invalid bad", Smt::Option),
];

fn is_missing(error: &RouteError) -> bool {
    matches!(error, RouteError::MissingColumn { .. })
}

/// A block of the file.
struct Case<'t> {
    name: &'t str,
    options: Vec<(&'t str, &'t str)>,
    payload: &'t str,
    throws: bool,
    lines: Vec<&'t str>,
}

fn parse(text: &str) -> Vec<Case<'_>> {
    let blocks = text.split("\n## ").skip(1);
    blocks
        .map(|block| {
            let block = block.split("\nmurmur2 ").next().unwrap();
            let (name, rest) = block.split_once(" cfg={").unwrap();
            let (options, rest) = rest.split_once("} payload=").unwrap();
            let throws = !rest.contains("\n   topic=");
            let marker = if throws {
                "\n   SMT THROWS"
            } else {
                "\n   topic="
            };
            let at = rest.find(marker).unwrap();
            Case {
                name,
                options: parse_options(options),
                payload: &rest[..at],
                throws,
                lines: rest[at + 1..].lines().map(str::trim_start).collect(),
            }
        })
        .collect()
}

/// `a=1, b=2`, where values hold commas too: an option begins with one of two words.
fn parse_options(text: &str) -> Vec<(&str, &str)> {
    let mut starts: Vec<_> = text
        .match_indices(", ")
        .map(|(at, _)| at + 2)
        .filter(|at| text[*at..].starts_with("table.") || text[*at..].starts_with("route."))
        .collect();
    starts.insert(0, 0);
    let ends = starts
        .iter()
        .skip(1)
        .map(|start| start - 2)
        .chain([text.len()]);
    let entries = starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &text[*start..end]);
    entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| entry.split_once('=').unwrap())
        .collect()
}

fn check(case: &Case<'_>, used: &mut BTreeSet<&'static str>) -> Result<(), String> {
    if case.throws {
        return check_smt_rule(case, used);
    }
    let simple = ConverterConfig::Simple {};
    let text = ConverterConfig::String {};
    let out = run(case, &text, &text, &simple).map_err(|why| format!("{why:?}"))?;
    let record = out.get(0);
    let mut lines = case.lines.iter();
    let first = lines.next().unwrap();
    let timestamp = record.timestamp_ms.unwrap_or(-1);
    let partition = record
        .partition
        .map_or("null".to_owned(), |number| number.to_string());
    let start = format!("topic={} part={partition} ts={timestamp} ", record.topic);
    same(
        "topic line",
        first.get(..start.len()).unwrap_or(first),
        &start,
    )?;
    let mut headers = record.headers();
    for line in lines {
        if let Some(header) = line.strip_prefix("hdr ") {
            let (name, value) = headers.next().ok_or("a header is missing")?;
            let shown = format!("{name} = {}", shown(value));
            same("header", header.rsplit_once("   [").unwrap().0, &shown)?;
            continue;
        }
        let (converter, columns) = line.split_once(": key=").unwrap();
        let (key, value) = columns.split_once("  value=").unwrap();
        let config = converter_named(converter);
        let out = run(case, &config, &text, &simple);
        check_column(case, converter, "key", key, &out, used)?;
        let out = run(case, &text, &config, &simple);
        check_column(case, converter, "value", value, &out, used)?;
    }
    match headers.next() {
        Some((name, _)) => Err(format!("there is a header {name} too many")),
        None => Ok(()),
    }
}

fn check_column(
    case: &Case<'_>,
    converter: &str,
    column: &str,
    expected: &str,
    out: &Result<RecordBuffer, Failure>,
    used: &mut BTreeSet<&'static str>,
) -> Result<(), String> {
    let what = format!("{converter} {column}");
    let bytes = |out: &RecordBuffer| {
        let record = out.get(0);
        shown(if column == "key" {
            record.key
        } else {
            record.payload
        })
    };
    let Some(thrown) = expected.strip_prefix("THROWS ") else {
        let out = out.as_ref().map_err(|why| format!("{what}: {why:?}"))?;
        return same(&what, expected, &bytes(out));
    };
    let rule = RULES.iter().find(|rule| thrown.contains(rule.says));
    let rule = rule.ok_or_else(|| format!("{what}: no rule for {thrown}"))?;
    used.insert(rule.says);
    match (&rule.ours, out) {
        (Ours::Refused, Err(Failure::Route(RouteError::Unconvertible { .. }))) => Ok(()),
        (Ours::JsonText, Ok(out)) => {
            let expected = match converter {
                "Json(t)" => format!(
                    r#"{{"schema":{{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}},"payload":{}}}"#,
                    serde_json::to_string(case.payload).unwrap()
                ),
                _ => case.payload.to_owned(),
            };
            same(&what, &expected, &bytes(out))
        }
        (_, other) => Err(format!(
            "{what}: {:?} instead of what the rule says",
            other.as_ref().err()
        )),
    }
}

fn check_smt_rule(case: &Case<'_>, used: &mut BTreeSet<&'static str>) -> Result<(), String> {
    let rule = SMT_RULES.iter().find(|(name, _)| *name == case.name);
    let (name, smt) = rule.ok_or_else(|| format!("no rule for {}", case.lines[0]))?;
    used.insert(name);
    let text = ConverterConfig::String {};
    let json = converter_named("Json(f)");
    let holds = match (smt, run(case, &text, &json, &ConverterConfig::Simple {})) {
        (Smt::Option, Err(Failure::Option)) => true,
        (Smt::Config(is_it), Err(Failure::Config(error))) => is_it(&error),
        (Smt::Row(is_it), Err(Failure::Route(error))) => is_it(&error),
        (Smt::Record(is_it), Ok(out)) => is_it(&out.get(0)),
        _ => false,
    };
    if holds {
        Ok(())
    } else {
        Err("not what the rule says".to_owned())
    }
}

#[derive(Debug)]
enum Failure {
    Option,
    Config(ConnectConfigError),
    Route(RouteError),
}

fn run(
    case: &Case<'_>,
    key: &ConverterConfig,
    value: &ConverterConfig,
    header: &ConverterConfig,
) -> Result<RecordBuffer, Failure> {
    let mut config = ConnectConfig {
        topic_prefix: "srv".to_owned(),
        key_converter: key.clone(),
        value_converter: value.clone(),
        header_converter: header.clone(),
        context_headers: ContextHeaders::None,
        ..ConnectConfig::default()
    };
    for (option, text) in &case.options {
        set_option(&mut config.event_router, option, text).ok_or(Failure::Option)?;
    }
    config.types.time_precision_mode = match case.name {
        "event ts io.debezium.time.NanoTimestamp" => TimeMode::Nanoseconds,
        "event ts connect" => TimeMode::Connect,
        _ => TimeMode::Adaptive,
    };
    let columns = columns(case);
    let mut catalog = Catalog::new();
    for column in &columns {
        let about = CatalogColumn {
            not_null: column.not_null,
            default_expression: column.default.map(str::to_owned),
        };
        catalog.insert_column("public", "outbox", column.name, about);
    }
    let relation = relation(&columns);
    let values: Vec<_> = columns.iter().map(|column| column.value()).collect();
    let message = fixture::insert(relation.id, &values);
    let mut router = ConnectRouter::new(config, "run").map_err(Failure::Config)?;
    router.set_catalog(catalog);
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    let routed = router.route(&fixture::row(&relation, &message), NOW_MS, &mut out);
    assert_eq!(routed.map_err(Failure::Route)?, Routed::Record);
    Ok(out)
}

struct InputColumn<'t> {
    name: &'t str,
    oid: u32,
    modifier: i32,
    not_null: bool,
    default: Option<&'t str>,
    text: Option<&'t str>,
}

impl InputColumn<'_> {
    fn value(&self) -> Value<'_> {
        self.text
            .map_or(Value::Null, |text| Value::Text(text.as_bytes()))
    }
}

const UUID: &str = "5f1d7e9c-0000-4000-8000-000000000001";

/// The row of a case: the one that the file's heading describes, with what its name says instead.
fn columns<'t>(case: &Case<'t>) -> Vec<InputColumn<'t>> {
    let column = |name, oid, text| InputColumn {
        name,
        oid,
        modifier: -1,
        not_null: true,
        default: None,
        text: Some(text),
    };
    let mut columns = vec![
        column("id", 2950, UUID),
        column("aggregatetype", 1043, "Order"),
        column("aggregateid", 25, "42"),
        column("type", 1043, "OrderCreated"),
        column("payload", 3802, case.payload),
    ];
    columns[4].not_null = false;
    let timestamp = "2023-11-14 22:13:20.123";
    match case.name {
        "default null payload" => columns[4].text = None,
        "null payload w/ column default {}" => {
            columns[4].text = None;
            columns[4].default = Some("'{}'::jsonb");
        }
        "tombstone empty bytea" => (columns[4].oid, columns[4].text) = (17, Some("\\x")),
        "bytea" => {
            columns[0] = column("id", 20, "9");
            columns[2] = column("aggregateid", 20, "42");
            (columns[4].oid, columns[4].text) = (17, Some("\\x00726177"));
        }
        "text id" => {
            columns[0] = column("id", 25, "evt-1");
            columns[2] = column("aggregateid", 23, "42");
            columns[4].oid = 25;
        }
        "envelope+headers" | "envelope+expand root array" => columns.extend([
            column("ver", 21, "3"),
            column("flag", 16, "t"),
            column("part", 23, "5"),
            column("ts", 1114, "2023-11-14 22:13:20.123456"),
            column("raw", 17, "\\x0102ff"),
            column("arr", 1009, r#"{"a\"b",c}"#),
        ]),
        "envelope schema version" | "schema version no envelope" => {
            columns.push(column("v", 23, "4"))
        }
        "partition bigint" => columns.push(column("p", 20, "5")),
        "partition smallint" => columns.push(column("p", 21, "5")),
        "route null" => columns.push(InputColumn {
            text: None,
            ..column("n", 25, "")
        }),
        "uuid key" => columns[2] = column("aggregateid", 2950, UUID),
        "event ts io.debezium.time.Timestamp" => columns.push(InputColumn {
            modifier: 3,
            ..column("ts", 1114, timestamp)
        }),
        "event ts io.debezium.time.NanoTimestamp" | "event ts connect" => {
            columns.push(column("ts", 1114, timestamp));
        }
        "event ts null" => columns.push(column("ts", 20, "1700000000123")),
        "event ts io.debezium.time.MicroTime" => columns.push(column("ts", 1083, "12:00:00")),
        // One microsecond and a half before the epoch's first millisecond: Java cuts towards zero.
        "event ts io.debezium.time.MicroTimestamp" => {
            columns.push(column("ts", 1114, "1969-12-31 23:59:59.9985"));
        }
        "event ts timestamptz" => columns.push(column("ts", 1184, "2023-11-14 22:13:20.123+00")),
        _ => {}
    }
    columns
}

fn relation(columns: &[InputColumn<'_>]) -> Relation {
    let names = columns.iter().map(|column| (column.name, column.oid));
    let mut relation = fixture::relation(7, "public", "outbox", names);
    relation.columns = columns
        .iter()
        .map(|column| Column {
            key: false,
            name: column.name.to_owned(),
            type_oid: column.oid,
            type_modifier: column.modifier,
        })
        .collect();
    relation
}

/// `None`: the text is no value of the option.
fn set_option(config: &mut EventRouterConfig, option: &str, text: &str) -> Option<()> {
    let owned = text.to_owned();
    match option {
        "table.field.event.id" => config.table_field_event_id = owned,
        "table.field.event.key" => config.table_field_event_key = owned,
        "table.field.event.payload" => config.table_field_event_payload = owned,
        "table.field.event.timestamp" => config.table_field_event_timestamp = Some(owned),
        "table.field.event.schema.version" => config.table_field_event_schema_version = Some(owned),
        "route.by.field" => config.route_by_field = owned,
        "route.topic.regex" => config.route_topic_regex = owned,
        "route.topic.replacement" => config.route_topic_replacement = owned,
        "route.tombstone.on.empty.payload" => {
            config.route_tombstone_on_empty_payload = text.parse().ok()?;
        }
        "table.expand.json.payload" => config.table_expand_json_payload = text.parse().ok()?,
        "table.fields.additional.placement" => {
            config.table_fields_additional_placement = Placement::parse_list(text).ok()?;
        }
        "table.fields.additional.error.on.missing" => {
            config.table_field_additional_missing = match text {
                "false" => MissingBehavior::Ignore,
                _ => MissingBehavior::Error,
            };
        }
        // The rest are words; they are read as the configuration file reads them.
        _ => {
            let key = option.replace('.', "_");
            let read: EventRouterConfig = toml::from_str(&format!("{key} = {text:?}")).ok()?;
            match option {
                "table.op.invalid.behavior" => {
                    config.table_op_invalid_behavior = read.table_op_invalid_behavior;
                }
                "table.field.additional.missing" => {
                    config.table_field_additional_missing = read.table_field_additional_missing;
                }
                "table.json.payload.null.behavior" => {
                    config.table_json_payload_null_behavior = read.table_json_payload_null_behavior;
                }
                "table.json.payload.empty.array.behavior" => {
                    config.table_json_payload_empty_array_behavior =
                        read.table_json_payload_empty_array_behavior;
                }
                _ => panic!("unknown option {option}"),
            }
        }
    }
    Some(())
}

fn converter_named(name: &str) -> ConverterConfig {
    let json = |schemas_enable| {
        ConverterConfig::Json(JsonConverterConfig {
            schemas_enable,
            ..JsonConverterConfig::default()
        })
    };
    match name {
        "String" => ConverterConfig::String {},
        "Json(f)" => json(false),
        "Json(t)" => json(true),
        "ByteArray" => ConverterConfig::ByteArray {},
        "BinaryData" => ConverterConfig::BinaryData { delegate: None },
        "BinaryData+Json(f)" => ConverterConfig::BinaryData {
            delegate: Some(Box::new(json(false))),
        },
        _ => panic!("unknown converter {name}"),
    }
}

/// As the file shows bytes: null has a word, and NUL is left out.
fn shown(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "<null>".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).replace('\0', ""),
    }
}

fn same(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!(
        "{what}:\n      expected {expected}\n      found    {found}"
    ))
}
