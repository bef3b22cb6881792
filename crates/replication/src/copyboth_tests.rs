//! The framing over an in-memory stream: every split, every drop, and hostile bytes.

use super::*;
use bytes::BytesMut;
use proptest::prelude::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

fn frames(capacity: usize) -> (Frames<DuplexStream>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(capacity);
    (Frames::new(Wire::new(ours, "db:5432/app".into())), theirs)
}

/// What a reader saw, with owned bytes.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Seen {
    Data(Vec<u8>),
    TooLarge(u64, Vec<u8>),
    End,
}

fn seen(frame: Frame<'_>) -> Seen {
    match frame {
        Frame::Data(body) => Seen::Data(body.to_vec()),
        Frame::TooLarge { size_bytes, head } => Seen::TooLarge(size_bytes, head.to_vec()),
        Frame::End => Seen::End,
    }
}

/// A stream with every kind of message, one above the limit of 100, and what is to be seen of it.
fn script() -> (Vec<u8>, Vec<Seen>) {
    let large = vec![7; 150];
    let bytes = [
        message(b'd', b"first"),
        message(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
        message(b'd', b""),
        message(b'A', b"\0\0\0\x01channel\0payload\0"),
        message(b'd', &large),
        message(b'S', b"TimeZone\0UTC\0"),
        message(b'd', b"last"),
        message(b'c', b""),
    ]
    .concat();
    let seen = vec![
        Seen::Data(b"first".to_vec()),
        Seen::Data(Vec::new()),
        Seen::TooLarge(150, large),
        Seen::Data(b"last".to_vec()),
        Seen::End,
    ];
    (bytes, seen)
}

async fn read_to_end(frames: &mut Frames<DuplexStream>) -> Vec<Seen> {
    let mut all = Vec::new();
    while all.last() != Some(&Seen::End) {
        all.push(seen(frames.next_frame().await.unwrap()));
    }
    all
}

/// Polls once and drops the future, as `select!` does when another branch is ready.
fn poll_once(frames: &mut Frames<DuplexStream>) -> Option<Seen> {
    let future = pin!(frames.next_frame());
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => Some(seen(frame.unwrap())),
        Poll::Pending => None,
    }
}

/// The same for sending.
fn send_once(frames: &mut Frames<DuplexStream>, body: &[u8]) -> Poll<Result<(), ConnectError>> {
    pin!(frames.send(body)).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn every_split_of_the_stream_reads_the_same() {
    let (bytes, expected) = script();
    for split in 0..=bytes.len() {
        let (mut frames, mut theirs) = frames(4096);
        frames.frame_bytes_max = 100;
        theirs.write_all(&bytes[..split]).await.unwrap();
        let mut all = Vec::new();
        // Each of these polls may end in the middle of a frame, and is then dropped.
        while let Some(frame) = poll_once(&mut frames) {
            if frame == Seen::End {
                break;
            }
            all.push(frame);
        }
        theirs.write_all(&bytes[split..]).await.unwrap();
        all.extend(read_to_end(&mut frames).await);
        assert_eq!(all, expected, "split at {split}");
    }
}

#[tokio::test]
async fn a_drop_after_every_single_byte_loses_nothing() {
    let (bytes, expected) = script();
    let (mut frames, mut theirs) = frames(4096);
    frames.frame_bytes_max = 100;
    let mut all = Vec::new();
    for byte in &bytes {
        assert_eq!(poll_once(&mut frames), None);
        theirs.write_all(&[*byte]).await.unwrap();
        all.extend(poll_once(&mut frames));
    }
    assert_eq!(all, expected);
}

#[tokio::test]
async fn buffered_frames_never_wait() {
    let (bytes, expected) = script();
    let (mut frames, mut theirs) = frames(4096);
    frames.frame_bytes_max = 100;
    assert_eq!(frames.buffered_frame().unwrap(), None);
    theirs.write_all(&bytes).await.unwrap();
    let mut all = vec![seen(frames.next_frame().await.unwrap())];
    while let Some(frame) = frames.buffered_frame().unwrap() {
        all.push(seen(frame));
        if all.last() == Some(&Seen::End) {
            break;
        }
    }
    assert_eq!(all, expected);
}

#[tokio::test]
async fn the_end_is_repeated() {
    for tag in [b'c', b'C', b'Z'] {
        let (mut frames, mut theirs) = frames(4096);
        theirs.write_all(&message(tag, b"I")).await.unwrap();
        for _ in 0..3 {
            assert_eq!(frames.next_frame().await.unwrap(), Frame::End);
            assert_eq!(frames.buffered_frame().unwrap(), Some(Frame::End));
        }
    }
}

#[tokio::test]
async fn a_huge_frame_passes_by_without_being_kept() {
    const SIZE: u32 = 300 * 1024 * 1024;
    let (mut frames, mut theirs) = frames(1024 * 1024);
    let writer = tokio::spawn(async move {
        let mut head = vec![b'd'];
        head.extend((SIZE + 4).to_be_bytes());
        theirs.write_all(&head).await.unwrap();
        let block = vec![9; 1024 * 1024];
        for _ in 0..SIZE / (1024 * 1024) {
            theirs.write_all(&block).await.unwrap();
        }
        theirs.write_all(&message(b'd', b"after")).await.unwrap();
        theirs
    });
    let mut capacity_max = 0;
    let mut all = Vec::new();
    while all.len() < 2 {
        // Bounded work per poll lets the size be watched on the way.
        all.extend(poll_once(&mut frames));
        capacity_max = capacity_max.max(frames.wire.input.capacity());
        tokio::task::yield_now().await;
    }
    let head = vec![9; 4096];
    assert_eq!(
        all,
        [
            Seen::TooLarge(SIZE.into(), head),
            Seen::Data(b"after".to_vec())
        ]
    );
    assert!(capacity_max <= 2 * 1024 * 1024, "{capacity_max}");
    writer.await.unwrap();
}

/// Notes how often it was begun and what passed since.
#[derive(Debug, Default)]
struct Noting(Vec<u8>);

impl Skim for Noting {
    fn begin(&mut self) {
        let bodies = self.0.first().map_or(1, |bodies| bodies + 1);
        self.0 = vec![bodies];
    }

    fn pass(&mut self, piece: &[u8]) {
        self.0.extend(piece);
    }

    fn kept(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn a_skim_of_ones_own_decides_what_is_shown() {
    let bodies = [vec![7; 11], vec![8; 10], vec![9; 12]];
    let bytes: Vec<u8> = bodies.iter().flat_map(|body| message(b'd', body)).collect();
    for split in 0..=bytes.len() {
        let (mut frames, mut theirs) = frames(4096);
        frames.frame_bytes_max = 10;
        frames.skim = Box::<Noting>::default();
        let mut all = Vec::new();
        for piece in [&bytes[..split], &bytes[split..]] {
            theirs.write_all(piece).await.unwrap();
            all.extend(std::iter::from_fn(|| poll_once(&mut frames)));
        }
        let noted = |body: u8, bytes| [&[body][..], bytes].concat();
        let expected = [
            Seen::TooLarge(11, noted(1, &bodies[0])),
            Seen::Data(bodies[1].clone()),
            Seen::TooLarge(12, noted(2, &bodies[2])),
        ];
        assert_eq!(all, expected, "split at {split}");
    }
}

#[tokio::test]
async fn what_a_large_frame_needed_is_given_back() {
    let (mut frames, mut theirs) = frames(64 * 1024);
    let large = vec![1; 8 * 1024 * 1024];
    let bytes = [message(b'd', &large), message(b'd', b"small")].concat();
    let writer = tokio::spawn(async move {
        theirs.write_all(&bytes).await.unwrap();
        theirs
    });
    assert_eq!(frames.next_frame().await.unwrap(), Frame::Data(&large));
    assert!(frames.wire.input.capacity() >= large.len());
    assert_eq!(frames.next_frame().await.unwrap(), Frame::Data(b"small"));
    let _theirs = writer.await.unwrap();
    assert_eq!(poll_once(&mut frames), None);
    assert!(
        frames.wire.input.capacity() <= 1024 * 1024,
        "{}",
        frames.wire.input.capacity()
    );
}

#[tokio::test]
async fn a_frame_at_the_limit_is_whole() {
    let (mut frames, mut theirs) = frames(4096);
    frames.frame_bytes_max = 10;
    theirs.write_all(&message(b'd', &[1; 10])).await.unwrap();
    theirs.write_all(&message(b'd', &[2; 11])).await.unwrap();
    assert_eq!(frames.next_frame().await.unwrap(), Frame::Data(&[1; 10]));
    let frame = frames.next_frame().await.unwrap();
    assert_eq!(
        frame,
        Frame::TooLarge {
            size_bytes: 11,
            head: &[2; 11]
        }
    );
}

#[tokio::test]
async fn the_servers_error_ends_the_stream() {
    let (mut frames, mut theirs) = frames(4096);
    let body = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0";
    theirs.write_all(&message(b'E', body)).await.unwrap();
    let error = frames.next_frame().await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("57P01"));
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_lost_connection_is_unreachable_also_in_the_middle_of_a_frame() {
    for (sent, limit) in [
        (&b""[..], 9),
        (b"d\0\0", 9),
        (b"d\0\0\0\x09abc", 9),
        (b"d\0\0\0\x09abc", 2),
    ] {
        let (mut frames, mut theirs) = frames(4096);
        frames.frame_bytes_max = limit;
        theirs.write_all(sent).await.unwrap();
        drop(theirs);
        let error = frames.next_frame().await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    }
}

#[tokio::test]
async fn bytes_that_cannot_be_are_protocol_errors() {
    for bytes in [
        &b"d\0\0\0\0"[..],
        b"d\0\0\0\x03",
        b"d\xff\xff\xff\xff",
        b"d\x80\0\0\0",
        b"E\x7f\xff\xff\xff",
        b"x\0\0\0\x04",
        b"E\0\0\0\x08Mabc",
    ] {
        let (mut frames, mut theirs) = frames(4096);
        theirs.write_all(bytes).await.unwrap();
        let error = frames.next_frame().await.unwrap_err();
        assert!(matches!(error, ConnectError::Protocol { .. }), "{bytes:?}");
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn a_dropped_send_is_sent_once_and_whole() {
    // Room for seven bytes: the message cannot go at once.
    let (mut frames, mut theirs) = frames(7);
    {
        let send = pin!(frames.send(b"status update"));
        assert!(
            send.poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    assert!(!frames.wire.output.is_empty());
    let reader = tokio::spawn(async move {
        let mut received = vec![0; 2 * (5 + 13)];
        theirs.read_exact(&mut received).await.unwrap();
        received
    });
    frames.send(b"second update").await.unwrap();
    let expected = [
        message(b'd', b"status update"),
        message(b'd', b"second update"),
    ]
    .concat();
    assert_eq!(reader.await.unwrap(), expected);
}

#[tokio::test]
async fn reading_pushes_on_what_a_dropped_send_left() {
    let (mut frames, mut theirs) = frames(7);
    {
        use std::pin::pin;
        use std::task::{Context, Waker};
        let send = pin!(frames.send(b"status update"));
        assert!(
            send.poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    let server = tokio::spawn(async move {
        let mut received = vec![0; 5 + 13];
        theirs.read_exact(&mut received).await.unwrap();
        theirs.write_all(&message(b'd', b"answer")).await.unwrap();
        (received, theirs)
    });
    assert_eq!(frames.next_frame().await.unwrap(), Frame::Data(b"answer"));
    let (received, _theirs) = server.await.unwrap();
    assert_eq!(received, message(b'd', b"status update"));
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_noticed() {
    let (mut frames, _theirs) = frames(7);
    for _ in 0..10_000 {
        if let Poll::Ready(outcome) = send_once(&mut frames, &[0; 34]) {
            assert!(matches!(outcome, Err(ConnectError::Unreachable { .. })));
            assert!(frames.wire.output.len() <= UNSENT_BYTES_MAX + 39);
            return;
        }
    }
    panic!("the buffer grew without limit");
}

#[tokio::test]
async fn finishing_reads_on_until_the_server_is_done() {
    let (frames, mut theirs) = frames(4096);
    let server = tokio::spawn(async move {
        theirs
            .write_all(&message(b'd', b"still under way"))
            .await
            .unwrap();
        let mut done = [0; 5];
        theirs.read_exact(&mut done).await.unwrap();
        assert_eq!(done, *b"c\0\0\0\x04");
        theirs.write_all(&message(b'c', b"")).await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        rest
    });
    frames.finish().await;
    assert_eq!(server.await.unwrap(), b"X\0\0\0\x04");
}

proptest! {
    #[test]
    fn hostile_streams_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        tags in proptest::collection::vec(proptest::sample::select(&b"dcCZENSAWx"[..]), 0..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut stream = BytesMut::new();
            for tag in tags {
                stream.extend_from_slice(&message(tag, &bytes));
            }
            stream.extend_from_slice(&bytes);
            let (mut frames, mut theirs) = frames(64 * 1024);
            frames.frame_bytes_max = 128;
            theirs.write_all(&stream).await.unwrap();
            drop(theirs);
            // Ends with an error or with the end; only the absence of a panic is asserted.
            while let Ok(frame) = frames.next_frame().await {
                if frame == Frame::End {
                    break;
                }
            }
        });
    }

    #[test]
    fn any_cut_of_any_frames_reads_the_same(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..10),
        cuts in proptest::collection::vec(1..40usize, 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let stream = bodies.iter().flat_map(|body| message(b'd', body)).collect::<Vec<_>>();
            let (mut frames, mut theirs) = frames(4096);
            frames.frame_bytes_max = 50;
            let (mut all, mut rest, mut cuts) = (Vec::new(), stream.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                theirs.write_all(now).await.unwrap();
                rest = later;
                while let Some(frame) = poll_once(&mut frames) {
                    all.push(frame);
                }
            }
            let expected = bodies.iter().map(|body| match body.len() {
                0..=50 => Seen::Data(body.clone()),
                size => Seen::TooLarge(size as u64, body.clone()),
            });
            assert_eq!(all, expected.collect::<Vec<_>>());
        });
    }
}
