//! The options of the PostgreSQL connector.

use crate::finding::Verdict::{Ignored as I, Kept as K, Mapped as M, Refused as R, Warned as W};
use crate::keys::Kind::{Bool, Int, Text};
use crate::keys::Rule::{Ignored, Kept, Mapped, Only, Refused, Words};
use crate::keys::{Key, always, from, key};

const NO_SNAPSHOT: &str = "no snapshot is taken here";
const NO_QUEUE: &str = "rows are handed on as they arrive, within [kafka] in_flight_records_max and \
    in_flight_bytes_max";
const NO_HEARTBEAT: &str = "no heartbeat is needed: the position follows the server's keepalives when the outbox \
    is quiet, and none is published";
const NO_SIGNALS: &str = "there are no ad hoc snapshots, and so no signals for them";
const NO_DELETE: &str =
    "the Event Router drops what it is about (UPDATE and DELETE), there and here";
const OTHER_CHANGE: &str = "it would change the rows before they are routed, which is not built; remove it, or \
    keep Debezium for this outbox";

/// Whether a first start is at hand is for the caller to see; the configuration alone does not say.
pub(crate) const INITIAL: &str = "where the slot exists, as after `takeover`, nothing is to be snapshot and the \
    stream goes on. A first start, without a slot, would publish all rows of the table, which is not built yet \
    and is refused: write no_data for it";

/// All options of the connector itself.
pub(crate) const CONNECTOR: &[Key] = &[
    // Identity and selection.
    key("connector.class", Text, Kept("the PostgreSQL connector")),
    key("name", Text, Kept("the connector's name, in reports and for the stored offset")),
    key("tasks.max", Int(1), Ignored("there is one task, there and here")).default(&[always("1")]),
    key("topic.prefix", Text, Kept("first part of the topic that predicates see; part of the stored offset's key")),
    key("database.hostname", Text, Mapped("source.host")),
    key("database.port", Int(1), Mapped("source.port")).default(&[always("5432")]),
    key("database.user", Text, Mapped("source.user")),
    key("database.password", Text, Mapped("source.password")),
    key("database.dbname", Text, Mapped("source.dbname")),
    key("table.include.list", Text, Kept("which tables are captured")),
    key("table.exclude.list", Text, Kept("which tables are not captured")),
    key("schema.include.list", Text, Kept("which schemas are captured")),
    key("schema.exclude.list", Text, Kept("which schemas are not captured")),
    key("column.include.list", Text, Refused(OTHER_CHANGE)),
    key("column.exclude.list", Text, Refused(OTHER_CHANGE)),
    key("plugin.name", Text, Words(&[
        ("pgoutput", K, "the only plugin there is here"),
        ("decoderbufs", R, "a slot of this plugin cannot be read here; create a pgoutput slot beside it and move \
            over as docs/migrate-from-debezium.md says, then write pgoutput"),
        ("wal2json", R, "a slot of this plugin cannot be read here, nor by Debezium from 2.0 on; create a \
            pgoutput slot beside it and move over as docs/migrate-from-debezium.md says, then write pgoutput"),
    ])).default(&[always("decoderbufs")]),
    key("message.key.columns", Text, Ignored("the Event Router sets the key itself")),
    key("skipped.operations", Text, Kept("only INSERTs are routed")).default(&[always("t")]),
    key("tombstones.on.delete", Bool, Ignored(NO_DELETE)).default(&[always("true")]),
    key("unavailable.value.placeholder", Text, Ignored("an INSERT is always complete")).default(&[always("__debezium_unavailable_value")]),
    key("include.unknown.datatypes", Bool, Kept("columns of unknown types are kept as bytes")).default(&[always("false")]),
    key("include.schema.changes", Bool, Ignored("the PostgreSQL connector publishes none")).default(&[always("true")]),
    key("include.schema.comments", Bool, Ignored("comments reach no outbox record")).default(&[always("false")]),
    key("provide.transaction.metadata", Bool, Only("false", "off, there and here", "the topic <prefix>.transaction is not \
        published here; set it to false once nobody reads that topic")).default(&[always("false")]),
    key("topic.naming.strategy", Text, Only("io.debezium.schema.SchemaTopicNamingStrategy", "the standard one", "only the standard strategy is known; remove the key")),
    key("topic.delimiter", Text, Only(".", "the standard one", "only `.` is known; remove the key")).default(&[always(".")]),
    key("topic.cache.size", Int(0), Ignored("a cache of the connector")),
    key("topic.transaction", Text, Ignored("transaction metadata is not published")).default(&[always("transaction")]),
    key("source.struct.version", Text, Ignored("the source block reaches no outbox record")),
    key("sourceinfo.struct.maker", Text, Ignored("the source block reaches no outbox record")),
    key("converters", Text, Refused("custom converters are Java code; remove them, or keep Debezium for this outbox")),
    key("post.processors", Text, Refused("post processors are Java code; remove them, or keep Debezium for this \
        outbox")),
    key("custom.sanitize.pattern", Text, Ignored("names of metrics are ours")),
    key("custom.metric.tags", Text, Ignored("metrics are ours; see docs/metrics.md")),
    key("extended.headers.enabled", Bool, Kept("the __debezium.context.* headers before `id`"))
        .default(&[
            always("false"),
            from(3, 2, 1, "true (connectorLogicalName, taskId, connectorName)"),
            from(3, 4, 0, "true (connectorLogicalName, taskId, connectorName, runId)"),
        ]).since(3, 2, 1),
    // Slot.
    key("slot.name", Text, Mapped("source.slot")).default(&[always("debezium")]),
    key("slot.drop.on.stop", Bool, Only("false", "the slot is never dropped here", "the slot is never dropped here, since \
        what comes in between would be lost; set it to false")).default(&[always("false")]),
    key("slot.stream.params", Text, Refused("further options of START_REPLICATION are not passed on; remove it")),
    key("slot.max.retries", Int(0), Ignored("what can heal by itself is tried again without a limit; see [retry]")).default(&[always("6")]),
    key("slot.retry.delay.ms", Int(0), Ignored("waits are set with [retry]")).default(&[always("10000")]),
    key("slot.failover", Bool, Mapped("source.failover (a failover slot when one is created; refused below PostgreSQL 17)")).default(&[always("false")]).since(3, 0, 5),
    key("offset.mismatch.strategy", Text, Words(&[
        ("no_validation", I, "the slot is the only position here, so nothing can mismatch"),
        ("trust_offset", I, "the slot is the only position here; `takeover` compares it with the stored offset once"),
        ("trust_slot", I, "the slot is the only position here"),
        ("trust_greater_lsn", I, "the slot is the only position here; `takeover` starts at the greater of both"),
    ])).default(&[always("no_validation")]).since(3, 4, 0),
    key("xmin.fetch.interval.ms", Int(0), Ignored("only adds to the source block, which reaches no outbox record")).default(&[always("0")]),
    key("read.only", Bool, Ignored("nothing is written to the database unless --create is given")).default(&[always("false")]),
    // Publication.
    key("publication.name", Text, Mapped("source.publication")).default(&[always("dbz_publication")]),
    key("publication.autocreate.mode", Text, Words(&[
        ("disabled", M, "source.create = false: the publication has to exist"),
        ("all_tables", W, "an existing publication is used as it is. One for all tables is never created here: \
            with --create it is made for the outbox tables alone"),
        ("filtered", M, "an existing publication is used as it is and never altered; with --create it is made \
            for the outbox tables. Debezium would alter it to its own list of tables"),
        ("no_tables", M, "an existing publication is used as it is; with --create it is made without tables"),
    ])).default(&[always("all_tables")]),
    key("publish.via.partition.root", Bool, Mapped("used where a publication is created; an existing one says so \
        itself")).default(&[always("false")]).since(3, 2, 0),
    key("replica.identity.autoset.values", Text, Ignored("the replica identity is about UPDATE and DELETE, which \
        are not routed; no table is altered here")),
    // Snapshot.
    key("snapshot.mode", Text, Words(&[
        ("no_data", K, "starts at the slot's position, without a snapshot"),
        ("initial", W, INITIAL),
        ("always", R, "it would publish all rows of the table at each start; write no_data"),
        ("initial_only", R, "it publishes the table once and stops, which is not built yet; write no_data, or \
            let Debezium do it"),
        ("when_needed", W, INITIAL),
        ("configuration_based", R, "it depends on further keys; write no_data"),
        ("custom", R, "a snapshot mode in Java; write no_data"),
        ("never", R, "the name before 2.6, which 3.x refuses; write no_data"),
        ("schema_only", R, "the name before 2.6; write no_data"),
        ("exported", R, "a name of 1.x; write no_data"),
    ])).default(&[always("initial")]),
    key("snapshot.isolation.mode", Text, Ignored(NO_SNAPSHOT)).default(&[always("serializable")]),
    key("snapshot.locking.mode", Text, Ignored(NO_SNAPSHOT)).default(&[always("none")]),
    key("snapshot.locking.mode.custom.name", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.mode.custom.name", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.lock.timeout.ms", Int(0), Ignored(NO_SNAPSHOT)).default(&[always("10000")]),
    key("snapshot.fetch.size", Int(0), Ignored(NO_SNAPSHOT)).default(&[always("10240")]),
    key("snapshot.max.threads", Int(0), Ignored(NO_SNAPSHOT)).default(&[always("1")]),
    key("snapshot.delay.ms", Int(0), Ignored(NO_SNAPSHOT)).default(&[always("0")]),
    key("snapshot.include.collection.list", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.tables.order.by.row.count", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.select.statement.overrides", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.query.mode", Text, Ignored(NO_SNAPSHOT)).default(&[always("select_all")]),
    key("snapshot.query.mode.custom.name", Text, Ignored(NO_SNAPSHOT)),
    key("snapshot.mode.configuration.based.snapshot.data", Bool, Ignored(NO_SNAPSHOT)).default(&[always("false")]),
    key("snapshot.mode.configuration.based.snapshot.schema", Bool, Ignored(NO_SNAPSHOT)).default(&[always("false")]),
    key("snapshot.mode.configuration.based.start.stream", Bool, Ignored(NO_SNAPSHOT)).default(&[always("false")]),
    key("snapshot.mode.configuration.based.snapshot.on.schema.error", Bool, Ignored(NO_SNAPSHOT)).default(&[always("false")]),
    key("snapshot.mode.configuration.based.snapshot.on.data.error", Bool, Ignored(NO_SNAPSHOT)).default(&[always("false")]),
    key("streaming.delay.ms", Int(0), Ignored("streaming begins at once")).default(&[always("0")]),
    key("signal.data.collection", Text, Ignored(NO_SIGNALS)),
    key("signal.enabled.channels", Text, Ignored(NO_SIGNALS)).default(&[always("source")]),
    key("signal.poll.interval.ms", Int(0), Ignored(NO_SIGNALS)),
    key("signal.kafka.topic", Text, Ignored(NO_SIGNALS)),
    key("signal.kafka.bootstrap.servers", Text, Ignored(NO_SIGNALS)),
    key("signal.file", Text, Ignored(NO_SIGNALS)),
    key("notification.enabled.channels", Text, Ignored("notifications are about snapshots")),
    key("notification.sink.topic.name", Text, Ignored("notifications are about snapshots")),
    key("incremental.snapshot.chunk.size", Int(0), Ignored(NO_SIGNALS)).default(&[always("1024")]),
    key("incremental.snapshot.watermarking.strategy", Text, Ignored(NO_SIGNALS)),
    key("incremental.snapshot.allow.schema.changes", Bool, Ignored(NO_SIGNALS)),
    // Liveness and confirmation.
    key("heartbeat.interval.ms", Int(0), Ignored(NO_HEARTBEAT)).default(&[always("0")]),
    key("topic.heartbeat.prefix", Text, Ignored(NO_HEARTBEAT)).default(&[always("__debezium-heartbeat")]),
    key("topic.heartbeat.name", Text, Ignored(NO_HEARTBEAT)).since(3, 7, 0),
    key("heartbeat.action.query", Text, Ignored("no heartbeat is needed, so this is not run; envelopes of the table it writes to are not published either")),
    key("status.update.interval.ms", Int(1), Mapped("source.status_interval")).default(&[always("10000")]),
    key("lsn.flush.mode", Text, Words(&[
        ("connector", K, "what Kafka has acknowledged is confirmed"),
        ("connector_and_driver", K, "what Kafka has acknowledged is confirmed, and the server's keepalives when nothing waits"),
        ("manual", R, "the position is always confirmed here, or the server would keep its log for ever; write \
            connector and stop moving the slot by other means"),
    ])).default(&[always("connector")]).since(3, 4, 0),
    key("flush.lsn.source", Bool, Only("true", "an old name: what Kafka has acknowledged is confirmed; from 3.4 on write lsn.flush.mode=connector, or remove it", "an old name for lsn.flush.mode=manual: \
        the position is always confirmed here, or the server would keep its log for ever; remove it and stop \
        moving the slot by other means")).default(&[always("true")]),
    key("lsn.flush.timeout.ms", Int(0), Ignored("confirming waits for nothing here")).default(&[always("30000")]).since(3, 2, 0),
    key("lsn.flush.timeout.action", Text, Ignored("confirming waits for nothing here")).default(&[always("fail")]).since(3, 2, 0),
    key("connection.validation.timeout.ms", Int(0), Ignored("the first connection is the check")).default(&[always("60000")]),
    key("executor.shutdown.timeout.ms", Int(0), Ignored("stopping is limited by [kafka] drain_timeout")).default(&[always("4000")]),
    // Errors.
    key("errors.max.retries", Int(-1), Ignored("what can heal by itself is tried again without a limit; see \
        [retry]")).default(&[always("-1")]),
    key("retriable.restart.connector.wait.ms", Int(0), Ignored("waits are set with [retry]")).default(&[always("10000")]),
    key("event.processing.failure.handling.mode", Text, Words(&[
        ("fail", K, "a row that cannot be read stops the stream"),
        ("warn", W, "a row that cannot be read stops the stream here, and is never passed over; \
            errors.tolerance=all passes over rows that make no record"),
        ("skip", W, "a row that cannot be read stops the stream here, and is never passed over; \
            errors.tolerance=all passes over rows that make no record"),
        ("ignore", W, "a row that cannot be read stops the stream here, and is never passed over; \
            errors.tolerance=all passes over rows that make no record"),
    ])).default(&[always("fail")]),
    key("event.converting.failure.handling.mode", Text, Words(&[
        ("warn", K, "a value that cannot be converted is sent as NULL, or as the column's default, with a warning"),
        ("fail", K, "a value that cannot be converted stops the stream"),
        ("skip", K, "a value that cannot be converted is sent as NULL, or as the column's default; warned of here, too"),
    ])).default(&[always("warn")]),
    key("guardrail.collections.max", Int(0), Ignored("only the outbox tables are read")).default(&[always("0")]),
    key("guardrail.collections.limit.action", Text, Ignored("only the outbox tables are read")).default(&[always("warn")]),
    // Buffers.
    key("max.batch.size", Int(1), Ignored(NO_QUEUE)).default(&[always("2048")]),
    key("max.queue.size", Int(1), Ignored(NO_QUEUE)).default(&[always("8192")]),
    key("max.queue.size.in.bytes", Int(0), Ignored(NO_QUEUE)).default(&[always("0")]),
    key("poll.interval.ms", Int(0), Ignored("rows are handed on as they arrive, without an interval")).default(&[always("500")]),
    key("poll.dispatch.interval.ms", Int(0), Ignored("rows are handed on as they arrive, without an interval")).default(&[always("0")]).since(3, 7, 0),
    key("queue.provider.type", Text, Ignored(NO_QUEUE)),
    key("statistics.metrics.enabled", Bool, Ignored("metrics are ours; see docs/metrics.md")).default(&[always("true")]),
    // Types.
    key("binary.handling.mode", Text, Kept("what bytea becomes")).default(&[always("bytes")]),
    key("hstore.handling.mode", Text, Kept("what hstore becomes")).default(&[always("json")]),
    key("interval.handling.mode", Text, Kept("what interval becomes")).default(&[always("numeric")]),
    key("decimal.handling.mode", Text, Kept("what numeric becomes")).default(&[always("precise")]),
    key("time.precision.mode", Text, Kept("what dates and times become")).default(&[always("adaptive")]),
    key("money.fraction.digits", Int(0), Kept("digits of money")).default(&[always("2")]),
    key("schema.name.adjustment.mode", Text, Kept("names of schemas")).default(&[always("none")]),
    key("field.name.adjustment.mode", Text, Kept("names of fields")).default(&[always("none")]),
    key("schema.refresh.mode", Text, Ignored("columns are always known from the stream itself")).default(&[always("columns_diff")]),
    key("datatype.propagate.source.type", Text, Only("", "empty", "parameters in column schemas are not built; remove it")),
    key("column.propagate.source.type", Text, Only("", "empty", "parameters in column schemas are not built; remove it")),
    key("schema.history.internal.file.filename", Text, Ignored("the PostgreSQL connector has no schema history")),
    // Connection.
    key("database.sslmode", Text, Mapped("source.sslmode")).default(&[always("prefer")]),
    key("database.sslcert", Text, Mapped("source.sslcert")),
    key("database.sslkey", Text, Mapped("source.sslkey (PEM)")),
    key("database.sslrootcert", Text, Mapped("source.sslrootcert")),
    key("database.sslpassword", Text, Refused("encrypted keys are not read; decrypt it with `openssl pkcs8 -in \
        KEY -out key.pem`, point database.sslkey to key.pem and remove this")),
    key("database.sslfactory", Text, Only("org.postgresql.ssl.DefaultJavaSSLFactory", "certificates are checked as sslmode says", "a Java class; remove it and let \
        database.sslmode and database.sslrootcert say what is checked")),
    key("database.tcpKeepAlive", Bool, Ignored("keepalive is always on")).default(&[always("true")]),
    key("database.query.timeout.ms", Int(0), Ignored("there are no long queries")).default(&[always("600000")]),
    key("database.initial.statements", Text, Ignored("they run on connections that the stream does not use")),
    key("database.connectTimeout", Int(0), Ignored("set [source] connect_timeout")),
    key("database.socketTimeout", Int(0), Ignored("a silent connection is noticed by missing keepalives")),
    key("database.loginTimeout", Int(0), Ignored("set [source] connect_timeout")),
    key("database.ApplicationName", Text, Ignored("set [source] application_name")),
    key("database.connection.factory.class", Text, Refused("a Java class (such as for AWS IAM tokens); use a \
        password or a client certificate")),
    // Messages.
    key("message.prefix.include.list", Text, Kept("which logical messages are taken")),
    key("message.prefix.exclude.list", Text, Kept("which logical messages are not taken")),
];

/// Options known by how they begin.
pub(crate) const CONNECTOR_PREFIXES: &[Key] = &[
    key("column.mask.", Text, Refused(OTHER_CHANGE)),
    key("column.truncate.to.", Text, Refused(OTHER_CHANGE)),
    key(
        "snapshot.select.statement.overrides.",
        Text,
        Ignored(NO_SNAPSHOT),
    ),
    key("signal.consumer.", Text, Ignored(NO_SIGNALS)),
    key("signal.", Text, Ignored(NO_SIGNALS)),
    key("openlineage.", Text, Ignored("lineage is not reported")),
    key("internal.", Text, Ignored("internal to Debezium")),
    key(
        "driver.",
        Text,
        Ignored("an option of the JDBC driver, which is not used here"),
    ),
    key(
        "schema.history.",
        Text,
        Ignored("the PostgreSQL connector has no schema history"),
    ),
    key(
        "offset.storage",
        Text,
        Ignored("the slot is the only store of the position"),
    ),
    key(
        "offset.flush.",
        Text,
        Ignored("the position is confirmed as soon as Kafka has acknowledged it"),
    ),
    key(
        "errors.deadletterqueue.",
        Text,
        Ignored("belongs to sinks; Connect ignores it on a source, and so do we"),
    ),
    key(
        "admin.override.",
        Text,
        Ignored("topics are created with the producer's own connection"),
    ),
    key("consumer.override.", Text, Ignored("nothing is consumed")),
];
