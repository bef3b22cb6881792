//! One seed's world: who acts next, and what goes wrong.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgoutput::{Lsn, PgTimestamp, RowId};
use posthaste::clock::Now;
use posthaste::codes::Code;
use posthaste::policy::OnPoison;
use posthaste::state::Stored;
use posthaste::watchlist::SkippedEvent;

use crate::broker::Brokers;
use crate::check::{self, Exempt, Lengths, OrderlyRun};
use crate::connector::{Connector, Decisions, Setup, Turn};
use crate::random::Random;
use crate::server::{Event, Server, Transaction};
use crate::table::Table;
use crate::trouble::Trouble;

/// What can go wrong, or be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ConnectionCut,
    ServerRestart,
    ProcessKilled,
    BrokersDown,
    RecordRefused,
    ProducerDead,
    OrderlyStop,
    /// An attempt ends before anything is read.
    AttemptFails,
    /// A standby that lacks the newest transactions takes the server's place.
    Promotion,
    /// The process is killed and its state file is gone, as on another host.
    StateLost,
}

impl Fault {
    pub(crate) const ALL: [Self; 10] = [
        Self::ConnectionCut,
        Self::ServerRestart,
        Self::ProcessKilled,
        Self::BrokersDown,
        Self::RecordRefused,
        Self::ProducerDead,
        Self::OrderlyStop,
        Self::AttemptFails,
        Self::Promotion,
        Self::StateLost,
    ];
}

/// What happened in a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) repeats: u64,
    faults: [u64; Fault::ALL.len()],
    troubles: [u64; Trouble::ALL.len()],
    decisions: [u64; Decisions::BRANCHES.len()],
    /// In the order of [`Outcome::BRANCHES`].
    branches: [u64; Self::BRANCHES.len()],
}

impl Outcome {
    /// What can become of a poison event.
    pub(crate) const BRANCHES: [&str; 7] = [
        "parked",
        "parked behind",
        "published from the table",
        "refused again",
        "replaced by a dead letter",
        "passed over",
        "passed over by request",
    ];

    pub(crate) fn branches(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::BRANCHES.into_iter().zip(self.branches)
    }

    /// What the policy decided.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Decisions::BRANCHES.into_iter().zip(self.decisions)
    }

    pub(crate) fn troubles(&self) -> impl Iterator<Item = (Trouble, u64)> {
        Trouble::ALL.into_iter().zip(self.troubles)
    }

    pub(crate) fn all_faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    pub(crate) fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.repeats += other.repeats;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        for (sum, count) in self.troubles.iter_mut().zip(other.troubles) {
            *sum += count;
        }
        for (sum, count) in self.decisions.iter_mut().zip(other.decisions) {
            *sum += count;
        }
        for (sum, count) in self.branches.iter_mut().zip(other.branches) {
            *sum += count;
        }
    }
}

pub(crate) struct World {
    random: Random,
    server: Server,
    brokers: Rc<RefCell<Brokers>>,
    process: Option<Connector>,
    table: Rc<RefCell<Table>>,
    action: OnPoison,
    fail_fast: bool,
    exempt: Exempt,
    state_file: Option<Stored>,
    /// The next process starts with `--accept-slot-position`.
    accept_slot_position: bool,
    /// What the next attempt meets.
    trouble: Option<Trouble>,
    /// Events of transactions before this one were checked when a status update passed them.
    checked: usize,
    orderly: Vec<OrderlyRun>,
    process_began: Lengths,
    start: Instant,
    millis: u64,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let partitions = 1 + usize::try_from(random.below(4)).expect("few");
        let action = match seed % 10 {
            7 => OnPoison::DeadLetterTopic,
            8 => OnPoison::Park,
            9 => OnPoison::Skip,
            _ => OnPoison::Halt,
        };
        let mut server = Server::new(KEYS);
        let mut brokers = Brokers::new(partitions);
        // With the default, some worlds have somebody who decides about each poison event; the others have none.
        server.has_poison = action != OnPoison::Halt || seed % 10 == 6;
        brokers.lenient = !server.has_poison;
        Self {
            server,
            brokers: Rc::new(RefCell::new(brokers)),
            process: None,
            table: Rc::default(),
            action,
            fail_fast: seed % 16 == 5,
            exempt: Exempt::default(),
            state_file: None,
            accept_slot_position: false,
            trouble: None,
            checked: 0,
            orderly: Vec::new(),
            process_began: vec![0; partitions],
            start: Instant::now(),
            millis: 0,
            outcome: Outcome::default(),
            random,
        }
    }

    pub(crate) fn run(mut self) -> Outcome {
        while self.server.event_count() < EVENTS || self.outcome.all_faults() < FAULTS_MIN {
            self.turn();
            if self.random.chance(250) {
                self.server.commit(&mut self.random);
            }
            if self.random.chance(40) {
                self.misfortune();
            }
        }
        self.settle();
        self.outcome.events = self.server.event_count();
        self.note_exempt();
        self.outcome.repeats = check::check(
            self.server.events(),
            &self.server.lost,
            &self.brokers.borrow(),
            &self.orderly,
            &self.exempt,
        );
        let table = self.table.borrow();
        let lost = &self.server.lost;
        let given_up = &self.exempt.given_up;
        let lost = lost.iter().filter(|event| given_up.contains(&event.id));
        let passed_over = (given_up.len() - lost.count()) as u64;
        let requested = table.used_requests();
        let counts = [
            (0, table.parked),
            (1, table.behind),
            (2, table.published),
            (3, table.refused_again),
            (4, self.brokers.borrow().dead_letters()),
            (5, passed_over.saturating_sub(requested)),
            (6, requested),
        ];
        for (branch, count) in counts {
            self.outcome.branches[branch] += count;
        }
        self.outcome.clone()
    }

    /// No more misfortune: everything has to arrive and to be confirmed within a bounded number of turns.
    fn settle(&mut self) {
        {
            let mut brokers = self.brokers.borrow_mut();
            brokers.down = false;
            // Somebody raises the limit, unless what is refused is to be passed over.
            brokers.lenient |= matches!(self.action, OnPoison::Park | OnPoison::Halt);
        }
        for _ in 0..TURNS_MAX {
            self.table.borrow_mut().retry(true, true);
            let end = self
                .server
                .transactions
                .last()
                .map_or(Lsn::ZERO, |last| last.end_lsn);
            if self.server.confirmed() >= end && self.table.borrow().is_empty() {
                return;
            }
            self.turn();
        }
        panic!(
            "not settled: confirmed {} of {}",
            self.server.confirmed(),
            self.server.wal_end()
        );
    }

    fn turn(&mut self) {
        self.millis += self.random.below(40);
        let now = self.now();
        if self.random.chance(50) {
            self.server.write_elsewhere(&mut self.random);
        }
        if self.random.chance(30) {
            self.server.checkpoint();
        }
        self.brokers.borrow_mut().step(&mut self.random);
        let Some(process) = &mut self.process else {
            self.process_began = self.lengths();
            self.process = Some(Connector::new(
                Rc::clone(&self.brokers),
                Rc::clone(&self.table),
                Setup {
                    action: self.action,
                    stored: self.state_file.clone(),
                    accept_slot_position: std::mem::take(&mut self.accept_slot_position),
                    fail_fast: self.fail_fast,
                    seed: self.random.next(),
                },
            ));
            return;
        };
        if !process.is_connected() {
            if self.random.chance(300) {
                self.connect();
            }
        } else if !self.server.is_connected() {
            process.disconnect();
        } else {
            read(process, &mut self.server, &mut self.random, now);
        }
        if self.random.chance(60)
            && let Some(process) = &mut self.process
        {
            process.begin_pass();
        }
        if self.random.chance(8) {
            let repair = self.random.chance(500);
            self.table.borrow_mut().retry(false, repair);
        }
        let now = self.now();
        if let Some(process) = &mut self.process {
            let turn = process.publish(now);
            self.handle(turn);
        }
        self.report(now);
        if self.random.chance(20) {
            self.save_state();
        }
    }

    /// An attempt to connect, after the pause that was decided on.
    fn connect(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        if let Some(until) = process.rests_until() {
            let rest = until.saturating_duration_since(self.start).as_millis();
            let rest = u64::try_from(rest).expect("a short run") + 1;
            self.millis = self.millis.max(rest);
        }
        let now = Now {
            instant: self.start + Duration::from_millis(self.millis),
            wall: wall(),
        };
        let trouble = self.trouble.take();
        if let Some(trouble) = trouble {
            self.outcome.troubles[trouble as usize] += 1;
            self.outcome.faults[Fault::AttemptFails as usize] += 1;
        }
        let turn = process.connect(&mut self.server, trouble, now);
        self.handle(turn);
    }

    fn report(&mut self, now: Now) {
        let Some(process) = &mut self.process else {
            return;
        };
        let (flushed, turn) = process.status(now);
        if let Some(flushed) = flushed {
            self.note_exempt();
            self.check_confirmed(flushed);
            self.server.handle_status(flushed);
        }
        self.handle(turn);
    }

    /// The promise itself, at the moment it could be broken: what the server may forget is in the topics.
    fn check_confirmed(&mut self, flushed: Lsn) {
        let brokers = self.brokers.borrow();
        let table = self.table.borrow();
        while let Some(transaction) = self.server.transactions.get(self.checked)
            && transaction.commit_lsn < flushed
        {
            for (row, event) in transaction.identified() {
                assert!(
                    brokers.has(event.id)
                        || brokers.has_dead_letter(event.id)
                        || table.has(row)
                        || self.exempt.given_up.contains(&event.id),
                    "confirmed {flushed} before {event:?} was acknowledged"
                );
            }
            self.checked += 1;
        }
    }

    /// Which events may be missing by now, and why.
    fn note_exempt(&mut self) {
        if !self.server.has_poison {
            return;
        }
        let given_up = self
            .process
            .as_mut()
            .map(|process| std::mem::take(&mut process.given_up));
        let given_up: HashSet<_> = given_up.unwrap_or_default().into_iter().collect();
        let table = self.table.borrow();
        let rows = self.server.transactions.iter().skip(self.checked);
        for (row, event) in rows.flat_map(Transaction::identified) {
            if table.has(row) {
                self.exempt.parked.insert(event.id);
            }
            let is_passed_over = self.action == OnPoison::Skip && event.is_unroutable();
            if is_passed_over || given_up.contains(&row) {
                self.exempt.given_up.insert(event.id);
            }
        }
    }

    fn handle(&mut self, turn: Turn) {
        match turn {
            Turn::GoOn => {}
            Turn::Reconnect => {
                self.server.disconnect();
                if let Some(process) = &mut self.process {
                    process.disconnect();
                }
            }
            Turn::Halted => {
                self.save_state();
                let process = self.process.as_ref();
                let halted_by = process.and_then(|process| process.halted_by);
                let culprit = process.and_then(|process| process.culprit);
                self.end_process();
                self.decide(halted_by, culprit);
            }
            Turn::Stopped => {
                self.save_state();
                self.end_process();
                let from = self.process_began.clone();
                self.orderly.push(OrderlyRun {
                    from,
                    to: self.lengths(),
                });
                self.outcome.faults[Fault::OrderlyStop as usize] += 1;
            }
        }
    }

    /// Somebody reads why it stopped, and does what the message says.
    fn decide(&mut self, halted_by: Option<Code>, culprit: Option<RowId>) {
        let mut table = self.table.borrow_mut();
        if halted_by == Some(Code::HistoryDiverged) {
            // From the slot's own position what an orderly stop had finished may come again.
            self.accept_slot_position = true;
            self.orderly.clear();
        } else if !self.server.has_poison || self.action != OnPoison::Halt {
            // The next start is all it needs.
        } else if let Some(row) = culprit {
            table.request(SkippedEvent::Row(row));
        } else if halted_by == Some(Code::RowValue) {
            let named = |event: &Event| SkippedEvent::Id(event.id.to_string());
            let poison = self.server.events().find(|event| {
                event.is_unroutable()
                    && !table.has_request(&named(event))
                    && !self.exempt.given_up.contains(&event.id)
            });
            table.request(named(&poison.expect("something stopped it")));
        }
    }

    fn lengths(&self) -> Lengths {
        self.brokers.borrow().logs().iter().map(Vec::len).collect()
    }

    fn end_process(&mut self) {
        self.note_exempt();
        self.server.disconnect();
        if let Some(process) = self.process.take() {
            let counts = process.decisions.counts;
            for (sum, count) in self.outcome.decisions.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        self.brokers.borrow_mut().lose_client(&mut self.random);
    }

    fn save_state(&mut self) {
        if let Some(process) = &self.process {
            self.state_file = process.stored();
        }
    }

    fn misfortune(&mut self) {
        let kind = usize::try_from(self.random.below(Fault::ALL.len() as u64)).expect("few");
        let fault = Fault::ALL[kind];
        let happened = match fault {
            Fault::ConnectionCut => {
                self.server.disconnect();
                true
            }
            Fault::ServerRestart => {
                self.server.restart();
                true
            }
            Fault::ProcessKilled => {
                self.end_process();
                true
            }
            Fault::BrokersDown => {
                let mut brokers = self.brokers.borrow_mut();
                brokers.down = !brokers.down;
                true
            }
            Fault::RecordRefused => self.brokers.borrow_mut().refuse_one(&mut self.random),
            Fault::ProducerDead => {
                self.brokers.borrow_mut().kill_producer();
                true
            }
            Fault::OrderlyStop => {
                if let Some(process) = &mut self.process {
                    process.stopping = true;
                }
                // Counted when it is complete.
                false
            }
            Fault::AttemptFails => {
                self.trouble = Some(Trouble::draw(&mut self.random));
                self.server.disconnect();
                // Counted when it is met.
                false
            }
            Fault::Promotion => self.promote(),
            Fault::StateLost => {
                self.end_process();
                self.state_file = None;
                // Without it, what the server forgets comes again.
                self.orderly.clear();
                true
            }
        };
        self.outcome.faults[kind] += u64::from(happened);
    }

    /// Not with parked rows: their table would be the standby's as well, and is modelled apart from the log.
    fn promote(&mut self) -> bool {
        if self.action == OnPoison::Park {
            return false;
        }
        self.note_exempt();
        self.server.promote(&mut self.random);
        let lost = self.server.lost.iter().map(|event| event.id);
        self.exempt.given_up.extend(lost);
        self.checked = self.checked.min(self.server.transactions.len());
        true
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + Duration::from_millis(self.millis),
            wall: wall(),
        }
    }
}

fn wall() -> PgTimestamp {
    PgTimestamp::from_unix_micros(1_800_000_000_000_000)
}

fn read(process: &mut Connector, server: &mut Server, random: &mut Random, now: Now) {
    for _ in 0..random.below(12) {
        if !process.wants_frame() {
            return;
        }
        let frame = if random.chance(100) {
            server.keepalive(random)
        } else {
            server.next_frame()
        };
        if let Some(frame) = frame {
            process.take(&frame, now);
        }
    }
}

const KEYS: usize = 20;
const EVENTS: u64 = 300;
pub(crate) const FAULTS_MIN: u64 = 5;
const TURNS_MAX: usize = 100_000;
