//! `cargo xtask`: the developer commands. Run without one it lists them.

mod commands;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Bench(options) => commands::bench::run(&options),
        Task::Chaos(options) => commands::chaos::run(&options),
        Task::Demo(options) => commands::demo::run(&options),
        Task::Golden(options) => commands::golden::run(&options),
        Task::Image(options) => commands::image::run(&options),
        Task::Test(options) => commands::test::run(&options),
        Task::Tidy => commands::tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::line(&format!("\nerror: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Developer commands of Posthaste.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measures how fast a backlog reaches Kafka, beside `pg_recvlogical` and a bare producer.
    Bench(commands::bench::Options),
    /// Plays rounds of random faults on real servers under load, and checks by event id what was read.
    Chaos(commands::chaos::Options),
    /// Shows the whole path at work: a private PostgreSQL, a real Kafka, the connector, events and their records.
    Demo(commands::demo::Options),
    /// Keeps the captured bytes that decoders are tested with.
    #[command(subcommand)]
    Golden(commands::golden::Options),
    /// Builds the image of `docker/` and runs it against real servers; needs a Docker engine.
    Image(commands::image::Options),
    /// Runs everything that has to pass before a change may land; installs what is missing.
    Test(commands::test::Options),
    /// Checks the house rules that neither the compiler nor clippy can.
    Tidy,
}
