//! The promise of the crate page: an inserted row costs no allocation, from frame to values.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use allocation_counter::measure;
use pgoutput::{Envelope, Lsn, Message, Step, Transactions, decode};

/// An XLogData header with all its numbers zero.
const HEADER: &[u8] = &[
    b'w', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn an_insert_costs_no_allocation() {
    let mut transactions = Transactions::new();
    for message in [
        &b"B\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\0\0\x02\xE5"[..],
        b"R\0\0\x40\0public\0outbox\0d\0\x02\x01id\0\0\0\0\x19\xFF\xFF\xFF\xFF\0v\0\0\0\0\x19\xFF\xFF\xFF\xFF",
    ] {
        transactions.handle(Lsn::ZERO, decode(message).unwrap()).unwrap();
    }
    let frame = [HEADER, b"I\0\0\x40\0N\0\x02t\0\0\0\x05hello"].concat();
    let frame = [&frame[..], b"n"].concat();

    let mut rows = 0;
    let allocations = measure(|| {
        for _ in 0..1000 {
            rows += rows_in(&mut transactions, &frame);
        }
    });
    assert_eq!((rows, allocations.count_total), (1000, 0));
}

#[test]
fn a_relation_that_lies_about_its_size_costs_little() {
    // 32 767 columns announced, none sent.
    let message = b"R\0\0\0\x01\0t\0d\x7F\xFF";
    let allocations = measure(|| assert!(decode(message).is_err()));
    assert!(
        allocations.bytes_total < 1024,
        "{} bytes",
        allocations.bytes_total
    );
}

#[test]
fn only_relations_are_owned() {
    let update = b"U\0\0\0\x01K\0\x01nN\0\x01t\0\0\0\x01x";
    let message = b"M\x01\0\0\0\0\0\0\0\x05hb\0\0\0\0\x02\0\xFF";
    let allocations = measure(|| {
        assert!(matches!(decode(update), Ok(Message::Update { .. })));
        assert!(matches!(decode(message), Ok(Message::Logical { .. })));
    });
    assert_eq!(allocations.count_total, 0);
}

fn rows_in(transactions: &mut Transactions, frame: &[u8]) -> usize {
    let Ok(Envelope::XLogData {
        start_lsn, message, ..
    }) = Envelope::parse(frame)
    else {
        return 0;
    };
    match transactions.handle(start_lsn, decode(message).unwrap()) {
        Ok(Step::Insert(row)) => usize::from(row.tuple.columns().count() == 2),
        _ => 0,
    }
}
