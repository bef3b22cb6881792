//! Rerouting: parked rows through a router of their own. Pure.

use pgoutput::{Message, Row, decode};
use router::connect::{Catalog, Routed};
use sink::{Batch, Entry};

use crate::codes::Code;
use crate::explain;
use crate::intake::IntakeError;
use crate::parked_row::ParkedRow;
use crate::poison::{Reason, Stage};
use crate::routing::Routing;

/// A second router beside the stream's own: a parked row's table may have changed since.
#[derive(Debug)]
pub struct Rerouting(Routing);

impl Rerouting {
    /// Takes a router that sees nothing of the stream.
    #[must_use]
    pub fn new(routing: impl Into<Routing>) -> Self {
        Self(routing.into())
    }

    /// Adds what a later reading of the catalog says.
    pub fn extend_catalog(&mut self, later: Catalog) {
        self.0.extend_catalog(later);
    }

    /// Appends the record of a parked row to the batch, by the configuration of today.
    ///
    /// # Errors
    ///
    /// Why it makes none; the batch is as it was then.
    pub fn route(
        &mut self,
        parked: &ParkedRow,
        now_ms: i64,
        batch: &mut Batch,
    ) -> Result<(), Reason> {
        if let Some(column) = parked.unknown_column() {
            let text =
                format!("the value of {column:?} is not known: the row was too large to be read");
            return Err(refusal(Code::ParkedRowPartial, text));
        }
        let (relation, message) = (parked.relation(), parked.message());
        self.0.handle_relation(&relation);
        let Ok(Message::Insert { new: tuple, .. }) = decode(&message) else {
            let text = "its columns in the table make no row".to_owned();
            return Err(refusal(Code::Unexpected, text));
        };
        let row = Row {
            transaction: parked.transaction(),
            insert_index: parked.row.insert_index,
            lsn: parked.lsn,
            relation: &relation,
            tuple,
        };
        match self.0.route(&row, now_ms, &mut batch.records) {
            Ok(Routed::Record) => {
                batch.entries.push(Entry::Parked(parked.row));
                Ok(())
            }
            Ok(Routed::Dropped(_) | Routed::NotOutbox) => {
                let text = "it makes no record with this configuration".to_owned();
                Err(refusal(Code::RowValue, text))
            }
            Err(source) => Err(explain::reason(&IntakeError::Route {
                lsn: parked.lsn,
                source,
            })),
        }
    }
}

fn refusal(code: Code, text: String) -> Reason {
    Reason {
        stage: Stage::Route,
        code,
        text,
        attempts: 1,
    }
}
