//! What must hold of the topics in the end, whatever happened.

use std::collections::{HashMap, HashSet};

use crate::broker::Brokers;
use crate::server::Event;

/// The length of each log at one moment.
pub(crate) type Lengths = Vec<usize>;

/// A process that ended with an orderly stop: nothing that it published may come again. What a process before it had
/// published when it was killed may.
#[derive(Debug)]
pub(crate) struct OrderlyRun {
    pub(crate) from: Lengths,
    pub(crate) to: Lengths,
}

/// Checks loss, order, the re-run rule and the orderly stops; returns how many records were repeats.
pub(crate) fn check(
    events: impl Iterator<Item = Event>,
    brokers: &Brokers,
    orderly: &[OrderlyRun],
) -> u64 {
    let mut committed = 0;
    for event in events {
        committed += 1;
        assert!(brokers.has(event.id), "lost: {event:?}");
    }
    for (partition, log) in brokers.logs().iter().enumerate() {
        check_order(log);
        for run in orderly {
            let (before, after) = log.split_at(run.to[partition]);
            let published = before[run.from[partition]..].iter().map(|event| event.id);
            let published: HashSet<u64> = published.collect();
            let again = after.iter().find(|event| published.contains(&event.id));
            assert!(again.is_none(), "repeated after an orderly stop: {again:?}");
        }
    }
    brokers.records() as u64 - committed
}

/// Versions of a key count up one by one; a step back begins a re-run, which counts up one by one again.
fn check_order(log: &[Event]) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    for event in log {
        let before = last.insert(event.key, event.version).unwrap_or(0);
        assert!(
            event.version <= before + 1,
            "out of order: {event:?} after version {before}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(versions: &[u64]) -> Vec<Event> {
        let event = |version: &u64| Event {
            id: *version,
            key: 1,
            version: *version,
        };
        versions.iter().map(event).collect()
    }

    #[test]
    fn a_rerun_is_allowed() {
        check_order(&log(&[1, 2, 3, 2, 3, 4]));
    }

    #[test]
    fn a_swapped_pair_is_seen() {
        let swapped = std::panic::catch_unwind(|| check_order(&log(&[1, 3, 2, 4])));
        assert!(swapped.is_err());
    }

    #[test]
    fn a_rerun_with_a_hole_is_seen() {
        let hole = std::panic::catch_unwind(|| check_order(&log(&[1, 2, 3, 1, 3, 4])));
        assert!(hole.is_err());
    }
}
