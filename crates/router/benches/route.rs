//! How many rows per second become records, beside a plain copy of the same bytes: the part of the work that no
//! design can save.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench stops at the first surprise"
)]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use pgoutput::{Relation, Row, Value};
use router::{HeaderConfig, RecordBuffer, Router, RouterConfig, TimestampSource};

#[path = "../tests/fixture/mod.rs"]
mod fixture;

fn main() {
    divan::main();
}

/// About as much as one batch holds, and no more than the arena keeps: growing it is not what is measured.
const BATCH_BYTES: usize = 400_000;

const TEXT: u32 = 25;
const BYTEA: u32 = 17;
const TIMESTAMPTZ: u32 = 1184;

#[divan::bench(args = Rows::ALL)]
fn route(bencher: Bencher<'_, '_>, rows: Rows) {
    let relation = rows.relation();
    let messages = rows.messages();
    let rows_read = read(&relation, &messages);
    let mut router = Router::new(rows.config()).unwrap();
    router.handle_relation(&relation);
    let mut out = RecordBuffer::new();
    counted(bencher, &messages).bench_local(|| {
        out.clear();
        for row in &rows_read {
            router.route(black_box(row), &mut out).unwrap();
        }
        black_box(out.byte_len())
    });
}

#[divan::bench(args = Rows::ALL)]
fn copy(bencher: Bencher<'_, '_>, rows: Rows) {
    let messages = rows.messages();
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

fn read<'a>(relation: &'a Relation, messages: &'a [Vec<u8>]) -> Vec<Row<'a>> {
    messages
        .iter()
        .map(|message| fixture::row(relation, message))
        .collect()
}

#[derive(Debug, Clone, Copy)]
enum Rows {
    /// The defaults, with a payload of 200 bytes.
    Default,
    /// Three headers, a timestamp column and a column that is not mapped besides.
    Headers,
    /// A bytea payload of 200 bytes: 400 digits.
    Bytea,
    /// The defaults, with a payload of 10 000 bytes.
    Large,
}

impl Rows {
    const ALL: [Self; 4] = [Self::Default, Self::Headers, Self::Bytea, Self::Large];

    fn config(self) -> RouterConfig {
        let mut config = RouterConfig {
            tables: vec!["public.outbox".parse().unwrap()],
            ..RouterConfig::default()
        };
        if matches!(self, Self::Headers) {
            config.headers = ["type", "traceparent", "schema_version"]
                .map(HeaderConfig::new)
                .to_vec();
            config.timestamp = TimestampSource::Column("created_at".to_owned());
        }
        config
    }

    fn relation(self) -> Relation {
        let payload = if matches!(self, Self::Bytea) {
            BYTEA
        } else {
            TEXT
        };
        let columns = [
            ("id", TEXT),
            ("aggregatetype", TEXT),
            ("aggregateid", TEXT),
            ("type", TEXT),
            ("payload", payload),
            ("traceparent", TEXT),
            ("schema_version", TEXT),
            ("created_at", TIMESTAMPTZ),
            ("unused", TEXT),
        ];
        fixture::relation(1, "public", "outbox", columns)
    }

    fn messages(self) -> Vec<Vec<u8>> {
        let payload = match self {
            Self::Default | Self::Headers => format!("{{\"a\": \"{}\"}}", "x".repeat(191)),
            Self::Bytea => format!("\\x{}", "5a".repeat(200)),
            Self::Large => format!("{{\"a\": \"{}\"}}", "x".repeat(9991)),
        };
        let message = |n: usize| {
            let id = format!("5f1d7e9c-0000-4000-8000-{n:012}");
            let aggregate_id = format!("order-{}", n % 100);
            let values = [
                &id,
                "order",
                &aggregate_id,
                "OrderCreated",
                &payload,
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "1",
                "2024-02-29 12:34:56.789012+00",
                "nobody reads this",
            ];
            fixture::insert(1, &values.map(|text| Value::Text(text.as_bytes())))
        };
        (0..BATCH_BYTES / message(0).len()).map(message).collect()
    }
}
