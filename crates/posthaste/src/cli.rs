//! The command line: one command a variant.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cli_connect::{ConnectArgs, DebeziumCommand};
use crate::cli_parked::{ParkedCommand, SkipArgs};
use crate::cli_reconcile::ReconcileArgs;
use crate::config::Request;

/// What was written on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "posthaste",
    version,
    about = "Carries committed rows of a PostgreSQL outbox table to Kafka",
    long_about = "Carries committed rows of a PostgreSQL outbox table to Kafka.\n\n\
        Every committed row is delivered at least once, in commit order for each key. The position in the replication slot \
        moves only behind the acknowledgements of the brokers.",
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
#[non_exhaustive]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One of the commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stream events until told to stop
    #[command(
        long_about = "Checks the preconditions, then streams events until SIGTERM or SIGINT; then stops reading, waits for the \
            acknowledgements that are still out (at most kafka.drain_timeout), confirms and ends. A second signal ends at once.\n\n\
            What can heal by itself (server or brokers unreachable, slot in use) is tried again with growing waits; what \
            cannot (rights, names, settings, credentials) ends the process.",
        after_help = EXIT_CODES
    )]
    Run(RunArgs),
    /// Check the preconditions and end
    #[command(
        long_about = "Checks the configuration and every precondition of `run`, in the server and at the brokers, changes \
            nothing and ends: with status 0 if `run` would start, else with one message that says what is missing and what \
            puts it right.",
        after_help = EXIT_CODES
    )]
    Check(CheckArgs),
    /// Print the effective configuration
    #[command(
        long_about = "Prints the configuration as TOML on standard output, after environment and --set: every key with its value \
            and where the value comes from. Secrets are shown as ********, and files with secrets are not read. The output is \
            itself a configuration file.",
        after_help = EXIT_CODES
    )]
    Config(ConfigArgs),
    /// Find rows that never reached their topics, and publish them on request
    #[command(
        long_about = "For what a lost slot left behind: compares the rows of the outbox table in a range of times or ids with the \
            records in their topics, by event id, and lists those that are missing, or unknown because the topic no longer \
            holds records of that time. Waits until the slot, where there is one, has passed the rows. With --publish the \
            missing ones are sent, in the order of their times, marked by a header; their order against other records of the \
            same key is not kept. Needs the right SELECT on the table.",
        after_help = EXIT_CODES
    )]
    Reconcile(ReconcileArgs),
    /// Look at parked events and decide about them
    #[command(
        long_about = "Events that can never be published as they are, and those of their aggregates behind them, wait in a table of the \
            source database if poison.on_poison is park. These commands change rows of it; the running connector publishes.",
        after_help = EXIT_CODES,
        subcommand_required = true,
        arg_required_else_help = true
    )]
    Parked {
        /// What to do.
        #[command(subcommand)]
        command: ParkedCommand,
    },
    /// Pass over one event that cannot be published
    #[command(
        long_about = "Writes to the audit log, posthaste.skipped, that one event is to be passed over. The next run that meets it does so, \
            once, and notes when. The message of a run that stopped names event and position.",
        after_help = EXIT_CODES
    )]
    Skip(SkipArgs),
    /// Read a Debezium connector's configuration
    #[command(
        long_about = "For those who come from Debezium: what becomes of each key of a connector's configuration, and the native \
            configuration that does the same. docs/migrate-from-debezium.md leads through the whole move.",
        after_help = EXIT_CODES,
        subcommand_required = true,
        arg_required_else_help = true
    )]
    Debezium {
        /// What to do.
        #[command(subcommand)]
        command: DebeziumCommand,
    },
}

/// `posthaste run`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct RunArgs {
    /// Where the configuration is.
    #[command(flatten)]
    pub config: FileArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// End at the first problem, also at those that may heal by themselves
    #[arg(long)]
    pub fail_fast: bool,
    /// Create publication and slot where they are missing, as source.create = true does
    #[arg(long)]
    pub create: bool,
    /// Go on from the slot's own position where the one that was written down is missing or does not fit
    ///
    /// For one start, after a person decided about the events concerned: docs/operations.md, "A position that does not fit".
    #[arg(long)]
    pub accept_slot_position: bool,
    /// Make a slot anew that the server gave up or that is gone, which leaves a gap
    ///
    /// For one start, after a person decided about the events concerned: docs/operations.md, "Losing the slot".
    #[arg(long)]
    pub recreate_lost_slot: bool,
}

/// `posthaste check`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct CheckArgs {
    /// Where the configuration is.
    #[command(flatten)]
    pub config: FileArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// `posthaste config`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct ConfigArgs {
    /// Where the configuration is.
    #[command(flatten)]
    pub config: FileArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Where the configuration is, and what overrides it.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct FileArgs {
    /// Configuration file: ours in TOML, or a Debezium connector's (JSON, properties, YAML)
    ///
    /// Every key can be overridden by an environment variable such as POSTHASTE__SOURCE__URL, and by --set. The key
    /// reference is docs/configuration.md.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub file: PathBuf,
    /// Format of the file, if name and content do not tell: toml, connect-json, connect-properties, strimzi-yaml or debezium-server
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// What stands beside a Debezium connector's file.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Override one key; may be given several times, the last one wins
    ///
    /// The value is TOML or plain text: --set source.create=true, --set source.slot=outbox. Names of Kafka properties stand in
    /// quotes: --set 'kafka.properties."security.protocol"=SSL'. Others on this machine can see the command line: give
    /// secrets by environment or file.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<SetArgument>,
}

/// How to log.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct LogArgs {
    /// Form of log lines: auto (text on a terminal, else json), text or json; overrides log.format
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Least important level to log, or directives such as info,replication=debug; overrides log.level
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// A `KEY=VALUE` as written. Anything is taken here and judged later, because clap repeats what it refuses, and this may hold
/// a password.
#[derive(Clone)]
pub struct SetArgument(String);

impl SetArgument {
    /// The text with its value.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SetArgument {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl std::fmt::Debug for SetArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetArgument(********)")
    }
}

impl RunArgs {
    /// What [`crate::config::load`] needs.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            create: self.create,
            ..self.config.request(&self.log)
        }
    }
}

impl FileArgs {
    /// What [`crate::config::load`] needs, with the environment of this process.
    #[must_use]
    pub fn request(&self, log: &LogArgs) -> Request {
        Request {
            file: self.file.clone(),
            format: self.format.clone(),
            connect: self.connect.files(self.file.clone(), self.format.clone()),
            create: false,
            set: self
                .set
                .iter()
                .map(|argument| argument.reveal().to_owned())
                .collect(),
            log_format: log.log_format.clone(),
            log_level: log.log_level.clone(),
            environment: std::env::vars_os().collect(),
        }
    }
}

/// Shown below every help text, because scripts depend on it.
pub(crate) const EXIT_CODES: &str = "\
Exit status:
  0  stopped clean
  1  unexpected error
  2  configuration or command line wrong
  3  precondition not met, or an error that does not heal by itself
  4  drain limit reached: events not acknowledged in time are sent again at the next start
  5  reconcile: rows are left that are missing in their topics, or may be; debezium diff: something differs

Messages carry stable codes (PH0123); docs/errors.md explains each.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["posthaste"], arguments].concat())
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_text_has_the_exit_status() {
        for arguments in [
            &["--help"][..],
            &["run", "--help"],
            &["check", "--help"],
            &["config", "--help"],
            &["debezium", "--help"],
            &["debezium", "check", "--help"],
            &["debezium", "convert", "--help"],
            &["reconcile", "--help"],
            &["debezium", "takeover", "--help"],
            &["debezium", "diff", "--help"],
            &["parked", "--help"],
            &["parked", "retry", "--help"],
            &["skip", "--help"],
            &["run", "-h"],
        ] {
            let help = parse(arguments)
                .expect_err("help is no command")
                .to_string();
            for status in ["0  stopped clean", "2  configuration", "4  drain limit"] {
                assert!(help.contains(status), "{arguments:?}: {help}");
            }
        }
    }

    #[test]
    fn run_takes_its_options() {
        let cli = parse(&[
            "run",
            "-c",
            "f.toml",
            "--set",
            "a.b=1",
            "--set",
            "c.d=2",
            "--fail-fast",
            "--log-format",
            "json",
            "--log-level",
            "debug",
        ])
        .expect("legal");
        let Command::Run(run) = cli.command else {
            panic!("not run")
        };
        let request = run.config.request(&run.log);
        assert_eq!(request.set, ["a.b=1", "c.d=2"]);
        assert_eq!(request.log_format.as_deref(), Some("json"));
        assert!(run.fail_fast);
    }

    #[test]
    fn wrong_usage_ends_with_the_status_of_configuration() {
        for arguments in [
            &["run"][..],
            &["rum", "-c", "f"],
            &["run", "-c", "f", "--fail-slow"],
            &[],
        ] {
            assert_eq!(
                parse(arguments).expect_err("refused").exit_code(),
                2,
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn a_password_in_an_argument_shows_nowhere() {
        let shown = format!(
            "{:?}",
            parse(&["run", "-c", "f", "--set", "source.password=hunter2"])
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        let error = parse(&["run", "--set", "source.password hunter2"]).expect_err("no file");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
