//! Tidy's rules on the text of one file.

use super::tidy::{File, root};

/// Every rule that this file breaks, one line each.
pub(crate) fn check(file: &File) -> Vec<String> {
    let mut broken = Vec::new();
    machine_traces(file, &mut broken);
    if file.is_rust() {
        first_line(file, &mut broken);
        length(file, &mut broken);
        module_name(file, &mut broken);
        open_ends(file, &mut broken);
        test_shortcuts(file, &mut broken);
        forbidden_code(file, &mut broken);
    }
    broken
}

/// A file between the two limits may stay, but somebody should look at it.
pub(crate) fn asks_to_be_split(file: &File) -> Option<String> {
    let lines = judged_len(file);
    (file.is_rust() && !file.is_test() && lines > LINES_ASKED && lines <= LINES_MAX).then(|| {
        format!(
            "{}: {lines} lines without tests; can it be two files?",
            file.path
        )
    })
}

const LINES_ASKED: usize = 500;
const LINES_MAX: usize = 800;

fn judged_len(file: &File) -> usize {
    if file.is_test() {
        file.text.lines().count()
    } else {
        file.code_len()
    }
}

fn length(file: &File, broken: &mut Vec<String>) {
    let lines = judged_len(file);
    if lines > LINES_MAX {
        broken.push(format!("{}: {lines} lines, at most {LINES_MAX}", file.path));
    }
}

fn first_line(file: &File, broken: &mut Vec<String>) {
    if !file.text.starts_with("//! ") {
        broken.push(format!(
            "{}:1: begins with a `//! ` line that says what it is for",
            file.path
        ));
    }
}

/// A name that fits everything collects everything.
fn module_name(file: &File, broken: &mut Vec<String>) {
    const VAGUE: [&str; 6] = ["utils", "util", "common", "misc", "types", "helpers"];
    let mut names = file.path.trim_end_matches(".rs").split('/');
    if let Some(name) = names.find(|name| VAGUE.contains(name)) {
        broken.push(format!("{}: the name `{name}` says nothing", file.path));
    }
}

/// What is left open must be written down where it will be found again.
fn open_ends(file: &File, broken: &mut Vec<String>) {
    // Put together here, lest this file break its own rule.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    for (number, line) in file.code().chain(file.tests()) {
        let marked = marks.iter().any(|mark| contains_word(line, mark));
        let refers = ["issue ", "decision ", "#"]
            .iter()
            .filter_map(|word| line.split_once(word))
            .any(|(_, rest)| rest.starts_with(|letter: char| letter.is_ascii_digit()));
        if marked && !refers {
            broken.push(format!(
                "{}:{number}: left open without `issue N` or `decision N`",
                file.path
            ));
        }
    }
}

/// Files whose tests may sleep, with the reason.
const MAY_SLEEP: [(&str, &str); 1] = [(
    "tests/support/wait.rs",
    "the one place that polls a state until a deadline",
)];

fn test_shortcuts(file: &File, broken: &mut Vec<String>) {
    let shortcuts = [
        (concat!("#[", "ignore"), "a test that nobody runs"),
        (concat!("#[", "should_panic"), "assert on the error instead"),
    ];
    let sleeps = [
        concat!("thread", "::sleep("),
        concat!("time", "::sleep("),
        " sleep(",
    ];
    let may_sleep = MAY_SLEEP.iter().any(|(path, _)| *path == file.path);
    for (number, line) in file.tests().filter(|(_, line)| !is_comment(line)) {
        for (shortcut, why) in shortcuts {
            if line.contains(shortcut) {
                broken.push(format!("{}:{number}: `{shortcut}`: {why}", file.path));
            }
        }
        if !may_sleep && sleeps.iter().any(|sleep| line.contains(sleep)) {
            broken.push(format!(
                "{}:{number}: a sleep in a test; wait for a state",
                file.path
            ));
        }
    }
}

/// A piece of code and the only places where it may stand.
struct Confined {
    code: &'static str,
    within: &'static [&'static str],
    places: &'static [&'static str],
    why: &'static str,
}

const CONFINED: [Confined; 5] = [
    Confined {
        code: "StatusUpdate {",
        within: &["crates/"],
        places: &[
            "crates/posthaste/src/progress.rs",
            "crates/pgoutput/",
            "crates/xtask/",
        ],
        why: "only progress.rs may tell the server a position",
    },
    Confined {
        code: "Confirmed(",
        within: &["crates/"],
        places: &["crates/sink/src/tracker.rs", "crates/xtask/"],
        why: "only the tracker may make a Confirmed",
    },
    Confined {
        code: "Instant::now",
        within: &[
            "crates/sink/src/tracker.rs",
            "crates/pgoutput/",
            "crates/router/",
        ],
        places: &[],
        why: "pure code is told the time",
    },
    Confined {
        code: "SystemTime::now",
        within: &[
            "crates/sink/src/tracker.rs",
            "crates/pgoutput/",
            "crates/router/",
        ],
        places: &[],
        why: "pure code is told the time",
    },
    Confined {
        code: "std::net",
        within: &["crates/pgoutput/", "crates/router/"],
        places: &[],
        why: "pure code opens no sockets",
    },
];

fn forbidden_code(file: &File, broken: &mut Vec<String>) {
    let starts_with_any = |starts: &[&str]| starts.iter().any(|start| file.path.starts_with(start));
    if file.is_test() {
        return;
    }
    for rule in &CONFINED {
        if !starts_with_any(rule.within) || starts_with_any(rule.places) {
            continue;
        }
        for (number, line) in file.code().filter(|(_, line)| !is_comment(line)) {
            if contains_word(line, rule.code) && !defines_or_names(line, rule.code) {
                broken.push(format!(
                    "{}:{number}: `{}`: {}",
                    file.path, rule.code, rule.why
                ));
            }
        }
    }
}

/// `struct Confirmed(` and `-> StatusUpdate {` name a type without making a value of it.
fn defines_or_names(line: &str, code: &str) -> bool {
    line.split_once(code).is_some_and(|(before, _)| {
        let before = before.trim_end();
        ["struct", "impl", "->", "for"]
            .iter()
            .any(|word| before.ends_with(word))
    })
}

/// Nothing about the machine it was written on belongs into a repository.
fn machine_traces(file: &File, broken: &mut Vec<String>) {
    let home = std::env::var("HOME").unwrap_or_default();
    let clone = root();
    // An empty name would be everywhere.
    let own = [home.as_str(), clone.to_str().unwrap_or_default()];
    let own = own.into_iter().filter(|folder| folder.len() > 1);
    let folders: Vec<&str> = own.chain(["/root/"]).collect();
    let hosts = [
        "registry.npmjs.org",
        "repo1.maven.org",
        "repo.maven.apache.org",
        "proxy.golang.org",
        "files.pythonhosted.org",
        "deb.debian.org",
        "static.crates.io",
        "index.crates.io",
    ];
    if file.path == "crates/xtask/src/commands/tidy_text.rs" {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        let folder = folders.iter().find(|folder| names_folder(line, folder));
        let host = hosts.iter().find(|host| line.contains(**host));
        if let Some(trace) = folder.or(host) {
            broken.push(format!(
                "{}:{}: names a machine's own `{trace}`",
                file.path,
                number + 1
            ));
        }
        if file.path.ends_with("Cargo.lock") && line.starts_with("source = ") {
            let public = "registry+https://github.com/rust-lang/crates.io-index";
            if !line.contains(public) {
                broken.push(format!(
                    "{}:{}: a source other than crates.io",
                    file.path,
                    number + 1
                ));
            }
        }
    }
}

/// An absolute path of that folder, rather than a folder of that name below another.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-}*".contains(letter))
    })
}

/// `word` stands in `line` and does not continue a longer name to its left.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> usize {
        let file = File {
            path: path.into(),
            text: format!("//! A file.\n{text}"),
        };
        let broken = check(&file);
        broken.len()
    }

    #[test]
    fn good_files_pass() {
        assert_eq!(check_text("crates/a/src/a.rs", "fn a() {}\n"), 0);
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        let file = File {
            path: "crates/a/src/a.rs".into(),
            text: "use x;\n".into(),
        };
        assert_eq!(check(&file).len(), 1);
    }

    #[test]
    fn long_files_are_asked_and_longer_ones_refused() {
        let of = |lines: usize| File {
            path: "crates/a/src/a.rs".into(),
            text: format!("//! A file.\n{}", "\n".repeat(lines)),
        };
        assert!(asks_to_be_split(&of(499)).is_none());
        assert!(asks_to_be_split(&of(500)).is_some());
        assert_eq!(check(&of(799)).len(), 0);
        assert_eq!(check(&of(800)).len(), 1);
    }

    #[test]
    fn vague_names_are_refused() {
        assert_eq!(check_text("crates/a/src/utils.rs", ""), 1);
        assert_eq!(check_text("crates/a/src/common/a.rs", ""), 1);
        assert_eq!(check_text("crates/a/src/commands/a.rs", ""), 0);
    }

    #[test]
    fn open_ends_name_an_issue_or_a_decision() {
        assert_eq!(
            check_text("crates/a/src/a.rs", concat!("// TO", "DO later\n")),
            1
        );
        assert_eq!(
            check_text(
                "crates/a/src/a.rs",
                concat!("// TO", "DO issue 12: later\n")
            ),
            0
        );
        assert_eq!(
            check_text("crates/a/src/a.rs", concat!("// FIX", "ME (#7)\n")),
            0
        );
    }

    #[test]
    fn tests_neither_sleep_nor_hide() {
        let sleep = concat!("std::thread", "::sleep(x);\n");
        assert_eq!(check_text("crates/a/tests/a.rs", sleep), 1);
        assert_eq!(check_text("crates/a/src/a.rs", sleep), 0);
        let in_module = format!("#[cfg(test)]\nmod tests {{\n{sleep}}}\n");
        assert_eq!(check_text("crates/a/src/a.rs", &in_module), 1);
        assert_eq!(check_text("tests/support/wait.rs", sleep), 0);
        assert_eq!(check_text("tests/a.rs", concat!("#[", "ignore]\n")), 1);
    }

    #[test]
    fn what_carries_the_guarantee_is_made_in_one_place() {
        let confirmed = "let a = Confirmed(lsn);\n";
        assert_eq!(check_text("crates/posthaste/src/a.rs", confirmed), 1);
        assert_eq!(check_text("crates/sink/src/tracker.rs", confirmed), 0);
        assert_eq!(
            check_text("crates/sink/src/a.rs", "fn is_confirmed() {}\n"),
            0
        );
        let status = "let a = StatusUpdate { written };\n";
        assert_eq!(check_text("crates/posthaste/src/a.rs", status), 1);
        assert_eq!(
            check_text("crates/posthaste/src/a.rs", "fn a() -> StatusUpdate {\n"),
            0
        );
        assert_eq!(
            check_text("crates/sink/src/tracker.rs", "Instant::now();\n"),
            1
        );
    }

    #[test]
    fn machines_leave_no_trace() {
        let folder = concat!("let a = \"/ro", "ot/x\";\n");
        assert_eq!(check_text("crates/a/src/a.rs", folder), 1);
        assert_eq!(
            check_text("crates/a/src/a.rs", concat!("// docs/ro", "ot/x\n")),
            0
        );
        let lock = File {
            path: "Cargo.lock".into(),
            text: "source = \"git+https://elsewhere\"\n".into(),
        };
        assert_eq!(check(&lock).len(), 1);
    }
}
