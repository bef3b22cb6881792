//! The copy stream in both directions: frames as slices of the buffer they were read into.

use crate::error::ConnectError;
use crate::message::{HEADER_BYTES, Header, server_error, tag_name};
use crate::skim::{FirstBytes, Skim};
use crate::socket::Stream;
use crate::wire::{ANSWER_BYTES_MAX, READ_BYTES, Wire, log_notice};
use bytes::{Buf, BufMut};
use postgres_protocol::message::frontend;
use std::ops::Range;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The default of [`CopyBoth::set_frame_bytes_max`].
pub const FRAME_BYTES_MAX_DEFAULT: u32 = 64 * 1024 * 1024;
/// Unsent bytes beyond this mean that the peer has stopped reading.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// How long a graceful end may take before the connection is simply closed.
const FINISH_LIMIT: Duration = Duration::from_secs(3);

/// A streaming replication connection.
///
/// Reading and writing are one object, so there is no second task and no lock; both are cancel-safe
/// and can stand in the same `select!` loop, one after the other.
#[derive(Debug)]
pub struct CopyBoth {
    frames: Frames<Stream>,
}

/// What [`CopyBoth::next_frame`] yields.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The body of a CopyData message.
    Data(&'a [u8]),
    /// A CopyData message above the limit. It was read past without being kept.
    TooLarge {
        /// The size of the whole body.
        size_bytes: u64,
        /// What the [`Skim`] kept of it: its first 4 KiB, unless another one was set.
        head: &'a [u8],
    },
    /// The server ended the stream. Every further call says the same.
    End,
}

impl CopyBoth {
    pub(crate) fn new(wire: Wire<Stream>) -> Self {
        Self {
            frames: Frames::new(wire),
        }
    }

    /// Bodies above this size are shown as [`Frame::TooLarge`].
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: u32) {
        self.frames.frame_bytes_max = frame_bytes_max;
    }

    /// What is to be kept of such bodies. Call it before the first frame.
    pub fn set_skim(&mut self, skim: Box<dyn Skim>) {
        self.frames.skim = skim;
    }

    /// The next frame, waiting for it if need be.
    ///
    /// # Errors
    ///
    /// `Server` when the server ended the stream with an error, `Unreachable` for a lost
    /// connection, `Protocol` for bytes that cannot be. All of them are final.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped call loses no byte and no frame.
    pub async fn next_frame(&mut self) -> Result<Frame<'_>, ConnectError> {
        self.frames.next_frame().await
    }

    /// The next frame if it has been read already; never waits.
    ///
    /// # Errors
    ///
    /// As [`next_frame`](Self::next_frame).
    pub fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, ConnectError> {
        self.frames.buffered_frame()
    }

    /// Bytes read so far, of whole frames and of the one under way: while this grows, the server is not silent, however long
    /// a large frame takes.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.frames.wire.received_bytes()
    }

    /// Sends one CopyData message.
    ///
    /// # Errors
    ///
    /// `Unreachable` for a lost connection and for a peer that reads nothing any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: once polled, the message is in our buffer and goes out with the next call of
    /// this or of [`next_frame`](Self::next_frame). It must not be sent again.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), ConnectError> {
        self.frames.send(body).await
    }

    /// Ends the stream: CopyDone, then reading past what is under way until the server has ended it
    /// too, then Terminate. Takes a few seconds at most. What was sent before has then been
    /// processed by the server, unless the limit struck.
    pub async fn finish(self) {
        if tokio::time::timeout(FINISH_LIMIT, self.frames.finish())
            .await
            .is_err()
        {
            tracing::debug!("the server did not end the stream in time");
        }
    }
}

/// The framing over any stream.
///
/// ```text
///            header + whole body            Data(len)
///   Between ───────────────────────────────────────────▶ Shown(n) ── next call ──▶ Between
///      │     header above the limit                           TooLarge                ▲
///      ├───────────────────────────▶ Passing(n) ── n bytes through the skim ──────────┘
///      └──── CopyDone, CommandComplete, ReadyForQuery ─▶ ended
/// ```
#[derive(Debug)]
struct Frames<S> {
    wire: Wire<S>,
    frame_bytes_max: u32,
    skim: Box<dyn Skim>,
    /// Bytes at the front of the input that the caller has seen, or that nobody is to see.
    discard: usize,
    /// The body above the limit that the input begins in.
    passing: Option<Passing>,
    ended: bool,
}

/// A body that goes through the skim as it is read.
#[derive(Debug, Clone, Copy)]
struct Passing {
    size_bytes: u32,
    left_bytes: usize,
}

/// Where in the input the next thing to show is.
enum Found {
    Data(Range<usize>),
    TooLarge { size_bytes: u32 },
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    fn new(wire: Wire<S>) -> Self {
        Self {
            wire,
            frame_bytes_max: FRAME_BYTES_MAX_DEFAULT,
            skim: Box::new(FirstBytes::default()),
            discard: 0,
            passing: None,
            ended: false,
        }
    }

    async fn next_frame(&mut self) -> Result<Frame<'_>, ConnectError> {
        loop {
            // The search returns places, not slices: a slice held over the await could not be returned.
            if let Some(found) = self.find()? {
                return Ok(self.show(found));
            }
            self.wire.fill(self.bytes_wanted()).await?;
        }
    }

    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, ConnectError> {
        Ok(self.find()?.map(|found| self.show(found)))
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), ConnectError> {
        if self.wire.output.len() > UNSENT_BYTES_MAX {
            let reason = "the server reads nothing of what is sent";
            return Err(ConnectError::unreachable(&self.wire.target, reason));
        }
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        self.wire.output.put_u8(b'd');
        self.wire.output.put_u32(length);
        self.wire.output.put_slice(body);
        self.wire.flush().await
    }

    async fn finish(mut self) {
        if !self.ended {
            frontend::copy_done(&mut self.wire.output);
            if self.wire.flush().await.is_err() {
                return;
            }
            // Errors end this as well as the end does.
            while !self.ended && self.next_frame().await.is_ok() {}
        }
        self.wire.terminate().await;
    }

    /// Looks for the next frame in the buffer, passing over what is none.
    fn find(&mut self) -> Result<Option<Found>, ConnectError> {
        loop {
            self.wire.input.advance(std::mem::take(&mut self.discard));
            if self.ended {
                return Ok(Some(Found::End));
            }
            if let Some(passing) = self.passing {
                return Ok(self.pass(passing));
            }
            let Some(Header { tag, body_bytes }) = Header::parse(&self.wire.input)? else {
                return Ok(None);
            };
            if tag == b'd' && body_bytes > self.frame_bytes_max {
                self.discard = HEADER_BYTES;
                self.skim.begin();
                self.passing = Some(Passing {
                    size_bytes: body_bytes,
                    left_bytes: body_bytes as usize,
                });
                continue;
            }
            if tag != b'd' && body_bytes > ANSWER_BYTES_MAX {
                let context = format!(
                    "message {} of {body_bytes} bytes in the stream",
                    tag_name(tag)
                );
                return Err(ConnectError::protocol(context));
            }
            let place = HEADER_BYTES..HEADER_BYTES + body_bytes as usize;
            if self.wire.input.len() < place.end {
                return Ok(None);
            }
            self.discard = place.end;
            if tag == b'd' {
                return Ok(Some(Found::Data(place)));
            }
            let body = self.wire.input.get(place).unwrap_or_default();
            self.ended = interpret(tag, body)?;
        }
    }

    /// Takes of a body what has been read. It is found once that was the rest of it.
    fn pass(&mut self, mut passing: Passing) -> Option<Found> {
        let here = self.wire.input.len().min(passing.left_bytes);
        self.skim
            .pass(self.wire.input.get(..here).unwrap_or_default());
        self.wire.input.advance(here);
        passing.left_bytes -= here;
        self.passing = (passing.left_bytes > 0).then_some(passing);
        let size_bytes = passing.size_bytes;
        self.passing
            .is_none()
            .then_some(Found::TooLarge { size_bytes })
    }

    fn show(&self, found: Found) -> Frame<'_> {
        let slice = |place: Range<usize>| self.wire.input.get(place).unwrap_or_default();
        match found {
            Found::Data(place) => Frame::Data(slice(place)),
            Found::TooLarge { size_bytes } => Frame::TooLarge {
                size_bytes: size_bytes.into(),
                head: self.skim.kept(),
            },
            Found::End => Frame::End,
        }
    }

    /// Room for the rest of the frame under way, at least one read. Called when there is none to show.
    fn bytes_wanted(&self) -> usize {
        let body_bytes = match Header::parse(&self.wire.input) {
            Ok(Some(header)) if header.body_bytes <= self.frame_bytes_max => header.body_bytes,
            _ => 0,
        };
        (HEADER_BYTES + body_bytes as usize)
            .saturating_sub(self.wire.input.len())
            .max(READ_BYTES)
    }
}

/// SQLSTATE class 55: something is not in the state that the stream needs.
const NOT_IN_PREREQUISITE_STATE: &str = "55";

/// What a message other than CopyData means for the stream: whether it has ended.
fn interpret(tag: u8, body: &[u8]) -> Result<bool, ConnectError> {
    match tag {
        // A walsender that shuts down sends CommandComplete without CopyDone.
        b'c' | b'C' | b'Z' => Ok(true),
        b'E' => Err(ConnectError::Server(Box::new(server_error(b'E', body)?))),
        b'N' => {
            let notice = server_error(b'N', body)?;
            // PostgreSQL 18 answers a publication that did not exist at the position it decodes with a warning of this
            // class, and then leaves the rows out: to go on would be to lose them.
            if notice.sqlstate.starts_with(NOT_IN_PREREQUISITE_STATE) {
                return Err(ConnectError::Server(Box::new(notice)));
            }
            log_notice(body);
            Ok(false)
        }
        // Parameter changes and notifications.
        b'S' | b'A' => Ok(false),
        _ => Err(ConnectError::protocol(format!(
            "message {} in the stream",
            tag_name(tag)
        ))),
    }
}

#[cfg(test)]
#[path = "copyboth_tests.rs"]
mod tests;
