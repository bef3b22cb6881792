//! What must hold of time: attempts come neither in a tight loop nor late, a stop ends soon, and the server hears of us.

use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the newest attempt of this process began.
    attempted_at: Option<Instant>,
    /// When it ended, if that says something of the pause before the next one.
    ended: Option<(Instant, Ended)>,
    /// Attempts in a row that got nowhere.
    in_vain: u32,
    /// How much time a stop has had.
    stopping: Option<Duration>,
    /// When the machine last stood still.
    stood_still_at: Option<Instant>,
    /// When the last status update was sent on the connection that there is.
    status_at: Option<Instant>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nobody answered, or the connection was lost at once.
    InVain,
    /// The position moved on, or the stream ran for long.
    Somewhere,
}

impl Pace {
    pub(crate) fn begin_process(&mut self) {
        *self = Self::default();
    }

    /// Pauses double from attempt to attempt, and begin anew after one that got somewhere.
    pub(crate) fn begin_attempt(&mut self, now: Instant) {
        assert_eq!(
            self.stopping, None,
            "an attempt although a stop is asked for"
        );
        if let Some(before) = self.attempted_at.replace(now) {
            let pause = now.saturating_duration_since(before);
            assert!(pause >= INITIAL / 2, "a tight loop: {pause:?}");
        }
        let Some((at, ended)) = self.ended.take() else {
            self.in_vain = 0;
            return;
        };
        let pause = now.saturating_duration_since(at);
        match ended {
            Ended::InVain => {
                let full = INITIAL.saturating_mul(1 << self.in_vain.min(10)).min(MAX);
                self.in_vain += 1;
                assert!(
                    pause >= full / 2,
                    "{pause:?} after {} in vain",
                    self.in_vain
                );
            }
            Ended::Somewhere => {
                self.in_vain = 0;
                assert!(pause <= INITIAL + TURN_MAX * 2, "a long pause: {pause:?}");
            }
        }
    }

    pub(crate) fn end_attempt(&mut self, now: Instant, ended: Ended) {
        self.ended = Some((now, ended));
    }

    /// A stop is asked for, and ends in bounded time.
    pub(crate) fn stop(&mut self) {
        self.stopping.get_or_insert_default();
    }

    pub(crate) fn tell_status(&mut self, now: Instant) {
        self.status_at = Some(now);
    }

    pub(crate) fn disconnect(&mut self) {
        self.status_at = None;
    }

    /// So much time passed, in which the process had its turn.
    pub(crate) fn pass(&mut self, now: Instant, passed: Duration) {
        if let Some(stopping) = &mut self.stopping {
            *stopping += passed;
            assert!(*stopping <= STOP_MAX, "a stop without an end");
        }
        if let Some(at) = self.status_at {
            let silence = now.saturating_duration_since(at);
            assert!(silence <= STATUS_MAX, "no status update for {silence:?}");
        }
    }

    /// The machine stood still: whatever was due comes late.
    pub(crate) fn stand_still(&mut self, now: Instant) {
        self.stood_still_at = Some(now);
        self.ended.take_if(|(_, ended)| *ended == Ended::Somewhere);
        self.status_at = self.status_at.map(|_| now);
    }

    /// Whether a limit may have passed in one step.
    pub(crate) fn has_jumped(&self, now: Instant) -> bool {
        self.stood_still_at
            .is_some_and(|at| now.saturating_duration_since(at) <= STOP_MAX)
    }
}

/// The shortest and the longest backoff of the configuration.
const INITIAL: Duration = Duration::from_millis(50);
pub(crate) const MAX: Duration = Duration::from_millis(800);

/// The most that passes in one turn of the world, unless nothing happens for long.
pub(crate) const TURN_MAX: Duration = Duration::from_millis(40);

/// The same while nobody answers.
pub(crate) const IDLE_TURN_MAX: Duration = Duration::from_secs(2);

/// 5 s each for the acknowledgements of parked rows, for a statement under way then, for `drain_timeout`, and for the last note
/// about parked rows.
const STOP_MAX: Duration = Duration::from_secs(4 * (5 + IDLE_TURN_MAX.as_secs()));

/// A status update each 10 s.
const STATUS_MAX: Duration = Duration::from_secs(10 + 2 * IDLE_TURN_MAX.as_secs());
