//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy can check. Also run as a test.
//!
//! Rules on the text of one file stand in `tidy_text`, rules that compare documents with the tree in `tidy_docs`, rules
//! on what the crates depend on in `tidy_tree`, and which test each field problem has in `tidy_cases`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::process::output;

use super::{tidy_cases, tidy_docs, tidy_text, tidy_tree};
use crate::report;

/// Prints every broken rule.
///
/// # Errors
/// A rule is broken, or the tree cannot be read.
pub(crate) fn run() -> Result<()> {
    let files = read_files(&root())?;
    for file in &files {
        if let Some(note) = tidy_text::asks_to_be_split(file) {
            report::line(&format!("note: {note}"));
        }
    }
    let broken = broken_rules(&root(), &files)?;
    for rule in &broken {
        report::line(rule);
    }
    match broken.len() {
        0 => Ok(()),
        count => bail!("{count} house rules are broken"),
    }
}

/// A text file of the repository, committed or about to be.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }

    pub(crate) fn is_markdown(&self) -> bool {
        has_extension(&self.path, "md")
    }

    /// Tests and benches as a whole; a `mod tests` within a product file is told apart by [`File::code`].
    pub(crate) fn is_test(&self) -> bool {
        let path = format!("/{}", self.path);
        path.contains("/tests/") || path.contains("/benches/") || path.contains("/fuzz/")
    }

    /// The lines before `#[cfg(test)]` in front of a module, with their numbers from 1.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.code_len();
        self.numbered().take(end)
    }

    /// The lines that are tests: all of a test file, else those behind [`File::code`].
    pub(crate) fn tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let start = if self.is_test() { 0 } else { self.code_len() };
        self.numbered().skip(start)
    }

    /// Number of lines that are no tests.
    pub(crate) fn code_len(&self) -> usize {
        let mut previous = "";
        for (index, line) in self.text.lines().enumerate() {
            if previous.trim() == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{')
            {
                return index.saturating_sub(1);
            }
            previous = line;
        }
        self.text.lines().count()
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

fn broken_rules(root: &Path, files: &[File]) -> Result<Vec<String>> {
    let mut broken: Vec<String> = files.iter().flat_map(tidy_text::check).collect();
    broken.extend(tidy_docs::check(files));
    broken.extend(tidy_cases::check(files));
    broken.extend(tidy_tree::check(root)?);
    Ok(broken)
}

/// What git tracks, and what it would if all were added.
fn read_files(root: &Path) -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let mut files = Vec::new();
    for path in output(&mut git)?.split_terminator('\0') {
        // A file may be deleted and not yet staged, or be a binary fixture: neither has text to judge.
        if let Ok(text) = fs::read_to_string(root.join(path)) {
            let path = path.to_owned();
            files.push(File { path, text });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    if files.is_empty() {
        bail!("git knows no files here");
    }
    Ok(files)
}

/// The root of the repository, two folders above this crate's manifest.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .unwrap_or(manifest)
        .to_path_buf()
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Reads a file that a rule needs; its absence breaks the rule.
pub(crate) fn find<'a>(files: &'a [File], path: &str) -> Result<&'a File, String> {
    let file = files.iter().find(|file| file.path == path);
    file.with_context(|| format!("{path}: is missing"))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        let files = read_files(&root()).unwrap();
        let broken = broken_rules(&root(), &files).unwrap();
        assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    }

    #[test]
    fn tests_at_the_end_are_not_code() {
        let file = File {
            path: "crates/a/src/a.rs".into(),
            text: "//! A\n#[cfg(test)]\nuse x;\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n".into(),
        };
        assert_eq!(file.code_len(), 5);
        assert_eq!(file.tests().next(), Some((6, "#[cfg(test)]")));
    }
}
