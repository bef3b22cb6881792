//! The loop against a stream that follows a script, with a clock that moves by looking at it.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
struct Ticking {
    now: Rc<Cell<Now>>,
    end: Instant,
}

impl Ticking {
    fn new() -> Self {
        let now = Now::read();
        Self {
            now: Rc::new(Cell::new(now)),
            end: now.instant + CLOCK_MAX,
        }
    }
}

impl Clock for Ticking {
    fn now(&self) -> Now {
        self.now.get()
    }

    async fn sleep_until(&self, at: Instant) {
        poll_fn(|context| {
            let mut now = self.now.get();
            now.instant += Duration::from_millis(1);
            assert!(now.instant < self.end, "it does not come to its end");
            self.now.set(now);
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
    /// The position told last.
    told: Arc<AtomicU64>,
    received_bytes: Cell<u64>,
    /// At each look some more bytes have come, never a whole frame.
    trickles: bool,
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
            told: Arc::default(),
            received_bytes: Cell::new(0),
            trickles: false,
            catalog_takes: 0,
            answer: None,
        }
    }
}

impl Feed for Script {
    async fn next_frame(&mut self) -> Result<Frame<'_>, RunError> {
        match self.frames.pop_front() {
            Some(frame) => {
                self.received_bytes
                    .update(|bytes| bytes + frame.len() as u64);
                self.frame = frame;
            }
            None => std::future::pending::<()>().await,
        }
        Ok(Frame::Data(&self.frame))
    }

    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, RunError> {
        Ok(None)
    }

    fn received_bytes(&self) -> u64 {
        let more = u64::from(self.trickles);
        self.received_bytes.set(self.received_bytes.get() + more);
        self.received_bytes.get()
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), RunError> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let flushed = body[9..17].try_into().expect("eight bytes");
        let flushed = Lsn::new(u64::from_be_bytes(flushed));
        self.told.store(flushed.as_u64(), Ordering::Relaxed);
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
struct OneQueued {
    row: RefCell<Option<ParkedRow>>,
    /// Whether the note that it was published is answered.
    is_answering: bool,
}

impl OneQueued {
    fn new() -> Self {
        Self {
            row: RefCell::new(Some(queued())),
            is_answering: true,
        }
    }

    fn aggregates(&self) -> HashSet<Aggregate> {
        let row = self.row.borrow();
        row.iter().filter_map(ParkedRow::aggregate).collect()
    }

    fn waiting_rows(&self) -> Waiting {
        Waiting {
            rows: u64::from(self.row.borrow().is_some()),
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
        Ok(self.row.borrow().iter().cloned().collect())
    }

    async fn published(&self, rows: &[RowId]) -> Result<Lsn, RunError> {
        let row = self.row.take().expect("it was queued");
        assert_eq!(rows, [row.row]);
        if !self.is_answering {
            std::future::pending::<()>().await;
        }
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
    let ended = run_with(script, intake, start, publishing, lot, stop_when).await;
    ended.expect("an orderly end")
}

async fn run_with<T: ParkedTable>(
    script: Script,
    intake: Intake,
    start: u64,
    publishing: &mut Publishing,
    lot: Option<ParkingLot<T>>,
    stop_when: impl Fn() -> bool,
) -> Result<Drained, RunError> {
    let mut memory = Memory::new(None, None);
    let (metrics, health) = (PipelineMetrics::new("test"), Health::new());
    let (mut hold, mut search) = (Hold::default(), Search::default());
    let (trigger, shutdown) = Shutdown::channel();
    let start = Tracker::new(Lsn::new(start)).confirmed();
    let kept = Kept {
        publishing,
        memory: &mut memory,
        metrics: &metrics,
        health: &health,
        hold: &mut hold,
        search: &mut search,
        shutdown,
    };
    let pipeline = Pipeline::new(script, Ticking::new(), intake, start, kept, lot);
    let stop = async move {
        while !stop_when() {
            tokio::task::yield_now().await;
        }
        trigger.request();
        std::future::pending().await
    };
    tokio::select! {
        ended = pipeline.run(Duration::from_secs(5)) => ended,
        () = stop => unreachable!("without an end"),
    }
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
    let (intake, lot) = with_parked(OneQueued::new());
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
    assert_eq!(drained.expect("an orderly end"), Drained::Whole);
}

/// What the server knows, no other process is sent again.
#[tokio::test]
async fn when_kafka_refuses_a_record_the_server_learns_what_was_acknowledged_before() {
    let frames = [
        logical(false, 90, "outbox", CONTENT),
        keepalive(90),
        logical(false, 190, "outbox", &CONTENT.replace("order", "refused")),
    ];
    let script = Script::new(frames);
    let told = Arc::clone(&script.told);
    let intake = messages(Tolerance::default());
    let (mut publishing, turns) = publishing();
    let lot = None::<ParkingLot>;
    let run = run_with(script, intake, 0, &mut publishing, lot, || false);
    let ended = tokio::select! {
        ended = run => ended,
        () = turns => unreachable!("without an end"),
    };
    assert!(matches!(ended, Err(RunError::Publish(_))), "{ended:?}");
    assert_eq!(told.load(Ordering::Relaxed), 90);
}

/// Its bytes are heard, so that it is not asked for again and again. Nothing at all for as long ends the connection.
#[tokio::test]
async fn a_frame_that_takes_longer_than_the_limit_of_silence_is_waited_for() {
    for trickles in [true, false] {
        let mut script = Script::new([]);
        script.trickles = trickles;
        let statuses = Arc::clone(&script.statuses);
        // One a second, and the limit is two minutes.
        let long_enough = move || statuses.load(Ordering::Relaxed) >= 200;
        let (mut publishing, turns) = publishing();
        let lot = None::<ParkingLot>;
        let intake = messages(Tolerance::default());
        let run = run_with(script, intake, 0, &mut publishing, lot, long_enough);
        let ended = tokio::select! {
            ended = run => ended,
            () = turns => unreachable!("without an end"),
        };
        match ended {
            Ok(drained) => assert!(trickles && drained == Drained::Whole),
            Err(error) => assert!(!trickles && matches!(error, RunError::Stalled { .. })),
        }
    }
}

/// A statement has twenty seconds, and five once a stop is asked for.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_database_that_does_not_answer() {
    let mut table = OneQueued::new();
    table.is_answering = false;
    let (intake, lot) = with_parked(table);
    let (mut publishing, turns) = publishing();
    let state = publishing.watch_state();
    let published = move || state.borrow().confirmed.as_lsn() == Lsn::new(100);
    let run = async {
        publishing.restart(Lsn::new(100)).await.expect("running");
        let script = Script::new([]);
        run_with(script, intake, 100, &mut publishing, Some(lot), published).await
    };
    let ended = tokio::select! {
        ended = run => ended,
        () = turns => unreachable!("without an end"),
    };
    let Err(RunError::Stalled { silent_for }) = ended else {
        unreachable!("{ended:?}");
    };
    assert!(silent_for < STOP_TIME_MAX * 2, "{silent_for:?}");
}

/// What takes the stream of a connection that begins with this table.
fn with_parked(table: OneQueued) -> (Intake, ParkingLot<OneQueued>) {
    let rules = Rules {
        action: OnPoison::Park,
        ..Rules::default()
    };
    let mut watchlist = Watchlist::default();
    watchlist.set_parked(table.aggregates(), table.waiting_rows());
    let poison = Poison::new(rules.clone(), watchlist);
    let intake = Intake::new(router(), Tolerance::default()).with_poison(poison, "posthaste");
    (intake, ParkingLot::new(table, router(), &rules))
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

/// Longer than the longest of these tests takes, so that a loop that stands still is a failure and not a test without an end.
const CLOCK_MAX: Duration = Duration::from_secs(600);
