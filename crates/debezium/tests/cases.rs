//! Whole configurations: what is reported of each key, and what comes out. `UPDATE_GOLDEN=1` writes the expectations anew.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its cases has failed"
)]

use std::fs;
use std::path::Path;

use debezium::{Input, Lookup, Reading, Verdict};

/// What the cases refer to. Each value says that it is a secret, so that none can be in a report unseen.
struct Secrets;

impl Lookup for Secrets {
    fn environment(&self, name: &str) -> Option<String> {
        match name {
            "BILLING_DB_HOST" => Some("billing-db".to_owned()),
            "BILLING_DB_USER" => Some("billing".to_owned()),
            "BILLING_DB_PASSWORD" | "SERVER_PASSWORD" | "KAFKA_PASSWORD" | "SR_USER_INFO" => {
                Some("s3cret-env".to_owned())
            }
            _ => None,
        }
    }

    fn file(&self, path: &str) -> Option<String> {
        match path {
            "/opt/connect/secrets/orders.properties" => {
                Some("db.password=s3cret-file\nstore=s3cret-store\n".to_owned())
            }
            "/run/secrets/fleet" => Some("pw=s3cret-file".to_owned()),
            "/mnt/secrets/payments/password"
            | "/k8s/kafka/inventory-db/password"
            | "/k8s/kafka/shop-db/password" => Some("s3cret-file".to_owned()),
            "/k8s/kafka/shop-db/username" => Some("shop".to_owned()),
            _ => None,
        }
    }
}

#[test]
fn every_case_gives_what_is_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(folders.len() >= 13, "cases are missing");
    for folder in folders {
        check(&folder);
    }
}

fn check(folder: &Path) {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let connector = files
        .iter()
        .find(|path| !path.ends_with("expected.txt") && !path.ends_with("worker.properties"))
        .unwrap();
    let text = fs::read_to_string(connector).unwrap();
    let worker = fs::read_to_string(folder.join("worker.properties")).ok();
    let name = connector.file_name().unwrap().to_str().unwrap();
    let mut input = Input::new(&text, name, &Secrets);
    input.worker = worker.as_deref();
    input.secrets_directory = Some("/k8s");
    let in_server = name == "application.properties";
    input.brokers = (worker.is_none() && !in_server).then_some("kafka:9092");
    let reading = debezium::read(&input).unwrap();
    every_key_is_reported(&text, &reading);
    let shown = show(&reading);
    assert!(
        !shown.contains("s3cret"),
        "{folder:?} shows a secret:\n{shown}"
    );
    assert!(
        !format!("{reading:?}").contains("s3cret"),
        "{folder:?} has a secret in Debug"
    );
    let expected = folder.join("expected.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&expected, &shown).unwrap();
    }
    let expected = fs::read_to_string(&expected).unwrap_or_default();
    assert_eq!(
        shown, expected,
        "{folder:?}; UPDATE_GOLDEN=1 writes it anew"
    );
}

fn show(reading: &Reading) -> String {
    match &reading.native {
        None => format!("{reading}\n"),
        Some(native) => format!("{reading}\n\n{}", native.to_toml()),
    }
}

/// Any line of the file that has a dot in a key is a key that the report has to name.
fn every_key_is_reported(text: &str, reading: &Reading) {
    for line in text.lines() {
        let key = line
            .trim()
            .trim_start_matches('"')
            .split(['"', '=', ':'])
            .next()
            .unwrap_or_default()
            .trim();
        if key.contains('.') && !key.contains([' ', '/']) {
            let mut findings = reading.findings.iter();
            assert!(
                findings.any(|finding| finding.key == key),
                "{key} is not reported"
            );
        }
    }
}

#[test]
fn what_is_converted_is_toml_that_means_the_same() {
    let text = include_str!("cases/b_bare_map/connector.json");
    let mut input = Input::new(text, "b.json", &Secrets);
    input.brokers = Some("kafka:9092");
    let native = debezium::read(&input).unwrap().native.unwrap();
    let table: toml::Table = native.to_toml().parse().unwrap();
    let connect: router::connect::ConnectConfig = table["connect"].clone().try_into().unwrap();
    assert_eq!(connect, native.connect);
}

/// What runs in place of the old file is what the report says to write, and nothing besides.
#[test]
fn the_old_names_with_their_fixes_applied_are_the_new_file() {
    let old = include_str!("cases/f_old_names/connector.properties");
    let new = include_str!("cases/f_new_names/connector.properties");
    let reading = debezium::read(&Input::new(old, "f.properties", &Secrets)).unwrap();
    let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
    for finding in reading.refused() {
        let key = finding.key.as_str();
        if key == "bootstrap.servers" {
            continue; // Given beside the file.
        }
        lines.retain(|line| line.split('=').next() != Some(key));
        lines.extend(fixed(key, &finding.text));
    }
    lines.sort();
    let mut expected: Vec<&str> = new.lines().collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// The line that a refusal says to write in place of the key's; none if it says to remove it.
fn fixed(key: &str, text: &str) -> Option<String> {
    let (_, fix) = text.rsplit_once("; ").unwrap();
    if let Some(line) = fix.strip_prefix("write `") {
        let (line, _) = line.split_once('`').unwrap();
        return Some(line.to_owned());
    }
    if fix.starts_with("remove it") {
        return None;
    }
    let (_, word) = fix.rsplit_once("write ").unwrap();
    // Of the converters only that they are to be written: which one is for the user to say.
    let value = if word == key {
        "org.apache.kafka.connect.storage.StringConverter"
    } else {
        word
    };
    Some(format!("{key}={value}"))
}

#[test]
fn a_refusal_leaves_no_configuration() {
    let text = include_str!("cases/f_old_names/connector.properties");
    let reading = debezium::read(&Input::new(text, "f.properties", &Secrets)).unwrap();
    assert!(reading.native.is_none());
    for old in [
        "database.server.name",
        "table.whitelist",
        "plugin.name",
        "snapshot.mode",
        "heartbeat.topics.prefix",
        "slot.seek.to.known.offset.on.start",
        "transforms.outbox.table.field.event.payload.id",
        "transforms.outbox.debezium.expand.json.payload",
    ] {
        let finding = reading.refused().find(|finding| finding.key == old);
        assert!(
            finding.is_some_and(
                |finding| finding.text.contains("write ") || finding.text.contains("remove it")
            ),
            "{old}: {finding:?}"
        );
    }
    assert!(
        reading
            .findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Refused || !finding.text.is_empty())
    );
}
