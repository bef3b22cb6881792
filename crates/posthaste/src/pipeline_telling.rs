//! What the pipeline says of its rows: pauses, poison events and values that were lost, each counted and seldom logged.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::clock::Clock;
use crate::codes::Code;
use crate::feed::Feed;
use crate::parked_table::ParkedTable;
use crate::pipeline::Pipeline;
use crate::poison::Tally;

/// When what was said last.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    paused_since: Option<Instant>,
    /// When a poison event was last logged.
    poison_told_at: Option<Instant>,
    nulled_told_at: Option<Instant>,
}

impl<F: Feed, T: ParkedTable, C: Clock> Pipeline<'_, F, T, C> {
    /// Backpressure shows in the metrics as time during which nothing was read.
    pub(crate) fn count_pause(&mut self, reading: bool) {
        match (reading, self.telling.paused_since) {
            (false, None) => self.telling.paused_since = Some(self.clock.instant()),
            (true, Some(since)) => {
                self.metrics.paused(self.clock.since(since));
                self.telling.paused_since = None;
            }
            _ => {}
        }
    }

    /// Counts poison events, and says why the first of them is one; not of each, as there may be very many.
    pub(crate) fn tell_poison(&mut self) {
        let tally = self.intake.poison().take_tally();
        if tally == Tally::default() {
            return;
        }
        self.metrics.poison(tally);
        let is_due = self
            .telling
            .poison_told_at
            .is_none_or(|told_at| self.clock.since(told_at) >= TOLD_EVERY);
        let Some(reason) = self.intake.poison().take_told().filter(|_| is_due) else {
            return;
        };
        self.telling.poison_told_at = Some(self.clock.instant());
        self.metrics.error(reason.code);
        let action = self.intake.poison().rules().action.done();
        warn!(code = %reason.code, ?tally, "{action}: {}: {}", reason.code, reason.text);
    }

    /// Counts what was sent as something else than was asked for, and warns of values that are lost by it; not of each.
    pub(crate) fn tell_tolerated(&mut self) {
        let tolerated = self.intake.take_tolerated();
        self.metrics.tolerated(tolerated);
        if tolerated.rows_nulled == 0 {
            return;
        }
        let is_due = self
            .telling
            .nulled_told_at
            .is_none_or(|told_at| self.clock.since(told_at) >= TOLD_EVERY);
        let Some(column) = self.intake.nulled_column().filter(|_| is_due) else {
            return;
        };
        warn!(code = %Code::ValueNulled, column, "a value could not be converted and was sent as NULL, or as the column's default");
        self.telling.nulled_told_at = Some(self.clock.instant());
    }
}

/// Of poison events one is logged in this time, and of values sent as NULL; all are counted.
const TOLD_EVERY: Duration = Duration::from_secs(10);
