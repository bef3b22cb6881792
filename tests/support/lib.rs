//! Support for the end-to-end tests.
//!
//! A test takes a [`fixture::Fixture`], its own place on the shared [`servers`], starts the [`connector`] with a
//! [`config::Config`], lets a [`writer`] commit events, reads the topics with a [`consumer`], and hands what was
//! committed (the [`ledger`]) and what was read to the [`checker`], most often by way of [`arrival`]. Waiting is done in
//! [`wait`] alone.

pub mod arrival;
pub mod checker;
pub mod config;
pub mod connector;
pub mod consumer;
pub mod debezium;
pub mod fixture;
pub mod kill;
pub mod ledger;
pub mod produce;
pub mod proxy;
pub mod random;
pub mod scale;
pub mod servers;
pub mod slot;
pub mod takeover;
pub mod wait;
pub mod writer;
