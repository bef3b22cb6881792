//! Stage 5 of 9, column values: from PostgreSQL's text to a value, as the connector reads each type.

use std::borrow::Cow;

use super::column_type::{ColumnType, Conversion, DateForm, NumericScale, TimeForm};
use super::connect_value::{Value, hash_map_order};
use super::convert_json::write_json_characters;
use super::java_number::BigDecimal;
use super::output::{Output as _, write_base64};
use super::postgres_interval::Interval;
use super::postgres_literal::{Element, is_array_of_arrays, parse_array, parse_hstore};
use super::postgres_time::{
    Moment, parse_days, parse_moment, parse_time, write_iso_date, write_iso_moment, write_iso_time,
};
use super::{BinaryMode, DecimalMode, HstoreMode, IntervalMode};
use crate::bytea;
use crate::error::ValueProblem;
use crate::record::ValueWriter;

/// Reads one value.
///
/// # Errors
///
/// When the text is none of the type's, or the value has no place in Connect's type.
pub(crate) fn read_value<'a>(
    conversion: &Conversion,
    bytes: &'a [u8],
) -> Result<Value<'a>, ValueProblem> {
    match conversion {
        Conversion::Bytea(mode) => {
            let mut decoded = Vec::new();
            bytea::decode(bytes, &mut ValueWriter::over(&mut decoded))?;
            return Ok(encoded(*mode, Cow::Owned(decoded)));
        }
        Conversion::Opaque(mode) => return Ok(encoded(*mode, Cow::Borrowed(bytes))),
        _ => {}
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ValueProblem::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    match conversion {
        Conversion::Text => Ok(Value::Text(Cow::Borrowed(text))),
        Conversion::Lost => Ok(Value::Null),
        Conversion::Array(element) => read_array(element, text),
        Conversion::Numeric(mode, scale) => read_numeric(*mode, *scale, text),
        Conversion::Date(form) => read_date(*form, text).ok_or(NOT_A_DATE),
        Conversion::Time(form) => read_time(*form, text).ok_or(NOT_A_TIME),
        Conversion::TimeTz => read_time_with_zone(text).ok_or(NOT_A_TIME),
        Conversion::Timestamp(form) => read_timestamp(*form, text).ok_or(NOT_A_TIMESTAMP),
        Conversion::TimestampTz(digits) => {
            read_timestamp_with_zone(*digits, text).ok_or(NOT_A_TIMESTAMP)
        }
        other => read_plain(other, text).ok_or(ValueProblem::NotOfType {
            type_name: type_name(other),
        }),
    }
}

/// Whether elements of an array that was read have become NULL, since arrays are what is in it.
pub(crate) fn loses_elements(conversion: &Conversion, bytes: &[u8]) -> bool {
    matches!(conversion, Conversion::Array(_)) && is_array_of_arrays(bytes)
}

const NOT_A_DATE: ValueProblem = ValueProblem::NotOfType { type_name: "date" };
const NOT_A_TIME: ValueProblem = ValueProblem::NotOfType { type_name: "time" };
const NOT_A_TIMESTAMP: ValueProblem = ValueProblem::NotOfType {
    type_name: "timestamp",
};

fn read_plain(conversion: &Conversion, text: &str) -> Option<Value<'static>> {
    Some(match conversion {
        Conversion::Boolean => Value::Boolean(match text {
            "t" | "true" => true,
            "f" | "false" => false,
            _ => return None,
        }),
        Conversion::Integer => Value::Integer(text.parse().ok()?),
        Conversion::Float => Value::Float(text.parse().ok()?),
        Conversion::Double => Value::Double(text.parse().ok()?),
        Conversion::Money(mode, digits) => read_money(*mode, *digits, text)?,
        Conversion::Interval(mode) => {
            let interval = Interval::parse(text)?;
            match mode {
                IntervalMode::Numeric => Value::Integer(interval.micros()),
                IntervalMode::String => Value::Text(Cow::Owned(interval.iso())),
            }
        }
        Conversion::Bit => Value::Boolean(text.contains('1')),
        Conversion::Bits => Value::ByteArray(Cow::Owned(read_bits(text))),
        Conversion::Hstore(mode) => read_hstore(*mode, text)?,
        Conversion::Point => read_point(text)?,
        Conversion::Vector => Value::Array(vector_items(text, |item| {
            item.parse().ok().map(Value::Double)
        })?),
        Conversion::HalfVector => Value::Array(vector_items(text, |item| {
            item.parse().ok().map(Value::Float)
        })?),
        Conversion::SparseVector => read_sparse_vector(text)?,
        Conversion::Geometry => read_geometry(text)?,
        _ => return None,
    })
}

fn type_name(conversion: &Conversion) -> &'static str {
    match conversion {
        Conversion::Boolean => "boolean",
        Conversion::Integer => "integer",
        Conversion::Float | Conversion::Double => "floating-point number",
        Conversion::Money(..) => "money",
        Conversion::Interval(_) => "interval",
        Conversion::Hstore(_) => "hstore",
        Conversion::Point => "point",
        Conversion::Geometry => "geometry",
        _ => "value of its type",
    }
}

fn encoded(mode: BinaryMode, bytes: Cow<'_, [u8]>) -> Value<'_> {
    let mut encoded = String::new();
    match mode {
        BinaryMode::Bytes => return Value::Bytes(bytes),
        BinaryMode::Base64 => write_base64(&bytes, &mut encoded),
        BinaryMode::Base64UrlSafe => {
            write_base64(&bytes, &mut encoded);
            encoded = encoded.replace('+', "-").replace('/', "_");
        }
        BinaryMode::Hex => bytes
            .iter()
            .for_each(|byte| encoded.display(format_args!("{byte:02x}"))),
    }
    Value::Text(Cow::Owned(encoded))
}

fn read_array(element: &ColumnType, text: &str) -> Result<Value<'static>, ValueProblem> {
    let items = parse_array(text).ok_or(ValueProblem::NotOfType { type_name: "array" })?;
    let read = |item: Element| match item {
        Element::Null => Ok(Value::Null),
        Element::Text(text) => {
            read_value(&element.conversion, text.as_bytes()).map(Value::into_owned)
        }
        // Debezium converts elements, and makes text of anything, but else of arrays nothing.
        Element::Array if element.conversion == Conversion::Text => Err(ValueProblem::ArrayOfTexts),
        Element::Array => Ok(Value::Null),
    };
    items
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

fn read_numeric(
    mode: DecimalMode,
    scale: NumericScale,
    text: &str,
) -> Result<Value<'static>, ValueProblem> {
    if let Some((number, name)) = special_numeric(text) {
        return match mode {
            DecimalMode::Double => Ok(Value::Double(number)),
            DecimalMode::String => Ok(Value::text(name)),
            DecimalMode::Precise => Err(ValueProblem::NotFinite),
        };
    }
    let number = BigDecimal::parse(text).ok_or(ValueProblem::NotOfType {
        type_name: "numeric",
    })?;
    let number = match scale {
        NumericScale::Fixed(scale) => number.with_scale(scale),
        NumericScale::Variable => number,
    };
    Ok(match (mode, scale) {
        (DecimalMode::Double, _) => Value::Double(text.parse().unwrap_or(f64::NAN)),
        (DecimalMode::String, _) => Value::Text(Cow::Owned(number.plain())),
        (DecimalMode::Precise, NumericScale::Fixed(_)) => Value::Decimal(number),
        (DecimalMode::Precise, NumericScale::Variable) => {
            let number = number.stripped();
            Value::Struct(vec![
                Value::Integer(i64::from(number.scale())),
                Value::ByteArray(Cow::Owned(number.unscaled_bytes())),
            ])
        }
    })
}

/// With Debezium's names for them, which are Java's names of the constants.
fn special_numeric(text: &str) -> Option<(f64, &'static str)> {
    match text {
        "NaN" => Some((f64::NAN, "NAN")),
        "Infinity" => Some((f64::INFINITY, "POSITIVE_INFINITY")),
        "-Infinity" => Some((f64::NEG_INFINITY, "NEGATIVE_INFINITY")),
        _ => None,
    }
}

/// `$1,234.50` and its like: currency and separators are passed over.
fn read_money(mode: DecimalMode, digits: i32, text: &str) -> Option<Value<'static>> {
    let negative = text.starts_with('(') || text.contains('-');
    let number: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let signed = format!("{}{number}", if negative { "-" } else { "" });
    Some(match mode {
        DecimalMode::Precise => Value::Decimal(BigDecimal::parse(&signed)?.with_scale(digits)),
        DecimalMode::Double => Value::Double(signed.parse().ok()?),
        DecimalMode::String => Value::Text(Cow::Owned(BigDecimal::parse(&signed)?.plain())),
    })
}

fn read_date(form: DateForm, text: &str) -> Option<Value<'static>> {
    let days = parse_days(text)?;
    Some(match form {
        DateForm::Days => Value::Integer(days),
        DateForm::Connect => Value::Date(days * 86_400_000),
        DateForm::Iso => {
            let mut iso = String::with_capacity(ISO_BYTES);
            write_iso_date(days, &mut iso);
            iso.push('Z');
            Value::Text(Cow::Owned(iso))
        }
    })
}

fn read_time(form: TimeForm, text: &str) -> Option<Value<'static>> {
    let (micros, _) = parse_time(text)?;
    Some(match form {
        TimeForm::Millis => Value::Integer(micros / 1000),
        TimeForm::Micros => Value::Integer(micros),
        TimeForm::Nanos => Value::Integer(micros * 1000),
        TimeForm::Connect => Value::Date(micros / 1000),
        TimeForm::Iso => {
            let mut iso = String::with_capacity(ISO_BYTES);
            write_iso_time(micros, 0, &mut iso);
            iso.push('Z');
            Value::Text(Cow::Owned(iso))
        }
    })
}

/// In UTC, where the end of the day stays what it is.
fn read_time_with_zone(text: &str) -> Option<Value<'static>> {
    let (micros, offset_seconds) = parse_time(text)?;
    let mut iso = String::with_capacity(ISO_BYTES);
    if micros == DAY_MICROS && offset_seconds == 0 {
        iso.push_str("24:00:00");
    } else {
        let utc = (micros - offset_seconds * 1_000_000).rem_euclid(DAY_MICROS);
        write_iso_time(utc, 0, &mut iso);
    }
    iso.push('Z');
    Some(Value::Text(Cow::Owned(iso)))
}

fn read_timestamp(form: TimeForm, text: &str) -> Option<Value<'static>> {
    let micros = match parse_moment(text)? {
        Moment::Micros(micros) => micros,
        Moment::Infinity => INFINITY_MICROS,
        Moment::NegativeInfinity => NEGATIVE_INFINITY_MICROS,
    };
    Some(match form {
        TimeForm::Millis => Value::Integer(micros.div_euclid(1000)),
        TimeForm::Micros => Value::Integer(micros),
        TimeForm::Nanos => Value::Integer(micros.checked_mul(1000)?),
        TimeForm::Connect => Value::Date(micros.div_euclid(1000)),
        TimeForm::Iso => {
            let mut iso = String::with_capacity(ISO_BYTES);
            write_iso_moment(micros, 0, &mut iso);
            Value::Text(Cow::Owned(iso))
        }
    })
}

fn read_timestamp_with_zone(digits: u8, text: &str) -> Option<Value<'static>> {
    let mut iso = String::with_capacity(ISO_BYTES);
    match parse_moment(text)? {
        Moment::Micros(micros) => write_iso_moment(micros, digits, &mut iso),
        Moment::Infinity => iso.push_str("infinity"),
        Moment::NegativeInfinity => iso.push_str("-infinity"),
    }
    Some(Value::Text(Cow::Owned(iso)))
}

const DAY_MICROS: i64 = 86_400_000_000;
/// What pgjdbc has for PostgreSQL's infinite times.
const INFINITY_MICROS: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY_MICROS: i64 = -9_223_372_036_832_400_000;

/// The last bit is the lowest, and the lowest byte comes first; bytes above the highest bit are left out.
fn read_bits(text: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = text
        .as_bytes()
        .rchunks(8)
        .map(|bits| {
            bits.iter()
                .fold(0, |byte, bit| byte << 1 | u8::from(*bit == b'1'))
        })
        .collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

fn read_hstore(mode: HstoreMode, text: &str) -> Option<Value<'static>> {
    let entries = hash_map_order(parse_hstore(text)?);
    if mode == HstoreMode::Map {
        let value =
            |text: Option<String>| text.map_or(Value::Null, |text| Value::Text(Cow::Owned(text)));
        let entries = entries
            .into_iter()
            .map(|(key, text)| (Value::Text(Cow::Owned(key)), value(text)));
        return Some(Value::Map(entries.collect()));
    }
    let mut json = String::from("{");
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        write_json_characters(key, &mut json);
        json.push(':');
        match value {
            Some(value) => write_json_characters(value, &mut json),
            None => json.push_str("null"),
        }
    }
    json.push('}');
    Some(Value::Text(Cow::Owned(json)))
}

fn read_point(text: &str) -> Option<Value<'static>> {
    let (x, y) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    let (x, y): (f64, f64) = (x.trim().parse().ok()?, y.trim().parse().ok()?);
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend(x.to_le_bytes());
    wkb.extend(y.to_le_bytes());
    Some(Value::Struct(vec![
        Value::Double(x),
        Value::Double(y),
        Value::ByteArray(Cow::Owned(wkb)),
        Value::Null,
    ]))
}

/// The extended WKB of PostGIS in hex digits; its spatial reference stands behind the type where a flag says so.
fn read_geometry(text: &str) -> Option<Value<'static>> {
    let mut wkb = Vec::new();
    let hex = format!("\\x{text}");
    bytea::decode(hex.as_bytes(), &mut ValueWriter::over(&mut wkb)).ok()?;
    let (order, behind) = wkb.split_first()?;
    let (kind, behind) = behind.split_first_chunk::<4>()?;
    let number = |bytes: [u8; 4]| match order {
        0 => u32::from_be_bytes(bytes),
        _ => u32::from_le_bytes(bytes),
    };
    let srid = if number(*kind) & 0x2000_0000 == 0 {
        Value::Null
    } else {
        Value::Integer(i64::from(number(*behind.first_chunk()?)))
    };
    Some(Value::Struct(vec![Value::ByteArray(Cow::Owned(wkb)), srid]))
}

fn vector_items<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let items = text.strip_prefix('[')?.strip_suffix(']')?;
    items.split(',').map(|item| read(item.trim())).collect()
}

/// `{1:0.5,3:2}/5`.
fn read_sparse_vector(text: &str) -> Option<Value<'static>> {
    let (entries, dimensions) = text.strip_prefix('{')?.split_once("}/")?;
    let entry = |entry: &str| {
        let (index, number) = entry.split_once(':')?;
        Some((
            Value::Integer(index.trim().parse().ok()?),
            Value::Double(number.trim().parse().ok()?),
        ))
    };
    let entries: Option<Vec<_>> = match entries {
        "" => Some(Vec::new()),
        _ => entries.split(',').map(entry).collect(),
    };
    Some(Value::Struct(vec![
        Value::Integer(dimensions.trim().parse().ok()?),
        Value::Map(entries?),
    ]))
}

/// Room for a moment as ISO has it, so that it is allocated once.
const ISO_BYTES: usize = 32;
