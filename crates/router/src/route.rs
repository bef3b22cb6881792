//! Stage 5 of 9: from a row to a finished record, in the native form.
//!
//! Native means: what PostgreSQL says, byte for byte. Nothing is parsed and printed again, NULL stays null, and no
//! header is added that was not asked for.

use std::collections::HashMap;

use pgoutput::{Relation, Row};

use crate::bytea;
use crate::config::{RouterConfig, TimestampSource};
use crate::error::{RouteError, RouterConfigError, RowPosition, ValueProblem, cut};
use crate::outbox::{BYTEA_OID, Fault, Field, Fields, Mapping, Plan, Slot};
use crate::record::{Place, RecordBuffer, RecordBuilder};
use crate::row_summary::RowSummary;
use crate::table::TableName;
use crate::template::{TopicTemplate, check_topic};
use crate::timestamp;

/// Turns rows of the outbox tables into records.
///
/// It has to see every Relation message of the stream, before the rows that follow it. Its state is what those said,
/// so that a row's record depends on the row, its relation and the configuration, and on nothing that came before.
#[derive(Debug)]
pub struct Router {
    tables: Vec<TableName>,
    mapping: Mapping,
    topic: TopicTemplate,
    timestamp: TimestampSource,
    base_types: HashMap<u32, u32>,
    /// Of outbox tables only, ordered by relation id.
    plans: Vec<Plan>,
}

impl Router {
    /// A router that knows no relation yet.
    ///
    /// # Errors
    ///
    /// When the configuration can never work, whatever the tables look like. The operator has to change it.
    pub fn new(config: RouterConfig) -> Result<Self, RouterConfigError> {
        if config.tables.is_empty() {
            return Err(RouterConfigError::NoTable);
        }
        let topic = TopicTemplate::parse(&config.topic)?;
        Ok(Self {
            mapping: Mapping::new(&config, topic.needs_aggregate_type())?,
            tables: config.tables,
            topic,
            timestamp: config.timestamp,
            base_types: HashMap::new(),
            plans: Vec::new(),
        })
    }

    /// Says which types are domains, as the catalog has them before the stream: domain oid to base oid
    /// (`typbasetype`). Without it, and without [`handle_type`](Self::handle_type), the bytes of a domain over bytea
    /// would be sent as hex digits.
    pub fn set_base_types(&mut self, base_types: HashMap<u32, u32>) {
        self.base_types = base_types;
        for plan in &mut self.plans {
            plan.set_base_types(&self.base_types);
        }
    }

    /// Takes note of a Type message, which comes before the Relation message that uses the type. Of a domain the
    /// server names the type it is made of (`logicalrep_write_typ`), so that a domain made, or dropped, since the
    /// catalog was read is known too: the stream has the last word.
    pub fn handle_type(&mut self, oid: u32, namespace: &str, name: &str) {
        if (namespace, name) == ("pg_catalog", "bytea") {
            self.base_types.insert(oid, BYTEA_OID);
        } else {
            self.base_types.remove(&oid);
        }
    }

    /// Takes note of where a relation has its columns. One that is no outbox table is forgotten at once.
    pub fn handle_relation(&mut self, relation: &Relation) {
        self.plans.retain(|plan| plan.relation_id != relation.id);
        let Some(table) = self.tables.iter().find(|table| table.is(relation)) else {
            return;
        };
        let plan = Plan::new(&self.mapping, table, relation, &self.base_types);
        let at = self
            .plans
            .partition_point(|known| known.relation_id < relation.id);
        self.plans.insert(at, plan);
    }

    /// Forgets all relations, as the server does at the start of a stream.
    pub fn reset(&mut self) {
        self.plans.clear();
    }

    /// Appends the row's record to `out`. `false`: the row is of no outbox table, and makes none.
    ///
    /// # Errors
    ///
    /// When the row can make no record; `out` is as it was then, and the router can take the next row.
    pub fn route(&mut self, row: &Row<'_>, out: &mut RecordBuffer) -> Result<bool, RouteError> {
        let Some(plan) = self.plan(row.relation.id) else {
            return Ok(false);
        };
        let mut builder = out.begin();
        let written = plan
            .read(row.tuple)
            .and_then(|fields| self.write(row, plan, &fields, &mut builder));
        match written {
            Ok(()) => {
                builder.finish();
                Ok(true)
            }
            Err(fault) => Err(self.explain(fault, row, plan)),
        }
    }

    /// What the row says of itself; `None` if it is of no outbox table.
    #[must_use]
    pub fn summary<'a>(&'a self, row: &Row<'a>) -> Option<RowSummary<'a>> {
        let plan = self.plan(row.relation.id)?;
        let text = |slot| plan.text(row.tuple, slot);
        Some(RowSummary {
            table: &plan.table,
            id: text(self.mapping.id),
            aggregate_type: self.mapping.aggregate_type.and_then(text),
            aggregate_id: text(self.mapping.aggregate_id),
            aggregate_columns: [self.mapping.aggregate_type, Some(self.mapping.aggregate_id)]
                .map(|slot| plan.index(slot?)),
            payload_column: plan.index(self.mapping.payload),
            payload: text(self.mapping.payload),
            payload_is_bytea: plan.is_bytea(self.mapping.payload),
        })
    }

    /// Whether rows of this relation make records.
    #[must_use]
    pub fn is_outbox(&self, relation_id: u32) -> bool {
        self.plan(relation_id).is_some()
    }

    /// The columns an outbox table is read for, and whether it must have them.
    #[must_use]
    pub fn mapped_columns(&self) -> Vec<(&str, bool)> {
        self.mapping.columns().collect()
    }

    fn plan(&self, relation_id: u32) -> Option<&Plan> {
        let at = self
            .plans
            .binary_search_by_key(&relation_id, |plan| plan.relation_id);
        self.plans.get(at.ok()?)
    }

    fn write(
        &self,
        row: &Row<'_>,
        plan: &Plan,
        fields: &Fields<'_>,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<(), Fault> {
        self.write_topic(plan, fields, builder)?;
        put(builder, Place::Key, fields, self.mapping.aggregate_id)?;
        put(builder, Place::Payload, fields, self.mapping.payload)?;
        put(builder, Place::Header("id"), fields, self.mapping.id)?;
        for (slot, name) in &self.mapping.headers {
            put(builder, Place::Header(name), fields, *slot)?;
        }
        builder.set_partition(self.partition(fields)?);
        builder.set_timestamp_ms(self.timestamp_ms(row, fields)?);
        Ok(())
    }

    fn write_topic(
        &self,
        plan: &Plan,
        fields: &Fields<'_>,
        builder: &mut RecordBuilder<'_>,
    ) -> Result<(), Fault> {
        let aggregate_type = match self.mapping.aggregate_type {
            Some(slot) => fields.text(slot).ok_or(Fault::NullAggregateType(slot))?,
            None => b"",
        };
        // Not UTF-8 means not legal: the replacement characters fail the check, in a name that can be shown.
        let aggregate_type = String::from_utf8_lossy(aggregate_type);
        builder.set_topic(self.topic.fill(&plan.table, &aggregate_type));
        check_topic(builder.topic()).map_err(|why| Fault::IllegalTopic {
            name: builder.topic().to_owned(),
            why,
        })
    }

    fn partition(&self, fields: &Fields<'_>) -> Result<Option<i32>, Fault> {
        let Some(slot) = self.mapping.partition else {
            return Ok(None);
        };
        fields
            .text(slot)
            .map(parse_partition)
            .transpose()
            .map_err(|why| Fault::Value(slot, why))
    }

    fn timestamp_ms(&self, row: &Row<'_>, fields: &Fields<'_>) -> Result<Option<i64>, Fault> {
        if self.timestamp == TimestampSource::Now {
            return Ok(None);
        }
        if let Some(slot) = self.mapping.timestamp
            && let Some(text) = fields.text(slot)
        {
            return timestamp::unix_ms(text)
                .map(Some)
                .map_err(|why| Fault::Value(slot, why));
        }
        let commit_ms = row.transaction.commit_time.unix_micros().div_euclid(1000);
        // Only a server whose clock stands before 1970 says less, and Kafka takes no such time.
        Ok((commit_ms >= 0).then_some(commit_ms))
    }

    #[cold]
    fn explain(&self, fault: Fault, row: &Row<'_>, plan: &Plan) -> RouteError {
        let name = |slot| self.mapping.name(slot).to_owned();
        let position = Box::new(self.position(row, plan));
        match fault {
            Fault::Missing(slot) => RouteError::MissingColumn {
                row: position,
                column: name(slot),
                columns: column_list(row.relation),
            },
            Fault::NullAggregateType(slot) => RouteError::NullAggregateType {
                row: position,
                column: name(slot),
            },
            Fault::IllegalTopic { name: topic, why } => RouteError::IllegalTopic {
                row: position,
                column: self.mapping.aggregate_type.map(name),
                name: shown_topic(&topic),
                why,
            },
            Fault::Value(slot, why) => RouteError::BadValue {
                row: position,
                column: name(slot),
                why,
            },
            Fault::Unsupported(slot, why) => RouteError::UnsupportedTuple {
                row: position,
                column: name(slot),
                why,
            },
        }
    }

    fn position(&self, row: &Row<'_>, plan: &Plan) -> RowPosition {
        let event_id = plan.text(row.tuple, self.mapping.id).map(|text| {
            let text = String::from_utf8_lossy(text);
            cut(&text, EVENT_ID_BYTES_MAX).to_owned()
        });
        RowPosition {
            table: plan.table.clone(),
            lsn: row.lsn,
            transaction: row.transaction,
            insert_index: row.insert_index,
            event_id,
        }
    }
}

/// One column's value in its place. The native form is the column's text, whatever its type, except for a payload of
/// bytea, whose text stands for the bytes that are meant.
fn put(
    builder: &mut RecordBuilder<'_>,
    place: Place<'_>,
    fields: &Fields<'_>,
    slot: Slot,
) -> Result<(), Fault> {
    match fields.get(slot) {
        Field::Absent => {}
        Field::Null => builder.put(place, None),
        Field::Text(text) => builder.put(place, Some(text)),
        Field::Bytea(text) if matches!(place, Place::Payload) => builder
            .put_with(place, |out| bytea::decode(text, out))
            .map_err(|why| Fault::Value(slot, why))?,
        Field::Bytea(text) => builder.put(place, Some(text)),
    }
    Ok(())
}

/// The text of any whole number, whether the column is int2, int4, int8 or a domain over one.
fn parse_partition(text: &[u8]) -> Result<i32, ValueProblem> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let sign_bytes = text.len() - digits.len();
    if let Some(at) = digits.iter().position(|digit| !digit.is_ascii_digit()) {
        return Err(ValueProblem::NotAPartition {
            offset: sign_bytes + at,
        });
    }
    if digits.is_empty() {
        return Err(ValueProblem::NotAPartition { offset: sign_bytes });
    }
    if negative {
        return Err(ValueProblem::NegativePartition);
    }
    digits
        .iter()
        .try_fold(0_i32, |number, digit| {
            number.checked_mul(10)?.checked_add(i32::from(digit - b'0'))
        })
        .ok_or(ValueProblem::PartitionTooLarge)
}

/// The names a message can hold without becoming unreadable.
pub(crate) fn column_list(relation: &Relation) -> String {
    let names: Vec<_> = relation
        .columns
        .iter()
        .take(COLUMNS_SHOWN_MAX)
        .map(|column| format!("{:?}", column.name))
        .collect();
    let more = relation.columns.len().saturating_sub(COLUMNS_SHOWN_MAX);
    match more {
        0 => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}

pub(crate) fn shown_topic(name: &str) -> String {
    let shown = cut(name, TOPIC_SHOWN_BYTES_MAX);
    let escaped = shown.escape_debug();
    if shown.len() < name.len() {
        return format!("{escaped}... ({} bytes)", name.len());
    }
    escaped.to_string()
}

pub(crate) const EVENT_ID_BYTES_MAX: usize = 128;
const TOPIC_SHOWN_BYTES_MAX: usize = 128;
const COLUMNS_SHOWN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use pgoutput::Value;
    use proptest::prelude::*;

    use super::*;
    use crate::config::HeaderConfig;
    use crate::error::TopicProblem;
    use crate::fixture::{insert, relation, row};

    const BYTEA: u32 = BYTEA_OID;
    const TEXT: u32 = 25;

    fn config() -> RouterConfig {
        RouterConfig {
            tables: vec!["outbox".parse().unwrap()],
            ..RouterConfig::default()
        }
    }

    fn outbox(payload_type: u32) -> Relation {
        let columns = [
            ("id", TEXT),
            ("aggregatetype", TEXT),
            ("aggregateid", TEXT),
            ("payload", payload_type),
        ];
        relation(7, "public", "outbox", columns)
    }

    fn router(config: RouterConfig, relation: &Relation) -> Router {
        let mut router = Router::new(config).unwrap();
        router.handle_relation(relation);
        router
    }

    fn route(
        router: &mut Router,
        relation: &Relation,
        values: &[Value<'_>],
    ) -> Result<RecordBuffer, RouteError> {
        let mut out = RecordBuffer::new();
        let message = insert(relation.id, values);
        assert!(router.route(&row(relation, &message), &mut out)?);
        Ok(out)
    }

    fn order(payload: &'static [u8]) -> [Value<'static>; 4] {
        [b"1", b"order".as_slice(), b"o-1", payload].map(Value::Text)
    }

    #[test]
    fn rows_of_other_tables_make_no_record() {
        for (schema, name) in [
            ("audit", "outbox"),
            ("public", "Outbox"),
            ("public", "outbox_1"),
        ] {
            let other = relation(8, schema, name, [("id", TEXT)]);
            let mut router = router(config(), &other);
            let mut out = RecordBuffer::new();
            let message = insert(8, &[Value::Null]);
            assert_eq!(router.route(&row(&other, &message), &mut out), Ok(false));
            assert!(out.is_empty() && !router.is_outbox(8));
        }
    }

    #[test]
    fn a_relation_that_is_renamed_away_is_no_outbox_any_more() {
        let mut router = router(config(), &outbox(TEXT));
        assert!(router.is_outbox(7));
        router.handle_relation(&relation(7, "public", "outbox_old", [("id", TEXT)]));
        assert!(!router.is_outbox(7));
    }

    #[test]
    fn relations_are_told_apart_by_id() {
        let mut router = router(config(), &outbox(TEXT));
        let other_order = [
            ("payload", TEXT),
            ("aggregateid", TEXT),
            ("id", TEXT),
            ("aggregatetype", TEXT),
        ];
        let other = relation(3, "public", "outbox", other_order);
        router.handle_relation(&other);
        let first = route(&mut router, &outbox(TEXT), &order(b"{}")).unwrap();
        let values = [b"{}".as_slice(), b"o-1", b"1", b"order"].map(Value::Text);
        let second = route(&mut router, &other, &values).unwrap();
        for out in [first, second] {
            let record = out.get(0);
            assert_eq!(record.topic, "outbox.event.order");
            assert_eq!(record.key, Some(&b"o-1"[..]));
            assert_eq!(record.payload, Some(&b"{}"[..]));
            assert_eq!(record.headers().next(), Some(("id", Some(&b"1"[..]))));
        }
    }

    #[test]
    fn after_a_reset_no_relation_is_known() {
        let mut router = router(config(), &outbox(TEXT));
        router.reset();
        assert!(!router.is_outbox(7));
    }

    #[test]
    fn a_domain_over_bytea_is_read_once_it_is_known() {
        let domain = 16400;
        let relation = outbox(domain);
        let mut router = router(config(), &relation);
        router.set_base_types(HashMap::from([
            (domain, 16399),
            (16399, BYTEA),
            (16500, 16500),
        ]));
        let out = route(&mut router, &relation, &order(br"\x00ff")).unwrap();
        assert_eq!(out.get(0).payload, Some(&b"\x00\xFF"[..]));
    }

    #[test]
    fn the_stream_has_the_last_word_on_a_domain() {
        let relation = outbox(16400);
        let mut router = Router::new(config()).unwrap();
        router.handle_type(16400, "pg_catalog", "bytea");
        router.handle_relation(&relation);
        let out = route(&mut router, &relation, &order(br"\x41")).unwrap();
        assert_eq!(out.get(0).payload, Some(&b"A"[..]));
        for (namespace, name) in [("pg_catalog", "text"), ("public", "bytea")] {
            router.set_base_types(HashMap::from([(16400, BYTEA)]));
            router.handle_type(16400, namespace, name);
            router.handle_relation(&relation);
            let out = route(&mut router, &relation, &order(br"\x41")).unwrap();
            assert_eq!(out.get(0).payload, Some(&br"\x41"[..]));
        }
    }

    #[test]
    fn a_circle_of_types_ends() {
        let mut router = router(config(), &outbox(16400));
        router.set_base_types(HashMap::from([(16400, 16401), (16401, 16400)]));
        assert_eq!(
            route(&mut router, &outbox(16400), &order(b"{}"))
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn more_columns_than_are_kept_at_hand_are_still_read() {
        let names: Vec<_> = (0..40).map(|n| format!("h{n}")).collect();
        let config = RouterConfig {
            headers: names.iter().rev().map(HeaderConfig::new).collect(),
            ..config()
        };
        let mut relation = outbox(TEXT);
        let more = self::relation(7, "", "", names.iter().map(|name| (&**name, TEXT)));
        relation.columns.extend(more.columns);
        let mut values = order(b"{}").to_vec();
        values.extend(names.iter().map(|name| Value::Text(name.as_bytes())));

        let out = route(&mut router(config, &relation), &relation, &values).unwrap();
        let headers: Vec<_> = out.get(0).headers().skip(1).collect();
        let expected: Vec<_> = names
            .iter()
            .rev()
            .map(|n| (&**n, Some(n.as_bytes())))
            .collect();
        assert_eq!(headers, expected);
    }

    #[test]
    fn mapped_columns_are_each_named_once() {
        let config = RouterConfig {
            headers: vec![
                HeaderConfig::new("type"),
                HeaderConfig {
                    optional: true,
                    ..HeaderConfig::new("tp")
                },
                HeaderConfig {
                    optional: true,
                    ..HeaderConfig::new("id")
                },
            ],
            timestamp: TimestampSource::Column("created_at".to_owned()),
            partition: Some("shard".to_owned()),
            topic: "constant".to_owned(),
            ..config()
        };
        let router = Router::new(config).unwrap();
        let expected = [
            ("id", true),
            ("aggregateid", true),
            ("payload", true),
            ("created_at", true),
            ("shard", true),
            ("type", true),
            ("tp", false),
        ];
        assert_eq!(router.mapped_columns(), expected);
    }

    #[test]
    fn a_configuration_that_can_never_work_is_refused() {
        let refused = |config| Router::new(config).unwrap_err().to_string();
        assert!(refused(RouterConfig::default()).contains("no outbox table"));
        assert!(
            refused(RouterConfig {
                id: String::new(),
                ..config()
            })
            .starts_with("id:")
        );
        assert!(
            refused(RouterConfig {
                topic: "{x}".to_owned(),
                ..config()
            })
            .contains("{x}")
        );
        let nameless = HeaderConfig {
            name: String::new(),
            ..HeaderConfig::new("type")
        };
        assert!(
            refused(RouterConfig {
                headers: vec![nameless],
                ..config()
            })
            .starts_with("headers:")
        );
    }

    #[test]
    fn an_error_names_the_event_and_never_shows_its_contents() {
        let relation = outbox(BYTEA);
        let mut router = router(config(), &relation);
        let error = route(&mut router, &relation, &order(br"\xsecret")).unwrap_err();
        assert_eq!(error.row().event_id.as_deref(), Some("1"));
        assert_eq!(error.row().insert_index, 3);
        assert_eq!(
            error.to_string(),
            "event 1 of public.outbox at 0/2A00: \"payload\" is no bytea text, at byte 2"
        );
        assert!(!format!("{error:?}").contains("secret"));
    }

    #[test]
    fn a_long_event_id_is_cut() {
        let relation = outbox(TEXT);
        let mut router = router(config(), &relation);
        let id = "é".repeat(100);
        let values = [
            Value::Text(id.as_bytes()),
            Value::Null,
            Value::Null,
            Value::Null,
        ];
        let error = route(&mut router, &relation, &values).unwrap_err();
        assert_eq!(error.row().event_id, Some("é".repeat(64)));
    }

    #[test]
    fn a_long_illegal_topic_is_shown_cut() {
        let relation = outbox(TEXT);
        let mut router = router(config(), &relation);
        let name = "a".repeat(250);
        let values = [
            Value::Null,
            Value::Text(name.as_bytes()),
            Value::Null,
            Value::Null,
        ];
        match route(&mut router, &relation, &values).unwrap_err() {
            RouteError::IllegalTopic { name, why, .. } => {
                assert_eq!(why, TopicProblem::TooLong { size_bytes: 263 });
                assert!(
                    name.ends_with("aaa... (263 bytes)") && name.len() < 160,
                    "{name}"
                );
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_topic_that_is_not_utf8_is_illegal() {
        let relation = outbox(TEXT);
        let mut router = router(config(), &relation);
        let values = [Value::Null, Value::Text(b"a\xFF"), Value::Null, Value::Null];
        let error = route(&mut router, &relation, &values).unwrap_err();
        assert!(matches!(error, RouteError::IllegalTopic { .. }), "{error}");
    }

    #[test]
    fn partitions_are_whole_numbers_that_kafka_can_hold() {
        use ValueProblem::{NegativePartition, NotAPartition, PartitionTooLarge};
        for (text, expected) in [
            ("0", Ok(0)),
            ("42", Ok(42)),
            ("2147483647", Ok(i32::MAX)),
            ("2147483648", Err(PartitionTooLarge)),
            ("9223372036854775807", Err(PartitionTooLarge)),
            ("99999999999999999999999", Err(PartitionTooLarge)),
            ("-1", Err(NegativePartition)),
            ("-9223372036854775808", Err(NegativePartition)),
            ("", Err(NotAPartition { offset: 0 })),
            ("-", Err(NotAPartition { offset: 1 })),
            ("1.0", Err(NotAPartition { offset: 1 })),
            ("-x", Err(NotAPartition { offset: 1 })),
            ("+1", Err(NotAPartition { offset: 0 })),
        ] {
            assert_eq!(parse_partition(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        /// Bytea fails half-way through the record, after topic and key are written.
        #[test]
        fn a_row_that_fails_leaves_the_other_records_alone(
            payloads in prop::collection::vec("\\\\x([0-9a-f]{2}){0,9}g?", 0..20)
        ) {
            let relation = outbox(BYTEA);
            let mut router = router(config(), &relation);
            let mut out = RecordBuffer::new();
            let mut expected = Vec::new();
            for payload in &payloads {
                let [id, aggregate_type, aggregate_id, _] = order(b"");
                let values = [id, aggregate_type, aggregate_id, Value::Text(payload.as_bytes())];
                let message = insert(7, &values);
                let before = out.byte_len();
                match router.route(&row(&relation, &message), &mut out) {
                    Ok(made) => { prop_assert!(made); expected.push((payload.len() - 2) / 2); }
                    Err(_) => prop_assert_eq!(out.byte_len(), before),
                }
            }
            prop_assert_eq!(payloads.iter().filter(|p| !p.ends_with('g')).count(), out.len());
            let sizes: Vec<_> = out.iter().map(|record| record.payload.map_or(0, <[u8]>::len)).collect();
            prop_assert_eq!(sizes, expected);
            prop_assert!(out.iter().all(|record| record.topic == "outbox.event.order"));
        }
    }
}
