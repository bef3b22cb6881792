//! Settings: the configuration, handed to each crate in that crate's own words.

use std::path::PathBuf;
use std::sync::Arc;

use replication::{ConnectOptions, Secret, process_environment};
use router::Router;
use router::connect::{ConnectRouter, OpInvalidBehavior};
use sink::{KafkaConfig, Limits, PositionTopic, ReadSecrets, TransactionConfig};

use crate::codes::Problem;
use crate::config::{Delivery, Pipeline, Source};
use crate::config_secret::read_secret_file;
use crate::connect_secrets::ConnectSecrets;
use crate::dead_letter::DeadLetters;
use crate::explain;
use crate::intake::Tolerance;
use crate::poison::Rules;
use crate::policy::{OnPoison, RunError};
use crate::preconditions::Wanted;
use crate::token_command;

/// How to connect to PostgreSQL: what the configuration says, then libpq's environment and password file.
///
/// `password_file` is read here and `token_command` run, at every connect, so that a password can be rotated under a running
/// process.
///
/// # Errors
///
/// A connection setting that is wrong, a password file that cannot be read, or a command that gives no password.
///
/// # Cancel safety
///
/// Dropping the future ends the command.
pub async fn connect_options(pipeline: &Pipeline) -> Result<ConnectOptions, RunError> {
    let source = &pipeline.source;
    let url = source.url.as_ref().map_or("", |url| url.reveal());
    let keywords = keywords(source);
    let borrowed: Vec<_> = keywords
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut options = ConnectOptions::from_parts(url, &borrowed, &process_environment)
        .map_err(explain::connect)?;
    if !source.token_command.is_empty() {
        let token = token_command::run(&source.token_command).await;
        options.set_password(token.map_err(|problem| RunError::Token(Box::new(problem)))?);
    } else if let Some(password) = password(source)? {
        options.set_password(password);
    }
    options.set_default_application_name(&format!("posthaste-{}", pipeline.name));
    Ok(options)
}

/// What the preconditions are checked against.
///
/// # Errors
///
/// The router's settings contradict each other.
pub fn wanted(pipeline: &Pipeline) -> Result<Wanted, Problem> {
    let mut wanted = Wanted {
        slot: pipeline.source.slot.clone(),
        publication: pipeline.source.publication.clone(),
        tables: pipeline.source.tables.clone(),
        create: pipeline.source.create,
        first_start: pipeline.first_start,
        slot_use: pipeline.kafka.delivery == Delivery::ExactlyOnce,
        ..Wanted::default()
    };
    match &pipeline.connect {
        Some(connect) => {
            let router =
                ConnectRouter::new(connect.clone(), "").map_err(explain::connect_config)?;
            wanted.messages = router.needs_messages();
            wanted.columns = owned(router.mapped_columns());
            wanted.connect = Some(Box::new(connect.clone()));
        }
        None => {
            let router = Router::new(pipeline.router.clone()).map_err(explain::router_config)?;
            wanted.columns = owned(router.mapped_columns());
        }
    }
    Ok(wanted)
}

fn owned(columns: Vec<(&str, bool)>) -> Vec<(String, bool)> {
    let columns = columns.into_iter();
    columns
        .map(|(column, required)| (column.to_owned(), required))
        .collect()
}

/// What is done with rows that make no record.
#[must_use]
pub fn tolerance(pipeline: &Pipeline) -> Tolerance {
    let connect = pipeline.connect.as_ref();
    Tolerance {
        stop_at_updates: connect.is_some_and(|connect| {
            connect.event_router.table_op_invalid_behavior == OpInvalidBehavior::Fatal
        }),
    }
}

/// What is done with poison events. `errors.tolerance=all` passes them over, and whatever else makes no record, unless
/// `poison.on_poison` says something else.
#[must_use]
pub fn poison_rules(pipeline: &Pipeline) -> Rules {
    let poison = &pipeline.poison;
    let tolerant = poison.on_poison == OnPoison::Halt
        && pipeline
            .connect
            .as_ref()
            .is_some_and(|connect| connect.skip_errors);
    let topic = poison.dead_letter_topic.clone();
    Rules {
        action: if tolerant {
            OnPoison::Skip
        } else {
            poison.on_poison
        },
        tolerant,
        dead_letters: DeadLetters {
            topic: topic
                .filter(|_| poison.on_poison == OnPoison::DeadLetterTopic)
                .unwrap_or_default(),
            bytes_max: poison.dead_letter_bytes_max,
        },
        parked_rows_max: poison.parked_rows_max,
        parked_bytes_max: poison.parked_bytes_max,
    }
}

/// The producer's configuration.
#[must_use]
pub fn kafka_config(pipeline: &Pipeline) -> KafkaConfig {
    let kafka = &pipeline.kafka;
    let properties = kafka.properties.iter();
    KafkaConfig {
        brokers: kafka.bootstrap_servers(),
        client_id: kafka.client_id.clone(),
        properties: properties
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        secrets: read_secrets(pipeline),
        secret_files: secret_files(pipeline),
        topic_creation: pipeline
            .connect
            .as_ref()
            .map_or_else(Vec::new, |connect| connect.topic_creation.clone()),
        limits: limits(pipeline),
    }
}

/// Reads `kafka.properties_files`, and what a connector's file points to, each time that a client is made. What cannot be read
/// stays as it was at the start.
fn read_secrets(pipeline: &Pipeline) -> Option<ReadSecrets> {
    let kafka = &pipeline.kafka;
    if kafka.properties_files.is_empty() && pipeline.connect_secrets.is_none() {
        return None;
    }
    let files = kafka.properties_files.clone();
    let (connect, properties) = (pipeline.connect_secrets.clone(), kafka.properties.clone());
    Some(Arc::new(move || {
        let connect = connect.as_ref();
        let mut secrets =
            connect.map_or_else(Vec::new, |connect| connect.changed_properties(&properties));
        for (name, path) in &files {
            match read_secret_file(&format!("kafka.properties_files.{name}"), path) {
                Ok(secret) => secrets.push((name.clone(), secret.reveal().to_owned())),
                Err(problem) => tracing::warn!(code = %problem.code, "{problem}"),
            }
        }
        secrets
    }))
}

/// The files that this comes from: another content of one asks for another client where the brokers refuse this one.
fn secret_files(pipeline: &Pipeline) -> Vec<PathBuf> {
    let connect = pipeline.connect_secrets.as_ref();
    let connect = connect.map_or(&[][..], ConnectSecrets::paths);
    let native = pipeline.kafka.properties_files.values();
    native.chain(connect).cloned().collect()
}

/// How Kafka transactions are cut, where delivery is exactly once.
#[must_use]
pub fn transactions(pipeline: &Pipeline) -> Option<TransactionConfig> {
    let kafka = &pipeline.kafka;
    let (name, slot) = (&pipeline.name, &pipeline.source.slot);
    (kafka.delivery == Delivery::ExactlyOnce).then(|| TransactionConfig {
        transactional_id: kafka
            .transactional_id
            .clone()
            .unwrap_or_else(|| format!("posthaste-{name}-{slot}")),
        timeout: kafka.transaction_timeout,
        interval: kafka.transaction_interval,
        records_max: kafka.transaction_records_max,
        bytes_max: kafka.transaction_bytes_max,
        position_topic: kafka
            .position_topic
            .clone()
            .unwrap_or_else(|| format!("posthaste.positions.{name}")),
        position_key: format!("{name}/{slot}"),
    })
}

/// Where positions are kept, where delivery is exactly once.
#[must_use]
pub fn position_topic(pipeline: &Pipeline, transactions: &TransactionConfig) -> PositionTopic {
    PositionTopic::new(
        &kafka_config(pipeline),
        &transactions.position_topic,
        pipeline.kafka.position_replicas,
    )
}

/// What may be in flight.
#[must_use]
pub fn limits(pipeline: &Pipeline) -> Limits {
    Limits {
        in_flight_records_max: pipeline.kafka.in_flight_records_max,
        in_flight_bytes_max: pipeline.kafka.in_flight_bytes_max,
    }
}

/// The keys of `[source]` as libpq's keywords.
fn keywords(source: &Source) -> Vec<(&'static str, String)> {
    let mut keywords = Vec::new();
    let mut put = |name, value: Option<String>| keywords.extend(value.map(|value| (name, value)));
    let path = |path: &Option<PathBuf>| path.as_deref().map(|path| path.display().to_string());
    put("host", joined(&source.host));
    put("port", joined(&source.port));
    put("user", source.user.clone());
    put("dbname", source.dbname.clone());
    put("passfile", path(&source.passfile));
    put("sslmode", source.sslmode.clone());
    put("sslrootcert", path(&source.sslrootcert));
    put("sslcert", path(&source.sslcert));
    put("sslkey", path(&source.sslkey));
    put("application_name", source.application_name.clone());
    let seconds = source
        .connect_timeout
        .map(|timeout| timeout.as_secs().max(1).to_string());
    put("connect_timeout", seconds);
    keywords
}

fn joined<T: ToString>(values: &[T]) -> Option<String> {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

fn password(source: &Source) -> Result<Option<Secret>, Problem> {
    if let Some(file) = &source.password_file {
        let secret = read_secret_file("source.password_file", file)?;
        return Ok(Some(Secret::new(secret.reveal())));
    }
    Ok(source
        .password
        .as_ref()
        .map(|password| Secret::new(password.reveal())))
}
