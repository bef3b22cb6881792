//! From the Java producer's options to librdkafka's: `producer.*` of the worker, `producer.override.*` of the connector.

use std::collections::BTreeMap;

use crate::classify::producer_names;
use crate::finding::Verdict;
use crate::keys_producer::{PRODUCER, Use};
use crate::map_login::login;
use crate::native::{Kafka, Secret};
use crate::providers::list;
use crate::reader::{File, Reader};
use crate::suggest::nearest;

/// One option of the producer, wherever it stands.
pub(crate) struct ProducerOption {
    pub(crate) file: File,
    /// The whole key.
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) secret: Secret,
}

/// The producer's options by their Java names.
pub(crate) type Options = BTreeMap<String, ProducerOption>;

/// What Java's producer sends at most, where nothing else is said; librdkafka's own bound is a little smaller.
const REQUEST_BYTES_MAX: &str = "1048576";

/// Reads brokers and client options.
pub(crate) fn kafka(reader: &mut Reader, brokers: Option<&str>) -> Kafka {
    let options = options(reader);
    let mut kafka = Kafka {
        brokers: Vec::new(),
        client_id: None,
        exactly_once: reader.get("exactly.once.support") == Some("required"),
        properties: BTreeMap::from([(
            "message.max.bytes".to_owned(),
            REQUEST_BYTES_MAX.to_owned(),
        )]),
        secrets: BTreeMap::new(),
    };
    for name in options.keys() {
        place(reader, &options, &mut kafka, name);
    }
    login(reader, &options, &mut kafka);
    kafka.brokers = addresses(reader, &options, brokers);
    kafka
}

/// The worker's, and over them the connector's, unless the worker forbids that.
fn options(reader: &mut Reader) -> Options {
    let mut options = Options::new();
    for (file, prefix) in [
        (File::Worker, "producer."),
        (File::Connector, "producer.override."),
    ] {
        for key in reader.keys(file) {
            let Some(name) = key.strip_prefix(prefix) else {
                continue;
            };
            if file == File::Connector && overriding_is_forbidden(reader, name) {
                reader.refuse(
                    &key,
                    "is forbidden by the worker's connector.client.config.override.policy, and \
                    Connect refuses the connector; remove it here, or allow it there",
                );
                continue;
            }
            let Some(value) = reader.value(file, &key) else {
                continue;
            };
            let option = ProducerOption {
                file,
                text: value.text.trim().to_owned(),
                secret: value.secret(),
                key: key.clone(),
            };
            if let Some(worker) = options.insert(name.to_owned(), option) {
                reader.say_in(
                    worker.file,
                    &worker.key,
                    Verdict::Ignored,
                    "the connector's producer.override replaces it",
                );
            }
        }
    }
    options
}

fn overriding_is_forbidden(reader: &Reader, name: &str) -> bool {
    let policy = reader.value(File::Worker, "connector.client.config.override.policy");
    match policy
        .map(|policy| policy.text.trim().to_ascii_lowercase())
        .as_deref()
    {
        Some("none") => true,
        Some("principal") => !matches!(
            name,
            "sasl.jaas.config" | "sasl.mechanism" | "security.protocol"
        ),
        _ => false,
    }
}

/// Whether `compression.X.level` is about the compression that is used.
fn level_counts(options: &Options, name: &str) -> bool {
    let used = options
        .get("compression.type")
        .map(|option| option.text.to_ascii_lowercase());
    used.is_some_and(|used| name == format!("compression.{used}.level"))
}

fn place(reader: &mut Reader, options: &Options, kafka: &mut Kafka, name: &str) {
    let Some(option) = options.get(name) else {
        return;
    };
    let (file, key) = (option.file, option.key.as_str());
    let known = PRODUCER
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, rule)| *rule);
    match known {
        Some(Use::Login) => {}
        Some(Use::As("bootstrap.servers")) => {
            reader.say_in(file, key, Verdict::Mapped, "kafka.brokers")
        }
        Some(Use::As("client.id")) => {
            reader.say_in(file, key, Verdict::Mapped, "kafka.client_id");
            kafka.client_id = Some(option.text.clone());
        }
        Some(Use::Same) => number(reader, kafka, name, option),
        Some(Use::As("compression.level")) if !level_counts(options, name) => {
            let why = "belongs to another compression.type, which ignores it, and so do we";
            reader.say_in(file, key, Verdict::Ignored, why);
        }
        Some(Use::As(other)) => number(reader, kafka, other, option),
        Some(Use::Ignored(why)) => reader.say_in(file, key, Verdict::Ignored, why),
        Some(Use::Refused(fix)) => {
            reader.refuse_in(file, key, &format!("cannot be followed: {fix}"))
        }
        None => match nearest(name, producer_names()) {
            Some(near) => {
                let near = key.replace(name, near);
                reader.say_in(
                    file,
                    key,
                    Verdict::Refused,
                    &format!(
                        "is no option of the producer; did you \
                    mean `{near}`? It has been ignored: correct it, or remove it to keep what is"
                    ),
                );
            }
            None => reader.say_in(
                file,
                key,
                Verdict::Ignored,
                "is no option of the producer, which ignores it, and so do we",
            ),
        },
    }
}

/// Hands an option on. Numbers are kept within librdkafka's bounds, as Java's are wider.
fn number(reader: &mut Reader, kafka: &mut Kafka, name: &str, option: &ProducerOption) {
    let mut text = option.text.clone();
    let mut note = String::new();
    if let Some((_, smallest, largest)) = BOUNDS.iter().find(|(bounded, _, _)| *bounded == name) {
        let Ok(given) = text.parse::<i64>() else {
            return reader.refuse_in(option.file, &option.key, "is no whole number; write one");
        };
        let within = given.clamp(*smallest, *largest);
        if within != given {
            note = format!(", at librdkafka's bound of {within}");
            text = within.to_string();
        }
    } else if let Some((_, words)) = WORDS.iter().find(|(worded, _)| *worded == name) {
        if !words.contains(&text.to_ascii_lowercase().as_str()) {
            return reader.refuse_in(
                option.file,
                &option.key,
                &format!("is none of its words; write {}", words.join(", ")),
            );
        }
        if name != "security.protocol" {
            text = text.to_ascii_lowercase();
        }
    }
    reader.say_in(
        option.file,
        &option.key,
        Verdict::Mapped,
        &format!("kafka.properties.\"{name}\"{note}"),
    );
    kafka.properties.insert(name.to_owned(), text);
}

/// Numbers, with librdkafka's bounds.
const BOUNDS: &[(&str, i64, i64)] = &[
    ("message.max.bytes", 1_000, 1_000_000_000),
    ("linger.ms", 0, 900_000),
    ("batch.size", 1, 2_147_483_647),
    ("request.timeout.ms", 1, 900_000),
    ("connections.max.idle.ms", 0, 2_147_483_647),
    ("metadata.max.age.ms", 1, 86_400_000),
    ("metadata.recovery.rebootstrap.trigger.ms", 0, 2_147_483_647),
    ("reconnect.backoff.ms", 0, 3_600_000),
    ("reconnect.backoff.max.ms", 0, 3_600_000),
    ("retry.backoff.ms", 1, 300_000),
    ("retry.backoff.max.ms", 1, 300_000),
    ("socket.connection.setup.timeout.ms", 1_000, 2_147_483_647),
    ("compression.level", -1, 12),
];

const WORDS: &[(&str, &[&str])] = &[
    (
        "compression.type",
        &["none", "gzip", "snappy", "lz4", "zstd"],
    ),
    (
        "security.protocol",
        &["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"],
    ),
    ("enable.metrics.push", &["true", "false"]),
];

/// `--brokers`, the connector's, the worker's producer's, or the worker's own.
fn addresses(reader: &mut Reader, options: &Options, brokers: Option<&str>) -> Vec<String> {
    let worker = reader
        .value(File::Worker, "bootstrap.servers")
        .map(|value| value.text.clone());
    let option = options
        .get("bootstrap.servers")
        .map(|option| option.text.clone());
    let text = brokers.map(str::to_owned).or(option).or(worker);
    let addresses = list(text.as_deref().unwrap_or_default());
    if addresses.is_empty() {
        reader.say_in(File::Worker, "bootstrap.servers", Verdict::Refused, "is not given: the configuration of a connector does not say where Kafka is; give --brokers HOST:PORT, or the worker's file with --worker");
    } else if let Some(odd) = addresses.iter().find(|address| !has_port(address)) {
        let text = format!("has an address without a port, `{odd}`; write HOST:PORT");
        reader.say_in(File::Worker, "bootstrap.servers", Verdict::Refused, &text);
    }
    addresses
}

fn has_port(address: &str) -> bool {
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    port.is_some_and(|port| port > 0)
}
