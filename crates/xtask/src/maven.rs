//! Jars from Maven Central: a pom's dependencies in a folder, and the class path of such a folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;
use crate::scratch::Scratch;

/// Puts all that a pom depends on at run time into `lib`, which appears only once it is whole.
///
/// # Errors
/// Maven is missing or fails: the text then has what it said.
pub(crate) fn fetch(pom: &str, lib: &Path) -> Result<()> {
    let scratch = Scratch::new("maven")?;
    let file = scratch.path().join("pom.xml");
    fs::write(&file, pom).context("write the pom")?;
    let partial = lib.with_extension("partial");
    fs::remove_dir_all(&partial).ok();
    let mut maven = Command::new("mvn");
    maven
        .args(["--batch-mode", "--quiet", "-f"])
        .arg(&file)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", partial.display()));
    output(&mut maven)?;
    fs::rename(&partial, lib).context("put the jars in place")
}

/// Every jar by name and in order: a class archive is valid only for the very same class path.
pub(crate) fn class_path(lib: &Path) -> String {
    let mut jars: Vec<_> = fs::read_dir(lib)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().to_string_lossy().into_owned()))
        .collect();
    jars.sort();
    jars.join(":")
}
