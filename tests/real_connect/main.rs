//! Tests beside the real thing: Kafka Connect with Debezium's connector. Run by `cargo xtask test --only connect`.

// The worker itself: what the other tests rely on.
mod worker;
