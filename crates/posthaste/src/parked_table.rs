//! What the loop does with the table of parked events, or with a model of it.

use std::collections::HashSet;
use std::future::Future;

use pgoutput::{Lsn, RowId};

use crate::codes::Problem;
use crate::parked_row::ParkedRow;
use crate::parking::{Access, Parking, Tables};
use crate::poison::{Aside, Reason};
use crate::policy::RunError;
use crate::watchlist::{Aggregate, SkipRequest, Waiting, Watchlist};

/// The table of one slot. Each call may be dropped or fail half-way: then it is not known whether it was done, and doing it
/// again is right.
///
/// The binary has one of it, [`Parking`]. The simulation drives the same loop with another.
pub trait ParkedTable {
    /// As [`Parking::tables`].
    fn tables(&self) -> impl Future<Output = Result<Tables, RunError>>;

    /// As [`Parking::complain`].
    fn complain(&self, table: &str, access: Access) -> Option<Problem>;

    /// As [`Parking::take_over`].
    fn take_over(&self) -> impl Future<Output = Result<(), RunError>>;

    /// As [`Parking::load`].
    fn load(
        &self,
        start: Lsn,
        watchlist: &mut Watchlist,
    ) -> impl Future<Output = Result<Option<Lsn>, RunError>>;

    /// As [`Parking::skip_requests`].
    fn skip_requests(&self, start: Lsn)
    -> impl Future<Output = Result<Vec<SkipRequest>, RunError>>;

    /// As [`Parking::write`].
    fn write(&mut self, aside: &Aside) -> impl Future<Output = Result<Lsn, RunError>>;

    /// As [`Parking::publishable`].
    fn publishable(
        &self,
        confirmed: Lsn,
        rows_max: i64,
    ) -> impl Future<Output = Result<Vec<ParkedRow>, RunError>>;

    /// As [`Parking::published`].
    fn published(&self, rows: &[RowId]) -> impl Future<Output = Result<Lsn, RunError>>;

    /// As [`Parking::refused`].
    fn refused(&self, row: RowId, reason: &Reason) -> impl Future<Output = Result<(), RunError>>;

    /// As [`Parking::waiting`].
    fn waiting(&self) -> impl Future<Output = Result<(HashSet<Aggregate>, Waiting), RunError>>;
}

/// How far the server has written its log, asked over the connection for the tables.
pub trait ServerLog {
    /// As [`Parking::wal_position`].
    fn wal_position(&self) -> impl Future<Output = Result<Lsn, RunError>>;
}

impl ServerLog for Parking {
    async fn wal_position(&self) -> Result<Lsn, RunError> {
        Self::wal_position(self).await
    }
}

impl ParkedTable for Parking {
    async fn tables(&self) -> Result<Tables, RunError> {
        Self::tables(self).await
    }

    fn complain(&self, table: &str, access: Access) -> Option<Problem> {
        Self::complain(self, table, access)
    }

    async fn take_over(&self) -> Result<(), RunError> {
        Self::take_over(self).await
    }

    async fn load(&self, start: Lsn, watchlist: &mut Watchlist) -> Result<Option<Lsn>, RunError> {
        Self::load(self, start, watchlist).await
    }

    async fn skip_requests(&self, start: Lsn) -> Result<Vec<SkipRequest>, RunError> {
        Self::skip_requests(self, start).await
    }

    async fn write(&mut self, aside: &Aside) -> Result<Lsn, RunError> {
        Self::write(self, aside).await
    }

    async fn publishable(&self, confirmed: Lsn, rows_max: i64) -> Result<Vec<ParkedRow>, RunError> {
        Self::publishable(self, confirmed, rows_max).await
    }

    async fn published(&self, rows: &[RowId]) -> Result<Lsn, RunError> {
        Self::published(self, rows).await
    }

    async fn refused(&self, row: RowId, reason: &Reason) -> Result<(), RunError> {
        Self::refused(self, row, reason).await
    }

    async fn waiting(&self) -> Result<(HashSet<Aggregate>, Waiting), RunError> {
        Self::waiting(self).await
    }
}
