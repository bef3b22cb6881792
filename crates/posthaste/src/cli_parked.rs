//! The command line of poison events: `posthaste parked …` and `posthaste skip`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pgoutput::RowId;

use crate::cli::{EXIT_CODES, FileArgs, LogArgs};

/// One of the commands for parked events. They only change rows; the running connector publishes.
#[derive(Debug, Subcommand)]
pub enum ParkedCommand {
    /// List parked events, in stream order
    #[command(after_help = EXIT_CODES)]
    List(ListArgs),
    /// Show one parked event with its columns
    #[command(after_help = EXIT_CODES)]
    Show(OneArgs),
    /// Change columns of a parked event
    #[command(
        long_about = "Changes columns of a parked event, before it is tried again. Its place in the order stays: it belongs to the \
            aggregate it was parked with.",
        after_help = EXIT_CODES
    )]
    Edit(EditArgs),
    /// Have parked events published again
    #[command(
        long_about = "Queues held events. The running connector publishes them within about a second, in stream order and through its own \
            producer, and then what is parked behind them. One that is refused again is held again.",
        after_help = EXIT_CODES
    )]
    Retry(SelectArgs),
    /// Give parked events up
    #[command(
        long_about = "Discards parked events: they are never published. What is parked behind them is published, once nothing before it \
            is held.",
        after_help = EXIT_CODES
    )]
    Discard(SelectArgs),
}

/// Where the configuration is.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct Place {
    /// Where the configuration is.
    #[command(flatten)]
    pub config: FileArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// `posthaste parked list`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct ListArgs {
    /// Where the configuration is.
    #[command(flatten)]
    pub place: Place,
    /// Only events of aggregates with this id
    #[arg(long, value_name = "ID")]
    pub aggregate_id: Option<String>,
    /// Published and discarded ones too, as long as they are kept
    #[arg(long)]
    pub all: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: u32,
}

/// `posthaste parked show`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct OneArgs {
    /// Number of the event, as list prints it
    #[arg(value_name = "NUMBER")]
    pub number: i64,
    /// Where the configuration is.
    #[command(flatten)]
    pub place: Place,
}

/// `posthaste parked edit`.
#[derive(Debug, Args)]
#[non_exhaustive]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["column", "column_file", "null"]))]
pub struct EditArgs {
    /// Number of the event, as list prints it
    #[arg(value_name = "NUMBER")]
    pub number: i64,
    /// Where the configuration is.
    #[command(flatten)]
    pub place: Place,
    /// Column and its new text, as PostgreSQL would send it
    #[arg(long, value_name = "COLUMN=TEXT")]
    pub column: Vec<String>,
    /// Column and a file with its new text
    #[arg(long, value_name = "COLUMN=FILE")]
    pub column_file: Vec<String>,
    /// Column to make NULL
    #[arg(long, value_name = "COLUMN")]
    pub null: Vec<String>,
}

/// `posthaste parked retry` and `discard`.
#[derive(Debug, Args)]
#[non_exhaustive]
#[command(group = clap::ArgGroup::new("which").required(true).args(["numbers", "aggregate_id", "all"]))]
pub struct SelectArgs {
    /// Numbers of events, as list prints them
    #[arg(value_name = "NUMBER")]
    pub numbers: Vec<i64>,
    /// All events of the aggregates with this id
    #[arg(long, value_name = "ID")]
    pub aggregate_id: Option<String>,
    /// Only of this type of aggregate
    #[arg(long, value_name = "TYPE", requires = "aggregate_id")]
    pub aggregate_type: Option<String>,
    /// All events of the slot
    #[arg(long)]
    pub all: bool,
    /// Where the configuration is.
    #[command(flatten)]
    pub place: Place,
}

/// `posthaste skip`.
#[derive(Debug, Args)]
#[non_exhaustive]
#[command(group = clap::ArgGroup::new("which").required(true).args(["event", "row"]))]
pub struct SkipArgs {
    /// The event's id, as the message says it
    #[arg(long, value_name = "ID")]
    pub event: Option<String>,
    /// The row's position in the log, as the message says it: 16/B374D848#3
    #[arg(long, value_name = "POSITION")]
    pub row: Option<RowId>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Where the configuration is.
    #[command(flatten)]
    pub place: Place,
}

/// A column with something behind `=`.
pub(crate) fn column_and(text: &str) -> Option<(&str, &str)> {
    text.split_once('=')
        .filter(|(column, _)| !column.is_empty())
}

/// The file of a `--column-file`.
pub(crate) fn column_and_file(text: &str) -> Option<(&str, PathBuf)> {
    column_and(text).map(|(column, file)| (column, file.into()))
}
