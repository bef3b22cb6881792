//! The model of the transactional producer: what is enqueued is seen when its transaction is committed, if ever.

use std::cell::RefMut;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use posthaste::clock::Clock;
use router::Record;
use sink::{
    Delivery, EnqueueError, Entry, PositionRecord, Producer, PublishError, Resume, Ticket,
    TransactionConfig, TransactionCounts,
};

use crate::broker;
use crate::cluster::{Cluster, Transaction};
use crate::server::Event;
use crate::stage::{Once, Stage};

/// Of one instance. Transactions are cut as the real one cuts them: by age, by number, and when it is quiet.
pub(crate) struct OnceProducer {
    stage: Rc<Stage>,
    config: TransactionConfig,
    epoch: u64,
    state: State,
    record: PositionRecord,
    origin: Option<String>,
    /// In the transaction that is not committed.
    held: Vec<(Ticket, Event)>,
    failure: Option<PublishError>,
    counts: TransactionCounts,
}

enum State {
    Fresh,
    Ready,
    Open {
        since: Instant,
        has_grown: bool,
    },
    /// With the position as it was when it was closed.
    Committing {
        ends_at: Instant,
        record: PositionRecord,
    },
}

impl OnceProducer {
    pub(crate) fn new(stage: Rc<Stage>, config: TransactionConfig) -> Self {
        Self {
            stage,
            config,
            epoch: 0,
            state: State::Fresh,
            record: PositionRecord::default(),
            origin: None,
            held: Vec::new(),
            failure: None,
            counts: TransactionCounts::default(),
        }
    }

    fn once(&self) -> &Once {
        self.stage.once.as_ref().expect("exactly once")
    }

    fn cluster(&self) -> RefMut<'_, Cluster> {
        self.once().cluster.borrow_mut()
    }

    fn begin(&mut self) {
        self.state = State::Open {
            since: self.stage.clock.instant(),
            has_grown: false,
        };
    }

    fn is_due(&self, since: Instant, has_grown: bool) -> bool {
        let is_old = self.stage.clock.since(since) >= self.config.interval;
        let is_quiet = !has_grown && self.stage.chance(500);
        is_old || is_quiet || self.held.len() >= self.config.records_max
    }

    /// Writes the position behind the last record.
    fn close(&mut self) {
        let millis = self.stage.below(COMMIT_MILLIS_MAX);
        self.state = State::Committing {
            ends_at: self.stage.clock.instant() + Duration::from_millis(millis),
            record: self.record.clone(),
        };
    }

    /// The transaction whose end was asked for.
    fn transaction(&self) -> Option<Transaction> {
        let State::Committing { record, .. } = &self.state else {
            return None;
        };
        let origin = self.origin.as_ref().expect("where the stream goes on");
        Some(Transaction {
            epoch: self.epoch,
            events: self.held.iter().map(|(_, event)| *event).collect(),
            value: record.to_json(origin).into_bytes(),
            record: record.clone(),
        })
    }

    /// Ends the transaction in one of the ways in which transactions end.
    fn commit(&mut self, on_delivery: &mut dyn FnMut(Delivery)) {
        let transaction = self.transaction().expect("its end was asked for");
        if self.stage.chance(ABORTED_PER_MILLE) {
            self.cluster().counts.aborts += 1;
            self.failure = Some(error("_TIMED_OUT"));
            return;
        }
        let is_lost = self.stage.chance(ANSWER_LOST_PER_MILLE);
        if is_lost && self.stage.chance(500) {
            self.cluster().counts.lost_answers += 1;
            self.cluster().leave_in_doubt(transaction);
            self.failure = Some(error("_TIMED_OUT"));
            return;
        }
        let table = self.stage.table.borrow();
        let is_committed = self.cluster().commit(transaction, &table);
        drop(table);
        if !is_committed {
            self.cluster().counts.fenced += 1;
            self.failure = Some(error("PRODUCER_FENCED"));
        } else if is_lost {
            self.cluster().counts.lost_answers += 1;
            self.failure = Some(error("_TIMED_OUT"));
        } else {
            self.state = State::Ready;
            self.counts.committed += 1;
            for (ticket, _) in self.held.drain(..) {
                on_delivery(Delivery {
                    ticket,
                    result: Ok(()),
                });
            }
        }
    }

    /// A new client. What the old one has asked for may happen all the same.
    fn rebuild(&mut self) {
        self.counts.aborted += u64::from(matches!(
            self.state,
            State::Open { .. } | State::Committing { .. }
        ));
        self.give_up();
        self.state = State::Fresh;
        self.origin = None;
        self.held.clear();
        self.failure = None;
    }

    fn give_up(&self) {
        if self.failure.is_none()
            && let Some(transaction) = self.transaction()
        {
            self.cluster().leave_in_doubt(transaction);
        }
    }
}

impl Drop for OnceProducer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.give_up();
        }
    }
}

impl fmt::Debug for OnceProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceProducer").finish_non_exhaustive()
    }
}

impl Producer for OnceProducer {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        if self.failure.is_some() {
            return Err(EnqueueError::Full(ticket));
        }
        if matches!(self.state, State::Ready) && self.origin.is_some() {
            self.begin();
        }
        match &mut self.state {
            State::Open { has_grown, .. } if self.held.len() < self.config.records_max => {
                *has_grown = true;
                self.held.push((ticket, broker::event(record)));
                Ok(())
            }
            _ => Err(EnqueueError::Full(ticket)),
        }
    }

    fn poll(&mut self, _: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        if self.failure.is_some() {
            return;
        }
        if let State::Open { since, has_grown } = &mut self.state {
            let (since, has_grown) = (*since, std::mem::take(has_grown));
            if self.is_due(since, has_grown) {
                self.close();
            }
        }
        if let State::Committing { ends_at, .. } = self.state
            && self.stage.clock.instant() >= ends_at
        {
            self.commit(on_delivery);
        }
    }

    fn in_flight(&self) -> usize {
        if self.failure.is_some() {
            0
        } else {
            self.held.len()
        }
    }

    fn purge(&mut self) {
        self.rebuild();
    }

    fn fatal_error(&self) -> Option<PublishError> {
        self.failure.clone()
    }

    fn brokers_up(&self) -> bool {
        true
    }

    fn begin_attempt(&mut self) {
        self.stage.brokers.borrow_mut().marks.begin_attempt();
        if !matches!(self.state, State::Fresh) || self.failure.is_some() {
            self.rebuild();
        }
    }

    fn claim(&mut self, _: Duration) -> Result<bool, PublishError> {
        assert!(self.once().is_streaming.get(), "a standby fences the owner");
        if !matches!(self.state, State::Fresh) {
            return Ok(true);
        }
        let random = &mut *self.stage.random.borrow_mut();
        if random.chance(CLAIM_FAILS_PER_MILLE) {
            return Ok(false);
        }
        let table = self.stage.table.borrow();
        let epoch = self.cluster().claim(self.once().instance, &table, random);
        // Its answer may be lost as well.
        if random.chance(ANSWER_LOST_PER_MILLE) {
            return Ok(false);
        }
        drop(table);
        self.epoch = epoch;
        self.state = State::Ready;
        Ok(true)
    }

    fn resume(&mut self, resume: Resume) {
        assert!(matches!(self.state, State::Ready), "claimed before");
        let open = resume.position.open;
        let is_midway = open.is_some_and(|open| open.inserts > 0);
        self.cluster().counts.midway += u64::from(is_midway);
        self.record = PositionRecord {
            position: resume.position,
            unnoted: Vec::new(),
        };
        self.origin = Some(resume.origin);
        if resume.record_now {
            self.begin();
            self.close();
        }
    }

    fn passed(&mut self, entry: &Entry) {
        self.stage.brokers.borrow_mut().marks.pass(entry);
        self.record.pass(entry);
    }

    fn transactions(&self) -> TransactionCounts {
        self.counts
    }
}

fn error(code: &str) -> PublishError {
    PublishError::from_code(code).expect("a code of librdkafka")
}

const COMMIT_MILLIS_MAX: u64 = 60;
const ABORTED_PER_MILLE: u64 = 20;
const ANSWER_LOST_PER_MILLE: u64 = 30;
const CLAIM_FAILS_PER_MILLE: u64 = 300;
