//! Stage 5 of 9, column defaults: what the connector makes of a default's expression.
//!
//! Debezium puts a column's default into the schema, and Connect's structs give it out in place of NULL. Literals are
//! taken as they are; what a function would say is replaced by a constant of the type.

use super::column_type::{ColumnType, Conversion};
use super::column_value::read_value;
use super::connect_value::Value;

/// The default of a column whose type is named `type_name`; `None` where the connector does not understand it.
pub(crate) fn column_default(
    type_name: &str,
    column_type: &ColumnType,
    expression: &str,
) -> Option<Value<'static>> {
    let is_enum = column_type.schema.is_named("io.debezium.data.Enum");
    let literal = if is_enum {
        enum_literal(type_name, expression)?
    } else {
        let expression = expression.trim();
        if is_generated(expression) {
            placeholder(type_name)?
        } else {
            placeholder(type_name)?;
            literal(expression)?
        }
    };
    let value = read_default(column_type, literal)?;
    // Connect takes no struct as a default (KAFKA-12694).
    (!matches!(value, Value::Struct(_) | Value::Null)).then_some(value)
}

fn read_default(column_type: &ColumnType, literal: &str) -> Option<Value<'static>> {
    match column_type.conversion {
        Conversion::Boolean => Some(Value::Boolean(literal.eq_ignore_ascii_case("true"))),
        // Not "epoch" as there: that is what pgjdbc reads as an interval of nothing.
        Conversion::Interval(_) if literal == "epoch" => {
            read_value(&column_type.conversion, b"00:00:00")
                .ok()
                .map(Value::into_owned)
        }
        _ => read_value(&column_type.conversion, literal.as_bytes())
            .ok()
            .map(Value::into_owned),
    }
}

/// The constant that stands for a function's result; `None` for types whose defaults are not understood at all.
fn placeholder(type_name: &str) -> Option<&'static str> {
    Some(match type_name {
        "bit" => "00",
        "varbit" | "int2" | "int4" | "int8" => "0",
        "bool" => "false",
        "bpchar" | "varchar" | "text" | "xml" => "",
        "numeric" | "float4" | "float8" => "0.0",
        "json" | "jsonb" => "{}",
        "uuid" => "00000000-0000-0000-0000-000000000000",
        "date" | "timestamp" | "timestamptz" => "1970-01-01",
        "time" => "00:00",
        "interval" => "epoch",
        _ => return None,
    })
}

/// A call, in brackets or not, or one of SQL's words for now.
fn is_generated(expression: &str) -> bool {
    let call = expression.strip_prefix('(').unwrap_or(expression);
    let name_length = call
        .bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        .count();
    let is_call = name_length > 0
        && call
            .get(name_length..)
            .is_some_and(|rest| rest.starts_with('(') && rest.contains(')'));
    is_call || NOW_WORDS.contains(&&*expression.to_ascii_lowercase())
}

const NOW_WORDS: [&str; 5] = [
    "current_timestamp",
    "current_time",
    "current_date",
    "localtime",
    "localtimestamp",
];

/// What stands between the first two quotes, or the whole where there are none. `NULL::text` is no default.
fn literal(expression: &str) -> Option<&str> {
    match expression.split_once('\'') {
        Some((_, behind)) => behind.split_once('\'').map(|(literal, _)| literal),
        None if expression.starts_with("NULL::") => None,
        None => Some(expression),
    }
}

/// The connector reads expressions with `public` on its search path, so that the schema does not stand in them. Here it
/// does, as nothing is on ours.
fn enum_literal<'e>(type_name: &str, expression: &'e str) -> Option<&'e str> {
    let cast = expression.strip_suffix(type_name)?;
    cast.strip_suffix("public.")
        .unwrap_or(cast)
        .strip_suffix("::")?
        .strip_prefix('\'')?
        .strip_suffix('\'')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::TypeModes;
    use crate::connect::catalog::Catalog;
    use crate::connect::column_type::column_type;

    fn check(oid: u32, type_name: &str, expression: &str, expected: Option<Value<'static>>) {
        let of = column_type(oid, -1, &Catalog::new(), &TypeModes::default()).unwrap();
        assert_eq!(
            column_default(type_name, &of, expression),
            expected,
            "{expression}"
        );
    }

    #[test]
    fn literals_are_taken() {
        check(3802, "jsonb", "'{}'::jsonb", Some(Value::text("{}")));
        check(25, "text", "'abc'::text", Some(Value::text("abc")));
        check(23, "int4", "7", Some(Value::Integer(7)));
        check(
            20,
            "int8",
            "'9223372036854775807'::bigint",
            Some(Value::Integer(i64::MAX)),
        );
        check(16, "bool", "true", Some(Value::Boolean(true)));
        check(701, "float8", "1.5", Some(Value::Double(1.5)));
        check(
            1114,
            "timestamp",
            "'1970-01-02 00:00:00'::timestamp without time zone",
            Some(Value::Integer(86_400_000_000)),
        );
    }

    #[test]
    fn an_enums_label_is_taken_with_and_without_the_schema_public() {
        assert_eq!(enum_literal("mood", "'ok'::mood"), Some("ok"));
        assert_eq!(enum_literal("mood", "'ok'::public.mood"), Some("ok"));
        assert_eq!(enum_literal("mood", "'ok'::other.mood"), None);
    }

    #[test]
    fn functions_have_a_constant_instead() {
        check(1114, "timestamp", "now()", Some(Value::Integer(0)));
        check(
            1184,
            "timestamptz",
            "CURRENT_TIMESTAMP",
            Some(Value::text("1970-01-01T00:00:00.000000Z")),
        );
        check(
            2950,
            "uuid",
            "gen_random_uuid()",
            Some(Value::text("00000000-0000-0000-0000-000000000000")),
        );
        check(
            23,
            "int4",
            "nextval('s'::regclass)",
            Some(Value::Integer(0)),
        );
        check(
            3802,
            "jsonb",
            "jsonb_build_object('a', 1)",
            Some(Value::text("{}")),
        );
        check(1186, "interval", "f()", Some(Value::Integer(0)));
    }

    #[test]
    fn what_is_not_understood_is_no_default() {
        check(17, "bytea", "'\\x00'::bytea", None);
        check(23, "int4", "(1 + 1)", None);
        check(25, "text", "NULL::text", None);
        check(1700, "numeric", "1.5", None);
        check(1009, "_text", "'{}'::text[]", None);
    }
}
