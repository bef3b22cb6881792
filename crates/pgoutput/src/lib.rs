//! The protocol between a walsender and its client, without any I/O: bytes in, rows and commits out.
//!
//! **Promise.** Every message of pgoutput protocol version 1 is understood to its last byte or refused
//! with its name and position; no input panics; an inserted row is slices of the frame it came in and
//! costs no allocation; nothing is held per transaction except what Begin said.
//!
//! Three stages of the path of an event are here, each fed by the one before:
//!
//! | stage | from | by | to |
//! |---|---|---|---|
//! | 2 | CopyData body | [`Envelope::parse`] | [`Envelope`]: `XLogData` around a message, or `Keepalive` |
//! | 3 | message bytes | [`decode()`] | [`Message`]: what the output plugin said |
//! | 4 | [`Message`] | [`Transactions::handle`] | [`Step`]: what it means here, a [`Row`] with its [`TransactionId`] and [`Relation`] |
//!
//! A frame that is too large to be kept goes through an [`InsertSkim`] in pieces. What that keeps is opened in the same way, and
//! [`InsertExcerpt`] makes a message of it.
//!
//! The way back has one noun, [`StatusUpdate`], which this crate only encodes. Positions are [`Lsn`]s,
//! moments [`PgTimestamp`]s; whatever cannot be understood is a [`DecodeError`].
//!
//! A stream in protocol version 1 carries whole transactions, in the order of their commits:
//!
//! ```text
//! Begin  [Origin]  { [Type]* Relation | Insert | Update | Delete | Truncate | Message }*  Commit   Begin …
//! ```
//!
//! ```
//! use pgoutput::{Envelope, Lsn, Step, Transactions, Value, decode};
//!
//! // What the server sent after START_REPLICATION: the bodies of its CopyData frames.
//! let at_42 = b"w\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\x2A\0\0\0\0\0\0\0\0";
//! let frames: [Vec<u8>; 4] = [
//!     [&at_42[..], b"B\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\0\0\x02\xE5"].concat(),
//!     [&at_42[..], b"R\0\0\x40\0public\0outbox\0d\0\x01\x01id\0\0\0\0\x19\xFF\xFF\xFF\xFF"].concat(),
//!     [&at_42[..], b"I\0\0\x40\0N\0\x01t\0\0\0\x05hello"].concat(),
//!     [&at_42[..], b"C\0\0\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0"].concat(),
//! ];
//!
//! let mut transactions = Transactions::new();
//! let mut finished = Lsn::ZERO;
//! for frame in &frames {
//!     let Envelope::XLogData { start_lsn, message, .. } = Envelope::parse(frame)? else { continue };
//!     match transactions.handle(start_lsn, decode(message)?)? {
//!         Step::Insert(row) => {
//!             assert_eq!(row.relation.name, "outbox");
//!             assert_eq!(row.tuple.columns().next(), Some(Value::Text(b"hello")));
//!         }
//!         Step::Commit { end_lsn, .. } => finished = end_lsn,
//!         Step::Begin(_) | Step::Relation(_) | Step::Ignored(_) | Step::Logical { .. } => {}
//!     }
//! }
//! assert_eq!(finished.to_string(), "0/80");
//! # Ok::<(), pgoutput::DecodeError>(())
//! ```
#![deny(clippy::indexing_slicing)]

mod cursor;
mod decode;
mod envelope;
mod error;
mod insert_excerpt;
mod insert_skim;
mod lsn;
mod message;
mod relation;
mod row_id;
mod timestamp;
mod transaction;
mod value;

pub use decode::{decode, peek_relation_id};
pub use envelope::{Envelope, StatusUpdate};
pub use error::{DecodeError, Violation};
pub use insert_excerpt::{InsertExcerpt, LeftOut};
pub use insert_skim::{COLUMN_BYTES_MAX, InsertSkim, VALUES_BYTES_MAX};
pub use lsn::{Lsn, ParseLsnError};
pub use message::{Message, RelationIds};
pub use relation::{Column, Relation};
pub use row_id::{ParseRowIdError, RowId};
pub use timestamp::PgTimestamp;
pub use transaction::{Operation, Row, Step, TransactionId, Transactions};
pub use value::{Tuple, TupleKind, Value};
