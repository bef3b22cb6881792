//! Stage 5 of 9, as Debezium does it: rows become the records that a Debezium connector with the Outbox Event Router
//! and Kafka Connect's converters would make, byte for byte.

#[path = "connect_config.rs"]
mod connect_config;
#[path = "connect_types.rs"]
mod connect_types;
#[path = "event_router_config.rs"]
mod event_router_config;

pub use connect_config::{
    ConnectConfig, ContextHeaders, ConverterConfig, DebeziumVersion, DecimalFormat,
    JsonConverterConfig, MessageConfig, ParseVersionError, PredicateConfig, TableFilter, Transform,
    TransformConfig,
};
pub use connect_types::{
    BinaryMode, DecimalMode, HstoreMode, IntervalMode, NameAdjustment, TimeMode, TypeModes,
};
pub use event_router_config::{
    EmptyArrayBehavior, EventRouterConfig, Expansion, MissingBehavior, NullBehavior,
    OpInvalidBehavior, Placement, PlacementError, PlacementPlace,
};
