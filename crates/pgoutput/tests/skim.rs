//! What is kept of a row that is too large: the same however its bytes are cut, and never more than the limits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail like tests"
)]

#[path = "support/encode.rs"]
#[allow(dead_code, reason = "each includer uses its own part")]
mod encode;

use allocation_counter::measure;
use encode::{Cell, Plain};
use pgoutput::{
    COLUMN_BYTES_MAX, Envelope, InsertExcerpt, InsertSkim, Message, VALUES_BYTES_MAX, Value, decode,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// An XLogData header of no particular position.
const HEADER: [u8; 25] = *b"w\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\0";

/// A read of the connection.
const PIECE_BYTES: usize = 256 * 1024;

proptest! {
    #[test]
    fn any_cut_gives_the_same(cells in cells(), cuts in vec(any::<Index>(), 0..12)) {
        let body = body(&cells);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let mut skim = InsertSkim::new();
        skim.begin();
        let mut start = 0;
        for cut in cuts.into_iter().chain([body.len()]) {
            skim.pass(&body[start..cut]);
            start = cut;
        }
        prop_assert_eq!(skim.excerpt(), excerpt(&body));
    }

    #[test]
    fn every_column_is_as_it_was_sent_or_has_its_length(cells in cells()) {
        let row = read(&excerpt(&body(&cells))).expect("an insert");
        let Ok(Message::Insert { relation_id: 7, new }) = decode(&row.message) else {
            panic!("not the insert: {row:?}");
        };
        prop_assert_eq!(new.column_count(), cells.len());
        let mut kept_bytes = 0;
        for (column, (cell, value)) in cells.iter().zip(new.columns()).enumerate() {
            match row.left_out.bytes_of(column) {
                Some(bytes) => {
                    prop_assert_eq!(value, Value::Null);
                    prop_assert_eq!(bytes as usize, bytes_of(cell));
                    let is_large = bytes_of(cell) > COLUMN_BYTES_MAX;
                    prop_assert!(is_large || kept_bytes + bytes_of(cell) > VALUES_BYTES_MAX);
                }
                None => {
                    prop_assert_eq!(value, cell_value(cell));
                    kept_bytes += bytes_of(cell);
                }
            }
        }
        prop_assert!(kept_bytes <= VALUES_BYTES_MAX);
    }

    #[test]
    fn any_bytes_are_passed_by(bytes in vec(any::<u8>(), 0..300)) {
        for body in [bytes.clone(), [&HEADER[..], &bytes].concat(), [&HEADER[..], b"I\0\0\0\x07N", &bytes].concat()] {
            let excerpt = excerpt(&body);
            prop_assert!(excerpt.len() <= body.len());
            drop(read(&excerpt));
        }
    }

    /// An excerpt is refused just where the message would have been.
    #[test]
    fn a_damaged_insert_is_refused_all_the_same(
        cells in cells(),
        damage in vec((0..60_usize, any::<u8>()), 0..3),
        end in proptest::option::of(any::<Index>()),
    ) {
        let mut body = body(&cells);
        for (at, byte) in damage {
            // The first bytes of the message are those with a meaning.
            if let Some(place) = body.get_mut(HEADER.len() + 1 + at) {
                *place = byte;
            }
        }
        body.truncate(end.map_or(body.len(), |end| end.index(body.len()).max(HEADER.len() + 1)));
        let message = decode(&body[HEADER.len()..]).is_ok();
        prop_assert_eq!(read(&excerpt(&body)).is_some(), message);
    }
}

#[test]
fn a_row_of_a_gibibyte_costs_kilobytes() {
    let piece = vec![b'x'; PIECE_BYTES];
    let large = u32::try_from(1 << 30).unwrap().to_be_bytes();
    let head = [&HEADER[..], b"I\0\0\0\x07N\0\x02t", &large].concat();
    let mut kept = Vec::new();
    let allocations = measure(|| {
        let mut skim = InsertSkim::new();
        skim.begin();
        skim.pass(&head);
        for _ in 0..(1 << 30) / PIECE_BYTES {
            skim.pass(&piece);
        }
        skim.pass(b"t\0\0\0\x02id");
        kept = skim.excerpt().to_vec();
    });
    assert!(allocations.bytes_max < 1024, "{}", allocations.bytes_max);
    let row = read(&kept).expect("an insert");
    assert_eq!(row.left_out.bytes_of(0), Some(1 << 30));
    assert_eq!(row.left_out.bytes_of(1), None);
    let Ok(Message::Insert { new, .. }) = decode(&row.message) else {
        panic!("not an insert")
    };
    assert_eq!(new.columns().last(), Some(Value::Text(b"id")));
}

/// As many columns as the protocol can express, each of them as large as a kept one may be.
#[test]
fn a_row_of_nothing_but_columns_costs_no_more_than_the_limits() {
    let value = [&b"t\0\0\x10\0"[..], &[b'x'; COLUMN_BYTES_MAX]].concat();
    let mut excerpt_bytes = 0;
    let allocations = measure(|| {
        let mut skim = InsertSkim::new();
        skim.begin();
        skim.pass(&[&HEADER[..], b"I\0\0\0\x07N\x7F\xFF"].concat());
        for _ in 0..0x7FFF {
            skim.pass(&value);
        }
        excerpt_bytes = skim.excerpt().len();
    });
    let limit = HEADER.len() + 8 + VALUES_BYTES_MAX + 5 * 0x7FFF;
    assert_eq!(excerpt_bytes, limit);
    // A buffer that grows holds twice what is in it, and while it moves what was in it.
    assert!(
        allocations.bytes_max <= 3 * limit as u64,
        "{}",
        allocations.bytes_max
    );
}

fn body(cells: &[Cell]) -> Vec<u8> {
    let insert = Plain::Insert {
        relation_id: 7,
        new: cells.to_vec(),
    };
    [&HEADER[..], &insert.encode()].concat()
}

fn excerpt(body: &[u8]) -> Vec<u8> {
    let mut skim = InsertSkim::new();
    skim.begin();
    skim.pass(body);
    skim.excerpt().to_vec()
}

fn read(excerpt: &[u8]) -> Option<InsertExcerpt> {
    match Envelope::parse(excerpt) {
        Ok(Envelope::XLogData { message, .. }) => InsertExcerpt::read(message).ok()?,
        _ => None,
    }
}

fn bytes_of(cell: &Cell) -> usize {
    match cell {
        Cell::Null | Cell::UnchangedToast => 0,
        Cell::Text(bytes) | Cell::Binary(bytes) => bytes.len(),
    }
}

fn cell_value(cell: &Cell) -> Value<'_> {
    match cell {
        Cell::Null => Value::Null,
        Cell::UnchangedToast => Value::UnchangedToast,
        Cell::Text(bytes) => Value::Text(bytes),
        Cell::Binary(bytes) => Value::Binary(bytes),
    }
}

/// Values around both limits: some too large, some that together are too much.
fn cells() -> impl Strategy<Value = Vec<Cell>> {
    let bytes = prop_oneof![
        4 => 0..20_usize,
        2 => COLUMN_BYTES_MAX - 2..COLUMN_BYTES_MAX + 3,
        1 => 5_000..20_000_usize,
    ];
    let value = (bytes, any::<u8>()).prop_map(|(bytes, byte)| vec![byte; bytes]);
    let cell = prop_oneof![
        1 => Just(Cell::Null),
        1 => Just(Cell::UnchangedToast),
        6 => value.clone().prop_map(Cell::Text),
        1 => value.prop_map(Cell::Binary),
    ];
    vec(cell, 0..40)
}
