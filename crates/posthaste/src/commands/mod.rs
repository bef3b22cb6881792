//! The commands, one file each.

pub mod check;
pub mod config;
pub mod debezium;
pub mod reconcile;
pub mod run;
