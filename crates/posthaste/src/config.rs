//! The configuration: one file, of ours or of a Debezium connector, overridden by the environment, overridden by `--set`, as typed values.
//!
//! [`load`] gives a [`Config`] that is complete (defaults filled in) and legal (each value within its bounds), or one
//! [`Problem`] that names the key, what was found, what is needed and how to put it right. `docs/configuration.md` lists all keys.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use router::connect::ConnectConfig;
use router::{RouterConfig, TableName};
use serde::{Deserialize, Deserializer, de};
use sink::is_secret_property;

use crate::codes::Problem;
use crate::config_load;
pub use crate::config_secret::{ConnectionUrl, Secret};
use crate::config_units::{parse_duration, parse_size};
use crate::connect_file::ConnectFiles;
use crate::connect_secrets::ConnectSecrets;
use crate::connector_words;
use crate::first_start::FirstStart;
use crate::policy::OnPoison;

/// Everything the process was told. Secrets do not show in `Debug`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The pipelines; exactly one for now.
    pub pipelines: Vec<Pipeline>,
    /// The pages for machines.
    pub http: Http,
    /// What is kept over restarts.
    pub state: State,
    /// What is said while running.
    pub log: Log,
    /// What deserves a word at every start.
    pub remarks: Vec<String>,
}

/// One way from tables to topics. Its name goes with all that others see of it: metrics, logs, state and Kafka's client id.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// `default`, unless the file has `[[pipeline]]`. Letters, digits, `-` and `_`, at most 63.
    pub name: String,
    /// Where rows come from.
    pub source: Source,
    /// What becomes of a row; `tables` is filled in from the source.
    pub router: RouterConfig,
    /// What becomes of it where Debezium is followed; then `router` counts for nothing.
    pub connect: Option<ConnectConfig>,
    /// What a start without a slot has to respect.
    pub first_start: FirstStart,
    /// What a connector's file takes from elsewhere, to be looked up again.
    pub connect_secrets: Option<ConnectSecrets>,
    /// Where records go.
    pub kafka: Kafka,
    /// What is done with events that can never be delivered.
    pub poison: Poison,
    /// How long to wait before trying again.
    pub retry: Retry,
}

impl Pipeline {
    /// Looks again where a connector's file points to for the database's login, before a connection is made.
    pub fn renew_secrets(&mut self) {
        if let Some(secrets) = &mut self.connect_secrets {
            secrets.renew_source(&mut self.source);
        }
    }
}

/// `[source]`: the server and what to read from it. Either `url` or `host` says where it is, or libpq's `PGHOST`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// URL or keyword string. What it says is not repeated by the keys below.
    pub url: Option<ConnectionUrl>,
    /// Hosts in the order of trying; empty if the URL or the environment says it.
    #[serde(default)]
    pub host: Vec<String>,
    /// None, one for all hosts, or one for each.
    #[serde(default)]
    pub port: Vec<u16>,
    /// Role.
    pub user: Option<String>,
    /// Password; after [`load`] also the one read from `password_file`.
    pub password: Option<Secret>,
    /// File with the password alone.
    pub password_file: Option<PathBuf>,
    /// Command whose output is the password, run at every connect; program and arguments.
    #[serde(default)]
    pub token_command: Vec<String>,
    /// File in libpq's format.
    pub passfile: Option<PathBuf>,
    /// Database.
    pub dbname: Option<String>,
    /// One of libpq's words, except `allow`.
    pub sslmode: Option<String>,
    /// PEM file of authorities.
    pub sslrootcert: Option<PathBuf>,
    /// PEM file of the client certificate.
    pub sslcert: Option<PathBuf>,
    /// PEM file of its key.
    pub sslkey: Option<PathBuf>,
    /// Name in the server's views; `posthaste-` and the pipeline's name, if neither this nor libpq's environment says one.
    pub application_name: Option<String>,
    /// Longest time for one attempt at one host.
    #[serde(default, deserialize_with = "duration_option")]
    pub connect_timeout: Option<Duration>,
    /// Replication slot.
    pub slot: String,
    /// Publication, as the catalog has it.
    pub publication: String,
    /// The outbox tables; at least one, unless the pipeline's `connect` says which.
    #[serde(default)]
    pub tables: Vec<TableName>,
    /// Whether publication and slot are made where they are missing.
    pub create: bool,
    /// Whether a slot that is made is a failover slot.
    #[serde(default)]
    pub failover: bool,
    /// Longest time between two status updates.
    #[serde(deserialize_with = "duration")]
    pub status_interval: Duration,
    /// Largest row that is read into memory.
    #[serde(deserialize_with = "size")]
    pub frame_bytes_max: u64,
}

/// `[kafka]`: the brokers and the limits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// Bootstrap brokers, `host:port`.
    pub brokers: Vec<String>,
    /// Name in the brokers' logs and quotas.
    pub client_id: String,
    /// Most records handed over and not acknowledged.
    pub in_flight_records_max: usize,
    /// Most bytes handed over and not acknowledged.
    #[serde(deserialize_with = "size_usize")]
    pub in_flight_bytes_max: usize,
    /// Longest wait for acknowledgements after a stop signal.
    #[serde(deserialize_with = "duration")]
    pub drain_timeout: Duration,
    /// What a consumer may rely on.
    pub delivery: Delivery,
    /// The name of the transactional producer, if it is not made of pipeline and slot.
    pub transactional_id: Option<String>,
    /// After this time a broker aborts a Kafka transaction.
    #[serde(deserialize_with = "duration")]
    pub transaction_timeout: Duration,
    /// Longest time between two commits.
    #[serde(deserialize_with = "duration")]
    pub transaction_interval: Duration,
    /// Most records in one Kafka transaction.
    pub transaction_records_max: usize,
    /// Most bytes in one Kafka transaction.
    #[serde(deserialize_with = "size")]
    pub transaction_bytes_max: u64,
    /// The topic of positions, if it is not made of the pipeline's name.
    pub position_topic: Option<String>,
    /// How many replicas that topic must have.
    pub position_replicas: Option<u16>,
    /// librdkafka's properties; after [`load`] with the values of `properties_files`.
    pub properties: Properties,
    /// Properties whose values stand in files.
    pub properties_files: BTreeMap<String, PathBuf>,
}

/// What a consumer may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// An event may repeat after a fault.
    AtLeastOnce,
    /// A read-committed consumer sees each event once.
    ExactlyOnce,
}

/// librdkafka's properties by name. `Debug` hides those that [`is_secret_property`] knows.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Properties(BTreeMap<String, String>);

/// `[poison]`: what is done with events that can never be delivered as they are.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poison {
    /// What is done with them.
    pub on_poison: OnPoison,
    /// Where dead letters go.
    pub dead_letter_topic: Option<String>,
    /// Largest dead letter.
    #[serde(deserialize_with = "size_usize")]
    pub dead_letter_bytes_max: usize,
    /// Schema of our own tables in the source database.
    pub schema: String,
    /// Most rows that wait in the table.
    pub parked_rows_max: u64,
    /// Most bytes that wait there.
    #[serde(deserialize_with = "size")]
    pub parked_bytes_max: u64,
}

/// `[retry]`: waits between attempts, doubling from the first to the longest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// First wait.
    #[serde(deserialize_with = "duration")]
    pub backoff_initial: Duration,
    /// Longest wait.
    #[serde(deserialize_with = "duration")]
    pub backoff_max: Duration,
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// `None` for `off`.
    #[serde(deserialize_with = "listen")]
    pub listen: Option<SocketAddr>,
}

/// `[state]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Folder of the state file; without one nothing is kept.
    pub directory: Option<PathBuf>,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// A level, or directives `target=level,…`.
    pub level: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// What a configuration is made from. Has no `Debug`: the environment holds secrets.
#[derive(Clone, Default)]
pub struct Request {
    /// The file given with `-c`.
    pub file: PathBuf,
    /// The format given with `--format`.
    pub format: Option<String>,
    /// What stands beside a Debezium connector's file; its own `file` and `format` are not looked at.
    pub connect: ConnectFiles,
    /// `--create`.
    pub create: bool,
    /// `--set`, in order; later ones win.
    pub set: Vec<String>,
    /// `--log-format`.
    pub log_format: Option<String>,
    /// `--log-level`.
    pub log_level: Option<String>,
    /// The environment; variables without the prefix `POSTHASTE__` are looked at only where libpq and systemd say so.
    pub environment: Vec<(OsString, OsString)>,
}

/// Reads, overrides, checks and completes the configuration, and reads the files with secrets.
///
/// # Errors
/// The first thing that is wrong, with a code of the group PH01; the process should end with status 2.
pub fn load(request: &Request) -> Result<Config, Problem> {
    let document = config_load::document(request)?;
    let typed = config_load::typed(&document);
    let mut config = typed.map_err(|problem| match document.first_start.after_debezium {
        true => connector_words::in_connectors_words(problem),
        false => problem,
    })?;
    config_load::read_secret_files(&mut config)?;
    Ok(config)
}

/// The effective configuration as TOML, with the origin of each value and without secrets. Files with secrets are not read.
///
/// # Errors
/// As [`load`].
pub fn effective(request: &Request) -> Result<String, Problem> {
    let document = config_load::document(request)?;
    config_load::typed(&document)?;
    Ok(crate::config_print::print(&document))
}

impl Kafka {
    /// The brokers as librdkafka takes them.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.brokers.join(",")
    }
}

impl Properties {
    /// Sets one property.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// The value of a property.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name, secrets included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = Secret::default();
        let mut map = f.debug_map();
        for (name, value) in &self.0 {
            let shown: &dyn fmt::Debug = if is_secret_property(name) {
                &hidden
            } else {
                value
            };
            map.entry(name, shown);
        }
        map.finish()
    }
}

// The tree is checked before serde sees it, so these errors only appear if the reference table and these types disagree.

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn duration_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn size_usize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    usize::try_from(size(deserializer)?).map_err(de::Error::custom)
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "off" {
        Ok(None)
    } else {
        text.parse().map(Some).map_err(de::Error::custom)
    }
}
