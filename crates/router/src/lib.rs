//! Outbox rows become Kafka records. Stage 5 of 9; decides and never does I/O.
//!
//! **Promise.** A row inserted into an outbox table becomes one record, made of what PostgreSQL says, byte for byte,
//! or an error that names the event, its table and its position; never a record with something left out or made up.
//!
//! A [`Router`] is made from a [`RouterConfig`], sees every relation of the stream, and turns each
//! [`Row`](pgoutput::Row) into a [`Record`] in a [`RecordBuffer`]. Rows of other tables make none. A record knows
//! nothing of PostgreSQL, and nothing here knows a broker client.
//!
//! # What a record is made of
//!
//! | part | from | rule |
//! |---|---|---|
//! | topic | `topic`, by default `outbox.event.{aggregatetype}` | `{schema}` and `{table}` stand for the table as its rows name it. Checked by Kafka's rule before anything is sent. A NULL aggregate type is an error |
//! | key | column `aggregateid` | NULL is a null key, which keeps no order; `''` is a key of length 0 |
//! | value | column `payload` | its exact text. NULL is a null value (a tombstone); `''` is a value of length 0; JSON's `null` is four bytes |
//! | header `id` | column `id` | always the first header |
//! | headers | `headers`, in their order | NULL is a header with a null value. A name may repeat. An optional column that the table lacks makes no header |
//! | timestamp | the commit, to the millisecond | or none (`now`), or a column; a column that is NULL falls back to the commit |
//! | partition | the key | or a column of whole numbers; where it is NULL, the key |
//!
//! *Text* is PostgreSQL's own form of any type under the settings that the session pins (`DateStyle ISO`,
//! `TimeZone UTC`, `extra_float_digits 3`): `0044-03-15 BC`, `("a,b",3)`, `x    ` for a `char(5)`. Only a value of
//! bytea, or of a domain over it, is not sent as its text, since that stands for other bytes: it is the raw bytes. Keys
//! and headers (`id` too) are the text, whatever the type. Domains are known from the stream's own Type messages ([`Router::handle_type`]) and from
//! the catalog ([`Router::set_base_types`]).
//!
//! Columns are found by name in each Relation message, and a row is read by the plan of *its* relation id: tables
//! may change in mid-transaction, and partitions may order their columns differently. A mapped column that a
//! relation lacks is an error only when a row comes.
//!
//! Each line of this contract is held by a test: topics by `tests/cases/topics.json`, keys and ids by `keys.json`,
//! values by `payloads.json` and `nulls.json`, bytea by `bytea.json`, headers by `headers.json`, timestamps and
//! partitions by `timestamps.json` and `partitions.json`, changing tables by `schema_changes.json`, rows that no
//! INSERT has by `unsupported.json`.
//!
//! That is the native form. Where a Debezium connector is to be replaced without anybody noticing, a
//! [`ConnectRouter`](connect::ConnectRouter) makes the records that it would make: see [`connect`].
//!
//! # Example
//!
//! ```
//! use pgoutput::{Envelope, Message, Step, Transactions, decode};
//! use router::{RecordBuffer, Router, RouterConfig};
//!
//! # let at = b"w\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\0";
//! # let column = |name: &str| [b"\0", name.as_bytes(), b"\0\0\0\0\x19\xFF\xFF\xFF\xFF"].concat();
//! # let columns = ["id", "aggregatetype", "aggregateid", "payload"].map(column).concat();
//! # let relation = [b"R\0\0\x40\0public\0outbox\0d\0\x04", &*columns].concat();
//! # let value = |text: &str| [b"t\0\0\0", &[text.len() as u8][..], text.as_bytes()].concat();
//! # let values = ["77", "order", "o-1", r#"{"n": 1}"#].map(value).concat();
//! # let frames = [
//! #     [&at[..], b"B\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\0\0\x02\xE5"].concat(),
//! #     [&at[..], &relation].concat(),
//! #     [&at[..], b"I\0\0\x40\0N\0\x04", &values].concat(),
//! # ];
//! let mut router = Router::new(RouterConfig {
//!     tables: vec!["public.outbox".parse()?],
//!     ..RouterConfig::default()
//! })?;
//! let mut transactions = Transactions::new();
//! let mut records = RecordBuffer::new();
//!
//! // `frames` is what the server sent: Begin, Relation, Insert.
//! for frame in &frames {
//!     let Envelope::XLogData { start_lsn, message, .. } = Envelope::parse(frame)? else { continue };
//!     let message = decode(message)?;
//!     if let Message::Type { oid, namespace, name } = message {
//!         router.handle_type(oid, namespace, name);
//!     }
//!     match transactions.handle(start_lsn, message)? {
//!         Step::Relation(relation) => router.handle_relation(relation),
//!         Step::Insert(row) => assert!(router.route(&row, &mut records)?),
//!         Step::Begin(_) | Step::Commit { .. } | Step::Ignored(_) | Step::Logical { .. } => {}
//!     }
//! }
//!
//! let record = records.get(0);
//! assert_eq!(record.topic, "outbox.event.order");
//! assert_eq!(record.key, Some(&b"o-1"[..]));
//! assert_eq!(record.payload, Some(&br#"{"n": 1}"#[..]));
//! assert_eq!(record.headers().collect::<Vec<_>>(), [("id", Some(&b"77"[..]))]);
//! assert_eq!(record.timestamp_ms, Some(946_684_800_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytea;
mod config;
pub mod connect;
mod error;
mod outbox;
mod record;
mod route;
mod row_summary;
mod table;
mod template;
mod timestamp;

pub use config::{HeaderConfig, RouterConfig, TimestampSource};
pub use error::{
    ConnectConfigError, RouteError, RouterConfigError, RowPosition, TableNameError, TopicProblem,
    ValueProblem,
};
pub use record::{Place, Record, RecordBuffer, RecordBuilder, ValueWriter};
pub use route::Router;
pub use row_summary::RowSummary;
pub use table::TableName;

#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;
