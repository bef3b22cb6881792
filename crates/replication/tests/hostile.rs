//! A server that sends anything: whatever comes, at whatever stage, the end is an error and never a panic or a wait.

#![expect(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::time::Duration;

use replication::{ConnectError, ConnectOptions, Frame, connect_replication, connect_sql};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Conversations spoiled in one run of this test.
const CONVERSATIONS: u64 = 3_000;

/// What a server says until the session is ready to be used; it need not hear what it answers to.
fn beginning(sign_in: &[u8]) -> Vec<u8> {
    let shown = [
        "UTF8", "ISO, MDY", "postgres", "UTC", "hex", "3", "", "warning", "C", "base64", "0", "0",
        "0", "off", "on",
    ];
    let mut row = vec![0, u8::try_from(shown.len()).unwrap()];
    for value in shown {
        row.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        row.extend(value.as_bytes());
    }
    [
        sign_in.to_vec(),
        message(b'S', b"server_version\x0013.7\0"),
        message(b'K', &[0; 8]),
        message(b'Z', b"I"),
        message(b'T', &[0, 0]),
        message(b'D', &row),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// The same to the end of the stream.
fn conversation(sign_in: &[u8]) -> Vec<u8> {
    let keepalive = [b"k".as_slice(), &[0; 16], &[1]].concat();
    let data = [b"w".as_slice(), &[0; 24], b"B", &[7; 20]].concat();
    [
        beginning(sign_in),
        message(b'W', &[0, 0, 0]),
        message(b'd', &data),
        message(b'N', b"SWARNING\0C01000\0Mwords\0\0"),
        message(b'd', &keepalive),
        terminated(),
    ]
    .concat()
}

fn terminated() -> Vec<u8> {
    message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating\0\0")
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

/// Ways to sign in: none, SCRAM with a challenge that cannot be right, md5, clear text, a method nobody knows.
fn sign_ins() -> [Vec<u8>; 5] {
    let authentication =
        |code: u32, rest: &[u8]| message(b'R', &[&code.to_be_bytes()[..], rest].concat());
    let scram = [
        authentication(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"),
        authentication(11, b"r=nonce,s=c2FsdA==,i=4096"),
        authentication(12, b"v=AAAA"),
    ];
    [
        authentication(0, &[]),
        scram.concat(),
        [authentication(5, &[1, 2, 3, 4]), authentication(0, &[])].concat(),
        authentication(3, &[]),
        authentication(99, &[]),
    ]
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mixed = self.0 ^ (self.0 >> 33);
        mixed.wrapping_mul(0xFF51_AFD7_ED55_8CCD) >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// Cuts, changes, repeats or invents.
fn spoil(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(3) {
        let place = numbers.below(bytes.len());
        match numbers.below(6) {
            0 => bytes.truncate(place),
            1 if place < bytes.len() => bytes[place] ^= 1 << numbers.below(8),
            2 if place < bytes.len() => bytes[place] = numbers.byte(),
            // A length, or anything else of four bytes, at its limits.
            3 => {
                let limit = [0, 1, 4, 0x7FFF_FFFF, 0x8000_0000, u32::MAX][numbers.below(6)];
                let end = bytes.len().min(place + 4);
                bytes.splice(place..end, limit.to_be_bytes());
            }
            4 => {
                let count = numbers.below(64);
                let noise: Vec<u8> = (0..count).map(|_| numbers.byte()).collect();
                bytes.splice(place..place, noise);
            }
            _ => {
                let again = bytes[place..].to_vec();
                bytes.extend(again.into_iter().take(200));
            }
        }
    }
}

/// Talks to a server that says `bytes` and closes; gives how many frames came.
async fn meet(bytes: Vec<u8>, sql: bool) -> Result<usize, ConnectError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(&bytes).await.ok();
        client.shutdown().await.ok();
        // The client's own words must not make its end a reset, which could overtake ours.
        let mut heard = [0; 4096];
        while client.read(&mut heard).await.is_ok_and(|count| count > 0) {}
    });
    let text = format!("host=127.0.0.1 port={port} user=u dbname=d password=p sslmode=disable");
    let options = ConnectOptions::parse(&text).unwrap();
    let outcome = if sql {
        connect_sql(&options).await.map(|_| 0)
    } else {
        stream(&options).await
    };
    server.abort();
    outcome
}

async fn stream(options: &ConnectOptions) -> Result<usize, ConnectError> {
    let client = connect_replication(options).await?;
    let mut copy = client.start_replication("slot", 0, &[]).await?;
    copy.set_frame_bytes_max(64);
    let mut frames = 0;
    loop {
        match copy.next_frame().await {
            Ok(Frame::End) => return Ok(frames),
            Ok(_) => frames += 1,
            Err(_) if frames > 0 => return Ok(frames),
            Err(error) => return Err(error),
        }
    }
}

#[tokio::test]
async fn the_conversation_is_right_before_it_is_spoiled() {
    let [trust, ..] = sign_ins();
    assert_eq!(meet(conversation(&trust), false).await.unwrap(), 2);
}

/// The library that takes a session of statements over would take this for bytes that nobody asked for, and the process would stop.
#[tokio::test]
async fn a_session_ended_the_moment_it_was_ready_may_be_tried_again() {
    let [trust, ..] = sign_ins();
    for sql in [true, false] {
        let bytes = [beginning(&trust), terminated()].concat();
        let error = meet(bytes, sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("57P01"), "{error}");
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn spoiled_conversations_end_in_errors() {
    let mut frames = 0;
    for seed in 0..CONVERSATIONS {
        let mut numbers = Numbers(seed);
        let sign_ins = sign_ins();
        let mut bytes = conversation(&sign_ins[numbers.below(sign_ins.len())]);
        spoil(&mut bytes, &mut numbers);
        let sql = seed % 4 == 0;
        let met = tokio::time::timeout(Duration::from_secs(60), meet(bytes, sql)).await;
        match met {
            Ok(Ok(count)) => frames += count,
            Ok(Err(error)) => assert!(!error.to_string().is_empty()),
            Err(_) => panic!("conversation {seed} never ends"),
        }
    }
    // Some are spoiled so late that frames come first; else this test would try the beginning alone.
    assert!(frames > 100, "{frames} frames");
}
