//! Tests beside the real thing: Kafka Connect with Debezium's connector. Run by `cargo xtask test`, the parts `connect` and
//! `takeover`.

// The worker itself: what the other tests rely on.
mod worker;
// Going on from it on its own slot, under load, and back.
mod takeover;
// Going on from a standalone worker with nothing but its files.
mod standalone;
// The same rows through both, compared record by record.
mod compare;
// The contract's own configurations through both.
mod contract;
// A table that changes while both read it.
mod changes;
// What the comparison is made of: rows, Kafka's own consumer, and what may differ.
mod comparer;
mod kafka_lines;
mod rows;
