//! Dead letters: the record that could not be published, with headers that say why.

use pgoutput::{LeftOut, Row};
use router::{Place, Record, RecordBuffer, RecordBuilder, RowSummary};

use crate::poison::Reason;

/// Where dead letters go, and how large they may be.
#[derive(Debug, Clone, Default)]
pub struct DeadLetters {
    /// The topic.
    pub topic: String,
    /// Largest key, payload and headers of one; of a larger one the payload is left out.
    pub bytes_max: usize,
}

impl DeadLetters {
    /// Appends the dead letter of a row: the `refused` record if there was one, else what the row says of itself, as far as
    /// it was kept.
    pub(crate) fn write(
        &self,
        row: &Row<'_>,
        summary: &RowSummary<'_>,
        left_out: &LeftOut,
        refused: Option<Record<'_>>,
        reason: &Reason,
        out: &mut RecordBuffer,
    ) {
        let mut letter = out.begin();
        letter.set_topic([self.topic.as_str()]);
        let payload_bytes = match &refused {
            Some(record) => self.copy(record, &mut letter),
            None => self.summarize(summary, left_out, &mut letter),
        };
        let row_id = row.id().to_string();
        let (code, lsn) = (reason.code.to_string(), row.lsn.to_string());
        let (table, attempts) = (summary.table.to_string(), reason.attempts.to_string());
        let mut header = |name, value: &str| {
            letter.put(Place::Header(name), Some(value.as_bytes()));
        };
        header(ERROR_CODE, &code);
        header(ERROR_MESSAGE, &reason.text);
        header(ERROR_STAGE, reason.stage.name());
        header(ATTEMPTS, &attempts);
        header(TABLE, &table);
        header(LSN, &lsn);
        header(ROW, &row_id);
        if let Some(bytes) = payload_bytes {
            header(LEFT_OUT, &bytes.to_string());
        }
        if let Some(record) = refused {
            header(TOPIC, record.topic);
        }
        letter.finish();
    }

    /// The size of the payload if it is left out.
    fn copy(&self, record: &Record<'_>, letter: &mut RecordBuilder<'_>) -> Option<usize> {
        letter.set_timestamp_ms(record.timestamp_ms);
        letter.put(Place::Key, record.key);
        let left_out = record
            .payload
            .map(<[u8]>::len)
            .filter(|_| record.byte_len() > self.bytes_max);
        letter.put(
            Place::Payload,
            record.payload.filter(|_| left_out.is_none()),
        );
        for (name, value) in record.headers() {
            letter.put(Place::Header(name), value);
        }
        left_out
    }

    fn summarize(
        &self,
        summary: &RowSummary<'_>,
        not_kept: &LeftOut,
        letter: &mut RecordBuilder<'_>,
    ) -> Option<usize> {
        letter.put(Place::Key, summary.aggregate_id);
        let payload = summary.payload_column;
        let left_out = match payload.and_then(|column| not_kept.bytes_of(column)) {
            Some(bytes) => Some(bytes as usize),
            None => Some(summary.payload_bytes()).filter(|bytes| *bytes > self.bytes_max),
        };
        if left_out.is_none() {
            summary.put_payload(letter);
        }
        letter.put(Place::Header("id"), summary.id);
        left_out
    }
}

const ERROR_CODE: &str = "posthaste.error.code";
const ERROR_MESSAGE: &str = "posthaste.error.message";
const ERROR_STAGE: &str = "posthaste.error.stage";
const ATTEMPTS: &str = "posthaste.attempts";
const TABLE: &str = "posthaste.source.table";
const LSN: &str = "posthaste.source.lsn";
const ROW: &str = "posthaste.source.row";
const TOPIC: &str = "posthaste.original.topic";
const LEFT_OUT: &str = "posthaste.payload.bytes_left_out";
