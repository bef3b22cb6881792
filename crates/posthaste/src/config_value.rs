//! Checks single values of the configuration by their kind, and brings each into its one form.

use std::net::SocketAddr;
use std::time::Duration;

use router::TableName;

use crate::codes::{Code, Problem};
use crate::config_check::place;
use crate::config_entry::{check_headers, check_timestamp};
use crate::config_reference::{Key, Kind};
use crate::config_secret::redact_connection;
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Value, quoted};
use crate::config_units::{parse_duration, parse_size};

/// PostgreSQL cuts longer names off, which would make two names one.
const NAME_BYTES_MAX: usize = 63;

/// Checks one value and brings it into its one form.
pub(crate) fn check_value(key: &Key, node: &mut Node) -> Result<(), Problem> {
    match key.kind {
        Kind::Flag => match node.value {
            Value::Flag(_) => Ok(()),
            _ => Err(wrong_type(key, node)),
        },
        Kind::Count { min, max } => match node.value {
            Value::Integer(number)
                if u64::try_from(number).is_ok_and(|number| (min..=max).contains(&number)) =>
            {
                Ok(())
            }
            Value::Integer(_) => Err(not_allowed(key, node, "")),
            _ => Err(wrong_type(key, node)),
        },
        Kind::Ports => check_ports(key, node),
        Kind::TextList | Kind::Tables => check_texts(key, node),
        Kind::Headers => check_headers(key, node),
        Kind::Timestamp => check_timestamp(key, node),
        Kind::Properties | Kind::PropertyFiles => Ok(()),
        _ => {
            let text = node.as_text().ok_or_else(|| wrong_type(key, node))?;
            check_text(key, node, text)
        }
    }
}

/// Checks the text of a key that takes text alone.
fn check_text(key: &Key, node: &Node, text: &str) -> Result<(), Problem> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err(not_allowed(key, node, ""));
    }
    match key.kind {
        Kind::Duration { min, max } => {
            let duration = parse_duration(text).map_err(|why| not_allowed(key, node, &why))?;
            let bounds = parse_duration(min).unwrap_or_default()
                ..=parse_duration(max).unwrap_or(Duration::MAX);
            if bounds.contains(&duration) {
                Ok(())
            } else {
                Err(not_allowed(key, node, ""))
            }
        }
        Kind::Size { min, max } => {
            let size = parse_size(text).map_err(|why| not_allowed(key, node, &why))?;
            let bounds = parse_size(min).unwrap_or_default()..=parse_size(max).unwrap_or(u64::MAX);
            if bounds.contains(&size) {
                Ok(())
            } else {
                Err(not_allowed(key, node, ""))
            }
        }
        Kind::Choice(words) if !words.contains(&text) => Err(not_a_word(key, node, text, words)),
        Kind::SlotName => check_slot_name(key, node, text),
        Kind::ObjectName if text.len() > NAME_BYTES_MAX => {
            let found = format!("{} of {} bytes", node.describe(), text.len());
            Err(
                Problem::new(Code::ConfigName, place(&key.path(), &node.origin))
                    .found(found)
                    .needed(key.kind.needed())
                    .fix("write the name as the catalog has it; PostgreSQL cuts longer names off"),
            )
        }
        Kind::Table => check_table_name(key, node, text),
        Kind::Listen if text != "off" && text.parse::<SocketAddr>().is_err() => {
            Err(not_allowed(key, node, ""))
        }
        Kind::Url => check_url(key, node, text),
        _ => Ok(()),
    }
}

fn not_a_word(key: &Key, node: &Node, text: &str, words: &[&str]) -> Problem {
    let problem = not_allowed(key, node, "");
    match nearest(text, words.iter().copied()) {
        Some(word) => problem.fix(format!("did you mean \"{word}\"?")),
        None => problem.fix("write one of these words"),
    }
}

/// The server's own words come first, so that whoever searches for them finds this.
fn check_slot_name(key: &Key, node: &Node, text: &str) -> Result<(), Problem> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let found = if text.len() > NAME_BYTES_MAX {
        format!(
            "replication slot name {} is too long, {} bytes",
            quoted(text),
            text.len()
        )
    } else if let Some(character) = text.chars().find(|c| !legal(*c)) {
        format!(
            "replication slot name {} contains invalid character {}",
            quoted(text),
            quoted(&character.to_string())
        )
    } else {
        return Ok(());
    };
    let suggestion: String = text
        .to_lowercase()
        .chars()
        .map(|c| if legal(c) { c } else { '_' })
        .take(NAME_BYTES_MAX)
        .collect();
    Err(
        Problem::new(Code::ConfigSlotName, place(&key.path(), &node.origin))
            .found(found)
            .needed(key.kind.needed())
            .fix(format!("for example slot = \"{suggestion}\"")),
    )
}

fn check_table_name(key: &Key, node: &Node, text: &str) -> Result<(), Problem> {
    match text.parse::<TableName>() {
        Ok(table) if table.schema.len() <= NAME_BYTES_MAX && table.name.len() <= NAME_BYTES_MAX => {
            Ok(())
        }
        Ok(_) => Err(table_problem(
            key,
            node,
            text,
            "a part of it is longer than 63 bytes",
        )),
        Err(error) => Err(table_problem(key, node, text, &error.to_string())),
    }
}

fn table_problem(key: &Key, node: &Node, text: &str, why: &str) -> Problem {
    Problem::new(Code::ConfigName, place(&key.path(), &node.origin))
        .found(format!("table name {}: {why}", quoted(text)))
        .needed("schema.table or table as SQL writes it, names with capitals or special characters in double quotes")
        .fix("for example tables = ['public.outbox', '\"Sales-EU\".\"Outbox\"'] (TOML's single quotes keep double quotes as they are)")
}

fn check_url(key: &Key, node: &Node, text: &str) -> Result<(), Problem> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let is_keywords = !text.contains("://") && text.contains('=');
    if is_url || is_keywords {
        return Ok(());
    }
    Err(
        Problem::new(Code::ConfigConnection, place(&key.path(), &node.origin))
            .found(quoted(&redact_connection(text)))
            .needed(key.kind.needed())
            .fix("begin it with postgres:// or postgresql://"),
    )
}

fn check_ports(key: &Key, node: &mut Node) -> Result<(), Problem> {
    let origin = node.origin.clone();
    let items = match &node.value {
        Value::Integer(_) => vec![node.clone()],
        Value::Text(text) => text
            .split(',')
            .map(|port| text_to_integer(port, &origin))
            .collect(),
        Value::List(items) if !items.is_empty() => items.clone(),
        Value::List(_) => return Err(not_allowed(key, node, "")),
        _ => return Err(wrong_type(key, node)),
    };
    for item in &items {
        match item.value {
            Value::Integer(1..=65535) => {}
            Value::Integer(_) | Value::Text(_) => return Err(not_allowed(key, item, "")),
            _ => return Err(wrong_type(key, item)),
        }
    }
    node.value = Value::List(items);
    Ok(())
}

/// A number if it is one; else the text, which the check that follows refuses and shows.
fn text_to_integer(text: &str, origin: &Origin) -> Node {
    let value = text
        .trim()
        .parse()
        .map_or_else(|_| Value::Text(text.to_owned()), Value::Integer);
    Node {
        value,
        origin: origin.clone(),
    }
}

/// Texts with commas become lists. Table names may contain commas, so one text is one table.
fn check_texts(key: &Key, node: &mut Node) -> Result<(), Problem> {
    let origin = node.origin.clone();
    if let Value::Text(text) = &node.value {
        let part = |text: &str| Node {
            value: Value::Text(text.trim().to_owned()),
            origin: origin.clone(),
        };
        let items = if key.kind == Kind::Tables {
            vec![part(text)]
        } else {
            text.split(',').map(part).collect()
        };
        node.value = Value::List(items);
    }
    let items = node.as_list().ok_or_else(|| wrong_type(key, node))?;
    if items.is_empty() {
        return Err(not_allowed(key, node, ""));
    }
    for (at, item) in items.iter().enumerate() {
        let text = item.as_text().ok_or_else(|| wrong_type(key, item))?;
        if text.trim().is_empty() || text.contains('\0') {
            return Err(not_allowed(key, item, ""));
        }
        if key.kind == Kind::Tables {
            check_table_name(key, item, text)?;
            let same = |other: &Node| {
                other
                    .as_text()
                    .and_then(|other| other.parse::<TableName>().ok())
                    == text.parse().ok()
            };
            if items.iter().take(at).any(same) {
                return Err(table_problem(
                    key,
                    item,
                    text,
                    "the table stands in the list twice",
                ));
            }
        }
    }
    Ok(())
}

pub(crate) fn wrong_type(key: &Key, node: &Node) -> Problem {
    let found = match key.kind {
        Kind::Secret | Kind::Url => node.kind_name().to_owned(),
        _ => node.describe(),
    };
    Problem::new(Code::ConfigValueType, place(&key.path(), &node.origin))
        .found(found)
        .needed(key.kind.needed())
        .fix(example_fix(key))
}

pub(crate) fn not_allowed(key: &Key, node: &Node, why: &str) -> Problem {
    let found = match (key.kind, node.as_text()) {
        (Kind::Secret | Kind::Url, Some("")) => "an empty text".to_owned(),
        (Kind::Secret | Kind::Url, _) => node.kind_name().to_owned(),
        _ => node.describe(),
    };
    let found = if why.is_empty() {
        found
    } else {
        format!("{found}, which {why}")
    };
    Problem::new(Code::ConfigValue, place(&key.path(), &node.origin))
        .found(found)
        .needed(key.kind.needed())
        .fix(example_fix(key))
}

fn example_fix(key: &Key) -> String {
    format!("for example {} = {}", key.name, key.kind.example())
}
