//! Stage 5 of 9: finished records - what the broker will be sent - in one arena per batch.
//!
//! Nothing here knows PostgreSQL, and nothing here knows a broker client: this is the noun that both sides of the
//! pipeline share.

use std::fmt;
use std::ops::Range;

/// Finished records of one batch, in one arena.
///
/// Cleared and reused, so that a record costs no allocation once the arena has grown to its working size.
/// Invariant: it holds finished records only. Whatever an unfinished [`RecordBuilder`] wrote is taken back.
#[derive(Default)]
pub struct RecordBuffer {
    /// Topics and header names. Apart from the values, so that reading them back needs no UTF-8 check.
    names: String,
    /// Keys, payloads and header values.
    values: Vec<u8>,
    headers: Vec<HeaderSlot>,
    records: Vec<RecordSlot>,
}

impl RecordBuffer {
    /// An empty buffer; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the next record. It exists only once [`RecordBuilder::finish`] is called.
    pub fn begin(&mut self) -> RecordBuilder<'_> {
        let mark = Mark {
            names: self.names.len(),
            values: self.values.len(),
            headers: self.headers.len(),
        };
        let headers = mark.headers..mark.headers;
        RecordBuilder {
            buffer: self,
            mark,
            record: RecordSlot {
                headers,
                ..RecordSlot::default()
            },
            finished: false,
        }
    }

    /// Forgets all records. Keeps the memory for the next batch, but at most 1 MiB of it: one huge record must not
    /// be paid for until the process ends. So batches of up to 512 KiB reuse what they have, and larger ones
    /// allocate anew each time.
    pub fn clear(&mut self) {
        self.names.clear();
        self.values.clear();
        self.headers.clear();
        self.records.clear();
        if self.capacity_bytes() > RETAINED_BYTES_MAX {
            self.names.shrink_to(RETAINED_BYTES_MAX / 8);
            self.values.shrink_to(RETAINED_BYTES_MAX / 2);
            self.headers
                .shrink_to(RETAINED_BYTES_MAX / 8 / size_of::<HeaderSlot>());
            self.records
                .shrink_to(RETAINED_BYTES_MAX / 4 / size_of::<RecordSlot>());
        }
    }

    /// The number of finished records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no record is finished yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bytes all finished records take together: the sum of their [`Record::byte_len`].
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.names.len() + self.values.len()
    }

    /// The record at `index`, counted from 0 in the order of finishing.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`len`](Self::len), as with a slice.
    #[must_use]
    pub fn get(&self, index: usize) -> Record<'_> {
        self.view(&self.records[index])
    }

    /// All records in the order of finishing.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        self.records.iter().map(|slot| self.view(slot))
    }

    fn view<'a>(&'a self, slot: &'a RecordSlot) -> Record<'a> {
        Record {
            topic: name(&self.names, &slot.topic),
            partition: slot.partition,
            key: slot.key.as_ref().map(|span| value(&self.values, span)),
            payload: slot.payload.as_ref().map(|span| value(&self.values, span)),
            timestamp_ms: slot.timestamp_ms,
            headers: Headers {
                slots: self.headers.get(slot.headers.clone()).unwrap_or_default(),
                names: &self.names,
                values: &self.values,
            },
            byte_len: slot.byte_len,
        }
    }

    fn roll_back(&mut self, mark: &Mark) {
        self.names.truncate(mark.names);
        self.values.truncate(mark.values);
        self.headers.truncate(mark.headers);
    }

    fn capacity_bytes(&self) -> usize {
        self.names.capacity()
            + self.values.capacity()
            + self.headers.capacity() * size_of::<HeaderSlot>()
            + self.records.capacity() * size_of::<RecordSlot>()
    }
}

impl fmt::Debug for RecordBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordBuffer")
            .field("len", &self.len())
            .field("byte_len", &self.byte_len())
            .finish_non_exhaustive()
    }
}

/// What [`RecordBuffer::clear`] keeps, over all four parts of the arena.
const RETAINED_BYTES_MAX: usize = 1024 * 1024;

/// One finished record, borrowed from its [`RecordBuffer`].
///
/// `None` and an empty slice are different things in a key, a payload and a header value: Kafka's null and a value
/// of length 0.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition, when the event chose one; otherwise the key decides.
    pub partition: Option<i32>,
    /// The key. A null key keeps no order between records.
    pub key: Option<&'a [u8]>,
    /// The value. Null is a tombstone in a compacted topic.
    pub payload: Option<&'a [u8]>,
    /// Milliseconds since 1970-01-01 UTC; `None` leaves it to the client's clock.
    pub timestamp_ms: Option<i64>,
    headers: Headers<'a>,
    byte_len: usize,
}

impl<'a> Record<'a> {
    /// The headers in order. Names may repeat.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let Headers {
            slots,
            names,
            values,
        } = self.headers;
        slots.iter().map(move |slot| {
            let header_value = slot.value.as_ref().map(|span| value(values, span));
            (name(names, &slot.name), header_value)
        })
    }

    /// The number of headers.
    #[must_use]
    pub fn header_count(&self) -> usize {
        self.headers.slots.len()
    }

    /// The bytes of topic, key, payload, header names and header values together. What the broker's own framing
    /// adds is not in it.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }
}

/// Shows sizes only: keys, values and header values are other people's data and do not belong in a log.
impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("key_bytes", &self.key.map(<[u8]>::len))
            .field("payload_bytes", &self.payload.map(<[u8]>::len))
            .field("timestamp_ms", &self.timestamp_ms)
            .field("header_count", &self.header_count())
            .finish_non_exhaustive()
    }
}

/// A record being written. Dropped before [`finish`](Self::finish), it leaves the arena as it was.
#[must_use = "a record exists only once it is finished"]
#[derive(Debug)]
pub struct RecordBuilder<'a> {
    buffer: &'a mut RecordBuffer,
    mark: Mark,
    record: RecordSlot,
    finished: bool,
}

impl RecordBuilder<'_> {
    /// Sets the topic to the concatenation of `parts`. Whether it is a legal name is the caller's business.
    pub fn set_topic<'p>(&mut self, parts: impl IntoIterator<Item = &'p str>) {
        let names = &mut self.buffer.names;
        let start = names.len();
        names.extend(parts);
        self.record.topic = start..names.len();
    }

    /// Sets the partition; without a call the key decides.
    pub fn set_partition(&mut self, partition: Option<i32>) {
        self.record.partition = partition;
    }

    /// Sets the timestamp, in milliseconds since 1970-01-01 UTC; without a call the client's clock is used.
    pub fn set_timestamp_ms(&mut self, timestamp_ms: Option<i64>) {
        self.record.timestamp_ms = timestamp_ms;
    }

    /// Puts a value, or null, in its place. A second header of the same name is added, not replaced.
    pub fn put(&mut self, place: Place<'_>, bytes: Option<&[u8]>) {
        let span = bytes.map(|bytes| {
            let start = self.buffer.values.len();
            self.buffer.values.extend_from_slice(bytes);
            start..self.buffer.values.len()
        });
        self.place(place, span);
    }

    /// Puts what `write` writes in its place: for values that are converted on their way, without a second copy.
    ///
    /// # Errors
    ///
    /// What `write` returns; nothing is put in the place then.
    pub fn put_with<E>(
        &mut self,
        place: Place<'_>,
        write: impl FnOnce(&mut ValueWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.buffer.values.len();
        let written = write(&mut ValueWriter {
            values: &mut self.buffer.values,
        });
        if let Err(error) = written {
            self.buffer.values.truncate(start);
            return Err(error);
        }
        self.place(place, Some(start..self.buffer.values.len()));
        Ok(())
    }

    /// The topic set so far.
    #[must_use]
    pub fn topic(&self) -> &str {
        name(&self.buffer.names, &self.record.topic)
    }

    /// Makes it the next record of the buffer.
    pub fn finish(mut self) {
        let buffer = &mut *self.buffer;
        let mut record = std::mem::take(&mut self.record);
        record.headers.end = buffer.headers.len();
        record.byte_len =
            buffer.names.len() - self.mark.names + buffer.values.len() - self.mark.values;
        buffer.records.push(record);
        self.finished = true;
    }

    fn place(&mut self, place: Place<'_>, value: Option<Span>) {
        match place {
            Place::Key => self.record.key = value,
            Place::Payload => self.record.payload = value,
            Place::Header(name) => {
                let start = self.buffer.names.len();
                self.buffer.names.push_str(name);
                let name = start..self.buffer.names.len();
                self.buffer.headers.push(HeaderSlot { name, value });
            }
        }
    }
}

impl Drop for RecordBuilder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.buffer.roll_back(&self.mark);
        }
    }
}

/// Where a value goes in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'n> {
    /// The record's key.
    Key,
    /// The record's value.
    Payload,
    /// The next header, with this name.
    Header(&'n str),
}

/// Appends to the value being written, and can do nothing else to the arena.
#[derive(Debug)]
pub struct ValueWriter<'a> {
    values: &'a mut Vec<u8>,
}

impl<'a> ValueWriter<'a> {
    /// For a value that is not yet in the arena.
    pub(crate) fn over(values: &'a mut Vec<u8>) -> Self {
        Self { values }
    }
    /// Appends `bytes`.
    pub fn push_slice(&mut self, bytes: &[u8]) {
        self.values.extend_from_slice(bytes);
    }
}

impl Extend<u8> for ValueWriter<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.values.extend(bytes);
    }
}

/// A stretch of `names` or of `values`.
type Span = Range<usize>;

#[derive(Debug, Default)]
struct RecordSlot {
    topic: Span,
    key: Option<Span>,
    payload: Option<Span>,
    headers: Range<usize>,
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
    byte_len: usize,
}

struct HeaderSlot {
    name: Span,
    value: Option<Span>,
}

#[derive(Clone, Copy)]
struct Headers<'a> {
    slots: &'a [HeaderSlot],
    names: &'a str,
    values: &'a [u8],
}

/// The arena's fill before a record was begun.
#[derive(Debug)]
struct Mark {
    names: usize,
    values: usize,
    headers: usize,
}

// Spans are made by the builder from lengths of the same arena, so the empty answers below are never given; they
// stand there because a panic in the middle of the stream would be the worse answer.
fn name<'a>(names: &'a str, span: &Span) -> &'a str {
    names.get(span.clone()).unwrap_or_default()
}

fn value<'a>(values: &'a [u8], span: &Span) -> &'a [u8] {
    values.get(span.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put_record(buffer: &mut RecordBuffer, topic: &str, key: Option<&[u8]>) {
        let mut builder = buffer.begin();
        builder.set_topic([topic]);
        builder.put(Place::Key, key);
        builder.put(Place::Header("id"), Some(b"1"));
        builder.finish();
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let mut buffer = RecordBuffer::new();
        let mut builder = buffer.begin();
        builder.set_topic(["outbox.event.", "order"]);
        assert_eq!(builder.topic(), "outbox.event.order");
        builder.put(Place::Header("id"), Some(b"77"));
        builder.put(Place::Payload, Some(b"{}"));
        builder.put(Place::Key, Some(b"k"));
        builder.put(Place::Header("type"), None);
        builder.set_partition(Some(3));
        builder.set_timestamp_ms(Some(1));
        builder.finish();

        let record = buffer.get(0);
        assert_eq!(record.topic, "outbox.event.order");
        assert_eq!(record.key, Some(&b"k"[..]));
        assert_eq!(record.payload, Some(&b"{}"[..]));
        assert_eq!((record.partition, record.timestamp_ms), (Some(3), Some(1)));
        let headers: Vec<_> = record.headers().collect();
        assert_eq!(headers, [("id", Some(&b"77"[..])), ("type", None)]);
        assert_eq!(record.header_count(), 2);
    }

    #[test]
    fn what_is_not_set_is_null() {
        let mut buffer = RecordBuffer::new();
        let mut builder = buffer.begin();
        builder.set_topic(["t"]);
        builder.finish();
        let record = buffer.get(0);
        assert_eq!((record.key, record.payload), (None, None));
        assert_eq!((record.partition, record.timestamp_ms), (None, None));
        assert_eq!(record.header_count(), 0);
    }

    #[test]
    fn null_and_empty_stay_apart() {
        let mut buffer = RecordBuffer::new();
        put_record(&mut buffer, "t", Some(b""));
        put_record(&mut buffer, "t", None);
        assert_eq!(buffer.get(0).key, Some(&b""[..]));
        assert_eq!(buffer.get(1).key, None);
    }

    #[test]
    fn a_dropped_builder_leaves_no_trace() {
        let mut buffer = RecordBuffer::new();
        put_record(&mut buffer, "first", Some(b"1"));
        let before = buffer.byte_len();
        let mut builder = buffer.begin();
        builder.set_topic(["dropped"]);
        builder.put(Place::Header("h"), Some(b"dropped"));
        drop(builder);
        assert_eq!((buffer.len(), buffer.byte_len()), (1, before));
        put_record(&mut buffer, "second", Some(b"2"));
        assert_eq!(buffer.get(1).header_count(), 1);
        assert_eq!(buffer.get(1).topic, "second");
    }

    #[test]
    fn a_failed_value_is_not_placed() {
        let mut buffer = RecordBuffer::new();
        let mut builder = buffer.begin();
        builder.set_topic(["t"]);
        let failed = builder.put_with(Place::Header("h"), |out| {
            out.push_slice(b"half");
            Err("no")
        });
        assert_eq!(failed, Err("no"));
        builder.finish();
        assert_eq!(buffer.get(0).header_count(), 0);
        assert_eq!(buffer.get(0).byte_len(), 1);
    }

    #[test]
    fn clear_keeps_the_working_size_and_gives_back_the_rest() {
        let mut buffer = RecordBuffer::new();
        put_record(&mut buffer, "t", Some(&[0; 100 * 1024]));
        let working_size = buffer.capacity_bytes();
        buffer.clear();
        assert!(buffer.is_empty());
        assert_eq!(buffer.capacity_bytes(), working_size);

        put_record(&mut buffer, "t", Some(&vec![0; 8 * 1024 * 1024]));
        for _ in 0..50_000 {
            put_record(&mut buffer, &"t".repeat(100), None);
        }
        buffer.clear();
        assert!(buffer.capacity_bytes() <= RETAINED_BYTES_MAX);
        assert_eq!((buffer.len(), buffer.byte_len()), (0, 0));
    }

    #[test]
    fn debug_shows_sizes_and_never_contents() {
        let mut buffer = RecordBuffer::new();
        put_record(&mut buffer, "t", Some(b"secret"));
        assert!(!format!("{:?} {buffer:?}", buffer.get(0)).contains("secret"));
    }

    fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
        prop::option::of(prop::collection::vec(any::<u8>(), 0..20))
    }

    fn headers() -> impl Strategy<Value = Vec<(String, Option<Vec<u8>>)>> {
        prop::collection::vec(("[a-zé]{0,4}", bytes()), 0..4)
    }

    proptest! {
        #[test]
        fn finished_records_survive_any_mix_with_dropped_ones(
            drawn in prop::collection::vec(("[a-zé.]{0,9}", bytes(), bytes(), headers(), any::<bool>()), 0..9)
        ) {
            let mut buffer = RecordBuffer::new();
            for (topic, key, payload, headers, finish) in &drawn {
                let mut builder = buffer.begin();
                for (name, value) in headers {
                    builder.put(Place::Header(name), value.as_deref());
                }
                builder.set_topic(topic.split_inclusive('.'));
                builder.put(Place::Payload, payload.as_deref());
                builder.put(Place::Key, key.as_deref());
                if *finish {
                    builder.finish();
                }
            }
            let kept: Vec<_> = drawn.iter().filter(|record| record.4).collect();
            prop_assert_eq!(buffer.len(), kept.len());
            for (record, (topic, key, payload, headers, _)) in buffer.iter().zip(kept) {
                prop_assert_eq!(record.topic, topic);
                prop_assert_eq!(record.key, key.as_deref());
                prop_assert_eq!(record.payload, payload.as_deref());
                let read: Vec<_> = record.headers().collect();
                let written: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_deref())).collect();
                prop_assert_eq!(read, written);
            }
            prop_assert_eq!(buffer.byte_len(), buffer.iter().map(|record| record.byte_len()).sum::<usize>());
        }
    }
}
