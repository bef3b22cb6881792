//! Stage 7 of 9, beside the publisher: which event is on its way alone, so that a refusal names it.
//!
//! A broker refuses a batch as a whole. To find the record it means, records are sent one by one, each when the one
//! before is acknowledged; the one that fails then is the one.

use pgoutput::{Lsn, RowId};

use crate::batch::{Entry, EventIdentity};

/// What is to be sent one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Careful {
    /// The stream, up to and with the transaction whose commit begins here.
    pub until: Option<Lsn>,
    /// Parked rows that are published again.
    pub parked: bool,
}

/// What the publisher knows of the record it sent last.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    careful: Careful,
    /// Where the commit of the transaction begins that records belong to now.
    commit_lsn: Lsn,
    newest: Option<(u64, EventIdentity)>,
    culprit: Option<EventIdentity>,
}

impl Suspects {
    pub(crate) fn restart(&mut self, careful: Careful) {
        *self = Self {
            careful,
            ..Self::default()
        };
    }

    /// A transaction begins. Behind what was to be sent one by one, all is as usual again.
    pub(crate) fn begin(&mut self, final_lsn: Lsn) {
        self.commit_lsn = final_lsn;
        if self.careful.until.is_some_and(|until| final_lsn > until) {
            self.careful.until = None;
        }
    }

    /// Which event the record of this entry is of; `None` for an entry without a record.
    pub(crate) fn identify(&self, entry: Entry) -> Option<EventIdentity> {
        match entry {
            Entry::Record { inserts } => Some(EventIdentity::Row(RowId {
                commit_lsn: self.commit_lsn,
                insert_index: inserts.saturating_sub(1),
            })),
            Entry::Message { lsn } => Some(EventIdentity::Message(lsn)),
            Entry::Parked(row) => Some(EventIdentity::Parked(row)),
            Entry::Begin(_)
            | Entry::Commit { .. }
            | Entry::Idle { .. }
            | Entry::ParkedUpTo { .. }
            | Entry::ParkedNoted { .. } => None,
        }
    }

    /// Whether this record has to wait until nothing else is on its way.
    pub(crate) fn goes_alone(&self, identity: EventIdentity) -> bool {
        match identity {
            EventIdentity::Row(_) | EventIdentity::Message(_) => self.careful.until.is_some(),
            EventIdentity::Parked(_) => self.careful.parked,
        }
    }

    pub(crate) fn sent(&mut self, ticket: u64, identity: EventIdentity) {
        self.newest = Some((ticket, identity));
    }

    /// This record was refused before it was sent, so it is the one.
    pub(crate) fn refused(&mut self, identity: EventIdentity) {
        self.culprit.get_or_insert(identity);
    }

    /// The record with this ticket failed for good, with so many unacknowledged, itself included.
    pub(crate) fn failed(&mut self, ticket: u64, outstanding: u64) {
        if let Some((newest, identity)) = self.newest
            && newest == ticket
            && outstanding == 1
        {
            self.culprit.get_or_insert(identity);
        }
    }

    pub(crate) fn culprit(&self) -> Option<EventIdentity> {
        self.culprit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(inserts: u64, suspects: &Suspects) -> EventIdentity {
        suspects
            .identify(Entry::Record { inserts })
            .expect("it has a record")
    }

    #[test]
    fn a_row_is_named_by_its_transaction_and_number() {
        let mut suspects = Suspects::default();
        suspects.begin(Lsn::new(0x10));
        let expected = "0/10#2".parse().expect("a row");
        assert_eq!(row(3, &suspects), EventIdentity::Row(expected));
        let idle = Entry::Idle { wal_end: Lsn::ZERO };
        assert_eq!(suspects.identify(idle), None);
    }

    #[test]
    fn records_go_alone_until_the_stretch_is_passed() {
        let mut suspects = Suspects::default();
        let until = Some(Lsn::new(0x20));
        suspects.restart(Careful {
            until,
            parked: false,
        });
        for (commit, alone) in [(0x10, true), (0x20, true), (0x21, false), (0x22, false)] {
            suspects.begin(Lsn::new(commit));
            assert_eq!(suspects.goes_alone(row(1, &suspects)), alone, "{commit}");
        }
        let parked = EventIdentity::Parked("0/1#0".parse().expect("a row"));
        assert!(!suspects.goes_alone(parked));
    }

    #[test]
    fn only_a_record_that_failed_alone_is_the_culprit() {
        let mut suspects = Suspects::default();
        let identity = row(1, &suspects);
        suspects.sent(7, identity);
        suspects.failed(7, 2);
        suspects.failed(6, 1);
        assert_eq!(suspects.culprit(), None);
        suspects.failed(7, 1);
        assert_eq!(suspects.culprit(), Some(identity));
        suspects.restart(Careful::default());
        assert_eq!(suspects.culprit(), None);
    }
}
