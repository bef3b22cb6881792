//! `cargo xtask test`: everything that has to pass before a change may land, in one run on a fresh machine.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::install::{Need, ensure};
use xtask::{connect, kafka};

use super::run::{Counts, Interrupt, command_line, counted, plain};
use super::test_full::{FULL, build, field, matrix, sign_in};
use super::tidy;
use crate::report;

/// What the user asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Also run the parts that may take hours.
    #[arg(long)]
    full: bool,
    /// Run a single part, of the usual ones or the long ones; `--list` names them.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// List the parts and stop.
    #[arg(long)]
    list: bool,
    /// Given to the test programs, for example a test's name: `cargo xtask test --only e2e -- quiet`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// One part of the run.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// Installs what the other parts need.
    Install,
    /// The house rules.
    Tidy,
    /// A program and its arguments.
    Program(&'static str),
    /// Runs of tests: their results are counted, and they are given the user's own arguments.
    Tests(&'static [&'static str]),
    /// As `Tests`, after a build of the programs that they start.
    BuiltTests(&'static [&'static str]),
    /// The end-to-end tests once per version of PostgreSQL.
    Matrix,
    /// Field problems in full.
    Field,
    /// Sign-ins at Kafka that are features of the build.
    SignIn,
    /// A rustdoc run.
    Docs,
    /// A cargo-deny run; the program is built first if it is missing.
    Licences,
    /// A cargo-mutants run; likewise.
    Mutants,
}

/// Cheap ones first, so that a slip shows at once; the end-to-end tests last, so that their results close the output.
/// All builds select the whole workspace or its default members, which have the same features: with others, such as those
/// of one package alone, half of the dependencies would be built once more.
const USUAL: [Part; 10] = [
    Part {
        name: "install",
        about: "install what is missing",
        work: Work::Install,
    },
    Part {
        name: "format",
        about: "rustfmt finds nothing to change",
        work: Work::Program("cargo fmt --all --check"),
    },
    Part {
        name: "tidy",
        about: "house rules",
        work: Work::Tidy,
    },
    Part {
        name: "licences",
        about: "licences, bans and sources of all dependencies",
        work: Work::Licences,
    },
    Part {
        name: "lints",
        about: "clippy without a warning",
        work: Work::Program("cargo clippy --workspace --all-targets --locked -- -D warnings"),
    },
    Part {
        name: "docs",
        about: "rustdoc without a warning",
        work: Work::Docs,
    },
    Part {
        name: "unit",
        about: "unit, property and golden tests, and examples in docs",
        work: Work::Tests(&[
            "cargo test --locked --workspace --lib --bins",
            // The default members, so all but the end-to-end package.
            "cargo test --locked --test *",
            "cargo test --locked --doc",
        ]),
    },
    Part {
        name: "build",
        about: "the connector and the programs that the end-to-end tests run",
        work: Work::Program("cargo build --locked --workspace --bins --tests"),
    },
    Part {
        name: "connect",
        about: "the same rows through Kafka Connect with Debezium and through Posthaste",
        work: Work::BuiltTests(&[
            "cargo test --locked --workspace --test real_connect -- --skip takeover::",
        ]),
    },
    Part {
        name: "e2e",
        about: "end-to-end tests on real servers",
        work: Work::Tests(&["cargo test --locked --workspace --test e2e"]),
    },
];

/// Runs the parts in order up to the first that fails, and prints times and test results at the end.
///
/// # Errors
/// A part fails, or the user interrupts. Everything started is stopped again.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for part in USUAL.iter().chain(FULL) {
            report::line(&format!("{:<12} {}", part.name, part.about));
        }
        return Ok(());
    }
    let parts = selected(options)?;
    let interrupt = Interrupt::new()?;
    let mut times = Vec::new();
    let mut counts = Counts::default();
    let mut outcome = Ok(());
    for part in parts {
        report::line(&format!("\n== {}: {}", part.name, part.about));
        let start = Instant::now();
        let result = part.run(&options.arguments, &interrupt, &mut counts);
        times.push((part.name, start.elapsed()));
        if let Err(error) = result {
            outcome = Err(error).with_context(|| format!("part `{}`", part.name));
            break;
        }
    }
    report_end(&times, counts);
    outcome
}

fn selected(options: &Options) -> Result<Vec<&'static Part>> {
    if let Some(name) = &options.only {
        let part = USUAL.iter().chain(FULL).find(|part| part.name == *name);
        return match part {
            Some(part) => Ok(vec![part]),
            None => bail!("there is no part `{name}`; `cargo xtask test --list` names them"),
        };
    }
    // The long parts run after the usual ones: what those find is cheaper to find there.
    let full: &[Part] = if options.full { FULL } else { &[] };
    Ok(USUAL.iter().chain(full).collect())
}

/// Says where the time went, and as the last line the sum of all test results.
fn report_end(times: &[(&str, Duration)], counts: Counts) {
    report::line("");
    for (name, time) in times {
        report::line(&format!("{name:<12} {:>7.1} s", time.as_secs_f64()));
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    report::line(&format!(
        "{:<12} {:>7.1} s",
        "together",
        total.as_secs_f64()
    ));
    if counts != Counts::default() {
        report::line(&format!(
            "\n{} passed, {} failed",
            counts.passed, counts.failed
        ));
    }
}

impl Part {
    fn run(&self, arguments: &[String], interrupt: &Interrupt, counts: &mut Counts) -> Result<()> {
        interrupt.check()?;
        match &self.work {
            Work::Install => install(),
            Work::Tidy => tidy::run(),
            Work::Program(words) => plain(&mut command_line(words)?, interrupt),
            Work::Tests(commands) => commands
                .iter()
                .try_for_each(|words| tests(words, arguments, interrupt, counts)),
            Work::BuiltTests(commands) => {
                build(interrupt)?;
                commands
                    .iter()
                    .try_for_each(|words| tests(words, arguments, interrupt, counts))
            }
            Work::Matrix => matrix(arguments, interrupt, counts),
            Work::Field => field(arguments, interrupt, counts),
            Work::SignIn => sign_in(arguments, interrupt, counts),
            Work::Docs => docs(interrupt),
            Work::Licences => licences(interrupt),
            Work::Mutants => mutants(arguments, interrupt),
        }
    }
}

/// Everything is fetched here, with retries, so that no test waits for a server of packages or fails with it.
fn install() -> Result<()> {
    ensure(&[Need::Postgres, Need::Java, Need::Maven, Need::Librdkafka])?;
    kafka::prepare()?;
    connect::ensure_jars().map(|_| ())
}

/// Runs tests with the user's own arguments.
///
/// # Errors
/// A test fails, or the user interrupts.
pub(crate) fn tests(
    words: &str,
    arguments: &[String],
    interrupt: &Interrupt,
    counts: &mut Counts,
) -> Result<()> {
    let mut command = command_line(words)?;
    if !arguments.is_empty() && !words.contains(" -- ") {
        command.arg("--");
    }
    command.args(arguments);
    counted(&mut command, interrupt, counts)
}

fn docs(interrupt: &Interrupt) -> Result<()> {
    let mut command = command_line("cargo doc --workspace --no-deps --locked")?;
    // The pages are for developers: private items are in them, and may be linked to.
    command.arg("--document-private-items").env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private-intra-doc-links",
    );
    plain(&mut command, interrupt)
}

/// Its advisories come from a server of their own and change by the day, so they are no part of a repeatable run.
fn licences(interrupt: &Interrupt) -> Result<()> {
    let mut command = Command::new(cargo_tool("cargo-deny", CARGO_DENY_VERSION, interrupt)?);
    command
        .args(["--locked", "check", "licenses", "bans", "sources"])
        .current_dir(tidy::root());
    plain(&mut command, interrupt)
}

/// Changes the code in every way that cargo-mutants knows, one at a time, and fails if the tests do not see it. Which files,
/// and what is left out for which reason, stands in `.cargo/mutants.toml`.
fn mutants(arguments: &[String], interrupt: &Interrupt) -> Result<()> {
    let mut command = Command::new(cargo_tool(
        "cargo-mutants",
        CARGO_MUTANTS_VERSION,
        interrupt,
    )?);
    let output = tidy::root().join("target/mutants");
    std::fs::create_dir_all(&output).context("make a folder for the report")?;
    command
        .args(["mutants", "--no-shuffle", "--colors", "never", "--output"])
        .arg(output)
        .args(arguments)
        .current_dir(tidy::root());
    plain(&mut command, interrupt)
}

const CARGO_DENY_VERSION: &str = "0.20.2";
const CARGO_MUTANTS_VERSION: &str = "27.1.0";

/// Finds the user's own program, or builds one beside the other tools in the cache.
fn cargo_tool(name: &str, version: &str, interrupt: &Interrupt) -> Result<PathBuf> {
    let usable = |program: &PathBuf| Command::new(program).arg("--help").output().is_ok();
    let installed = PathBuf::from(name);
    if usable(&installed) {
        return Ok(installed);
    }
    let folder = xtask::install::cache_dir()?.join(format!("{name}-{version}"));
    let built = folder.join("bin").join(name);
    if !usable(&built) {
        report::line(&format!("building {name}, once"));
        let mut command = command_line("cargo install --locked --quiet")?;
        command
            .args([name, "--version", version, "--root"])
            .arg(&folder)
            // It runs for a second here, or waits for compilers: optimising it would take minutes for nothing.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        plain(&mut command, interrupt).with_context(|| format!("build {name}"))?;
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_are_unique() {
        let mut names: Vec<_> = USUAL.iter().chain(FULL).map(|part| part.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_end_to_end_tests_close_the_usual_run() {
        assert_eq!(USUAL.last().map(|part| part.name), Some("e2e"));
    }
}
