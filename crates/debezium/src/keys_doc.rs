//! The tables of options as documentation: `docs/debezium-differences.md` holds them, and a test that they are the same.

use std::fmt::Write;

use crate::finding::Verdict;
use crate::keys::{ALWAYS, Key, Rule};
use crate::keys_connect::{FRAMEWORK, TOPIC_GROUP, WORKER, WORKER_PREFIXES};
use crate::keys_connector::{CONNECTOR, CONNECTOR_PREFIXES};
use crate::keys_old::{self, Instead, Old};
use crate::keys_producer::{PRODUCER, Use};
use crate::keys_router::{CONVERTERS, PREDICATES, TRANSFORM, TRANSFORMS};

const BEGIN: &str = "<!-- begin keys -->\n";
const END: &str = "<!-- end keys -->\n";

fn tables() -> String {
    let mut text = String::new();
    section(&mut text, "The connector's options", "", CONNECTOR);
    section(
        &mut text,
        "The connector's options, by how they begin",
        "…",
        CONNECTOR_PREFIXES,
    );
    section(&mut text, "Connect's options of a connector", "", FRAMEWORK);
    section(&mut text, "`topic.creation.GROUP.`", "", TOPIC_GROUP);
    section(&mut text, "`transforms.ALIAS.`", "", TRANSFORM);
    for class in TRANSFORMS
        .iter()
        .chain(PREDICATES)
        .chain(CONVERTERS)
        .filter(|class| !class.keys.is_empty())
    {
        section(&mut text, &format!("`{}`", class.name), "", class.keys);
    }
    section(&mut text, "The worker's options", "", WORKER);
    section(
        &mut text,
        "The worker's options, by how they begin",
        "…",
        WORKER_PREFIXES,
    );
    producer(&mut text);
    old(
        &mut text,
        "Old names of the connector's options",
        keys_old::CONNECTOR,
    );
    old(
        &mut text,
        "Old names of the Event Router's options",
        keys_old::EVENT_ROUTER,
    );
    text
}

fn section(text: &mut String, title: &str, end: &str, keys: &[Key]) {
    writeln!(
        text,
        "\n### {title}\n\n| option | default | here |\n|---|---|---|"
    )
    .unwrap();
    for key in keys {
        let since = match key.since == ALWAYS {
            true => String::new(),
            false => format!(" (since {})", key.since),
        };
        writeln!(
            text,
            "| `{}{end}`{since} | {} | {} |",
            key.name,
            defaults(key),
            rule(&key.rule).replace('|', "\\|")
        )
        .unwrap();
    }
}

fn defaults(key: &Key) -> String {
    let one = |default: &crate::keys::Default| match default.since == ALWAYS {
        true => format!("`{}`", default.value),
        false => format!("since {}: `{}`", default.since, default.value),
    };
    key.defaults.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn rule(rule: &Rule) -> String {
    match rule {
        Rule::Kept(what) => format!("kept: {what}"),
        Rule::Mapped(to) => format!("mapped: {to}"),
        Rule::Ignored(why) => format!("ignored: {why}"),
        Rule::Refused(fix) => format!("refused: {fix}"),
        Rule::Only(harmless, why, fix) => {
            format!("`{harmless}` ignored: {why}. Else refused: {fix}")
        }
        Rule::Words(words) => {
            let word = |(word, verdict, what): &(&str, Verdict, &str)| {
                format!("`{word}` {verdict}: {what}")
            };
            words.iter().map(word).collect::<Vec<_>>().join(". ")
        }
    }
}

fn producer(text: &mut String) {
    let title =
        "Kafka's producer: `producer.` of the worker, `producer.override.` of the connector";
    writeln!(text, "\n### {title}\n\n| option | here |\n|---|---|").unwrap();
    for (name, rule) in PRODUCER {
        let rule = match rule {
            Use::Same => "mapped: the same name".to_owned(),
            Use::As(other) => format!("mapped: `{other}`"),
            Use::Ignored(why) => format!("ignored: {why}"),
            Use::Refused(fix) => format!("refused: {fix}"),
            Use::Login => "mapped, with its neighbours".to_owned(),
        };
        writeln!(text, "| `{name}` | {rule} |").unwrap();
    }
}

fn old(text: &mut String, title: &str, names: &[Old]) {
    writeln!(
        text,
        "\n### {title}\n\n| old name | refused; instead |\n|---|---|"
    )
    .unwrap();
    for old in names {
        let instead = match old.instead {
            Instead::Key(name) => format!("`{name}`, with the same value"),
            Instead::Nothing(why) => format!("nothing: {why}"),
            Instead::Text(fix) => fix.to_owned(),
        };
        writeln!(text, "| `{}` | {instead} |", old.name).unwrap();
    }
}

#[test]
fn the_documentation_has_all_options() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/debezium-differences.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (tables_there, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{}\n{END}{after}", tables())).unwrap();
    } else {
        let same = tables_there == format!("{}\n", tables());
        assert!(
            same,
            "UPDATE_DOCS=1 cargo test -p debezium writes the tables anew"
        );
    }
}

#[test]
fn each_option_stands_once_with_its_defaults_in_order() {
    let classes = TRANSFORMS
        .iter()
        .chain(PREDICATES)
        .chain(CONVERTERS)
        .map(|class| class.keys);
    for table in [
        CONNECTOR,
        CONNECTOR_PREFIXES,
        FRAMEWORK,
        TOPIC_GROUP,
        TRANSFORM,
        WORKER,
    ]
    .into_iter()
    .chain(classes)
    {
        for (at, key) in table.iter().enumerate() {
            assert!(
                !table
                    .iter()
                    .skip(at + 1)
                    .any(|other| other.name == key.name),
                "{} stands twice",
                key.name
            );
            assert!(
                key.defaults.is_sorted_by_key(|default| default.since),
                "{}",
                key.name
            );
        }
    }
    for (at, (name, _)) in PRODUCER.iter().enumerate() {
        assert!(
            !PRODUCER.iter().skip(at + 1).any(|(other, _)| other == name),
            "{name} stands twice"
        );
    }
}

/// What the specification of Debezium's behaviour names, so that none is taken for a slip of the pen.
#[test]
fn no_option_of_the_specification_is_unknown() {
    let known = |name: &str| {
        let tables = [CONNECTOR, FRAMEWORK, WORKER, TRANSFORM, TOPIC_GROUP].into_iter();
        let classes = TRANSFORMS
            .iter()
            .chain(PREDICATES)
            .chain(CONVERTERS)
            .map(|class| class.keys);
        tables.chain(classes).flatten().any(|key| key.name == name)
            || CONNECTOR_PREFIXES
                .iter()
                .chain(WORKER_PREFIXES)
                .any(|key| name.starts_with(key.name))
            || PRODUCER.iter().any(|(producer, _)| *producer == name)
            || keys_old::find(keys_old::CONNECTOR, name)
                .or_else(|| keys_old::find(keys_old::EVENT_ROUTER, name))
                .is_some()
    };
    for name in SPECIFIED.split_whitespace() {
        assert!(known(name), "{name} is unknown");
    }
}

const SPECIFIED: &str = "
    batch.size binary.handling.mode buffer.memory client.id column.exclude.list column.include.list
    column.mask.hash compression.type config.action.reload config.providers connection.validation.timeout.ms
    connector.class connector.client.config.override.policy custom.metric.tags custom.sanitize.pattern
    database.ApplicationName database.connection.factory.class database.dbname database.hostname
    database.initial.statements database.password database.port database.query.timeout.ms database.server.name
    database.socketTimeout database.sslcert database.sslfactory database.sslkey database.sslmode
    database.sslpassword database.sslrootcert database.tcpKeepAlive database.user debezium.expand.json.payload
    debezium.op.invalid.behavior decimal.format decimal.handling.mode delivery.timeout.ms enable.idempotence
    errors.deadletterqueue.topic.name errors.log.enable errors.log.include.messages errors.max.retries
    errors.retry.delay.max.ms errors.retry.timeout errors.tolerance event.converting.failure.handling.mode
    event.processing.failure.handling.mode exactly.once.source.support exactly.once.support
    executor.shutdown.timeout.ms extended.headers.enabled field.name.adjustment.mode fields.null.include
    flush.lsn.source guardrail.collections.limit.action guardrail.collections.max header.converter
    heartbeat.action.query heartbeat.interval.ms heartbeat.topics.prefix hstore.handling.mode
    include.unknown.datatypes incremental.snapshot.chunk.size internal.create.slot.command.timeout
    internal.custom.retriable.exception internal.log.position.check.enable
    internal.slot.seek.to.known.offset.on.start interval.handling.mode key.converter linger.ms lsn.flush.mode
    lsn.flush.timeout.action lsn.flush.timeout.ms max.batch.size max.block.ms
    max.in.flight.requests.per.connection max.queue.size max.queue.size.in.bytes max.request.size
    message.key.columns message.prefix.exclude.list message.prefix.include.list money.fraction.digits negate
    offset.flush.interval.ms offset.flush.timeout.ms offset.mismatch.strategy offset.storage.topic
    offsets.storage.topic partitioner.class pattern plugin.name poll.dispatch.interval.ms poll.interval.ms
    predicate predicates publication.autocreate.mode publication.name publish.via.partition.root
    queue.provider.type read.only replace.null.with.default replica.identity.autoset.values request.timeout.ms
    retriable.restart.connector.wait.ms route.by.field route.tombstone.on.empty.payload route.topic.regex
    route.topic.replacement sasl.jaas.config schema.exclude.list schema.include.list
    schema.name.adjustment.mode schema.refresh.mode schemas.enable signal.data.collection
    signal.enabled.channels skipped.operations slot.drop.on.stop slot.failover slot.max.retries slot.name
    slot.retry.delay.ms slot.seek.to.known.offset.on.start slot.stream.params snapshot.delay.ms
    snapshot.fetch.size snapshot.include.collection.list snapshot.isolation.mode snapshot.lock.timeout.ms
    snapshot.locking.mode snapshot.max.threads snapshot.mode snapshot.mode.configuration.based.snapshot.data
    snapshot.query.mode snapshot.select.statement.overrides snapshot.select.statement.overrides.public.outbox
    statistics.metrics.enabled status.update.interval.ms streaming.delay.ms table.exclude.list
    table.expand.json.payload table.field.additional.missing table.field.event.id table.field.event.key
    table.field.event.payload table.field.event.payload.id table.field.event.schema.version
    table.field.event.timestamp table.field.event.type table.fields.additional.error.on.missing
    table.fields.additional.placement table.include.list table.json.payload.empty.array.behavior
    table.json.payload.null.behavior table.op.invalid.behavior table.whitelist tasks.max time.precision.mode
    tombstones.on.delete topic.creation.enable topic.creation.groups topic.heartbeat.name
    topic.heartbeat.prefix topic.prefix tracing.operation.name tracing.span.context.field
    tracing.with.context.field.only transaction.boundary transforms unavailable.value.placeholder
    value.converter xmin.fetch.interval.ms";
