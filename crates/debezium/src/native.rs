//! The result: what a connector's configuration is in Posthaste's own terms.

use std::collections::BTreeMap;
use std::fmt;

use router::TableName;
use router::connect::ConnectConfig;

/// A pipeline that does what the connector did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NativeConfig {
    /// The connector's name. With `topic_prefix` it is the key of the offset that Debezium stored.
    pub name: String,
    /// `[source]`.
    pub source: Source,
    /// `[kafka]`.
    pub kafka: Kafka,
    /// `[connect]`: what becomes of a row.
    pub connect: ConnectConfig,
    /// The topic with the offsets that Connect stored, if the worker's file or the connector's names it.
    pub offsets_topic: Option<String>,
}

/// `[source]`: the server and what to read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// Hosts in the order of trying.
    pub host: Vec<String>,
    /// Their port.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Its password.
    pub password: Option<Secret>,
    /// Database.
    pub dbname: String,
    /// One of libpq's words, except `allow`.
    pub sslmode: String,
    /// PEM file of authorities.
    pub sslrootcert: Option<String>,
    /// PEM file of the client certificate.
    pub sslcert: Option<String>,
    /// PEM file of its key.
    pub sslkey: Option<String>,
    /// Replication slot.
    pub slot: String,
    /// Whether the slot is made as a failover slot, where one is made.
    pub failover: bool,
    /// Publication.
    pub publication: String,
    /// How the publication is made, where it is missing and making it is asked for.
    pub autocreate: Autocreate,
    /// Whether it publishes partitions under the name of their table, where it is made.
    pub publish_via_partition_root: bool,
    /// The outbox tables, if the configuration names them one by one: captured, and not kept from the Event Router by
    /// its predicate. Otherwise empty: then those of the publication that [`ConnectConfig::tables`] lets pass.
    pub tables: Vec<TableName>,
    /// What a start without a slot is to do with the rows that are there.
    pub first_start: FirstStart,
    /// Longest time between two status updates.
    pub status_interval_ms: u32,
    /// Whether the slot may be ahead of the stored offset (`lsn.flush.mode=connector_and_driver`).
    pub slot_may_lead: bool,
}

/// `publication.autocreate.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autocreate {
    /// It has to exist.
    Disabled,
    /// For the outbox tables; Debezium made it for all.
    AllTables,
    /// For the outbox tables.
    Filtered,
    /// Without tables, for logical messages.
    NoTables,
}

/// `snapshot.mode`, as far as it can be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstStart {
    /// Start with what the slot has.
    NoData,
    /// Publish the rows that are there first: not built, so a start without a slot is refused.
    Snapshot,
}

impl fmt::Display for FirstStart {
    /// What follows "run would start".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoData => {
                ": where the slot is, if there is one; without one it refuses and names `takeover` \
                and --create"
            }
            Self::Snapshot => {
                ": where the slot is, if there is one; without one it refuses, as snapshot.mode \
                asks for a snapshot (write no_data)"
            }
        })
    }
}

/// `[kafka]`: the brokers and the client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kafka {
    /// Bootstrap brokers.
    pub brokers: Vec<String>,
    /// The client's name, if the configuration gives one.
    pub client_id: Option<String>,
    /// Whether consumers may rely on seeing each event once.
    pub exactly_once: bool,
    /// librdkafka's properties that may be shown.
    pub properties: BTreeMap<String, String>,
    /// Those that may not.
    pub secrets: BTreeMap<String, Secret>,
}

/// A value that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    pub(crate) file: Option<String>,
    pub(crate) variable: Option<String>,
}

impl Secret {
    /// A secret, and where it was read from if `raw` is one reference to a file or a variable.
    pub(crate) fn new(text: &str, raw: &str) -> Self {
        let inside = raw
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
            .filter(|inside| !inside.contains('}'));
        let (alias, rest) = inside
            .and_then(|inside| inside.split_once(':'))
            .unwrap_or_default();
        let file = rest
            .split_once(':')
            .filter(|_| matches!(alias, "directory" | "dir"));
        let variable = (alias == "env").then(|| rest.trim_start_matches(':').to_owned());
        Self {
            text: text.to_owned(),
            file: file.map(|(path, name)| format!("{}/{name}", path.trim_end_matches('/'))),
            variable,
        }
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}
