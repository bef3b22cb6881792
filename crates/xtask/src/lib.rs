//! Private servers for the developer commands and the end-to-end tests.
//!
//! A [`postgres::Postgres`] or [`kafka::Kafka`] is a real server on a free port with its data in a [`scratch::Scratch`]
//! folder, stopped when its value is dropped and, through a watchdog, also when this process dies. What a machine lacks
//! is installed by [`install`]. This crate builds with a Rust toolchain alone: it must not depend on anything that needs
//! a C compiler, since it is what installs one.

pub mod connect;
mod connect_install;
pub mod http;
pub mod install;
pub mod kafka;
mod kafka_install;
mod kafka_wire;
mod maven;
pub mod migrations;
pub mod postgres;
mod postgres_programs;
pub mod postgres_versions;
pub mod process;
pub mod scratch;
