//! Stage 5 of 9, `JsonConverter`: values as JSON, with or without their schemas.

use super::column_type::CONNECT_DATE;
use super::connect_schema::{Kind, Schema};
use super::connect_value::Value;
use super::java_number::{JavaDouble, JavaFloat};
use super::output::{Output, write_base64};
use super::{DecimalFormat, JsonConverterConfig};

/// A value that its schema does not allow; Java throws a `DataException` then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfit;

/// The whole of what the converter makes of a value. Whether it makes anything of it is the caller's question: only a
/// null without a schema stays null.
pub(crate) fn write(
    schema: Option<&Schema>,
    value: &Value<'_>,
    config: &JsonConverterConfig,
    out: &mut impl Output,
) -> Result<(), Unfit> {
    if !config.schemas_enable {
        return write_value(schema, value, config, out);
    }
    out.text("{\"schema\":");
    match schema {
        Some(schema) => schema.write_json(None, config.decimal_format, out),
        None => out.text("null"),
    }
    out.text(",\"payload\":");
    write_value(schema, value, config, out)?;
    out.text("}");
    Ok(())
}

/// The value alone.
pub(crate) fn write_value(
    schema: Option<&Schema>,
    value: &Value<'_>,
    config: &JsonConverterConfig,
    out: &mut impl Output,
) -> Result<(), Unfit> {
    match value {
        Value::Null => match schema.and_then(|schema| schema.default.as_ref()) {
            Some(default) if config.replace_null_with_default => {
                write_value(schema, default, config, out)?;
            }
            _ => out.text("null"),
        },
        Value::Boolean(true) => out.text("true"),
        Value::Boolean(false) => out.text("false"),
        Value::Integer(number) => out.display(number),
        Value::Date(unix_ms) => {
            let is_day = schema.is_some_and(|schema| schema.is_named(CONNECT_DATE));
            let unit_ms = if is_day { 86_400_000 } else { 1 };
            out.display(unix_ms.div_euclid(unit_ms));
        }
        Value::Float(number) => write_float(number.is_finite(), JavaFloat(*number), out),
        Value::Double(number) => write_float(number.is_finite(), JavaDouble(*number), out),
        Value::Decimal(number) => match config.decimal_format {
            DecimalFormat::Numeric => out.display(number),
            DecimalFormat::Base64 => write_binary(&number.unscaled_bytes(), out),
        },
        Value::Text(text) => write_json_string(text, out),
        // Beside a schema, only a string can stand for it.
        Value::Json(text) if config.schemas_enable => write_json_string(text, out),
        Value::Json(text) => out.text(text),
        Value::Bytes(bytes) | Value::ByteArray(bytes) => write_binary(bytes, out),
        Value::Array(values) => write_array(schema, values, config, out)?,
        Value::Map(entries) => write_map(schema, entries, config, out)?,
        Value::Struct(values) => write_struct(schema, values, config, out)?,
    }
    Ok(())
}

/// Jackson puts in quotes what is no number in JSON.
fn write_float(finite: bool, number: impl std::fmt::Display, out: &mut impl Output) {
    if finite {
        out.display(number);
    } else {
        out.display(format_args!("\"{number}\""));
    }
}

fn write_binary(bytes: &[u8], out: &mut impl Output) {
    out.text("\"");
    write_base64(bytes, out);
    out.text("\"");
}

fn write_array(
    schema: Option<&Schema>,
    values: &[Value<'_>],
    config: &JsonConverterConfig,
    out: &mut impl Output,
) -> Result<(), Unfit> {
    let items = match schema.map(|schema| &schema.kind) {
        Some(Kind::Array(items)) => Some(&**items),
        None => None,
        Some(_) => return Err(Unfit),
    };
    out.text("[");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.text(",");
        }
        write_value(items, value, config, out)?;
    }
    out.text("]");
    Ok(())
}

/// An object where the keys are strings, and an array of pairs otherwise.
fn write_map(
    schema: Option<&Schema>,
    entries: &[(Value<'_>, Value<'_>)],
    config: &JsonConverterConfig,
    out: &mut impl Output,
) -> Result<(), Unfit> {
    let Some(Kind::Map(keys, values)) = schema.map(|schema| &schema.kind) else {
        return Err(Unfit);
    };
    let is_object = keys.kind == Kind::String;
    out.text(if is_object { "{" } else { "[" });
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.text(",");
        }
        out.text(if is_object { "" } else { "[" });
        write_value(Some(keys), key, config, out)?;
        out.text(if is_object { ":" } else { "," });
        write_value(Some(values), value, config, out)?;
        out.text(if is_object { "" } else { "]" });
    }
    out.text(if is_object { "}" } else { "]" });
    Ok(())
}

fn write_struct(
    schema: Option<&Schema>,
    values: &[Value<'_>],
    config: &JsonConverterConfig,
    out: &mut impl Output,
) -> Result<(), Unfit> {
    let fields = schema.map(Schema::fields).unwrap_or_default();
    if fields.len() != values.len() {
        return Err(Unfit);
    }
    out.text("{");
    for (index, (field, value)) in fields.iter().zip(values).enumerate() {
        if index > 0 {
            out.text(",");
        }
        write_json_string(&field.name, out);
        out.text(":");
        write_value(Some(&field.schema), value, config, out)?;
    }
    out.text("}");
    Ok(())
}

/// As Jackson writes a string to bytes: quote, backslash and control characters are escaped, and what UTF-16 has no
/// single unit for is written as the escapes of its two halves.
pub(crate) fn write_json_string(text: &str, out: &mut impl Output) {
    write_quoted(text, true, out);
}

/// As Jackson writes a string to characters, where those halves need no escape.
pub(crate) fn write_json_characters(text: &str, out: &mut impl Output) {
    write_quoted(text, false, out);
}

fn write_quoted(text: &str, escapes_halves: bool, out: &mut impl Output) {
    out.text("\"");
    let mut rest = text;
    while let Some(at) = rest
        .bytes()
        .position(|byte| needs_escape(byte, escapes_halves))
    {
        let (plain, from) = rest.split_at(at);
        out.text(plain);
        let escaped = from.chars().next().unwrap_or_default();
        match escaped {
            '"' => out.text("\\\""),
            '\\' => out.text("\\\\"),
            '\n' => out.text("\\n"),
            '\r' => out.text("\\r"),
            '\t' => out.text("\\t"),
            '\u{8}' => out.text("\\b"),
            '\u{c}' => out.text("\\f"),
            other => {
                let mut halves = [0; 2];
                for half in other.encode_utf16(&mut halves) {
                    out.display(format_args!("\\u{half:04X}"));
                }
            }
        }
        rest = from.get(escaped.len_utf8()..).unwrap_or_default();
    }
    out.text(rest);
    out.text("\"");
}

/// Four bytes of UTF-8, which begin with such a byte, are two units of UTF-16.
fn needs_escape(byte: u8, escapes_halves: bool) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\' || (escapes_halves && byte >= 0xF0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::connect_schema::Field;
    use crate::connect::java_number::BigDecimal;

    fn written(schema: Option<&Schema>, value: &Value<'_>, config: &JsonConverterConfig) -> String {
        let mut out = String::new();
        write(schema, value, config, &mut out).unwrap();
        out
    }

    fn plain() -> JsonConverterConfig {
        JsonConverterConfig {
            schemas_enable: false,
            ..JsonConverterConfig::default()
        }
    }

    #[test]
    fn strings_are_escaped_as_jackson_does() {
        let text = Value::text("a\"\\\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}/é\u{2028}😀");
        assert_eq!(
            written(None, &text, &plain()),
            "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u001F\u{7f}/é\u{2028}\\uD83D\\uDE00\""
        );
    }

    #[test]
    fn numbers_are_written_as_jackson_does() {
        let check =
            |value: Value<'_>, text: &str| assert_eq!(written(None, &value, &plain()), text);
        check(Value::Integer(-5), "-5");
        check(Value::Double(1e8), "1.0E8");
        check(Value::Float(1.5), "1.5");
        check(Value::Double(f64::NAN), "\"NaN\"");
        check(Value::Double(f64::NEG_INFINITY), "\"-Infinity\"");
        check(
            Value::Decimal(BigDecimal::parse("123.45").unwrap()),
            "\"MDk=\"",
        );
        let numeric = JsonConverterConfig {
            decimal_format: DecimalFormat::Numeric,
            ..plain()
        };
        let decimal = Value::Decimal(BigDecimal::parse("1E+3").unwrap());
        assert_eq!(written(None, &decimal, &numeric), "1E+3");
    }

    #[test]
    fn a_null_is_written_even_with_a_schema() {
        let schema = Schema::of(Kind::String).optional();
        assert_eq!(
            written(Some(&schema), &Value::Null, &JsonConverterConfig::default()),
            r#"{"schema":{"type":"string","optional":true},"payload":null}"#
        );
        assert_eq!(written(Some(&schema), &Value::Null, &plain()), "null");
    }

    #[test]
    fn a_default_stands_for_a_null_unless_that_is_refused() {
        let schema = Schema::of(Kind::Struct(vec![Field {
            name: "a".to_owned(),
            schema: Schema {
                default: Some(Value::Integer(7)),
                ..Schema::of(Kind::Int32).optional()
            },
        }]));
        let value = Value::Struct(vec![Value::Null]);
        assert_eq!(written(Some(&schema), &value, &plain()), r#"{"a":7}"#);
        let kept = JsonConverterConfig {
            replace_null_with_default: false,
            ..plain()
        };
        assert_eq!(written(Some(&schema), &value, &kept), r#"{"a":null}"#);
    }

    #[test]
    fn maps_with_other_keys_are_arrays_of_pairs() {
        let schema = Schema::of(Kind::Map(
            Box::new(Schema::of(Kind::Int16)),
            Box::new(Schema::of(Kind::Float64)),
        ));
        let value = Value::Map(vec![(Value::Integer(1), Value::Double(0.5))]);
        assert_eq!(written(Some(&schema), &value, &plain()), "[[1,0.5]]");
    }

    #[test]
    fn a_value_of_another_shape_is_refused() {
        let schema = Schema::of(Kind::Int32);
        let mut out = String::new();
        assert_eq!(
            write(Some(&schema), &Value::Array(vec![]), &plain(), &mut out),
            Err(Unfit)
        );
    }
}
