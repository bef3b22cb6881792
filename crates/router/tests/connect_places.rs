//! Sections 1.3, 1.4 and 1.2 of the contract: timestamps, partitions, tombstones and missing columns.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use pgoutput::Value;
use router::connect::{Catalog, ConnectConfig, ConnectRouter, Routed};
use router::{RecordBuffer, RouteError, ValueProblem};

mod fixture;

const NOW_MS: i64 = 1_700_000_000_123;

type Extra<'t> = (&'t str, u32, i32, Option<&'t str>);

/// Routes a row with further columns: name, type, type modifier and text.
fn route(
    options: &str,
    extra: &[Extra<'_>],
    payload: Option<&str>,
) -> Result<RecordBuffer, RouteError> {
    let config: ConnectConfig = toml::from_str(options).unwrap();
    let mut columns = vec![
        ("id", 25, -1, Some("1")),
        ("aggregatetype", 25, -1, Some("Order")),
        ("aggregateid", 25, -1, Some("k")),
        ("payload", 25, -1, payload),
    ];
    columns.extend(extra);
    let named = columns.iter().map(|(name, oid, ..)| (*name, *oid));
    let mut relation = fixture::relation(7, "public", "outbox", named);
    for (column, (_, _, modifier, _)) in relation.columns.iter_mut().zip(&columns) {
        column.type_modifier = *modifier;
    }
    let value = |column: &Extra<'_>| column.3.map(|text| text.as_bytes().to_vec());
    let values: Vec<_> = columns.iter().map(value).collect();
    let values: Vec<_> = values
        .iter()
        .map(|text| text.as_deref().map_or(Value::Null, Value::Text))
        .collect();
    let message = fixture::insert(7, &values);
    let mut router = ConnectRouter::new(config, "run").unwrap();
    router.set_catalog(Catalog::new());
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    let routed = router.route(&fixture::row(&relation, &message), NOW_MS, &mut out)?;
    assert_eq!(routed, Routed::Record);
    Ok(out)
}

#[test]
fn timestamps_are_made_from_what_has_a_moment() {
    let stamped = |mode: &str, oid, modifier, text| {
        let options = format!(
            "types.time_precision_mode = {mode:?}\nevent_router.table_field_event_timestamp = \"ts\""
        );
        route(&options, &[("ts", oid, modifier, text)], Some("p"))
            .map(|out| out.get(0).timestamp_ms)
    };
    let moment = Some("2023-11-14 22:13:20.123456");
    for (mode, oid, modifier, text, expected) in [
        (
            "adaptive",
            1114,
            3,
            Some("2023-11-14 22:13:20.123"),
            Some(NOW_MS),
        ),
        ("adaptive", 1114, -1, moment, Some(NOW_MS)),
        ("adaptive", 1114, 4, moment, Some(NOW_MS)),
        ("nanoseconds", 1114, -1, moment, Some(NOW_MS)),
        ("connect", 1114, -1, moment, Some(NOW_MS)),
        ("isostring", 1114, -1, moment, Some(NOW_MS)),
        (
            "adaptive",
            1184,
            -1,
            Some("2023-11-14 23:13:20.123+01"),
            Some(NOW_MS),
        ),
        (
            "adaptive",
            20,
            -1,
            Some("1600000000000"),
            Some(1_600_000_000_000),
        ),
        ("adaptive", 1114, -1, None, Some(NOW_MS)),
        ("adaptive", 1114, -1, Some("1970-01-01 00:00:00"), Some(0)),
        // Towards zero, so that this is -1: Connect's word for none.
        ("adaptive", 1114, -1, Some("1969-12-31 23:59:59.9985"), None),
    ] {
        assert_eq!(
            stamped(mode, oid, modifier, text),
            Ok(expected),
            "{mode} {oid} {text:?}"
        );
    }
    for (oid, text) in [
        (1082, "2023-11-14"),
        (1083, "12:00:00"),
        (25, "x"),
        (23, "1"),
        (1114, "1969-12-31 00:00:00"),
        (1184, "infinity"),
    ] {
        let refused = stamped("adaptive", oid, -1, Some(text));
        assert!(
            matches!(refused, Err(RouteError::BadValue { .. })),
            "{oid} {text}"
        );
    }
    let missing = route(
        "event_router.table_field_event_timestamp = \"no\"",
        &[],
        Some("p"),
    );
    assert!(matches!(missing, Err(RouteError::MissingColumn { .. })));
}

#[test]
fn partitions_are_whole_numbers_and_the_last_one_wins() {
    let options =
        "event_router.table_fields_additional_placement = [\"a:partition\", \"b:partition:x\"]";
    let partition = |a, b| {
        route(options, &[("a", 23, -1, a), ("b", 20, -1, b)], Some("p"))
            .map(|out| out.get(0).partition)
    };
    assert_eq!(partition(Some("1"), Some("2")), Ok(Some(2)));
    assert_eq!(partition(Some("1"), None), Ok(None));
    assert_eq!(partition(None, Some("2147483647")), Ok(Some(i32::MAX)));
    let problem = |b| match partition(None, Some(b)) {
        Err(RouteError::BadValue { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem("-1"), ValueProblem::NegativePartition);
    assert_eq!(problem("2147483648"), ValueProblem::PartitionTooLarge);
}

#[test]
fn an_empty_payload_is_a_tombstone_only_where_asked() {
    let json = "value_converter = { type = \"json\" }";
    let asked = "event_router.route_tombstone_on_empty_payload = true";
    let value = |options: &str, payload| {
        let out = route(options, &[], payload).unwrap();
        out.get(0)
            .payload
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    for payload in [None, Some(""), Some(" \t\n\u{1}")] {
        assert_eq!(
            value(&format!("{json}\n{asked}"), payload),
            None,
            "{payload:?}"
        );
        assert!(value(json, payload).is_some(), "{payload:?}");
    }
    // What Java's trim leaves alone.
    assert!(value(asked, Some("\u{a0}")).is_some());
    assert_eq!(value("", None), None);
    assert_eq!(value("", Some("")), Some(String::new()));
}

#[test]
fn a_tombstone_takes_the_envelope_with_it() {
    let options = "value_converter = { type = \"json\" }\n[event_router]\nroute_tombstone_on_empty_payload = true\n\
        table_fields_additional_placement = [\"aggregatetype:envelope:type\"]";
    let out = route(options, &[], None).unwrap();
    assert_eq!(out.get(0).payload, None);
}

#[test]
fn a_missing_column_is_an_error_or_left_out() {
    let options = |missing: &str, place: &str| {
        format!(
            "context_headers = \"none\"\nvalue_converter = {{ type = \"json\", schemas_enable = false }}\n[event_router]\n\
             table_field_additional_missing = {missing:?}\n\
             table_fields_additional_placement = [\"no:{place}\", \"aggregatetype:envelope:type\"]"
        )
    };
    for place in ["header", "envelope", "partition"] {
        let refused = route(&options("error", place), &[], Some("p"));
        assert!(
            matches!(refused, Err(RouteError::MissingColumn { .. })),
            "{place}"
        );
        let out = route(&options("ignore", place), &[], Some("p")).unwrap();
        assert_eq!(out.get(0).header_count(), 1);
        assert_eq!(
            out.get(0).payload,
            Some(&br#"{"payload":"p","type":"Order"}"#[..])
        );
    }
}

#[test]
fn json_is_sent_as_it_is_in_verbatim_mode() {
    let options = "value_converter = { type = \"json\", schemas_enable = false }\nevent_router.expansion = \"verbatim\"";
    for (payload, expected) in [
        (
            r#"{"a": [1, "x"], "a": null}"#,
            r#"{"a": [1, "x"], "a": null}"#,
        ),
        ("[1,2] ", "[1,2] "),
        ("not json", "\"not json\""),
        (r#"{"a":1} x"#, r#""{\"a\":1} x""#),
    ] {
        let out = route(options, &[], Some(payload)).unwrap();
        assert_eq!(out.get(0).payload, Some(expected.as_bytes()));
    }
}
