//! The options of Kafka Connect itself: those of a connector, of a worker and of topic creation.

use crate::finding::Verdict::{Ignored as I, Kept as K, Mapped as M, Refused as R};
use crate::keys::Kind::{Bool, Int, Text};
use crate::keys::Rule::{Ignored, Kept, Mapped, Refused, Words};
use crate::keys::{Key, always, key};

const OWN_CLUSTER: &str = "it is about workers finding each other; one process runs one pipeline";
const OWN_TOPICS: &str = "the slot is the only store of the position; nothing is kept in topics";
const OWN_PAGES: &str = "there is no REST interface; see [http] listen";
const EXACTLY_ONCE: &str = "the connector's exactly.once.support decides: with required, delivery is exactly once, otherwise \
    at least once";
const WORKER_OWN: &str = "of the worker's own connections; the connector's producer takes `producer.` and \
    `producer.override.` keys only";

/// What Connect reads in any source connector's configuration.
pub(crate) const FRAMEWORK: &[Key] = &[
    key("key.converter", Text, Kept("bytes of the key")),
    key("value.converter", Text, Kept("bytes of the value")),
    key("header.converter", Text, Kept("bytes of the headers")).default(&[always("org.apache.kafka.connect.storage.SimpleHeaderConverter")]),
    key("transforms", Text, Kept("the transforms in their order")),
    key("predicates", Text, Kept("the predicates")),
    key("errors.tolerance", Text, Words(&[
        ("none", K, "a row that makes no record stops the stream"),
        ("all", K, "a row that makes no record is passed over and counted"),
    ])).default(&[always("none")]),
    key("errors.retry.timeout", Int(-1), Ignored("transforms and converters do not fail for a while only")).default(&[always("0")]),
    key("errors.retry.delay.max.ms", Int(0), Ignored("transforms and converters do not fail for a while only")).default(&[always("60000")]),
    key("errors.log.enable", Bool, Ignored("each skipped row is logged with its position")).default(&[always("false")]),
    key("errors.log.include.messages", Bool, Ignored("contents of rows are never logged")).default(&[always("false")]),
    key("config.action.reload", Text, Ignored("secrets are looked up again at each connection to PostgreSQL and for each Kafka client; nothing has to be restarted")).default(&[always("restart")]),
    key("exactly.once.support", Text, Words(&[
        ("requested", I, "asks for exactly-once only where a worker offers it; delivery is at least once unless it says required"),
        ("required", M, "kafka.delivery = exactly-once"),
    ])).default(&[always("requested")]),
    key("transaction.boundary", Text, Words(&[
        ("poll", I, "transactions are cut by [kafka] transaction_interval, transaction_records_max and transaction_bytes_max"),
        ("interval", I, "transactions are cut by [kafka] transaction_interval, transaction_records_max and transaction_bytes_max"),
        ("connector", R, "the Debezium connector defines no boundaries and Connect refuses this; remove it"),
    ])).default(&[always("poll")]),
    key("transaction.boundary.interval.ms", Int(0), Ignored("[kafka] transaction_interval stands in its place, and is short so that events are not late")),
    key("offsets.storage.topic", Text, Mapped("`takeover` reads the stored offset there; nothing is written to it")),
    key("tasks.max.enforce", Bool, Ignored("there is one task, there and here")),
    key("connector.plugin.version", Text, Ignored("give the version that ran with --debezium-version")),
    key("key.converter.plugin.version", Text, Ignored("converters are part of the program")),
    key("value.converter.plugin.version", Text, Ignored("converters are part of the program")),
    key("header.converter.plugin.version", Text, Ignored("converters are part of the program")),
    key("topic.creation.groups", Text, Mapped("connect.topic_creation: groups in their order")),
];

/// What follows `topic.creation.default.` or a group's name. Anything else is an option of the topic.
pub(crate) const TOPIC_GROUP: &[Key] = &[
    key(
        "replication.factor",
        Int(-1),
        Mapped("connect.topic_creation: replication factor"),
    ),
    key(
        "partitions",
        Int(-1),
        Mapped("connect.topic_creation: partitions"),
    ),
    key(
        "include",
        Text,
        Mapped("connect.topic_creation: which topics"),
    ),
    key(
        "exclude",
        Text,
        Mapped("connect.topic_creation: which topics not"),
    ),
];

/// The worker's own options.
pub(crate) const WORKER: &[Key] = &[
    key("bootstrap.servers", Text, Mapped("kafka.brokers")),
    key(
        "key.converter",
        Text,
        Kept("bytes of the key, where the connector does not say"),
    ),
    key(
        "value.converter",
        Text,
        Kept("bytes of the value, where the connector does not say"),
    ),
    key(
        "header.converter",
        Text,
        Kept("bytes of the headers, where the connector does not say"),
    ),
    key("group.id", Text, Ignored(OWN_CLUSTER)),
    key(
        "client.id",
        Text,
        Ignored("the client's name is set with [kafka] client_id"),
    ),
    key(
        "offset.storage.topic",
        Text,
        Mapped("`takeover` reads the stored offset there; nothing is written to it"),
    ),
    key(
        "offset.storage.file.filename",
        Text,
        Ignored(
            "the slot is the only store of the position; \
        `takeover` reads the stored offset from that file if it is given with --offsets",
        ),
    ),
    key("offset.storage.partitions", Int(-1), Ignored(OWN_TOPICS)),
    key(
        "offset.storage.replication.factor",
        Int(-1),
        Ignored(OWN_TOPICS),
    ),
    key(
        "offset.flush.interval.ms",
        Int(0),
        Ignored(
            "the position is confirmed as soon as Kafka has acknowledged \
        it",
        ),
    )
    .default(&[always("60000")]),
    key(
        "offset.flush.timeout.ms",
        Int(0),
        Ignored(
            "the position is confirmed as soon as Kafka has acknowledged \
        it",
        ),
    )
    .default(&[always("5000")]),
    key("config.storage.topic", Text, Ignored(OWN_TOPICS)),
    key(
        "config.storage.replication.factor",
        Int(-1),
        Ignored(OWN_TOPICS),
    ),
    key("status.storage.topic", Text, Ignored(OWN_TOPICS)),
    key("status.storage.partitions", Int(-1), Ignored(OWN_TOPICS)),
    key(
        "status.storage.replication.factor",
        Int(-1),
        Ignored(OWN_TOPICS),
    ),
    key(
        "config.providers",
        Text,
        Kept("where `${provider:path:key}` is looked up"),
    ),
    key(
        "topic.creation.enable",
        Bool,
        Kept("whether the connector's topic.creation keys count"),
    )
    .default(&[always("true")]),
    key(
        "exactly.once.source.support",
        Text,
        Words(&[
            ("disabled", I, EXACTLY_ONCE),
            ("preparing", I, EXACTLY_ONCE),
            ("enabled", M, EXACTLY_ONCE),
        ]),
    )
    .default(&[always("disabled")]),
    key(
        "connector.client.config.override.policy",
        Text,
        Kept("whether the connector's producer.override keys count"),
    )
    .default(&[always("All")]),
    key("plugin.path", Text, Ignored("there are no plugins")),
    key("plugin.discovery", Text, Ignored("there are no plugins")),
    key(
        "task.shutdown.graceful.timeout.ms",
        Int(0),
        Ignored("stopping is limited by [kafka] drain_timeout"),
    ),
    key("heartbeat.interval.ms", Int(0), Ignored(OWN_CLUSTER)),
    key("session.timeout.ms", Int(0), Ignored(OWN_CLUSTER)),
    key("rebalance.timeout.ms", Int(0), Ignored(OWN_CLUSTER)),
    key("worker.sync.timeout.ms", Int(0), Ignored(OWN_CLUSTER)),
    key("worker.unsync.backoff.ms", Int(0), Ignored(OWN_CLUSTER)),
    key(
        "scheduled.rebalance.max.delay.ms",
        Int(0),
        Ignored(OWN_CLUSTER),
    ),
    key("connect.protocol", Text, Ignored(OWN_CLUSTER)),
    key("listeners", Text, Ignored(OWN_PAGES)),
    key("admin.listeners", Text, Ignored(OWN_PAGES)),
    key("response.http.headers.config", Text, Ignored(OWN_PAGES)),
    key("access.control.allow.origin", Text, Ignored(OWN_PAGES)),
    key("access.control.allow.methods", Text, Ignored(OWN_PAGES)),
    key("security.protocol", Text, Ignored(WORKER_OWN)),
    key("internal.key.converter", Text, Ignored(OWN_TOPICS)),
    key("internal.value.converter", Text, Ignored(OWN_TOPICS)),
    key(
        "metric.reporters",
        Text,
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    key(
        "auto.include.jmx.reporter",
        Bool,
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
];

/// Worker options known by how they begin.
pub(crate) const WORKER_PREFIXES: &[Key] = &[
    key("sasl.", Text, Ignored(WORKER_OWN)),
    key("ssl.", Text, Ignored(WORKER_OWN)),
    key("rest.", Text, Ignored(OWN_PAGES)),
    key("listeners.", Text, Ignored(OWN_PAGES)),
    key("consumer.", Text, Ignored("nothing is consumed")),
    key(
        "admin.",
        Text,
        Ignored("topics are created with the producer's own connection"),
    ),
    key(
        "config.providers.",
        Text,
        Kept("where `${provider:path:key}` is looked up"),
    ),
    key("config.storage.", Text, Ignored(OWN_TOPICS)),
    key("offset.storage.", Text, Ignored(OWN_TOPICS)),
    key("status.storage.", Text, Ignored(OWN_TOPICS)),
    key("inter.worker.", Text, Ignored(OWN_CLUSTER)),
    key(
        "metrics.",
        Text,
        Ignored("metrics are ours; see docs/metrics.md"),
    ),
    key(
        "key.converter.",
        Text,
        Kept("an option of the worker's converter"),
    ),
    key(
        "value.converter.",
        Text,
        Kept("an option of the worker's converter"),
    ),
    key(
        "header.converter.",
        Text,
        Kept("an option of the worker's converter"),
    ),
    key("internal.key.converter.", Text, Ignored(OWN_TOPICS)),
    key("internal.value.converter.", Text, Ignored(OWN_TOPICS)),
    key("request.timeout.ms", Text, Ignored(WORKER_OWN)),
    key("retry.backoff.", Text, Ignored(WORKER_OWN)),
    key("reconnect.backoff.", Text, Ignored(WORKER_OWN)),
    key("connections.max.idle.ms", Text, Ignored(WORKER_OWN)),
    key("metadata.max.age.ms", Text, Ignored(WORKER_OWN)),
    key("receive.buffer.bytes", Text, Ignored(WORKER_OWN)),
    key("send.buffer.bytes", Text, Ignored(WORKER_OWN)),
    key("socket.connection.setup.", Text, Ignored(WORKER_OWN)),
    key("client.dns.lookup", Text, Ignored(WORKER_OWN)),
];

/// What stands in a connector's file and belongs into the worker's.
pub(crate) const MISPLACED: &[Key] = &[
    key(
        "bootstrap.servers",
        Text,
        Refused("is a worker's key; put it into the file given with --worker, or give --brokers"),
    ),
    key(
        "config.providers",
        Text,
        Refused("is a worker's key; put it into the file given with --worker"),
    ),
    key(
        "topic.creation.enable",
        Text,
        Refused("is a worker's key; put it into the file given with --worker"),
    ),
    key(
        "group.id",
        Text,
        Refused("is a worker's key; put it into the file given with --worker"),
    ),
];
