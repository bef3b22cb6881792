//! `PgTimestamp`: the protocol's clock reading. Converts to and from Unix time; nothing else.

/// Microseconds from 1970-01-01 to 2000-01-01, both UTC.
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;

/// A moment as the protocol writes it: microseconds since 2000-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgTimestamp(i64);

impl PgTimestamp {
    /// The moment this many microseconds after 2000-01-01 UTC.
    #[must_use]
    pub const fn new(micros: i64) -> Self {
        Self(micros)
    }

    /// The moment this many microseconds after 1970-01-01 UTC; the unrepresentable saturates.
    #[must_use]
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros.saturating_sub(POSTGRES_EPOCH_UNIX_MICROS))
    }

    /// Microseconds since 1970-01-01 UTC; the unrepresentable saturates.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.0.saturating_add(POSTGRES_EPOCH_UNIX_MICROS)
    }

    /// Microseconds since 2000-01-01 UTC, as they stand on the wire.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_epochs_are_thirty_years_apart() {
        assert_eq!(PgTimestamp::new(0).unix_micros(), 946_684_800_000_000);
        assert_eq!(
            PgTimestamp::from_unix_micros(0).as_i64(),
            -946_684_800_000_000
        );
    }

    #[test]
    fn conversion_is_lossless_for_real_times() {
        let now = 1_700_000_000_123_456;
        assert_eq!(PgTimestamp::from_unix_micros(now).unix_micros(), now);
    }

    #[test]
    fn the_ends_of_time_saturate() {
        assert_eq!(PgTimestamp::new(i64::MAX).unix_micros(), i64::MAX);
        assert_eq!(PgTimestamp::from_unix_micros(i64::MIN).as_i64(), i64::MIN);
    }
}
