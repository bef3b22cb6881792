//! What holds for every input: messages survive a round trip, cut ones are refused, no bytes panic.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail like tests"
)]

#[path = "support/encode.rs"]
mod encode;
#[path = "support/exercise.rs"]
mod exercise;

use encode::{Cell, Plain};
use pgoutput::{
    Column, DecodeError, Envelope, Lsn, PgTimestamp, Relation, StatusUpdate, Step, Transactions,
    TupleKind, decode,
};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_message_survives_the_round_trip(message in message()) {
        let bytes = message.encode();
        prop_assert_eq!(decode(&bytes).map(Plain::from), Ok(message));
    }

    #[test]
    fn a_message_cut_anywhere_is_malformed(message in message()) {
        let bytes = message.encode();
        for length in 0..bytes.len() {
            let decoded = decode(&bytes[..length]);
            prop_assert!(matches!(decoded, Err(DecodeError::Malformed { .. })), "{}: {:?}", length, decoded);
        }
    }

    #[test]
    fn a_message_with_more_bytes_is_malformed(message in message(), more in vec(any::<u8>(), 1..5)) {
        let bytes = [message.encode(), more].concat();
        let is_malformed = matches!(decode(&bytes), Err(DecodeError::Malformed { .. }));
        prop_assert!(is_malformed);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        exercise::decode_anything(&bytes);
        exercise::follow_anything(&bytes);
    }

    #[test]
    fn a_damaged_message_is_decoded_or_refused(
        message in message(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = message.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise::decode_anything(&bytes);
    }

    #[test]
    fn messages_in_any_order_are_followed_or_refused(messages in vec(message(), 0..12)) {
        let messages: Vec<_> = messages.iter().map(Plain::encode).collect();
        exercise::follow_anything(&exercise::stream(messages.iter().map(Vec::as_slice)));
    }

    #[test]
    fn rows_of_whole_transactions_keep_count_position_and_transaction(
        sizes in vec(0_u64..20, 1..8),
        relation in relation(),
    ) {
        let mut transactions = Transactions::new();
        let mut lsn = 1;
        for size in sizes {
            let begin = Plain::Begin { final_lsn: lsn, commit_time: 0, xid: 1 };
            step(&mut transactions, lsn, &begin, |step| assert!(matches!(step, Step::Begin(_))));
            let described = Plain::Relation(relation.clone());
            step(&mut transactions, lsn, &described, |step| assert_eq!(step, Step::Relation(&relation)));
            let new = vec![Cell::Null; relation.columns.len()];
            let insert = Plain::Insert { relation_id: relation.id, new };
            for index in 0..size {
                step(&mut transactions, lsn + index, &insert, |step| match step {
                    Step::Insert(row) => {
                        let place = (row.insert_index, row.lsn.as_u64(), row.transaction.final_lsn.as_u64());
                        assert_eq!(place, (index, lsn + index, lsn));
                    }
                    other => unreachable!("{other:?}"),
                });
            }
            let commit = Plain::Commit { commit_lsn: lsn, end_lsn: lsn + 1, commit_time: 0 };
            step(&mut transactions, lsn, &commit, |step| assert!(matches!(step, Step::Commit { .. })));
            lsn += 100;
        }
    }

    #[test]
    fn an_envelope_yields_what_was_put_in(
        start in any::<u64>(), end in any::<u64>(), clock in any::<i64>(), message in vec(any::<u8>(), 0..50),
    ) {
        let header = [start.to_be_bytes(), end.to_be_bytes(), clock.to_be_bytes()].concat();
        let frame = [&b"w"[..], &header, &message].concat();
        let expected = Envelope::XLogData {
            start_lsn: Lsn::new(start),
            wal_end: Lsn::new(end),
            sent_at: PgTimestamp::new(clock),
            message: &message,
        };
        prop_assert_eq!(Envelope::parse(&frame), Ok(expected));
    }

    #[test]
    fn a_status_update_holds_its_fields_in_order(
        written in any::<u64>(), flushed in any::<u64>(), applied in any::<u64>(),
        clock in any::<i64>(), reply_requested in any::<bool>(),
    ) {
        let update = StatusUpdate {
            written: Lsn::new(written),
            flushed: Lsn::new(flushed),
            applied: Lsn::new(applied),
            sent_at: PgTimestamp::new(clock),
            reply_requested,
        };
        let fields = [written, flushed, applied, u64::from_be_bytes(clock.to_be_bytes())].map(u64::to_be_bytes);
        let expected = [&b"r"[..], &fields.concat(), &[u8::from(reply_requested)]].concat();
        prop_assert_eq!(update.encode().to_vec(), expected);
    }

    #[test]
    fn a_position_survives_text(position in any::<u64>()) {
        let lsn = Lsn::new(position);
        prop_assert_eq!(lsn.to_string().parse(), Ok(lsn));
    }

    #[test]
    fn any_text_is_a_position_or_refused(text in ".{0,20}") {
        if let Ok(lsn) = text.parse::<Lsn>() {
            prop_assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
    }
}

fn step(transactions: &mut Transactions, lsn: u64, message: &Plain, check: impl FnOnce(Step<'_>)) {
    let bytes = message.encode();
    check(
        transactions
            .handle(Lsn::new(lsn), decode(&bytes).unwrap())
            .unwrap(),
    );
}

fn message() -> impl Strategy<Value = Plain> {
    // Few relations and small positions, so that messages of one stream often fit together.
    let id = 1_u32..4;
    let small = 1_u64..4;
    prop_oneof![
        (any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(final_lsn, commit_time, xid)| {
            Plain::Begin {
                final_lsn,
                commit_time,
                xid,
            }
        }),
        (small.clone(), any::<i64>(), any::<u32>()).prop_map(|(final_lsn, commit_time, xid)| {
            Plain::Begin {
                final_lsn,
                commit_time,
                xid,
            }
        }),
        (small.clone(), small, any::<i64>()).prop_map(|(commit_lsn, end_lsn, commit_time)| {
            Plain::Commit {
                commit_lsn,
                end_lsn,
                commit_time,
            }
        }),
        (any::<u64>(), text()).prop_map(|(commit_lsn, name)| Plain::Origin { commit_lsn, name }),
        relation().prop_map(Plain::Relation),
        (any::<u32>(), namespace(), text()).prop_map(|(oid, namespace, name)| Plain::Type {
            oid,
            namespace,
            name
        }),
        (id.clone(), cells()).prop_map(|(relation_id, new)| Plain::Insert { relation_id, new }),
        (id.clone(), proptest::option::of(old()), cells()).prop_map(|(relation_id, old, new)| {
            Plain::Update {
                relation_id,
                old,
                new,
            }
        }),
        (id.clone(), old()).prop_map(|(relation_id, old)| Plain::Delete { relation_id, old }),
        (any::<u8>(), vec(id, 0..4)).prop_map(|(options, relation_ids)| Plain::Truncate {
            options,
            relation_ids
        }),
        (any::<bool>(), any::<u64>(), text(), vec(any::<u8>(), 0..20)).prop_map(
            |(transactional, lsn, prefix, content)| Plain::Logical {
                transactional,
                lsn,
                prefix,
                content
            }
        ),
    ]
}

fn relation() -> impl Strategy<Value = Relation> {
    let column = (any::<bool>(), text(), any::<u32>(), any::<i32>()).prop_map(
        |(key, name, type_oid, type_modifier)| Column {
            key,
            name,
            type_oid,
            type_modifier,
        },
    );
    (
        1_u32..4,
        namespace(),
        text(),
        any::<u8>(),
        vec(column, 0..4),
    )
        .prop_map(
            |(id, namespace, name, replica_identity, columns)| Relation {
                id,
                namespace,
                name,
                replica_identity,
                columns,
            },
        )
}

fn old() -> impl Strategy<Value = (TupleKind, Vec<Cell>)> {
    (
        prop_oneof![Just(TupleKind::Key), Just(TupleKind::Old)],
        cells(),
    )
}

fn cells() -> impl Strategy<Value = Vec<Cell>> {
    let cell = prop_oneof![
        Just(Cell::Null),
        Just(Cell::UnchangedToast),
        vec(any::<u8>(), 0..20).prop_map(Cell::Text),
        vec(any::<u8>(), 0..20).prop_map(Cell::Binary),
    ];
    vec(cell, 0..4)
}

// Names hold anything but the byte that ends them.
fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,8}"
}

// An empty schema cannot be told from pg_catalog on the wire.
fn namespace() -> impl Strategy<Value = String> {
    prop_oneof![Just("pg_catalog".to_owned()), "[^\0]{1,8}"]
}
