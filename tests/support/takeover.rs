//! A Debezium connector's configuration for a test's place, and `posthaste debezium takeover` as a person calls it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xtask::scratch::Scratch;

use crate::connector::binary;
use crate::fixture::{Fixture, PASSWORD};

/// `topic.prefix` of [`configuration`].
pub const PREFIX: &str = "shop";

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output, then standard error.
    pub text: String,
}

/// A connector with the Event Router on the fixture's outbox, slot and publication, as Connect's REST interface takes it.
pub fn configuration(fixture: &Fixture, name: &str) -> Value {
    let string = "org.apache.kafka.connect.storage.StringConverter";
    json!({ "name": name, "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": fixture.servers.postgres.port().to_string(),
        "database.user": fixture.role,
        "database.password": PASSWORD,
        "database.dbname": fixture.database,
        "topic.prefix": PREFIX,
        "table.include.list": "public.outbox",
        "slot.name": fixture.slot,
        "publication.name": fixture.publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "key.converter": string,
        "value.converter": string,
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": fixture.topic("${routedByValue}"),
    } })
}

/// `--set` for the fixture's state directory.
pub fn state(fixture: &Fixture) -> String {
    format!("state.directory={}", fixture.state_directory().display())
}

/// Runs `takeover` with what Connect answers to `GET /connectors/NAME/offsets`.
///
/// # Errors
/// The command cannot be run, or shows the password.
pub async fn takeover(
    fixture: &Fixture,
    configuration: &Value,
    answer: &Value,
    arguments: &[&str],
) -> Result<Ended> {
    let folder = Scratch::new("offsets")?;
    let file = folder.path().join("offsets.json");
    std::fs::write(&file, answer.to_string())?;
    takeover_from(fixture, configuration, &file.to_string_lossy(), arguments).await
}

/// Runs `takeover` with any `--offsets`.
///
/// # Errors
/// As [`takeover`].
pub async fn takeover_from(
    fixture: &Fixture,
    configuration: &Value,
    offsets: &str,
    arguments: &[&str],
) -> Result<Ended> {
    let folder = Scratch::new("takeover")?;
    let file = folder.path().join("connector.json");
    std::fs::write(&file, configuration.to_string())?;
    let mut command = Command::new(binary()?);
    command
        .args(["debezium", "takeover", "-c"])
        .arg(&file)
        .args(["--brokers", &fixture.servers.kafka.bootstrap()])
        .args(["--offsets", offsets])
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(!text.contains(PASSWORD), "{text}");
    Ok(Ended {
        code: output.status.code().context("an exit code")?,
        text,
    })
}

/// What a takeover announced for a variant: the most events that repeat after a stop, and after a kill.
///
/// # Errors
/// There is no such line.
pub fn announced(text: &str, variant: &str) -> Result<(usize, usize)> {
    let line = text.lines().find(|line| line.starts_with(variant));
    let line = line.with_context(|| format!("{variant} in {text}"))?;
    let mut numbers = line
        .split(|character: char| !character.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let mut next = || anyhow::Ok(numbers.next().context("a number")?.parse()?);
    Ok((next()?, next()?))
}
