//! Stage 7 of 9, exactly once: the Position that is written in the same Kafka transaction as the records before it.

use pgoutput::Lsn;

use crate::batch::Entry;

/// How much of the stream has been handed to the producer, precise to the single event.
///
/// Invariant: it never goes back, also when the stream is read again from before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Where the last complete transaction ends; those that begin their commit before it are done.
    pub end_lsn: Lsn,
    /// The newest record outside any transaction.
    pub message_lsn: Lsn,
    /// The transaction that is done in part.
    pub open: Option<OpenTransaction>,
}

/// A transaction of which some events are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Where its commit record begins, as its Begin said.
    pub commit_lsn: Lsn,
    /// Its transaction id.
    pub xid: u32,
    /// So many of its inserts are done, counted as in [`Entry::Record`].
    pub inserts: u64,
}

impl Position {
    /// A place where nothing is half done.
    #[must_use]
    pub const fn at(end_lsn: Lsn) -> Self {
        Self {
            end_lsn,
            message_lsn: Lsn::ZERO,
            open: None,
        }
    }

    /// The same, knowing that everything before `confirmed` is done: the slot was confirmed up to there. The end of a
    /// transaction brings no record, so it may be confirmed without being written down here.
    #[must_use]
    pub fn confirmed_up_to(mut self, confirmed: Lsn) -> Self {
        self.end_lsn = self.end_lsn.max(confirmed);
        self.open.take_if(|open| open.commit_lsn < confirmed);
        self
    }

    /// The newest place in the log of which anything is done.
    #[must_use]
    pub fn reach(&self) -> Lsn {
        let open = self.open.map_or(Lsn::ZERO, |open| open.commit_lsn);
        self.end_lsn.max(self.message_lsn).max(open)
    }

    /// Moves on behind an entry that was taken.
    pub fn pass(&mut self, entry: &Entry) {
        match *entry {
            Entry::Begin(transaction) => {
                let resumed = self
                    .open
                    .is_some_and(|open| open.commit_lsn == transaction.final_lsn);
                if transaction.final_lsn >= self.end_lsn && !resumed {
                    self.open = Some(OpenTransaction {
                        commit_lsn: transaction.final_lsn,
                        xid: transaction.xid,
                        inserts: 0,
                    });
                }
            }
            Entry::Record { inserts } => {
                if let Some(open) = &mut self.open {
                    open.inserts = open.inserts.max(inserts);
                }
            }
            Entry::Message { lsn } => self.message_lsn = self.message_lsn.max(lsn),
            Entry::Commit { end_lsn } if end_lsn > self.end_lsn => {
                self.end_lsn = end_lsn;
                self.open = None;
            }
            // A parked row that is published again stands outside the stream.
            Entry::Commit { .. } | Entry::Idle { .. } | Entry::Parked(_) => {}
        }
    }

    /// The record's value. `origin` says what the position belongs to, as members of a JSON object.
    pub(crate) fn to_json(self, origin: &str) -> String {
        let Self {
            end_lsn,
            message_lsn,
            open,
        } = self;
        let open = open.map_or_else(
            || "null".to_owned(),
            |open| {
                format!(
                    r#"{{"commit_lsn":"{}","xid":{},"inserts":{}}}"#,
                    open.commit_lsn, open.xid, open.inserts
                )
            },
        );
        format!(
            r#"{{"format_version":{FORMAT_VERSION},{origin},"end_lsn":"{end_lsn}","message_lsn":"{message_lsn}","open":{open}}}"#
        )
    }
}

/// The format of the position record.
pub const FORMAT_VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use pgoutput::{PgTimestamp, TransactionId};

    use super::*;

    fn begin(final_lsn: u64) -> Entry {
        Entry::Begin(TransactionId {
            final_lsn: Lsn::new(final_lsn),
            commit_time: PgTimestamp::new(0),
            xid: 7,
        })
    }

    fn commit(end_lsn: u64) -> Entry {
        Entry::Commit {
            end_lsn: Lsn::new(end_lsn),
        }
    }

    fn record(inserts: u64) -> Entry {
        Entry::Record { inserts }
    }

    fn open(commit_lsn: u64, inserts: u64) -> Option<OpenTransaction> {
        Some(OpenTransaction {
            commit_lsn: Lsn::new(commit_lsn),
            xid: 7,
            inserts,
        })
    }

    fn after(mut position: Position, entries: &[Entry]) -> Position {
        for entry in entries {
            position.pass(entry);
        }
        position
    }

    #[test]
    fn it_follows_the_stream_event_by_event() {
        let start = Position::at(Lsn::new(10));
        let half = after(start, &[begin(20), record(1), record(4)]);
        assert_eq!((half.end_lsn, half.open), (Lsn::new(10), open(20, 4)));
        assert_eq!(half.reach(), Lsn::new(20));
        let whole = after(half, &[commit(28)]);
        assert_eq!(whole, Position::at(Lsn::new(28)));
        assert_eq!(whole.reach(), Lsn::new(28));
    }

    #[test]
    fn reading_again_does_not_move_it_back() {
        let half = Position {
            open: open(40, 3),
            ..Position::at(Lsn::new(28))
        };
        // What was done before comes again without records, then the half-done one without its first records.
        let again = [begin(20), commit(28), begin(40)];
        assert_eq!(after(half, &again), half);
        assert_eq!(after(half, &[begin(40), record(4)]).open, open(40, 4));
        assert_eq!(
            after(half, &[begin(40), commit(48)]),
            Position::at(Lsn::new(48))
        );
    }

    #[test]
    fn a_transaction_behind_which_the_slot_stands_is_done() {
        let half = Position {
            open: open(40, 3),
            ..Position::at(Lsn::new(28))
        };
        let up_to = |lsn| half.confirmed_up_to(Lsn::new(lsn));
        assert_eq!(up_to(20), half);
        assert_eq!(up_to(40).open, open(40, 3));
        assert_eq!(up_to(48), Position::at(Lsn::new(48)));
    }

    #[test]
    fn a_message_outside_transactions_is_a_place_of_its_own() {
        let lsn = Lsn::new(30);
        let position = after(Position::at(Lsn::new(28)), &[Entry::Message { lsn }]);
        assert_eq!(
            (position.end_lsn, position.message_lsn),
            (Lsn::new(28), lsn)
        );
        assert_eq!(position.reach(), lsn);
    }

    #[test]
    fn the_record_is_json_with_positions_as_the_server_writes_them() {
        let half = Position {
            open: open(40, 3),
            ..Position::at(Lsn::new(28))
        };
        assert_eq!(
            half.to_json(r#""slot":"s""#),
            r#"{"format_version":1,"slot":"s","end_lsn":"0/1C","message_lsn":"0/0","open":{"commit_lsn":"0/28","xid":7,"inserts":3}}"#
        );
        assert!(
            Position::at(Lsn::new(28))
                .to_json("")
                .ends_with(r#""open":null}"#)
        );
    }
}
