//! Whole messages over a byte stream, with both directions in buffers we own.

use crate::error::ConnectError;
use crate::message::{HEADER_BYTES, Header, Row, data_row, server_error, tag_name};
use bytes::{Bytes, BytesMut};
use postgres_protocol::message::frontend;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// One read asks for this much; about a thousand small rows.
pub(crate) const READ_BYTES: usize = 256 * 1024;
/// A capacity kept beyond the frame that needed it would be held for ever.
const CAPACITY_KEPT_BYTES: usize = 1024 * 1024;
/// Before sign-in the peer is a stranger: nothing honest is longer.
pub(crate) const STRANGER_BYTES_MAX: u32 = 64 * 1024;
/// A whole answer to one of our own commands.
pub(crate) const ANSWER_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// A server message outside the copy stream.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) body: Bytes,
}

/// A stream with its buffers. Invariant: `input` begins at a message boundary, or in a body that the copy
/// layer takes in pieces, and `output` holds exactly what the stream has not taken.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    /// All that was ever read.
    received_bytes: u64,
    pub(crate) input: BytesMut,
    pub(crate) output: BytesMut,
    /// `host:port/dbname` for errors.
    pub(crate) target: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S, target: String) -> Self {
        Self {
            stream,
            received_bytes: 0,
            input: BytesMut::new(),
            output: BytesMut::new(),
            target,
        }
    }

    /// Gives the stream up; the buffers must be empty, else the peer sent what nobody asked for.
    pub(crate) fn into_stream(self) -> Result<S, ConnectError> {
        if self.input.is_empty() && self.output.is_empty() {
            return Ok(self.stream);
        }
        Err(ConnectError::protocol(
            "bytes after the server said it was ready",
        ))
    }

    /// Hears what the server has said by itself since it was ready, so that nothing is left in the buffer.
    ///
    /// # Errors
    ///
    /// It ended the session in that moment, or the peer answered what nobody had asked.
    pub(crate) async fn hear_remarks(&mut self) -> Result<(), ConnectError> {
        while !self.input.is_empty() {
            let message = self.message(STRANGER_BYTES_MAX).await?;
            match message.tag {
                _ if is_remark(&message) => {}
                b'E' => {
                    let error = server_error(b'E', &message.body)?;
                    return Err(ConnectError::Server(Box::new(error)));
                }
                tag => {
                    let context = format!("message {} after the server was ready", tag_name(tag));
                    return Err(ConnectError::protocol(context));
                }
            }
        }
        Ok(())
    }

    /// The next message of at most `bytes_max`.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: bytes read so far stay in the buffer.
    pub(crate) async fn message(&mut self, bytes_max: u32) -> Result<Message, ConnectError> {
        loop {
            if let Some(header) = Header::parse(&self.input)? {
                if header.body_bytes > bytes_max {
                    return Err(ConnectError::protocol(format!(
                        "message {} of {} bytes where at most {bytes_max} are allowed",
                        tag_name(header.tag),
                        header.body_bytes
                    )));
                }
                let total = HEADER_BYTES + header.body_bytes as usize;
                if self.input.len() >= total {
                    let body = self.input.split_to(total).freeze().slice(HEADER_BYTES..);
                    return Ok(Message {
                        tag: header.tag,
                        body,
                    });
                }
            }
            self.fill(READ_BYTES / 16).await?;
        }
    }

    /// Like [`message`](Self::message), with remarks passed over and an error response turned into our error.
    pub(crate) async fn answer(&mut self, bytes_max: u32) -> Result<Message, ConnectError> {
        loop {
            let message = self.message(bytes_max).await?;
            match message.tag {
                _ if is_remark(&message) => {}
                b'E' => {
                    return Err(ConnectError::Server(Box::new(server_error(
                        b'E',
                        &message.body,
                    )?)));
                }
                _ => return Ok(message),
            }
        }
    }

    /// Sends one simple query and reads its answer to the end.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: the rest of the answer would be taken for the next one's.
    pub(crate) async fn query(&mut self, statement: &str) -> Result<Vec<Row>, ConnectError> {
        self.send_query(statement).await?;
        let (mut rows, mut failure, mut bytes_left) = (Vec::new(), None, ANSWER_BYTES_MAX);
        loop {
            let message = self.message(bytes_left).await?;
            bytes_left =
                bytes_left.saturating_sub(u32::try_from(message.body.len()).unwrap_or(u32::MAX));
            match message.tag {
                _ if is_remark(&message) => {}
                b'D' => rows.push(data_row(&message.body)?),
                b'E' => failure = Some(server_error(b'E', &message.body)?),
                b'Z' => break,
                // Row descriptions and command tags.
                b'T' | b'C' | b'I' => {}
                tag => {
                    let context = format!("message {} in the answer to a query", tag_name(tag));
                    return Err(ConnectError::protocol(context));
                }
            }
            // After FATAL no ReadyForQuery follows.
            if failure
                .as_ref()
                .is_some_and(|error| error.severity != "ERROR")
            {
                break;
            }
        }
        failure.map_or(Ok(rows), |error| Err(ConnectError::Server(Box::new(error))))
    }

    pub(crate) async fn send_query(&mut self, statement: &str) -> Result<(), ConnectError> {
        self.encode(|output| frontend::query(statement, output))?;
        self.flush().await
    }

    /// Appends a message to what is to be sent.
    pub(crate) fn encode(
        &mut self,
        encode: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), ConnectError> {
        let before = self.output.len();
        encode(&mut self.output).map_err(|error| {
            // Half a message must not stay behind.
            self.output.truncate(before);
            ConnectError::Config {
                keyword: "statement".into(),
                reason: "a zero byte, or longer than a message can be".into(),
                source: Some(error.into()),
            }
        })
    }

    /// Hands all of `output` to the stream.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: what was not taken stays in `output` and goes with the next call.
    pub(crate) async fn flush(&mut self) -> Result<(), ConnectError> {
        poll_fn(|context| self.poll_flush(context))
            .await
            .map_err(|error| ConnectError::io(&self.target, "sending", error))
    }

    /// Reads once, at least one byte, with room for `want` bytes more. Also pushes on what an
    /// earlier, dropped send left in `output`.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub(crate) async fn fill(&mut self, want: usize) -> Result<(), ConnectError> {
        self.make_room(want);
        let read = poll_fn(|context| {
            if !self.output.is_empty() {
                // Not ready is no reason not to read; the waker is registered for both.
                if let Poll::Ready(Err(error)) = self.poll_flush(context) {
                    return Poll::Ready(Err(error));
                }
            }
            self.poll_read(context)
        })
        .await
        .map_err(|error| ConnectError::io(&self.target, "reading", error))?;
        if read == 0 {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(ConnectError::io(&self.target, "reading", error));
        }
        self.received_bytes += read as u64;
        Ok(())
    }

    /// How many bytes the peer has sent so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Closes the sending side politely; the peer may be gone already, which is as good.
    pub(crate) async fn terminate(mut self) {
        frontend::terminate(&mut self.output);
        if self.flush().await.is_ok() {
            // An error here means that the peer was quicker.
            drop(self.stream.shutdown().await);
        }
    }

    fn make_room(&mut self, want: usize) {
        self.input.reserve(want);
        // After, not before: the buffer shows its true capacity only once it has been moved back
        // to its beginning, and an idle stream must not hold on to what one large frame needed.
        if self.input.capacity() > CAPACITY_KEPT_BYTES
            && self.input.len() + want <= CAPACITY_KEPT_BYTES / 2
        {
            let mut smaller = BytesMut::with_capacity(self.input.len() + want);
            smaller.extend_from_slice(&self.input);
            self.input = smaller;
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let taken = ready!(Pin::new(&mut self.stream).poll_write(context, &self.output))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            // Removed only once the stream has it: that makes a dropped send harmless.
            bytes::Buf::advance(&mut self.output, taken);
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // The future holds nothing but the two borrows, so a new one for each poll is the same.
        pin!(self.stream.read_buf(&mut self.input)).poll(context)
    }
}

/// Whether the server says this by itself, whatever it was asked: a notice (it is logged), a notification or a changed parameter.
fn is_remark(message: &Message) -> bool {
    if message.tag == b'N' {
        log_notice(&message.body);
    }
    matches!(message.tag, b'N' | b'A' | b'S')
}

/// Notices are the server's remarks, not errors; their text is the server's own.
pub(crate) fn log_notice(body: &[u8]) {
    if let Ok(notice) = server_error(b'N', body) {
        tracing::debug!(
            sqlstate = notice.sqlstate,
            message = notice.message,
            "server notice"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    fn wire(script: &[u8]) -> (Wire<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(4096);
        let mut wire = Wire::new(ours, "db:5432/app".into());
        wire.input.extend_from_slice(script);
        (wire, theirs)
    }

    #[tokio::test]
    async fn a_query_reads_its_answer_to_the_end() {
        let script = b"S\0\0\0\x08a\0b\0T\0\0\0\x06\0\0D\0\0\0\x0b\0\x01\0\0\0\x01xC\0\0\0\x06S\0Z\0\0\0\x05I";
        let (mut wire, _theirs) = wire(script);
        assert_eq!(
            wire.query("SELECT 'x'").await.unwrap(),
            vec![vec![Some(b"x".to_vec())]]
        );
        assert!(wire.into_stream().is_ok());
    }

    #[tokio::test]
    async fn a_failed_query_leaves_the_next_one_its_answer() {
        let script = b"E\0\0\0\x18VERROR\0C42601\0Mbad\0\0Z\0\0\0\x05IC\0\0\0\x06S\0Z\0\0\0\x05I";
        let (mut wire, _theirs) = wire(script);
        assert_eq!(
            wire.query("no").await.unwrap_err().sqlstate(),
            Some("42601")
        );
        assert_eq!(wire.query("SET").await.unwrap(), Vec::<Row>::new());
    }

    #[tokio::test]
    async fn a_fatal_error_is_not_waited_after() {
        let (mut wire, _theirs) = wire(b"E\0\0\0\x19VFATAL\0C57P01\0Mgone\0\0");
        assert_eq!(
            wire.query("SELECT").await.unwrap_err().sqlstate(),
            Some("57P01")
        );
    }

    #[tokio::test]
    async fn statements_with_a_zero_byte_are_not_sent() {
        let (mut wire, _theirs) = wire(b"");
        assert!(matches!(
            wire.query("a\0b").await,
            Err(ConnectError::Config { .. })
        ));
        assert!(wire.output.is_empty(), "nothing half-written may stay");
    }

    #[tokio::test]
    async fn answers_beyond_the_limit_are_not_read() {
        let (mut wire, _theirs) = wire(b"D\x7f\0\0\0");
        assert!(matches!(
            wire.query("SELECT").await,
            Err(ConnectError::Protocol { .. })
        ));
    }

    #[tokio::test]
    async fn bytes_nobody_asked_for_are_noticed() {
        let (wire, _theirs) = wire(b"D");
        assert!(matches!(
            wire.into_stream(),
            Err(ConnectError::Protocol { .. })
        ));
    }

    #[tokio::test]
    async fn an_answer_nobody_asked_for_is_noticed() {
        let (mut wire, _theirs) = wire(b"D\0\0\0\x06\0\0");
        assert!(matches!(
            wire.hear_remarks().await,
            Err(ConnectError::Protocol { .. })
        ));
    }

    /// Found by chaos: all backends were terminated between ReadyForQuery and our next look, and the process stopped for good.
    #[tokio::test]
    async fn a_session_ended_the_moment_it_was_ready_is_the_servers_doing() {
        let end = b"E\0\0\0\x19VFATAL\0C57P01\0Mgone\0\0";
        for half in [end.len(), 9] {
            let (mut wire, mut theirs) = wire(&end[..half]);
            theirs.write_all(&end[half..]).await.unwrap();
            let error = wire.hear_remarks().await.unwrap_err();
            assert_eq!(error.sqlstate(), Some("57P01"));
            assert!(error.is_transient(), "{error}");
        }
    }

    /// A reloaded configuration, a NOTIFY or a warning may come between any two messages.
    #[tokio::test]
    async fn remarks_are_passed_over_wherever_they_come() {
        let remarks =
            b"S\0\0\0\x08a\0b\0N\0\0\0\x18SWARNING\0C01000\0Mx\0\0A\0\0\0\x0c\0\0\0\x01c\0p\0";
        let (mut ready, _theirs) = wire(remarks);
        ready.hear_remarks().await.unwrap();
        assert!(ready.into_stream().is_ok());

        let (mut asked, _theirs) = wire(&[remarks, b"W\0\0\0\x07\0\0\0".as_slice()].concat());
        assert_eq!(asked.answer(ANSWER_BYTES_MAX).await.unwrap().tag, b'W');
        assert!(asked.into_stream().is_ok());
    }
}
