//! The native configuration as a file, without secrets: where one belongs, a comment says how to give it.

use router::connect::ConnectConfig;
use serde::Serialize;
use toml::{Table, Value};

use crate::native::{FirstStart, Kafka, NativeConfig, Secret, Source};

impl NativeConfig {
    /// The configuration as TOML. What is as by default is left out, except the version that is followed.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!("# Made from the connector {}.\n\n", quoted(&self.name));
        source(&mut text, &self.source, self.connect.messages.is_some());
        kafka(&mut text, &self.kafka);
        connect(&mut text, &self.connect);
        text
    }
}

/// One line. A line break inside, which a comment could hold, must not end it.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => {
        $text.push_str(&format!($($arg)*).replace(['\n', '\r'], " "));
        $text.push('\n');
    };
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let values = texts
        .into_iter()
        .map(|text| Value::String(text.as_ref().to_owned()));
    Value::Array(values.collect()).to_string()
}

fn source(text: &mut String, source: &Source, messages: bool) {
    line!(text, "[source]");
    line!(text, "host = {}", list(&source.host));
    line!(text, "port = {}", source.port);
    line!(text, "user = {}", quoted(&source.user));
    password(text, source.password.as_ref());
    line!(text, "dbname = {}", quoted(&source.dbname));
    line!(text, "sslmode = {}", quoted(&source.sslmode));
    for (key, path) in [
        ("sslrootcert", &source.sslrootcert),
        ("sslcert", &source.sslcert),
        ("sslkey", &source.sslkey),
    ] {
        if let Some(path) = path {
            line!(text, "{key} = {}", quoted(path));
        }
    }
    line!(text, "slot = {}", quoted(&source.slot));
    line!(text, "publication = {}", quoted(&source.publication));
    if !source.tables.is_empty() {
        line!(
            text,
            "tables = {}",
            list(source.tables.iter().map(ToString::to_string))
        );
    } else if !messages {
        line!(
            text,
            "# tables: those of the publication that [connect.tables] lets pass"
        );
    }
    line!(
        text,
        "status_interval = \"{}ms\"",
        source.status_interval_ms
    );
    if source.failover {
        line!(text, "failover = true");
    }
    if source.first_start == FirstStart::Snapshot {
        line!(
            text,
            "# snapshot.mode: a start without a slot is refused, as it would publish the rows that are there"
        );
    }
    text.push('\n');
}

fn password(text: &mut String, password: Option<&Secret>) {
    let Some(password) = password else { return };
    match (&password.file, &password.variable) {
        (Some(file), _) => {
            line!(text, "password_file = {}", quoted(file));
        }
        (None, Some(variable)) => {
            line!(
                text,
                "# password: set POSTHASTE__SOURCE__PASSWORD to what {variable} holds"
            );
        }
        (None, None) => {
            line!(
                text,
                "# password: set POSTHASTE__SOURCE__PASSWORD, or password_file = \"…\""
            );
        }
    }
}

fn kafka(text: &mut String, kafka: &Kafka) {
    line!(text, "[kafka]");
    line!(text, "brokers = {}", list(&kafka.brokers));
    if let Some(name) = &kafka.client_id {
        line!(text, "client_id = {}", quoted(name));
    }
    text.push('\n');
    line!(text, "[kafka.properties]");
    for (name, value) in &kafka.properties {
        line!(text, "{} = {}", quoted(name), quoted(value));
    }
    let (files, others): (Vec<_>, Vec<_>) = kafka
        .secrets
        .iter()
        .partition(|(_, secret)| secret.file.is_some());
    for (name, _) in others {
        let variable = name.replace('.', "_").to_ascii_uppercase();
        line!(
            text,
            "# {}: set POSTHASTE__KAFKA__PROPERTIES__{variable}, or write its file below [kafka.properties_files]",
            quoted(name)
        );
    }
    if !files.is_empty() {
        text.push('\n');
        line!(text, "[kafka.properties_files]");
    }
    for (name, secret) in files {
        line!(
            text,
            "{} = {}",
            quoted(name),
            quoted(secret.file.as_deref().unwrap_or_default())
        );
    }
    text.push('\n');
}

fn connect(text: &mut String, connect: &ConnectConfig) {
    #[derive(Serialize)]
    struct Section {
        connect: Table,
    }
    let table = |connect: &ConnectConfig| Table::try_from(connect).unwrap_or_default();
    let mut said = table(connect);
    without_defaults(&mut said, &table(&ConnectConfig::default()));
    // What a later version does by default must not change what this file means.
    said.insert(
        "debezium_version".to_owned(),
        connect.debezium_version.to_string().into(),
    );
    text.push_str(&toml::to_string(&Section { connect: said }).unwrap_or_default());
}

fn without_defaults(said: &mut Table, defaults: &Table) {
    said.retain(|key, value| match (value, defaults.get(key)) {
        (Value::Table(said), Some(Value::Table(defaults))) => {
            without_defaults(said, defaults);
            !said.is_empty()
        }
        (value, default) => Some(&*value) != default,
    });
}
