//! From a request to a complete, checked document, and from there to typed values.

use std::ffi::OsStr;

use router::{Router, RouterConfig, RouterConfigError};
use serde::de::DeserializeOwned;

use crate::codes::{Code, Problem};
use crate::config::{Config, Log, Pipeline, Request};
use crate::config_check::{check_tables, place};
use crate::config_conflict::settle;
use crate::config_connect;
use crate::config_file::{Format, read_toml};
use crate::config_layout::Document;
use crate::config_overlay::{apply_environment, apply_flag, apply_set};
use crate::config_reference::{
    KEYS, Key, OPAQUE_TABLE, PIPELINE_TABLES, PROCESS_TABLES, Preset, key,
};
use crate::config_secret::read_secret_file;
use crate::config_tree::{Node, Origin, Table, Value, find, put, table_to_toml};
use crate::logging::filter;
use crate::policy::OnPoison;

/// File, environment, `--set`, options: laid over each other, checked, and completed with the defaults.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn document(request: &Request) -> Result<Document, Problem> {
    let mut document = match Format::choose(&request.file, request.format.as_deref())? {
        Format::Toml => {
            config_connect::refuse_options(request)?;
            Document::new(read_toml(&request.file)?)?
        }
        Format::Connect => config_connect::document(request)?,
    };
    apply_environment(&mut document, &request.environment)?;
    for (at, argument) in request.set.iter().enumerate() {
        apply_set(&mut document, argument, at + 1)?;
    }
    let flags = [
        ("format", &request.log_format, "--log-format"),
        ("level", &request.log_level, "--log-level"),
    ];
    if request.create {
        apply_flag(&mut document, "source", "create", "true", "--create");
    }
    for (name, value, flag) in flags {
        if let Some(value) = value {
            apply_flag(&mut document, "log", name, value, flag);
        }
    }
    check_tables(&mut document.pipeline, &PIPELINE_TABLES)?;
    check_tables(&mut document.process, &PROCESS_TABLES)?;
    refuse_both(&document)?;
    complete(&mut document, request)?;
    Ok(document)
}

/// The values of a completed document.
///
/// # Errors
/// A value that only shows to be wrong when it is used, such as a log level.
pub(crate) fn typed(document: &Document) -> Result<Config, Problem> {
    let mut pipeline = Pipeline {
        name: document.name.clone(),
        source: section(&document.pipeline, "source")?,
        router: section(&document.pipeline, "router")?,
        connect: None,
        first_start: document.first_start,
        connect_secrets: document.connect_secrets.clone(),
        kafka: section(&document.pipeline, "kafka")?,
        poison: section(&document.pipeline, "poison")?,
        retry: section(&document.pipeline, "retry")?,
    };
    check_poison(document, &pipeline)?;
    pipeline.first_start.failover |= pipeline.source.failover;
    pipeline.router.tables.clone_from(&pipeline.source.tables);
    if document.pipeline.contains_key(OPAQUE_TABLE) {
        let connect = config_connect::section(document, &pipeline.source.tables)?;
        pipeline.connect = Some(connect);
    } else {
        check_router(document, &pipeline.router)?;
    }
    let log: Log = section(&document.process, "log")?;
    if let Err(mut problem) = filter(&log.level) {
        problem.what = located(&document.process, "log", "level");
        return Err(problem);
    }
    Ok(Config {
        pipelines: vec![pipeline],
        http: section(&document.process, "http")?,
        state: section(&document.process, "state")?,
        log,
        remarks: document.remarks.clone(),
    })
}

/// Puts the content of `password_file` and `properties_files` where the values themselves would stand.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn read_secret_files(config: &mut Config) -> Result<(), Problem> {
    for pipeline in &mut config.pipelines {
        if let Some(path) = &pipeline.source.password_file {
            pipeline.source.password = Some(read_secret_file("source.password_file", path)?);
        }
        for (property, path) in &pipeline.kafka.properties_files {
            let secret = read_secret_file(&format!("kafka.properties_files.{property}"), path)?;
            pipeline.kafka.properties.insert(property, secret.reveal());
        }
    }
    Ok(())
}

/// A row goes one way.
fn refuse_both(document: &Document) -> Result<(), Problem> {
    let (Some(connect), Some(router)) = (
        document.pipeline.get(OPAQUE_TABLE),
        document.pipeline.get("router"),
    ) else {
        return Ok(());
    };
    Err(
        Problem::new(Code::ConfigConflict, place("[connect]", &connect.origin))
            .found(format!("{} beside it", place("[router]", &router.origin)))
            .needed("one of the two: [connect] does as Debezium does, [router] is the native way")
            .fix("remove [router] or [connect]"),
    )
}

/// The router judges its own settings; here they get their place in the file.
fn check_router(document: &Document, settings: &RouterConfig) -> Result<(), Problem> {
    let Err(error) = Router::new(settings.clone()) else {
        return Ok(());
    };
    let name = match &error {
        RouterConfigError::BadName { key, .. } => key,
        RouterConfigError::NoTable => "tables",
        _ => "topic",
    };
    let text = error.to_string();
    Err(Problem::new(
        Code::ConfigRouter,
        located(&document.pipeline, "router", name),
    )
    .found(text.strip_prefix(&format!("{name}: ")).unwrap_or(&text))
    .needed(if name == "topic" {
        "a topic name of letters, digits, . _ and -, at most 249, with placeholders in braces"
    } else {
        "a column's name"
    })
    .fix(if name == "topic" {
        "for example topic = \"outbox.event.{aggregatetype}\""
    } else {
        "correct the name"
    })
    .caused_by(error))
}

/// A dead letter needs a topic that Kafka takes, and our own tables are no outbox.
fn check_poison(document: &Document, pipeline: &Pipeline) -> Result<(), Problem> {
    let poison = &pipeline.poison;
    let place = |name| located(&document.pipeline, "poison", name);
    if poison.on_poison == OnPoison::DeadLetterTopic && poison.dead_letter_topic.is_none() {
        return Err(
            Problem::new(Code::ConfigKeyMissing, place("dead_letter_topic"))
                .found("no topic")
                .needed(
                    "the topic of the dead letters, since poison.on_poison is dead-letter-topic",
                )
                .fix("add dead_letter_topic = \"…\" below [poison]"),
        );
    }
    if let Some(topic) = &poison.dead_letter_topic
        && !is_legal_topic(topic)
    {
        return Err(Problem::new(Code::ConfigValue, place("dead_letter_topic"))
            .found(format!("\"{}\"", topic.escape_debug()))
            .needed("1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
            .fix("for example dead_letter_topic = \"outbox.dead\""));
    }
    match pipeline
        .source
        .tables
        .iter()
        .find(|table| table.schema == poison.schema)
    {
        Some(table) => Err(Problem::new(Code::ConfigConflict, place("schema"))
            .found(format!("{table} in source.tables"))
            .needed("an outbox in another schema: rows of this one are never events")
            .fix(
                "name another schema in poison.schema, and make its tables with sql/004_poison.sql",
            )),
        None => Ok(()),
    }
}

fn is_legal_topic(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

/// `router.topic (line 7)`.
fn located(tree: &Table, table: &str, name: &str) -> String {
    let origin = find(tree, &[table, name]).map_or(Origin::Preset, |node| node.origin.clone());
    place(&format!("{table}.{name}"), &origin)
}

/// Fills in what nobody wrote, and refuses what has to be written.
fn complete(document: &mut Document, request: &Request) -> Result<(), Problem> {
    // Two ways of writing are settled first: a default must not stand against what was written.
    settle(&mut document.pipeline)?;
    let is_connect = document.pipeline.contains_key(OPAQUE_TABLE);
    for entry in KEYS {
        let tree = if PIPELINE_TABLES.contains(&entry.table) {
            &mut document.pipeline
        } else {
            &mut document.process
        };
        if find(tree, &[entry.table, entry.name]).is_some() {
            continue;
        }
        if is_connect
            && (entry.table == "router" || (entry.table, entry.name) == ("source", "tables"))
        {
            continue;
        }
        match entry.preset {
            Preset::Required => return Err(missing(entry)),
            Preset::Value(text) => {
                let value = text.parse::<toml::Value>().map_err(|_| {
                    Problem::new(Code::Unexpected, entry.path()).found("a default that is not TOML")
                })?;
                put(
                    tree,
                    &[entry.table, entry.name],
                    Node::from_toml(value, &Origin::Preset),
                );
            }
            Preset::Absent(_) | Preset::Computed(_) => {}
        }
    }
    // Defaults may stand against what was written too: a first wait above the default for the longest one.
    settle(&mut document.pipeline)?;
    complete_computed(document, request);
    require_server(document, request)
}

fn complete_computed(document: &mut Document, request: &Request) {
    if find(&document.pipeline, &["kafka", "client_id"]).is_none() {
        let client_id = format!("posthaste-{}", document.name);
        put(
            &mut document.pipeline,
            &["kafka", "client_id"],
            Node::preset(Value::Text(client_id)),
        );
    }
    if find(&document.process, &["state", "directory"]).is_none() {
        // Every table appears once at least, or serde would miss it.
        document
            .process
            .entry("state".to_owned())
            .or_insert_with(|| Node::preset(Value::Table(Table::new())));
        // systemd gives a list with colons if the unit names several folders.
        let folders = variable(request, "STATE_DIRECTORY").and_then(|folders| folders.to_str());
        if let Some(folder) = folders
            .and_then(|folders| folders.split(':').next())
            .filter(|folder| !folder.is_empty())
        {
            let node = Node {
                value: Value::Text(folder.to_owned()),
                origin: Origin::Environment("STATE_DIRECTORY".to_owned()),
            };
            put(&mut document.process, &["state", "directory"], node);
        }
    }
}

/// libpq would try a unix socket without being told anything; a service that was told nothing has been misconfigured.
fn require_server(document: &Document, request: &Request) -> Result<(), Problem> {
    let written = ["url", "host"]
        .iter()
        .any(|name| find(&document.pipeline, &["source", name]).is_some());
    let in_environment = ["PGHOST", "PGHOSTADDR"]
        .iter()
        .any(|name| variable(request, name).is_some());
    if written || in_environment {
        return Ok(());
    }
    Err(key("source", "url").map_or_else(
        || Problem::new(Code::ConfigKeyMissing, "source.url"),
        missing,
    ))
}

fn variable<'a>(request: &'a Request, name: &str) -> Option<&'a OsStr> {
    request
        .environment
        .iter()
        .find(|(key, value)| key == name && !value.is_empty())
        .map(|(_, value)| value.as_os_str())
}

fn missing(entry: &Key) -> Problem {
    Problem::new(Code::ConfigKeyMissing, entry.path())
        .found(format!(
            "neither the key, nor {}, nor --set {}",
            entry.environment_name(),
            entry.path()
        ))
        .needed(format!(
            "{} ({})",
            entry.kind.needed(),
            entry.meaning.trim_end_matches('.')
        ))
        .fix(format!(
            "write below [{}]: {} = {}",
            entry.table,
            entry.name,
            entry.kind.example()
        ))
}

/// Hands one table to serde. What is wrong here was not caught by the check, so the message names the key and shows no value.
fn section<T: DeserializeOwned>(tree: &Table, name: &str) -> Result<T, Problem> {
    let table = tree
        .get(name)
        .and_then(Node::as_table)
        .map(table_to_toml)
        .unwrap_or_default();
    serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|error| {
        let path = format!("{name}.{}", error.path());
        let needed = error
            .path()
            .iter()
            .next()
            .and_then(|segment| key(name, &segment.to_string()))
            .map(|key| key.kind.needed());
        Problem::new(Code::ConfigValue, path)
            .found("a value that cannot be used")
            .needed(needed.unwrap_or_default())
            .fix("correct it; docs/configuration.md describes every key")
    })
}
