//! What a comparison leaves out. Every rule is given by a person, and counts what it was needed for.

use std::fmt;
use std::str::FromStr;

use sink::ReadRecord;

/// One thing that may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Headers of this name, altogether.
    Header(String),
    /// The value of headers of this name; they have to be there, and in their place.
    HeaderValue(String),
    /// The record's timestamp.
    Timestamp,
    /// The partition.
    Partition,
    /// Records whose event came shortly before on the same side.
    Repeats,
    /// What one side alone has at the beginning or the end of a partition.
    Edges,
}

/// The rules of one comparison.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<(Kind, u64)>,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((kind, name)) = text.split_once(':')
            && !name.is_empty()
        {
            match kind {
                "header" => return Ok(Self::Header(name.to_owned())),
                "header-value" => return Ok(Self::HeaderValue(name.to_owned())),
                _ => {}
            }
        }
        match text {
            "timestamp" => Ok(Self::Timestamp),
            "partition" => Ok(Self::Partition),
            "repeats" => Ok(Self::Repeats),
            "edges" => Ok(Self::Edges),
            _ => Err(
                "one of header:NAME, header-value:NAME, timestamp, partition, repeats, edges is needed"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::HeaderValue(name) => write!(f, "header-value:{name}"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Partition => f.write_str("partition"),
            Self::Repeats => f.write_str("repeats"),
            Self::Edges => f.write_str("edges"),
        }
    }
}

type Header = (String, Option<Vec<u8>>);

impl Rules {
    /// These rules, none of them used yet.
    #[must_use]
    pub fn new(kinds: &[Kind]) -> Self {
        Self {
            rules: kinds.iter().map(|kind| (kind.clone(), 0)).collect(),
        }
    }

    /// Whether there is such a rule.
    #[must_use]
    pub fn has(&self, kind: &Kind) -> bool {
        self.rules.iter().any(|(rule, _)| rule == kind)
    }

    /// Whether there is such a rule, which is then counted as used so often.
    pub fn apply(&mut self, kind: Kind, times: u64) -> bool {
        let rule = self.rules.iter_mut().find(|(rule, _)| *rule == kind);
        rule.map(|(_, used)| *used += times).is_some()
    }

    /// Whether a rule lets values of this header differ.
    pub(crate) fn apply_to_value(&mut self, name: &str) -> bool {
        self.apply(Kind::HeaderValue(name.to_owned()), 1)
    }

    /// The left record's headers without those that rules leave out; a rule counts where the two records differ in them.
    pub(crate) fn headers_left<'r>(
        &mut self,
        left: &'r ReadRecord,
        right: &ReadRecord,
    ) -> Vec<&'r Header> {
        for (rule, used) in &mut self.rules {
            if let Kind::Header(name) = rule {
                let of = |record: &'_ ReadRecord| -> Vec<Header> {
                    let headers = record.headers.iter();
                    headers
                        .filter(|(found, _)| found == name)
                        .cloned()
                        .collect()
                };
                *used += u64::from(of(left) != of(right));
            }
        }
        self.headers_left_of(left)
    }

    /// A record's headers without those that rules leave out.
    pub(crate) fn headers_left_of<'r>(&self, record: &'r ReadRecord) -> Vec<&'r Header> {
        let dropped = |name: &str| {
            self.rules
                .iter()
                .any(|(rule, _)| matches!(rule, Kind::Header(header) if header == name))
        };
        record
            .headers
            .iter()
            .filter(|(name, _)| !dropped(name))
            .collect()
    }

    /// Each rule and how often it was needed.
    pub fn used(&self) -> impl Iterator<Item = (&Kind, u64)> {
        self.rules.iter().map(|(rule, used)| (rule, *used))
    }

    /// Rules that nothing needed: most likely they do not mean what was intended.
    pub fn unused(&self) -> impl Iterator<Item = &Kind> {
        self.rules
            .iter()
            .filter(|(_, used)| *used == 0)
            .map(|(rule, _)| rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_shown() {
        for text in [
            "header:a:b",
            "header-value:__debezium.context.runId",
            "timestamp",
            "partition",
            "repeats",
            "edges",
        ] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for text in ["", "header", "header:", "key", "value", "Timestamp"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
