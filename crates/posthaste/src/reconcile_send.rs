//! Publishing what was found missing: marked records, in the order given.

use std::time::Duration;

use indicatif::ProgressBar;
use pgoutput::Lsn;
use router::{Place, Record, RecordBuffer};
use sink::{Accepted, Batch, Entry, KafkaProducer, PublishError, Publisher};

use crate::clock::Now;
use crate::config::Pipeline;
use crate::policy::RunError;
use crate::reconcile_progress::progress;
use crate::settings;

/// Publishes records with a mark, in the order given.
pub(crate) struct Sender {
    publisher: Publisher<KafkaProducer>,
    batch: Batch,
    /// The value of the mark: when this run began.
    mark: String,
    bar: ProgressBar,
}

impl Sender {
    pub(crate) fn start(pipeline: &Pipeline) -> Result<Self, RunError> {
        let producer = KafkaProducer::new(&settings::kafka_config(pipeline))?;
        Ok(Self {
            publisher: Publisher::new(producer, settings::limits(pipeline), Lsn::ZERO),
            batch: Batch::new(),
            mark: Now::read().wall.unix_micros().to_string(),
            bar: progress("records published"),
        })
    }

    pub(crate) fn send(&mut self, record: &Record<'_>) -> Result<(), PublishError> {
        marked(&mut self.batch.records, record, &self.mark);
        self.batch.entries.push(Entry::Message { lsn: Lsn::ZERO });
        while self.publisher.accept(&mut self.batch)? == Accepted::Full {
            self.poll()?;
        }
        self.batch.clear();
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> Result<(), PublishError> {
        while self.publisher.outstanding() > 0 {
            self.poll()?;
        }
        self.bar.finish_and_clear();
        Ok(())
    }

    fn poll(&mut self) -> Result<(), PublishError> {
        let now = Now::read().wall;
        let polled = self.publisher.poll(POLL_WAIT, now, &mut |_| ())?;
        self.bar.inc(polled.delivered);
        Ok(())
    }
}

/// The record once more, with the header that says where it comes from.
fn marked(out: &mut RecordBuffer, record: &Record<'_>, mark: &str) {
    let mut copy = out.begin();
    copy.set_topic([record.topic]);
    copy.set_partition(record.partition);
    copy.set_timestamp_ms(record.timestamp_ms);
    copy.put(Place::Key, record.key);
    copy.put(Place::Payload, record.payload);
    for (name, value) in record.headers() {
        copy.put(Place::Header(name), value);
    }
    copy.put(Place::Header(MARK_HEADER), Some(mark.as_bytes()));
    copy.finish();
}

/// The header that marks what was published here; its value is when the run began, in microseconds since 1970.
const MARK_HEADER: &str = "posthaste-reconciled";

/// How long one poll of the producer may wait.
const POLL_WAIT: Duration = Duration::from_millis(10);
