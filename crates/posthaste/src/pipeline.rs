//! The pipeline: the one loop that moves things along the nine stages of the path.
//!
//! It decides nothing. What a frame means is `intake`'s affair, what may be confirmed the tracker's,
//! what to tell the server `progress`'s, whether to retry `policy`'s. The loop receives, hands on and
//! reacts, for one connection; `supervisor` makes the connections.

use std::future::Future;
use std::time::{Duration, Instant};

use replication::Frame;
use sink::{Batch, Confirmed};
use tracing::debug;

use crate::brokers::Said;
use crate::clock::{Clock, Now, SystemClock};
use crate::feed::Feed;
use crate::health::Health;
use crate::intake::{Intake, Taken};
use crate::memory::Memory;
use crate::metrics::PipelineMetrics;
use crate::pacing::Pacing;
use crate::parked_table::ParkedTable;
use crate::parking::Parking;
use crate::parking_lot::{Hold, ParkingLot};
use crate::pipeline_telling::Telling;
use crate::policy::RunError;
use crate::progress::Progress;
use crate::publishing::{Publishing, ThreadEnded, Turn};
use crate::search::Search;
use crate::shutdown::Shutdown;
use crate::source::Source;

/// One connection's run: everything the loop moves things between.
#[derive(Debug)]
pub struct Pipeline<'a, F = Source, T = Parking, C = SystemClock> {
    source: F,
    pub(crate) clock: C,
    pub(crate) intake: Intake,
    pub(crate) publishing: &'a mut Publishing,
    pub(crate) progress: Progress,
    memory: &'a mut Memory,
    pub(crate) metrics: &'a PipelineMetrics,
    pub(crate) health: &'a Health,
    pub(crate) lot: Option<ParkingLot<T>>,
    pub(crate) hold: &'a mut Hold,
    pub(crate) search: &'a mut Search,
    pub(crate) shutdown: Shutdown,
    pub(crate) telling: Telling,
    pacing: Pacing,
}

/// What is kept from one connection to the next.
#[derive(Debug)]
pub struct Kept<'a> {
    /// The publishing thread.
    pub publishing: &'a mut Publishing,
    /// The highest position confirmed.
    pub memory: &'a mut Memory,
    /// What is counted.
    pub metrics: &'a PipelineMetrics,
    /// What the pages say.
    pub health: &'a Health,
    /// What keeps the position back.
    pub hold: &'a mut Hold,
    /// What is known of records that are refused.
    pub search: &'a mut Search,
    /// The wish to stop.
    pub shutdown: Shutdown,
}

/// How an orderly end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything that was read is acknowledged and confirmed.
    Whole,
    /// The limit came first; this many records are unconfirmed and will come again.
    Unacknowledged(u64),
}

impl<'a, F: Feed, T: ParkedTable, C: Clock> Pipeline<'a, F, T, C> {
    /// Joins the stages. `start` is where the tracker stands, which is where the stream was asked to start.
    #[must_use]
    pub fn new(
        source: F,
        clock: C,
        intake: Intake,
        start: Confirmed,
        kept: Kept<'a>,
        lot: Option<ParkingLot<T>>,
    ) -> Self {
        let Kept {
            publishing,
            memory,
            metrics,
            health,
            hold,
            search,
            shutdown,
        } = kept;
        let progress = Progress::new(start, clock.now(), source.timing());
        Self {
            source,
            clock,
            intake,
            publishing,
            progress,
            memory,
            metrics,
            health,
            lot,
            hold,
            search,
            shutdown,
            telling: Telling::default(),
            pacing: Pacing::default(),
        }
    }

    /// Streams until a stop is asked for, then drains.
    ///
    /// # Errors
    ///
    /// What ended the stream. After a row that cannot be taken, everything before it has been drained. Then, and where Kafka
    /// failed, the server has learned how far everything is acknowledged.
    pub async fn run(mut self, drain_timeout: Duration) -> Result<Drained, RunError> {
        match self.stream_and_drain(drain_timeout).await {
            Ok(()) => self.say_goodbye().await,
            Err(error @ RunError::Intake(_)) => {
                self.say_goodbye().await?;
                Err(error)
            }
            Err(error @ RunError::Publish(_)) => {
                self.tell_at_last().await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn stream_and_drain(&mut self, drain_timeout: Duration) -> Result<(), RunError> {
        match self.stream().await {
            Ok(()) => {
                self.health.draining();
                self.drain(drain_timeout, true).await
            }
            Err(error @ RunError::Intake(_)) => {
                // What came before the row that stops us is as good as ever.
                self.health.draining();
                self.drain(drain_timeout, false).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The loop. Branches by rank: the wish to stop, what the publisher has to tell or to give, the timer of the
    /// status update, and only then more work.
    async fn stream(&mut self) -> Result<(), RunError> {
        loop {
            self.health.beat();
            self.settle_aside().await?;
            self.refresh_catalog().await?;
            self.release_hold()?;
            self.send_status().await?;
            let look_at = self.look_for_parked_at();
            if look_at.is_some_and(|at| at <= self.clock.instant()) {
                self.publish_parked().await?;
                continue;
            }
            let wake_at = self.next_wake(self.clock.now());
            let wake_at = look_at.map_or(wake_at, |at| wake_at.min(at));
            let reading = self.publishing.has_current();
            self.count_pause(reading);
            tokio::select! {
                biased;
                () = self.shutdown.requested() => return Ok(()),
                turn = self.publishing.next() => self.handle_turn(turn?)?,
                () = self.clock.sleep_until(wake_at) => self.handle_timer(reading)?,
                frame = self.source.next_frame(), if reading => {
                    let now = self.clock.now();
                    let first = take(frame?, &mut self.intake, self.publishing, &mut self.progress, now);
                    let taken = first.and_then(|()| self.take_buffered(now, |_| false));
                    self.hand_over(taken, now)?;
                }
            }
        }
    }

    /// The second, smaller loop: no new transaction is read, and what is on its way is awaited. With `read_on` those that
    /// were begun are read to their end first, since no position inside them could be confirmed.
    async fn drain(&mut self, drain_timeout: Duration, read_on: bool) -> Result<(), RunError> {
        let deadline = self.clock.instant() + drain_timeout;
        loop {
            self.settle_aside().await?;
            self.refresh_catalog().await?;
            self.release_hold()?;
            let reading_on = read_on && self.is_unfinished();
            if !reading_on {
                self.publishing.submit(self.intake.reach())?;
                if self.publishing.is_drained() {
                    return self.note_last_published().await;
                }
            }
            if self.clock.instant() >= deadline {
                return Ok(());
            }
            if reading_on && (self.intake.is_dangling() || self.hold.is_active()) {
                // Nothing may ever follow a message by itself; a keepalive can be asked for.
                self.progress.ask_for_reply();
            }
            self.send_status().await?;
            let wake_at = self.next_wake(self.clock.now()).min(deadline);
            let reading = reading_on && self.publishing.has_current();
            tokio::select! {
                biased;
                turn = self.publishing.next() => self.handle_turn(turn?)?,
                () = self.clock.sleep_until(wake_at) => self.handle_timer(reading)?,
                frame = self.source.next_frame(), if reading => {
                    let now = self.clock.now();
                    let first = take(frame?, &mut self.intake, self.publishing, &mut self.progress, now);
                    let taken = first.and_then(|()| self.take_buffered(now, |intake| !is_unfinished(intake)));
                    self.hand_over(taken, now)?;
                }
            }
        }
    }

    /// Whether something was handed over of a transaction that has not been read to its end: the open one, or one that
    /// an earlier connection lost; or a message that nothing has followed.
    fn is_unfinished(&self) -> bool {
        let lost = self.intake.reach() < self.publishing.high_water()
            && !self.publishing.is_all_done_at(self.progress.confirmed());
        is_unfinished(&self.intake) || lost || self.hold.is_active()
    }

    /// Where it was Kafka that failed, the server can still be told how far everything is acknowledged: what it knows, no other
    /// process is sent again.
    async fn tell_at_last(&mut self) {
        // A failure of Kafka is known.
        drop(self.hear_publisher());
        if let Err(error) = self.tell_position().await {
            debug!("the last position was not told: {error}");
        }
    }

    async fn tell_position(&mut self) -> Result<(), RunError> {
        let status = self.progress.status(self.clock.now());
        self.source.send(&status.encode()).await?;
        self.memory.told(status.flushed);
        Ok(())
    }

    /// The last word: the server learns the final position before the connection closes.
    async fn say_goodbye(mut self) -> Result<Drained, RunError> {
        self.hear_publisher()?;
        self.tell_position().await?;
        let unacknowledged = self.publishing.unacknowledged();
        let whole = self.publishing.is_drained() && !self.is_unfinished();
        self.source.finish().await;
        if whole {
            return Ok(Drained::Whole);
        }
        Ok(Drained::Unacknowledged(unacknowledged))
    }

    pub(crate) async fn send_status(&mut self) -> Result<(), RunError> {
        let now = self.clock.now();
        if self
            .progress
            .handle_bytes(self.source.received_bytes(), now)
        {
            self.health.heard_from_server();
        }
        if self.progress.is_stalled(now) {
            return Err(RunError::Stalled {
                silent_for: self.progress.silence_max(),
            });
        }
        if let Some(status) = self.progress.poll_status(now) {
            self.source.send(&status.encode()).await?;
            self.memory.told(status.flushed);
        }
        Ok(())
    }

    /// Does some work at the database to its end while the conversation with the server and the publisher goes on. It has its
    /// time, and less once a stop is asked for.
    pub(crate) async fn attend<O>(
        &mut self,
        work: impl Future<Output = Result<O, RunError>>,
    ) -> Result<O, RunError> {
        let mut work = Box::pin(work);
        let began = self.clock.instant();
        let mut deadline = began + WORK_TIME_MAX;
        let mut stopping = false;
        loop {
            self.health.beat();
            self.send_status().await?;
            let wake_at = self.progress.next_deadline(self.clock.now()).min(deadline);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.shutdown.requested(), if !stopping => {
                    stopping = true;
                    deadline = deadline.min(self.clock.instant() + STOP_TIME_MAX);
                }
                turn = self.publishing.next() => self.handle_turn(turn?)?,
                () = self.clock.sleep_until(wake_at) => {
                    self.progress.handle_paused(self.clock.now());
                    if self.clock.instant() >= deadline {
                        return Err(RunError::Stalled { silent_for: self.clock.since(began) });
                    }
                }
            }
        }
    }

    pub(crate) fn handle_turn(&mut self, turn: Turn) -> Result<(), RunError> {
        match turn {
            Turn::News => self.hear_publisher(),
            Turn::Batch => Ok(()),
        }
    }

    /// While we do not read, the server's silence is our own doing.
    fn handle_timer(&mut self, reading: bool) -> Result<(), RunError> {
        let now = self.clock.now();
        if !reading {
            self.progress.handle_paused(now);
        }
        if self.pacing.is_due(now.instant) {
            self.hand_over_now(now)?;
        }
        Ok(())
    }

    /// Takes over what the publisher has to tell.
    pub(crate) fn hear_publisher(&mut self) -> Result<(), RunError> {
        let state = self.publishing.state();
        if self.hold.permits(self.progress.received()) {
            if let Some(lsn) = self.hold.take_passed() {
                self.memory.parked_up_to(lsn);
            }
            self.progress.confirm(state.confirmed);
            self.memory.confirm(state.confirmed);
        }
        self.memory.save_if_due(self.clock.now());
        self.metrics.confirmed(self.progress.confirmed());
        self.health.publisher(&state);
        if self.publishing.tell_outage() == Some(Said::Resumed) {
            self.health.delivering();
        }
        match state.failure {
            Some(failure) => Err(RunError::Publish(failure)),
            None => Ok(()),
        }
    }

    /// Lets the position move on once the stream has come far enough, and asks the server how far that is.
    fn release_hold(&mut self) -> Result<(), RunError> {
        if !self.hold.is_active() {
            return Ok(());
        }
        if self.hold.permits(self.progress.received()) {
            return self.hear_publisher();
        }
        self.progress.ask_for_reply();
        Ok(())
    }

    /// Reads the catalog again where a table may have changed; no row of it was taken since.
    async fn refresh_catalog(&mut self) -> Result<(), RunError> {
        let Some(outdated) = self.intake.outdated_catalog() else {
            return Ok(());
        };
        let reading = self.source.read_catalog(outdated);
        let (position, catalog) = self.attend(reading).await?;
        if let Some(lot) = &mut self.lot {
            lot.rerouting.extend_catalog(catalog.clone());
        }
        self.intake.extend_catalog(position, catalog);
        Ok(())
    }

    /// Takes the frames that are already here, without waiting, until the batch is full. They arrived together, so one
    /// reading of the clock serves them all.
    fn take_buffered(
        &mut self,
        now: Now,
        enough: impl Fn(&Intake) -> bool,
    ) -> Result<(), RunError> {
        while self
            .publishing
            .current()
            .is_some_and(|batch| !is_full(batch))
            && !self.intake.poison().is_full()
            && self.intake.outdated_catalog().is_none()
            && !enough(&self.intake)
        {
            let Some(frame) = self.source.buffered_frame()? else {
                return Ok(());
            };
            take(
                frame,
                &mut self.intake,
                self.publishing,
                &mut self.progress,
                now,
            )?;
        }
        Ok(())
    }

    /// Hands over what was read, or leaves it in the batch until the [`Pacing`] lets it go. A row that could not be taken comes
    /// after those that could.
    fn hand_over(&mut self, taken: Result<(), RunError>, now: Now) -> Result<(), RunError> {
        let full = self
            .publishing
            .current()
            .is_some_and(|batch| is_full(batch));
        // What was put aside has to be written down first; the loop does that next, and the batch waits.
        let settled = self.intake.poison().aside().is_empty();
        if settled && (full || taken.is_err() || self.pacing.is_due(now.instant)) {
            self.hand_over_now(now)?;
        }
        self.metrics.received(self.progress.received());
        self.metrics.ignored(self.intake.take_ignored());
        self.tell_tolerated();
        self.tell_poison();
        taken
    }

    pub(crate) fn hand_over_now(&mut self, now: Now) -> Result<(), RunError> {
        self.pacing.handed_over(now.instant);
        Ok(self.publishing.submit(self.intake.reach())?)
    }

    fn next_wake(&self, now: Now) -> Instant {
        let deadline = self.progress.next_deadline(now);
        match self.pacing.due_at() {
            Some(at) if self.publishing.has_something() => deadline.min(at),
            _ => deadline,
        }
    }
}

/// Whether what was read last cannot be confirmed yet, however soon it is acknowledged.
fn is_unfinished(intake: &Intake) -> bool {
    intake.is_in_transaction() || intake.is_dangling()
}

/// Takes one frame: its rows go into the batch, its position to `progress`.
fn take(
    frame: Frame<'_>,
    intake: &mut Intake,
    publishing: &mut Publishing,
    progress: &mut Progress,
    now: Now,
) -> Result<(), RunError> {
    // The loop reads only while there is a batch; a frame without one would be a row without a place.
    let batch = publishing.current().ok_or(ThreadEnded)?;
    let taken = match frame {
        Frame::Data(body) => intake.handle_frame(body, now.wall.unix_micros() / 1_000, batch)?,
        Frame::TooLarge { size_bytes, head } => intake.handle_too_large(size_bytes, head, batch)?,
        Frame::End => return Err(RunError::StreamEnded),
    };
    match taken {
        Taken::Data { wal_end } => progress.handle_received(wal_end, now),
        Taken::Keepalive {
            wal_end,
            reply_requested,
        } => progress.handle_keepalive(wal_end, reply_requested, now),
    }
    Ok(())
}

pub(crate) fn is_full(batch: &Batch) -> bool {
    batch.records.byte_len() >= BATCH_BYTES_MAX || batch.entries.len() >= BATCH_ENTRIES_MAX
}

/// How long the database may take for one piece of work.
const WORK_TIME_MAX: Duration = Duration::from_secs(20);

/// How long a single answer is waited for, of the database or about parked rows, once a stop is asked for.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// A batch is handed over when its records hold this many bytes; one larger record makes it larger.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// … or when it has this many entries.
const BATCH_ENTRIES_MAX: usize = 4096;

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "pipeline_script_tests.rs"]
mod script_tests;
