//! The replication slot: what it must be, how it is made, and what the server's refusals of it mean.

use std::time::Duration;

use pgoutput::Lsn;
use replication::ReplicationClient;
use tokio_postgres::Client;

use crate::codes::{Code, Problem};
use crate::preconditions::{CheckError, Wanted};
use crate::slot_explain::{
    describe, exhausted, explain_create_error, invalidated, other_database, physical, recreate_sql,
    wrong_plugin,
};

pub use crate::slot_explain::{Stream, explain_notice, explain_start_error};

/// A row of `pg_replication_slots`, reduced to what decides whether we can read it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) logical: bool,
    pub(crate) plugin: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) temporary: bool,
    pub(crate) active: bool,
    pub(crate) active_pid: Option<i32>,
    pub(crate) confirmed: Option<Lsn>,
    pub(crate) wal_status: Option<String>,
    pub(crate) invalidation: Option<String>,
    pub(crate) two_phase: bool,
    /// Whether standbys may keep it in step; `None` on servers that have no such slots.
    pub(crate) failover: Option<bool>,
}

impl Slot {
    /// Reads the slot of this name, whichever database it belongs to; `None` when there is none.
    pub(crate) async fn read(
        sql: &Client,
        version: u32,
        name: &str,
    ) -> Result<Option<Self>, CheckError> {
        let statement = format!(
            "SELECT s.slot_type, s.plugin::pg_catalog.text, s.database::pg_catalog.text, s.temporary, s.active, \
                    s.active_pid, s.confirmed_flush_lsn::pg_catalog.text, s.wal_status, {}, s.two_phase, {} \
             FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1::pg_catalog.text",
            invalidation_column(version),
            failover_column(version)
        );
        let Some(row) = sql.query_opt(statement.as_str(), &[&name]).await? else {
            return Ok(None);
        };
        let slot_type: String = row.try_get(0)?;
        let confirmed: Option<String> = row.try_get(6)?;
        Ok(Some(Self {
            name: name.to_owned(),
            logical: slot_type == "logical",
            plugin: row.try_get(1)?,
            database: row.try_get(2)?,
            temporary: row.try_get(3)?,
            active: row.try_get(4)?,
            active_pid: row.try_get(5)?,
            confirmed: confirmed.and_then(|text| text.parse().ok()),
            wal_status: row.try_get(7)?,
            invalidation: row.try_get(8)?,
            two_phase: row.try_get(9)?,
            failover: row.try_get(10)?,
        }))
    }

    /// Whether no transaction was ever decoded for the slot, as far as the server's statistics go back.
    pub(crate) async fn is_unread(sql: &Client, name: &str) -> Result<bool, CheckError> {
        let row = sql
            .query_opt(
                "SELECT total_txns FROM pg_catalog.pg_stat_replication_slots WHERE slot_name = $1::text",
                &[&name],
            )
            .await?;
        let Some(row) = row else {
            return Ok(true);
        };
        let decoded: Option<i64> = row.try_get(0)?;
        Ok(decoded.unwrap_or_default() == 0)
    }

    /// Makes the slot and returns its consistent point: everything committed later will be in it.
    ///
    /// The server waits for the transactions that were open when it began. That can take long and looks like a hang, so
    /// who is waited for is logged.
    ///
    /// # Cancel safety
    /// When dropped, the server drops an unfinished slot as soon as it sees the connection gone; a finished one stays.
    pub(crate) async fn create(
        sql: &Client,
        replication: &mut ReplicationClient,
        wanted: &Wanted,
    ) -> Result<Lsn, CheckError> {
        let name = wanted.slot.as_str();
        let failover = wanted.first_start.failover;
        let mut creating = Box::pin(replication.create_logical_slot(name, failover));
        loop {
            tokio::select! {
                created = &mut creating => {
                    return created.map(Lsn::new).map_err(|error| explain_create_error(name, error));
                }
                () = tokio::time::sleep(WAIT_REPORT_INTERVAL) => report_blockers(sql, name).await,
            }
        }
    }

    /// Whether this slot can be read by us, and from where on.
    ///
    /// What never changes is judged before what may: a held slot of the wrong plugin is a wrong slot, not a busy one.
    pub(crate) fn judge(&self, database: &str) -> Result<Lsn, CheckError> {
        self.judge_kind()?;
        self.judge_database(database)?;
        self.judge_validity()?;
        if self.active {
            return Err(CheckError::Held {
                slot: self.name.clone(),
                pid: self.active_pid,
            });
        }
        self.confirmed.ok_or_else(|| {
            invalidated(
                &self.name,
                "it has no position, so it was never finished",
                None,
            )
            .into()
        })
    }

    fn judge_kind(&self) -> Result<(), Problem> {
        let what = describe(&self.name);
        if !self.logical {
            return Err(physical(&self.name));
        }
        if self.temporary {
            return Err(Problem::new(Code::SlotTemporary, what)
                .found("a temporary slot, which vanishes with the session that made it")
                .needed("a permanent logical slot")
                .fix("name another slot in source.slot"));
        }
        if self.plugin.as_deref() != Some("pgoutput") {
            let plugin = self.plugin.as_deref().unwrap_or("none");
            return Err(wrong_plugin(&self.name, &format!("output plugin {plugin}")));
        }
        if self.two_phase {
            return Err(Problem::new(Code::SlotTwoPhase, what)
                .found("a slot made with two_phase, which sends prepared transactions before they commit")
                .needed("a slot without two_phase")
                .fix(format!("name another slot in source.slot, or recreate this one: {}", recreate_sql(&self.name))));
        }
        Ok(())
    }

    fn judge_database(&self, database: &str) -> Result<(), Problem> {
        match self.database.as_deref() {
            Some(found) if found == database => Ok(()),
            found => Err(other_database(&self.name, found, database)),
        }
    }

    fn judge_validity(&self) -> Result<(), Problem> {
        let reason = match (&self.invalidation, self.wal_status.as_deref()) {
            (Some(reason), _) => reason.as_str(),
            (None, Some("lost")) => "the server removed WAL it needed (max_slot_wal_keep_size)",
            (None, _) => return Ok(()),
        };
        Err(invalidated(&self.name, reason, self.confirmed))
    }

    /// A slot that works today and is about to be given up by the server.
    pub(crate) fn warning(&self) -> Option<Problem> {
        (self.wal_status.as_deref() == Some("unreserved")).then(|| {
            Problem::new(Code::SlotAtRisk, describe(&self.name))
                .found("wal_status unreserved: the next checkpoint may remove WAL the slot needs")
                .needed("wal_status reserved or extended")
                .fix("raise max_slot_wal_keep_size until the backlog is read")
        })
    }

    /// A slot that would not be there after a failover, although that was asked for.
    pub(crate) fn failover_warning(&self, wanted: &Wanted) -> Option<Problem> {
        let lacks = wanted.first_start.failover && self.failover != Some(true);
        lacks.then(|| {
            Problem::new(Code::SlotNotFailover, describe(&self.name))
                .found("a slot that standbys do not keep in step")
                .needed("a failover slot, as source.failover = true asks for")
                .fix(format!(
                    "on PostgreSQL 17 or later, with Posthaste stopped: psql 'dbname=… replication=database' -c \
                     'ALTER_REPLICATION_SLOT {} (FAILOVER true)'",
                    self.name
                ))
        })
    }
}

/// Refuses a name the server would refuse, before anything is made for it.
pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let legal = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(legal) {
        return Ok(());
    }
    Err(Problem::new(Code::ConfigSlotName, "source.slot")
        .found(format!("{name:?}"))
        .needed("lower-case letters a-z, digits and underscores, 1 to 63 of them")
        .fix("choose a name of these characters"))
}

/// Whether another slot still fits: asked before anything is made, so that nothing has to be taken back.
pub(crate) async fn check_capacity(sql: &Client, slots_max: i64) -> Result<(), CheckError> {
    let row = sql
        .query_one(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots",
            &[],
        )
        .await?;
    let used: i64 = row.try_get(0)?;
    if used < slots_max {
        return Ok(());
    }
    Err(exhausted(&format!("{used} of {slots_max} in use")).into())
}

/// Who keeps the server from finishing the slot; needs no right, since everybody may see the locks.
async fn report_blockers(sql: &Client, name: &str) {
    let blockers = sql
        .query(
            "SELECT DISTINCT h.pid FROM pg_catalog.pg_locks w \
             JOIN pg_catalog.pg_locks h ON h.locktype = 'transactionid' AND h.granted AND h.transactionid = w.transactionid \
             WHERE w.locktype = 'transactionid' AND NOT w.granted \
               AND w.pid = (SELECT s.active_pid FROM pg_catalog.pg_replication_slots s \
                            WHERE s.slot_name = $1::pg_catalog.text)",
            &[&name],
        )
        .await;
    let pids: Vec<String> = match &blockers {
        Ok(rows) => rows
            .iter()
            .filter_map(|row| row.try_get::<_, Option<i32>>(0).ok().flatten())
            .map(|pid| pid.to_string())
            .collect(),
        Err(_) => Vec::new(),
    };
    tracing::warn!(
        slot = name,
        transactions_of_pids = pids.join(","),
        "the server is still making the replication slot: it waits for open transactions to end"
    );
}

/// Why the server gave the slot up; the column has changed its name and its contents twice.
fn invalidation_column(version: u32) -> &'static str {
    match version / 10_000 {
        ..=15 => "NULL::pg_catalog.text",
        16 => "CASE WHEN s.conflicting THEN 'conflict with recovery' END",
        _ => "s.invalidation_reason",
    }
}

fn failover_column(version: u32) -> &'static str {
    match version / 10_000 {
        ..=16 => "NULL::pg_catalog.bool",
        _ => "s.failover",
    }
}

/// `NAMEDATALEN - 1` of an ordinary build.
pub(crate) const NAME_BYTES_MAX: usize = 63;

/// How often a slow slot creation is reported.
const WAIT_REPORT_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn usable() -> Slot {
        Slot {
            name: "s".to_owned(),
            logical: true,
            plugin: Some("pgoutput".to_owned()),
            database: Some("app".to_owned()),
            confirmed: Some(Lsn::new(0x2A)),
            wal_status: Some("reserved".to_owned()),
            ..Slot::default()
        }
    }

    #[track_caller]
    fn check_judged(slot: &Slot, expected: Code, words: &[&str]) {
        match slot.judge("app") {
            Err(CheckError::Problem(problem)) => {
                assert_eq!(problem.code, expected, "{problem}");
                for word in words {
                    assert!(problem.to_string().contains(word), "{word:?} in {problem}");
                }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_usable_slot_gives_its_position() {
        assert_eq!(usable().judge("app").unwrap(), Lsn::new(0x2A));
    }

    #[test]
    fn a_held_slot_is_waited_for() {
        let slot = Slot {
            active: true,
            active_pid: Some(7),
            ..usable()
        };
        assert!(matches!(
            slot.judge("app"),
            Err(CheckError::Held { pid: Some(7), .. })
        ));
    }

    #[test]
    fn a_wrong_slot_is_wrong_even_while_held() {
        let plugin = Some("test_decoding".to_owned());
        let slot = Slot {
            active: true,
            plugin,
            ..usable()
        };
        check_judged(&slot, Code::SlotPlugin, &["test_decoding", "pgoutput"]);
    }

    #[test]
    fn each_way_of_being_wrong_has_its_code() {
        check_judged(
            &Slot {
                logical: false,
                ..usable()
            },
            Code::SlotPhysical,
            &["\"s\"", "physical"],
        );
        check_judged(
            &Slot {
                temporary: true,
                ..usable()
            },
            Code::SlotTemporary,
            &["temporary"],
        );
        check_judged(
            &Slot {
                two_phase: true,
                ..usable()
            },
            Code::SlotTwoPhase,
            &["two_phase"],
        );
        let other = Some("other".to_owned());
        check_judged(
            &Slot {
                database: other,
                ..usable()
            },
            Code::SlotDatabase,
            &["\"other\"", "\"app\""],
        );
    }

    #[test]
    fn every_versions_sign_of_invalidation_counts() {
        let lost = Slot {
            wal_status: Some("lost".to_owned()),
            ..usable()
        };
        check_judged(
            &lost,
            Code::SlotInvalidated,
            &["invalidated", "0/2A", "may be missing"],
        );
        let idle = Slot {
            invalidation: Some("idle_timeout".to_owned()),
            ..usable()
        };
        check_judged(&idle, Code::SlotInvalidated, &["idle_timeout", "0/2A"]);
    }

    #[test]
    fn slot_names_are_judged_as_the_server_does() {
        for name in ["s", "outbox_1", &"a".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "Outbox-Slot", "ä", "a b", "a'b", &"a".repeat(64)] {
            assert_eq!(
                check_name(name).unwrap_err().code,
                Code::ConfigSlotName,
                "{name}"
            );
        }
    }
}
