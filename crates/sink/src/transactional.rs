//! Stage 7 of 9, exactly once: the transactional producer. Records and the position behind them become visible together.
//!
//! It holds deliveries back until the Kafka transaction they are in is committed. So everything that rests on deliveries
//! (tracker, publisher, confirmed position) holds unchanged, with "acknowledged" meaning "committed".
//!
//! After any failure nothing is repaired here: the client is thrown away, the open transaction with it, and the next attempt
//! asks the position topic what was committed. That one way back covers an outcome that nobody heard of as well.

use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaError};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use router::Record;

use crate::batch::Entry;
use crate::error::{Failure, KafkaConfigError, PublishError};
use crate::kafka::{BrokerProbe, KafkaProducer, POSITION_OPAQUE};
use crate::kafka_options::KafkaConfig;
use crate::position::PositionRecord;
use crate::producer::{Delivery, EnqueueError, Producer, Resume, TransactionCounts};
use crate::ticket::Ticket;

/// How Kafka transactions are cut, and who they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionConfig {
    /// The one name under which only the newest producer may write.
    pub transactional_id: String,
    /// After this time the broker aborts a transaction by itself. Ours end long before.
    pub timeout: Duration,
    /// A transaction is committed when it is this old …
    pub interval: Duration,
    /// … or has this many records …
    pub records_max: usize,
    /// … or this many bytes of them; one larger record makes it larger.
    pub bytes_max: u64,
    /// Where positions are kept.
    pub position_topic: String,
    /// The key of ours in there.
    pub position_key: String,
}

/// A producer whose records are seen by read-committed consumers exactly once.
///
/// ```text
///           claim            first record          old, full, or quiet
///   Fresh ─────────▶ Ready ───────────────▶ Open ─────────────────────▶ Committing
///     ▲                ▲                                                    │
///     │ begin_attempt, └──────── committed: deliveries are handed over ─────┘
///     └─ purge: from anywhere; what is not committed is aborted
/// ```
pub struct TransactionalProducer {
    client: KafkaProducer,
    config: TransactionConfig,
    state: State,
    record: PositionRecord,
    /// What the position belongs to; `None` until [`resume`](Producer::resume).
    origin: Option<String>,
    /// Acknowledged by the brokers, in a transaction that is not committed.
    held: Vec<Ticket>,
    failure: Option<PublishError>,
    counts: TransactionCounts,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nobody was fenced yet: a standby stays here.
    Fresh,
    /// No other producer of this name can write any more.
    Ready,
    Open(Open),
    Committing(Open),
}

#[derive(Debug, Clone, Copy)]
struct Open {
    since: Instant,
    /// Whether anything was added since the last poll, and when the poll before found that.
    grew: bool,
    grown_at: Instant,
    records: usize,
    bytes: u64,
}

impl TransactionalProducer {
    /// Makes a client. It fences nobody before [`claim`](Producer::claim).
    ///
    /// # Errors
    ///
    /// As [`KafkaProducer::new`].
    pub fn new(
        config: &KafkaConfig,
        transactions: TransactionConfig,
    ) -> Result<Self, KafkaConfigError> {
        let client = KafkaProducer::transactional(config, &transactions)?;
        Ok(Self {
            client,
            config: transactions,
            state: State::Fresh,
            record: PositionRecord::default(),
            origin: None,
            held: Vec::new(),
            failure: None,
            counts: TransactionCounts::default(),
        })
    }

    /// As [`KafkaProducer::probe`].
    #[must_use]
    pub fn probe(&self) -> BrokerProbe {
        self.client.probe()
    }

    fn begin(&mut self) -> bool {
        let now = Instant::now();
        match self.client.raw().begin_transaction() {
            Ok(()) => {
                self.state = State::Open(Open {
                    since: now,
                    grew: false,
                    grown_at: now,
                    records: 0,
                    bytes: 0,
                });
                true
            }
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// Writes the position behind the last record, and so closes the transaction for more.
    fn close(&mut self, open: Open) {
        let Some(origin) = &self.origin else {
            // The pipeline hands nothing over before it has told where the stream stands.
            debug_assert!(false, "a transaction before the position is known");
            return;
        };
        let value = self.record.to_json(origin);
        let sent = self.client.send_position(
            &self.config.position_topic,
            self.config.position_key.as_bytes(),
            value.as_bytes(),
        );
        match sent {
            Ok(()) => self.state = State::Committing(open),
            Err(error) if error.rdkafka_error_code() == Some(Code::QueueFull) => {}
            Err(error) => self.fail_with_cause(&error),
        }
    }

    /// One step of the commit. Everything sent must have arrived before the client is asked: it would wait in steps of
    /// 100 ms itself.
    fn commit(&mut self, open: Open, on_delivery: &mut dyn FnMut(Delivery)) {
        let is_late = open.since.elapsed() >= self.config.timeout / 2;
        if self.client.in_flight() > 0 {
            if is_late {
                self.fail(&KafkaError::Flush(Code::OperationTimedOut));
            }
            return;
        }
        match self.client.raw().commit_transaction(COMMIT_STEP) {
            Ok(()) => {
                self.state = State::Ready;
                self.counts.committed += 1;
                for ticket in self.held.drain(..) {
                    on_delivery(Delivery {
                        ticket,
                        result: Ok(()),
                    });
                }
            }
            Err(KafkaError::Transaction(error)) if error.is_retriable() && !is_late => {}
            Err(KafkaError::Flush(_)) if !is_late => {}
            Err(error) => self.fail(&error),
        }
    }

    /// Whether the transaction has to end, or may as well.
    fn is_due(&self, open: &Open, now: Instant) -> bool {
        let is_quiet = self.client.in_flight() == 0
            && now.duration_since(open.grown_at) >= QUIET_GAP.min(self.config.interval);
        is_quiet || now.duration_since(open.since) >= self.config.interval || self.is_full(open)
    }

    fn is_full(&self, open: &Open) -> bool {
        open.records >= self.config.records_max || open.bytes >= self.config.bytes_max
    }

    /// Why nothing more can be sent. The code alone may only say that the transaction failed before; then asking for its
    /// commit tells why. Nothing else may ask: a transaction that is whole but for its position would be committed.
    fn fail_with_cause(&mut self, error: &KafkaError) {
        if error.rdkafka_error_code() != Some(Code::State) {
            self.fail(error);
            return;
        }
        // What is queued will not go out any more; without it the client tells the reason at once.
        self.client.drop_outstanding();
        match self.client.raw().commit_transaction(ABORT_TIMEOUT) {
            Err(KafkaError::Transaction(cause)) => self.fail(&KafkaError::Transaction(cause)),
            _ => self.fail(error),
        }
    }

    fn fail(&mut self, error: &KafkaError) {
        let error = self.explain(error);
        self.failure.get_or_insert(error);
    }

    fn explain(&self, error: &KafkaError) -> PublishError {
        let mut failure = Failure::new(error.rdkafka_error_code().unwrap_or(Code::Fail));
        if let KafkaError::Transaction(error) = error {
            failure.detail = Some(words(error).into());
        }
        self.judge(PublishError::classify(failure))
    }

    /// A broker tells a producer that was too slow the same as one that was replaced. The clock tells them apart.
    fn judge(&self, error: PublishError) -> PublishError {
        let code = error.failure().code;
        if !matches!(
            code,
            Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch
        ) {
            return error;
        }
        let since = match self.state {
            State::Open(open) | State::Committing(open) => Some(open.since),
            State::Fresh | State::Ready => None,
        };
        let mut failure = Failure::new(Code::ProducerFenced);
        if since.is_some_and(|since| since.elapsed() >= self.config.timeout) {
            failure = Failure::new(Code::OperationTimedOut);
            failure.detail =
                Some("the Kafka transaction outlived its time-out and was aborted".into());
        }
        PublishError::classify(failure)
    }

    /// Aborts what is open as far as that is possible now, and makes a new client. The new one's claim ends what could not
    /// be aborted.
    fn rebuild(&mut self) {
        if matches!(self.state, State::Open(_) | State::Committing(_)) {
            self.abort();
        }
        self.client.purge();
        self.state = State::Fresh;
        self.origin = None;
        self.held.clear();
        self.failure = None;
    }

    fn abort(&mut self) {
        self.counts.aborted += 1;
        self.client.drop_outstanding();
        if let Err(error) = self.client.raw().abort_transaction(ABORT_TIMEOUT) {
            tracing::debug!(%error, "the Kafka transaction could not be aborted; the next claim does it");
        }
    }
}

impl Producer for TransactionalProducer {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        if self.failure.is_some() {
            return Err(EnqueueError::Full(ticket));
        }
        let has_room = match self.state {
            State::Ready => self.origin.is_some() && self.begin(),
            State::Open(open) => !self.is_full(&open),
            State::Fresh | State::Committing(_) => false,
        };
        if !has_room {
            return Err(EnqueueError::Full(ticket));
        }
        match self.client.try_enqueue(record, ticket) {
            Ok(()) => {
                if let State::Open(open) = &mut self.state {
                    open.records += 1;
                    open.bytes += record.byte_len() as u64;
                    open.grew = true;
                }
                Ok(())
            }
            Err(EnqueueError::Refused { ticket, error }) if error.failure().code == Code::State => {
                // The transaction failed some time ago, and this is how the client tells.
                self.fail_with_cause(&KafkaError::MessageProduction(Code::State));
                Err(EnqueueError::Full(ticket))
            }
            other => other,
        }
    }

    fn poll(&mut self, timeout: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        let Self { client, held, .. } = self;
        let mut failed: Vec<Delivery> = Vec::new();
        client.poll(timeout, &mut |delivery| match delivery.result {
            Ok(()) if delivery.ticket.number() == POSITION_OPAQUE as u64 => {}
            Ok(()) => held.push(delivery.ticket),
            Err(_) => failed.push(delivery),
        });
        for Delivery { ticket, result } in failed {
            let Err(error) = result else { continue };
            let error = self.judge(error);
            if ticket.number() == POSITION_OPAQUE as u64 {
                self.failure.get_or_insert(error);
            } else {
                let result = Err(error);
                on_delivery(Delivery { ticket, result });
            }
        }
        if self.failure.is_some() {
            return;
        }
        if let State::Open(open) = &mut self.state {
            let now = Instant::now();
            if std::mem::take(&mut open.grew) {
                open.grown_at = now;
            }
            let open = *open;
            if self.is_due(&open, now) {
                self.close(open);
            }
        }
        if let State::Committing(open) = self.state {
            self.commit(open, on_delivery);
        }
    }

    fn in_flight(&self) -> usize {
        // After a failure nobody is told any more what became of the held ones.
        let held = if self.failure.is_some() {
            0
        } else {
            self.held.len()
        };
        self.client.in_flight() + held
    }

    fn purge(&mut self) {
        self.rebuild();
    }

    fn fatal_error(&self) -> Option<PublishError> {
        self.failure
            .clone()
            .or_else(|| self.client.fatal_error().map(|error| self.judge(error)))
    }

    fn replacements(&self) -> u64 {
        self.client.replacements()
    }

    fn brokers_up(&self) -> bool {
        self.client.brokers_up()
    }

    fn broker_error(&self) -> Option<PublishError> {
        self.client.broker_error()
    }

    fn begin_attempt(&mut self) {
        if !matches!(self.state, State::Fresh) || self.failure.is_some() {
            self.rebuild();
        }
    }

    fn claim(&mut self, timeout: Duration) -> Result<bool, PublishError> {
        if !matches!(self.state, State::Fresh) {
            return Ok(true);
        }
        match self.client.raw().init_transactions(timeout) {
            Ok(()) => {
                self.state = State::Ready;
                Ok(true)
            }
            Err(KafkaError::Transaction(error)) if error.is_retriable() => {
                tracing::debug!(error = words(&error), "claiming the transactional id");
                Ok(false)
            }
            Err(error) => {
                self.fail(&error);
                Err(self.explain(&error))
            }
        }
    }

    fn resume(&mut self, resume: Resume) {
        debug_assert!(matches!(self.state, State::Ready), "claimed before");
        self.record = PositionRecord {
            position: resume.position,
            unnoted: Vec::new(),
        };
        self.origin = Some(resume.origin);
        if resume.record_now
            && self.begin()
            && let State::Open(open) = self.state
        {
            self.close(open);
        }
    }

    fn passed(&mut self, entry: &Entry) {
        self.record.pass(entry);
    }

    fn transactions(&self) -> TransactionCounts {
        self.counts
    }
}

impl Drop for TransactionalProducer {
    fn drop(&mut self) {
        // Without this, consumers would wait for the transaction's time-out before they see what others write.
        if matches!(self.state, State::Open(_) | State::Committing(_)) {
            self.abort();
        }
    }
}

impl fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalProducer")
            .field("config", &self.config)
            .field("state", &self.state)
            .field("record", &self.record)
            .field("held", &self.held.len())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

fn words(error: &RDKafkaError) -> String {
    format!("{}: {}", error.name(), error.string())
}

/// A transaction to which nothing was added for this long is committed at once.
const QUIET_GAP: Duration = Duration::from_millis(2);

/// The longest wait for a broker in one step, so that the thread stays within reach.
const COMMIT_STEP: Duration = Duration::from_millis(500);

/// The longest wait for an abort, which the next claim would do as well.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);
