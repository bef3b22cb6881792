//! Overrides: environment variables `POSTHASTE__SOURCE__URL`, then `--set source.url=…`, then options of their own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::codes::{Code, Problem};
use crate::config_check::{all_tables, unknown_key};
use crate::config_layout::Document;
use crate::config_reference::{Key, OPAQUE_TABLE, PIPELINE_TABLES, key};
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Value, put, quoted};

/// Two underscores: Kubernetes makes variables like `POSTHASTE_PORT` for a service called `posthaste`.
const PREFIX: &str = "POSTHASTE__";

/// Properties of librdkafka whose names have underscores; in all others an underscore of a variable stands for a dot.
const PROPERTIES_WITH_UNDERSCORES: [&str; 1] = ["log_level"];

/// Lays the variables of `environment` that begin with `POSTHASTE__` over the document.
///
/// # Errors
/// A variable that names no key, is not UTF-8, or sets a key that another one sets too. Nothing is ignored.
pub(crate) fn apply_environment(
    document: &mut Document,
    environment: &[(OsString, OsString)],
) -> Result<(), Problem> {
    let mut seen: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| starts_with_prefix(name)) else {
            continue;
        };
        let origin = Origin::Environment(name.to_owned());
        let (key, path) = resolve_variable(name, &origin)?;
        let value = text_of_variable(name, value)?;
        if let Some(other) = seen.insert(path.clone(), name) {
            return Err(
                Problem::new(Code::ConfigOverride, format!("environment variable {name}"))
                    .found(format!("{other} sets the same key, {}", path.join(".")))
                    .needed("one variable for each key; capitals do not count")
                    .fix("unset one of the two"),
            );
        }
        apply(document, key, &path, value, origin);
    }
    Ok(())
}

/// Lays one `--set KEY=VALUE` over the document; `position` counts them from 1.
///
/// # Errors
/// There is no `=`, the key cannot be read, or names nothing. The value is never shown.
pub(crate) fn apply_set(
    document: &mut Document,
    argument: &str,
    position: usize,
) -> Result<(), Problem> {
    let (segments, value) = split_argument(argument).ok_or_else(|| {
        // Without a key that can be trusted, all of the argument may be a secret.
        Problem::new(Code::ConfigOverride, format!("--set number {position}"))
            .found("no key and value with = in between")
            .needed("table.key=value; parts of a key with dots of their own stand in quotes")
            .fix("for example --set source.slot=outbox or --set 'kafka.properties.\"security.protocol\"=SSL'")
    })?;
    let written = segments.join(".");
    let origin = Origin::Set(written.clone());
    let Some((table, rest)) = segments.split_first() else {
        return Err(unknown_override_table(&written, "", &origin));
    };
    let Some((name, property)) = rest.split_first() else {
        return Err(unknown_override_table(&written, table, &origin));
    };
    let key = find_key(table, name, &written, &origin)?;
    let path = key_path(key, &property.join("."), &written, &origin)?;
    apply(document, key, &path, value, origin);
    Ok(())
}

/// Lays the value of an option such as `--log-level` over the document.
pub(crate) fn apply_flag(
    document: &mut Document,
    table: &str,
    name: &str,
    value: &str,
    flag: &'static str,
) {
    if let Some(key) = key(table, name) {
        apply(
            document,
            key,
            &[table.to_owned(), name.to_owned()],
            value,
            Origin::Flag(flag),
        );
    }
}

fn apply(document: &mut Document, key: &Key, path: &[String], text: &str, origin: Origin) {
    let tree = if PIPELINE_TABLES.contains(&key.table) {
        &mut document.pipeline
    } else {
        &mut document.process
    };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let node = node_of(key, text, &origin);
    if key.kind.is_free_table() {
        // `security.protocol` may stand in the file without quotes, as a table in a table; the override replaces it there too.
        if let Some(Node {
            value: Value::Table(table),
            ..
        }) = tree
            .get_mut(key.table)
            .and_then(|node| match &mut node.value {
                Value::Table(table) => table.get_mut(key.name),
                _ => None,
            })
        {
            remove_dotted(table, path.last().copied().unwrap_or_default());
        }
    }
    put(tree, &path, node);
}

/// Removes `a.b.c`, whether written as one key or as tables.
fn remove_dotted(table: &mut crate::config_tree::Table, name: &str) {
    table.remove(name);
    for (at, _) in name.match_indices('.') {
        let (first, rest) = (
            name.get(..at).unwrap_or_default(),
            name.get(at + 1..).unwrap_or_default(),
        );
        if let Some(Node {
            value: Value::Table(inner),
            ..
        }) = table.get_mut(first)
        {
            remove_dotted(inner, rest);
        }
    }
}

/// A text in TOML's quotes is unquoted. Otherwise keys that take text get it as it is; for the others it is read as TOML if it can be.
fn node_of(key: &Key, text: &str, origin: &Origin) -> Node {
    let is_quoted = text.starts_with(['"', '\'']);
    let parsed = if is_quoted || !key.kind.takes_text_only() {
        text.trim().parse::<toml::Value>().ok()
    } else {
        None
    };
    match parsed {
        Some(value) if value.is_str() || !key.kind.takes_text_only() => {
            Node::from_toml(value, origin)
        }
        _ => Node {
            value: Value::Text(text.to_owned()),
            origin: origin.clone(),
        },
    }
}

fn starts_with_prefix(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The key a variable names, and its path in the tree.
fn resolve_variable(name: &str, origin: &Origin) -> Result<(&'static Key, Vec<String>), Problem> {
    let lower = name
        .get(PREFIX.len()..)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let mut segments = lower.split("__");
    let table = segments.next().unwrap_or_default();
    let Some(key_name) = segments.next() else {
        return Err(unknown_override_table(name, table, origin));
    };
    let key = find_key(table, key_name, name, origin)?;
    let property = segments.collect::<Vec<_>>().join(".");
    let property = if PROPERTIES_WITH_UNDERSCORES.contains(&property.as_str()) {
        property
    } else {
        property.replace('_', ".")
    };
    Ok((key, key_path(key, &property, name, origin)?))
}

fn find_key(
    table: &str,
    name: &str,
    written: &str,
    origin: &Origin,
) -> Result<&'static Key, Problem> {
    if !all_tables().contains(&table) {
        return Err(unknown_override_table(written, table, origin));
    }
    if table == OPAQUE_TABLE {
        let mut problem = override_problem(written, origin);
        problem.code = Code::ConfigKeyUnknown;
        return Err(problem
            .found("a key of [connect], which is not overridden")
            .needed("a key of another table")
            .fix("write it below [connect] in the file"));
    }
    key(table, name).ok_or_else(|| unknown_key(table, name, written, origin))
}

/// Free tables need the name of a property after the key; all other keys must have nothing there.
fn key_path(
    key: &Key,
    property: &str,
    written: &str,
    origin: &Origin,
) -> Result<Vec<String>, Problem> {
    let mut path = vec![key.table.to_owned(), key.name.to_owned()];
    match (key.kind.is_free_table(), property.is_empty()) {
        (true, false) => path.push(property.to_owned()),
        (false, true) => {}
        (true, true) => {
            let example = match origin {
                Origin::Environment(_) => format!("{}__SECURITY_PROTOCOL", key.environment_name()),
                _ => format!("--set '{}.\"security.protocol\"=SSL'", key.path()),
            };
            return Err(override_problem(written, origin)
                .found("no name of a property")
                .needed(format!("{} and the name of one property", key.path()))
                .fix(format!("for example {example}")));
        }
        (false, false) => {
            return Err(override_problem(written, origin)
                .found(format!("{} and more behind it", key.path()))
                .needed("a key; this one has no parts")
                .fix(match origin {
                    Origin::Environment(_) => format!("write {}", key.environment_name()),
                    _ => format!("write --set {}=…", key.path()),
                }));
        }
    }
    Ok(path)
}

fn override_problem(written: &str, origin: &Origin) -> Problem {
    let what = match origin {
        Origin::Environment(_) => format!("environment variable {written}"),
        _ => format!("--set {written}"),
    };
    Problem::new(Code::ConfigOverride, what)
}

fn unknown_override_table(written: &str, table: &str, origin: &Origin) -> Problem {
    let tables = all_tables();
    let fix = match (nearest(table, tables.iter().copied()), origin) {
        (Some(meant), Origin::Environment(_)) => {
            format!("write {PREFIX}{}__ and the key", meant.to_ascii_uppercase())
        }
        (Some(meant), _) => format!("write --set {meant}.KEY=VALUE"),
        (None, _) => "remove it, or take one of these tables".to_owned(),
    };
    let mut problem = override_problem(written, origin);
    problem.code = Code::ConfigKeyUnknown;
    problem
        .found(format!("no key {}", quoted(table)))
        .needed(format!(
            "a table and a key; the tables are: {}",
            tables.join(", ")
        ))
        .fix(fix)
}

fn text_of_variable<'a>(name: &str, value: &'a OsStr) -> Result<&'a str, Problem> {
    value.to_str().ok_or_else(|| {
        Problem::new(Code::ConfigOverride, format!("environment variable {name}"))
            .found("bytes that are not UTF-8")
            .needed("a text")
            .fix("correct the variable, or unset it")
    })
}

/// Splits `a."b.c".d=value` into the parts of the key and the value.
fn split_argument(argument: &str) -> Option<(Vec<String>, &str)> {
    let mut segments = Vec::new();
    let mut rest = argument.trim_start();
    loop {
        let (segment, after) = take_segment(rest)?;
        segments.push(segment);
        let after = after.trim_start();
        if let Some(value) = after.strip_prefix('=') {
            return Some((segments, value));
        }
        rest = after.strip_prefix('.')?.trim_start();
    }
}

/// One part of a key, bare or in quotes, and what follows it.
fn take_segment(text: &str) -> Option<(String, &str)> {
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let (segment, after) = quoted.split_once(quote)?;
            return Some((segment.to_owned(), after));
        }
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))?;
    let (segment, after) = text.split_at(end);
    (!segment.is_empty()).then(|| (segment.to_owned(), after))
}
