//! The commands, one file each.

pub mod check;
pub mod config;
pub mod debezium;
pub mod diff;
pub mod parked;
pub(crate) mod printing;
pub mod reconcile;
pub mod run;
pub mod skip;
pub mod takeover;
