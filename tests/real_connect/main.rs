//! Tests beside the real thing: Kafka Connect with Debezium's connector. Run by `cargo xtask test --only connect`.

// The worker itself: what the other tests rely on.
mod worker;
// Going on from it on its own slot, under load, and back.
mod takeover;
// The same rows through both, compared record by record.
mod compare;
// What the comparison is made of: rows, Kafka's own consumer, and what may differ.
mod comparer;
mod kafka_lines;
mod rows;
