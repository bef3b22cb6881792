//! Stage 5 of 9, as Debezium does it: rows become the records that a Debezium connector with the Outbox Event Router
//! and Kafka Connect's converters would make.
//!
//! **Promise.** For a row that Debezium publishes, the record is the same: topic, key, value, headers in their order,
//! partition and timestamp, byte for byte, except where `docs/debezium-differences.md` says otherwise. For a row at which its
//! task fails there is a record by a rule of that page, or an error that names the row.
//!
//! A [`ConnectRouter`] is made from a [`ConnectConfig`], which says what a connector's configuration says, option by
//! option; is given the [`Catalog`], since the stream says neither whether a column may be NULL nor what its default
//! is; and then sees relations and rows as the native [`Router`](crate::Router) does. The time comes in as an
//! argument.
//!
//! ```text
//!             relation ── topic <prefix>.<schema>.<table> ──▶ transforms before the router ──▶ dropped, or ─┐
//!  row ─▶ columns: text ─▶ value and schema ─▶ Event Router ◀───────────────────────────────────────────────┘
//!                                                   │ topic, key, value, headers, partition, timestamp
//!                                                   ▼
//!                          transforms behind the router ─▶ converters ─▶ record
//! ```
//!
//! # Differences from Debezium
//!
//! What Debezium does was recorded from its own classes, and compared with 3.6.1's connector on PostgreSQL 15: 75 columns
//! of all types, in three modes, were the same as headers, with and without schemas. What differs all the same is
//! listed in `docs/debezium-differences.md` alone, with the reason; whoever adds a difference adds its row there.
//!
//! The tables that hold this: `tests/smt_cases.rs` (62 runs of the real router and converters), `tests/connect.rs`.

#[path = "builtin_type.rs"]
mod builtin_type;
#[path = "catalog.rs"]
mod catalog;
#[path = "column_default.rs"]
mod column_default;
#[path = "column_type.rs"]
mod column_type;
#[path = "column_value.rs"]
mod column_value;
#[path = "connect_config.rs"]
mod connect_config;
#[path = "connect_plan.rs"]
mod connect_plan;
#[path = "connect_router.rs"]
mod connect_router;
#[path = "connect_schema.rs"]
mod connect_schema;
#[path = "connect_types.rs"]
mod connect_types;
#[path = "connect_value.rs"]
mod connect_value;
#[path = "convert_header.rs"]
mod convert_header;
#[path = "convert_json.rs"]
mod convert_json;
#[path = "convert_string.rs"]
mod convert_string;
#[path = "converter.rs"]
mod converter;
#[path = "event_columns.rs"]
mod event_columns;
#[path = "event_mapping.rs"]
mod event_mapping;
#[path = "event_router.rs"]
mod event_router;
#[path = "event_router_config.rs"]
mod event_router_config;
#[path = "expand_json.rs"]
mod expand_json;
#[path = "header_plan.rs"]
mod header_plan;
#[path = "java_number.rs"]
mod java_number;
#[path = "java_regex.rs"]
mod java_regex;
#[path = "java_replacement.rs"]
mod java_replacement;
#[path = "json_node.rs"]
mod json_node;
#[path = "logical_message.rs"]
mod logical_message;
#[path = "murmur2.rs"]
mod murmur2;
#[path = "name_adjustment.rs"]
mod name_adjustment;
#[path = "output.rs"]
mod output;
#[path = "postgres_interval.rs"]
mod postgres_interval;
#[path = "postgres_literal.rs"]
mod postgres_literal;
#[path = "postgres_time.rs"]
mod postgres_time;
#[path = "table_filter.rs"]
mod table_filter;
#[path = "topic_creation.rs"]
mod topic_creation;
#[path = "transforms.rs"]
mod transforms;

pub use catalog::{Catalog, CatalogColumn, CatalogType, CatalogTypeKind};
pub use connect_config::{
    ConnectConfig, ContextHeaders, ConverterConfig, DebeziumVersion, DecimalFormat,
    JsonConverterConfig, MessageConfig, ParseVersionError, PredicateConfig, TableFilter, Transform,
    TransformConfig,
};
pub use connect_router::{ConnectRouter, DropReason, Routed};
pub use connect_types::{
    BinaryMode, DecimalMode, FailureMode, HstoreMode, IntervalMode, NameAdjustment, TimeMode,
    TypeModes,
};
pub use event_router::Tolerated;
pub use event_router_config::{
    EmptyArrayBehavior, EventRouterConfig, Expansion, MissingBehavior, NullBehavior,
    OpInvalidBehavior, Placement, PlacementError, PlacementPlace,
};
pub use java_regex::PatternProblem;
pub use java_replacement::ReplacementProblem;
pub use logical_message::LogicalMessage;
pub use murmur2::key_partition;
pub use topic_creation::{TopicGroup, TopicGroups};
