//! What the stream's entries say of parked rows has to be right behind each of them: with exactly-once a position may be written
//! anywhere.

use std::collections::HashSet;

use pgoutput::{Lsn, RowId};
use sink::{Entry, PositionRecord};

/// Of one attempt: where its entries have come to, and what was written into the table meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    record: PositionRecord,
    /// Rows that were parked, with a position behind the commit that did it.
    parked: Vec<(RowId, Lsn)>,
    /// Rows that are noted as published.
    noted: HashSet<RowId>,
}

impl Marks {
    pub(crate) fn begin_attempt(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn park(&mut self, row: RowId, at: Lsn) {
        self.parked.push((row, at));
    }

    pub(crate) fn note(&mut self, rows: &[RowId]) {
        self.noted.extend(rows);
    }

    /// An entry was taken.
    pub(crate) fn pass(&mut self, entry: &Entry) {
        if let Entry::Parked(row) = entry {
            let unnoted = &self.record.unnoted;
            assert!(!unnoted.contains(row), "{row} goes out twice");
            let is_noted = |row: &RowId| self.noted.contains(row);
            assert!(
                !unnoted.iter().any(is_noted),
                "the position does not know of a note before more goes out"
            );
        }
        self.record.pass(entry);
        let position = self.record.position;
        self.parked.retain(|(row, at)| {
            let is_passed = row.commit_lsn < position.end_lsn
                || position.open.is_some_and(|open| {
                    open.commit_lsn == row.commit_lsn && row.insert_index < open.inserts
                });
            assert!(
                !is_passed || position.parked_lsn.max(position.end_lsn) >= *at,
                "{position:?} passes {row} without the commit that parked it, at {at}"
            );
            !is_passed
        });
    }
}
