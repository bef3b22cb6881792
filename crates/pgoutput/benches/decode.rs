//! Throughput of stages 2 to 4 over the golden corpora and over rows as an outbox has them.
//!
//! `cargo bench -p pgoutput`; the column `MB/s` counts bytes of messages.
#![allow(clippy::unwrap_used, reason = "a bench fails like a test")]

#[path = "../tests/support/corpus.rs"]
mod corpus;

use std::path::Path;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use pgoutput::{Envelope, Lsn, Step, Transactions, decode};

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

/// Rows of one outbox transaction.
const OUTBOX_ROWS: usize = 1000;

fn main() {
    divan::main();
}

#[divan::bench]
fn golden_decode(bencher: Bencher<'_, '_>) {
    let messages = golden();
    bencher
        .counter(bytes(&messages))
        .counter(ItemsCount::new(messages.len()))
        .bench(|| {
            for message in &messages {
                black_box(decode(message).unwrap());
            }
        });
}

#[divan::bench]
fn golden_follow(bencher: Bencher<'_, '_>) {
    let messages = golden();
    let mut transactions = Transactions::new();
    bencher
        .counter(bytes(&messages))
        .counter(ItemsCount::new(messages.len()))
        .bench_local(|| {
            for message in &messages {
                black_box(
                    transactions
                        .handle(Lsn::ZERO, decode(message).unwrap())
                        .unwrap(),
                );
            }
        });
}

#[divan::bench]
fn outbox_frames_to_values(bencher: Bencher<'_, '_>) {
    let frames = outbox();
    let mut transactions = Transactions::new();
    bencher
        .counter(bytes(&frames))
        .counter(ItemsCount::new(OUTBOX_ROWS))
        .bench_local(|| {
            for frame in &frames {
                let Ok(Envelope::XLogData {
                    start_lsn, message, ..
                }) = Envelope::parse(frame)
                else {
                    continue;
                };
                if let Step::Insert(row) = transactions
                    .handle(start_lsn, decode(message).unwrap())
                    .unwrap()
                {
                    row.tuple.columns().for_each(|value| {
                        black_box(value);
                    });
                }
            }
        });
}

/// Every captured message of version 1; each scenario is whole transactions, so they follow each other.
fn golden() -> Vec<Vec<u8>> {
    corpus::scenarios(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
        .into_iter()
        .filter(|scenario| scenario.name() != "streamed")
        .flat_map(|scenario| scenario.messages)
        .map(|message| message.bytes)
        .collect()
}

/// The frames of one transaction: six columns and a payload of 160 bytes a row.
fn outbox() -> Vec<Vec<u8>> {
    let columns = [
        "id",
        "aggregatetype",
        "aggregateid",
        "type",
        "payload",
        "created_at",
    ];
    let mut relation = b"R\0\0\x40\0public\0outbox\0d\0\x06".to_vec();
    for name in columns {
        relation.push(0);
        relation.extend_from_slice(name.as_bytes());
        relation.extend_from_slice(b"\0\0\0\0\x19\xFF\xFF\xFF\xFF");
    }
    let payload = format!("{{\"order\": 42, \"note\": \"{}\"}}", "x".repeat(135));
    let values = [
        "11111111-2222-3333-4444-555555555555",
        "order",
        "customer-000042",
        "OrderPlaced",
        &payload,
        "2024-01-01 00:00:00.123456+00",
    ];
    let mut insert = b"I\0\0\x40\0N\0\x06".to_vec();
    for value in values {
        insert.push(b't');
        insert.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        insert.extend_from_slice(value.as_bytes());
    }
    let begin = b"B\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\0\0\x02\xE5".to_vec();
    let commit = b"C\0\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0".to_vec();
    let mut messages = vec![begin, relation];
    messages.extend(std::iter::repeat_n(insert, OUTBOX_ROWS));
    messages.push(commit);
    let header = [&b"w"[..], &[0; 24]].concat();
    messages
        .into_iter()
        .map(|message| [&header[..], &message].concat())
        .collect()
}

fn bytes(messages: &[Vec<u8>]) -> BytesCount {
    BytesCount::new(messages.iter().map(Vec::len).sum::<usize>())
}
