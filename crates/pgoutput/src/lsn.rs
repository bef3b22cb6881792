//! `Lsn`: a position in the write-ahead log. Parse, print, order; nothing else.

use std::fmt;
use std::str::FromStr;

/// A byte position in the write-ahead log ("log sequence number").
///
/// Only comparisons and distances make sense, so there is no arithmetic that yields another
/// position: every `Lsn` in the program came from the server or from text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// The server's "invalid" position; sent in START_REPLICATION it means "where the slot stands".
    pub const ZERO: Self = Self(0);

    /// The position with this number, as it stands on the wire.
    #[must_use]
    pub const fn new(position: u64) -> Self {
        Self(position)
    }

    /// The number of this position, as it stands on the wire.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Bytes of log from `earlier` to here; 0 when `earlier` is in truth later.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

// Debug output ends up beside server logs, which know only this notation.
impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({self})")
    }
}

impl FromStr for Lsn {
    type Err = ParseLsnError;

    /// Reads `X/X` as the type `pg_lsn` does: two hexadecimal halves of one to eight digits.
    fn from_str(text: &str) -> Result<Self, ParseLsnError> {
        let (high, low) = text.split_once('/').ok_or(ParseLsnError)?;
        Ok(Self((parse_half(high)? << 32) | parse_half(low)?))
    }
}

/// The text was not two hexadecimal numbers of at most eight digits around a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a log position: expected two hexadecimal numbers around a slash, like 16/B374D848")]
pub struct ParseLsnError;

fn parse_half(digits: &str) -> Result<u64, ParseLsnError> {
    // from_str_radix alone would take a sign and any number of leading zeros; pg_lsn takes neither.
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ParseLsnError);
    }
    u64::from_str_radix(digits, 16).map_err(|_| ParseLsnError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(
            text.parse::<Lsn>().ok().map(Lsn::as_u64),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn reads_the_servers_notation() {
        check("16/B374D848", Some(0x16_B374_D848));
        check("0/0", Some(0));
        check("0/16b3748", Some(0x16B_3748));
        check("FFFFFFFF/FFFFFFFF", Some(u64::MAX));
    }

    #[test]
    fn refuses_what_pg_lsn_refuses() {
        for text in [
            "",
            "/",
            "0",
            "0/",
            "/0",
            "G/0",
            "+1/0",
            "-1/0",
            "0/123456789",
            "1/2/3",
            " 0/0",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn prints_without_padding() {
        assert_eq!(Lsn::new(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!(Lsn::new(0x1_0000_000A).to_string(), "1/A");
        assert_eq!(Lsn::ZERO.to_string(), "0/0");
        assert_eq!(format!("{:?}", Lsn::new(0x2A)), "Lsn(0/2A)");
    }

    #[test]
    fn orders_by_position_not_by_text() {
        assert!(Lsn::new(0x9) < Lsn::new(0x1_0000_0000));
    }

    #[test]
    fn distance_never_wraps() {
        assert_eq!(Lsn::new(10).bytes_since(Lsn::new(4)), 6);
        assert_eq!(Lsn::new(4).bytes_since(Lsn::new(10)), 0);
    }
}
