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
            "of transaction {}, rows before {1} are skipped, and of those at {1}",
            self.transaction, self.position
        )?;
        match self.at {
            AtPosition::SkipFirst(count) => write!(f, " the first {count}"),
            AtPosition::SkipIfAlone => f.write_str(" the only one; if several share it, all of these are sent again, as no count is stored"),
            AtPosition::Send => f.write_str(" none"),
        }
    }
}

impl SkipRule {
    /// The rule once it is known how many rows share the position.
    #[must_use]
    pub fn resolve(self, rows_at_position: u64) -> Self {
        let at = match self.at {
            AtPosition::SkipIfAlone if rows_at_position == 1 => AtPosition::SkipFirst(1),
            AtPosition::SkipIfAlone => AtPosition::Send,
            at => at,
        };
        Self { at, ..self }
    }
}

/// Applies a [`SkipRule`] to rows as they come. Rows of which it is not known whether they are alone are sent: the rule has to
/// be [resolved](SkipRule::resolve) before.
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

    /// Whether the next row has been published already.
    pub fn is_done(&mut self, transaction: u32, lsn: Lsn) -> bool {
        if transaction != self.rule.transaction {
            self.handle_commit();
            return false;
        }
        let at_position = match self.state {
            State::After => return false,
            State::Before => 0,
            State::Inside(count) => count,
        };
        let seen = at_position + u64::from(lsn == self.rule.position);
        self.state = State::Inside(seen);
        if lsn != self.rule.position {
            return lsn < self.rule.position;
        }
        match self.rule.at {
            AtPosition::SkipFirst(count) => seen <= count,
            AtPosition::Send | AtPosition::SkipIfAlone => false,
        }
    }

    /// A transaction has ended: if it was the one in question, the rule is used up.
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

    fn rule(at: AtPosition) -> SkipRule {
        SkipRule {
            transaction: 7,
            position: Lsn::new(100),
            at,
        }
    }

    fn judge(at: AtPosition, rows: &[(u32, u64)]) -> Vec<bool> {
        let mut skipper = Skipper::new(rule(at));
        rows.iter()
            .map(|(transaction, lsn)| skipper.is_done(*transaction, Lsn::new(*lsn)))
            .collect()
    }

    #[test]
    fn a_rule_names_transaction_and_position() {
        assert_eq!(
            rule(AtPosition::SkipFirst(2)).to_string(),
            "of transaction 7, rows before 0/64 are skipped, and of those at 0/64 the first 2"
        );
    }

    #[test]
    fn a_counted_number_of_rows_is_skipped() {
        let rows = [(7, 90), (7, 100), (7, 100), (7, 100), (7, 110)];
        assert_eq!(
            judge(AtPosition::SkipFirst(2), &rows),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn without_a_count_only_a_single_row_is_skipped() {
        let at = |rows| rule(AtPosition::SkipIfAlone).resolve(rows).at;
        assert_eq!(
            [at(0), at(1), at(2)],
            [AtPosition::Send, AtPosition::SkipFirst(1), AtPosition::Send]
        );
        assert_eq!(
            rule(AtPosition::SkipFirst(3)).resolve(9).at,
            AtPosition::SkipFirst(3)
        );
        assert_eq!(
            judge(AtPosition::SkipIfAlone, &[(7, 90), (7, 100), (7, 110)]),
            [true, false, false]
        );
    }

    #[test]
    fn rows_of_other_transactions_are_sent_whatever_their_position() {
        assert_eq!(
            judge(AtPosition::Send, &[(6, 80), (7, 90), (7, 100), (8, 50)]),
            [false, true, false, false]
        );
    }

    #[test]
    fn the_rule_is_used_up_with_its_transaction() {
        assert_eq!(
            judge(AtPosition::SkipFirst(9), &[(7, 90), (8, 95), (7, 96)]),
            [true, false, false]
        );
        let mut skipper = Skipper::new(rule(AtPosition::Send));
        skipper.handle_commit();
        assert!(!skipper.is_over(), "the transaction has not come yet");
        assert!(skipper.is_done(7, Lsn::new(90)));
        skipper.handle_commit();
        assert!(skipper.is_over());
        assert!(!skipper.is_done(7, Lsn::new(90)));
    }
}
