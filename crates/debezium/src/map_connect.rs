//! From transforms, predicates and type settings to the router's `ConnectConfig`.

use router::connect::{
    ConnectConfig, ContextHeaders, DebeziumVersion, EventRouterConfig, MessageConfig,
    PlacementPlace, PredicateConfig, TableFilter, Transform, TransformConfig, TypeModes,
};
use serde::de::DeserializeOwned;

use crate::finding::Verdict;
use crate::keys_router::{self, PREDICATES, TRANSFORMS};
use crate::map_converter::converters;
use crate::map_router::{event_router, of_word};
use crate::map_source::required;
use crate::map_topics::topic_creation;
use crate::providers::list;
use crate::reader::Reader;

/// Reads what becomes of a row.
pub(crate) fn connect(reader: &mut Reader) -> ConnectConfig {
    let (key_converter, value_converter, header_converter) = converters(reader);
    let mut config = ConnectConfig {
        debezium_version: reader.version,
        topic_prefix: topic_prefix(reader),
        tables: tables(reader),
        event_router: EventRouterConfig::default(),
        key_converter,
        value_converter,
        header_converter,
        types: types(reader),
        context_headers: context_headers(reader),
        transforms: Vec::new(),
        predicates: Default::default(),
        messages: None,
        skip_errors: reader
            .get("errors.tolerance")
            .is_some_and(|word| word.eq_ignore_ascii_case("all")),
        topic_creation: topic_creation(reader),
    };
    predicates(reader, &mut config);
    transforms(reader, &mut config);
    messages(reader, &mut config);
    config
}

fn topic_prefix(reader: &mut Reader) -> String {
    // Of a 1.x configuration the old name has been refused, with the fix.
    if reader.is_refused("database.server.name") && reader.get("topic.prefix").is_none() {
        return String::new();
    }
    required(
        reader,
        "topic.prefix",
        "the name that the topics of Debezium began with",
    )
}

fn tables(reader: &mut Reader) -> TableFilter {
    for (include, exclude) in [
        ("table.include.list", "table.exclude.list"),
        ("schema.include.list", "schema.exclude.list"),
        ("message.prefix.include.list", "message.prefix.exclude.list"),
    ] {
        if reader.filled(include).is_some() && reader.filled(exclude).is_some() {
            reader.refuse(
                exclude,
                format!("stands beside {include}, which Debezium refuses; keep one of them"),
            );
        }
    }
    let mut read = |key: &str| patterns(reader, key);
    TableFilter {
        include: read("table.include.list"),
        exclude: read("table.exclude.list"),
        schema_include: read("schema.include.list"),
        schema_exclude: read("schema.exclude.list"),
        names: Vec::new(),
    }
}

/// A list of regular expressions. Commas inside are Debezium's separators, unless a backslash stands before them.
fn patterns(reader: &mut Reader, key: &str) -> Vec<String> {
    let text = reader.get(key).unwrap_or_default().replace("\\,", "\u{0}");
    let patterns: Vec<_> = list(&text)
        .into_iter()
        .map(|pattern| pattern.replace('\u{0}', ","))
        .collect();
    if let Some(broken) = patterns.iter().find(|pattern| unbalanced(pattern)) {
        let text = format!("has the pattern `{broken}`, whose brackets do not close; correct it");
        reader.refuse(key, text);
    }
    patterns
}

/// Whether a regular expression cannot be one in any dialect.
pub(crate) fn unbalanced(pattern: &str) -> bool {
    // Between \Q and \E brackets are themselves.
    if pattern.contains("\\Q") {
        return false;
    }
    let (mut depth, mut in_class, mut escaped) = (0_i32, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => {
                escaped = false;
                continue;
            }
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return true;
        }
    }
    depth != 0 || in_class || escaped
}

fn types(reader: &mut Reader) -> TypeModes {
    let defaults = TypeModes::default();
    TypeModes {
        binary_handling_mode: word(
            reader,
            "binary.handling.mode",
            "bytes, base64, base64-url-safe or hex",
        )
        .unwrap_or_default(),
        hstore_handling_mode: word(reader, "hstore.handling.mode", "json or map")
            .unwrap_or_default(),
        interval_handling_mode: word(reader, "interval.handling.mode", "numeric or string")
            .unwrap_or_default(),
        decimal_handling_mode: word(reader, "decimal.handling.mode", "precise, double or string")
            .unwrap_or_default(),
        time_precision_mode: word(
            reader,
            "time.precision.mode",
            "adaptive, adaptive_time_microseconds, connect, isostring, microseconds or nanoseconds",
        )
        .unwrap_or_default(),
        money_fraction_digits: reader
            .get("money.fraction.digits")
            .and_then(|text| text.parse().ok())
            .unwrap_or(defaults.money_fraction_digits),
        field_name_adjustment_mode: word(
            reader,
            "field.name.adjustment.mode",
            "none, avro or avro_unicode",
        )
        .unwrap_or_default(),
        schema_name_adjustment_mode: word(
            reader,
            "schema.name.adjustment.mode",
            "none, avro or avro_unicode",
        )
        .unwrap_or_default(),
        event_converting_failure_handling_mode: of_word(
            reader,
            "event.converting.failure.handling.mode",
        ),
        include_unknown_datatypes: reader.flag("include.unknown.datatypes", false),
        unavailable_value_placeholder: reader
            .get("unavailable.value.placeholder")
            .map_or(defaults.unavailable_value_placeholder, str::to_owned),
    }
}

/// A value that is one of a few words, as the router has them.
fn word<T: DeserializeOwned>(reader: &mut Reader, key: &str, words: &str) -> Option<T> {
    let text = reader.filled(key)?.to_ascii_lowercase();
    let read = serde_json::from_value(serde_json::Value::String(text)).ok();
    if read.is_none() {
        reader.refuse(
            key,
            format!("is none of its words that are known here; write {words}"),
        );
    }
    read
}

fn context_headers(reader: &Reader) -> ContextHeaders {
    match reader.flag("extended.headers.enabled", true) {
        true => ContextHeaders::Version,
        false => ContextHeaders::None,
    }
}

fn predicates(reader: &mut Reader, config: &mut ConnectConfig) {
    for alias in list(reader.get("predicates").unwrap_or_default()) {
        let type_key = format!("predicates.{alias}.type");
        let written = required(reader, &type_key, "the predicate's class");
        let Some(class) = keys_router::class(PREDICATES, &written) else {
            if !written.is_empty() {
                reader.refuse(
                    &type_key,
                    "is no predicate that is known here; write one of \
                    TopicNameMatches, HasHeaderKey and RecordIsTombstone",
                );
            }
            continue;
        };
        let predicate = match class.name.rsplit('.').next() {
            Some("TopicNameMatches") => PredicateConfig::TopicNameMatches {
                pattern: pattern(
                    reader,
                    &format!("predicates.{alias}.pattern"),
                    "a pattern for the whole topic",
                ),
            },
            Some("HasHeaderKey") => PredicateConfig::HasHeaderKey {
                name: required(
                    reader,
                    &format!("predicates.{alias}.name"),
                    "the header's name",
                ),
            },
            _ => PredicateConfig::RecordIsTombstone {},
        };
        config.predicates.insert(alias, predicate);
    }
}

fn pattern(reader: &mut Reader, key: &str, what: &str) -> String {
    let text = required(reader, key, what);
    if unbalanced(&text) {
        reader.refuse(
            key,
            "is no regular expression, as its brackets do not close; correct it",
        );
    }
    text
}

fn transforms(reader: &mut Reader, config: &mut ConnectConfig) {
    let aliases = list(reader.get("transforms").unwrap_or_default());
    for (at, alias) in aliases.iter().enumerate() {
        if aliases.iter().take(at).any(|earlier| earlier == alias) {
            reader.refuse(
                "transforms",
                format!("names `{alias}` twice, which Connect refuses; name it once"),
            );
            continue;
        }
        let Some(apply) = transform(reader, config, alias) else {
            continue;
        };
        let predicate = predicate_of(reader, config, alias, &apply);
        let negate = reader.flag(&format!("transforms.{alias}.negate"), false);
        config.transforms.push(TransformConfig {
            apply,
            predicate,
            negate,
        });
    }
    let routers = config
        .transforms
        .iter()
        .filter(|transform| matches!(transform.apply, Transform::EventRouter {}))
        .count();
    let refused = aliases
        .iter()
        .any(|alias| reader.is_refused(&format!("transforms.{alias}.type")));
    if routers == 0 && !refused {
        reader.say("transforms", Verdict::Refused, "has no io.debezium.transforms.outbox.EventRouter; raw change events are not published here, so keep Debezium for this connector or add the Event Router");
    } else if routers > 1 {
        reader.refuse(
            "transforms",
            "has more than one EventRouter; a record can be routed once only, so keep one",
        );
    }
}

fn transform(reader: &mut Reader, config: &mut ConnectConfig, alias: &str) -> Option<Transform> {
    let type_key = format!("transforms.{alias}.type");
    let written = required(reader, &type_key, "the transform's class");
    let Some(class) = keys_router::class(TRANSFORMS, &written) else {
        if !written.is_empty() {
            reader.refuse(&type_key, unknown_transform(&written));
        }
        return None;
    };
    let option = |name: &str| format!("transforms.{alias}.{name}");
    Some(match class.name.rsplit('.').next() {
        Some("EventRouter") => {
            config.event_router = event_router(reader, &format!("transforms.{alias}."));
            Transform::EventRouter {}
        }
        Some("DecodeLogicalDecodingMessageContent") => {
            if reader.version < DebeziumVersion::new(3, 0, 0) {
                let text =
                    "exists since Debezium 3.0; give the version that ran with --debezium-version";
                reader.refuse(&type_key, text);
            }
            Transform::DecodeLogicalMessage {
                fields_null_include: reader.flag(&option("fields.null.include"), false),
            }
        }
        Some("ByLogicalTableRouter") => Transform::ByLogicalTableRouter {
            topic_regex: pattern(
                reader,
                &option("topic.regex"),
                "a pattern for the whole topic",
            ),
            topic_replacement: required(reader, &option("topic.replacement"), "the topic"),
        },
        Some("RegexRouter") => Transform::RegexRouter {
            regex: pattern(reader, &option("regex"), "a pattern for the whole topic"),
            replacement: required(reader, &option("replacement"), "the topic"),
        },
        Some("InsertHeader") => Transform::InsertHeader {
            header: required(reader, &option("header"), "the header's name"),
            value_literal: required(reader, &option("value.literal"), "the header's value"),
        },
        Some("DropHeaders") => Transform::DropHeaders {
            headers: list(&required(reader, &option("headers"), "the headers' names")),
        },
        _ => Transform::Filter {},
    })
}

fn unknown_transform(class: &str) -> String {
    let why = match class.rsplit(['.', '$']).next().unwrap_or(class) {
        "Filter" | "ContentBasedRouter" => "runs a script",
        "ExtractNewRecordState" => "unwraps raw change events, which are not published here",
        _ => "is not among those",
    };
    format!(
        "{why}: the transforms that are known here are EventRouter, DecodeLogicalDecodingMessageContent, \
            ByLogicalTableRouter, RegexRouter, InsertHeader, DropHeaders and Connect's Filter; remove it from \
            `transforms`, or keep Debezium for this outbox"
    )
}

fn predicate_of(
    reader: &mut Reader,
    config: &ConnectConfig,
    alias: &str,
    apply: &Transform,
) -> Option<String> {
    let key = format!("transforms.{alias}.predicate");
    let predicate = reader.filled(&key).map(str::to_owned);
    match &predicate {
        None if matches!(apply, Transform::Filter {}) => {
            reader.say(
                &key,
                Verdict::Refused,
                "is missing, so that everything would be dropped; write the \
                predicate of what is to be dropped",
            );
        }
        Some(name)
            if !config.predicates.contains_key(name)
                && !reader.is_refused(&format!("predicates.{name}.type")) =>
        {
            reader.refuse(
                &key,
                "is not named in `predicates`; add it there, with its type",
            );
        }
        _ => {}
    }
    predicate
}

fn messages(reader: &mut Reader, config: &mut ConnectConfig) {
    let decoded = config
        .transforms
        .iter()
        .any(|transform| matches!(transform.apply, Transform::DecodeLogicalMessage { .. }));
    if decoded {
        config.messages = Some(MessageConfig {
            prefix_include: patterns(reader, "message.prefix.include.list"),
            prefix_exclude: patterns(reader, "message.prefix.exclude.list"),
        });
        return;
    }
    for key in ["message.prefix.include.list", "message.prefix.exclude.list"] {
        if reader.filled(key).is_some() {
            reader.say(key, Verdict::Warned, "without the transform DecodeLogicalDecodingMessageContent, \
                Debezium publishes raw messages to <topic.prefix>.message; they are not published here");
        }
    }
}

/// Whether any placement makes the value an envelope.
pub(crate) fn has_envelope(config: &ConnectConfig) -> bool {
    let mut placements = config.event_router.table_fields_additional_placement.iter();
    placements.any(|placement| placement.place == PlacementPlace::Envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_have_to_close() {
        for pattern in ["(", "a)", "[a", "a\\", "((a)"] {
            assert!(unbalanced(pattern), "{pattern}");
        }
        for pattern in [
            "",
            "\\Q(\\E",
            "(a|b)",
            "[(]",
            "\\(",
            "(?<x>[a-z]+)\\.(.*)",
            "[\\]]",
        ] {
            assert!(!unbalanced(pattern), "{pattern}");
        }
    }
}
