//! A row under a Connect configuration costs no allocation once the buffers have their size, and its payload is not parsed
//! where nothing asks for it.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests"
)]

use allocation_counter::measure;
use pgoutput::Value;
use router::RecordBuffer;
use router::connect::{Catalog, ConnectConfig, ConnectRouter, Routed};

mod fixture;

const COLUMNS: [(&str, u32); 7] = [
    ("id", 2950),
    ("aggregatetype", 1043),
    ("aggregateid", 25),
    ("type", 25),
    ("payload", 3802),
    ("n", 20),
    ("made_at", 1184),
];

/// A record's value, and what the hundredth row cost. `payload` need not be JSON: the server checks what stands in a column.
fn routed(config: &str, payload: &str) -> (String, u64) {
    let config: ConnectConfig = toml::from_str(config).unwrap();
    let relation = fixture::relation(7, "public", "outbox", COLUMNS);
    let values = [
        "5f1d7e9c-0000-4000-8000-000000000001",
        "Order",
        "42",
        "OrderCreated",
        payload,
        "77",
        "2024-02-29 12:34:56.789012+00",
    ];
    let message = fixture::insert(7, &values.map(|text| Value::Text(text.as_bytes())));
    let row = fixture::row(&relation, &message);
    let mut router = ConnectRouter::new(config, "run").unwrap();
    router.set_catalog(Catalog::new());
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    let mut route = |out: &mut RecordBuffer| {
        for _ in 0..100 {
            assert_eq!(router.route(&row, 1, out), Ok(Routed::Record));
        }
    };
    route(&mut out);
    out.clear();
    let allocations = measure(|| route(&mut out));
    assert_eq!(out.len(), 100);
    let value = out.get(0).payload.unwrap().to_vec();
    (String::from_utf8(value).unwrap(), allocations.count_total)
}

const DEFAULT: &str = "topic_prefix = \"srv\"\n";
const HEADERS: &str = "[event_router]\n\
    table_fields_additional_placement = [\"type:header:eventType\", \"n:header\"]\n";
const JSON: &str = "value_converter = { type = \"json\", schemas_enable = false }\n";
const SCHEMAS: &str = "value_converter = { type = \"json\" }\n";
const PATTERN: &str =
    "[event_router]\nroute_topic_regex = '(?<a>[A-Z])(.*)'\nroute_topic_replacement = '${a}.$2'\n";

#[test]
fn a_row_costs_no_allocation() {
    for config in [DEFAULT, HEADERS, JSON, SCHEMAS, PATTERN] {
        let (_, allocations) = routed(config, r#"{"a": 1}"#);
        assert_eq!(allocations, 0, "{config}");
    }
    // The text of a moment is another than the server's, and is made once.
    let (_, allocations) = routed(&HEADERS.replace("n:header", "made_at:header"), "{}");
    assert_eq!(allocations, 100);
}

#[test]
fn the_payload_is_not_parsed() {
    // A parser would stumble over it, or make something else of it.
    let broken = "{\"a\": [1e5, \"\\q\", {{";
    assert_eq!(routed(DEFAULT, broken), (broken.to_owned(), 0));
    assert_eq!(routed(HEADERS, broken), (broken.to_owned(), 0));
    let escaped = r#""{\"a\": [1e5, \"\\q\", {{""#;
    assert_eq!(routed(JSON, broken), (escaped.to_owned(), 0));
    // Where it is asked for, it is: broken JSON stays as it is, and whole JSON changes its form.
    let expand = format!("{JSON}event_router = {{ table_expand_json_payload = true }}\n");
    assert_eq!(routed(&expand, broken).0, escaped);
    assert_eq!(routed(&expand, "{\"a\": 1e5}").0, "{\"a\":100000.0}");
}
