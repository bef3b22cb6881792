//! Posthaste: carries committed rows of a PostgreSQL outbox to Kafka. The binary is `main.rs`; this library lets tests run its parts.
//!
//! Read [`pipeline`] first: it is the loop along the nine stages of an event's path (`docs/architecture.md`). Around it,
//! [`supervisor`] makes connections, [`policy`] decides between retry and stop, [`commands`] are what a person calls.

pub mod backoff;
pub mod brokers;
mod captured;
pub mod cli;
pub mod cli_connect;
pub mod clock;
pub mod codes;
mod codes_table;
pub mod commands;
pub mod config;
mod config_check;
mod config_conflict;
mod config_connect;
mod config_entry;
mod config_file;
mod config_layout;
mod config_load;
mod config_overlay;
mod config_print;
mod config_reference;
mod config_secret;
mod config_suggest;
mod config_tree;
mod config_units;
mod config_value;
mod connect_catalog;
pub mod connect_file;
mod explain;
pub mod first_start;
pub mod health;
pub mod http;
pub mod intake;
pub mod logging;
pub mod memory;
pub mod metrics;
mod metrics_text;
pub mod pipeline;
pub mod policy;
pub mod preconditions;
mod preconditions_server;
mod preconditions_table;
pub mod progress;
mod publication;
pub mod publishing;
pub mod routing;
mod run_id;
pub mod settings;
pub mod shutdown;
pub mod slot;
mod slot_explain;
pub mod source;
pub mod state;
pub mod supervisor;
