//! Stage 5 of 9, JSON expansion: a schema guessed from a JSON text, and the text's values by that schema.
//!
//! As Debezium's `JsonSchemaData`: two passes, each with its own way to fail.

use std::borrow::Cow;

use super::connect_schema::{Field, Kind, Schema};
use super::connect_value::Value;
use super::json_node::{Node, read_first};
use super::name_adjustment::adjusted;
use super::{EmptyArrayBehavior, NameAdjustment, NullBehavior};

/// How JSON is expanded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expander {
    pub(crate) nulls: NullBehavior,
    pub(crate) empty_arrays: EmptyArrayBehavior,
    pub(crate) names: NameAdjustment,
}

/// What became of a text.
#[derive(Debug, PartialEq)]
pub(crate) enum Expanded<'a> {
    /// It was taken apart.
    Struct(Schema, Value<'a>),
    /// It stays what it is, under the schema of its column.
    Unchanged,
    /// It stays what it is and loses its schema: an empty array at the root.
    WithoutSchema,
    /// The schema was guessed and the values do not fit it: Debezium's task fails here. This much of the text is JSON.
    Unfit(&'a str),
}

/// The values do not fit the schema that was guessed from them.
struct Unfit;

impl Expander {
    pub(crate) fn expand<'a>(&self, name: &str, text: &'a str) -> Expanded<'a> {
        if !text.starts_with(['{', '[']) {
            return Expanded::Unchanged;
        }
        let Some((node, end)) = read_first(text) else {
            return Expanded::Unchanged;
        };
        let json = text.get(..end).unwrap_or(text);
        let Ok(schema) = self.schema(Some(name), &node) else {
            return Expanded::Unchanged;
        };
        let Some(schema) = schema else {
            return Expanded::WithoutSchema;
        };
        match struct_of(node, &schema) {
            Ok(value) => Expanded::Struct(schema, value),
            Err(Unfit) => Expanded::Unfit(json),
        }
    }

    /// `toConnectSchema`. `None`: nothing is said about such a value.
    fn schema(&self, key: Option<&str>, node: &Node<'_>) -> Result<Option<Schema>, Unfit> {
        let optional = |kind| Ok(Some(Schema::of(kind).optional()));
        match node {
            Node::Text(_) => optional(Kind::String),
            Node::Boolean(_) => optional(Kind::Boolean),
            Node::Int(_) => optional(Kind::Int32),
            Node::Long(_) => optional(Kind::Int64),
            Node::BigInteger | Node::Double(_) => optional(Kind::Float64),
            Node::Null => match self.nulls {
                NullBehavior::OptionalBytes => optional(Kind::Bytes),
                NullBehavior::Ignore => Ok(None),
            },
            Node::Array(items) if items.is_empty() => match self.empty_arrays {
                EmptyArrayBehavior::OptionalString => {
                    optional(Kind::Array(Box::new(Schema::of(Kind::String).optional())))
                }
                EmptyArrayBehavior::Ignore => Ok(None),
            },
            Node::Array(items) => {
                let items = self.item_schema(key, items)?;
                optional(Kind::Array(Box::new(items)))
            }
            Node::Object(members) => self.object_schema(key, members).map(Some),
        }
    }

    fn object_schema(
        &self,
        key: Option<&str>,
        members: &[(Cow<'_, str>, Node<'_>)],
    ) -> Result<Schema, Unfit> {
        let mut fields: Vec<Field> = Vec::with_capacity(members.len());
        for (name, node) in members {
            let name = adjusted(name, self.names);
            let key = match key {
                Some(key) if !key.trim().is_empty() => format!("{key}.{name}"),
                _ => name.clone().into_owned(),
            };
            let Some(schema) = self.schema(Some(&key), node)? else {
                continue;
            };
            // Connect refuses a field without a name.
            if name.is_empty() {
                return Err(Unfit);
            }
            // Only an adjustment can make two names one.
            let is_known =
                self.names != NameAdjustment::None && fields.iter().any(|field| field.name == name);
            if !is_known {
                fields.push(Field {
                    name: name.into_owned(),
                    schema,
                });
            }
        }
        Ok(Schema {
            name: key.map(str::to_owned),
            ..Schema::of(Kind::Struct(fields)).optional()
        })
    }

    fn item_schema(&self, key: Option<&str>, items: &[Node<'_>]) -> Result<Schema, Unfit> {
        let sample = self.sample(items)?;
        if !matches!(sample, Node::Object(_)) {
            return self.schema(None, sample)?.ok_or(Unfit);
        }
        let mut merged: Option<Schema> = None;
        for item in items.iter().filter(|item| matches!(item, Node::Object(_))) {
            let Some(schema) = self.schema(key, item)? else {
                continue;
            };
            merged = Some(match merged {
                None => schema,
                Some(known) if known == schema || contains(&known, &schema) => known,
                Some(known) => merge(known, schema),
            });
        }
        merged.ok_or(Unfit)
    }

    /// The first element that is not null, if all are of its kind.
    fn sample<'n>(&self, items: &'n [Node<'n>]) -> Result<&'n Node<'n>, Unfit> {
        let mut sample = &Node::Null;
        for item in items.iter().filter(|item| !matches!(item, Node::Null)) {
            if matches!(sample, Node::Null) {
                sample = item;
            }
            if kind(sample) != kind(item) {
                return Err(Unfit);
            }
        }
        Ok(sample)
    }
}

/// Numbers of one kind only, as each has its own schema; for anything else the shape.
fn kind(node: &Node<'_>) -> u8 {
    match node {
        Node::Null => 0,
        Node::Boolean(_) => 1,
        Node::Int(_) => 2,
        Node::Long(_) => 3,
        Node::BigInteger | Node::Double(_) => 4,
        Node::Text(_) => 5,
        Node::Array(_) => 6,
        Node::Object(_) => 7,
    }
}

/// Merged already, or the same as what is there: merging again would change nothing.
fn contains(merged: &Schema, other: &Schema) -> bool {
    !merged.optional
        && other
            .fields()
            .iter()
            .all(|field| merged.fields().iter().any(|known| known == field))
}

/// The fields of both, in the order they appear in. Where two disagree, Debezium takes the one that its hash set gives
/// first, which is anybody's guess; here it is the later one, and never the one that only a null left.
fn merge(left: Schema, right: Schema) -> Schema {
    let name = left.name.clone();
    let mut fields = match left.kind {
        Kind::Struct(fields) => fields,
        _ => Vec::new(),
    };
    let Kind::Struct(others) = right.kind else {
        return Schema::of(Kind::Struct(fields));
    };
    for other in others {
        match fields.iter_mut().find(|field| field.name == other.name) {
            Some(known) if other.schema.kind != Kind::Bytes => *known = other,
            Some(_) => {}
            None => fields.push(other),
        }
    }
    Schema {
        name,
        ..Schema::of(Kind::Struct(fields))
    }
}

/// `jsonNodeToStructInternal`. The node's members are taken as the schema's fields ask for them.
fn struct_of<'a>(node: Node<'a>, schema: &Schema) -> Result<Value<'a>, Unfit> {
    let (Node::Object(members), Kind::Struct(fields)) = (node, &schema.kind) else {
        return Err(Unfit);
    };
    let mut members: Vec<_> = members.into_iter().map(Some).collect();
    let mut next = 0;
    let mut values = Vec::with_capacity(fields.len());
    for field in fields {
        let is_it = |member: &Option<(Cow<'_, str>, Node<'_>)>| {
            member.as_ref().is_some_and(|(name, _)| *name == field.name)
        };
        // Nearly always the next one, since the schema was made from these members.
        let at = (next..members.len())
            .chain(0..next)
            .find(|at| members.get(*at).is_some_and(is_it));
        let found = at.and_then(|at| members.get_mut(at)).and_then(Option::take);
        next = at.map_or(next, |at| at + 1);
        values.push(match found {
            Some((_, node)) => field_value(node, &field.schema)?,
            None => Value::Null,
        });
    }
    Ok(Value::Struct(values))
}

/// `getStructFieldValue`, and what `Struct.put` checks.
fn field_value<'a>(node: Node<'a>, schema: &Schema) -> Result<Value<'a>, Unfit> {
    Ok(match (node, &schema.kind) {
        (Node::Null, _) if schema.optional => Value::Null,
        (Node::Text(text), Kind::String) => Value::Text(text),
        (Node::Boolean(value), Kind::Boolean) => Value::Boolean(value),
        (Node::Int(number), Kind::Int32) => Value::Integer(i64::from(number)),
        (Node::Long(number), Kind::Int64) => Value::Integer(number),
        (Node::Double(number), Kind::Float64) => Value::Double(number),
        (Node::Array(items), Kind::Array(item)) => Value::Array(
            items
                .into_iter()
                .map(|node| field_value(node, item))
                .collect::<Result<_, _>>()?,
        ),
        (node @ Node::Object(_), Kind::Struct(_)) => struct_of(node, schema)?,
        _ => return Err(Unfit),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::connect::JsonConverterConfig;
    use crate::connect::convert_json;

    const IGNORE: Expander = Expander {
        nulls: NullBehavior::Ignore,
        empty_arrays: EmptyArrayBehavior::Ignore,
        names: NameAdjustment::None,
    };
    const KEEP: Expander = Expander {
        nulls: NullBehavior::OptionalBytes,
        empty_arrays: EmptyArrayBehavior::OptionalString,
        names: NameAdjustment::None,
    };

    fn shown(expander: Expander, text: &str) -> String {
        let config = JsonConverterConfig {
            schemas_enable: false,
            ..JsonConverterConfig::default()
        };
        match expander.expand("payload", text) {
            Expanded::Struct(schema, value) => {
                let mut out = String::new();
                convert_json::write(Some(&schema), &value, &config, &mut out).unwrap();
                out
            }
            Expanded::Unchanged => "<unchanged>".to_owned(),
            Expanded::WithoutSchema => "<without schema>".to_owned(),
            Expanded::Unfit(json) => format!("<unfit> {json}"),
        }
    }

    /// Section 1.6 of the contract.
    #[test]
    fn the_contracts_table_holds() {
        for (text, expected) in [
            (r#"{"a": 1, "s": "x"}"#, r#"{"a":1,"s":"x"}"#),
            ("{}", "{}"),
            (
                r#"{"a":null,"b":[],"c":{},"e":[null,1]}"#,
                r#"{"c":{},"e":[null,1]}"#,
            ),
            (r#"{"d":[null]}"#, "<unchanged>"),
            ("[]", "<without schema>"),
            ("[1,2]", "<unfit> [1,2]"),
            (r#"[{"a":1}] x"#, r#"<unfit> [{"a":1}]"#),
            (r#" {"a":1}"#, "<unchanged>"),
            ("\"str\"", "<unchanged>"),
            ("12", "<unchanged>"),
            ("null", "<unchanged>"),
            ("", "<unchanged>"),
            ("{\"a\":", "<unchanged>"),
            (r#"{"a":1} trailing"#, r#"{"a":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"":3}"#, "<unchanged>"),
            (
                r#"{"a":12345678901,"b":1e2,"c":39.980,"d":1.0,"e":100000000.0,"f":1e-7}"#,
                r#"{"a":12345678901,"b":100.0,"c":39.98,"d":1.0,"e":1.0E8,"f":1.0E-7}"#,
            ),
            (
                r#"{"n":123456789012345678901234567890}"#,
                r#"<unfit> {"n":123456789012345678901234567890}"#,
            ),
            (r#"{"m":[1,"a"]}"#, "<unchanged>"),
            (r#"{"m":[1,2.5]}"#, "<unchanged>"),
            (r#"{"m":[1,3000000000]}"#, "<unchanged>"),
            (
                r#"{"m":[{"a":1},{"b":2}]}"#,
                r#"{"m":[{"a":1,"b":null},{"a":null,"b":2}]}"#,
            ),
            (
                r#"{"m":[{"a":{"x":1}},{"a":{"y":2}}]}"#,
                r#"{"m":[{"a":{"y":null}},{"a":{"y":2}}]}"#,
            ),
            (
                r#"{"m":[{"a":1},{"a":"s"}]}"#,
                r#"<unfit> {"m":[{"a":1},{"a":"s"}]}"#,
            ),
            (r#"{"m":[[1],[2]]}"#, r#"{"m":[[1],[2]]}"#),
            (r#"{"m":[[],[2]]}"#, "<unchanged>"),
            (
                r#"{"u":"\u00e9\u2028\/\u0001"}"#,
                "{\"u\":\"é\u{2028}/\\u0001\"}",
            ),
        ] {
            assert_eq!(shown(IGNORE, text), expected, "{text}");
        }
    }

    #[test]
    fn nulls_and_empty_arrays_are_kept_on_demand() {
        assert_eq!(
            shown(KEEP, r#"{"a":null,"b":[],"c":{},"d":[null],"e":[null,1]}"#),
            r#"{"a":null,"b":[],"c":{},"d":[null],"e":[null,1]}"#
        );
        assert_eq!(
            shown(KEEP, r#"{"m":[{"a":null},{"a":1}]}"#),
            r#"{"m":[{"a":null},{"a":1}]}"#
        );
        assert_eq!(
            shown(KEEP, r#"{"m":[{"a":1},{"a":null}]}"#),
            r#"{"m":[{"a":1},{"a":null}]}"#
        );
        assert_eq!(shown(KEEP, "[]"), "<unfit> []");
    }

    #[test]
    fn an_adjusted_name_loses_its_value() {
        let avro = Expander {
            names: NameAdjustment::Avro,
            ..IGNORE
        };
        assert_eq!(shown(avro, r#"{"a-b":1,"c":2}"#), r#"{"a_b":null,"c":2}"#);
    }

    #[test]
    fn a_null_among_objects_fits_only_while_they_are_alike() {
        assert_eq!(
            shown(IGNORE, r#"{"m":[{"a":1},null]}"#),
            r#"{"m":[{"a":1},null]}"#
        );
        assert!(shown(IGNORE, r#"{"m":[{"a":1},{"b":1},null]}"#).starts_with("<unfit>"));
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_not(text in "[{\\[][{}\\[\\]\",:0-9e.\\-nul\\\\ab ]{0,40}", keep: bool) {
            let expander = if keep { KEEP } else { IGNORE };
            let _ = shown(expander, &text);
        }

        #[test]
        fn a_plain_object_comes_back(members in prop::collection::btree_map("[a-z]{1,4}", any::<i32>(), 0..6)) {
            let text = serde_json::to_string(&members).unwrap();
            prop_assert_eq!(shown(IGNORE, &text), text);
        }
    }
}
