//! Every precondition against a real PostgreSQL: what passes, and the one message for each thing that is wrong.
//!
//! A machine without a PostgreSQL server fails these tests; none of them is skipped.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop the test"
)]

#[path = "preconditions/connect.rs"]
mod connect;
#[path = "preconditions/create.rs"]
mod create;
#[path = "preconditions/fixture.rs"]
mod fixture;
#[path = "preconditions/publication.rs"]
mod publication;
#[path = "preconditions/server.rs"]
mod server;
#[path = "preconditions/slot.rs"]
mod slot;
#[path = "preconditions/table.rs"]
mod table;
