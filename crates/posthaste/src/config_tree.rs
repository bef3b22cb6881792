//! The configuration as a tree in which every value remembers where it came from, so that each message can say it.

use std::collections::BTreeMap;
use std::fmt;

/// Keys of one table, in the order of the alphabet.
pub(crate) type Table = BTreeMap<String, Node>;

/// One value with its place of origin. Has no `Debug`: it may be a secret.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What TOML can say.
#[derive(Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    Time(String),
    List(Vec<Node>),
    Table(Table),
}

/// Who said it. Later variants win over earlier ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// Nobody: the default of the reference table.
    Preset,
    /// The file, at a line counted from 1.
    File { line: usize },
    /// A Debezium connector's configuration; `posthaste debezium check` knows the lines.
    Connector,
    /// An environment variable, by its name as it was found.
    Environment(String),
    /// A `--set`, by its key.
    Set(String),
    /// An option of its own, such as `--log-level`.
    Flag(&'static str),
}

impl Node {
    /// A default.
    pub(crate) fn preset(value: Value) -> Self {
        Self {
            value,
            origin: Origin::Preset,
        }
    }

    /// The value in a message: its type and what is written. Never call this for a secret.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("text {}", quoted(text)),
            Value::Integer(number) => format!("number {number}"),
            Value::Float(number) => format!("number {number:?}"),
            Value::Flag(flag) => format!("{flag}"),
            Value::Time(time) => format!("time {time}"),
            Value::List(items) if items.is_empty() => "an empty list".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// The type alone, for secrets.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "a text",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::Time(_) => "a time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The same value for serde. Origins are left behind.
    pub(crate) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Text(text) | Value::Time(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Flag(flag) => toml::Value::Boolean(*flag),
            Value::List(items) => toml::Value::Array(items.iter().map(Self::to_toml).collect()),
            Value::Table(table) => toml::Value::Table(table_to_toml(table)),
        }
    }

    /// Builds a node, and all below it, with one origin.
    pub(crate) fn from_toml(value: toml::Value, origin: &Origin) -> Self {
        let value = match value {
            toml::Value::String(text) => Value::Text(text),
            toml::Value::Integer(number) => Value::Integer(number),
            toml::Value::Float(number) => Value::Float(number),
            toml::Value::Boolean(flag) => Value::Flag(flag),
            toml::Value::Datetime(time) => Value::Time(time.to_string()),
            toml::Value::Array(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| Self::from_toml(item, origin))
                    .collect(),
            ),
            toml::Value::Table(table) => Value::Table(
                table
                    .into_iter()
                    .map(|(key, item)| (key, Self::from_toml(item, origin)))
                    .collect(),
            ),
        };
        Self {
            value,
            origin: origin.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset => f.write_str("default"),
            Self::File { line } => write!(f, "line {line}"),
            Self::Connector => f.write_str("connector's configuration"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set(key) => write!(f, "--set {key}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The table for serde.
pub(crate) fn table_to_toml(table: &Table) -> toml::Table {
    table
        .iter()
        .map(|(key, node)| (key.clone(), node.to_toml()))
        .collect()
}

/// Walks to `path` through tables.
pub(crate) fn find<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Node> {
    let (last, parents) = path.split_last()?;
    let mut current = table;
    for parent in parents {
        current = current.get(*parent)?.as_table()?;
    }
    current.get(*last)
}

/// Puts a node at `path`, making tables on the way and replacing what is there. A table replaces a value in its way.
pub(crate) fn put(table: &mut Table, path: &[&str], node: Node) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut current = table;
    for parent in parents {
        let slot = current.entry((*parent).to_owned()).or_insert_with(|| Node {
            value: Value::Table(Table::new()),
            origin: node.origin.clone(),
        });
        if slot.as_table().is_none() {
            slot.value = Value::Table(Table::new());
        }
        let Value::Table(next) = &mut slot.value else {
            return;
        };
        current = next;
    }
    current.insert((*last).to_owned(), node);
}

/// A text in quotes, cut after 200 characters: a whole file given by mistake must not become a message.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 200;
    let cut: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    let rest = if cut.len() < text.len() { "…" } else { "" };
    format!("\"{cut}{rest}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Node {
        Node::preset(Value::Text(value.to_owned()))
    }

    #[test]
    fn put_makes_tables_and_find_walks_them() {
        let mut table = Table::new();
        put(&mut table, &["a", "b"], text("x"));
        put(&mut table, &["a", "c", "d"], text("y"));
        assert_eq!(find(&table, &["a", "b"]).and_then(Node::as_text), Some("x"));
        assert_eq!(
            find(&table, &["a", "c", "d"]).and_then(Node::as_text),
            Some("y")
        );
        assert!(find(&table, &["a", "b", "z"]).is_none());
        assert!(find(&table, &[]).is_none());
    }

    #[test]
    fn put_replaces_a_value_that_stands_in_the_way() {
        let mut table = Table::new();
        put(&mut table, &["a"], text("x"));
        put(&mut table, &["a", "b"], text("y"));
        assert_eq!(find(&table, &["a", "b"]).and_then(Node::as_text), Some("y"));
    }

    #[test]
    fn later_origins_win() {
        let origins = [
            Origin::Preset,
            Origin::File { line: 9 },
            Origin::Environment("E".to_owned()),
            Origin::Set("k".to_owned()),
            Origin::Flag("--f"),
        ];
        assert!(origins.is_sorted());
    }

    #[test]
    fn a_long_text_is_cut() {
        assert!(quoted(&"ä".repeat(300)).chars().count() < 210);
        assert_eq!(quoted("abc"), "\"abc\"");
    }
}
