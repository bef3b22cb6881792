//! Stage 5 of 9, as Debezium does it: rows become the records that a Debezium connector with the Outbox Event Router
//! and Kafka Connect's converters would make, byte for byte.

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
#[path = "transforms.rs"]
mod transforms;

pub use catalog::{Catalog, CatalogColumn, CatalogType, CatalogTypeKind};
pub use connect_config::{
    ConnectConfig, ContextHeaders, ConverterConfig, DebeziumVersion, DecimalFormat,
    JsonConverterConfig, MessageConfig, ParseVersionError, PredicateConfig, TableFilter, Transform,
    TransformConfig,
};
pub use connect_router::{ConnectRouter, DropReason, LogicalMessage, Routed};
pub use connect_types::{
    BinaryMode, DecimalMode, HstoreMode, IntervalMode, NameAdjustment, TimeMode, TypeModes,
};
pub use event_router_config::{
    EmptyArrayBehavior, EventRouterConfig, Expansion, MissingBehavior, NullBehavior,
    OpInvalidBehavior, Placement, PlacementError, PlacementPlace,
};
pub use java_regex::PatternProblem;
pub use java_replacement::ReplacementProblem;
pub use murmur2::key_partition;
