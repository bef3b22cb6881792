//! Checks values that have parts of their own: headers, the timestamp, and the free tables of Kafka properties.

use sink::is_secret_property;

use crate::codes::{Code, Problem};
use crate::config_check::place;
use crate::config_reference::{Key, Kind};
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Table, Value, quoted};
use crate::config_value::{not_allowed, wrong_type};

pub(crate) fn check_headers(key: &Key, node: &Node) -> Result<(), Problem> {
    let items = node.as_list().ok_or_else(|| wrong_type(key, node))?;
    for item in items {
        match &item.value {
            Value::Text(column) if column.is_empty() => {
                return Err(not_allowed(key, item, "is empty"));
            }
            Value::Text(_) => {}
            Value::Table(entry) => check_header(key, item, entry)?,
            _ => return Err(wrong_type(key, item)),
        }
    }
    Ok(())
}

fn check_header(key: &Key, item: &Node, entry: &Table) -> Result<(), Problem> {
    for (name, value) in entry {
        let right = match name.as_str() {
            "column" | "name" => value.as_text().is_some_and(|text| !text.is_empty()),
            "optional" => matches!(value.value, Value::Flag(_)),
            _ => {
                return Err(unknown_entry_key(
                    key,
                    name,
                    value,
                    &["column", "name", "optional"],
                ));
            }
        };
        if !right {
            let needed = if name == "optional" {
                "true or false"
            } else {
                "a text that is not empty"
            };
            return Err(Problem::new(
                Code::ConfigValueType,
                place(&format!("{}.{name}", key.path()), &value.origin),
            )
            .found(value.describe())
            .needed(needed)
            .fix(format!("for example headers = {}", key.kind.example())));
        }
    }
    if entry.contains_key("column") {
        Ok(())
    } else {
        Err(not_allowed(key, item, "lacks column"))
    }
}

pub(crate) fn check_timestamp(key: &Key, node: &Node) -> Result<(), Problem> {
    match &node.value {
        Value::Text(word) if word == "commit" || word == "now" => Ok(()),
        Value::Text(word) => Err(match nearest(word, ["commit", "now"]) {
            Some(meant) => not_allowed(key, node, "").fix(format!("did you mean \"{meant}\"?")),
            None => not_allowed(key, node, "").fix(format!(
                "for a column write timestamp = {{ column = {} }}",
                quoted(word)
            )),
        }),
        Value::Table(entry) => {
            if let Some((name, value)) = entry.iter().find(|(name, _)| *name != "column") {
                return Err(unknown_entry_key(key, name, value, &["column"]));
            }
            match entry.get("column").and_then(Node::as_text) {
                Some(column) if !column.is_empty() => Ok(()),
                _ => Err(not_allowed(key, node, "has no column's name")),
            }
        }
        _ => Err(wrong_type(key, node)),
    }
}

fn unknown_entry_key(key: &Key, name: &str, value: &Node, legal: &[&str]) -> Problem {
    let fix = match nearest(name, legal.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "remove it, or take one of these keys".to_owned(),
    };
    Problem::new(
        Code::ConfigKeyUnknown,
        place(&format!("{}.{name}", key.path()), &value.origin),
    )
    .found("no such key")
    .needed(format!("one of the keys: {}", legal.join(", ")))
    .fix(fix)
}

/// `security.protocol = "SSL"` without quotes is a table in TOML; here it means the property all the same.
pub(crate) fn flatten(key: &Key, node: &mut Node) -> Result<(), Problem> {
    let mut flat = Table::new();
    let origin = node.origin.clone();
    match std::mem::replace(&mut node.value, Value::Flag(false)) {
        Value::Table(table) => flatten_into(key, "", table, &mut flat)?,
        value => return Err(wrong_type(key, &Node { value, origin })),
    }
    node.value = Value::Table(flat);
    Ok(())
}

fn flatten_into(key: &Key, prefix: &str, table: Table, flat: &mut Table) -> Result<(), Problem> {
    for (name, node) in table {
        let name = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        let origin = node.origin.clone();
        let value = match node.value {
            Value::Table(inner) => {
                flatten_into(key, &name, inner, flat)?;
                continue;
            }
            value => property_text(
                key,
                &name,
                Node {
                    value,
                    origin: origin.clone(),
                },
            )?,
        };
        check_property_name(key, &name, &origin)?;
        if let Some(earlier) = flat.insert(
            name.clone(),
            Node {
                value: Value::Text(value),
                origin: origin.clone(),
            },
        ) {
            return Err(Problem::new(
                Code::ConfigConflict,
                place(&format!("{}.{name}", key.path()), &origin),
            )
            .found(format!("the property twice, first at {}", earlier.origin))
            .needed("each property once")
            .fix("remove one of the two"));
        }
    }
    Ok(())
}

fn property_text(key: &Key, name: &str, node: Node) -> Result<String, Problem> {
    let secret = is_secret_property(name);
    match node.value {
        Value::Text(text) if !text.contains('\0') => Ok(text),
        Value::Integer(number) if key.kind == Kind::Properties => Ok(number.to_string()),
        Value::Float(number) if key.kind == Kind::Properties => Ok(number.to_string()),
        Value::Flag(flag) if key.kind == Kind::Properties => Ok(flag.to_string()),
        _ => {
            let needed = if key.kind == Kind::Properties {
                "a text, a number, true or false"
            } else {
                "a path as text"
            };
            Err(Problem::new(
                Code::ConfigValueType,
                place(&format!("{}.{name}", key.path()), &node.origin),
            )
            .found(if secret {
                node.kind_name().to_owned()
            } else {
                node.describe()
            })
            .needed(needed)
            .fix(format!("write \"{name}\" = \"…\"")))
        }
    }
}

/// Properties that have a key of their own are refused, so that each setting stands in one place.
fn check_property_name(key: &Key, name: &str, origin: &Origin) -> Result<(), Problem> {
    let refused = |found: &str, fix: &str| {
        Err(Problem::new(
            Code::ConfigKafkaPropertyRefused,
            place(&format!("{}.{name}", key.path()), origin),
        )
        .found(found)
        .needed("a property of librdkafka without a key of its own")
        .fix(fix))
    };
    match name {
        "bootstrap.servers" | "metadata.broker.list" => refused(
            "a property that is set from kafka.brokers",
            "write kafka.brokers",
        ),
        "client.id" => refused(
            "a property that is set from kafka.client_id",
            "write kafka.client_id",
        ),
        _ if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) =>
        {
            refused(
                "a name with characters no property has",
                "correct the name; librdkafka's names are like security.protocol",
            )
        }
        _ => Ok(()),
    }
}
