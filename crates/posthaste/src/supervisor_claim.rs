//! What is taken over once the slot is ours: the tables of parked events, the topics with exactly-once, and what is known of
//! rows to come.
//!
//! The order makes it safe. No other process writes the topics any more before the position is read; none parks any more
//! before the tables are read; and what the position says is published is noted there before anything is published.

use pgoutput::Lsn;
use sink::{Confirmed, Entry, Position};
use tracing::{info, warn};

use crate::exactly_once::Stream;
use crate::feed::Feed;
use crate::parked_table::{ParkedTable, ServerLog};
use crate::parking_lot::{Found, ParkingLot};
use crate::policy::{OnPoison, RunError};
use crate::preconditions::Checked;
use crate::publishing::Publishing;
use crate::supervisor::Supervisor;
use crate::surroundings::Surroundings;
use crate::watchlist::Watchlist;

/// All that the stream needs to go on.
pub(crate) struct Claimed<T> {
    /// What is published already.
    pub(crate) done: Position,
    /// What is known of rows to come.
    pub(crate) watchlist: Watchlist,
    /// Where rows are put aside.
    pub(crate) lot: Option<ParkingLot<T>>,
}

impl<S: Surroundings> Supervisor<S> {
    /// Takes everything over.
    ///
    /// # Errors
    ///
    /// A connection was lost, a broker refuses, or the position does not fit.
    ///
    /// # Cancel safety
    ///
    /// When dropped, whatever was done is right to be done again.
    pub(crate) async fn claim<T: ParkedTable + ServerLog>(
        &mut self,
        source: &mut impl Feed,
        checked: &Checked,
        publishing: &Publishing,
        start: Confirmed,
        found: Found<T>,
    ) -> Result<Claimed<T>, RunError> {
        let is_handed_over = self.memory.is_handed_over();
        let judged = match &mut self.exactly_once {
            Some(once) => {
                let claiming = once.claim(&self.clock, source, publishing, start);
                let kept = claiming.await?;
                // Whoever owned the slot before us may have gone on after this server was checked.
                let wal_position = found.wal_position().await?;
                let stream = Stream {
                    checked,
                    wanted: &self.wanted,
                    start,
                    wal_position,
                    is_handed_over,
                };
                Some(once.judge(&kept, &stream)?)
            }
            None => None,
        };
        if self.rules.action == OnPoison::Park {
            found.take_over().await?;
        }
        let mut parked = Vec::new();
        if let Some(judged) = &judged
            && let Some(lsn) = found.note_published(&judged.unnoted).await?
        {
            let rows = judged.unnoted.len();
            info!(
                rows,
                "parked events that are published, by the position, are noted so"
            );
            parked.push(Entry::ParkedNoted { lsn });
        }
        let parking = found.parking();
        let (watchlist, parked_up_to) = self.watchlist(start.as_lsn(), parking.as_ref()).await?;
        parked.extend(parked_up_to.map(|lsn| Entry::ParkedUpTo { lsn }));
        let lot = self.parking_lot(parking, &watchlist, checked)?;
        let mut done = Position::default();
        if let (Some(once), Some(judged)) = (&mut self.exactly_once, judged) {
            let mut resume = judged.resume;
            for entry in &parked {
                resume.position.pass(entry);
            }
            done = resume.position;
            once.resume(&self.clock, source, publishing, start, resume)
                .await?;
        }
        Ok(Claimed {
            done,
            watchlist,
            lot,
        })
    }

    /// Where rows are put aside. A connection that nobody needs could only break.
    fn parking_lot<T>(
        &self,
        parking: Option<T>,
        watchlist: &Watchlist,
        checked: &Checked,
    ) -> Result<Option<ParkingLot<T>>, RunError> {
        let is_needed = self.rules.action == OnPoison::Park || watchlist.has_requests();
        let Some(parking) = parking.filter(|_| is_needed) else {
            return Ok(None);
        };
        let routing = self.routing(checked)?;
        Ok(Some(ParkingLot::new(parking, routing, &self.rules)))
    }

    /// What is known of rows to come, from the tables and from what Kafka refused before; and a position behind all commits
    /// that parked such rows.
    async fn watchlist(
        &mut self,
        start: Lsn,
        parking: Option<&impl ParkedTable>,
    ) -> Result<(Watchlist, Option<Lsn>), RunError> {
        let mut watchlist = Watchlist::default();
        self.search.start_at(start);
        for (row, reason) in self.search.condemned() {
            watchlist.condemn(*row, reason.clone());
        }
        let Some(parking) = parking else {
            return Ok((watchlist, None));
        };
        watchlist.skip(parking.skip_requests(start).await?);
        if self.rules.action != OnPoison::Park {
            return Ok((watchlist, None));
        }
        for (row, reason) in self.search.take_refused_again() {
            warn!(code = %reason.code, "parked event at {row} is held again: {}", reason.text);
            parking.refused(row, &reason).await?;
        }
        let parked_up_to = parking.load(start, &mut watchlist).await?;
        if let Some(position) = parked_up_to {
            self.hold.begin(position);
        }
        self.metrics.parked(watchlist.waiting);
        Ok((watchlist, parked_up_to))
    }
}
