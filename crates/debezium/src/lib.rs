//! Configurations of Debezium's outbox connector become Posthaste's own. Decides and never does I/O.
//!
//! **Promise.** Whoever hands in what Kafka Connect was given gets either a configuration that makes the same records, or
//! the keys that stand in the way, each with what to do. Every key is in the report, and no secret is.
//!
//! [`read()`] takes the text of a file in any of four [`Format`]s, with the worker's beside it, and gives a [`Reading`]: one
//! [`Finding`] for each key, and a [`NativeConfig`] if nothing was refused. Files and variables that the text refers to are
//! asked for through [`Lookup`]. What Debezium stored of its position is read and judged in [`offset`].
//!
//! # Example
//!
//! ```
//! use debezium::{Input, NoLookup, Verdict};
//!
//! let text = r#"{ "name": "orders", "config": {
//!     "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
//!     "database.hostname": "db", "database.user": "u", "database.password": "p", "database.dbname": "orders",
//!     "topic.prefix": "orders", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
//!     "key.converter": "org.apache.kafka.connect.storage.StringConverter",
//!     "value.converter": "org.apache.kafka.connect.storage.StringConverter",
//!     "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter" } }"#;
//! let mut input = Input::new(text, "orders.json", &NoLookup);
//! input.brokers = Some("kafka:9092");
//! let reading = debezium::read(&input)?;
//! let native = reading.native.expect("nothing is refused");
//! assert_eq!(native.source.slot, "debezium");
//!
//! let typo = text.replace("snapshot.mode", "snapshot.moed");
//! let reading = debezium::read(&Input { text: &typo, ..input })?;
//! let refused = reading.findings.iter().find(|finding| finding.verdict == Verdict::Refused).unwrap();
//! assert!(refused.text.contains("did you mean `snapshot.mode`?"));
//! # Ok::<(), debezium::ReadError>(())
//! ```

mod classify;
mod entry;
mod error;
mod finding;
mod format;
mod jaas;
mod json;
mod keys;
mod keys_connect;
mod keys_connector;
#[cfg(test)]
mod keys_doc;
mod keys_old;
mod keys_producer;
mod keys_router;
mod lint;
mod map_connect;
mod map_converter;
mod map_kafka;
mod map_login;
mod map_router;
mod map_sasl;
mod map_source;
mod map_topics;
mod native;
pub mod offset;
mod offset_file;
mod offset_read;
mod offset_skip;
mod offset_waiting;
mod properties;
mod providers;
mod read;
mod reader;
mod server;
mod suggest;
mod toml_text;
mod yaml;

pub use error::ReadError;
pub use finding::{DefaultUsed, Finding, Origin, Verdict};
pub use format::Format;
pub use native::{Autocreate, FirstStart, Kafka, NativeConfig, Secret, Source};
pub use providers::{Lookup, NoLookup};
pub use read::{Input, Reading, read};
