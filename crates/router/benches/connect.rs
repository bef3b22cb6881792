//! How many rows per second become records under a Connect configuration, beside a plain copy of the same bytes.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench stops at the first surprise"
)]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use pgoutput::{Relation, Row, Value};
use router::RecordBuffer;
use router::connect::{Catalog, ConnectConfig, ConnectRouter};

#[path = "../tests/fixture/mod.rs"]
mod fixture;

fn main() {
    divan::main();
}

/// About as much as one batch holds, and no more than the arena keeps.
const BATCH_BYTES: usize = 200_000;

#[divan::bench(args = Setting::ALL)]
fn route(bencher: Bencher<'_, '_>, setting: Setting) {
    let relation = relation();
    let messages = messages();
    let rows: Vec<Row<'_>> = messages
        .iter()
        .map(|message| fixture::row(&relation, message))
        .collect();
    let config: ConnectConfig = toml::from_str(setting.text()).unwrap();
    let mut router = ConnectRouter::new(config, "run").unwrap();
    router.set_catalog(Catalog::new());
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    counted(bencher, &messages).bench_local(|| {
        out.clear();
        for row in &rows {
            router.route(black_box(row), 1, &mut out).unwrap();
        }
        black_box(out.byte_len())
    });
}

#[divan::bench]
fn copy(bencher: Bencher<'_, '_>) {
    let messages = messages();
    let mut out = Vec::new();
    counted(bencher, &messages).bench_local(|| {
        out.clear();
        for message in &messages {
            out.extend_from_slice(black_box(message));
        }
        black_box(out.len())
    });
}

fn counted<'a, 'b>(bencher: Bencher<'a, 'b>, messages: &[Vec<u8>]) -> Bencher<'a, 'b> {
    let bytes: usize = messages.iter().map(Vec::len).sum();
    bencher
        .counter(ItemsCount::new(messages.len()))
        .counter(BytesCount::new(bytes))
}

#[derive(Debug, Clone, Copy)]
enum Setting {
    /// String converters, no context headers.
    Default,
    /// Context headers and three more.
    Headers,
    /// `JsonConverter` without schemas.
    Json,
    /// `JsonConverter` with schemas.
    Schemas,
    /// JSON expansion, then `JsonConverter` without schemas.
    Expansion,
    /// A pattern of its own.
    Pattern,
}

impl Setting {
    const ALL: [Self; 6] = [
        Self::Default,
        Self::Headers,
        Self::Json,
        Self::Schemas,
        Self::Expansion,
        Self::Pattern,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Default => "context_headers = \"none\"",
            Self::Headers => {
                "[event_router]\ntable_fields_additional_placement = \
                 [\"type:header:eventType\", \"version:header\", \"created_at:header\"]"
            }
            Self::Json => "value_converter = { type = \"json\", schemas_enable = false }",
            Self::Schemas => "value_converter = { type = \"json\" }",
            Self::Expansion => {
                "value_converter = { type = \"json\", schemas_enable = false }\n\
                 event_router = { table_expand_json_payload = true }"
            }
            Self::Pattern => {
                "[event_router]\nroute_topic_regex = '(?<a>[a-z]+)-(.*)'\nroute_topic_replacement = '${a}.$2'"
            }
        }
    }
}

fn relation() -> Relation {
    let columns = [
        ("id", 2950),
        ("aggregatetype", 1043),
        ("aggregateid", 25),
        ("type", 25),
        ("payload", 3802),
        ("version", 23),
        ("created_at", 1184),
    ];
    fixture::relation(1, "public", "outbox", columns)
}

fn messages() -> Vec<Vec<u8>> {
    let message = |n: usize| {
        let id = format!("5f1d7e9c-0000-4000-8000-{n:012}");
        let payload = format!(
            r#"{{"id": {n}, "lines": [{{"sku": "a-1", "count": 2}}, {{"sku": "b-2", "count": 1}}], "note": "{}"}}"#,
            "x".repeat(120)
        );
        let values = [
            &id,
            "order-eu",
            "o-17",
            "OrderCreated",
            &payload,
            "3",
            "2024-02-29 12:34:56.789012+00",
        ];
        fixture::insert(1, &values.map(|text| Value::Text(text.as_bytes())))
    };
    (0..BATCH_BYTES / message(0).len()).map(message).collect()
}
