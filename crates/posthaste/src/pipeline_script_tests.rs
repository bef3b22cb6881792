//! The loop against a stream that follows a script, with a clock that moves by looking at it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use pgoutput::Lsn;
use router::connect::Catalog;
use sink::{Limits, Publisher, Tracker};

use super::tests::RELATION;
use super::*;
use crate::catalog_watch::Outdated;
use crate::feed::ReadCatalog;
use crate::intake::Tolerance;
use crate::intake::tests::{CONTENT, keepalive, logical, messages};
use crate::progress::Timing;
use crate::publishing::tests::Prompt;

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
}

impl Script {
    fn new(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            frames: frames.into_iter().collect(),
            frame: Vec::new(),
            statuses: Arc::default(),
            catalog_takes: 0,
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

    async fn send(&mut self, _body: &[u8]) -> Result<(), RunError> {
        self.statuses.fetch_add(1, Ordering::Relaxed);
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

/// Runs the loop until `stop_when` says so, and to its orderly end.
async fn run(
    script: Script,
    intake: Intake,
    start: u64,
    publishing: &mut Publishing,
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
    let lot = None::<ParkingLot>;
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

const LOOKS_MAX: u32 = 100_000;
