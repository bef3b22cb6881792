//! Stage 5 of 9, the converters: which of them writes a key, a value or a header, and what it refuses.

use super::connect_schema::{Kind, Schema};
use super::connect_value::Value;
use super::output::Output as _;
use super::{ConverterConfig, JsonConverterConfig, convert_header, convert_json, convert_string};
use crate::record::{Place, RecordBuilder};

/// A converter at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Converter {
    Text,
    Json(JsonConverterConfig),
    /// `None`: Kafka's own, which takes bytes and nothing else.
    Bytes {
        delegate: Option<Box<Self>>,
        is_debezium: bool,
    },
    Simple,
}

/// Why a value has no bytes under a converter. Java throws a `DataException`, and the task fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Only bytes can pass, and this is the type that came.
    NotBytes(&'static str),
    /// Only bytes can pass without a delegate.
    NoDelegate(&'static str),
    /// The value does not fit its schema.
    Unfit,
}

impl Converter {
    /// Of a key or a value.
    ///
    /// # Errors
    ///
    /// For `SimpleHeaderConverter`, which is for headers only.
    pub(crate) fn new(config: &ConverterConfig) -> Result<Self, ()> {
        match Self::for_headers(config) {
            Self::Simple => Err(()),
            converter => Ok(converter),
        }
    }

    pub(crate) fn for_headers(config: &ConverterConfig) -> Self {
        match config {
            ConverterConfig::String {} => Self::Text,
            ConverterConfig::Json(config) => Self::Json(config.clone()),
            ConverterConfig::ByteArray {} => Self::Bytes {
                delegate: None,
                is_debezium: false,
            },
            ConverterConfig::BinaryData { delegate } => Self::Bytes {
                delegate: delegate
                    .as_ref()
                    .map(|delegate| Box::new(Self::for_headers(delegate))),
                is_debezium: true,
            },
            ConverterConfig::Simple {} => Self::Simple,
        }
    }

    /// Whether the name and version of a struct's schema can be seen in what it writes.
    pub(crate) fn shows_schemas(&self) -> bool {
        match self {
            Self::Json(config) => config.schemas_enable,
            Self::Bytes { delegate, .. } => delegate.as_ref().is_some_and(|to| to.shows_schemas()),
            Self::Text | Self::Simple => false,
        }
    }

    /// Puts a value in its place.
    pub(crate) fn put(
        &self,
        schema: Option<&Schema>,
        value: &Value<'_>,
        place: Place<'_>,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<(), Refusal> {
        match self {
            Self::Text | Self::Simple if value.is_null() => builder.put(place, None),
            Self::Text => match value {
                Value::Text(text) | Value::Json(text) => builder.put(place, Some(text.as_bytes())),
                other => builder.put_with(place, |out| {
                    convert_string::write(schema, other, out);
                    Ok(())
                })?,
            },
            Self::Simple => match value {
                Value::Text(text) => builder.put(place, Some(text.as_bytes())),
                other => builder.put_with(place, |out| {
                    convert_header::write(schema, other, out);
                    Ok(())
                })?,
            },
            Self::Json(_) if schema.is_none() && value.is_null() => builder.put(place, None),
            Self::Json(config) => builder.put_with(place, |out| {
                convert_json::write(schema, value, config, out)
                    .map_err(|convert_json::Unfit| Refusal::Unfit)
            })?,
            Self::Bytes {
                delegate,
                is_debezium,
            } => {
                let is_bytes = schema.is_none_or(|schema| schema.kind == Kind::Bytes);
                match value {
                    Value::Null if is_bytes => builder.put(place, None),
                    Value::Bytes(bytes) | Value::ByteArray(bytes) if is_bytes => {
                        builder.put_with(place, |out| {
                            out.bytes(bytes);
                            Ok(())
                        })?;
                    }
                    _ => {
                        let type_name = schema.map_or("string", Schema::type_name);
                        let delegate = delegate.as_ref().ok_or(if *is_debezium {
                            Refusal::NoDelegate(type_name)
                        } else {
                            Refusal::NotBytes(type_name)
                        })?;
                        delegate.put(schema, value, place, builder)?;
                    }
                }
            }
        }
        Ok(())
    }
}
