//! What went wrong in a world, and what became of it.

use crate::trouble::Trouble;

/// What can go wrong, or be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ConnectionCut,
    /// Nothing comes through any more, and nobody says so.
    ConnectionSilent,
    ServerRestart,
    ProcessKilled,
    BrokersDown,
    RecordRefused,
    ProducerDead,
    OrderlyStop,
    /// An attempt ends before anything is read.
    AttemptFails,
    /// A standby that lacks the newest transactions takes the server's place.
    Promotion,
    /// The process is killed and its state file is gone, as on another host.
    StateLost,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::ConnectionCut,
        Self::ConnectionSilent,
        Self::ServerRestart,
        Self::ProcessKilled,
        Self::BrokersDown,
        Self::RecordRefused,
        Self::ProducerDead,
        Self::OrderlyStop,
        Self::AttemptFails,
        Self::Promotion,
        Self::StateLost,
    ];
}

/// What happened in a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) repeats: u64,
    pub(crate) faults: [u64; Fault::ALL.len()],
    pub(crate) troubles: [u64; Trouble::ALL.len()],
    pub(crate) decisions: [u64; Self::DECISIONS.len()],
    /// In the order of [`Outcome::BRANCHES`].
    pub(crate) branches: [u64; Self::BRANCHES.len()],
}

impl Outcome {
    /// What the policy can decide.
    const DECISIONS: [&str; 9] = [
        "retry: the database, with backoff",
        "retry: the database, steadily",
        "retry: Kafka",
        "halt",
        "halt: a row",
        "halt: the position is not in the history",
        "refusal: search",
        "refusal: go on without the culprit",
        "refusal: stop",
    ];

    /// What can become of a poison event.
    pub(crate) const BRANCHES: [&str; 7] = [
        "parked",
        "parked behind",
        "published from the table",
        "refused again",
        "replaced by a dead letter",
        "passed over",
        "passed over by request",
    ];

    pub(crate) fn branches(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::BRANCHES.into_iter().zip(self.branches)
    }

    /// What the policy decided.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::DECISIONS.into_iter().zip(self.decisions)
    }

    pub(crate) fn troubles(&self) -> impl Iterator<Item = (Trouble, u64)> {
        Trouble::ALL.into_iter().zip(self.troubles)
    }

    pub(crate) fn all_faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    pub(crate) fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.repeats += other.repeats;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        for (sum, count) in self.troubles.iter_mut().zip(other.troubles) {
            *sum += count;
        }
        for (sum, count) in self.decisions.iter_mut().zip(other.decisions) {
            *sum += count;
        }
        for (sum, count) in self.branches.iter_mut().zip(other.branches) {
            *sum += count;
        }
    }
}
