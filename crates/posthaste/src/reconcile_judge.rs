//! What became of each row of the outbox, as far as the topics show: published, missing, or unknown.
//!
//! Pure. Rows are remembered by 128 bits of a hash of topic and event id, so that their number is what memory depends on,
//! and that is bounded.

use pgoutput::PgTimestamp;
use sha2::{Digest, Sha256};

/// The rows of a range, and which of them a topic was seen to hold.
#[derive(Debug, Default)]
pub struct Candidates {
    topics: Vec<Topic>,
    /// After [`Self::seal`] in the order of their hashes.
    rows: Vec<Candidate>,
    sealed: bool,
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its topic holds a record with its event id.
    Published,
    /// Its topic would still hold the record, and does not.
    Missing,
    /// Its topic does not, but the record may have been there and gone.
    Unknown,
}

/// More rows than can be compared at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {ROWS_MAX} rows in the range")]
pub struct TooManyRows;

#[derive(Debug)]
struct Topic {
    name: String,
    /// Milliseconds since 1970; what is older may have been deleted.
    kept_since_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    hash: u128,
    published: bool,
}

impl Candidates {
    /// Takes note of a row.
    ///
    /// # Errors
    ///
    /// [`ROWS_MAX`] is reached.
    pub fn insert(&mut self, topic: &str, id: &[u8]) -> Result<(), TooManyRows> {
        debug_assert!(!self.sealed, "rows come before records");
        if self.rows.len() >= ROWS_MAX {
            return Err(TooManyRows);
        }
        let index = self.topic_or_insert(topic);
        self.rows.push(Candidate {
            hash: hash(index, id),
            published: false,
        });
        Ok(())
    }

    /// No more rows come; now records may be looked up.
    pub fn seal(&mut self) {
        self.rows.sort_unstable_by_key(|row| row.hash);
        self.sealed = true;
    }

    /// The topics the rows belong to.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(|topic| topic.name.as_str())
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Says since when the topic holds everything that was written to it; by default, since ever.
    pub fn set_kept_since(&mut self, topic: &str, kept_since_ms: Option<i64>) {
        let index = self.topic_or_insert(topic);
        if let Some(topic) = self.topics.get_mut(index) {
            topic.kept_since_ms = kept_since_ms;
        }
    }

    /// The topic holds a record with this event id.
    pub fn see(&mut self, topic: &str, id: &[u8]) {
        debug_assert!(self.sealed, "records come after all rows");
        let Some(index) = self.topic(topic) else {
            return;
        };
        let hash = hash(index, id);
        let from = self.rows.partition_point(|row| row.hash < hash);
        for row in self.rows.iter_mut().skip(from) {
            if row.hash != hash {
                return;
            }
            row.published = true;
        }
    }

    /// What became of a row that was written at `time`, if that is known.
    #[must_use]
    pub fn fate(&self, topic: &str, id: &[u8], time: Option<PgTimestamp>) -> Fate {
        debug_assert!(self.sealed, "judged after all records");
        let Some(index) = self.topic(topic) else {
            return Fate::Unknown;
        };
        let hash = hash(index, id);
        let at = self.rows.partition_point(|row| row.hash < hash);
        if self
            .rows
            .get(at)
            .is_some_and(|row| row.hash == hash && row.published)
        {
            return Fate::Published;
        }
        let kept_since_ms = self.topics.get(index).and_then(|topic| topic.kept_since_ms);
        match (kept_since_ms, time) {
            (None, _) => Fate::Missing,
            // A record carries the time of the commit or a later one, never one before the row's own; the margin is for
            // clocks that differ.
            (Some(since), Some(time))
                if time.unix_micros() / 1_000 >= since.saturating_add(CLOCK_MARGIN_MS) =>
            {
                Fate::Missing
            }
            (Some(_), _) => Fate::Unknown,
        }
    }

    fn topic(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|topic| topic.name == name)
    }

    fn topic_or_insert(&mut self, name: &str) -> usize {
        self.topic(name).unwrap_or_else(|| {
            self.topics.push(Topic {
                name: name.to_owned(),
                kept_since_ms: None,
            });
            self.topics.len() - 1
        })
    }
}

fn hash(topic: usize, id: &[u8]) -> u128 {
    let digest = Sha256::new()
        .chain_update(topic.to_be_bytes())
        .chain_update(id)
        .finalize();
    let head = digest.first_chunk::<16>();
    head.map_or(0, |head| u128::from_be_bytes(*head))
}

/// Rows that are compared in one run: 32 bytes of memory for each, 128 MiB in all.
pub const ROWS_MAX: usize = 4 * 1024 * 1024;

/// How far the clocks of the database, the services and the brokers may differ.
pub const CLOCK_MARGIN_MS: i64 = 5 * 60 * 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: i64) -> Option<PgTimestamp> {
        Some(PgTimestamp::from_unix_micros(ms * 1_000))
    }

    fn candidates() -> Candidates {
        let mut candidates = Candidates::default();
        for (topic, id) in [("orders", "1"), ("orders", "2"), ("invoices", "1")] {
            candidates.insert(topic, id.as_bytes()).expect("room");
        }
        candidates.seal();
        candidates
    }

    #[test]
    fn a_record_counts_for_its_own_topic_only() {
        let mut candidates = candidates();
        candidates.see("orders", b"1");
        candidates.see("elsewhere", b"2");
        candidates.see("orders", b"3");
        assert_eq!(candidates.fate("orders", b"1", None), Fate::Published);
        assert_eq!(candidates.fate("orders", b"2", None), Fate::Missing);
        assert_eq!(candidates.fate("invoices", b"1", None), Fate::Missing);
    }

    #[test]
    fn what_is_older_than_the_topics_memory_is_unknown() {
        let mut candidates = candidates();
        let since = 10_000_000;
        candidates.set_kept_since("orders", Some(since));
        let fate = |candidates: &Candidates, time| candidates.fate("orders", b"2", time);
        assert_eq!(fate(&candidates, at_ms(since - 1)), Fate::Unknown);
        assert_eq!(
            fate(&candidates, at_ms(since + CLOCK_MARGIN_MS - 1)),
            Fate::Unknown
        );
        assert_eq!(
            fate(&candidates, at_ms(since + CLOCK_MARGIN_MS)),
            Fate::Missing
        );
        assert_eq!(fate(&candidates, None), Fate::Unknown, "no time to go by");
        candidates.see("orders", b"2");
        assert_eq!(fate(&candidates, at_ms(0)), Fate::Published);
    }

    #[test]
    fn a_topic_that_lost_everything_knows_nothing() {
        let mut candidates = candidates();
        candidates.set_kept_since("orders", Some(i64::MAX));
        assert_eq!(
            candidates.fate("orders", b"1", at_ms(i64::MAX / 1_000)),
            Fate::Unknown
        );
    }

    #[test]
    fn two_rows_of_one_id_have_one_fate() {
        let mut candidates = Candidates::default();
        for _ in 0..2 {
            candidates.insert("orders", b"1").expect("room");
        }
        candidates.seal();
        candidates.see("orders", b"1");
        assert!(candidates.rows.iter().all(|row| row.published));
    }
}
