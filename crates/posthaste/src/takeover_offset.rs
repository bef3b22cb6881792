//! The offset that Debezium stored, from where it lies: the offsets topic, a file, or Connect's answer on standard input.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

use debezium::NativeConfig;
use debezium::offset::{OffsetError, OffsetLog, StoredOffset, read_bytes};
use sink::{ReadTopicError, TopicReader};

use crate::codes::{Code, Problem};
use crate::config::Pipeline;
use crate::{explain, settings};

/// Where the offset is to be read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetSource {
    /// The topic; without a name, the one of the configuration.
    Topic(Option<String>),
    /// A file in one of the forms that [`read_bytes`] takes.
    File(PathBuf),
    /// The same, on standard input.
    StandardInput,
}

impl FromStr for OffsetSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "topic" => Self::Topic(None),
            "-" => Self::StandardInput,
            _ => match text.strip_prefix("topic:") {
                Some(name) => Self::Topic(Some(name.to_owned())),
                None => Self::File(text.into()),
            },
        })
    }
}

impl fmt::Display for OffsetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(None) => f.write_str("the offsets topic"),
            Self::Topic(Some(name)) => write!(f, "topic {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::StandardInput => f.write_str("standard input"),
        }
    }
}

/// Whose offset is looked for: its key in the topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) connector: &'a str,
    pub(crate) prefix: &'a str,
}

/// Reads the newest offset of the connector. Blocks.
///
/// # Errors
/// [`Code::OffsetUnreadable`], [`Code::OffsetMissing`], [`Code::TopicUnreadable`].
pub(crate) fn read(
    source: &OffsetSource,
    key: Key<'_>,
    native: &NativeConfig,
    pipeline: &Pipeline,
) -> Result<StoredOffset, Problem> {
    let stored = match source {
        OffsetSource::Topic(name) => {
            let topic = name.as_ref().or(native.offsets_topic.as_ref());
            let topic = topic.ok_or_else(no_topic)?;
            return read_topic(topic, key, pipeline);
        }
        OffsetSource::File(path) => File::open(path).and_then(read_all),
        OffsetSource::StandardInput => read_all(std::io::stdin().lock()),
    };
    let unreadable = |found: String| {
        Problem::new(Code::OffsetUnreadable, source.to_string())
            .found(found)
            .needed("Connect's answer to GET /connectors/NAME/offsets, lines of the offsets topic, or a standalone worker's offsets file")
    };
    let bytes = stored.map_err(|error| {
        unreadable(error.to_string())
            .fix("give --offsets topic, --offsets FILE, or --offsets - for standard input")
            .caused_by(error)
    })?;
    let bytes = bytes.ok_or_else(|| {
        unreadable("more than 16 MiB".to_owned())
            .fix("give the part that is about this connector, or --offsets topic")
    })?;
    read_bytes(&bytes, key.connector, key.prefix).map_err(|error| explain_offset(source, error))
}

/// All bytes; `None` if there are too many for a file of offsets.
fn read_all(from: impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes))
}

/// Each partition from its beginning to where it ended a moment ago. Of a key that stands in several partitions, because their
/// number was changed, nobody can say which record is the last.
fn read_topic(topic: &str, key: Key<'_>, pipeline: &Pipeline) -> Result<StoredOffset, Problem> {
    let source = OffsetSource::Topic(Some(topic.to_owned()));
    let mut reader =
        TopicReader::new(&settings::kafka_config(pipeline)).map_err(explain::kafka_config)?;
    let partitions = reader.partitions(topic).map_err(unreadable)?;
    if partitions == 0 {
        return Err(Problem::new(Code::TopicUnreadable, source.to_string())
            .found("no topic of this name that this client may see")
            .needed("the worker's offset.storage.topic")
            .fix("give --offsets topic:NAME, or the brokers that the worker uses"));
    }
    let mut found = OffsetLog::new(key.connector, key.prefix);
    let mut places = Vec::new();
    for partition in 0..partitions {
        let (first, end) = reader.bounds(topic, partition).map_err(unreadable)?;
        reader
            .read(topic, partition, first, end)
            .map_err(unreadable)?;
        let before = found.matches();
        while let Some(record) = reader.next_record().map_err(unreadable)? {
            let Some(record_key) = &record.key else {
                continue;
            };
            found
                .push(record_key, record.payload.as_deref())
                .map_err(|error| explain_offset(&source, error))?;
        }
        if found.matches() > before {
            places.push(partition.to_string());
        }
    }
    if places.len() > 1 {
        return Err(Problem::new(Code::OffsetUnreadable, source.to_string())
            .found(format!("offsets of connector {} in partitions {}", key.connector, places.join(", ")))
            .needed("one partition with all of them, as long as nobody changes the number of partitions")
            .fix("give what Connect itself takes for the offset: --offsets FILE with its answer to GET /connectors/NAME/offsets"));
    }
    found
        .finish()
        .map_err(|error| explain_offset(&source, error))
}

fn no_topic() -> Problem {
    Problem::new(Code::OffsetUnreadable, "--offsets topic")
        .found("no offset.storage.topic in the worker's file, and no offsets.storage.topic in the connector's")
        .needed("the topic's name")
        .fix("give --worker FILE, or --offsets topic:NAME")
}

fn explain_offset(source: &OffsetSource, error: OffsetError) -> Problem {
    let code = match error {
        OffsetError::NotFound { .. } | OffsetError::Deleted => Code::OffsetMissing,
        _ => Code::OffsetUnreadable,
    };
    let fix = match error {
        OffsetError::NotFound { .. } => {
            "check name and topic.prefix, and that this is where the worker stores offsets; if the connector ran under another \
             name, give it with --connector"
        }
        _ => "",
    };
    Problem::new(code, source.to_string())
        .found(error.to_string())
        .fix(fix)
        .caused_by(error)
}

/// What a topic that cannot be read means.
pub(crate) fn unreadable(error: ReadTopicError) -> Problem {
    Problem::new(Code::TopicUnreadable, error.what.clone())
        .found(error.reason.clone())
        .needed("brokers that answer, and the right to read the topic")
        .fix("check brokers, login and rights")
        .caused_by(error)
}

/// A file of offsets holds one line for each connector and partition.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_topic_a_file_or_standard_input() {
        let source = |text: &str| text.parse::<OffsetSource>().unwrap();
        assert_eq!(source("topic"), OffsetSource::Topic(None));
        assert_eq!(
            source("topic:a.b"),
            OffsetSource::Topic(Some("a.b".to_owned()))
        );
        assert_eq!(source("-"), OffsetSource::StandardInput);
        assert_eq!(source("./topic"), OffsetSource::File("./topic".into()));
    }
}
