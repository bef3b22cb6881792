//! Now: one reading of both clocks, taken by the loop and handed to everything that decides.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
