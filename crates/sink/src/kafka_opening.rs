//! Openings: nothing follows a client's first record to a partition before that one is acknowledged.
//!
//! What keeps order behind a refused batch is that the broker, knowing the producer's last sequence number, refuses
//! what does not follow it. A broker that knows nothing of a producer yet accepts *any* number (Kafka,
//! `ProducerAppendInfo.checkSequence`). So if the very first batch of a new client to a partition is refused while
//! another is on its way behind it - and after a halt the refused event *is* the first one - that other one would
//! be accepted, and overtake (tried with Kafka 4.4: 10 times of 10). One acknowledged record per partition closes the
//! gap, at the price of one round trip per partition and client.
//!
//! Pure: no clock, no client. Records without key and partition pass freely: they have no order to lose.

use std::collections::HashMap;

use router::Record;
use router::connect::key_partition;

/// For each topic, which partitions have acknowledged a record of this client.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    topics: Vec<Topic>,
    by_name: HashMap<Box<str>, usize>,
    /// Index of the topic asked for last: streams tend to repeat themselves.
    last: usize,
    /// First records on their way.
    awaited: Vec<(u64, Place)>,
}

impl Openings {
    /// Whether the record may be enqueued now.
    pub(crate) fn admit(&mut self, record: &Record<'_>) -> Admission {
        let Some((index, topic)) = self.find(record.topic) else {
            return Admission::UnknownTopic;
        };
        if topic.not_open == 0 {
            return Admission::Free;
        }
        let Some(partition) = topic.partition_of(record) else {
            return Admission::Free;
        };
        match topic.partitions.get(partition) {
            Some(State::New) => Admission::First(Place {
                topic: index,
                partition,
            }),
            Some(State::Awaited) => Admission::Wait,
            // A partition that does not exist: the client will say so.
            Some(State::Open) | None => Admission::Free,
        }
    }

    /// Tells how many partitions a topic has. One that does not exist yet counts as having one: its first record
    /// goes out alone, and makes the client look for the topic or create it.
    pub(crate) fn learn(&mut self, topic: &str, partition_count: usize) {
        let known = Topic {
            name: topic.into(),
            partitions: vec![State::New; partition_count.max(1)],
            not_open: partition_count.max(1),
            missing: partition_count == 0,
        };
        self.by_name.insert(topic.into(), self.topics.len());
        self.topics.push(known);
    }

    /// The first record of a partition is enqueued, with this ticket.
    pub(crate) fn await_first(&mut self, ticket: u64, place: Place) {
        if let Some(topic) = self.topics.get_mut(place.topic)
            && let Some(state) = topic.partitions.get_mut(place.partition)
        {
            debug_assert_eq!(*state, State::New);
            *state = State::Awaited;
            self.awaited.push((ticket, place));
        }
    }

    /// A record is acknowledged. If it is one of the first ones, its partition is open.
    pub(crate) fn handle_ack(&mut self, ticket: u64) {
        if self.awaited.is_empty() {
            return;
        }
        let Some(position) = self
            .awaited
            .iter()
            .position(|(awaited, _)| *awaited == ticket)
        else {
            return;
        };
        let (_, place) = self.awaited.swap_remove(position);
        let Some(topic) = self.topics.get_mut(place.topic) else {
            return;
        };
        if topic.missing {
            // It exists now; with the next record its partitions are asked for.
            let name = std::mem::take(&mut topic.name);
            self.by_name.remove(&name);
            return;
        }
        if let Some(state) = topic.partitions.get_mut(place.partition) {
            debug_assert_eq!(*state, State::Awaited);
            *state = State::Open;
            topic.not_open -= 1;
        }
    }

    fn find(&mut self, name: &str) -> Option<(usize, &Topic)> {
        if self
            .topics
            .get(self.last)
            .is_none_or(|last| *last.name != *name)
        {
            self.last = *self.by_name.get(name)?;
        }
        Some((self.last, self.topics.get(self.last)?))
    }
}

/// The answer to [`Openings::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Enqueue it.
    Free,
    /// Enqueue it, and then call [`Openings::await_first`].
    First(Place),
    /// The first record of its partition is still on its way.
    Wait,
    /// Call [`Openings::learn`] and ask again.
    UnknownTopic,
}

/// A partition, as the list of topics has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    topic: usize,
    partition: usize,
}

#[derive(Debug)]
struct Topic {
    name: Box<str>,
    partitions: Vec<State>,
    not_open: usize,
    missing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Awaited,
    Open,
}

impl Topic {
    /// Where the client will put it. The partitioner is the one set in `kafka_options.rs`.
    fn partition_of(&self, record: &Record<'_>) -> Option<usize> {
        if self.missing {
            return Some(0);
        }
        match (record.partition, record.key) {
            (Some(partition), _) => usize::try_from(partition).ok(),
            (None, Some(key)) => {
                let count = u32::try_from(self.partitions.len()).ok()?;
                usize::try_from(key_partition(key, count)?).ok()
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use router::{Place as Put, RecordBuffer};

    use super::*;

    fn record(topic: &str, key: Option<&str>, partition: Option<i32>) -> RecordBuffer {
        let mut buffer = RecordBuffer::new();
        let mut builder = buffer.begin();
        builder.set_topic([topic]);
        builder.put(Put::Key, key.map(str::as_bytes));
        builder.set_partition(partition);
        builder.finish();
        buffer
    }

    fn admit(openings: &mut Openings, topic: &str, key: &str) -> Admission {
        openings.admit(&record(topic, Some(key), None).get(0))
    }

    /// Enqueues the first record of a partition.
    fn enqueue(openings: &mut Openings, topic: &str, key: &str, ticket: u64) {
        match admit(openings, topic, key) {
            Admission::First(place) => openings.await_first(ticket, place),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_topic_is_asked_for_once() {
        let mut openings = Openings::default();
        assert_eq!(admit(&mut openings, "t", "42"), Admission::UnknownTopic);
        openings.learn("t", 3);
        assert!(matches!(
            admit(&mut openings, "t", "42"),
            Admission::First(_)
        ));
        assert_eq!(admit(&mut openings, "u", "42"), Admission::UnknownTopic);
    }

    #[test]
    fn nothing_follows_the_first_record_until_it_is_acknowledged() {
        let mut openings = Openings::default();
        openings.learn("t", 3);
        enqueue(&mut openings, "t", "42", 7);
        // Of the same partition, 1 of 3, is "order-1"; "1" is of another.
        assert_eq!(admit(&mut openings, "t", "42"), Admission::Wait);
        assert_eq!(admit(&mut openings, "t", "order-1"), Admission::Wait);
        enqueue(&mut openings, "t", "1", 8);
        openings.handle_ack(99);
        assert_eq!(admit(&mut openings, "t", "order-1"), Admission::Wait);
        openings.handle_ack(7);
        assert_eq!(admit(&mut openings, "t", "order-1"), Admission::Free);
        assert_eq!(admit(&mut openings, "t", "1"), Admission::Wait);
    }

    #[test]
    fn topics_open_apart_from_each_other() {
        let mut openings = Openings::default();
        openings.learn("t", 1);
        openings.learn("u", 1);
        enqueue(&mut openings, "t", "42", 7);
        openings.handle_ack(7);
        assert_eq!(admit(&mut openings, "t", "42"), Admission::Free);
        enqueue(&mut openings, "u", "42", 8);
        assert_eq!(admit(&mut openings, "t", "42"), Admission::Free);
        assert_eq!(admit(&mut openings, "u", "42"), Admission::Wait);
    }

    #[test]
    fn records_without_a_key_are_not_held_back() {
        let mut openings = Openings::default();
        openings.learn("t", 1);
        assert_eq!(
            openings.admit(&record("t", None, None).get(0)),
            Admission::Free
        );
    }

    #[test]
    fn an_explicit_partition_counts_before_the_key() {
        let mut openings = Openings::default();
        openings.learn("t", 3);
        enqueue(&mut openings, "t", "42", 7);
        let placed = |partition| record("t", Some("42"), Some(partition));
        assert_eq!(openings.admit(&placed(1).get(0)), Admission::Wait);
        assert!(matches!(
            openings.admit(&placed(2).get(0)),
            Admission::First(_)
        ));
        assert_eq!(openings.admit(&placed(9).get(0)), Admission::Free);
    }

    #[test]
    fn a_missing_topic_gets_one_record_and_is_asked_for_again_when_that_arrived() {
        let mut openings = Openings::default();
        openings.learn("t", 0);
        enqueue(&mut openings, "t", "42", 7);
        assert_eq!(admit(&mut openings, "t", "1"), Admission::Wait);
        assert_eq!(
            openings.admit(&record("t", None, None).get(0)),
            Admission::Wait
        );
        openings.handle_ack(7);
        assert_eq!(admit(&mut openings, "t", "1"), Admission::UnknownTopic);
        openings.learn("t", 3);
        assert!(matches!(
            admit(&mut openings, "t", "1"),
            Admission::First(_)
        ));
    }
}
