//! Stage 7 of 9, exactly once: the Position that is written in the same Kafka transaction as the records before it.

use pgoutput::{Lsn, RowId};

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
    /// Rows that are done because they are parked, or were published from their table, are so by commits before this place.
    /// A server whose log branched off before it may know nothing of them.
    pub parked_lsn: Lsn,
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
            parked_lsn: Lsn::ZERO,
        }
    }

    /// The same, knowing that everything before `confirmed` is done: the slot was confirmed up to there. The end of a
    /// transaction brings no record, so it may be confirmed without being written down here.
    #[must_use]
    pub fn confirmed_up_to(mut self, confirmed: Lsn) -> Self {
        self.end_lsn = self.end_lsn.max(confirmed);
        self.open.take_if(|open| open.commit_lsn < confirmed);
        self.forget_parked();
        self
    }

    /// Behind its commit a row is parked for whoever has come as far in the stream.
    fn forget_parked(&mut self) {
        if self.parked_lsn <= self.end_lsn {
            self.parked_lsn = Lsn::ZERO;
        }
    }

    /// The newest place in the log of which anything is done by itself. [`parked_lsn`](Self::parked_lsn) is a matter of its own.
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
                self.forget_parked();
            }
            Entry::ParkedUpTo { lsn } | Entry::ParkedNoted { lsn } => {
                self.parked_lsn = self.parked_lsn.max(lsn);
                self.forget_parked();
            }
            // A parked row that is published again stands outside the stream.
            Entry::Commit { .. } | Entry::Idle { .. } | Entry::Parked(_) => {}
        }
    }
}

/// What is written down: a position, and the parked rows that are published and not yet noted so in their table.
///
/// Whoever reads it notes them first, so that none is published again.
///
/// Invariant: a row is listed from the Kafka transaction that it is published in until the first one after its note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PositionRecord {
    /// Where the stream goes on.
    pub position: Position,
    /// The rows, at most [`UNNOTED_ROWS_MAX`].
    pub unnoted: Vec<RowId>,
}

impl PositionRecord {
    /// Moves on behind an entry that was taken.
    pub fn pass(&mut self, entry: &Entry) {
        match *entry {
            Entry::Parked(row) => {
                self.unnoted.push(row);
                debug_assert!(self.unnoted.len() <= UNNOTED_ROWS_MAX, "noted before more");
            }
            Entry::ParkedNoted { .. } => self.unnoted.clear(),
            Entry::Begin(_)
            | Entry::Record { .. }
            | Entry::Message { .. }
            | Entry::ParkedUpTo { .. }
            | Entry::Commit { .. }
            | Entry::Idle { .. } => {}
        }
        self.position.pass(entry);
    }

    /// The record's value. `origin` says what the position belongs to, as members of a JSON object.
    ///
    /// Where nothing is parked it is of version 1, which earlier releases wrote; they refuse version 2.
    #[must_use]
    pub fn to_json(&self, origin: &str) -> String {
        let Position {
            end_lsn,
            message_lsn,
            open,
            parked_lsn,
        } = self.position;
        let open = open.map_or_else(
            || "null".to_owned(),
            |open| {
                format!(
                    r#"{{"commit_lsn":"{}","xid":{},"inserts":{}}}"#,
                    open.commit_lsn, open.xid, open.inserts
                )
            },
        );
        let plain = |version| {
            format!(
                r#"{{"format_version":{version},{origin},"end_lsn":"{end_lsn}","message_lsn":"{message_lsn}","open":{open}"#
            )
        };
        if parked_lsn == Lsn::ZERO && self.unnoted.is_empty() {
            return plain(PLAIN_VERSION) + "}";
        }
        let rows: Vec<String> = self
            .unnoted
            .iter()
            .map(|row| format!("\"{row}\""))
            .collect();
        format!(
            r#"{},"parked_lsn":"{parked_lsn}","unnoted":[{}]}}"#,
            plain(FORMAT_VERSION),
            rows.join(",")
        )
    }
}

/// The format of the position record, if it says anything of parked rows.
pub const FORMAT_VERSION: u32 = 2;

/// The format otherwise.
pub const PLAIN_VERSION: u32 = 1;

/// Most parked rows that may be published before the first of them is noted so in its table.
pub const UNNOTED_ROWS_MAX: usize = 500;

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
        let json = |position| {
            let unnoted = Vec::new();
            PositionRecord { position, unnoted }.to_json(r#""slot":"s""#)
        };
        assert_eq!(
            json(half),
            r#"{"format_version":1,"slot":"s","end_lsn":"0/1C","message_lsn":"0/0","open":{"commit_lsn":"0/28","xid":7,"inserts":3}}"#
        );
        assert!(json(Position::at(Lsn::new(28))).ends_with(r#""open":null}"#));
    }

    fn parked(text: &str) -> RowId {
        text.parse().expect("a row")
    }

    #[test]
    fn parked_rows_are_listed_from_their_transaction_until_they_are_noted() {
        let mut record = PositionRecord {
            position: Position::at(Lsn::new(0x28)),
            unnoted: Vec::new(),
        };
        record.pass(&Entry::Parked(parked("0/10#0")));
        record.pass(&Entry::Parked(parked("0/10#7")));
        assert_eq!(record.position, Position::at(Lsn::new(0x28)));
        assert_eq!(
            record.to_json(r#""slot":"s""#),
            r#"{"format_version":2,"slot":"s","end_lsn":"0/28","message_lsn":"0/0","open":null,"parked_lsn":"0/0","unnoted":["0/10#0","0/10#7"]}"#
        );
        for entry in [begin(0x30), self::record(1), commit(0x38)] {
            record.pass(&entry);
            assert_eq!(record.unnoted.len(), 2, "{entry:?}");
        }
        let lsn = Lsn::new(0x50);
        record.pass(&Entry::ParkedNoted { lsn });
        assert!(record.unnoted.is_empty());
        assert!(
            record
                .to_json("")
                .ends_with(r#""parked_lsn":"0/50","unnoted":[]}"#)
        );
        record.pass(&commit(0x50));
        assert!(record.to_json("").starts_with(r#"{"format_version":1,"#));
    }

    #[test]
    fn the_commit_that_parks_is_known_until_the_stream_has_passed_it() {
        let lsn = Lsn::new(50);
        let start = Position::at(Lsn::new(28));
        let held = after(start, &[Entry::ParkedUpTo { lsn }, begin(40), commit(48)]);
        assert_eq!((held.parked_lsn, held.reach()), (lsn, Lsn::new(48)));
        let older = Entry::ParkedUpTo { lsn: Lsn::new(49) };
        assert_eq!(after(held, &[older]).parked_lsn, lsn);
        assert_eq!(held.confirmed_up_to(Lsn::new(49)).parked_lsn, lsn);
        assert_eq!(held.confirmed_up_to(lsn), Position::at(lsn));
        assert_eq!(after(held, &[commit(50)]), Position::at(lsn));
        assert_eq!(after(Position::at(lsn), &[older]), Position::at(lsn));
    }
}
