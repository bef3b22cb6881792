//! The watchlist: rows and aggregates of which something is known before they are routed. Pure.
//!
//! As long as it is empty, which is nearly always, a row costs one look at a number.

use std::collections::{HashMap, HashSet};

use pgoutput::RowId;
use router::RowSummary;

use crate::poison::Reason;

/// What is known of rows that are still to come.
#[derive(Debug, Default)]
pub struct Watchlist {
    /// Rows that the table of parked rows holds already, in whatever state: never published by the stream again.
    settled: HashSet<RowId>,
    /// The newest of them: behind it they are forgotten.
    settled_until: Option<RowId>,
    /// Rows that Kafka refuses for good.
    condemned: HashMap<RowId, Reason>,
    /// Events that a person has decided to pass over.
    skips: Vec<SkipRequest>,
    /// Aggregates with rows that wait: what follows of them waits behind.
    parked: HashSet<Aggregate>,
    /// Rows that wait, and their bytes.
    pub waiting: Waiting,
    /// Reused for looking up an aggregate.
    lookup: Vec<u8>,
}

/// How much waits in the table of parked rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Type and id of an aggregate, as one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregate(Box<[u8]>);

/// An event that a person has decided to pass over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkipRequest {
    /// Its number in the table.
    pub number: i64,
    /// Which event.
    pub event: SkippedEvent,
}

/// How an event is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkippedEvent {
    /// By its position in the log.
    Row(RowId),
    /// By the text of its id column.
    Id(String),
}

impl Watchlist {
    /// Whether there is anything to look for.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !(self.settled.is_empty()
            && self.condemned.is_empty()
            && self.skips.is_empty()
            && self.parked.is_empty())
    }

    /// Rows that are in the table already.
    pub fn settle(&mut self, rows: impl IntoIterator<Item = RowId>) {
        self.settled.extend(rows);
        self.settled_until = self.settled.iter().max().copied();
    }

    /// A row that Kafka refuses for good.
    pub fn condemn(&mut self, row: RowId, reason: Reason) {
        self.condemned.insert(row, reason);
    }

    /// Events to pass over.
    pub fn skip(&mut self, requests: impl IntoIterator<Item = SkipRequest>) {
        self.skips.extend(requests);
    }

    /// Whether any event is to be passed over.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.skips.is_empty()
    }

    /// The aggregates that have rows waiting, in place of those known before.
    pub fn set_parked(&mut self, aggregates: HashSet<Aggregate>, waiting: Waiting) {
        self.parked = aggregates;
        self.waiting = waiting;
    }

    /// One more row waits.
    pub fn park(&mut self, aggregate: Option<Aggregate>, bytes: u64) {
        self.parked.extend(aggregate);
        self.waiting.rows += 1;
        self.waiting.bytes += bytes;
    }

    /// Whether any row waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting.rows > 0
    }

    pub(crate) fn is_settled(&mut self, row: RowId) -> bool {
        if self.settled_until.is_some_and(|newest| row > newest) {
            self.settled = HashSet::new();
            self.settled_until = None;
        }
        self.settled.contains(&row)
    }

    pub(crate) fn condemned(&self, row: RowId) -> Option<&Reason> {
        self.condemned.get(&row)
    }

    /// The request to pass over this event, if there is one; it is used up.
    pub(crate) fn take_skip(&mut self, row: RowId, id: Option<&[u8]>) -> Option<SkipRequest> {
        let at = self.skips.iter().position(|request| match &request.event {
            SkippedEvent::Row(skipped) => *skipped == row,
            SkippedEvent::Id(skipped) => Some(skipped.as_bytes()) == id,
        })?;
        Some(self.skips.swap_remove(at))
    }

    pub(crate) fn is_parked(&mut self, summary: &RowSummary<'_>) -> bool {
        let Some(key) = summary.aggregate_id else {
            return false;
        };
        if self.parked.is_empty() {
            return false;
        }
        write_aggregate(&mut self.lookup, summary.aggregate_type, key);
        self.parked.contains(self.lookup.as_slice())
    }
}

impl Aggregate {
    /// Of a row; `None` if it has no key, and so no order to keep.
    #[must_use]
    pub fn of(aggregate_type: Option<&[u8]>, aggregate_id: Option<&[u8]>) -> Option<Self> {
        let mut key = Vec::new();
        write_aggregate(&mut key, aggregate_type, aggregate_id?);
        Some(Self(key.into()))
    }
}

impl std::borrow::Borrow<[u8]> for Aggregate {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// The length of the type comes first, so that no two aggregates look alike.
fn write_aggregate(out: &mut Vec<u8>, aggregate_type: Option<&[u8]>, key: &[u8]) {
    out.clear();
    let length = aggregate_type.map_or(u64::MAX, |text| text.len() as u64);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(aggregate_type.unwrap_or_default());
    out.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(aggregate_type: Option<&str>, id: &str) -> Aggregate {
        let of_type = aggregate_type.map(str::as_bytes);
        Aggregate::of(of_type, Some(id.as_bytes())).expect("it has a key")
    }

    #[test]
    fn no_two_aggregates_look_alike() {
        let all = [
            aggregate(Some("order"), "1"),
            aggregate(Some("order1"), ""),
            aggregate(Some(""), "order1"),
            aggregate(None, "order1"),
        ];
        let distinct: HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(Aggregate::of(Some(b"order"), None), None);
    }

    #[test]
    fn a_request_to_skip_is_used_up() {
        let row: RowId = "0/1#0".parse().expect("a row");
        let mut list = Watchlist::default();
        assert!(!list.is_active());
        let event = |event| SkipRequest { number: 1, event };
        list.skip([
            event(SkippedEvent::Id("7".to_owned())),
            event(SkippedEvent::Row(row)),
        ]);
        assert!(list.is_active());
        assert!(
            list.take_skip("0/1#1".parse().expect("a row"), Some(b"8"))
                .is_none()
        );
        assert!(list.take_skip(row, Some(b"8")).is_some());
        assert!(list.take_skip(row, Some(b"7")).is_some());
        assert!(list.take_skip(row, Some(b"7")).is_none());
        assert!(!list.is_active());
    }
}
