//! `Cursor`: the only reader of wire bytes; every read is checked and knows its offset.

use crate::error::{DecodeError, message_name};
use crate::{Lsn, PgTimestamp};

/// Reads one message from front to back.
///
/// Invariant: `rest` is a suffix of `whole`, so the offset is the difference of their lengths.
pub(crate) struct Cursor<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts behind the tag byte, which the caller has looked at.
    pub(crate) fn after_tag(whole: &'a [u8]) -> Self {
        Self {
            whole,
            rest: whole.get(1..).unwrap_or_default(),
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn lsn(&mut self) -> Result<Lsn, DecodeError> {
        self.array()
            .map(|bytes| Lsn::new(u64::from_be_bytes(bytes)))
    }

    pub(crate) fn timestamp(&mut self) -> Result<PgTimestamp, DecodeError> {
        self.array()
            .map(|bytes| PgTimestamp::new(i64::from_be_bytes(bytes)))
    }

    /// A count of columns: an Int16 of the manual, never negative on the wire.
    pub(crate) fn count(&mut self) -> Result<u16, DecodeError> {
        let mut read = self.fork();
        let count = i16::from_be_bytes(read.array()?);
        let count = u16::try_from(count).map_err(|_| self.malformed("a negative count"))?;
        self.rest = read.rest;
        Ok(count)
    }

    /// An Int32 length and that many bytes.
    pub(crate) fn counted_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let mut read = self.fork();
        let length =
            usize::try_from(read.i32()?).map_err(|_| self.malformed("a negative length"))?;
        let bytes = read.take(length)?;
        self.rest = read.rest;
        Ok(bytes)
    }

    /// A String of the manual: UTF-8, because the session pins client_encoding, and ended by a zero byte.
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        let Some(length) = self.rest.iter().position(|byte| *byte == 0) else {
            return Err(self.malformed("a string without its final zero byte"));
        };
        let Ok(text) = std::str::from_utf8(self.rest.get(..length).unwrap_or_default()) else {
            return Err(self.malformed("a string that is not UTF-8"));
        };
        self.take(length + 1)?;
        Ok(text)
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.malformed("the message ends inside a field"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// Everything that is left.
    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends the message: bytes left over mean that it was not understood.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.malformed("bytes behind the end of the message"))
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn offset(&self) -> usize {
        self.whole.len() - self.rest.len()
    }

    pub(crate) fn malformed(&self, problem: &'static str) -> DecodeError {
        let message = self.whole.first().map_or("empty", |tag| message_name(*tag));
        DecodeError::Malformed {
            message,
            offset: self.offset(),
            problem,
        }
    }

    /// The error for `byte`, just read, where only certain bytes may stand.
    pub(crate) fn unknown_byte(&self, place: &'static str, byte: u8) -> DecodeError {
        DecodeError::UnknownByte {
            place,
            byte,
            offset: self.offset().saturating_sub(1),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.malformed("the message ends inside a field"));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    // A field of two parts is read on a copy, so that an error points at the field's start.
    fn fork(&self) -> Self {
        Self {
            whole: self.whole,
            rest: self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug>(
        result: Result<T, DecodeError>,
        expected_offset: usize,
        expected_problem: &str,
    ) {
        match result {
            Err(DecodeError::Malformed {
                message: "Insert",
                offset,
                problem,
            }) => {
                assert_eq!((offset, problem), (expected_offset, expected_problem));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_names_the_message_and_where_the_field_began() {
        check(
            Cursor::after_tag(b"I\0").u32(),
            1,
            "the message ends inside a field",
        );
        check(
            Cursor::after_tag(b"Iabc").string(),
            1,
            "a string without its final zero byte",
        );
        check(
            Cursor::after_tag(b"I\xFF\0").string(),
            1,
            "a string that is not UTF-8",
        );
        check(
            Cursor::after_tag(b"I\xFF\xFF").count(),
            1,
            "a negative count",
        );
        check(
            Cursor::after_tag(b"I\xFF\xFF\xFF\xFF").counted_bytes(),
            1,
            "a negative length",
        );
        check(
            Cursor::after_tag(b"I\0\0\0\x02x").counted_bytes(),
            5,
            "the message ends inside a field",
        );
    }

    #[test]
    fn a_string_ends_at_its_zero_byte() {
        let mut cursor = Cursor::after_tag("Ié\0rest".as_bytes());
        assert_eq!(cursor.string(), Ok("é"));
        assert_eq!(cursor.remainder(), b"rest");
        assert_eq!(cursor.finish(), Ok(()));
    }

    #[test]
    fn left_over_bytes_are_an_error() {
        check(
            Cursor::after_tag(b"Ix").finish(),
            1,
            "bytes behind the end of the message",
        );
    }
}
