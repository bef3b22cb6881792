//! A Debezium connector's configuration as ours: the same tree that a TOML file gives, so that overrides, checks and
//! messages are the same; and `[connect]`, which both have.

use debezium::{Autocreate, FirstStart as Snapshot, NativeConfig, Reading, Verdict};
use router::TableName;
use router::connect::{ConnectConfig, ConnectRouter, TableFilter};

use crate::codes::{Code, Problem};
use crate::config::Request;
use crate::config_check::place;
use crate::config_layout::{DEFAULT_PIPELINE_NAME, Document, is_legal_name};
use crate::config_reference::OPAQUE_TABLE;
use crate::config_tree::{Node, Origin, Table, Value, find, put, table_to_toml};
use crate::connect_file::{ConnectFiles, Outside};
use crate::connect_secrets::ConnectSecrets;
use crate::explain;
use crate::first_start::FirstStart;

/// The connector's file of a request.
///
/// # Errors
/// A file that cannot be read, or keys that cannot be followed: all of them in one message.
pub(crate) fn document(request: &Request) -> Result<Document, Problem> {
    let files = ConnectFiles {
        file: request.file.clone(),
        format: request.format.clone(),
        ..request.connect.clone()
    };
    let texts = files.texts()?;
    let outside = Outside::default();
    let reading = files.interpret(&texts, &outside)?;
    if let Some(problem) = files.refusal(&reading) {
        return Err(problem);
    }
    let Some(native) = &reading.native else {
        return Err(Problem::new(
            Code::Unexpected,
            "a configuration that is neither followed nor refused",
        ));
    };
    let mut pipeline = Table::new();
    source(&mut pipeline, native);
    kafka(&mut pipeline, native);
    connect(&mut pipeline, &native.connect)?;
    let is_named = is_legal_name(&native.name);
    Ok(Document {
        is_named,
        name: if is_named {
            native.name.clone()
        } else {
            DEFAULT_PIPELINE_NAME.to_owned()
        },
        pipeline,
        process: Table::new(),
        first_start: first_start(native),
        connect_secrets: Some(ConnectSecrets::new(files, texts, outside, native)),
        remarks: remarks(&reading),
    })
}

/// Options that mean a connector's file are not passed over beside another one.
///
/// # Errors
/// Any of them is given.
pub(crate) fn refuse_options(request: &Request) -> Result<(), Problem> {
    let given = [
        ("--worker", request.connect.worker.is_some()),
        ("--brokers", request.connect.brokers.is_some()),
        ("--debezium-version", request.connect.version.is_some()),
        (
            "--secrets-directory",
            request.connect.secrets_directory.is_some(),
        ),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else {
        return Ok(());
    };
    Err(Problem::new(Code::ConfigConflict, option)
        .found(format!(
            "beside the native configuration \"{}\"",
            request.file.display()
        ))
        .needed("a Debezium connector's file, to which this option belongs")
        .fix("write it in the file: kafka.brokers, connect.debezium_version; or give --format"))
}

/// `[connect]`, as typed values. Tables named in `[source]` are the captured ones, unless its filters say others.
///
/// # Errors
/// A key or value that is not known there, or settings with which no record can be made.
pub(crate) fn section(document: &Document, tables: &[TableName]) -> Result<ConnectConfig, Problem> {
    let node = document.pipeline.get(OPAQUE_TABLE);
    let table = node.and_then(Node::as_table).map(table_to_toml);
    let value = toml::Value::Table(table.unwrap_or_default());
    let mut config: ConnectConfig = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let names: Vec<&str> = path.split('.').collect();
        let origin = node
            .and_then(Node::as_table)
            .and_then(|table| find(table, &names))
            .or(node)
            .map_or(Origin::Preset, |node| node.origin.clone());
        Problem::new(
            Code::ConfigValue,
            place(&format!("connect.{path}"), &origin),
        )
        .found(error.inner().message())
        .needed("what posthaste debezium convert writes for it")
        .fix("correct it; docs/configuration.md says where the options are described")
    })?;
    if config.tables == TableFilter::default() {
        config.tables.names = tables.to_vec();
    }
    let router = ConnectRouter::new(config.clone(), "").map_err(explain::connect_config)?;
    match tables
        .iter()
        .find(|table| !router.captures(&table.schema, &table.name))
    {
        Some(table) => Err(not_captured(document, table)),
        None => Ok(config),
    }
}

fn not_captured(document: &Document, table: &TableName) -> Problem {
    let origin = find(&document.pipeline, &["source", "tables"])
        .map_or(Origin::Preset, |node| node.origin.clone());
    Problem::new(Code::ConfigConflict, place("source.tables", &origin))
        .found(format!("{table}, which [connect.tables] does not let pass"))
        .needed("tables that its filters let pass")
        .fix("correct [connect.tables], or remove it: then source.tables alone says which tables are captured")
}

fn source(pipeline: &mut Table, native: &NativeConfig) {
    let source = &native.source;
    let mut text = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            let node = node(value.to_owned().into());
            put(pipeline, &["source", name], node);
        }
    };
    text("user", Some(&source.user));
    let password = source.password.as_ref();
    text("password", password.map(debezium::Secret::expose));
    text("dbname", Some(&source.dbname));
    text("sslmode", Some(&source.sslmode));
    text("sslrootcert", source.sslrootcert.as_deref());
    text("sslcert", source.sslcert.as_deref());
    text("sslkey", source.sslkey.as_deref());
    text("slot", Some(&source.slot));
    text("publication", Some(&source.publication));
    let interval = format!("{}ms", source.status_interval_ms);
    text("status_interval", Some(&interval));
    put(pipeline, &["source", "host"], list(&source.host));
    let port = node(i64::from(source.port).into());
    put(pipeline, &["source", "port"], port);
    if source.failover {
        put(pipeline, &["source", "failover"], node(true.into()));
    }
    if !source.tables.is_empty() {
        put(pipeline, &["source", "tables"], list(&source.tables));
    }
}

fn kafka(pipeline: &mut Table, native: &NativeConfig) {
    let kafka = &native.kafka;
    put(pipeline, &["kafka", "brokers"], list(&kafka.brokers));
    if let Some(name) = &kafka.client_id {
        put(pipeline, &["kafka", "client_id"], node(name.clone().into()));
    }
    if kafka.exactly_once {
        let delivery = node("exactly-once".to_owned().into());
        put(pipeline, &["kafka", "delivery"], delivery);
    }
    let shown = kafka.properties.iter();
    let shown = shown.map(|(name, value)| (name, value.as_str()));
    let secret = kafka.secrets.iter();
    let secret = secret.map(|(name, value)| (name, value.expose()));
    for (name, value) in shown.chain(secret) {
        let value = node(value.to_owned().into());
        put(pipeline, &["kafka", "properties", name], value);
    }
}

fn connect(pipeline: &mut Table, config: &ConnectConfig) -> Result<(), Problem> {
    let value = toml::Value::try_from(config).map_err(|error| {
        Problem::new(Code::Unexpected, "[connect]")
            .found("settings that TOML cannot hold")
            .caused_by(error)
    })?;
    put(pipeline, &[OPAQUE_TABLE], node(value));
    Ok(())
}

fn first_start(native: &NativeConfig) -> FirstStart {
    FirstStart {
        after_debezium: true,
        snapshot: native.source.first_start == Snapshot::Snapshot,
        publication_exists: native.source.autocreate == Autocreate::Disabled,
        without_tables: native.source.autocreate == Autocreate::NoTables,
        via_partition_root: native.source.publish_via_partition_root,
        failover: native.source.failover,
    }
}

/// What should be looked at, as `check` says it.
pub(crate) fn remarks(reading: &Reading) -> Vec<String> {
    let findings = reading.findings.iter();
    findings
        .filter(|finding| finding.verdict == Verdict::Warned)
        .map(|finding| format!("{}: {}", finding.key, finding.text))
        .collect()
}

fn node(value: toml::Value) -> Node {
    Node::from_toml(value, &Origin::Connector)
}

fn list<T: ToString>(items: &[T]) -> Node {
    let items = items.iter().map(|item| Node {
        value: Value::Text(item.to_string()),
        origin: Origin::Connector,
    });
    Node {
        value: Value::List(items.collect()),
        origin: Origin::Connector,
    }
}
