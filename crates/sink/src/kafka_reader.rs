//! A reader of topics for commands: one partition at a time, between two offsets, without a consumer group's bookkeeping.

use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use crate::error::KafkaConfigError;
use crate::kafka_options::{KafkaConfig, config_error};

/// Reads committed records. Blocks, each call for 20 seconds at most.
///
/// Invariant: nothing is written to the cluster, no topic and no group's offset.
pub struct TopicReader {
    consumer: BaseConsumer,
    reading: Option<Reading>,
}

/// A record as the broker keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its place in the partition.
    pub offset: i64,
    /// Its time, of whichever kind the topic has.
    pub timestamp_ms: Option<i64>,
    /// `None` for a null key.
    pub key: Option<Vec<u8>>,
    /// `None` for a null value.
    pub payload: Option<Vec<u8>>,
    /// In their order; names may repeat.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Why a topic could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ReadTopicError {
    /// Topic and partition, or the cluster.
    pub what: String,
    /// The client's words.
    pub reason: String,
}

/// The partition that is being read.
#[derive(Debug)]
struct Reading {
    what: String,
    until: i64,
}

impl TopicReader {
    /// A reader with the connection settings of a producer's configuration.
    ///
    /// # Errors
    ///
    /// See [`KafkaConfigError`].
    pub fn new(config: &KafkaConfig) -> Result<Self, KafkaConfigError> {
        // What is wrong with the properties is told as for a producer.
        config.client_config()?;
        Ok(Self {
            consumer: reader_config(config).create().map_err(config_error)?,
            reading: None,
        })
    }

    /// All topics with their number of partitions, by name.
    ///
    /// # Errors
    ///
    /// No broker answers.
    pub fn topics(&self) -> Result<Vec<(String, i32)>, ReadTopicError> {
        let metadata = self.consumer.fetch_metadata(None, ANSWER_TIMEOUT);
        let metadata = metadata.map_err(failed("the cluster"))?;
        let topics = metadata.topics().iter();
        let mut topics: Vec<_> = topics
            .map(|topic| (topic.name().to_owned(), count(topic.partitions().len())))
            .collect();
        topics.sort_unstable();
        Ok(topics)
    }

    /// The number of partitions of a topic; 0 if it does not exist, or may not be seen.
    ///
    /// # Errors
    ///
    /// No broker answers.
    pub fn partitions(&self, topic: &str) -> Result<i32, ReadTopicError> {
        let metadata = self.consumer.fetch_metadata(Some(topic), ANSWER_TIMEOUT);
        let metadata = metadata.map_err(failed(topic))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        Ok(found.map_or(0, |found| count(found.partitions().len())))
    }

    /// The first offset and the one after the last.
    ///
    /// # Errors
    ///
    /// The partition's leader does not answer.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<(i64, i64), ReadTopicError> {
        self.consumer
            .fetch_watermarks(topic, partition, ANSWER_TIMEOUT)
            .map_err(failed(&place(topic, partition)))
    }

    /// The first offset whose record is not older than this time; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The partition's leader does not answer.
    pub fn offset_at(
        &self,
        topic: &str,
        partition: i32,
        timestamp_ms: i64,
    ) -> Result<Option<i64>, ReadTopicError> {
        let what = place(topic, partition);
        let mut asked = TopicPartitionList::new();
        asked
            .add_partition_offset(topic, partition, Offset::Offset(timestamp_ms))
            .map_err(failed(&what))?;
        let found = self.consumer.offsets_for_times(asked, ANSWER_TIMEOUT);
        let found = found.map_err(failed(&what))?;
        match found.elements().first().map(|element| element.offset()) {
            Some(Offset::Offset(offset)) => Ok(Some(offset)),
            _ => Ok(None),
        }
    }

    /// Begins to read a partition at `from`; [`next_record`](Self::next_record) ends before `until`.
    ///
    /// # Errors
    ///
    /// The client refuses.
    pub fn read(
        &mut self,
        topic: &str,
        partition: i32,
        from: i64,
        until: i64,
    ) -> Result<(), ReadTopicError> {
        let what = place(topic, partition);
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(topic, partition, Offset::Offset(from))
            .and_then(|()| self.consumer.assign(&assignment))
            .map_err(failed(&what))?;
        self.reading = (from < until).then_some(Reading { what, until });
        Ok(())
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Nothing came for 20 seconds, or the broker refuses.
    pub fn next_record(&mut self) -> Result<Option<ReadRecord>, ReadTopicError> {
        let Some(reading) = &self.reading else {
            return Ok(None);
        };
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut last_error = None;
        while Instant::now() < deadline {
            match self.consumer.poll(POLL_STEP) {
                None => {}
                Some(Ok(message)) if message.offset() < reading.until => {
                    return Ok(Some(ReadRecord::of(&message)));
                }
                // Transactions' own marks and what compaction removed leave no record before the end.
                Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => {
                    self.reading = None;
                    return Ok(None);
                }
                Some(Err(error)) if is_lasting(&error) => return Err(failed(&reading.what)(error)),
                Some(Err(error)) => last_error = Some(error),
            }
        }
        Err(last_error.map_or_else(
            || ReadTopicError {
                what: reading.what.clone(),
                reason: "no broker answers".to_owned(),
            },
            failed(&reading.what),
        ))
    }
}

impl ReadRecord {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            let owned = |header: rdkafka::message::Header<'_, &[u8]>| {
                (header.key.to_owned(), header.value.map(<[u8]>::to_vec))
            };
            headers.iter().map(owned).collect()
        });
        Self {
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    /// The bytes it holds.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len))
            .sum();
        self.key.as_ref().map_or(0, Vec::len) + self.payload.as_ref().map_or(0, Vec::len) + headers
    }
}

/// Shows sizes only, as with the records of the other direction.
impl fmt::Debug for ReadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRecord")
            .field("offset", &self.offset)
            .field("byte_len", &self.byte_len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TopicReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicReader")
            .field("reading", &self.reading)
            .finish_non_exhaustive()
    }
}

/// The connection's settings as the user gave them for the producer, and nothing of the producer's own.
pub(crate) fn reader_config(config: &KafkaConfig) -> ClientConfig {
    let mut options = config.connection_config();
    for (name, value) in OPTIONS {
        options.set(*name, *value);
    }
    options
}

fn place(topic: &str, partition: i32) -> String {
    format!("{topic}, partition {partition}")
}

fn count(partitions: usize) -> i32 {
    i32::try_from(partitions).unwrap_or(i32::MAX)
}

fn failed(what: &str) -> impl Fn(KafkaError) -> ReadTopicError {
    move |error| ReadTopicError {
        what: what.to_owned(),
        reason: error
            .rdkafka_error_code()
            .map_or_else(|| error.to_string(), |code| code.to_string()),
    }
}

/// What will not be better in a moment. Others, such as a broker that is away, are waited for.
fn is_lasting(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::TopicAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::SaslAuthenticationFailed
                | Code::Authentication
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::UnknownTopicOrPartition
                | Code::AutoOffsetReset
        )
    )
}

const OPTIONS: &[(&str, &str)] = &[
    // Never joined: the client wants a name before it assigns partitions by hand.
    ("group.id", "posthaste-reader"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // Records that are gone are told, not passed over.
    ("auto.offset.reset", "error"),
    ("enable.partition.eof", "true"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    ("fetch.wait.max.ms", "50"),
    // Memory is bounded by this and by the largest record.
    ("queued.max.messages.kbytes", "16384"),
];

/// How long one answer is waited for.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

const POLL_STEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_has_the_connections_settings_and_none_of_the_producers() {
        let config = KafkaConfig {
            brokers: "a:9092".to_owned(),
            properties: [
                ("sasl.username", "u"),
                ("linger.ms", "5"),
                ("ssl.ca.location", "/ca"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..KafkaConfig::default()
        };
        let options = reader_config(&config);
        assert_eq!(options.get("sasl.username"), Some("u"));
        assert_eq!(options.get("ssl.ca.location"), Some("/ca"));
        assert_eq!(options.get("linger.ms"), None);
        assert_eq!(options.get("isolation.level"), Some("read_committed"));
    }
}
