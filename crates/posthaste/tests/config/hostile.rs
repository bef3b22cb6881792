//! Hostile files: whatever stands in them, the answer is a configuration or one message, and never a panic.

use std::fs;

use posthaste::config::load;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::Case;

/// A file in which every kind of value stands somewhere.
const VARIED: &str = r#"
[source]
host = ["db1", "db2"]
port = 5432
user = "app"
password = "geheim"
dbname = "orders"
slot = "outbox"
publication = "outbox"
tables = ["public.outbox", "\"Odd\".\"na\"\"me\""]
create = true
status_interval = "10s"
frame_bytes_max = "64MiB"

[router]
topic = "events.{aggregatetype}"
headers = ["type", { column = "version", name = "v", optional = true }]
timestamp = { column = "created_at" }

[kafka]
brokers = "a:9092,[::1]:9092"
in_flight_records_max = 1000

[kafka.properties]
"compression.type" = "zstd"

[poison]
on_poison = "park"
parked_bytes_max = "1GiB"

[http]
listen = "127.0.0.1:0"
"#;

/// What a load of these bytes says; `None` is a configuration.
fn answer(bytes: &[u8]) -> Option<String> {
    let case = Case::new("");
    fs::write(&case.request.file, bytes).expect("file is written");
    load(&case.request).err().map(|problem| problem.to_string())
}

fn is_answered(bytes: &[u8]) {
    if let Some(text) = answer(bytes) {
        assert!(text.contains("found") && text.contains("needed"), "{text}");
        assert!(!text.contains("geheim"), "a secret is told: {text}");
    }
}

#[test]
fn the_varied_file_is_right_as_it_stands() {
    assert_eq!(answer(VARIED.as_bytes()), None);
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..300)) {
        is_answered(&bytes);
    }

    #[test]
    fn a_file_with_pieces_cut_out_and_put_in_is_answered(
        cuts in vec((any::<Index>(), 0usize..40, ".{0,12}"), 1..5),
    ) {
        let mut bytes = VARIED.as_bytes().to_vec();
        for (at, length, piece) in cuts {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, piece.into_bytes());
        }
        is_answered(&bytes);
    }
}

#[test]
fn values_nested_without_end_are_answered() {
    for (open, close) in [("[", "]"), ("{ a = ", " }")] {
        let value = open.repeat(100_000) + "1" + &close.repeat(100_000);
        let text = answer(format!("[source]\nhost = {value}\n").as_bytes());
        let text = text.expect("refused");
        assert!(text.contains("found") && text.contains("needed"), "{text}");
    }
}
