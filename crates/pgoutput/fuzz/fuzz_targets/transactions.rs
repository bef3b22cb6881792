//! Any bytes as a stream of messages: stages 3 and 4.
//!
//! `cargo run --bin seed && cargo +nightly fuzz run transactions`, in the folder above this one.
#![no_main]

#[path = "../../tests/support/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::follow_anything(bytes));
