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
