//! End-to-end tests: the built connector between a real PostgreSQL and a real Kafka, one promise a file.
//!
//! Tests are named as behaviours; those that stand for a case of the field problems begin with its id (`b03_…`).
//! `cargo xtask test` builds the connector and runs them; see `support/` for what they are made of.

// What arrives: committed rows, each once, in order per key, byte for byte.
mod delivery;
// `kill -9` at random moments: nothing lost, and repeats re-run a whole stretch.
mod crash;
// Exactly once: a read-committed consumer sees each event once, whatever happens.
mod exactly_once;
// The same beside events that can never be published.
mod exactly_once_poison;
// After a promotion: positions that the new timeline contains, and such that it lacks.
mod timeline;
// Brokers stopped or frozen: the server stays content, nothing is confirmed early.
mod broker_outage;
// Nothing in the outbox while others write: the slot still moves.
mod quiet_outbox;
// The confirmed position: never ahead of an acknowledgement, never backwards.
mod confirmed_position;
// Stop and start by an operator: nothing repeated, exit code 0.
mod graceful_stop;
// Big transactions of every kind: flat memory.
mod big_transaction;
// The broker no longer knows our producer.
mod producer;
// The server gives the slot up under us.
mod lost_slot;
// Credentials that change under us.
mod credentials;
// The connection ends under us: terminated, restarted, frozen.
mod connection;
// Several instances on one slot: one delivers, the others stand by and take over.
mod instances;
// Start: what cannot heal is told in one message and ends the process.
mod preconditions;
// Start: what can heal is retried, told once, and not ready meanwhile.
mod waiting;
// The ways to name the server and to sign in, with and without TLS.
mod sign_in;
// The configuration as others script against it, and the log.
mod configuration;
// What a lost slot left behind: found, and published on request.
mod reconcile;
// `source.create`: publication and slot made by us, while somebody writes.
mod create;
// Message kinds and operations that make no record.
mod decoder;
// Columns that come, go and change their names.
mod schema_change;
// Partitioned outbox tables.
mod partitions;
// Names that need quoting, and names that stand twice.
mod names;
// Types of keys and payloads, NULL and empty.
mod values;
// Topic names made from rows.
mod topics;
// Events that can never be published: dead letters, passing over, and one by one by decision.
mod poison;
// Events that can never be published: parked, with what follows of their aggregate, and published in the end.
mod parking;
// Role and database defaults set against us.
mod session;
// Disk, descriptors and memory used up, a clock that jumps.
mod resources;
// Secrets in no output.
mod secrets;
// Kafka behind TLS and SASL.
mod kafka_security;
// Configurations of Debezium connectors, run as they are.
mod connect;
// More of them: raw bytes, envelopes with schemas, old names; and topics that are created as they say.
mod connect_more;
// And while things change: their table, and the passwords that they point to.
mod connect_live;
// Going on from Debezium on its own slot.
mod takeover;
// Comparing the topics of a shadow run.
mod diff;
// The pages for people and machines that watch.
mod http;
