//! The head of an Insert that was too large to be read: what of the row can be known all the same.

use crate::cursor::Cursor;

/// An Insert made of a larger one's first bytes: columns that are whole in them, NULL for the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertHead {
    /// A message that [`decode`](crate::decode()) takes, with as many columns as the real one.
    pub message: Vec<u8>,
    /// How many columns, from the first on, are as they were sent.
    pub known_columns: usize,
}

impl InsertHead {
    /// Reads the head. `None` if it is of another message, or does not even say how many columns there are.
    #[must_use]
    pub fn read(head: &[u8]) -> Option<Self> {
        let fixed = head.get(..FIXED_BYTES)?;
        let [b'I', _, _, _, _, b'N', high, low] = *fixed else {
            return None;
        };
        let column_count = usize::from(u16::from_be_bytes([high, low]));
        let mut cursor = Cursor::after_tag(head);
        cursor.take(FIXED_BYTES - 1).ok()?;
        let mut whole_bytes = FIXED_BYTES;
        let mut known_columns = 0;
        while known_columns < column_count && read_column(&mut cursor).is_some() {
            whole_bytes = head.len() - cursor.rest().len();
            known_columns += 1;
        }
        let mut message = head.get(..whole_bytes)?.to_vec();
        message.resize(message.len() + column_count - known_columns, b'n');
        Some(Self {
            message,
            known_columns,
        })
    }
}

fn read_column(cursor: &mut Cursor<'_>) -> Option<()> {
    match cursor.byte().ok()? {
        b'n' | b'u' => Some(()),
        b't' | b'b' => cursor.counted_bytes().ok().map(drop),
        _ => None,
    }
}

/// Tag, relation id, `N`, number of columns.
const FIXED_BYTES: usize = 1 + 4 + 1 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Value, decode};

    fn columns(head: &InsertHead) -> Vec<Option<Vec<u8>>> {
        let Ok(Message::Insert { new, .. }) = decode(&head.message) else {
            panic!("not an insert")
        };
        let text = |value| match value {
            Value::Text(text) => Some(text.to_vec()),
            _ => None,
        };
        new.columns().map(text).collect()
    }

    #[test]
    fn columns_that_are_whole_are_known_and_the_others_are_null() {
        let row = b"I\0\0\x40\0N\0\x03t\0\0\0\x01at\0\0\0\x02bct\0\0\xff\xffdef";
        let head = InsertHead::read(&row[..]).expect("an insert");
        assert_eq!(head.known_columns, 2);
        assert_eq!(
            columns(&head),
            [Some(b"a".to_vec()), Some(b"bc".to_vec()), None]
        );
    }

    #[test]
    fn a_head_cut_anywhere_gives_a_message_that_decodes() {
        let row = b"I\0\0\x40\0N\0\x03t\0\0\0\x01at\0\0\0\x02bct\0\0\0\x03def";
        for end in 0..row.len() {
            let head = InsertHead::read(&row[..end]);
            assert_eq!(head.is_some(), end >= FIXED_BYTES, "{end}");
            if let Some(head) = head {
                assert_eq!(columns(&head).len(), 3, "{end}");
            }
        }
    }

    #[test]
    fn other_messages_have_no_such_head() {
        for head in [&b"U\0\0\x40\0N\0\x01n"[..], b"I\0\0\x40\0K\0\x01n", b""] {
            assert_eq!(InsertHead::read(head), None);
        }
    }
}
