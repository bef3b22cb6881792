//! Lookups: how many partitions a topic has, asked on a thread of its own so that the publisher never waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer as _};

use crate::kafka_context::Context;

/// A question on its way; at most one at a time, since records wait for it in order.
#[derive(Debug)]
pub(crate) struct Lookup {
    topic: Box<str>,
    answer: Receiver<Option<usize>>,
}

/// What is known of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// So many; 0 means that there is no such topic, or none that we may see.
    Partitions(usize),
    /// Ask again later.
    Waiting,
}

impl Lookup {
    /// Asks, or looks whether the answer has come. A question without an answer is asked anew.
    pub(crate) fn ask(
        lookup: &mut Option<Self>,
        topic: &str,
        client: &Arc<BaseProducer<Context>>,
    ) -> Found {
        if let Some(asked) = lookup.as_ref().filter(|asked| *asked.topic == *topic) {
            match asked.answer.try_recv() {
                Err(TryRecvError::Empty) => return Found::Waiting,
                Ok(Some(count)) => {
                    *lookup = None;
                    return Found::Partitions(count);
                }
                Ok(None) | Err(TryRecvError::Disconnected) => {}
            }
        }
        *lookup = Self::start(topic, Arc::clone(client));
        Found::Waiting
    }

    /// None if there is no thread to be had; the next call tries again.
    fn start(topic: &str, client: Arc<BaseProducer<Context>>) -> Option<Self> {
        let topic: Box<str> = topic.into();
        let (sender, answer) = sync_channel(1);
        let asked = topic.clone();
        thread::Builder::new()
            .name("kafka-topic".to_owned())
            // Nobody listening any more is no error: the client was replaced meanwhile.
            .spawn(move || sender.send(partition_count(&client, &asked)).is_ok())
            .ok()?;
        Some(Self { topic, answer })
    }
}

fn partition_count(client: &BaseProducer<Context>, topic: &str) -> Option<usize> {
    match client.client().fetch_metadata(Some(topic), METADATA_WAIT) {
        Ok(metadata) => {
            client.client().context().note_contact();
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            Some(found.map_or(0, |found| found.partitions().len()))
        }
        // No legal name: the client will refuse it.
        Err(KafkaError::Nul(_)) => Some(0),
        Err(_) => None,
    }
}

/// How long one question may take.
const METADATA_WAIT: Duration = Duration::from_secs(2);
