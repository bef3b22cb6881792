//! The command line where Kafka Connect's files are read: `posthaste debezium …`, and the options they share with `run`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use debezium::Reading;
use router::connect::DebeziumVersion;

use crate::cli::{EXIT_CODES, FileArgs, LogArgs};
use crate::cli_diff::DiffArgs;
use crate::config::Request;
use crate::connect_file::ConnectFiles;
use crate::takeover_offset::OffsetSource;

/// One of the commands for those who come from Debezium.
#[derive(Debug, Subcommand)]
pub enum DebeziumCommand {
    /// Report on every key of a connector's configuration
    #[command(
        long_about = "Prints one line for each key of a Debezium connector's configuration: kept, mapped (to what), ignored (why \
            it is safe), warning, or refused (what to do); then the defaults that another version of Debezium would not use; and \
            last whether `run` would start: with status 0 if so, else 2. Nothing is connected.",
        after_help = EXIT_CODES
    )]
    Check(ConvertArgs),
    /// Print the native configuration that does the same
    #[command(
        long_about = "Prints a configuration in TOML that does what the connector does, without its secrets: comments say how to give \
            them. `run` takes the connector's own file as well.",
        after_help = EXIT_CODES
    )]
    Convert(ConvertArgs),
    /// Go on from a stopped connector, on its own slot
    #[command(
        long_about = "Compares the offset that Connect stored with the slot, says where `run` will start and how many events may be sent \
            again, and refuses where events could be missing. Without --yes nothing is written. With --yes the decision is put into \
            the state directory, where `run` finds it, uses it once and removes it. The slot is never made and never moved, and \
            nothing is written to Kafka.\n\n\
            Two variants: at-least-once sends the transaction again in whose middle the offset stands; skip leaves out those of its \
            rows that the offset names as done. Rows that share the stored position without a count (COPY under Debezium 3.6) are \
            sent again, never skipped.",
        after_help = EXIT_CODES
    )]
    Takeover(TakeoverArgs),
    /// Compare two topics record by record
    #[command(
        long_about = "Reads two topics, or all topics of two prefixes, and reports the records that differ in key, value, headers (with \
            their order), partition or timestamp, and those that one side lacks. Each partition is compared in its order, in bounded \
            memory: records of one event (header id) with each other; where one side has more, the next common event is looked for. \
            Ends with status 0 if nothing differs, with 5 if something does or if a rule given with --ignore was not needed.",
        after_help = EXIT_CODES
    )]
    Diff(DiffArgs),
}

/// `posthaste debezium takeover`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct TakeoverArgs {
    /// The connector's configuration, as `run` gets it.
    #[command(flatten)]
    pub config: FileArgs,
    /// Where the offset is stored: topic (the worker's offset.storage.topic), topic:NAME, a file, or - for standard input
    ///
    /// A file holds Connect's answer to GET /connectors/NAME/offsets, lines of KEY, a tab and VALUE from the offsets topic, the offset's
    /// JSON object alone, or is the offsets file of a standalone worker or of Debezium Server.
    #[arg(long, value_name = "SOURCE")]
    pub offsets: OffsetSource,
    /// Name under which the connector stored its offset, if the file does not say it
    #[arg(long, value_name = "NAME")]
    pub connector: Option<String>,
    /// What to do with the transaction that may have been published in part
    #[arg(long, value_enum, default_value_t, value_name = "VARIANT")]
    pub variant: VariantArgument,
    /// Write the decision down for `run`
    #[arg(long)]
    pub yes: bool,
    /// Only say what would be done, which is the default
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
}

/// What to do with the transaction in whose middle the offset stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum VariantArgument {
    /// Send it again as a whole
    #[default]
    AtLeastOnce,
    /// Leave out those of its rows that the offset names as done
    Skip,
}

impl TakeoverArgs {
    /// The files to read.
    #[must_use]
    pub fn files(&self) -> ConnectFiles {
        let config = &self.config;
        config
            .connect
            .files(config.file.clone(), config.format.clone())
    }

    /// The same as `run` would be given it; the file is read as what it was found to be.
    pub(crate) fn request(&self, reading: &Reading) -> Request {
        let log = LogArgs {
            log_format: None,
            log_level: None,
        };
        Request {
            format: Some(reading.format.to_string()),
            ..self.config.request(&log)
        }
    }
}

/// `posthaste debezium check` and `convert`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct ConvertArgs {
    /// Connector configuration: Connect's JSON, a properties file, a KafkaConnector in YAML, or Debezium Server's application.properties
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Format of the file, if name and content do not tell: connect-json, connect-properties, strimzi-yaml or debezium-server
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// What stands beside the file.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What stands beside a connector's file.
#[derive(Debug, Args, Default)]
#[non_exhaustive]
pub struct ConnectArgs {
    /// Properties file of the Connect worker: brokers, converters, producer.*, config.providers
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
    /// Bootstrap brokers, if there is no worker's file: host:port,host:port
    #[arg(long, value_name = "BROKERS")]
    pub brokers: Option<String>,
    /// Version of Debezium whose behaviour is followed where versions differ [default: 3.6.1]
    #[arg(long, value_name = "VERSION")]
    pub debezium_version: Option<DebeziumVersion>,
    /// Folder with the secrets that ${secrets:NAMESPACE/NAME:KEY} means, as files NAMESPACE/NAME/KEY or NAME/KEY
    #[arg(long, value_name = "DIRECTORY")]
    pub secrets_directory: Option<PathBuf>,
}

impl ConvertArgs {
    /// The files to read.
    #[must_use]
    pub fn files(&self) -> ConnectFiles {
        self.connect.files(self.file.clone(), self.format.clone())
    }

    /// The same as `run` would be given it.
    pub(crate) fn request(&self) -> Request {
        // Of our own format there is nothing to convert, so that any file is taken for a connector's.
        let format = self.format.clone().or_else(|| {
            let reading = self.files().read().ok()?;
            Some(reading.format.to_string())
        });
        Request {
            file: self.file.clone(),
            format,
            connect: self.files(),
            environment: std::env::vars_os().collect(),
            ..Request::default()
        }
    }
}

impl ConnectArgs {
    pub(crate) fn files(&self, file: PathBuf, format: Option<String>) -> ConnectFiles {
        ConnectFiles {
            file,
            format,
            worker: self.worker.clone(),
            brokers: self.brokers.clone(),
            version: self.debezium_version,
            secrets_directory: self.secrets_directory.clone(),
        }
    }
}
