//! Strimzi's `KafkaConnector`: `spec.class`, `spec.tasksMax`, `spec.config` with scalars of any kind.

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{ScanError, TScalarStyle};

use crate::entry::{Document, Entry};
use crate::error::ReadError;
use crate::finding::Verdict;

/// Reads the one `KafkaConnector` of a file; other resources in it are left alone.
pub(crate) fn parse(text: &str) -> Result<Document, ReadError> {
    let mut connectors: Vec<_> = documents(text)?
        .into_iter()
        .filter(|root| root.text("kind") == Some("KafkaConnector"))
        .collect();
    match (connectors.pop(), connectors.len()) {
        (Some(connector), 0) => Ok(connector_document(&connector)),
        (Some(_), _) => Err(ReadError::not_a_connector(
            "more than one resource of kind KafkaConnector",
            "keep one in the file; a process runs one connector",
        )),
        (None, _) => Err(ReadError::not_a_connector(
            "no resource of kind KafkaConnector",
            "give Strimzi's KafkaConnector with `kind`, `metadata` and `spec`",
        )),
    }
}

fn connector_document(root: &Node) -> Document {
    let mut document = Document {
        name: root
            .get("metadata")
            .and_then(|metadata| metadata.text("name"))
            .map(str::to_owned),
        ..Document::default()
    };
    for (key, line, value) in root.get("spec").map(Node::members).unwrap_or_default() {
        match key.as_str() {
            "class" => document
                .entries
                .extend(value.entry("connector.class", *line)),
            "tasksMax" => document.entries.extend(value.entry("tasks.max", *line)),
            "config" => config(&mut document, value),
            _ => remark_on(&mut document, key, *line, value),
        }
    }
    document
}

fn config(document: &mut Document, config: &Node) {
    for (key, line, value) in config.members() {
        match value.entry(key, *line) {
            Some(entry) => document.entries.push(entry),
            None => document.remark(
                key,
                *line,
                Verdict::Refused,
                "is a list or a map; write its value as one text, lists with commas",
            ),
        }
    }
}

/// The keys of `spec` that are Strimzi's own.
fn remark_on(document: &mut Document, key: &str, line: usize, value: &Node) {
    let name = format!("spec.{key}");
    let value = match value {
        Node::Scalar(value) => value.as_deref().unwrap_or_default(),
        _ => "",
    };
    let (verdict, text) = match (key, value) {
        ("pause", "true") | ("state", "paused" | "stopped") => (
            Verdict::Warned,
            "a process that is started runs. This connector is meant to stand still; do not start it here by accident",
        ),
        ("pause" | "state", _) => (Verdict::Ignored, "a process that is started runs"),
        ("autoRestart", _) => (
            Verdict::Ignored,
            "what can heal by itself is tried again without being told",
        ),
        ("listOffsets" | "alterOffsets", _) => (
            Verdict::Ignored,
            "the position is the slot's; `takeover` reads the stored offset",
        ),
        ("version", _) => (
            Verdict::Ignored,
            "give the version that ran with --debezium-version",
        ),
        _ => (
            Verdict::Refused,
            "is no key of a KafkaConnector's spec; options of the connector stand below `spec.config`",
        ),
    };
    document.remark(&name, line, verdict, text);
}

/// The worker's properties of Strimzi's `KafkaConnect`; `None` if the text is no such resource.
///
/// # Errors
/// More than one of them, broken YAML, or access to the brokers that only Kubernetes could resolve.
pub(crate) fn parse_worker(text: &str) -> Result<Option<Vec<Entry>>, ReadError> {
    let names_it = |line: &str| line.starts_with("kind:") && line.ends_with("KafkaConnect");
    if !text.lines().any(|line| names_it(line.trim_end())) {
        return Ok(None);
    }
    let mut workers: Vec<_> = documents(text)?
        .into_iter()
        .filter(|root| root.text("kind") == Some("KafkaConnect"))
        .collect();
    let (Some(worker), 0) = (workers.pop(), workers.len()) else {
        return Err(ReadError::not_a_connector(
            "not one resource of kind KafkaConnect",
            "keep the one whose connector this is",
        ));
    };
    let mut entries = Vec::new();
    for (key, line, value) in worker.get("spec").map(Node::members).unwrap_or_default() {
        match key.as_str() {
            "bootstrapServers" => entries.extend(value.entry("bootstrap.servers", *line)),
            "groupId" => entries.extend(value.entry("group.id", *line)),
            "config" => {
                let options = value.members().iter();
                entries.extend(options.filter_map(|(key, line, value)| value.entry(key, *line)));
            }
            "tls" | "authentication" => {
                return Err(ReadError::syntax(
                    *line,
                    format!("spec.{key}, whose secrets only Kubernetes can look up"),
                    "write the worker's properties into a file, with producer.security.protocol, producer.sasl.* and \
                     producer.ssl.* as the pod has them, and give that with --worker",
                ));
            }
            // What concerns pods and images.
            _ => {}
        }
    }
    Ok(Some(entries))
}

/// A value of a YAML document. Maps keep their order and the lines of their keys.
enum Node {
    Scalar(Option<String>),
    List,
    Map(Vec<(String, usize, Self)>),
}

impl Node {
    fn members(&self) -> &[(String, usize, Self)] {
        match self {
            Self::Map(members) => members,
            Self::Scalar(_) | Self::List => &[],
        }
    }

    fn get(&self, key: &str) -> Option<&Self> {
        let mut members = self.members().iter();
        members
            .find(|(name, _, _)| name == key)
            .map(|(_, _, value)| value)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Self::Scalar(text) => text.as_deref(),
            Self::List | Self::Map(_) => None,
        }
    }

    fn entry(&self, key: &str, line: usize) -> Option<Entry> {
        let Self::Scalar(value) = self else {
            return None;
        };
        Some(Entry {
            key: key.to_owned(),
            value: value.clone(),
            line,
        })
    }
}

/// A collection that is not closed yet; a map with the key whose value is awaited.
enum Open {
    List,
    Map(Vec<(String, usize, Node)>, Option<(String, usize)>),
}

/// No connector nests deeper, and what nests without end would end the process when it is dropped.
const DEPTH_MAX: usize = 32;

fn documents(text: &str) -> Result<Vec<Node>, ReadError> {
    let mut parser = Parser::new_from_str(text);
    let mut roots = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    loop {
        let (event, mark) = parser.next_token().map_err(|error| broken(&error))?;
        let line = mark.line();
        let node = match event {
            Event::StreamEnd => return Ok(roots),
            Event::Alias(_) => return Err(alias(line)),
            Event::MappingStart(..) | Event::SequenceStart(..) if open.len() >= DEPTH_MAX => {
                return Err(too_deep(line));
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Vec::new(), None));
                continue;
            }
            Event::SequenceStart(..) => {
                open.push(Open::List);
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                Some(Open::Map(members, _)) => Node::Map(members),
                Some(Open::List) | None => Node::List,
            },
            Event::Scalar(text, style, _, _) => Node::Scalar(scalar(text, style)),
            Event::Nothing | Event::StreamStart | Event::DocumentStart | Event::DocumentEnd => {
                continue;
            }
        };
        match open.last_mut() {
            None => roots.push(node),
            Some(Open::List) => {}
            Some(Open::Map(members, key)) => match (key.take(), node) {
                (Some((key, line)), node) => members.push((key, line, node)),
                (None, Node::Scalar(name)) => *key = Some((name.unwrap_or_default(), line)),
                (None, Node::List | Node::Map(_)) => return Err(odd_key(line)),
            },
        }
    }
}

/// Kubernetes reads YAML 1.1, where `yes` and `on` are true.
fn scalar(text: String, style: TScalarStyle) -> Option<String> {
    if style != TScalarStyle::Plain {
        return Some(text);
    }
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => None,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            Some("true".to_owned())
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Some("false".to_owned())
        }
        _ => Some(text),
    }
}

fn broken(error: &ScanError) -> ReadError {
    let marker = error.marker();
    ReadError::syntax(
        marker.line(),
        format!("the YAML is broken near column {}", marker.col() + 1),
        "look there for the indentation, a missing quote or a value with `: ` in it that needs quotes",
    )
}

fn alias(line: usize) -> ReadError {
    ReadError::syntax(line, "a YAML alias (`*name`)", "write the value itself")
}

fn too_deep(line: usize) -> ReadError {
    let what = format!("nested more than {DEPTH_MAX} deep");
    ReadError::syntax(
        line,
        what,
        "`spec.config` is a flat map of keys and scalars",
    )
}

fn odd_key(line: usize) -> ReadError {
    ReadError::syntax(line, "a list or map as a key", "write keys as plain text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTOR: &str = "\
kind: ConfigMap
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaConnector
metadata:
  name: orders
  labels: {strimzi.io/cluster: c}
spec:
  class: io.debezium.connector.postgresql.PostgresConnector
  tasksMax: 1
  autoRestart: {enabled: true}
  config:
    database.port: 5432
    slot.failover: yes
    a: 'yes'
    b: |-
      x
    c:
    d: [1, 2]
";

    #[test]
    fn scalars_of_any_kind_are_text() {
        let document = parse(CONNECTOR).unwrap();
        assert_eq!(document.name.as_deref(), Some("orders"));
        let entries: Vec<_> = document
            .entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.value.as_deref(), entry.line))
            .collect();
        assert_eq!(
            entries,
            [
                (
                    "connector.class",
                    Some("io.debezium.connector.postgresql.PostgresConnector"),
                    9
                ),
                ("tasks.max", Some("1"), 10),
                ("database.port", Some("5432"), 13),
                ("slot.failover", Some("true"), 14),
                ("a", Some("yes"), 15),
                ("b", Some("x"), 16),
                ("c", None, 18),
            ]
        );
        let remarks: Vec<_> = document
            .remarks
            .iter()
            .map(|remark| (remark.key.as_str(), remark.verdict == Verdict::Refused))
            .collect();
        assert_eq!(remarks, [("spec.autoRestart", false), ("d", true)]);
    }

    #[test]
    fn what_is_no_connector_is_said() {
        for (text, expected) in [
            ("a: 1", "no resource of kind KafkaConnector"),
            (
                "kind: KafkaConnector\n---\nkind: KafkaConnector\n",
                "more than one",
            ),
            ("kind: [", "the YAML is broken near column"),
            ("a: &x 1\nb: *x\n", "line 2: a YAML alias"),
            ("? [a]\n: 1\n", "a list or map as a key"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        let error = parse(&deep).unwrap_err().to_string();
        assert!(error.contains("nested more than"), "{error}");
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"- ".repeat(100_000)).is_err());
    }

    #[test]
    fn a_workers_resource_gives_its_properties() {
        let text = "kind: KafkaConnect\nspec:\n  replicas: 3\n  bootstrapServers: kafka:9092\n  config:\n    \
                    key.converter: a.B\n    offset.flush.interval.ms: 10000\n";
        let entries = parse_worker(text).unwrap().unwrap();
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let expected = [
            "bootstrap.servers",
            "key.converter",
            "offset.flush.interval.ms",
        ];
        assert_eq!(keys, expected);
        assert!(
            parse_worker("bootstrap.servers=kafka:9092\n")
                .unwrap()
                .is_none()
        );
        assert!(parse_worker("kind: KafkaConnector\n").unwrap().is_none());
    }

    #[test]
    fn a_login_that_kubernetes_keeps_is_refused_by_name() {
        let text = "kind: KafkaConnect\nspec:\n  authentication:\n    type: scram-sha-512\n";
        let error = parse_worker(text).unwrap_err().to_string();
        assert!(
            error.contains("spec.authentication") && error.contains("--worker"),
            "{error}"
        );
    }
}
