//! The SQL connection: `tokio_postgres` on a session that this crate opened.
//!
//! tokio_postgres would sign in by its own rules (clear text on a bare connection, for one). So the
//! session is opened and pinned here, the same way as a replication connection, and the library
//! gets a stream that repeats the end of the conversation it believes to begin.

use crate::error::ConnectError;
use crate::session::Session;
use bytes::{BufMut, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

/// Hands the session over and drives the connection in a task that ends with the client.
pub(crate) async fn client(session: Session) -> Result<Client, ConnectError> {
    let greeting = greeting(&session);
    let target = session.wire.target.clone();
    let stream = Resumed {
        stream: session.wire.into_stream()?,
        greeting,
        startup: Startup::Length,
    };
    let mut config = Config::new();
    // TLS, user and options were settled before; what the library sends goes nowhere.
    config.ssl_mode(SslMode::Disable).user("signed-in");
    let (client, connection) =
        config
            .connect_raw(stream, NoTls)
            .await
            .map_err(|error| ConnectError::Unreachable {
                target: target.clone(),
                reason: "the connection was lost".into(),
                source: Some(error.into()),
            })?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            // Whoever waits for a statement gets the error too and decides; this is for the record.
            tracing::debug!(target, %error, "SQL connection ended");
        }
    });
    Ok(client)
}

/// What a server says between AuthenticationOk and the first ReadyForQuery.
fn greeting(session: &Session) -> BytesMut {
    let mut bytes = BytesMut::new();
    message(&mut bytes, b'R', &[&0i32.to_be_bytes()]);
    for (name, value) in &session.parameters {
        message(
            &mut bytes,
            b'S',
            &[name.as_bytes(), b"\0", value.as_bytes(), b"\0"],
        );
    }
    // Only keys of the old length are understood there; a longer one is for cancelling alone.
    if let Some(key) = session.backend_key.as_ref().filter(|key| key.len() == 8) {
        message(&mut bytes, b'K', &[key]);
    }
    message(&mut bytes, b'Z', &[b"I"]);
    bytes
}

fn message(out: &mut BytesMut, tag: u8, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>() + 4;
    out.put_u8(tag);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    parts.iter().for_each(|part| out.put_slice(part));
}

/// A stream that answers the start-up message by itself and is transparent from then on.
struct Resumed<S> {
    stream: S,
    greeting: BytesMut,
    startup: Startup,
}

/// How much of the library's start-up message is still to be swallowed.
enum Startup {
    /// Its length word has not been seen.
    Length,
    Bytes(usize),
    Done,
}

impl<S: AsyncRead + Unpin> AsyncRead for Resumed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.greeting.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = this.greeting.len().min(buffer.remaining());
        buffer.put_slice(&this.greeting.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Resumed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let left = match this.startup {
            Startup::Done => return Pin::new(&mut this.stream).poll_write(context, bytes),
            Startup::Bytes(left) => left,
            // The library encodes the message as a whole, so the length comes in one piece.
            Startup::Length => match bytes.split_first_chunk::<4>() {
                Some((length, _)) => u32::from_be_bytes(*length) as usize,
                None => return Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
            },
        };
        let swallowed = left.min(bytes.len());
        this.startup = match left - swallowed {
            0 => Startup::Done,
            left => Startup::Bytes(left),
        };
        Poll::Ready(Ok(swallowed))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_start_up_message_is_answered_and_goes_nowhere() {
        for first in [8, 9, 14, 15] {
            let (ours, mut theirs) = tokio::io::duplex(64);
            let greeting = BytesMut::from(&b"greeting"[..]);
            let mut resumed = Resumed {
                stream: ours,
                greeting,
                startup: Startup::Length,
            };
            let message = b"\0\0\0\x0fstart-up...";
            resumed.write_all(&message[..first]).await.unwrap();
            resumed.write_all(&message[first..]).await.unwrap();
            resumed.write_all(b"query").await.unwrap();
            let mut received = [0; 5];
            theirs.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, b"query");
            theirs.write_all(b"answer").await.unwrap();
            let mut read = [0; 14];
            resumed.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, b"greetinganswer");
        }
    }
}
