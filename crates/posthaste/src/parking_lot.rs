//! The parking lot of one connection: the tables, and a second router for rows that leave them again.

use std::time::{Duration, Instant};

use pgoutput::{Lsn, RowId};

use crate::codes::{Code, Problem};
use crate::parked_table::{ParkedTable, ServerLog};
use crate::parking::{Access, Parking, Tables};
use crate::poison::Rules;
use crate::policy::{OnPoison, RunError};
use crate::rerouting::Rerouting;
use crate::routing::Routing;

/// What a running pipeline has of the tables of parked and skipped events.
#[derive(Debug)]
pub struct ParkingLot<T = Parking> {
    pub(crate) parking: T,
    pub(crate) rerouting: Rerouting,
    /// Whether rows are parked here, or only requests to skip are read.
    pub(crate) parks: bool,
    /// When to look for rows to publish again; `None` for at once.
    pub(crate) look_at: Option<Instant>,
    /// Rows on their way to Kafka that are not noted as published.
    pub(crate) sent: Vec<RowId>,
    /// A position behind the newest commit that noted rows as published, until the position is kept back for it.
    pub(crate) noted_at: Option<Lsn>,
}

impl<T> ParkingLot<T> {
    /// The lot of one connection.
    #[must_use]
    pub fn new(parking: T, routing: impl Into<Routing>, rules: &Rules) -> Self {
        Self {
            parking,
            rerouting: Rerouting::new(routing),
            parks: rules.action == OnPoison::Park,
            look_at: None,
            sent: Vec::new(),
            noted_at: None,
        }
    }

    /// Looks again after a pause.
    pub(crate) fn rest(&mut self, now: Instant, pause: Duration) {
        self.look_at = Some(now + pause);
    }
}

/// The tables of one slot, over a connection that was just made, before it is known what of them is needed.
#[derive(Debug)]
pub struct Found<T = Parking> {
    parking: T,
    tables: Tables,
}

impl<T: ParkedTable> Found<T> {
    /// Looks for the tables, and checks them if they are needed.
    ///
    /// # Errors
    ///
    /// They are needed, and a table or a right is missing; or rows wait that nobody would publish.
    pub async fn open(parking: T, slot: &str, rules: &Rules) -> Result<Self, RunError> {
        let tables = parking.tables().await?;
        if rules.action == OnPoison::Park {
            let complaints = [("parked", tables.parked), ("skipped", tables.skipped)];
            let complaint = complaints
                .into_iter()
                .find_map(|(table, access)| parking.complain(table, access));
            if let Some(problem) = complaint {
                return Err(problem.into());
            }
        } else if tables.parked == Access::Granted {
            let (_, waiting) = parking.waiting().await?;
            if waiting.rows > 0 {
                return Err(rows_wait(slot, waiting.rows).into());
            }
        }
        Ok(Self { parking, tables })
    }

    /// As [`Parking::take_over`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn take_over(&self) -> Result<(), RunError> {
        self.parking.take_over().await
    }

    /// Notes rows as published that an earlier process sent and could not note. Returns a position behind the commit, if
    /// there were any.
    ///
    /// # Errors
    ///
    /// The table cannot be written, now or at all: going on without the note, they would be published again some day.
    pub async fn note_published(&self, rows: &[RowId]) -> Result<Option<Lsn>, RunError> {
        if rows.is_empty() {
            return Ok(None);
        }
        if let Some(mut problem) = self.parking.complain("parked", self.tables.parked) {
            problem.found.push_str(&format!(
                "; {} events published from it are not noted there yet, and would be published again",
                rows.len()
            ));
            return Err(problem.into());
        }
        self.parking.published(rows).await.map(Some)
    }

    /// As [`Parking::wal_position`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn wal_position(&self) -> Result<Lsn, RunError>
    where
        T: ServerLog,
    {
        self.parking.wal_position().await
    }

    /// The tables, if anything is to be read of them.
    #[must_use]
    pub fn parking(self) -> Option<T> {
        (self.tables.skipped == Access::Granted).then_some(self.parking)
    }
}

fn rows_wait(slot: &str, rows: u64) -> Problem {
    Problem::new(Code::ParkedWaiting, format!("parked events of slot {slot}"))
        .found(format!(
            "{rows} that wait, and poison.on_poison is not park"
        ))
        .needed("none, as later events of their aggregates would overtake them")
        .fix("set poison.on_poison = \"park\", or discard them with posthaste parked discard")
}

/// Keeps the position back until what was parked is safe elsewhere too.
///
/// A standby that takes over may have less of the log than we have written, and its slot may stand further than its copy of our
/// tables. What has come through the stream it has received as well; so nothing is confirmed until the stream has passed the
/// commit that parked a row.
#[derive(Debug, Default)]
pub struct Hold {
    until: Option<Lsn>,
    /// The newest commit that the stream has passed since it was last asked for.
    passed: Option<Lsn>,
}

impl Hold {
    /// From now on, until the stream has come to `position`.
    pub fn begin(&mut self, position: Lsn) {
        self.until = self.until.max(Some(position));
    }

    /// Whether the position is kept back.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.until.is_some()
    }

    /// The stream has come to `received`; true if the position may move on with it.
    pub fn permits(&mut self, received: Lsn) -> bool {
        let passed = self.until.take_if(|until| received >= *until);
        self.passed = self.passed.max(passed);
        self.until.is_none()
    }

    /// The newest commit of ours that the stream has passed, once. From here on a server without it is another one.
    pub fn take_passed(&mut self) -> Option<Lsn> {
        self.passed.take()
    }

    /// The stream begins anew, before whatever was kept back.
    pub fn reset(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_when_the_stream_has_passed_the_newest_commit() {
        let mut hold = Hold::default();
        assert!(hold.permits(Lsn::ZERO));
        hold.begin(Lsn::new(20));
        hold.begin(Lsn::new(10));
        assert!(!hold.permits(Lsn::new(19)));
        assert!(hold.is_active());
        assert_eq!(hold.take_passed(), None);
        assert!(hold.permits(Lsn::new(20)));
        assert!(!hold.is_active());
        assert_eq!(hold.take_passed(), Some(Lsn::new(20)));
        assert_eq!(hold.take_passed(), None);
    }
}
