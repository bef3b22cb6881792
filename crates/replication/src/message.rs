//! Bytes of single server messages: the frame around each, and the few bodies we read.
//!
//! Everything here is bounds-checked: hostile bytes make a `Protocol` error, never a panic.

use crate::error::{ConnectError, ServerError};

/// Tag and length word before every message.
pub(crate) const HEADER_BYTES: usize = 5;

/// What the first five bytes of a message say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) tag: u8,
    /// Without tag and length word.
    pub(crate) body_bytes: u32,
}

impl Header {
    /// Reads the header at the start of `buffer`; `None` while it is not there as a whole.
    ///
    /// # Errors
    ///
    /// `Protocol` for a length that cannot be: the length word counts itself and is signed.
    pub(crate) fn parse(buffer: &[u8]) -> Result<Option<Self>, ConnectError> {
        let Some((head, _)) = buffer.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [tag, length @ ..] = *head;
        let length = i32::from_be_bytes(length);
        match u32::try_from(length.wrapping_sub(4)) {
            Ok(body_bytes) if length >= 4 => Ok(Some(Self { tag, body_bytes })),
            _ => Err(ConnectError::protocol(format!(
                "message {} with the impossible length {length}",
                tag_name(tag)
            ))),
        }
    }
}

/// A tag fit for an error text, whatever byte it is.
pub(crate) fn tag_name(tag: u8) -> String {
    format!("'{}'", tag.escape_ascii())
}

/// A cursor over a message body.
pub(crate) struct Body<'a> {
    rest: &'a [u8],
    tag: u8,
}

impl<'a> Body<'a> {
    pub(crate) fn new(tag: u8, body: &'a [u8]) -> Self {
        Self { rest: body, tag }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], ConnectError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| self.short())?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ConnectError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| self.short())?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ConnectError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ConnectError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ConnectError> {
        self.array().map(i32::from_be_bytes)
    }

    /// Text up to a zero byte; the start-up messages may be in any encoding, so it is made UTF-8.
    pub(crate) fn text(&mut self) -> Result<String, ConnectError> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| self.short())?;
        let text = String::from_utf8_lossy(self.bytes(end)?).into_owned();
        self.byte()?;
        Ok(text)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn short(&self) -> ConnectError {
        ConnectError::protocol(format!("message {} ends too early", tag_name(self.tag)))
    }
}

/// Reads an ErrorResponse or NoticeResponse. Fields we do not know are passed over.
pub(crate) fn server_error(tag: u8, body: &[u8]) -> Result<ServerError, ConnectError> {
    let mut body = Body::new(tag, body);
    let (mut error, mut translated) = (ServerError::default(), String::new());
    loop {
        let field = body.byte()?;
        if field == 0 {
            break;
        }
        let text = body.text()?;
        match field {
            b'V' => error.severity = text,
            b'S' => translated = text,
            b'C' => error.sqlstate = text,
            b'M' => error.message = text,
            b'D' => error.detail = Some(text),
            b'H' => error.hint = Some(text),
            _ => {}
        }
    }
    if error.severity.is_empty() {
        error.severity = translated;
    }
    Ok(error)
}

/// One row of a simple query: text or NULL for each column.
pub(crate) type Row = Vec<Option<Vec<u8>>>;

/// Reads a DataRow.
pub(crate) fn data_row(body: &[u8]) -> Result<Row, ConnectError> {
    let mut body = Body::new(b'D', body);
    let count = body.u16()?;
    (0..count)
        .map(|_| {
            let length = body.i32()?;
            match usize::try_from(length) {
                Ok(length) => body.bytes(length).map(|value| Some(value.to_vec())),
                Err(_) if length == -1 => Ok(None),
                Err(_) => Err(ConnectError::protocol(
                    "message 'D' with a negative value length",
                )),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_needs_all_five_bytes() {
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&b"d\0\0\0\x08"[..length]).unwrap(), None);
        }
        let header = Header::parse(b"d\0\0\0\x08rest").unwrap();
        assert_eq!(
            header,
            Some(Header {
                tag: b'd',
                body_bytes: 4
            })
        );
    }

    #[test]
    fn impossible_lengths_are_protocol_errors() {
        for length in [0i32, 3, -1, i32::MIN, i32::MIN + 3] {
            let mut bytes = vec![b'E'];
            bytes.extend(length.to_be_bytes());
            let error = Header::parse(&bytes).unwrap_err();
            assert!(matches!(error, ConnectError::Protocol { .. }), "{length}");
        }
    }

    #[test]
    fn an_error_response_is_read_field_by_field() {
        let body = b"SFEHLER\0VERROR\0C55006\0Mslot is active\0Dmore\0Hdo this\0Ffile.c\0\0";
        let error = server_error(b'E', body).unwrap();
        assert_eq!(error.severity, "ERROR");
        assert_eq!(error.sqlstate, "55006");
        assert_eq!(error.to_string(), "ERROR: slot is active (SQLSTATE 55006)");
        assert_eq!(error.detail.as_deref(), Some("more"));
        assert_eq!(error.hint.as_deref(), Some("do this"));
    }

    #[test]
    fn a_row_keeps_null_and_empty_apart() {
        let body = b"\0\x03\0\0\0\x01x\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(
            data_row(body).unwrap(),
            vec![Some(b"x".to_vec()), None, Some(Vec::new())]
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Only the absence of a panic is asserted.
            drop(Header::parse(&bytes));
            drop(server_error(b'E', &bytes));
            drop(data_row(&bytes));
        }
    }
}
