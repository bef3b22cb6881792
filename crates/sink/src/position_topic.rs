//! Stage 7 of 9, exactly once: the position topic. Made if it is missing, checked, and read when a producer was claimed.
//!
//! Everything here blocks, so it is for a thread of its own. Each wait is short, and `is_wanted` is asked between them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use crate::error::{Failure, PublishError};
use crate::kafka_creation::block_on;
use crate::kafka_options::KafkaConfig;
use crate::kafka_retention::cleanup_policy;

/// The compacted topic of one partition that positions are kept in.
#[derive(Debug, Clone)]
pub struct PositionTopic {
    connection: ClientConfig,
    name: String,
    replicas: Option<u16>,
}

/// What the topic keeps for one pipeline.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The last committed position.
    pub position: Option<Vec<u8>>,
    /// What was noted before the first of them: see [`PositionTopic::note_beginning`].
    pub beginning: Option<Vec<u8>>,
}

/// Why the topic could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PositionTopicError {
    /// The brokers did not answer, or refused.
    #[error("the position topic cannot be read")]
    Kafka(#[from] PublishError),
    /// The topic is there and cannot be used for this.
    #[error("position topic {topic}: found {found}, needed {needed}")]
    Shape {
        /// The topic.
        topic: String,
        /// What it is.
        found: String,
        /// What it has to be.
        needed: String,
    },
}

impl PositionTopic {
    /// Names the topic. With `replicas`, fewer are refused; without, it is made with three or as many as there are brokers.
    #[must_use]
    pub fn new(config: &KafkaConfig, name: &str, replicas: Option<u16>) -> Self {
        Self {
            connection: config.connection_config(),
            name: name.to_owned(),
            replicas,
        }
    }

    /// Notes, outside any Kafka transaction and so by anybody, where the slot stands of which nothing was read yet.
    ///
    /// The note has a key of its own and never touches a position. It tells a first start that was cut short, before it could
    /// write a position, from a position that was lost.
    ///
    /// # Errors
    ///
    /// See [`PositionTopicError`].
    pub fn note_beginning(
        &self,
        key: &str,
        value: &[u8],
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), PositionTopicError> {
        let patience = Patience {
            deadline: Instant::now() + READ_TIMEOUT,
            is_wanted,
        };
        self.ensure(&self.consumer("read_uncommitted")?, &patience)?;
        let mut options = self.connection.clone();
        options.set("acks", "all");
        let producer: BaseProducer<Receipt> = options
            .create_with_context(Receipt::default())
            .map_err(|error| failed(&error))?;
        let key = beginning_key(key);
        producer
            .send(BaseRecord::to(&self.name).key(&key).payload(value))
            .map_err(|(error, _)| failed(&error))?;
        loop {
            producer.poll(LOOK_GAP);
            match producer.context().taken() {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => return Err(failed(&error).into()),
                None => patience.check()?,
            }
        }
    }

    /// Makes the topic if it is missing, checks it, and gives what it keeps under `key`.
    ///
    /// It is read up to where it ends now, and what is not yet decided before that place is waited for: call it after the
    /// producer was claimed, and no older producer can write behind what this gives.
    ///
    /// # Errors
    ///
    /// See [`PositionTopicError`].
    pub fn read(
        &self,
        key: &str,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Kept, PositionTopicError> {
        let patience = Patience {
            deadline: Instant::now() + READ_TIMEOUT,
            is_wanted,
        };
        let everything = self.consumer("read_uncommitted")?;
        self.ensure(&everything, &patience)?;
        let committed = self.consumer("read_committed")?;
        let (begin, end) =
            patience.ask(|| everything.fetch_watermarks(&self.name, 0, ANSWER_TIMEOUT))?;
        if begin >= end {
            return Ok(Kept::default());
        }
        // Somebody else's open transaction in this topic may stand before our last record.
        while patience
            .ask(|| committed.fetch_watermarks(&self.name, 0, ANSWER_TIMEOUT))?
            .1
            < end
        {
            patience.check()?;
            thread::sleep(LOOK_GAP);
        }
        self.last_values(&committed, key, &patience)
    }

    fn last_values(
        &self,
        consumer: &Reader,
        key: &str,
        patience: &Patience<'_>,
    ) -> Result<Kept, PositionTopicError> {
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(&self.name, 0, Offset::Beginning)
            .map_err(|error| failed(&error))?;
        consumer
            .assign(&assignment)
            .map_err(|error| failed(&error))?;
        let beginning_key = beginning_key(key);
        let mut kept = Kept::default();
        loop {
            match consumer.poll(LOOK_GAP) {
                Some(Ok(message)) => {
                    let value = || message.payload().map(<[u8]>::to_vec);
                    if message.key() == Some(key.as_bytes()) {
                        kept.position = value();
                    } else if message.key() == Some(beginning_key.as_bytes()) {
                        kept.beginning = value();
                    }
                }
                None => {}
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(kept),
                Some(Err(error)) => patience.forgive(&error)?,
            }
            patience.check()?;
        }
    }

    fn consumer(&self, isolation: &str) -> Result<Reader, PositionTopicError> {
        let mut options = self.connection.clone();
        options
            .set("isolation.level", isolation)
            // Nothing is committed and no group is joined; the client wants a name all the same.
            .set("group.id", "posthaste-positions")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "50");
        let reader = options.create_with_context(Quiet);
        reader.map_err(|error| failed(&error).into())
    }

    fn ensure(&self, consumer: &Reader, patience: &Patience<'_>) -> Result<(), PositionTopicError> {
        let mut asked_for = false;
        loop {
            let metadata =
                patience.ask(|| consumer.fetch_metadata(Some(&self.name), ANSWER_TIMEOUT))?;
            let wanted = self
                .replicas
                .map_or(metadata.brokers().len().min(REPLICAS_WANTED), usize::from);
            let topic = metadata
                .topics()
                .iter()
                .find(|topic| topic.name() == self.name);
            let partitions = topic.map_or(&[][..], |topic| topic.partitions());
            match partitions {
                [] if asked_for => {}
                [] => {
                    self.create(wanted)?;
                    asked_for = true;
                }
                // A moment after it was made it has no leader.
                [partition] if partition.leader() < 0 => {}
                [partition] => {
                    self.judge_replicas(partition.replicas().len(), wanted)?;
                    return self.judge_policy();
                }
                several => {
                    return Err(
                        self.shape(format!("{} partitions", several.len()), "one partition")
                    );
                }
            }
            patience.check()?;
            thread::sleep(LOOK_GAP);
        }
    }

    fn judge_replicas(&self, found: usize, wanted: usize) -> Result<(), PositionTopicError> {
        if found >= wanted {
            return Ok(());
        }
        if self.replicas.is_some() {
            return Err(self.shape(format!("{found} replicas"), &format!("{wanted} replicas")));
        }
        tracing::warn!(
            topic = self.name,
            found,
            wanted,
            "the position topic has few replicas: with the last of them goes the position"
        );
        Ok(())
    }

    /// A topic that deletes by age would forget the position of a quiet pipeline.
    fn judge_policy(&self) -> Result<(), PositionTopicError> {
        let admin = self.admin()?;
        let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
        let asked = cleanup_policy(&admin, &self.name, &options);
        let policy = match block_on(asked, ANSWER_TIMEOUT * 2) {
            Some(Ok(policy)) => policy,
            unknown => {
                tracing::debug!(?unknown, "the position topic's settings cannot be read");
                return Ok(());
            }
        };
        let policy = policy.as_deref();
        let policies: Option<BTreeSet<&str>> = policy.map(|policy| policy.split(',').collect());
        match policies {
            Some(policies) if policies.contains("delete") || !policies.contains("compact") => {
                Err(self.shape(
                    format!("cleanup.policy {}", policy.unwrap_or_default()),
                    "cleanup.policy compact",
                ))
            }
            _ => Ok(()),
        }
    }

    fn create(&self, replicas: usize) -> Result<(), PositionTopicError> {
        let replication = TopicReplication::Fixed(i32::try_from(replicas.max(1)).unwrap_or(1));
        let topic = NewTopic::new(&self.name, 1, replication)
            .set("cleanup.policy", "compact")
            // Only closed segments are compacted, and every start reads the topic.
            .set("segment.bytes", "4194304")
            .set("min.cleanable.dirty.ratio", "0.1");
        let options = AdminOptions::new()
            .request_timeout(Some(ANSWER_TIMEOUT))
            .operation_timeout(Some(ANSWER_TIMEOUT));
        let admin = self.admin()?;
        let created = block_on(admin.create_topics([&topic], &options), ANSWER_TIMEOUT * 2)
            .unwrap_or(Err(KafkaError::AdminOp(Code::OperationTimedOut)));
        let code = match created.as_deref() {
            Ok([Err((_, code))]) => *code,
            Ok(_) => {
                tracing::info!(topic = self.name, replicas, "position topic created");
                return Ok(());
            }
            Err(error) => return Err(failed(error).into()),
        };
        if code == Code::TopicAlreadyExists {
            return Ok(());
        }
        let mut failure = Failure::new(code);
        failure.topic = Some(self.name.as_str().into());
        Err(PublishError::classify(failure).into())
    }

    fn admin(&self) -> Result<AdminClient<Quiet>, PositionTopicError> {
        self.connection
            .create_with_context(Quiet)
            .map_err(|error| failed(&error).into())
    }

    fn shape(&self, found: String, needed: &str) -> PositionTopicError {
        PositionTopicError::Shape {
            topic: self.name.clone(),
            found,
            needed: needed.to_owned(),
        }
    }
}

type Reader = BaseConsumer<Quiet>;

/// What goes wrong here is told by the answer that does not come; on its way it is worth a word in detail only.
#[derive(Debug)]
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", %error, "{reason}");
    }

    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "kafka", facility, "{message}");
    }
}

impl ConsumerContext for Quiet {}

/// What became of the one record that was sent.
#[derive(Debug, Default)]
struct Receipt(Mutex<Option<Result<(), KafkaError>>>);

impl Receipt {
    fn taken(&self) -> Option<Result<(), KafkaError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for Receipt {
    fn error(&self, error: KafkaError, reason: &str) {
        Quiet.error(error, reason);
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Quiet.log(level, facility, message);
    }
}

impl ProducerContext for Receipt {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let result = result
            .as_ref()
            .map(drop)
            .map_err(|(error, _)| error.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

fn beginning_key(key: &str) -> String {
    format!("{key}#beginning")
}

/// How long to go on asking.
struct Patience<'a> {
    deadline: Instant,
    is_wanted: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    fn check(&self) -> Result<(), PublishError> {
        if Instant::now() < self.deadline && (self.is_wanted)() {
            return Ok(());
        }
        Err(PublishError::classify(Failure::new(
            Code::OperationTimedOut,
        )))
    }

    /// An error that may pass is forgiven until the deadline.
    fn forgive(&self, error: &KafkaError) -> Result<(), PublishError> {
        match failed(error) {
            PublishError::Permanent(failure) => Err(PublishError::Permanent(failure)),
            other => self.check().map_err(|_| other),
        }
    }

    fn ask<T>(
        &self,
        mut question: impl FnMut() -> Result<T, KafkaError>,
    ) -> Result<T, PublishError> {
        loop {
            match question() {
                Ok(answer) => return Ok(answer),
                Err(error) => self.forgive(&error)?,
            }
            thread::sleep(LOOK_GAP);
        }
    }
}

fn failed(error: &KafkaError) -> PublishError {
    let mut failure = Failure::new(error.rdkafka_error_code().unwrap_or(Code::Fail));
    failure.detail = Some(error.to_string().into());
    PublishError::classify(failure)
}

/// Time for the whole of it.
const READ_TIMEOUT: Duration = Duration::from_secs(25);

/// Time for one answer of a broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two looks.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// Replicas, where there are as many brokers and nothing else is configured.
const REPLICAS_WANTED: usize = 3;
