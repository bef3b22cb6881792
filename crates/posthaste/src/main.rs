//! The process: arguments in, exit status out.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use posthaste::cli::{Cli, Command};
use posthaste::cli_connect::DebeziumCommand;
use posthaste::codes::Problem;
use posthaste::commands;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match execute(&cli) {
        Ok(code) => code,
        Err(error) => {
            say(&error);
            let problem = error.downcast_ref::<Problem>();
            ExitCode::from(problem.map_or(EXIT_UNEXPECTED, Problem::exit_code))
        }
    }
}

fn execute(cli: &Cli) -> anyhow::Result<ExitCode> {
    // One thread reads, decides and serves the pages; the producer has its own (docs/decisions/0002).
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = match &cli.command {
        Command::Run(arguments) => ExitCode::from(runtime.block_on(commands::run::run(arguments))?),
        Command::Check(arguments) => {
            runtime.block_on(commands::check::run(arguments, &mut std::io::stdout()))?;
            ExitCode::SUCCESS
        }
        Command::Config(arguments) => {
            commands::config::run(arguments, &mut std::io::stdout())?;
            ExitCode::SUCCESS
        }
        Command::Reconcile(arguments) => {
            let out = &mut std::io::stdout();
            ExitCode::from(runtime.block_on(commands::reconcile::run(arguments, out))?)
        }
        Command::Parked { command } => {
            runtime.block_on(commands::parked::run(command, &mut std::io::stdout()))?;
            ExitCode::SUCCESS
        }
        Command::Skip(arguments) => {
            runtime.block_on(commands::skip::run(arguments, &mut std::io::stdout()))?;
            ExitCode::SUCCESS
        }
        Command::Debezium { command } => debezium(command, &runtime)?,
    };
    // A probe of an unreachable broker may still be waiting; nobody needs its answer.
    runtime.shutdown_background();
    Ok(code)
}

fn debezium(
    command: &DebeziumCommand,
    runtime: &tokio::runtime::Runtime,
) -> anyhow::Result<ExitCode> {
    let out = &mut std::io::stdout();
    Ok(match command {
        DebeziumCommand::Check(arguments) => {
            ExitCode::from(commands::debezium::check(arguments, out)?)
        }
        DebeziumCommand::Convert(arguments) => {
            commands::debezium::convert(arguments, out)?;
            ExitCode::SUCCESS
        }
        DebeziumCommand::Takeover(arguments) => {
            runtime.block_on(commands::takeover::run(arguments, out))?;
            ExitCode::SUCCESS
        }
        DebeziumCommand::Diff(arguments) => ExitCode::from(commands::diff::run(arguments, out)?),
    })
}

/// One line on standard error, for what went wrong where there is no log.
fn say(error: &anyhow::Error) {
    // If standard error is gone there is nobody left to tell; the exit status still says it.
    drop(writeln!(std::io::stderr(), "posthaste: {error}"));
}

const EXIT_UNEXPECTED: u8 = 1;
