//! Stable codes (`PH0301`) and [`Problem`], the one shape in which Posthaste tells a person what is wrong.

use std::error::Error;
use std::fmt;

pub use crate::codes_table::Code;

/// One message for a person: which thing, what was found, what is needed, and what puts it right.
///
/// Displays as a single line, `PH0301: setting wal_level: found "replica"; needed "logical"; fix: …`. Parts that say nothing
/// are left empty and then left out. The text never holds a secret or a payload; the cause is kept apart as
/// [`Error::source`] and never formatted into the message.
#[derive(Debug)]
pub struct Problem {
    /// The stable code; scripts and alerts may rely on it.
    pub code: Code,
    /// The thing the message is about: a key, a slot, a table, a setting.
    pub what: String,
    /// What is there now.
    pub found: String,
    /// What has to be there.
    pub needed: String,
    /// The statement, setting or edit that leads from found to needed.
    pub fix: String,
    /// What lies beneath, for logs that print the whole chain.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem with `what`; the other parts are added by the methods below.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            found: String::new(),
            needed: String::new(),
            fix: String::new(),
            source: None,
        }
    }

    /// Says what is there now.
    #[must_use]
    pub fn found(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    /// Says what has to be there.
    #[must_use]
    pub fn needed(mut self, needed: impl Into<String>) -> Self {
        self.needed = needed.into();
        self
    }

    /// Says what puts it right.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Keeps the cause. It must not hold a secret: it appears wherever an error chain is printed.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The exit status of a process that ends because of this.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.code.exit_code()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code)?;
        let what = if self.what.is_empty() {
            self.code.title()
        } else {
            &self.what
        };
        write_on_one_line(f, what)?;
        let parts = [
            ("found ", &self.found),
            ("needed ", &self.needed),
            ("fix: ", &self.fix),
        ];
        let mut separator = ": ";
        for (label, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            write!(f, "{separator}{label}")?;
            write_on_one_line(f, part)?;
            separator = "; ";
        }
        Ok(())
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// Server texts and names may hold line breaks and terminal controls; a log line must stay one line.
fn write_on_one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        if character.is_control() {
            write!(f, "{}", character.escape_default())?;
        } else {
            write!(f, "{character}")?;
        }
    }
    Ok(())
}

impl Code {
    /// The exit status that goes with this code: 1 unexpected, 2 configuration, 4 stopped with
    /// something unconfirmed, otherwise 3.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match (self, self.number() / 100) {
            (Self::DrainLimitReached | Self::SecondSignal, _) => 4,
            (_, 0) => 1,
            (_, 1) => 2,
            _ => 3,
        }
    }
}

#[cfg(test)]
impl Code {
    /// Whether it never ends the process, with whatever options.
    pub(crate) fn is_warning(self) -> bool {
        matches!(
            self,
            Self::PublicationOperations
                | Self::TableInherited
                | Self::SlotAtRisk
                | Self::SlotNotFailover
                | Self::SlotRecreated
                | Self::TimelineChanged
                | Self::ValueNulled
                | Self::StateUnreadable
                | Self::StateForeign
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PH{:04}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_problem_reads_as_one_line_in_a_fixed_order() {
        let problem = Problem::new(Code::WalLevel, "setting wal_level")
            .fix("ALTER SYSTEM SET wal_level = logical, then restart the server")
            .needed("\"logical\"")
            .found("\"replica\"");
        assert_eq!(
            problem.to_string(),
            "PH0301: setting wal_level: found \"replica\"; needed \"logical\"; \
             fix: ALTER SYSTEM SET wal_level = logical, then restart the server"
        );
    }

    #[test]
    fn empty_parts_are_left_out() {
        assert_eq!(
            Problem::new(Code::WalLevel, "x").fix("do y").to_string(),
            "PH0301: x: fix: do y"
        );
        assert_eq!(Problem::new(Code::WalLevel, "x").to_string(), "PH0301: x");
        assert_eq!(
            Problem::new(Code::WalLevel, "").to_string(),
            format!("PH0301: {}", Code::WalLevel.title())
        );
    }

    #[test]
    fn line_breaks_and_terminal_controls_are_escaped() {
        let problem = Problem::new(Code::Unexpected, "a\nb\u{1b}[31m");
        assert_eq!(problem.to_string(), "PH0001: a\\nb\\u{1b}[31m");
    }

    #[test]
    fn the_cause_is_a_source_and_not_text() {
        let problem = Problem::new(Code::ConfigFileUnreadable, "f")
            .caused_by(std::io::Error::other("disk on fire"));
        assert!(!problem.to_string().contains("fire"));
        assert_eq!(
            problem.source().map(ToString::to_string).as_deref(),
            Some("disk on fire")
        );
    }

    #[test]
    fn exit_statuses_follow_the_groups() {
        assert_eq!(Code::Unexpected.exit_code(), 1);
        assert_eq!(Code::ConfigKeyUnknown.exit_code(), 2);
        assert_eq!(Code::WalLevel.exit_code(), 3);
        assert_eq!(Code::KafkaRecordTooLarge.exit_code(), 3);
        assert_eq!(Code::DrainLimitReached.exit_code(), 4);
        assert_eq!(Code::SecondSignal.exit_code(), 4);
    }

    #[test]
    fn numbers_are_unique_and_ascending() {
        let numbers: Vec<u16> = Code::ALL.iter().map(|code| code.number()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
    }
}
