//! Bad configurations: each gives one line with its code, the key, the value and what to do.

use super::{Case, SMALLEST};

/// The fewest cases a shortened file may have.
const CASES_MIN: usize = 90;

#[test]
fn each_bad_configuration_gets_its_message() {
    let mut count = 0;
    for block in include_str!("refused.cases").split("\n\n") {
        if block.lines().any(|line| line.starts_with("= ")) {
            check_block(block);
            count += 1;
        }
    }
    assert!(count >= CASES_MIN, "{count} cases");
}

fn check_block(block: &str) {
    let lines = |mark: &'static str| {
        block.lines().filter_map(move |line| {
            line.strip_prefix(mark)
                .and_then(|rest| rest.strip_prefix(' '))
        })
    };
    let replaced: String = lines("-").collect();
    let replacement = lines("+").collect::<Vec<_>>().join("\n");
    let is_changed = !replaced.is_empty() || !replacement.is_empty();
    let mut case = if is_changed {
        Case::with(&replaced, &replacement)
    } else {
        Case::new(SMALLEST)
    };
    for (name, value) in lines("$").filter_map(|variable| variable.split_once('=')) {
        case = case.variable(name, value);
    }
    for argument in lines("!") {
        case = case.set(argument);
    }
    check_message(&case, &lines("=").collect::<Vec<_>>());
}

fn check_message(case: &Case, parts: &[&str]) {
    let message = case.refusal();
    assert!(!message.contains('\n'), "{message}");
    for part in ["PH01", "found ", "needed ", "fix: "].iter().chain(parts) {
        assert!(message.contains(part), "{message}\nlacks {part}");
    }
}

#[test]
fn one_pipeline_is_allowed_and_its_name_checked() {
    let two = Case::new("[[pipeline]]\nname = \"a\"\n[[pipeline]]\nname = \"b\"\n");
    check_message(
        &two,
        &[
            "PH0112: pipeline",
            "2 pipelines",
            "start one process for each",
        ],
    );
    let name = Case::new("[[pipeline]]\nname = \"a b\"\n");
    check_message(&name, &["PH0113: pipeline.name (line 2)", "\"a b\""]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let mut case = Case::new(SMALLEST);
    case.request.file.set_file_name("missing.toml");
    check_message(
        &case,
        &[
            "PH0101: configuration file \"",
            "missing.toml\"",
            "no such file",
            "-c",
        ],
    );
    let case = Case::new(&"#".repeat(1_100_000));
    check_message(&case, &["PH0101", "more than 1 MiB"]);
    let mut case = Case::new(SMALLEST);
    case.request.file = case.file("latin1.toml", b"# caf\xe9");
    check_message(&case, &["PH0101", "not UTF-8, after 5 bytes"]);
}

#[test]
fn formats_are_told_by_extension_or_flag() {
    let mut case = Case::new(SMALLEST);
    case.request.format = Some("json".to_owned());
    check_message(
        &case,
        &["PH0102", "--format json", "did you mean connect-json?"],
    );
    case.request.format = Some("connect-json".to_owned());
    check_message(&case, &["PH0124", "posthaste.toml"]);
    let mut case = Case::new(SMALLEST);
    case.request.file = case.file("connector.properties", b"name=x");
    check_message(
        &case,
        &["PH0122", "connector.properties", "connector.class"],
    );
    case.request.file = case.file("connector.conf", b"connector.class=x");
    check_message(&case, &["PH0122", "connector.conf", "connector.class"]);
    case.request.file = case.file("posthaste.conf", SMALLEST.as_bytes());
    check_message(&case, &["PH0102", "posthaste.conf", "--format toml"]);
    case.request.format = Some("toml".to_owned());
    assert!(case.load().is_ok());
}
