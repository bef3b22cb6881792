//! Stage 5 of 9, its settings where a Connect configuration is followed: what a Debezium connector would be told.
//!
//! Names are Debezium's, with underscores for dots. Defaults are Debezium's too: whatever is not said behaves as there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::connect_types::TypeModes;
use super::event_router_config::EventRouterConfig;
use super::java_regex::JavaRegex;
use super::topic_creation::TopicGroup;
use crate::table::TableName;

/// What the Connect router is told.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectConfig {
    /// The version whose behaviour is followed where versions differ.
    pub debezium_version: DebeziumVersion,
    /// `topic.prefix`: the first part of a record's topic before it is routed, and of its schema's name.
    pub topic_prefix: String,
    /// Which tables are captured.
    pub tables: TableFilter,
    /// The options of the Event Router, wherever it stands in `transforms`.
    pub event_router: EventRouterConfig,
    /// `key.converter`.
    pub key_converter: ConverterConfig,
    /// `value.converter`.
    pub value_converter: ConverterConfig,
    /// `header.converter`.
    pub header_converter: ConverterConfig,
    /// How columns become values.
    pub types: TypeModes,
    /// The headers that say which connector a record came through.
    pub context_headers: ContextHeaders,
    /// The transforms in their order. The Event Router is one of them; without it nothing is published.
    pub transforms: Vec<TransformConfig>,
    /// `predicates`, by their aliases.
    pub predicates: BTreeMap<String, PredicateConfig>,
    /// Which logical messages are taken; `None`: none, and the stream need not carry them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageConfig>,
    /// `errors.tolerance=all`: a row that makes no record is passed over and counted. Not judged here: whoever calls
    /// the router does.
    pub skip_errors: bool,
    /// How topics are created that do not exist, in the order of asking. A topic that no group takes is left to the
    /// broker. Only looked through here: whoever owns the producer creates them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topic_creation: Vec<TopicGroup>,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            debezium_version: DebeziumVersion::default(),
            topic_prefix: String::new(),
            tables: TableFilter::default(),
            event_router: EventRouterConfig::default(),
            key_converter: ConverterConfig::String {},
            value_converter: ConverterConfig::String {},
            header_converter: ConverterConfig::Simple {},
            types: TypeModes::default(),
            context_headers: ContextHeaders::default(),
            transforms: vec![TransformConfig::of(Transform::EventRouter {})],
            predicates: BTreeMap::new(),
            messages: None,
            skip_errors: false,
            topic_creation: Vec::new(),
        }
    }
}

/// A version of Debezium: `"3.6.1"`. A trailing `.Final` is read and forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct DebeziumVersion {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
    /// The third.
    pub patch: u16,
}

impl DebeziumVersion {
    /// `major.minor.patch`.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }
}

impl Default for DebeziumVersion {
    fn default() -> Self {
        Self::new(3, 6, 1)
    }
}

impl std::fmt::Display for DebeziumVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl From<DebeziumVersion> for String {
    fn from(version: DebeziumVersion) -> Self {
        version.to_string()
    }
}

impl std::str::FromStr for DebeziumVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        let plain = text.trim().trim_end_matches(".Final");
        let mut parts = plain.split('.').map(str::parse::<u16>);
        let mut part = || match parts.next() {
            None => Ok(0),
            Some(number) => number.map_err(|_| ParseVersionError),
        };
        let version = Self::new(part()?, part()?, part()?);
        if parts.next().is_some() || plain.is_empty() {
            return Err(ParseVersionError);
        }
        Ok(version)
    }
}

impl TryFrom<String> for DebeziumVersion {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, ParseVersionError> {
        text.parse()
    }
}

/// The text is no version of Debezium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a version of Debezium is written like 3.6.1")]
pub struct ParseVersionError;

/// `table.include.list` and its neighbours. A table is captured when each of the lists that are not empty lets it
/// pass, or when it is one of `names`.
///
/// The lists hold Java regular expressions, compared in full and without regard to case with `schema.table`, or with
/// the schema alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableFilter {
    /// `table.include.list`.
    pub include: Vec<String>,
    /// `table.exclude.list`.
    pub exclude: Vec<String>,
    /// `schema.include.list`.
    pub schema_include: Vec<String>,
    /// `schema.exclude.list`.
    pub schema_exclude: Vec<String>,
    /// Tables by their exact names; where this is not empty, the lists are not asked.
    pub names: Vec<TableName>,
}

/// A converter: what makes bytes of a key, a value or a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "type")]
pub enum ConverterConfig {
    /// `org.apache.kafka.connect.storage.StringConverter`: Java's `toString`.
    String {},
    /// `org.apache.kafka.connect.json.JsonConverter`.
    Json(JsonConverterConfig),
    /// `org.apache.kafka.connect.converters.ByteArrayConverter`: bytes columns as they are, nothing else.
    ByteArray {},
    /// `io.debezium.converters.BinaryDataConverter`: bytes as they are, anything else by the delegate.
    BinaryData {
        /// `delegate.converter.type`; without it, anything but bytes is an error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegate: Option<Box<Self>>,
    },
    /// `org.apache.kafka.connect.storage.SimpleHeaderConverter`, for headers only.
    Simple {},
}

/// The options of `JsonConverter`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct JsonConverterConfig {
    /// `schemas.enable`: each value stands beside a description of its type.
    pub schemas_enable: bool,
    /// `replace.null.with.default`: a null of a field with a default becomes the default.
    pub replace_null_with_default: bool,
    /// `decimal.format`.
    pub decimal_format: DecimalFormat,
}

impl Default for JsonConverterConfig {
    fn default() -> Self {
        Self {
            schemas_enable: true,
            replace_null_with_default: true,
            decimal_format: DecimalFormat::Base64,
        }
    }
}

/// How `JsonConverter` writes Connect's decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecimalFormat {
    /// The unscaled number's bytes in Base64.
    #[default]
    Base64,
    /// A JSON number.
    Numeric,
}

/// The `__debezium.context.*` headers, which stand before all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextHeaders {
    /// As `debezium_version` has them by default: none before 3.2.1, and with the run's id from 3.4 on.
    #[default]
    Version,
    /// None: `extended.headers.enabled=false`.
    None,
    /// Logical name, task and connector name, as from 3.2.1 on.
    V32,
    /// These and the run's id, as from 3.4 on.
    V34,
}

/// One entry of `transforms`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TransformConfig {
    /// What it does: `apply = { event_router = {} }`.
    pub apply: Transform,
    /// The alias of the predicate that decides whether it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// Whether it is applied where the predicate does *not* hold.
    #[serde(default)]
    pub negate: bool,
}

impl TransformConfig {
    /// Applied to every record.
    #[must_use]
    pub fn of(apply: Transform) -> Self {
        Self {
            apply,
            predicate: None,
            negate: false,
        }
    }
}

/// The transforms that are known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Transform {
    /// `io.debezium.transforms.outbox.EventRouter`, with the options of [`ConnectConfig::event_router`].
    EventRouter {},
    /// `io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent`.
    DecodeLogicalMessage {
        /// `fields.null.include`.
        #[serde(default)]
        fields_null_include: bool,
    },
    /// `io.debezium.transforms.ByLogicalTableRouter`. Only before the Event Router, and only the topic: a key that it
    /// would enlarge is replaced there.
    ByLogicalTableRouter {
        /// `topic.regex`.
        topic_regex: String,
        /// `topic.replacement`.
        topic_replacement: String,
    },
    /// `org.apache.kafka.connect.transforms.RegexRouter`.
    RegexRouter {
        /// `regex`.
        regex: String,
        /// `replacement`.
        replacement: String,
    },
    /// `org.apache.kafka.connect.transforms.InsertHeader`.
    InsertHeader {
        /// `header`.
        header: String,
        /// `value.literal`.
        value_literal: String,
    },
    /// `org.apache.kafka.connect.transforms.DropHeaders`.
    DropHeaders {
        /// `headers`.
        headers: Vec<String>,
    },
    /// `org.apache.kafka.connect.transforms.Filter`: drops what its predicate holds for.
    Filter {},
}

/// A predicate. It is asked about the record as it is before the transform it stands at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum PredicateConfig {
    /// `TopicNameMatches`.
    TopicNameMatches {
        /// `pattern`: has to match the whole topic.
        pattern: String,
    },
    /// `HasHeaderKey`.
    HasHeaderKey {
        /// `name`.
        name: String,
    },
    /// `RecordIsTombstone`.
    RecordIsTombstone {},
}

impl PredicateConfig {
    /// Whether it holds for records of this topic. `None`: it asks for something else, or its pattern is refused.
    #[must_use]
    pub fn holds_for_topic(&self, topic: &str) -> Option<bool> {
        match self {
            Self::TopicNameMatches { pattern } => JavaRegex::new(pattern).ok()?.matches(topic).ok(),
            Self::HasHeaderKey { .. } | Self::RecordIsTombstone {} => None,
        }
    }
}

/// Which logical messages are taken: Java regular expressions, compared in full with the prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageConfig {
    /// `message.prefix.include.list`; empty: all.
    pub prefix_include: Vec<String>,
    /// `message.prefix.exclude.list`.
    pub prefix_exclude: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_section_is_the_default() {
        assert_eq!(
            toml::from_str::<ConnectConfig>("").unwrap(),
            ConnectConfig::default()
        );
    }

    #[test]
    fn every_part_reads_back_as_written() {
        let transforms = [
            Transform::ByLogicalTableRouter {
                topic_regex: "(.*)_p\\d+".to_owned(),
                topic_replacement: "$1".to_owned(),
            },
            Transform::DecodeLogicalMessage {
                fields_null_include: true,
            },
            Transform::EventRouter {},
            Transform::RegexRouter {
                regex: "a".to_owned(),
                replacement: "b".to_owned(),
            },
            Transform::InsertHeader {
                header: "h".to_owned(),
                value_literal: "1".to_owned(),
            },
            Transform::DropHeaders {
                headers: vec!["h".to_owned()],
            },
            Transform::Filter {},
        ];
        let config = ConnectConfig {
            topic_prefix: "srv".to_owned(),
            value_converter: ConverterConfig::BinaryData {
                delegate: Some(Box::new(ConverterConfig::Json(JsonConverterConfig {
                    schemas_enable: false,
                    ..JsonConverterConfig::default()
                }))),
            },
            transforms: transforms
                .into_iter()
                .map(|apply| TransformConfig {
                    apply,
                    predicate: Some("p".to_owned()),
                    negate: true,
                })
                .collect(),
            predicates: BTreeMap::from([
                ("p".to_owned(), PredicateConfig::RecordIsTombstone {}),
                (
                    "q".to_owned(),
                    PredicateConfig::TopicNameMatches {
                        pattern: "x.*".to_owned(),
                    },
                ),
            ]),
            messages: Some(MessageConfig::default()),
            ..ConnectConfig::default()
        };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<ConnectConfig>(&text).unwrap(), config);
    }

    #[test]
    fn a_mistyped_key_is_refused_everywhere() {
        for text in [
            "topicprefix = \"x\"",
            "[value_converter]\ntype = \"json\"\nschema_enable = true",
            "[value_converter]\ntype = \"string\"\nx = true",
            "[[transforms]]\napply = { filter = { x = 1 } }",
            "[[transforms]]\napply = { event_router = {} }\nnegated = true",
            "[event_router]\nroute_topic = \"x\"",
            "[types]\nmode = \"x\"",
        ] {
            assert!(toml::from_str::<ConnectConfig>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_read_and_ordered() {
        let read = |text: &str| text.parse::<DebeziumVersion>().unwrap();
        assert_eq!(read("3.6.1.Final"), DebeziumVersion::default());
        assert_eq!(read("3.2"), DebeziumVersion::new(3, 2, 0));
        assert!(read("3.10.0") > read("3.9.9"));
        for text in ["", "x", "3.x", "3.1.2.3", "3.-1"] {
            assert!(text.parse::<DebeziumVersion>().is_err(), "{text}");
        }
    }
}
