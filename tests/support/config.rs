//! The connector's configuration file, built key by key.

use std::collections::BTreeMap;

/// Dotted TOML keys with their values as TOML literals; a later value replaces an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Config {
    values: BTreeMap<String, String>,
    pipeline: Option<String>,
}

impl Config {
    /// Sets a key to a TOML literal: a number, a list, an inline table.
    #[must_use]
    pub fn with(mut self, key: &str, literal: impl Into<String>) -> Self {
        self.values.insert(key.to_owned(), literal.into());
        self
    }

    /// Sets a key to a string.
    #[must_use]
    pub fn with_text(self, key: &str, text: &str) -> Self {
        self.with(key, quoted(text))
    }

    /// Sets a librdkafka property.
    #[must_use]
    pub fn with_kafka(self, property: &str, value: &str) -> Self {
        self.with_text(&format!("kafka.properties.{}", quoted(property)), value)
    }

    /// Takes a key away.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.values.remove(key);
        self
    }

    /// Puts the pipeline's keys under `[[pipeline]]` with this name; the process's own stay at the top.
    #[must_use]
    pub fn in_pipeline(mut self, name: &str) -> Self {
        self.pipeline = Some(name.to_owned());
        self
    }

    /// The file's text.
    pub fn render(&self) -> String {
        let lines = |of_process: bool| -> String {
            self.values
                .iter()
                .filter(|(key, _)| is_of_process(key) == of_process)
                .map(|(key, literal)| format!("{key} = {literal}\n"))
                .collect()
        };
        let heading = self.pipeline.as_ref().map_or_else(String::new, |name| {
            format!("[[pipeline]]\nname = {}\n", quoted(name))
        });
        format!("{}{heading}{}", lines(true), lines(false))
    }
}

fn is_of_process(key: &str) -> bool {
    ["http.", "state.", "log."]
        .iter()
        .any(|table| key.starts_with(table))
}

/// A TOML basic string; JSON's escapes are a subset of TOML's.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_replace_earlier_ones() {
        let config = Config::default()
            .with_text("source.slot", "a")
            .with_text("source.slot", "b\"c");
        assert_eq!(config.render(), "source.slot = \"b\\\"c\"\n");
    }

    #[test]
    fn a_pipeline_leaves_the_process_its_keys() {
        let config = Config::default()
            .with_text("source.slot", "a")
            .with_text("log.format", "json")
            .in_pipeline("p");
        assert_eq!(
            config.render(),
            "log.format = \"json\"\n[[pipeline]]\nname = \"p\"\nsource.slot = \"a\"\n"
        );
    }

    #[test]
    fn property_names_are_one_key() {
        let config = Config::default().with_kafka("linger.ms", "5");
        assert_eq!(config.render(), "kafka.properties.\"linger.ms\" = \"5\"\n");
    }
}
