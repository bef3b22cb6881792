//! Any bytes as a frame and as a message: stages 2 and 3.
//!
//! `cargo run --bin seed && cargo +nightly fuzz run decode`, in the folder above this one.
#![no_main]

#[path = "../../tests/support/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::decode_anything(bytes));
