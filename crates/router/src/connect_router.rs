//! Stage 5 of 9, the Connect router: rows and logical messages become the records that Debezium would make.

use pgoutput::{Relation, Row};

use super::catalog::{Catalog, CatalogType, CatalogTypeKind};
use super::connect_plan::ConnectPlan;
use super::converter::Refusal;
use super::event_columns::{ConnectFault, RowColumns};
use super::event_mapping::{ColumnSlot, EventMapping};
use super::event_router::{Event, EventRouter, Scratch, Tolerated, too_complex};
use super::header_plan::HeaderList;
use super::logical_message::{LogicalMessage, Messages, decoded, message_position};
use super::table_filter::CompiledFilter;
use super::topic_creation::TopicGroups;
use super::transforms::{Entry, Origin, Transforms};
use super::{ConnectConfig, FailureMode, TypeModes};
use crate::error::{ConnectConfigError, RouteError, RowPosition, cut};
use crate::record::RecordBuffer;
use crate::route::{EVENT_ID_BYTES_MAX, column_list, shown_topic};
use crate::row_summary::RowSummary;

/// Turns rows of captured tables, and logical messages, into the records that a Debezium connector would make of them.
///
/// It has to see every Relation and Type message of the stream, before the rows that follow them, and is given the
/// catalog besides. Its state is what those said, room to write in, and the names of envelopes' schemas, which the
/// first event of each shape decides, as in Debezium.
#[derive(Debug)]
pub struct ConnectRouter {
    tables: CompiledFilter,
    topic_prefix: String,
    types: TypeModes,
    router: EventRouter,
    transforms: Transforms,
    messages: Option<Messages>,
    catalog: Catalog,
    /// Of captured tables only, ordered by relation id.
    plans: Vec<ConnectPlan>,
    scratch: Scratch,
    /// The column of the newest row in [`Tolerated::rows_nulled`].
    nulled: Option<ColumnSlot>,
}

/// What became of a row or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// Its record is in the buffer.
    Record,
    /// It makes none.
    Dropped(DropReason),
    /// It is of no captured table, or of a prefix that is not taken.
    NotOutbox,
}

/// Why a row or a message makes no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// A filter dropped it.
    Filtered,
    /// It does not reach the Event Router. Debezium publishes the whole change then, to the table's own topic.
    NotRouted,
}

impl ConnectRouter {
    /// A router that knows no relation and no catalog yet. `run_id` is what the header `__debezium.context.runId` says.
    ///
    /// # Errors
    ///
    /// When the configuration can never work, whatever the tables look like. The operator has to change it.
    pub fn new(config: ConnectConfig, run_id: &str) -> Result<Self, ConnectConfigError> {
        // Compiled again by whoever creates topics; here so that all patterns are checked in one place.
        TopicGroups::new(&config.topic_creation)?;
        let mapping = EventMapping::new(&config.event_router)?;
        let mut headers = HeaderList::default();
        let context = headers.add_context(
            config.context_headers,
            config.debezium_version,
            &config.topic_prefix,
            run_id,
        )?;
        let transforms = Transforms::new(
            &config.transforms,
            &config.predicates,
            &mapping,
            context,
            &mut headers,
        )?;
        let router = EventRouter::new(&config, mapping, headers)?;
        Ok(Self {
            tables: CompiledFilter::new(&config.tables)?,
            messages: Messages::new(&config)?,
            topic_prefix: config.topic_prefix,
            types: config.types,
            router,
            transforms,
            catalog: Catalog::new(),
            plans: Vec::new(),
            scratch: Scratch::default(),
            nulled: None,
        })
    }

    /// Takes the catalog in place of what was known, and plans all relations anew.
    pub fn set_catalog(&mut self, catalog: Catalog) {
        self.catalog = catalog;
        let plans = std::mem::take(&mut self.plans);
        self.plans = plans
            .into_iter()
            .map(|plan| self.planned(plan.relation, plan.entry))
            .collect();
    }

    /// Adds what a later reading of the catalog says, and plans all relations anew.
    pub fn extend_catalog(&mut self, later: Catalog) {
        let mut catalog = std::mem::take(&mut self.catalog);
        catalog.extend(later);
        self.set_catalog(catalog);
    }

    /// Takes note of a Type message. The catalog has the last word, as the stream names a domain by its base type and
    /// says nothing about the labels of an enum.
    pub fn handle_type(&mut self, oid: u32, _namespace: &str, name: &str) {
        if self.catalog.type_by_oid(oid).is_none() {
            let known = CatalogType {
                name: name.to_owned(),
                kind: CatalogTypeKind::Base,
            };
            self.catalog.insert_type(oid, known);
        }
    }

    /// Takes note of where a relation has its columns. One that is not captured is forgotten at once.
    pub fn handle_relation(&mut self, relation: &Relation) {
        self.plans.retain(|plan| plan.relation.id != relation.id);
        if !self.tables.captures(&relation.namespace, &relation.name) {
            return;
        }
        let table_topic = format!(
            "{}.{}.{}",
            self.topic_prefix, relation.namespace, relation.name
        );
        let schema_name = format!("{table_topic}.Value");
        let entry = self
            .transforms
            .entry(Origin::Row, &table_topic, Some(&schema_name))
            // A pattern that gives up on the table's own topic matches nothing of it.
            .unwrap_or(Entry::NotRouted);
        let plan = self.planned(relation.clone(), entry);
        let at = self
            .plans
            .partition_point(|known| known.relation.id < relation.id);
        self.plans.insert(at, plan);
    }

    /// Forgets all relations, as the server does at the start of a stream.
    pub fn reset(&mut self) {
        self.plans.clear();
    }

    /// Appends the row's record to `out`. `now_ms` is the wall clock: a record's timestamp where no column has it.
    ///
    /// # Errors
    ///
    /// When the row can make no record; `out` is as it was then, and the router can take the next row.
    pub fn route(
        &mut self,
        row: &Row<'_>,
        now_ms: i64,
        out: &mut RecordBuffer,
    ) -> Result<Routed, RouteError> {
        let Some(plan) = plan(&self.plans, row.relation.id) else {
            return Ok(Routed::NotOutbox);
        };
        let (headers, schema_name) = match &plan.entry {
            Entry::Filtered => return Ok(Routed::Dropped(DropReason::Filtered)),
            Entry::NotRouted => return Ok(Routed::Dropped(DropReason::NotRouted)),
            Entry::Routed {
                headers,
                schema_name,
            } => (*headers, schema_name.as_deref()),
        };
        let event = Event {
            headers,
            schema_name,
            now_ms,
        };
        let mut builder = out.begin();
        let columns = match plan.missing {
            Some(slot) => Err(ConnectFault::Missing(slot)),
            None => {
                let fails = self.types.event_converting_failure_handling_mode == FailureMode::Fail;
                RowColumns::read(plan, row.tuple, !fails)
            }
        };
        let written = columns.and_then(|columns| {
            let written = self.router.write(
                &columns,
                event,
                &self.transforms,
                &mut self.scratch,
                &mut builder,
            )?;
            Ok((written, columns.nulled()))
        });
        match written {
            Ok((true, nulled)) => {
                builder.finish();
                if nulled.is_some() {
                    self.scratch.tolerated.rows_nulled += 1;
                    self.nulled = nulled;
                }
                Ok(Routed::Record)
            }
            Ok((false, _)) => Ok(Routed::Dropped(DropReason::Filtered)),
            Err(fault) => {
                drop(builder);
                let event_id = plan.text(row.tuple, self.router.mapping.id);
                let position = RowPosition {
                    table: plan.table.clone(),
                    lsn: row.lsn,
                    transaction: row.transaction,
                    insert_index: row.insert_index,
                    event_id: event_id.map(shown_id),
                };
                Err(self.explain(fault, position, &column_list(row.relation)))
            }
        }
    }

    /// Appends the record of a logical message to `out`.
    ///
    /// # Errors
    ///
    /// When the message can make no record; `out` is as it was then.
    pub fn route_message(
        &mut self,
        message: LogicalMessage<'_>,
        now_ms: i64,
        out: &mut RecordBuffer,
    ) -> Result<Routed, RouteError> {
        let takes = |messages: &Messages| messages.takes(message.prefix);
        if !self.messages.as_ref().is_some_and(takes) {
            return Ok(Routed::NotOutbox);
        }
        let mut builder = out.begin();
        let written = self.message_entry().and_then(|entry| match entry {
            Entry::Filtered => Ok(Err(DropReason::Filtered)),
            Entry::NotRouted => Ok(Err(DropReason::NotRouted)),
            Entry::Routed { headers, .. } => {
                let columns = decoded(
                    self.messages.as_ref(),
                    &self.router.mapping.names,
                    message.content,
                )?;
                let event = Event {
                    headers,
                    schema_name: None,
                    now_ms,
                };
                let written = self.router.write(
                    &columns,
                    event,
                    &self.transforms,
                    &mut self.scratch,
                    &mut builder,
                )?;
                Ok(if written {
                    Ok(())
                } else {
                    Err(DropReason::Filtered)
                })
            }
        });
        match written {
            Ok(Ok(())) => {
                builder.finish();
                Ok(Routed::Record)
            }
            Ok(Err(reason)) => Ok(Routed::Dropped(reason)),
            Err(fault) => {
                drop(builder);
                Err(self.explain(fault, message_position(message), "those of its JSON text"))
            }
        }
    }

    /// What the row says of itself; `None` if it is of no outbox table.
    #[must_use]
    pub fn summary<'a>(&'a self, row: &Row<'a>) -> Option<RowSummary<'a>> {
        let plan = plan(&self.plans, row.relation.id)?;
        if !matches!(plan.entry, Entry::Routed { .. }) {
            return None;
        }
        let mapping = &self.router.mapping;
        let text = |slot| plan.text(row.tuple, slot);
        Some(RowSummary {
            table: &plan.table,
            id: text(mapping.id),
            aggregate_type: text(mapping.route),
            aggregate_id: text(mapping.key),
            aggregate_columns: [mapping.route, mapping.key].map(|slot| plan.index(slot)),
            payload_column: plan.index(mapping.payload),
            payload: text(mapping.payload),
            payload_is_bytea: false,
        })
    }

    /// Whether rows of this relation make records.
    #[must_use]
    pub fn is_outbox(&self, relation_id: u32) -> bool {
        plan(&self.plans, relation_id)
            .is_some_and(|plan| matches!(plan.entry, Entry::Routed { .. }))
    }

    /// Whether this table is captured, by its name alone.
    #[must_use]
    pub fn captures(&self, schema: &str, table: &str) -> bool {
        self.tables.captures(schema, table)
    }

    /// Whether the stream has to carry logical messages.
    #[must_use]
    pub fn needs_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// The columns a captured table is read for, and whether it must have them.
    #[must_use]
    pub fn mapped_columns(&self) -> Vec<(&str, bool)> {
        let mapping = &self.router.mapping;
        mapping
            .names
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), mapping.is_required(ColumnSlot(at))))
            .collect()
    }

    /// What was sent although not all of it could be made what it was asked to be.
    #[must_use]
    pub fn tolerated(&self) -> Tolerated {
        self.scratch.tolerated
    }

    /// The column of the newest row of which a value could not be converted and was sent as NULL.
    #[must_use]
    pub fn nulled_column(&self) -> Option<&str> {
        Some(self.router.mapping.name(self.nulled?))
    }

    fn planned(&self, relation: Relation, entry: Entry) -> ConnectPlan {
        ConnectPlan::new(
            relation,
            entry,
            &self.router.mapping,
            &self.catalog,
            &self.types,
        )
    }

    fn message_entry(&self) -> Result<Entry, ConnectFault> {
        let topic = format!("{}.message", self.topic_prefix);
        self.transforms
            .entry(Origin::Message, &topic, None)
            .map_err(too_complex)
    }

    #[cold]
    fn explain(&self, fault: ConnectFault, position: RowPosition, columns: &str) -> RouteError {
        let name = |slot| self.router.mapping.name(slot).to_owned();
        let row = Box::new(position);
        match fault {
            ConnectFault::Missing(slot) => RouteError::MissingColumn {
                row,
                column: name(slot),
                columns: columns.to_owned(),
            },
            ConnectFault::NullRoute(slot) => RouteError::NullAggregateType {
                row,
                column: name(slot),
            },
            ConnectFault::IllegalTopic { name: topic, why } => RouteError::IllegalTopic {
                row,
                column: Some(name(self.router.mapping.route)),
                name: shown_topic(&topic),
                why,
            },
            ConnectFault::Value(slot, why) => RouteError::BadValue {
                row,
                column: name(slot),
                why,
            },
            ConnectFault::Unsupported(slot, why) => RouteError::UnsupportedTuple {
                row,
                column: name(slot),
                why,
            },
            ConnectFault::Unconvertible(part, why) => RouteError::Unconvertible {
                row,
                part,
                why: refusal(why),
            },
            ConnectFault::TooComplex => RouteError::PatternTooComplex { row },
            ConnectFault::Message(why) => RouteError::BadMessage { row, why },
        }
    }
}

fn plan(plans: &[ConnectPlan], relation_id: u32) -> Option<&ConnectPlan> {
    let at = plans.binary_search_by_key(&relation_id, |plan| plan.relation.id);
    plans.get(at.ok()?)
}

fn shown_id(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    cut(&text, EVENT_ID_BYTES_MAX).to_owned()
}

fn refusal(why: Refusal) -> String {
    match why {
        Refusal::NotBytes(type_name) => {
            format!(
                "the byte array converter takes bytes only, and this is of the type {type_name}"
            )
        }
        Refusal::NoDelegate(type_name) => format!(
            "the binary data converter has no delegate for what is not bytes, and this is of the type {type_name}"
        ),
        Refusal::Unfit => "it does not fit the schema of its column".to_owned(),
    }
}
