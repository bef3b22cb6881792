//! Stage 5 of 9, Connect's schemas: what a value says about its type, and how `JsonConverter` writes that.

use super::connect_value::Value;
use super::convert_json::{self, write_json_string};
use super::output::Output;
use super::{DecimalFormat, JsonConverterConfig};

/// A Connect schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schema {
    pub(crate) kind: Kind,
    pub(crate) optional: bool,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<i32>,
    pub(crate) doc: Option<&'static str>,
    pub(crate) parameters: Vec<(&'static str, String)>,
    pub(crate) default: Option<Value<'static>>,
}

/// The type proper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Boolean,
    String,
    Bytes,
    Array(Box<Schema>),
    /// The values' schema; the keys are strings, or whole numbers in a sparse vector.
    Map(Box<Schema>, Box<Schema>),
    Struct(Vec<Field>),
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) schema: Schema,
}

impl Schema {
    /// Required, without a name.
    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            kind,
            optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: Vec::new(),
            default: None,
        }
    }

    /// Required, one of Debezium's or Connect's own types. All of them have version 1.
    pub(crate) fn named(kind: Kind, name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            version: Some(1),
            ..Self::of(kind)
        }
    }

    pub(crate) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(crate) fn parameter(mut self, name: &'static str, value: impl ToString) -> Self {
        self.parameters.push((name, value.to_string()));
        self
    }

    pub(crate) fn doc(mut self, doc: &'static str) -> Self {
        self.doc = Some(doc);
        self
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    pub(crate) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Struct(fields) => fields,
            _ => &[],
        }
    }

    /// As `JsonConverter.asJsonSchema`; inside a struct the field's name follows.
    pub(crate) fn write_json(
        &self,
        field: Option<&str>,
        format: DecimalFormat,
        out: &mut impl Output,
    ) {
        self.write_kind(format, out);
        out.text(if self.optional {
            ",\"optional\":true"
        } else {
            ",\"optional\":false"
        });
        if let Some(name) = &self.name {
            out.text(",\"name\":");
            write_json_string(name, out);
        }
        if let Some(version) = self.version {
            out.display(format_args!(",\"version\":{version}"));
        }
        if let Some(doc) = self.doc {
            out.text(",\"doc\":");
            write_json_string(doc, out);
        }
        self.write_parameters(out);
        if let Some(default) = &self.default {
            out.text(",\"default\":");
            let config = JsonConverterConfig {
                schemas_enable: false,
                replace_null_with_default: false,
                decimal_format: format,
            };
            // A default was made by this schema, so that it fits.
            convert_json::write_value(Some(self), default, &config, out).unwrap_or_default();
        }
        if let Some(field) = field {
            out.text(",\"field\":");
            write_json_string(field, out);
        }
        out.text("}");
    }

    fn write_kind(&self, format: DecimalFormat, out: &mut impl Output) {
        out.text("{\"type\":\"");
        out.text(self.type_name());
        out.text("\"");
        match &self.kind {
            Kind::Array(items) => {
                out.text(",\"items\":");
                items.write_json(None, format, out);
            }
            Kind::Map(keys, values) => {
                out.text(",\"keys\":");
                keys.write_json(None, format, out);
                out.text(",\"values\":");
                values.write_json(None, format, out);
            }
            Kind::Struct(fields) => {
                out.text(",\"fields\":[");
                for (index, field) in fields.iter().enumerate() {
                    if index > 0 {
                        out.text(",");
                    }
                    field.schema.write_json(Some(&field.name), format, out);
                }
                out.text("]");
            }
            _ => {}
        }
    }

    fn write_parameters(&self, out: &mut impl Output) {
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            out.text(if index == 0 { ",\"parameters\":{" } else { "," });
            write_json_string(name, out);
            out.text(":");
            write_json_string(value, out);
        }
        if !self.parameters.is_empty() {
            out.text("}");
        }
    }

    /// Connect's name of the type, in lower case.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Int8 => "int8",
            Kind::Int16 => "int16",
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::Float32 => "float",
            Kind::Float64 => "double",
            Kind::Boolean => "boolean",
            Kind::String => "string",
            Kind::Bytes => "bytes",
            Kind::Array(_) => "array",
            Kind::Map(..) => "map",
            Kind::Struct(_) => "struct",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(schema: &Schema) -> String {
        let mut out = String::new();
        schema.write_json(None, DecimalFormat::Base64, &mut out);
        out
    }

    #[test]
    fn parts_come_in_the_order_of_the_converter() {
        let schema = Schema {
            default: Some(Value::text("a")),
            ..Schema::named(Kind::String, "io.debezium.data.Enum")
                .doc("d")
                .parameter("allowed", "a,b")
                .optional()
        };
        assert_eq!(
            written(&schema),
            r#"{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"doc":"d","parameters":{"allowed":"a,b"},"default":"a"}"#
        );
    }

    #[test]
    fn inner_schemas_come_before_the_rest() {
        let item = Schema::of(Kind::Int32).optional();
        let field = |name: &str, schema| Field {
            name: name.to_owned(),
            schema,
        };
        let schema = Schema::of(Kind::Struct(vec![
            field("a", Schema::of(Kind::Array(Box::new(item)))),
            field(
                "m",
                Schema::of(Kind::Map(
                    Box::new(Schema::of(Kind::String)),
                    Box::new(Schema::of(Kind::String).optional()),
                )),
            ),
        ]));
        assert_eq!(
            written(&schema),
            concat!(
                r#"{"type":"struct","fields":[{"type":"array","items":{"type":"int32","optional":true},"optional":false,"field":"a"},"#,
                r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":true},"optional":false,"field":"m"}],"#,
                r#""optional":false}"#
            )
        );
    }
}
