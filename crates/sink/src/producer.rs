//! Stage 7 of 9, its far side: the producer, all that the publisher needs of a broker client.
//!
//! The real one is [`KafkaProducer`](crate::KafkaProducer). In tests and in the simulation a vector takes its place.

use std::time::Duration;

use router::Record;

use crate::batch::Entry;
use crate::error::PublishError;
use crate::position::Position;
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

    /// The stream will be read anew. What was enqueued and is not certain to be kept must be given up here, by whoever
    /// would otherwise keep it beside its repeat.
    fn begin_attempt(&mut self) {}

    /// Makes sure that no other producer of the same name writes any more; true when that is done, false to be asked
    /// again. Whoever calls it owns the slot.
    ///
    /// # Errors
    ///
    /// It cannot be done by waiting.
    fn claim(&mut self, timeout: Duration) -> Result<bool, PublishError> {
        let _ = timeout;
        Ok(true)
    }

    /// Told after [`claim`](Self::claim) and before the first record: where the stream goes on.
    fn resume(&mut self, resume: Resume) {
        drop(resume);
    }

    /// An entry of the stream was taken; if it is a record, it was enqueued.
    fn passed(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// How many times the client was thrown away and made anew.
    fn replacements(&self) -> u64 {
        0
    }

    /// How many Kafka transactions ended so far, and how.
    fn transactions(&self) -> TransactionCounts {
        TransactionCounts::default()
    }
}

/// Where a transactional producer goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// What is done. No parked row is published that is not noted so in its table.
    pub position: Position,
    /// What the position belongs to, as members of a JSON object without its braces.
    pub origin: String,
    /// Whether the position is written at once, because none is written yet.
    pub record_now: bool,
}

/// Kafka transactions that have ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Committed.
    pub committed: u64,
    /// Given up; what was in them comes again.
    pub aborted: u64,
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
