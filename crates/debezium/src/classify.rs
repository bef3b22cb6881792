//! The first look at every key: is it known, has its value the right form, and what becomes of it as a rule.

use router::connect::DebeziumVersion;

use crate::finding::{DefaultUsed, Verdict};
use crate::keys::{Key, Kind, Rule, find};
use crate::keys_connect::{FRAMEWORK, MISPLACED, TOPIC_GROUP, WORKER, WORKER_PREFIXES};
use crate::keys_connector::{CONNECTOR, CONNECTOR_PREFIXES};
use crate::keys_old::{self, Instead, Old};
use crate::keys_producer::PRODUCER;
use crate::keys_router::{self, CONVERTERS, PREDICATES, TRANSFORM, TRANSFORMS};
use crate::providers::list;
use crate::reader::{File, Reader};
use crate::suggest::nearest;

/// Looks at every key of both files.
pub(crate) fn classify(reader: &mut Reader) {
    for key in reader.keys(File::Connector) {
        connector_key(reader, &key);
    }
    for key in reader.keys(File::Worker) {
        worker_key(reader, &key);
    }
    version_defaults(reader, CONNECTOR, "");
}

fn connector_key(reader: &mut Reader, key: &str) {
    if key == "snapshot.mode" && takes_no_snapshot_by_an_old_name(reader) {
        let text =
            "the name of no_data before 2.6: starts at the slot's position, without a snapshot";
        return reader.say(key, Verdict::Kept, text);
    }
    let known = find(CONNECTOR, key).or_else(|| find(FRAMEWORK, key));
    if let Some(known) = known.or_else(|| find(MISPLACED, key)) {
        return apply(reader, File::Connector, key, known);
    }
    if let Some(old) = keys_old::find(keys_old::CONNECTOR, key) {
        return old_name(reader, key, old, "");
    }
    let (head, rest) = key.split_once('.').unwrap_or((key, ""));
    match head {
        "transforms" if !rest.is_empty() => transform_key(reader, key, rest),
        "predicates" if !rest.is_empty() => predicate_key(reader, key, rest),
        "key" | "value" | "header" if rest.starts_with("converter.") => {
            converter_key(reader, File::Connector, key)
        }
        "topic" if rest.starts_with("creation.") => topic_key(reader, key),
        // Looked at together with the worker's, as one replaces the other.
        "producer" if rest.starts_with("override.") => {}
        _ => match CONNECTOR_PREFIXES
            .iter()
            .find(|prefix| key.starts_with(prefix.name))
        {
            Some(prefix) => apply(reader, File::Connector, key, prefix),
            None => unknown_connector_key(reader, key),
        },
    }
}

/// `never`, which 3.0 no longer reads.
pub(crate) fn takes_no_snapshot_by_an_old_name(reader: &Reader) -> bool {
    let mode = reader.get("snapshot.mode").map(str::to_ascii_lowercase);
    reader.version < DebeziumVersion::new(3, 0, 0) && mode.is_some_and(|mode| mode == "never")
}

fn unknown_connector_key(reader: &mut Reader, key: &str) {
    let names = CONNECTOR.iter().chain(FRAMEWORK).map(|known| known.name);
    let old = keys_old::CONNECTOR.iter().map(|old| old.name);
    let heads = [
        "transforms.",
        "predicates.",
        "producer.override.",
        "topic.creation.default.partitions",
        "topic.creation.default.replication.factor",
    ];
    let suggestion = nearest(key, names.chain(old).chain(heads))
        .map(str::to_owned)
        .or_else(|| near_head(key));
    match suggestion {
        Some(near) => unknown(reader, key, Some(&near)),
        None if key.starts_with("database.") => reader.say(key, Verdict::Ignored, "is handed to the JDBC driver by \
            Debezium; there is no such driver here"),
        None if key.starts_with("producer.") => reader.refuse(key, "is a worker's key; write producer.override. before the option here, or give the worker's file with --worker"),
        None => unknown(reader, key, None),
    }
}

/// `transform.outbox.type` for `transforms.outbox.type`.
fn near_head(key: &str) -> Option<String> {
    let (head, rest) = key.split_once('.')?;
    let near = nearest(head, ["transforms", "predicates", "producer"])?;
    (near != head && !rest.is_empty()).then(|| format!("{near}.{rest}"))
}

fn unknown(reader: &mut Reader, key: &str, near: Option<&str>) {
    match near {
        Some(near) => reader.say(
            key,
            Verdict::Refused,
            format!(
                "is no option that is known; did you mean \
            `{near}`? Debezium has ignored it: correct it, or remove it to keep what is"
            ),
        ),
        None => reader.say(
            key,
            Verdict::Ignored,
            "is no option of this connector, of Debezium's or of \
            Connect's; they ignore it, and so do we",
        ),
    }
}

fn transform_key(reader: &mut Reader, key: &str, rest: &str) {
    let aliases = list(reader.get("transforms").unwrap_or_default());
    let Some((alias, option)) = split_alias(rest, &aliases) else {
        return stray(reader, key, rest, &aliases, "transforms");
    };
    let type_key = format!("transforms.{alias}.type");
    let class = reader
        .get(&type_key)
        .and_then(|written| keys_router::class(TRANSFORMS, written));
    if let Some(known) = find(TRANSFORM, &option) {
        return apply(reader, File::Connector, key, known);
    }
    let Some(class) = class else {
        return reader.say(
            key,
            Verdict::Ignored,
            "goes with its transform, which is refused",
        );
    };
    let is_router = class.name.ends_with(".EventRouter");
    let old = keys_old::find(keys_old::EVENT_ROUTER, &option).filter(|_| is_router);
    match (find(class.keys, &option), old) {
        (Some(known), _) => apply(reader, File::Connector, key, known),
        (None, Some(old)) => {
            let prefix = key.strip_suffix(option.as_str()).unwrap_or_default();
            old_name(reader, key, old, prefix);
        }
        (None, None) => {
            let names = class.keys.iter().chain(TRANSFORM).map(|known| known.name);
            let near = nearest(&option, names).map(|near| format!("transforms.{alias}.{near}"));
            unknown(reader, key, near.as_deref());
        }
    }
}

fn predicate_key(reader: &mut Reader, key: &str, rest: &str) {
    let aliases = list(reader.get("predicates").unwrap_or_default());
    let Some((alias, option)) = split_alias(rest, &aliases) else {
        return stray(reader, key, rest, &aliases, "predicates");
    };
    let type_key = format!("predicates.{alias}.type");
    let class = reader
        .get(&type_key)
        .and_then(|written| keys_router::class(PREDICATES, written));
    match (option.as_str(), class) {
        ("type", _) => reader.say(key, Verdict::Kept, "the predicate"),
        (_, None) => reader.say(
            key,
            Verdict::Ignored,
            "goes with its predicate, which is refused",
        ),
        (_, Some(class)) => match find(class.keys, &option) {
            Some(known) => apply(reader, File::Connector, key, known),
            None => {
                let near = nearest(&option, class.keys.iter().map(|known| known.name))
                    .map(|near| format!("predicates.{alias}.{near}"));
                unknown(reader, key, near.as_deref());
            }
        },
    }
}

/// The alias may itself hold dots, so it is the longest one that fits.
fn split_alias(rest: &str, aliases: &[String]) -> Option<(String, String)> {
    let fits = aliases.iter().filter_map(|alias| {
        let option = rest.strip_prefix(alias.as_str())?.strip_prefix('.')?;
        Some((alias.clone(), option.to_owned()))
    });
    fits.max_by_key(|(alias, _)| alias.len())
}

/// An option of something that the list does not name.
fn stray(reader: &mut Reader, key: &str, rest: &str, aliases: &[String], list_key: &str) {
    let head = rest.split('.').next().unwrap_or(rest);
    match nearest(head, aliases.iter().map(String::as_str)) {
        Some(near) => {
            let near = format!(
                "{list_key}.{near}{}",
                rest.get(head.len()..).unwrap_or_default()
            );
            unknown(reader, key, Some(&near));
        }
        None => reader.say(
            key,
            Verdict::Ignored,
            format!("`{list_key}` does not name `{head}`, so Connect ignores it, and so do we"),
        ),
    }
}

/// `key.converter.X`, in either file.
pub(crate) fn converter_key(reader: &mut Reader, file: File, key: &str) {
    let mut parts = key.splitn(3, '.');
    let base = format!("{}.converter", parts.next().unwrap_or_default());
    let option = parts.nth(1).unwrap_or_default();
    let Some(written) = reader.value(file, &base).map(|value| value.text.clone()) else {
        let text = format!(
            "without {base} beside it, it has no effect, there and here: the worker's converter comes with the \
                worker's options"
        );
        return reader.say_in(file, key, Verdict::Ignored, &text);
    };
    match keys_router::class(CONVERTERS, &written) {
        None => reader.say_in(
            file,
            key,
            Verdict::Ignored,
            "goes with its converter, which is refused",
        ),
        Some(class) => option_of(reader, file, key, class, option),
    }
}

fn option_of(
    reader: &mut Reader,
    file: File,
    key: &str,
    class: &'static keys_router::Class,
    option: &str,
) {
    const DELEGATE: &str = "delegate.converter.type";
    if let Some(known) = find(class.keys, option) {
        return apply(reader, file, key, known);
    }
    let has_delegate = find(class.keys, DELEGATE).is_some();
    let inner = option
        .strip_prefix(DELEGATE)
        .and_then(|rest| rest.strip_prefix('.'));
    if let Some(inner) = inner.filter(|_| has_delegate) {
        let base = key.strip_suffix(option).unwrap_or_default();
        let delegate = reader
            .value(file, &format!("{base}{DELEGATE}"))
            .map(|value| value.text.clone());
        let delegate = delegate.and_then(|written| keys_router::class(CONVERTERS, &written));
        return match delegate {
            Some(delegate) => option_of(reader, file, key, delegate, inner),
            None => reader.say_in(
                file,
                key,
                Verdict::Ignored,
                "goes with the delegate, which is missing or refused",
            ),
        };
    }
    if has_delegate && option.starts_with("delegate.converter.") {
        let text = "Debezium reads options of a delegate behind `delegate.converter.type.` only and ignores \
            this; rename or remove it";
        return reader.say_in(file, key, Verdict::Warned, text);
    }
    match nearest(option, class.keys.iter().map(|known| known.name)) {
        Some(near) => {
            let base = key.strip_suffix(option).unwrap_or_default();
            let text = format!(
                "is no option of this converter; did you mean `{base}{near}`? It has been ignored: correct it, \
                    or remove it to keep what is"
            );
            reader.say_in(file, key, Verdict::Refused, &text);
        }
        None => reader.say_in(
            file,
            key,
            Verdict::Ignored,
            "is no option of this converter, which ignores it, and so do we",
        ),
    }
}

fn topic_key(reader: &mut Reader, key: &str) {
    let rest = key.strip_prefix("topic.creation.").unwrap_or_default();
    let mut groups = list(reader.get("topic.creation.groups").unwrap_or_default());
    groups.push("default".to_owned());
    match split_alias(rest, &groups) {
        None => stray(reader, key, rest, &groups, "topic.creation"),
        Some((_, option)) => match find(TOPIC_GROUP, &option) {
            Some(known) => apply(reader, File::Connector, key, known),
            None => reader.say(
                key,
                Verdict::Mapped,
                format!("connect.topic_creation: option `{option}` of the topics that are created"),
            ),
        },
    }
}

fn worker_key(reader: &mut Reader, key: &str) {
    let converter = ["key.converter.", "value.converter.", "header.converter."]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    if converter {
        return converter_key(reader, File::Worker, key);
    }
    if key.starts_with("producer.") {
        return;
    }
    if let Some(known) = find(WORKER, key).or_else(|| {
        WORKER_PREFIXES
            .iter()
            .find(|prefix| key.starts_with(prefix.name))
    }) {
        return apply(reader, File::Worker, key, known);
    }
    match nearest(key, WORKER.iter().map(|known| known.name)) {
        Some(near) => reader.say_in(
            File::Worker,
            key,
            Verdict::Refused,
            &format!(
                "is no option of a worker; did you mean \
            `{near}`? Connect has ignored it: correct it, or remove it to keep what is"
            ),
        ),
        None => reader.say_in(
            File::Worker,
            key,
            Verdict::Ignored,
            "is no option that matters to a connector",
        ),
    }
}

/// What the table says, once the value has the right form.
fn apply(reader: &mut Reader, file: File, key: &str, known: &'static Key) {
    let text = reader
        .value(file, key)
        .map(|value| value.text.trim().to_owned())
        .unwrap_or_default();
    if known.since > reader.version {
        let text = format!(
            "exists since Debezium {}; {} ignores it, and so do we",
            known.since, reader.version
        );
        reader.say_in(file, key, Verdict::Ignored, &text);
        return reader.forget(file, key);
    }
    if let Some(problem) = wrong_form(known.kind, &text) {
        return reader.refuse_in(file, key, &problem);
    }
    match known.rule {
        Rule::Kept(what) => reader.say_in(file, key, Verdict::Kept, what),
        Rule::Mapped(what) => reader.say_in(file, key, Verdict::Mapped, what),
        Rule::Ignored(why) => reader.say_in(file, key, Verdict::Ignored, why),
        Rule::Refused(fix) => reader.refuse_in(file, key, &format!("cannot be followed: {fix}")),
        Rule::Only(harmless, why, fix) if text.eq_ignore_ascii_case(harmless) => {
            let _ = fix;
            reader.say_in(file, key, Verdict::Ignored, why);
        }
        Rule::Only(_, _, fix) => reader.refuse_in(file, key, &format!("cannot be followed: {fix}")),
        Rule::Words(words) => word(reader, file, key, &text, words),
    }
}

fn word(reader: &mut Reader, file: File, key: &str, text: &str, words: &[(&str, Verdict, &str)]) {
    match words
        .iter()
        .find(|(word, _, _)| word.eq_ignore_ascii_case(text))
    {
        Some((_, Verdict::Refused, why)) => {
            reader.refuse_in(file, key, &format!("cannot be followed: {why}"))
        }
        Some((_, verdict, what)) => reader.say_in(file, key, *verdict, what),
        None => {
            let legal: Vec<_> = words
                .iter()
                .filter(|(_, verdict, _)| *verdict != Verdict::Refused)
                .map(|(word, _, _)| *word)
                .collect();
            reader.refuse_in(
                file,
                key,
                &format!("is none of its words; write {}", legal.join(", ")),
            );
        }
    }
}

fn wrong_form(kind: Kind, text: &str) -> Option<String> {
    match kind {
        Kind::Text => None,
        Kind::Bool
            if ["true", "false"]
                .iter()
                .any(|word| word.eq_ignore_ascii_case(text)) =>
        {
            None
        }
        Kind::Bool => Some("is neither true nor false; write one of them".to_owned()),
        Kind::Int(smallest) => match text.parse::<i64>() {
            Ok(number) if number >= smallest => None,
            Ok(_) => Some(format!(
                "is too small; write a whole number from {smallest} on"
            )),
            Err(_) => Some(format!("is no whole number; write one from {smallest} on")),
        },
    }
}

/// An old name, which Debezium no longer reads.
fn old_name(reader: &mut Reader, key: &str, old: &Old, prefix: &str) {
    let value = reader
        .value(File::Connector, key)
        .map(|value| value.shown(key));
    let value = value.unwrap_or_default();
    let text = match old.instead {
        Instead::Key(name) => format!("write `{prefix}{name}={}` instead", value.trim_matches('`')),
        Instead::Nothing(why) => format!("remove it: {why}"),
        Instead::Text(fix) => fix.to_owned(),
    };
    reader.say(
        key,
        Verdict::Refused,
        format!("is an old name (Debezium 1.x) that is no longer read; {text}"),
    );
}

/// Notes the defaults of `table` that depend on the version and count, as the key is not given.
pub(crate) fn version_defaults(reader: &mut Reader, table: &'static [Key], prefix: &str) {
    let version = reader.version;
    for known in table.iter().filter(|known| known.differs_by_version()) {
        let key = format!("{prefix}{}", known.name);
        if reader.get(&key).is_some() {
            continue;
        }
        if let Some(default) = known.default_at(version) {
            reader.defaults_used.push(DefaultUsed {
                text: history(known, version),
                value: default.value.to_owned(),
                key,
            });
        }
    }
}

fn history(known: &Key, version: DebeziumVersion) -> String {
    let steps: Vec<_> = known
        .defaults
        .iter()
        .map(|default| match default.since == crate::keys::ALWAYS {
            true => format!("`{}` at first", default.value),
            false => format!("`{}` since {}", default.value, default.since),
        })
        .collect();
    format!("{}; followed here: {version}", steps.join(", "))
}

/// The names of the Java producer's options.
pub(crate) fn producer_names() -> impl Iterator<Item = &'static str> {
    PRODUCER.iter().map(|(name, _)| *name)
}
