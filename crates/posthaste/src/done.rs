//! Done: what, with exactly-once, of the stream is in Kafka already and is passed over when it comes again.

use std::cmp::Ordering;

use pgoutput::{Lsn, TransactionId};
use sink::Position;
use thiserror::Error;

/// Tells the events that an earlier attempt published. Nothing, unless it was given a position.
#[derive(Debug, Default)]
pub(crate) struct Done {
    position: Position,
    passing: Passing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Passing {
    #[default]
    Nothing,
    /// The first so many of the transaction; and how many of them have come.
    First {
        inserts: u64,
        seen: u64,
    },
    Everything,
}

/// The stream is not the one the position was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Misfit {
    /// Another transaction stands where the half-done one was.
    #[error(
        "transaction {found} commits at {commit_lsn}, where transaction {expected} was published in part"
    )]
    Xid {
        /// Where both commit.
        commit_lsn: Lsn,
        /// The one published in part.
        expected: u32,
        /// The one that came.
        found: u32,
    },
    /// The half-done transaction did not come again.
    #[error(
        "the stream stands at {reached}, and the transaction that commits at {commit_lsn} and was published in part did not come"
    )]
    Missing {
        /// Where it commits.
        commit_lsn: Lsn,
        /// The transaction that came instead.
        reached: Lsn,
    },
    /// The half-done transaction came with fewer rows than were published of it.
    #[error(
        "the transaction that commits at {commit_lsn} came with {found} rows, of which {expected} were published before"
    )]
    Short {
        /// Where it commits.
        commit_lsn: Lsn,
        /// Rows published before.
        expected: u64,
        /// Rows that came.
        found: u64,
    },
}

impl Done {
    /// Everything up to `position` is done.
    pub(crate) fn new(position: Position) -> Self {
        Self {
            position,
            passing: Passing::Nothing,
        }
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self, transaction: &TransactionId) -> Result<(), Misfit> {
        let commit_lsn = transaction.final_lsn;
        self.passing = match self.position.open {
            _ if commit_lsn < self.position.end_lsn => Passing::Everything,
            None => Passing::Nothing,
            Some(open) => match open.commit_lsn.cmp(&commit_lsn) {
                Ordering::Equal if open.xid == transaction.xid => Passing::First {
                    inserts: open.inserts,
                    seen: 0,
                },
                Ordering::Equal => {
                    return Err(Misfit::Xid {
                        commit_lsn,
                        expected: open.xid,
                        found: transaction.xid,
                    });
                }
                Ordering::Less => {
                    return Err(Misfit::Missing {
                        commit_lsn: open.commit_lsn,
                        reached: commit_lsn,
                    });
                }
                Ordering::Greater => Passing::Nothing,
            },
        };
        Ok(())
    }

    /// Whether the row or message of this number was published before.
    pub(crate) fn has(&mut self, insert_index: u64) -> bool {
        match &mut self.passing {
            Passing::Nothing => false,
            Passing::Everything => true,
            Passing::First { inserts, seen } => {
                *seen = insert_index + 1;
                insert_index < *inserts
            }
        }
    }

    /// The same for a logical message, inside a transaction or outside.
    pub(crate) fn has_logical(&mut self, is_inside: bool, insert_index: u64, lsn: Lsn) -> bool {
        if is_inside {
            self.has(insert_index)
        } else {
            self.has_message(lsn)
        }
    }

    fn has_message(&self, lsn: Lsn) -> bool {
        lsn < self.position.end_lsn || lsn <= self.position.message_lsn
    }

    /// The transaction ends.
    pub(crate) fn commit(&mut self) -> Result<(), Misfit> {
        let passing = std::mem::take(&mut self.passing);
        let Passing::First { inserts, seen } = passing else {
            return Ok(());
        };
        let open = self.position.open.take();
        if seen >= inserts {
            return Ok(());
        }
        Err(Misfit::Short {
            commit_lsn: open.map_or(Lsn::ZERO, |open| open.commit_lsn),
            expected: inserts,
            found: seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use pgoutput::PgTimestamp;
    use sink::OpenTransaction;

    use super::*;

    fn transaction(final_lsn: u64, xid: u32) -> TransactionId {
        TransactionId {
            final_lsn: Lsn::new(final_lsn),
            commit_time: PgTimestamp::new(0),
            xid,
        }
    }

    /// Complete up to 28; of transaction 7, which commits at 40, two rows are done.
    fn done() -> Done {
        Done::new(Position {
            open: Some(OpenTransaction {
                commit_lsn: Lsn::new(40),
                xid: 7,
                inserts: 2,
            }),
            ..Position::at(Lsn::new(28))
        })
    }

    #[test]
    fn without_a_position_nothing_is_done() {
        let mut done = Done::default();
        done.begin(&transaction(1, 1)).unwrap();
        assert!(!done.has(0));
        assert!(!done.has_message(Lsn::new(1)));
        done.commit().unwrap();
    }

    #[test]
    fn whole_transactions_and_the_first_rows_are_passed_over() {
        let mut done = done();
        done.begin(&transaction(20, 6)).unwrap();
        assert!(done.has(0) && done.has(1_000));
        done.commit().unwrap();
        done.begin(&transaction(40, 7)).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|index| done.has(index)),
            [true, true, false, false]
        );
        done.commit().unwrap();
        done.begin(&transaction(50, 8)).unwrap();
        assert!(!done.has(0));
    }

    #[test]
    fn a_transaction_that_begins_its_commit_at_the_end_is_new() {
        let mut done = Done::new(Position::at(Lsn::new(28)));
        done.begin(&transaction(28, 7)).unwrap();
        assert!(!done.has(0));
    }

    #[test]
    fn a_transaction_between_the_end_and_the_half_done_one_is_new() {
        let mut done = done();
        done.begin(&transaction(30, 5)).unwrap();
        assert!(!done.has(0));
        done.commit().unwrap();
        done.begin(&transaction(40, 7)).unwrap();
        assert!(done.has(0));
    }

    #[test]
    fn a_logical_message_counts_like_a_row_inside_and_by_its_place_outside() {
        let mut done = done();
        done.begin(&transaction(40, 7)).unwrap();
        let outside = [(false, 27), (false, 28)];
        let [before, behind] =
            outside.map(|(is_inside, lsn)| done.has_logical(is_inside, 0, Lsn::new(lsn)));
        assert!(before && !behind);
        assert!(done.has_logical(true, 1, Lsn::new(99)));
        assert!(!done.has_logical(true, 2, Lsn::new(1)));
    }

    #[test]
    fn a_stream_that_does_not_fit_is_refused() {
        assert!(matches!(
            done().begin(&transaction(40, 8)),
            Err(Misfit::Xid {
                expected: 7,
                found: 8,
                ..
            })
        ));
        assert!(matches!(
            done().begin(&transaction(41, 9)),
            Err(Misfit::Missing { .. })
        ));
        let mut short = done();
        short.begin(&transaction(40, 7)).unwrap();
        assert!(short.has(0));
        assert!(matches!(
            short.commit(),
            Err(Misfit::Short {
                expected: 2,
                found: 1,
                ..
            })
        ));
    }

    #[test]
    fn messages_are_done_up_to_the_newest_one() {
        let done = Done::new(Position {
            message_lsn: Lsn::new(35),
            ..Position::at(Lsn::new(28))
        });
        let has = |lsn| done.has_message(Lsn::new(lsn));
        assert!(has(27) && has(28) && has(35));
        assert!(!has(36));
    }
}
