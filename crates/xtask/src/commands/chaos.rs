//! `cargo xtask chaos`: rounds of random faults on real servers under load, each checked by event id.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::install::{Need, ensure};

use super::run::{Interrupt, command_line, plain, target_dir};

/// What the user asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many rounds; twenty take up to a quarter of an hour.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Where the random choices start; taken from the clock if it is not given. The output begins and ends with it.
    #[arg(long)]
    seed: Option<u64>,
    /// The promise that is tested: `at-least-once` or `exactly-once`.
    #[arg(long, default_value = "at-least-once")]
    delivery: String,
    /// Folder for what is kept of rounds that failed.
    #[arg(long, value_name = "FOLDER")]
    evidence: Option<PathBuf>,
}

/// Builds the connector and the program that plays the rounds, and runs it. The last line of its output is the summary.
///
/// # Errors
/// Something cannot be built or started, a round does not hold, or the user interrupts.
pub(crate) fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::new()?;
    ensure(&[Need::Postgres, Need::Java, Need::Maven, Need::Librdkafka])?;
    let mut cargo = command_line("cargo build --locked --workspace --bin posthaste --bin chaos")?;
    plain(&mut cargo, &interrupt).context("build the connector")?;
    let programs = target_dir().join("debug");
    let mut chaos = Command::new(programs.join("chaos"));
    chaos
        .env("POSTHASTE_BIN", programs.join("posthaste"))
        .args(["--rounds", &options.rounds.to_string()])
        .args(["--delivery", &options.delivery]);
    if let Some(seed) = options.seed {
        chaos.args(["--seed", &seed.to_string()]);
    }
    let evidence = options.evidence.clone();
    chaos
        .arg("--evidence")
        .arg(evidence.unwrap_or_else(|| target_dir().join("chaos")));
    plain(&mut chaos, &interrupt)
}
