//! What the actors of a world share: the server, the brokers, the tables, and what is known to be gone for good.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgoutput::{Lsn, RowId};
use posthaste::clock::Clock;
use posthaste::metrics::{Metrics, PipelineMetrics};
use posthaste::policy::OnPoison;
use posthaste::publishing_thread::Worker;
use posthaste::state::Stored;
use posthaste::state_writer::Keep;
use sink::Producer;

use crate::broker::Brokers;
use crate::check::Exempt;
use crate::clock::SimClock;
use crate::cluster::Cluster;
use crate::pace::{Ended, Pace};
use crate::random::Random;
use crate::server::{Event, Server, Transaction};
use crate::table::Table;
use crate::trouble::Trouble;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) action: OnPoison,
    pub(crate) has_state_file: bool,
    pub(crate) random: Rc<RefCell<Random>>,
    pub(crate) clock: SimClock,
    pub(crate) server: Rc<RefCell<Server>>,
    pub(crate) brokers: Rc<RefCell<Brokers>>,
    pub(crate) table: Rc<RefCell<Table>>,
    /// With exactly-once, and then there is one stage for each instance.
    pub(crate) once: Option<Once>,
    pub(crate) exempt: RefCell<Exempt>,
    pub(crate) metrics: PipelineMetrics,
    /// No more misfortune.
    pub(crate) is_calm: Cell<bool>,
    pub(crate) disk: Arc<Disk>,
    /// The publisher of the process that runs.
    pub(crate) worker: RefCell<Option<Box<dyn TakesTurns>>>,
    /// What the next attempt meets, and after how many steps of it.
    pub(crate) trouble: Cell<Option<(Trouble, u64)>>,
    pub(crate) met: RefCell<Vec<Trouble>>,
    pub(crate) attempts: Cell<u64>,
    pub(crate) pace: RefCell<Pace>,
    /// Nobody answers the process.
    pub(crate) is_waiting: Cell<bool>,
    /// After so many answers there are no more; `None` for as chance will have it.
    pub(crate) answers_left: Cell<Option<u64>>,
    /// The last status update did not arrive.
    pub(crate) is_last_word_lost: Cell<bool>,
    /// The primary fails after so many turns of the world.
    pub(crate) failing_in: Cell<Option<u64>>,
    /// Events of transactions before this one were checked when a status update passed them.
    checked: Cell<usize>,
}

impl Stage {
    pub(crate) fn new(
        random: Random,
        server: Server,
        brokers: Brokers,
        action: OnPoison,
        has_state_file: bool,
    ) -> Rc<Self> {
        let shared = Shared {
            random: Rc::new(RefCell::new(random)),
            clock: SimClock::new(),
            server: Rc::new(RefCell::new(server)),
            table: Rc::default(),
        };
        Self::amid(shared, brokers, action, has_state_file, None)
    }

    /// One of several on which the same play is given.
    pub(crate) fn amid(
        shared: Shared,
        brokers: Brokers,
        action: OnPoison,
        has_state_file: bool,
        once: Option<Once>,
    ) -> Rc<Self> {
        let Shared {
            random,
            clock,
            server,
            table,
        } = shared;
        Rc::new(Self {
            action,
            has_state_file,
            random,
            clock,
            server,
            brokers: Rc::new(RefCell::new(brokers)),
            table,
            once,
            exempt: RefCell::default(),
            metrics: PipelineMetrics::new("sim"),
            is_calm: Cell::new(false),
            disk: Arc::default(),
            worker: RefCell::new(None),
            trouble: Cell::new(None),
            met: RefCell::default(),
            attempts: Cell::new(0),
            pace: RefCell::default(),
            is_waiting: Cell::new(false),
            answers_left: Cell::new(None),
            is_last_word_lost: Cell::new(false),
            failing_in: Cell::new(None),
            checked: Cell::new(0),
        })
    }

    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }

    /// Something goes wrong.
    pub(crate) fn mischance(&self, per_mille: u64) -> bool {
        self.chance(per_mille) && !self.is_calm.get()
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// An answer takes its time.
    pub(crate) async fn take_time(&self, millis_max: u64) {
        let millis = self.below(millis_max);
        let at = self.clock.instant() + Duration::from_millis(millis);
        self.clock.sleep_until(at).await;
    }

    /// Now and then there is no answer at all, for longer than anybody should wait.
    pub(crate) async fn answers(&self) -> bool {
        if !self.mischance(NO_ANSWER_PER_MILLE) && self.answers_left.get() != Some(0) {
            let left = self.answers_left.get();
            self.answers_left.set(left.map(|left| left - 1));
            return true;
        }
        let waiting = Waiting::begin(&self.is_waiting);
        let at = self.clock.instant() + ANSWER_MAX;
        self.clock.sleep_until(at).await;
        drop(waiting);
        false
    }

    /// The attempt ends here, and another one can follow.
    pub(crate) fn end_attempt(&self, ended: Ended) {
        self.pace
            .borrow_mut()
            .end_attempt(self.clock.instant(), ended);
    }

    /// The promise itself, at the moment it could be broken: what the server may forget is in the topics, in the table, or given
    /// up by rule.
    pub(crate) fn check_confirmed(&self, flushed: Lsn) {
        let (server, brokers, table) = (
            self.server.borrow(),
            self.brokers.borrow(),
            self.table.borrow(),
        );
        let exempt = self.exempt.borrow();
        while let Some(transaction) = server.transactions.get(self.checked.get())
            && transaction.commit_lsn < flushed
        {
            for (row, event) in transaction.identified() {
                let is_committed = |once: &Once| once.cluster.borrow().has(event.id);
                assert!(
                    brokers.has(event.id)
                        || self.once.as_ref().is_some_and(is_committed)
                        || brokers.has_dead_letter(event.id)
                        || table.has(row)
                        || exempt.given_up.contains(&event.id)
                        || self.is_passed_over(event, &brokers),
                    "confirmed {flushed} before {event:?} was acknowledged"
                );
            }
            self.checked.set(self.checked.get() + 1);
        }
    }

    /// Whether the rules say that this event may be left out.
    pub(crate) fn is_passed_over(&self, event: Event, brokers: &Brokers) -> bool {
        self.action == OnPoison::Skip && (event.is_unroutable() || brokers.was_refused(event.id))
    }

    /// A row was passed over, as somebody asked.
    pub(crate) fn give_up(&self, row: RowId) {
        let event = self.server.borrow().event_at(row);
        let event = event.expect("a row of the stream");
        self.exempt.borrow_mut().given_up.insert(event.id);
    }

    /// A row is in the table.
    pub(crate) fn note_parked(&self, row: RowId) {
        let event = self.server.borrow().event_at(row);
        let event = event.expect("a row of the stream");
        self.exempt.borrow_mut().parked.insert(event.id);
    }

    /// A promoted standby lacks transactions.
    pub(crate) fn forget_lost(&self) {
        let server = self.server.borrow();
        let lost = server.lost.iter().map(|event| event.id);
        self.exempt.borrow_mut().given_up.extend(lost);
        self.checked
            .set(self.checked.get().min(server.transactions.len()));
    }

    /// The table of a promoted standby may lack events that the slot has passed, and what was published of them. Somebody was told
    /// so, and sees to what is neither in the topics nor in the table.
    pub(crate) fn reconcile(&self, server: &Server, table: &Table) {
        let brokers = self.brokers.borrow();
        let mut exempt = self.exempt.borrow_mut();
        let passed = server.transactions.iter();
        let passed = passed.take_while(|transaction| transaction.commit_lsn < server.confirmed());
        for (row, event) in passed.flat_map(Transaction::identified) {
            if !brokers.has(event.id) && !table.has(row) {
                exempt.given_up.insert(event.id);
            }
            exempt.parked.insert(event.id);
        }
    }

    /// What the process tells of itself.
    pub(crate) fn metrics_text(&self) -> String {
        let metrics = Metrics::new(vec![self.metrics.clone()]);
        metrics.prometheus().expect("text")
    }

    /// The client of the process is gone.
    pub(crate) fn lose_client(&self) {
        *self.worker.borrow_mut() = None;
        let mut random = self.random.borrow_mut();
        self.brokers.borrow_mut().lose_client(&mut random);
    }
}

/// The sum of a metric's values whose line contains `label`.
pub(crate) fn sum_of(text: &str, metric: &str, label: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(metric));
    let values = lines.filter(|line| line.contains(label)).map(|line| {
        let (_, value) = line.rsplit_once(' ').expect("a value");
        value.parse::<u64>().expect("a count")
    });
    values.sum()
}

/// What the instances of a world have in common.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) random: Rc<RefCell<Random>>,
    pub(crate) clock: SimClock,
    pub(crate) server: Rc<RefCell<Server>>,
    pub(crate) table: Rc<RefCell<Table>>,
}

/// An instance among others, of which one delivers exactly once.
#[derive(Debug)]
pub(crate) struct Once {
    pub(crate) cluster: Rc<RefCell<Cluster>>,
    /// Its number.
    pub(crate) instance: usize,
    /// The server was looked at, and not yet the slot.
    pub(crate) is_looking: Cell<bool>,
    /// Whether the slot was ours when the newest attempt began to read, and its connection is not given up.
    pub(crate) is_streaming: Cell<bool>,
    /// And the stream itself has begun.
    pub(crate) is_reading: Cell<bool>,
    /// The process stands still from the end of this turn on.
    pub(crate) falls_asleep: Cell<bool>,
}

/// A publishing thread, whatever its producer.
pub(crate) trait TakesTurns: fmt::Debug {
    fn turn(&mut self);
}

impl<P: Producer + fmt::Debug> TakesTurns for Worker<P, SimClock> {
    fn turn(&mut self) {
        Self::turn(self, Duration::ZERO);
    }
}

/// Somebody waits for an answer, until this is dropped.
struct Waiting<'a>(&'a Cell<bool>);

impl<'a> Waiting<'a> {
    fn begin(is_waiting: &'a Cell<bool>) -> Self {
        is_waiting.set(true);
        Self(is_waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The state directory: what is written, and what waits to be.
#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    written: Option<Stored>,
    waiting: Option<Stored>,
}

impl Disk {
    pub(crate) fn read(&self) -> Option<Stored> {
        self.files().written.clone()
    }

    /// Another host, or an empty volume.
    pub(crate) fn lose(&self) {
        *self.files() = Files::default();
    }

    /// What waits is not written any more: the process is gone.
    pub(crate) fn crash(&self) {
        self.files().waiting = None;
    }

    pub(crate) fn write(&self) {
        let mut files = self.files();
        if let Some(stored) = files.waiting.take() {
            files.written = Some(stored);
        }
    }

    fn files(&self) -> std::sync::MutexGuard<'_, Files> {
        self.0.lock().expect("nobody panicked")
    }
}

/// The way to the state file of one process.
#[derive(Debug)]
pub(crate) struct StateFile(pub(crate) Arc<Disk>);

impl Keep for StateFile {
    fn put(&self, stored: Stored) {
        self.0.files().waiting = Some(stored);
    }

    fn saved(&self) -> Lsn {
        let files = self.0.files();
        files
            .written
            .as_ref()
            .map_or(Lsn::ZERO, |stored| stored.confirmed_lsn)
    }

    fn wait(&self, _limit: Duration) -> bool {
        self.0.write();
        true
    }
}

const NO_ANSWER_PER_MILLE: u64 = 4;

/// The system gives a connection up that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
