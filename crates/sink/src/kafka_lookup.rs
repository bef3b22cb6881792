//! Lookups: how many partitions a topic has, asked on a thread of its own so that the publisher never waits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer as _};

use crate::error::Failure;
use crate::kafka_context::Context;
use crate::kafka_creation::Creation;

/// A question on its way; at most one at a time, since records wait for it in order.
#[derive(Debug)]
pub(crate) struct Lookup {
    topic: Box<str>,
    answer: Receiver<Answer>,
}

/// The number of partitions, nothing because nobody answered, or why the topic could not be created.
type Answer = Result<Option<usize>, Box<Failure>>;

/// What is known of a topic.
#[derive(Debug)]
pub(crate) enum Found {
    /// So many; 0 means that there is no such topic, or none that we may see.
    Partitions(usize),
    /// It does not exist, and could not be created.
    Refused(Box<Failure>),
    /// Ask again later.
    Waiting,
}

impl Lookup {
    /// Asks, or looks whether the answer has come. A question without an answer is asked anew.
    pub(crate) fn ask(
        lookup: &mut Option<Self>,
        topic: &str,
        client: &Arc<BaseProducer<Context>>,
        creation: Option<&Arc<Creation>>,
    ) -> Found {
        if let Some(asked) = lookup.as_ref().filter(|asked| *asked.topic == *topic) {
            match asked.answer.try_recv() {
                Err(TryRecvError::Empty) => return Found::Waiting,
                Ok(Ok(Some(count))) => {
                    *lookup = None;
                    return Found::Partitions(count);
                }
                Ok(Err(failure)) => {
                    *lookup = None;
                    return Found::Refused(failure);
                }
                Ok(Ok(None)) | Err(TryRecvError::Disconnected) => {}
            }
        }
        *lookup = Self::start(topic, Arc::clone(client), creation.map(Arc::clone));
        Found::Waiting
    }

    /// None if there is no thread to be had; the next call tries again.
    fn start(
        topic: &str,
        client: Arc<BaseProducer<Context>>,
        creation: Option<Arc<Creation>>,
    ) -> Option<Self> {
        let topic: Box<str> = topic.into();
        let (sender, answer) = sync_channel(1);
        let asked = topic.clone();
        thread::Builder::new()
            .name("kafka-topic".to_owned())
            // Nobody listening any more is no error: the client was replaced meanwhile.
            .spawn(move || {
                sender
                    .send(asked_for(&client, creation.as_deref(), &asked))
                    .is_ok()
            })
            .ok()?;
        Some(Self { topic, answer })
    }
}

/// Before the topic is asked for by its name: that alone would make a broker create it in its own way.
fn asked_for(client: &BaseProducer<Context>, creation: Option<&Creation>, topic: &str) -> Answer {
    match creation.map_or(Ok(true), |creation| creation.ensure(client, topic)) {
        Ok(true) => Ok(partition_count(client, topic)),
        Ok(false) => Ok(None),
        Err(failure) => Err(failure),
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
