//! HTTP connections: how many, and for how long, so that nobody who opens them can use this process up.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Serves until `stop` resolves; answers under way then have [`GRACE`] to finish.
///
/// # Cancel safety
/// Dropping the future closes the listener and every connection.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_with(listener, router, HEAD_TIMEOUT, stop).await;
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    head_timeout: Duration,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let has_room = connections.len() < CONNECTIONS_MAX;
        tokio::select! {
            () = &mut stop => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            // Beyond the limit they wait in the system's queue, where they cost us nothing.
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(answer(stream, router.clone(), head_timeout, stopped.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, for one: a connection that ends makes room.
                    tracing::debug!(%error, "an HTTP connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    // Nobody listening means that no connection is open.
    stopping.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    // A peer that does not read its answer must not hold up the end of the process.
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::debug!("an HTTP connection was cut");
    }
}

/// One connection, from its first request to its last answer.
async fn answer(
    stream: TcpStream,
    router: Router,
    head_timeout: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match tokio::time::timeout(CONNECTION_TIMEOUT, ended).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
        Err(_) => tracing::debug!("an HTTP connection was cut after its time"),
    }
}

/// Connections open at the same time.
const CONNECTIONS_MAX: usize = 64;

/// How long a request's head may take, and how long a connection may rest between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one connection may last: nobody holds one of the few for ever.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Larger heads are refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Before trying again what the system refused.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long answers under way may take after the stop.
const GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A listener with one page and little patience.
    async fn listen() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let router = Router::new().route("/", axum::routing::get(async || "page"));
        let head_timeout = Duration::from_millis(200);
        tokio::spawn(serve_with(
            listener,
            router,
            head_timeout,
            std::future::pending(),
        ));
        address
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // A reset is an end as well.
        drop(stream.read_to_string(&mut text).await);
        text
    }

    async fn get(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        rest(stream).await
    }

    #[tokio::test]
    async fn a_head_that_never_ends_is_cut_off() {
        let address = listen().await;
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHos")
            .await
            .expect("sent");
        let text = rest(stream).await;
        assert!(!text.contains("page"), "{text}");
    }

    #[tokio::test]
    async fn idlers_cannot_keep_others_out() {
        let address = listen().await;
        let mut idlers = Vec::new();
        for _ in 0..CONNECTIONS_MAX + 8 {
            idlers.push(TcpStream::connect(address).await.expect("a connection"));
        }
        assert!(get(address).await.contains("page"));
    }

    #[tokio::test]
    async fn a_large_head_is_refused() {
        let address = listen().await;
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = format!(
            "GET / HTTP/1.1\r\nX: {}\r\n\r\n",
            "x".repeat(HEAD_BYTES_MAX)
        );
        drop(stream.write_all(head.as_bytes()).await);
        let text = rest(stream).await;
        assert!(!text.contains("page"), "{text}");
    }
}
