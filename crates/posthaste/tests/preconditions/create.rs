//! Making publication and slot: in the right order, with what it takes, and with nothing half-made left.

use std::sync::Arc;
use std::time::Duration;

use pgoutput::{Envelope, Message, Value, decode};
use posthaste::codes::Code;
use posthaste::preconditions::{CheckError, Created, Wanted, open};
use replication::{CopyBoth, Frame};
use tokio::task::JoinHandle;
use xtask::process::wait_for;

use crate::fixture::{Fixture, own_server, run};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn both_are_made_once_and_found_afterwards() {
    let fixture = Fixture::new("make");
    let wanted = fixture.wanted_created();
    assert_eq!(
        fixture.passes(&wanted).created,
        Created {
            publication: true,
            slot: true
        }
    );
    let shape =
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, puballtables FROM pg_publication";
    assert_eq!(fixture.admin(shape), "t|f|f|f|f");
    let again = fixture.passes(&wanted);
    assert_eq!(again.created, Created::default());
    assert!(again.warnings.is_empty(), "{:?}", again.warnings);
}

#[test]
fn a_publication_that_exists_is_used_and_only_the_slot_is_made() {
    let fixture = Fixture::new("slotonly");
    fixture.create_publication();
    let checked = fixture.passes(&fixture.wanted_created());
    assert_eq!(
        checked.created,
        Created {
            publication: false,
            slot: true
        }
    );
}

#[test]
fn b31_c_all_slots_used() {
    let server = own_server(&[("max_replication_slots", "1")]);
    let fixture = Fixture::on(Arc::clone(&server), "b31c");
    fixture.admin("SELECT pg_create_physical_replication_slot('taken')");
    let words = ["max_replication_slots", "1 of 1 in use"];
    fixture.refused(&fixture.wanted_created(), Code::SlotsExhausted, &words);
    assert_eq!(fixture.admin("SELECT count(*) FROM pg_publication"), "0");
    fixture.admin("SELECT pg_drop_replication_slot('taken')");
    fixture.passes(&fixture.wanted_created());
}

#[test]
fn missing_rights_are_named_with_the_grant_before_anything_is_made() {
    let fixture = Fixture::new("norights");
    fixture.admin("ALTER DATABASE norights OWNER TO postgres");
    let words = [
        "may not create publications",
        "GRANT CREATE ON DATABASE \"norights\" TO \"norights\"",
    ];
    let problem = fixture.refused(&fixture.wanted_created(), Code::CreateRefused, &words);
    fixture.admin(problem.fix.split(';').next().unwrap());
    fixture.admin("ALTER TABLE outbox OWNER TO postgres");
    let words = [
        "table public.outbox belongs to \"postgres\"",
        "CREATE PUBLICATION \"outbox_pub\"",
    ];
    fixture.refused(&fixture.wanted_created(), Code::CreateRefused, &words);
    // The owner runs the statement of the message; the slot is then made by us.
    fixture.create_publication_as_superuser();
    let checked = fixture.passes(&fixture.wanted_created());
    assert_eq!(
        checked.created,
        Created {
            publication: false,
            slot: true
        }
    );
}

impl Fixture {
    fn create_publication_as_superuser(&self) {
        self.admin(
            "CREATE PUBLICATION outbox_pub FOR TABLE public.outbox WITH (publish = 'insert')",
        );
    }
}

#[test]
fn b24_c_every_row_after_the_slots_point_arrives_while_others_write() {
    let fixture = Fixture::new("b24c");
    fixture.owner("DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, payload text)");
    let wanted = fixture.wanted_created();
    run(async {
        let writer = replication::connect_sql(&fixture.options()).await.unwrap();
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let writing = tokio::spawn(async move {
            let mut id = 0;
            while stopped.try_recv().is_err() {
                id += 1;
                writer
                    .execute("INSERT INTO public.outbox (id) VALUES ($1)", &[&id])
                    .await
                    .unwrap();
            }
            id
        });
        let (sql, client, checked) = open(&fixture.options(), &wanted).await.unwrap();
        assert_eq!(
            checked.created,
            Created {
                publication: true,
                slot: true
            }
        );
        let row = sql
            .query_one(
                "SELECT coalesce(pg_catalog.max(id), 0) FROM public.outbox",
                &[],
            )
            .await
            .unwrap();
        let seen: i32 = row.get(0);
        wait_until_written(&sql, seen + 500).await;
        stop.send(()).unwrap();
        let last = writing.await.unwrap();

        let options = [
            ("proto_version", "1".to_owned()),
            ("publication_names", "\"outbox_pub\"".to_owned()),
        ];
        let copy = client
            .start_replication(&wanted.slot, 0, &options)
            .await
            .unwrap();
        let ids = read_ids_until(copy, last).await;
        let first = *ids.first().unwrap();
        assert!(
            first <= seen + 1,
            "row {first} is the first, though {seen} was written before the slot was ready"
        );
        assert_eq!(
            ids,
            (first..=last).collect::<Vec<_>>(),
            "a row is missing or comes twice"
        );
    });
}

async fn wait_until_written(sql: &tokio_postgres::Client, id: i32) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    let written = async {
        loop {
            look.tick().await;
            let row = sql
                .query_one("SELECT pg_catalog.max(id) FROM public.outbox", &[])
                .await
                .unwrap();
            if row.get::<_, i32>(0) >= id {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, written)
        .await
        .expect("the writer is stuck");
}

async fn read_ids_until(mut copy: CopyBoth, last: i32) -> Vec<i32> {
    let mut ids = Vec::new();
    let reading = async {
        while ids.last() != Some(&last) {
            let Frame::Data(body) = copy.next_frame().await.unwrap() else {
                panic!("the copy ended")
            };
            let Envelope::XLogData { message, .. } = Envelope::parse(body).unwrap() else {
                continue;
            };
            if let Message::Insert { new, .. } = decode(message).unwrap() {
                let Some(Value::Text(id)) = new.columns().next() else {
                    panic!("no id")
                };
                ids.push(std::str::from_utf8(id).unwrap().parse().unwrap());
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("the last row does not come");
    ids
}

#[test]
fn a_start_given_up_while_the_server_waits_leaves_no_slot() {
    let fixture = Fixture::new("givenup");
    run(async {
        let (blocker, starting) = blocked_start(&fixture).await;
        let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'givenup'";
        wait_for_count(&fixture, slots, "1");
        starting.abort();
        assert!(starting.await.unwrap_err().is_cancelled());
        blocker.batch_execute("COMMIT").await.unwrap();
        wait_for_count(&fixture, slots, "0");
        // What is left is whole, and the next start goes on from it.
        let checked = fixture.check(&fixture.wanted_created()).await.unwrap();
        assert_eq!(
            checked.created,
            Created {
                publication: false,
                slot: true
            }
        );
    });
}

#[test]
fn a_slot_that_cannot_be_made_takes_its_publication_with_it() {
    let fixture = Fixture::new("takeback");
    run(async {
        let (_blocker, starting) = blocked_start(&fixture).await;
        let walsender = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'takeback' AND backend_type = 'walsender' \
                         AND wait_event_type = 'Lock'";
        wait_for_count(&fixture, walsender, "1");
        assert_eq!(
            fixture.admin("SELECT count(*) FROM pg_publication"),
            "1",
            "the publication comes first"
        );
        fixture.admin("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = 'takeback' AND backend_type = 'walsender'");
        starting.await.unwrap().unwrap_err();
        assert_eq!(fixture.admin("SELECT count(*) FROM pg_publication"), "0");
        assert_eq!(
            fixture.admin("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'takeback'"),
            "0"
        );
    });
}

/// A start that makes a slot, which the server finishes only when the transactions that were open have ended: here one that
/// the first connection holds.
async fn blocked_start(
    fixture: &Fixture,
) -> (tokio_postgres::Client, JoinHandle<Result<(), CheckError>>) {
    let blocker = replication::connect_sql(&fixture.options()).await.unwrap();
    blocker
        .batch_execute("BEGIN; INSERT INTO public.outbox (aggregatetype) VALUES ('x')")
        .await
        .unwrap();
    let (options, wanted) = (fixture.options(), fixture.wanted_created());
    let starting = tokio::spawn(async move { open(&options, &wanted).await.map(drop) });
    (blocker, starting)
}

fn wait_for_count(fixture: &Fixture, query: &str, expected: &str) {
    let look = || Ok((fixture.admin(query) == expected).then_some(()));
    tokio::task::block_in_place(|| wait_for(query, DEADLINE, look)).unwrap();
}

#[test]
fn two_instances_that_start_together_make_one_pair() {
    let fixture = Fixture::new("together");
    run(async {
        let wanted = fixture.wanted_created();
        let starts = (0..4).map(|_| {
            let (options, wanted) = (fixture.options(), wanted.clone());
            tokio::spawn(async move {
                open(&options, &wanted)
                    .await
                    .map(|(_, _, checked)| checked.created)
            })
        });
        let mut made = Created::default();
        for start in starts.collect::<Vec<_>>() {
            // Losing the race is a reason to try again, never a problem.
            match start.await.unwrap() {
                Ok(created) => {
                    assert!(!(made.slot && created.slot), "two slots");
                    made.publication |= created.publication;
                    made.slot |= created.slot;
                }
                Err(CheckError::Problem(problem)) => panic!("{problem}"),
                Err(_) => {}
            }
        }
        let checked = fixture.check(&wanted).await.unwrap();
        assert!(made.slot || checked.created.slot);
        assert_eq!(fixture.admin("SELECT count(*) FROM pg_publication"), "1");
    });
}

#[test]
fn a_publication_that_another_session_commits_while_ours_is_made_is_a_reason_to_try_again() {
    let fixture = Fixture::new("meanwhile");
    run(async {
        let other = replication::connect_sql(&fixture.options()).await.unwrap();
        other
            .batch_execute("BEGIN; CREATE PUBLICATION outbox_pub FOR TABLE public.outbox WITH (publish = 'insert')")
            .await
            .unwrap();
        // Our look at the catalog does not see it; our insert into the index waits for it.
        let (options, wanted) = (fixture.options(), fixture.wanted_created());
        let starting = tokio::spawn(async move { open(&options, &wanted).await.map(drop) });
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'meanwhile' AND wait_event_type = 'Lock' \
                       AND query LIKE 'CREATE PUBLICATION%'";
        wait_for_count(&fixture, waiting, "1");
        other.batch_execute("COMMIT").await.unwrap();
        let error = starting.await.unwrap().unwrap_err();
        assert!(matches!(error, CheckError::Interrupted(_)), "{error:?}");
        let checked = fixture.check(&fixture.wanted_created()).await.unwrap();
        assert!(!checked.created.publication && checked.created.slot);
    });
}

#[test]
fn several_tables_go_into_one_publication() {
    let fixture = Fixture::new("several");
    fixture.owner("CREATE TABLE outbox_b (LIKE outbox INCLUDING ALL)");
    let mut wanted = fixture.wanted_created();
    wanted.tables.push(crate::fixture::table("public.outbox_b"));
    fixture.passes(&wanted);
    assert_eq!(
        fixture.admin("SELECT count(*) FROM pg_publication_tables"),
        "2"
    );
    let third = Wanted {
        tables: vec![crate::fixture::table("public.outbox_c")],
        ..wanted
    };
    fixture.refused(&third, Code::TableMissing, &["public.outbox_c"]);
}
