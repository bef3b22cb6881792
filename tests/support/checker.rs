//! Compares what was read with what was committed, by event id: missing, unknown, repeated, order per key.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Result, bail};

use crate::consumer::Record;
use crate::ledger::{Event, Ledger};

/// How many faults of a run are written out; the rest is only counted.
const FAULTS_SHOWN_MAX: usize = 8;

/// Whether the run that is checked may have repeated events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Nothing happened that excuses a repeat.
    Forbidden,
    /// A crash or a lost connection happened: a repeat is allowed if it re-runs the whole stretch, that
    /// is, after a repeated event every later event of its key follows again in order.
    Reruns,
}

/// The counts of a run that held its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Distinct events read, equal to the events committed.
    pub events: usize,
    /// Records beyond the first of their event.
    pub repeats: usize,
}

/// What is wrong with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A committed event that was not read.
    Missing,
    /// A record whose event nobody committed, or under another key, or in two partitions.
    Unknown,
    /// A first occurrence before one that was committed earlier.
    Order,
    /// A repeat that does not re-run its whole stretch.
    Torn,
    /// A repeat where none is allowed.
    Repeat,
}

/// One thing that is wrong with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: Kind,
    /// The event or the key, and what was due.
    pub text: String,
}

/// What was found in a run, good or bad.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Distinct events read that were committed.
    pub events: usize,
    /// Records beyond the first of their event.
    pub repeats: usize,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

impl Verdict {
    /// How many faults of this kind there are.
    pub fn count(&self, kind: Kind) -> usize {
        self.faults
            .iter()
            .filter(|fault| fault.kind == kind)
            .count()
    }

    fn add(&mut self, kind: Kind, text: String) {
        self.faults.push(Fault { kind, text });
    }
}

/// Checks that exactly the committed events were read, each key in commit order.
///
/// # Errors
/// Names the missing, unknown, repeated and misplaced events.
pub fn check(ledger: &Ledger, records: &[Record], repeats: Repeats) -> Result<Summary> {
    let verdict = examine(ledger, records, repeats);
    if verdict.faults.is_empty() {
        return Ok(Summary {
            events: verdict.events,
            repeats: verdict.repeats,
        });
    }
    let shown: Vec<&str> = verdict
        .faults
        .iter()
        .take(FAULTS_SHOWN_MAX)
        .map(|fault| fault.text.as_str())
        .collect();
    bail!(
        "{} faults; committed {}, read {} records of {} events:\n  {}",
        verdict.faults.len(),
        ledger.len(),
        records.len(),
        verdict.events,
        shown.join("\n  ")
    )
}

/// As [`check`], for those who count.
pub fn examine(ledger: &Ledger, records: &[Record], repeats: Repeats) -> Verdict {
    let mut verdict = Verdict::default();
    let mut seen = HashSet::new();
    let keys = by_key(ledger, records, &mut seen, &mut verdict);
    for (id, event) in ledger.iter().filter(|(id, _)| !seen.contains(id)) {
        let Event { key, version } = event;
        verdict.add(
            Kind::Missing,
            format!("missing: {id} (key {key}, version {version})"),
        );
    }
    let expected = versions_by_key(ledger);
    for (key, read) in &keys {
        let versions = expected.get(key).map_or(&[][..], Vec::as_slice);
        check_key(key, versions, read, repeats, &mut verdict);
    }
    verdict.events = seen.len();
    verdict.repeats = records.len().saturating_sub(seen.len());
    verdict
}

/// The versions of each key as they stand in its partition, in the order of offsets.
fn by_key<'a>(
    ledger: &Ledger,
    records: &'a [Record],
    seen: &mut HashSet<&'a str>,
    verdict: &mut Verdict,
) -> BTreeMap<&'a str, Vec<i64>> {
    let mut places: HashMap<&str, (&str, i32)> = HashMap::new();
    let mut read: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for record in records {
        let (id, key) = (record.id(), record.key_text());
        let Some(event) = ledger.get(id) else {
            verdict.add(
                Kind::Unknown,
                format!("unknown: {id} (key {key}) was never committed"),
            );
            continue;
        };
        seen.insert(id);
        if event.key != key {
            verdict.add(
                Kind::Unknown,
                format!("wrong key: {id} has {key}, not {}", event.key),
            );
            continue;
        }
        let place = (record.topic.as_str(), record.partition);
        if *places.entry(key).or_insert(place) != place {
            verdict.add(
                Kind::Unknown,
                format!("key {key} stands in more than one partition"),
            );
        }
        read.entry(key)
            .or_default()
            .push((record.offset, event.version));
    }
    read.into_iter()
        .map(|(key, mut versions)| {
            versions.sort_unstable();
            (
                key,
                versions.into_iter().map(|(_, version)| version).collect(),
            )
        })
        .collect()
}

/// The committed versions of each key, ascending.
fn versions_by_key(ledger: &Ledger) -> HashMap<&str, Vec<i64>> {
    let mut versions: HashMap<&str, Vec<i64>> = HashMap::new();
    for (_, event) in ledger.iter() {
        versions.entry(&event.key).or_default().push(event.version);
    }
    for list in versions.values_mut() {
        list.sort_unstable();
    }
    versions
}

/// Each record of a key is the successor of the one before it, or an allowed jump back.
///
/// A first occurrence can only be reached as a successor, so this covers the order of first occurrences;
/// and a jump back can only be left by successors, so the re-run is whole if it ends at the last version.
fn check_key(key: &str, expected: &[i64], read: &[i64], repeats: Repeats, verdict: &mut Verdict) {
    let mut previous: Option<usize> = None;
    let mut furthest: Option<usize> = None;
    for version in read {
        let Ok(place) = expected.binary_search(version) else {
            continue;
        };
        let follows = previous.map_or(0, |index| index + 1);
        let first = furthest.is_none_or(|index| place > index);
        if place != follows && first {
            verdict.add(
                Kind::Order,
                format!(
                    "order: key {key} has version {version} where {:?} was due",
                    expected.get(follows)
                ),
            );
        } else if !first && repeats == Repeats::Forbidden {
            verdict.add(Kind::Repeat, format!("repeat: key {key} version {version}"));
        } else if place > follows {
            verdict.add(
                Kind::Torn,
                format!(
                    "torn re-run: key {key} goes on at version {version}, not {:?}",
                    expected.get(follows)
                ),
            );
        }
        previous = Some(place);
        furthest = furthest.max(previous);
    }
    if previous < furthest && repeats == Repeats::Reruns {
        verdict.add(
            Kind::Torn,
            format!("torn re-run: key {key} ends before its last version was repeated"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(versions: std::ops::RangeInclusive<i64>) -> Ledger {
        let mut ledger = Ledger::default();
        for version in versions {
            ledger.insert(format!("k-{version}"), "k".into(), version);
        }
        ledger
    }

    fn read(versions: &[i64]) -> Vec<Record> {
        versions
            .iter()
            .zip(0..)
            .map(|(version, offset)| Record::sample(&format!("k-{version}"), "k", 0, offset))
            .collect()
    }

    fn verdict(committed: i64, versions: &[i64], repeats: Repeats) -> String {
        match check(&ledger(1..=committed), &read(versions), repeats) {
            Ok(summary) => format!("{} events, {} repeats", summary.events, summary.repeats),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn everything_once_and_in_order_passes() {
        assert_eq!(
            verdict(4, &[1, 2, 3, 4], Repeats::Forbidden),
            "4 events, 0 repeats"
        );
        assert_eq!(
            verdict(4, &[1, 2, 3, 4], Repeats::Reruns),
            "4 events, 0 repeats"
        );
    }

    #[test]
    fn a_swapped_pair_fails() {
        for repeats in [Repeats::Forbidden, Repeats::Reruns] {
            assert!(verdict(4, &[1, 3, 2, 4], repeats).contains("order: key k has version 3"));
        }
    }

    #[test]
    fn a_swapped_first_pair_fails() {
        assert!(verdict(2, &[2, 1], Repeats::Reruns).contains("order: key k has version 2"));
    }

    #[test]
    fn a_missing_id_fails() {
        for repeats in [Repeats::Forbidden, Repeats::Reruns] {
            assert!(verdict(4, &[1, 2, 3], repeats).contains("missing: k-4"));
            assert!(verdict(4, &[1, 2, 4], repeats).contains("missing: k-3"));
        }
    }

    #[test]
    fn a_key_that_is_wholly_missing_fails() {
        assert!(verdict(2, &[], Repeats::Reruns).contains("2 faults"));
    }

    #[test]
    fn an_unknown_id_fails() {
        assert!(verdict(2, &[1, 2, 3], Repeats::Reruns).contains("unknown: k-3"));
    }

    #[test]
    fn a_repeat_fails_where_repeats_are_not_allowed() {
        assert!(verdict(2, &[1, 2, 2], Repeats::Forbidden).contains("repeat: key k version 2"));
    }

    #[test]
    fn a_rerun_of_the_whole_stretch_passes() {
        assert_eq!(
            verdict(4, &[1, 2, 3, 2, 3, 4], Repeats::Reruns),
            "4 events, 2 repeats"
        );
        assert_eq!(
            verdict(3, &[1, 2, 1, 1, 2, 3, 3], Repeats::Reruns),
            "3 events, 4 repeats"
        );
    }

    #[test]
    fn a_repeat_that_does_not_rerun_the_stretch_fails() {
        assert!(verdict(4, &[1, 2, 3, 1, 3, 4], Repeats::Reruns).contains("torn re-run"));
        assert!(verdict(4, &[1, 2, 3, 1, 4], Repeats::Reruns).contains("order: key k"));
    }

    #[test]
    fn a_rerun_that_ends_early_fails() {
        assert!(verdict(3, &[1, 2, 3, 1, 2], Repeats::Reruns).contains("ends before"));
    }

    #[test]
    fn a_record_under_another_key_fails() {
        let mut records = read(&[1, 2]);
        records[1].key = Some(b"other".to_vec());
        let error = check(&ledger(1..=2), &records, Repeats::Reruns).unwrap_err();
        assert!(error.to_string().contains("wrong key: k-2"));
    }

    #[test]
    fn a_key_in_two_partitions_fails() {
        let mut records = read(&[1, 2]);
        records[1].partition = 1;
        let error = check(&ledger(1..=2), &records, Repeats::Reruns).unwrap_err();
        assert!(error.to_string().contains("more than one partition"));
    }

    #[test]
    fn order_is_taken_from_offsets_not_from_arrival() {
        let mut records = read(&[1, 2, 3]);
        records.swap(0, 2);
        assert!(check(&ledger(1..=3), &records, Repeats::Forbidden).is_ok());
    }
}
