//! Where the stream starts, what is kept for the next start, and what a takeover from Debezium decided.

use std::collections::HashMap;

use sink::Tracker;

use super::*;
use crate::preconditions::Created;
use crate::timeline::History;

fn config(directory: Option<&std::path::Path>) -> Config {
    Config {
        remarks: Vec::new(),
        pipelines: Vec::new(),
        http: crate::config::Http { listen: None },
        state: crate::config::State {
            directory: directory.map(Into::into),
        },
        log: crate::config::Log {
            format: crate::config::LogFormat::Auto,
            level: "info".to_owned(),
        },
    }
}

/// Timeline 2 left timeline 1 at 400.
fn branched(timeline: u32) -> History {
    let switches = match timeline {
        1 => Vec::new(),
        _ => vec![replication::TimelineSwitch {
            timeline: 1,
            end: 400,
        }],
    };
    History {
        timeline,
        switches: Some(switches),
    }
}

pub(crate) fn checked(slot_confirmed: u64, timeline: u32, system: &str) -> Checked {
    Checked {
        catalog: None,
        server_version: 150_020,
        identity: Identity {
            system_identifier: system.to_owned(),
            timeline,
            database: "orders".to_owned(),
            slot: "outbox".to_owned(),
        },
        slot_confirmed: Lsn::new(slot_confirmed),
        server_wal_position: Lsn::new(10_000),
        history: branched(timeline),
        slot_unread: false,
        wal_sender_timeout: Duration::from_secs(60),
        base_types: HashMap::new(),
        created: Created::default(),
        gap: None,
        warnings: Vec::new(),
    }
}

fn confirmed(position: u64) -> Confirmed {
    Tracker::new(Lsn::new(position)).confirmed()
}

#[test]
fn a_server_that_forgot_is_told_the_position_again_after_a_restart_of_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(Some(folder.path()));
    let mut memory = Memory::open(&config, "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    memory.confirm(confirmed(500));
    memory.save();
    let mut again = Memory::open(&config, "default").expect("usable");
    let start = again
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    assert_eq!(
        start,
        StartAt {
            position: Lsn::new(500),
            new_history: false
        }
    );
}

#[test]
fn a_promotion_before_the_position_stops_and_one_behind_it_goes_on() {
    let mut memory = Memory::open(&config(None), "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    memory.confirm(confirmed(350));
    let start = memory
        .start_position(&checked(300, 2, "7"), "pub")
        .expect("a start");
    let goes_on = StartAt {
        position: Lsn::new(350),
        new_history: false,
    };
    assert_eq!(start, goes_on);
    let mut memory = Memory::open(&config(None), "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    memory.confirm(confirmed(500));
    let problem = memory
        .start_position(&checked(300, 2, "7"), "pub")
        .expect_err("refused");
    assert_eq!(problem.code, Code::HistoryDiverged);
    assert_eq!(memory.confirmed(), Lsn::new(500));
}

#[test]
fn the_operator_can_let_the_slot_decide_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(Some(folder.path()));
    let mut memory = Memory::open(&config, "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    memory.confirm(confirmed(500));
    memory.save();
    let mut again = Memory::open(&config, "default").expect("usable");
    again.accept_slot_position();
    let start = again.start_position(&checked(300, 2, "7"), "pub");
    assert_eq!(start.expect("accepted").position, Lsn::new(300));
    again.confirm(confirmed(320));
    let start = again.start_position(&checked(300, 2, "7"), "pub");
    assert_eq!(start.expect("of this history").position, Lsn::new(320));
}

#[test]
fn another_system_in_the_same_process_is_refused() {
    let mut memory = Memory::open(&config(None), "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    let problem = memory
        .start_position(&checked(100, 1, "8"), "pub")
        .expect_err("refused");
    assert_eq!(problem.code, Code::SystemChanged);
}

/// A decision in the state directory, and a memory that has read it.
fn taken_over(folder: &tempfile::TempDir, timeline: u32) -> (HandoverFile, Memory) {
    let config = config(Some(folder.path()));
    let file = HandoverFile::new(folder.path(), "outbox");
    let identity = checked(0, timeline, "7").identity;
    file.save(&crate::handover::tests::handover(identity))
        .expect("saved");
    let mut memory = Memory::open(&config, "default").expect("usable");
    memory.open_handover(&config, "outbox").expect("usable");
    (file, memory)
}

#[test]
fn a_takeover_says_where_to_start_until_everything_before_it_is_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    for crash in [false, true] {
        let (file, mut memory) = taken_over(&folder, 1);
        let start = memory.start_position(&checked(90, 1, "7"), "pub");
        assert_eq!(start.expect("a start").position, Lsn::new(100));
        assert!(memory.taken_over().is_some());
        // Inside, whatever happens: the next start decides the same.
        memory.confirm(confirmed(299));
        assert!(memory.taken_over().is_some());
        if crash {
            let (_, again) = taken_over(&folder, 1);
            memory = again;
            let start = memory.start_position(&checked(90, 1, "7"), "pub");
            assert_eq!(start.expect("a start").position, Lsn::new(100));
        }
        memory.confirm(confirmed(300));
        assert!(memory.taken_over().is_none());
        assert_eq!(file.load().expect("no file"), None, "used once");
        let stored = StateFile::open(folder.path(), "default")
            .expect("usable")
            .load();
        assert!(matches!(stored, Loaded::Stored(stored) if stored.confirmed_lsn == Lsn::new(300)));
        std::fs::remove_file(folder.path().join("default.json")).expect("removed");
    }
}

#[test]
fn a_takeover_never_moves_a_position_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mut memory) = taken_over(&folder, 1);
    let start = memory.start_position(&checked(200, 1, "7"), "pub");
    assert_eq!(start.expect("a start").position, Lsn::new(200));
    assert!(memory.taken_over().is_some());
    let (_, mut memory) = taken_over(&folder, 1);
    let start = memory.start_position(&checked(400, 1, "7"), "pub");
    assert_eq!(start.expect("a start").position, Lsn::new(400));
    assert!(memory.taken_over().is_none());
    assert_eq!(file.load().expect("no file"), None);
}

#[test]
fn a_takeover_on_another_timeline_skips_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mut memory) = taken_over(&folder, 1);
    let start = memory.start_position(&checked(90, 2, "7"), "pub");
    assert_eq!(start.expect("a start").position, Lsn::new(90));
    assert!(memory.taken_over().is_none());
    assert_eq!(file.load().expect("no file"), None);
}

#[test]
fn a_takeover_of_something_else_or_of_lost_positions_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, mut memory) = taken_over(&folder, 1);
    let mut restored = checked(90, 1, "7");
    restored.server_wal_position = Lsn::new(250);
    for (checked, publication) in [
        (checked(90, 1, "8"), "pub"),
        (checked(90, 1, "7"), "other"),
        (restored, "pub"),
    ] {
        let problem = memory
            .start_position(&checked, publication)
            .expect_err("refused");
        assert_eq!(problem.code, Code::TakeoverFile);
    }
}

#[test]
fn the_file_is_not_written_for_every_confirmation() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::open(&config(Some(folder.path())), "default").expect("usable");
    memory
        .start_position(&checked(100, 1, "7"), "pub")
        .expect("a start");
    let now = Now::read();
    memory.confirm(confirmed(200));
    memory.save_if_due(now);
    memory.confirm(confirmed(300));
    memory.save_if_due(now);
    assert_eq!(memory.put, Lsn::new(200));
    memory.save_if_due(Now {
        instant: now.instant + SAVE_INTERVAL,
        ..now
    });
    assert_eq!(memory.put, Lsn::new(300));
}
