//! Stage 7 of 9, its far side: the producer, all that the publisher needs of a broker client.
//!
//! The real one is [`KafkaProducer`](crate::KafkaProducer). In tests and in the simulation a vector takes its place.

use std::time::Duration;

use router::Record;

use crate::error::PublishError;
use crate::ticket::Ticket;

/// Sends records to Kafka, and tells of each what became of it.
///
/// Contract: records of one partition reach the broker in the order of their enqueueing. After a record failed,
/// nothing enqueued behind it for the same partition may be reported as delivered unless it really is behind it.
pub trait Producer {
    /// Takes a copy of the record and sends it soon. Never waits.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::Full`] gives the ticket back: poll, and try the same record again.
    /// [`EnqueueError::Refused`] means that this record will not be sent.
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError>;

    /// Waits at most `timeout` for deliveries and hands over all that have come; not longer than the first.
    fn poll(&mut self, timeout: Duration, on_delivery: &mut dyn FnMut(Delivery));

    /// Records enqueued whose delivery has not been handed over.
    fn in_flight(&self) -> usize;

    /// Starts afresh: what is in flight is forgotten and not reported any more (what is on the wire may still
    /// arrive), and a fatal error is overcome if that is possible.
    fn purge(&mut self);

    /// The reason why nothing can be sent any more, until [`purge`](Self::purge).
    fn fatal_error(&self) -> Option<PublishError>;

    /// Whether a broker is connected, as far as the client knows. False before the first contact.
    fn brokers_up(&self) -> bool;

    /// Why no broker is connected, if the client knows.
    fn broker_error(&self) -> Option<PublishError> {
        None
    }
}

/// What became of one record.
#[derive(Debug)]
pub struct Delivery {
    /// The ticket it was enqueued with.
    pub ticket: Ticket,
    /// Acknowledged by all in-sync replicas, or the reason why not.
    pub result: Result<(), PublishError>,
}

/// Why a record was not enqueued.
#[derive(Debug)]
pub enum EnqueueError {
    /// No room, for now. The ticket comes back.
    Full(Ticket),
    /// This record cannot be sent.
    Refused {
        /// The ticket it came with; it is never acknowledged.
        ticket: Ticket,
        /// Why.
        error: PublishError,
    },
}
