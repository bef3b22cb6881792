//! Backoff: how long to wait before trying again. Pure: the randomness comes in as a seed.

use std::time::Duration;

/// Exponential delays with full jitter on their upper half, and a ceiling.
///
/// The n-th delay lies between half and all of `initial × 2ⁿ`, never above `max`: half is kept so
/// that a retry is never immediate, the rest is random so that many instances do not march in step.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    attempt: u32,
    state: u64,
}

impl Backoff {
    /// A fresh backoff; equal seeds give equal delays.
    #[must_use]
    pub fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        Self {
            initial: initial.max(FLOOR),
            max: max.max(initial).max(FLOOR),
            attempt: 0,
            state: seed,
        }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let doubled = self
            .initial
            .saturating_mul(1 << self.attempt.min(DOUBLINGS_MAX));
        let full = doubled.min(self.max);
        self.attempt = self.attempt.saturating_add(1);
        let half = full / 2;
        half + half.mul_f64(self.random_fraction())
    }

    /// Called when things work again: the next failure starts with the shortest delay.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// How many delays were handed out since the last reset.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempt
    }

    /// `SplitMix64`: enough randomness to spread retries, and reproducible.
    fn random_fraction(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        f64::from(u32::try_from(mixed >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}

/// No retry comes sooner than half of this, whatever the configuration says.
const FLOOR: Duration = Duration::from_millis(10);

/// Doubling further could only overflow: the ceiling is long reached.
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_ceiling() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5), 7);
        for full_ms in [500, 1000, 2000, 4000, 5000, 5000, 5000] {
            let delay = backoff.next_delay();
            assert!(
                delay >= Duration::from_millis(full_ms / 2),
                "{delay:?} for {full_ms}"
            );
            assert!(
                delay <= Duration::from_millis(full_ms),
                "{delay:?} for {full_ms}"
            );
        }
    }

    #[test]
    fn the_random_part_is_that_of_splitmix64() {
        // So long that the last bit of the fraction shows.
        let full = Duration::from_secs(2_000_000);
        let mut backoff = Backoff::new(full, full, 0);
        // The first outputs of the published generator with seed 0, upper halves.
        for output in [0xe220_a839_u32, 0x6e78_9e6a, 0x06c4_5d18, 0xf88b_b8a8] {
            let fraction = f64::from(output) / f64::from(u32::MAX);
            let expected = full / 2 + (full / 2).mul_f64(fraction);
            let off_by = backoff.next_delay().abs_diff(expected);
            assert!(off_by < Duration::from_micros(100), "{off_by:?}");
        }
    }

    #[test]
    fn attempts_count_the_delays_since_the_last_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(9), 1);
        assert_eq!(backoff.attempts(), 0);
        backoff.next_delay();
        backoff.next_delay();
        assert_eq!(backoff.attempts(), 2);
        backoff.reset();
        assert_eq!(backoff.attempts(), 0);
    }

    #[test]
    fn a_reset_starts_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60), 1);
        for _ in 0..10 {
            backoff.next_delay();
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(100));
    }

    #[test]
    fn never_a_tight_loop_even_when_configured_to_zero() {
        let mut backoff = Backoff::new(Duration::ZERO, Duration::ZERO, 1);
        for _ in 0..100 {
            assert!(backoff.next_delay() >= FLOOR / 2);
        }
    }

    #[test]
    fn an_outage_of_ninety_seconds_takes_at_most_twenty_tries() {
        // Field problem B25 allows 20 connection tries in 90 s with the default 1 s → 10 s.
        for seed in 0..200 {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10), seed);
            let mut waited = Duration::ZERO;
            let mut tries = 0;
            while waited < Duration::from_secs(90) && tries <= 20 {
                waited += backoff.next_delay();
                tries += 1;
            }
            assert!(tries <= 20, "{tries} tries with seed {seed}");
        }
    }
}
