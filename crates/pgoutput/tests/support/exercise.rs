//! What the fuzz targets call and the replay test calls too: any bytes, no panic, and the promises hold.
#![allow(dead_code, reason = "each includer uses its own part")]

use pgoutput::{
    DecodeError, Envelope, Lsn, Message, Step, Transactions, Tuple, decode, peek_relation_id,
};

/// Reads `bytes` as a frame and as a message.
pub(crate) fn decode_anything(bytes: &[u8]) {
    if let Ok(Envelope::XLogData { message, .. }) = Envelope::parse(bytes) {
        decode_one(message);
    }
    decode_one(bytes);
}

/// Reads `bytes` as a stream of messages, each behind its length in two bytes; see [`stream`].
pub(crate) fn follow_anything(mut bytes: &[u8]) {
    let mut transactions = Transactions::new();
    let mut inserts_expected = 0;
    while let Some((length, behind)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (message, behind) = behind.split_at(length);
        bytes = behind;
        let was_open = transactions.is_open();
        let Ok(message) = decode(message) else {
            continue;
        };
        match transactions.handle(Lsn::new(1), message) {
            Ok(Step::Begin(_)) => {
                assert!(!was_open);
                inserts_expected = 0;
            }
            Ok(Step::Insert(row)) => {
                assert!(was_open);
                assert_eq!(row.insert_index, inserts_expected);
                assert_eq!(row.tuple.columns().count(), row.relation.columns.len());
                inserts_expected += 1;
            }
            Ok(Step::Commit {
                transaction,
                end_lsn,
            }) => {
                assert!(was_open && transaction.final_lsn < end_lsn);
                assert!(!transactions.is_open());
            }
            Ok(step @ (Step::Relation(_) | Step::Ignored(_) | Step::Logical { .. })) => {
                if let Step::Logical {
                    transaction: Some(_),
                    insert_index,
                    ..
                } = step
                {
                    assert_eq!(insert_index, inserts_expected);
                    inserts_expected += 1;
                }
                assert_eq!(transactions.is_open(), was_open);
            }
            Err(error) => {
                assert!(matches!(error, DecodeError::Protocol { .. }));
                assert_eq!(transactions.is_open(), was_open, "an error changes nothing");
            }
        }
    }
}

/// Puts messages into the form that [`follow_anything`] reads.
pub(crate) fn stream<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        let length = u16::try_from(message.len()).expect("corpus messages are short");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(message);
    }
    bytes
}

fn decode_one(bytes: &[u8]) {
    match decode(bytes) {
        Ok(Message::Insert { relation_id, new }) => {
            assert_eq!(peek_relation_id(bytes), Some(relation_id));
            walk(&new);
        }
        Ok(Message::Update {
            relation_id,
            old,
            new,
        }) => {
            assert_eq!(peek_relation_id(bytes), Some(relation_id));
            old.iter().for_each(walk);
            walk(&new);
        }
        Ok(Message::Delete { relation_id, old }) => {
            assert_eq!(peek_relation_id(bytes), Some(relation_id));
            walk(&old);
        }
        Ok(Message::Truncate { relation_ids, .. }) => {
            assert_eq!(relation_ids.iter().count(), relation_ids.len());
        }
        Ok(_) => {}
        // The text is part of what must not panic.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn walk(tuple: &Tuple<'_>) {
    assert_eq!(tuple.columns().count(), tuple.column_count());
}
