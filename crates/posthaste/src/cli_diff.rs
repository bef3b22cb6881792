//! The command line of `posthaste debezium diff`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::cli::{FileArgs, LogArgs};
use crate::config::Request;
use crate::config_units::parse_duration;
use crate::diff::Side;
use crate::diff_rules::Kind;

/// `posthaste debezium diff`.
#[derive(Debug, Args)]
#[non_exhaustive]
pub struct DiffArgs {
    /// Where the brokers are and how to sign in: any configuration that `run` takes.
    #[command(flatten)]
    pub config: FileArgs,
    /// Topic of the one side, or with --prefix the beginning of its topics' names
    #[arg(value_name = "LEFT")]
    pub left: String,
    /// Topic of the other side, or the beginning of its topics' names
    #[arg(value_name = "RIGHT")]
    pub right: String,
    /// Compare all topics LEFT… with those named RIGHT… that go on alike
    #[arg(long)]
    pub prefix: bool,
    /// What may differ; may be given several times: header:NAME, header-value:NAME, timestamp, partition, repeats, edges
    ///
    /// header:NAME leaves a header out altogether, header-value:NAME wants it in its place with any value. repeats leaves out records
    /// whose event came shortly before on the same side, edges what one side alone has before the first or after the last common
    /// record of a partition. A rule that nothing needs counts as a difference.
    #[arg(long, value_name = "RULE")]
    pub ignore: Vec<Kind>,
    /// Header that names the event, by which records are brought together; those without it are compared by their place
    #[arg(long, value_name = "HEADER", default_value = "id")]
    pub identity: String,
    /// Begin there: a time in milliseconds since 1970, a duration such as 10m for so long ago, or SIDE/PARTITION=OFFSET
    #[arg(long, value_name = "WHERE")]
    pub from: Vec<Bound>,
    /// End before there, in the same forms; without it, at what is there when the comparison begins
    #[arg(long, value_name = "WHERE")]
    pub until: Vec<Bound>,
    /// Differences told one by one; all are counted
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub show: u64,
    /// Show a few bytes of keys, values and headers where they differ
    #[arg(long)]
    pub show_values: bool,
}

/// A place to begin or to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// Milliseconds since 1970, for all partitions of both sides.
    Time(i64),
    /// So long before now, the same.
    Ago(Duration),
    /// An offset of one partition of one side.
    Offset {
        /// Of which topic.
        side: Side,
        /// Of which partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            "a time in milliseconds since 1970, a duration such as 10m, or left/0=1234 is needed"
                .to_owned()
        };
        if let Some((place, offset)) = text.split_once('=') {
            let (side, partition) = place.split_once('/').ok_or_else(wrong)?;
            let side = match side {
                "left" => Side::Left,
                "right" => Side::Right,
                _ => return Err(wrong()),
            };
            return Ok(Self::Offset {
                side,
                partition: partition.parse().map_err(|_| wrong())?,
                offset: offset.parse().map_err(|_| wrong())?,
            });
        }
        match text.parse() {
            Ok(ms) => Ok(Self::Time(ms)),
            Err(_) => parse_duration(text).map(Self::Ago).map_err(|_| wrong()),
        }
    }
}

impl DiffArgs {
    /// The configuration with the brokers.
    pub(crate) fn request(&self) -> Request {
        let log = LogArgs {
            log_format: None,
            log_level: None,
        };
        self.config.request(&log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_time_an_age_or_an_offset() {
        let bound = |text: &str| text.parse::<Bound>();
        assert_eq!(bound("1790000000000"), Ok(Bound::Time(1_790_000_000_000)));
        assert_eq!(bound("10m"), Ok(Bound::Ago(Duration::from_secs(600))));
        assert_eq!(
            bound("right/2=7"),
            Ok(Bound::Offset {
                side: Side::Right,
                partition: 2,
                offset: 7
            })
        );
        for text in ["", "soon", "middle/0=1", "left/x=1", "left/0=", "left=1"] {
            assert!(bound(text).is_err(), "{text}");
        }
    }
}
