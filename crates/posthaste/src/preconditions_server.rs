//! The server itself: version, role in replication, settings. The first things that have to be right.

use std::time::Duration;

use tokio_postgres::Client;

use crate::codes::{Code, Problem};
use crate::preconditions::CheckError;
use crate::slot_explain;

/// What one query tells about the server and our session on it.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) version: u32,
    pub(crate) version_text: String,
    pub(crate) in_recovery: bool,
    pub(crate) wal_level: String,
    pub(crate) wal_sender_timeout: Duration,
    pub(crate) senders_max: i64,
    pub(crate) slots_max: i64,
    pub(crate) database: String,
    pub(crate) role: String,
    pub(crate) may_create: bool,
}

impl Server {
    pub(crate) async fn read(sql: &Client) -> Result<Self, CheckError> {
        let row = sql.query_one(FACTS, &[]).await?;
        let version: i32 = row.try_get(0)?;
        let timeout_ms: i64 = row.try_get(4)?;
        Ok(Self {
            version: u32::try_from(version).unwrap_or_default(),
            version_text: row.try_get(1)?,
            in_recovery: row.try_get(2)?,
            wal_level: row.try_get(3)?,
            wal_sender_timeout: Duration::from_millis(
                u64::try_from(timeout_ms).unwrap_or_default(),
            ),
            senders_max: row.try_get(5)?,
            slots_max: row.try_get(6)?,
            database: row.try_get(7)?,
            role: row.try_get(8)?,
            may_create: row.try_get(9)?,
        })
    }

    /// Version, then recovery, then settings: on an unsupported version the rest may mean something else.
    pub(crate) fn judge(&self) -> Result<(), CheckError> {
        if self.version < VERSION_MIN {
            return Err(Problem::new(Code::ServerVersion, "PostgreSQL version")
                .found(&*self.version_text)
                .needed("14 or later")
                .fix("upgrade the server")
                .into());
        }
        if self.in_recovery {
            return Err(CheckError::Standby(slot_explain::standby(
                "a standby (in recovery)",
            )));
        }
        if self.wal_level != "logical" {
            return Err(slot_explain::wal_level(&self.wal_level).into());
        }
        if self.senders_max == 0 {
            return Err(
                Problem::new(Code::SendersExhausted, "setting max_wal_senders")
                    .found("0")
                    .needed("at least 1")
                    .fix("ALTER SYSTEM SET max_wal_senders = 10; then restart the server")
                    .into(),
            );
        }
        Ok(())
    }

    /// 15 for 150020.
    pub(crate) fn major(&self) -> u32 {
        self.version / 10_000
    }
}

/// Settings are read from `pg_settings` because it gives plain numbers where SHOW gives `1min`.
const FACTS: &str = "\
    SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
           pg_catalog.current_setting('server_version'), \
           pg_catalog.pg_is_in_recovery(), \
           pg_catalog.current_setting('wal_level'), \
           (SELECT s.setting::pg_catalog.int8 FROM pg_catalog.pg_settings s WHERE s.name = 'wal_sender_timeout'), \
           pg_catalog.current_setting('max_wal_senders')::pg_catalog.int8, \
           pg_catalog.current_setting('max_replication_slots')::pg_catalog.int8, \
           pg_catalog.current_database()::pg_catalog.text, \
           CURRENT_USER::pg_catalog.text, \
           pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')";

/// The oldest version whose pgoutput, catalogs and messages are tested.
const VERSION_MIN: u32 = 140_000;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn server(version: u32) -> Server {
        Server {
            version,
            version_text: (version / 10_000).to_string(),
            in_recovery: false,
            wal_level: "logical".to_owned(),
            wal_sender_timeout: Duration::from_secs(60),
            senders_max: 10,
            slots_max: 10,
            database: "app".to_owned(),
            role: "posthaste".to_owned(),
            may_create: false,
        }
    }

    fn problem_of(server: &Server) -> Problem {
        match server.judge() {
            Err(CheckError::Problem(problem) | CheckError::Standby(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn twelve_and_thirteen_are_refused_by_name() {
        for version in [120_022, 130_023] {
            let text = problem_of(&server(version)).to_string();
            assert!(text.contains("14 or later"), "{text}");
        }
        for version in [140_000, 180_004] {
            assert!(server(version).judge().is_ok());
        }
    }

    #[test]
    fn the_most_basic_thing_is_said_first() {
        let mut wrong = server(130_000);
        wrong.wal_level = "minimal".to_owned();
        wrong.in_recovery = true;
        wrong.senders_max = 0;
        let mut told = Vec::new();
        told.push(problem_of(&wrong).code);
        wrong.version = 150_000;
        told.push(problem_of(&wrong).code);
        wrong.in_recovery = false;
        told.push(problem_of(&wrong).code);
        wrong.wal_level = "logical".to_owned();
        told.push(problem_of(&wrong).code);
        assert_eq!(
            told,
            [
                Code::ServerVersion,
                Code::Standby,
                Code::WalLevel,
                Code::SendersExhausted
            ]
        );
    }
}
