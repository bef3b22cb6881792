//! Tidy's rules that hold documents and tree together: stages, message codes, links.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::tidy::{File, find};

/// Every rule that the tree breaks, one line each.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    match find(files, ARCHITECTURE) {
        Ok(table) => stages(files, &stage_table(&table.text), &mut broken),
        Err(missing) => broken.push(missing),
    }
    match (find(files, CODES), find(files, ERRORS)) {
        (Ok(table), Ok(errors)) => {
            codes(files, &defined_codes(&table.text), errors, &mut broken);
            unused_codes(files, &table.text, &mut broken);
        }
        (table, errors) => broken.extend(table.err().into_iter().chain(errors.err())),
    }
    for file in files.iter().filter(|file| file.is_markdown()) {
        links(file, files, &mut broken);
    }
    broken
}

const ARCHITECTURE: &str = "docs/architecture.md";
const CODES: &str = "crates/posthaste/src/codes_table.rs";
const ERRORS: &str = "docs/errors.md";

/// Path of a file and the numbers of the stages it is.
type Stages = BTreeMap<String, Vec<u32>>;

/// Rows such as "| 6, 8 | `sink/src/tracker.rs` | Ticket, Confirmed |".
fn stage_table(text: &str) -> Stages {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let stages = numbers(cells.next()?);
        let file = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let is_stage = !stages.is_empty() && file.ends_with(".rs");
        is_stage.then(|| (format!("crates/{file}"), stages))
    });
    rows.collect()
}

/// A file of the table names exactly its stages in its first line; a file beside one names stages of its crate.
fn stages(files: &[File], table: &Stages, broken: &mut Vec<String>) {
    let mut all: Vec<u32> = table.values().flatten().copied().collect();
    all.sort_unstable();
    if all != (1..=9).collect::<Vec<_>>() {
        broken.push(format!(
            "{ARCHITECTURE}: its table has the stages {all:?}, not 1 to 9"
        ));
    }
    for (path, stages) in table {
        match find(files, path) {
            Ok(file) if stages_of(file).as_ref() == Some(stages) => {}
            Ok(_) => broken.push(format!(
                "{path}:1: is stage {stages:?} of 9, but does not say so"
            )),
            Err(missing) => broken.push(format!("{missing}, though {ARCHITECTURE} names it")),
        }
    }
    for file in files.iter().filter(|file| file.is_rust()) {
        let crate_stages: Vec<u32> = table
            .iter()
            .filter(|(path, _)| folder(path) == folder(&file.path))
            .flat_map(|(_, stages)| stages.clone())
            .collect();
        let said = stages_of(file).unwrap_or_default();
        if said.iter().any(|stage| !crate_stages.contains(stage)) {
            broken.push(format!(
                "{}:1: says stage {said:?}; {ARCHITECTURE} does not",
                file.path
            ));
        }
    }
}

/// What the first line says: "//! Stage 4 of 9: …", "//! Stages 6 and 8 of 9: …".
fn stages_of(file: &File) -> Option<Vec<u32>> {
    let first = file.text.lines().next()?;
    let (said, _) = first.strip_prefix("//! Stage")?.split_once(" of 9")?;
    Some(numbers(said))
}

/// Rows of the macro such as `SlotMissing = 305, "title",`.
fn defined_codes(text: &str) -> Vec<u32> {
    let rows = text.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" = ")?;
        let (number, _) = rest.split_once(", \"")?;
        let is_name = name.chars().all(char::is_alphanumeric);
        is_name.then(|| number.parse().ok())?
    });
    rows.collect()
}

fn codes(files: &[File], defined: &[u32], errors: &File, broken: &mut Vec<String>) {
    let mut seen = Vec::new();
    for code in defined {
        if seen.contains(code) {
            broken.push(format!("{CODES}: PH{code:04} is defined twice"));
        }
        seen.push(*code);
        if !errors.text.contains(&format!("PH{code:04}")) {
            broken.push(format!("{ERRORS}: PH{code:04} is missing"));
        }
    }
    // Only xtask speaks of codes that do not exist: in the tests of this rule.
    let speakers = files.iter().filter(|file| {
        (file.is_rust() || file.is_markdown()) && !file.path.starts_with("crates/xtask/")
    });
    for file in speakers {
        for (number, line) in file.text.lines().enumerate() {
            for code in mentioned_codes(line).filter(|code| !defined.contains(code)) {
                broken.push(format!(
                    "{}:{}: there is no PH{code:04}",
                    file.path,
                    number + 1
                ));
            }
        }
    }
}

/// A code that nothing makes is a promise of the document that is not kept.
fn unused_codes(files: &[File], table: &str, broken: &mut Vec<String>) {
    let product = files.iter().filter(|file| {
        file.is_rust() && file.path.starts_with("crates/posthaste/src/") && file.path != CODES
    });
    let lines: Vec<&str> = product.flat_map(File::code).map(|(_, line)| line).collect();
    let rows = table.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" = ")?;
        let is_row = name.chars().all(char::is_alphanumeric) && rest.contains(", \"");
        is_row.then_some(name)
    });
    for name in rows {
        let used = format!("Code::{name}");
        if !lines.iter().any(|line| names(line, &used)) {
            broken.push(format!("{CODES}: nothing makes {name}"));
        }
    }
}

/// Whether the path stands in the text as a whole.
fn names(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let rest = text.get(at + path.len()..).unwrap_or_default();
        !rest.starts_with(|next: char| next.is_ascii_alphanumeric())
    })
}

/// `PH0123` is the example that the documents use for "a code".
fn mentioned_codes(line: &str) -> impl Iterator<Item = u32> {
    const EXAMPLE: u32 = 123;
    line.match_indices("PH").filter_map(move |(at, _)| {
        let digits = line.get(at + 2..at + 6)?;
        let ends = !line
            .get(at + 6..)?
            .starts_with(|next: char| next.is_ascii_alphanumeric());
        let code = digits.parse().ok()?;
        (ends && digits.bytes().all(|digit| digit.is_ascii_digit()) && code != EXAMPLE)
            .then_some(code)
    })
}

/// Relative links lead to a file or folder of the repository.
fn links(file: &File, files: &[File], broken: &mut Vec<String>) {
    for (number, line) in prose(&file.text) {
        for target in link_targets(line) {
            let outside = target.contains("://") || target.starts_with("mailto:");
            let path = target.split('#').next().unwrap_or_default();
            if outside || path.is_empty() {
                continue;
            }
            let Some(path) = resolve(&file.path, path) else {
                broken.push(format!(
                    "{}:{number}: `{target}` leaves the repository",
                    file.path
                ));
                continue;
            };
            let inside = format!("{path}/");
            let found = |other: &File| other.path == path || other.path.starts_with(&inside);
            if !files.iter().any(found) {
                broken.push(format!("{}:{number}: `{target}` leads nowhere", file.path));
            }
        }
    }
}

/// The numbered lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let rest = line.get(at + 2..)?;
        rest.split_once(')').map(|(target, _)| target)
    })
}

/// A link's path from the root of the repository, or nothing when it leads out of it.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::from(folder(from));
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    path.to_str().map(str::to_owned)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn the_stage_table_is_read() {
        let table =
            stage_table("| stage | file |\n|---|---|\n| 6, 8 | `sink/src/tracker.rs` | x |\n");
        assert_eq!(table["crates/sink/src/tracker.rs"], [6, 8]);
    }

    #[test]
    fn a_stage_says_its_number_and_nobody_else_does() {
        let rows = "1,2,3,4,5,7,8,9 | `b/src/b.rs` |\n| 6 | `a/src/a.rs`";
        let table = stage_table(&format!("| {rows} |\n"));
        let all = file(
            "crates/b/src/b.rs",
            "//! Stages 1 2 3 4 5 7 8 9 of 9: all.\n",
        );
        let broken = |first: &str, other: &str| {
            let a = file("crates/a/src/a.rs", first);
            let beside = file("crates/a/src/beside.rs", other);
            let b = file(&all.path, &all.text);
            let mut broken = Vec::new();
            stages(&[a, beside, b], &table, &mut broken);
            broken.len()
        };
        assert_eq!(
            broken("//! Stage 6 of 9: a.\n", "//! Stage 6 of 9, a part.\n"),
            0
        );
        assert_eq!(broken("//! Something.\n", "//! Another.\n"), 1);
        assert_eq!(
            broken("//! Stage 6 of 9: a.\n", "//! Stage 7 of 9: not here.\n"),
            1
        );
    }

    #[test]
    fn a_code_is_defined_once_and_documented() {
        let broken = |table: &str, errors: &str, text: &str| {
            let errors = file(ERRORS, errors);
            let mut broken = Vec::new();
            let user = file("crates/posthaste/src/a.rs", text);
            codes(&[user], &defined_codes(table), &errors, &mut broken);
            broken.len()
        };
        let table = "    A = 101, \"a\",\n        \"text, x = 3\",\n    B = 7, \"b\",\n";
        assert_eq!(defined_codes(table), [101, 7]);
        assert_eq!(
            broken(table, "PH0101 PH0007", "// PH0101, PH0123, PH12345"),
            0
        );
        assert_eq!(broken(table, "PH0101", ""), 1);
        assert_eq!(broken(table, "PH0101 PH0007", "\"PH0999\""), 1);
        assert_eq!(broken("A = 1, \"a\",\nB = 1, \"b\",\n", "PH0001", ""), 1);
    }

    #[test]
    fn a_code_that_nothing_makes_is_told() {
        let table = "    Lost = 101, \"a\",\n        \"text\",\n";
        for (text, told) in [
            ("Problem::new(Code::Lost, a)", 0),
            ("Problem::new(Code::LostAgain, a)", 1),
            ("#[cfg(test)]\nmod tests {\n    Code::Lost\n}\n", 1),
        ] {
            let mut broken = Vec::new();
            let user = file("crates/posthaste/src/a.rs", text);
            unused_codes(&[user], table, &mut broken);
            assert_eq!(broken.len(), told, "{text}");
        }
    }

    #[test]
    fn links_lead_somewhere() {
        let tree = [file("docs/a.md", ""), file("sql/1.sql", "")];
        let broken = |link: &str| {
            let mut broken = Vec::new();
            links(
                &file("docs/b.md", &format!("see [x]({link})\n")),
                &tree,
                &mut broken,
            );
            broken.len()
        };
        assert_eq!(broken("a.md"), 0);
        assert_eq!(broken("./a.md#part"), 0);
        assert_eq!(broken("../sql"), 0);
        assert_eq!(broken("https://example.org"), 0);
        assert_eq!(broken("#part"), 0);
        assert_eq!(broken("c.md"), 1);
        assert_eq!(broken("../../x"), 1);
    }
}
