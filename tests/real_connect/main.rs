//! Tests beside the real thing: Kafka Connect with Debezium's connector. Run by `cargo xtask test --only connect`, and `--only takeover`.

// The worker itself: what the other tests rely on.
mod worker;
// Going on from it on its own slot, under load, and back.
mod takeover;
