//! The options of Kafka's Java producer, and those of librdkafka that mean the same.

/// What becomes of an option of the Java producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The same name and meaning.
    Same,
    /// Another name, the same meaning and unit.
    As(&'static str),
    /// Without effect, and why that is safe.
    Ignored(&'static str),
    /// What to do instead.
    Refused(&'static str),
    /// Read together with others: stores and logins.
    Login,
}

use Use::{As, Ignored, Login, Refused, Same};

const ALWAYS_ON: &str = "set here in a way that is at least as safe: all replicas acknowledge, retries neither repeat nor reorder";
const BYTES: &str = "records are sent as the converters make them";
const TRANSACTIONS: &str = "Connect makes it itself for exactly-once; remove it, and write exactly.once.support=required and [kafka] transactional_id";
const TIME: &str = "a record is never given up because of time; an outage only makes it wait";
const TUNING: &str = "a detail of the Java client without a counterpart";
const TLS: &str = "a detail of Java's TLS; OpenSSL chooses for itself";
const TOKEN_CHECK: &str = "about the check of a token, which is the brokers'";
const ASSERTION: &str = "a login by assertion; use a client's id and secret";

/// All options of the Java producer.
pub(crate) const PRODUCER: &[(&str, Use)] = &[
    ("bootstrap.servers", As("bootstrap.servers")),
    ("client.id", As("client.id")),
    ("acks", Ignored(ALWAYS_ON)),
    ("enable.idempotence", Ignored(ALWAYS_ON)),
    ("retries", Ignored(ALWAYS_ON)),
    (
        "max.in.flight.requests.per.connection",
        Ignored("order is kept with several requests in flight too, as the producer is idempotent"),
    ),
    ("delivery.timeout.ms", Ignored(TIME)),
    ("max.block.ms", Ignored("the producer never blocks")),
    (
        "buffer.memory",
        Ignored("memory is bounded by [kafka] in_flight_bytes_max"),
    ),
    (
        "buffer.memory.allocation.strategy",
        Ignored("memory is bounded by [kafka] in_flight_bytes_max"),
    ),
    ("max.request.size", As("message.max.bytes")),
    ("request.timeout.ms", Same),
    ("linger.ms", Same),
    ("batch.size", Same),
    ("compression.type", Same),
    ("compression.lz4.level", As("compression.level")),
    ("compression.zstd.level", As("compression.level")),
    ("compression.gzip.level", As("compression.level")),
    ("key.serializer", Ignored(BYTES)),
    ("value.serializer", Ignored(BYTES)),
    (
        "partitioner.class",
        Refused(
            "a Java class; keys go where Java's default partitioner sends them. Remove it, or use a `partition` \
                placement",
        ),
    ),
    (
        "partitioner.ignore.keys",
        Refused("keyed records always follow their key; remove it"),
    ),
    (
        "partitioner.adaptive.partitioning.enable",
        Ignored("is about records without a key"),
    ),
    (
        "partitioner.availability.timeout.ms",
        Ignored("is about records without a key"),
    ),
    (
        "partitioner.rack.aware",
        Ignored("is about records without a key"),
    ),
    ("interceptor.classes", Refused("Java classes; remove it")),
    (
        "metric.reporters",
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    (
        "metrics.num.samples",
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    (
        "metrics.recording.level",
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    (
        "metrics.sample.window.ms",
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    (
        "auto.include.jmx.reporter",
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    ("enable.metrics.push", Same),
    ("transactional.id", Refused(TRANSACTIONS)),
    (
        "transaction.timeout.ms",
        Ignored("[kafka] transaction_timeout stands in its place"),
    ),
    ("transaction.two.phase.commit.enable", Refused(TRANSACTIONS)),
    (
        "bootstrap.resolve.timeout.ms",
        Ignored("a name that does not resolve is looked up again until it does"),
    ),
    ("client.dns.lookup", Same),
    ("client.rack", Same),
    ("connections.max.idle.ms", Same),
    ("metadata.max.age.ms", Same),
    ("metadata.max.idle.ms", Ignored(TUNING)),
    ("metadata.cluster.check.enable", Ignored(TUNING)),
    ("metadata.recovery.strategy", Same),
    ("metadata.recovery.rebootstrap.trigger.ms", Same),
    (
        "receive.buffer.bytes",
        Ignored("the system sizes socket buffers"),
    ),
    (
        "send.buffer.bytes",
        Ignored("the system sizes socket buffers"),
    ),
    ("reconnect.backoff.ms", Same),
    ("reconnect.backoff.max.ms", Same),
    ("retry.backoff.ms", Same),
    ("retry.backoff.max.ms", Same),
    ("socket.connection.setup.timeout.ms", Same),
    ("socket.connection.setup.timeout.max.ms", Ignored(TUNING)),
    ("config.providers", Ignored("providers are the worker's")),
    ("security.providers", Refused("Java classes; remove it")),
    ("security.protocol", Same),
    ("sasl.mechanism", Login),
    ("sasl.jaas.config", Login),
    ("sasl.kerberos.service.name", Login),
    (
        "sasl.kerberos.kinit.cmd",
        Ignored("`kinit` is found on the path"),
    ),
    ("sasl.kerberos.min.time.before.relogin", Login),
    ("sasl.kerberos.ticket.renew.jitter", Ignored(TUNING)),
    ("sasl.kerberos.ticket.renew.window.factor", Ignored(TUNING)),
    ("sasl.client.callback.handler.class", Login),
    ("sasl.login.callback.handler.class", Login),
    ("sasl.login.class", Login),
    ("sasl.oauthbearer.token.endpoint.url", Login),
    ("sasl.oauthbearer.client.credentials.client.id", Login),
    ("sasl.oauthbearer.client.credentials.client.secret", Login),
    ("sasl.oauthbearer.scope", Login),
    ("sasl.oauthbearer.jwt.retriever.class", Login),
    ("sasl.oauthbearer.header.urlencode", Login),
    ("sasl.oauthbearer.jwt.validator.class", Ignored(TOKEN_CHECK)),
    ("sasl.oauthbearer.jwks.endpoint.url", Ignored(TOKEN_CHECK)),
    (
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Ignored(TOKEN_CHECK),
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        Ignored(TOKEN_CHECK),
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Ignored(TOKEN_CHECK),
    ),
    ("sasl.oauthbearer.clock.skew.seconds", Ignored(TOKEN_CHECK)),
    ("sasl.oauthbearer.expected.audience", Ignored(TOKEN_CHECK)),
    ("sasl.oauthbearer.expected.issuer", Ignored(TOKEN_CHECK)),
    (
        "sasl.oauthbearer.allow.unverified.audience",
        Ignored(TOKEN_CHECK),
    ),
    (
        "sasl.oauthbearer.allow.unverified.issuer",
        Ignored(TOKEN_CHECK),
    ),
    ("sasl.oauthbearer.assertion.algorithm", Refused(ASSERTION)),
    ("sasl.oauthbearer.assertion.claim.aud", Refused(ASSERTION)),
    (
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Refused(ASSERTION),
    ),
    ("sasl.oauthbearer.assertion.claim.iss", Refused(ASSERTION)),
    (
        "sasl.oauthbearer.assertion.claim.jti.include",
        Refused(ASSERTION),
    ),
    (
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Refused(ASSERTION),
    ),
    ("sasl.oauthbearer.assertion.claim.sub", Refused(ASSERTION)),
    ("sasl.oauthbearer.assertion.file", Refused(ASSERTION)),
    (
        "sasl.oauthbearer.assertion.private.key.file",
        Refused(ASSERTION),
    ),
    (
        "sasl.oauthbearer.assertion.private.key.passphrase",
        Refused(ASSERTION),
    ),
    (
        "sasl.oauthbearer.assertion.template.file",
        Refused(ASSERTION),
    ),
    ("sasl.oauthbearer.scope.claim.name", Ignored(TUNING)),
    ("sasl.oauthbearer.sub.claim.name", Ignored(TUNING)),
    ("sasl.login.connect.timeout.ms", Ignored(TUNING)),
    ("sasl.login.read.timeout.ms", Ignored(TUNING)),
    ("sasl.login.retry.backoff.ms", Ignored(TUNING)),
    ("sasl.login.retry.backoff.max.ms", Ignored(TUNING)),
    ("sasl.login.refresh.buffer.seconds", Ignored(TUNING)),
    ("sasl.login.refresh.min.period.seconds", Ignored(TUNING)),
    ("sasl.login.refresh.window.factor", Ignored(TUNING)),
    ("sasl.login.refresh.window.jitter", Ignored(TUNING)),
    ("ssl.endpoint.identification.algorithm", Login),
    ("ssl.truststore.location", Login),
    ("ssl.truststore.password", Login),
    ("ssl.truststore.type", Login),
    ("ssl.truststore.certificates", Login),
    ("ssl.keystore.location", Login),
    ("ssl.keystore.password", Login),
    ("ssl.keystore.type", Login),
    ("ssl.keystore.key", Login),
    ("ssl.keystore.certificate.chain", Login),
    ("ssl.key.password", Login),
    (
        "ssl.cipher.suites",
        Refused("names of cipher suites are Java's; remove it and let both sides agree"),
    ),
    ("ssl.enabled.protocols", Ignored(TLS)),
    ("ssl.protocol", Ignored(TLS)),
    ("ssl.provider", Ignored(TLS)),
    ("ssl.keymanager.algorithm", Ignored(TLS)),
    ("ssl.trustmanager.algorithm", Ignored(TLS)),
    ("ssl.secure.random.implementation", Ignored(TLS)),
    (
        "ssl.engine.factory.class",
        Refused("a Java class; remove it"),
    ),
];
