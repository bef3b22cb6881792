//! Stage 5 of 9, `StringConverter`: what Java's `toString` says of a value.

use super::connect_schema::{Kind, Schema};
use super::connect_value::Value;
use super::java_number::{JavaDouble, JavaFloat};
use super::output::{Output, write_base64};
use super::postgres_time::write_java_date;

/// Writes `value.toString()`; a null is written as Java joins it to text.
///
/// A `byte[]` says nothing but its address in Java, another one each time: its Base64 stands here instead.
pub(crate) fn write(schema: Option<&Schema>, value: &Value<'_>, out: &mut impl Output) {
    match value {
        Value::Null => out.text("null"),
        Value::Boolean(value) => out.display(value),
        Value::Integer(number) => out.display(number),
        Value::Date(unix_ms) => write_java_date(*unix_ms, out),
        Value::Float(number) => out.display(JavaFloat(*number)),
        Value::Double(number) => out.display(JavaDouble(*number)),
        Value::Decimal(number) => out.display(number),
        Value::Text(text) | Value::Json(text) => out.text(text),
        Value::Bytes(bytes) => {
            let length = bytes.len();
            out.display(format_args!(
                "java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]"
            ));
        }
        Value::ByteArray(bytes) => write_base64(bytes, out),
        Value::Array(values) => write_list(schema, values, out),
        Value::Map(entries) => write_map(schema, entries, out),
        Value::Struct(values) => write_struct(schema, values, out),
    }
}

fn write_list(schema: Option<&Schema>, values: &[Value<'_>], out: &mut impl Output) {
    let items = match schema.map(|schema| &schema.kind) {
        Some(Kind::Array(items)) => Some(&**items),
        _ => None,
    };
    out.text("[");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.text(", ");
        }
        write(items, value, out);
    }
    out.text("]");
}

fn write_map(schema: Option<&Schema>, entries: &[(Value<'_>, Value<'_>)], out: &mut impl Output) {
    let values = match schema.map(|schema| &schema.kind) {
        Some(Kind::Map(_, values)) => Some(&**values),
        _ => None,
    };
    out.text("{");
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.text(", ");
        }
        write(None, key, out);
        out.text("=");
        write(values, value, out);
    }
    out.text("}");
}

/// Fields that are null are left out.
fn write_struct(schema: Option<&Schema>, values: &[Value<'_>], out: &mut impl Output) {
    let fields = schema.map(Schema::fields).unwrap_or_default();
    out.text("Struct{");
    let mut is_first = true;
    for (field, value) in fields.iter().zip(values) {
        if value.is_null() {
            continue;
        }
        if !is_first {
            out.text(",");
        }
        is_first = false;
        out.text(&field.name);
        out.text("=");
        write(Some(&field.schema), value, out);
    }
    out.text("}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::connect_schema::Field;

    fn written(schema: Option<&Schema>, value: &Value<'_>) -> String {
        let mut out = String::new();
        write(schema, value, &mut out);
        out
    }

    #[test]
    fn collections_are_written_as_java_joins_them() {
        let list = Value::Array(vec![Value::Boolean(true), Value::Null, Value::text("a")]);
        assert_eq!(written(None, &list), "[true, null, a]");
        let map = Value::Map(vec![
            (Value::text("a"), Value::text("1")),
            (Value::text("b"), Value::Null),
        ]);
        assert_eq!(written(None, &map), "{a=1, b=null}");
    }

    #[test]
    fn a_struct_leaves_out_its_nulls() {
        let field = |name: &str| Field {
            name: name.to_owned(),
            schema: Schema::of(Kind::Int32).optional(),
        };
        let schema = Schema::of(Kind::Struct(vec![field("a"), field("b"), field("c")]));
        let value = Value::Struct(vec![Value::Null, Value::Integer(1), Value::Integer(2)]);
        assert_eq!(written(Some(&schema), &value), "Struct{b=1,c=2}");
    }

    #[test]
    fn dates_are_written_in_utc() {
        assert_eq!(
            written(None, &Value::Date(0)),
            "Thu Jan 01 00:00:00 UTC 1970"
        );
        assert_eq!(
            written(None, &Value::Date(1_709_210_096_789)),
            "Thu Feb 29 12:34:56 UTC 2024"
        );
    }
}
