//! Which of the four kinds of file a text is, and its keys in Kafka Connect's terms.

use std::fmt;
use std::str::FromStr;

use crate::entry::Document;
use crate::error::ReadError;
use crate::{json, properties, server, yaml};

/// The kinds of file in which a connector is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, as sent to Connect's REST interface: `{"name": …, "config": {…}}` or the map of `config` alone.
    Json,
    /// The properties file of a standalone worker's connector.
    Properties,
    /// Strimzi's `KafkaConnector`.
    Yaml,
    /// Debezium Server's `application.properties`.
    Server,
}

impl Format {
    /// What the file's name and text look like.
    ///
    /// The text counts for more than the name: people call any file `connector.conf`.
    #[must_use]
    pub fn detect(name: &str, text: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let start = text.trim_start_matches('\u{feff}').trim_start();
        if start.starts_with(['{', '[']) || name.ends_with(".json") {
            return Self::Json;
        }
        if name.ends_with(".yaml") || name.ends_with(".yml") || looks_like_yaml(text) {
            return Self::Yaml;
        }
        if looks_like_server(text) {
            return Self::Server;
        }
        Self::Properties
    }

    pub(crate) fn parse(self, text: &str) -> Result<Document, ReadError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Json => json::parse(text),
            Self::Properties => properties::document(text),
            Self::Yaml => yaml::parse(text),
            Self::Server => server::parse(text),
        }
    }
}

fn looks_like_yaml(text: &str) -> bool {
    let mut lines = text.lines();
    lines.any(|line| line.starts_with("apiVersion:") || line.starts_with("kind:"))
}

fn looks_like_server(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| line.starts_with("debezium.source.") || line.starts_with("debezium.sink."))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "connect-json",
            Self::Properties => "connect-properties",
            Self::Yaml => "strimzi-yaml",
            Self::Server => "debezium-server",
        })
    }
}

impl FromStr for Format {
    type Err = ReadError;

    fn from_str(word: &str) -> Result<Self, ReadError> {
        [Self::Json, Self::Properties, Self::Yaml, Self::Server]
            .into_iter()
            .find(|format| format.to_string() == word)
            .ok_or_else(|| {
                ReadError::argument(
                    word,
                    "no such format",
                    "write connect-json, connect-properties, strimzi-yaml or debezium-server",
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_decides_before_the_name() {
        for (name, text, expected) in [
            ("a.json", "", Format::Json),
            ("a.conf", " {\"name\": 1}", Format::Json),
            ("a.properties", "name=x", Format::Properties),
            ("a.yml", "x: 1", Format::Yaml),
            ("a", "apiVersion: v1\n", Format::Yaml),
            (
                "application.properties",
                "debezium.source.slot.name=a",
                Format::Server,
            ),
            ("application.properties", "name=a", Format::Properties),
        ] {
            assert_eq!(Format::detect(name, text), expected, "{name} {text}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for format in [
            Format::Json,
            Format::Properties,
            Format::Yaml,
            Format::Server,
        ] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "xml".parse::<Format>().unwrap_err().to_string();
        assert!(
            error.starts_with("`xml`: no such format; write connect-json"),
            "{error}"
        );
    }
}
