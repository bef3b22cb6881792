//! Stage 5 of 9, reading: the mapped columns of an outbox row, by name. The only place that reads columns.
//!
//! A [`Mapping`] says which columns are wanted, once per configuration. A [`Plan`] says where one relation has them,
//! once per Relation message. [`Fields`] are one row's values, found in one pass over its tuple.

use std::collections::HashMap;

use pgoutput::{Relation, Tuple, Value};

use crate::config::{RouterConfig, TimestampSource};
use crate::error::{RouterConfigError, TopicProblem, ValueProblem};
use crate::table::TableName;

/// The columns that the configuration maps, each with a [`Slot`] to ask for it by.
#[derive(Debug)]
pub(crate) struct Mapping {
    columns: Vec<MappedColumn>,
    pub(crate) id: Slot,
    /// `None`: the topic does not depend on it, so that the table needs no such column.
    pub(crate) aggregate_type: Option<Slot>,
    pub(crate) aggregate_id: Slot,
    pub(crate) payload: Slot,
    pub(crate) headers: Vec<(Slot, String)>,
    pub(crate) timestamp: Option<Slot>,
    pub(crate) partition: Option<Slot>,
}

#[derive(Debug)]
struct MappedColumn {
    name: String,
    required: bool,
}

/// The number of a mapped column. Two uses of one column share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

impl Mapping {
    pub(crate) fn new(
        config: &RouterConfig,
        needs_aggregate_type: bool,
    ) -> Result<Self, RouterConfigError> {
        // The usual columns come first: Fields keeps the first few slots at hand.
        let mut columns = Vec::new();
        let mut slot = |key, column: &str, required| slot_of(&mut columns, key, column, required);
        let id = slot("id", &config.id, true)?;
        let aggregate_type = needs_aggregate_type
            .then(|| slot("aggregate_type", &config.aggregate_type, true))
            .transpose()?;
        let aggregate_id = slot("aggregate_id", &config.aggregate_id, true)?;
        let payload = slot("payload", &config.payload, true)?;
        let timestamp = match &config.timestamp {
            TimestampSource::Column(column) => Some(slot("timestamp", column, true)?),
            TimestampSource::Commit | TimestampSource::Now => None,
        };
        let partition = match &config.partition {
            Some(column) => Some(slot("partition", column, true)?),
            None => None,
        };
        let mut headers = Vec::new();
        for header in &config.headers {
            let name = checked_name("headers", &header.name)?;
            headers.push((
                slot("headers", &header.column, !header.optional)?,
                name.to_owned(),
            ));
        }
        Ok(Self {
            columns,
            id,
            aggregate_type,
            aggregate_id,
            payload,
            headers,
            timestamp,
            partition,
        })
    }

    /// Name of each mapped column, and whether a table may not be without it.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, bool)> {
        self.columns
            .iter()
            .map(|column| (column.name.as_str(), column.required))
    }

    pub(crate) fn name(&self, slot: Slot) -> &str {
        self.columns
            .get(slot.0)
            .map_or("", |column| column.name.as_str())
    }
}

fn slot_of(
    columns: &mut Vec<MappedColumn>,
    key: &'static str,
    name: &str,
    required: bool,
) -> Result<Slot, RouterConfigError> {
    let name = checked_name(key, name)?;
    if let Some(at) = columns.iter().position(|column| column.name == name)
        && let Some(column) = columns.get_mut(at)
    {
        column.required |= required;
        return Ok(Slot(at));
    }
    columns.push(MappedColumn {
        name: name.to_owned(),
        required,
    });
    Ok(Slot(columns.len() - 1))
}

/// A NUL can stand in no column's name, and would end a header's name early in the broker client.
fn checked_name<'a>(key: &'static str, name: &'a str) -> Result<&'a str, RouterConfigError> {
    if name.is_empty() || name.contains('\0') {
        return Err(RouterConfigError::BadName {
            key,
            name: name.to_owned(),
        });
    }
    Ok(name)
}

/// Where one relation has the mapped columns.
///
/// Holds for the rows that follow its Relation message, until the next one with the same id.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) relation_id: u32,
    pub(crate) table: TableName,
    /// By slot; `None` where the relation has no such column.
    located: Vec<Option<Located>>,
    /// Every located column in the tuple's order: how many columns to pass over, and the slot of the next.
    steps: Vec<(usize, Slot)>,
    /// A required column that the relation does not have. Told only when a row comes: a table may be changed and
    /// changed back without anybody writing to it.
    missing: Option<Slot>,
}

#[derive(Debug)]
struct Located {
    index: usize,
    type_oid: u32,
    is_bytea: bool,
}

impl Plan {
    pub(crate) fn new(
        mapping: &Mapping,
        table: &TableName,
        relation: &Relation,
        base_types: &HashMap<u32, u32>,
    ) -> Self {
        let locate = |column: &MappedColumn| {
            let index = relation.column(&column.name)?;
            let type_oid = relation.columns.get(index)?.type_oid;
            Some(Located {
                index,
                type_oid,
                is_bytea: is_bytea(type_oid, base_types),
            })
        };
        let located: Vec<_> = mapping.columns.iter().map(locate).collect();
        let missing = mapping
            .columns
            .iter()
            .zip(&located)
            .position(|(column, located)| column.required && located.is_none());
        Self {
            relation_id: relation.id,
            table: table.clone(),
            steps: steps(&located),
            located,
            missing: missing.map(Slot),
        }
    }

    /// Decides anew which columns hold bytea.
    pub(crate) fn set_base_types(&mut self, base_types: &HashMap<u32, u32>) {
        for located in self.located.iter_mut().flatten() {
            located.is_bytea = is_bytea(located.type_oid, base_types);
        }
    }

    /// Finds the mapped columns in `tuple`, which must be of this plan's relation.
    ///
    /// # Errors
    ///
    /// When a required column is missing, or a mapped one did not come as text or NULL.
    pub(crate) fn read<'a>(&'a self, tuple: Tuple<'a>) -> Result<Fields<'a>, Fault> {
        if let Some(slot) = self.missing {
            return Err(Fault::Missing(slot));
        }
        let mut fields = Fields {
            plan: self,
            tuple,
            at_hand: [None; FIELDS_AT_HAND],
        };
        let mut columns = tuple.columns();
        for &(passed_over, slot) in &self.steps {
            let text = match columns.nth(passed_over) {
                Some(Value::Text(text)) => Some(text),
                Some(Value::Null) => None,
                Some(Value::UnchangedToast) => {
                    return Err(Fault::Unsupported(slot, UNCHANGED_TOAST));
                }
                Some(Value::Binary(_)) => return Err(Fault::Unsupported(slot, BINARY)),
                None => return Err(Fault::Unsupported(slot, NOT_AT_ALL)),
            };
            if let Some(field) = fields.at_hand.get_mut(slot.0) {
                *field = text;
            }
        }
        Ok(fields)
    }

    /// Where the tuple has a column.
    pub(crate) fn index(&self, slot: Slot) -> Option<usize> {
        Some(self.located.get(slot.0)?.as_ref()?.index)
    }

    /// Whether a column's text stands for other bytes.
    pub(crate) fn is_bytea(&self, slot: Slot) -> bool {
        let located = self.located.get(slot.0);
        located.is_some_and(|located| located.as_ref().is_some_and(|located| located.is_bytea))
    }

    /// A column's text without any judgement, for naming a row that could not be read.
    pub(crate) fn text<'a>(&self, tuple: Tuple<'a>, slot: Slot) -> Option<&'a [u8]> {
        let located = self.located.get(slot.0)?.as_ref()?;
        match tuple.columns().nth(located.index)? {
            Value::Text(text) => Some(text),
            Value::Null | Value::UnchangedToast | Value::Binary(_) => None,
        }
    }
}

fn steps(located: &[Option<Located>]) -> Vec<(usize, Slot)> {
    let mut in_order: Vec<_> = located
        .iter()
        .enumerate()
        .filter_map(|(slot, located)| Some((located.as_ref()?.index, Slot(slot))))
        .collect();
    in_order.sort_unstable_by_key(|(index, _)| *index);
    let mut next = 0;
    for (index, _) in &mut in_order {
        let passed_over = *index - next;
        next = *index + 1;
        *index = passed_over;
    }
    in_order
}

/// Follows domains to the type they are made of.
fn is_bytea(type_oid: u32, base_types: &HashMap<u32, u32>) -> bool {
    let mut oid = type_oid;
    for _ in 0..DOMAIN_DEPTH_MAX {
        match base_types.get(&oid) {
            Some(base) if *base != oid => oid = *base,
            _ => break,
        }
    }
    oid == BYTEA_OID
}

/// Type oids of `pg_type.dat` never change.
pub(crate) const BYTEA_OID: u32 = 17;

/// Ends the search should the map ever hold a circle, which no catalog does.
const DOMAIN_DEPTH_MAX: usize = 64;

pub(crate) const UNCHANGED_TOAST: &str = "as an unchanged out-of-line value, which only an UPDATE has: its contents are not in the stream";
pub(crate) const BINARY: &str =
    "in binary form, which is read from no stream: start it without the option binary";
pub(crate) const NOT_AT_ALL: &str =
    "not at all: the row has fewer values than its relation has columns";

/// One row's mapped columns, as slices of its tuple.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    plan: &'a Plan,
    tuple: Tuple<'a>,
    /// The first slots, so that no row costs an allocation. Later ones, which only a very long list of headers
    /// makes, are looked up in the tuple again.
    at_hand: [Option<&'a [u8]>; FIELDS_AT_HAND],
}

/// Six columns of Debezium's and ten headers.
const FIELDS_AT_HAND: usize = 16;

/// One mapped column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// The relation has no such column.
    Absent,
    /// SQL NULL.
    Null,
    /// The text form.
    Text(&'a [u8]),
    /// The text form of bytea, which stands for other bytes.
    Bytea(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, slot: Slot) -> Field<'a> {
        let Some(Some(located)) = self.plan.located.get(slot.0) else {
            return Field::Absent;
        };
        match self.text(slot) {
            None => Field::Null,
            Some(text) if located.is_bytea => Field::Bytea(text),
            Some(text) => Field::Text(text),
        }
    }

    /// The text form whatever the type; `None` for NULL.
    pub(crate) fn text(&self, slot: Slot) -> Option<&'a [u8]> {
        match self.at_hand.get(slot.0) {
            Some(text) => *text,
            None => self.plan.text(self.tuple, slot),
        }
    }
}

/// What is wrong with a row, before it is said which row it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Missing(Slot),
    NullAggregateType(Slot),
    IllegalTopic { name: String, why: TopicProblem },
    Value(Slot, ValueProblem),
    Unsupported(Slot, &'static str),
}
