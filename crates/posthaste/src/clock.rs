//! Now: one reading of both clocks, taken by the loop and handed to everything that decides.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pgoutput::PgTimestamp;

/// A moment: the monotonic clock for deadlines, the wall clock for what is written to others.
///
/// A jump of the wall clock can therefore never shorten or stretch a deadline.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For deadlines and ages.
    pub instant: Instant,
    /// For status updates and for latencies against the server's commit times.
    pub wall: PgTimestamp,
}

impl Now {
    /// Reads both clocks.
    #[must_use]
    pub fn read() -> Self {
        // A wall clock before 1970 is a broken clock; the epoch is as good a guess as any other.
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        Self {
            instant: Instant::now(),
            wall: PgTimestamp::from_unix_micros(micros),
        }
    }
}

/// Where the loop gets the time from, and what it waits for.
///
/// The binary has the system's. The simulation has one that it moves itself.
pub trait Clock: Clone + Debug {
    /// Reads both clocks.
    fn now(&self) -> Now;

    /// Waits until the monotonic clock has come to `at`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;

    /// Reads the monotonic clock.
    fn instant(&self) -> Instant {
        self.now().instant
    }

    /// How long ago that was, by the monotonic clock.
    fn since(&self, earlier: Instant) -> Duration {
        self.instant().saturating_duration_since(earlier)
    }
}

/// The system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now::read()
    }

    async fn sleep_until(&self, at: Instant) {
        tokio::time::sleep_until(at.into()).await;
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }
}
