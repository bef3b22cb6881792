//! What is known of each option: since when it exists, its default, the form of its value and what becomes of it here.
//!
//! The tables are in the neighbouring `keys_*.rs`. An option that is in none of them is unknown.

use router::connect::DebeziumVersion;

use crate::finding::Verdict;

/// An option of Debezium or Kafka Connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What holds where it is not given; the last one whose version is not newer than the one that is followed.
    pub(crate) defaults: &'static [Default],
    /// The version that brought it; older ones ignore it.
    pub(crate) since: DebeziumVersion,
    pub(crate) rule: Rule,
}

/// A default and the version that brought it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Default {
    pub(crate) since: DebeziumVersion,
    pub(crate) value: &'static str,
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    /// A whole number from this one on.
    Int(i64),
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// Works here under the same name.
    Kept(&'static str),
    /// Becomes this native setting.
    Mapped(&'static str),
    /// Has no effect, and why that is safe.
    Ignored(&'static str),
    /// Cannot be followed, and what to do.
    Refused(&'static str),
    /// Each word by itself; any other is refused.
    Words(&'static [(&'static str, Verdict, &'static str)]),
    /// Has no effect with this value; with any other it cannot be followed, and what to do.
    Only(&'static str, &'static str, &'static str),
}

/// The version of the table's oldest options.
pub(crate) const ALWAYS: DebeziumVersion = DebeziumVersion::new(0, 0, 0);

/// An option that has been there all the time, without a default.
pub(crate) const fn key(name: &'static str, kind: Kind, rule: Rule) -> Key {
    Key {
        name,
        kind,
        defaults: &[],
        since: ALWAYS,
        rule,
    }
}

impl Key {
    /// With one default for all versions.
    pub(crate) const fn default(self, defaults: &'static [Default]) -> Self {
        Self { defaults, ..self }
    }

    /// Brought by a version.
    pub(crate) const fn since(self, major: u16, minor: u16, patch: u16) -> Self {
        Self {
            since: DebeziumVersion::new(major, minor, patch),
            ..self
        }
    }

    pub(crate) fn default_at(&self, version: DebeziumVersion) -> Option<&'static Default> {
        self.defaults
            .iter()
            .rev()
            .find(|default| default.since <= version)
    }

    /// Whether the default, or the option's being there at all, depends on the version.
    pub(crate) fn differs_by_version(&self) -> bool {
        self.defaults.len() > 1
    }
}

/// A default that has held all the time.
pub(crate) const fn always(value: &'static str) -> Default {
    Default {
        since: ALWAYS,
        value,
    }
}

/// A default brought by a version.
pub(crate) const fn from(major: u16, minor: u16, patch: u16, value: &'static str) -> Default {
    Default {
        since: DebeziumVersion::new(major, minor, patch),
        value,
    }
}

/// The option of this name.
pub(crate) fn find(table: &'static [Key], name: &str) -> Option<&'static Key> {
    table.iter().find(|key| key.name == name)
}
