//! A PostgreSQL client for logical replication: connection strings, TLS, signing in, and the copy
//! stream. It knows nothing of what the frames hold, nor of where they go.
//!
//! The promise: both kinds of connection are opened the same way, by libpq's rules, with every
//! setting pinned that could change what is decoded; the frame reader can be dropped at any await
//! without losing a byte; hostile bytes are errors, never panics; no secret is ever printed.
//!
//! ```text
//! ConnectOptions ──▶ connect_sql ─────────▶ tokio_postgres::Client
//!       │
//!       └──────────▶ connect_replication ─▶ ReplicationClient ──start_replication──▶ CopyBoth ─▶ Frame
//! ```
//!
//! WAL positions are bare `u64` here; the crates above have a type for them.
//!
//! ```no_run
//! use replication::{ConnectError, ConnectOptions, Frame, connect_replication, process_environment};
//!
//! # async fn stream() -> Result<(), ConnectError> {
//! let options = ConnectOptions::from_parts("postgres://app@db/orders", &[], &process_environment)?;
//! let client = connect_replication(&options).await?;
//! let plugin = [("proto_version", "1".to_owned()), ("publication_names", "\"outbox\"".to_owned())];
//! let mut stream = client.start_replication("outbox", 0, &plugin).await?;
//! while let Frame::Data(body) = stream.next_frame().await? {
//!     println!("{} bytes", body.len());
//! }
//! # Ok(())
//! # }
//! ```

mod auth;
mod certificate;
mod client;
mod connect;
mod copyboth;
mod dsn;
mod dsn_given;
mod dsn_keywords;
mod dsn_text;
mod error;
mod message;
mod passfile;
mod quote;
mod secret;
mod session;
mod skim;
mod socket;
mod sql;
mod tls;
mod tls_verify;
mod wire;

pub use client::{ReplicationClient, SystemIdentity, TimelineSwitch};
pub use copyboth::{CopyBoth, FRAME_BYTES_MAX_DEFAULT, Frame};
pub use dsn::ConnectOptions;
pub use error::{AuthFailure, ConnectError, ServerError, TlsFailure};
pub use quote::{quote_ident, quote_literal};
pub use secret::Secret;
pub use skim::Skim;

use session::Purpose;

/// Opens a connection for ordinary SQL; the connection is driven in a spawned task and ends with
/// the client.
///
/// `Client::cancel_token` does not work on it: the library does not know where the server is.
///
/// # Errors
///
/// See [`ConnectError`]; `Unreachable` is worth another try.
pub async fn connect_sql(options: &ConnectOptions) -> Result<tokio_postgres::Client, ConnectError> {
    sql::client(connect::connect(options, Purpose::Sql).await?).await
}

/// Opens a replication connection to the database of the options.
///
/// # Errors
///
/// See [`ConnectError`]; `Unreachable` is worth another try.
pub async fn connect_replication(
    options: &ConnectOptions,
) -> Result<ReplicationClient, ConnectError> {
    connect::connect(options, Purpose::Replication)
        .await
        .map(ReplicationClient::new)
}

/// The process environment as [`ConnectOptions::from_parts`] asks for it: a variable by name, and
/// for `USER` the system's name of the effective user, as in libpq.
pub fn process_environment(name: &str) -> Option<String> {
    if name == "USER"
        && let Ok(user) = whoami::username()
    {
        return Some(user);
    }
    std::env::var(name).ok()
}
