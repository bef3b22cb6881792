//! A parked row: all that is needed to route it again, whenever and wherever that is.

use pgoutput::{Column, LeftOut, Lsn, PgTimestamp, Relation, Row, RowId, TransactionId, Value};
use router::{RowSummary, TableName};

use crate::poison::Reason;
use crate::watchlist::Aggregate;

/// A row as it came, with the reason why it is parked.
#[derive(Clone, PartialEq, Eq)]
pub struct ParkedRow {
    /// Its identity in the log.
    pub row: RowId,
    /// Its transaction's commit time.
    pub commit_time: PgTimestamp,
    /// Its transaction's number.
    pub xid: u32,
    /// Where the insert is in the log.
    pub lsn: Lsn,
    /// Its table.
    pub table: TableName,
    /// What the topic is made from.
    pub aggregate_type: Option<Vec<u8>>,
    /// What the key is made from.
    pub aggregate_id: Option<Vec<u8>>,
    /// The event's id, as far as it can be shown.
    pub event_id: Option<String>,
    /// Why it is parked.
    pub reason: Reason,
    /// Its columns in the table's order.
    pub columns: Vec<ParkedColumn>,
}

/// A column and its value.
#[derive(Clone, PartialEq, Eq)]
pub struct ParkedColumn {
    /// As the stream described it.
    pub column: Column,
    /// Its text; `None` for NULL.
    pub value: Option<Vec<u8>>,
    /// Whether the value is known. Of a row that was too large the large ones are not.
    pub is_known: bool,
}

impl ParkedRow {
    /// Keeps a row whose columns are as they were sent, but for those left out.
    pub(crate) fn new(
        row: &Row<'_>,
        summary: &RowSummary<'_>,
        left_out: &LeftOut,
        reason: Reason,
    ) -> Self {
        let columns = row.relation.columns.iter().zip(row.tuple.columns());
        let columns = columns
            .enumerate()
            .map(|(at, (column, value))| ParkedColumn {
                column: column.clone(),
                value: match value {
                    Value::Text(text) => Some(text.to_vec()),
                    Value::Null | Value::UnchangedToast | Value::Binary(_) => None,
                },
                is_known: left_out.bytes_of(at).is_none(),
            });
        Self {
            row: row.id(),
            commit_time: row.transaction.commit_time,
            xid: row.transaction.xid,
            lsn: row.lsn,
            table: summary.table.clone(),
            aggregate_type: summary.aggregate_type.map(<[u8]>::to_vec),
            aggregate_id: summary.aggregate_id.map(<[u8]>::to_vec),
            event_id: summary.id.map(event_id),
            reason,
            columns: columns.collect(),
        }
    }

    /// Its aggregate; `None` if it has no key, and so stands alone.
    #[must_use]
    pub fn aggregate(&self) -> Option<Aggregate> {
        Aggregate::of(self.aggregate_type.as_deref(), self.aggregate_id.as_deref())
    }

    /// Its columns' bytes, for the limit.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let columns = self.columns.iter();
        let bytes = columns.map(|column| {
            column.column.name.len() + column.value.as_ref().map_or(0, Vec::len) + COLUMN_BYTES
        });
        bytes.sum::<usize>() as u64
    }

    /// The first column whose value is not known.
    #[must_use]
    pub fn unknown_column(&self) -> Option<&str> {
        let column = self.columns.iter().find(|column| !column.is_known)?;
        Some(&column.column.name)
    }

    /// Its table as the stream described it.
    #[must_use]
    pub fn relation(&self) -> Relation {
        Relation {
            id: RELATION_ID,
            namespace: self.table.schema.clone(),
            name: self.table.name.clone(),
            replica_identity: b'd',
            columns: self
                .columns
                .iter()
                .map(|column| column.column.clone())
                .collect(),
        }
    }

    /// Its transaction as Begin described it.
    #[must_use]
    pub fn transaction(&self) -> TransactionId {
        TransactionId {
            final_lsn: self.row.commit_lsn,
            commit_time: self.commit_time,
            xid: self.xid,
        }
    }

    /// The Insert message that the server would send for it.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let mut message = vec![b'I'];
        message.extend(RELATION_ID.to_be_bytes());
        message.push(b'N');
        message.extend(
            u16::try_from(self.columns.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        for column in &self.columns {
            match &column.value {
                None => message.push(b'n'),
                Some(value) => {
                    message.push(b't');
                    message.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                    message.extend_from_slice(value);
                }
            }
        }
        message
    }
}

/// Shows names and positions: what columns hold does not belong in a log.
impl std::fmt::Debug for ParkedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParkedRow")
            .field("row", &self.row)
            .field("table", &self.table)
            .field("reason", &self.reason)
            .field("columns", &self.columns.len())
            .finish_non_exhaustive()
    }
}

/// Shows the name and the size.
impl std::fmt::Debug for ParkedColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParkedColumn")
            .field("column", &self.column)
            .field("bytes", &self.value.as_ref().map(Vec::len))
            .field("is_known", &self.is_known)
            .finish()
    }
}

/// The text of an id column, made fit to be shown and stored, and cut.
pub(crate) fn event_id(text: &[u8]) -> String {
    let text = text
        .get(..EVENT_ID_BYTES_MAX.min(text.len()))
        .unwrap_or(text);
    let text = String::from_utf8_lossy(text);
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// As many as messages show.
const EVENT_ID_BYTES_MAX: usize = 128;

/// A row that is routed again has a router of its own, so any number does.
const RELATION_ID: u32 = 1;

/// What a column costs beside its name and value.
const COLUMN_BYTES: usize = 16;
