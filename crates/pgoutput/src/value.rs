//! `Tuple` and `Value`: one row's columns, as slices of the message they came in.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::DecodeError;

/// The columns of one row ("TupleData" in the manual), in the order of its relation's columns.
///
/// Invariant: the bytes were walked once when the message was decoded, so that walking them again
/// cannot fail. Copying a tuple copies a pointer; Debug shows sizes and never values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    kind: TupleKind,
    column_count: u16,
    columns: &'a [u8],
}

/// Which row a tuple is: the byte before it in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TupleKind {
    /// `N`: the row as the statement left it.
    New,
    /// `K`: the key of the row before; columns outside the key are null.
    Key,
    /// `O`: the whole row before (REPLICA IDENTITY FULL).
    Old,
}

/// One column of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// An UPDATE did not touch this out-of-line value, and the server does not send it again.
    UnchangedToast,
    /// The type's text form, in the session's client_encoding.
    Text(&'a [u8]),
    /// The type's binary form; only when the stream was started with `binary 'true'`.
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// Reads and checks a tuple whose kind byte has been read.
    pub(crate) fn read(cursor: &mut Cursor<'a>, kind: TupleKind) -> Result<Self, DecodeError> {
        let column_count = cursor.count()?;
        let start = cursor.rest();
        for _ in 0..column_count {
            match cursor.byte()? {
                b'n' | b'u' => {}
                b't' | b'b' => {
                    cursor.counted_bytes()?;
                }
                other => return Err(cursor.unknown_byte("tuple column kind", other)),
            }
        }
        let length = start.len().saturating_sub(cursor.rest().len());
        Ok(Self {
            kind,
            column_count,
            columns: start.get(..length).unwrap_or_default(),
        })
    }

    /// How many values [`columns`](Self::columns) yields.
    #[must_use]
    pub fn column_count(&self) -> usize {
        usize::from(self.column_count)
    }

    /// The values in column order; borrows from the message, not from the tuple.
    pub fn columns(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        Columns {
            left: self.column_count,
            rest: self.columns,
        }
    }

    /// New row, old row, or the old row's key.
    #[must_use]
    pub fn kind(&self) -> TupleKind {
        self.kind
    }

    /// Bytes this tuple takes in its message, for budgets.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.columns.len()
    }
}

impl fmt::Debug for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Tuple({:?}, {} columns, {} bytes)",
            self.kind,
            self.column_count,
            self.columns.len()
        )
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(f, "Null"),
            Self::UnchangedToast => write!(f, "UnchangedToast"),
            Self::Text(bytes) => write!(f, "Text({} bytes)", bytes.len()),
            Self::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
        }
    }
}

struct Columns<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Iterator for Columns<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let value = split_value(&mut self.rest);
        debug_assert!(value.is_some(), "Tuple::read checks every column");
        value
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

fn split_value<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
    let (kind, behind) = rest.split_first()?;
    let (value, behind) = match kind {
        b'n' => (Value::Null, behind),
        b'u' => (Value::UnchangedToast, behind),
        _ => {
            let (length, behind) = behind.split_first_chunk()?;
            let (bytes, behind) =
                behind.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
            (
                if *kind == b't' {
                    Value::Text(bytes)
                } else {
                    Value::Binary(bytes)
                },
                behind,
            )
        }
    };
    *rest = behind;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first byte stands for the message's tag.
    fn read(bytes: &[u8]) -> Result<Tuple<'_>, DecodeError> {
        Tuple::read(&mut Cursor::after_tag(bytes), TupleKind::New)
    }

    #[test]
    fn yields_every_kind_of_value() {
        let tuple = read(b"I\0\x05nut\0\0\0\x02hit\0\0\0\0b\0\0\0\x01\xFFleft").unwrap();
        assert_eq!(
            tuple.columns().collect::<Vec<_>>(),
            [
                Value::Null,
                Value::UnchangedToast,
                Value::Text(b"hi"),
                Value::Text(b""),
                Value::Binary(b"\xFF")
            ]
        );
        assert_eq!((tuple.column_count(), tuple.byte_len()), (5, 2 + 7 + 5 + 6));
    }

    #[test]
    fn a_table_without_columns_has_an_empty_tuple() {
        assert_eq!(read(b"I\0\0").unwrap().columns().count(), 0);
    }

    #[test]
    fn an_unknown_kind_is_named_with_its_offset() {
        assert_eq!(
            read(b"I\0\x02nx"),
            Err(DecodeError::UnknownByte {
                place: "tuple column kind",
                byte: b'x',
                offset: 4
            })
        );
    }

    #[test]
    fn debug_never_shows_values() {
        let tuple = read(b"I\0\x01t\0\0\0\x06secret").unwrap();
        assert_eq!(format!("{tuple:?}"), "Tuple(New, 1 columns, 11 bytes)");
        assert_eq!(
            format!("{:?}", tuple.columns().next()),
            "Some(Text(6 bytes))"
        );
    }
}
