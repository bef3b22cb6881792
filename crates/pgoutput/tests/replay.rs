//! The golden corpus through the functions that the fuzz targets call, whole, cut and damaged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail like tests"
)]

#[path = "support/corpus.rs"]
mod corpus;
#[path = "support/exercise.rs"]
mod exercise;

use std::path::Path;

use pgoutput::{DecodeError, decode};

fn scenarios() -> Vec<corpus::Scenario> {
    corpus::scenarios(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
}

#[test]
fn the_corpus_passes_through_the_fuzz_targets() {
    for scenario in scenarios() {
        let messages: Vec<_> = scenario
            .messages
            .iter()
            .map(|message| message.bytes.as_slice())
            .collect();
        messages
            .iter()
            .for_each(|message| exercise::decode_anything(message));
        exercise::follow_anything(&exercise::stream(messages));
    }
}

#[test]
fn a_captured_message_cut_anywhere_is_malformed() {
    for scenario in scenarios()
        .iter()
        .filter(|scenario| scenario.name() != "streamed")
    {
        for message in &scenario.messages {
            for length in 0..message.bytes.len() {
                let decoded = decode(&message.bytes[..length]);
                let place = format!("{} at {}, {length} bytes", scenario.name(), message.lsn);
                assert!(
                    matches!(decoded, Err(DecodeError::Malformed { .. })),
                    "{place}"
                );
            }
        }
    }
}

#[test]
fn a_captured_message_with_any_byte_flipped_never_panics() {
    for scenario in scenarios() {
        for message in &scenario.messages {
            let mut bytes = message.bytes.clone();
            for at in 0..bytes.len() {
                bytes[at] ^= 0xFF;
                exercise::decode_anything(&bytes);
                bytes[at] ^= 0xFF;
            }
        }
    }
}
