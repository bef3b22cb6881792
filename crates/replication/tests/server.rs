//! The client against real PostgreSQL servers, each private to its test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop the test"
)]

mod support;

#[path = "server/pins.rs"]
mod pins;
#[path = "server/sign_in.rs"]
mod sign_in;
#[path = "server/stream.rs"]
mod stream;
#[path = "server/tls.rs"]
mod tls;
