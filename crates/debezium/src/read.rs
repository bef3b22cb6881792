//! The way from texts to a [`Reading`]: parse, look at each key, map, look at the whole.

use std::fmt;

use router::connect::DebeziumVersion;

use crate::classify::classify;
use crate::entry::{Document, Entry};
use crate::error::ReadError;
use crate::finding::{DefaultUsed, Finding, Verdict};
use crate::format::Format;
use crate::lint::{lint, refused_by_router};
use crate::map_connect::connect;
use crate::map_kafka::kafka;
use crate::map_source::source;
use crate::native::NativeConfig;
use crate::properties;
use crate::providers::{Lookup, Providers};
use crate::reader::{File, Reader};
use crate::yaml;

/// What is to be read. Has no `Debug`: the texts hold secrets.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The connector's file.
    pub text: &'a str,
    /// Its name, for messages and to tell its format.
    pub name: &'a str,
    /// Its format, where it is not to be told from name and text.
    pub format: Option<Format>,
    /// The text of the worker's properties file.
    pub worker: Option<&'a str>,
    /// Brokers, instead of those in the worker's file.
    pub brokers: Option<&'a str>,
    /// The version whose behaviour is followed.
    pub version: DebeziumVersion,
    /// Where Kubernetes' secrets are mounted, as `NAMESPACE/NAME/KEY` or `NAME/KEY`.
    pub secrets_directory: Option<&'a str>,
    /// How files and variables are asked for.
    pub lookup: &'a dyn Lookup,
}

impl<'a> Input<'a> {
    /// A connector's file alone, at the default version.
    #[must_use]
    pub fn new(text: &'a str, name: &'a str, lookup: &'a dyn Lookup) -> Self {
        Self {
            text,
            name,
            format: None,
            worker: None,
            brokers: None,
            version: DebeziumVersion::default(),
            secrets_directory: None,
            lookup,
        }
    }
}

/// What a configuration was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// How the text was read.
    pub format: Format,
    /// One for each key at least, in the order of the file; first of all what is missing.
    pub findings: Vec<Finding>,
    /// The configuration to run; `None` if anything was refused.
    pub native: Option<NativeConfig>,
    /// The defaults that would be others at another version.
    pub defaults_used: Vec<DefaultUsed>,
}

impl Reading {
    /// What stands in the way of a start.
    pub fn refused(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.verdict == Verdict::Refused)
    }
}

impl fmt::Display for Reading {
    /// The report that `check` prints: a line for each finding and each default, and whether a start is possible.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "read as {}\n", self.format)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for default in &self.defaults_used {
            writeln!(f, "{default}")?;
        }
        let refused = self.refused().count();
        match &self.native {
            None => write!(f, "\nrun would not start: {refused} refused"),
            Some(native) => write!(f, "\nrun would start{}", native.source.first_start),
        }
    }
}

/// The oldest version whose behaviour is known, and the first that is not.
const VERSIONS: (DebeziumVersion, DebeziumVersion) =
    (DebeziumVersion::new(2, 5, 0), DebeziumVersion::new(3, 8, 0));

/// Reads a configuration.
///
/// # Errors
/// If the text breaks its format's rules, is no connector's, or the version is not known. What is wrong with single
/// keys is no error but a [`Finding`].
pub fn read(input: &Input<'_>) -> Result<Reading, ReadError> {
    if input.version < VERSIONS.0 || input.version >= VERSIONS.1 {
        return Err(ReadError::argument(
            &input.version.to_string(),
            "a version of Debezium whose behaviour is not known here",
            "give --debezium-version from 2.5 to 3.7; of an older one the configuration has to be brought to \
                those names first",
        ));
    }
    let format = input
        .format
        .unwrap_or_else(|| Format::detect(input.name, input.text));
    let mut document = format
        .parse(input.text)
        .map_err(|error| error.in_file(input.name))?;
    let worker = worker(input, &mut document)?;
    let declared = input
        .worker
        .is_some()
        .then_some(worker.as_deref())
        .flatten();
    let providers = Providers::new(input.lookup, input.secrets_directory, declared);
    let mut reader = Reader::new(input.version, &document, worker.as_deref(), &providers);
    classify(&mut reader);
    let native = native(&mut reader, &document, input.brokers);
    let runs = !reader.any_refused();
    let (findings, defaults_used) = reader.finish();
    Ok(Reading {
        format,
        findings,
        native: runs.then_some(native),
        defaults_used,
    })
}

/// A properties file, or Strimzi's resource.
fn worker_entries(text: &str) -> Result<Vec<Entry>, ReadError> {
    match yaml::parse_worker(text)? {
        Some(entries) => Ok(entries),
        None => properties::parse(text),
    }
}

/// The worker's keys: of its file, and what Debezium Server has in the same one.
fn worker(input: &Input<'_>, document: &mut Document) -> Result<Option<Vec<Entry>>, ReadError> {
    let own = std::mem::take(&mut document.worker);
    let given = input.worker.map(worker_entries).transpose();
    let given = given.map_err(|error| error.in_file("the worker's file"))?;
    Ok(match given {
        Some(mut entries) => {
            entries.extend(own);
            Some(entries)
        }
        None => (!own.is_empty()).then_some(own),
    })
}

/// The connector's own topic, which exactly-once connectors may have, before the worker's.
fn offsets_topic(reader: &Reader) -> Option<String> {
    let own = reader.filled("offsets.storage.topic");
    let worker = || reader.value(File::Worker, "offset.storage.topic");
    own.or_else(|| worker().map(|value| value.text.trim()))
        .filter(|topic| !topic.is_empty())
        .map(str::to_owned)
}

fn native(reader: &mut Reader, document: &Document, brokers: Option<&str>) -> NativeConfig {
    let name = reader
        .get("name")
        .map(str::to_owned)
        .or_else(|| document.name.clone());
    let mut native = NativeConfig {
        name: name.unwrap_or_default(),
        source: source(reader),
        connect: connect(reader),
        offsets_topic: offsets_topic(reader),
        kafka: kafka(reader, brokers),
    };
    lint(reader, &mut native);
    if !reader.any_refused() {
        refused_by_router(reader, &native.connect);
    }
    native
}
