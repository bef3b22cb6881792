//! The first start of a pipeline: what a start without a slot has to respect, where a Debezium connector is followed.

use crate::codes::{Code, Problem};

/// What the connector's configuration says of a start without a slot. By default, nothing: the native configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirstStart {
    /// There may have been a Debezium here, whose position `takeover` knows.
    pub after_debezium: bool,
    /// The rows that are there would have to be published first (`snapshot.mode`), which is not built.
    pub snapshot: bool,
    /// The publication has to exist, and only the slot is made (`publication.autocreate.mode=disabled`).
    pub publication_exists: bool,
    /// The publication is made without tables, for messages (`publication.autocreate.mode=no_tables`).
    pub without_tables: bool,
    /// The publication is made to publish partitions under the name of their table (`publish.via.partition.root`).
    pub via_partition_root: bool,
    /// The slot is made as a failover slot (`source.failover`, or a connector's `slot.failover`).
    pub failover: bool,
}

impl FirstStart {
    /// Refuses to make a slot where that would not be what the connector's configuration asks for. `missing` is the message
    /// about the slot.
    pub(crate) fn judge(
        self,
        server_version: u32,
        missing: impl Fn() -> Problem,
    ) -> Result<(), Problem> {
        if self.snapshot {
            return Err(self.explain(missing()));
        }
        if self.failover && server_version < FAILOVER_SINCE {
            let key = if self.after_debezium {
                "slot.failover"
            } else {
                "source.failover"
            };
            let problem = Problem::new(Code::ServerVersion, key);
            return Err(problem
                .found(format!("PostgreSQL {}", server_version / 10_000))
                .needed("PostgreSQL 17 or later for a failover slot")
                .fix(format!("write {key}=false, or upgrade the server first")));
        }
        Ok(())
    }

    /// Adds the ways of a first start to the message that publication or slot are missing.
    pub(crate) fn explain(self, problem: Problem) -> Problem {
        if !self.after_debezium {
            return problem;
        }
        let found = format!(
            "{}, and this is a Debezium connector's configuration",
            problem.found
        );
        let ways = "if Debezium ran here, its slot and publication are needed and `posthaste debezium takeover` says where to \
                    start; if there was none, --create makes publication and slot, and events from then on are published";
        let fix = if self.snapshot {
            format!(
                "write snapshot.mode=no_data, since publishing the rows that are there, as `initial` does, is not built yet; {ways}"
            )
        } else {
            ways.to_owned()
        };
        problem.found(found).fix(fix)
    }
}

/// As `server_version_num`.
const FAILOVER_SINCE: u32 = 170_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Problem {
        Problem::new(Code::SlotMissing, "slot a")
            .found("no slot of this name")
            .fix("make it")
    }

    #[test]
    fn the_native_configuration_has_its_own_message() {
        let first = FirstStart::default();
        assert!(first.judge(140_000, missing).is_ok());
        assert_eq!(first.explain(missing()).fix, "make it");
    }

    #[test]
    fn a_connectors_first_start_names_both_ways() {
        let first = FirstStart {
            after_debezium: true,
            ..FirstStart::default()
        };
        assert!(first.judge(140_000, missing).is_ok());
        let text = first.explain(missing()).to_string();
        for word in ["PH0309", "no slot of this name", "takeover", "--create"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert!(!text.contains("no_data"), "{text}");
    }

    #[test]
    fn a_snapshot_is_refused_even_if_making_is_asked_for() {
        let first = FirstStart {
            after_debezium: true,
            snapshot: true,
            ..FirstStart::default()
        };
        let problem = first.judge(180_000, missing).expect_err("refused");
        assert_eq!(problem.code, Code::SlotMissing);
        assert!(
            problem.fix.starts_with("write snapshot.mode=no_data"),
            "{problem}"
        );
    }

    #[test]
    fn a_failover_slot_needs_a_server_that_has_them() {
        let first = FirstStart {
            failover: true,
            ..FirstStart::default()
        };
        let problem = first.judge(160_004, missing).expect_err("refused");
        for word in ["source.failover", "PostgreSQL 16"] {
            assert!(problem.to_string().contains(word), "{word} in {problem}");
        }
        assert!(first.judge(170_000, missing).is_ok());
    }
}
