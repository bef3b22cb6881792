//! From the Event Router's options to the router's.

use router::connect::{EventRouterConfig, MissingBehavior, Placement};
use serde::de::DeserializeOwned;

use crate::classify::version_defaults;
use crate::keys_router::EVENT_ROUTER;
use crate::map_connect::unbalanced;
use crate::reader::Reader;

/// The options of the Event Router whose keys begin with `prefix`.
pub(crate) fn event_router(reader: &mut Reader, prefix: &str) -> EventRouterConfig {
    version_defaults(reader, EVENT_ROUTER, prefix);
    let defaults = EventRouterConfig::default();
    let key = |name: &str| format!("{prefix}{name}");
    let mut column = |name: &str, default: String| match reader.get(&key(name)).map(str::to_owned) {
        None => default,
        Some(text) if text.is_empty() => {
            reader.refuse(
                &key(name),
                "is empty, on which Debezium fails; write a column's name, or remove it \
                for the default",
            );
            default
        }
        Some(text) => text,
    };
    let table_field_event_id = column("table.field.event.id", defaults.table_field_event_id);
    let table_field_event_key = column("table.field.event.key", defaults.table_field_event_key);
    let table_field_event_payload = column(
        "table.field.event.payload",
        defaults.table_field_event_payload,
    );
    let route_by_field = column("route.by.field", defaults.route_by_field);
    let filled = |reader: &Reader, name: &str| reader.filled(&key(name)).map(str::to_owned);
    EventRouterConfig {
        table_op_invalid_behavior: of_word(reader, &key("table.op.invalid.behavior")),
        table_field_event_id,
        table_field_event_key,
        table_field_event_type: filled(reader, "table.field.event.type")
            .unwrap_or(defaults.table_field_event_type),
        table_field_event_timestamp: filled(reader, "table.field.event.timestamp"),
        table_field_event_payload,
        table_fields_additional_placement: placements(
            reader,
            &key("table.fields.additional.placement"),
        ),
        table_field_additional_missing: missing(reader, prefix),
        table_field_event_schema_version: filled(reader, "table.field.event.schema.version"),
        route_by_field,
        route_topic_regex: topic_regex(reader, prefix).unwrap_or(defaults.route_topic_regex),
        route_topic_replacement: reader
            .get(&key("route.topic.replacement"))
            .map_or(defaults.route_topic_replacement, str::to_owned),
        route_tombstone_on_empty_payload: reader
            .flag(&key("route.tombstone.on.empty.payload"), false),
        table_expand_json_payload: reader.flag(&key("table.expand.json.payload"), false),
        table_json_payload_null_behavior: of_word(reader, &key("table.json.payload.null.behavior")),
        table_json_payload_empty_array_behavior: of_word(
            reader,
            &key("table.json.payload.empty.array.behavior"),
        ),
        expansion: defaults.expansion,
    }
}

/// A word that has been looked at already: one that is wrong has been refused.
pub(crate) fn of_word<T: DeserializeOwned + Default>(reader: &Reader, key: &str) -> T {
    let text = reader.filled(key).map(str::to_ascii_lowercase);
    let read = text.and_then(|text| serde_json::from_value(serde_json::Value::String(text)).ok());
    read.unwrap_or_default()
}

/// The new name counts where the version has it, as it is forgotten otherwise; the old one is followed in all, as a column that is missing would stop
/// the stream otherwise.
fn missing(reader: &Reader, prefix: &str) -> MissingBehavior {
    let new = format!("{prefix}table.field.additional.missing");
    if reader.filled(&new).is_some() {
        return of_word(reader, &new);
    }
    match reader.flag(
        &format!("{prefix}table.fields.additional.error.on.missing"),
        true,
    ) {
        true => MissingBehavior::Error,
        false => MissingBehavior::Ignore,
    }
}

fn placements(reader: &mut Reader, key: &str) -> Vec<Placement> {
    let Some(text) = reader.filled(key).map(str::to_owned) else {
        return Vec::new();
    };
    match Placement::parse_list(&text) {
        Ok(list) => list,
        Err(error) => {
            reader.refuse(
                key,
                format!(
                    "cannot be read: {error}; write COLUMN:header, COLUMN:envelope or \
                COLUMN:partition, with :ALIAS if it is to be called otherwise"
                ),
            );
            Vec::new()
        }
    }
}

/// Debezium's first trap: the default replacement needs a group of this name.
fn topic_regex(reader: &mut Reader, prefix: &str) -> Option<String> {
    let key = format!("{prefix}route.topic.regex");
    let regex = reader.get(&key)?.to_owned();
    let replacement_key = format!("{prefix}route.topic.replacement");
    let replacement = reader
        .get(&replacement_key)
        .unwrap_or("outbox.event.${routedByValue}")
        .to_owned();
    if unbalanced(&regex) {
        reader.refuse(
            &key,
            "is no regular expression, as its brackets do not close; correct it",
        );
    } else if let Some(group) = missing_group(&regex, &replacement) {
        reader.refuse(&key, format!("has no group `(?<{group}>…)`, which the replacement `{replacement}` names, \
            so that Debezium fails on every event; name the group, or write $1 for the first one into \
            {replacement_key}"));
    }
    Some(regex)
}

/// The first `${name}` of a replacement without its group.
fn missing_group(regex: &str, replacement: &str) -> Option<String> {
    let mut rest = replacement;
    while let Some(start) = rest.find("${") {
        let escaped = rest
            .get(..start)
            .is_some_and(|before| before.ends_with('\\'));
        let inside = rest.get(start + 2..)?;
        let end = inside.find('}')?;
        let name = inside.get(..end)?;
        if !escaped && !regex.contains(&format!("(?<{name}>")) {
            return Some(name.to_owned());
        }
        rest = inside.get(end..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_needs_the_groups_it_names() {
        assert_eq!(
            missing_group("(.*)", "x.${routedByValue}").as_deref(),
            Some("routedByValue")
        );
        assert_eq!(missing_group("(?<a>.)(?<b>.)", "${a}.${b}"), None);
        assert_eq!(missing_group("(.*)", "x.$1"), None);
        assert_eq!(missing_group("(.*)", "\\${x}"), None);
    }
}
