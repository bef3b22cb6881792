//! Comparisons of short partitions, with and without rules.

use std::convert::Infallible;

use sink::ReadRecord;

use super::{Finding, Lone, Manner, Records, Side, compare};
use crate::diff_rules::{Kind, Rules};

/// A record of an event; its offset is given by its place.
fn event(id: &str) -> ReadRecord {
    ReadRecord {
        offset: 0,
        timestamp_ms: Some(id.bytes().map(i64::from).sum()),
        key: Some(b"k".to_vec()),
        payload: Some(format!("payload of {id}").into_bytes()),
        headers: vec![
            ("runId".to_owned(), Some(b"run".to_vec())),
            ("id".to_owned(), Some(id.as_bytes().to_vec())),
        ],
    }
}

fn events(ids: &str) -> Vec<ReadRecord> {
    ids.chars().map(|id| event(&id.to_string())).collect()
}

struct Listed(std::vec::IntoIter<ReadRecord>, i64);

impl Records for Listed {
    type Error = Infallible;

    fn next(&mut self) -> Result<Option<ReadRecord>, Infallible> {
        let record = self.0.next();
        self.1 += 1;
        Ok(record.map(|record| ReadRecord {
            offset: self.1 - 1,
            ..record
        }))
    }
}

/// The findings but for [`Finding::Same`], their number, and the rules that nothing needed.
fn found(
    left: Vec<ReadRecord>,
    right: Vec<ReadRecord>,
    rules: &[&str],
) -> (Vec<Finding>, usize, Vec<String>) {
    let kinds: Vec<Kind> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let mut rules = Rules::new(&kinds);
    let manner = Manner {
        identity: "id".to_owned(),
        show_values: true,
    };
    let mut findings = Vec::new();
    let mut same = 0;
    let Ok(()) = compare::<Infallible>(
        &mut Listed(left.into_iter(), 0),
        &mut Listed(right.into_iter(), 0),
        &manner,
        &mut rules,
        &mut |finding| match finding {
            Finding::Same => same += 1,
            other => findings.push(other),
        },
    );
    let unused = rules.unused().map(ToString::to_string).collect();
    (findings, same, unused)
}

/// Sides and offsets of records without a counterpart.
fn lone(left: &str, right: &str, rules: &[&str]) -> Vec<(Side, i64)> {
    let (findings, _, _) = found(events(left), events(right), rules);
    let lone = findings.into_iter().filter_map(|finding| match finding {
        Finding::Only(Lone { side, offset, .. }) => Some((side, offset)),
        Finding::Edge { .. } | Finding::Repeat => None,
        other => panic!("{other:?}"),
    });
    lone.collect()
}

#[track_caller]
fn check_field(change: impl FnOnce(&mut ReadRecord), field: &str, words: &str) {
    let mut right = events("abc");
    change(&mut right[1]);
    let (findings, same, _) = found(events("abc"), right, &[]);
    assert_eq!(same, 2);
    match findings.as_slice() {
        [
            Finding::Differs {
                left: 1,
                right: 1,
                fields,
            },
        ] => {
            assert_eq!(fields.len(), 1, "{fields:?}");
            assert_eq!(fields[0].field, field);
            assert!(fields[0].text.contains(words), "{fields:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_byte_in_each_field_is_found() {
    check_field(|record| record.key = Some(b"K".to_vec()), "key", "byte 0");
    check_field(
        |record| record.payload = Some(b"payload of B".to_vec()),
        "value",
        "byte 11",
    );
    check_field(|record| record.payload = None, "value", "null on the right");
    check_field(
        |record| record.headers[0].1 = Some(b"rum".to_vec()),
        "header",
        "`runId`: from byte 2",
    );
    check_field(
        |record| record.headers[0].0 = "runid".to_owned(),
        "header",
        "number 0 is `runId` on the left and `runid`",
    );
    check_field(|record| record.headers.swap(0, 1), "header", "number 0");
    check_field(
        |record| record.headers.push(("x".to_owned(), None)),
        "header",
        "2 of them on the left, 3",
    );
    check_field(
        |record| record.headers[1].1 = Some(b"B".to_vec()),
        "header",
        "`id`",
    );
    check_field(
        |record| record.timestamp_ms = Some(1),
        "timestamp",
        "98 on the left, 1",
    );
}

#[test]
fn what_rules_name_is_left_out_and_they_count_what_they_were_needed_for() {
    let mut right = events("ab");
    right[0].headers[0].1 = Some(b"other".to_vec());
    right[1].timestamp_ms = None;
    let (findings, same, unused) = found(
        events("ab"),
        right.clone(),
        &["header-value:runId", "timestamp", "edges", "header:x"],
    );
    assert_eq!((findings, same), (vec![], 2));
    assert_eq!(unused, ["edges", "header:x"]);
    right[1].headers.remove(0);
    let (findings, ..) = found(
        events("ab"),
        right.clone(),
        &["header-value:runId", "timestamp"],
    );
    assert_eq!(findings.len(), 1, "the header has to be there");
    let (findings, _, unused) = found(events("ab"), right, &["header:runId", "timestamp"]);
    assert_eq!((findings, unused), (vec![], vec![]));
}

#[test]
fn records_that_one_side_lacks_are_named_and_the_rest_is_compared() {
    assert_eq!(lone("abcdef", "abdef", &[]), [(Side::Left, 2)]);
    assert_eq!(lone("abdef", "abcdef", &[]), [(Side::Right, 2)]);
    assert_eq!(lone("abxcd", "abycd", &[]).len(), 2);
    assert_eq!(
        lone("abcd", "acbd", &[]),
        [(Side::Right, 1), (Side::Left, 2)],
        "another order"
    );
    assert_eq!(lone("ab", "", &[]), [(Side::Left, 0), (Side::Left, 1)]);
}

#[test]
fn edges_are_left_out_only_where_there_is_something_in_common() {
    let edges = &["edges"];
    assert_eq!(lone("abcdef", "cd", &[]).len(), 4);
    assert!(lone("abcdef", "cd", edges).is_empty());
    assert!(lone("abcd", "cdef", edges).is_empty());
    assert_eq!(lone("abcdef", "ace", edges).len(), 2, "not in the middle");
    assert_eq!(lone("abc", "", edges).len(), 3, "nothing in common");
    assert_eq!(
        lone("abx", "aby", edges).len(),
        2,
        "both go on, differently"
    );
}

#[test]
fn repeats_are_told_and_may_be_left_out() {
    let (findings, ..) = found(events("abcd"), events("ababcd"), &[]);
    let repeats = findings.iter().filter(|finding| {
        matches!(
            finding,
            Finding::Only(Lone {
                repeat: true,
                side: Side::Right,
                ..
            })
        )
    });
    assert_eq!(repeats.count(), 2, "{findings:?}");
    let (findings, same, unused) = found(events("abcd"), events("ababcd"), &["repeats"]);
    assert_eq!(findings, [Finding::Repeat, Finding::Repeat]);
    assert_eq!((same, unused), (4, vec![]));
}

#[test]
fn records_without_identity_are_compared_by_their_place() {
    let plain = |texts: &[&str]| -> Vec<ReadRecord> {
        let record = |text: &&str| ReadRecord {
            headers: Vec::new(),
            ..event(text)
        };
        texts.iter().map(record).collect()
    };
    let (findings, same, _) = found(plain(&["a", "b"]), plain(&["a", "c"]), &[]);
    assert_eq!((findings.len(), same), (1, 1));
    let (findings, ..) = found(plain(&["a"]), plain(&["a", "b"]), &[]);
    assert!(matches!(findings.as_slice(), [Finding::Only(_)]));
}

#[test]
fn a_long_stretch_that_one_side_lacks_does_not_need_memory() {
    let many = |range: std::ops::Range<u32>| -> Vec<ReadRecord> {
        let record = |n: u32| ReadRecord {
            timestamp_ms: Some(i64::from(n)),
            ..event(&n.to_string())
        };
        range.map(record).collect()
    };
    let (findings, same, _) = found(many(0..30_000), many(25_000..30_000), &["edges"]);
    assert_eq!(same, 5_000);
    let left_out: u64 = findings
        .iter()
        .map(|finding| match finding {
            Finding::Edge { records } => *records,
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(left_out, 25_000);
}
