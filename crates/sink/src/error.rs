//! Errors of publishing, by what the caller can do; the one place that knows what each Kafka code means for us.

use std::fmt;

use rdkafka::types::RDKafkaErrorCode as Code;

/// Why records were not published. Whatever the variant, nothing is lost: the position stays before them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It may work later: restart after a pause.
    #[error("Kafka did not take a record, but may take it later")]
    Retriable(#[source] Box<Failure>),
    /// It will not work again with this record, these rights or these settings: somebody has to do something.
    #[error("Kafka will not take a record as it is")]
    Permanent(#[source] Box<Failure>),
    /// The client is at its end: restart at once, which builds a new one.
    #[error("the Kafka client cannot go on and must be replaced")]
    Fatal(#[source] Box<Failure>),
}

impl PublishError {
    /// The details.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Retriable(failure) | Self::Permanent(failure) | Self::Fatal(failure) => failure,
        }
    }

    /// The error of a code by librdkafka's name, such as `MSG_SIZE_TOO_LARGE`: for producers that are not librdkafka.
    /// `None` if there is no such code.
    #[must_use]
    pub fn from_code(name: &str) -> Option<Self> {
        let (code, ..) = CODES.iter().find(|(_, listed, _)| *listed == name)?;
        Some(Self::classify(Failure::new(*code)))
    }

    /// Classifies by the code alone.
    pub(crate) fn classify(failure: Failure) -> Self {
        let class = known(failure.code).map_or(Class::Retriable, |(_, class)| class);
        let failure = Box::new(failure);
        match class {
            Class::Retriable => Self::Retriable(failure),
            Class::Permanent => Self::Permanent(failure),
            Class::Fatal | Class::Consequence => Self::Fatal(failure),
        }
    }

    /// Whether it only says that something else went wrong before.
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(known(self.failure().code), Some((_, Class::Consequence)))
    }

    /// Whether it is nearer to the cause. Among records that were too large together, that is the largest.
    pub(crate) fn tells_more_than(&self, other: &Self) -> bool {
        let (mine, others) = (self.failure(), other.failure());
        self.rank() > other.rank()
            || (mine.code == Code::MessageSizeTooLarge
                && others.code == Code::MessageSizeTooLarge
                && mine.size_bytes > others.size_bytes)
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Permanent(_) => 3,
            Self::Retriable(_) => 2,
            Self::Fatal(_) if !self.is_consequence() => 1,
            Self::Fatal(_) => 0,
        }
    }
}

/// What is known about a failure: names, positions and sizes, never a key or a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    pub(crate) code: Code,
    /// Whether our own client refused it before it was enqueued.
    pub(crate) refused_locally: bool,
    /// The topic, if it concerns one record.
    pub topic: Option<Box<str>>,
    /// The record's `id` header as text, cut at 128 bytes.
    pub event_id: Option<Box<str>>,
    /// The record's size: key, payload and headers.
    pub size_bytes: Option<u64>,
    /// The record's ticket.
    pub ticket: Option<u64>,
    /// The client's own words, where it has more to say than the code.
    pub detail: Option<Box<str>>,
}

impl Failure {
    pub(crate) fn new(code: Code) -> Self {
        Self {
            code,
            refused_locally: false,
            topic: None,
            event_id: None,
            size_bytes: None,
            ticket: None,
            detail: None,
        }
    }

    /// librdkafka's name of the code, such as `MSG_SIZE_TOO_LARGE`. The client's own begin with an underscore.
    #[must_use]
    pub fn code(&self) -> &'static str {
        known(self.code).map_or("UNLISTED", |(name, _)| name)
    }

    /// Whether a broker said so; otherwise it was our own client.
    #[must_use]
    pub fn is_from_broker(&self) -> bool {
        // The client refuses what is plainly too large before sending it, with the broker's code.
        self.code as i32 > 0 && !self.refused_locally
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match known(self.code) {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "{:?}", self.code)?,
        }
        if let Some(topic) = &self.topic {
            write!(f, ", topic {topic}")?;
        }
        if let Some(event_id) = &self.event_id {
            write!(f, ", event {event_id}")?;
        }
        if let Some(size_bytes) = self.size_bytes {
            write!(f, ", {size_bytes} bytes")?;
        }
        if self.refused_locally {
            f.write_str(" (refused by our own client)")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Why a Kafka client could not be made from its configuration. Values of secret properties are never shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaConfigError {
    /// Remove the property: the guarantee depends on it, or another key of ours sets it.
    #[error("Kafka property `{name}` cannot be set: {reason}")]
    NotAllowed {
        /// The property.
        name: String,
        /// Why not, and what to use instead.
        reason: &'static str,
    },
    /// Correct the name.
    #[error("unknown Kafka property `{name}`{}", suggest(.suggestion.as_deref()))]
    Unknown {
        /// The property as written.
        name: String,
        /// A known one that looks like it.
        suggestion: Option<&'static str>,
    },
    /// Correct the value.
    #[error("Kafka property `{name}` has a value that the client does not take{}", because(.reason.as_deref()))]
    Invalid {
        /// The property.
        name: String,
        /// The client's words, unless they could show a secret.
        reason: Option<String>,
    },
    /// The properties do not fit together, or a file they name cannot be used.
    #[error("the Kafka client cannot be created: {reason}")]
    Client {
        /// The client's words.
        reason: String,
    },
}

fn suggest(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// What a code means for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Retriable,
    Permanent,
    Fatal,
    /// Fatal, and the cause is told by another failure.
    Consequence,
}

fn known(code: Code) -> Option<(&'static str, Class)> {
    CODES
        .iter()
        .find(|(listed, ..)| *listed == code)
        .map(|(_, name, class)| (*name, *class))
}

/// Every code that can reach us, with librdkafka's name. What is not listed is taken as retriable: trying again is
/// visible and loses nothing, while stopping for something that would have passed does harm.
const CODES: &[(Code, &str, Class)] = &[
    // The record itself, or its destination, is wrong.
    (
        Code::MessageSizeTooLarge,
        "MSG_SIZE_TOO_LARGE",
        Class::Permanent,
    ),
    (
        Code::MessageBatchTooLarge,
        "RECORD_LIST_TOO_LARGE",
        Class::Permanent,
    ),
    (
        Code::InvalidMessageSize,
        "INVALID_MSG_SIZE",
        Class::Permanent,
    ),
    (Code::InvalidTopic, "TOPIC_EXCEPTION", Class::Permanent),
    (Code::InvalidRecord, "INVALID_RECORD", Class::Permanent),
    (
        Code::InvalidTimestamp,
        "INVALID_TIMESTAMP",
        Class::Permanent,
    ),
    (Code::PolicyViolation, "POLICY_VIOLATION", Class::Permanent),
    (
        Code::UnknownPartition,
        "_UNKNOWN_PARTITION",
        Class::Permanent,
    ),
    (Code::InvalidArgument, "_INVALID_ARG", Class::Permanent),
    // What a topic would be created with. Brokers may come that make up for a missing replica.
    (
        Code::InvalidPartitions,
        "INVALID_PARTITIONS",
        Class::Permanent,
    ),
    (Code::InvalidConfig, "INVALID_CONFIG", Class::Permanent),
    (
        Code::InvalidReplicationFactor,
        "INVALID_REPLICATION_FACTOR",
        Class::Retriable,
    ),
    // Rights, credentials and settings.
    (
        Code::TopicAuthorizationFailed,
        "TOPIC_AUTHORIZATION_FAILED",
        Class::Permanent,
    ),
    (
        Code::ClusterAuthorizationFailed,
        "CLUSTER_AUTHORIZATION_FAILED",
        Class::Permanent,
    ),
    (
        Code::TransactionalIdAuthorizationFailed,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        Class::Permanent,
    ),
    (
        Code::SaslAuthenticationFailed,
        "SASL_AUTHENTICATION_FAILED",
        Class::Permanent,
    ),
    (Code::Authentication, "_AUTHENTICATION", Class::Permanent),
    (
        Code::UnsupportedSASLMechanism,
        "UNSUPPORTED_SASL_MECHANISM",
        Class::Permanent,
    ),
    (
        Code::IllegalSASLState,
        "ILLEGAL_SASL_STATE",
        Class::Permanent,
    ),
    (
        Code::SecurityDisabled,
        "SECURITY_DISABLED",
        Class::Permanent,
    ),
    (
        Code::InvalidRequiredAcks,
        "INVALID_REQUIRED_ACKS",
        Class::Permanent,
    ),
    (
        Code::UnsupportedCompressionType,
        "UNSUPPORTED_COMPRESSION_TYPE",
        Class::Permanent,
    ),
    (
        Code::UnsupportedForMessageFormat,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        Class::Permanent,
    ),
    (
        Code::UnsupportedVersion,
        "UNSUPPORTED_VERSION",
        Class::Permanent,
    ),
    (
        Code::UnsupportedFeature,
        "_UNSUPPORTED_FEATURE",
        Class::Permanent,
    ),
    // Brokers that are away, busy or changing places. A topic may be created later, and a client that once saw it
    // missing goes on refusing it: the restart builds a new one.
    (
        Code::UnknownTopicOrPartition,
        "UNKNOWN_TOPIC_OR_PART",
        Class::Retriable,
    ),
    (Code::UnknownTopic, "_UNKNOWN_TOPIC", Class::Retriable),
    (
        Code::LeaderNotAvailable,
        "LEADER_NOT_AVAILABLE",
        Class::Retriable,
    ),
    (
        Code::NotLeaderForPartition,
        "NOT_LEADER_FOR_PARTITION",
        Class::Retriable,
    ),
    (Code::RequestTimedOut, "REQUEST_TIMED_OUT", Class::Retriable),
    (
        Code::BrokerNotAvailable,
        "BROKER_NOT_AVAILABLE",
        Class::Retriable,
    ),
    (
        Code::ReplicaNotAvailable,
        "REPLICA_NOT_AVAILABLE",
        Class::Retriable,
    ),
    (
        Code::NetworkException,
        "NETWORK_EXCEPTION",
        Class::Retriable,
    ),
    (
        Code::CoordinatorLoadInProgress,
        "COORDINATOR_LOAD_IN_PROGRESS",
        Class::Retriable,
    ),
    (
        Code::CoordinatorNotAvailable,
        "COORDINATOR_NOT_AVAILABLE",
        Class::Retriable,
    ),
    (Code::NotCoordinator, "NOT_COORDINATOR", Class::Retriable),
    (
        Code::NotEnoughReplicas,
        "NOT_ENOUGH_REPLICAS",
        Class::Retriable,
    ),
    (
        Code::NotEnoughReplicasAfterAppend,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        Class::Retriable,
    ),
    (
        Code::KafkaStorageError,
        "KAFKA_STORAGE_ERROR",
        Class::Retriable,
    ),
    (Code::InvalidMessage, "INVALID_MSG", Class::Retriable),
    (
        Code::ThrottlingQuotaExceeded,
        "THROTTLING_QUOTA_EXCEEDED",
        Class::Retriable,
    ),
    (Code::Unknown, "UNKNOWN", Class::Retriable),
    (Code::BrokerTransportFailure, "_TRANSPORT", Class::Retriable),
    (Code::AllBrokersDown, "_ALL_BROKERS_DOWN", Class::Retriable),
    // A wrong certificate, but also a broker that stops in the middle of a handshake.
    (Code::SSL, "_SSL", Class::Retriable),
    (Code::Resolve, "_RESOLVE", Class::Retriable),
    (Code::MessageTimedOut, "_MSG_TIMED_OUT", Class::Retriable),
    (Code::OperationTimedOut, "_TIMED_OUT", Class::Retriable),
    (Code::TimedOutQueue, "_TIMED_OUT_QUEUE", Class::Retriable),
    (Code::QueueFull, "_QUEUE_FULL", Class::Retriable),
    (Code::BadMessage, "_BAD_MSG", Class::Retriable),
    // Producer and broker no longer agree on what was written; only a new producer id helps.
    (
        Code::OutOfOrderSequenceNumber,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        Class::Fatal,
    ),
    (
        Code::DuplicateSequenceNumber,
        "DUPLICATE_SEQUENCE_NUMBER",
        Class::Fatal,
    ),
    (Code::UnknownProducerId, "UNKNOWN_PRODUCER_ID", Class::Fatal),
    (
        Code::InvalidProducerEpoch,
        "INVALID_PRODUCER_EPOCH",
        Class::Fatal,
    ),
    (
        Code::InvalidProducerIdMapping,
        "INVALID_PRODUCER_ID_MAPPING",
        Class::Fatal,
    ),
    (Code::ProducerFenced, "PRODUCER_FENCED", Class::Fatal),
    (Code::Fenced, "_FENCED", Class::Fatal),
    (Code::Inconsistent, "_INCONSISTENT", Class::Fatal),
    (Code::State, "_STATE", Class::Fatal),
    (Code::Fail, "_FAIL", Class::Fatal),
    (
        Code::CriticalSystemResource,
        "_CRIT_SYS_RESOURCE",
        Class::Fatal,
    ),
    // Something else failed first: of a batch, another record; of a producer, an earlier batch.
    (
        Code::GaplessGuarantee,
        "_GAPLESS_GUARANTEE",
        Class::Consequence,
    ),
    (
        Code::InvalidDifferentRecord,
        "_INVALID_DIFFERENT_RECORD",
        Class::Consequence,
    ),
    (Code::Fatal, "_FATAL", Class::Consequence),
    (Code::PurgeQueue, "_PURGE_QUEUE", Class::Consequence),
    (Code::PurgeInflight, "_PURGE_INFLIGHT", Class::Consequence),
    (Code::BrokerDestroy, "_DESTROY", Class::Consequence),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: Code) -> PublishError {
        PublishError::classify(Failure::new(code))
    }

    #[test]
    fn what_somebody_must_change_is_permanent() {
        for code in [
            Code::MessageSizeTooLarge,
            Code::MessageBatchTooLarge,
            Code::InvalidTopic,
            Code::InvalidRecord,
            Code::InvalidTimestamp,
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::Authentication,
            Code::UnsupportedSASLMechanism,
            Code::UnknownPartition,
        ] {
            assert!(
                matches!(error(code), PublishError::Permanent(_)),
                "{code:?}"
            );
        }
    }

    #[test]
    fn what_may_pass_is_retriable() {
        for code in [
            Code::UnknownTopicOrPartition,
            Code::UnknownTopic,
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::Resolve,
            Code::MessageTimedOut,
            Code::NotLeaderForPartition,
            Code::LeaderNotAvailable,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::RequestTimedOut,
            Code::NetworkException,
            Code::KafkaStorageError,
            Code::ThrottlingQuotaExceeded,
            // Not listed.
            Code::StaleBrokerEpoch,
        ] {
            assert!(
                matches!(error(code), PublishError::Retriable(_)),
                "{code:?}"
            );
        }
    }

    #[test]
    fn a_producer_at_its_end_is_fatal() {
        for code in [
            Code::OutOfOrderSequenceNumber,
            Code::DuplicateSequenceNumber,
            Code::UnknownProducerId,
            Code::InvalidProducerEpoch,
            Code::Fenced,
            Code::ProducerFenced,
            Code::Fatal,
            Code::GaplessGuarantee,
            Code::PurgeQueue,
            Code::PurgeInflight,
        ] {
            assert!(matches!(error(code), PublishError::Fatal(_)), "{code:?}");
        }
    }

    #[test]
    fn a_cause_tells_more_than_its_consequences() {
        let purged = error(Code::PurgeQueue);
        let gapless = error(Code::GaplessGuarantee);
        let desynchronized = error(Code::OutOfOrderSequenceNumber);
        let refused = error(Code::MessageSizeTooLarge);
        assert!(purged.is_consequence() && gapless.is_consequence());
        assert!(!desynchronized.is_consequence() && !refused.is_consequence());
        assert!(desynchronized.tells_more_than(&purged));
        assert!(refused.tells_more_than(&gapless));
        assert!(refused.tells_more_than(&desynchronized));
        assert!(!gapless.tells_more_than(&refused));
        assert!(!refused.tells_more_than(&refused));
    }

    #[test]
    fn of_a_batch_that_was_too_large_the_largest_record_is_named() {
        let sized = |size_bytes| {
            let mut failure = Failure::new(Code::MessageSizeTooLarge);
            failure.size_bytes = Some(size_bytes);
            PublishError::classify(failure)
        };
        assert!(sized(2_000_000).tells_more_than(&sized(1_000)));
        assert!(!sized(1_000).tells_more_than(&sized(2_000_000)));
    }

    #[test]
    fn a_code_is_found_by_its_name() {
        let found = PublishError::from_code("_UNKNOWN_TOPIC");
        assert!(matches!(found, Some(PublishError::Retriable(_))));
        assert!(PublishError::from_code("NO_SUCH_CODE").is_none());
    }

    #[test]
    fn no_code_is_listed_twice() {
        for (index, (code, name, _)) in CODES.iter().enumerate() {
            for (other, other_name, _) in &CODES[index + 1..] {
                assert_ne!(code, other);
                assert_ne!(name, other_name);
            }
        }
    }

    #[test]
    fn a_failure_reads_as_one_line() {
        let mut failure = Failure::new(Code::MessageSizeTooLarge);
        failure.topic = Some("outbox.event.order".into());
        failure.event_id = Some("77".into());
        failure.size_bytes = Some(2_097_152);
        assert_eq!(
            failure.to_string(),
            "MSG_SIZE_TOO_LARGE, topic outbox.event.order, event 77, 2097152 bytes"
        );
        assert_eq!(failure.code(), "MSG_SIZE_TOO_LARGE");
        assert!(failure.is_from_broker());
        assert_eq!(
            Failure::new(Code::StaleBrokerEpoch).to_string(),
            "StaleBrokerEpoch"
        );
    }
}
