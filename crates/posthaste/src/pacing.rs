//! Pacing: how often batches are handed over, told by the time alone (docs/decisions/0010).

use std::time::{Duration, Instant};

/// After a pause what was read goes on at once; in a burst it waits for its neighbours.
///
/// Each hand-over wakes the other thread, and a server that sends a transaction at a time would otherwise make the two
/// threads take turns for every one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pacing {
    gap: Duration,
    handed_over_at: Option<Instant>,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            gap: HAND_OVER_GAP,
            handed_over_at: None,
        }
    }
}

impl Pacing {
    /// With a gap that no test outlasts.
    #[cfg(test)]
    pub(crate) fn with_gap(gap: Duration) -> Self {
        Self {
            gap,
            ..Self::default()
        }
    }

    /// Whether a batch that is not full may go.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due_at().is_none_or(|at| now >= at)
    }

    /// When the next one may go; `None` for at once.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.handed_over_at.map(|at| at + self.gap)
    }

    /// A batch went.
    pub(crate) fn handed_over(&mut self, now: Instant) {
        self.handed_over_at = Some(now);
    }
}

/// Batches are handed over at most once in this time, unless they are full.
pub(crate) const HAND_OVER_GAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_burst_one_hand_over_is_due_in_a_gap_and_after_a_pause_it_is_due_at_once() {
        let began = Instant::now();
        let mut pacing = Pacing::default();
        let mut count = 0;
        // 10 000 transactions, one each 10 microseconds: 100 gaps.
        for n in 0..10_000 {
            let now = began + Duration::from_micros(10) * n;
            if pacing.is_due(now) {
                pacing.handed_over(now);
                count += 1;
            }
        }
        assert_eq!(count, 100);
        let later = began + Duration::from_secs(1);
        assert!(pacing.is_due(later));
        pacing.handed_over(later);
        assert_eq!(pacing.due_at(), Some(later + HAND_OVER_GAP));
        assert!(!pacing.is_due(later + HAND_OVER_GAP / 2));
    }
}
