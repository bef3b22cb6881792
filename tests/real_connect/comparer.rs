//! Compares what Debezium made of the rows with what Posthaste made of them, and allows only what a rule names.

use std::collections::{BTreeMap, HashMap, VecDeque};

use anyhow::{Result, bail, ensure};

use crate::kafka_lines::Line;

/// A difference that may be, and has to be: a rule that matches nothing is a mistake of the test.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    /// `__debezium.context.runId` is a UUID of each side's own run.
    RunId,
    /// Debezium's task fails on these events; here they are sent, and the value ends with this, the payload's text.
    TaskFails(HashMap<String, String>),
    /// Without a column for it, a record's time is the one at which each side read the row: between these, in milliseconds.
    ReadTime(std::ops::RangeInclusive<i64>),
    /// Before Java 19, some numbers have last digits more than they need. They are the same number.
    OldJavaDigits,
}

const RUN_ID: &str = "__debezium.context.runId";
/// Differences after which the rest is not told.
const TOLD_MAX: usize = 20;

/// Compares record by record, in each partition in its order; both sides' topics have their prefix removed already.
///
/// # Errors
/// There is a difference that no rule allows, or a rule allowed nothing. The text names record and field.
pub(crate) fn compare(theirs: &[Line], ours: &[Line], rules: &[Rule]) -> Result<()> {
    let mut told = Vec::new();
    let mut uses = vec![0_usize; rules.len()];
    let (mut theirs, mut ours) = (by_place(theirs), by_place(ours));
    let places: Vec<_> = theirs.keys().chain(ours.keys()).cloned().collect();
    for place in places {
        let mut theirs = theirs.remove(&place).unwrap_or_default();
        for our in ours.remove(&place).unwrap_or_default() {
            if fails_there(our, rules, &mut uses) {
                continue;
            }
            match theirs.pop_front() {
                Some(their) => differences(their, our, rules, &mut uses, &mut told),
                None => told.push(format!("only ours: {}", name(our))),
            }
        }
        told.extend(
            theirs
                .iter()
                .map(|line| format!("only theirs: {}", name(line))),
        );
    }
    if !told.is_empty() {
        let first: Vec<&str> = told.iter().take(TOLD_MAX).map(String::as_str).collect();
        bail!("{} differences:\n{}", told.len(), first.join("\n"));
    }
    let idle = rules.iter().zip(uses).find(|(_, uses)| *uses == 0);
    ensure!(idle.is_none(), "a rule matched nothing: {idle:?}");
    Ok(())
}

fn by_place(lines: &[Line]) -> BTreeMap<(String, String), VecDeque<&Line>> {
    let mut places: BTreeMap<_, VecDeque<&Line>> = BTreeMap::new();
    for line in lines {
        let place = (line.topic.clone(), line.partition.clone());
        places.entry(place).or_default().push_back(line);
    }
    places
}

fn fails_there(our: &Line, rules: &[Rule], uses: &mut [usize]) -> bool {
    for (rule, uses) in rules.iter().zip(uses) {
        if let Rule::TaskFails(events) = rule
            && let Some(end) = events.get(our.header("id"))
            && our.value.ends_with(end.as_str())
        {
            *uses += 1;
            return true;
        }
    }
    false
}

fn differences(
    their: &Line,
    our: &Line,
    rules: &[Rule],
    uses: &mut [usize],
    told: &mut Vec<String>,
) {
    let read_within = were_read_within(their, our, rules, uses);
    let mut tell = |field: &str, theirs: &str, ours: &str| {
        if theirs == ours || (field == "timestamp" && read_within) {
            return;
        }
        let digits = rules
            .iter()
            .position(|rule| matches!(rule, Rule::OldJavaDigits));
        if let Some(uses) = digits.and_then(|at| uses.get_mut(at))
            && same_numbers(theirs, ours)
        {
            *uses += 1;
            return;
        }
        let (theirs, ours) = around(theirs, ours);
        told.push(format!(
            "{}: {field}\n  theirs …{theirs}…\n  ours   …{ours}…",
            name(their)
        ));
    };
    tell("key", &their.key, &our.key);
    tell("value", &their.value, &our.value);
    tell("timestamp", &their.timestamp, &our.timestamp);
    let names = |line: &Line| -> Vec<String> {
        line.headers.iter().map(|(name, _)| name.clone()).collect()
    };
    tell(
        "headers' names",
        &names(their).join(","),
        &names(our).join(","),
    );
    for ((name, theirs), (_, ours)) in their.headers.iter().zip(&our.headers) {
        if name != RUN_ID {
            tell(&format!("header {name}"), theirs, ours);
        }
    }
    let run_ids = |line: &Line| {
        let ids = line.headers.iter().filter(|(name, _)| name == RUN_ID);
        ids.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let of_run = rules.iter().position(|rule| matches!(rule, Rule::RunId));
    for (theirs, ours) in run_ids(their).iter().zip(&run_ids(our)) {
        match of_run.and_then(|at| uses.get_mut(at)) {
            Some(uses) if differ_in_uuid(theirs, ours) => *uses += 1,
            _ if theirs == ours => {}
            _ => told.push(format!("{}: header {RUN_ID}", name(their))),
        }
    }
}

fn were_read_within(their: &Line, our: &Line, rules: &[Rule], uses: &mut [usize]) -> bool {
    let time = |line: &Line| line.timestamp.strip_prefix("CreateTime:")?.parse().ok();
    for (rule, uses) in rules.iter().zip(uses) {
        if let Rule::ReadTime(range) = rule
            && let (Some(theirs), Some(ours)) = (time(their), time(our))
            && range.contains(&theirs)
            && range.contains(&ours)
        {
            *uses += 1;
            return true;
        }
    }
    false
}

/// Whether two texts differ in nothing but how they write numbers with a fraction.
fn same_numbers(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one, other);
    loop {
        let same = one.bytes().zip(other.bytes());
        let at = same.take_while(|(one, other)| one == other).count();
        if at == one.len() && at == other.len() {
            return true;
        }
        // Back to where the number begins that they differ in.
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'E' | '-');
        let head = one.get(..at).unwrap_or_default();
        let from = head.trim_end_matches(is_part).len();
        let (Some(rest), Some(others)) = (one.get(from..), other.get(from..)) else {
            return false;
        };
        let end = |text: &str| text.find(|c| !is_part(c)).unwrap_or(text.len());
        let (number, tail) = rest.split_at(end(rest));
        let (others_number, others_tail) = others.split_at(end(others));
        if !is_same_fraction(number, others_number) {
            return false;
        }
        (one, other) = (tail, others_tail);
    }
}

/// As a double or as a float; whole numbers are written in one way only.
fn is_same_fraction(one: &str, other: &str) -> bool {
    let doubles = (one.parse::<f64>(), other.parse::<f64>());
    let floats = (one.parse::<f32>(), other.parse::<f32>());
    let double = matches!(doubles, (Ok(one), Ok(other)) if one.to_bits() == other.to_bits());
    let float = matches!(floats, (Ok(one), Ok(other)) if one.to_bits() == other.to_bits());
    one.contains('.') && other.contains('.') && (double || float)
}

/// Whether both are the same but for the UUID at their ends; before and behind it stands what a converter adds.
fn differ_in_uuid(one: &str, other: &str) -> bool {
    let split = |text: &str| -> Option<(String, String)> {
        let inside = text.trim_end_matches(['"', '}']);
        let at = inside.len().checked_sub(UUID_LENGTH)?;
        let uuid = inside.get(at..)?;
        let is_uuid = uuid.bytes().filter(|byte| *byte == b'-').count() == 4
            && uuid
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        is_uuid.then(|| {
            (
                text.get(..at).unwrap_or_default().to_owned(),
                text.get(inside.len()..).unwrap_or_default().to_owned(),
            )
        })
    };
    split(one).is_some_and(|one| Some(one) == split(other))
}

const UUID_LENGTH: usize = 36;

fn name(line: &Line) -> String {
    format!("{} {} {}", line.topic, line.partition, line.header("id"))
}

/// The places where two texts part, with a little before.
fn around(one: &str, other: &str) -> (String, String) {
    let same = one.bytes().zip(other.bytes());
    let at = same.take_while(|(one, other)| one == other).count();
    let from = at.saturating_sub(40);
    let cut = |text: &str| -> String { text.chars().skip(from).take(120).collect() };
    (cut(one), cut(other))
}

/// Changes one byte in each of the five, one after the other, and demands that exactly this is told.
///
/// # Errors
/// A change was not told, or more than it.
pub(crate) fn tells_each_planted_byte(theirs: &[Line], rules: &[Rule]) -> Result<()> {
    // The last one: a record that is missing among others shifts all behind it.
    let at = theirs.len().saturating_sub(1);
    let kinds: [(&str, Plant); 6] = [
        (": key", |line| plant(&mut line.key)),
        (": value", |line| plant(&mut line.value)),
        (": timestamp", |line| plant(&mut line.timestamp)),
        (": header ", |line| {
            if let Some((_, value)) = line.headers.last_mut() {
                plant(value);
            }
        }),
        ("headers' names", |line| line.headers.reverse()),
        ("only ours", |line| plant(&mut line.partition)),
    ];
    for (field, change) in kinds {
        let mut changed = theirs.to_vec();
        let Some(line) = changed.get_mut(at) else {
            bail!("nothing to change");
        };
        change(line);
        let told = match compare(theirs, &changed, rules) {
            Ok(()) => bail!("a planted difference was not told: {field}"),
            Err(error) => error.to_string(),
        };
        ensure!(told.contains(field), "not as {field}: {told}");
    }
    Ok(())
}

type Plant = fn(&mut Line);

/// Another last character, and so one other byte.
fn plant(text: &mut String) {
    let last = text.pop();
    text.push(if last == Some('7') { '8' } else { '7' });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, value: &str, run_id: &str) -> Line {
        Line {
            topic: "t".into(),
            partition: "Partition:0".into(),
            timestamp: "CreateTime:1".into(),
            headers: vec![(RUN_ID.into(), run_id.into()), ("id".into(), id.into())],
            key: "k".into(),
            value: value.into(),
        }
    }

    const RUN: &str = "5f1d7e9c-0000-4000-8000-000000000001";

    #[test]
    fn a_run_id_may_differ_and_nothing_else() {
        let theirs = [line("1", "a", RUN)];
        let other = RUN.replace('1', "2");
        assert!(compare(&theirs, &[line("1", "a", &other)], &[Rule::RunId]).is_ok());
        assert!(compare(&theirs, &[line("1", "a", "no UUID")], &[Rule::RunId]).is_err());
        assert!(compare(&theirs, &[line("1", "b", &other)], &[Rule::RunId]).is_err());
        assert!(compare(&theirs, &[line("1", "a", &other)], &[]).is_err());
    }

    #[test]
    fn a_time_of_reading_lies_within_the_test() {
        let at = |time: i64| Line {
            timestamp: format!("CreateTime:{time}"),
            ..line("1", "a", RUN)
        };
        let rules = [Rule::ReadTime(10..=20)];
        assert!(compare(&[at(10)], &[at(20)], &rules).is_ok());
        assert!(compare(&[at(10)], &[at(21)], &rules).is_err());
        assert!(compare(&[at(9)], &[at(10)], &rules).is_err());
        assert!(compare(&[at(10)], &[at(20)], &[]).is_err());
    }

    #[test]
    fn digits_that_make_no_other_number_may_differ() {
        assert!(same_numbers(
            "{\"a\":1.81022420685553216E17,\"b\":2}",
            "{\"a\":1.810224206855532E17,\"b\":2}"
        ));
        assert!(same_numbers("2.09119163E12", "2.0911916E12"));
        assert!(!same_numbers("1.5", "1.6"));
        assert!(!same_numbers("10", "11"));
        assert!(!same_numbers("1.5x", "1.50"));
        assert!(!same_numbers("a", "b"));
    }

    #[test]
    fn a_uuid_is_found_behind_a_schema() {
        let (one, other) = (RUN, RUN.replace('1', "2"));
        let json = |uuid: &str| format!("{{\"schema\":1,\"payload\":\"{uuid}\"}}");
        assert!(differ_in_uuid(&json(one), &json(&other)));
        assert!(!differ_in_uuid(&json(one), one));
        assert!(!differ_in_uuid("x", "x"));
    }

    #[test]
    fn a_rule_that_matches_nothing_fails() {
        let lines = [line("1", "a", RUN)];
        let rule = Rule::TaskFails(HashMap::from([("2".into(), "[1]".into())]));
        let told = compare(&lines, &lines, &[rule]).unwrap_err().to_string();
        assert!(told.contains("matched nothing"), "{told}");
    }

    #[test]
    fn what_fails_there_has_its_text_here() {
        let theirs = [line("1", "a", RUN)];
        let ours = [line("2", "[1]", RUN), line("1", "a", RUN)];
        let rule = |text: &str| Rule::TaskFails(HashMap::from([("2".into(), text.into())]));
        assert!(compare(&theirs, &ours, &[rule("[1]")]).is_ok());
        assert!(compare(&theirs, &ours, &[rule("[2]")]).is_err());
    }

    #[test]
    fn each_planted_byte_is_told() {
        let lines: Vec<Line> = (0..5).map(|n| line(&n.to_string(), "a", RUN)).collect();
        tells_each_planted_byte(&lines, &[]).unwrap();
        assert!(compare(&lines, lines.get(1..).unwrap(), &[]).is_err());
    }
}
