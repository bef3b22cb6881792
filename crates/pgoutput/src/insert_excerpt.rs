//! `InsertExcerpt`: a row that was too large to be kept, with the values that were.

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::insert_skim::VALUE_LEFT_OUT;

/// An Insert of which the large values are missing.
#[derive(Clone, PartialEq, Eq)]
pub struct InsertExcerpt {
    /// A message that [`decode`](crate::decode()) takes: the real one with NULL for what was left out.
    pub message: Vec<u8>,
    /// The columns that are NULL in it for that reason.
    pub left_out: LeftOut,
}

/// Columns whose values were too large to be kept, and how large they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// By column, ascending.
    columns: Vec<(usize, u32)>,
}

impl InsertExcerpt {
    /// Reads what [`InsertSkim`](crate::InsertSkim) kept of an Insert, without its envelope. `None` for another message.
    ///
    /// # Errors
    /// As [`decode`](crate::decode()) on the whole message, with offsets in the excerpt.
    pub fn read(excerpt: &[u8]) -> Result<Option<Self>, DecodeError> {
        if excerpt.first() != Some(&b'I') {
            return Ok(None);
        }
        let mut cursor = Cursor::after_tag(excerpt);
        cursor.u32()?;
        match cursor.byte()? {
            b'N' => {}
            other => return Err(cursor.unknown_byte("tuple kind in an Insert", other)),
        }
        let column_count = cursor.count()?;
        let mut message = excerpt.get(..cursor.offset()).unwrap_or_default().to_vec();
        let mut left_out = LeftOut::default();
        for column in 0..usize::from(column_count) {
            let start = cursor.rest();
            match cursor.byte()? {
                b'n' | b'u' => {}
                b't' | b'b' => drop(cursor.counted_bytes()?),
                VALUE_LEFT_OUT => {
                    left_out.columns.push((column, cursor.u32()?));
                    message.push(b'n');
                    continue;
                }
                other => return Err(cursor.unknown_byte("tuple column kind", other)),
            }
            let bytes = start.len() - cursor.rest().len();
            message.extend_from_slice(start.get(..bytes).unwrap_or_default());
        }
        cursor.finish()?;
        Ok(Some(Self { message, left_out }))
    }
}

impl LeftOut {
    /// Nothing: the row is as it was sent.
    pub const NOTHING: Self = Self {
        columns: Vec::new(),
    };

    /// The size of a column's value if it was left out.
    #[must_use]
    pub fn bytes_of(&self, column: usize) -> Option<u32> {
        let at = self.columns.binary_search_by_key(&column, |entry| entry.0);
        Some(self.columns.get(at.ok()?)?.1)
    }
}

/// Shows sizes only: the message holds a row's values.
impl std::fmt::Debug for InsertExcerpt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertExcerpt")
            .field("message_bytes", &self.message.len())
            .field("left_out", &self.left_out)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Value, decode};

    #[test]
    fn what_was_left_out_is_null_and_has_a_size() {
        let excerpt = b"I\0\0\x40\0N\0\x04x\0\x10\0\0t\0\0\0\x02hinx\0\0\x10\x01";
        let row = InsertExcerpt::read(excerpt).unwrap().unwrap();
        let Ok(Message::Insert { relation_id, new }) = decode(&row.message) else {
            panic!("not an insert")
        };
        assert_eq!(relation_id, 0x4000);
        assert_eq!(
            new.columns().collect::<Vec<_>>(),
            [Value::Null, Value::Text(b"hi"), Value::Null, Value::Null]
        );
        let sizes = [0, 1, 2, 3, 4].map(|column| row.left_out.bytes_of(column));
        assert_eq!(sizes, [Some(0x10_0000), None, None, Some(0x1001), None]);
        assert_eq!(LeftOut::NOTHING.bytes_of(0), None);
    }

    #[test]
    fn other_messages_have_no_rows() {
        for message in [&b"U\0\0\x40\0N\0\x01n"[..], b"M\x01", b""] {
            assert_eq!(InsertExcerpt::read(message), Ok(None));
        }
    }

    #[test]
    fn what_is_no_insert_to_its_last_byte_is_refused() {
        let whole = b"I\0\0\x40\0N\0\x02t\0\0\0\x02hix\0\0\x10\x01";
        for end in 1..whole.len() {
            let read = InsertExcerpt::read(&whole[..end]);
            assert!(
                matches!(read, Err(DecodeError::Malformed { .. })),
                "{end}: {read:?}"
            );
        }
        let longer = [&whole[..], b"n"].concat();
        assert!(InsertExcerpt::read(&longer).is_err());
        for unknown in [&b"I\0\0\x40\0K\0\x01n"[..], b"I\0\0\x40\0N\0\x01y"] {
            let read = InsertExcerpt::read(unknown);
            assert!(
                matches!(read, Err(DecodeError::UnknownByte { .. })),
                "{read:?}"
            );
        }
    }

    #[test]
    fn debug_never_shows_values() {
        let row = InsertExcerpt::read(b"I\0\0\x40\0N\0\x01t\0\0\0\x06secret");
        assert!(!format!("{row:?}").contains("secret"));
    }
}
