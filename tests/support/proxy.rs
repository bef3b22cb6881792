//! A TCP proxy between the connector and a server: it passes bytes on, late, not at all, or ends the connections.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait;

/// A proxy on a port of 127.0.0.1. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    link: watch::Sender<Link>,
    acceptor: JoinHandle<()>,
}

/// How the proxy treats what passes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Passes bytes on at once.
    Open,
    /// Passes bytes on after this time, in both directions.
    Slow(Duration),
    /// Keeps its connections and passes nothing on, as a network that lost its route.
    Silent,
    /// Ends its connections and every new one.
    Cut,
}

/// One read of a connection; as small as it is, a slow link carries little at a time.
const CHUNK_BYTES: usize = 16 * 1024;

impl Proxy {
    /// Listens on `port` for connections to `target_port`.
    ///
    /// # Errors
    /// Something listens there already.
    pub async fn start(port: u16, target_port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("listen on port {port}"))?;
        let (link, watched) = watch::channel(Link::Open);
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, target_port, watched.clone()));
            }
        });
        Ok(Self {
            port,
            link,
            acceptor,
        })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Treats all connections like this from now on.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.set(Link::Cut);
    }
}

/// Both directions, until one of them ends or the link is cut.
async fn connection(client: TcpStream, target_port: u16, mut link: watch::Receiver<Link>) {
    if *link.borrow() == Link::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)).await else {
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (one, other) = (link.clone(), link.clone());
    tokio::select! {
        _ = copy(from_client, to_server, one) => (),
        _ = copy(from_server, to_client, other) => (),
        _ = link.wait_for(|link| *link == Link::Cut) => (),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut link: watch::Receiver<Link>,
) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        // The end of a connection does not pass either: nobody hears of it.
        link.wait_for(|link| *link != Link::Silent).await?;
        if read == 0 {
            return Ok(());
        }
        let now = *link.borrow();
        if let Link::Slow(delay) = now {
            wait::pass(delay).await;
        }
        to.write_all(chunk.get(..read).unwrap_or_default()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each connection with what it was sent.
    async fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        port
    }

    async fn proxied() -> (Proxy, TcpStream) {
        let port = xtask::scratch::free_port().unwrap();
        let proxy = Proxy::start(port, echo().await).await.unwrap();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        (proxy, stream)
    }

    async fn answer(stream: &mut TcpStream, within: Duration) -> Option<[u8; 2]> {
        stream.write_all(b"hi").await.ok()?;
        let mut answer = [0; 2];
        let read = tokio::time::timeout(within, stream.read_exact(&mut answer)).await;
        read.ok()?.ok().map(|_| answer)
    }

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn an_open_link_passes_bytes_on_and_a_cut_one_ends() {
        let (proxy, mut stream) = proxied().await;
        assert_eq!(answer(&mut stream, LONG).await, Some(*b"hi"));
        proxy.set(Link::Cut);
        let mut rest = Vec::new();
        assert!(matches!(
            tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await,
            Ok(Ok(0) | Err(_))
        ));
    }

    #[tokio::test]
    async fn a_silent_link_keeps_what_it_was_given() {
        let (proxy, mut stream) = proxied().await;
        proxy.set(Link::Silent);
        assert_eq!(answer(&mut stream, Duration::from_millis(100)).await, None);
        proxy.set(Link::Open);
        let mut late = [0; 2];
        tokio::time::timeout(LONG, stream.read_exact(&mut late))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(late, *b"hi");
    }

    #[tokio::test]
    async fn a_slow_link_takes_its_time() {
        let (proxy, mut stream) = proxied().await;
        let delay = Duration::from_millis(50);
        proxy.set(Link::Slow(delay));
        let start = std::time::Instant::now();
        assert_eq!(answer(&mut stream, LONG).await, Some(*b"hi"));
        assert!(start.elapsed() >= 2 * delay);
    }
}
