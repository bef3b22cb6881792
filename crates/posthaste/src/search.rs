//! The search for the record that the brokers refuse. Pure: refusals come in, and how to send from now on goes out.
//!
//! A permanent error on a batch fails its neighbours too, and says nothing of which record it was about. So what was on
//! its way is sent again one by one; the record that is refused alone is the one. It is remembered, and the next attempt
//! meets it as poison before it is sent.
//!
//! ```text
//!             refused, not alone
//!   ┌──────┐ ────────────────────▶ ┌─────────────┐
//!   │ free │                       │ one by one  │
//!   └──────┘ ◀──────────────────── └─────────────┘
//!             refused alone: condemned; or what was on its way has passed, and nobody was
//! ```

use pgoutput::{Lsn, RowId};
use sink::{Careful, EventIdentity};

use crate::poison::Reason;

/// What is known about records that are refused.
#[derive(Debug, Default)]
pub struct Search {
    careful: Careful,
    condemned: Vec<(RowId, Reason)>,
    /// Of those that were parked and published again.
    refused_again: Vec<(RowId, Reason)>,
    /// Refusals in a row that nobody was found for.
    unexplained: u32,
}

/// A permanent refusal of one record, or of a batch with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whose it is, if it was alone.
    pub culprit: Option<EventIdentity>,
    /// Where the commit of the newest transaction begins of which anything was handed over.
    pub high_water: Lsn,
    /// What was said.
    pub reason: Reason,
}

/// What to do after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send what was on its way again, one by one.
    SendSingly,
    /// Start again: the culprit is known and will be met as poison.
    GoOn,
    /// Stop: nothing can be done about it here.
    Stop,
}

impl Search {
    /// How the next attempt has to send.
    #[must_use]
    pub fn careful(&self) -> Careful {
        self.careful
    }

    /// Rows that are refused for good.
    #[must_use]
    pub fn condemned(&self) -> &[(RowId, Reason)] {
        &self.condemned
    }

    /// Parked rows that were refused again; each is told once.
    pub fn take_refused_again(&mut self) -> Vec<(RowId, Reason)> {
        std::mem::take(&mut self.refused_again)
    }

    /// Takes a refusal of a record that is poison. With `halting` the culprit is only to be found.
    pub fn handle(&mut self, refusal: Refusal, halting: bool) -> Next {
        let Some(culprit) = refusal.culprit else {
            return self.look(refusal.high_water);
        };
        self.unexplained = 0;
        let mut reason = refusal.reason;
        reason.attempts = if self.is_careful() { 2 } else { 1 };
        match culprit {
            EventIdentity::Parked(row) => {
                self.refused_again.push((row, reason));
                self.careful.parked = false;
                Next::GoOn
            }
            // It would be met as poison at the next attempt; refused once more means that this changed nothing.
            EventIdentity::Row(row) if self.is_condemned(row) => Next::Stop,
            EventIdentity::Row(row) if !halting => {
                self.condemned.push((row, reason));
                // Should there be another one, it is searched for in its turn: one by one is slow.
                self.careful.until = None;
                Next::GoOn
            }
            EventIdentity::Row(_) | EventIdentity::Message(_) => Next::Stop,
        }
    }

    /// The stream starts at `position`: what lies before it does not come again.
    pub fn start_at(&mut self, position: Lsn) {
        self.condemned.retain(|(row, _)| row.commit_lsn >= position);
        self.careful.until = self.careful.until.filter(|until| *until >= position);
    }

    /// A pass over parked rows went through.
    pub fn parked_went_through(&mut self) {
        self.careful.parked = false;
    }

    fn look(&mut self, high_water: Lsn) -> Next {
        self.unexplained += 1;
        if self.unexplained > UNEXPLAINED_MAX {
            return Next::Stop;
        }
        self.careful.until = self.careful.until.max(Some(high_water));
        self.careful.parked = true;
        Next::SendSingly
    }

    fn is_careful(&self) -> bool {
        self.careful.until.is_some() || self.careful.parked
    }

    fn is_condemned(&self, row: RowId) -> bool {
        self.condemned
            .iter()
            .any(|(condemned, _)| *condemned == row)
    }
}

/// Sending singly finds the culprit at once; more refusals than this mean that something else is wrong.
const UNEXPLAINED_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Code;
    use crate::poison::Stage;

    fn row(text: &str) -> RowId {
        text.parse().expect("a row")
    }

    fn refusal(culprit: Option<EventIdentity>) -> Refusal {
        Refusal {
            culprit,
            high_water: Lsn::new(100),
            reason: Reason {
                stage: Stage::Publish,
                code: Code::KafkaRecordTooLarge,
                text: "too large".to_owned(),
                attempts: 0,
            },
        }
    }

    #[test]
    fn a_refused_batch_is_sent_singly_until_what_was_on_its_way_has_passed() {
        let mut search = Search::default();
        assert_eq!(search.handle(refusal(None), false), Next::SendSingly);
        assert_eq!(search.careful().until, Some(Lsn::new(100)));
        search.start_at(Lsn::new(50));
        assert_eq!(search.careful().until, Some(Lsn::new(100)));
        search.start_at(Lsn::new(101));
        assert_eq!(search.careful().until, None);
    }

    #[test]
    fn the_one_refused_alone_is_condemned_until_the_stream_has_passed_it() {
        let mut search = Search::default();
        let culprit = row("0/50#3");
        search.handle(refusal(None), false);
        let found = refusal(Some(EventIdentity::Row(culprit)));
        assert_eq!(search.handle(found.clone(), false), Next::GoOn);
        assert_eq!(search.condemned()[0].0, culprit);
        assert_eq!(search.condemned()[0].1.attempts, 2);
        assert_eq!(search.careful().until, None);
        search.start_at(culprit.commit_lsn);
        assert_eq!(search.condemned().len(), 1);
        assert_eq!(
            search.handle(found, false),
            Next::Stop,
            "it changed nothing"
        );
        search.start_at(Lsn::new(0x51));
        assert!(search.condemned().is_empty());
    }

    #[test]
    fn with_halt_the_culprit_is_found_and_it_stops() {
        let mut search = Search::default();
        assert_eq!(search.handle(refusal(None), true), Next::SendSingly);
        let found = refusal(Some(EventIdentity::Row(row("0/50#3"))));
        assert_eq!(search.handle(found, true), Next::Stop);
        assert!(search.condemned().is_empty());
    }

    #[test]
    fn a_message_outside_a_transaction_stops() {
        let mut search = Search::default();
        let found = refusal(Some(EventIdentity::Message(Lsn::new(7))));
        assert_eq!(search.handle(found, false), Next::Stop);
    }

    #[test]
    fn a_parked_row_refused_again_is_told_once() {
        let mut search = Search::default();
        search.handle(refusal(None), false);
        assert!(search.careful().parked);
        let parked = row("0/10#0");
        let found = refusal(Some(EventIdentity::Parked(parked)));
        assert_eq!(search.handle(found, false), Next::GoOn);
        assert!(!search.careful().parked);
        assert_eq!(search.take_refused_again()[0].0, parked);
        assert!(search.take_refused_again().is_empty());
    }

    #[test]
    fn a_pass_that_went_through_ends_the_care_for_parked_rows() {
        let mut search = Search::default();
        search.handle(refusal(None), false);
        search.parked_went_through();
        assert!(!search.careful().parked);
        assert_eq!(search.careful().until, Some(Lsn::new(100)));
    }

    #[test]
    fn attempts_count_the_one_that_was_searched_in() {
        let found = || refusal(Some(EventIdentity::Row(row("0/50#3"))));
        let mut at_once = Search::default();
        at_once.handle(found(), false);
        assert_eq!(at_once.condemned()[0].1.attempts, 1);
        let mut searched = Search::default();
        searched.handle(refusal(None), false);
        searched.parked_went_through();
        searched.handle(found(), false);
        assert_eq!(searched.condemned()[0].1.attempts, 2);
    }

    #[test]
    fn refusals_that_nobody_is_found_for_end() {
        let mut search = Search::default();
        for _ in 0..UNEXPLAINED_MAX {
            assert_eq!(search.handle(refusal(None), false), Next::SendSingly);
        }
        assert_eq!(search.handle(refusal(None), false), Next::Stop);
    }
}
