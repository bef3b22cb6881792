//! Tests of the publishing thread, and the producer that delivers at once.

use std::time::{Duration, Instant};

use pgoutput::TransactionId;
use router::{Place, Record};
use sink::{Delivery, EnqueueError, Entry, Limits, Ticket};

use super::*;
use crate::publishing_thread::TELL_GAP;

/// Delivers everything at the next poll, but never the last one on its way that `kept` says; refuses what is
/// addressed to the topic `refused`.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    queue: Vec<Ticket>,
    seen: u64,
    kept: usize,
    /// Until it is made anew.
    fatal: Option<PublishError>,
    replacements: u64,
}

impl Producer for Prompt {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        if record.topic.ends_with("refused") {
            let error = PublishError::from_code("TOPIC_EXCEPTION").expect("listed");
            return Err(EnqueueError::Refused { ticket, error });
        }
        self.seen += 1;
        self.queue.push(ticket);
        Ok(())
    }

    fn poll(&mut self, _: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        let delivered = self.queue.len().saturating_sub(self.kept);
        self.queue.drain(..delivered).for_each(|ticket| {
            on_delivery(Delivery {
                ticket,
                result: Ok(()),
            })
        });
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn purge(&mut self) {
        self.queue.clear();
        self.fatal = None;
        self.replacements += 1;
    }

    fn fatal_error(&self) -> Option<PublishError> {
        self.fatal.clone()
    }

    fn replacements(&self) -> u64 {
        self.replacements
    }

    fn brokers_up(&self) -> bool {
        true
    }
}

fn start() -> Publishing {
    let publisher = Publisher::new(Prompt::default(), Limits::default(), Lsn::ZERO);
    Publishing::start(publisher, None, PipelineMetrics::new("test")).expect("a thread")
}

pub(crate) fn fill(batch: &mut Batch, topic: &str, commit_lsn: u64) {
    batch.entries.push(Entry::Begin(TransactionId {
        final_lsn: Lsn::new(commit_lsn),
        commit_time: PgTimestamp::new(0),
        xid: 1,
    }));
    let mut record = batch.records.begin();
    record.set_topic([topic]);
    record.put(Place::Key, Some(b"key"));
    record.finish();
    batch.entries.push(Entry::Record { inserts: 1 });
    batch.entries.push(Entry::Commit {
        end_lsn: Lsn::new(commit_lsn + 8),
    });
}

async fn send(publishing: &mut Publishing, topic: &str, commit_lsn: u64) {
    while !publishing.has_current() {
        publishing.next().await.expect("running");
    }
    let batch = publishing.current().expect("a batch");
    assert!(batch.is_empty(), "a recycled batch is empty");
    fill(batch, topic, commit_lsn);
    publishing
        .submit(Reach::transaction(Lsn::new(commit_lsn)))
        .expect("running");
}

/// Decision 0010: news of a burst are told once in a while, not once a delivery.
#[tokio::test]
async fn a_burst_wakes_the_loop_once_in_a_telling_gap() {
    let metrics = PipelineMetrics::new("test");
    let producer = Prompt {
        kept: 1,
        ..Prompt::default()
    };
    let publisher = Publisher::new(producer, Limits::default(), Lsn::ZERO);
    let mut publishing = Publishing::start(publisher, None, metrics.clone()).expect("a thread");
    publishing.restart(Lsn::new(10)).await.expect("running");
    let began = Instant::now();
    let told_before = metrics.tellings();
    let last = 3_000_u64;
    for commit in 1..=last {
        send(&mut publishing, "orders", commit * 100).await;
    }
    until(&mut publishing, |publishing| {
        publishing.state().confirmed.as_lsn() == Lsn::new((last - 1) * 100 + 8)
    })
    .await;
    let gaps = began.elapsed().as_millis() / TELL_GAP.as_millis();
    let told = metrics.tellings() - told_before;
    // While nothing is on its way, at the beginning, everything is told.
    assert!(
        u128::from(told) <= gaps + 5,
        "{told} tellings in {gaps} gaps"
    );
}

/// Field problem B20 a: a producer at its end is told, made anew once, counted, and goes on.
#[tokio::test]
async fn b20_a_a_producer_at_its_end_is_made_anew_and_counted() {
    let metrics = PipelineMetrics::new("test");
    let producer = Prompt {
        fatal: PublishError::from_code("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ..Prompt::default()
    };
    let publisher = Publisher::new(producer, Limits::default(), Lsn::ZERO);
    let mut publishing = Publishing::start(publisher, None, metrics.clone()).expect("a thread");
    until(&mut publishing, |publishing| {
        matches!(publishing.state().failure, Some(PublishError::Fatal(_)))
    })
    .await;
    assert_eq!(metrics.producers_recreated_so_far(), 0);
    publishing.restart(Lsn::new(10)).await.expect("running");
    assert!(publishing.state().failure.is_none());
    assert_eq!(metrics.producers_recreated_so_far(), 1);
    send(&mut publishing, "orders", 100).await;
    until(&mut publishing, Publishing::is_drained).await;
    // A stream that begins again needs no new producer.
    publishing.restart(Lsn::new(108)).await.expect("running");
    assert_eq!(metrics.producers_recreated_so_far(), 1);
}

async fn until(publishing: &mut Publishing, done: impl Fn(&Publishing) -> bool) {
    while !done(publishing) {
        publishing.next().await.expect("running");
    }
}

#[tokio::test]
async fn batches_circulate_and_the_position_follows_the_deliveries() {
    let mut publishing = start();
    publishing.restart(Lsn::new(10)).await.expect("running");
    for commit in 1..=20_u64 {
        send(&mut publishing, "orders", commit * 100).await;
    }
    until(&mut publishing, Publishing::is_drained).await;
    assert_eq!(publishing.state().confirmed.as_lsn(), Lsn::new(2008));
    assert_eq!(publishing.high_water(), Reach::transaction(Lsn::new(2000)));
    assert!(publishing.is_all_done_at(Lsn::new(2008)));
    assert!(!publishing.is_all_done_at(Lsn::new(2000)));
}

/// One that takes another's place in the same history knows what the other may have sent.
#[tokio::test]
async fn a_publisher_in_anothers_place_has_to_see_through_what_that_one_sent() {
    let mut publishing = start();
    publishing.comes_after(Reach::transaction(Lsn::new(100)));
    assert!(!publishing.is_all_done_at(Lsn::new(100)));
    assert!(publishing.is_all_done_at(Lsn::new(108)));
}

#[tokio::test]
async fn connections_that_end_take_no_batch_out_of_circulation() {
    let mut publishing = start();
    for attempt in 1..=2 * BATCHES_MAX as u64 {
        publishing
            .restart(Lsn::new(attempt))
            .await
            .expect("running");
        while !publishing.has_current() {
            publishing.next().await.expect("running");
        }
        // The connection ends with a batch half filled.
        fill(
            publishing.current().expect("a batch"),
            "orders",
            attempt * 100,
        );
    }
}

#[tokio::test]
async fn a_failure_stands_until_the_restart_and_the_position_stays_before_it() {
    let mut publishing = start();
    publishing.restart(Lsn::new(10)).await.expect("running");
    for (topic, commit) in [("orders", 100), ("refused", 200), ("orders", 300)] {
        send(&mut publishing, topic, commit).await;
    }
    until(&mut publishing, |publishing| {
        publishing.state().failure.is_some()
    })
    .await;
    until(&mut publishing, |publishing| {
        publishing.state().confirmed.as_lsn() == Lsn::new(108)
    })
    .await;
    let confirmed = publishing.restart(Lsn::new(50)).await.expect("running");
    assert_eq!(
        confirmed.as_lsn(),
        Lsn::new(108),
        "a restart never goes back"
    );
    assert!(publishing.state().failure.is_none());
    assert!(publishing.is_drained());
}
