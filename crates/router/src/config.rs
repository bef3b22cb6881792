//! Stage 5 of 9, its settings: which columns of which tables become which part of a record.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::TableName;

/// What a [`Router`](crate::Router) is told. The defaults are those of Debezium's outbox table.
///
/// Column names are exact: they are compared with the names the server sends, letter for letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// The outbox tables. Not read from this section: whoever reads the source's settings fills it in.
    #[serde(skip)]
    pub tables: Vec<TableName>,
    /// The column of the event's identity, sent as the header `id`.
    pub id: String,
    /// The column that the topic template's `{aggregatetype}` stands for.
    pub aggregate_type: String,
    /// The column of the record's key.
    pub aggregate_id: String,
    /// The column of the record's value.
    pub payload: String,
    /// The topic: text with the placeholders `{aggregatetype}`, `{schema}` and `{table}`.
    pub topic: String,
    /// Further columns sent as headers, after `id`, in this order.
    pub headers: Vec<HeaderConfig>,
    /// Where the record's timestamp comes from.
    pub timestamp: TimestampSource,
    /// A column with the partition's number; without one, or where it is NULL, the key decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            tables: Vec::new(),
            id: "id".to_owned(),
            aggregate_type: "aggregatetype".to_owned(),
            aggregate_id: "aggregateid".to_owned(),
            payload: "payload".to_owned(),
            topic: "outbox.event.{aggregatetype}".to_owned(),
            headers: Vec::new(),
            timestamp: TimestampSource::Commit,
            partition: None,
        }
    }
}

/// A column sent as a header: `"type"`, or `{ column = "type", name = "eventType", optional = true }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderConfig {
    /// The column.
    pub column: String,
    /// The header's name; the column's where nothing else is said.
    pub name: String,
    /// Whether the table may be without this column: the header is left out then. A NULL in the column is something
    /// else, and gives a header with a null value.
    pub optional: bool,
}

impl HeaderConfig {
    /// A required column, sent as a header of the same name.
    #[must_use]
    pub fn new(column: impl Into<String>) -> Self {
        let column = column.into();
        Self {
            name: column.clone(),
            column,
            optional: false,
        }
    }
}

impl<'de> Deserialize<'de> for HeaderConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeaderVisitor)
    }
}

impl Serialize for HeaderConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::new(&*self.column) {
            return serializer.serialize_str(&self.column);
        }
        let table = HeaderTable {
            column: self.column.clone(),
            name: Some(self.name.clone()),
            optional: self.optional,
        };
        table.serialize(serializer)
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HeaderTable {
    column: String,
    name: Option<String>,
    #[serde(default)]
    optional: bool,
}

/// Written by hand, as an untagged enum would answer a typing mistake with "did not match any variant".
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = HeaderConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name, or a table with the keys column, name and optional")
    }

    fn visit_str<E: de::Error>(self, column: &str) -> Result<HeaderConfig, E> {
        Ok(HeaderConfig::new(column))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderConfig, A::Error> {
        let table = HeaderTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(HeaderConfig {
            name: table.name.unwrap_or_else(|| table.column.clone()),
            column: table.column,
            optional: table.optional,
        })
    }
}

/// Where a record's timestamp comes from: `"commit"`, `"now"`, or `{ column = "created_at" }`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TimestampSource {
    /// The moment the row's transaction was committed.
    #[default]
    Commit,
    /// None is set, so that the client stamps the record when it is sent.
    Now,
    /// This column: timestamptz, timestamp (taken as UTC), date (midnight UTC) or bigint (milliseconds since 1970).
    /// Where it is NULL, the moment of the commit.
    Column(String),
}

impl<'de> Deserialize<'de> for TimestampSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimestampVisitor)
    }
}

impl Serialize for TimestampSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Commit => serializer.serialize_str("commit"),
            Self::Now => serializer.serialize_str("now"),
            Self::Column(column) => TimestampTable {
                column: column.clone(),
            }
            .serialize(serializer),
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TimestampTable {
    column: String,
}

struct TimestampVisitor;

impl<'de> Visitor<'de> for TimestampVisitor {
    type Value = TimestampSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#""commit", "now", or a table with the key column"#)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<TimestampSource, E> {
        match word {
            "commit" => Ok(TimestampSource::Commit),
            "now" => Ok(TimestampSource::Now),
            _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TimestampSource, A::Error> {
        let table = TimestampTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(TimestampSource::Column(table.column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        toml::from_str::<RouterConfig>(text)
            .unwrap_err()
            .message()
            .to_owned()
    }

    #[test]
    fn an_empty_section_is_the_default() {
        assert_eq!(
            toml::from_str::<RouterConfig>("").unwrap(),
            RouterConfig::default()
        );
    }

    #[test]
    fn both_header_forms_are_read() {
        let config: RouterConfig = toml::from_str(
            r#"headers = ["type", { column = "tp", name = "traceparent", optional = true }, { column = "x" }]"#,
        )
        .unwrap();
        let second = HeaderConfig {
            column: "tp".to_owned(),
            name: "traceparent".to_owned(),
            optional: true,
        };
        assert_eq!(
            config.headers,
            [HeaderConfig::new("type"), second, HeaderConfig::new("x")]
        );
    }

    #[test]
    fn all_timestamp_forms_are_read() {
        let read = |text: &str| toml::from_str::<RouterConfig>(text).unwrap().timestamp;
        assert_eq!(read(r#"timestamp = "commit""#), TimestampSource::Commit);
        assert_eq!(read(r#"timestamp = "now""#), TimestampSource::Now);
        assert_eq!(
            read(r#"timestamp = { column = "created_at" }"#),
            TimestampSource::Column("created_at".to_owned())
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        let config = RouterConfig {
            headers: vec![
                HeaderConfig::new("type"),
                HeaderConfig {
                    optional: true,
                    ..HeaderConfig::new("tp")
                },
            ],
            timestamp: TimestampSource::Column("created_at".to_owned()),
            partition: Some("shard".to_owned()),
            ..RouterConfig::default()
        };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<RouterConfig>(&text).unwrap(), config);
        let text = toml::to_string(&RouterConfig::default()).unwrap();
        assert!(text.contains(r#"timestamp = "commit""#), "{text}");
    }

    #[test]
    fn mistakes_are_told_what_was_expected() {
        assert!(refused("ids = 1").contains("unknown field `ids`"));
        assert!(refused("headers = [1]").contains("a column's name, or a table"));
        assert!(refused("headers = [{ column = 'a', nam = 'b' }]").contains("unknown field `nam`"));
        assert!(refused("headers = [{ name = 'b' }]").contains("missing field `column`"));
        assert!(refused("timestamp = 'comit'").contains(r#""commit", "now", or a table"#));
        assert!(refused("tables = ['a']").contains("unknown field `tables`"));
    }
}
