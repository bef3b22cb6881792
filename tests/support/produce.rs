//! An ordinary producer, for records that others than the connector have written.

use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

/// Sends one record at a time and waits for its acknowledgement.
pub struct Producer(FutureProducer);

/// A record with everything that can be said of it.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Partition of the topic.
    pub partition: i32,
    /// Key, `None` for a null key.
    pub key: Option<Vec<u8>>,
    /// Value, `None` for a null value.
    pub payload: Option<Vec<u8>>,
    /// Headers in their order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The record's own time.
    pub timestamp_ms: i64,
}

impl Producer {
    /// A producer that puts keys where Java does.
    ///
    /// # Errors
    /// The client refuses its settings.
    pub fn new(bootstrap: &str) -> Result<Self> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("partitioner", "murmur2_random")
            .create()
            .context("producer")?;
        Ok(Self(producer))
    }

    /// Sends key and value.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn send(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
    ) -> Result<()> {
        let mut record = FutureRecord::<[u8], [u8]>::to(topic);
        record.key = key;
        record.payload = payload;
        self.deliver(record).await
    }

    /// Sends a record as it is.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn send_record(&self, topic: &str, sent: &Sent) -> Result<()> {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &sent.headers {
            let value = value.as_deref();
            headers = headers.insert(Header { key, value });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(topic);
        record.partition = Some(sent.partition);
        record.key = sent.key.as_deref();
        record.payload = sent.payload.as_deref();
        record.timestamp = Some(sent.timestamp_ms);
        record.headers = Some(headers);
        self.deliver(record).await
    }

    async fn deliver(&self, record: FutureRecord<'_, [u8], [u8]>) -> Result<()> {
        let sent = self.0.send(record, TIMEOUT).await;
        sent.map_err(|(error, _)| error).context("produce")?;
        Ok(())
    }
}

/// For one acknowledgement, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
