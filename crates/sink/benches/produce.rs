//! Publishing to in-process brokers: our publisher beside a bare client that counts its deliveries, same bytes.
//!
//! The time includes the mock brokers, which run in the same process and take about half of it; so the difference
//! between the two is what our bookkeeping costs.
#![allow(clippy::expect_used, reason = "a bench fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use pgoutput::{Lsn, PgTimestamp, TransactionId};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DefaultProducerContext, DeliveryResult, ProducerContext,
};
use router::Place;
use sink::{Accepted, Batch, Entry, KafkaConfig, KafkaProducer, Limits, Publisher};

fn main() {
    divan::main();
}

const TOPIC: &str = "outbox.event.order";
const EVENTS: usize = 200_000;
const EVENTS_PER_BATCH: usize = 500;
const IN_FLIGHT_MAX: usize = 20_000;

#[divan::bench(sample_count = 7, sample_size = 1)]
fn publisher(bencher: Bencher<'_, '_>) {
    let cluster = cluster();
    let config = KafkaConfig {
        brokers: cluster.bootstrap_servers(),
        client_id: "bench".to_owned(),
        ..KafkaConfig::default()
    };
    let producer = KafkaProducer::new(&config).expect("a client");
    let limits = Limits {
        in_flight_records_max: IN_FLIGHT_MAX,
        ..Limits::default()
    };
    let mut publisher = Publisher::new(producer, limits, Lsn::ZERO);
    let mut batch = Batch::new();
    publish(&mut publisher, &mut batch, EVENTS_PER_BATCH);
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| publish(&mut publisher, &mut batch, EVENTS));
}

#[divan::bench(sample_count = 7, sample_size = 1)]
fn bare_client(bencher: Bencher<'_, '_>) {
    let cluster = cluster();
    let client: BaseProducer<Counting> = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .set("partitioner", "murmur2_random")
        .create_with_context(Counting)
        .expect("a client");
    send(&client, EVENTS_PER_BATCH);
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| send(&client, EVENTS));
}

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(3).expect("a cluster");
    cluster.create_topic(TOPIC, 6, 1).expect("a topic");
    cluster
}

fn publish(publisher: &mut Publisher<KafkaProducer>, batch: &mut Batch, events: usize) {
    let mut sent = 0;
    while sent < events {
        fill(batch, sent);
        sent += EVENTS_PER_BATCH;
        while publisher.accept(batch).expect("no failure") == Accepted::Full {
            poll(publisher, Duration::from_millis(1));
        }
        poll(publisher, Duration::ZERO);
    }
    while publisher.outstanding() > 0 {
        poll(publisher, Duration::from_millis(1));
    }
}

fn poll(publisher: &mut Publisher<KafkaProducer>, timeout: Duration) {
    publisher
        .poll(timeout, PgTimestamp::new(0), &mut |_| ())
        .expect("no failure");
}

/// Transactions of ten events.
fn fill(batch: &mut Batch, first: usize) {
    batch.clear();
    for number in first..first + EVENTS_PER_BATCH {
        if number % 10 == 0 {
            batch.entries.push(Entry::Begin(TransactionId {
                final_lsn: Lsn::new(1),
                commit_time: PgTimestamp::new(0),
                xid: 7,
            }));
        }
        let mut builder = batch.records.begin();
        builder.set_topic([TOPIC]);
        builder.put(Place::Key, Some(&(number as u32).to_be_bytes()));
        builder.put(Place::Payload, Some(PAYLOAD));
        builder.finish();
        batch.entries.push(Entry::Record {
            inserts: number as u64 % 10 + 1,
        });
        if number % 10 == 9 {
            batch.entries.push(Entry::Commit {
                end_lsn: Lsn::new(1),
            });
        }
    }
}

fn send(client: &BaseProducer<Counting>, events: usize) {
    let start = DELIVERED.load(Ordering::Relaxed);
    for number in 0..events {
        let key = (number as u32).to_be_bytes();
        let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(TOPIC, number)
            .key(&key)
            .payload(PAYLOAD);
        while let Err((_, refused)) = client.send(record) {
            client.poll(Duration::from_millis(1));
            record = refused;
        }
        if number % EVENTS_PER_BATCH == 0 {
            client.poll(Duration::ZERO);
        }
        while number - (DELIVERED.load(Ordering::Relaxed) - start) > IN_FLIGHT_MAX {
            client.poll(Duration::from_millis(1));
        }
    }
    while DELIVERED.load(Ordering::Relaxed) - start < events {
        client.poll(Duration::from_millis(1));
    }
}

static DELIVERED: AtomicUsize = AtomicUsize::new(0);

/// Counts deliveries and does nothing else.
struct Counting;

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, _: usize) {
        assert!(result.is_ok());
        DELIVERED.fetch_add(1, Ordering::Relaxed);
    }
}

/// 147 bytes, as a small JSON event has.
const PAYLOAD: &[u8] = &[b'x'; 147];
