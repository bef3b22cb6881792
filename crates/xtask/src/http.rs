//! Pages and REST calls on this machine, in the few lines that takes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// No page of ours takes longer.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Kafka Connect gives up on a request of its own after a minute and a half.
const REST_TIMEOUT: Duration = Duration::from_secs(100);

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// Asks for a page and gives the status code of the answer.
///
/// # Errors
/// Nothing answers at this address (`host:port`), or not in HTTP.
pub fn get_status(address: &str, path: &str) -> Result<u16> {
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    Ok(exchange(address, &head, PAGE_TIMEOUT)?.status)
}

/// Sends a request, with a body of JSON unless it is empty, and gives the whole answer.
///
/// # Errors
/// Nothing answers at this address (`host:port`), or not in HTTP.
pub fn request(address: &str, method: &str, path: &str, body: &str) -> Result<Answer> {
    // Version 1.0 makes the end of the answer the end of the connection.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, &head, REST_TIMEOUT).with_context(|| format!("{method} {path}"))
}

fn exchange(address: &str, request: &str, timeout: Duration) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream
        .set_read_timeout(Some(timeout))
        .context("set a limit")?;
    stream.write_all(request.as_bytes()).context("ask")?;
    let mut answer = Vec::new();
    // A server may close hard once it has answered; what arrived counts.
    stream.read_to_end(&mut answer).ok();
    parse(&answer).context("no HTTP answer")
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let line = head.strip_prefix("HTTP/1.")?;
    let status = line.split([' ', '\r']).nth(1)?.parse().ok()?;
    let body = body.to_owned();
    Some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_read() {
        let answer = parse(b"HTTP/1.1 503 Service Unavailable\r\nx: y\r\n\r\nnot\r\n\r\nnow");
        let answer = answer.unwrap();
        assert_eq!(answer.status, 503);
        assert_eq!(answer.body, "not\r\n\r\nnow");
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\n\r\n").unwrap().status, 200);
        assert_eq!(parse(b"SSH-2.0"), None);
    }
}
