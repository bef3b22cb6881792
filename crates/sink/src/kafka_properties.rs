//! Which librdkafka properties a user may pass through, which not and why, and which hold secrets.

use crate::error::KafkaConfigError;

/// The name under which a property is given to librdkafka: of two names for the same thing always the same one.
///
/// # Errors
///
/// [`KafkaConfigError::NotAllowed`], with the reason.
pub(crate) fn check_property(name: &str, value: &str) -> Result<&'static str, KafkaConfigError> {
    let canonical = canonical_name(name);
    match refusal(canonical.unwrap_or(name), value) {
        Some(reason) => Err(KafkaConfigError::NotAllowed {
            name: name.to_owned(),
            reason,
        }),
        None => canonical.ok_or_else(|| unknown_property(name)),
    }
}

/// An error that names the property most like this one.
pub(crate) fn unknown_property(name: &str) -> KafkaConfigError {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let suggestion = PROPERTIES
        .split_whitespace()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .filter(|known| likeness(known) > 0.85);
    KafkaConfigError::Unknown {
        name: name.to_owned(),
        suggestion,
    }
}

/// Whether a property's value must not be shown. Names that only look like one of these count as well, so that a
/// slip of the pen does not print a password.
#[must_use]
pub fn is_secret_property(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let known_harmless = HARMLESS_SASL
        .split_whitespace()
        .any(|harmless| harmless == name);
    let looks_secret = [
        "pass",
        "secret",
        "token",
        "pem",
        "jaas",
        "credential",
        "ssl_key",
        "private",
    ];
    !known_harmless
        && (name.contains("sasl") || looks_secret.iter().any(|part| name.contains(part)))
}

fn canonical_name(name: &str) -> Option<&'static str> {
    if let Some((_, canonical)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Some(canonical);
    }
    PROPERTIES.split_whitespace().find(|known| *known == name)
}

fn refusal(name: &str, value: &str) -> Option<&'static str> {
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Some(reason);
    }
    let number = value.trim().parse::<i64>().ok();
    match name {
        "max.in.flight.requests.per.connection"
            if !number.is_some_and(|number| (1..=5).contains(&number)) =>
        {
            Some("the order is only kept with 1 to 5 requests in flight")
        }
        "retries" if number.is_none_or(|number| number < 1) => {
            Some("without retries every broker restart would be a failure")
        }
        // The client itself would say so, but only when it is made.
        "sasl.mechanisms" if value == "GSSAPI" && !cfg!(feature = "gssapi") => {
            Some("Kerberos takes a build with the feature `kafka-gssapi`")
        }
        "sasl.oauthbearer.method" if value == "oidc" && !cfg!(feature = "oauthbearer") => {
            Some("tokens of a provider take a build with the feature `kafka-oauthbearer`")
        }
        _ if name.ends_with("_cb") => Some("it takes a function, not a value"),
        _ if name.starts_with("test.mock.") => {
            Some("it would send the events to a mock instead of Kafka")
        }
        _ => None,
    }
}

/// Properties that are not passed through. What the guarantee rests on is set in `kafka_options.rs`.
const REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", "set `kafka.brokers` instead"),
    (
        "enable.idempotence",
        "it is always on: without it, retries would repeat and reorder events",
    ),
    (
        "enable.gapless.guarantee",
        "it is always on: nothing may overtake a refused event",
    ),
    (
        "acks",
        "it is always `all`: less would confirm events that a broker can still lose",
    ),
    (
        "message.timeout.ms",
        "it is always 0: an outage must not turn waiting events into failed ones",
    ),
    (
        "partitioner",
        "it is always `murmur2_random`: each key keeps the partition Java clients give it",
    ),
    (
        "queuing.strategy",
        "it is always `fifo`: the order of events depends on it",
    ),
    ("msg_order_cmp", "the order of events depends on it"),
    (
        "delivery.report.only.error",
        "the position follows the reports of success",
    ),
    (
        "queue.buffering.max.messages",
        "set `kafka.in_flight_records_max` instead",
    ),
    (
        "queue.buffering.max.kbytes",
        "set `kafka.in_flight_bytes_max` instead",
    ),
    (
        "queue.buffering.backpressure.threshold",
        "it is always 1, as idempotence needs it",
    ),
    ("transactional.id", "set `kafka.transactional_id` instead"),
    (
        "transaction.timeout.ms",
        "set `kafka.transaction_timeout` instead",
    ),
    (
        "plugin.library.paths",
        "a plugin could change or drop events unseen",
    ),
    (
        "interceptors",
        "an interceptor could change or drop events unseen",
    ),
    ("opaque", "it is the client's own"),
    ("default_topic_conf", "set the topic properties directly"),
    (
        "enabled_events",
        "the client is served by events of our choice",
    ),
    ("log.queue", "the client's log goes to ours"),
    (
        "ssl_engine_callback_data",
        "it takes a pointer, not a value",
    ),
    (
        "internal.termination.signal",
        "signals are handled by this process",
    ),
    ("group.id", "it belongs to a consumer"),
    ("auto.offset.reset", "it belongs to a consumer"),
    ("enable.auto.commit", "it belongs to a consumer"),
    ("isolation.level", "it belongs to a consumer"),
    // Names of the Java client, as found in Kafka Connect.
    (
        "buffer.memory",
        "that is Java's; set `kafka.in_flight_bytes_max` instead",
    ),
    ("max.block.ms", "that is Java's; this producer never blocks"),
    (
        "max.request.size",
        "that is Java's; set `message.max.bytes` instead",
    ),
    (
        "key.serializer",
        "that is Java's; keys are sent as they are",
    ),
    (
        "value.serializer",
        "that is Java's; payloads are sent as they are",
    ),
    (
        "partitioner.class",
        "that is Java's; each key keeps the partition Java clients give it",
    ),
    (
        "interceptor.classes",
        "that is Java's; there are no interceptors",
    ),
    (
        "metric.reporters",
        "that is Java's; metrics are at `/metrics`",
    ),
    (
        "sasl.jaas.config",
        "that is Java's; set `sasl.username` and `sasl.password` instead",
    ),
    (
        "ssl.truststore.location",
        "that is Java's; set `ssl.ca.location` to a PEM file instead",
    ),
    (
        "ssl.truststore.password",
        "that is Java's; set `ssl.ca.location` to a PEM file instead",
    ),
    (
        "ssl.truststore.type",
        "that is Java's; set `ssl.ca.location` to a PEM file instead",
    ),
    (
        "ssl.keystore.type",
        "that is Java's; `ssl.keystore.location` takes PKCS#12",
    ),
];

/// Second names of the same property, with the name we use.
const ALIASES: &[(&str, &str)] = &[
    ("metadata.broker.list", "bootstrap.servers"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("message.send.max.retries", "retries"),
    ("compression.codec", "compression.type"),
    ("request.required.acks", "acks"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("sasl.mechanism", "sasl.mechanisms"),
    (
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.id",
    ),
    (
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
    ),
];

/// The `sasl` properties whose values may be shown.
const HARMLESS_SASL: &str = "
    sasl.mechanism sasl.mechanisms sasl.username sasl.kerberos.service.name sasl.kerberos.principal
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin enable.sasl.oauthbearer.unsecure.jwt
    sasl.oauthbearer.method sasl.oauthbearer.client.id sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    ssl.certificate.pem ssl.ca.pem https.ca.pem";

/// The producer's properties in librdkafka 2.12: what may be passed through, less what is refused above.
const PROPERTIES: &str = "
    client.id bootstrap.servers message.max.bytes message.copy.max.bytes receive.message.max.bytes
    max.in.flight.requests.per.connection metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms
    topic.metadata.refresh.interval.ms metadata.max.age.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.sparse topic.metadata.propagation.max.ms topic.blacklist debug
    socket.timeout.ms socket.send.buffer.bytes socket.receive.buffer.bytes socket.keepalive.enable
    socket.nagle.disable socket.max.fails broker.address.ttl broker.address.family
    socket.connection.setup.timeout.ms connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms
    statistics.interval.ms log_level log.thread.name enable.random.seed log.connection.close
    api.version.request api.version.request.timeout.ms api.version.fallback.ms broker.version.fallback
    allow.auto.create.topics security.protocol ssl.cipher.suites ssl.curves.list ssl.sigalgs.list
    ssl.key.location ssl.key.password ssl.key.pem ssl.certificate.location ssl.certificate.pem ssl.ca.location
    ssl.ca.pem ssl.ca.certificate.stores ssl.crl.location ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.engine.location ssl.engine.id https.ca.location https.ca.pem
    enable.ssl.certificate.verification ssl.endpoint.identification.algorithm
    sasl.mechanisms sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.kinit.cmd
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.username sasl.password
    sasl.oauthbearer.config enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.method
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.scope
    sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.grant.type
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.metadata.authentication.type client.rack client.dns.lookup enable.metrics.push
    linger.ms retries retry.backoff.ms retry.backoff.max.ms compression.type compression.level
    batch.num.messages batch.size sticky.partitioning.linger.ms request.timeout.ms acks message.timeout.ms";

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(name: &str, value: &str) -> &'static str {
        match check_property(name, value) {
            Err(KafkaConfigError::NotAllowed { reason, .. }) => reason,
            other => panic!("{name}={value}: {other:?}"),
        }
    }

    #[test]
    fn what_the_guarantee_rests_on_is_refused_under_every_name() {
        for name in [
            "enable.idempotence",
            "enable.gapless.guarantee",
            "acks",
            "request.required.acks",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "partitioner",
            "partitioner_cb",
            "queuing.strategy",
            "delivery.report.only.error",
            "dr_cb",
            "dr_msg_cb",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "bootstrap.servers",
            "metadata.broker.list",
            "transactional.id",
            "plugin.library.paths",
            "test.mock.num.brokers",
        ] {
            assert!(!reason(name, "1").is_empty(), "{name}");
        }
    }

    #[test]
    fn at_most_five_requests_are_in_flight() {
        for name in ["max.in.flight", "max.in.flight.requests.per.connection"] {
            assert!(check_property(name, "1").is_ok());
            assert!(check_property(name, "5").is_ok());
            for value in ["0", "6", "1000000", "many", ""] {
                reason(name, value);
            }
        }
    }

    #[test]
    fn a_sign_in_that_the_build_is_without_is_refused_by_the_name_of_its_feature() {
        for (name, value, feature, there) in [
            (
                "sasl.mechanism",
                "GSSAPI",
                "`kafka-gssapi`",
                cfg!(feature = "gssapi"),
            ),
            (
                "sasl.oauthbearer.method",
                "oidc",
                "`kafka-oauthbearer`",
                cfg!(feature = "oauthbearer"),
            ),
        ] {
            let refused = check_property(name, value);
            assert_eq!(refused.is_ok(), there, "{refused:?}");
            assert!(
                there || reason(name, value).contains(feature),
                "{refused:?}"
            );
        }
        assert!(check_property("sasl.mechanism", "SCRAM-SHA-512").is_ok());
    }

    #[test]
    fn retries_may_be_limited_but_not_switched_off() {
        assert_eq!(
            check_property("message.send.max.retries", "3"),
            Ok("retries")
        );
        reason("retries", "0");
        reason("retries", "-1");
    }

    #[test]
    fn two_names_of_one_property_are_one() {
        assert_eq!(
            check_property("queue.buffering.max.ms", "7"),
            Ok("linger.ms")
        );
        assert_eq!(
            check_property("compression.codec", "zstd"),
            Ok("compression.type")
        );
        assert_eq!(
            check_property("sasl.mechanism", "PLAIN"),
            Ok("sasl.mechanisms")
        );
    }

    #[test]
    fn an_unknown_property_is_answered_with_the_nearest_one() {
        let suggestion = |name: &str| match check_property(name, "x") {
            Err(KafkaConfigError::Unknown { suggestion, .. }) => suggestion,
            other => panic!("{other:?}"),
        };
        assert_eq!(suggestion("compresion.type"), Some("compression.type"));
        assert_eq!(suggestion("sasl.pasword"), Some("sasl.password"));
        assert_eq!(suggestion("xyz"), None);
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "sasl.password",
            "SASL.Password",
            "sasl.pasword",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl_key",
            "ssl.keystore.password",
            "sasl.jaas.config",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.extensions",
            "sasl.oauthbearer.assertion.private.key.pem",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.kerberos.kinit.cmd",
        ] {
            assert!(is_secret_property(name), "{name}");
        }
        for name in [
            "linger.ms",
            "sasl.username",
            "sasl.mechanism",
            "ssl.ca.location",
            "security.protocol",
        ] {
            assert!(!is_secret_property(name), "{name}");
        }
    }
}
