//! The long parts of `cargo xtask test --full`: many versions, long runs. Each can be run alone with `--only`.

use anyhow::{Result, bail};
use xtask::install::{Need, ensure};
use xtask::postgres::MAJOR_VARIABLE;
use xtask::postgres_versions::MAJORS;

use super::run::{Counts, Interrupt, command_line, counted, plain};
use super::test::{Part, Work};
use crate::report;

/// Grows with the features that need it.
pub(crate) const FULL: &[Part] = &[
    Part {
        name: "connect",
        about: "the same rows through Kafka Connect with Debezium and through Posthaste",
        work: Work::BuiltTests(&[
            "cargo test --locked --workspace --test real_connect -- --skip takeover::",
        ]),
    },
    Part {
        name: "takeover",
        about: "taking over from a Debezium under load, and going back to it",
        work: Work::BuiltTests(&[
            "cargo test --locked --workspace --test real_connect -- takeover::",
        ]),
    },
    Part {
        name: "pg-matrix",
        about: "end-to-end tests on every supported major version of PostgreSQL",
        work: Work::Matrix,
    },
    Part {
        name: "failover",
        about: "promotions of a real standby, on PostgreSQL 17 and 18",
        work: Work::BuiltTests(&["cargo test --locked --workspace --test failover"]),
    },
    Part {
        name: "chaos",
        about: "twenty rounds of random faults",
        work: Work::Program("cargo xtask chaos --rounds 20"),
    },
];

/// Builds the connector and what runs it, which `cargo test` alone would not: the tests' package does not depend on it.
///
/// # Errors
/// The build fails, or the user interrupts.
pub(crate) fn build(interrupt: &Interrupt) -> Result<()> {
    let mut build = command_line("cargo build --locked --workspace --bins --tests")?;
    plain(&mut build, interrupt)
}

/// Runs the end-to-end tests once per version, all of them also when one fails.
///
/// # Errors
/// A version fails, or the user interrupts.
pub(crate) fn matrix(
    arguments: &[String],
    interrupt: &Interrupt,
    counts: &mut Counts,
) -> Result<()> {
    ensure(&[Need::Npm])?;
    build(interrupt)?;
    let mut failed = Vec::new();
    for major in MAJORS {
        report::line(&format!("\n== PostgreSQL {major}"));
        let mut command = command_line("cargo test --locked --workspace --test e2e --")?;
        command
            .args(arguments)
            .env(MAJOR_VARIABLE, major.to_string());
        if let Err(error) = counted(&mut command, interrupt, counts) {
            interrupt.check()?;
            report::line(&format!("PostgreSQL {major}: {error:#}"));
            failed.push(major);
        }
    }
    if !failed.is_empty() {
        bail!("failed on the versions {failed:?}");
    }
    Ok(())
}
