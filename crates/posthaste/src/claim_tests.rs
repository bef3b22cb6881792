//! Tests of the judgement about a position record.

use replication::TimelineSwitch;

use super::*;

fn identity() -> Identity {
    Identity {
        system_identifier: "7".to_owned(),
        timeline: 1,
        database: "shop".to_owned(),
        slot: "outbox".to_owned(),
    }
}

fn here<'a>(identity: &'a Identity, history: &'a History) -> Here<'a> {
    Here {
        identity,
        history,
        publication: "p",
        options: "proto_version 1".to_owned(),
        start: Lsn::new(100),
        server_wal_position: Lsn::new(1_000),
        is_first: false,
        is_accepted: false,
    }
}

fn record(here: &Here<'_>, position: &str) -> Vec<u8> {
    format!(r#"{{"format_version":1,{},{position}}}"#, here.origin()).into_bytes()
}

const WHOLE: &str = r#""end_lsn":"0/C8","message_lsn":"0/0","open":null"#;
const HALF: &str =
    r#""end_lsn":"0/C8","message_lsn":"0/0","open":{"commit_lsn":"0/12C","xid":9,"inserts":3}"#;

#[track_caller]
fn check_refused(here: &Here<'_>, record: Option<&[u8]>, code: Code, part: &str) {
    let problem = here.judge(record).expect_err("refused");
    assert_eq!(problem.code, code, "{problem}");
    assert!(problem.to_string().contains(part), "{problem}");
}

#[test]
fn it_goes_on_where_the_record_says() {
    let (identity, history) = (identity(), History::only(1));
    let here = here(&identity, &history);
    let resume = here.judge(Some(&record(&here, HALF))).expect("fits").resume;
    let open = OpenTransaction {
        commit_lsn: Lsn::new(300),
        xid: 9,
        inserts: 3,
    };
    assert_eq!(
        resume.position,
        Position {
            open: Some(open),
            ..Position::at(Lsn::new(200))
        }
    );
    assert!(!resume.record_now);
    assert_eq!(resume.origin, here.origin());
}

#[test]
fn a_first_start_writes_where_it_begins() {
    let (identity, history) = (identity(), History::only(1));
    let first = Here {
        is_first: true,
        ..here(&identity, &history)
    };
    let resume = first.judge(None).expect("nothing can be missing").resume;
    assert_eq!(resume.position, Position::at(Lsn::new(100)));
    assert!(resume.record_now);
}

#[test]
fn a_missing_record_of_a_slot_that_was_read_stops() {
    let (identity, history) = (identity(), History::only(1));
    let here = here(&identity, &history);
    check_refused(&here, None, Code::PositionMissing, "--accept-slot-position");
    let accepted = Here {
        is_accepted: true,
        ..here
    };
    assert!(accepted.judge(None).expect("accepted").resume.record_now);
    let resume = accepted.judge(Some(b"rubbish")).expect("accepted").resume;
    assert_eq!(resume.position, Position::at(Lsn::new(100)));
}

#[test]
fn a_record_of_something_else_stops() {
    let (identity, history) = (identity(), History::only(1));
    let here = here(&identity, &history);
    check_refused(
        &here,
        Some(b"rubbish"),
        Code::PositionForeign,
        "no position of ours",
    );
    let newer = String::from_utf8(record(&here, WHOLE)).unwrap();
    let newer = newer.replace("\"format_version\":1", "\"format_version\":3");
    check_refused(
        &here,
        Some(newer.as_bytes()),
        Code::PositionForeign,
        "format version 3",
    );
    let other = Identity {
        database: "other".to_owned(),
        ..identity.clone()
    };
    let foreign = record(&self::here(&other, &history), WHOLE);
    check_refused(
        &here,
        Some(&foreign),
        Code::PositionForeign,
        "database other",
    );
}

#[test]
fn a_position_is_placed_on_the_history_of_the_server() {
    let old = identity();
    let history = History::only(1);
    let record = |position| record(&here(&old, &history), position);
    let new = Identity {
        timeline: 2,
        ..identity()
    };
    let left_at = |end| History {
        timeline: 2,
        switches: Some(vec![TimelineSwitch { timeline: 1, end }]),
    };
    assert!(here(&new, &left_at(300)).judge(Some(&record(HALF))).is_ok());
    // The commit of the half-done transaction is what must not lie beyond.
    check_refused(
        &here(&new, &left_at(299)),
        Some(&record(HALF)),
        Code::HistoryDiverged,
        "from 0/12B to 0/12C",
    );
    assert!(
        here(&new, &left_at(299))
            .judge(Some(&record(WHOLE)))
            .is_ok()
    );
}

#[test]
fn a_server_that_ends_before_the_position_stops() {
    let (identity, history) = (identity(), History::only(1));
    let restored = Here {
        server_wal_position: Lsn::new(199),
        ..here(&identity, &history)
    };
    let record = record(&restored, WHOLE);
    check_refused(&restored, Some(&record), Code::StateAhead, "restored");
}

#[test]
fn another_stream_stops_only_in_the_middle_of_a_transaction() {
    let (identity, history) = (identity(), History::only(1));
    let before = here(&identity, &history);
    let (half, whole) = (record(&before, HALF), record(&before, WHOLE));
    let other = Here {
        publication: "q",
        ..here(&identity, &history)
    };
    check_refused(&other, Some(&half), Code::PositionHalfDone, "publication p");
    assert!(other.judge(Some(&whole)).is_ok());
    let options = Here {
        options: "proto_version 1, messages true".to_owned(),
        ..here(&identity, &history)
    };
    check_refused(
        &options,
        Some(&half),
        Code::PositionHalfDone,
        "messages true",
    );
    // The slot stands behind the transaction: its end was confirmed, and no record was left to write that down with.
    let done = Here {
        start: Lsn::new(301),
        publication: "q",
        ..here(&identity, &history)
    };
    let resume = done
        .judge(Some(&half))
        .expect("nothing is half done")
        .resume;
    assert_eq!(resume.position, Position::at(Lsn::new(301)));
}

const PARKED: &str = r#""end_lsn":"0/C8","message_lsn":"0/0","open":null,"parked_lsn":"0/190","unnoted":["0/28#0","0/28#7"]"#;

fn record_2(here: &Here<'_>, position: &str) -> Vec<u8> {
    format!(r#"{{"format_version":2,{},{position}}}"#, here.origin()).into_bytes()
}

#[test]
fn parked_rows_that_are_published_are_told() {
    let (identity, history) = (identity(), History::only(1));
    let here = here(&identity, &history);
    let judged = here.judge(Some(&record_2(&here, PARKED))).expect("fits");
    let expected = Position {
        parked_lsn: Lsn::new(400),
        ..Position::at(Lsn::new(200))
    };
    assert_eq!(judged.resume.position, expected);
    let rows: Vec<String> = judged.unnoted.iter().map(RowId::to_string).collect();
    assert_eq!(rows, ["0/28#0", "0/28#7"]);
    let accepted = Here {
        is_accepted: true,
        ..here
    };
    let judged = accepted
        .judge(Some(&record_2(&accepted, PARKED)))
        .expect("accepted");
    assert_eq!(judged.resume.position, Position::at(Lsn::new(100)));
    assert_eq!(judged.unnoted.len(), 2, "they are published all the same");
}

#[test]
fn a_record_without_what_its_version_needs_stops() {
    let (identity, history) = (identity(), History::only(1));
    let here = here(&identity, &history);
    for (position, part) in [
        (WHOLE.to_owned(), "format version 2"),
        (
            PARKED.replace("0/28#7", "0/28"),
            "a parked row that is none",
        ),
        (
            PARKED.replace(
                "\"0/28#0\"",
                &vec!["\"0/28#0\""; UNNOTED_ROWS_MAX].join(","),
            ),
            "format version 2",
        ),
    ] {
        let record = record_2(&here, &position);
        check_refused(&here, Some(&record), Code::PositionForeign, part);
    }
}

#[test]
fn a_history_without_the_commit_that_parked_stops() {
    let (old, new) = (
        identity(),
        Identity {
            timeline: 2,
            ..identity()
        },
    );
    let left_at = |end| History {
        timeline: 2,
        switches: Some(vec![TimelineSwitch { timeline: 1, end }]),
    };
    let record = record_2(&here(&old, &History::only(1)), PARKED);
    let (whole, cut) = (left_at(400), left_at(399));
    assert!(here(&new, &whole).judge(Some(&record)).is_ok());
    let cut = here(&new, &cut);
    check_refused(
        &cut,
        Some(&record),
        Code::HistoryDiverged,
        "table of parked events",
    );
    // What the stream has passed, the standby has received as well.
    let behind = Here {
        start: Lsn::new(400),
        ..cut
    };
    assert!(behind.judge(Some(&record)).is_ok());
}
