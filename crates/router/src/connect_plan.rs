//! Stage 5 of 9, one relation under a Connect configuration: where its columns are, what types they have, and what
//! became of its records before the Event Router.

use std::collections::HashMap;

use pgoutput::{Relation, Tuple, Value as Wire};

use super::TypeModes;
use super::builtin_type::builtin_name;
use super::catalog::{Catalog, CatalogColumn, CatalogTypeKind};
use super::column_default::column_default;
use super::column_type::{ColumnType, column_type};
use super::event_mapping::{ColumnSlot, EventMapping};
use super::transforms::Entry;
use crate::table::TableName;

/// Holds for the rows that follow its Relation message, until the next one with the same id.
#[derive(Debug)]
pub(crate) struct ConnectPlan {
    pub(crate) relation: Relation,
    pub(crate) table: TableName,
    pub(crate) entry: Entry,
    /// By slot; `None` where the relation has no such column, or the connector leaves it out.
    columns: Vec<Option<PlannedColumn>>,
    /// Every planned column in the tuple's order: how many columns to pass over, and the slot of the next.
    pub(crate) steps: Vec<(usize, ColumnSlot)>,
    /// A column that has to be there and is not. Told only when a row comes.
    pub(crate) missing: Option<ColumnSlot>,
}

#[derive(Debug)]
pub(crate) struct PlannedColumn {
    index: usize,
    pub(crate) column_type: ColumnType,
}

impl ConnectPlan {
    pub(crate) fn new(
        relation: Relation,
        entry: Entry,
        mapping: &EventMapping,
        catalog: &Catalog,
        modes: &TypeModes,
    ) -> Self {
        let known = catalog.columns(&relation.namespace, &relation.name);
        let plan = |name: &String| {
            let index = relation.column(name)?;
            planned(&relation, index, known, catalog, modes)
        };
        let columns: Vec<_> = mapping.names.iter().map(plan).collect();
        let missing = (0..columns.len()).map(ColumnSlot).find(|slot| {
            mapping.is_required(*slot) && columns.get(slot.0).is_some_and(Option::is_none)
        });
        Self {
            table: TableName {
                schema: relation.namespace.clone(),
                name: relation.name.clone(),
            },
            steps: steps(&columns),
            relation,
            entry,
            columns,
            missing,
        }
    }

    pub(crate) fn column(&self, slot: ColumnSlot) -> Option<&PlannedColumn> {
        self.columns.get(slot.0)?.as_ref()
    }

    /// Where the tuple has a column.
    pub(crate) fn index(&self, slot: ColumnSlot) -> Option<usize> {
        Some(self.column(slot)?.index)
    }

    /// A column's text without any judgement.
    pub(crate) fn text<'a>(&self, tuple: Tuple<'a>, slot: ColumnSlot) -> Option<&'a [u8]> {
        match tuple.columns().nth(self.column(slot)?.index)? {
            Wire::Text(text) => Some(text),
            Wire::Null | Wire::UnchangedToast | Wire::Binary(_) => None,
        }
    }
}

fn planned(
    relation: &Relation,
    index: usize,
    known: Option<&HashMap<String, CatalogColumn>>,
    catalog: &Catalog,
    modes: &TypeModes,
) -> Option<PlannedColumn> {
    let column = relation.columns.get(index)?;
    let mut of = column_type(column.type_oid, column.type_modifier, catalog, modes)?;
    let about = known.and_then(|known| known.get(&column.name));
    of.schema.optional |= !about.is_some_and(|about| about.not_null);
    of.schema.default = about
        .and_then(|about| about.default_expression.as_deref())
        .and_then(|expression| {
            column_default(
                default_type_name(column.type_oid, catalog)?,
                &of,
                expression,
            )
        });
    Some(PlannedColumn {
        index,
        column_type: of,
    })
}

/// The name by which the connector looks up how to read a default; a domain's is unknown to it.
fn default_type_name(oid: u32, catalog: &Catalog) -> Option<&str> {
    if let Some(name) = builtin_name(oid) {
        return Some(name);
    }
    let known = catalog.type_by_oid(oid)?;
    match known.kind {
        CatalogTypeKind::Domain { .. } => None,
        _ => Some(&known.name),
    }
}

fn steps(columns: &[Option<PlannedColumn>]) -> Vec<(usize, ColumnSlot)> {
    let mut in_order: Vec<_> = columns
        .iter()
        .enumerate()
        .filter_map(|(slot, column)| Some((column.as_ref()?.index, ColumnSlot(slot))))
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
