//! Stage 5 of 9, `SimpleHeaderConverter`: Connect's own text form of values, its default for headers.

use super::connect_schema::{Kind, Schema};
use super::connect_value::Value;
use super::java_number::{JavaDouble, JavaFloat};
use super::output::{Output, write_base64};
use super::postgres_time::write_connect_date;

/// Writes a value that is not null. Only what stands in a list, a map or a struct is put in quotes.
pub(crate) fn write(schema: Option<&Schema>, value: &Value<'_>, out: &mut impl Output) {
    append(schema, value, false, out);
}

fn append(schema: Option<&Schema>, value: &Value<'_>, embedded: bool, out: &mut impl Output) {
    match value {
        Value::Null => out.text("null"),
        Value::Boolean(value) => out.display(value),
        Value::Integer(number) => out.display(number),
        Value::Date(unix_ms) => write_connect_date(*unix_ms, out),
        Value::Float(number) => out.display(JavaFloat(*number)),
        Value::Double(number) => out.display(JavaDouble(*number)),
        Value::Decimal(number) => out.display(number),
        Value::Text(text) | Value::Json(text) => append_text(text, embedded, out),
        Value::Bytes(bytes) | Value::ByteArray(bytes) => {
            let quote = if embedded { "\"" } else { "" };
            out.text(quote);
            write_base64(bytes, out);
            out.text(quote);
        }
        Value::Array(values) => {
            let items = match schema.map(|schema| &schema.kind) {
                Some(Kind::Array(items)) => Some(&**items),
                _ => None,
            };
            separated("[", values, "]", out, |value, out| {
                append(items, value, true, out)
            });
        }
        Value::Map(entries) => separated("{", entries, "}", out, |(key, value), out| {
            append(None, key, true, out);
            out.text(":");
            append(None, value, true, out);
        }),
        Value::Struct(values) => {
            let fields = schema.map(Schema::fields).unwrap_or_default();
            let members: Vec<_> = fields.iter().zip(values).collect();
            separated("{", &members, "}", out, |(field, value), out| {
                append_text(&field.name, true, out);
                out.text(":");
                append(Some(&field.schema), value, true, out);
            });
        }
    }
}

fn separated<T, O: Output>(
    open: &str,
    items: &[T],
    close: &str,
    out: &mut O,
    mut write_item: impl FnMut(&T, &mut O),
) {
    out.text(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.text(",");
        }
        write_item(item, out);
    }
    out.text(close);
}

/// Within quotes, only the backslash and the quote are escaped.
fn append_text(text: &str, embedded: bool, out: &mut impl Output) {
    if !embedded {
        return out.text(text);
    }
    out.text("\"");
    for piece in text.split_inclusive(['"', '\\']) {
        match piece.strip_suffix(['"', '\\']) {
            Some(plain) => {
                out.text(plain);
                out.text("\\");
                out.text(piece.get(plain.len()..).unwrap_or_default());
            }
            None => out.text(piece),
        }
    }
    out.text("\"");
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn written(value: &Value<'_>) -> String {
        let mut out = String::new();
        write(None, value, &mut out);
        out
    }

    #[test]
    fn only_what_is_inside_stands_in_quotes() {
        assert_eq!(written(&Value::text("a\"b\\")), "a\"b\\");
        let list = Value::Array(vec![
            Value::text("a\"b\\\n"),
            Value::Null,
            Value::Integer(1),
            Value::Bytes(Cow::Borrowed(b"\x01")),
        ]);
        assert_eq!(written(&list), "[\"a\\\"b\\\\\n\",null,1,\"AQ==\"]");
    }

    #[test]
    fn dates_show_what_they_have() {
        assert_eq!(written(&Value::Date(45_296_789)), "12:34:56.789Z");
        assert_eq!(written(&Value::Date(86_400_000)), "1970-01-02");
        assert_eq!(
            written(&Value::Date(1_709_210_096_789)),
            "2024-02-29T12:34:56.789Z"
        );
    }
}
