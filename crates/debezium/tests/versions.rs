//! What depends on Debezium's version: defaults, options that do not exist yet, and names that were others.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use debezium::{FirstStart, Input, NoLookup, Reading, Verdict};
use router::connect::{ContextHeaders, EmptyArrayBehavior, MissingBehavior};

fn read(version: &str, lines: &str) -> Reading {
    let base = "\
name=orders
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
database.hostname=db
database.user=u
database.dbname=orders
topic.prefix=orders
table.include.list=public.outbox
snapshot.mode=no_data
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
transforms=o
transforms.o.type=io.debezium.transforms.outbox.EventRouter
";
    let text = format!("{base}{lines}");
    let mut input = Input::new(&text, "c.properties", &NoLookup);
    input.brokers = Some("kafka:9092");
    input.version = version.parse().unwrap();
    debezium::read(&input).unwrap()
}

fn verdict(reading: &Reading, key: &str) -> (Verdict, String) {
    let finding = reading
        .findings
        .iter()
        .find(|finding| finding.key == key)
        .unwrap();
    (finding.verdict, finding.text.clone())
}

#[test]
fn each_default_that_depends_on_the_version_is_told() {
    for (version, expected) in [
        ("2.7.4", "false"),
        ("3.2.0", "false"),
        (
            "3.2.1",
            "true (connectorLogicalName, taskId, connectorName)",
        ),
        (
            "3.4.0",
            "true (connectorLogicalName, taskId, connectorName, runId)",
        ),
        (
            "3.6.1",
            "true (connectorLogicalName, taskId, connectorName, runId)",
        ),
    ] {
        let reading = read(version, "");
        let default = reading
            .defaults_used
            .iter()
            .find(|default| default.key == "extended.headers.enabled")
            .unwrap();
        assert_eq!(default.value, expected, "{version}");
        let native = reading.native.unwrap();
        assert_eq!(native.connect.context_headers, ContextHeaders::Version);
        assert_eq!(native.connect.debezium_version.to_string(), version);
    }
    assert!(
        read("3.6.1", "extended.headers.enabled=true")
            .defaults_used
            .is_empty()
    );
}

#[test]
fn options_that_a_version_does_not_have_are_ignored_as_there() {
    for (version, key, value) in [
        ("3.2.0", "extended.headers.enabled", "false"),
        ("3.0.4", "slot.failover", "true"),
        ("3.3.2", "lsn.flush.mode", "manual"),
        ("3.1.3", "publish.via.partition.root", "true"),
        (
            "3.6.1",
            "transforms.o.table.json.payload.empty.array.behavior",
            "optional_string",
        ),
        (
            "3.5.2",
            "transforms.o.table.field.additional.missing",
            "ignore",
        ),
    ] {
        let reading = read(version, &format!("{key}={value}"));
        let (verdict, text) = verdict(&reading, key);
        assert_eq!(verdict, Verdict::Ignored, "{version} {key}: {text}");
        assert!(text.contains(version), "{text}");
        let native = reading.native.unwrap();
        assert_eq!(
            native.connect.event_router.table_field_additional_missing,
            MissingBehavior::Error
        );
        assert_eq!(
            native
                .connect
                .event_router
                .table_json_payload_empty_array_behavior,
            EmptyArrayBehavior::Ignore
        );
        assert!(
            !native.source.failover && !native.source.publish_via_partition_root,
            "{version} {key}"
        );
    }
    let newer = read(
        "3.7.0",
        "transforms.o.table.json.payload.empty.array.behavior=optional_string",
    );
    assert_eq!(
        newer
            .native
            .unwrap()
            .connect
            .event_router
            .table_json_payload_empty_array_behavior,
        EmptyArrayBehavior::OptionalString
    );
}

#[test]
fn the_missing_column_policy_is_followed_under_both_names() {
    let missing = |version: &str, lines: &str| {
        read(version, lines)
            .native
            .unwrap()
            .connect
            .event_router
            .table_field_additional_missing
    };
    let old = "transforms.o.table.fields.additional.error.on.missing=false\n";
    let new = "transforms.o.table.field.additional.missing=error\n";
    assert_eq!(missing("3.5.2", old), MissingBehavior::Ignore);
    assert_eq!(missing("3.6.1", old), MissingBehavior::Ignore);
    assert_eq!(
        missing("3.6.1", &format!("{old}{new}")),
        MissingBehavior::Error
    );
    assert_eq!(
        missing("3.5.2", &format!("{old}{new}")),
        MissingBehavior::Ignore
    );
}

#[test]
fn the_old_name_of_no_data_counts_before_3_0() {
    let line = "snapshot.mode=never\n";
    let old = read("2.5.4", line);
    assert_eq!(verdict_of_last(&old), Verdict::Kept);
    assert_eq!(old.native.unwrap().source.first_start, FirstStart::NoData);
    assert_eq!(verdict_of_last(&read("3.0.8", line)), Verdict::Refused);
}

fn verdict_of_last(reading: &Reading) -> Verdict {
    let mut findings = reading.findings.iter().rev();
    findings
        .find(|finding| finding.key == "snapshot.mode" && finding.verdict != Verdict::Warned)
        .unwrap()
        .verdict
}

#[test]
fn messages_are_decoded_from_3_0_on() {
    let lines = "transforms=d,o\ntransforms.d.type=io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent\n";
    assert!(
        read("3.0.8", lines)
            .native
            .unwrap()
            .connect
            .messages
            .is_some()
    );
    let refused: Vec<_> = read("2.7.4", lines)
        .refused()
        .map(ToString::to_string)
        .collect();
    assert!(
        refused.len() == 1 && refused[0].contains("exists since Debezium 3.0"),
        "{refused:?}"
    );
}

#[test]
fn versions_that_are_not_known_are_refused() {
    for version in ["1.9.7", "2.4.0", "3.8.0", "4.0.0"] {
        let mut input = Input::new("a=b", "c.properties", &NoLookup);
        input.version = version.parse().unwrap();
        assert!(debezium::read(&input).is_err(), "{version}");
    }
}
