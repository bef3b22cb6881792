//! Timelines: whether a position is still part of the history of the server that answers.
//!
//! A standby that is promoted begins a new timeline where its WAL ended. What the old primary committed behind that place
//! is gone from the database, and new transactions take its positions.

use pgoutput::Lsn;
use replication::TimelineSwitch;

use crate::codes::{Code, Problem};

/// The timeline of a server, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The present timeline.
    pub timeline: u32,
    /// The switches that led to it, oldest first; `None` if the server could not tell.
    pub switches: Option<Vec<TimelineSwitch>>,
}

impl History {
    /// A timeline without a past.
    #[must_use]
    pub const fn only(timeline: u32) -> Self {
        Self {
            timeline,
            switches: Some(Vec::new()),
        }
    }

    /// Refuses a position of `timeline` that is not part of this history. `what` names it: "stored position".
    ///
    /// # Errors
    ///
    /// [`Code::HistoryDiverged`]: events up to the position were published, and the database no longer has them.
    pub fn judge(&self, what: &str, position: Lsn, timeline: u32) -> Result<(), Problem> {
        if timeline == self.timeline {
            return Ok(());
        }
        let Some(switches) = &self.switches else {
            return Err(self.diverged(
                what,
                position,
                timeline,
                "whose history the server cannot tell",
            ));
        };
        let Some(left) = switches.iter().find(|switch| switch.timeline == timeline) else {
            let why = format!("which does not come from timeline {timeline}");
            return Err(self.diverged(what, position, timeline, &why));
        };
        let branch = Lsn::new(left.end);
        if position <= branch {
            return Ok(());
        }
        let why = format!(
            "which left timeline {timeline} at {branch}: events committed from {branch} to {position} were published and no \
             longer exist in the database, and new ones may take their positions"
        );
        Err(self.diverged(what, position, timeline, &why))
    }

    /// The same for the newest commit in the table of parked events that the position counts on.
    ///
    /// # Errors
    ///
    /// [`Code::HistoryDiverged`]: the table may lack events that were parked, or that they were published.
    pub fn judge_table(&self, parked_up_to: Lsn, timeline: u32) -> Result<(), Problem> {
        self.judge("table of parked events", parked_up_to, timeline)
            .map_err(|problem| problem.needed(PARKED_SINCE))
    }

    fn diverged(&self, what: &str, position: Lsn, timeline: u32, why: &str) -> Problem {
        Problem::new(
            Code::HistoryDiverged,
            format!("{what} {position} of timeline {timeline}"),
        )
        .found(format!(
            "the server is on timeline {}, {why}",
            self.timeline
        ))
        .needed("a position in the history of the server")
        .fix(ACCEPT)
    }
}

/// What has to be in the history besides the position itself.
const PARKED_SINCE: &str = "the commit that parked events, or noted them as published, in the history of the server: the table may lack them";

/// The way out that is common to positions that do not fit.
pub(crate) const ACCEPT: &str = "decide about the events concerned (docs/operations.md, \"A position that does not fit\"); then \
     start once with --accept-slot-position to go on from the slot's own position";

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeline 1 was left at 100, timeline 2 at 200.
    fn third() -> History {
        let switch = |timeline, end| TimelineSwitch { timeline, end };
        History {
            timeline: 3,
            switches: Some(vec![switch(1, 100), switch(2, 200)]),
        }
    }

    #[track_caller]
    fn check(history: &History, position: u64, timeline: u32, expected: Option<&str>) {
        let judged = history.judge("stored position", Lsn::new(position), timeline);
        match (judged, expected) {
            (Ok(()), None) => {}
            (Err(problem), Some(part)) => {
                assert_eq!(problem.code, Code::HistoryDiverged);
                assert!(problem.to_string().contains(part), "{problem}");
            }
            (judged, _) => panic!("{judged:?}"),
        }
    }

    #[test]
    fn a_position_before_the_branch_is_part_of_the_history() {
        check(&third(), 100, 1, None);
        check(&third(), 200, 2, None);
        check(&third(), 150, 2, None);
        check(&third(), 9_999, 3, None);
        check(&History::only(1), 5, 1, None);
    }

    #[test]
    fn a_position_beyond_the_branch_is_refused_with_its_range() {
        check(&third(), 101, 1, Some("from 0/64 to 0/65"));
        check(&third(), 201, 2, Some("left timeline 2 at 0/C8"));
    }

    #[test]
    fn a_timeline_from_elsewhere_is_refused() {
        check(&third(), 1, 4, Some("does not come from timeline 4"));
        check(
            &History::only(1),
            1,
            2,
            Some("does not come from timeline 2"),
        );
        let unknown = History {
            switches: None,
            ..third()
        };
        check(&unknown, 1, 1, Some("cannot tell"));
        check(&unknown, 1, 3, None);
    }
}
