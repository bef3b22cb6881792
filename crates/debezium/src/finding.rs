//! The report: what became of each key, and why.

use std::fmt;

/// What is said of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The key, as it stands in the file.
    pub key: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Where it stands.
    pub origin: Origin,
    /// Why, or what to do. Holds no secret.
    pub text: String,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It cannot be followed: nothing starts before it is changed.
    Refused,
    /// It is followed or not, as the finding says, and should be looked at.
    Warned,
    /// It means something under another name here.
    Mapped,
    /// It means here what it meant there.
    Kept,
    /// It has no effect, and need not have one.
    Ignored,
}

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// In the connector's file, on this line; 0 for a key that is not there and should be.
    Connector(usize),
    /// In the worker's file, on this line.
    Worker(usize),
}

impl Origin {
    pub(crate) fn is_worker(self) -> bool {
        matches!(self, Self::Worker(_))
    }

    pub(crate) fn line(self) -> usize {
        match self {
            Self::Connector(line) | Self::Worker(line) => line,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "refused",
            Self::Warned => "warning",
            Self::Mapped => "mapped",
            Self::Kept => "kept",
            Self::Ignored => "ignored",
        })
    }
}

impl fmt::Display for Finding {
    /// One line, as `check` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.verdict, self.key)?;
        if self.origin.line() > 0 {
            let file = if self.origin.is_worker() {
                "worker, "
            } else {
                ""
            };
            write!(f, " ({file}line {})", self.origin.line())?;
        }
        write!(f, ": {}", self.text)
    }
}

/// A default that depends on the version and was used, as the key is not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultUsed {
    /// The key.
    pub key: String,
    /// What holds.
    pub value: String,
    /// What changes with the version.
    pub text: String,
}

impl fmt::Display for DefaultUsed {
    /// One line, as `check` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "default  {} = {}: {}", self.key, self.value, self.text)
    }
}
