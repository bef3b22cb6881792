//! Jars from Maven Central: a pom's dependencies in a folder, and the class path of such a folder.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::install::announce;
use crate::process::output;
use crate::scratch::Scratch;

/// Puts all that a pom depends on at run time into `lib`, which appears only once it is whole. A mirror that stumbles is
/// asked again: what has come already is kept by Maven, so that an attempt goes on where the last one ended.
///
/// # Errors
/// Maven is missing or fails each time: the text then has what it said.
pub(crate) fn fetch(pom: &str, lib: &Path) -> Result<()> {
    let scratch = Scratch::new("maven")?;
    let file = scratch.path().join("pom.xml");
    fs::write(&file, pom).context("write the pom")?;
    let partial = lib.with_extension("partial");
    let attempt = || {
        fs::remove_dir_all(&partial).ok();
        let mut maven = Command::new("mvn");
        maven
            // Else it believes for a day that what could not be had is not there.
            .args(["--batch-mode", "--quiet", "--update-snapshots", "-f"])
            .arg(&file)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(format!("-DoutputDirectory={}", partial.display()));
        output(&mut maven)
    };
    let mut waits = RETRIES.iter();
    while let Err(error) = attempt() {
        let Some(wait) = waits.next() else {
            return Err(error);
        };
        announce(&format!(
            "Maven failed, next attempt in {wait:?}: {error:#}"
        ));
        thread::sleep(*wait);
    }
    fs::rename(&partial, lib).context("put the jars in place")
}

/// Between attempts.
const RETRIES: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(45),
];

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
