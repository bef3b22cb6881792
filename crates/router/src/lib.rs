//! Outbox rows become records (stage 5 of 9).

mod record;

pub use record::{Place, Record, RecordBuffer, RecordBuilder, ValueWriter};
