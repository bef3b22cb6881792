//! Which topics are created how: Kafka Connect's groups (`topic.creation.*`). Nothing here talks to a broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::java_regex::JavaRegex;
use super::table_filter::{compiled_list, passes};
use crate::error::ConnectConfigError;

/// Topics that are created alike.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicGroup {
    /// Its name; `default` for the one that Connect puts last.
    pub name: String,
    /// Java regular expressions, compared in full; a topic belongs to the group if one of them matches…
    pub include: Vec<String>,
    /// …and none of these.
    pub exclude: Vec<String>,
    /// -1: as the broker does it.
    pub partitions: i32,
    /// -1: as the broker does it.
    pub replication_factor: i16,
    /// Options of the topic: `cleanup.policy` and the like.
    pub options: BTreeMap<String, String>,
}

impl Default for TopicGroup {
    fn default() -> Self {
        Self {
            name: String::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            partitions: -1,
            replication_factor: -1,
            options: BTreeMap::new(),
        }
    }
}

/// The groups in the order of asking, their patterns compiled.
#[derive(Debug, Clone, Default)]
pub struct TopicGroups {
    groups: Vec<(TopicGroup, Vec<JavaRegex>, Vec<JavaRegex>)>,
}

impl TopicGroups {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// A pattern that Java would not take, or that has no counterpart here.
    pub fn new(groups: &[TopicGroup]) -> Result<Self, ConnectConfigError> {
        let compiled = |group: &TopicGroup| {
            let list = |name: &str, patterns: &[String]| {
                let key = format!("topic_creation.{}.{name}", group.name);
                compiled_list(&key, patterns, JavaRegex::new)
            };
            let include = list("include", &group.include)?;
            let exclude = list("exclude", &group.exclude)?;
            Ok((group.clone(), include, exclude))
        };
        let groups = groups.iter().map(compiled).collect::<Result<_, _>>()?;
        Ok(Self { groups })
    }

    /// The first group that takes the topic. Without one it is left to the broker.
    #[must_use]
    pub fn group_of(&self, topic: &str) -> Option<&TopicGroup> {
        let takes = |(_, include, exclude): &&(_, Vec<JavaRegex>, Vec<JavaRegex>)| {
            !include.is_empty() && passes(include, exclude, topic)
        };
        self.groups.iter().find(takes).map(|(group, ..)| group)
    }

    /// Whether no topic is created.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, include: &[&str], exclude: &[&str]) -> TopicGroup {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        TopicGroup {
            name: name.to_owned(),
            include: list(include),
            exclude: list(exclude),
            ..TopicGroup::default()
        }
    }

    #[test]
    fn the_first_group_that_takes_a_topic_has_it() {
        let groups = [
            group("none", &[], &[]),
            group("compacted", &[r"evt\.account\..*", "x"], &[r".*\.log"]),
            group("default", &[".*"], &[]),
        ];
        let groups = TopicGroups::new(&groups).unwrap();
        let name = |topic: &str| groups.group_of(topic).unwrap().name.as_str();
        assert_eq!(name("evt.account.opened"), "compacted");
        assert_eq!(name("evt.account.log"), "default");
        // Compared in full.
        assert_eq!(name("my.evt.account.opened"), "default");
        assert_eq!(name("x"), "compacted");
        assert!(TopicGroups::default().group_of("x").is_none());
    }

    #[test]
    fn a_pattern_that_cannot_be_is_told_with_its_group() {
        let error = TopicGroups::new(&[group("a", &["("], &[])]).unwrap_err();
        assert!(
            error.to_string().contains("topic_creation.a.include"),
            "{error}"
        );
    }
}
