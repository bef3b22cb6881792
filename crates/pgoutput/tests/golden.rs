//! Real bytes of real servers: each scenario of `golden/capture.sql` is decoded as recorded beside it.
//!
//! `UPDATE_GOLDEN=1 cargo test -p pgoutput --test golden` rewrites the recordings; review the diff.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

#[path = "support/corpus.rs"]
mod corpus;
#[path = "support/render.rs"]
mod render;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn captured_bytes_are_decoded_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    for scenario in corpus::scenarios(&golden()) {
        let found = render::scenario(&scenario);
        let recording = scenario.path.with_extension("txt");
        if update {
            fs::write(&recording, found).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&recording).unwrap_or_default();
        for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
            assert_eq!(
                found,
                expected,
                "{}, line {}",
                recording.display(),
                number + 1
            );
        }
        assert_eq!(
            found.lines().count(),
            expected.lines().count(),
            "{}",
            recording.display()
        );
    }
}

#[test]
fn captures_are_of_the_version_their_folder_names() {
    for scenario in corpus::scenarios(&golden()) {
        let major = scenario
            .version
            .strip_prefix("PostgreSQL ")
            .unwrap()
            .split(['.', ' '])
            .next();
        let path = scenario.path.display();
        assert_eq!(
            Some(scenario.folder().as_str()),
            major.map(|major| format!("pg{major}")).as_deref(),
            "{path}"
        );
    }
}

#[test]
fn every_scenario_is_captured_of_every_version_and_nothing_else() {
    let script = fs::read_to_string(golden().join("capture.sql")).unwrap();
    let mut captured = std::collections::BTreeMap::<u32, BTreeSet<String>>::new();
    for scenario in corpus::scenarios(&golden()) {
        let major = scenario.folder().trim_start_matches("pg").parse().unwrap();
        captured.entry(major).or_default().insert(scenario.name());
    }
    assert!(
        captured.keys().eq(&MAJORS),
        "captured: {:?}",
        captured.keys()
    );
    for (major, names) in captured {
        assert_eq!(names, scenarios_for(&script, major), "pg{major}");
    }
}

#[test]
fn every_message_of_version_1_was_captured() {
    let tags: BTreeSet<char> = corpus::scenarios(&golden())
        .iter()
        .flat_map(|scenario| &scenario.messages)
        .map(|message| char::from(message.bytes[0]))
        .collect();
    assert!(
        "BCORYIUDTM".chars().all(|tag| tags.contains(&tag)),
        "{tags:?}"
    );
}

/// The versions that are supported. Each sends something in its own way: 14, for one, also transactions of which nothing is
/// published.
const MAJORS: [u32; 5] = [14, 15, 16, 17, 18];

/// The names of the scenarios that a server of this version is asked for.
fn scenarios_for(script: &str, major: u32) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut name = None;
    for line in script.lines() {
        if let Some(next) = line.strip_prefix("-- scenario: ") {
            name = Some(next.to_owned());
            names.extend(name.clone());
        } else if let (Some(from), Some(name)) = (line.strip_prefix("-- from: "), &name)
            && from.parse::<u32>().unwrap() > major
        {
            names.remove(name);
        }
    }
    names
}
