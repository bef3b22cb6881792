//! The loop against a server made of a socket: how often it hands over in a burst.

use std::collections::HashMap;

use pgoutput::Lsn;
use replication::{ConnectOptions, connect_replication};
use router::{Router, RouterConfig};
use sink::{Limits, Publisher, Tracker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::intake::Tolerance;
use crate::intake::tests::{CONTENT, keepalive, logical, messages};
use crate::pacing::HAND_OVER_GAP;
use crate::publishing::tests::Prompt;

/// Decision 0010: what comes one by one in a burst is handed over once a millisecond, not one by one.
#[tokio::test]
async fn a_burst_is_handed_over_once_in_a_gap() {
    let began = Instant::now();
    let metrics = PipelineMetrics::new("test");
    let watched = metrics.clone();
    let stop_when = move || watched.delivered_events() == TRANSACTIONS;
    let source = source(TRANSACTIONS, None).await;
    run(source, Pacing::default(), &metrics, stop_when).await;
    let gaps = began.elapsed().as_millis() / HAND_OVER_GAP.as_millis();
    let handed_over = metrics.hand_overs();
    assert_eq!(metrics.delivered_events(), TRANSACTIONS);
    // The first one, and the one at the stop, come out of turn.
    assert!(
        u128::from(handed_over) <= gaps + 3,
        "{handed_over} hand-overs in {gaps} gaps"
    );
}

/// The same without a clock: each transaction is read before the next one is sent, and the gap never ends.
#[tokio::test]
async fn within_a_gap_nothing_is_handed_over_however_often_something_is_read() {
    let metrics = PipelineMetrics::new("test");
    let source = source(SINGLE_READS, Some(metrics.clone())).await;
    let watched = metrics.clone();
    let stop_when = move || {
        let all_read = watched.received_position() >= end_of(SINGLE_READS);
        if all_read {
            assert_eq!(watched.hand_overs(), 1, "the first one goes at once");
        }
        all_read
    };
    let pacing = Pacing::with_gap(Duration::from_secs(3_600));
    run(source, pacing, &metrics, stop_when).await;
    assert_eq!(metrics.hand_overs(), 2, "the rest goes at the stop");
    assert_eq!(metrics.delivered_events(), SINGLE_READS);
}

/// A server that has told nothing of its position is asked, since nothing may ever follow a message by itself.
#[tokio::test]
async fn a_stop_after_a_message_of_its_own_asks_where_the_server_stands() {
    let metrics = PipelineMetrics::new("test");
    let watched = metrics.clone();
    let stop_when = move || watched.delivered_events() == 1;
    let source = source(0, None).await;
    let intake = messages(Tolerance::default());
    let drained = run_intake(source, intake, Pacing::default(), &metrics, stop_when).await;
    assert_eq!(drained, Drained::Whole);
}

/// Runs the loop until `stop_when` says so, and to its orderly end.
async fn run(
    source: Source,
    pacing: Pacing,
    metrics: &PipelineMetrics,
    stop_when: impl Fn() -> bool,
) {
    let router = Router::new(RouterConfig {
        tables: vec!["public.outbox".parse().expect("a name")],
        ..RouterConfig::default()
    });
    let intake = Intake::new(router.expect("legal"), Tolerance::default());
    run_intake(source, intake, pacing, metrics, stop_when).await;
}

async fn run_intake(
    source: Source,
    intake: Intake,
    pacing: Pacing,
    metrics: &PipelineMetrics,
    stop_when: impl Fn() -> bool,
) -> Drained {
    let publisher = Publisher::new(Prompt::default(), Limits::default(), Lsn::ZERO);
    let mut publishing = Publishing::start(publisher, None, metrics.clone()).expect("a thread");
    let mut memory = Memory::new(None, None);
    let health = Health::new();
    let (mut hold, mut search) = (Hold::default(), Search::default());
    let (trigger, shutdown) = Shutdown::channel();
    let mut pipeline = Pipeline::new(
        source,
        SystemClock,
        intake,
        Tracker::new(Lsn::ZERO).confirmed(),
        Kept {
            publishing: &mut publishing,
            memory: &mut memory,
            metrics,
            health: &health,
            hold: &mut hold,
            search: &mut search,
            shutdown,
        },
        None::<ParkingLot>,
    );
    pipeline.pacing = pacing;
    let began = Instant::now();
    let stop = async move {
        while !stop_when() {
            assert!(began.elapsed() < PATIENCE, "it does not come to its end");
            tokio::task::yield_now().await;
        }
        trigger.request();
    };
    let (ended, ()) = tokio::join!(pipeline.run(DRAIN_TIMEOUT), stop);
    ended.expect("an orderly end")
}

/// A stream from a server that sends so many transactions one at a time; with `read_by`, the next one when one was read.
/// Without any it sends a message outside of transactions, and its position when it is asked for it.
async fn source(transactions: u64, read_by: Option<PipelineMetrics>) -> Source {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (connection, _) = listener.accept().await.expect("a client");
        serve(connection, transactions, read_by).await;
    });
    let url = format!("postgres://u@127.0.0.1:{port}/d?sslmode=disable");
    let options = ConnectOptions::from_parts(&url, &[], &|_| None).expect("an address");
    let client = connect_replication(&options).await.expect("let in");
    let stream = client.start_replication("slot", 0, &[]).await;
    Source::over(stream.expect("a stream"))
}

async fn serve(mut connection: TcpStream, transactions: u64, read_by: Option<PipelineMetrics>) {
    connection.set_nodelay(true).expect("a socket");
    let length = connection.read_i32().await.expect("the start");
    let mut startup = vec![0; usize::try_from(length).expect("positive") - 4];
    connection
        .read_exact(&mut startup)
        .await
        .expect("the start");
    let asked_for = settings(&String::from_utf8_lossy(&startup));
    let ready = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    connection.write_all(&ready).await.expect("a listener");
    let query = read_query(&mut connection).await;
    let row = row(&query, &asked_for);
    let answer = [
        message(b'T', &[0, 0]),
        message(b'D', &row),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ];
    connection
        .write_all(&answer.concat())
        .await
        .expect("a listener");
    assert!(
        read_query(&mut connection)
            .await
            .starts_with("START_REPLICATION")
    );
    connection
        .write_all(&message(b'W', &[0, 0, 0]))
        .await
        .expect("a listener");
    let (mut reader, mut writer) = connection.into_split();
    let relation = data(Lsn::ZERO, RELATION);
    writer.write_all(&relation).await.expect("a listener");
    for n in 1..=transactions {
        writer.write_all(&transaction(n)).await.expect("a listener");
        tokio::task::yield_now().await;
        while let Some(metrics) = &read_by
            && metrics.received_position() < end_of(n)
        {
            tokio::task::yield_now().await;
        }
    }
    if transactions == 0 {
        let frame = message(b'd', &logical(false, MESSAGE_LSN, "outbox", CONTENT));
        writer.write_all(&frame).await.expect("a listener");
    }
    // The client's CopyDone is answered by ours; until then it only sends status updates, whose last byte is the question.
    while let Ok(b'd') = reader.read_u8().await {
        let length = reader.read_i32().await.expect("a status update");
        let mut status = vec![0; usize::try_from(length).expect("positive") - 4];
        reader
            .read_exact(&mut status)
            .await
            .expect("a status update");
        if transactions == 0 && status.last() == Some(&1) {
            let answer = message(b'd', &keepalive(MESSAGE_LSN));
            writer.write_all(&answer).await.expect("a listener");
        }
    }
    let end = [
        message(b'c', &[]),
        message(b'C', b"COPY 0\0"),
        message(b'Z', b"I"),
    ];
    drop(writer.write_all(&end.concat()).await);
}

/// The `-c name=value` of the start-up options.
fn settings(startup: &str) -> HashMap<String, String> {
    let options = startup.split('\0').find(|part| part.starts_with("-c "));
    let pairs = options.unwrap_or_default().split("-c ").filter_map(|pair| {
        let (name, value) = pair.trim_end().split_once('=')?;
        Some((name.to_owned(), value.replace("ISO,MDY", "ISO, MDY")))
    });
    pairs.collect()
}

/// The DataRow that shows each setting as it was asked for.
fn row(query: &str, settings: &HashMap<String, String>) -> Vec<u8> {
    let names = query.split("current_setting('").skip(1);
    let values: Vec<&str> = names
        .filter_map(|rest| Some(settings.get(rest.split_once('\'')?.0)?.as_str()))
        .collect();
    let mut row = u16::try_from(values.len())
        .expect("few")
        .to_be_bytes()
        .to_vec();
    for value in values {
        row.extend(u32::try_from(value.len()).expect("short").to_be_bytes());
        row.extend(value.as_bytes());
    }
    row
}

async fn read_query(connection: &mut TcpStream) -> String {
    assert_eq!(connection.read_u8().await.expect("a query"), b'Q');
    let length = connection.read_i32().await.expect("a query");
    let mut text = vec![0; usize::try_from(length).expect("positive") - 4];
    connection.read_exact(&mut text).await.expect("a query");
    String::from_utf8(text).expect("text")
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    let length = u32::try_from(body.len() + 4).expect("short");
    message.extend(length.to_be_bytes());
    message.extend(body);
    message
}

/// CopyData with XLogData.
fn data(wal_end: Lsn, body: &[u8]) -> Vec<u8> {
    let wal_end = wal_end.as_u64().to_be_bytes();
    let head = [b"w".as_slice(), &[0; 8], &wal_end, &[0; 8]].concat();
    message(b'd', &[head.as_slice(), body].concat())
}

fn end_of(n: u64) -> Lsn {
    Lsn::new(n * 100 + 8)
}

fn transaction(n: u64) -> Vec<u8> {
    let (commit, end) = (n * 100, end_of(n).as_u64());
    let begin = [b"B".as_slice(), &commit.to_be_bytes(), &[0; 12]].concat();
    let committed = [
        b"C\0".as_slice(),
        &commit.to_be_bytes(),
        &end.to_be_bytes(),
        &[0; 8],
    ];
    [
        data(Lsn::ZERO, &begin),
        data(Lsn::ZERO, INSERT),
        data(end_of(n), &committed.concat()),
    ]
    .concat()
}

/// Far more than any machine needs, so that a loop that stands still is a failure and not a test without an end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Shorter than the time after which a silent server is asked in any case.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const TRANSACTIONS: u64 = 2_000;
const MESSAGE_LSN: u64 = 90;
const SINGLE_READS: u64 = 50;

pub(super) const RELATION: &[u8] = b"R\0\0\0\x05public\0outbox\0d\0\x04\
    \0id\0\0\0\0\x19\xFF\xFF\xFF\xFF\0aggregatetype\0\0\0\0\x19\xFF\xFF\xFF\xFF\
    \0aggregateid\0\0\0\0\x19\xFF\xFF\xFF\xFF\0payload\0\0\0\0\x19\xFF\xFF\xFF\xFF";

const INSERT: &[u8] = b"I\0\0\0\x05N\0\x04t\0\0\0\x01it\0\0\0\x05ordert\0\0\0\x01kt\0\0\0\x01p";
