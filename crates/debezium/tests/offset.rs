//! Taking over: stored offsets in all their forms, and the plan that follows from each position.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use debezium::offset::{
    AtPosition, OffsetError, OffsetLog, SkipRule, Slot, StoredOffset, Variant, Waiting, WaitingRow,
    plan, read, read_bytes,
};
use pgoutput::Lsn;

const EXAMPLE: &str = r#"{"lsn_proc":356789248,"messageType":"INSERT","lsn_commit":356788900,"lsn":356789248,"txId":918273,"ts_usec":1790000000123456}"#;

fn example() -> StoredOffset {
    StoredOffset {
        lsn: Some(Lsn::new(356_789_248)),
        lsn_proc: Some(Lsn::new(356_789_248)),
        lsn_commit: Some(Lsn::new(356_788_900)),
        message_type: Some("INSERT".to_owned()),
        transaction: Some(918_273),
        ..StoredOffset::default()
    }
}

#[test]
fn each_form_gives_the_same_offset() {
    let quoted = EXAMPLE.replace('"', "\\\"");
    for text in [
        EXAMPLE.to_owned(),
        format!(r#"{{"offsets":[{{"partition":{{"server":"shop"}},"offset":{EXAMPLE}}}]}}"#),
        format!("[\"orders-outbox\",{{\"server\":\"shop\"}}]\t{EXAMPLE}\n"),
        format!("[\"orders-outbox\",{{\"server\":\"shop\"}}] | {EXAMPLE}"),
        format!(
            "[\"orders-outbox\",{{\"server\":\"shop\"}}]\t{{\"lsn\":1}}\n[\"other\",{{\"server\":\"shop\"}}]\tnull\n[\"orders-outbox\",{{\"server\":\"shop\"}}]\t{EXAMPLE}\n"
        ),
        format!(r#"{{"[\"orders-outbox\",{{\"server\":\"shop\"}}]": "{quoted}"}}"#),
        format!(r#"[{{"key":["orders-outbox",{{"server":"shop"}}],"value":{EXAMPLE}}}]"#),
    ] {
        assert_eq!(
            read(&text, "orders-outbox", "shop"),
            Ok(example()),
            "{text}"
        );
    }
}

#[test]
fn a_file_of_java_gives_the_same_offset() {
    let file = include_bytes!("offsets/standalone.dat");
    assert_eq!(read_bytes(file, "kafka", "tutorial"), Ok(example()));
    assert_eq!(read_bytes(file, "gone", "y"), Err(OffsetError::Deleted));
    assert_eq!(read_bytes(EXAMPLE.as_bytes(), "", "shop"), Ok(example()));
    assert!(matches!(
        read_bytes(&file[..100], "kafka", "tutorial"),
        Err(OffsetError::Form { .. })
    ));
    assert!(matches!(
        read_bytes(&[0xff], "kafka", "tutorial"),
        Err(OffsetError::Form { .. })
    ));
}

#[test]
fn what_is_not_there_is_told() {
    let key = r#"["orders-outbox",{"server":"shop"}]"#;
    assert!(matches!(read("", "n", "p"), Err(OffsetError::Form { .. })));
    assert!(matches!(read("x", "n", "p"), Err(OffsetError::Form { .. })));
    assert!(matches!(
        read(r#"{"lsn":"abc"}"#, "n", "p"),
        Err(OffsetError::Form { .. })
    ));
    assert_eq!(
        read(&format!("{key}\tnull"), "orders-outbox", "shop"),
        Err(OffsetError::Deleted)
    );
    let other = read(&format!("{key}\t{EXAMPLE}"), "orders-outbox", "store")
        .unwrap_err()
        .to_string();
    assert!(
        other.contains("`store`") && other.contains("shop"),
        "{other}"
    );
    let empty = read(r#"{"offsets":[]}"#, "n", "p").unwrap_err().to_string();
    assert!(empty.contains("no connector"), "{empty}");
}

#[test]
fn positions_beyond_java_s_signed_numbers_keep_their_bits() {
    let offset = read(r#"{"lsn":-1,"lsn_commit":"16/B374D848"}"#, "", "p").unwrap();
    assert_eq!(offset.lsn, Some(Lsn::new(u64::MAX)));
    assert_eq!(offset.lsn_commit.unwrap().to_string(), "16/B374D848");
}

#[test]
fn snapshots_that_go_on_are_seen() {
    let open = |text: &str| read(text, "", "p").unwrap().snapshot_open;
    assert!(open(r#"{"lsn":1,"snapshot":true}"#));
    assert!(open(
        r#"{"lsn":1,"snapshot":"INITIAL","snapshot_completed":false}"#
    ));
    assert!(!open(
        r#"{"lsn":1,"snapshot":"INITIAL","snapshot_completed":true}"#
    ));
    assert!(!open(
        r#"{"lsn":1,"snapshot":true,"last_snapshot_record":true}"#
    ));
    assert!(
        read(
            r#"{"lsn":1,"incremental_snapshot_primary_key":"ac"}"#,
            "",
            "p"
        )
        .unwrap()
        .incremental_snapshot_open
    );
}

/// One line of the contract's step 5.
struct Given {
    what: &'static str,
    slot: Slot,
    offset: StoredOffset,
}

fn given(what: &'static str, confirmed: u64, offset: StoredOffset) -> Given {
    let slot = Slot {
        confirmed: Lsn::new(confirmed),
        wal_end: Lsn::new(1000),
        may_lead: false,
    };
    Given { what, slot, offset }
}

impl Given {
    fn leading(mut self) -> Self {
        self.slot.may_lead = true;
        self
    }

    fn without_transaction(mut self) -> Self {
        self.offset.transaction = None;
        self
    }

    #[track_caller]
    fn gives(self, variant: Variant, start: u64, skip: Option<SkipRule>, repeated: u64) {
        let plan = plan(&self.slot, &self.offset, variant).unwrap();
        let expected = (Lsn::new(start), skip, repeated);
        let got = (plan.start, plan.skip, plan.repeated_transactions_max);
        assert_eq!(got, expected, "{}", self.what);
        assert!(plan.explanation.len() >= 2, "{}", self.what);
    }

    #[track_caller]
    fn refuses(self, variant: Variant, part: &str) {
        let text = plan(&self.slot, &self.offset, variant)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains(part) && text.contains("; "),
            "{}: {text}",
            self.what
        );
    }
}

/// `lsn_commit`, `lsn` (and `lsn_proc`), the message's type and the transaction.
fn offset(commit: u64, lsn: u64, kind: &str) -> StoredOffset {
    StoredOffset {
        lsn: Some(Lsn::new(lsn)),
        lsn_proc: Some(Lsn::new(lsn)),
        lsn_commit: Some(Lsn::new(commit)),
        message_type: Some(kind.to_owned()),
        transaction: Some(7),
        ..StoredOffset::default()
    }
}

fn skip(position: u64, at: AtPosition) -> Option<SkipRule> {
    Some(SkipRule {
        transaction: 7,
        position: Lsn::new(position),
        at,
    })
}

#[test]
fn the_start_is_the_later_of_slot_and_offset() {
    use Variant::{AtLeastOnce, Skip};
    let open = || offset(100, 150, "INSERT");
    given("clean stop, the last transaction open", 100, open()).gives(AtLeastOnce, 100, None, 1);
    given("the slot lags behind", 50, open()).gives(AtLeastOnce, 100, None, 1);
    given(
        "a heartbeat came after the commit",
        160,
        offset(160, 160, "COMMIT"),
    )
    .gives(Skip, 160, None, 0);
    given(
        "the flush was off: far behind",
        1,
        offset(900, 900, "COMMIT"),
    )
    .gives(AtLeastOnce, 900, None, 0);
    given("as it may, past the open transaction", 200, open())
        .leading()
        .gives(Skip, 200, skip(150, AtPosition::SkipIfAlone), 1);
    given("as it may, into the open transaction", 120, open())
        .leading()
        .gives(Skip, 120, skip(150, AtPosition::SkipIfAlone), 1);
}

#[test]
fn rows_are_skipped_as_far_as_they_are_known_to_be_done() {
    use AtPosition::{Send, SkipFirst, SkipIfAlone};
    let check =
        |what, offset, start, rule| given(what, 100, offset).gives(Variant::Skip, start, rule, 1);
    check(
        "a row",
        offset(100, 150, "INSERT"),
        100,
        skip(150, SkipIfAlone),
    );
    check(
        "a row where the last transaction ended",
        offset(100, 100, "INSERT"),
        100,
        skip(100, SkipIfAlone),
    );
    let mut counted = offset(100, 150, "INSERT");
    counted.events_processed = Some(3);
    check("counted rows", counted, 100, skip(150, SkipFirst(3)));
    check(
        "BEGIN has its first row's position",
        offset(100, 150, "BEGIN"),
        100,
        skip(150, Send),
    );
    check(
        "a message",
        offset(100, 150, "MESSAGE"),
        100,
        skip(150, Send),
    );
    let mut partly = offset(100, 150, "INSERT");
    partly.lsn_proc = Some(Lsn::new(140));
    check("not handled in full", partly, 100, skip(140, Send));
    let mut first = offset(100, 150, "INSERT");
    first.lsn_commit = None;
    check(
        "no commit stored: starts inside the transaction",
        first,
        150,
        skip(150, SkipIfAlone),
    );
}

#[test]
fn what_could_leave_a_gap_refuses() {
    use Variant::{AtLeastOnce, Skip};
    let open = || offset(100, 150, "INSERT");
    given("the slot leads", 120, offset(100, 110, "INSERT"))
        .refuses(AtLeastOnce, "may never have been published");
    given("another server", 100, offset(100, 5000, "INSERT"))
        .refuses(AtLeastOnce, "lies ahead of the server");
    given("nothing stored", 100, StoredOffset::default()).refuses(AtLeastOnce, "has no position");
    given("no number", 100, open())
        .without_transaction()
        .refuses(Skip, "does not name its transaction");
    given("no number", 100, open())
        .without_transaction()
        .gives(AtLeastOnce, 100, None, 1);
    let mut snapshot = open();
    snapshot.snapshot_open = true;
    given("a snapshot", 100, snapshot).refuses(AtLeastOnce, "the middle of a snapshot");
    let mut incremental = open();
    incremental.incremental_snapshot_open = true;
    given("an incremental snapshot", 100, incremental).refuses(Skip, "incremental snapshot");
}

#[test]
fn a_plan_never_starts_before_the_slot_nor_after_what_is_published() {
    for confirmed in 0..8 {
        for commit in 0..8 {
            for lsn in 0..10 {
                let slot = Slot {
                    confirmed: Lsn::new(confirmed),
                    wal_end: Lsn::new(20),
                    may_lead: false,
                };
                let Ok(plan) = plan(&slot, &offset(commit, lsn, "INSERT"), Variant::Skip) else {
                    assert!(confirmed > commit, "{confirmed} {commit} {lsn}");
                    continue;
                };
                assert!(plan.start >= slot.confirmed && plan.start == Lsn::new(commit));
                assert!(plan.skip.is_none_or(|rule| rule.position == Lsn::new(lsn)));
            }
        }
    }
}

/// Pushes rows of (transaction or 0 for none, where its COMMIT begins, position) and gives the most repeats after a stop and after a kill.
#[track_caller]
fn repeats(offset: &StoredOffset, variant: Variant, rows: &[(u32, u64, u64)]) -> (u64, u64) {
    let slot = Slot {
        confirmed: Lsn::new(50),
        wal_end: Lsn::new(1000),
        may_lead: false,
    };
    let plan = plan(&slot, offset, variant).unwrap();
    let mut waiting = Waiting::new(&plan);
    for (transaction, final_lsn, lsn) in rows {
        waiting.push(WaitingRow {
            transaction: (*transaction != 0).then_some(*transaction),
            final_lsn: Lsn::new(*final_lsn),
            lsn: Lsn::new(*lsn),
        });
    }
    let repeats = plan.repeats_max(&waiting);
    (repeats.after_stop, repeats.after_kill)
}

#[test]
fn repeats_are_counted_from_what_waits() {
    use Variant::{AtLeastOnce, Skip};
    // One transaction before the start, the one in question with three rows, and a later one with a smaller position.
    let waiting = [
        (6, 90, 80),
        (7, 200, 130),
        (7, 200, 150),
        (7, 200, 160),
        (8, 300, 120),
        (8, 300, 250),
    ];
    let row = offset(100, 150, "INSERT");
    assert_eq!(repeats(&row, AtLeastOnce, &waiting), (3, 5));
    assert_eq!(repeats(&row, Skip, &waiting), (0, 3));
    let mut unnamed = row.clone();
    unnamed.transaction = None;
    assert_eq!(repeats(&unnamed, AtLeastOnce, &waiting), (3, 5));
    let shared = [(7, 200, 130), (7, 200, 150), (7, 200, 150), (8, 300, 250)];
    assert_eq!(repeats(&row, Skip, &shared), (2, 3));
    let mut counted = row.clone();
    counted.events_processed = Some(1);
    assert_eq!(repeats(&counted, Skip, &shared), (1, 2));
    assert_eq!(repeats(&offset(100, 100, "COMMIT"), Skip, &waiting), (0, 5));
}

/// They are published before the transaction that they arrive before, and the server sends them again with it.
#[test]
fn messages_outside_transactions_repeat_with_the_open_transaction() {
    use Variant::{AtLeastOnce, Skip};
    // One before the start, two of which one was written amid the rows of 7, and two behind its COMMIT.
    let waiting = [
        (0, 90, 90),
        (0, 110, 110),
        (0, 170, 170),
        (7, 200, 130),
        (7, 200, 150),
        (7, 200, 160),
        (0, 210, 210),
        (8, 300, 250),
        (0, 310, 310),
    ];
    let row = offset(100, 150, "INSERT");
    assert_eq!(repeats(&row, AtLeastOnce, &waiting), (5, 8));
    assert_eq!(repeats(&row, Skip, &waiting), (2, 6));
    let mut unnamed = row.clone();
    unnamed.transaction = None;
    assert_eq!(repeats(&unnamed, AtLeastOnce, &waiting), (5, 8));
    // The open transaction has no rows that wait: what stands before the next one may have been published.
    let without_rows = [(0, 110, 110), (8, 300, 250), (0, 310, 310)];
    assert_eq!(repeats(&row, AtLeastOnce, &without_rows), (1, 3));
    assert_eq!(repeats(&row, Skip, &without_rows), (1, 3));
    // After the end of a transaction nothing is open.
    assert_eq!(repeats(&offset(100, 100, "COMMIT"), Skip, &waiting), (0, 8));
}

#[test]
fn a_transaction_that_began_before_the_last_commit_and_ended_after_it_is_open() {
    // Its first row lies before the end of another one, which was published before it.
    let row = offset(150, 110, "INSERT");
    given("early row", 150, row.clone()).gives(Variant::AtLeastOnce, 150, None, 1);
    given("early row", 150, row.clone()).gives(
        Variant::Skip,
        150,
        skip(110, AtPosition::SkipIfAlone),
        1,
    );
    let waiting = [(7, 200, 110), (7, 200, 170), (8, 300, 250)];
    assert_eq!(repeats(&row, Variant::AtLeastOnce, &waiting), (2, 3));
    assert_eq!(repeats(&row, Variant::Skip, &waiting), (0, 2));
}

#[test]
fn of_a_topic_of_several_connectors_the_last_offset_of_this_one_counts() {
    let mut log = OffsetLog::new("kafka", "tutorial");
    let mut push = |key: &str, value: Option<&str>| {
        log.push(key.as_bytes(), value.map(str::as_bytes)).unwrap();
    };
    let ours = r#"["kafka",{"server":"tutorial"}]"#;
    push(ours, Some(r#"{"lsn":1}"#));
    push(r#"["other",{"server":"tutorial"}]"#, Some(r#"{"lsn":9}"#));
    push(r#"["kafka",{"server":"x"}]"#, Some(r#"{"lsn":8}"#));
    push(ours, Some(r#"{"lsn":2}"#));
    assert_eq!(log.clone().finish().unwrap().lsn, Some(Lsn::new(2)));
    log.push(ours.as_bytes(), None).unwrap();
    assert_eq!(log.finish().unwrap_err(), OffsetError::Deleted);

    let mut log = OffsetLog::new("kafka", "tutorial");
    log.push(br#"["kafka",{"server":"x"}]"#, Some(b"{}"))
        .unwrap();
    let text = log.clone().finish().unwrap_err().to_string();
    assert!(text.contains("kafka") && text.contains("x"), "{text}");
    assert!(log.push(b"42", Some(b"{}")).is_err(), "not an offset's key");
}
