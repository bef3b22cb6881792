//! Scanning: a topic read once, from a place in it to its present end, outside any consumer group.

use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::error::{Failure, PublishError};
use crate::kafka_options::KafkaConfig;

/// A topic as it was when the scan was opened: where each partition begins and ends.
///
/// Invariants: nothing is committed and no group is joined, so nobody else's consumption is disturbed; records of aborted
/// transactions are not shown; what is written after the opening is not read.
pub struct TopicScan {
    consumer: BaseConsumer,
    topic: Box<str>,
    extents: Vec<Extent>,
}

/// One partition's stretch of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The partition.
    pub partition: i32,
    /// The earliest offset that is still kept.
    pub low: i64,
    /// The offset after the newest.
    pub high: i64,
}

/// One record of a scan.
#[derive(Debug)]
pub struct Scanned<'a>(&'a BorrowedMessage<'a>);

impl Scanned<'_> {
    /// The value of the first header of this name; `None` if there is none, or if it is null.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let headers = self.0.headers()?;
        headers
            .iter()
            .find(|header| header.key == name)
            .and_then(|header| header.value)
    }

    /// Milliseconds since 1970-01-01 UTC, by whatever clock the topic goes.
    #[must_use]
    pub fn timestamp_ms(&self) -> Option<i64> {
        self.0.timestamp().to_millis()
    }
}

impl TopicScan {
    /// Looks where the topic begins and ends; `None` if there is no such topic. Blocks.
    ///
    /// # Errors
    ///
    /// The settings are wrong, no broker answers, or the topic may not be described.
    pub fn open(config: &KafkaConfig, topic: &str) -> Result<Option<Self>, PublishError> {
        let consumer: BaseConsumer = consumer_config(config)
            .create()
            .map_err(|error| failed(&error, topic))?;
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER_WAIT);
        let metadata = metadata.map_err(|error| failed(&error, topic))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let partitions: Vec<i32> = found.map_or_else(Vec::new, |found| {
            let partitions = found.partitions().iter();
            partitions.map(|partition| partition.id()).collect()
        });
        if partitions.is_empty() {
            return Ok(None);
        }
        let mut extents = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let (low, high) = consumer
                .fetch_watermarks(topic, partition, ANSWER_WAIT)
                .map_err(|error| failed(&error, topic))?;
            extents.push(Extent {
                partition,
                low,
                high,
            });
        }
        Ok(Some(Self {
            consumer,
            topic: topic.into(),
            extents,
        }))
    }

    /// Where each partition began and ended at the opening.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The latest of the partitions' earliest kept times: what is older may have been deleted. `None` if nothing was ever
    /// deleted; [`i64::MAX`] where a partition has lost records and has none left to tell the time. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn kept_since_ms(&self) -> Result<Option<i64>, PublishError> {
        let cut = self.extents.iter().filter(|extent| extent.low > 0);
        let (emptied, cut): (Vec<_>, Vec<_>) =
            cut.copied().partition(|extent| extent.low >= extent.high);
        if !emptied.is_empty() {
            return Ok(Some(i64::MAX));
        }
        let mut since = None;
        for extent in cut {
            let first = Extent {
                high: extent.low.saturating_add(1),
                ..extent
            };
            let mut at = i64::MAX;
            self.read(&[(first, first.low)], &mut |record| {
                at = record.timestamp_ms().unwrap_or(i64::MAX);
            })?;
            since = since.max(Some(at));
        }
        Ok(since)
    }

    /// Reads every record that was there at the opening, or only those from the first with a timestamp of at least `from_ms`
    /// in its partition. Partitions come mixed, each in its order. Blocks.
    ///
    /// # Errors
    ///
    /// Brokers that stay silent for a minute, or records that were deleted meanwhile.
    pub fn each(
        &self,
        from_ms: Option<i64>,
        on_record: &mut dyn FnMut(&Scanned<'_>),
    ) -> Result<(), PublishError> {
        let mut stretches = Vec::with_capacity(self.extents.len());
        for extent in self
            .extents
            .iter()
            .filter(|extent| extent.low < extent.high)
        {
            stretches.push((*extent, extent.low));
        }
        if let Some(from_ms) = from_ms.filter(|_| !stretches.is_empty()) {
            self.move_to(from_ms, &mut stretches)?;
        }
        self.read(&stretches, on_record)
    }

    /// Moves each stretch's beginning to the first record that is not older.
    fn move_to(
        &self,
        from_ms: i64,
        stretches: &mut Vec<(Extent, i64)>,
    ) -> Result<(), PublishError> {
        let mut asked = TopicPartitionList::new();
        for (extent, _) in stretches.iter() {
            asked
                .add_partition_offset(&self.topic, extent.partition, Offset::Offset(from_ms))
                .map_err(|error| failed(&error, &self.topic))?;
        }
        let answered = self
            .consumer
            .offsets_for_times(asked, ANSWER_WAIT)
            .map_err(|error| failed(&error, &self.topic))?;
        for (extent, from) in stretches.iter_mut() {
            let found = answered.find_partition(&self.topic, extent.partition);
            *from = match found.map(|found| found.offset()) {
                Some(Offset::Offset(offset)) => offset.max(extent.low),
                Some(Offset::End) => extent.high,
                _ => extent.low,
            };
        }
        stretches.retain(|(extent, from)| *from < extent.high);
        Ok(())
    }

    fn read(
        &self,
        stretches: &[(Extent, i64)],
        on_record: &mut dyn FnMut(&Scanned<'_>),
    ) -> Result<(), PublishError> {
        let mut assigned = TopicPartitionList::new();
        for (extent, from) in stretches {
            assigned
                .add_partition_offset(&self.topic, extent.partition, Offset::Offset(*from))
                .map_err(|error| failed(&error, &self.topic))?;
        }
        self.consumer
            .assign(&assigned)
            .map_err(|error| failed(&error, &self.topic))?;
        let mut left: Vec<Extent> = stretches.iter().map(|(extent, _)| *extent).collect();
        let mut heard_at = Instant::now();
        while !left.is_empty() {
            match self.consumer.poll(POLL_WAIT) {
                Some(Ok(message)) => {
                    let at = (message.partition(), message.offset());
                    if left.iter().any(|extent| extent.holds(at)) {
                        on_record(&Scanned(&message));
                    }
                    left.retain(|extent| !extent.ends_at(at));
                    heard_at = Instant::now();
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    left.retain(|extent| extent.partition != partition);
                }
                Some(Err(error)) if !passes(&error) => return Err(failed(&error, &self.topic)),
                Some(Err(_)) | None if heard_at.elapsed() < SILENCE_MAX => {}
                Some(Err(_)) | None => {
                    return Err(failure(Code::OperationTimedOut, None, &self.topic));
                }
            }
        }
        Ok(())
    }
}

impl Extent {
    fn holds(&self, (partition, offset): (i32, i64)) -> bool {
        self.partition == partition && offset < self.high
    }

    /// The last offsets may be markers of transactions, which are never shown; then the end of the partition says it.
    fn ends_at(&self, (partition, offset): (i32, i64)) -> bool {
        self.partition == partition && offset + 1 >= self.high
    }
}

/// Whether the brokers may remove records of the topic because of newer ones with the same key. Must run within tokio.
///
/// # Errors
///
/// Nobody answers, or the topic's configuration may not be read.
pub async fn is_compacted(config: &KafkaConfig, topic: &str) -> Result<bool, PublishError> {
    let admin: AdminClient<DefaultClientContext> = consumer_config(config)
        .create()
        .map_err(|error| failed(&error, topic))?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER_WAIT));
    let asked = [ResourceSpecifier::Topic(topic)];
    let answered = admin.describe_configs(&asked, &options).await;
    let mut answered = answered.map_err(|error| failed(&error, topic))?;
    let resource = match answered.pop() {
        Some(Ok(resource)) => resource,
        Some(Err(code)) => return Err(failure(code, None, topic)),
        None => return Err(failure(Code::Fail, None, topic)),
    };
    let policy = resource.get("cleanup.policy");
    Ok(policy
        .and_then(|policy| policy.value.as_deref())
        .is_some_and(|policy| policy.split(',').any(|word| word.trim() == "compact")))
}

/// The connection's settings as the user gave them for the producer, and nothing of the producer's own.
fn consumer_config(config: &KafkaConfig) -> ClientConfig {
    let mut options = ClientConfig::new();
    options.set("bootstrap.servers", &config.brokers);
    options.set("client.id", &config.client_id);
    for (name, value) in &config.properties {
        if OF_ANY_CLIENT.iter().any(|prefix| name.starts_with(prefix)) {
            options.set(name, value);
        }
    }
    for (name, value) in OPTIONS {
        options.set(*name, *value);
    }
    options
}

/// What the client goes on from by itself.
fn passes(error: &KafkaError) -> bool {
    // Partitions are assigned by hand, so what the group's coordinator thinks does not matter.
    let passing = [
        Code::GroupAuthorizationFailed,
        Code::BrokerTransportFailure,
        Code::AllBrokersDown,
        Code::Resolve,
        Code::OperationTimedOut,
    ];
    error
        .rdkafka_error_code()
        .is_some_and(|code| passing.contains(&code))
}

fn failed(error: &KafkaError, topic: &str) -> PublishError {
    let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
    failure(code, Some(error.to_string()), topic)
}

fn failure(code: Code, detail: Option<String>, topic: &str) -> PublishError {
    let mut failure = Failure::new(code);
    failure.topic = Some(topic.into());
    failure.detail = detail.map(Into::into);
    PublishError::classify(failure)
}

impl fmt::Debug for TopicScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicScan")
            .field("topic", &self.topic)
            .field("extents", &self.extents)
            .finish_non_exhaustive()
    }
}

const OPTIONS: &[(&str, &str)] = &[
    // The client wants a name; nothing is ever stored under it.
    ("group.id", "posthaste-scan"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("enable.partition.eof", "true"),
    ("auto.offset.reset", "error"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    // Bounds what lies between the client and us.
    ("queued.max.messages.kbytes", "16384"),
];

/// Beginnings of the properties that concern the connection, whatever it is for.
const OF_ANY_CLIENT: &[&str] = &[
    "security.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "broker.",
    "api.version.",
    "reconnect.",
    "connections.",
    "client.dns.",
    "client.rack",
    "debug",
    "log",
];

/// How long one question to the brokers may take.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long one look for records takes at most.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// How long no record and no end may come.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_ends_at_the_last_offset_of_the_opening() {
        let extent = Extent {
            partition: 1,
            low: 3,
            high: 10,
        };
        assert!(extent.holds((1, 9)) && extent.ends_at((1, 9)));
        assert!(extent.holds((1, 8)) && !extent.ends_at((1, 8)));
        assert!(!extent.holds((1, 10)) && extent.ends_at((1, 10)));
        assert!(!extent.holds((2, 5)) && !extent.ends_at((2, 9)));
    }

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
        let options = consumer_config(&config);
        assert_eq!(options.get("sasl.username"), Some("u"));
        assert_eq!(options.get("ssl.ca.location"), Some("/ca"));
        assert_eq!(options.get("linger.ms"), None);
        assert_eq!(options.get("isolation.level"), Some("read_committed"));
    }
}
