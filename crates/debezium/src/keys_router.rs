//! The options of transforms, predicates and converters.

use crate::finding::Verdict::{Kept as K, Refused as R};
use crate::keys::Kind::{Bool, Int, Text};
use crate::keys::Rule::{Ignored, Kept, Refused, Words};
use crate::keys::{Key, always, key};

/// A class that is known, by its name, with its options.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
}

const NO_TRACES: &str = "needs OpenTelemetry in the worker; no spans are made here and no trace headers added. \
    If your records carry `traceparent` from Debezium's own spans, they will not any more";

/// The options of the Outbox Event Router.
pub(crate) const EVENT_ROUTER: &[Key] = &[
    key("table.op.invalid.behavior", Text, Words(&[
        ("warn", K, "an UPDATE of an outbox row is counted and dropped"),
        ("error", K, "an UPDATE of an outbox row is counted and dropped"),
        ("fatal", K, "an UPDATE of an outbox row stops the stream"),
    ])).default(&[always("warn")]),
    key("table.field.event.id", Text, Kept("column of the header `id`")).default(&[always("id")]),
    key("table.field.event.key", Text, Kept("column of the key")).default(&[always("aggregateid")]),
    key("table.field.event.type", Text, Ignored("Debezium accepts it and never uses it; a type reaches Kafka by \
        table.fields.additional.placement")).default(&[always("type")]),
    key("table.field.event.timestamp", Text, Kept("column of the record's timestamp; timestamptz and bigint work \
        as well")),
    key("table.field.event.payload", Text, Kept("column of the value")).default(&[always("payload")]),
    key("table.fields.additional.placement", Text, Kept("further columns as headers, envelope fields or partition")),
    key("table.field.additional.missing", Text, Words(&[
        ("error", K, "a missing column stops the stream"),
        ("ignore", K, "a missing column is left out"),
    ])).default(&[always("error")]).since(3, 6, 0),
    key("table.fields.additional.error.on.missing", Bool, Kept("the old name of \
        table.field.additional.missing, followed in all versions (3.6 and later ignore it): false is ignore")).default(&[always("true")]),
    key("table.field.event.schema.version", Text, Kept("column with the version of the envelope's schema")),
    key("route.by.field", Text, Kept("column that the topic is made from")).default(&[always("aggregatetype")]),
    key("route.topic.regex", Text, Kept("has to match the whole value")).default(&[always("(?<routedByValue>.*)")]),
    key("route.topic.replacement", Text, Kept("the topic")).default(&[always("outbox.event.${routedByValue}")]),
    key("route.tombstone.on.empty.payload", Bool, Kept("whether an empty payload is a tombstone")).default(&[always("false")]),
    key("table.expand.json.payload", Bool, Kept("whether JSON text is taken apart")).default(&[always("false")]),
    key("table.json.payload.null.behavior", Text, Words(&[
        ("ignore", K, "members that are null are left out"),
        ("optional_bytes", K, "members that are null are kept"),
    ])).default(&[always("ignore")]),
    key("table.json.payload.empty.array.behavior", Text, Words(&[
        ("ignore", K, "members that are empty arrays are left out"),
        ("optional_string", K, "members that are empty arrays are kept"),
    ])).default(&[always("ignore")]).since(3, 7, 0),
    key("field.name.adjustment.mode", Text, Words(&[
        ("none", K, "names of expanded members stay as they are"),
        ("avro", R, "expanded members whose names it changes lose their values in Debezium; write none"),
        ("avro_unicode", R, "expanded members whose names it changes lose their values in Debezium; write none"),
    ])).default(&[always("none")]),
    key("tracing.span.context.field", Text, Ignored(NO_TRACES)).default(&[always("tracingspancontext")]),
    key("tracing.operation.name", Text, Ignored(NO_TRACES)).default(&[always("debezium-read")]),
    key("tracing.with.context.field.only", Bool, Ignored(NO_TRACES)).default(&[always("true")]),
];

/// What every transform has.
pub(crate) const TRANSFORM: &[Key] = &[
    key("type", Text, Kept("the transform")),
    key(
        "predicate",
        Text,
        Kept("decides which records it is applied to"),
    ),
    key(
        "negate",
        Bool,
        Kept("whether it is applied where the predicate does not hold"),
    )
    .default(&[always("false")]),
    key(
        "plugin.version",
        Text,
        Ignored("transforms are part of the program"),
    ),
];

const KEY_FIELD: &str =
    "would change the key before the Event Router sets it; without effect there, and ignored here";

/// The transforms that are known.
pub(crate) const TRANSFORMS: &[Class] = &[
    Class {
        name: "io.debezium.transforms.outbox.EventRouter",
        keys: EVENT_ROUTER,
    },
    Class {
        name: "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        keys: &[key(
            "fields.null.include",
            Bool,
            Kept("whether members that are null are kept"),
        )
        .default(&[always("false")])],
    },
    Class {
        name: "io.debezium.transforms.ByLogicalTableRouter",
        keys: &[
            key("topic.regex", Text, Kept("has to match the whole topic")),
            key(
                "topic.replacement",
                Text,
                Kept("the topic that later predicates see"),
            ),
            key("key.enforce.uniqueness", Bool, Ignored(KEY_FIELD)).default(&[always("true")]),
            key("key.field.name", Text, Ignored(KEY_FIELD)),
            key("key.field.regex", Text, Ignored(KEY_FIELD)),
            key("key.field.replacement", Text, Ignored(KEY_FIELD)),
            key(
                "schema.name.adjustment.mode",
                Text,
                Ignored("names of schemas before the Event Router"),
            ),
            key("logical.table.cache.size", Int(0), Ignored("a cache")),
        ],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.RegexRouter",
        keys: &[
            key("regex", Text, Kept("has to match the whole topic")),
            key("replacement", Text, Kept("the topic")),
        ],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.InsertHeader",
        keys: &[
            key("header", Text, Kept("name of the header")),
            key("value.literal", Text, Kept("value of the header")),
        ],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.DropHeaders",
        keys: &[key(
            "headers",
            Text,
            Kept("names of the headers that are dropped"),
        )],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.Filter",
        keys: &[],
    },
];

/// The predicates that are known.
pub(crate) const PREDICATES: &[Class] = &[
    Class {
        name: "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        keys: &[key(
            "pattern",
            Text,
            Kept("has to match the whole topic as it is before the transform"),
        )],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        keys: &[key("name", Text, Kept("name of the header"))],
    },
    Class {
        name: "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        keys: &[],
    },
];

const JSON_KEYS: &[Key] = &[
    key(
        "schemas.enable",
        Bool,
        Kept("whether a description of the type stands beside each value"),
    )
    .default(&[always("true")]),
    key("schemas.cache.size", Int(0), Ignored("a cache")).default(&[always("1000")]),
    key(
        "decimal.format",
        Text,
        Words(&[
            ("base64", K, "decimals as the Base64 of their bytes"),
            ("numeric", K, "decimals as JSON numbers"),
        ]),
    )
    .default(&[always("BASE64")]),
    key(
        "replace.null.with.default",
        Bool,
        Kept("whether a NULL becomes its column's default"),
    )
    .default(&[always("true")]),
    key(
        "schema.content",
        Text,
        Refused("a schema given in the configuration is not built; remove it"),
    ),
    key(
        "converter.type",
        Text,
        Ignored("is told by the place of the converter"),
    ),
];

const UTF8: &[Key] = &[
    key(
        "encoding",
        Text,
        Words(&[("utf-8", K, "text is UTF-8"), ("utf8", K, "text is UTF-8")]),
    )
    .default(&[always("UTF-8")]),
    key(
        "converter.encoding",
        Text,
        Words(&[("utf-8", K, "text is UTF-8"), ("utf8", K, "text is UTF-8")]),
    )
    .default(&[always("UTF-8")]),
    key(
        "converter.type",
        Text,
        Ignored("is told by the place of the converter"),
    ),
    key(
        "schemas.enable",
        Bool,
        Ignored("text has no schema; the converter ignores it"),
    ),
];

/// The converters that are known. The options of a delegate stand behind `delegate.converter.type.`.
pub(crate) const CONVERTERS: &[Class] = &[
    Class {
        name: "org.apache.kafka.connect.storage.StringConverter",
        keys: UTF8,
    },
    Class {
        name: "org.apache.kafka.connect.json.JsonConverter",
        keys: JSON_KEYS,
    },
    Class {
        name: "org.apache.kafka.connect.converters.ByteArrayConverter",
        keys: &[
            key(
                "converter.type",
                Text,
                Ignored("is told by the place of the converter"),
            ),
            key(
                "schemas.enable",
                Bool,
                Ignored("bytes have no schema; the converter ignores it"),
            ),
        ],
    },
    Class {
        name: "io.debezium.converters.BinaryDataConverter",
        keys: &[
            key(
                "delegate.converter.type",
                Text,
                Kept("the converter of what is not bytes"),
            ),
            key(
                "converter.type",
                Text,
                Ignored("is told by the place of the converter"),
            ),
        ],
    },
    Class {
        name: "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        keys: &[key(
            "converter.type",
            Text,
            Ignored("is told by the place of the converter"),
        )],
    },
];

/// The class of this name, or of this name without its package, as Connect allows.
pub(crate) fn class(table: &'static [Class], written: &str) -> Option<&'static Class> {
    let written = written.trim();
    table.iter().find(|class| {
        let simple = class.name.rsplit('.').next().unwrap_or(class.name);
        let short = simple.strip_suffix("Converter").unwrap_or(simple);
        class.name == written || simple == written || short == written
    })
}
