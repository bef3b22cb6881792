//! A small seeded generator, so that a failed run can be repeated from the seed in its message.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64: enough randomness for sizes and moments, and nothing to install.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The seed of this run: `E2E_SEED` if it is set, else taken from the clock.
    pub fn run_seed() -> u64 {
        if let Some(seed) = std::env::var("E2E_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
        {
            return seed;
        }
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos().into())
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 for an empty range.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % bound).unwrap_or(0)
    }

    /// True in `percent` of the calls.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        let first: Vec<u64> = (0..5).map(|_| one.number()).collect();
        let second: Vec<u64> = (0..5).map(|_| two.number()).collect();
        assert_eq!(first, second);
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
