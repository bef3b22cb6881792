//! What Intake makes of frames: records inside and outside of transactions, and what is passed over.

use debezium::offset::{AtPosition, SkipRule};
use pgoutput::Lsn;
use router::connect::{ConnectConfig, ConnectRouter, MessageConfig, Transform, TransformConfig};
use router::{Router, RouterConfig};
use sink::{Batch, Entry};

use super::{Intake, IntakeError, TakenOver, Tolerance};
use crate::poison::{Poison, Rules};
use crate::policy::OnPoison;
use crate::watchlist::Watchlist;

const NOW_MS: i64 = 1_700_000_000_123;

pub(crate) const CONTENT: &str =
    r#"{"id":"77","aggregatetype":"order","aggregateid":"o-1","payload":"hello"}"#;

fn data(message: &[u8]) -> Vec<u8> {
    let mut frame = b"w".to_vec();
    frame.extend([0; 24]);
    frame.extend(message);
    frame
}

fn begin(final_lsn: u64) -> Vec<u8> {
    let mut message = b"B".to_vec();
    message.extend(final_lsn.to_be_bytes());
    message.extend([0; 12]);
    data(&message)
}

fn commit(commit_lsn: u64, end_lsn: u64) -> Vec<u8> {
    let mut message = b"C\0".to_vec();
    message.extend(commit_lsn.to_be_bytes());
    message.extend(end_lsn.to_be_bytes());
    message.extend([0; 8]);
    data(&message)
}

pub(crate) fn logical(transactional: bool, lsn: u64, prefix: &str, content: &str) -> Vec<u8> {
    let mut message = vec![b'M', u8::from(transactional)];
    message.extend(lsn.to_be_bytes());
    message.extend(prefix.as_bytes());
    message.push(0);
    message.extend(u32::try_from(content.len()).expect("short").to_be_bytes());
    message.extend(content.as_bytes());
    data(&message)
}

pub(crate) fn keepalive(wal_end: u64) -> Vec<u8> {
    let mut frame = b"k".to_vec();
    frame.extend(wal_end.to_be_bytes());
    frame.extend([0; 9]);
    frame
}

/// `public.outbox` with the columns of the Event Router, as relation 5.
fn relation() -> Vec<u8> {
    let mut message = b"R\0\0\0\x05public\0outbox\0d\0\x04".to_vec();
    for name in ["id", "aggregatetype", "aggregateid", "payload"] {
        message.push(0);
        message.extend(name.as_bytes());
        message.extend(b"\0\0\0\0\x19\xFF\xFF\xFF\xFF");
    }
    data(&message)
}

/// An update's new row, without the old one.
fn update() -> Vec<u8> {
    let mut message = b"U\0\0\0\x05N\0\x04".to_vec();
    for _ in 0..4 {
        message.extend(b"t\0\0\0\x01x");
    }
    data(&message)
}

pub(crate) fn messages(tolerance: Tolerance) -> Intake {
    let config = ConnectConfig {
        topic_prefix: "fleet".to_owned(),
        transforms: vec![
            TransformConfig::of(Transform::DecodeLogicalMessage {
                fields_null_include: false,
            }),
            TransformConfig::of(Transform::EventRouter {}),
        ],
        messages: Some(MessageConfig {
            prefix_include: vec!["outbox".to_owned()],
            prefix_exclude: Vec::new(),
        }),
        ..ConnectConfig::default()
    };
    let router = ConnectRouter::new(config, "run").expect("legal");
    assert!(router.needs_messages());
    Intake::new(router, tolerance)
}

fn take(intake: &mut Intake, frames: &[Vec<u8>]) -> Result<Batch, IntakeError> {
    let mut batch = Batch::new();
    for frame in frames {
        intake.handle_frame(frame, NOW_MS, &mut batch)?;
    }
    Ok(batch)
}

#[track_caller]
fn check_taken(intake: &mut Intake, frames: &[Vec<u8>], expected: &[&str]) -> Batch {
    let batch = take(intake, frames).expect("a stream that can be taken");
    let entries = batch.entries.iter().map(|entry| match entry {
        Entry::Begin(_) => "begin",
        Entry::Record { .. } | Entry::Message { .. } | Entry::Parked(_) => "record",
        Entry::Commit { .. } => "commit",
        Entry::Idle { .. } => "idle",
        Entry::ParkedUpTo { .. } | Entry::ParkedNoted { .. } => "parked",
    });
    assert_eq!(entries.collect::<Vec<_>>(), expected);
    batch
}

#[test]
fn a_message_of_a_transaction_is_a_record_inside_it() {
    let mut intake = messages(Tolerance::default());
    let frames = [
        begin(100),
        logical(true, 90, "outbox", CONTENT),
        commit(100, 108),
    ];
    let batch = check_taken(&mut intake, &frames, &["begin", "record", "commit"]);
    let record = batch.records.get(0);
    assert_eq!(record.topic, "outbox.event.order");
    assert_eq!(record.key, Some(&b"o-1"[..]));
    assert_eq!(record.payload, Some(&b"hello"[..]));
    assert_eq!(record.timestamp_ms, Some(NOW_MS));
    assert!(!intake.is_dangling());
}

#[test]
fn a_message_of_its_own_dangles_until_the_server_stands_at_its_end() {
    let mut intake = messages(Tolerance::default());
    check_taken(
        &mut intake,
        &[keepalive(80), logical(false, 90, "outbox", CONTENT)],
        &["idle", "record"],
    );
    assert!(intake.is_dangling());
    assert!(!intake.is_in_transaction());
    assert_eq!(intake.reach().newest(), Lsn::new(90));
    // Said while the message was being sent.
    check_taken(&mut intake, &[keepalive(89)], &["idle"]);
    assert!(intake.is_dangling());
    // All that an idle server ever says: the message's place is where its record ends.
    check_taken(&mut intake, &[keepalive(90)], &["idle"]);
    assert!(!intake.is_dangling());
}

#[test]
fn a_keepalive_inside_a_transaction_says_nothing() {
    let mut intake = messages(Tolerance::default());
    let frames = [
        logical(false, 90, "outbox", CONTENT),
        begin(100),
        keepalive(500),
    ];
    check_taken(&mut intake, &frames, &["record", "begin"]);
    assert!(intake.is_dangling(), "the server may not stand there yet");
}

#[test]
fn a_commit_follows_a_message_of_its_own_too() {
    let mut intake = messages(Tolerance::default());
    let frames = [logical(false, 90, "outbox", CONTENT), begin(100)];
    check_taken(&mut intake, &frames, &["record", "begin"]);
    assert!(intake.is_dangling());
    check_taken(&mut intake, &[commit(100, 108)], &["commit"]);
    assert!(!intake.is_dangling());
    assert_eq!(intake.reach().newest(), Lsn::new(100));
}

/// Two readings of one stream must agree on the numbers, whatever is filtered.
#[test]
fn events_are_numbered_by_what_was_received() {
    let mut intake = messages(Tolerance::default());
    let frames = [
        begin(100),
        logical(true, 90, "other", CONTENT),
        logical(false, 91, "outbox", CONTENT),
        logical(true, 92, "outbox", CONTENT),
        commit(100, 108),
    ];
    let batch = take(&mut intake, &frames).expect("a stream that can be taken");
    let lsn = Lsn::new(91);
    assert_eq!(
        batch.entries[1..3],
        [Entry::Message { lsn }, Entry::Record { inserts: 2 }]
    );
}

#[test]
fn messages_of_other_prefixes_and_of_the_native_router_are_counted() {
    let other = [logical(false, 90, "other", CONTENT)];
    let mut intake = messages(Tolerance::default());
    check_taken(&mut intake, &other, &[]);
    assert!(!intake.is_dangling());
    assert_eq!(intake.take_ignored().messages, 1);
    let config = RouterConfig {
        tables: vec!["public.outbox".parse().expect("a table")],
        ..RouterConfig::default()
    };
    let router = Router::new(config).expect("legal");
    let mut intake = Intake::new(router, Tolerance::default());
    check_taken(&mut intake, &[logical(false, 90, "outbox", CONTENT)], &[]);
    assert_eq!(intake.take_ignored().messages, 1);
}

#[test]
fn what_cannot_be_routed_stops_or_is_passed_over_and_counted() {
    let frames = [logical(false, 90, "outbox", "no JSON")];
    let error = take(&mut messages(Tolerance::default()), &frames).expect_err("refused");
    assert!(matches!(error, IntakeError::Route { .. }), "{error:?}");
    let rules = Rules {
        action: OnPoison::Skip,
        tolerant: true,
        ..Rules::default()
    };
    let poison = Poison::new(rules, Watchlist::default());
    let mut intake = messages(Tolerance::default()).with_poison(poison, "posthaste");
    let twice = [frames[0].clone(), logical(false, 95, "outbox", "[]")];
    check_taken(&mut intake, &twice, &[]);
    assert_eq!(intake.poison().take_tally().skipped, 2);
    let reason = intake.poison().take_told().expect("the first one is kept");
    assert!(reason.text.contains("0/5A"), "{reason:?}");
    assert!(intake.poison().take_told().is_none());
    assert!(!intake.is_dangling());
}

#[test]
fn an_update_of_the_outbox_is_ignored_or_stops() {
    let frames = [begin(100), relation(), update()];
    let router = || ConnectRouter::new(ConnectConfig::default(), "run").expect("legal");
    let mut intake = Intake::new(router(), Tolerance::default());
    check_taken(&mut intake, &frames, &["begin"]);
    assert_eq!(intake.take_ignored().updates, 1);
    let tolerance = Tolerance {
        stop_at_updates: true,
    };
    let error = take(&mut Intake::new(router(), tolerance), &frames).expect_err("refused");
    let IntakeError::Updated { table, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(table, "public.outbox");
}

/// Everything of transaction 0 up to position 90, of what was committed before 200.
fn taken_over() -> Intake {
    let rule = SkipRule {
        transaction: 0,
        position: Lsn::new(90),
        at: AtPosition::SkipFirst(1),
    };
    let mut intake = messages(Tolerance::default());
    intake.take_over(Some(TakenOver::new(rule, Lsn::new(200))));
    intake
}

#[test]
fn what_debezium_published_is_left_out_and_its_transaction_still_moves_the_position() {
    let mut intake = taken_over();
    let message = |lsn| logical(true, lsn, "outbox", CONTENT);
    let frames = [
        begin(100),
        message(80),
        message(90),
        message(90),
        message(95),
        commit(100, 108),
    ];
    let expected = ["begin", "record", "record", "commit"];
    check_taken(&mut intake, &frames, &expected);
    assert_eq!(intake.take_ignored().taken_over, 2);
    // The number may come again in another turn of the counter.
    let frames = [begin(150), message(85), commit(150, 158)];
    check_taken(&mut intake, &frames, &["begin", "record", "commit"]);
}

#[test]
fn what_began_after_the_takeover_is_never_left_out() {
    let mut intake = taken_over();
    let frames = [
        begin(200),
        logical(true, 80, "outbox", CONTENT),
        commit(200, 208),
    ];
    check_taken(&mut intake, &frames, &["begin", "record", "commit"]);
    assert_eq!(intake.take_ignored().taken_over, 0);
}
