//! The long parts of `cargo xtask test --full`: many versions, long runs. Each can be run alone with `--only`.

use anyhow::{Result, bail};
use xtask::install::{Need, ensure};
use xtask::postgres::MAJOR_VARIABLE;
use xtask::postgres_versions::MAJORS;

use super::run::{Counts, Interrupt, command_line, counted, plain, target_dir};
use super::test::{Part, Work};
use crate::report;

/// Grows with the features that need it.
pub(crate) const FULL: &[Part] = &[
    Part {
        name: "takeover",
        about: "taking over from a Debezium under load, and going back to it",
        work: Work::BuiltTests(&[
            "cargo test --locked --workspace --test real_connect -- takeover::",
        ]),
    },
    Part {
        name: "pg-matrix",
        about: "end-to-end tests of what depends on the server, on every supported major version of PostgreSQL",
        work: Work::Matrix,
    },
    Part {
        name: "failover",
        about: "promotions of a real standby, on PostgreSQL 17 and 18",
        work: Work::BuiltTests(&["cargo test --locked --workspace --test failover"]),
    },
    Part {
        name: "sign-in",
        about: "OAUTHBEARER and Kerberos at a real Kafka, with a build that has both",
        work: Work::SignIn,
    },
    Part {
        name: "mutants",
        about: "each small change to tracker, transactions, progress and policy is seen by a unit test",
        work: Work::Mutants,
    },
    Part {
        name: "chaos",
        about: "twenty rounds of random faults",
        work: Work::Program("cargo xtask chaos --rounds 20"),
    },
    Part {
        name: "field",
        about: "field problems with the times and sizes they are told with, and resources used up",
        work: Work::Field,
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

/// The tests whose times and sizes are scaled down in the usual run, or that run only here.
const SCALED: [&str; 19] = [
    "b01_",
    "b02_",
    "b03_",
    "b04_",
    "b18_",
    "b19_",
    "b20_",
    "b21_",
    "b22_",
    "b23_",
    "b25_",
    "b26_",
    "b27_",
    "b29_",
    "b31_",
    "of_three_instances_",
    "thousands_of_",
    "prepared_",
    "resources::",
];

/// Runs those tests in full. `arguments` takes the place of the names.
///
/// # Errors
/// A test fails, or the user interrupts.
pub(crate) fn field(
    arguments: &[String],
    interrupt: &Interrupt,
    counts: &mut Counts,
) -> Result<()> {
    ensure(&[Need::Faketime, Need::PgBouncer])?;
    build(interrupt)?;
    let mut command = command_line("cargo test --locked --workspace --test e2e --")?;
    if arguments.is_empty() {
        command.args(SCALED);
    } else {
        command.args(arguments);
    }
    command.env("POSTHASTE_TEST_FULL", "1");
    counted(&mut command, interrupt, counts)
}

/// Runs them with a connector that is built with the features they need, in a target folder of its own: in the usual one it
/// would take the place of the connector without.
///
/// # Errors
/// The build or a test fails, or the user interrupts.
pub(crate) fn sign_in(
    arguments: &[String],
    interrupt: &Interrupt,
    counts: &mut Counts,
) -> Result<()> {
    ensure(&[Need::Librdkafka, Need::Curl, Need::Kerberos])?;
    let folder = target_dir().join("sign-in");
    let mut connector = command_line(
        "cargo build --locked -p posthaste --features kafka-oauthbearer,kafka-gssapi",
    )?;
    plain(connector.arg("--target-dir").arg(&folder), interrupt)?;
    let mut command = command_line("cargo test --locked --workspace --test kafka_sign_in --")?;
    command
        .args(arguments)
        .env("POSTHASTE_BIN", folder.join("debug/posthaste"));
    counted(&mut command, interrupt, counts)
}

/// What depends on the version of the server: what it sends, what it refuses and in which words, how it is signed in to. The
/// rest is about Kafka, the configuration and Debezium's records, and would take four times as long to be told the same
/// again. `cargo xtask test --only pg-matrix -- ""` runs everything.
const OF_THE_SERVER: [&str; 19] = [
    "big_transaction::",
    "confirmed_position::",
    "connection::b25_",
    "crash::",
    "create::",
    "decoder::",
    "delivery::",
    "graceful_stop::b28_",
    "instances::",
    "lost_slot::",
    "names::",
    "partitions::",
    "preconditions::",
    "quiet_outbox::b02_",
    "schema_change::",
    "session::",
    "sign_in::",
    "timeline::",
    "values::",
];

/// Runs what depends on it once per version, also when one fails. `arguments` takes the place of the selection.
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
        command.env(MAJOR_VARIABLE, major.to_string());
        if arguments.is_empty() {
            command.args(OF_THE_SERVER);
        } else {
            command.args(arguments);
        }
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
