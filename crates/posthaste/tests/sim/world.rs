//! One seed's world: who acts next, and what goes wrong.

use std::rc::Rc;
use std::time::Duration;

use pgoutput::{Lsn, RowId};
use posthaste::clock::Clock;
use posthaste::codes::{Code, Problem};
use posthaste::metrics::{CONFIRMED_LSN, ERRORS, REFUSAL_SEARCHES, RETRIES};
use posthaste::pipeline::Drained;
use posthaste::policy::OnPoison;
use posthaste::watchlist::SkippedEvent;

use crate::broker::Brokers;
use crate::check::{self, Lengths, OrderlyRun};
use crate::outcome::{Fault, Outcome};
use crate::pace::{IDLE_TURN_MAX, TURN_MAX};
use crate::process::Process;
use crate::random::Random;
use crate::server::Server;
use crate::stage::{Stage, sum_of};
use crate::trouble::Trouble;

#[derive(Debug)]
pub(crate) struct World {
    stage: Rc<Stage>,
    process: Option<Process>,
    is_stopping: bool,
    fail_fast: bool,
    /// A standby has all that a walsender sent, as with `synchronized_standby_slots`.
    is_synchronized: bool,
    /// The next process starts with `--accept-slot-position`.
    accept_slot_position: bool,
    orderly: Vec<OrderlyRun>,
    process_began: Lengths,
    processes: u64,
    /// Of the server; another one after it was restarted.
    session: u64,
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
        server.has_rare_poison = matches!(seed % 40, 8 | 18);
        server.keepalives_per_mille = if random.chance(500) { 100 } else { 3 };
        Self {
            stage: Stage::new(random, server, brokers, action, seed % 8 != 3),
            process: None,
            is_stopping: false,
            fail_fast: seed % 16 == 5,
            is_synchronized: seed % 20 == 8,
            accept_slot_position: false,
            orderly: Vec::new(),
            process_began: vec![0; partitions],
            processes: 0,
            session: 0,
            outcome: Outcome::default(),
        }
    }

    pub(crate) fn run(mut self) -> Outcome {
        while self.stage.server.borrow().event_count() < EVENTS
            || self.outcome.all_faults() < FAULTS_MIN
        {
            self.turn();
            if self.stage.chance(250) {
                let mut random = self.stage.random.borrow_mut();
                self.stage.server.borrow_mut().commit(&mut random);
            }
            if self.stage.chance(40) {
                self.misfortune();
            }
        }
        self.settle();
        self.stop_in_calm();
        self.end_process();
        self.count_decisions();
        self.count_branches();
        let stage = &self.stage;
        let (server, brokers) = (stage.server.borrow(), stage.brokers.borrow());
        let mut exempt = stage.exempt.borrow_mut();
        let passed_over = server
            .events()
            .filter(|event| stage.is_passed_over(*event, &brokers))
            .map(|event| event.id);
        exempt.given_up.extend(passed_over);
        self.outcome.events = server.event_count();
        self.outcome.repeats = check::check(
            server.events(),
            &server.lost,
            &brokers,
            &self.orderly,
            &exempt,
        );
        self.outcome.clone()
    }

    fn count_branches(&mut self) {
        let stage = &self.stage;
        let (table, brokers) = (stage.table.borrow(), stage.brokers.borrow());
        let server = stage.server.borrow();
        let passed_over = server
            .events()
            .filter(|event| stage.is_passed_over(*event, &brokers) && !brokers.has(event.id));
        let counts = [
            (0, table.parked),
            (1, table.behind),
            (2, table.published),
            (3, table.refused_again),
            (4, brokers.dead_letters()),
            (5, passed_over.count() as u64),
            (6, table.used_requests()),
        ];
        for (branch, count) in counts {
            self.outcome.branches[branch] += count;
        }
    }

    /// What the policy decided, as the metrics tell it.
    fn count_decisions(&mut self) {
        let metrics = self.stage.metrics_text();
        let count = |metric: &str, label: &str| sum_of(&metrics, metric, label);
        let postgres = count(RETRIES, "\"postgres\"");
        // Where nothing is tried again, it is among the errors all the same.
        let steadily = count(ERRORS, &format!("\"{}\"", Code::SlotActive)).min(postgres);
        let kafka = count(RETRIES, "\"kafka\"");
        let searches = count(REFUSAL_SEARCHES, "");
        // An attempt that was neither the first one of a process, nor after a pause of those kinds.
        let others = self.processes + postgres + kafka + searches;
        let go_on = self.stage.attempts.get().saturating_sub(others);
        let counts = [
            (0, postgres - steadily),
            (1, steadily),
            (2, kafka),
            (6, searches),
            (7, go_on),
        ];
        for (branch, count) in counts {
            self.outcome.decisions[branch] += count;
        }
    }

    /// No more misfortune: everything has to arrive and to be confirmed within a bounded number of turns.
    fn settle(&mut self) {
        self.stage.is_calm.set(true);
        {
            let mut brokers = self.stage.brokers.borrow_mut();
            brokers.down = false;
            // Somebody raises the limit, unless what is refused is to be passed over.
            brokers.lenient |= matches!(self.stage.action, OnPoison::Park | OnPoison::Halt);
        }
        for _ in 0..TURNS_MAX {
            let at = self.stage.server.borrow_mut().write_own();
            self.stage.table.borrow_mut().retry(true, true, at);
            if self.is_settled() {
                return;
            }
            self.turn();
        }
        let server = self.stage.server.borrow();
        panic!(
            "not settled: confirmed {} of {}",
            server.confirmed(),
            server.wal_end()
        );
    }

    /// Where nothing goes wrong, a stop in mid-stream is whole, and the next process goes on behind it.
    fn stop_in_calm(&mut self) {
        if self.stage.server.borrow().has_poison {
            return;
        }
        {
            let mut random = self.stage.random.borrow_mut();
            let mut server = self.stage.server.borrow_mut();
            (0..CALM_TRANSACTIONS).for_each(|_| server.commit(&mut random));
        }
        let whole = self.outcome.faults(Fault::OrderlyStop);
        let before = self.stage.below(CALM_TURNS_MAX);
        (0..before).for_each(|_| self.turn());
        while self.process.is_none() {
            self.turn();
        }
        let processes = self.processes;
        self.stop();
        for _ in 0..TURNS_MAX {
            if self.process.is_none() {
                break;
            }
            self.turn();
        }
        assert_eq!(self.processes, processes);
        let stopped_whole = self.outcome.faults(Fault::OrderlyStop) - whole;
        assert_eq!(stopped_whole, 1, "a stop in calm that was not whole");
        self.settle();
    }

    fn is_settled(&self) -> bool {
        let server = self.stage.server.borrow();
        let end = server.transactions.last().map(|last| last.end_lsn);
        server.confirmed() >= end.unwrap_or(Lsn::ZERO) && self.stage.table.borrow().is_empty()
    }

    fn turn(&mut self) {
        self.happen_elsewhere();
        let session = self.stage.server.borrow().session();
        if std::mem::replace(&mut self.session, session) != session && !self.stage.has_state_file {
            // What the server forgot comes again.
            self.orderly.clear();
        }
        match self.stage.failing_in.take() {
            Some(0) if !self.stage.is_calm.get() => {
                self.promote();
                self.outcome.faults[Fault::Promotion as usize] += 1;
            }
            due => self
                .stage
                .failing_in
                .set(due.map(|turns| turns.saturating_sub(1))),
        }
        let Some(process) = &mut self.process else {
            self.process_began = self.lengths();
            let accept = std::mem::take(&mut self.accept_slot_position);
            self.process = Some(Process::start(&self.stage, self.fail_fast, accept));
            self.processes += 1;
            self.is_stopping = false;
            return;
        };
        let ended = process.turn();
        let met = self.stage.met.take();
        for trouble in met {
            self.outcome.troubles[trouble as usize] += 1;
            self.outcome.faults[Fault::AttemptFails as usize] += 1;
        }
        match ended {
            None => {}
            Some(Ok(drained)) => self.handle_stop(drained),
            Some(Err(problem)) => self.handle_halt(&problem),
        }
    }

    /// Time passes, others write, the brokers and the walsender work, people decide about parked events, and the disk writes.
    fn happen_elsewhere(&self) {
        let stage = &self.stage;
        let mut random = stage.random.borrow_mut();
        let is_calm = stage.is_calm.get();
        let jump = match random.below(400) {
            0 if !is_calm => -3_600_000,
            1 if !is_calm => 3_600_000,
            _ => 0,
        };
        let mut server = stage.server.borrow_mut();
        let nothing_happens = stage.is_waiting.get() || server.is_silent();
        let millis = random.below(millis(if nothing_happens {
            IDLE_TURN_MAX
        } else {
            TURN_MAX
        }));
        stage.clock.pass(millis, jump);
        let mut pace = stage.pace.borrow_mut();
        pace.pass(stage.clock.instant(), Duration::from_millis(millis));
        if !is_calm && random.chance(STANDS_STILL_PER_MILLE) {
            stage.clock.pass(random.below(STANDS_STILL_MILLIS_MAX), 0);
            pace.stand_still(stage.clock.instant());
        }
        if random.chance(50) {
            server.write_elsewhere(&mut random);
        }
        if random.chance(30) {
            server.checkpoint();
        }
        stage.brokers.borrow_mut().step(&mut random);
        server.send(&mut random);
        if random.chance(8) {
            let repair = random.chance(500);
            let at = server.write_own();
            stage.table.borrow_mut().retry(false, repair, at);
        }
        if random.chance(20) {
            stage.disk.write();
        }
    }

    fn handle_stop(&mut self, drained: Drained) {
        assert!(self.is_stopping, "it stopped by itself");
        // Without a state file the server alone knows.
        let is_kept = self.stage.has_state_file || !self.stage.is_last_word_lost.get();
        self.end_process();
        if drained == Drained::Whole && is_kept {
            let from = self.process_began.clone();
            let to = self.lengths();
            self.orderly.push(OrderlyRun { from, to });
            self.outcome.faults[Fault::OrderlyStop as usize] += 1;
        }
    }

    /// Somebody reads why it stopped, and does what the message says.
    fn handle_halt(&mut self, problem: &Problem) {
        if let Some(row) = named_row(problem) {
            self.check_before(row, problem.code);
        }
        self.end_process();
        let culprit = culprit(problem);
        let branch = match problem.code {
            _ if culprit.is_some() => 8,
            Code::RowValue => 4,
            Code::HistoryDiverged => 5,
            _ => 3,
        };
        self.outcome.decisions[branch] += 1;
        let stage = &self.stage;
        let mut server = stage.server.borrow_mut();
        let mut table = stage.table.borrow_mut();
        let at = server.write_own();
        if problem.code == Code::HistoryDiverged {
            // From the slot's own position what an orderly stop had finished may come again.
            self.accept_slot_position = true;
            self.orderly.clear();
            if stage.action == OnPoison::Park {
                assert!(!self.is_synchronized, "the standby had everything");
                stage.reconcile(&server, &table);
            }
        } else if !server.has_poison || stage.action != OnPoison::Halt {
            // The next start is all it needs.
        } else if let Some(row) = culprit {
            table.request(SkippedEvent::Row(row), at);
        } else if problem.code == Code::RowValue {
            // By its id, as the message shows it beside the row.
            let row = named_row(problem).expect("the row that stopped it");
            let event = server.event_at(row).expect("a row of the stream");
            table.request(SkippedEvent::Id(event.id.to_string()), at);
        }
    }

    /// What is acknowledged before the row that stops it is as good as ever: the server was told, or a file keeps it. Of what
    /// is on its way in front of a row that cannot be taken, the acknowledgements are awaited.
    fn check_before(&self, row: RowId, code: Code) {
        let stage = &self.stage;
        let server = stage.server.borrow();
        let kept = stage.disk.read().map(|stored| stored.confirmed_lsn);
        let known = server.confirmed().max(kept.unwrap_or(Lsn::ZERO));
        let acknowledged = Lsn::new(sum_of(&stage.metrics_text(), CONFIRMED_LSN, ""));
        assert!(
            known >= acknowledged || (stage.is_last_word_lost.get() && !stage.has_state_file),
            "halted at {row} with {known} known of {acknowledged}"
        );
        let brokers = stage.brokers.borrow();
        let is_at_rest = !brokers.down && brokers.in_flight() == 0;
        let has_waited = !stage.pace.borrow().has_jumped(stage.clock.instant());
        if code != Code::RowValue || !is_at_rest || !has_waited {
            return;
        }
        let before = server.transactions.iter();
        let before = before.take_while(|transaction| transaction.commit_lsn < row.commit_lsn);
        let end = before.last().map_or(Lsn::ZERO, |last| last.end_lsn);
        assert!(acknowledged >= end, "halted at {row} with {acknowledged}");
    }

    fn lengths(&self) -> Lengths {
        let brokers = self.stage.brokers.borrow();
        brokers.logs().iter().map(Vec::len).collect()
    }

    fn end_process(&mut self) {
        self.process = None;
        self.stage.is_last_word_lost.set(false);
        self.stage.disk.crash();
        self.stage.server.borrow_mut().disconnect();
        self.stage.lose_client();
    }

    fn misfortune(&mut self) {
        let kind = self.stage.below(Fault::ALL.len() as u64);
        let kind = usize::try_from(kind).expect("few");
        let fault = Fault::ALL[kind];
        let stage = &self.stage;
        let happened = match fault {
            Fault::ConnectionCut => {
                stage.server.borrow_mut().disconnect();
                true
            }
            Fault::ConnectionSilent => stage.server.borrow_mut().fall_silent(),
            Fault::ServerRestart => {
                stage.server.borrow_mut().restart();
                true
            }
            Fault::ProcessKilled | Fault::StateLost if self.needs_memory() => false,
            Fault::ProcessKilled => {
                self.end_process();
                true
            }
            Fault::BrokersDown => {
                let mut brokers = stage.brokers.borrow_mut();
                brokers.down = !brokers.down;
                true
            }
            Fault::RecordRefused => {
                let mut random = stage.random.borrow_mut();
                stage.brokers.borrow_mut().refuse_one(&mut random)
            }
            Fault::ProducerDead => {
                stage.brokers.borrow_mut().kill_producer();
                true
            }
            Fault::OrderlyStop => {
                self.stop();
                // Counted when it is complete.
                false
            }
            Fault::AttemptFails => {
                let trouble = Trouble::draw(&mut stage.random.borrow_mut());
                stage.trouble.set(Some((trouble, stage.below(4))));
                stage.server.borrow_mut().disconnect();
                // Counted when it is met.
                false
            }
            Fault::Promotion => self.promote(),
            Fault::StateLost => {
                self.end_process();
                self.stage.disk.lose();
                // Without it, what the server forgets comes again.
                self.orderly.clear();
                true
            }
        };
        self.outcome.faults[kind] += u64::from(happened);
    }

    /// Beside parked rows a standby that lags takes away what only the process and its state file know of
    /// (docs/delivery-guarantee.md).
    fn needs_memory(&self) -> bool {
        self.stage.action == OnPoison::Park && !self.is_synchronized
    }

    /// SIGTERM, if there is a process.
    fn stop(&mut self) {
        if let Some(process) = &self.process {
            process.stop();
            self.is_stopping = true;
        }
    }

    fn promote(&self) -> bool {
        let stage = &self.stage;
        {
            let mut random = stage.random.borrow_mut();
            let has_sent = self.is_synchronized;
            let branch = stage.server.borrow_mut().promote(&mut random, has_sent);
            stage.table.borrow_mut().promote(branch);
        }
        stage.forget_lost();
        true
    }
}

/// The row that Kafka refused.
fn culprit(problem: &Problem) -> Option<RowId> {
    named_row(problem).filter(|_| problem.code.number() / 100 == 6)
}

/// The row that a message names.
fn named_row(problem: &Problem) -> Option<RowId> {
    let (_, rest) = problem.found.split_once("it is row ")?;
    let row = rest.split(';').next().unwrap_or_default();
    Some(row.parse().expect("as it is told"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a short time")
}

const STANDS_STILL_PER_MILLE: u64 = 3;
const STANDS_STILL_MILLIS_MAX: u64 = 150_000;
const KEYS: usize = 20;
const EVENTS: u64 = 300;
pub(crate) const FAULTS_MIN: u64 = 5;
const TURNS_MAX: usize = 100_000;
const CALM_TRANSACTIONS: u32 = 8;
const CALM_TURNS_MAX: u64 = 40;
