//! `RowId`: the one identity of an inserted row in the log, the same each time the stream comes again.

use std::fmt;
use std::str::FromStr;

use crate::Lsn;

/// Which transaction, and which of its inserts. Displays as `16/B374D848#3`.
///
/// It depends on nothing but the log and the publication: a row has the same one in every run. Ordered as the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// Where the transaction's commit record begins, as Begin says.
    pub commit_lsn: Lsn,
    /// Its number among all inserts of the transaction that were received, from 0.
    pub insert_index: u64,
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.commit_lsn, self.insert_index)
    }
}

/// The text was not a log position, `#` and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the position of a row: expected one like 16/B374D848#3")]
pub struct ParseRowIdError;

impl FromStr for RowId {
    type Err = ParseRowIdError;

    fn from_str(text: &str) -> Result<Self, ParseRowIdError> {
        let (lsn, index) = text.split_once('#').ok_or(ParseRowIdError)?;
        if index.is_empty() || !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseRowIdError);
        }
        Ok(Self {
            commit_lsn: lsn.parse().map_err(|_| ParseRowIdError)?,
            insert_index: index.parse().map_err(|_| ParseRowIdError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_read_again() {
        let id = RowId {
            commit_lsn: Lsn::new(0x16_B374_D848),
            insert_index: 3,
        };
        assert_eq!(id.to_string(), "16/B374D848#3");
        assert_eq!("16/B374D848#3".parse(), Ok(id));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "16/B374D848",
            "16/B374D848#",
            "#3",
            "16/1#+3",
            "16/1#3#4",
        ] {
            assert_eq!(text.parse::<RowId>(), Err(ParseRowIdError), "{text}");
        }
    }

    #[test]
    fn rows_are_ordered_as_they_come() {
        let id = |text: &str| text.parse::<RowId>().unwrap();
        assert!(id("0/1#9") < id("0/2#0"));
        assert!(id("0/2#0") < id("0/2#1"));
    }
}
