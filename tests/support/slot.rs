//! What the server says about a replication slot and the walsender that reads it.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use crate::wait;

/// A place in the WAL, kept apart from other numbers so that a failed comparison prints as PostgreSQL does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    /// Reads the form `16/B374D848`.
    ///
    /// # Errors
    /// It is no such form.
    pub fn parse(text: &str) -> Result<Self> {
        let (high, low) = text.split_once('/').context("no slash in a position")?;
        let part = |half| u64::from_str_radix(half, 16).context("position");
        Ok(Self((part(high)? << 32) | part(low)?))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:X}/{:X}",
            self.0 >> 32,
            self.0 & u64::from(u32::MAX)
        )
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// One look at `pg_replication_slots`.
#[derive(Debug, Clone)]
pub struct SlotState {
    /// Everything before it is confirmed.
    pub confirmed: Position,
    /// Everything before it may be recycled.
    pub restart: Position,
    /// The walsender that reads the slot.
    pub active_pid: Option<i32>,
}

/// A slot, watched through a connection of its own.
pub struct Slot {
    client: Client,
    name: String,
}

impl Slot {
    /// Watches the slot of this name.
    pub fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            name: name.to_owned(),
        }
    }

    /// One look at the slot.
    ///
    /// # Errors
    /// The slot does not exist, or the server does not answer.
    pub async fn state(&self) -> Result<SlotState> {
        let row = self
            .client
            .query_opt(
                "SELECT confirmed_flush_lsn::text, restart_lsn::text, active_pid
                 FROM pg_replication_slots WHERE slot_name = $1",
                &[&self.name],
            )
            .await?
            .with_context(|| format!("slot {} does not exist", self.name))?;
        Ok(SlotState {
            confirmed: Position::parse(row.try_get(0)?)?,
            restart: Position::parse(row.try_get(1)?)?,
            active_pid: row.try_get(2)?,
        })
    }

    /// The confirmed position.
    ///
    /// # Errors
    /// As [`Slot::state`].
    pub async fn confirmed(&self) -> Result<Position> {
        Ok(self.state().await?.confirmed)
    }

    /// The walsender's process id, once there is one.
    ///
    /// # Errors
    /// Nobody streams from the slot within seconds.
    pub async fn walsender(&self) -> Result<i32> {
        wait::until("a walsender on the slot", SOON, async || {
            Ok(self.state().await?.active_pid)
        })
        .await
    }

    /// Ends the walsender as an administrator would, and gives its process id.
    ///
    /// # Errors
    /// As [`Slot::walsender`].
    pub async fn terminate_walsender(&self) -> Result<i32> {
        let pid = self.walsender().await?;
        self.client
            .execute("SELECT pg_terminate_backend($1)", &[&pid])
            .await?;
        Ok(pid)
    }

    /// Waits until another process than `gone` streams from the slot.
    ///
    /// # Errors
    /// None does within the deadline.
    pub async fn has_another_walsender(&self, gone: i32, deadline: Duration) -> Result<()> {
        wait::until_true("another walsender", deadline, async || {
            let now = self.state().await?.active_pid;
            Ok(now.is_some_and(|pid| pid != gone))
        })
        .await
    }

    /// Waits until everything before `position` is confirmed.
    ///
    /// # Errors
    /// It is not within the deadline; the text tells how far it came.
    pub async fn reaches(&self, position: Position, deadline: Duration) -> Result<()> {
        let outcome = wait::until_true("the confirmed position", deadline, async || {
            Ok(self.confirmed().await? >= position)
        })
        .await;
        let Err(error) = outcome else { return Ok(()) };
        let confirmed = self.confirmed().await?;
        Err(error.context(format!("the slot is at {confirmed}, not yet {position}")))
    }

    /// Waits until everything written by now is confirmed.
    ///
    /// # Errors
    /// It is not within the deadline.
    pub async fn catches_up(&self, deadline: Duration) -> Result<()> {
        let now = self.wal_position().await?;
        self.reaches(now, deadline).await
    }

    /// Waits until nobody reads the slot, as it is a moment after its reader has gone.
    ///
    /// # Errors
    /// It is still held after the deadline.
    pub async fn released(&self) -> Result<()> {
        wait::until_true("the slot to be released", SOON, async || {
            Ok(self.state().await?.active_pid.is_none())
        })
        .await
    }

    /// How many rows the server would send again: those of transactions whose commit record begins at or after the
    /// confirmed position. Nobody may read the slot meanwhile.
    ///
    /// # Errors
    /// The slot is in use.
    pub async fn rows_to_come(&self, publication: &str) -> Result<i64> {
        self.released().await?;
        let row = self
            .client
            .query_one(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(
                     $1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)
                 WHERE get_byte(data, 0) = ascii('I')",
                &[&self.name, &publication],
            )
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Where the next WAL record will start.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn wal_position(&self) -> Result<Position> {
        let row = self
            .client
            .query_one("SELECT pg_current_wal_lsn()::text", &[])
            .await?;
        Position::parse(row.try_get(0)?)
    }

    /// Milliseconds since the reader's last status update, by the server's clock.
    ///
    /// # Errors
    /// Nobody streams from the slot.
    pub async fn reply_age_ms(&self) -> Result<f64> {
        let row = self
            .client
            .query_opt(
                "SELECT extract(epoch FROM clock_timestamp() - reply_time)::float8 * 1000
                 FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid
                 WHERE slot_name = $1 AND reply_time IS NOT NULL",
                &[&self.name],
            )
            .await?
            .context("nobody streams from the slot")?;
        Ok(row.try_get(0)?)
    }
}

/// For states that need a few round trips between processes, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_print_as_they_were_read() {
        let position = Position::parse("16/B374D848").unwrap();
        assert_eq!(position.to_string(), "16/B374D848");
        assert!(Position::parse("0/1").unwrap() < position);
        assert!(Position::parse("1603E80").is_err());
    }
}
