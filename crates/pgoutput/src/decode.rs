//! Stage 3 of 9: `Message`, from the bytes of the output plugin; one function per message of protocol version 1.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::cursor::Cursor;
use crate::error::{DecodeError, later_version};
use crate::message::{Message, RelationIds};
use crate::relation::{Column, Relation};
use crate::value::{Tuple, TupleKind};

/// The fewest bytes a column takes in a Relation message: flag, empty name, type, modifier.
const RELATION_COLUMN_BYTES_MIN: usize = 1 + 1 + 4 + 4;

/// Decodes the message inside an [`XLogData`](crate::Envelope::XLogData).
///
/// Allocates for a Relation and for nothing else. No input makes it panic, and a message is
/// understood to its last byte or refused.
///
/// # Errors
/// `LaterVersion` for messages that only come when asked for, `UnknownByte` and `Malformed` for what
/// no version has. Offsets count from the start of `message`.
pub fn decode(message: &[u8]) -> Result<Message<'_>, DecodeError> {
    let mut cursor = Cursor::after_tag(message);
    let Some(tag) = message.first() else {
        return Err(cursor.malformed("a message without a single byte"));
    };
    let decoded = match tag {
        b'B' => begin(&mut cursor)?,
        b'C' => commit(&mut cursor)?,
        b'O' => origin(&mut cursor)?,
        b'R' => relation(&mut cursor)?,
        b'Y' => data_type(&mut cursor)?,
        b'I' => insert(&mut cursor)?,
        b'U' => update(&mut cursor)?,
        b'D' => delete(&mut cursor)?,
        b'T' => truncate(&mut cursor)?,
        b'M' => logical(&mut cursor)?,
        other => return Err(not_version_1(&cursor, *other)),
    };
    cursor.finish()?;
    Ok(decoded)
}

/// The relation of an Insert, Update or Delete, from the message's first bytes.
///
/// For a frame too large to be read whole, so that the report can name its table. `None` for other
/// messages and for fewer than five bytes.
#[must_use]
pub fn peek_relation_id(message_head: &[u8]) -> Option<u32> {
    let (tag, behind) = message_head.split_first()?;
    let (id, _) = behind.split_first_chunk()?;
    matches!(tag, b'I' | b'U' | b'D').then(|| u32::from_be_bytes(*id))
}

fn begin<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    Ok(Message::Begin {
        final_lsn: cursor.lsn()?,
        commit_time: cursor.timestamp()?,
        xid: cursor.u32()?,
    })
}

fn commit<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    // No flag is defined, and PostgreSQL's own subscriber refuses any: one could change what Commit means.
    match cursor.byte()? {
        0 => {}
        flags => return Err(cursor.unknown_byte("flags of a Commit", flags)),
    }
    Ok(Message::Commit {
        commit_lsn: cursor.lsn()?,
        end_lsn: cursor.lsn()?,
        commit_time: cursor.timestamp()?,
    })
}

fn origin<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    Ok(Message::Origin {
        commit_lsn: cursor.lsn()?,
        name: cursor.string()?,
    })
}

fn relation<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let id = cursor.u32()?;
    let namespace = namespace(cursor)?.to_owned();
    let name = cursor.string()?.to_owned();
    let replica_identity = cursor.byte()?;
    let count = usize::from(cursor.count()?);
    // A count that lies must not reserve more than the message could hold.
    let mut columns =
        Vec::with_capacity(count.min(cursor.rest().len() / RELATION_COLUMN_BYTES_MIN));
    for _ in 0..count {
        columns.push(column(cursor)?);
    }
    Ok(Message::Relation(Relation {
        id,
        namespace,
        name,
        replica_identity,
        columns,
    }))
}

fn column(cursor: &mut Cursor<'_>) -> Result<Column, DecodeError> {
    Ok(Column {
        // Only bit 1 is defined; others say nothing about the key.
        key: cursor.byte()? & 1 == 1,
        name: cursor.string()?.to_owned(),
        type_oid: cursor.u32()?,
        type_modifier: cursor.i32()?,
    })
}

fn data_type<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    Ok(Message::Type {
        oid: cursor.u32()?,
        namespace: namespace(cursor)?,
        name: cursor.string()?,
    })
}

fn insert<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let relation_id = cursor.u32()?;
    match cursor.byte()? {
        b'N' => Ok(Message::Insert {
            relation_id,
            new: Tuple::read(cursor, TupleKind::New)?,
        }),
        other => Err(cursor.unknown_byte("tuple kind in an Insert", other)),
    }
}

fn update<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    const PLACE: &str = "tuple kind in an Update";
    let relation_id = cursor.u32()?;
    let old = match cursor.byte()? {
        b'K' => Some(Tuple::read(cursor, TupleKind::Key)?),
        b'O' => Some(Tuple::read(cursor, TupleKind::Old)?),
        b'N' => None,
        other => return Err(cursor.unknown_byte(PLACE, other)),
    };
    if old.is_some() {
        match cursor.byte()? {
            b'N' => {}
            other => return Err(cursor.unknown_byte(PLACE, other)),
        }
    }
    Ok(Message::Update {
        relation_id,
        old,
        new: Tuple::read(cursor, TupleKind::New)?,
    })
}

fn delete<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let relation_id = cursor.u32()?;
    let kind = match cursor.byte()? {
        b'K' => TupleKind::Key,
        b'O' => TupleKind::Old,
        other => return Err(cursor.unknown_byte("tuple kind in a Delete", other)),
    };
    Ok(Message::Delete {
        relation_id,
        old: Tuple::read(cursor, kind)?,
    })
}

fn truncate<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let count = cursor.u32()?;
    let options = cursor.byte()?;
    // A product beyond usize is certainly beyond the message.
    let length = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .saturating_mul(size_of::<u32>());
    Ok(Message::Truncate {
        options,
        relation_ids: RelationIds::new(cursor.take(length)?),
    })
}

fn logical<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let transactional = match cursor.byte()? {
        0 => false,
        1 => true,
        flags => return Err(cursor.unknown_byte("flags of a logical message", flags)),
    };
    Ok(Message::Logical {
        transactional,
        lsn: cursor.lsn()?,
        prefix: cursor.string()?,
        content: cursor.counted_bytes()?,
    })
}

/// The protocol abbreviates the schema of everything built in.
fn namespace<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, DecodeError> {
    Ok(match cursor.string()? {
        "" => "pg_catalog",
        namespace => namespace,
    })
}

fn not_version_1(cursor: &Cursor<'_>, tag: u8) -> DecodeError {
    match later_version(tag) {
        Some((message, protocol_version)) => DecodeError::LaterVersion {
            message,
            tag: char::from(tag),
            protocol_version,
        },
        None => cursor.unknown_byte("message tag", tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lsn, PgTimestamp, Value};

    #[track_caller]
    fn check(message: &[u8], expected: &Message<'_>) {
        assert_eq!(decode(message).as_ref(), Ok(expected));
    }

    #[track_caller]
    fn refuse(message: &[u8], expected: &str) {
        assert_eq!(
            decode(message).map_err(|error| error.to_string()),
            Err(expected.to_owned())
        );
    }

    #[test]
    fn begin_and_commit() {
        check(
            b"B\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04",
            &Message::Begin {
                final_lsn: Lsn::new(0x1_0000_0002),
                commit_time: PgTimestamp::new(3),
                xid: 4,
            },
        );
        check(
            b"C\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03",
            &Message::Commit {
                commit_lsn: Lsn::new(1),
                end_lsn: Lsn::new(2),
                commit_time: PgTimestamp::new(3),
            },
        );
    }

    #[test]
    fn a_commit_with_flags_is_not_trusted() {
        refuse(b"C\x01", "unknown flags of a Commit 0x01 at byte 1");
    }

    #[test]
    fn origin_and_type() {
        check(
            b"O\0\0\0\0\0\0\x12\x34elsewhere\0",
            &Message::Origin {
                commit_lsn: Lsn::new(0x1234),
                name: "elsewhere",
            },
        );
        check(
            b"Y\0\0\x40\0public\0mood\0",
            &Message::Type {
                oid: 16384,
                namespace: "public",
                name: "mood",
            },
        );
    }

    #[test]
    fn the_empty_schema_is_pg_catalog() {
        check(
            b"Y\0\0\0\x01\0t\0",
            &Message::Type {
                oid: 1,
                namespace: "pg_catalog",
                name: "t",
            },
        );
        let Ok(Message::Relation(relation)) = decode(b"R\0\0\0\x01\0pg_class\0n\0\0") else {
            panic!("not a relation");
        };
        assert_eq!(relation.namespace, "pg_catalog");
    }

    #[test]
    fn relation_with_columns() {
        let column = |key, name: &str, type_oid, type_modifier| Column {
            key,
            name: name.to_owned(),
            type_oid,
            type_modifier,
        };
        check(
            b"R\0\0\x40\0public\0outbox\0d\0\x02\x01id\0\0\0\0\x14\xFF\xFF\xFF\xFF\0v\0\0\0\x04\x13\0\0\0\x0E",
            &Message::Relation(Relation {
                id: 16384,
                namespace: "public".to_owned(),
                name: "outbox".to_owned(),
                replica_identity: b'd',
                columns: vec![column(true, "id", 20, -1), column(false, "v", 1043, 14)],
            }),
        );
    }

    #[test]
    fn insert_yields_slices_of_the_message() {
        let message = b"I\0\0\x40\0N\0\x02nt\0\0\0\x02hi";
        let Ok(Message::Insert {
            relation_id: 16384,
            new,
        }) = decode(message)
        else {
            panic!("not an insert");
        };
        assert_eq!(new.kind(), TupleKind::New);
        assert_eq!(
            new.columns().collect::<Vec<_>>(),
            [Value::Null, Value::Text(b"hi")]
        );
    }

    #[test]
    fn update_with_and_without_the_old_row() {
        let kinds = |message| match decode(message) {
            Ok(Message::Update {
                relation_id: 1,
                old,
                new,
            }) => (
                old.map(|old| (old.kind(), old.column_count())),
                new.column_count(),
            ),
            other => panic!("{other:?}"),
        };
        assert_eq!(kinds(b"U\0\0\0\x01N\0\x01u"), (None, 1));
        assert_eq!(
            kinds(b"U\0\0\0\x01K\0\x01nN\0\x01u"),
            (Some((TupleKind::Key, 1)), 1)
        );
        assert_eq!(
            kinds(b"U\0\0\0\x01O\0\x02nnN\0\x02uu"),
            (Some((TupleKind::Old, 2)), 2)
        );
        refuse(
            b"U\0\0\0\x01X",
            "unknown tuple kind in an Update 0x58 at byte 5",
        );
        refuse(
            b"U\0\0\0\x01K\0\x01nK",
            "unknown tuple kind in an Update 0x4B at byte 9",
        );
    }

    #[test]
    fn delete_with_key_or_row() {
        let kind = |message| match decode(message) {
            Ok(Message::Delete {
                relation_id: 1,
                old,
            }) => old.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(b"D\0\0\0\x01K\0\x01n"), TupleKind::Key);
        assert_eq!(kind(b"D\0\0\0\x01O\0\x01n"), TupleKind::Old);
        refuse(
            b"D\0\0\0\x01N\0\x01n",
            "unknown tuple kind in a Delete 0x4E at byte 5",
        );
    }

    #[test]
    fn truncate_of_several_relations() {
        let Ok(Message::Truncate {
            options: 3,
            relation_ids,
        }) = decode(b"T\0\0\0\x02\x03\0\0\0\x07\0\0\0\x08")
        else {
            panic!("not a truncate");
        };
        assert_eq!(relation_ids.iter().collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn a_truncate_that_counts_too_many_is_refused() {
        refuse(
            b"T\xFF\xFF\xFF\xFF\0\0\0\0\x07",
            "malformed Truncate message at byte 6: the message ends inside a field",
        );
    }

    #[test]
    fn logical_message() {
        check(
            b"M\x01\0\0\0\0\0\0\0\x05hb\0\0\0\0\x02\0\xFF",
            &Message::Logical {
                transactional: true,
                lsn: Lsn::new(5),
                prefix: "hb",
                content: b"\0\xFF",
            },
        );
        refuse(
            b"M\x02",
            "unknown flags of a logical message 0x02 at byte 1",
        );
    }

    #[test]
    fn a_lying_column_count_reserves_no_memory() {
        refuse(
            b"R\0\0\0\x01\0t\0d\x7F\xFF",
            "malformed Relation message at byte 11: the message ends inside a field",
        );
    }

    #[test]
    fn later_versions_are_refused_by_name() {
        for (tag, name, version) in [
            ('S', "Stream Start", 2),
            ('E', "Stream Stop", 2),
            ('c', "Stream Commit", 2),
            ('A', "Stream Abort", 2),
            ('b', "Begin Prepare", 3),
            ('P', "Prepare", 3),
            ('K', "Commit Prepared", 3),
            ('r', "Rollback Prepared", 3),
            ('p', "Stream Prepare", 3),
        ] {
            assert_eq!(
                decode(&[u8::try_from(tag).unwrap(), 0, 0]),
                Err(DecodeError::LaterVersion {
                    message: name,
                    tag,
                    protocol_version: version
                })
            );
        }
    }

    #[test]
    fn every_other_byte_is_unknown() {
        let known = b"BCORYIUDTMSEcAbPKrp";
        for byte in (0..=u8::MAX).filter(|byte| !known.contains(byte)) {
            let error = DecodeError::UnknownByte {
                place: "message tag",
                byte,
                offset: 0,
            };
            assert_eq!(decode(&[byte, 1, 2, 3]), Err(error));
        }
    }

    #[test]
    fn an_empty_message_is_malformed() {
        refuse(
            b"",
            "malformed empty message at byte 0: a message without a single byte",
        );
    }

    #[test]
    fn peeks_at_row_messages_only() {
        assert_eq!(peek_relation_id(b"I\0\0\x40\0"), Some(16384));
        assert_eq!(peek_relation_id(b"U\0\0\x40\0N\0\x01t"), Some(16384));
        assert_eq!(peek_relation_id(b"D\0\0\x40\0"), Some(16384));
        for head in [&b""[..], b"I", b"I\0\0\x40", b"R\0\0\x40\0", b"B\0\0\x40\0"] {
            assert_eq!(peek_relation_id(head), None, "{head:?}");
        }
    }
}
