//! What becomes of poison events between rows that are well.

use pgoutput::{InsertSkim, Lsn, RowId};
use router::{Router, RouterConfig};
use sink::{Batch, Entry, OpenTransaction, Position};

use super::{Poison, Reason, Rules, Stage};
use crate::codes::Code;
use crate::dead_letter::DeadLetters;
use crate::intake::{Intake, IntakeError, Tolerance};
use crate::policy::OnPoison;
use crate::watchlist::{SkipRequest, SkippedEvent, Watchlist};

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

/// The columns of the table.
const COLUMNS: [&str; 4] = ["id", "aggregatetype", "aggregateid", "payload"];

fn relation(schema: &str) -> Vec<u8> {
    relation_of(schema, COLUMNS)
}

fn relation_of(schema: &str, columns: [&str; 4]) -> Vec<u8> {
    let mut message = format!("R\0\0\0\x05{schema}\0outbox\0d\0\x04").into_bytes();
    for name in columns {
        message.push(0);
        message.extend(name.as_bytes());
        message.extend(b"\0\0\0\0\x19\xFF\xFF\xFF\xFF");
    }
    data(&message)
}

fn row_message(id: &str, aggregate_type: &str, key: Option<&str>) -> Vec<u8> {
    insert_message([Some(id), Some(aggregate_type), key, Some("payload")])
}

fn insert_message(values: [Option<&str>; 4]) -> Vec<u8> {
    let mut message = b"I\0\0\0\x05N\0\x04".to_vec();
    for value in values {
        match value {
            None => message.push(b'n'),
            Some(text) => {
                message.push(b't');
                message.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
                message.extend(text.as_bytes());
            }
        }
    }
    message
}

fn row(id: &str, aggregate_type: &str, key: &str) -> Vec<u8> {
    data(&row_message(id, aggregate_type, Some(key)))
}

/// What is kept of a row that is too large.
fn excerpt(values: [Option<&str>; 4]) -> Vec<u8> {
    let mut skim = InsertSkim::new();
    skim.begin();
    skim.pass(&data(&insert_message(values)));
    skim.excerpt().to_vec()
}

/// A value that is not kept.
fn large() -> String {
    "x".repeat(5000)
}

fn id(text: &str) -> RowId {
    text.parse().expect("a row")
}

fn intake(rules: Rules, watchlist: Watchlist) -> Intake {
    let config = RouterConfig {
        tables: vec!["public.outbox".parse().expect("a table")],
        ..RouterConfig::default()
    };
    let router = Router::new(config).expect("legal");
    let poison = Poison::new(rules, watchlist);
    Intake::new(router, Tolerance::default()).with_poison(poison, "posthaste")
}

fn rules(action: OnPoison) -> Rules {
    Rules {
        action,
        ..Rules::default()
    }
}

fn take(intake: &mut Intake, rows: &[Vec<u8>]) -> Result<Batch, IntakeError> {
    let mut batch = Batch::new();
    for frame in [begin(0x10), relation("public")].iter().chain(rows) {
        intake.handle_frame(frame, 0, &mut batch)?;
    }
    Ok(batch)
}

/// The ids of a batch's records.
fn ids(batch: &Batch) -> Vec<String> {
    let records = batch.records.iter();
    let id = |record: router::Record<'_>| {
        let (_, value) = record.headers().find(|(name, _)| *name == "id")?;
        Some(String::from_utf8_lossy(value?).into_owned())
    };
    records.filter_map(id).collect()
}

fn reason() -> Reason {
    Reason {
        stage: Stage::Publish,
        code: Code::KafkaRecordTooLarge,
        text: "too large".to_owned(),
        attempts: 2,
    }
}

#[test]
fn behind_a_parked_event_its_aggregate_is_parked_and_others_flow() {
    let mut intake = intake(rules(OnPoison::Park), Watchlist::default());
    let rows = [
        row("1", "or/der", "a"),
        row("2", "order", "a"),
        row("3", "or/der", "a"),
        row("4", "or/der", "b"),
        data(&row_message("5", "or/der", None)),
        data(&row_message("6", "order", None)),
    ];
    let batch = take(&mut intake, &rows).expect("it goes on");
    // Another type with the same key is another aggregate.
    assert_eq!(ids(&batch), ["2", "6"]);
    let records: Vec<_> = batch
        .entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Record { .. }))
        .collect();
    assert_eq!(
        records,
        [&Entry::Record { inserts: 2 }, &Entry::Record { inserts: 6 }]
    );
    let aside = intake.poison().take_aside();
    let parked: Vec<_> = aside
        .rows
        .iter()
        .map(|row| (row.row, row.reason.stage))
        .collect();
    assert_eq!(
        parked,
        [
            (id("0/10#0"), Stage::Route),
            (id("0/10#2"), Stage::Behind),
            (id("0/10#3"), Stage::Route),
            (id("0/10#4"), Stage::Route),
        ]
    );
    let tally = intake.poison().take_tally();
    assert_eq!((tally.parked, tally.behind), (3, 1));
    assert!(intake.poison().aside().is_empty());
}

#[test]
fn a_parked_row_is_routed_again_from_what_is_kept() {
    let mut intake = intake(rules(OnPoison::Park), Watchlist::default());
    take(&mut intake, &[row("1", "or/der", "a")]).expect("it goes on");
    let parked = intake.poison().take_aside().rows.remove(0);
    assert_eq!(parked.message()[1..5], [0, 0, 0, 1]);
    assert_eq!(
        parked.message()[5..],
        row_message("1", "or/der", Some("a"))[5..]
    );
    assert_eq!(parked.relation().columns.len(), 4);
    assert_eq!(parked.unknown_column(), None);
    assert!(
        !format!("{parked:?}").contains("payload\""),
        "no value is shown"
    );
}

#[test]
fn rows_that_are_in_the_table_do_not_come_again() {
    let mut watchlist = Watchlist::default();
    watchlist.settle([id("0/10#0")]);
    let mut intake = intake(rules(OnPoison::Park), watchlist);
    let rows = [row("1", "order", "a"), row("2", "order", "a")];
    assert_eq!(ids(&take(&mut intake, &rows).expect("it goes on")), ["2"]);
    assert!(intake.poison().aside().is_empty());
}

#[test]
fn what_kafka_refused_is_met_as_poison() {
    for (action, records, parked) in [
        (OnPoison::Park, vec!["2"], 2),
        (OnPoison::Skip, vec!["2", "3"], 0),
    ] {
        let mut watchlist = Watchlist::default();
        watchlist.condemn(id("0/10#0"), reason());
        let mut intake = intake(rules(action), watchlist);
        let rows = [
            row("1", "order", "a"),
            row("2", "order", "b"),
            row("3", "order", "a"),
        ];
        assert_eq!(ids(&take(&mut intake, &rows).expect("it goes on")), records);
        assert_eq!(intake.poison().take_aside().rows.len(), parked);
        assert_eq!(intake.poison().take_told(), Some(reason()));
    }
}

#[test]
fn a_dead_letter_has_the_record_and_the_reason_and_keeps_its_place() {
    let rules = Rules {
        action: OnPoison::DeadLetterTopic,
        dead_letters: DeadLetters {
            topic: "dead".to_owned(),
            bytes_max: 1_000,
        },
        ..Rules::default()
    };
    let mut watchlist = Watchlist::default();
    watchlist.condemn(id("0/10#1"), reason());
    let mut intake = intake(rules, watchlist);
    let rows = [
        row("1", "or/der", "a"),
        row("2", "order", "a"),
        row("3", "order", "a"),
    ];
    let batch = take(&mut intake, &rows).expect("it goes on");
    assert_eq!(ids(&batch), ["1", "2", "3"]);
    let topics: Vec<_> = batch.records.iter().map(|record| record.topic).collect();
    assert_eq!(topics, ["dead", "dead", "outbox.event.order"]);
    for (at, code, original) in [
        (0, "PH0503", None),
        (1, "PH0602", Some("outbox.event.order")),
    ] {
        let letter = batch.records.get(at);
        let header = |wanted: &str| {
            let (_, value) = letter.headers().find(|(name, _)| *name == wanted)?;
            std::str::from_utf8(value?).ok()
        };
        assert_eq!(
            (letter.key, letter.payload),
            (Some(&b"a"[..]), Some(&b"payload"[..]))
        );
        assert_eq!(header("posthaste.error.code"), Some(code));
        assert_eq!(header("posthaste.original.topic"), original);
        assert_eq!(
            header("posthaste.source.row"),
            Some(format!("0/10#{at}").as_str())
        );
        assert_eq!(header("posthaste.source.table"), Some("public.outbox"));
    }
}

#[test]
fn a_dead_letter_that_would_be_too_large_goes_without_its_payload() {
    let rules = Rules {
        action: OnPoison::DeadLetterTopic,
        dead_letters: DeadLetters {
            topic: "dead".to_owned(),
            bytes_max: 6,
        },
        ..Rules::default()
    };
    let mut intake = intake(rules, Watchlist::default());
    let batch = take(&mut intake, &[row("1", "or/der", "a")]).expect("it goes on");
    let letter = batch.records.get(0);
    assert_eq!(letter.payload, None);
    let left_out = letter
        .headers()
        .find(|(name, _)| *name == "posthaste.payload.bytes_left_out");
    assert_eq!(left_out.and_then(|(_, value)| value), Some(&b"7"[..]));
}

#[test]
fn an_event_is_passed_over_by_decision_whatever_the_rules() {
    let mut watchlist = Watchlist::default();
    let request = |number, event| SkipRequest { number, event };
    watchlist.skip([
        request(7, SkippedEvent::Id("1".to_owned())),
        request(8, SkippedEvent::Row(id("0/10#2"))),
    ]);
    let mut intake = intake(rules(OnPoison::Halt), watchlist);
    let rows = [
        row("1", "or/der", "a"),
        row("2", "order", "a"),
        row("3", "order", "a"),
        row("1", "order", "a"),
    ];
    let batch = take(&mut intake, &rows).expect("it goes on");
    assert_eq!(ids(&batch), ["2", "1"]);
    let skipped = intake.poison().take_aside().skipped;
    let skipped: Vec<_> = skipped
        .iter()
        .map(|(request, row)| (request.number, *row))
        .collect();
    assert_eq!(skipped, [(7, id("0/10#0")), (8, id("0/10#2"))]);
    assert_eq!(intake.poison().take_tally().skipped_by_request, 2);
}

#[test]
fn with_halt_and_at_the_limit_it_stops() {
    let mut halting = intake(rules(OnPoison::Halt), Watchlist::default());
    let error = take(&mut halting, &[row("1", "or/der", "a")]).expect_err("stopped");
    assert!(matches!(error, IntakeError::Route { .. }), "{error:?}");
    let full = Rules {
        parked_rows_max: 1,
        ..rules(OnPoison::Park)
    };
    let mut intake = intake(full, Watchlist::default());
    let rows = [
        row("1", "or/der", "a"),
        row("2", "order", "b"),
        row("3", "or/der", "a"),
    ];
    let error = take(&mut intake, &rows).expect_err("stopped");
    let IntakeError::ParkingFull { row, rows, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!((row, rows), (id("0/10#2"), 1));
    assert_eq!(
        intake.poison().aside().rows.len(),
        1,
        "the first one is still to be written down"
    );
}

/// The columns of a table in which the payload comes first.
const PAYLOAD_FIRST: [&str; 4] = ["payload", "id", "aggregatetype", "aggregateid"];

#[test]
fn a_row_too_large_is_parked_wherever_its_aggregate_stands() {
    let large = large();
    let first = [Some(large.as_str()), Some("1"), Some("order"), Some("a")];
    let last = [Some("1"), Some("order"), Some("a"), Some(large.as_str())];
    let no_key = [Some("1"), Some("order"), None, Some(large.as_str())];
    for (names, values, key) in [
        (PAYLOAD_FIRST, first, Some("a")),
        (COLUMNS, last, Some("a")),
        (COLUMNS, no_key, None),
    ] {
        let mut intake = intake(rules(OnPoison::Park), Watchlist::default());
        let mut batch = take(&mut intake, &[relation_of("public", names)]).expect("it goes on");
        intake
            .handle_too_large(99_999, &excerpt(values), &mut batch)
            .expect("its aggregate is known");
        let parked = intake.poison().take_aside().rows.remove(0);
        assert_eq!(
            (parked.row, parked.unknown_column()),
            (id("0/10#0"), Some("payload"))
        );
        assert_eq!(parked.columns.iter().filter(|c| !c.is_known).count(), 1);
        assert_eq!(parked.event_id.as_deref(), Some("1"));
        assert_eq!(parked.aggregate_id.as_deref(), key.map(str::as_bytes));
        let behind =
            insert_message(values.map(|value| value.map(|text| &text[..text.len().min(9)])));
        intake
            .handle_frame(&data(&behind), 0, &mut batch)
            .expect("it goes on");
        let behind = intake.poison().take_aside().rows;
        assert_eq!(behind.len(), usize::from(key.is_some()), "{names:?}");
    }
}

#[test]
fn a_row_too_large_of_which_all_is_kept_is_parked_whole() {
    let mut intake = intake(rules(OnPoison::Park), Watchlist::default());
    let mut batch = take(&mut intake, &[]).expect("it goes on");
    let values = [Some("1"), Some("order"), Some("a"), Some("{}")];
    intake
        .handle_too_large(99_999, &excerpt(values), &mut batch)
        .expect("it goes on");
    let parked = intake.poison().take_aside().rows.remove(0);
    assert_eq!(parked.unknown_column(), None);
    assert_eq!(parked.reason.code, Code::FrameTooLarge);
}

#[test]
fn a_row_whose_aggregate_is_too_large_is_not_parked() {
    let large = large();
    for values in [
        [Some("1"), Some("order"), Some(large.as_str()), Some("{}")],
        [Some("1"), Some(large.as_str()), Some("a"), Some("{}")],
    ] {
        let mut intake = intake(rules(OnPoison::Park), Watchlist::default());
        let mut batch = take(&mut intake, &[]).expect("it goes on");
        let error = intake
            .handle_too_large(99_999, &excerpt(values), &mut batch)
            .expect_err("its aggregate is not known");
        assert!(
            matches!(error, IntakeError::AggregateUnknown { .. }),
            "{error:?}"
        );
        // The next row has its number all the same.
        intake
            .handle_frame(&row("3", "order", "b"), 0, &mut batch)
            .expect("it goes on");
        assert_eq!(batch.entries.last(), Some(&Entry::Record { inserts: 2 }));
        // What asks for no order needs no aggregate.
        for action in [OnPoison::Skip, OnPoison::DeadLetterTopic] {
            let mut intake = self::intake(rules(action), Watchlist::default());
            let mut batch = take(&mut intake, &[]).expect("it goes on");
            intake
                .handle_too_large(99_999, &excerpt(values), &mut batch)
                .expect("it goes on");
        }
    }
}

#[test]
fn the_dead_letter_of_a_row_too_large_says_how_large_its_payload_was() {
    let large = large();
    let mut intake = intake(rules(OnPoison::DeadLetterTopic), Watchlist::default());
    let described = relation_of("public", PAYLOAD_FIRST);
    let mut batch = take(&mut intake, &[described]).expect("it goes on");
    let values = [Some(large.as_str()), Some("1"), Some("order"), Some("a")];
    intake
        .handle_too_large(99_999, &excerpt(values), &mut batch)
        .expect("a dead letter is made of it");
    let letter = batch.records.get(0);
    assert_eq!((letter.key, letter.payload), (Some(&b"a"[..]), None));
    let header = |wanted| {
        let mut headers = letter.headers();
        headers.find(|(name, _)| *name == wanted)?.1
    };
    assert_eq!(header("id"), Some(&b"1"[..]));
    assert_eq!(
        header("posthaste.payload.bytes_left_out"),
        Some(&b"5000"[..])
    );
}

#[test]
fn a_row_too_large_that_cannot_be_understood_is_an_error() {
    let large = large();
    let mut excerpt = excerpt([Some(large.as_str()), Some("1"), Some("order"), Some("a")]);
    excerpt.truncate(excerpt.len() - 1);
    for action in [OnPoison::Park, OnPoison::Skip] {
        let mut intake = intake(rules(action), Watchlist::default());
        let mut batch = take(&mut intake, &[]).expect("it goes on");
        let error = intake
            .handle_too_large(99_999, &excerpt, &mut batch)
            .expect_err("the stream cannot be trusted");
        assert!(matches!(error, IntakeError::Decode(_)), "{error:?}");
    }
}

#[test]
fn a_row_too_large_that_is_done_is_passed_over_and_counted() {
    let open = OpenTransaction {
        commit_lsn: Lsn::new(0x10),
        xid: 0,
        inserts: 1,
    };
    let done = Position {
        open: Some(open),
        ..Position::at(Lsn::new(0x8))
    };
    let mut intake = intake(rules(OnPoison::DeadLetterTopic), Watchlist::default()).behind(done);
    let mut batch = take(&mut intake, &[]).expect("it goes on");
    let large = large();
    let values = [Some("1"), Some("order"), Some("a"), Some(large.as_str())];
    for records in [0, 1] {
        intake
            .handle_too_large(99_999, &excerpt(values), &mut batch)
            .expect("a dead letter is made of it, or it is done");
        assert_eq!(batch.records.len(), records);
    }
    assert_eq!(intake.take_ignored().done, 1);
}

#[test]
fn rows_of_our_own_schema_are_no_events() {
    let config = RouterConfig {
        tables: vec!["posthaste.outbox".parse().expect("a table")],
        ..RouterConfig::default()
    };
    let router = Router::new(config).expect("legal");
    let poison = Poison::new(Rules::default(), Watchlist::default());
    let mut intake = Intake::new(router, Tolerance::default()).with_poison(poison, "posthaste");
    let mut batch = Batch::new();
    for frame in [begin(0x10), relation("posthaste"), row("1", "order", "a")] {
        intake
            .handle_frame(&frame, 0, &mut batch)
            .expect("it goes on");
    }
    assert!(batch.records.is_empty());
    assert_eq!(intake.take_ignored().inserts, 1);
}
