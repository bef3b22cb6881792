//! Stage 7 of 9: the publisher. Enqueues records in stream order, within limits, and awaits their Delivery.
//!
//! It decides when to stop, never whether to try again: that is the pipeline's policy.

use std::time::Duration;

use pgoutput::{Lsn, PgTimestamp};
use router::Record;

use crate::batch::{Batch, Entry, EventIdentity};
use crate::careful::{Careful, Suspects};
use crate::error::PublishError;
use crate::producer::{EnqueueError, Producer};
use crate::ticket::Ticket;
use crate::tracker::{Ack, Confirmed, Tracker};

/// Takes batches in, moves [`confirmed`](Self::confirmed) on.
///
/// Invariants:
/// - Records are enqueued in the order of the stream, each once per attempt.
/// - After the first failure nothing is enqueued until [`restart`](Self::restart), so nothing overtakes the record
///   that failed; and its ticket is never acknowledged, so the position stays before it.
/// - A failure and a restart never move the position.
#[derive(Debug)]
pub struct Publisher<P> {
    producer: P,
    limits: Limits,
    tracker: Tracker,
    /// Issued for a record that the producer had no room for.
    held: Option<Ticket>,
    failure: Option<Stop>,
    suspects: Suspects,
    /// Commit times of transactions acknowledged since the last poll.
    reached: Vec<PgTimestamp>,
    attempt: u64,
}

impl<P: Producer> Publisher<P> {
    /// A publisher for a stream that starts at `seed`.
    #[must_use]
    pub fn new(producer: P, limits: Limits, seed: Lsn) -> Self {
        Self {
            producer,
            limits,
            tracker: Tracker::new(seed),
            held: None,
            failure: None,
            suspects: Suspects::default(),
            reached: Vec::new(),
            attempt: 0,
        }
    }

    /// Takes as much of the batch as there is room for. On [`Accepted::Full`], poll and call again with the same
    /// batch: it remembers how far it was taken.
    ///
    /// # Errors
    ///
    /// The failure that stopped this attempt, now or earlier. What came before it goes on being delivered by
    /// [`poll`](Self::poll); the rest of the batch belongs to the next attempt and must be read again.
    pub fn accept(&mut self, batch: &mut Batch) -> Result<Accepted, PublishError> {
        match &self.failure {
            Some(stop) if stop.is_settled() => return Err(stop.error.clone()),
            Some(_) => return Ok(Accepted::Full),
            None => {}
        }
        let attempt = *batch.cursor.attempt.get_or_insert(self.attempt);
        if attempt != self.attempt {
            // The rest of a batch from before a restart: its head is forgotten, so its tail must not count.
            debug_assert!(false, "a batch is cleared when its attempt ends");
            return Ok(Accepted::All);
        }
        while let Some(entry) = batch.entries.get(batch.cursor.entry) {
            match *entry {
                Entry::Begin(transaction) => {
                    self.suspects.begin(transaction.final_lsn);
                    self.tracker.begin(transaction);
                }
                Entry::Commit { end_lsn } => self.reached.extend(self.tracker.commit(end_lsn)),
                Entry::Idle { wal_end } => {
                    self.tracker.idle(wal_end);
                }
                // A matter of the position record alone.
                Entry::ParkedUpTo { .. } | Entry::ParkedNoted { .. } => {}
                entry @ (Entry::Record { .. } | Entry::Message { .. } | Entry::Parked(_)) => {
                    debug_assert!(batch.cursor.record < batch.records.len());
                    let record = batch.records.get(batch.cursor.record);
                    if self.enqueue(&record, entry)? == Accepted::Full {
                        return Ok(Accepted::Full);
                    }
                    batch.cursor.record += 1;
                }
            }
            self.producer.passed(entry);
            batch.cursor.entry += 1;
        }
        Ok(Accepted::All)
    }

    /// Serves the producer for at most `timeout` and counts what was delivered. `on_latency` is told, for each
    /// transaction that is now completely acknowledged, the time from its commit to `now`.
    ///
    /// # Errors
    ///
    /// The failure that stopped this attempt, by each call after it that has no delivery to tell of. Calling again
    /// is right as long as [`in_flight`](Self::in_flight) is not 0: what was sent before may still arrive.
    pub fn poll(
        &mut self,
        timeout: Duration,
        now: PgTimestamp,
        on_latency: &mut dyn FnMut(Duration),
    ) -> Result<Polled, PublishError> {
        let Self {
            producer,
            tracker,
            reached,
            failure,
            suspects,
            ..
        } = self;
        let mut polled = Polled::default();
        let bytes_before = tracker.outstanding_bytes();
        producer.poll(timeout, &mut |delivery| match delivery.result {
            Ok(()) => {
                let ack =
                    tracker.ack_with(delivery.ticket, |commit_time| reached.push(commit_time));
                polled.delivered += u64::from(ack == Ack::Counted);
            }
            // A ticket of an earlier attempt is nobody's loss: its record comes again, or is enqueued again already.
            Err(error) if tracker.is_outstanding(&delivery.ticket) => {
                polled.failed += 1;
                if matches!(error, PublishError::Permanent(_)) {
                    suspects.failed(delivery.ticket.number(), tracker.outstanding());
                }
                Stop::note(failure, error);
            }
            Err(_) => {}
        });
        polled.bytes = bytes_before - tracker.outstanding_bytes();
        for commit_time in reached.drain(..) {
            on_latency(latency(commit_time, now));
        }
        self.check_failure(polled)
    }

    /// Begins a new attempt: the stream comes again from `seed`, or from what is confirmed if that is later.
    ///
    /// Deliveries of earlier attempts are ignored from now on. After a failure the producer starts afresh as well;
    /// without one, what is in flight is left to arrive. Clear the batches of the attempt before.
    pub fn restart(&mut self, seed: Lsn) {
        self.restart_careful(seed, Careful::default());
    }

    /// The same, sending what `careful` names one by one.
    pub fn restart_careful(&mut self, seed: Lsn, careful: Careful) {
        self.suspects.restart(careful);
        if self.failure.take().is_some() || self.producer.fatal_error().is_some() {
            self.producer.purge();
        }
        self.producer.begin_attempt();
        self.held = None;
        self.reached.clear();
        self.tracker.abandon(seed);
        self.attempt += 1;
        debug_assert_eq!(self.outstanding(), 0);
        debug_assert!(self.confirmed().as_lsn() >= seed);
    }

    /// The newest position before which everything is acknowledged.
    #[must_use]
    pub fn confirmed(&self) -> Confirmed {
        self.tracker.confirmed()
    }

    /// Records of this attempt that are enqueued and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        // A ticket that is held is that of a record which its batch still counts as left.
        self.tracker.outstanding() - u64::from(self.held.is_some())
    }

    /// Their bytes.
    #[must_use]
    pub fn outstanding_bytes(&self) -> u64 {
        self.tracker.outstanding_bytes()
    }

    /// When the transaction of the oldest of them committed.
    #[must_use]
    pub fn oldest(&self) -> Option<PgTimestamp> {
        self.tracker.oldest()
    }

    /// Records the producer still has, of this attempt or an earlier one.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.producer.in_flight()
    }

    /// What stopped this attempt, as far as it is known by now.
    #[must_use]
    pub fn failure(&self) -> Option<&PublishError> {
        self.failure.as_ref().map(|stop| &stop.error)
    }

    /// The event that was refused for good, if the failure is about one record and it is certain which.
    #[must_use]
    pub fn culprit(&self) -> Option<EventIdentity> {
        self.suspects.culprit()
    }

    /// The producer, to ask it how the brokers are.
    #[must_use]
    pub fn producer(&self) -> &P {
        &self.producer
    }

    /// The producer, to have it claimed before the first record of an attempt.
    pub fn producer_mut(&mut self) -> &mut P {
        &mut self.producer
    }

    /// Turns the failure, old or new, into the answer of this poll once it is worth telling.
    fn check_failure(&mut self, polled: Polled) -> Result<Polled, PublishError> {
        if self.failure.is_none() {
            self.failure = self.producer.fatal_error().map(Stop::new);
        }
        let in_flight = self.producer.in_flight();
        match &mut self.failure {
            None => Ok(polled),
            Some(stop) => {
                stop.patience = if in_flight == 0 {
                    0
                } else {
                    stop.patience.saturating_sub(1)
                };
                if stop.is_settled() && polled.delivered == 0 {
                    Err(stop.error.clone())
                } else {
                    Ok(polled)
                }
            }
        }
    }

    fn enqueue(&mut self, record: &Record<'_>, entry: Entry) -> Result<Accepted, PublishError> {
        let identity = self.suspects.identify(entry);
        let waits = identity.is_some_and(|identity| self.suspects.goes_alone(identity))
            && (self.producer.in_flight() > 0 || self.tracker.outstanding() > 0);
        let ticket = match self.held.take() {
            Some(ticket) => ticket,
            None if !waits && self.has_room(record) => self.tracker.issue(size_bytes(record)),
            None => return Ok(Accepted::Full),
        };
        let number = ticket.number();
        match self.producer.try_enqueue(record, ticket) {
            Ok(()) => {
                if let Some(identity) = identity {
                    self.suspects.sent(number, identity);
                }
                Ok(Accepted::All)
            }
            Err(EnqueueError::Full(ticket)) => {
                self.held = Some(ticket);
                Ok(Accepted::Full)
            }
            Err(EnqueueError::Refused { error, .. }) => {
                if let (PublishError::Permanent(_), Some(identity)) = (&error, identity) {
                    self.suspects.refused(identity);
                }
                let stop = self.failure.insert(Stop::new(error));
                if stop.is_settled() {
                    Err(stop.error.clone())
                } else {
                    Ok(Accepted::Full)
                }
            }
        }
    }

    /// Whether the record fits the limits. One that is larger than all of them is admitted alone.
    fn has_room(&self, record: &Record<'_>) -> bool {
        let limits = &self.limits;
        let bytes = self.tracker.outstanding_bytes() + u64::from(size_bytes(record));
        let records_max = limits.in_flight_records_max.max(1);
        self.producer.in_flight() < records_max
            && self.tracker.window() < (records_max as u64).saturating_mul(WINDOW_PER_IN_FLIGHT)
            && (bytes <= limits.in_flight_bytes_max as u64 || self.tracker.outstanding() == 0)
    }
}

/// How much may be on its way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Records enqueued and not acknowledged. While one partition stalls and others go on, up to four times as many
    /// may lie between the position and the newest record.
    pub in_flight_records_max: usize,
    /// Their bytes: topic, key, payload and headers. A record larger than this is sent alone.
    pub in_flight_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_records_max: 20_000,
            in_flight_bytes_max: 16 * 1024 * 1024,
        }
    }
}

/// How far [`Publisher::accept`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a batch that was not taken completely must be given again"]
pub enum Accepted {
    /// The whole batch is taken: clear it and use it again.
    All,
    /// A limit is reached. Poll, and give the same batch again.
    Full,
}

/// What one [`Publisher::poll`] brought.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// Records acknowledged.
    pub delivered: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records reported as failed.
    pub failed: u64,
}

/// Why an attempt stopped.
#[derive(Debug)]
struct Stop {
    error: PublishError,
    /// Polls left in which the cause of a mere consequence may still come.
    patience: u32,
}

impl Stop {
    fn new(error: PublishError) -> Self {
        Self {
            error,
            patience: CAUSE_POLLS_MAX,
        }
    }

    /// Remembers the most telling error: one refused record makes the client fail hundreds of others, in any order.
    fn note(stop: &mut Option<Self>, error: PublishError) {
        match stop {
            None => *stop = Some(Self::new(error)),
            Some(known) if error.tells_more_than(&known.error) => known.error = error,
            Some(_) => {}
        }
    }

    /// Whether the error is the cause, or no better one can be expected.
    fn is_settled(&self) -> bool {
        self.patience == 0 || !self.error.is_consequence()
    }
}

fn size_bytes(record: &Record<'_>) -> u32 {
    u32::try_from(record.byte_len()).unwrap_or(u32::MAX)
}

/// Clocks of two machines: a commit "in the future" took no time.
fn latency(since: PgTimestamp, now: PgTimestamp) -> Duration {
    let micros = now.as_i64().saturating_sub(since.as_i64());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Records between the position and the newest one, per record that may be in flight.
const WINDOW_PER_IN_FLIGHT: u64 = 4;

/// How many polls a consequence waits for its cause before it is reported itself. The client tells both within
/// microseconds, but from different threads.
const CAUSE_POLLS_MAX: u32 = 500;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use pgoutput::TransactionId;
    use rdkafka::types::RDKafkaErrorCode as Code;
    use router::Place;

    use super::*;
    use crate::error::Failure;
    use crate::producer::Delivery;

    /// A broker made of lists: what was sent, what waits for an answer, and the answers to give.
    #[derive(Debug, Default)]
    struct Fake {
        sent: Vec<String>,
        waiting: Vec<Ticket>,
        answers: VecDeque<Delivery>,
        room: Option<usize>,
        refuse: Option<(String, Code)>,
        fatal: Option<Code>,
        purges: usize,
    }

    impl Producer for Fake {
        fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
            if self.room.is_some_and(|room| self.waiting.len() >= room) {
                return Err(EnqueueError::Full(ticket));
            }
            let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
            if let Some((_, code)) = self.refuse.as_ref().filter(|(refused, _)| *refused == key) {
                let error = error(*code);
                return Err(EnqueueError::Refused { ticket, error });
            }
            self.sent.push(key);
            self.waiting.push(ticket);
            Ok(())
        }

        fn poll(&mut self, _: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
            self.answers.drain(..).for_each(on_delivery);
        }

        fn in_flight(&self) -> usize {
            self.waiting.len() + self.answers.len()
        }

        fn purge(&mut self) {
            self.purges += 1;
            self.fatal = None;
            self.waiting.clear();
            self.answers.clear();
        }

        fn fatal_error(&self) -> Option<PublishError> {
            self.fatal.map(error)
        }

        fn brokers_up(&self) -> bool {
            true
        }
    }

    impl Fake {
        /// Answers the `index`-th of those waiting at the next poll.
        fn answer(&mut self, index: usize, result: Result<(), Code>) {
            let ticket = self.waiting.remove(index);
            let result = result.map_err(error);
            self.answers.push_back(Delivery { ticket, result });
        }

        fn answer_all(&mut self) {
            while !self.waiting.is_empty() {
                self.answer(0, Ok(()));
            }
        }
    }

    fn error(code: Code) -> PublishError {
        PublishError::classify(Failure::new(code))
    }

    fn publisher(limits: Limits) -> Publisher<Fake> {
        Publisher::new(Fake::default(), limits, Lsn::new(10))
    }

    fn limits(records: usize, bytes: usize) -> Limits {
        Limits {
            in_flight_records_max: records,
            in_flight_bytes_max: bytes,
        }
    }

    fn no_limits() -> Limits {
        limits(1_000, 1_000_000)
    }

    fn begin(batch: &mut Batch, commit_time: i64) {
        batch.entries.push(Entry::Begin(TransactionId {
            final_lsn: Lsn::new(1),
            commit_time: PgTimestamp::new(commit_time),
            xid: 7,
        }));
    }

    fn record(batch: &mut Batch, key: &str, payload_bytes: usize) {
        let mut builder = batch.records.begin();
        builder.set_topic(["t"]);
        builder.put(Place::Key, Some(key.as_bytes()));
        builder.put(Place::Payload, Some(&vec![b'x'; payload_bytes]));
        builder.finish();
        let inserts = batch.records.len() as u64;
        batch.entries.push(Entry::Record { inserts });
    }

    /// The n-th record of [`batch`].
    fn nth(insert_index: u64) -> EventIdentity {
        EventIdentity::Row(pgoutput::RowId {
            commit_lsn: Lsn::new(1),
            insert_index,
        })
    }

    /// One transaction per record, the n-th ending at `20 + n`.
    fn batch(keys: &[&str]) -> Batch {
        let mut batch = Batch::new();
        for (index, key) in keys.iter().enumerate() {
            begin(&mut batch, 1_000);
            record(&mut batch, key, 10);
            let end_lsn = Lsn::new(20 + index as u64);
            batch.entries.push(Entry::Commit { end_lsn });
        }
        batch
    }

    fn poll(publisher: &mut Publisher<Fake>) -> Result<Polled, PublishError> {
        publisher.poll(Duration::ZERO, PgTimestamp::new(3_000), &mut |_| ())
    }

    fn confirmed(publisher: &Publisher<Fake>) -> u64 {
        publisher.confirmed().as_lsn().as_u64()
    }

    #[test]
    fn records_go_out_in_stream_order() {
        let mut publisher = publisher(no_limits());
        assert_eq!(
            publisher.accept(&mut batch(&["a", "b", "c"])).unwrap(),
            Accepted::All
        );
        assert_eq!(publisher.producer.sent, ["a", "b", "c"]);
        assert_eq!(publisher.outstanding(), 3);
    }

    #[test]
    fn the_position_follows_the_acknowledgements_in_any_order() {
        let mut publisher = publisher(no_limits());
        publisher
            .accept(&mut batch(&["a", "b", "c"]))
            .map(drop)
            .unwrap();
        publisher.producer.answer(2, Ok(()));
        publisher.producer.answer(0, Ok(()));
        let polled = poll(&mut publisher).unwrap();
        assert_eq!((polled.delivered, polled.bytes), (2, 24));
        assert_eq!(confirmed(&publisher), 20);
        publisher.producer.answer(0, Ok(()));
        poll(&mut publisher).unwrap();
        assert_eq!(confirmed(&publisher), 22);
    }

    #[test]
    fn a_keepalive_in_the_stream_moves_a_quiet_position() {
        let mut publisher = publisher(no_limits());
        let mut batch = Batch::new();
        batch.entries.push(Entry::Idle {
            wal_end: Lsn::new(99),
        });
        publisher.accept(&mut batch).map(drop).unwrap();
        assert_eq!(confirmed(&publisher), 99);
    }

    #[test]
    fn the_limit_on_records_stops_and_is_resumed_without_loss_or_repeat() {
        let mut publisher = publisher(limits(2, 1_000_000));
        let mut batch = batch(&["a", "b", "c", "d", "e"]);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        assert_eq!(publisher.producer.sent, ["a", "b"]);
        while publisher.accept(&mut batch).unwrap() == Accepted::Full {
            publisher.producer.answer(0, Ok(()));
            poll(&mut publisher).unwrap();
            assert!(publisher.in_flight() <= 2);
        }
        assert_eq!(publisher.producer.sent, ["a", "b", "c", "d", "e"]);
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(confirmed(&publisher), 24);
    }

    #[test]
    fn a_record_the_producer_had_no_room_for_is_counted_once() {
        let mut publisher = publisher(no_limits());
        publisher.producer.room = Some(2);
        let mut batch = batch(&["a", "b", "c"]);
        for _ in 0..2 {
            assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
            assert_eq!(publisher.outstanding(), 2);
            assert_eq!(batch.records_left(), 1);
        }
    }

    #[test]
    fn the_limit_on_bytes_stops_before_it_is_passed() {
        let mut publisher = publisher(limits(1_000, 30));
        let mut batch = batch(&["a", "b", "c"]);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        assert_eq!(publisher.producer.sent, ["a", "b"]);
        assert_eq!(publisher.outstanding_bytes(), 24);
    }

    #[test]
    fn a_record_above_the_whole_budget_is_sent_alone() {
        let mut publisher = publisher(limits(1_000, 100));
        let mut batch = Batch::new();
        begin(&mut batch, 0);
        record(&mut batch, "a", 10);
        record(&mut batch, "large", 500);
        record(&mut batch, "b", 10);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        assert_eq!(publisher.producer.sent, ["a"]);
        for sent in [&["a", "large"][..], &["a", "large", "b"][..]] {
            publisher.producer.answer_all();
            poll(&mut publisher).unwrap();
            let _more = publisher.accept(&mut batch).unwrap();
            assert_eq!(publisher.producer.sent, sent);
        }
    }

    #[test]
    fn one_stalled_partition_does_not_let_the_window_grow_for_ever() {
        let mut publisher = publisher(limits(10, 1_000_000));
        let keys: Vec<String> = (0..100).map(|key| key.to_string()).collect();
        let mut batch = batch(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        // The first record is never answered, all others at once.
        for _ in 0..200 {
            publisher.accept(&mut batch).map(drop).unwrap();
            while publisher.producer.waiting.len() > 1 {
                publisher.producer.answer(1, Ok(()));
            }
            poll(&mut publisher).unwrap();
        }
        assert_eq!(publisher.producer.sent.len(), 40);
        assert_eq!(confirmed(&publisher), 10);
    }

    #[test]
    fn a_full_producer_gets_the_same_record_again() {
        let mut publisher = publisher(no_limits());
        publisher.producer.room = Some(1);
        let mut batch = batch(&["a", "b"]);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::Full);
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::All);
        assert_eq!(publisher.producer.sent, ["a", "b"]);
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(confirmed(&publisher), 21);
    }

    #[test]
    fn a_refused_record_lets_nothing_behind_it_out_and_holds_the_position() {
        let mut publisher = publisher(no_limits());
        publisher.producer.refuse = Some(("b".to_owned(), Code::MessageSizeTooLarge));
        let mut stream = batch(&["a", "b", "c"]);
        let error = publisher.accept(&mut stream).unwrap_err();
        assert!(matches!(error, PublishError::Permanent(_)));
        assert!(publisher.accept(&mut stream).is_err());
        assert!(publisher.accept(&mut batch(&["d"])).is_err());
        assert_eq!(publisher.producer.sent, ["a"]);
        publisher.producer.answer_all();
        assert_eq!(poll(&mut publisher).unwrap().delivered, 1);
        assert_eq!(confirmed(&publisher), 20);
        assert!(poll(&mut publisher).is_err());
    }

    #[test]
    fn a_record_refused_among_others_names_nobody_and_one_refused_before_it_is_sent_does() {
        let mut publisher = publisher(no_limits());
        publisher
            .accept(&mut batch(&["a", "b", "c"]))
            .map(drop)
            .unwrap();
        publisher.producer.answer(1, Err(Code::MessageSizeTooLarge));
        poll(&mut publisher).unwrap_err();
        assert_eq!(publisher.culprit(), None);
        publisher.restart(Lsn::new(10));
        publisher.producer.refuse = Some(("b".to_owned(), Code::MessageSizeTooLarge));
        publisher.accept(&mut batch(&["a", "b", "c"])).unwrap_err();
        assert_eq!(publisher.culprit(), Some(nth(1)));
    }

    #[test]
    fn sent_one_by_one_a_refused_record_is_named_and_nothing_is_behind_it() {
        let mut publisher = publisher(no_limits());
        let until = Some(Lsn::new(1));
        publisher.restart_careful(
            Lsn::new(10),
            Careful {
                until,
                parked: false,
            },
        );
        let mut stream = batch(&["a", "b", "c"]);
        for sent in 1..=2 {
            assert_eq!(publisher.accept(&mut stream).unwrap(), Accepted::Full);
            assert_eq!(publisher.producer.sent.len(), sent);
            if sent == 1 {
                publisher.producer.answer_all();
                poll(&mut publisher).unwrap();
            }
        }
        publisher.producer.answer(0, Err(Code::MessageSizeTooLarge));
        poll(&mut publisher).unwrap_err();
        assert_eq!(publisher.culprit(), Some(nth(1)));
        assert_eq!(publisher.producer.sent, ["a", "b"]);
        publisher.restart(Lsn::new(10));
        assert_eq!(publisher.culprit(), None);
        publisher
            .accept(&mut batch(&["a", "b", "c"]))
            .map(drop)
            .unwrap();
        assert_eq!(publisher.producer.sent.len(), 5, "all at once again");
    }

    #[test]
    fn a_failed_delivery_stops_everything_and_holds_the_position() {
        let mut publisher = publisher(no_limits());
        publisher
            .accept(&mut batch(&["a", "b", "c"]))
            .map(drop)
            .unwrap();
        publisher.producer.answer(1, Err(Code::MessageSizeTooLarge));
        publisher.producer.answer_all();
        assert_eq!(poll(&mut publisher).unwrap().delivered, 2);
        assert!(matches!(
            poll(&mut publisher),
            Err(PublishError::Permanent(_))
        ));
        assert!(publisher.accept(&mut batch(&["d"])).is_err());
        assert_eq!(publisher.producer.sent, ["a", "b", "c"]);
        assert_eq!(confirmed(&publisher), 20);
    }

    #[test]
    fn a_consequence_waits_for_its_cause() {
        let mut publisher = publisher(no_limits());
        publisher
            .accept(&mut batch(&["a", "b", "c"]))
            .map(drop)
            .unwrap();
        publisher.producer.answer(2, Err(Code::PurgeQueue));
        assert_eq!(poll(&mut publisher).unwrap().failed, 1);
        assert_eq!(
            publisher.accept(&mut batch(&["d"])).unwrap(),
            Accepted::Full
        );
        publisher
            .producer
            .answer(0, Err(Code::TopicAuthorizationFailed));
        let error = poll(&mut publisher).unwrap_err();
        assert_eq!(error.failure().code(), "TOPIC_AUTHORIZATION_FAILED");
        assert_eq!(publisher.producer.sent, ["a", "b", "c"]);
    }

    #[test]
    fn a_producer_that_refuses_because_of_an_earlier_failure_waits_for_its_cause() {
        let mut publisher = publisher(no_limits());
        publisher.producer.refuse = Some(("b".to_owned(), Code::GaplessGuarantee));
        let mut stream = batch(&["a", "b"]);
        assert_eq!(publisher.accept(&mut stream).unwrap(), Accepted::Full);
        publisher.producer.refuse = None;
        assert_eq!(publisher.accept(&mut stream).unwrap(), Accepted::Full);
        publisher.producer.answer(0, Err(Code::MessageSizeTooLarge));
        let error = poll(&mut publisher).unwrap_err();
        assert_eq!(error.failure().code(), "MSG_SIZE_TOO_LARGE");
        assert_eq!(publisher.producer.sent, ["a"]);
    }

    #[test]
    fn a_consequence_without_a_cause_is_told_itself() {
        let mut publisher = publisher(no_limits());
        publisher.accept(&mut batch(&["a", "b"])).map(drop).unwrap();
        publisher.producer.fatal = Some(Code::GaplessGuarantee);
        poll(&mut publisher).unwrap();
        let told = (0..CAUSE_POLLS_MAX).find_map(|_| poll(&mut publisher).err());
        assert!(matches!(told, Some(PublishError::Fatal(_))));
    }

    #[test]
    fn with_nothing_in_flight_a_fatal_error_is_told_at_once() {
        let mut publisher = publisher(no_limits());
        publisher.producer.fatal = Some(Code::GaplessGuarantee);
        assert!(matches!(poll(&mut publisher), Err(PublishError::Fatal(_))));
        assert!(publisher.accept(&mut batch(&["a"])).is_err());
    }

    #[test]
    fn a_restart_after_a_failure_replaces_what_the_producer_had() {
        let mut publisher = publisher(no_limits());
        publisher.accept(&mut batch(&["a", "b"])).map(drop).unwrap();
        publisher
            .producer
            .answer(0, Err(Code::OutOfOrderSequenceNumber));
        assert!(poll(&mut publisher).is_err());
        publisher.restart(Lsn::new(10));
        assert_eq!(publisher.producer.purges, 1);
        assert!(publisher.failure().is_none());
        assert_eq!(
            publisher.accept(&mut batch(&["a", "b"])).unwrap(),
            Accepted::All
        );
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(confirmed(&publisher), 21);
    }

    #[test]
    fn a_restart_without_a_failure_ignores_what_comes_of_the_attempt_before() {
        let mut publisher = publisher(no_limits());
        publisher.accept(&mut batch(&["a", "b"])).map(drop).unwrap();
        publisher.restart(Lsn::new(10));
        assert_eq!((publisher.producer.purges, publisher.outstanding()), (0, 0));
        publisher.accept(&mut batch(&["a", "b"])).map(drop).unwrap();
        publisher.producer.answer(1, Err(Code::MessageTimedOut));
        publisher.producer.answer(0, Ok(()));
        let polled = poll(&mut publisher).unwrap();
        assert_eq!(polled, Polled::default());
        assert_eq!(confirmed(&publisher), 10);
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(confirmed(&publisher), 21);
    }

    #[test]
    fn what_an_earlier_attempt_has_in_flight_still_takes_room() {
        let mut publisher = publisher(limits(2, 1_000));
        publisher.accept(&mut batch(&["a", "b"])).map(drop).unwrap();
        publisher.restart(Lsn::new(10));
        let mut again = batch(&["a"]);
        assert_eq!(publisher.accept(&mut again).unwrap(), Accepted::Full);
        publisher.producer.answer_all();
        poll(&mut publisher).unwrap();
        assert_eq!(publisher.accept(&mut again).unwrap(), Accepted::All);
    }

    #[test]
    fn latency_is_the_time_from_commit_to_the_last_acknowledgement() {
        let mut publisher = publisher(no_limits());
        let mut stream = Batch::new();
        for (commit_time, end) in [(1_000, 20), (9_999, 21)] {
            begin(&mut stream, commit_time);
            record(&mut stream, "a", 1);
            let end_lsn = Lsn::new(end);
            stream.entries.push(Entry::Commit { end_lsn });
        }
        publisher.accept(&mut stream).map(drop).unwrap();
        publisher.producer.answer_all();
        let mut latencies = Vec::new();
        publisher
            .poll(Duration::ZERO, PgTimestamp::new(3_000), &mut |latency| {
                latencies.push(latency)
            })
            .unwrap();
        // The second commit lies in the future by the other machine's clock.
        assert_eq!(latencies, [Duration::from_micros(2_000), Duration::ZERO]);
    }
}
