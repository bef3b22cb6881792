//! What the loop reads from and answers to: an open replication stream, or a model of one.

use std::future::Future;
use std::pin::Pin;

use pgoutput::Lsn;
use replication::Frame;
use router::connect::Catalog;

use crate::catalog_watch::Outdated;
use crate::policy::RunError;
use crate::progress::Timing;

/// An open stream of frames, and the way back for status updates.
///
/// The binary has one of it, [`Source`](crate::source::Source). The simulation drives the same loop with another.
pub trait Feed {
    /// Waits for the next frame.
    ///
    /// # Errors
    ///
    /// The connection was lost, or the server ended it with an error.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    fn next_frame(&mut self) -> impl Future<Output = Result<Frame<'_>, RunError>>;

    /// The next frame if it is here already.
    ///
    /// # Errors
    ///
    /// As [`Self::next_frame`].
    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, RunError>;

    /// Bytes that came so far, of whole frames and of the one under way.
    fn received_bytes(&self) -> u64;

    /// Sends one `CopyData` body.
    ///
    /// # Errors
    ///
    /// The connection was lost, or does not take anything for too long.
    fn send(&mut self, body: &[u8]) -> impl Future<Output = Result<(), RunError>>;

    /// Ends the stream in order, so that the server has taken in the last status update. Bounded; errors no longer matter.
    fn finish(self) -> impl Future<Output = ()>;

    /// The intervals of the conversation with this server.
    fn timing(&self) -> Timing;

    /// What the catalog says now of a table that has changed, and a position at which all of it held already.
    fn read_catalog(&self, outdated: &Outdated) -> ReadCatalog;
}

/// A reading of the catalog under way, on a connection of its own. It fails when the server cannot be reached or does not answer
/// in time; dropping it closes the connection.
pub type ReadCatalog = Pin<Box<dyn Future<Output = Result<(Lsn, Catalog), RunError>> + Send>>;
