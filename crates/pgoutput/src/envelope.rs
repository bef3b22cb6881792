//! Stage 2 of 9: `Envelope`, what the walsender puts around messages, and `StatusUpdate`, our answer.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::{Lsn, PgTimestamp};

/// The body of one CopyData frame from the server ("Streaming Replication Protocol" in the manual).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// `w`: carries one message of the output plugin.
    XLogData {
        /// Where the change that the message tells of is in the log. Not ascending from one message
        /// to the next: rows keep their position, transactions come in the order of their commits.
        /// The server leaves it 0/0 on what it sends ahead of something else: Relation, Type, and
        /// a Begin that an Origin follows.
        start_lsn: Lsn,
        /// The server's view of the end of its log when it sent this; in logical replication often `start_lsn` again.
        wal_end: Lsn,
        /// The server's clock when it sent this.
        sent_at: PgTimestamp,
        /// For [`decode`](crate::decode()).
        message: &'a [u8],
    },
    /// `k`: the server is alive, and this far with decoding.
    Keepalive {
        /// Everything before this has been sent.
        wal_end: Lsn,
        /// The server's clock when it sent this.
        sent_at: PgTimestamp,
        /// Whether the server closes the connection unless a [`StatusUpdate`] comes soon.
        reply_requested: bool,
    },
}

impl Envelope<'_> {
    /// Opens the body of a CopyData frame.
    ///
    /// The first bytes of a frame that is too large to read are enough: `message` is then the
    /// message's beginning, for [`peek_relation_id`](crate::peek_relation_id).
    ///
    /// # Errors
    /// `Malformed` or `UnknownByte`: this is not a replication stream, or bytes were lost. Offsets
    /// count from the start of `copy_data`.
    pub fn parse(copy_data: &[u8]) -> Result<Envelope<'_>, DecodeError> {
        let mut cursor = Cursor::after_tag(copy_data);
        match copy_data.first() {
            Some(b'w') => xlog_data(&mut cursor),
            Some(b'k') => keepalive(&mut cursor),
            Some(other) => Err(cursor.unknown_byte("envelope tag", *other)),
            None => Err(cursor.malformed("a frame without a single byte")),
        }
    }
}

/// `r`: tells the server how far we are, so that it may recycle its log.
///
/// Only `flushed` moves the slot. What may stand there is decided by whoever fills this in; the
/// encoder cannot know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Everything before this has been received.
    pub written: Lsn,
    /// Everything before this is safe and need not be sent again.
    pub flushed: Lsn,
    /// Everything before this has been applied; synchronous_commit = remote_apply waits for it.
    pub applied: Lsn,
    /// Our clock now.
    pub sent_at: PgTimestamp,
    /// Whether the server shall answer with a keepalive at once.
    pub reply_requested: bool,
}

impl StatusUpdate {
    /// The body of the CopyData frame to send.
    #[must_use]
    pub fn encode(&self) -> [u8; 34] {
        let mut body = [0; 34];
        let mut rest = body.as_mut_slice();
        put(&mut rest, *b"r");
        put(&mut rest, self.written.as_u64().to_be_bytes());
        put(&mut rest, self.flushed.as_u64().to_be_bytes());
        put(&mut rest, self.applied.as_u64().to_be_bytes());
        put(&mut rest, self.sent_at.as_i64().to_be_bytes());
        put(&mut rest, [u8::from(self.reply_requested)]);
        debug_assert!(rest.is_empty(), "the fields fill the body exactly");
        body
    }
}

impl fmt::Debug for Envelope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Sizes only: the message holds a row's values.
            Self::XLogData {
                start_lsn,
                wal_end,
                message,
                ..
            } => {
                write!(
                    f,
                    "XLogData({start_lsn}, end {wal_end}, {} bytes)",
                    message.len()
                )
            }
            Self::Keepalive {
                wal_end,
                reply_requested,
                ..
            } => {
                write!(
                    f,
                    "Keepalive(end {wal_end}, reply requested: {reply_requested})"
                )
            }
        }
    }
}

fn xlog_data<'a>(cursor: &mut Cursor<'a>) -> Result<Envelope<'a>, DecodeError> {
    Ok(Envelope::XLogData {
        start_lsn: cursor.lsn()?,
        wal_end: cursor.lsn()?,
        sent_at: cursor.timestamp()?,
        message: cursor.remainder(),
    })
}

fn keepalive<'a>(cursor: &mut Cursor<'a>) -> Result<Envelope<'a>, DecodeError> {
    let wal_end = cursor.lsn()?;
    let sent_at = cursor.timestamp()?;
    // As PostgreSQL's own receiver reads it: an answer too many is harmless, one too few is a cut.
    let reply_requested = cursor.byte()? != 0;
    cursor.finish()?;
    Ok(Envelope::Keepalive {
        wal_end,
        sent_at,
        reply_requested,
    })
}

fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((field, behind)) = std::mem::take(rest).split_first_chunk_mut() {
        *field = bytes;
        *rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As a PostgreSQL 15.18 walsender sent them.
    const KEEPALIVE: &[u8] = b"k\0\0\0\0\x01\x52\x09\x58\0\x03\x04\x7a\x8c\x8b\xd7\xdf\0";
    const BEGIN: &[u8] =
        b"w\0\0\0\0\x01\x52\x09\x58\0\0\0\0\x01\x52\x09\x58\0\x03\x04\x7a\x8c\x8b\xd9\x03\
        B\0\0\0\0\x01\x52\x0a\x38\0\x03\x04\x7a\x8c\x8b\xae\x9e\0\0\x02\xd6";
    const RELATION_HEAD: &[u8] =
        b"w\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x04\x7a\x8c\x8b\xd9\x41R\0\0\x40\x01";

    #[test]
    fn reads_what_a_walsender_sends() {
        assert_eq!(
            Envelope::parse(KEEPALIVE),
            Ok(Envelope::Keepalive {
                wal_end: Lsn::new(0x152_0958),
                sent_at: PgTimestamp::new(0x0003_047A_8C8B_D7DF),
                reply_requested: false,
            })
        );
        assert_eq!(
            Envelope::parse(BEGIN),
            Ok(Envelope::XLogData {
                start_lsn: Lsn::new(0x152_0958),
                wal_end: Lsn::new(0x152_0958),
                sent_at: PgTimestamp::new(0x0003_047A_8C8B_D903),
                message: &BEGIN[25..],
            })
        );
    }

    #[test]
    fn a_relation_travels_without_a_position() {
        let Ok(Envelope::XLogData { start_lsn, .. }) = Envelope::parse(RELATION_HEAD) else {
            panic!("not XLogData");
        };
        assert_eq!(start_lsn, Lsn::ZERO);
    }

    #[test]
    fn any_reply_byte_but_zero_asks_for_a_reply() {
        let mut frame = KEEPALIVE.to_vec();
        for (byte, expected) in [(0, false), (1, true), (2, true)] {
            frame[17] = byte;
            match Envelope::parse(&frame) {
                Ok(Envelope::Keepalive {
                    reply_requested, ..
                }) => assert_eq!(reply_requested, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error() {
        for frame in [&KEEPALIVE[..18], &BEGIN[..25]] {
            for length in 0..frame.len() {
                let parsed = Envelope::parse(&frame[..length]);
                assert!(
                    matches!(parsed, Err(DecodeError::Malformed { .. })),
                    "{length}: {parsed:?}"
                );
            }
        }
    }

    #[test]
    fn a_keepalive_has_no_more_bytes() {
        let frame = [KEEPALIVE, b"x"].concat();
        let error = DecodeError::Malformed {
            message: "Keepalive",
            offset: 18,
            problem: "bytes behind the end of the message",
        };
        assert_eq!(Envelope::parse(&frame), Err(error));
    }

    #[test]
    fn an_unknown_frame_is_named() {
        let error = DecodeError::UnknownByte {
            place: "envelope tag",
            byte: b'B',
            offset: 0,
        };
        assert_eq!(Envelope::parse(b"B123"), Err(error));
    }

    #[test]
    fn a_status_update_has_the_manuals_layout() {
        let update = StatusUpdate {
            written: Lsn::new(0x0102_0304_0506_0708),
            flushed: Lsn::new(2),
            applied: Lsn::new(3),
            sent_at: PgTimestamp::new(-1),
            reply_requested: true,
        };
        let body = update.encode();
        let expected = [
            &b"r\x01\x02\x03\x04\x05\x06\x07\x08"[..],
            b"\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03",
            b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
        ];
        assert_eq!(body[..], expected.concat());
        assert_eq!(
            StatusUpdate {
                reply_requested: false,
                ..update
            }
            .encode()[33],
            0
        );
    }

    #[test]
    fn debug_never_shows_the_message() {
        let envelope = Envelope::parse(BEGIN).unwrap();
        assert_eq!(
            format!("{envelope:?}"),
            "XLogData(0/1520958, end 0/1520958, 21 bytes)"
        );
    }
}
