//! What came of all rounds: the counts of the last line.

use std::collections::BTreeMap;
use std::time::Instant;

use e2e::checker::Kind;

use crate::Delivery;
use crate::round::Outcome;

/// Sums over the rounds.
pub(crate) struct Summary {
    seed: u64,
    delivery: Delivery,
    began: Instant,
    rounds: usize,
    failed: usize,
    committed: usize,
    duplicates: usize,
    faults: BTreeMap<&'static str, usize>,
    wrong: BTreeMap<Kind, usize>,
}

impl Summary {
    pub(crate) fn new(seed: u64, delivery: Delivery) -> Self {
        Self {
            seed,
            delivery,
            began: Instant::now(),
            rounds: 0,
            failed: 0,
            committed: 0,
            duplicates: 0,
            faults: BTreeMap::new(),
            wrong: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.rounds += 1;
        self.failed += usize::from(!outcome.held());
        self.committed += outcome.ledger.len();
        self.duplicates += outcome.verdict.repeats;
        for fault in &outcome.faults {
            *self.faults.entry(fault.name()).or_default() += 1;
        }
        for fault in &outcome.verdict.faults {
            *self.wrong.entry(fault.kind).or_default() += 1;
        }
    }

    pub(crate) fn held(&self) -> bool {
        self.failed == 0
    }

    /// How often each fault was caused.
    pub(crate) fn faults_line(&self) -> String {
        let counts: Vec<String> = self
            .faults
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        format!("faults: {}", counts.join(", "))
    }

    pub(crate) fn line(&self) -> String {
        let wrong = |kind| self.wrong.get(&kind).copied().unwrap_or(0);
        format!(
            "{}: seed {}, {} rounds in {} s, {} faults, {} events; missing {}, unknown {}, out of order {}, \
             torn re-runs {}, duplicates {}; {} rounds failed",
            self.delivery.name(),
            self.seed,
            self.rounds,
            self.began.elapsed().as_secs(),
            self.faults.values().sum::<usize>(),
            self.committed,
            wrong(Kind::Missing),
            wrong(Kind::Unknown),
            wrong(Kind::Order),
            wrong(Kind::Torn),
            self.duplicates,
            self.failed,
        )
    }
}
