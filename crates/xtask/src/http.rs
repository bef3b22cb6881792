//! The status of a page on this machine, in the few lines that takes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// No page of ours takes longer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for a page and gives the status code of the answer.
///
/// # Errors
/// Nothing answers at this address (`host:port`), or not in HTTP.
pub fn get_status(address: &str, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(address).context("connect")?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .context("set a limit")?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").context("ask")?;
    let mut answer = Vec::new();
    // A server may close hard once it has answered; what arrived counts.
    stream.read_to_end(&mut answer).ok();
    status(&answer).context("no HTTP answer")
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_from_the_first_line() {
        assert_eq!(
            status(b"HTTP/1.1 503 Service Unavailable\r\nx: y\r\n\r\n"),
            Some(503)
        );
        assert_eq!(status(b"HTTP/1.0 200 OK\r\n\r\n"), Some(200));
        assert_eq!(status(b"SSH-2.0"), None);
    }
}
