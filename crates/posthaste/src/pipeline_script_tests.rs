//! The loop against a stream that follows a script, with a clock that moves by looking at it.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use pgoutput::{Lsn, PgTimestamp, RowId};
use router::connect::Catalog;
use router::{Router, RouterConfig};
use sink::{Limits, Publisher, Tracker};

use super::tests::RELATION;
use super::*;
use crate::catalog_watch::Outdated;
use crate::codes::{Code, Problem};
use crate::feed::ReadCatalog;
use crate::intake::Tolerance;
use crate::intake::tests::{CONTENT, keepalive, logical, messages};
use crate::parked_row::{ParkedColumn, ParkedRow};
use crate::parking::{Access, Tables};
use crate::poison::{Aside, Poison, Reason, Rules, Stage};
use crate::policy::OnPoison;
use crate::progress::Timing;
use crate::publishing::tests::Prompt;
use crate::watchlist::{Aggregate, SkipRequest, Waiting, Watchlist};

/// Each look at a timer takes a millisecond.
#[derive(Debug, Clone)]
struct Ticking(Rc<Cell<Now>>);

impl Ticking {
    fn new() -> Self {
        Self(Rc::new(Cell::new(Now::read())))
    }
}

impl Clock for Ticking {
    fn now(&self) -> Now {
        self.0.get()
    }

    async fn sleep_until(&self, at: Instant) {
        poll_fn(|context| {
            let mut now = self.0.get();
            now.instant += Duration::from_millis(1);
            self.0.set(now);
            if now.instant >= at {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Frames in their order, then nothing more.
struct Script {
    frames: VecDeque<Vec<u8>>,
    frame: Vec<u8>,
    statuses: Arc<AtomicU32>,
    /// A reading of the catalog ends after so many more status updates.
    catalog_takes: u32,
    /// What is answered to a status update that asks for it; until then it says no position beyond the other one.
    answer: Option<(Vec<u8>, Lsn)>,
}

impl Script {
    fn new(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            frames: frames.into_iter().collect(),
            frame: Vec::new(),
            statuses: Arc::default(),
            catalog_takes: 0,
            answer: None,
        }
    }
}

impl Feed for Script {
    async fn next_frame(&mut self) -> Result<Frame<'_>, RunError> {
        match self.frames.pop_front() {
            Some(frame) => self.frame = frame,
            None => std::future::pending::<()>().await,
        }
        Ok(Frame::Data(&self.frame))
    }

    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, RunError> {
        Ok(None)
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), RunError> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let flushed = body[9..17].try_into().expect("eight bytes");
        let flushed = Lsn::new(u64::from_be_bytes(flushed));
        let answer = self.answer.take_if(|(_, at_most)| {
            assert!(flushed <= *at_most, "{flushed}");
            body.last() == Some(&1)
        });
        self.frames.extend(answer.map(|(frame, _)| frame));
        Ok(())
    }

    async fn finish(self) {}

    fn timing(&self) -> Timing {
        Timing::for_server(Duration::from_secs(60), Duration::from_secs(1))
    }

    fn read_catalog(&self, _outdated: &Outdated) -> ReadCatalog {
        let statuses = Arc::clone(&self.statuses);
        let enough = statuses.load(Ordering::Relaxed) + self.catalog_takes;
        let mut looks = 0;
        Box::pin(poll_fn(move |context| {
            if statuses.load(Ordering::Relaxed) >= enough {
                return Poll::Ready(Ok((Lsn::new(1_000), Catalog::new())));
            }
            looks += 1;
            assert!(looks < LOOKS_MAX, "nobody speaks to the server meanwhile");
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// A table with one row that waits to be published.
#[derive(Debug)]
struct OneQueued(RefCell<Option<ParkedRow>>);

impl OneQueued {
    fn aggregates(&self) -> HashSet<Aggregate> {
        let row = self.0.borrow();
        row.iter().filter_map(ParkedRow::aggregate).collect()
    }

    fn waiting_rows(&self) -> Waiting {
        Waiting {
            rows: u64::from(self.0.borrow().is_some()),
            bytes: 0,
        }
    }
}

impl ParkedTable for OneQueued {
    async fn tables(&self) -> Result<Tables, RunError> {
        unreachable!("asked before the stream")
    }

    fn complain(&self, _: &str, _: Access) -> Option<Problem> {
        None
    }

    async fn take_over(&self) -> Result<(), RunError> {
        Ok(())
    }

    async fn load(&self, _: Lsn, _: &mut Watchlist) -> Result<Option<Lsn>, RunError> {
        Ok(None)
    }

    async fn skip_requests(&self, _: Lsn) -> Result<Vec<SkipRequest>, RunError> {
        Ok(Vec::new())
    }

    async fn write(&mut self, _: &Aside) -> Result<Lsn, RunError> {
        unreachable!("nothing is parked")
    }

    async fn publishable(&self, _: Lsn, _: i64) -> Result<Vec<ParkedRow>, RunError> {
        Ok(self.0.borrow().iter().cloned().collect())
    }

    async fn published(&self, rows: &[RowId]) -> Result<Lsn, RunError> {
        let row = self.0.take().expect("it was queued");
        assert_eq!(rows, [row.row]);
        Ok(NOTED_AT)
    }

    async fn refused(&self, row: RowId, reason: &Reason) -> Result<(), RunError> {
        unreachable!("{row}: {reason:?}")
    }

    async fn waiting(&self) -> Result<(HashSet<Aggregate>, Waiting), RunError> {
        Ok((self.aggregates(), self.waiting_rows()))
    }
}

/// Runs the loop until `stop_when` says so, and to its orderly end.
async fn run(
    script: Script,
    intake: Intake,
    start: u64,
    publishing: &mut Publishing,
    stop_when: impl Fn() -> bool,
) -> Drained {
    let lot = None::<ParkingLot>;
    run_with(script, intake, start, publishing, lot, stop_when).await
}

async fn run_with<T: ParkedTable>(
    script: Script,
    intake: Intake,
    start: u64,
    publishing: &mut Publishing,
    lot: Option<ParkingLot<T>>,
    stop_when: impl Fn() -> bool,
) -> Drained {
    let mut memory = Memory::new(None, None);
    let (metrics, health) = (PipelineMetrics::new("test"), Health::new());
    let (mut hold, mut search) = (Hold::default(), Search::default());
    let (trigger, mut shutdown) = Shutdown::channel();
    let start = Tracker::new(Lsn::new(start)).confirmed();
    let kept = Kept {
        publishing,
        memory: &mut memory,
        metrics: &metrics,
        health: &health,
        hold: &mut hold,
        search: &mut search,
    };
    let pipeline = Pipeline::new(script, Ticking::new(), intake, start, kept, lot);
    let stop = async move {
        while !stop_when() {
            tokio::task::yield_now().await;
        }
        trigger.request();
    };
    let (ended, ()) = tokio::join!(pipeline.run(&mut shutdown, Duration::from_secs(5)), stop);
    ended.expect("an orderly end")
}

/// A publisher that delivers at once, and the turns of its worker, without an end.
fn publishing() -> (Publishing, impl Future<Output = ()>) {
    let publisher = Publisher::new(Prompt::default(), Limits::default(), Lsn::ZERO);
    let metrics = PipelineMetrics::new("test");
    let (publishing, mut worker) = Publishing::without_thread(publisher, SystemClock, metrics);
    let turns = async move {
        loop {
            worker.turn(Duration::ZERO);
            tokio::task::yield_now().await;
        }
    };
    (publishing, turns)
}

fn data(message: &[u8]) -> Vec<u8> {
    [b"w".as_slice(), &[0; 24], message].concat()
}

/// A table that was changed is looked up on a connection of its own, and the server hears of us all the while.
#[tokio::test]
async fn while_the_catalog_is_read_again_status_updates_go_on() {
    let (commit, end) = (100_u64.to_be_bytes(), 108_u64.to_be_bytes());
    let begin = [b"B".as_slice(), &commit, &[0; 12]].concat();
    let committed = [b"C\0".as_slice(), &commit, &end, &[0; 8]].concat();
    let frames = [begin.as_slice(), RELATION, &committed].map(data);
    let mut script = Script::new(frames);
    script.catalog_takes = 3;
    let statuses = Arc::clone(&script.statuses);
    let mut intake = messages(Tolerance::default());
    intake.catalog_read_at(Lsn::new(50));
    let (mut publishing, turns) = publishing();
    let before = statuses.load(Ordering::Relaxed);
    let enough = move || statuses.load(Ordering::Relaxed) >= before + 4;
    let run = run(script, intake, 0, &mut publishing, enough);
    let drained = tokio::select! {
        drained = run => drained,
        () = turns => unreachable!("without an end"),
    };
    assert_eq!(drained, Drained::Whole);
}

/// A message outside of transactions is done once the position reaches it, also for a later connection on which nothing came.
#[tokio::test]
async fn a_stop_after_a_reconnect_does_not_wait_for_a_message_that_is_confirmed() {
    let (mut publishing, turns) = publishing();
    let both = async {
        let frames = [logical(false, 90, "outbox", CONTENT), keepalive(90)];
        let intake = messages(Tolerance::default());
        let state = publishing.watch_state();
        let confirmed = move || state.borrow().confirmed.as_lsn() == Lsn::new(90);
        let first = run(Script::new(frames), intake, 0, &mut publishing, confirmed).await;
        publishing.restart(Lsn::new(90)).await.expect("running");
        let intake = messages(Tolerance::default());
        let second = run(Script::new([]), intake, 90, &mut publishing, || true).await;
        (first, second)
    };
    let drained = tokio::select! {
        drained = both => drained,
        () = turns => unreachable!("without an end"),
    };
    assert_eq!(drained, (Drained::Whole, Drained::Whole));
}

/// A standby that lacks the note that parked rows are published would publish them again, in front of what had followed them.
#[tokio::test]
async fn after_parked_rows_are_published_the_position_waits_until_the_stream_has_passed_the_note() {
    let mut script = Script::new([keepalive(200)]);
    script.answer = Some((keepalive(600), Lsn::new(100)));
    let rules = Rules {
        action: OnPoison::Park,
        ..Rules::default()
    };
    let table = OneQueued(RefCell::new(Some(queued())));
    let mut watchlist = Watchlist::default();
    watchlist.set_parked(table.aggregates(), table.waiting_rows());
    let poison = Poison::new(rules.clone(), watchlist);
    let intake = Intake::new(router(), Tolerance::default()).with_poison(poison, "posthaste");
    let lot = ParkingLot::new(table, router(), &rules);
    let (mut publishing, turns) = publishing();
    let state = publishing.watch_state();
    let passed = move || state.borrow().confirmed.as_lsn() >= NOTED_AT;
    let run = async {
        publishing.restart(Lsn::new(100)).await.expect("running");
        run_with(script, intake, 100, &mut publishing, Some(lot), passed).await
    };
    let drained = tokio::select! {
        drained = run => drained,
        () = turns => unreachable!("without an end"),
    };
    assert_eq!(drained, Drained::Whole);
}

fn router() -> Router {
    let config = RouterConfig {
        tables: vec!["public.outbox".parse().expect("a name")],
        ..RouterConfig::default()
    };
    Router::new(config).expect("legal")
}

/// A row of the outbox that committed at 50.
fn queued() -> ParkedRow {
    let columns = ["id", "aggregatetype", "aggregateid", "payload"];
    let columns = columns.map(|name| ParkedColumn {
        column: pgoutput::Column {
            key: false,
            name: name.to_owned(),
            type_oid: 25,
            type_modifier: -1,
        },
        value: Some(b"x".to_vec()),
        is_known: true,
    });
    ParkedRow {
        row: RowId {
            commit_lsn: Lsn::new(50),
            insert_index: 0,
        },
        commit_time: PgTimestamp::new(0),
        xid: 1,
        lsn: Lsn::new(40),
        table: "public.outbox".parse().expect("a name"),
        aggregate_type: Some(b"x".to_vec()),
        aggregate_id: Some(b"x".to_vec()),
        event_id: None,
        reason: Reason {
            stage: Stage::Route,
            code: Code::RowValue,
            text: String::new(),
            attempts: 1,
        },
        columns: columns.to_vec(),
    }
}

/// Behind the commit of the note.
const NOTED_AT: Lsn = Lsn::new(500);
const LOOKS_MAX: u32 = 100_000;
