//! Comparing two partitions record by record, in bounded memory. Pure: records come in, findings go out.
//!
//! Records that carry the same event (header `id`) are compared with each other; those without one by their place. Where one side has
//! a record that the other has not, the next common one is looked for within [`WINDOW_RECORDS_MAX`] records.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use sink::ReadRecord;

use crate::diff_rules::{Kind, Rules};

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Named first.
    Left,
    /// Named second.
    Right,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::Right => "right",
        })
    }
}

/// What the comparison of two partitions finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Two records of one event, equal but for what a rule says.
    Same,
    /// Two records of one event: where they are, and what differs.
    Differs {
        /// Offset of the left one.
        left: i64,
        /// Offset of the right one.
        right: i64,
        /// One text for each field.
        fields: Vec<FieldDifference>,
    },
    /// A record without a counterpart.
    Only(Lone),
    /// Records at the beginning or the end that one side alone has, and a rule leaves out.
    Edge {
        /// How many.
        records: u64,
    },
    /// A record whose event came shortly before on the same side, and a rule leaves out.
    Repeat,
}

/// A record without a counterpart in its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lone {
    /// Where it is.
    pub side: Side,
    /// Its offset.
    pub offset: i64,
    /// Its event, hashed; `None` if it has no identity.
    pub identity: Option<u64>,
    /// Key, value, headers and timestamp, hashed.
    pub content: u64,
    /// Whether its event came shortly before on the same side.
    pub repeat: bool,
}

/// What differs in one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDifference {
    /// `key`, `value`, `header`, `timestamp`.
    pub field: &'static str,
    /// Where and how.
    pub text: String,
}

/// Reads one side; `None` at its end.
pub trait Records {
    /// Why it cannot be read.
    type Error;

    /// The next record.
    ///
    /// # Errors
    /// It cannot be read.
    fn next(&mut self) -> Result<Option<ReadRecord>, Self::Error>;
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct Manner {
    /// The header that names the event.
    pub identity: String,
    /// Whether excerpts of values are shown.
    pub show_values: bool,
}

/// Compares two partitions and tells what is found, in the order of the left one.
///
/// # Errors
/// One of them cannot be read.
pub fn compare<E>(
    left: &mut dyn Records<Error = E>,
    right: &mut dyn Records<Error = E>,
    manner: &Manner,
    rules: &mut Rules,
    tell: &mut dyn FnMut(Finding),
) -> Result<(), E> {
    let mut comparison = Comparison {
        left: Window::default(),
        right: Window::default(),
        manner,
        rules,
        tell,
        pairs: 0,
        edge: Vec::new(),
    };
    loop {
        let repeats = comparison.left.fill(left, manner, comparison.rules)?
            + comparison.right.fill(right, manner, comparison.rules)?;
        for _ in 0..repeats {
            (comparison.tell)(Finding::Repeat);
        }
        if !comparison.step() {
            comparison.end();
            return Ok(());
        }
    }
}

struct Comparison<'a> {
    left: Window,
    right: Window,
    manner: &'a Manner,
    rules: &'a mut Rules,
    tell: &'a mut dyn FnMut(Finding),
    pairs: u64,
    /// Records without a counterpart since the last pair; emptied when there are too many for an edge that is remembered.
    edge: Vec<Lone>,
}

/// What to do with the two records at the front.
enum Move {
    Pair,
    Only(Side),
    OnlyBoth,
    End,
}

impl Comparison<'_> {
    /// Decides about the front of both windows; false at the end of both.
    fn step(&mut self) -> bool {
        match self.decide() {
            Move::End => return false,
            Move::Only(Side::Left) => self.lone(Side::Left),
            Move::Only(Side::Right) => self.lone(Side::Right),
            Move::OnlyBoth => {
                self.lone(Side::Left);
                self.lone(Side::Right);
            }
            Move::Pair => {
                if let (Some(left), Some(right)) = (self.left.take(), self.right.take()) {
                    self.pair(&left.record, &right.record);
                }
            }
        }
        true
    }

    fn decide(&self) -> Move {
        let (left, right) = match (self.left.records.front(), self.right.records.front()) {
            (None, None) => return Move::End,
            (Some(_), None) => return Move::Only(Side::Left),
            (None, Some(_)) => return Move::Only(Side::Right),
            (Some(left), Some(right)) => (left, right),
        };
        if left.identity == right.identity {
            return Move::Pair;
        }
        let ahead_right = self.right.find(left.identity);
        let ahead_left = self.left.find(right.identity);
        match (ahead_left, ahead_right) {
            (Some(left), Some(right)) if left < right => Move::Only(Side::Left),
            (_, Some(_)) => Move::Only(Side::Right),
            (Some(_), None) => Move::Only(Side::Left),
            (None, None) => neither(&left.record, &right.record),
        }
    }

    fn lone(&mut self, side: Side) {
        let window = match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        };
        if let Some(waiting) = window.take() {
            self.edge.push(waiting.lone(side, self.rules));
        }
        if self.edge.len() >= EDGE_RECORDS_MAX {
            let is_edge = self.pairs == 0 && self.is_one_sided() && self.rules.has(&Kind::Edges);
            self.settle_edge(is_edge);
        }
    }

    fn pair(&mut self, left: &ReadRecord, right: &ReadRecord) {
        let leading = self.pairs == 0 && self.is_one_sided();
        self.settle_edge(leading);
        self.pairs += 1;
        let fields = differences(left, right, self.manner, self.rules);
        (self.tell)(if fields.is_empty() {
            Finding::Same
        } else {
            Finding::Differs {
                left: left.offset,
                right: right.offset,
                fields,
            }
        });
    }

    /// What is left at the end is a trailing edge, unless the partitions had nothing in common.
    fn end(&mut self) {
        let trailing = self.pairs > 0 && self.is_one_sided();
        self.settle_edge(trailing);
    }

    fn is_one_sided(&self) -> bool {
        let first = self.edge.first().map(|lone| lone.side);
        self.edge.iter().all(|lone| Some(lone.side) == first)
    }

    fn settle_edge(&mut self, is_edge: bool) {
        if self.edge.is_empty() {
            return;
        }
        let records = self.edge.len() as u64;
        if is_edge && self.rules.apply(Kind::Edges, records) {
            self.edge.clear();
            (self.tell)(Finding::Edge { records });
            return;
        }
        for lone in self.edge.drain(..) {
            (self.tell)(Finding::Only(lone));
        }
    }
}

/// Neither of the two events is on the other side. Records that are alike but for their headers are one event whose identity differs;
/// otherwise the older one goes first, since the other side may have begun later.
fn neither(left: &ReadRecord, right: &ReadRecord) -> Move {
    if left.key == right.key && left.payload == right.payload {
        return Move::Pair;
    }
    match left.timestamp_ms.cmp(&right.timestamp_ms) {
        std::cmp::Ordering::Less => Move::Only(Side::Left),
        std::cmp::Ordering::Greater => Move::Only(Side::Right),
        std::cmp::Ordering::Equal => Move::OnlyBoth,
    }
}

/// The next records of one side.
#[derive(Default)]
struct Window {
    records: VecDeque<Waiting>,
    bytes: usize,
    ended: bool,
    /// Events seen lately, in their order and for looking up.
    recent: VecDeque<u64>,
    recent_set: HashSet<u64>,
}

struct Waiting {
    record: ReadRecord,
    identity: Option<u64>,
    repeat: bool,
}

impl Waiting {
    /// The content is hashed as far as the rules want it to be equal.
    fn lone(&self, side: Side, rules: &Rules) -> Lone {
        let record = &self.record;
        let headers: Vec<_> = rules
            .headers_left_of(record)
            .into_iter()
            .map(|(name, value)| {
                let compared = !rules.has(&Kind::HeaderValue(name.clone()));
                (name, value.as_ref().filter(|_| compared))
            })
            .collect();
        let timestamp = record.timestamp_ms.filter(|_| !rules.has(&Kind::Timestamp));
        Lone {
            side,
            offset: record.offset,
            identity: self.identity,
            content: hash(&(&record.key, &record.payload, &headers, timestamp)),
            repeat: self.repeat,
        }
    }
}

impl Window {
    /// Reads on until it is full; returns how many repeats were left out.
    fn fill<E>(
        &mut self,
        from: &mut dyn Records<Error = E>,
        manner: &Manner,
        rules: &mut Rules,
    ) -> Result<u64, E> {
        let mut left_out = 0;
        while !self.ended
            && self.records.len() < WINDOW_RECORDS_MAX
            && (self.bytes < WINDOW_BYTES_MAX || self.records.is_empty())
        {
            let Some(record) = from.next()? else {
                self.ended = true;
                break;
            };
            let identity = identity(&record, &manner.identity);
            let repeat = identity.is_some_and(|identity| !self.remember(identity));
            if repeat && rules.apply(Kind::Repeats, 1) {
                left_out += 1;
                continue;
            }
            self.bytes += record.byte_len();
            self.records.push_back(Waiting {
                record,
                identity,
                repeat,
            });
        }
        Ok(left_out)
    }

    /// Whether the event is new among the last ones.
    fn remember(&mut self, identity: u64) -> bool {
        if !self.recent_set.insert(identity) {
            return false;
        }
        self.recent.push_back(identity);
        if self.recent.len() > RECENT_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_set.remove(&oldest);
        }
        true
    }

    fn find(&self, identity: Option<u64>) -> Option<usize> {
        identity?;
        self.records
            .iter()
            .position(|waiting| waiting.identity == identity)
    }

    fn take(&mut self) -> Option<Waiting> {
        let waiting = self.records.pop_front()?;
        self.bytes -= waiting.record.byte_len();
        Some(waiting)
    }
}

fn identity(record: &ReadRecord, header: &str) -> Option<u64> {
    let (_, value) = record.headers.iter().find(|(name, _)| name == header)?;
    value.as_ref().map(hash)
}

/// Stable within one run, which is all that is asked of it.
fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What differs between two records of one event, after the rules.
fn differences(
    left: &ReadRecord,
    right: &ReadRecord,
    manner: &Manner,
    rules: &mut Rules,
) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    let mut put = |field, text: Option<String>| {
        found.extend(text.map(|text| FieldDifference { field, text }));
    };
    put("key", bytes(&left.key, &right.key, manner));
    put("value", bytes(&left.payload, &right.payload, manner));
    put("header", headers(left, right, manner, rules));
    if left.timestamp_ms != right.timestamp_ms && !rules.apply(Kind::Timestamp, 1) {
        let shown = |time: Option<i64>| time.map_or("none".to_owned(), |time| time.to_string());
        let (left, right) = (shown(left.timestamp_ms), shown(right.timestamp_ms));
        put(
            "timestamp",
            Some(format!("{left} on the left, {right} on the right")),
        );
    }
    found
}

fn headers(
    left: &ReadRecord,
    right: &ReadRecord,
    manner: &Manner,
    rules: &mut Rules,
) -> Option<String> {
    let left = rules.headers_left(left, right);
    let right = rules.headers_left_of(right);
    let (lefts, rights) = (left.len(), right.len());
    for (number, (left, right)) in left.iter().zip(&right).enumerate() {
        if left.0 != right.0 {
            return Some(format!(
                "number {number} is `{}` on the left and `{}` on the right",
                left.0, right.0
            ));
        }
        if left.1 == right.1 || rules.apply_to_value(&left.0) {
            continue;
        }
        let text = bytes(&left.1, &right.1, manner)?;
        return Some(format!("`{}`: {text}", left.0));
    }
    (lefts != rights).then(|| format!("{lefts} of them on the left, {rights} on the right"))
}

fn bytes(left: &Option<Vec<u8>>, right: &Option<Vec<u8>>, manner: &Manner) -> Option<String> {
    if left == right {
        return None;
    }
    let (Some(left), Some(right)) = (left, right) else {
        let shown = |side: &Option<Vec<u8>>| {
            side.as_ref()
                .map_or("null".to_owned(), |bytes| format!("{} bytes", bytes.len()))
        };
        return Some(format!(
            "{} on the left, {} on the right",
            shown(left),
            shown(right)
        ));
    };
    let at = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let mut text = format!(
        "from byte {at} on ({} bytes on the left, {} on the right)",
        left.len(),
        right.len()
    );
    if manner.show_values {
        let excerpt = |bytes: &[u8]| {
            let from = at.saturating_sub(EXCERPT_BEFORE_BYTES);
            let part: Vec<u8> = bytes
                .iter()
                .skip(from)
                .take(EXCERPT_BYTES)
                .copied()
                .collect();
            part.escape_ascii().to_string()
        };
        text.push_str(&format!(": \"{}\" / \"{}\"", excerpt(left), excerpt(right)));
    }
    Some(text)
}

/// Records of one side among which the next common one is looked for.
pub const WINDOW_RECORDS_MAX: usize = 1_000;

/// … and their bytes.
const WINDOW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Events remembered to tell a repeat.
const RECENT_MAX: usize = 10_000;

/// Records without a counterpart that are held back until it is known whether they are an edge.
const EDGE_RECORDS_MAX: usize = 10_000;

const EXCERPT_BEFORE_BYTES: usize = 8;
const EXCERPT_BYTES: usize = 40;

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
