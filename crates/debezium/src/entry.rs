//! The keys of one file, in its order, each with its line: what all formats come down to.

use std::collections::BTreeMap;
use std::fmt;

use crate::finding::Verdict;

/// One key and its text. All values are text in Kafka Connect, whatever the file's format calls them.
///
/// `Debug` leaves the value out: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// `None` where the file says null, which Connect takes as "not given".
    pub(crate) value: Option<String>,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Entry {
    pub(crate) fn new(key: impl Into<String>, value: impl Into<String>, line: usize) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            line,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.line)
    }
}

/// A remark on the file as such, made before its keys are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remark {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

/// What a file says, in Kafka Connect's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// The connector's name, where the format has it outside the keys.
    pub(crate) name: Option<String>,
    /// The connector's keys.
    pub(crate) entries: Vec<Entry>,
    /// What Debezium Server has in the same file and Connect in the worker's: `producer.*`, converters' defaults.
    pub(crate) worker: Vec<Entry>,
    /// Where the file has other names than Connect: each line's own, for the report.
    pub(crate) own_names: Option<BTreeMap<usize, String>>,
    /// What is to be said of keys that are not the connector's.
    pub(crate) remarks: Vec<Remark>,
}

impl Document {
    pub(crate) fn remark(&mut self, key: &str, line: usize, verdict: Verdict, text: &str) {
        self.remarks.push(Remark {
            key: key.to_owned(),
            line,
            verdict,
            text: text.to_owned(),
        });
    }
}

/// The line in which the byte at `offset` stands, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}
