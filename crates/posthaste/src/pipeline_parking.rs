//! The pipeline's dealings with the parking lot: what is put aside is written down, and what may leave is published.
//!
//! While either is under way nothing is read, so the order of an aggregate needs no further care: what was read before is
//! acknowledged, and what comes after is not here yet. Status updates and the publisher's news go on.

use std::time::{Duration, Instant};

use sink::{Entry, UNNOTED_ROWS_MAX};
use tracing::{info, warn};

use crate::clock::Clock;
use crate::feed::Feed;
use crate::parked_row::ParkedRow;
use crate::parked_table::ParkedTable;
use crate::parking_lot::ParkingLot;
use crate::pipeline::{Pipeline, STOP_TIME_MAX, is_full};
use crate::policy::RunError;
use crate::publishing::ThreadEnded;

impl<F: Feed, T: ParkedTable, C: Clock> Pipeline<'_, F, T, C> {
    /// Writes down what was put aside, before the batch it came with may be handed over.
    pub(crate) async fn settle_aside(&mut self) -> Result<(), RunError> {
        if self.intake.poison().aside().is_empty() {
            return Ok(());
        }
        let aside = self.intake.poison().take_aside();
        // Rows are put aside only where there is a lot; without one they would come again.
        let mut lot = self.lot.take().ok_or(ThreadEnded)?;
        let written = self.attend(lot.parking.write(&aside)).await;
        self.lot = Some(lot);
        let position = written?;
        if !aside.rows.is_empty() {
            self.hold.begin(position);
            // The batch that they came with is not handed over yet. Before its first record, since the position passes them
            // with any of those behind them.
            let batch = self.publishing.current().ok_or(ThreadEnded)?;
            batch.entries.insert(0, Entry::ParkedUpTo { lsn: position });
        }
        for (request, row) in &aside.skipped {
            warn!(
                request = request.number,
                "event at {row} passed over, as requested"
            );
        }
        let waiting = self.intake.poison().watchlist().waiting;
        self.metrics.parked(waiting);
        Ok(())
    }

    /// When to look for parked rows to publish; `None` while none wait.
    pub(crate) fn look_for_parked_at(&mut self) -> Option<Instant> {
        let has_waiting = self.intake.poison().watchlist().has_waiting();
        let lot = self.lot.as_ref().filter(|lot| lot.parks && has_waiting)?;
        Some(lot.look_at.unwrap_or_else(|| self.clock.instant()))
    }

    /// Publishes the parked rows that may leave, and learns what waits now.
    pub(crate) async fn publish_parked(&mut self) -> Result<(), RunError> {
        let Some(mut lot) = self.lot.take() else {
            return Ok(());
        };
        let passed = self.pass(&mut lot).await;
        self.lot = Some(lot);
        passed
    }

    async fn pass(&mut self, lot: &mut ParkingLot<T>) -> Result<(), RunError> {
        let began = self.clock.instant();
        let mut published = 0;
        let mut pause = LOOK_EVERY;
        loop {
            if !lot.sent.is_empty() {
                // An earlier pass did not see them acknowledged.
                if !self.until_drained().await? {
                    break;
                }
                published += self.note_published(lot).await?;
            }
            let confirmed = self.progress.confirmed();
            let queued = lot.parking.publishable(confirmed, ROWS_MAX);
            let mut queued = self.attend(queued).await?;
            if queued.is_empty() {
                break;
            }
            if published == 0 {
                // What was read before goes first, and the position then covers it.
                self.hand_over_now(self.clock.now())?;
                if !self.until_drained().await? {
                    break;
                }
                let queued_now = lot.parking.publishable(self.progress.confirmed(), ROWS_MAX);
                queued = self.attend(queued_now).await?;
            }
            published += self.republish(lot, &queued).await?;
            if self.clock.since(began) >= PASS_TIME_MAX {
                pause = PASS_GAP;
                break;
            }
        }
        if published > 0 {
            info!(rows = published, "parked events published");
            self.search.parked_went_through();
        }
        let (aggregates, waiting) = self.attend(lot.parking.waiting()).await?;
        self.metrics.parked(waiting);
        if let Some(lsn) = lot.noted_at.take() {
            // A standby that lacks the note would publish the rows again. Then what follows of their aggregates from here on has
            // to come again as well, so the position stays before it until the standby has the note.
            self.hold.begin(lsn);
        }
        let watchlist = self.intake.poison().watchlist();
        watchlist.set_parked(aggregates, waiting);
        // A look should never take more than a small part of the time.
        lot.rest(
            self.clock.instant(),
            pause.max(self.clock.since(began) * 10).min(LOOK_EVERY_MAX),
        );
        Ok(())
    }

    /// Publishes rows in their order and waits for their acknowledgement. A row that makes no record is held again, and so
    /// nothing behind it of its aggregate goes out.
    async fn republish(
        &mut self,
        lot: &mut ParkingLot<T>,
        queued: &[ParkedRow],
    ) -> Result<usize, RunError> {
        debug_assert!(lot.sent.is_empty(), "noted before more is sent");
        self.until_current().await?;
        let now_ms = self.clock.now().wall.unix_micros() / 1_000;
        let mut refused = None;
        for row in queued {
            let batch = self.publishing.current().ok_or(ThreadEnded)?;
            if is_full(batch) {
                break;
            }
            match lot.rerouting.route(row, now_ms, batch) {
                Ok(()) => lot.sent.push(row.row),
                // The next look finds what else may go.
                Err(reason) => {
                    refused = Some((row.row, reason));
                    break;
                }
            }
        }
        self.hand_over_now(self.clock.now())?;
        if !self.until_drained().await? {
            return Ok(0);
        }
        let sent = self.note_published(lot).await?;
        if let Some((row, reason)) = refused {
            warn!(code = %reason.code, "parked event at {row} is held again: {}", reason.text);
            self.attend(lot.parking.refused(row, &reason)).await?;
        }
        Ok(sent.max(1))
    }

    /// Notes in the table what was sent from it and is acknowledged, and tells the publisher, whose position names these rows
    /// until then. How many they are.
    async fn note_published(&mut self, lot: &mut ParkingLot<T>) -> Result<usize, RunError> {
        if lot.sent.is_empty() {
            return Ok(0);
        }
        let lsn = self.attend(lot.parking.published(&lot.sent)).await?;
        let count = lot.sent.len();
        lot.sent.clear();
        lot.noted_at = Some(lsn);
        self.metrics.parked_published(count as u64);
        self.until_current().await?;
        let batch = self.publishing.current().ok_or(ThreadEnded)?;
        batch.entries.push(Entry::ParkedNoted { lsn });
        Ok(count)
    }

    /// The same at an orderly end, when everything is acknowledged.
    pub(crate) async fn note_last_published(&mut self) -> Result<(), RunError> {
        let Some(mut lot) = self.lot.take() else {
            return Ok(());
        };
        let noted = self.note_published(&mut lot).await;
        self.lot = Some(lot);
        noted.map(drop)
    }

    /// Waits for a batch to fill.
    async fn until_current(&mut self) -> Result<(), RunError> {
        while !self.publishing.has_current() {
            let turn = self.publishing.next().await?;
            self.handle_turn(turn)?;
        }
        Ok(())
    }

    /// Waits until everything handed over is acknowledged; false if that takes too long, or a stop is asked for meanwhile.
    async fn until_drained(&mut self) -> Result<bool, RunError> {
        let mut deadline = self.clock.instant() + DRAIN_TIME_MAX;
        let mut stopping = false;
        while !self.publishing.is_drained() {
            if self.clock.instant() >= deadline {
                return Ok(false);
            }
            self.health.beat();
            self.send_status().await?;
            let wake_at = self.progress.next_deadline(self.clock.now()).min(deadline);
            tokio::select! {
                biased;
                () = self.shutdown.requested(), if !stopping => {
                    stopping = true;
                    deadline = deadline.min(self.clock.instant() + STOP_TIME_MAX);
                }
                turn = self.publishing.next() => self.handle_turn(turn?)?,
                () = self.clock.sleep_until(wake_at) => self.progress.handle_paused(self.clock.now()),
            }
        }
        self.hear_publisher()?;
        Ok(true)
    }
}

/// Rows that are looked at, at a time, and noted before there are more.
const ROWS_MAX: i64 = UNNOTED_ROWS_MAX as i64;

/// Time between two looks at rows that wait.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The same, where a look takes long.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);

/// For so long reading may stand still for the sake of parked rows.
const PASS_TIME_MAX: Duration = Duration::from_secs(2);

/// What the stream gets in between.
const PASS_GAP: Duration = Duration::from_millis(50);

/// How long acknowledgements are waited for before the stream goes on.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);
