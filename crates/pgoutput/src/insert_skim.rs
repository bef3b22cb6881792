//! `InsertSkim`: reads past a frame that is too large to be kept, and keeps what is to be known of it.

use std::fmt;

/// Takes the body of a CopyData frame in pieces, cut anywhere, and makes an excerpt of it.
///
/// The excerpt is the body itself, but of an Insert every value above [`COLUMN_BYTES_MAX`], and every one that would be too
/// much together with those before it ([`VALUES_BYTES_MAX`]), has only its length there. Of anything else it is the first
/// 33 bytes. [`Envelope::parse`](crate::Envelope::parse) opens it as it does the body, and
/// [`InsertExcerpt::read`](crate::InsertExcerpt::read) reads the row.
///
/// It holds at most the values' limit and five bytes for each column. Bytes that are no Insert end the excerpt where they
/// stop being one, so that it is refused just as they would be.
///
/// ```text
///           33 bytes         n, u                  t, b           4 bytes           small
///   Head ─────────────▶ Kind ─────▶ Kind      Kind ─────▶ Length ─────────┬──▶ Kept ───────▶ Kind
///     │                  │                                  │             └──▶ Passed ─────▶ Kind
///     └──────────────────┴── no Insert, or its end ─────────┴──▶ Over         large
/// ```
#[derive(Default)]
pub struct InsertSkim {
    excerpt: Vec<u8>,
    part: Part,
    /// Bytes of the part that are still to come; 0 only when it is over.
    part_bytes_left: usize,
    columns_left: u16,
    /// Bytes of all values in the excerpt.
    value_bytes: usize,
}

/// What the next byte belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing that matters any more, or no body was begun.
    #[default]
    Over,
    /// The envelope, and the message up to its number of columns.
    Head,
    /// A column's kind. Behind the last column: a byte too many.
    Kind,
    /// The length of a value.
    Length,
    /// A value that is kept.
    Kept,
    /// A value of which the length is enough.
    Passed,
}

impl InsertSkim {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new body begins.
    pub fn begin(&mut self) {
        self.excerpt.clear();
        self.value_bytes = 0;
        self.columns_left = 0;
        (self.part, self.part_bytes_left) = (Part::Head, HEAD_BYTES);
    }

    /// Takes the next piece of the body.
    pub fn pass(&mut self, mut piece: &[u8]) {
        while self.part != Part::Over && !piece.is_empty() {
            let (bytes, behind) = piece.split_at(self.part_bytes_left.min(piece.len()));
            if self.part != Part::Passed {
                self.excerpt.extend_from_slice(bytes);
            }
            self.part_bytes_left -= bytes.len();
            piece = behind;
            // More than once for a value without bytes.
            while self.part != Part::Over && self.part_bytes_left == 0 {
                (self.part, self.part_bytes_left) = self.next_part();
            }
        }
    }

    /// What is kept of the body so far; of all of it, once all of it has passed.
    #[must_use]
    pub fn excerpt(&self) -> &[u8] {
        &self.excerpt
    }

    fn next_part(&mut self) -> (Part, usize) {
        let next = match self.part {
            Part::Head => self.columns(),
            Part::Kind => self.column(),
            Part::Length => self.value(),
            Part::Kept => Some((Part::Kind, 1)),
            Part::Passed => self.left_out(),
            Part::Over => None,
        };
        next.unwrap_or((Part::Over, 0))
    }

    fn columns(&mut self) -> Option<(Part, usize)> {
        let (b'w', [b'I', _, _, _, _, b'N', count @ ..]) = (
            *self.excerpt.first()?,
            self.excerpt.last_chunk::<INSERT_HEAD_BYTES>()?,
        ) else {
            return None;
        };
        self.columns_left = u16::try_from(i16::from_be_bytes(*count)).ok()?;
        Some((Part::Kind, 1))
    }

    fn column(&mut self) -> Option<(Part, usize)> {
        self.columns_left = self.columns_left.checked_sub(1)?;
        match self.excerpt.last()? {
            b'n' | b'u' => Some((Part::Kind, 1)),
            b't' | b'b' => Some((Part::Length, LENGTH_BYTES)),
            _ => None,
        }
    }

    fn value(&mut self) -> Option<(Part, usize)> {
        let length = i32::from_be_bytes(*self.excerpt.last_chunk::<LENGTH_BYTES>()?);
        let bytes = usize::try_from(length).ok()?;
        if bytes <= COLUMN_BYTES_MAX && self.value_bytes + bytes <= VALUES_BYTES_MAX {
            self.value_bytes += bytes;
            return Some((Part::Kept, bytes));
        }
        Some((Part::Passed, bytes))
    }

    // Not before all of the value has passed: of a body that ends inside it, it is as if cut.
    fn left_out(&mut self) -> Option<(Part, usize)> {
        let kind_at = self.excerpt.len().checked_sub(LENGTH_BYTES + 1)?;
        *self.excerpt.get_mut(kind_at)? = VALUE_LEFT_OUT;
        Some((Part::Kind, 1))
    }
}

impl fmt::Debug for InsertSkim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sizes only: the excerpt holds a row's values.
        f.debug_struct("InsertSkim")
            .field("part", &self.part)
            .field("excerpt_bytes", &self.excerpt.len())
            .finish_non_exhaustive()
    }
}

/// A value above this is left out of an excerpt.
pub const COLUMN_BYTES_MAX: usize = 4 * 1024;

/// The values in an excerpt have at most this many bytes together.
pub const VALUES_BYTES_MAX: usize = 64 * 1024;

/// The kind of a column in an excerpt that has only its length. No message has it.
pub(crate) const VALUE_LEFT_OUT: u8 = b'x';

/// Tag, relation id, `N`, number of columns.
const INSERT_HEAD_BYTES: usize = 1 + 4 + 1 + 2;

/// XLogData's own fields, and the message up to its columns.
const HEAD_BYTES: usize = 1 + 8 + 8 + 8 + INSERT_HEAD_BYTES;

/// The length of a value.
const LENGTH_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, InsertExcerpt, decode};

    fn body(columns: &[&[u8]]) -> Vec<u8> {
        let mut body = b"w________________________I\0\0\x40\0N".to_vec();
        body.extend(u16::try_from(columns.len()).unwrap().to_be_bytes());
        body.extend(columns.concat());
        body
    }

    fn text(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&b"t"[..], &length, &vec![b'v'; bytes]].concat()
    }

    fn excerpt(body: &[u8]) -> Vec<u8> {
        let mut skim = InsertSkim::new();
        skim.begin();
        skim.pass(body);
        skim.excerpt().to_vec()
    }

    fn row(body: &[u8]) -> InsertExcerpt {
        let excerpt = excerpt(body);
        let Ok(Envelope::XLogData { message, .. }) = Envelope::parse(&excerpt) else {
            panic!("not a message")
        };
        InsertExcerpt::read(message).unwrap().unwrap()
    }

    #[test]
    fn a_value_is_kept_up_to_its_limit() {
        let (small, large) = (text(COLUMN_BYTES_MAX), text(COLUMN_BYTES_MAX + 1));
        let row = row(&body(&[&large, &small, b"n", b"u", &text(0)]));
        let kept = body(&[b"n", &small, b"n", b"u", &text(0)]);
        assert_eq!(row.message, kept[25..]);
        let left_out = [0, 1, 2, 3, 4].map(|column| row.left_out.bytes_of(column));
        assert_eq!(left_out, [Some(4097), None, None, None, None]);
    }

    #[test]
    fn values_are_kept_up_to_their_limit_together() {
        let small = text(COLUMN_BYTES_MAX);
        let many = [&small[..]; VALUES_BYTES_MAX / COLUMN_BYTES_MAX];
        let behind = [&text(1)[..], &text(0)];
        let row = row(&body(&[&many[..], &behind].concat()));
        assert_eq!(row.left_out.bytes_of(many.len() - 1), None);
        assert_eq!(row.left_out.bytes_of(many.len()), Some(1));
        assert_eq!(row.left_out.bytes_of(many.len() + 1), None);
    }

    #[test]
    fn of_other_frames_the_beginning_is_kept() {
        let mut update = body(&[&text(100)]);
        update[25] = b'U';
        let mut keepalive = update.clone();
        keepalive[0] = b'k';
        for frame in [update, keepalive, vec![7; 10], Vec::new()] {
            assert_eq!(excerpt(&frame), frame[..frame.len().min(33)]);
        }
    }

    #[test]
    fn what_is_no_insert_stays_none() {
        let negative_length = b"t\xFF\xFF\xFF\xFF".as_slice();
        let left_out_already = b"x\0\0\0\x01".as_slice();
        for columns in [&[negative_length][..], &[left_out_already], &[b"y", b"n"]] {
            let body = body(columns);
            let excerpt = excerpt(&body);
            assert!(decode(&body[25..]).is_err(), "{columns:?}");
            assert!(InsertExcerpt::read(&excerpt[25..]).is_err(), "{columns:?}");
        }
        let cut = body(&[&text(5000)[..1000]]);
        assert!(InsertExcerpt::read(&excerpt(&cut)[25..]).is_err());
        let longer = [body(&[b"n"]), vec![b'n'; 1000]].concat();
        let excerpt = excerpt(&longer);
        assert_eq!(excerpt.len(), 33 + 2);
        assert!(InsertExcerpt::read(&excerpt[25..]).is_err());
    }

    #[test]
    fn nothing_of_the_body_before_is_left() {
        let (first, second) = (body(&[&text(9), &text(5000)]), body(&[&text(3)]));
        let mut skim = InsertSkim::new();
        for body in [&first, &second] {
            skim.begin();
            skim.pass(body);
        }
        assert_eq!(skim.excerpt(), second);
        assert!(!format!("{skim:?}").contains("vvv"));
    }
}
