//! What a configuration says that is legal and hardly meant: above all, predicates that never hold.

use regex::Regex;
use router::connect::{
    ConnectConfig, ConnectRouter, ConverterConfig, PredicateConfig, Transform, TransformConfig,
};
use router::{ConnectConfigError, TableName};

use crate::map_connect::has_envelope;
use crate::native::NativeConfig;
use crate::reader::Reader;

/// Looks at the whole once all parts are read.
pub(crate) fn lint(reader: &mut Reader, native: &mut NativeConfig) {
    router_predicate(reader, native);
    envelope(reader, &native.connect);
    conversion(reader);
    let old_names = reader.is_refused("table.whitelist") || reader.is_refused("schema.whitelist");
    if !old_names
        && native.connect.tables == router::connect::TableFilter::default()
        && native.connect.messages.is_none()
    {
        reader.warn("table.include.list", "is not given, so all tables of the publication are captured, and each \
            row of each of them has to be an outbox row; name the outbox table, so that others cannot stop the \
            stream");
    }
}

/// The router has the last word on patterns, replacements and the order of transforms: it knows Java's dialect.
pub(crate) fn refused_by_router(reader: &mut Reader, connect: &ConnectConfig) {
    let Err(error) = ConnectRouter::new(connect.clone(), "") else {
        return;
    };
    let (written, why) = match &error {
        ConnectConfigError::Pattern { pattern, why, .. } => (pattern, why.to_string()),
        ConnectConfigError::Replacement {
            replacement, why, ..
        } => (replacement, why.to_string()),
        ConnectConfigError::Name { name, .. } => (name, error.to_string()),
        ConnectConfigError::Literal { literal } => (literal, error.to_string()),
        _ => {
            let text = format!("cannot be followed: {error}; change the transforms accordingly");
            return reader.refuse("transforms", text);
        }
    };
    let key = reader
        .key_of_value(written)
        .unwrap_or_else(|| "transforms".to_owned());
    let text = format!(
        "cannot be followed: {why}; write it in another way, or keep Debezium for this outbox"
    );
    reader.refuse(&key, text);
}

/// A predicate is asked about the topic *before* the Event Router.
///
/// Tables that it keeps the router from are no outbox tables.
fn router_predicate(reader: &mut Reader, native: &mut NativeConfig) {
    let connect = &native.connect;
    let Some(at) = connect
        .transforms
        .iter()
        .position(|transform| matches!(transform.apply, Transform::EventRouter {}))
    else {
        return;
    };
    let Some(transform) = connect.transforms.get(at) else {
        return;
    };
    let Some(alias) = transform.predicate.as_deref() else {
        return;
    };
    let Some(PredicateConfig::TopicNameMatches { pattern }) = connect.predicates.get(alias) else {
        return;
    };
    let key = format!("predicates.{alias}.pattern");
    let prefix = &connect.topic_prefix;
    let topics = topics(native);
    if connect.transforms.iter().take(at).any(renames) {
        return;
    }
    if topics.is_empty() {
        if !transform.negate && never_begins(pattern, prefix) {
            let seen = format!("{prefix}.SCHEMA.TABLE");
            never_holds(reader, &key, false, &seen, &escape(&seen));
        }
        return;
    }
    let Ok(regex) = Regex::new(&format!("^(?:{pattern})$")) else {
        return;
    };
    let routed = |topic: &str| regex.is_match(topic) != transform.negate;
    let (some, others): (Vec<_>, Vec<_>) = topics.iter().partition(|topic| routed(topic));
    native
        .source
        .tables
        .retain(|table| routed(&topic_of(prefix, table)));
    if let (true, Some(first)) = (some.is_empty(), topics.first()) {
        never_holds(
            reader,
            &key,
            transform.negate,
            &topics.join(", "),
            &escape(first),
        );
    } else if !others.is_empty() {
        let others: Vec<_> = others.into_iter().map(String::as_str).collect();
        let text = format!(
            "keeps the Event Router from {}: Debezium publishes raw change events there, which are not published here",
            others.join(", ")
        );
        reader.warn(&key, text);
    }
}

fn never_holds(reader: &mut Reader, key: &str, negated: bool, seen: &str, right: &str) {
    let holds = match negated {
        true => "matches every topic",
        false => "never matches",
    };
    let text = format!(
        "{holds}: it is asked about the topic before the Event Router, which is {seen}, so that Debezium publishes raw \
         change events there; write {right}"
    );
    reader.refuse(key, text);
}

/// Whether a pattern begins with letters that no topic of this prefix begins with. Told only where it is plain: the last
/// letter before anything else may be optional, and an alternative may begin otherwise.
fn never_begins(pattern: &str, prefix: &str) -> bool {
    if pattern.contains('|') {
        return false;
    }
    let plain = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
            .collect()
    };
    let mut begin = plain(pattern);
    let rest = pattern.get(begin.len()..).unwrap_or_default();
    if rest.starts_with(['*', '?', '{', '+']) {
        begin.pop();
    }
    let topic = format!("{prefix}.");
    !topic.starts_with(&begin) && !begin.starts_with(&topic)
}

fn renames(transform: &TransformConfig) -> bool {
    matches!(
        transform.apply,
        Transform::ByLogicalTableRouter { .. } | Transform::RegexRouter { .. }
    )
}

/// The topics that records have before they are routed, as far as they are known.
fn topics(native: &NativeConfig) -> Vec<String> {
    let prefix = &native.connect.topic_prefix;
    let tables = native
        .source
        .tables
        .iter()
        .map(|table| topic_of(prefix, table));
    let messages = native
        .connect
        .messages
        .as_ref()
        .map(|_| format!("{prefix}.message"));
    tables.chain(messages).collect()
}

fn topic_of(prefix: &str, table: &TableName) -> String {
    format!("{prefix}.{}.{}", table.schema, table.name)
}

fn escape(topic: &str) -> String {
    topic.replace('.', "\\.")
}

fn envelope(reader: &mut Reader, connect: &ConnectConfig) {
    let text = matches!(connect.value_converter, ConverterConfig::String {})
        && !reader.is_refused("value.converter");
    if text && has_envelope(connect) {
        reader.warn("value.converter", "makes `Struct{payload=…}` of an envelope, there and here; consumers can hardly read that. A JsonConverter makes JSON of it");
    }
    if text && connect.event_router.table_expand_json_payload {
        reader.warn("value.converter", "makes `Struct{…}` of an expanded payload, there and here; consumers can hardly read that. A JsonConverter makes JSON of it");
    }
}

/// What the key says if it is given is reported with the key; here it is what Debezium does without it.
fn conversion(reader: &mut Reader) {
    const KEY: &str = "event.converting.failure.handling.mode";
    if reader.get(KEY).is_none() {
        reader.warn(KEY, "is not given, so Debezium logs a column that it cannot convert and sends NULL, or the \
            column's default; here such a column stops the stream. Write fail, so that it does there, too");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_begin_otherwise_are_told() {
        assert!(never_begins("outbox.event.*", "orders"));
        for pattern in [
            "orders.public.*",
            "or.*",
            "orders?.*",
            "orderx?s.*",
            ".*outbox",
            "(a|o).*",
            "a|orders.*",
            "",
        ] {
            assert!(!never_begins(pattern, "orders"), "{pattern}");
        }
    }
}
