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

/// What need not be in the topics, or not each time.
#[derive(Debug, Default)]
pub(crate) struct Exempt {
    /// Passed over, as the rules or a person say; or committed by a primary whose standby, promoted, never had it.
    pub(crate) given_up: HashSet<u64>,
    /// Was parked: a re-run of the stream leaves it out, since it does not come from the stream.
    pub(crate) parked: HashSet<u64>,
}

/// Checks loss, order, the re-run rule and the orderly stops; returns how many records were repeats.
pub(crate) fn check(
    events: impl Iterator<Item = Event>,
    lost_by_server: &[Event],
    brokers: &Brokers,
    orderly: &[OrderlyRun],
    exempt: &Exempt,
) -> u64 {
    let mut arrived = 0;
    let mut ids = HashMap::new();
    for event in events {
        let is_there = brokers.has(event.id);
        assert!(
            is_there || exempt.given_up.contains(&event.id) || brokers.has_dead_letter(event.id),
            "lost: {event:?}"
        );
        arrived += u64::from(is_there);
        ids.insert((event.key, event.version), event.id);
    }
    for event in lost_by_server {
        arrived += u64::from(brokers.has(event.id));
        ids.insert((event.key, event.version), event.id);
    }
    let may_be_missing = |id: &u64| exempt.given_up.contains(id) || brokers.has_dead_letter(*id);
    for (partition, log) in brokers.logs().iter().enumerate() {
        check_order(log, &ids, &may_be_missing, exempt);
        for run in orderly {
            let (before, after) = log.split_at(run.to[partition]);
            let published = before[run.from[partition]..].iter().map(|event| event.id);
            let published: HashSet<u64> = published.collect();
            // One that was delivered, came again and was refused then is repeated by whoever retries it.
            let again = after
                .iter()
                .find(|event| published.contains(&event.id) && !exempt.parked.contains(&event.id));
            assert!(again.is_none(), "repeated after an orderly stop: {again:?}");
        }
    }
    brokers.records() as u64 - arrived
}

/// Versions of a key count up one by one; a step back begins a re-run, which counts up one by one again. What was given up
/// may be missing; what was parked may be missing in a re-run.
fn check_order(
    log: &[Event],
    ids: &HashMap<(u64, u64), u64>,
    may_be_missing: &dyn Fn(&u64) -> bool,
    exempt: &Exempt,
) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut seen = HashSet::new();
    for event in log {
        let before = last.insert(event.key, event.version).unwrap_or(0);
        for version in before + 1..event.version {
            let id = ids.get(&(event.key, version)).copied().unwrap_or(0);
            assert!(
                may_be_missing(&id) || (exempt.parked.contains(&id) && seen.contains(&id)),
                "out of order: {event:?} after version {before}"
            );
        }
        seen.insert(event.id);
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

    fn check(versions: &[u64]) {
        let (ids, exempt) = (HashMap::new(), Exempt::default());
        check_order(&log(versions), &ids, &|_| false, &exempt);
    }

    #[test]
    fn a_rerun_is_allowed() {
        check(&[1, 2, 3, 2, 3, 4]);
    }

    #[test]
    fn a_swapped_pair_is_seen() {
        let swapped = std::panic::catch_unwind(|| check(&[1, 3, 2, 4]));
        assert!(swapped.is_err());
    }

    #[test]
    fn a_rerun_with_a_hole_is_seen() {
        let hole = std::panic::catch_unwind(|| check(&[1, 2, 3, 1, 3, 4]));
        assert!(hole.is_err());
    }
}
