//! Stage 5 of 9, an event's columns as the Event Router asks for them: of a row, or of a decoded logical message.

use std::cell::Cell;

use pgoutput::{Tuple, Value as Wire};

use super::column_value::{loses_elements, read_value};
use super::connect_plan::ConnectPlan;
use super::connect_schema::Schema;
use super::connect_value::Value;
use super::event_mapping::ColumnSlot;
use crate::error::{TopicProblem, ValueProblem};

/// What is wrong with an event, before it is said which one it is.
#[derive(Debug)]
pub(crate) enum ConnectFault {
    Missing(ColumnSlot),
    NullRoute(ColumnSlot),
    IllegalTopic { name: String, why: TopicProblem },
    Value(ColumnSlot, ValueProblem),
    Unsupported(ColumnSlot, &'static str),
    Unconvertible(&'static str, super::converter::Refusal),
    TooComplex,
    Message(&'static str),
}

/// Columns by slot.
pub(crate) trait EventColumns {
    /// The column's schema; `None`: there is no such column.
    fn schema(&self, slot: ColumnSlot) -> Option<&Schema>;

    /// `Struct.getWithoutDefault`: the value as it is. A column that is not there is null.
    fn raw(&self, slot: ColumnSlot) -> Result<Value<'_>, ConnectFault>;

    /// `Struct.get`: the column's default in place of a null.
    fn get(&self, slot: ColumnSlot) -> Result<Value<'_>, ConnectFault> {
        let value = self.raw(slot)?;
        if !value.is_null() {
            return Ok(value);
        }
        let default = self.schema(slot).and_then(|schema| schema.default.as_ref());
        Ok(default.map_or(Value::Null, Value::reborrow))
    }

    /// The schema of a column that has to be there.
    fn required(&self, slot: ColumnSlot) -> Result<&Schema, ConnectFault> {
        self.schema(slot).ok_or(ConnectFault::Missing(slot))
    }
}

/// A row's columns, found in one pass over its tuple.
#[derive(Debug)]
pub(crate) struct RowColumns<'a> {
    plan: &'a ConnectPlan,
    tuple: Tuple<'a>,
    /// The first slots, so that no row costs an allocation; later ones are looked up in the tuple again.
    at_hand: [Option<&'a [u8]>; COLUMNS_AT_HAND],
    /// Whether NULL stands for what cannot be converted.
    has_nulls: bool,
    /// A column whose value, or a part of it, was lost to a NULL.
    nulled: Cell<Option<ColumnSlot>>,
}

/// Seven columns of the Event Router's and nine more.
const COLUMNS_AT_HAND: usize = 16;

impl<'a> RowColumns<'a> {
    pub(crate) fn read(
        plan: &'a ConnectPlan,
        tuple: Tuple<'a>,
        has_nulls: bool,
    ) -> Result<Self, ConnectFault> {
        let mut row = Self {
            plan,
            tuple,
            at_hand: [None; COLUMNS_AT_HAND],
            has_nulls,
            nulled: Cell::new(None),
        };
        let mut columns = tuple.columns();
        for &(passed_over, slot) in &plan.steps {
            let text = match columns.nth(passed_over) {
                Some(Wire::Text(text)) => Some(text),
                Some(Wire::Null) => None,
                Some(Wire::UnchangedToast) => {
                    return Err(ConnectFault::Unsupported(
                        slot,
                        crate::outbox::UNCHANGED_TOAST,
                    ));
                }
                Some(Wire::Binary(_)) => {
                    return Err(ConnectFault::Unsupported(slot, crate::outbox::BINARY));
                }
                None => return Err(ConnectFault::Unsupported(slot, crate::outbox::NOT_AT_ALL)),
            };
            if let Some(place) = row.at_hand.get_mut(slot.0) {
                *place = text;
            }
        }
        Ok(row)
    }

    /// A column that was read so far and whose value could not be converted as a whole.
    pub(crate) fn nulled(&self) -> Option<ColumnSlot> {
        self.nulled.get()
    }

    /// The text as it came.
    pub(crate) fn text(&self, slot: ColumnSlot) -> Option<&'a [u8]> {
        match self.at_hand.get(slot.0) {
            Some(text) => *text,
            None => self.plan.text(self.tuple, slot),
        }
    }
}

impl EventColumns for RowColumns<'_> {
    fn schema(&self, slot: ColumnSlot) -> Option<&Schema> {
        self.plan
            .column(slot)
            .map(|column| &column.column_type.schema)
    }

    fn raw(&self, slot: ColumnSlot) -> Result<Value<'_>, ConnectFault> {
        let (Some(column), Some(text)) = (self.plan.column(slot), self.text(slot)) else {
            return Ok(Value::Null);
        };
        let conversion = &column.column_type.conversion;
        match read_value(conversion, text) {
            Ok(value) => {
                if loses_elements(conversion, text) {
                    self.nulled.set(Some(slot));
                }
                Ok(value)
            }
            Err(why) if self.has_nulls && why.is_unconvertible() => {
                self.nulled.set(Some(slot));
                Ok(Value::Null)
            }
            Err(why) => Err(ConnectFault::Value(slot, why)),
        }
    }
}

/// The members of a logical message's JSON.
#[derive(Debug)]
pub(crate) struct MessageColumns<'a> {
    pub(crate) names: &'a [String],
    pub(crate) schema: Schema,
    pub(crate) values: Vec<Value<'a>>,
}

impl MessageColumns<'_> {
    fn index(&self, slot: ColumnSlot) -> Option<usize> {
        let name = self.names.get(slot.0)?;
        self.schema
            .fields()
            .iter()
            .position(|field| field.name == *name)
    }
}

impl EventColumns for MessageColumns<'_> {
    fn schema(&self, slot: ColumnSlot) -> Option<&Schema> {
        let field = self.schema.fields().get(self.index(slot)?)?;
        Some(&field.schema)
    }

    fn raw(&self, slot: ColumnSlot) -> Result<Value<'_>, ConnectFault> {
        let value = self.index(slot).and_then(|index| self.values.get(index));
        Ok(value.map_or(Value::Null, Value::reborrow))
    }
}
