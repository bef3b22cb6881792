//! Names that Debezium no longer knows, and what replaces them.

/// An old name of an option, and the fix.
pub(crate) struct Old {
    pub(crate) name: &'static str,
    pub(crate) instead: Instead,
}

/// What replaces an old name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instead {
    /// This one, with the same value.
    Key(&'static str),
    /// Nothing, and why.
    Nothing(&'static str),
    /// Something else, in words.
    Text(&'static str),
}

use Instead::{Key, Nothing, Text};

const fn old(name: &'static str, instead: Instead) -> Old {
    Old { name, instead }
}

const NO_SNAPSHOT: &str = "there is no snapshot here";
const ONE_POSITION: &str =
    "the slot is the only position here (Debezium's own successor is offset.mismatch.strategy)";

/// The connector's.
pub(crate) const CONNECTOR: &[Old] = &[
    old("database.server.name", Key("topic.prefix")),
    old("table.whitelist", Key("table.include.list")),
    old("table.blacklist", Key("table.exclude.list")),
    old("schema.whitelist", Key("schema.include.list")),
    old("schema.blacklist", Key("schema.exclude.list")),
    old("column.whitelist", Key("column.include.list")),
    old("column.blacklist", Key("column.exclude.list")),
    old("slot.seek.to.known.offset.on.start", Nothing(ONE_POSITION)),
    old("heartbeat.topics.prefix", Key("topic.heartbeat.prefix")),
    old("slot.drop_on_stop", Key("slot.drop.on.stop")),
    old(
        "toasted.value.placeholder",
        Key("unavailable.value.placeholder"),
    ),
    old("snapshot.new.tables", Nothing(NO_SNAPSHOT)),
    old("snapshot.custom.class", Nothing(NO_SNAPSHOT)),
    old("rows.fetch.size", Nothing(NO_SNAPSHOT)),
    old(
        "sanitize.field.names",
        Text("write `field.name.adjustment.mode=avro` where it was true, else remove it"),
    ),
    old("drop.deletes", Nothing("the Event Router drops deletes")),
];

/// The Event Router's.
pub(crate) const EVENT_ROUTER: &[Old] = &[
    old("table.field.event.payload.id", Key("table.field.event.key")),
    old(
        "table.field.schema.version",
        Key("table.field.event.schema.version"),
    ),
    old(
        "debezium.op.invalid.behavior",
        Key("table.op.invalid.behavior"),
    ),
    old(
        "debezium.expand.json.payload",
        Key("table.expand.json.payload"),
    ),
];

/// The old name, if it is one.
pub(crate) fn find(table: &'static [Old], name: &str) -> Option<&'static Old> {
    table.iter().find(|old| old.name == name)
}
