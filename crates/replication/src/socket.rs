//! The byte stream under a connection: TCP with its timers, a Unix socket, or TLS over TCP.

use crate::dsn::TcpOptions;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// What both kinds of connection run over.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    // Large, and the common case for production: one allocation per connection.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects by TCP with the timers set before the first byte, so that they cover connecting too.
pub(crate) async fn tcp(address: SocketAddr, options: &TcpOptions) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    let reference = SockRef::from(&socket);
    if options.keepalives {
        reference.set_tcp_keepalive(&keepalive(options))?;
    }
    #[cfg(target_os = "linux")]
    reference.set_tcp_user_timeout(options.user_timeout)?;
    let stream = socket.connect(address).await?;
    // A status update must not wait for the acknowledgement of the one before it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to a socket file; a leading zero byte means Linux's abstract names.
pub(crate) async fn unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

fn keepalive(options: &TcpOptions) -> TcpKeepalive {
    let mut keepalive = TcpKeepalive::new();
    if let Some(idle) = options.idle {
        keepalive = keepalive.with_time(idle);
    }
    if let Some(interval) = options.interval {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(count) = options.count {
        keepalive = keepalive.with_retries(count);
    }
    keepalive
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
