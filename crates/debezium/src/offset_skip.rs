//! Which rows of the one transaction in question are not sent again.

use std::fmt;

use pgoutput::Lsn;

/// Rows that have been published already. Applies to the first transaction of this number only: a transaction that
/// began earlier and ended later has rows at smaller positions that were never published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipRule {
    /// The transaction's number.
    pub transaction: u32,
    /// Its rows before this position are skipped.
    pub position: Lsn,
    /// What becomes of its rows at this position.
    pub at: AtPosition,
}

/// Rows at the stored position itself; COPY gives several rows one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtPosition {
    /// The first so many are skipped: Debezium stored the count.
    SkipFirst(u64),
    /// Skipped if there is one only; several are all sent again, as nothing says how many are done.
    SkipIfAlone,
    /// All are sent.
    Send,
}

impl fmt::Display for SkipRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of transaction {}, rows before {} are skipped, and of those at {0}",
            self.transaction, self.position
        )?;
        match self.at {
            AtPosition::SkipFirst(count) => write!(f, " the first {count}"),
            AtPosition::SkipIfAlone => f.write_str(" the only one; if several share it, all of these are sent again, as no count is stored"),
            AtPosition::Send => f.write_str(" none"),
        }
    }
}

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Send it. A row that is held is dropped: it was alone.
    Send,
    /// Leave it out.
    Skip,
    /// Keep it until the next row or the transaction's end says whether it was alone; at the end, drop it.
    Hold,
    /// Send the row that is held, then this one.
    SendWithHeld,
}

/// Applies a [`SkipRule`] to rows as they come.
#[derive(Debug, Clone)]
pub struct Skipper {
    rule: SkipRule,
    state: State,
}

/// Before the transaction → in it → after it. It is over with the first row of another one, or when
/// [`Skipper::handle_commit`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    /// With the number of its rows at the position so far.
    Inside(u64),
    After,
}

impl Skipper {
    /// A skipper that has seen no row.
    #[must_use]
    pub fn new(rule: SkipRule) -> Self {
        Self {
            rule,
            state: State::Before,
        }
    }

    /// Judges the next row.
    pub fn judge(&mut self, transaction: u32, lsn: Lsn) -> Judgement {
        if transaction != self.rule.transaction {
            self.handle_commit();
            return Judgement::Send;
        }
        let at_position = match self.state {
            State::After => return Judgement::Send,
            State::Before => 0,
            State::Inside(count) => count,
        };
        let seen = at_position + u64::from(lsn == self.rule.position);
        self.state = State::Inside(seen);
        if lsn < self.rule.position {
            return Judgement::Skip;
        }
        match self.rule.at {
            _ if lsn > self.rule.position => Judgement::Send,
            AtPosition::Send => Judgement::Send,
            AtPosition::SkipFirst(count) if seen <= count => Judgement::Skip,
            AtPosition::SkipFirst(_) => Judgement::Send,
            AtPosition::SkipIfAlone => match seen {
                1 => Judgement::Hold,
                2 => Judgement::SendWithHeld,
                _ => Judgement::Send,
            },
        }
    }

    /// A transaction has ended: if it was the one in question, the rule is used up. A row that is held is to be dropped.
    pub fn handle_commit(&mut self) {
        if matches!(self.state, State::Inside(_)) {
            self.state = State::After;
        }
    }

    /// Whether the rule is used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::After
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Hold, Send, SendWithHeld, Skip};

    fn judge(at: AtPosition, rows: &[(u32, u64)]) -> Vec<Judgement> {
        let mut skipper = Skipper::new(SkipRule {
            transaction: 7,
            position: Lsn::new(100),
            at,
        });
        rows.iter()
            .map(|(transaction, lsn)| skipper.judge(*transaction, Lsn::new(*lsn)))
            .collect()
    }

    #[test]
    fn a_counted_number_of_rows_is_skipped() {
        let rows = [(7, 90), (7, 100), (7, 100), (7, 100), (7, 110)];
        assert_eq!(
            judge(AtPosition::SkipFirst(2), &rows),
            [Skip, Skip, Skip, Send, Send]
        );
    }

    #[test]
    fn without_a_count_only_a_single_row_is_skipped() {
        assert_eq!(
            judge(AtPosition::SkipIfAlone, &[(7, 90), (7, 100), (7, 110)]),
            [Skip, Hold, Send]
        );
        let rows = [(7, 100), (7, 100), (7, 100), (7, 110)];
        assert_eq!(
            judge(AtPosition::SkipIfAlone, &rows),
            [Hold, SendWithHeld, Send, Send]
        );
    }

    #[test]
    fn rows_of_other_transactions_are_sent_whatever_their_position() {
        assert_eq!(
            judge(AtPosition::Send, &[(6, 80), (7, 90), (7, 100), (8, 50)]),
            [Send, Skip, Send, Send]
        );
    }

    #[test]
    fn the_rule_is_used_up_with_its_transaction() {
        assert_eq!(
            judge(AtPosition::SkipFirst(9), &[(7, 90), (8, 95), (7, 96)]),
            [Skip, Send, Send]
        );
        let mut skipper = Skipper::new(SkipRule {
            transaction: 7,
            position: Lsn::new(100),
            at: AtPosition::Send,
        });
        skipper.handle_commit();
        assert!(!skipper.is_over(), "the transaction has not come yet");
        assert_eq!(skipper.judge(7, Lsn::new(90)), Skip);
        skipper.handle_commit();
        assert!(skipper.is_over());
        assert_eq!(skipper.judge(7, Lsn::new(90)), Send);
    }
}
