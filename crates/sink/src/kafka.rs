//! Stage 7 of 9, the real thing: the producer over librdkafka.
//!
//! Three facts of its binding shape this file. Polling with a time-out always takes the whole of it, and spins for the
//! last millisecond; polling with none serves exactly one event; and delivery callbacks run inside the poll, on our
//! own thread. So one thread owns the client, polls without waiting until nothing more comes, and waits elsewhere.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode as Code;
use router::Record;

use crate::error::{Failure, KafkaConfigError, PublishError};
use crate::kafka_context::{Context, ID_HEADER, Outcome, event_id_text};
use crate::kafka_creation::Creation;
use crate::kafka_files::Files;
use crate::kafka_lookup::{Found, Lookup};
use crate::kafka_opening::{Admission, Openings};
use crate::kafka_options::{KafkaConfig, config_error};
use crate::producer::{Delivery, EnqueueError, Producer};
use crate::ticket::Ticket;
use crate::transactional::TransactionConfig;

/// An idempotent producer that waits for all in-sync replicas and stops for good at the first record refused.
///
/// Owned by one thread. Dropping it drops what is not delivered, and may take up to half a second.
pub struct KafkaProducer {
    recipe: Recipe,
    files: Files,
    /// The files changed while the brokers did not let this client in.
    outdated: bool,
    client: Arc<Client>,
    shared: Arc<Shared>,
    /// Outcomes being handed over; empty between two polls.
    handing: Vec<Outcome>,
    in_flight: usize,
    openings: Openings,
    lookup: Option<Lookup>,
    creation: Option<Arc<Creation>>,
    /// When the openings were last forgotten.
    opened_since: Instant,
    /// Why the last attempt to replace the client failed.
    broken: Option<PublishError>,
    replacements: u64,
}

pub(crate) type Client = BaseProducer<Context>;

impl KafkaProducer {
    /// Makes a client. It connects by itself, in the background; whether anybody is there, a
    /// [`probe`](Self::probe) tells. Make it early: before its first record it needs half a second for its
    /// producer id.
    ///
    /// # Errors
    ///
    /// See [`KafkaConfigError`]; all of them need a changed configuration.
    pub fn new(config: &KafkaConfig) -> Result<Self, KafkaConfigError> {
        Self::made_by(Recipe {
            config: config.clone(),
            transactions: None,
        })
    }

    /// As [`new`](Self::new), for transactions.
    pub(crate) fn transactional(
        config: &KafkaConfig,
        transactions: &TransactionConfig,
    ) -> Result<Self, KafkaConfigError> {
        Self::made_by(Recipe {
            config: config.clone(),
            transactions: Some(transactions.clone()),
        })
    }

    fn made_by(recipe: Recipe) -> Result<Self, KafkaConfigError> {
        // Before the files are read: what changes in between counts as changed.
        let files = Files::of(&recipe.config);
        let options = recipe.options()?;
        let client = create(&options)?;
        Ok(Self {
            files,
            outdated: false,
            creation: Creation::new(&recipe.config)?.map(Arc::new),
            recipe,
            shared: Arc::new(Shared {
                client: Mutex::new(Arc::clone(&client)),
                topic: OnceLock::new(),
            }),
            client,
            handing: Vec::new(),
            in_flight: 0,
            openings: Openings::default(),
            lookup: None,
            opened_since: Instant::now(),
            broken: None,
            replacements: 0,
        })
    }

    /// A handle that asks, from any other thread, whether a broker answers.
    #[must_use]
    pub fn probe(&self) -> BrokerProbe {
        BrokerProbe(Arc::clone(&self.shared))
    }

    /// The client itself, for what only transactions need.
    pub(crate) fn raw(&self) -> &Client {
        &self.client
    }

    /// Sends a record of our own, which is reported with [`POSITION_OPAQUE`] as its ticket.
    pub(crate) fn send_position(
        &mut self,
        topic: &str,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), KafkaError> {
        let message = BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, POSITION_OPAQUE)
            .key(key)
            .payload(value);
        self.client.send(message).map_err(|(error, _)| error)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Takes back what is on its way and waits, not for long, until the client has let go of all of it.
    pub(crate) fn drop_outstanding(&mut self) {
        drop_unsent(&self.client);
        let deadline = Instant::now() + LETTING_GO_MAX;
        while self.in_flight > 0 && Instant::now() < deadline {
            self.poll(POLL_STEP_MAX, &mut |_| ());
        }
    }

    fn context(&self) -> &Context {
        self.client.client().context()
    }

    /// Serves events until none is left, and hands over what they brought.
    fn drain(&mut self, on_delivery: &mut dyn FnMut(Delivery)) -> usize {
        for _ in 0..EVENTS_PER_DRAIN_MAX {
            let before = self.context().events();
            self.client.poll(Duration::ZERO);
            if self.context().events() == before {
                break;
            }
        }
        self.client
            .client()
            .context()
            .swap_outcomes(&mut self.handing);
        let handed = self.handing.len();
        self.in_flight = self.in_flight.saturating_sub(handed);
        for Outcome { opaque, failure } in self.handing.drain(..) {
            let ticket = Ticket::from_opaque(opaque);
            if failure.is_none() {
                self.openings.handle_ack(ticket.number());
            }
            on_delivery(Delivery {
                ticket,
                result: failure.map_or(Ok(()), |failure| Err(PublishError::classify(*failure))),
            });
        }
        handed
    }

    fn refusal(&self, error: &KafkaError, ticket: Ticket, record: &Record<'_>) -> EnqueueError {
        let code = match error {
            // A zero byte in the topic's name.
            KafkaError::Nul(_) => Code::InvalidTopic,
            other => other.rdkafka_error_code().unwrap_or(Code::Fail),
        };
        match code {
            Code::QueueFull => EnqueueError::Full(ticket),
            Code::Fatal => {
                let error = self.fatal_error();
                let error = error.unwrap_or_else(|| PublishError::classify(Failure::new(code)));
                EnqueueError::Refused { ticket, error }
            }
            _ => refuse(code, ticket, record),
        }
    }

    /// Whether the record may follow what is on its way; see [`Openings`].
    ///
    /// # Errors
    /// Its topic does not exist, and could not be created.
    fn admit(&mut self, record: &Record<'_>) -> Result<Admission, Box<Failure>> {
        match self.openings.admit(record) {
            Admission::UnknownTopic => {
                let lookup = &mut self.lookup;
                match Lookup::ask(lookup, record.topic, &self.client, self.creation.as_ref()) {
                    Found::Partitions(count) => self.openings.learn(record.topic, count),
                    Found::Refused(failure) => return Err(failure),
                    Found::Waiting => return Ok(Admission::UnknownTopic),
                }
                Ok(self.openings.admit(record))
            }
            admission => Ok(admission),
        }
    }

    /// A new client, which reads all files again.
    fn create_again(&mut self) -> Result<Arc<Client>, KafkaConfigError> {
        self.files = Files::of(&self.recipe.config);
        self.creation = Creation::new(&self.recipe.config)?.map(Arc::new);
        create(&self.recipe.options()?)
    }

    fn forget_openings(&mut self) {
        self.openings = Openings::default();
        self.opened_since = Instant::now();
    }
}

impl Producer for KafkaProducer {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        // librdkafka reads -1 as "any partition" and does not check other negative numbers.
        if record.partition.is_some_and(|partition| partition < 0) {
            return Err(refuse(Code::UnknownPartition, ticket, record));
        }
        let admission = match self.admit(record) {
            Ok(admission) => admission,
            Err(failure) => {
                let error = PublishError::classify(*failure);
                return Err(EnqueueError::Refused { ticket, error });
            }
        };
        if matches!(admission, Admission::Wait | Admission::UnknownTopic) {
            return Err(EnqueueError::Full(ticket));
        }
        let number = ticket.number();
        let message = BaseRecord::<[u8], [u8], usize> {
            topic: record.topic,
            partition: record.partition,
            payload: record.payload,
            key: record.key,
            timestamp: record.timestamp_ms,
            headers: headers(record),
            delivery_opaque: ticket.into_opaque(),
        };
        match self.client.send(message) {
            Ok(()) => {
                self.in_flight += 1;
                if let Admission::First(place) = admission {
                    self.openings.await_first(number, place);
                }
                self.shared.topic.get_or_init(|| record.topic.to_owned());
                Ok(())
            }
            Err((error, message)) => {
                let ticket = Ticket::from_opaque(message.delivery_opaque);
                Err(self.refusal(&error, ticket, record))
            }
        }
    }

    fn poll(&mut self, timeout: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        let deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        let mut step = POLL_STEP_MIN;
        loop {
            let handed = self.drain(on_delivery);
            let left = deadline.map_or(Duration::ZERO, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if handed > 0 && self.opened_since.elapsed() > OPENINGS_AGE_MAX {
                self.forget_openings();
            }
            if handed > 0 || left.is_zero() {
                if !self.outdated && self.context().is_refused() {
                    self.outdated = self.files.have_changed();
                }
                return;
            }
            thread::sleep(step.min(left));
            step = (step * 2).min(POLL_STEP_MAX);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Replaces the client by a new one. Nothing less will do: a purged idempotent producer no longer agrees with
    /// the brokers on sequence numbers, and one that saw a topic missing goes on refusing it.
    fn purge(&mut self) {
        drop_unsent(&self.client);
        match self.create_again() {
            Ok(client) => {
                self.broken = None;
                self.outdated = false;
                self.replacements += 1;
                *self.shared.lock() = Arc::clone(&client);
                self.client = client;
            }
            Err(error) => {
                let mut failure = Failure::new(Code::Fail);
                failure.detail = Some(error.to_string().into());
                self.broken = Some(PublishError::classify(failure));
            }
        }
        self.handing.clear();
        self.in_flight = 0;
        self.lookup = None;
        self.forget_openings();
    }

    fn fatal_error(&self) -> Option<PublishError> {
        if self.broken.is_some() {
            return self.broken.clone();
        }
        if self.outdated {
            let mut failure = Failure::new(Code::Inconsistent);
            failure.detail = Some("files that it signs in with have changed".into());
            return Some(PublishError::Fatal(Box::new(failure)));
        }
        let (code, detail) = self.client.client().fatal_error()?;
        let mut failure = Failure::new(code);
        failure.detail = Some(detail.into());
        Some(match PublishError::classify(failure) {
            // Whatever the code: this client is at its end.
            PublishError::Retriable(failure) => PublishError::Fatal(failure),
            other => other,
        })
    }

    fn replacements(&self) -> u64 {
        self.replacements
    }

    fn brokers_up(&self) -> bool {
        self.context().brokers_up()
    }

    fn broker_error(&self) -> Option<PublishError> {
        self.context().settled_trouble()
    }
}

impl Drop for KafkaProducer {
    fn drop(&mut self) {
        drop_unsent(&self.client);
    }
}

impl fmt::Debug for KafkaProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaProducer")
            .field("in_flight", &self.in_flight)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// Asks whether a broker answers. Blocks, so it is for a thread of its own; follows its producer through
/// replacements of the client.
#[derive(Clone)]
pub struct BrokerProbe(Arc<Shared>);

impl BrokerProbe {
    /// Waits at most `timeout` for an answer of any broker, and tells the producer's
    /// [`brokers_up`](Producer::brokers_up).
    ///
    /// # Errors
    ///
    /// Nobody answered: the reason that is known.
    pub fn reachable(&self, timeout: Duration) -> Result<(), PublishError> {
        let client = Arc::clone(&self.0.lock());
        // Asking for all topics is costly in a large cluster, so once one is known, it is asked for alone.
        let topic = self.0.topic.get().map(String::as_str);
        let context = client.client().context();
        match client.client().fetch_metadata(topic, timeout) {
            Ok(_) => {
                context.note_contact();
                Ok(())
            }
            Err(error) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                let error = PublishError::classify(Failure::new(code));
                context.note_silence(error.clone());
                Err(context.trouble().unwrap_or(error))
            }
        }
    }
}

impl fmt::Debug for BrokerProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrokerProbe").finish()
    }
}

/// What a producer and its probes have in common.
struct Shared {
    client: Mutex<Arc<Client>>,
    /// A topic that records were sent to.
    topic: OnceLock<String>,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each client is made by.
struct Recipe {
    config: KafkaConfig,
    transactions: Option<TransactionConfig>,
}

impl Recipe {
    fn options(&self) -> Result<ClientConfig, KafkaConfigError> {
        match &self.transactions {
            None => self.config.client_config(),
            Some(transactions) => self.config.transactional_config(transactions),
        }
    }
}

fn create(options: &ClientConfig) -> Result<Arc<Client>, KafkaConfigError> {
    let client = options.create_with_context(Context::new());
    client.map(Arc::new).map_err(config_error)
}

/// Takes back what is not on the wire. The client may live on for a moment, in the hands of a probe or a lookup; it
/// must not go on sending beside its successor.
fn drop_unsent(client: &Client) {
    client.purge(PurgeConfig::default().queue().inflight());
}

fn headers(record: &Record<'_>) -> Option<OwnedHeaders> {
    if record.header_count() == 0 {
        return None;
    }
    let headers = OwnedHeaders::new_with_capacity(record.header_count());
    let headers = record.headers().fold(headers, |headers, (key, value)| {
        headers.insert(Header { key, value })
    });
    Some(headers)
}

/// A record that our own client does not take.
fn refuse(code: Code, ticket: Ticket, record: &Record<'_>) -> EnqueueError {
    let failure = Failure {
        code,
        refused_locally: true,
        topic: Some(record.topic.into()),
        event_id: record
            .headers()
            .find(|(name, _)| *name == ID_HEADER)
            .and_then(|(_, value)| value)
            .map(event_id_text),
        size_bytes: Some(record.byte_len().saturating_sub(record.topic.len()) as u64),
        ticket: Some(ticket.number()),
        detail: None,
    };
    EnqueueError::Refused {
        ticket,
        error: PublishError::classify(failure),
    }
}

/// Stands in a ticket's place for a record that is no event. No tracker ever counts so far.
pub(crate) const POSITION_OPAQUE: usize = usize::MAX;

/// How long the client may take to let go of what it was told to drop.
const LETTING_GO_MAX: Duration = Duration::from_millis(500);

/// Events served in a row before what they brought is handed over.
const EVENTS_PER_DRAIN_MAX: usize = 256;

/// Brokers forget producers that are silent for a day, and topics may get more partitions, so each partition is
/// opened again from time to time.
const OPENINGS_AGE_MAX: Duration = Duration::from_secs(3_600);

/// How long to sleep between two looks at the client; doubles while nothing comes.
const POLL_STEP_MIN: Duration = Duration::from_micros(100);
const POLL_STEP_MAX: Duration = Duration::from_millis(5);
