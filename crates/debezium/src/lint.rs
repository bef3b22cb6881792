//! What a configuration says that is legal and hardly meant: above all, predicates that never hold.

use router::connect::{
    ConnectConfig, ConnectRouter, ConverterConfig, PredicateConfig, Transform, TransformConfig,
};
use router::{ConnectConfigError, TableName};

use crate::map_connect::has_envelope;
use crate::native::NativeConfig;
use crate::reader::Reader;

/// Looks at the whole once all parts are read.
pub(crate) fn lint(reader: &mut Reader, native: &mut NativeConfig) {
    for asking in asking(&native.connect) {
        match asking.apply {
            Transform::EventRouter {} => router_predicate(reader, native, &asking),
            Transform::DecodeLogicalMessage { .. } => {
                decode_predicate(reader, &native.connect, &asking);
            }
            Transform::Filter {} => filter_predicate(reader, native, &asking),
            _ => {}
        }
    }
    envelope(reader, &native.connect);
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

/// A transform up to the Event Router that asks about a topic which no other transform has changed by then.
struct Asking {
    apply: Transform,
    /// The key of the pattern.
    key: String,
    pattern: String,
    predicate: PredicateConfig,
    negate: bool,
}

impl Asking {
    /// `None`: the pattern is none, which the router tells.
    fn applies(&self, topic: &str) -> Option<bool> {
        Some(self.predicate.holds_for_topic(topic)? != self.negate)
    }

    /// Those it is applied to, and the others.
    fn partition<'t>(&self, topics: &'t [String]) -> Option<(Vec<&'t str>, Vec<&'t str>)> {
        let (mut some, mut others) = (Vec::new(), Vec::new());
        for topic in topics {
            let side = match self.applies(topic)? {
                true => &mut some,
                false => &mut others,
            };
            side.push(topic.as_str());
        }
        Some((some, others))
    }
}

fn asking(connect: &ConnectConfig) -> Vec<Asking> {
    let is_router =
        |transform: &TransformConfig| matches!(transform.apply, Transform::EventRouter {});
    let Some(router_at) = connect.transforms.iter().position(is_router) else {
        return Vec::new();
    };
    let asking = |transform: &TransformConfig| {
        let alias = transform.predicate.as_deref()?;
        let predicate = connect.predicates.get(alias)?;
        let PredicateConfig::TopicNameMatches { pattern } = predicate else {
            return None;
        };
        Some(Asking {
            apply: transform.apply.clone(),
            key: format!("predicates.{alias}.pattern"),
            pattern: pattern.clone(),
            predicate: predicate.clone(),
            negate: transform.negate,
        })
    };
    let before = connect.transforms.iter().take(router_at + 1);
    before
        .take_while(|transform| !renames(transform))
        .filter_map(asking)
        .collect()
}

/// A predicate is asked about the topic *before* the Event Router.
///
/// Tables that it keeps the router from are no outbox tables.
fn router_predicate(reader: &mut Reader, native: &mut NativeConfig, asking: &Asking) {
    let Asking { key, negate, .. } = asking;
    let prefix = &native.connect.topic_prefix;
    let topics = topics(native);
    if topics.is_empty() {
        if !negate && never_begins(&asking.pattern, prefix) {
            let seen = format!("{prefix}.SCHEMA.TABLE");
            never_holds(reader, key, false, &seen, &escape(&seen));
        }
        return;
    }
    let Some((some, others)) = asking.partition(&topics) else {
        return;
    };
    native
        .source
        .tables
        .retain(|table| some.contains(&topic_of(prefix, table).as_str()));
    if let (true, Some(first)) = (some.is_empty(), topics.first()) {
        never_holds(reader, key, *negate, &topics.join(", "), &escape(first));
    } else if !others.is_empty() {
        let text = format!(
            "keeps the Event Router from {}: Debezium publishes raw change events there, which are not published here",
            others.join(", ")
        );
        reader.warn(key, text);
    }
}

fn never_holds(reader: &mut Reader, key: &str, negated: bool, seen: &str, right: &str) {
    let text = format!(
        "{}: it is asked about the topic before the Event Router, which is {seen}, so that Debezium publishes raw \
         change events there; write {right}",
        never(negated)
    );
    reader.refuse(key, text);
}

fn never(negated: bool) -> &'static str {
    match negated {
        true => "matches every topic",
        false => "never matches",
    }
}

/// A message that is not decoded passes the Event Router by.
fn decode_predicate(reader: &mut Reader, connect: &ConnectConfig, asking: &Asking) {
    let topic = message_topic(connect);
    if asking.applies(&topic) != Some(false) {
        return;
    }
    let text = format!(
        "{}: it is asked about the topic of logical messages, which is {topic}, so that none of them is decoded and \
         routed; write {}",
        match asking.negate {
            true => "matches every message",
            false => "never matches",
        },
        escape(&topic)
    );
    reader.refuse(&asking.key, text);
}

/// A filter that drops all there is, or nothing.
fn filter_predicate(reader: &mut Reader, native: &NativeConfig, asking: &Asking) {
    let topics = topics(native);
    let Some((dropped, kept)) = asking.partition(&topics) else {
        return;
    };
    let seen = topics.join(", ");
    if kept.is_empty() && !dropped.is_empty() {
        let fix = match asking.negate {
            true => format!(
                "write {}",
                topics.first().map_or(String::new(), |first| escape(first))
            ),
            false => "write the topics that are to be dropped, or remove the filter".to_owned(),
        };
        let text = format!(
            "{}: it is asked about the topic before the Event Router, which is {seen}, so that the filter drops \
             every record; {fix}",
            never(!asking.negate)
        );
        return reader.refuse(&asking.key, text);
    }
    // Heartbeats and the like are not published here: there is nothing to drop of them.
    let prefix = &native.connect.topic_prefix;
    let others = [
        format!("__debezium-heartbeat.{prefix}"),
        format!("{prefix}.transaction"),
    ];
    let is_for_others = others
        .iter()
        .any(|topic| asking.applies(topic) == Some(true));
    if dropped.is_empty() && !kept.is_empty() && !is_for_others {
        let text = format!(
            "{}: it is asked about the topic before the Event Router, which is {seen}, so that the filter drops nothing",
            never(asking.negate)
        );
        reader.warn(&asking.key, text);
    }
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

/// The topics that records have before they are routed; none, where those of tables are patterns.
fn topics(native: &NativeConfig) -> Vec<String> {
    let is_of_patterns = native.connect.tables != router::connect::TableFilter::default();
    if native.source.tables.is_empty() && is_of_patterns {
        return Vec::new();
    }
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
        .map(|_| message_topic(&native.connect));
    tables.chain(messages).collect()
}

fn message_topic(connect: &ConnectConfig) -> String {
    format!("{}.message", connect.topic_prefix)
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
