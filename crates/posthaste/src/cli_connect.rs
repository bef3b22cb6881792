//! The command line where Kafka Connect's files are read: `posthaste debezium …`, and the options they share with `run`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use router::connect::DebeziumVersion;

use crate::cli::EXIT_CODES;
use crate::config::Request;
use crate::connect_file::ConnectFiles;

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
