//! Stage 5 of 9, the Event Router's settings: each option of Debezium's, typed.

use serde::{Deserialize, Serialize};

/// The options of `io.debezium.transforms.outbox.EventRouter`, under their own names with underscores for dots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventRouterConfig {
    /// What happens with an UPDATE of an outbox row.
    pub table_op_invalid_behavior: OpInvalidBehavior,
    /// The column of the header `id`.
    pub table_field_event_id: String,
    /// The column of the key.
    pub table_field_event_key: String,
    /// Accepted, as there, and never used, as there.
    pub table_field_event_type: String,
    /// The column of the timestamp; without one, the moment of processing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_field_event_timestamp: Option<String>,
    /// The column of the value.
    pub table_field_event_payload: String,
    /// Further columns as headers, envelope fields or partition.
    pub table_fields_additional_placement: Vec<Placement>,
    /// What happens where a column of `table_fields_additional_placement` is missing. The old
    /// `table.fields.additional.error.on.missing=false` is `ignore`.
    pub table_field_additional_missing: MissingBehavior,
    /// The column with the version of the envelope's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_field_event_schema_version: Option<String>,
    /// The column that the topic is made from.
    pub route_by_field: String,
    /// A Java regular expression that has to match the whole of it.
    pub route_topic_regex: String,
    /// A Java replacement for the first stretch that matches.
    pub route_topic_replacement: String,
    /// Whether an empty payload is a tombstone.
    pub route_tombstone_on_empty_payload: bool,
    /// Whether payload text that is JSON is taken apart.
    pub table_expand_json_payload: bool,
    /// What happens with JSON's nulls then.
    pub table_json_payload_null_behavior: NullBehavior,
    /// What happens with JSON's empty arrays then (from 3.7 on).
    pub table_json_payload_empty_array_behavior: EmptyArrayBehavior,
    /// What Debezium cannot expand, or would lose by it, is sent as its text.
    pub expansion: Expansion,
}

impl Default for EventRouterConfig {
    fn default() -> Self {
        Self {
            table_op_invalid_behavior: OpInvalidBehavior::Warn,
            table_field_event_id: "id".to_owned(),
            table_field_event_key: "aggregateid".to_owned(),
            table_field_event_type: "type".to_owned(),
            table_field_event_timestamp: None,
            table_field_event_payload: "payload".to_owned(),
            table_fields_additional_placement: Vec::new(),
            table_field_additional_missing: MissingBehavior::Error,
            table_field_event_schema_version: None,
            route_by_field: "aggregatetype".to_owned(),
            route_topic_regex: "(?<routedByValue>.*)".to_owned(),
            route_topic_replacement: "outbox.event.${routedByValue}".to_owned(),
            route_tombstone_on_empty_payload: false,
            table_expand_json_payload: false,
            table_json_payload_null_behavior: NullBehavior::Ignore,
            table_json_payload_empty_array_behavior: EmptyArrayBehavior::Ignore,
            expansion: Expansion::Debezium,
        }
    }
}

/// `table.op.invalid.behavior`. The router never sees an UPDATE; this is for whoever reads the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpInvalidBehavior {
    /// It is counted and passed over.
    #[default]
    Warn,
    /// The same, said louder.
    Error,
    /// It stops the stream.
    Fatal,
}

/// `table.field.additional.missing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingBehavior {
    /// The row makes no record.
    #[default]
    Error,
    /// The record is without it.
    Ignore,
}

/// `table.json.payload.null.behavior`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NullBehavior {
    /// Members that are null are left out.
    #[default]
    Ignore,
    /// They are kept.
    OptionalBytes,
}

/// `table.json.payload.empty.array.behavior`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyArrayBehavior {
    /// Members that are empty arrays are left out.
    #[default]
    Ignore,
    /// They are kept.
    OptionalString,
}

/// How payloads are expanded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expansion {
    /// As Debezium does it; where its task would fail, the JSON text as it is.
    #[default]
    Debezium,
    /// The JSON text as it is, always.
    Verbatim,
}

/// One entry of `table.fields.additional.placement`: `"type:header:eventType"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Placement {
    /// The column.
    pub column: String,
    /// Where it goes.
    pub place: PlacementPlace,
    /// Its name there; the column's where nothing else is said.
    pub alias: Option<String>,
}

/// Where an additional column goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementPlace {
    /// A header.
    Header,
    /// A field of the envelope that the value becomes.
    Envelope,
    /// The partition.
    Partition,
}

impl Placement {
    /// Its name where it goes.
    #[must_use]
    pub fn name(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.column)
    }

    /// The entries of the option as Debezium has it: `type:header:eventType, ver:header`.
    ///
    /// # Errors
    ///
    /// What is wrong with the first entry that is wrong.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, PlacementError> {
        text.split(',').map(str::parse).collect()
    }
}

impl std::str::FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let parts: Vec<_> = text.split(':').map(str::trim).collect();
        let (column, place, alias) = match parts[..] {
            [column, place] => (column, place, None),
            [column, place, alias] => (column, place, Some(alias.to_owned())),
            _ => {
                return Err(PlacementError::Parts {
                    entry: text.trim().to_owned(),
                });
            }
        };
        if column.is_empty() || alias.as_deref() == Some("") {
            return Err(PlacementError::EmptyName {
                entry: text.trim().to_owned(),
            });
        }
        let place = match place.to_ascii_lowercase().as_str() {
            "header" => PlacementPlace::Header,
            "envelope" => PlacementPlace::Envelope,
            "partition" => PlacementPlace::Partition,
            _ => {
                return Err(PlacementError::UnknownPlace {
                    place: place.to_owned(),
                });
            }
        };
        Ok(Self {
            column: column.to_owned(),
            place,
            alias,
        })
    }
}

impl TryFrom<String> for Placement {
    type Error = PlacementError;

    fn try_from(text: String) -> Result<Self, PlacementError> {
        text.parse()
    }
}

impl From<Placement> for String {
    fn from(placement: Placement) -> Self {
        let place = match placement.place {
            PlacementPlace::Header => "header",
            PlacementPlace::Envelope => "envelope",
            PlacementPlace::Partition => "partition",
        };
        match placement.alias {
            Some(alias) => format!("{}:{place}:{alias}", placement.column),
            None => format!("{}:{place}", placement.column),
        }
    }
}

/// Why a text is no [`Placement`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// Not two parts and not three.
    #[error("{entry:?}: an entry is column:placement or column:placement:alias")]
    Parts {
        /// The entry.
        entry: String,
    },
    /// A column or alias of length 0.
    #[error("{entry:?}: the name of a column and an alias cannot be empty")]
    EmptyName {
        /// The entry.
        entry: String,
    },
    /// Debezium takes such a word, and fails on the first record.
    #[error("unknown placement {place:?}; known are header, envelope and partition")]
    UnknownPlace {
        /// The word.
        place: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_read_as_debezium_reads_them() {
        let list =
            Placement::parse_list("type:header:eventType, ver : Header ,p:PARTITION,a:envelope")
                .unwrap();
        let shown: Vec<_> = list
            .iter()
            .map(|p| (p.column.as_str(), p.place, p.name()))
            .collect();
        assert_eq!(
            shown,
            [
                ("type", PlacementPlace::Header, "eventType"),
                ("ver", PlacementPlace::Header, "ver"),
                ("p", PlacementPlace::Partition, "p"),
                ("a", PlacementPlace::Envelope, "a"),
            ]
        );
    }

    #[test]
    fn what_is_no_placement_is_refused() {
        let refused = |text: &str| Placement::parse_list(text).unwrap_err().to_string();
        assert!(refused("type").contains("column:placement"));
        assert!(refused("a:b:c:d").contains("column:placement"));
        assert!(refused("type:headers").contains("\"headers\""));
        assert!(refused(":header").contains("empty"));
        assert!(refused("a:header:").contains("empty"));
    }

    #[test]
    fn placements_are_written_as_text() {
        let config: EventRouterConfig = toml::from_str(
            r#"table_fields_additional_placement = ["type:header:eventType", "p:partition"]"#,
        )
        .unwrap();
        let text = toml::to_string(&config).unwrap();
        assert!(
            text.contains(r#"["type:header:eventType", "p:partition"]"#),
            "{text}"
        );
        assert_eq!(toml::from_str::<EventRouterConfig>(&text).unwrap(), config);
    }
}
