//! Settings that can be written in two ways: an override of one way replaces the other, both in one place are refused.

use crate::codes::{Code, Problem};
use crate::config_check::place;
use crate::config_secret::connection_keywords;
use crate::config_tree::{Node, Origin, Table, Value};
use crate::config_units::parse_duration;

/// Leaves one way of writing for every setting. Runs on a checked tree, before defaults are filled in.
///
/// # Errors
/// Two ways of writing one setting, with the same precedence, or two values that do not fit together.
pub(crate) fn settle(pipeline: &mut Table) -> Result<(), Problem> {
    if let Some(Value::Table(source)) = pipeline.get_mut("source").map(|node| &mut node.value) {
        settle_pair(source, "table", "tables")?;
        if let Some(mut node) = source.remove("table") {
            node.value = Value::List(vec![node.clone()]);
            source.insert("tables".to_owned(), node);
        }
        settle_pair(source, "password", "password_file")?;
        settle_pair(source, "password", "token_command")?;
        settle_pair(source, "password_file", "token_command")?;
        settle_url(source)?;
        check_ports(source)?;
    }
    if let Some(Value::Table(kafka)) = pipeline.get_mut("kafka").map(|node| &mut node.value) {
        settle_properties(kafka)?;
    }
    if let Some(Value::Table(retry)) = pipeline.get_mut("retry").map(|node| &mut node.value) {
        check_backoff(retry)?;
    }
    Ok(())
}

/// Who wins over whom; lines of a file are equals.
fn layer(origin: &Origin) -> u8 {
    match origin {
        Origin::Preset => 0,
        Origin::File { .. } | Origin::Connector => 1,
        Origin::Environment(_) => 2,
        Origin::Set(_) | Origin::Flag(_) => 3,
    }
}

fn conflict(
    path: &str,
    origin: &Origin,
    other: &str,
    other_origin: &Origin,
    fix: String,
) -> Problem {
    Problem::new(Code::ConfigConflict, place(path, origin))
        .found(format!("{} beside it", place(other, other_origin)))
        .needed("one of the two")
        .fix(fix)
}

fn settle_pair(source: &mut Table, first: &str, second: &str) -> Result<(), Problem> {
    let (Some(a), Some(b)) = (source.get(first), source.get(second)) else {
        return Ok(());
    };
    let (a, b) = (a.origin.clone(), b.origin.clone());
    match layer(&a).cmp(&layer(&b)) {
        std::cmp::Ordering::Less => source.remove(first),
        std::cmp::Ordering::Greater => source.remove(second),
        std::cmp::Ordering::Equal => {
            let (first, second) = (format!("source.{first}"), format!("source.{second}"));
            let fix = format!("remove {first} or {second}");
            return Err(conflict(&first, &a, &second, &b, fix));
        }
    };
    Ok(())
}

/// A URL says where the server is; the other keys may only add what it does not say.
fn settle_url(source: &mut Table) -> Result<(), Problem> {
    let Some(url) = source.get("url") else {
        return Ok(());
    };
    let url_origin = url.origin.clone();
    let mut said = connection_keywords(url.as_text().unwrap_or_default());
    said.extend(["host".to_owned(), "port".to_owned()]);
    if said.iter().any(|keyword| keyword == "password") {
        said.extend(["password_file".to_owned(), "token_command".to_owned()]);
    }
    for keyword in said {
        let Some(key) = source.get(&keyword) else {
            continue;
        };
        if layer(&url_origin) > layer(&key.origin) {
            source.remove(&keyword);
            continue;
        }
        let path = format!("source.{keyword}");
        let fix = format!(
            "say it in source.url alone, or take it out of the URL and remove source.url if {path} is to say where the server is"
        );
        let fix = if keyword == "host" || keyword == "port" {
            format!(
                "keep source.url, or remove it and write host, port, user and dbname; {path} cannot stand beside it"
            )
        } else {
            fix
        };
        return Err(conflict(
            &path,
            &key.origin,
            "source.url, which says the same,",
            &url_origin,
            fix,
        ));
    }
    Ok(())
}

fn check_ports(source: &Table) -> Result<(), Problem> {
    let length = |key: &str| source.get(key).and_then(Node::as_list).map(<[_]>::len);
    let (hosts, ports) = (length("host").unwrap_or(1), length("port").unwrap_or(1));
    if ports == 1 || ports == hosts {
        return Ok(());
    }
    let origin = source
        .get("port")
        .map_or(Origin::Preset, |node| node.origin.clone());
    Err(
        Problem::new(Code::ConfigConflict, place("source.port", &origin))
            .found(format!("{ports} ports for {hosts} hosts"))
            .needed("one port for all hosts, or one for each")
            .fix("make the two lists equally long"),
    )
}

fn settle_properties(kafka: &mut Table) -> Result<(), Problem> {
    let (Some(properties), Some(files)) = (
        free_table(kafka, "properties"),
        free_table(kafka, "properties_files"),
    ) else {
        return Ok(());
    };
    let both: Vec<String> = properties
        .keys()
        .filter(|name| files.contains_key(*name))
        .cloned()
        .collect();
    for name in both {
        let origin_in = |table: &str| {
            free_table(kafka, table)
                .and_then(|table| table.get(&name))
                .map_or(Origin::Preset, |node| node.origin.clone())
        };
        let (value, file) = (origin_in("properties"), origin_in("properties_files"));
        let loser = match layer(&value).cmp(&layer(&file)) {
            std::cmp::Ordering::Less => "properties",
            std::cmp::Ordering::Greater => "properties_files",
            std::cmp::Ordering::Equal => {
                let (first, second) = (
                    format!("kafka.properties.{name}"),
                    format!("kafka.properties_files.{name}"),
                );
                return Err(conflict(
                    &first,
                    &value,
                    &second,
                    &file,
                    format!("remove {first} or {second}"),
                ));
            }
        };
        if let Some(Value::Table(table)) = kafka.get_mut(loser).map(|node| &mut node.value) {
            table.remove(&name);
        }
    }
    Ok(())
}

fn free_table<'a>(kafka: &'a Table, name: &str) -> Option<&'a Table> {
    kafka.get(name).and_then(Node::as_table)
}

fn check_backoff(retry: &Table) -> Result<(), Problem> {
    let (Some(initial), Some(max)) = (retry.get("backoff_initial"), retry.get("backoff_max"))
    else {
        return Ok(());
    };
    let duration = |node: &Node| node.as_text().and_then(|text| parse_duration(text).ok());
    if duration(initial) <= duration(max) {
        return Ok(());
    }
    Err(Problem::new(
        Code::ConfigConflict,
        place("retry.backoff_initial", &initial.origin),
    )
    .found(format!(
        "{} above retry.backoff_max, {}",
        initial.describe(),
        max.describe()
    ))
    .needed("a first wait that is not longer than the longest one")
    .fix("raise backoff_max or lower backoff_initial"))
}
