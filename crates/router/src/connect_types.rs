//! Stage 5 of 9, the connector's type settings: how columns become values.

use serde::{Deserialize, Serialize};

/// The connector's options that say how columns become values, with the connector's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeModes {
    /// `binary.handling.mode`.
    pub binary_handling_mode: BinaryMode,
    /// `hstore.handling.mode`.
    pub hstore_handling_mode: HstoreMode,
    /// `interval.handling.mode`.
    pub interval_handling_mode: IntervalMode,
    /// `decimal.handling.mode`.
    pub decimal_handling_mode: DecimalMode,
    /// `time.precision.mode`.
    pub time_precision_mode: TimeMode,
    /// `money.fraction.digits`.
    pub money_fraction_digits: i16,
    /// `field.name.adjustment.mode`.
    pub field_name_adjustment_mode: NameAdjustment,
    /// `schema.name.adjustment.mode`.
    pub schema_name_adjustment_mode: NameAdjustment,
    /// `event.converting.failure.handling.mode`.
    pub event_converting_failure_handling_mode: FailureMode,
    /// `include.unknown.datatypes`: columns of types without a rule are kept, as the bytes of their text.
    pub include_unknown_datatypes: bool,
    /// `unavailable.value.placeholder`. Never sent, as an INSERT is always complete.
    pub unavailable_value_placeholder: String,
}

impl Default for TypeModes {
    fn default() -> Self {
        Self {
            binary_handling_mode: BinaryMode::default(),
            hstore_handling_mode: HstoreMode::default(),
            interval_handling_mode: IntervalMode::default(),
            decimal_handling_mode: DecimalMode::default(),
            time_precision_mode: TimeMode::default(),
            money_fraction_digits: 2,
            field_name_adjustment_mode: NameAdjustment::default(),
            schema_name_adjustment_mode: NameAdjustment::default(),
            event_converting_failure_handling_mode: FailureMode::default(),
            include_unknown_datatypes: false,
            unavailable_value_placeholder: "__debezium_unavailable_value".to_owned(),
        }
    }
}

/// `binary.handling.mode`: what bytea is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryMode {
    /// Bytes.
    #[default]
    Bytes,
    /// Base64 text.
    Base64,
    /// Base64 text of the URL-safe alphabet.
    Base64UrlSafe,
    /// Hex digits.
    Hex,
}

/// `hstore.handling.mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HstoreMode {
    /// JSON text.
    #[default]
    Json,
    /// A map of texts.
    Map,
}

/// `interval.handling.mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMode {
    /// Microseconds, with months of 30.4375 days.
    #[default]
    Numeric,
    /// ISO 8601 text: `P1Y2M3DT4H5M6S`.
    String,
}

/// `decimal.handling.mode`: what numeric and money are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecimalMode {
    /// Connect's decimals, exact.
    #[default]
    Precise,
    /// Doubles.
    Double,
    /// Text.
    String,
}

/// `time.precision.mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeMode {
    /// Milliseconds or microseconds, as the column's precision asks.
    #[default]
    Adaptive,
    /// As `adaptive`, with times always in microseconds.
    AdaptiveTimeMicroseconds,
    /// Connect's own types, to the millisecond.
    Connect,
    /// ISO 8601 text.
    Isostring,
    /// Microseconds always.
    Microseconds,
    /// Nanoseconds always.
    Nanoseconds,
}

/// `event.converting.failure.handling.mode`: what becomes of a value that cannot be converted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureMode {
    /// The column's default, or NULL, and a line in the log.
    #[default]
    Warn,
    /// The same. Debezium says nothing of it then.
    Skip,
    /// The row makes no record. An array of arrays loses its elements all the same.
    Fail,
}

/// How names that Avro does not take are changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameAdjustment {
    /// Not at all.
    #[default]
    None,
    /// An underscore for each character that Avro does not take.
    Avro,
    /// `_uXXXX` for each character that Avro does not take.
    AvroUnicode,
}
