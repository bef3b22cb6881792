//! The publishing thread: owns the publisher, takes batches, enqueues what the limits allow, polls, and tells.
//!
//! It decides nothing. After a failure it enqueues nothing more until it is told where to start again.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pgoutput::Lsn;
use sink::{
    Accepted, Batch, Careful, Producer, PublishError, Publisher, Resume, TransactionCounts,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, SystemClock};
use crate::metrics::PipelineMetrics;
use crate::publishing::{BATCHES_MAX, PublishState};

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Work {
    Batch(Batch),
    Restart { start: Lsn, careful: Careful },
    Claim(ClaimAnswer),
    Resume(Box<Resume>, ClaimAnswer),
}

/// Where the outcome of a claim goes.
type ClaimAnswer = oneshot::Sender<Result<(), PublishError>>;

/// The thread's own state. The simulation has it take its turns without a thread.
#[derive(Debug)]
pub struct Worker<P: Producer, C = SystemClock> {
    publisher: Publisher<P>,
    clock: C,
    metrics: PipelineMetrics,
    work: Receiver<Work>,
    recycled: mpsc::Sender<Batch>,
    state: watch::Sender<PublishState>,
    pending: VecDeque<Batch>,
    failure: Option<PublishError>,
    claiming: Option<ClaimAnswer>,
    /// The number of transactions committed before the one that is waited for.
    resuming: Option<(u64, ClaimAnswer)>,
    transactions: TransactionCounts,
    replacements: u64,
    accepted: u64,
    epoch: u64,
    told_at: Instant,
}

impl<P: Producer, C: Clock> Worker<P, C> {
    pub(crate) fn new(
        publisher: Publisher<P>,
        clock: C,
        metrics: PipelineMetrics,
        work: Receiver<Work>,
        recycled: mpsc::Sender<Batch>,
        state: watch::Sender<PublishState>,
    ) -> Self {
        Self {
            publisher,
            metrics,
            work,
            recycled,
            state,
            pending: VecDeque::with_capacity(BATCHES_MAX),
            failure: None,
            claiming: None,
            resuming: None,
            transactions: TransactionCounts::default(),
            replacements: 0,
            accepted: 0,
            epoch: 0,
            told_at: clock.instant(),
            clock,
        }
    }

    /// Until nobody is there any more to give it work.
    pub(crate) fn run(mut self) {
        loop {
            match self.work.recv_timeout(self.patience()) {
                Ok(work) => self.handle_work(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.turn(POLL_GAP);
        }
    }

    /// Does what it is asked to do, enqueues what the limits allow, takes the deliveries and tells. Where the limits are
    /// reached it waits for deliveries, no longer than `patience`.
    pub fn turn(&mut self, patience: Duration) {
        while let Ok(work) = self.work.try_recv() {
            self.handle_work(work);
        }
        self.claim();
        let full = self.accept_pending();
        self.poll(if full { patience } else { Duration::ZERO });
        self.tell();
    }

    /// How long to wait for work before looking after deliveries again.
    fn patience(&self) -> Duration {
        if self.claiming.is_some() {
            Duration::ZERO
        } else if self.failure.is_some() {
            IDLE_GAP
        } else if !self.pending.is_empty() {
            Duration::ZERO
        } else if self.publisher.outstanding() > 0 || self.resuming.is_some() {
            POLL_GAP
        } else {
            IDLE_GAP
        }
    }

    fn handle_work(&mut self, work: Work) {
        match work {
            Work::Batch(batch) => self.pending.push_back(batch),
            Work::Restart { start, careful } => {
                while let Some(batch) = self.pending.pop_front() {
                    self.recycle(batch);
                }
                self.publisher.restart_careful(start, careful);
                self.claiming = None;
                self.resuming = None;
                let failure = self.failure.take();
                self.count_replacements(failure.as_ref());
                self.accepted = 0;
                self.epoch += 1;
            }
            Work::Claim(answer) => self.claiming = Some(answer),
            Work::Resume(resume, answer) => self.resume(*resume, answer),
        }
    }

    fn resume(&mut self, resume: Resume, answer: ClaimAnswer) {
        let record_now = resume.record_now;
        let before = self.publisher.producer().transactions().committed;
        self.publisher.producer_mut().resume(resume);
        if record_now {
            self.resuming = Some((before, answer));
        } else {
            // Whoever asked may be gone by the time of the answer; that is its own affair.
            drop(answer.send(Ok(())));
        }
    }

    /// Answers once the first position is committed, or cannot be.
    fn check_resumed(&mut self) {
        let Some((before, answer)) = self.resuming.take() else {
            return;
        };
        if let Some(error) = &self.failure {
            drop(answer.send(Err(error.clone())));
        } else if self.transactions.committed > before {
            drop(answer.send(Ok(())));
        } else {
            self.resuming = Some((before, answer));
        }
    }

    /// One step of a claim, if one is wanted.
    fn claim(&mut self) {
        let Some(answer) = self.claiming.take_if(|answer| !answer.is_closed()) else {
            self.claiming = None;
            return;
        };
        // Whoever asked may be gone by the time of the answer; that is its own affair.
        match self.publisher.producer_mut().claim(CLAIM_STEP) {
            Ok(true) => drop(answer.send(Ok(()))),
            Ok(false) => self.claiming = Some(answer),
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// The end of a client is one line; an outage or a stream that began again has a line of its own.
    fn count_replacements(&mut self, failure: Option<&PublishError>) {
        let count = self.publisher.producer().replacements();
        let more = count.saturating_sub(std::mem::replace(&mut self.replacements, count));
        if more == 0 {
            return;
        }
        self.metrics.producers_recreated(more);
        match failure {
            // Of its end nobody else speaks while Kafka as a whole is well.
            Some(failure @ PublishError::Fatal(_)) => tracing::info!(
                "Kafka producer re-created after {failure}; what is not confirmed is sent again"
            ),
            _ => tracing::debug!("Kafka producer re-created"),
        }
    }

    fn count_transactions(&mut self) {
        let ended = self.publisher.producer().transactions();
        let known = std::mem::replace(&mut self.transactions, ended);
        self.metrics.transactions(
            ended.committed.saturating_sub(known.committed),
            ended.aborted.saturating_sub(known.aborted),
        );
    }

    /// Enqueues what the limits allow; true when they are reached.
    fn accept_pending(&mut self) -> bool {
        while self.failure.is_none() {
            let Some(mut batch) = self.pending.pop_front() else {
                return false;
            };
            match self.publisher.accept(&mut batch) {
                Ok(Accepted::All) => {
                    self.accepted += 1;
                    self.recycle(batch);
                }
                Ok(Accepted::Full) => {
                    self.pending.push_front(batch);
                    return true;
                }
                Err(error) => {
                    self.pending.push_front(batch);
                    self.fail(error);
                }
            }
        }
        false
    }

    fn poll(&mut self, timeout: Duration) {
        let metrics = &self.metrics;
        let now = self.clock.now().wall;
        let polled = self.publisher.poll(timeout, now, &mut |latency| {
            metrics.observe_commit_to_ack(latency.as_secs_f64());
        });
        match polled {
            Ok(polled) => {
                self.metrics.delivered(polled.delivered);
                self.metrics.delivered_bytes(polled.bytes);
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: PublishError) {
        // The first failure is the cause; those after it are its consequences.
        if self.failure.is_none() {
            self.failure = Some(error);
        }
    }

    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        // The channel holds the whole pool; an error means that the loop is gone, and so are we soon.
        drop(self.recycled.try_send(batch));
    }

    fn tell(&mut self) {
        let news = PublishState {
            confirmed: self.publisher.confirmed(),
            outstanding: self.publisher.outstanding(),
            outstanding_bytes: self.publisher.outstanding_bytes(),
            oldest: self.publisher.oldest(),
            failure: self.failure.clone(),
            culprit: self.publisher.culprit(),
            waiting: self
                .pending
                .iter()
                .map(|batch| batch.records_left() as u64)
                .sum(),
            brokers_up: self.publisher.producer().brokers_up(),
            broker_error: self.publisher.producer().broker_error(),
            accepted: self.accepted,
            epoch: self.epoch,
        };
        self.metrics
            .in_flight(news.outstanding, news.outstanding_bytes);
        self.metrics.oldest_unacknowledged(news.oldest);
        self.count_transactions();
        self.check_resumed();
        // Each telling wakes the loop, so only what somebody may be waiting for is told at once.
        let is_idle = news.outstanding == 0 && self.pending.is_empty();
        if !is_idle && news.failure.is_none() && self.clock.since(self.told_at) < TELL_GAP {
            return;
        }
        self.told_at = self.clock.instant();
        let told = self.state.send_if_modified(|old| {
            let modified = !old.is_same(&news);
            *old = news;
            modified
        });
        if told {
            self.metrics.told();
        }
    }
}

impl PublishState {
    fn is_same(&self, other: &Self) -> bool {
        self.confirmed == other.confirmed
            && self.outstanding == other.outstanding
            && self.waiting == other.waiting
            && self.failure.is_some() == other.failure.is_some()
            && self.brokers_up == other.brokers_up
            && code(self.broker_error.as_ref()) == code(other.broker_error.as_ref())
            && self.accepted == other.accepted
            && self.epoch == other.epoch
    }
}

fn code(error: Option<&PublishError>) -> Option<&'static str> {
    error.map(|error| error.failure().code())
}

/// The longest wait for a broker in one step of a claim.
const CLAIM_STEP: Duration = Duration::from_millis(500);

/// Time between two looks at the deliveries while some are outstanding.
const POLL_GAP: Duration = Duration::from_millis(1);

/// Time between two tellings while more is on its way.
pub(crate) const TELL_GAP: Duration = Duration::from_millis(5);

/// The same while none are: only the client's own events are served.
const IDLE_GAP: Duration = Duration::from_millis(50);
