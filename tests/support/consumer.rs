//! An ordinary Kafka consumer that reads topics from their beginning and keeps every record.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};

/// One record as the broker keeps it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Topic it stands in.
    pub topic: String,
    /// Partition of the topic.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// The record's own time.
    pub timestamp_ms: Option<i64>,
    /// Key, `None` for a null key.
    pub key: Option<Vec<u8>>,
    /// Value, `None` for a null value.
    pub payload: Option<Vec<u8>>,
    /// Headers in their order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The event id from the `id` header, empty if there is none.
    pub fn id(&self) -> &str {
        self.header("id").unwrap_or_default()
    }

    /// The key as text, empty for a null key.
    pub fn key_text(&self) -> &str {
        self.key.as_deref().map_or("", text)
    }

    /// The value as text, `<null>` for a null value.
    pub fn payload_text(&self) -> &str {
        self.payload.as_deref().map_or("<null>", text)
    }

    /// The value of the first header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        value.as_deref().map(text)
    }

    fn from_message(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers
                .iter()
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect()
        });
        Self {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    /// A record for tests of the checker.
    #[cfg(test)]
    pub(crate) fn sample(id: &str, key: &str, partition: i32, offset: i64) -> Self {
        Self {
            topic: "topic".into(),
            partition,
            offset,
            timestamp_ms: None,
            key: Some(key.into()),
            payload: None,
            headers: vec![("id".into(), Some(id.into()))],
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("<not UTF-8>")
}

/// Reads every partition of its topics from the beginning, without a consumer group.
///
/// Everything read is kept, so each wait looks at the whole history of the topics.
pub struct Consumer {
    consumer: StreamConsumer,
    records: Vec<Record>,
    /// Offset after the last record read, for each partition.
    next: BTreeMap<(String, i32), i64>,
}

/// For one look at the broker's metadata or end offsets.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);

impl Consumer {
    /// Assigns all partitions of `topics`, which must exist.
    ///
    /// # Errors
    /// The broker does not answer or a topic does not exist.
    pub fn new(bootstrap: &str, topics: &[String]) -> Result<Self> {
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            // Only `assign` is used; the client demands a group name all the same.
            .set("group.id", "e2e-reader")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "20")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("reconnect.backoff.max.ms", "500")
            .set("allow.auto.create.topics", "false")
            .create()
            .context("consumer")?;
        let mut next = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for topic in topics {
            for partition in partitions(&consumer, topic)? {
                assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
                next.insert((topic.clone(), partition), 0);
            }
        }
        consumer.assign(&assignment)?;
        Ok(Self {
            consumer,
            records: Vec::new(),
            next,
        })
    }

    /// Everything read so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// How many distinct event ids were read so far.
    pub fn distinct(&self) -> usize {
        self.records
            .iter()
            .map(Record::id)
            .collect::<HashSet<_>>()
            .len()
    }

    /// Reads until `count` distinct event ids are there.
    ///
    /// # Errors
    /// Fewer came within the deadline.
    pub async fn wait_for_events(&mut self, count: usize, deadline: Duration) -> Result<&[Record]> {
        let mut seen: HashSet<String> = self
            .records
            .iter()
            .map(|record| record.id().to_owned())
            .collect();
        let end = Instant::now() + deadline;
        while seen.len() < count {
            match self.read_one(end).await? {
                Some(record) => seen.insert(record.id().to_owned()),
                None => bail!("read {} of {count} events within {deadline:?}", seen.len()),
            };
        }
        Ok(&self.records)
    }

    /// Reads until `count` records are there, whatever they carry.
    ///
    /// # Errors
    /// Fewer came within the deadline.
    pub async fn wait_for_records(
        &mut self,
        count: usize,
        deadline: Duration,
    ) -> Result<&[Record]> {
        let end = Instant::now() + deadline;
        while self.records.len() < count {
            if self.read_one(end).await?.is_none() {
                bail!(
                    "read {} of {count} records within {deadline:?}",
                    self.records.len()
                );
            }
        }
        Ok(&self.records)
    }

    /// Reads everything that stands in the topics at this moment, so that "no further record" is a fact and
    /// not a matter of waiting long enough.
    ///
    /// # Errors
    /// The broker does not tell the end of a partition, or does not hand out what it holds.
    pub async fn read_to_end(&mut self) -> Result<&[Record]> {
        let ends = tokio::task::block_in_place(|| self.ends())?;
        let deadline = Instant::now() + LOOK_TIMEOUT;
        while ends
            .iter()
            .any(|(place, end)| self.next.get(place).is_some_and(|next| next < end))
        {
            if self.read_one(deadline).await?.is_none() {
                bail!("the broker holds records that it does not hand out");
            }
        }
        Ok(&self.records)
    }

    /// Reads everything that is committed, once and for all: where transactions end, the log has offsets without a record,
    /// so the end is where the client says it is. For a consumer of which nothing was read, while nobody writes.
    ///
    /// # Errors
    /// The client does not come to the end of every partition.
    pub async fn read_committed_to_end(&mut self) -> Result<&[Record]> {
        let deadline = Instant::now() + LOOK_TIMEOUT;
        let mut open = self.next.len();
        while open > 0 {
            match tokio::time::timeout_at(deadline.into(), self.consumer.recv()).await {
                Ok(Ok(message)) => {
                    let record = Record::from_message(&message);
                    drop(message);
                    self.records.push(record);
                }
                Ok(Err(KafkaError::PartitionEOF(_))) => open -= 1,
                Ok(Err(_)) => tokio::task::yield_now().await,
                Err(_) => bail!("{open} partitions were not read to their end"),
            }
        }
        Ok(&self.records)
    }

    fn ends(&self) -> Result<BTreeMap<(String, i32), i64>> {
        self.next
            .keys()
            .map(|(topic, partition)| {
                let end = self.end(topic, *partition)?;
                Ok(((topic.clone(), *partition), end))
            })
            .collect()
    }

    /// After an outage the client may take a moment to know its partitions again.
    fn end(&self, topic: &str, partition: i32) -> Result<i64> {
        let deadline = Instant::now() + LOOK_TIMEOUT;
        loop {
            let marks = self
                .consumer
                .fetch_watermarks(topic, partition, Duration::from_secs(2));
            match marks {
                Ok((_, end)) => return Ok(end),
                Err(_) if Instant::now() < deadline => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("end of {topic}/{partition}"));
                }
            }
        }
    }

    async fn read_one(&mut self, end: Instant) -> Result<Option<&Record>> {
        // A broker that is down is a client-level error and not the end: the deadline decides.
        let message = loop {
            match tokio::time::timeout_at(end.into(), self.consumer.recv()).await {
                Ok(Ok(message)) => break message,
                Ok(Err(_)) => tokio::task::yield_now().await,
                Err(_) => return Ok(None),
            }
        };
        let record = Record::from_message(&message);
        drop(message);
        self.next.insert(
            (record.topic.clone(), record.partition),
            record.offset.saturating_add(1),
        );
        self.records.push(record);
        Ok(self.records.last())
    }
}

fn partitions(consumer: &StreamConsumer, topic: &str) -> Result<Vec<i32>> {
    let end = Instant::now() + LOOK_TIMEOUT;
    loop {
        let metadata =
            tokio::task::block_in_place(|| consumer.fetch_metadata(Some(topic), LOOK_TIMEOUT))?;
        let ids: Vec<i32> = metadata
            .topics()
            .iter()
            .flat_map(|topic| topic.partitions())
            .map(|partition| partition.id())
            .collect();
        // A topic that was just made is not known at once.
        if !ids.is_empty() {
            return Ok(ids);
        }
        if Instant::now() > end {
            bail!("topic {topic} does not exist");
        }
    }
}
