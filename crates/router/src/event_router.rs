//! Stage 5 of 9, the Event Router: an event's columns become topic, key, value, headers, partition and timestamp.
//!
//! In the order of Debezium's `EventRouterDelegate`, with the converters behind it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::connect_schema::{Field, Kind, Schema};
use super::connect_value::Value;
use super::converter::Converter;
use super::event_columns::{ConnectFault, EventColumns};
use super::event_mapping::EventMapping;
use super::expand_json::{Expanded, Expander};
use super::header_plan::{HeaderList, HeaderSet, HeaderSource};
use super::java_regex::{JavaRegex, TooComplex};
use super::java_replacement::Replacement;
use super::json_node::read_first;
use super::name_adjustment::adjusted_full_name;
use super::output::Output as _;
use super::postgres_time::{Moment, parse_moment};
use super::transforms::{Passing, Transforms, route};
use super::{
    ConnectConfig, DecimalFormat, EventRouterConfig, Expansion, NameAdjustment, PlacementPlace,
    column_type,
};
use crate::error::{ConnectConfigError, ValueProblem};
use crate::record::{Place, RecordBuilder};
use crate::template::check_topic;

/// The Event Router with the converters.
#[derive(Debug)]
pub(crate) struct EventRouter {
    pub(crate) mapping: EventMapping,
    pub(crate) headers: HeaderList,
    regex: JavaRegex,
    replacement: Replacement,
    expander: Option<Expander>,
    is_verbatim: bool,
    has_tombstones: bool,
    schema_names: NameAdjustment,
    key_converter: Converter,
    value_converter: Converter,
    header_converter: Converter,
}

/// What is kept from one event to the next: room to write in, and the names of envelopes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    topic: String,
    spare: String,
    routed: LastRouted,
    /// By the payload's schema, or by the version: Debezium too names an envelope after the first event that has it.
    envelope_names: HashMap<String, Option<String>>,
    pub(crate) tolerated: Tolerated,
}

/// How often a record was sent although not all of its row could be made what it was asked to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tolerated {
    /// Values sent as the JSON text they are, since Debezium's task would have failed to expand them.
    pub payloads_verbatim: u64,
    /// Rows of which a value, or elements of an array, could not be converted and were sent as NULL or as the column's default.
    pub rows_nulled: u64,
}

/// Where the last event went by the routing column alone. Aggregate types are few and come in runs, and a pattern takes longer
/// than looking whether the type is the same.
#[derive(Debug, Default)]
struct LastRouted {
    value: String,
    topic: String,
}

/// What an event is, besides its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'e> {
    pub(crate) headers: HeaderSet,
    /// The name of the row's schema.
    pub(crate) schema_name: Option<&'e str>,
    pub(crate) now_ms: i64,
}

/// A value and what it says about itself.
struct Typed<'a> {
    schema: Option<Cow<'a, Schema>>,
    value: Value<'a>,
}

impl EventRouter {
    pub(crate) fn new(
        config: &ConnectConfig,
        mapping: EventMapping,
        headers: HeaderList,
    ) -> Result<Self, ConnectConfigError> {
        let options = &config.event_router;
        let (regex, replacement) = route(
            "route_topic_regex",
            &options.route_topic_regex,
            &options.route_topic_replacement,
        )?;
        let converter = |key, config| {
            Converter::new(config).map_err(|()| ConnectConfigError::HeadersOnly { key })
        };
        Ok(Self {
            mapping,
            headers,
            regex,
            replacement,
            expander: expander(options, config.types.field_name_adjustment_mode),
            is_verbatim: options.expansion == Expansion::Verbatim,
            has_tombstones: options.route_tombstone_on_empty_payload,
            schema_names: config.types.schema_name_adjustment_mode,
            key_converter: converter("key_converter", &config.key_converter)?,
            value_converter: converter("value_converter", &config.value_converter)?,
            header_converter: Converter::for_headers(&config.header_converter),
        })
    }

    /// Writes the event's record. `false`: a transform behind the router dropped it.
    pub(crate) fn write(
        &self,
        columns: &impl EventColumns,
        event: Event<'_>,
        transforms: &Transforms,
        scratch: &mut Scratch,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<bool, ConnectFault> {
        let routed_by = self.routed_by(columns)?;
        let mut payload = columns.get(self.mapping.payload)?;
        if self.is_verbatim || self.expander.is_none() {
            payload = self.verbatim(columns, payload)?;
        }
        let timestamp_ms = self.timestamp_ms(columns, event.now_ms)?;
        let value = self.value(columns, event, &routed_by, &payload, scratch)?;
        scratch.topic.clear();
        scratch
            .topic
            .push_str(self.topic(&routed_by, &mut scratch.routed)?);
        let mut passing = Passing {
            topic: &mut scratch.topic,
            spare: &mut scratch.spare,
            headers: event.headers,
            is_tombstone: value.value.is_null(),
        };
        if !transforms.finish(&mut passing).map_err(too_complex)? {
            return Ok(false);
        }
        let headers = passing.headers;
        check_topic(&scratch.topic).map_err(|why| ConnectFault::IllegalTopic {
            name: scratch.topic.clone(),
            why,
        })?;
        builder.set_topic([&*scratch.topic]);
        self.put_key(columns, builder)?;
        self.value_converter
            .put(
                value.schema.as_deref(),
                &value.value,
                Place::Payload,
                builder,
            )
            .map_err(|why| ConnectFault::Unconvertible("value", why))?;
        self.put_headers(columns, headers, builder)?;
        builder.set_partition(self.partition(columns)?);
        builder.set_timestamp_ms(timestamp_ms);
        Ok(true)
    }

    /// The topic by the routing column alone.
    fn topic<'l>(&self, value: &str, last: &'l mut LastRouted) -> Result<&'l str, ConnectFault> {
        // No topic is empty, so an empty one is that of nothing yet.
        if last.value != value || last.topic.is_empty() {
            last.topic.clear();
            let routed = self.regex.route(value, &self.replacement, &mut last.topic);
            if let Err(error) = routed {
                last.topic.clear();
                return Err(too_complex(error));
            }
            value.clone_into(&mut last.value);
        }
        Ok(&last.topic)
    }

    /// `Struct.getString`, so without the column's default.
    fn routed_by<'c>(&self, columns: &'c impl EventColumns) -> Result<Cow<'c, str>, ConnectFault> {
        let slot = self.mapping.route;
        let schema = columns.required(slot)?;
        if schema.kind != Kind::String {
            let type_name = schema.type_name();
            return Err(ConnectFault::Value(
                slot,
                ValueProblem::NotText { type_name },
            ));
        }
        match columns.raw(slot)? {
            Value::Text(text) => Ok(text),
            _ => Err(ConnectFault::NullRoute(slot)),
        }
    }

    fn put_key(
        &self,
        columns: &impl EventColumns,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<(), ConnectFault> {
        let slot = self.mapping.key;
        let (schema, key) = (columns.required(slot)?, columns.get(slot)?);
        self.key_converter
            .put(Some(schema), &key, Place::Key, builder)
            .map_err(|why| ConnectFault::Unconvertible("key", why))
    }

    fn put_headers(
        &self,
        columns: &impl EventColumns,
        present: HeaderSet,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<(), ConnectFault> {
        for (at, header) in self.headers.headers.iter().enumerate() {
            if !present.contains(at) {
                continue;
            }
            let place = Place::Header(&header.name);
            let put = match &header.source {
                HeaderSource::Constant(schema, value) => {
                    self.header_converter
                        .put(Some(schema), value, place, builder)
                }
                HeaderSource::Column(slot) => {
                    let Some(schema) = columns.schema(*slot) else {
                        if self.mapping.is_required(*slot) {
                            return Err(ConnectFault::Missing(*slot));
                        }
                        continue;
                    };
                    let value = columns.get(*slot)?;
                    self.header_converter
                        .put(Some(schema), &value, place, builder)
                }
            };
            put.map_err(|why| ConnectFault::Unconvertible("header", why))?;
        }
        Ok(())
    }

    /// The last one wins. Debezium takes 32-bit columns only and fails on others; here any whole number will do.
    fn partition(&self, columns: &impl EventColumns) -> Result<Option<i32>, ConnectFault> {
        let mut partition = None;
        for entry in &self.mapping.additional {
            if entry.place != PlacementPlace::Partition {
                continue;
            }
            partition = match columns.raw(entry.slot)? {
                Value::Null => None,
                Value::Integer(number) => {
                    let problem = match number {
                        ..0 => ValueProblem::NegativePartition,
                        _ => ValueProblem::PartitionTooLarge,
                    };
                    let checked = i32::try_from(number).ok().filter(|number| *number >= 0);
                    Some(checked.ok_or(ConnectFault::Value(entry.slot, problem))?)
                }
                _ => {
                    let problem = ValueProblem::NotAPartition { offset: 0 };
                    return Err(ConnectFault::Value(entry.slot, problem));
                }
            };
        }
        Ok(partition)
    }

    /// Debezium's result where it has one. Where its task would fail, timestamptz and plain milliseconds are taken.
    fn timestamp_ms(
        &self,
        columns: &impl EventColumns,
        now_ms: i64,
    ) -> Result<Option<i64>, ConnectFault> {
        let Some(slot) = self.mapping.timestamp else {
            return Ok(Some(now_ms));
        };
        let schema = columns.required(slot)?;
        let unsupported = || {
            ConnectFault::Value(
                slot,
                ValueProblem::NotATimestamp {
                    type_name: schema
                        .name
                        .clone()
                        .unwrap_or_else(|| schema.type_name().to_owned()),
                },
            )
        };
        let unix_ms = match (columns.raw(slot)?, schema.name.as_deref()) {
            (Value::Null, _) => return Ok(Some(now_ms)),
            (Value::Integer(ms), Some(column_type::TIMESTAMP)) => ms,
            (Value::Integer(micros), Some(column_type::MICRO_TIMESTAMP)) => micros / 1000,
            (Value::Integer(nanos), Some(column_type::NANO_TIMESTAMP)) => nanos / 1_000_000,
            (Value::Integer(ms), None) if schema.kind == Kind::Int64 => ms,
            (Value::Date(ms), Some(column_type::CONNECT_TIMESTAMP)) => ms,
            (Value::Text(text), Some(_)) => match parse_moment(&text) {
                Some(Moment::Micros(micros)) => micros.div_euclid(1000),
                Some(_) => return Err(ConnectFault::Value(slot, ValueProblem::InfiniteTime)),
                None => return Err(unsupported()),
            },
            _ => return Err(unsupported()),
        };
        match unix_ms {
            // Connect's word for none.
            -1 => Ok(None),
            ..-1 => Err(ConnectFault::Value(slot, ValueProblem::BeforeEpoch)),
            _ => Ok(Some(unix_ms)),
        }
    }

    /// The payload as JSON that is sent as it stands, if that is asked for and it is JSON.
    fn verbatim<'a>(
        &self,
        columns: &impl EventColumns,
        payload: Value<'a>,
    ) -> Result<Value<'a>, ConnectFault> {
        let Value::Text(text) = payload else {
            return Ok(payload);
        };
        if !self.is_verbatim {
            return Ok(Value::Text(text));
        }
        let schema = columns.required(self.mapping.payload)?;
        // The server checks what stands in a json column.
        let is_json = schema.is_named("io.debezium.data.Json")
            || read_first(&text).is_some_and(|(_, end)| {
                text.get(end..)
                    .is_some_and(|behind| behind.trim_ascii().is_empty())
            });
        Ok(if is_json {
            Value::Json(text)
        } else {
            Value::Text(text)
        })
    }

    fn value<'a>(
        &self,
        columns: &'a impl EventColumns,
        event: Event<'_>,
        routed_by: &str,
        payload: &'a Value<'_>,
        scratch: &mut Scratch,
    ) -> Result<Typed<'a>, ConnectFault> {
        let schema = Cow::Borrowed(columns.required(self.mapping.payload)?);
        let mut typed = Typed {
            schema: Some(schema),
            value: payload.reborrow(),
        };
        if let (Some(expander), Value::Text(text)) = (&self.expander, payload) {
            match expander.expand(self.mapping.name(self.mapping.payload), text) {
                Expanded::Struct(schema, value) => {
                    typed = Typed {
                        schema: Some(Cow::Owned(schema)),
                        value,
                    };
                }
                // Debezium fails where an envelope needs the schema.
                Expanded::WithoutSchema if !self.mapping.has_envelope => typed.schema = None,
                Expanded::Unfit(json) => {
                    scratch.tolerated.payloads_verbatim += 1;
                    typed.value = Value::Json(Cow::Borrowed(json));
                }
                Expanded::Unchanged | Expanded::WithoutSchema => {}
            }
        }
        if self.has_tombstones && typed.value.is_blank() {
            return Ok(Typed {
                schema: None,
                value: Value::Null,
            });
        }
        if !self.mapping.has_envelope {
            return Ok(typed);
        }
        self.envelope(columns, event, routed_by, typed, scratch)
    }

    fn envelope<'a>(
        &self,
        columns: &'a impl EventColumns,
        event: Event<'_>,
        routed_by: &str,
        payload: Typed<'a>,
        scratch: &mut Scratch,
    ) -> Result<Typed<'a>, ConnectFault> {
        let payload_schema = match payload.schema {
            Some(schema) => schema.into_owned(),
            None => Schema::of(Kind::String).optional(),
        };
        let version = self.version(columns)?;
        let name = if self.value_converter.shows_schemas() {
            let name = || self.envelope_name(event.schema_name, routed_by);
            scratch.envelope_name(&payload_schema, version, name)
        } else {
            None
        };
        let mut fields = vec![Field {
            name: "payload".to_owned(),
            schema: payload_schema,
        }];
        let mut values = vec![payload.value];
        for entry in &self.mapping.additional {
            if entry.place != PlacementPlace::Envelope {
                continue;
            }
            let Some(schema) = columns.schema(entry.slot) else {
                if self.mapping.is_required(entry.slot) {
                    return Err(ConnectFault::Missing(entry.slot));
                }
                continue;
            };
            fields.push(Field {
                name: entry.name.clone(),
                schema: schema.clone(),
            });
            values.push(columns.get(entry.slot)?);
        }
        let schema = Schema {
            name,
            version,
            ..Schema::of(Kind::Struct(fields))
        };
        Ok(Typed {
            schema: Some(Cow::Owned(schema)),
            value: Value::Struct(values),
        })
    }

    /// The aggregate type stands before the last part of the row's schema's name.
    fn envelope_name(&self, schema_name: Option<&str>, routed_by: &str) -> String {
        let name = schema_name.map(|name| adjusted_full_name(name, self.schema_names));
        match name
            .as_deref()
            .map(|name| name.rsplit_once('.').ok_or(name))
        {
            None => routed_by.to_owned(),
            Some(Ok((first, last))) => format!("{first}.{routed_by}.{last}"),
            Some(Err(name)) => format!("{routed_by}.{name}"),
        }
    }

    fn version(&self, columns: &impl EventColumns) -> Result<Option<i32>, ConnectFault> {
        let Some(slot) = self.mapping.version else {
            return Ok(None);
        };
        let problem = ConnectFault::Value(slot, ValueProblem::NotAVersion);
        if columns.required(slot)?.kind != Kind::Int32 {
            return Err(problem);
        }
        match columns.raw(slot)? {
            Value::Null => Ok(None),
            Value::Integer(version) => i32::try_from(version).map(Some).map_err(|_| problem),
            _ => Err(problem),
        }
    }
}

impl Scratch {
    fn envelope_name(
        &mut self,
        payload_schema: &Schema,
        version: Option<i32>,
        name: impl FnOnce() -> String,
    ) -> Option<String> {
        let mut key = String::new();
        match version {
            Some(version) => key.display(version),
            None => payload_schema.write_json(None, DecimalFormat::Base64, &mut key),
        }
        if self.envelope_names.len() >= ENVELOPES_MAX {
            self.envelope_names.clear();
        }
        self.envelope_names
            .entry(key)
            .or_insert_with(|| Some(name()))
            .clone()
    }
}

/// As many as Debezium keeps.
const ENVELOPES_MAX: usize = 10_000;

fn expander(options: &EventRouterConfig, names: NameAdjustment) -> Option<Expander> {
    let expands = options.table_expand_json_payload && options.expansion == Expansion::Debezium;
    expands.then_some(Expander {
        nulls: options.table_json_payload_null_behavior,
        empty_arrays: options.table_json_payload_empty_array_behavior,
        names,
    })
}

pub(crate) fn too_complex(_: TooComplex) -> ConnectFault {
    ConnectFault::TooComplex
}
