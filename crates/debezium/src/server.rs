//! Debezium Server's `application.properties`, in Kafka Connect's terms.
//!
//! `debezium.source.X` is the connector's `X`, `debezium.format.*` are the converters, and `debezium.sink.kafka.producer.*`
//! is what a worker calls `producer.*`.

use crate::entry::{Document, Entry};
use crate::error::ReadError;
use crate::finding::Verdict;
use crate::properties;

/// Reads the file and gives its keys the names that Connect has for them.
pub(crate) fn parse(text: &str) -> Result<Document, ReadError> {
    let entries = properties::parse(text)?;
    let names = entries.iter().map(|entry| (entry.line, entry.key.clone()));
    let mut document = Document {
        own_names: Some(names.collect()),
        ..Document::default()
    };
    for entry in entries {
        place(&mut document, entry);
    }
    complete(&mut document);
    Ok(document)
}

fn place(document: &mut Document, entry: Entry) {
    let Entry { key, value, line } = entry;
    let named = |key: String| Entry {
        key,
        value: value.clone(),
        line,
    };
    if let Some(rest) = key.strip_prefix("debezium.source.") {
        match rest.starts_with("offset.") || rest.starts_with("schema.history.") {
            true => document.remark(
                &key,
                line,
                Verdict::Ignored,
                "the slot is the only store of the position",
            ),
            false => document.entries.push(named(rest.to_owned())),
        }
    } else if let Some(rest) = transform_key(&key) {
        document.entries.push(named(rest.to_owned()));
    } else if let Some(rest) = key.strip_prefix("debezium.format.") {
        format(
            document,
            &key,
            rest,
            value.as_deref().unwrap_or_default(),
            line,
        );
    } else if let Some(rest) = key.strip_prefix("debezium.sink.kafka.producer.") {
        let name = match rest {
            "bootstrap.servers" => rest.to_owned(),
            _ => format!("producer.{rest}"),
        };
        document.worker.push(named(name));
    } else {
        other(document, &key, value.as_deref().unwrap_or_default(), line);
    }
}

fn transform_key(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("debezium.")?;
    let ours = ["transforms", "predicates"].iter().any(|part| {
        rest.strip_prefix(part)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    ours.then_some(rest)
}

/// `key`, `value` and `header` name a format; what follows them is the converter's own.
fn format(document: &mut Document, key: &str, rest: &str, value: &str, line: usize) {
    let (part, option) = rest.split_once('.').unwrap_or((rest, ""));
    if !matches!(part, "key" | "value" | "header") {
        document.remark(
            key,
            line,
            Verdict::Refused,
            "is no key of Debezium Server; write debezium.format.key, .value or .header",
        );
        return;
    }
    if !option.is_empty() {
        document.entries.push(Entry::new(
            format!("{part}.converter.{option}"),
            value,
            line,
        ));
        return;
    }
    match converter(value) {
        Some(class) => document.entries.push(Entry::new(format!("{part}.converter"), class, line)),
        None => document.remark(
            key,
            line,
            Verdict::Refused,
            &format!(
                "`{}` cannot be made here (only json, simplestring and binary can); keep Debezium Server for \
                    this outbox",
                value.chars().take(40).collect::<String>()
            ),
        ),
    }
}

fn converter(format: &str) -> Option<&'static str> {
    match format.to_ascii_lowercase().as_str() {
        "json" => Some("org.apache.kafka.connect.json.JsonConverter"),
        "simplestring" => Some("org.apache.kafka.connect.storage.StringConverter"),
        "binary" => Some("io.debezium.converters.BinaryDataConverter"),
        _ => None,
    }
}

fn other(document: &mut Document, key: &str, value: &str, line: usize) {
    match key {
        "debezium.sink.type" if value == "kafka" => {
            document.remark(key, line, Verdict::Kept, "Kafka is where records go");
        }
        "debezium.sink.type" => document.remark(
            key,
            line,
            Verdict::Refused,
            "names another sink than kafka; Posthaste writes to Kafka only",
        ),
        _ if key.starts_with("debezium.sink.kafka.") => {
            document.remark(
                key,
                line,
                Verdict::Ignored,
                "each record is acknowledged by Kafka before the position moves",
            );
        }
        _ if key.starts_with("quarkus.") || key.starts_with('%') => {
            document.remark(
                key,
                line,
                Verdict::Ignored,
                "Quarkus is not part of this; pages for machines are \
                set with [http] listen, log lines with [log]",
            );
        }
        _ if key.starts_with("debezium.") => {
            document.remark(
                key,
                line,
                Verdict::Refused,
                "is no key of Debezium Server that is known here; remove it",
            );
        }
        _ => document.remark(
            key,
            line,
            Verdict::Ignored,
            "Debezium Server reads keys that begin with `debezium.`, and so do we",
        ),
    }
}

/// The name that Debezium Server has for a key that is not in the file.
pub(crate) fn own_name(key: &str) -> String {
    match key.split_once('.') {
        Some(("debezium", _)) => key.to_owned(),
        Some(("transforms" | "predicates", _)) => format!("debezium.{key}"),
        Some((part @ ("key" | "value" | "header"), "converter")) => {
            format!("debezium.format.{part}")
        }
        _ if key == "bootstrap.servers" => format!("debezium.sink.kafka.producer.{key}"),
        _ if key == "transforms" || key == "predicates" => format!("debezium.{key}"),
        _ => format!("debezium.source.{key}"),
    }
}

/// What Debezium Server adds by itself.
fn complete(document: &mut Document) {
    let has = |key: &str, entries: &[Entry]| entries.iter().any(|entry| entry.key == key);
    for part in ["key", "value", "header"] {
        let key = format!("{part}.converter");
        if !has(&key, &document.entries)
            && !document
                .remarks
                .iter()
                .any(|remark| remark.key == format!("debezium.format.{part}"))
        {
            document.entries.push(Entry::new(
                key,
                "org.apache.kafka.connect.json.JsonConverter",
                0,
            ));
            document.remark(
                &format!("debezium.format.{part}"),
                0,
                Verdict::Warned,
                "is not given: json, with schemas unless told otherwise, as Debezium Server does",
            );
        }
    }
    if !has("connector.class", &document.entries) {
        document.remark(
            "debezium.source.connector.class",
            0,
            Verdict::Refused,
            "is missing; write io.debezium.connector.postgresql.PostgresConnector",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(entries: &[Entry]) -> Vec<(&str, &str)> {
        entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.as_deref().unwrap_or("-")))
            .collect()
    }

    #[test]
    fn keys_get_the_names_that_connect_has() {
        let document = parse(
            "debezium.source.slot.name=s\ndebezium.transforms=o\ndebezium.transforms.o.type=T\n\
             debezium.transforms.o.route.topic.replacement=\\\\${routedByValue}\n\
             debezium.format.key=simplestring\ndebezium.format.value.schemas.enable=false\n\
             debezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=k:9092\n\
             debezium.sink.kafka.producer.linger.ms=5\ndebezium.source.offset.storage=x\n",
        )
        .unwrap();
        assert_eq!(
            names(&document.entries)[..6],
            [
                ("slot.name", "s"),
                ("transforms", "o"),
                ("transforms.o.type", "T"),
                ("transforms.o.route.topic.replacement", "\\${routedByValue}"),
                (
                    "key.converter",
                    "org.apache.kafka.connect.storage.StringConverter"
                ),
                ("value.converter.schemas.enable", "false"),
            ]
        );
        assert_eq!(
            names(&document.worker)[..2],
            [("bootstrap.servers", "k:9092"), ("producer.linger.ms", "5")]
        );
    }

    #[test]
    fn options_of_a_format_that_is_not_given_count() {
        let document = parse("debezium.format.value.schemas.enable=false").unwrap();
        let names = names(&document.entries);
        assert!(names.contains(&("value.converter.schemas.enable", "false")));
        assert!(names.contains(&(
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter"
        )));
    }

    #[test]
    fn other_sinks_and_formats_are_refused() {
        let document =
            parse("debezium.sink.type=redis\ndebezium.format.value=avro\ndebezium.formt.key=json")
                .unwrap();
        let refused: Vec<_> = document
            .remarks
            .iter()
            .filter(|remark| remark.verdict == Verdict::Refused)
            .map(|remark| remark.key.as_str())
            .collect();
        assert_eq!(
            refused,
            [
                "debezium.sink.type",
                "debezium.format.value",
                "debezium.formt.key",
                "debezium.source.connector.class"
            ]
        );
    }
}
