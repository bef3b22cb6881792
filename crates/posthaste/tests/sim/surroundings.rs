//! The surroundings of one process: what it opens, reads, writes and sends to.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pgoutput::{Lsn, RowId};
use posthaste::catalog_watch::Outdated;
use posthaste::clock::Clock;
use posthaste::codes::Problem;
use posthaste::config::Pipeline as Settings;
use posthaste::feed::{Feed, ReadCatalog};
use posthaste::metrics::PipelineMetrics;
use posthaste::parked_row::ParkedRow;
use posthaste::parked_table::{ParkedTable, ServerLog};
use posthaste::parking::{Access, Tables};
use posthaste::poison::{Aside, Reason};
use posthaste::policy::RunError;
use posthaste::preconditions::{Checked, Created, Wanted};
use posthaste::progress::Timing;
use posthaste::publishing::Publishing;
use posthaste::settings;
use posthaste::state::Identity;
use posthaste::surroundings::{Opening, Surroundings};
use posthaste::watchlist::{Aggregate, SkipRequest, Waiting, Watchlist};
use replication::Frame;
use sink::{Producer, Publisher, TransactionConfig};

use crate::broker::SimProducer;
use crate::clock::SimClock;
use crate::cluster::SimPositions;
use crate::pace::{self, Ended};
use crate::server::Link;
use crate::stage::Stage;
use crate::transactions::OnceProducer;
use crate::trouble::Trouble;

#[derive(Debug)]
pub(crate) struct SimSystem {
    stage: Rc<Stage>,
    has_publisher: RefCell<bool>,
}

impl SimSystem {
    pub(crate) fn new(stage: Rc<Stage>) -> Self {
        Self {
            stage,
            has_publisher: RefCell::new(false),
        }
    }
}

impl Surroundings for SimSystem {
    type Opened = SimOpened;
    type Clock = SimClock;
    type Positions = SimPositions;

    fn clock(&self) -> SimClock {
        self.stage.clock.clone()
    }

    async fn open(&mut self, _: &Settings, _: &Wanted) -> Result<SimOpened, RunError> {
        let stage = &self.stage;
        stage.begin_attempt();
        stage.connect(0).await?;
        let wal_end = stage.server.borrow().wal_end();
        if let Some(once) = &stage.once {
            // The slot is looked at some queries later.
            once.is_looking.set(true);
            stage.take_time(CONNECT_MILLIS_MAX).await;
            once.is_looking.set(false);
            stage.find_slot_free()?;
        }
        let server = stage.server.borrow();
        let mut checked = checked(
            identity(server.timeline()),
            server.confirmed(),
            wal_end,
            server.history(),
        );
        checked.slot_unread = stage.once.is_some() && server.is_unread();
        Ok(SimOpened {
            session: server.session(),
            checked,
            stage: Rc::clone(stage),
        })
    }

    fn start_publishing(
        &self,
        settings: &Settings,
        transactions: Option<&TransactionConfig>,
        metrics: &PipelineMetrics,
    ) -> Result<Publishing, RunError> {
        if self.has_publisher.replace(true) {
            self.stage.lose_client();
        }
        let stage = &self.stage;
        Ok(if let Some(transactions) = transactions {
            let producer = OnceProducer::new(Rc::clone(stage), transactions.clone());
            self.start_worker(producer, settings, metrics)
        } else {
            let producer = SimProducer(Rc::clone(&stage.brokers));
            self.start_worker(producer, settings, metrics)
        })
    }

    fn positions(&self, _: &Settings, _: &TransactionConfig) -> SimPositions {
        SimPositions(Rc::clone(&self.stage))
    }
}

impl SimSystem {
    fn start_worker<P: Producer + Debug + 'static>(
        &self,
        producer: P,
        settings: &Settings,
        metrics: &PipelineMetrics,
    ) -> Publishing {
        let publisher = Publisher::new(producer, settings::limits(settings), Lsn::ZERO);
        let clock = self.stage.clock.clone();
        let (publishing, worker) = Publishing::without_thread(publisher, clock, metrics.clone());
        *self.stage.worker.borrow_mut() = Some(Box::new(worker));
        publishing
    }
}

impl Stage {
    fn begin_attempt(&self) {
        self.pace.borrow_mut().begin_attempt(self.clock.instant());
        self.attempts.set(self.attempts.get() + 1);
    }

    /// A connection takes its time, or is not made.
    async fn connect(&self, step: u64) -> Result<(), RunError> {
        self.take_time(CONNECT_MILLIS_MAX).await;
        if !self.answers().await {
            self.end_attempt(Ended::InVain);
            return Err(Trouble::Unreachable.error());
        }
        self.meet_trouble(step)
    }

    /// One process reads, the others stand by.
    fn find_slot_free(&self) -> Result<(), RunError> {
        match &self.once {
            Some(once) if self.server.borrow().is_connected() => {
                once.cluster.borrow_mut().counts.held += 1;
                Err(Trouble::SlotHeld.error())
            }
            _ => Ok(()),
        }
    }

    fn meet_trouble(&self, step: u64) -> Result<(), RunError> {
        match self.trouble.get() {
            Some((trouble, at)) if at == step => {
                // It may last.
                if self.chance(500) {
                    self.trouble.set(None);
                }
                self.met.borrow_mut().push(trouble);
                if step < 3 && trouble.is_outage() {
                    self.end_attempt(Ended::InVain);
                }
                Err(trouble.error())
            }
            _ => Ok(()),
        }
    }
}

pub(crate) struct SimOpened {
    stage: Rc<Stage>,
    session: u64,
    checked: Checked,
}

impl Opening for SimOpened {
    type Feed = SimFeed;
    type Table = SimTable;

    fn checked(&self) -> &Checked {
        &self.checked
    }

    async fn table(&mut self, _: &Settings) -> Result<SimTable, RunError> {
        self.stage.connect(1).await?;
        Ok(SimTable {
            stage: Rc::clone(&self.stage),
            session: self.session,
            taken: Cell::new(None),
        })
    }

    async fn start(self, _: &Settings, _: &Wanted, start: Lsn) -> Result<SimFeed, RunError> {
        let Self {
            stage,
            session,
            checked,
        } = self;
        stage.connect(2).await?;
        if stage.server.borrow().session() != session {
            return Err(Trouble::Unreachable.error());
        }
        stage.find_slot_free()?;
        let link = stage.server.borrow_mut().start(start);
        if let Some(once) = &stage.once {
            once.is_streaming.set(true);
            once.cluster.borrow_mut().tell(start);
            // From here on the server wants to hear of us, whatever is claimed meanwhile.
            let now = stage.clock.instant();
            stage.pace.borrow_mut().tell_status(now);
        }
        if stage.meet_trouble(3).is_err() {
            stage.server.borrow_mut().disconnect();
        }
        Ok(SimFeed {
            asked_for: start,
            started_at: stage.clock.instant(),
            streaming_since: None,
            has_received: false,
            received_bytes: 0,
            is_lost: false,
            stage,
            link,
            timeline: checked.identity.timeline,
            frame: Vec::new(),
            last_sent: Lsn::ZERO,
        })
    }
}

/// One connection for replication.
pub(crate) struct SimFeed {
    stage: Rc<Stage>,
    link: Rc<RefCell<Link>>,
    timeline: u32,
    frame: Vec<u8>,
    asked_for: Lsn,
    started_at: Instant,
    /// When the first status update was sent, which is when frames are waited for; with exactly-once that comes later.
    streaming_since: Option<Instant>,
    last_sent: Lsn,
    has_received: bool,
    received_bytes: u64,
    /// Whether it ends because the connection is gone.
    is_lost: bool,
}

impl Drop for SimFeed {
    fn drop(&mut self) {
        self.stage.server.borrow_mut().hang_up(&self.link);
        if let Some(once) = &self.stage.once {
            once.is_streaming.set(false);
            once.is_reading.set(false);
        }
        self.stage.pace.borrow_mut().disconnect();
        let clock = &self.stage.clock;
        let streamed = self.streaming_since.map(|since| clock.since(since));
        let ran_long = streamed.is_some_and(|streamed| streamed >= pace::MAX + pace::TURN_MAX);
        let has_tried = !self.has_received && clock.since(self.started_at) < pace::MAX;
        if self.last_sent > self.asked_for || ran_long {
            self.stage.end_attempt(Ended::Somewhere);
        } else if self.is_lost && has_tried {
            self.stage.end_attempt(Ended::InVain);
        }
    }
}

impl SimFeed {
    /// True if there is a frame now.
    fn receive(&mut self) -> Result<bool, RunError> {
        if let Some(once) = &self.stage.once {
            let now = self.stage.clock.instant();
            self.streaming_since.get_or_insert(now);
            once.is_reading.set(true);
        }
        let mut link = self.link.borrow_mut();
        match link.frames.pop_front() {
            Some(frame) => {
                self.received_bytes += frame.len() as u64;
                self.frame = frame;
                self.has_received = true;
                Ok(true)
            }
            None if link.is_cut => {
                self.is_lost = true;
                Err(Trouble::Unreachable.error())
            }
            None => Ok(false),
        }
    }
}

impl Feed for SimFeed {
    async fn next_frame(&mut self) -> Result<Frame<'_>, RunError> {
        poll_fn(|_| match self.receive() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        })
        .await?;
        Ok(Frame::Data(&self.frame))
    }

    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, RunError> {
        Ok(self.receive()?.then_some(Frame::Data(&self.frame)))
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), RunError> {
        let (flushed, reply_requested) = status(body);
        assert!(flushed >= self.last_sent, "the position we send went back");
        self.last_sent = flushed;
        // What is sent counts, whether it arrives or not; but not what is sent to a server that another has taken the place of.
        if self.stage.server.borrow().timeline() == self.timeline {
            self.stage.check_confirmed(flushed);
        }
        let now = self.stage.clock.instant();
        match &self.stage.once {
            Some(once) => once.cluster.borrow_mut().tell(flushed),
            None => {
                self.streaming_since.get_or_insert(now);
            }
        }
        self.stage.pace.borrow_mut().tell_status(now);
        let (is_cut, is_silent) = {
            let link = self.link.borrow();
            (link.is_cut, link.is_silent)
        };
        self.stage.is_last_word_lost.set(is_cut || is_silent);
        if is_cut && self.stage.chance(500) {
            self.is_lost = true;
            return Err(Trouble::Unreachable.error());
        }
        if is_cut || is_silent {
            return Ok(());
        }
        let mut random = self.stage.random.borrow_mut();
        let mut server = self.stage.server.borrow_mut();
        server.handle_status(flushed);
        if reply_requested {
            server.send_keepalive(&mut random);
        }
        Ok(())
    }

    async fn finish(self) {}

    fn timing(&self) -> Timing {
        Timing::for_server(Duration::from_secs(60), Duration::from_secs(10))
    }

    fn read_catalog(&self, _: &Outdated) -> ReadCatalog {
        unreachable!("only where Debezium is followed")
    }
}

/// The flushed position of a status update, and whether an answer is wanted.
fn status(body: &[u8]) -> (Lsn, bool) {
    assert_eq!((body.first(), body.len()), (Some(&b'r'), 34));
    let flushed = body[9..17].try_into().expect("eight bytes");
    (Lsn::new(u64::from_be_bytes(flushed)), body[33] == 1)
}

/// One connection for queries.
pub(crate) struct SimTable {
    stage: Rc<Stage>,
    session: u64,
    /// Since the tables were taken over.
    taken: Cell<Option<u64>>,
}

impl SimTable {
    /// A statement takes its time, and may find that the connection is gone, or is never answered.
    async fn ask(&self) -> Result<(), RunError> {
        if let Some(once) = &self.stage.once
            && !once.is_reading.get()
        {
            // On the way to the stream the server waits for us as long as for an answer of its own.
            self.stage.pace.borrow_mut().disconnect();
        }
        self.stage.take_time(QUERY_MILLIS_MAX).await;
        let is_alone = self.stage.mischance(QUERY_FAILS_PER_MILLE);
        if !is_alone
            && self.stage.answers().await
            && !self.is_replaced()
            && self.stage.server.borrow().session() == self.session
        {
            Ok(())
        } else {
            Err(Trouble::QueriesInterrupted.error())
        }
    }

    /// The same for what changes the tables.
    async fn ask_to_write(&self) -> Result<(), RunError> {
        if let Some(once) = &self.stage.once {
            let falls_asleep = self.stage.chance(FREEZES_PER_MILLE);
            once.falls_asleep.set(falls_asleep);
        }
        let asked = self.ask().await;
        self.stage.table.borrow_mut().stale += u64::from(self.is_replaced());
        asked
    }

    /// Whether somebody else has taken the tables over since.
    fn is_replaced(&self) -> bool {
        let table = self.stage.table.borrow();
        self.taken.get().is_some_and(|taken| !table.is_open(taken))
    }

    /// What was done is done, but the answer may be lost.
    fn answer<T>(&self, value: T) -> Result<T, RunError> {
        if self.stage.mischance(ANSWER_LOST_PER_MILLE) {
            Err(Trouble::QueriesInterrupted.error())
        } else {
            Ok(value)
        }
    }

    /// A row is parked behind another one only while one of its aggregate waits.
    fn check_behind(&self, aside: &Aside) {
        let (mut waiting, _) = self.stage.table.borrow().waiting();
        for row in &aside.rows {
            let aggregate = row.aggregate().expect("every event has a key");
            let is_behind = row.reason.stage.name() == "behind";
            assert!(
                !is_behind || waiting.contains(&aggregate),
                "behind nothing: {}",
                row.row
            );
            waiting.insert(aggregate);
        }
    }

    /// Behind a commit of ours. Now and then the primary fails soon after, when a standby may not have it yet.
    fn commit(&self) -> Lsn {
        if self.stage.chance(FAILS_SOON_PER_MILLE) {
            self.stage.failing_in.set(Some(self.stage.below(8)));
        }
        self.stage.server.borrow_mut().write_own()
    }
}

impl ServerLog for SimTable {
    async fn wal_position(&self) -> Result<Lsn, RunError> {
        self.ask().await?;
        Ok(self.stage.server.borrow().wal_end())
    }
}

impl ParkedTable for SimTable {
    async fn tables(&self) -> Result<Tables, RunError> {
        self.ask().await?;
        self.answer(Tables {
            parked: Access::Granted,
            skipped: Access::Granted,
        })
    }

    fn complain(&self, _: &str, _: Access) -> Option<Problem> {
        None
    }

    async fn take_over(&self) -> Result<(), RunError> {
        self.ask().await?;
        let taken = self.stage.table.borrow_mut().take_over();
        self.taken.set(Some(taken));
        Ok(())
    }

    async fn load(&self, start: Lsn, watchlist: &mut Watchlist) -> Result<Option<Lsn>, RunError> {
        self.ask().await?;
        let has_some = self.stage.table.borrow().load(start, watchlist);
        self.answer(has_some.then(|| self.stage.server.borrow().wal_end()))
    }

    async fn skip_requests(&self, start: Lsn) -> Result<Vec<SkipRequest>, RunError> {
        self.ask().await?;
        self.answer(self.stage.table.borrow().requests(start))
    }

    async fn write(&mut self, aside: &Aside) -> Result<Lsn, RunError> {
        self.ask_to_write().await?;
        for (_, row) in &aside.skipped {
            self.stage.give_up(*row);
        }
        self.check_behind(aside);
        let position = self.commit();
        for row in &aside.rows {
            self.stage.note_parked(row.row);
            let mut brokers = self.stage.brokers.borrow_mut();
            brokers.marks.park(row.row, position);
        }
        self.stage.table.borrow_mut().write(aside, position);
        self.answer(position)
    }

    async fn publishable(&self, confirmed: Lsn, rows_max: i64) -> Result<Vec<ParkedRow>, RunError> {
        self.ask().await?;
        let mut rows = self.stage.table.borrow().publishable(confirmed);
        rows.truncate(usize::try_from(rows_max).expect("a number of rows"));
        self.answer(rows)
    }

    async fn published(&self, rows: &[RowId]) -> Result<Lsn, RunError> {
        self.ask_to_write().await?;
        let position = self.commit();
        self.stage.table.borrow_mut().published(rows, position);
        self.stage.brokers.borrow_mut().marks.note(rows);
        self.answer(position)
    }

    async fn refused(&self, row: RowId, _: &Reason) -> Result<(), RunError> {
        self.ask_to_write().await?;
        let position = self.commit();
        self.stage.table.borrow_mut().refused(row, position);
        self.answer(())
    }

    async fn waiting(&self) -> Result<(HashSet<Aggregate>, Waiting), RunError> {
        self.ask().await?;
        self.answer(self.stage.table.borrow().waiting())
    }
}

pub(crate) fn checked(
    identity: Identity,
    slot_confirmed: Lsn,
    server_wal_position: Lsn,
    history: posthaste::timeline::History,
) -> Checked {
    Checked {
        server_version: 180_000,
        identity,
        slot_confirmed,
        server_wal_position,
        history,
        slot_unread: false,
        wal_sender_timeout: Duration::from_secs(60),
        base_types: HashMap::new(),
        catalog: None,
        created: Created::default(),
        gap: None,
        warnings: Vec::new(),
    }
}

fn identity(timeline: u32) -> Identity {
    Identity {
        system_identifier: "7000000000000000001".to_owned(),
        timeline,
        database: "orders".to_owned(),
        slot: "outbox".to_owned(),
    }
}

const CONNECT_MILLIS_MAX: u64 = 60;
const QUERY_MILLIS_MAX: u64 = 60;
const FAILS_SOON_PER_MILLE: u64 = 30;
const ANSWER_LOST_PER_MILLE: u64 = 5;
const QUERY_FAILS_PER_MILLE: u64 = 3;
/// Right before it writes to the tables, as nothing else would be as bad a moment.
const FREEZES_PER_MILLE: u64 = 20;
