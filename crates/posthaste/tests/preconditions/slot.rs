//! The slot: the wrong ones, the lost ones, and the held one.

use posthaste::codes::Code;
use posthaste::preconditions::{CheckError, Wanted, open};
use posthaste::slot::{Stream, explain_start_error};
use posthaste::state::Stored;
use replication::{ConnectError, Frame};

use crate::fixture::{Fixture, own_server, run};

#[test]
fn a_missing_slot_comes_with_the_statement_that_makes_it() {
    let fixture = Fixture::new("noslot");
    fixture.create_publication();
    let words = [
        "slot \"noslot\"",
        "pg_create_logical_replication_slot('noslot', 'pgoutput')",
    ];
    fixture.refused(&fixture.wanted(), Code::SlotMissing, &words);
}

#[test]
fn b31_d_slot_of_another_database() {
    let (fixture, other) = (Fixture::new("b31d"), Fixture::new("b31d2"));
    fixture.create_publication();
    other.admin("SELECT pg_create_logical_replication_slot('b31d', 'pgoutput')");
    for wanted in [fixture.wanted(), fixture.wanted_created()] {
        fixture.refused(&wanted, Code::SlotDatabase, &["slot \"b31d\"", "\"b31d2\""]);
    }
}

#[test]
fn b31_e_slot_of_another_plugin() {
    let fixture = Fixture::new("b31e");
    fixture.create_slot("test_decoding");
    // Without the publication as well: the slot's kind is the more basic problem, and nothing is made.
    fixture.refused(
        &fixture.wanted_created(),
        Code::SlotPlugin,
        &["slot \"b31e\"", "test_decoding", "pgoutput"],
    );
    fixture.create_publication();
    fixture.refused(&fixture.wanted(), Code::SlotPlugin, &["test_decoding"]);
}

#[test]
fn b31_f_physical_slot() {
    let fixture = Fixture::new("b31f");
    fixture.create_publication();
    fixture.admin("SELECT pg_create_physical_replication_slot('b31f')");
    fixture.refused(
        &fixture.wanted_created(),
        Code::SlotPhysical,
        &["slot \"b31f\"", "physical", "logical"],
    );
}

#[test]
fn a_two_phase_slot_sends_what_is_not_read() {
    let fixture = Fixture::new("twophase");
    fixture.create_publication();
    fixture.admin("SELECT pg_create_logical_replication_slot('twophase', 'pgoutput', false, true)");
    fixture.refused(&fixture.wanted(), Code::SlotTwoPhase, &["two_phase"]);
}

#[test]
fn b23_an_invalidated_slot_names_its_last_position() {
    let server = own_server(&[
        ("max_slot_wal_keep_size", "1MB"),
        ("max_wal_size", "32MB"),
        ("min_wal_size", "32MB"),
    ]);
    let fixture = Fixture::on(server, "b23");
    let confirmed = fixture
        .passes(&fixture.wanted_created())
        .slot_confirmed
        .to_string();
    fixture.admin("CREATE TABLE filler (x text)");
    for _ in 0..4 {
        fixture.admin("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 5000)");
        fixture.admin("SELECT pg_switch_wal()");
        fixture.admin("CHECKPOINT");
    }
    assert_eq!(
        fixture.admin("SELECT wal_status FROM pg_replication_slots"),
        "lost"
    );
    for wanted in [fixture.wanted(), fixture.wanted_created()] {
        let words = [
            "slot \"b23\"",
            "invalidated",
            confirmed.as_str(),
            "may be missing",
        ];
        fixture.refused(&wanted, Code::SlotInvalidated, &words);
    }
    // The server's own words at the attempt to read it mean the same.
    let error = start_error(&fixture);
    match explain_start_error(stream(&fixture.wanted()), error) {
        CheckError::Problem(problem) => {
            assert_eq!(problem.code, Code::SlotInvalidated, "{problem}")
        }
        other => panic!("{other:?}"),
    }
    check_made_anew(&fixture, &fixture.wanted(), &confirmed);
}

/// On request the slot is made anew, and the gap is told; what is not lost is not touched.
fn check_made_anew(fixture: &Fixture, wanted: &Wanted, lost_at: &str) {
    let asked = Wanted {
        recreate_lost: true,
        ..wanted.clone()
    };
    let checked = fixture.passes(&asked);
    let gap = checked.gap.expect("a gap");
    assert!(checked.created.slot && !checked.created.publication);
    assert_eq!(gap.start.to_string(), lost_at);
    assert!(gap.end > gap.start && gap.end == checked.slot_confirmed);
    let told = checked
        .warnings
        .iter()
        .filter(|warning| warning.code == Code::SlotRecreated);
    let told: Vec<_> = told.map(|warning| &warning.text).collect();
    assert!(
        matches!(told.as_slice(), [text] if text.contains(lost_at) && text.contains("reconcile")),
        "{told:?}"
    );
    assert_eq!(
        fixture.admin("SELECT count(*), min(wal_status) FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database()"),
        "1|reserved"
    );
    let again = fixture.passes(&asked);
    assert!(again.gap.is_none() && !again.created.slot);
    assert_eq!(again.slot_confirmed, gap.end);
}

#[test]
fn b22_a_held_slot_is_waited_for_and_names_its_holder() {
    let fixture = Fixture::new("b22");
    fixture.passes(&fixture.wanted_created());
    run(async {
        let (_sql, client, _) = open(&fixture.options(), &fixture.wanted()).await.unwrap();
        let _held = client
            .start_replication("b22", 0, &options(&fixture.wanted()))
            .await
            .unwrap();
        let holder =
            fixture.admin("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'b22'");
        match fixture.check(&fixture.wanted()).await {
            Err(CheckError::Held { slot, pid }) => {
                assert_eq!(slot, "b22");
                assert_eq!(pid.map(|pid| pid.to_string()), Some(holder.clone()));
            }
            other => panic!("{other:?}"),
        }
        // Taken between our look and our START_REPLICATION, the server says it.
        let (_sql, second) = connections(&fixture).await;
        let error = second
            .start_replication("b22", 0, &options(&fixture.wanted()))
            .await
            .unwrap_err();
        match explain_start_error(stream(&fixture.wanted()), error) {
            CheckError::Held { pid, .. } => {
                assert_eq!(pid.map(|pid| pid.to_string()), Some(holder.clone()))
            }
            other => panic!("{other:?}"),
        }
        let still =
            fixture.admin("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'b22'");
        assert_eq!(still, holder, "the holder is left alone");
    });
}

#[test]
fn a_slot_that_vanished_is_never_silently_made_anew() {
    let fixture = Fixture::new("lost");
    let checked = fixture.passes(&fixture.wanted_created());
    let previous = Stored {
        identity: checked.identity,
        confirmed_lsn: checked.slot_confirmed,
        parked_lsn: pgoutput::Lsn::ZERO,
        saved_at_unix_micros: 0,
    };
    fixture.admin("SELECT pg_drop_replication_slot('lost')");
    let mut wanted = Wanted {
        previous: Some(previous.clone()),
        ..fixture.wanted_created()
    };
    let position = previous.confirmed_lsn.to_string();
    fixture.refused(
        &wanted,
        Code::SlotLost,
        &["slot \"lost\"", position.as_str(), "remove"],
    );
    // A promotion that lost the slot is the same.
    wanted.previous.as_mut().unwrap().identity.timeline += 1;
    fixture.refused(&wanted, Code::SlotLost, &[position.as_str()]);
    check_made_anew(&fixture, &wanted, &position);
    fixture.admin("SELECT pg_drop_replication_slot('lost')");
    // A position of another cluster says nothing about this one.
    wanted
        .previous
        .as_mut()
        .unwrap()
        .identity
        .system_identifier
        .push('9');
    assert!(fixture.passes(&wanted).created.slot);
}

#[test]
fn b24_a_publication_younger_than_what_the_slot_reads() {
    let fixture = Fixture::new("b24a");
    fixture.create_slot("pgoutput");
    fixture.owner("INSERT INTO outbox (aggregatetype) VALUES ('order')");
    // Making it now could not help: refused instead of created.
    fixture.refused(
        &fixture.wanted_created(),
        Code::PublicationAge,
        &["publication \"outbox_pub\"", "recreate the slot"],
    );
    fixture.create_publication();
    fixture.owner("INSERT INTO outbox (aggregatetype) VALUES ('order')");
    // Nothing in the catalogs shows it, so the check passes and the stream has to say it.
    let error = run(async {
        let (_sql, client, _) = open(&fixture.options(), &fixture.wanted()).await.unwrap();
        let mut copy = client
            .start_replication("b24a", 0, &options(&fixture.wanted()))
            .await
            .unwrap();
        loop {
            match copy.next_frame().await {
                Ok(Frame::Data(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => return error,
            }
        }
    });
    match explain_start_error(stream(&fixture.wanted()), error) {
        CheckError::Problem(problem) => {
            assert_eq!(problem.code, Code::PublicationAge, "{problem}");
            assert!(problem.to_string().contains("may exist now"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_slot_met_only_at_the_start_of_the_stream_has_the_same_code() {
    let (fixture, other) = (Fixture::new("late"), Fixture::new("late2"));
    for (make, code) in [
        ("SELECT 1", Code::SlotLost),
        (
            "SELECT pg_create_logical_replication_slot('late', 'test_decoding')",
            Code::SlotPlugin,
        ),
    ] {
        fixture.admin(make);
        match explain_start_error(stream(&fixture.wanted()), start_error(&fixture)) {
            CheckError::Problem(problem) => assert_eq!(problem.code, code, "{problem}"),
            other => panic!("{other:?}"),
        }
    }
    // The walsender of the refused stream may still be ending.
    fixture.admin(
        "DO $$ BEGIN FOR look IN 1..1000 LOOP \
             EXIT WHEN NOT (SELECT active FROM pg_replication_slots WHERE slot_name = 'late'); \
             PERFORM pg_sleep(0.01); \
         END LOOP; END $$",
    );
    fixture.admin("SELECT pg_drop_replication_slot('late')");
    other.admin("SELECT pg_create_logical_replication_slot('late', 'pgoutput')");
    match explain_start_error(stream(&fixture.wanted()), start_error(&fixture)) {
        CheckError::Problem(problem) => assert_eq!(problem.code, Code::SlotDatabase, "{problem}"),
        other => panic!("{other:?}"),
    }
}

/// What the server says to START_REPLICATION without any check before it.
fn start_error(fixture: &Fixture) -> ConnectError {
    run(async {
        let (_sql, client) = connections(fixture).await;
        let wanted = fixture.wanted();
        match client
            .start_replication(&wanted.slot, 0, &options(&wanted))
            .await
        {
            // Some refusals come only after the copy has begun.
            Ok(mut copy) => copy.next_frame().await.map(|_| ()).unwrap_err(),
            Err(error) => error,
        }
    })
}

async fn connections(
    fixture: &Fixture,
) -> (tokio_postgres::Client, replication::ReplicationClient) {
    let sql = replication::connect_sql(&fixture.options()).await.unwrap();
    let client = replication::connect_replication(&fixture.options())
        .await
        .unwrap();
    (sql, client)
}

fn stream(wanted: &Wanted) -> Stream<'_> {
    Stream {
        slot: &wanted.slot,
        publication: &wanted.publication,
        position: pgoutput::Lsn::new(0x2A),
    }
}

fn options(wanted: &Wanted) -> [(&'static str, String); 2] {
    [
        ("proto_version", "1".to_owned()),
        (
            "publication_names",
            replication::quote_ident(&wanted.publication),
        ),
    ]
}
