//! Retention: whether a topic gives up records because of newer ones.

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::error::{Failure, PublishError};
use crate::kafka_context::Context;
use crate::kafka_options::KafkaConfig;
use crate::kafka_reader::{ANSWER_TIMEOUT, reader_config};

/// Whether the brokers may remove records of the topic because of newer ones with the same key. Must run within tokio.
///
/// # Errors
///
/// Nobody answers, or the topic's configuration may not be read.
pub async fn is_compacted(config: &KafkaConfig, topic: &str) -> Result<bool, PublishError> {
    let admin: AdminClient<Context> = reader_config(config)
        .create_with_context(Context::new())
        .map_err(|error| failed(&error, topic))?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
    let asked = [ResourceSpecifier::Topic(topic)];
    let answered = admin.describe_configs(&asked, &options).await;
    let mut answered = answered.map_err(|error| failed(&error, topic))?;
    let resource = match answered.pop() {
        Some(Ok(resource)) => resource,
        Some(Err(code)) => return Err(failure(code, topic)),
        None => return Err(failure(Code::Fail, topic)),
    };
    let policy = resource.get("cleanup.policy");
    Ok(policy
        .and_then(|policy| policy.value.as_deref())
        .is_some_and(|policy| policy.split(',').any(|word| word.trim() == "compact")))
}

fn failed(error: &KafkaError, topic: &str) -> PublishError {
    failure(error.rdkafka_error_code().unwrap_or(Code::Fail), topic)
}

fn failure(code: Code, topic: &str) -> PublishError {
    let mut failure = Failure::new(code);
    failure.topic = Some(topic.into());
    PublishError::classify(failure)
}
