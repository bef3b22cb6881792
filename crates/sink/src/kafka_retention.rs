//! Retention: whether a topic gives up records because of newer ones.

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::error::{Failure, PublishError};
use crate::kafka_context::Context;
use crate::kafka_options::KafkaConfig;
use crate::kafka_reader::ANSWER_TIMEOUT;

/// Whether the brokers may remove records of the topic because of newer ones with the same key. Must run within tokio.
///
/// # Errors
///
/// Nobody answers, or the topic's configuration may not be read.
pub async fn is_compacted(config: &KafkaConfig, topic: &str) -> Result<bool, PublishError> {
    let admin: AdminClient<Context> = config
        .connection_config()
        .create_with_context(Context::new())
        .map_err(|error| failed(&error, topic))?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
    let policy = cleanup_policy(&admin, topic, &options).await?;
    Ok(policy.is_some_and(|policy| policy.split(',').any(|word| word.trim() == "compact")))
}

/// The topic's `cleanup.policy`: words with commas between them.
///
/// # Errors
///
/// As [`is_compacted`].
pub(crate) async fn cleanup_policy<C: ClientContext>(
    admin: &AdminClient<C>,
    topic: &str,
    options: &AdminOptions,
) -> Result<Option<String>, PublishError> {
    let asked = [ResourceSpecifier::Topic(topic)];
    let answered = admin.describe_configs(&asked, options).await;
    let mut answered = answered.map_err(|error| failed(&error, topic))?;
    match answered.pop() {
        Some(Ok(resource)) => Ok(resource
            .get("cleanup.policy")
            .and_then(|policy| policy.value.clone())),
        Some(Err(code)) => Err(failure(code, topic)),
        None => Err(failure(Code::Fail, topic)),
    }
}

fn failed(error: &KafkaError, topic: &str) -> PublishError {
    failure(error.rdkafka_error_code().unwrap_or(Code::Fail), topic)
}

fn failure(code: Code, topic: &str) -> PublishError {
    let mut failure = Failure::new(code);
    failure.topic = Some(topic.into());
    PublishError::classify(failure)
}
