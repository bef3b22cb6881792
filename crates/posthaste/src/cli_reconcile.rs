//! The command line of `posthaste reconcile`.

use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::cli::{FileArgs, LogArgs};
use crate::config_units::parse_duration;
use crate::reconcile::Wish;
use crate::reconcile_rows::Range;

/// `posthaste reconcile`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("range").args(["since", "from_id", "all"]).required(true).multiple(true)))]
#[non_exhaustive]
pub struct ReconcileArgs {
    /// Where the configuration is.
    #[command(flatten)]
    pub config: FileArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Rows written at this time or later, in a form that PostgreSQL reads: 2026-11-30T10:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Rows written before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Column that says when a row was written [default: created_at, if the table has it]
    #[arg(long, value_name = "COLUMN")]
    pub time_column: Option<String>,
    /// Rows from this event id on
    #[arg(long, value_name = "ID")]
    pub from_id: Option<String>,
    /// Rows up to this event id, inclusive
    #[arg(long, value_name = "ID")]
    pub to_id: Option<String>,
    /// All rows of the table
    #[arg(long)]
    pub all: bool,
    /// Publish the missing rows, in the order of their times, with the header posthaste-reconciled
    #[arg(long)]
    pub publish: bool,
    /// Publish also those whose record may have been in the topic and gone: they may come twice
    #[arg(long, requires = "publish")]
    pub include_unknown: bool,
    /// How long to wait for the slot to pass the rows
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub wait: Duration,
}

impl ReconcileArgs {
    /// What was asked for.
    #[must_use]
    pub fn wish(&self) -> Wish {
        Wish {
            range: Range {
                since: self.since.clone(),
                until: self.until.clone(),
                from_id: self.from_id.clone(),
                to_id: self.to_id.clone(),
            },
            time_column: self.time_column.clone(),
            publish: self.publish,
            include_unknown: self.include_unknown,
            wait: self.wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::{Cli, Command};

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["posthaste", "reconcile", "-c", "f"], arguments].concat())
    }

    #[test]
    fn a_range_is_required_and_unknown_rows_are_published_only_beside_missing_ones() {
        for refused in [&[][..], &["--until", "x"], &["--all", "--include-unknown"]] {
            assert!(parse(refused).is_err(), "{refused:?}");
        }
        let cli = parse(&["--since", "2026-01-01", "--publish", "--include-unknown"]);
        let Command::Reconcile(arguments) = cli.expect("legal").command else {
            panic!("not reconcile")
        };
        let wish = arguments.wish();
        assert_eq!(wish.range.since.as_deref(), Some("2026-01-01"));
        assert!(wish.publish && wish.include_unknown);
    }
}
