//! Tidy's rules on what the crates depend on: pure crates stay pure, xtask needs no C compiler.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xtask::process::output;

/// Every forbidden dependency, one line each.
///
/// # Errors
/// Cargo cannot resolve the workspace.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for (name, forbidden) in FORBIDDEN {
        if !root.join("crates").join(name).join("Cargo.toml").exists() {
            continue;
        }
        let tree = dependencies(root, name)?;
        broken.extend(offences(name, forbidden, &tree));
    }
    Ok(broken)
}

/// A crate and what its tree must not hold, over any number of steps. The arrows of docs/architecture.md.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    ("debezium", &["tokio", "rdkafka", "rand", "mio", "socket2"]),
    ("pgoutput", &["tokio", "rdkafka", "rand", "mio", "socket2"]),
    (
        "router",
        &[
            "tokio",
            "rdkafka",
            "rand",
            "mio",
            "socket2",
            "sink",
            "replication",
        ],
    ),
    (
        "sink",
        &["tokio-postgres", "postgres-protocol", "replication"],
    ),
    ("replication", &["pgoutput", "router", "sink", "rdkafka"]),
    (
        "xtask",
        &[
            "rdkafka",
            "rdkafka-sys",
            "openssl",
            "openssl-sys",
            "cmake",
            "cc",
            "pkg-config",
            "posthaste",
            "sink",
            "router",
            "pgoutput",
            "replication",
        ],
    ),
];

/// Names of all packages that building this crate takes, without those of its tests.
fn dependencies(root: &Path, name: &str) -> Result<Vec<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .args(["tree", "--package", name, "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"]);
    let tree = output(&mut cargo)?;
    let names = tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

fn offences(name: &str, forbidden: &[&str], tree: &[String]) -> Vec<String> {
    let found = forbidden
        .iter()
        .filter(|package| tree.iter().any(|in_tree| in_tree == *package));
    found
        .map(|package| format!("crates/{name}/Cargo.toml: must not depend on {package}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_dependency_is_told() {
        let tree = ["bytes".to_owned(), "tokio".to_owned()];
        assert_eq!(offences("pgoutput", &["tokio", "rand"], &tree).len(), 1);
        assert!(offences("pgoutput", &["rand"], &tree).is_empty());
    }
}
