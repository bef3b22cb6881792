//! A slot that is lost for good, made anew: only when the operator asks for it, and never in silence.

use pgoutput::Lsn;
use replication::quote_ident;
use tokio_postgres::Client;
use tracing::warn;

use crate::codes::{Code, Problem};
use crate::preconditions::{CheckError, Wanted};
use crate::slot::Slot;
use crate::slot_explain::describe;

/// What a slot that was made anew does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The last known position of the slot that was lost.
    pub start: Lsn,
    /// Where the new one begins.
    pub end: Lsn,
}

impl Gap {
    /// For the log: what may be missing, and how it is found.
    pub(crate) fn tell(self, slot: &str) -> Problem {
        let Self { start, end } = self;
        Problem::new(Code::SlotRecreated, describe(slot))
            .found(format!(
                "made anew, as --recreate-lost-slot asks for: of what was committed between {start} and {end}, \
                 all that was not delivered before is missing in Kafka"
            ))
            .needed("a decision about these events")
            .fix("`posthaste reconcile` finds those that are still in the table, and publishes them with --publish")
    }
}

/// Where the slot stood last, if it can never be read again: given up by the server, or gone though it was read before.
pub(crate) fn lost_at(slot: Option<&Slot>, database: &str, remembered: Option<Lsn>) -> Option<Lsn> {
    let Some(slot) = slot else {
        return remembered;
    };
    match slot.judge(database) {
        Err(CheckError::Problem(problem)) if problem.code == Code::SlotInvalidated => {
            Some(slot.confirmed.max(remembered).unwrap_or_default())
        }
        // Whatever else is wrong with it is told as it always is.
        _ => None,
    }
}

/// Drops what is left of the slot. Told before, so that its last position is known whatever happens then.
///
/// # Errors
/// The server refuses, or somebody else holds it after all.
///
/// # Cancel safety
/// When dropped, the slot may be gone; the next check then finds it missing, and says so.
pub(crate) async fn drop_slot(sql: &Client, wanted: &Wanted, at: Lsn) -> Result<(), CheckError> {
    warn!(
        slot = wanted.slot,
        "dropping the invalidated replication slot {}, whose last known position is {at}",
        quote_ident(&wanted.slot)
    );
    sql.execute(
        "SELECT pg_catalog.pg_drop_replication_slot($1::pg_catalog.text::pg_catalog.name)",
        &[&wanted.slot],
    )
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot {
            name: "s".to_owned(),
            logical: true,
            plugin: Some("pgoutput".to_owned()),
            database: Some("app".to_owned()),
            confirmed: Some(Lsn::new(0x2A)),
            wal_status: Some("lost".to_owned()),
            ..Slot::default()
        }
    }

    #[track_caller]
    fn check(slot: Option<&Slot>, remembered: Option<u64>, expected: Option<u64>) {
        let lost = lost_at(slot, "app", remembered.map(Lsn::new));
        assert_eq!(lost, expected.map(Lsn::new));
    }

    #[test]
    fn an_invalidated_slot_is_lost_at_the_highest_position_known() {
        check(Some(&slot()), None, Some(0x2A));
        check(Some(&slot()), Some(0x20), Some(0x2A));
        check(Some(&slot()), Some(0x30), Some(0x30));
    }

    #[test]
    fn a_slot_that_is_gone_is_lost_only_if_it_was_read() {
        check(None, Some(0x30), Some(0x30));
        check(None, None, None);
    }

    #[test]
    fn what_can_still_be_read_or_is_not_ours_is_never_lost() {
        let usable = Slot {
            wal_status: Some("reserved".to_owned()),
            ..slot()
        };
        check(Some(&usable), Some(0x30), None);
        let held = Slot {
            active: true,
            ..usable
        };
        check(Some(&held), Some(0x30), None);
        let elsewhere = Slot {
            database: Some("other".to_owned()),
            ..slot()
        };
        check(Some(&elsewhere), Some(0x30), None);
        let physical = Slot {
            logical: false,
            ..slot()
        };
        check(Some(&physical), Some(0x30), None);
    }
}
