//! Stage 5 of 9, headers: all that a record can have, in their order, and a set of those that it has.

use super::connect_schema::{Kind, Schema};
use super::connect_value::Value;
use super::event_mapping::{ColumnSlot, EventMapping};
use super::{ContextHeaders, DebeziumVersion, PlacementPlace};
use crate::error::ConnectConfigError;

/// A set of headers, by their places in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeaderSet(u128);

impl HeaderSet {
    pub(crate) fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    pub(crate) fn remove_all(&mut self, others: Self) {
        self.0 &= !others.0;
    }

    pub(crate) fn contains(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }

    pub(crate) fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub(crate) fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// All headers there can be.
#[derive(Debug, Default)]
pub(crate) struct HeaderList {
    pub(crate) headers: Vec<PossibleHeader>,
}

/// A header there can be.
#[derive(Debug)]
pub(crate) struct PossibleHeader {
    pub(crate) name: String,
    pub(crate) source: HeaderSource,
}

/// Where a header's value comes from.
#[derive(Debug)]
pub(crate) enum HeaderSource {
    Column(ColumnSlot),
    Constant(Schema, Value<'static>),
}

impl HeaderList {
    /// Adds a header, and gives its place.
    pub(crate) fn add(
        &mut self,
        name: &str,
        source: HeaderSource,
    ) -> Result<usize, ConnectConfigError> {
        if self.headers.len() >= HEADERS_MAX {
            return Err(ConnectConfigError::Transforms {
                why: "a record can have 128 headers at most",
            });
        }
        self.headers.push(PossibleHeader {
            name: name.to_owned(),
            source,
        });
        Ok(self.headers.len() - 1)
    }

    /// The headers of this name that come before `end`.
    pub(crate) fn named(&self, name: &str) -> HeaderSet {
        let mut set = HeaderSet::default();
        for (at, header) in self.headers.iter().enumerate() {
            if header.name == name {
                set.insert(at);
            }
        }
        set
    }

    /// `__debezium.context.*`, which only rows have.
    pub(crate) fn add_context(
        &mut self,
        form: ContextHeaders,
        version: DebeziumVersion,
        topic_prefix: &str,
        run_id: &str,
    ) -> Result<HeaderSet, ConnectConfigError> {
        let mut set = HeaderSet::default();
        let (has_any, has_run_id) = match form {
            ContextHeaders::None => (false, false),
            ContextHeaders::V32 => (true, false),
            ContextHeaders::V34 => (true, true),
            ContextHeaders::Version => (
                version >= DebeziumVersion::new(3, 2, 1),
                version >= DebeziumVersion::new(3, 4, 0),
            ),
        };
        let values = [
            ("connectorLogicalName", topic_prefix, has_any),
            ("taskId", "0", has_any),
            ("connectorName", "postgresql", has_any),
            ("runId", run_id, has_run_id),
        ];
        for (name, value, is_there) in values {
            if is_there {
                let value = Value::Text(value.to_owned().into());
                let source = HeaderSource::Constant(Schema::of(Kind::String), value);
                set.insert(self.add(&format!("__debezium.context.{name}"), source)?);
            }
        }
        Ok(set)
    }

    /// `id` and the additional ones.
    pub(crate) fn add_mapped(
        &mut self,
        mapping: &EventMapping,
    ) -> Result<HeaderSet, ConnectConfigError> {
        let mut set = HeaderSet::default();
        set.insert(self.add("id", HeaderSource::Column(mapping.id))?);
        let additional = mapping.additional.iter();
        for header in additional.filter(|header| header.place == PlacementPlace::Header) {
            set.insert(self.add(&header.name, HeaderSource::Column(header.slot))?);
        }
        Ok(set)
    }
}

const HEADERS_MAX: usize = 128;

/// `value.literal` of `InsertHeader`, as Connect's `Values.parseString` understands it: what it would make something
/// else of than text, a boolean or a whole number is refused.
pub(crate) fn literal_header(literal: &str) -> Result<HeaderSource, ConnectConfigError> {
    let constant = |kind, value| Ok(HeaderSource::Constant(Schema::of(kind), value));
    match literal {
        "true" | "false" => return constant(Kind::Boolean, Value::Boolean(literal == "true")),
        "null" => {
            let schema = Schema::of(Kind::String).optional();
            return Ok(HeaderSource::Constant(schema, Value::Null));
        }
        _ => {}
    }
    if let Ok(number) = literal.parse::<i64>()
        && number.to_string() == literal
    {
        let kind = match number {
            -0x80..=0x7F => Kind::Int8,
            -0x8000..=0x7FFF => Kind::Int16,
            -0x8000_0000..=0x7FFF_FFFF => Kind::Int32,
            _ => Kind::Int64,
        };
        return constant(kind, Value::Integer(number));
    }
    let first = literal.trim_start().chars().next();
    let is_plain = first.is_some_and(|c| !c.is_ascii_digit() && !"\"[{+-.".contains(c))
        && literal.trim() == literal;
    if !is_plain || ["NaN", "Infinity"].contains(&literal) {
        return Err(ConnectConfigError::Literal {
            literal: literal.to_owned(),
        });
    }
    constant(Kind::String, Value::Text(literal.to_owned().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_the_types_that_connect_finds() {
        let kind = |literal| match literal_header(literal) {
            Ok(HeaderSource::Constant(schema, _)) => Some(schema.type_name()),
            _ => None,
        };
        assert_eq!(kind("orders"), Some("string"));
        assert_eq!(kind("a 1"), Some("string"));
        assert_eq!(kind("true"), Some("boolean"));
        assert_eq!(kind("127"), Some("int8"));
        assert_eq!(kind("-129"), Some("int16"));
        assert_eq!(kind("70000"), Some("int32"));
        assert_eq!(kind("5000000000"), Some("int64"));
        for refused in [
            "",
            "1.5",
            "01",
            "\"a\"",
            "[1]",
            "{}",
            "2020-01-01",
            "NaN",
            " a",
        ] {
            assert_eq!(kind(refused), None, "{refused}");
        }
    }
}
