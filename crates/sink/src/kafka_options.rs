//! Every option of the Kafka client that we set, with its reason, and the user's own on top.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use router::connect::TopicGroup;

use crate::error::KafkaConfigError;
use crate::kafka_properties::{check_property, is_secret_property, unknown_property};
use crate::publisher::Limits;
use crate::transactional::TransactionConfig;

/// Where and how to publish.
#[derive(Clone, Default)]
pub struct KafkaConfig {
    /// Where to find the cluster: `host:port`, separated by commas.
    pub brokers: String,
    /// The name under which brokers know this client: in their logs and quotas.
    pub client_id: String,
    /// librdkafka properties to pass through. Those that would break the guarantee are refused.
    pub properties: BTreeMap<String, String>,
    /// Properties that stand in files, read each time that a client is made; they win over `properties`.
    pub secrets: Option<ReadSecrets>,
    /// The files that `secrets` reads.
    pub secret_files: Vec<PathBuf>,
    /// How topics are created that do not exist. One that no group takes is left to the broker.
    pub topic_creation: Vec<TopicGroup>,
    /// The publisher's limits; the client's own queue is sized so that it is never the one to be full.
    pub limits: Limits,
}

/// Reads names and values of properties.
pub type ReadSecrets = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

impl KafkaConfig {
    /// All properties as they are now.
    fn current_properties(&self) -> BTreeMap<String, String> {
        let mut properties = self.properties.clone();
        if let Some(read) = &self.secrets {
            properties.extend(read());
        }
        properties
    }

    /// Tries names and values of all properties on the client, without making one.
    ///
    /// # Errors
    ///
    /// See [`KafkaConfigError`].
    pub fn check(&self) -> Result<(), KafkaConfigError> {
        self.client_config().map(|_| ())
    }

    /// The options for librdkafka.
    ///
    /// # Errors
    ///
    /// See [`KafkaConfigError`].
    pub(crate) fn client_config(&self) -> Result<ClientConfig, KafkaConfigError> {
        if self
            .brokers
            .split(',')
            .all(|broker| broker.trim().is_empty())
        {
            return Err(KafkaConfigError::Client {
                reason: "no broker is named".to_owned(),
            });
        }
        let mut options = ClientConfig::new();
        for (name, value) in OPTIONS {
            options.set(*name, *value);
        }
        options.set("bootstrap.servers", &self.brokers);
        options.set("client.id", &self.client_id);
        for (name, value) in &self.current_properties() {
            options.set(check_property(name, value)?, value);
        }
        self.size_queue(&mut options);
        options.set_log_level(log_level(&options));
        // Tried here so that the error names the property; the client itself would only say that it failed.
        options.create_native_config().map_err(config_error)?;
        Ok(options)
    }

    /// The same for a transactional producer.
    ///
    /// # Errors
    ///
    /// See [`KafkaConfigError`].
    pub(crate) fn transactional_config(
        &self,
        transactions: &TransactionConfig,
    ) -> Result<ClientConfig, KafkaConfigError> {
        let mut options = self.client_config()?;
        let timeout_ms = transactions.timeout.as_millis();
        for (name, value) in [
            ("transactional.id", transactions.transactional_id.clone()),
            ("transaction.timeout.ms", timeout_ms.to_string()),
            // A record that waits longer than its transaction lives would only be found out later. Nothing is lost: the
            // transaction is given up as a whole, and comes again.
            ("message.timeout.ms", (timeout_ms / 2).to_string()),
            // A refused batch fails its transaction, so nothing behind it becomes visible; and a client that stops for
            // good could not abort.
            ("enable.gapless.guarantee", "false".to_owned()),
        ] {
            options.set(name, value);
        }
        options.create_native_config().map_err(config_error)?;
        Ok(options)
    }

    /// What a consumer or an administrator of the same cluster needs: how to reach and sign in to it, and nothing about
    /// producing.
    pub(crate) fn connection_config(&self) -> ClientConfig {
        let mut options = ClientConfig::new();
        options.set("bootstrap.servers", &self.brokers);
        options.set("client.id", &self.client_id);
        options.set("reconnect.backoff.max.ms", "1000");
        options.set("log.connection.close", "false");
        for (name, value) in &self.current_properties() {
            if CONNECTION_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
            {
                options.set(name, value);
            }
        }
        options
    }

    /// Twice our own limits: after a restart without a failure, what the attempt before left in flight is still
    /// there. And one record of the largest size must fit, whatever the limit on bytes.
    fn size_queue(&self, options: &mut ClientConfig) {
        let record_bytes_max = options
            .get("message.max.bytes")
            .and_then(|value| value.parse().ok())
            .unwrap_or(MESSAGE_BYTES_MAX);
        let records = self
            .limits
            .in_flight_records_max
            .saturating_mul(2)
            .clamp(1_000, i32::MAX as usize);
        let bytes = self
            .limits
            .in_flight_bytes_max
            .saturating_add(record_bytes_max)
            .saturating_mul(2);
        let kbytes = (bytes / 1024).clamp(1_024, QUEUE_KBYTES_MAX);
        options.set("queue.buffering.max.messages", records.to_string());
        options.set("queue.buffering.max.kbytes", kbytes.to_string());
    }
}

/// Shows names of properties, and values only of those that hold no secret.
impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties: BTreeMap<_, _> = self
            .properties
            .iter()
            .map(|(name, value)| {
                (
                    name,
                    if is_secret_property(name) {
                        "***"
                    } else {
                        value
                    },
                )
            })
            .collect();
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field("properties", &properties)
            .field("limits", &self.limits)
            .finish()
    }
}

/// How much librdkafka tells us at all. `debug` without this level would be switched on and then thrown away.
fn log_level(options: &ClientConfig) -> RDKafkaLogLevel {
    if options
        .get("debug")
        .is_some_and(|contexts| !contexts.is_empty())
    {
        return RDKafkaLogLevel::Debug;
    }
    match options
        .get("log_level")
        .and_then(|value| value.parse().ok())
    {
        Some(0) => RDKafkaLogLevel::Emerg,
        Some(1) => RDKafkaLogLevel::Alert,
        Some(2) => RDKafkaLogLevel::Critical,
        Some(3) => RDKafkaLogLevel::Error,
        Some(4) => RDKafkaLogLevel::Warning,
        Some(5) => RDKafkaLogLevel::Notice,
        Some(7..) => RDKafkaLogLevel::Debug,
        _ => RDKafkaLogLevel::Info,
    }
}

/// Names the property, and repeats the client's words unless they could show a secret.
pub(crate) fn config_error(error: KafkaError) -> KafkaConfigError {
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
            unknown_property(&name)
        }
        KafkaError::ClientConfig(_, reason, name, _) => KafkaConfigError::Invalid {
            reason: (!is_secret_property(&name)).then_some(reason),
            name,
        },
        KafkaError::ClientCreation(reason) => KafkaConfigError::Client { reason },
        other => KafkaConfigError::Client {
            reason: other.to_string(),
        },
    }
}

/// What is always set. A user's property of the same name wins where it is not refused.
const OPTIONS: &[(&str, &str)] = &[
    // Retries neither repeat nor reorder: the broker knows each batch by producer id and sequence number.
    ("enable.idempotence", "true"),
    // An acknowledgement means that all in-sync replicas have it. Less could still be lost, and we confirm.
    ("acks", "all"),
    // The most that idempotence allows. Order holds because a broker refuses what follows a missing batch.
    ("max.in.flight.requests.per.connection", "5"),
    // Never give up on a record because of time: during an outage it waits in order, bounded by our own limits.
    // A time-out would fail the oldest records while later ones still go out.
    ("message.timeout.ms", "0"),
    // A batch refused for good is fatal to this client: it sends nothing more. Without this, librdkafka bumps its
    // epoch, renumbers what was queued behind the refused batch, and sends it.
    ("enable.gapless.guarantee", "true"),
    // Each key goes to the partition where Java producers, such as Kafka Connect's, put it; null keys anywhere.
    ("partitioner", "murmur2_random"),
    // A backlog fills batches by itself; at a few events per second, waiting for company is pure latency.
    ("linger.ms", "1"),
    // We ask for each record's fate, not only for failures.
    ("delivery.report.only.error", "false"),
    // librdkafka's default, written out because the broker's own limit and the queue's size refer to it.
    ("message.max.bytes", "1000000"),
    // After an outage, look for the brokers every second and not every ten.
    ("reconnect.backoff.max.ms", "1000"),
    // A topic that is missing is told of after this time, and not after 30 s: while it lasts, the records behind wait. If the
    // topic was only new and not known everywhere yet, the next attempt finds it.
    ("topic.metadata.propagation.max.ms", "10000"),
    // A vanished broker is noticed by the kernel as well, not only by requests that time out.
    ("socket.keepalive.enable", "true"),
    // Brokers close idle connections by design; that is no news.
    ("log.connection.close", "false"),
    // Our metrics come from the deliveries; librdkafka's statistics cost a JSON document each time.
    ("statistics.interval.ms", "0"),
];

/// Properties that are about connections, whoever uses them.
const CONNECTION_PREFIXES: &[&str] = &[
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "broker.address.",
    "client.dns.",
    "connections.",
    "reconnect.",
    "metadata.broker.list",
    "debug",
];

/// The value of `message.max.bytes` above.
const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// The largest value librdkafka takes for `queue.buffering.max.kbytes`.
const QUEUE_KBYTES_MAX: usize = 2_097_151;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(properties: &[(&str, &str)]) -> KafkaConfig {
        KafkaConfig {
            brokers: "localhost:9092".to_owned(),
            client_id: "posthaste".to_owned(),
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..KafkaConfig::default()
        }
    }

    #[test]
    fn what_the_guarantee_rests_on_is_set() {
        let native = config(&[])
            .client_config()
            .unwrap()
            .create_native_config()
            .unwrap();
        for (name, value) in [
            ("enable.idempotence", "true"),
            ("request.required.acks", "-1"),
            ("message.timeout.ms", "0"),
            ("enable.gapless.guarantee", "true"),
            ("partitioner", "murmur2_random"),
            ("delivery.report.only.error", "false"),
            ("queue.buffering.max.messages", "40000"),
        ] {
            let found = native.get(name).unwrap();
            assert_eq!(found.trim_end_matches('\0'), value, "{name}");
        }
    }

    #[test]
    fn a_transaction_is_given_up_before_the_broker_does_it() {
        let transactions = TransactionConfig {
            transactional_id: "posthaste-p-s".to_owned(),
            timeout: Duration::from_secs(60),
            interval: Duration::from_millis(50),
            records_max: 10,
            bytes_max: 10,
            position_topic: "p".to_owned(),
            position_key: "k".to_owned(),
        };
        let options = config(&[]).transactional_config(&transactions).unwrap();
        for (name, value) in [
            ("transactional.id", "posthaste-p-s"),
            ("transaction.timeout.ms", "60000"),
            ("message.timeout.ms", "30000"),
            ("enable.idempotence", "true"),
        ] {
            assert_eq!(options.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn a_reader_of_positions_signs_in_as_the_producer_does() {
        let options = config(&[("sasl.username", "u"), ("linger.ms", "5")]).connection_config();
        assert_eq!(options.get("sasl.username"), Some("u"));
        assert_eq!(options.get("linger.ms"), None);
    }

    #[test]
    fn every_name_we_list_is_known_to_the_client() {
        for (name, value) in OPTIONS {
            let mut options = ClientConfig::new();
            options.set(*name, *value);
            assert!(options.create_native_config().is_ok(), "{name}");
        }
    }

    #[test]
    fn without_a_broker_there_is_nothing_to_connect_to() {
        let error = KafkaConfig::default().client_config().unwrap_err();
        assert!(matches!(error, KafkaConfigError::Client { .. }));
    }

    #[test]
    fn a_users_property_wins_under_either_name() {
        let options = config(&[
            ("queue.buffering.max.ms", "20"),
            ("compression.codec", "zstd"),
        ])
        .client_config()
        .unwrap();
        assert_eq!(options.get("linger.ms"), Some("20"));
        assert_eq!(options.get("compression.type"), Some("zstd"));
    }

    #[test]
    fn the_queue_has_room_for_one_record_of_the_largest_size() {
        let options = config(&[("message.max.bytes", "100000000")])
            .client_config()
            .unwrap();
        let kbytes: usize = options
            .get("queue.buffering.max.kbytes")
            .unwrap()
            .parse()
            .unwrap();
        assert!(kbytes * 1024 >= 100_000_000 + Limits::default().in_flight_bytes_max);
    }

    #[test]
    fn a_wrong_value_is_named() {
        let error = config(&[("linger.ms", "soon")])
            .client_config()
            .unwrap_err();
        assert!(
            matches!(&error, KafkaConfigError::Invalid { name, reason: Some(_) } if name == "linger.ms"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_secret_is_not_shown() {
        let refused = KafkaError::ClientConfig(
            RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
            "no such key: hunter2".to_owned(),
            "ssl.key.pem".to_owned(),
            "hunter2".to_owned(),
        );
        let error = config_error(refused);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let shown = format!(
            "{:?}",
            config(&[("sasl.password", "hunter2"), ("sasl.username", "relay")])
        );
        assert!(!shown.contains("hunter2"));
        assert!(shown.contains("relay") && shown.contains("sasl.password"));
    }

    #[test]
    fn debug_contexts_raise_the_log_level() {
        let level = |properties: &[(&str, &str)]| {
            let options = config(properties).client_config().unwrap();
            options.log_level as i32
        };
        assert_eq!(level(&[]), RDKafkaLogLevel::Info as i32);
        assert_eq!(level(&[("debug", "broker")]), RDKafkaLogLevel::Debug as i32);
        assert_eq!(
            level(&[("log_level", "4")]),
            RDKafkaLogLevel::Warning as i32
        );
    }
}
