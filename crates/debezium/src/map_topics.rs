//! From `topic.creation.*` to the groups of topics that are created.

use std::collections::BTreeMap;

use router::connect::TopicGroup;

use crate::finding::Verdict;
use crate::map_connect::unbalanced;
use crate::providers::list;
use crate::reader::{File, Reader};

const PREFIX: &str = "topic.creation.";
const OWN: [&str; 4] = ["include", "exclude", "partitions", "replication.factor"];

/// The groups, none unless Connect would use them: `default` has to be complete, and the worker must not forbid it.
pub(crate) fn topic_creation(reader: &mut Reader) -> Vec<TopicGroup> {
    let keys: Vec<_> = reader
        .keys(File::Connector)
        .into_iter()
        .filter(|key| key.starts_with(PREFIX))
        .collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let forbidden = reader
        .value(File::Worker, "topic.creation.enable")
        .is_some_and(|value| value.text.trim().eq_ignore_ascii_case("false"));
    if forbidden {
        return ignore_all(reader, &keys, "the worker has topic.creation.enable=false");
    }
    let partitions = reader
        .get("topic.creation.default.partitions")
        .map(str::to_owned);
    let factor = reader
        .get("topic.creation.default.replication.factor")
        .map(str::to_owned);
    match (partitions, factor) {
        (None, None) => ignore_all(
            reader,
            &keys,
            "without topic.creation.default.partitions and .replication.factor Connect creates no topics",
        ),
        (Some(_), None) => missing(reader, "topic.creation.default.replication.factor"),
        (None, Some(_)) => missing(reader, "topic.creation.default.partitions"),
        (Some(_), Some(_)) => groups(reader, &keys),
    }
}

fn ignore_all(reader: &mut Reader, keys: &[String], why: &str) -> Vec<TopicGroup> {
    for key in keys {
        reader.say(key, Verdict::Ignored, why);
    }
    Vec::new()
}

fn missing(reader: &mut Reader, key: &str) -> Vec<TopicGroup> {
    reader.say(
        key,
        Verdict::Refused,
        "is missing beside its neighbour, which Connect refuses; write it, -1 for the broker's own",
    );
    Vec::new()
}

fn groups(reader: &mut Reader, keys: &[String]) -> Vec<TopicGroup> {
    let names = list(reader.get("topic.creation.groups").unwrap_or_default());
    if names.iter().any(|name| name == "default") {
        reader.refuse(
            "topic.creation.groups",
            "names `default`, which is always there and comes last; remove it from the list",
        );
    }
    let default = group(reader, keys, "default", None);
    let mut groups: Vec<_> = names
        .iter()
        .filter(|name| *name != "default")
        .map(|name| group(reader, keys, name, Some(&default)))
        .collect();
    groups.push(default);
    groups
}

/// A group; what it does not say of partitions and replicas is as in `default`.
fn group(
    reader: &mut Reader,
    keys: &[String],
    name: &str,
    default: Option<&TopicGroup>,
) -> TopicGroup {
    let prefix = format!("{PREFIX}{name}.");
    let include = match default {
        None => vec![".*".to_owned()],
        Some(_) => patterns(reader, &format!("{prefix}include"), true),
    };
    let options: BTreeMap<_, _> = keys
        .iter()
        .filter_map(|key| Some((key, key.strip_prefix(&prefix)?)))
        .filter(|(_, option)| !OWN.contains(option))
        .filter_map(|(key, option)| Some((option.to_owned(), reader.get(key)?.to_owned())))
        .collect();
    TopicGroup {
        name: name.to_owned(),
        include,
        exclude: patterns(reader, &format!("{prefix}exclude"), false),
        partitions: count(
            reader,
            &format!("{prefix}partitions"),
            default.map_or(-1, |default| default.partitions),
        ),
        replication_factor: count(
            reader,
            &format!("{prefix}replication.factor"),
            default.map_or(-1, |default| default.replication_factor),
        ),
        options,
    }
}

fn patterns(reader: &mut Reader, key: &str, needed: bool) -> Vec<String> {
    let patterns = list(reader.get(key).unwrap_or_default());
    if patterns.is_empty() && needed {
        reader.say(
            key,
            Verdict::Refused,
            "is missing, so that the group takes no topic; write its patterns, or \
            remove the group from topic.creation.groups",
        );
    } else if patterns.iter().any(|pattern| unbalanced(pattern)) {
        reader.refuse(key, "has a pattern whose brackets do not close; correct it");
    }
    patterns
}

/// A number of partitions or replicas: from 1 on, or -1.
fn count<T: TryFrom<i64> + Copy>(reader: &mut Reader, key: &str, default: T) -> T {
    let Some(text) = reader.get(key).map(str::to_owned) else {
        return default;
    };
    // What is no number has been refused already.
    let Ok(number) = text.parse::<i64>() else {
        return default;
    };
    match T::try_from(number) {
        Ok(count) if number != 0 => count,
        _ => {
            reader.refuse(
                key,
                "is no such number; write one from 1 on, or -1 for the broker's own",
            );
            default
        }
    }
}
