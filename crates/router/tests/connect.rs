//! The contract with Debezium beyond the golden cases: headers, keys, values, transforms and logical messages.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use pgoutput::{Lsn, Value};
use router::connect::{
    Catalog, CatalogColumn, CatalogType, CatalogTypeKind, ConnectConfig, ConnectRouter, DropReason,
    LogicalMessage, Routed,
};
use router::{ConnectConfigError, Record, RecordBuffer, RouteError};
use serde::Deserialize;

mod fixture;

const NOW_MS: i64 = 1_700_000_000_123;

/// A table with these columns: name, type, text, and an expression that is its default.
struct Table<'t> {
    name: &'t str,
    columns: Vec<(&'t str, u32, Option<&'t str>)>,
    defaults: Vec<(&'t str, &'t str)>,
    /// Of the last column's type.
    modifier: i32,
}

fn outbox<'t>(extra: &[(&'t str, u32, Option<&'t str>)]) -> Table<'t> {
    let mut columns = vec![
        ("id", 2950, Some("5f1d7e9c-0000-4000-8000-000000000001")),
        ("aggregatetype", 1043, Some("Order")),
        ("aggregateid", 25, Some("42")),
        ("payload", 3802, Some(r#"{"a": 1}"#)),
    ];
    for column in extra {
        columns.retain(|(name, ..)| name != &column.0);
        columns.push(*column);
    }
    Table {
        name: "outbox",
        columns,
        defaults: Vec::new(),
        modifier: -1,
    }
}

fn config(text: &str) -> ConnectConfig {
    toml::from_str(&format!("topic_prefix = \"srv\"\n{text}")).unwrap()
}

fn catalog(table: &Table<'_>) -> Catalog {
    let mut catalog = Catalog::new();
    for (name, ..) in &table.columns {
        let default = table.defaults.iter().find(|(column, _)| column == name);
        let about = CatalogColumn {
            not_null: ["id", "aggregatetype", "aggregateid"].contains(name),
            default_expression: default.map(|(_, expression)| (*expression).to_owned()),
        };
        catalog.insert_column("public", table.name, name, about);
    }
    for (oid, name, kind) in [
        (
            9001,
            "mood",
            CatalogTypeKind::Enum {
                labels: vec!["ok".to_owned(), "sad".to_owned()],
            },
        ),
        (9002, "hstore", CatalogTypeKind::Base),
        (
            9003,
            "money_domain",
            CatalogTypeKind::Domain {
                base_oid: 1700,
                type_modifier: (10 << 16 | 2) + 4,
            },
        ),
        (9004, "citext", CatalogTypeKind::Base),
        (9005, "_mood", CatalogTypeKind::Array { element_oid: 9001 }),
        (9006, "pair", CatalogTypeKind::Composite),
    ] {
        let name = name.to_owned();
        catalog.insert_type(oid, CatalogType { name, kind });
    }
    catalog
}

fn route_with(
    config: ConnectConfig,
    table: &Table<'_>,
    out: &mut RecordBuffer,
) -> Result<Routed, RouteError> {
    let mut router = ConnectRouter::new(config, "run-1").unwrap();
    route_by(&mut router, table, out)
}

fn route_by(
    router: &mut ConnectRouter,
    table: &Table<'_>,
    out: &mut RecordBuffer,
) -> Result<Routed, RouteError> {
    router.set_catalog(catalog(table));
    let columns = table.columns.iter().map(|(name, oid, _)| (*name, *oid));
    let mut relation = fixture::relation(7, "public", table.name, columns);
    relation.columns.last_mut().unwrap().type_modifier = table.modifier;
    router.handle_relation(&relation);
    let values: Vec<_> = table
        .columns
        .iter()
        .map(|(_, _, text)| text.map_or(Value::Null, |text| Value::Text(text.as_bytes())))
        .collect();
    let message = fixture::insert(7, &values);
    router.route(&fixture::row(&relation, &message), NOW_MS, out)
}

#[track_caller]
fn with_record<T>(text: &str, table: &Table<'_>, look: impl FnOnce(&Record<'_>) -> T) -> T {
    let mut out = RecordBuffer::new();
    assert_eq!(
        route_with(config(text), table, &mut out),
        Ok(Routed::Record)
    );
    look(&out.get(0))
}

fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or("<null>".to_owned(), |bytes| {
        String::from_utf8_lossy(bytes).into_owned()
    })
}

fn headers(record: &Record<'_>) -> Vec<String> {
    record
        .headers()
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect()
}

/// Section 2.1: context headers in front, as the version has them.
#[test]
fn context_headers_come_first_and_follow_the_version() {
    let context = [
        "__debezium.context.connectorLogicalName=srv",
        "__debezium.context.taskId=0",
        "__debezium.context.connectorName=postgresql",
        "__debezium.context.runId=run-1",
    ];
    let id = "id=5f1d7e9c-0000-4000-8000-000000000001";
    for (version, count) in [
        ("3.6.1", 4),
        ("3.4.0", 4),
        ("3.3.2", 3),
        ("3.2.1", 3),
        ("3.2.0", 0),
        ("2.7.4", 0),
    ] {
        let found = with_record(
            &format!("debezium_version = {version:?}"),
            &outbox(&[]),
            headers,
        );
        let expected: Vec<_> = context[..count].iter().copied().chain([id]).collect();
        assert_eq!(found, expected, "{version}");
    }
    assert_eq!(
        with_record("context_headers = \"none\"", &outbox(&[]), headers),
        [id]
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnCase {
    modes: String,
    #[serde(rename = "type")]
    type_oid: u32,
    text: String,
    header: String,
    json: String,
}

/// Sections 2.1, 2.4 and 3.8: each column type as a header of `SimpleHeaderConverter`, and as JSON with its schema. The
/// schemas' names, versions and documentation were printed by Debezium 3.6.1's own builders.
#[test]
fn column_types_have_their_forms() {
    let cases: Vec<ColumnCase> =
        serde_json::from_str(include_str!("connect_cases/columns.json")).unwrap();
    for case in &cases {
        let table = outbox(&[("c", case.type_oid, Some(&case.text))]);
        for (converter, expected) in [("simple", &case.header), ("json", &case.json)] {
            let settings = format!(
                "context_headers = \"none\"\n{}\nheader_converter = {{ type = {converter:?} }}\n[event_router]\n\
                 table_fields_additional_placement = [\"c:header\"]",
                case.modes
            );
            let found = with_record(&settings, &table, |record| {
                text(record.headers().nth(1).unwrap().1)
            });
            assert_eq!(
                found, *expected,
                "{} {} {}",
                case.modes, case.type_oid, case.text
            );
        }
    }
}

/// Section 2.2.
#[test]
fn keys_are_converted() {
    let key = |settings: &str, oid, value| {
        let table = outbox(&[("aggregateid", oid, value)]);
        with_record(settings, &table, |record| text(record.key))
    };
    let json = "key_converter = { type = \"json\", schemas_enable = false }";
    assert_eq!(key("", 25, Some("42")), "42");
    assert_eq!(key(json, 25, Some("42")), "\"42\"");
    assert_eq!(key(json, 20, Some("42")), "42");
    assert_eq!(key("", 25, None), "<null>");
    assert_eq!(key(json, 25, None), "null");
    assert_eq!(
        key("key_converter = { type = \"json\" }", 25, Some("42")),
        r#"{"schema":{"type":"string","optional":false},"payload":"42"}"#
    );
    // Bytes: `StringConverter` prints Java's name of the buffer, there and here.
    let bytes = Some("\\x01ff00");
    assert_eq!(
        key("", 17, bytes),
        "java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]"
    );
    assert_eq!(key(json, 17, bytes), "\"Af8A\"");
    assert_eq!(
        key("key_converter = { type = \"json\" }", 17, bytes),
        r#"{"schema":{"type":"bytes","optional":false},"payload":"Af8A"}"#
    );
}

/// Sections 3.8 and 1.4: a default stands for NULL, except in what decides about the record itself.
#[test]
fn defaults_stand_for_nulls() {
    let mut table = outbox(&[("payload", 3802, None), ("c", 1114, None)]);
    table.defaults = vec![("payload", "'{}'::jsonb"), ("c", "now()")];
    let settings = "[event_router]\ntable_field_event_timestamp = \"c\"\n\
        table_fields_additional_placement = [\"c:header\"]\nroute_tombstone_on_empty_payload = true";
    with_record(settings, &table, |record| {
        assert_eq!(text(record.payload), "{}");
        assert_eq!(record.timestamp_ms, Some(NOW_MS));
        assert_eq!(headers(record).last().unwrap(), "c=0");
    });
}

/// The column `c` as a header of JSON, how many rows lost a value to a NULL, and of which column the last was.
fn conversion(modes: &str, table: &Table<'_>) -> Result<(String, u64, Option<String>), RouteError> {
    let settings = format!(
        "context_headers = \"none\"\n{modes}\nheader_converter = {{ type = \"json\", schemas_enable = false }}\n\
         [event_router]\ntable_fields_additional_placement = [\"c:header\"]"
    );
    let mut out = RecordBuffer::new();
    let mut router = ConnectRouter::new(config(&settings), "run-1").unwrap();
    route_by(&mut router, table, &mut out)?;
    let (_, value) = out.get(0).headers().nth(1).unwrap();
    let column = router.nulled_column().map(str::to_owned);
    Ok((text(value), router.tolerated().rows_nulled, column))
}

/// Seen with Debezium 3.6.1: `tests/real_connect/changes.rs`.
#[test]
fn what_cannot_be_converted_is_null_or_the_default_unless_it_has_to_fail() {
    /// numeric(10,2).
    const PRICE: i32 = (10 << 16 | 2) + 4;
    let fail = "types.event_converting_failure_handling_mode = \"fail\"";
    let skip = "types.event_converting_failure_handling_mode = \"skip\"";
    let values = [
        (1700, -1, "NaN", None, "null"),
        (1700, PRICE, "NaN", None, "null"),
        (1700, PRICE, "NaN", Some("3.25"), "\"AUU=\""),
        // A default of a variable scale is none, as it would be a struct.
        (1700, -1, "Infinity", Some("3.25"), "null"),
        (1231, -1, "{1.5,NaN}", None, "null"),
        (1009, -1, "{{a},{b}}", None, "null"),
        (3807, -1, "{{\"{}\"}}", None, "null"),
    ];
    for (oid, modifier, value, default, expected) in values {
        let mut table = outbox(&[("c", oid, Some(value))]);
        table.modifier = modifier;
        table.defaults = default.map(|text| ("c", text)).into_iter().collect();
        let nulled = Ok((expected.to_owned(), 1, Some("c".to_owned())));
        for modes in ["", skip] {
            assert_eq!(conversion(modes, &table), nulled, "{oid} {value} {modes}");
        }
        let refused = conversion(fail, &table);
        assert!(
            matches!(&refused, Err(RouteError::BadValue { column, .. }) if column == "c"),
            "{oid} {value} {refused:?}"
        );
    }
    // Here Debezium asks no mode: elements are NULL where an array is none of their type.
    for (oid, value) in [
        (1007, "{{1,2},{3,4}}"),
        (1000, "[0:1][1:1]={{t},{f}}"),
        (1182, "{{2024-01-01},{NULL}}"),
        (1231, "{{1.5},{NaN}}"),
    ] {
        let nulled = Ok(("[null,null]".to_owned(), 1, Some("c".to_owned())));
        for modes in ["", skip, fail] {
            let table = outbox(&[("c", oid, Some(value))]);
            assert_eq!(conversion(modes, &table), nulled, "{oid} {value} {modes}");
        }
    }
    // What a text is that is none of its type, nobody knows.
    let strange = outbox(&[("c", 23, Some("1x"))]);
    assert!(conversion("", &strange).is_err());
    let whole = outbox(&[("c", 1007, Some("{1,NULL}"))]);
    assert_eq!(conversion("", &whole), Ok(("[1,null]".to_owned(), 0, None)));
}

const ROUTER: &str = "{ apply = { event_router = {} }, predicate = \"is_outbox\" }";

/// What becomes of a row under a chain: the topic and the number of headers, or why there is no record.
fn outcome(transforms: &str, table: &Table<'_>) -> String {
    let settings = format!(
        "context_headers = \"none\"\ntransforms = [{transforms}]\n[predicates]\n\
         is_outbox = {{ topic_name_matches = {{ pattern = 'srv\\.public\\.outbox' }} }}\n\
         routed = {{ topic_name_matches = {{ pattern = 'outbox\\.event\\..*' }} }}\n\
         has_id = {{ has_header_key = {{ name = \"id\" }} }}\n\
         empty = {{ record_is_tombstone = {{}} }}\n"
    );
    let mut out = RecordBuffer::new();
    match route_with(config(&settings), table, &mut out).unwrap() {
        Routed::Record => format!("{} {}", out.get(0).topic, out.get(0).header_count()),
        other => format!("{other:?}"),
    }
}

fn then(apply: &str, predicate: &str) -> String {
    let predicate = match predicate {
        "" => String::new(),
        alias => format!(", predicate = {alias:?}"),
    };
    format!("{ROUTER}, {{ apply = {apply}{predicate} }}")
}

/// Section 4.8: predicates see the record as it is before their transform.
#[test]
fn transforms_behind_the_router_see_its_record() {
    let plain = outbox(&[]);
    let empty = outbox(&[("payload", 3802, None)]);
    for (transforms, table, expected) in [
        (ROUTER.to_owned(), &plain, "outbox.event.Order 1"),
        (
            then(
                "{ regex_router = { regex = 'outbox\\.(.*)', replacement = '$1' } }",
                "",
            ),
            &plain,
            "event.Order 1",
        ),
        (
            then("{ drop_headers = { headers = [\"id\"] } }", ""),
            &plain,
            "outbox.event.Order 0",
        ),
        (
            then(
                "{ insert_header = { header = \"h\", value_literal = \"v\" } }",
                "has_id",
            ),
            &plain,
            "outbox.event.Order 2",
        ),
        (
            then("{ filter = {} }", "routed"),
            &plain,
            "Dropped(Filtered)",
        ),
        (
            then("{ filter = {} }", "empty"),
            &plain,
            "outbox.event.Order 1",
        ),
        (
            then("{ filter = {} }", "empty"),
            &empty,
            "Dropped(Filtered)",
        ),
    ] {
        assert_eq!(outcome(&transforms, table), expected, "{transforms}");
    }
}

#[test]
fn transforms_before_the_router_see_the_tables_topic() {
    let plain = outbox(&[]);
    let leaf = Table {
        name: "outbox_p1",
        ..outbox(&[])
    };
    let before = |apply: &str| format!("{{ apply = {apply} }}, {ROUTER}");
    let logical = before(
        "{ by_logical_table_router = { topic_regex = '(.*)_p\\d+', topic_replacement = '$1' } }",
    );
    let filter = format!("{{ apply = {{ filter = {{}} }}, predicate = \"is_outbox\" }}, {ROUTER}");
    for (transforms, table, expected) in [
        (
            ROUTER.replace("}, predicate", "}, negate = true, predicate"),
            &plain,
            "Dropped(NotRouted)",
        ),
        (filter.clone(), &plain, "Dropped(Filtered)"),
        (filter, &leaf, "Dropped(NotRouted)"),
        (
            before("{ regex_router = { regex = \".*\", replacement = \"x\" } }"),
            &plain,
            "Dropped(NotRouted)",
        ),
        (logical.clone(), &plain, "outbox.event.Order 1"),
        (logical, &leaf, "outbox.event.Order 1"),
    ] {
        assert_eq!(outcome(&transforms, table), expected, "{transforms}");
    }
}

#[test]
fn an_inserted_header_stands_where_its_transform_stands() {
    let settings = |before: bool| {
        let insert = "{ apply = { insert_header = { header = \"h\", value_literal = \"7\" } } }";
        let router = "{ apply = { event_router = {} } }";
        let (first, second) = if before {
            (insert, router)
        } else {
            (router, insert)
        };
        format!("context_headers = \"none\"\ntransforms = [{first}, {second}]")
    };
    let id = "id=5f1d7e9c-0000-4000-8000-000000000001";
    assert_eq!(
        with_record(&settings(true), &outbox(&[]), headers),
        ["h=7", id]
    );
    assert_eq!(
        with_record(&settings(false), &outbox(&[]), headers),
        [id, "h=7"]
    );
}

#[test]
fn configurations_that_can_never_work_are_refused() {
    let refused = |text: &str| match ConnectRouter::new(config(text), "") {
        Err(error) => error,
        Ok(_) => panic!("{text}"),
    };
    let transforms = |text| matches!(refused(text), ConnectConfigError::Transforms { .. });
    assert!(transforms("transforms = []"));
    assert!(transforms(
        "transforms = [{ apply = { event_router = {} } }, { apply = { event_router = {} } }]"
    ));
    assert!(transforms(
        "transforms = [{ apply = { event_router = {} } }, { apply = { filter = {} } }]"
    ));
    assert!(matches!(
        refused("transforms = [{ apply = { event_router = {} }, predicate = \"x\" }]"),
        ConnectConfigError::UnknownPredicate { .. }
    ));
    assert!(matches!(
        refused("key_converter = { type = \"simple\" }"),
        ConnectConfigError::HeadersOnly { .. }
    ));
    assert!(matches!(
        refused("tables = { include = [\"(\"] }"),
        ConnectConfigError::Pattern { .. }
    ));
    assert!(matches!(
        refused("[event_router]\ntable_fields_additional_placement = [\"a:envelope:payload\"]"),
        ConnectConfigError::EnvelopeField { .. }
    ));
    assert!(matches!(
        refused("[event_router]\nroute_topic_replacement = \"a$\""),
        ConnectConfigError::Replacement { .. }
    ));
}

#[test]
fn tables_are_captured_by_patterns_in_full() {
    let captures = |text: &str, schema: &str, table: &str| {
        ConnectRouter::new(config(text), "")
            .unwrap()
            .captures(schema, table)
    };
    let include = "tables = { include = ['public\\.outbox', 'x.y'] }";
    assert!(captures(include, "public", "outbox"));
    assert!(captures(include, "Public", "OutBox"));
    assert!(captures(include, "x", "y"));
    assert!(!captures(include, "public", "outbox2"));
    assert!(!captures(include, "publicxoutbox", ""));
    assert!(captures("", "any", "table"));
    assert!(!captures("", "pg_catalog", "pg_class"));
    assert!(!captures("tables = { schema_exclude = ['a'] }", "a", "t"));
    assert!(captures(
        "tables = { names = ['public.outbox'] }",
        "public",
        "outbox"
    ));
    assert!(!captures(
        "tables = { names = ['public.outbox'] }",
        "public",
        "Outbox"
    ));
}

/// Section 1.4: an envelope's name has the aggregate type in it, that of the first event of its shape.
#[test]
fn an_envelope_is_named_after_the_first_event_of_its_shape() {
    let settings = "[event_router]\ntable_fields_additional_placement = [\"type:envelope\"]\n[value_converter]\ntype = \"json\"";
    let mut router = ConnectRouter::new(config(settings), "").unwrap();
    let columns = [
        ("id", 25),
        ("aggregatetype", 25),
        ("aggregateid", 25),
        ("type", 25),
        ("payload", 25),
    ];
    let relation = fixture::relation(7, "public", "outbox", columns);
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    for aggregate_type in ["Order", "Invoice"] {
        let values = ["1", aggregate_type, "k", "t", "p"].map(|text| Value::Text(text.as_bytes()));
        let message = fixture::insert(7, &values);
        router
            .route(&fixture::row(&relation, &message), NOW_MS, &mut out)
            .unwrap();
    }
    for record in out.iter() {
        assert!(text(record.payload).contains("\"name\":\"srv.public.outbox.Order.Value\""));
    }
}

/// Section 3.10.
#[test]
fn logical_messages_are_routed_once_decoded() {
    let settings = "messages = { prefix_include = [\"outbox\"] }\ntransforms = [\
        { apply = { decode_logical_message = {} }, predicate = \"is_message\" }, { apply = { event_router = {} } }]\n\
        [predicates]\nis_message = { topic_name_matches = { pattern = 'srv\\.message' } }";
    let route = |settings: &str, prefix: &str, content: &str| {
        let mut router = ConnectRouter::new(config(settings), "").unwrap();
        let mut out = RecordBuffer::new();
        let message = LogicalMessage {
            transaction: None,
            insert_index: 0,
            lsn: Lsn::new(1),
            prefix,
            content: content.as_bytes(),
        };
        let routed = router.route_message(message, NOW_MS, &mut out)?;
        let shown = out.iter().next().map(|record| {
            format!(
                "{} {} {} {}",
                record.topic,
                text(record.key),
                text(record.payload),
                headers(&record).join(",")
            )
        });
        Ok::<_, RouteError>(shown.unwrap_or_else(|| format!("{routed:?}")))
    };
    let content =
        r#"{"id":7,"aggregatetype":"Order","aggregateid":"o-1","payload":"{\"a\":1}","x":null}"#;
    assert_eq!(
        route(settings, "outbox", content).unwrap(),
        "outbox.event.Order o-1 {\"a\":1} id=7"
    );
    assert_eq!(route(settings, "other", content).unwrap(), "NotOutbox");
    assert_eq!(route("", "outbox", content).unwrap(), "NotOutbox");
    assert_eq!(
        route("messages = {}", "outbox", content).unwrap(),
        format!("{:?}", Routed::Dropped(DropReason::NotRouted))
    );
    for bad in [
        "",
        "x",
        "[1]",
        "{\"id\":1",
        "{\"id\":123456789012345678901234567890}",
    ] {
        assert!(
            matches!(
                route(settings, "outbox", bad),
                Err(RouteError::BadMessage { .. })
            ),
            "{bad}"
        );
    }
    assert!(matches!(
        route(settings, "outbox", r#"{"id":7}"#),
        Err(RouteError::MissingColumn { .. })
    ));
}

/// Both as the real connector, 3.6.1, published them.
#[test]
fn logical_messages_make_the_connectors_records() {
    let settings = |converter: &str| {
        format!(
            "messages = {{ prefix_include = [\"outbox\"] }}\nkey_converter = {converter}\nvalue_converter = {converter}\n\
             transforms = [{{ apply = {{ decode_logical_message = {{}} }} }}, {{ apply = {{ event_router = {{}} }} }}]\n\
             [event_router]\ntable_fields_additional_placement = [\"type:envelope:eventType\", \"n:header\"]"
        )
    };
    let first = r#"{"id":7,"aggregatetype":"Order","aggregateid":"o-1","type":"T","n":3000000000,"payload":"{\"a\":1}","x":null}"#;
    let second = r#"{"id":"e-2","aggregatetype":"Order","aggregateid":5,"type":"T","n":1.5,"payload":{"a":[1,2]}}"#;
    let string = "{ type = \"string\" }";
    let json = "{ type = \"json\" }";
    for (content, converter, key, value) in [
        (
            first,
            string,
            "o-1",
            r#"Struct{payload={"a":1},eventType=T}"#,
        ),
        (
            first,
            json,
            r#"{"schema":{"type":"string","optional":true},"payload":"o-1"}"#,
            r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"field":"payload"},{"type":"string","optional":true,"field":"eventType"}],"optional":false,"name":"Order"},"payload":{"payload":"{\"a\":1}","eventType":"T"}}"#,
        ),
        (
            second,
            string,
            "5",
            "Struct{payload=Struct{a=[1, 2]},eventType=T}",
        ),
        (
            second,
            json,
            r#"{"schema":{"type":"int32","optional":true},"payload":5}"#,
            r#"{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"array","items":{"type":"int32","optional":true},"optional":true,"field":"a"}],"optional":true,"name":"payload","field":"payload"},{"type":"string","optional":true,"field":"eventType"}],"optional":false,"name":"Order"},"payload":{"payload":{"a":[1,2]},"eventType":"T"}}"#,
        ),
    ] {
        let mut router = ConnectRouter::new(config(&settings(converter)), "").unwrap();
        let mut out = RecordBuffer::new();
        let message = LogicalMessage {
            transaction: None,
            insert_index: 0,
            lsn: Lsn::new(1),
            prefix: "outbox",
            content: content.as_bytes(),
        };
        assert_eq!(
            router.route_message(message, NOW_MS, &mut out),
            Ok(Routed::Record)
        );
        assert_eq!(
            (text(out.get(0).key), text(out.get(0).payload)),
            (key.to_owned(), value.to_owned())
        );
        assert_eq!(out.get(0).header_count(), 2);
    }
}

fn four_texts<'t>(aggregate_type: &'t str, payload: &'t str) -> Table<'t> {
    Table {
        name: "outbox",
        columns: vec![
            ("id", 25, Some("1")),
            ("aggregatetype", 25, Some(aggregate_type)),
            ("aggregateid", 25, Some("42")),
            ("payload", 3802, Some(payload)),
        ],
        defaults: Vec::new(),
        modifier: -1,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpansionCase {
    keeps_nulls: bool,
    payload: String,
    /// `EXC` where the task fails.
    plain: String,
    schemas: String,
}

/// What the Event Router and `JsonConverter` of 3.6.1 made of drawn payloads, without the arrays of objects whose order
/// Java leaves to a hash set.
#[test]
fn expansions_are_those_of_the_real_router() {
    let cases: Vec<ExpansionCase> =
        serde_json::from_str(include_str!("connect_cases/expansions.json")).unwrap();
    for case in &cases {
        let nulls = if case.keeps_nulls {
            "optional_bytes"
        } else {
            "ignore"
        };
        for (schemas, expected) in [(false, &case.plain), (true, &case.schemas)] {
            let settings = format!(
                "value_converter = {{ type = \"json\", schemas_enable = {schemas} }}\n[event_router]\n\
                 table_expand_json_payload = true\ntable_json_payload_null_behavior = {nulls:?}"
            );
            let table = four_texts("T", &case.payload);
            let found = with_record(&settings, &table, |record| text(record.payload));
            match (&**expected, schemas) {
                ("EXC", false) => assert!(case.payload.starts_with(&found), "{}", case.payload),
                ("EXC", true) => assert!(
                    found.starts_with("{\"schema\":{\"type\":\"string\""),
                    "{}",
                    case.payload
                ),
                (expected, _) => assert_eq!(found, expected, "{}", case.payload),
            }
        }
    }
}

/// Pattern, replacement, aggregate type, and the topic that the Event Router of 3.6.1 made of it; null where it threw.
#[test]
fn topics_are_those_of_the_real_router() {
    let cases: Vec<(String, String, String, Option<String>)> =
        serde_json::from_str(include_str!("connect_cases/patterns.json")).unwrap();
    for (pattern, replacement, value, topic) in &cases {
        let mut config = config("");
        config.event_router.route_topic_regex.clone_from(pattern);
        config
            .event_router
            .route_topic_replacement
            .clone_from(replacement);
        let what = format!("{pattern} {replacement} {value:?}");
        let Ok(mut router) = ConnectRouter::new(config, "") else {
            // Java says the same, or would at the first value that matches.
            assert!(topic.as_ref().is_none_or(|topic| topic == value), "{what}");
            continue;
        };
        let columns = ["id", "aggregatetype", "aggregateid", "payload"].map(|name| (name, 25));
        let relation = fixture::relation(7, "public", "outbox", columns);
        router.handle_relation(&relation);
        let message = fixture::insert(
            7,
            &["1", value, "k", "p"].map(|text| Value::Text(text.as_bytes())),
        );
        let mut out = RecordBuffer::new();
        let found = match router.route(&fixture::row(&relation, &message), NOW_MS, &mut out) {
            Ok(_) => out.get(0).topic.to_owned(),
            // Debezium makes the name, and Kafka refuses it; the error shows it escaped.
            Err(RouteError::IllegalTopic { name, .. }) => {
                let shown = topic.as_deref().unwrap_or_default();
                assert_eq!(name, shown.escape_debug().to_string(), "{what}");
                continue;
            }
            Err(other) => panic!("{what}: {other}"),
        };
        assert_eq!(Some(found), *topic, "{what}");
    }
}
