//! What an outbox row says of itself, column by column and without any judgement: for rows that make no record, and for
//! telling which aggregate a row is of before it is routed.

use crate::bytea;
use crate::record::{Place, RecordBuilder};
use crate::table::TableName;

/// The columns of one row by what they are for, as the server sent them. `None` is NULL, or a column that is not there.
#[derive(Clone, Copy)]
pub struct RowSummary<'a> {
    /// The table, under the name its rows come with.
    pub table: &'a TableName,
    /// The event's id.
    pub id: Option<&'a [u8]>,
    /// What the topic is made from; `None` also where the topic does not depend on it.
    pub aggregate_type: Option<&'a [u8]>,
    /// What the key is made from. Without it a row has no order to keep.
    pub aggregate_id: Option<&'a [u8]>,
    /// The columns, counted from 0, that are type and id of the aggregate, where the table has them.
    pub aggregate_columns: [Option<usize>; 2],
    /// The column, counted from 0, that is the payload.
    pub payload_column: Option<usize>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) payload_is_bytea: bool,
}

impl RowSummary<'_> {
    /// The bytes of the payload's text.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.map_or(0, <[u8]>::len)
    }

    /// Puts the payload in its place: bytea as its bytes, unless its text cannot be read, anything else as its text.
    pub fn put_payload(&self, builder: &mut RecordBuilder<'_>) {
        let decoded = self
            .payload
            .filter(|_| self.payload_is_bytea)
            .map(|text| builder.put_with(Place::Payload, |out| bytea::decode(text, out)));
        if !matches!(decoded, Some(Ok(()))) {
            builder.put(Place::Payload, self.payload);
        }
    }
}

/// Shows sizes only: what columns hold is other people's data and does not belong in a log.
impl std::fmt::Debug for RowSummary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowSummary")
            .field("table", &self.table)
            .field("payload_bytes", &self.payload_bytes())
            .finish_non_exhaustive()
    }
}
