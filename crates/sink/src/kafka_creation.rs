//! Creation: topics that do not exist are made as the configuration says, before their first record.

use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use router::connect::{TopicGroup, TopicGroups};

use crate::error::{Failure, KafkaConfigError};
use crate::kafka_context::Context;
use crate::kafka_options::{KafkaConfig, config_error};

/// Creates topics. A topic that exists is never touched, whatever its partitions and options.
///
/// All calls block, so they are made on the thread of a [`Lookup`](crate::kafka_lookup::Lookup).
pub(crate) struct Creation {
    options: ClientConfig,
    groups: TopicGroups,
    /// Names of topics that exist, as they were last listed.
    listed: Mutex<HashSet<String>>,
}

impl Creation {
    /// `None` if the configuration creates no topics.
    ///
    /// # Errors
    /// The options or the patterns are refused; both have been tried before.
    pub(crate) fn new(config: &KafkaConfig) -> Result<Option<Self>, KafkaConfigError> {
        if config.topic_creation.is_empty() {
            return Ok(None);
        }
        let groups = TopicGroups::new(&config.topic_creation);
        let groups = groups.map_err(|error| KafkaConfigError::Client {
            reason: error.to_string(),
        })?;
        Ok(Some(Self {
            options: config.client_config()?,
            groups,
            listed: Mutex::new(HashSet::new()),
        }))
    }

    /// Makes sure that a topic exists, unless no group takes it. False: nobody answered, ask again.
    ///
    /// # Errors
    /// The brokers refuse to create it.
    pub(crate) fn ensure(
        &self,
        client: &BaseProducer<Context>,
        topic: &str,
    ) -> Result<bool, Box<Failure>> {
        let Some(group) = self.groups.group_of(topic) else {
            return Ok(true);
        };
        match self.exists(client, topic) {
            Some(true) => Ok(true),
            Some(false) => self.create(topic, group),
            None => Ok(false),
        }
    }

    /// Lists all topics when this one is not among those listed before. To ask for it alone would create it.
    fn exists(&self, client: &BaseProducer<Context>, topic: &str) -> Option<bool> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.contains(topic) {
            return Some(true);
        }
        let metadata = client.client().fetch_metadata(None, ANSWER_WAIT).ok()?;
        let names = metadata
            .topics()
            .iter()
            .map(|topic| topic.name().to_owned());
        *listed = names.collect();
        Some(listed.contains(topic))
    }

    fn create(&self, topic: &str, group: &TopicGroup) -> Result<bool, Box<Failure>> {
        let refused = |code, because: &str| {
            let mut failure = Failure::new(code);
            failure.topic = Some(topic.into());
            failure.detail = Some(
                format!(
                    "the topic does not exist, and could not be created as topic_creation group `{}` says \
                     (partitions {}, replication factor {}, {} options){because}",
                    group.name,
                    group.partitions,
                    group.replication_factor,
                    group.options.len(),
                )
                .into(),
            );
            Box::new(failure)
        };
        let mut options = self.options.clone();
        // A client of the administration has no transactions, and must not fence those of the producer.
        options.remove("transactional.id");
        let admin: AdminClient<Context> = options
            .create_with_context(Context::new())
            .map_err(|error| refused(Code::Fail, &format!(": {}", config_error(error))))?;
        let replication = TopicReplication::Fixed(group.replication_factor.into());
        let mut new = NewTopic::new(topic, group.partitions, replication);
        for (name, value) in &group.options {
            new = new.set(name, value);
        }
        let wait = AdminOptions::new()
            .request_timeout(Some(ANSWER_WAIT))
            .operation_timeout(Some(ANSWER_WAIT));
        let created = block_on(admin.create_topics([&new], &wait), ANSWER_WAIT * 2);
        let Some(Ok(answers)) = created else {
            // The request itself: a timeout, or a connection lost. It may even have been carried out.
            return Ok(false);
        };
        match answers.into_iter().next() {
            // Somebody else was faster: then it is theirs.
            None | Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => Ok(true),
            Some(Err((_, Code::RequestTimedOut | Code::OperationTimedOut))) => Ok(false),
            Some(Err((_, code))) => Err(refused(code, "")),
        }
    }
}

impl fmt::Debug for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creation")
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// Waits on this thread for a future that another one completes; `None` after `timeout`.
pub(crate) fn block_on<T>(future: impl Future<Output = T>, timeout: Duration) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = pin!(future);
    let deadline = Instant::now() + timeout;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How long one question to the brokers may take.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
