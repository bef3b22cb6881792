//! A row under a Connect configuration's defaults costs no allocation once the buffers have their size.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests"
)]

use allocation_counter::measure;
use pgoutput::Value;
use router::RecordBuffer;
use router::connect::{Catalog, ConnectConfig, ConnectRouter, Placement, Routed};

mod fixture;

#[test]
fn a_row_costs_no_allocation_with_string_converters() {
    let mut config = ConnectConfig {
        topic_prefix: "srv".to_owned(),
        ..ConnectConfig::default()
    };
    config.event_router.table_fields_additional_placement =
        Placement::parse_list("type:header:eventType,n:header").unwrap();
    let columns = [
        ("id", 2950),
        ("aggregatetype", 1043),
        ("aggregateid", 25),
        ("type", 25),
        ("payload", 3802),
        ("n", 20),
    ];
    let relation = fixture::relation(7, "public", "outbox", columns);
    let values = [
        "5f1d7e9c-0000-4000-8000-000000000001",
        "Order",
        "42",
        "OrderCreated",
        r#"{"a": 1}"#,
        "77",
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
    assert_eq!((out.len(), allocations.count_total), (100, 0));
    let headers: Vec<_> = out.get(0).headers().map(|(name, _)| name).collect();
    assert_eq!(headers[4..], ["id", "eventType", "n"]);
}
