//! From `key.converter`, `value.converter` and `header.converter` to the router's converters.

use router::connect::{ConverterConfig, DecimalFormat, JsonConverterConfig};

use crate::finding::Verdict;
use crate::keys_router::{self, CONVERTERS};
use crate::reader::{File, Reader};

/// The converters of key, value and headers. The worker's count where the connector has none, with the worker's options.
pub(crate) fn converters(
    reader: &mut Reader,
) -> (ConverterConfig, ConverterConfig, ConverterConfig) {
    let mut one = |part: &str| {
        let key = format!("{part}.converter");
        if reader.value(File::Connector, &key).is_some() {
            reader.replaced_by_connector(&key);
            return converter(reader, File::Connector, &key);
        }
        if reader.value(File::Worker, &key).is_some() {
            return converter(reader, File::Worker, &key);
        }
        if part != "header" {
            missing(reader, &key);
        }
        None
    };
    (
        one("key").unwrap_or(ConverterConfig::String {}),
        one("value").unwrap_or(ConverterConfig::String {}),
        one("header").unwrap_or(ConverterConfig::Simple {}),
    )
}

fn missing(reader: &mut Reader, key: &str) {
    let text = match reader.has_worker {
        true => format!("is in neither file, and Connect refuses that; write {key}"),
        false => format!(
            "is not given, so the worker's decides which bytes consumers get; give its file with --worker, or \
                write {key}"
        ),
    };
    reader.say(key, Verdict::Refused, text);
}

fn converter(reader: &mut Reader, file: File, key: &str) -> Option<ConverterConfig> {
    let written = reader.value(file, key)?.text.trim().to_owned();
    let class = keys_router::class(CONVERTERS, &written).map(|class| class.name);
    let simple = class.and_then(|class| class.rsplit('.').next());
    let option = |name: &str| format!("{key}.{name}");
    match simple {
        Some("StringConverter") => Some(ConverterConfig::String {}),
        Some("JsonConverter") => Some(ConverterConfig::Json(json(reader, file, key))),
        Some("ByteArrayConverter") => {
            hints_on_bytes(reader, file, key);
            Some(ConverterConfig::ByteArray {})
        }
        Some("BinaryDataConverter") => {
            let delegate_key = option("delegate.converter.type");
            let delegate = reader
                .value(file, &delegate_key)
                .is_some()
                .then(|| converter(reader, file, &delegate_key))
                .flatten();
            Some(ConverterConfig::BinaryData {
                delegate: delegate.map(Box::new),
            })
        }
        Some("SimpleHeaderConverter") if key == "header.converter" => {
            Some(ConverterConfig::Simple {})
        }
        Some(_) => {
            reader.refuse_in(file, key, "makes headers only; write another converter");
            None
        }
        None => {
            reader.refuse_in(file, key, &unknown_converter(&written));
            None
        }
    }
}

fn json(reader: &Reader, file: File, key: &str) -> JsonConverterConfig {
    let flag = |name: &str, default: bool| {
        let value = reader.value(file, &format!("{key}.{name}"));
        value.map_or(default, |value| {
            value.text.trim().eq_ignore_ascii_case("true")
        })
    };
    let decimal = reader.value(file, &format!("{key}.decimal.format"));
    let defaults = JsonConverterConfig::default();
    JsonConverterConfig {
        schemas_enable: flag("schemas.enable", defaults.schemas_enable),
        replace_null_with_default: flag(
            "replace.null.with.default",
            defaults.replace_null_with_default,
        ),
        decimal_format: match decimal {
            Some(value) if value.text.trim().eq_ignore_ascii_case("numeric") => {
                DecimalFormat::Numeric
            }
            _ => defaults.decimal_format,
        },
    }
}

/// What fails on every event in Connect as well is still started: the tables may be such that it does not.
fn hints_on_bytes(reader: &mut Reader, file: File, key: &str) {
    let text = match key {
        "key.converter" => {
            "takes bytea columns only: with any other key column each event is an error, there and here"
        }
        "value.converter" => {
            "takes bytea columns only: with any other payload column each event is an error, there and here"
        }
        _ => {
            "takes bytea columns only: with an `id` of any other type each event is an error, there and here"
        }
    };
    reader.say_in(file, key, Verdict::Warned, text);
}

fn unknown_converter(class: &str) -> String {
    const KNOWN: &str = "the known ones are StringConverter, JsonConverter, ByteArrayConverter, BinaryDataConverter and, for headers, SimpleHeaderConverter";
    let lower = class.to_ascii_lowercase();
    let what = if class == "io.debezium.converters.ByteArrayConverter" {
        "fails on what Debezium makes of bytea; write io.debezium.converters.BinaryDataConverter"
    } else if lower.contains("avro") {
        "is the Avro converter, which needs a schema registry and is not built yet; keep Debezium for this \
            outbox, or change to a JsonConverter together with the consumers"
    } else if lower.contains("protobuf")
        || lower.contains("jsonschema")
        || lower.contains("apicurio")
    {
        "needs a schema registry, which is not built yet; keep Debezium for this outbox, or change to a \
            JsonConverter together with the consumers"
    } else if lower.contains("cloudevents") {
        "makes CloudEvents, which is not built; keep Debezium for this outbox"
    } else {
        "is no converter that is known here; keep Debezium for this outbox, or change it together with the consumers"
    };
    format!("{what} ({KNOWN})")
}

impl Reader {
    /// Says of the worker's converter and its options that the connector's own are in their place.
    fn replaced_by_connector(&mut self, key: &str) {
        let prefix = format!("{key}.");
        for worker_key in self.keys(File::Worker) {
            if worker_key == key || worker_key.starts_with(&prefix) {
                self.say_in(
                    File::Worker,
                    &worker_key,
                    Verdict::Ignored,
                    "the connector has a converter of its own",
                );
            }
        }
    }
}
