//! Publishing: the loop's handle to the thread that owns the publisher (stages 6 to 8).
//!
//! librdkafka is polled from one OS thread, so that a delivery needs no lock and the loop that
//! talks to PostgreSQL never waits for Kafka. A fixed pool of batches circulates between the two:
//! an empty one comes with [`Publishing::next`], a full one goes with
//! [`Publishing::submit`]. No free batch means backpressure. Nothing else bounds the hand-over.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use pgoutput::{Lsn, PgTimestamp};
use sink::{
    Batch, BrokerProbe, Careful, Confirmed, EventIdentity, Producer, PublishError, Publisher,
    Resume,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::brokers::{BrokerWatch, KafkaSeen, PROBE_TIMEOUT, Said};
use crate::clock::{Clock, SystemClock};
use crate::codes::Problem;
use crate::metrics::PipelineMetrics;
use crate::policy::RunError;
use crate::publishing_thread::{Work, Worker};
use crate::reach::Reach;

/// The loop's end of the publishing thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct Publishing {
    work: Option<SyncSender<Work>>,
    free: mpsc::Receiver<Batch>,
    /// The batch being filled. It stays here so that a connection that ends takes none out of circulation.
    current: Option<Batch>,
    state: watch::Receiver<PublishState>,
    thread: Option<JoinHandle<()>>,
    probe: Option<BrokerProbe>,
    watch: Option<BrokerWatch>,
    submitted: u64,
    epoch: u64,
    high_water: Reach,
    kafka: KafkaSeen,
    metrics: PipelineMetrics,
}

/// What [`Publishing::next`] waited for.
#[derive(Debug)]
pub enum Turn {
    /// [`Publishing::state`] has changed.
    News,
    /// There is a batch to fill.
    Batch,
}

/// What the thread last told about itself.
#[derive(Debug, Clone)]
pub struct PublishState {
    /// Everything up to here is acknowledged.
    pub confirmed: Confirmed,
    /// Records enqueued and not yet acknowledged.
    pub outstanding: u64,
    /// Their bytes.
    pub outstanding_bytes: u64,
    /// Commit time of the oldest transaction that is not wholly acknowledged.
    pub oldest: Option<PgTimestamp>,
    /// The first failure since the last restart; nothing is enqueued after it.
    pub failure: Option<PublishError>,
    /// The event it is about, if it is about one and it is certain which.
    pub culprit: Option<EventIdentity>,
    /// Records handed over and not even enqueued.
    pub waiting: u64,
    /// Whether at least one broker connection is up, as far as the client knows.
    pub brokers_up: bool,
    /// Why none is, once that is known.
    pub broker_error: Option<PublishError>,
    pub(crate) accepted: u64,
    pub(crate) epoch: u64,
}

impl Publishing {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread.
    pub fn start<P: Producer + Send + 'static>(
        publisher: Publisher<P>,
        probe: Option<BrokerProbe>,
        metrics: PipelineMetrics,
    ) -> std::io::Result<Self> {
        let (mut publishing, worker) = Self::without_thread(publisher, SystemClock, metrics);
        // The client's log lines come from that thread, and carry the pipeline's name like all others.
        let span = tracing::Span::current();
        let thread = std::thread::Builder::new()
            .name("publish".to_owned())
            .spawn(move || span.in_scope(|| worker.run()))?;
        publishing.thread = Some(thread);
        publishing.watch = probe.clone().map(BrokerWatch::start);
        publishing.probe = probe;
        Ok(publishing)
    }

    /// Both ends, for whoever has the worker take its turns.
    #[must_use]
    pub fn without_thread<P: Producer, C: Clock>(
        publisher: Publisher<P>,
        clock: C,
        metrics: PipelineMetrics,
    ) -> (Self, Worker<P, C>) {
        let (work_sender, work) = sync_channel(BATCHES_MAX + CALLS_MAX);
        let (recycled, free) = mpsc::channel(BATCHES_MAX);
        for _ in 0..BATCHES_MAX {
            // The channel holds exactly the pool, so this cannot fail.
            drop(recycled.try_send(Batch::new()));
        }
        let first = PublishState {
            confirmed: publisher.confirmed(),
            outstanding: 0,
            outstanding_bytes: 0,
            oldest: None,
            failure: None,
            culprit: None,
            waiting: 0,
            brokers_up: false,
            broker_error: None,
            accepted: 0,
            epoch: 0,
        };
        let (state_sender, state) = watch::channel(first);
        let worker = Worker::new(
            publisher,
            clock,
            metrics.clone(),
            work,
            recycled,
            state_sender,
        );
        let publishing = Self {
            work: Some(work_sender),
            free,
            current: None,
            state,
            thread: None,
            watch: None,
            probe: None,
            submitted: 0,
            epoch: 0,
            high_water: Reach::default(),
            kafka: KafkaSeen::default(),
            metrics,
        };
        (publishing, worker)
    }

    /// Waits for an answer of any broker.
    ///
    /// # Errors
    ///
    /// Nobody answered within [`PROBE_TIMEOUT`].
    pub async fn require_broker(&self) -> Result<(), RunError> {
        let Some(probe) = self.probe.clone() else {
            return Ok(());
        };
        let asked = tokio::task::spawn_blocking(move || probe.reachable(PROBE_TIMEOUT)).await;
        match asked {
            Ok(answer) => Ok(answer?),
            // The runtime is going down, and so are we.
            Err(_) => Err(ThreadEnded.into()),
        }
    }

    /// Waits until the thread has news, or an empty batch came to be filled. News come first: they are what frees memory
    /// here and WAL at the server.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`].
    ///
    /// # Cancel safety
    ///
    /// News that nobody waited for is seen by the next call; a batch is either the current one or still in the pool.
    pub async fn next(&mut self) -> Result<Turn, ThreadEnded> {
        tokio::select! {
            biased;
            changed = self.state.changed() => changed.map(|()| Turn::News).map_err(|_| ThreadEnded),
            batch = self.free.recv(), if self.current.is_none() => {
                self.current = Some(batch.ok_or(ThreadEnded)?);
                Ok(Turn::Batch)
            }
        }
    }

    /// The batch to fill, if one is free.
    pub fn current(&mut self) -> Option<&mut Batch> {
        self.current.as_mut()
    }

    /// Whether there is a batch to fill. While there is none, nothing may be read.
    #[must_use]
    pub fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the current batch holds anything.
    #[must_use]
    pub fn has_something(&self) -> bool {
        self.current.as_ref().is_some_and(|batch| !batch.is_empty())
    }

    /// Hands the current batch over unless it is empty. Never blocks: the pool is no larger than the queue. `reach` is how far
    /// was read for it.
    ///
    /// # Errors
    ///
    /// The thread has ended, which only a panic in it can cause.
    pub fn submit(&mut self, reach: Reach) -> Result<(), ThreadEnded> {
        if let Some(batch) = self.current.take_if(|batch| !batch.is_empty()) {
            self.send(Work::Batch(batch))?;
            self.submitted += 1;
            self.metrics.handed_over();
            self.high_water = self.high_water.max(reach);
        }
        Ok(())
    }

    /// Forgets everything outstanding: the stream starts again at `start`.
    ///
    /// Deliveries of what was enqueued before still come, and count for nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`].
    pub async fn restart(&mut self, start: Lsn) -> Result<Confirmed, ThreadEnded> {
        self.restart_careful(start, Careful::default()).await
    }

    /// The same, sending what `careful` names one by one.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`].
    pub async fn restart_careful(
        &mut self,
        start: Lsn,
        careful: Careful,
    ) -> Result<Confirmed, ThreadEnded> {
        if let Some(batch) = &mut self.current {
            batch.clear();
        }
        self.send(Work::Restart { start, careful })?;
        self.submitted = 0;
        self.epoch += 1;
        let epoch = self.epoch;
        let state = self
            .state
            .wait_for(|state| state.epoch == epoch)
            .await
            .map_err(|_| ThreadEnded)?;
        Ok(state.confirmed)
    }

    /// Makes sure that no older producer of the same name writes any more; at once where there is none. For the owner of
    /// the slot only.
    ///
    /// # Errors
    ///
    /// A broker refuses, or as [`Self::submit`]. Without a broker it waits.
    ///
    /// # Cancel safety
    ///
    /// When dropped, the thread gives up at its next step.
    pub async fn claim(&self) -> Result<(), RunError> {
        let (answer, claimed) = oneshot::channel();
        self.send(Work::Claim(answer))?;
        Ok(claimed.await.map_err(|_| ThreadEnded)??)
    }

    /// Tells the producer where the stream goes on. Between [`Self::claim`] and the first batch. A position that is written
    /// at once is committed when this returns.
    ///
    /// # Errors
    ///
    /// Kafka does not take the position, or as [`Self::submit`].
    ///
    /// # Cancel safety
    ///
    /// When dropped, the position may be written or not.
    pub async fn resume(&self, resume: Resume) -> Result<(), RunError> {
        let (answer, resumed) = oneshot::channel();
        self.send(Work::Resume(Box::new(resume), answer))?;
        Ok(resumed.await.map_err(|_| ThreadEnded)??)
    }

    /// The newest news.
    #[must_use]
    pub fn state(&self) -> PublishState {
        self.state.borrow().clone()
    }

    /// The news as they come.
    #[cfg(test)]
    pub(crate) fn watch_state(&self) -> watch::Receiver<PublishState> {
        self.state.clone()
    }

    /// Logs when Kafka is lost and when it is back, once each.
    pub fn tell_outage(&mut self) -> Option<Said> {
        let state = self.state.borrow();
        let (error, confirmed) = (state.broker_error.as_ref(), state.confirmed.as_lsn());
        self.kafka
            .hear(state.brokers_up, error, confirmed, &self.metrics)
    }

    /// Logs that records were refused for a reason that may pass, if that is news.
    pub fn tell_refused(&mut self, problem: &Problem) {
        self.kafka.refused(problem, self.high_water.newest());
    }

    /// Whether Kafka was lost and is not back.
    #[must_use]
    pub fn is_kafka_lost(&self) -> bool {
        self.kafka.is_lost()
    }

    /// How far anything was ever handed over, on this connection or an earlier one. What is not confirmed of it may have been
    /// sent all the same.
    #[must_use]
    pub fn high_water(&self) -> Reach {
        self.high_water
    }

    /// Something was handed over as far as that to another publisher in the same history, which this one takes the place of.
    pub fn comes_after(&mut self, high_water: Reach) {
        self.high_water = self.high_water.max(high_water);
    }

    /// Whether a confirmed position covers everything that was ever handed over.
    #[must_use]
    pub fn is_all_done_at(&self, confirmed: Lsn) -> bool {
        self.high_water.is_done_at(confirmed)
    }

    /// Records handed over and not acknowledged, enqueued or not.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        let state = self.state.borrow();
        state.outstanding + state.waiting
    }

    /// Whether everything submitted is acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let state = self.state.borrow();
        state.accepted == self.submitted && state.outstanding == 0
    }

    fn send(&self, work: Work) -> Result<(), ThreadEnded> {
        let sender = self.work.as_ref().ok_or(ThreadEnded)?;
        sender.try_send(work).map_err(|_| ThreadEnded)
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        // Closing the channel is what ends the thread; it then drops the producer, which purges.
        self.watch = None;
        self.work = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the publishing thread panicked");
        }
    }
}

/// The publishing thread is gone.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the publishing thread has ended")]
pub struct ThreadEnded;

/// Batches in circulation: one being filled, one being enqueued, the rest in between.
pub const BATCHES_MAX: usize = 6;

/// Calls that may be on their way besides the batches: a restart, a claim and where to go on.
const CALLS_MAX: usize = 4;

#[cfg(test)]
#[path = "publishing_tests.rs"]
pub(crate) mod tests;
