//! The whole publisher over the real client, against librdkafka's in-process brokers.
//!
//! They speak the protocol and inject errors. They check no sequence numbers of idempotent producers, so where a
//! test depends on that check, it injects the answers that a broker would give.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pgoutput::{Lsn, PgTimestamp, TransactionId};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use router::Place;
use sink::{
    Accepted, Batch, Entry, KafkaConfig, KafkaProducer, Limits, Producer, PublishError, Publisher,
};

const TOPIC: &str = "outbox.event.order";
const PATIENCE: Duration = Duration::from_secs(60);

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(brokers: i32, topic: &str, partitions: i32) -> Cluster {
    let cluster = MockCluster::new(brokers).unwrap();
    cluster.create_topic(topic, partitions, 1).unwrap();
    cluster
}

fn config(cluster: &Cluster, properties: &[(&str, &str)]) -> KafkaConfig {
    KafkaConfig {
        brokers: cluster.bootstrap_servers(),
        client_id: "test".to_owned(),
        properties: properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        limits: Limits {
            in_flight_records_max: 500,
            ..Limits::default()
        },
        ..KafkaConfig::default()
    }
}

fn publisher(cluster: &Cluster, properties: &[(&str, &str)]) -> Publisher<KafkaProducer> {
    let config = config(cluster, properties);
    let producer = KafkaProducer::new(&config).unwrap();
    Publisher::new(producer, config.limits, Lsn::new(1))
}

/// One event: key, payload, headers; `None` is null.
struct Event<'a> {
    topic: &'a str,
    key: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    headers: &'a [(&'a str, Option<&'a [u8]>)],
}

fn push(batch: &mut Batch, event: &Event<'_>, end_lsn: u64) {
    batch.entries.push(Entry::Begin(TransactionId {
        final_lsn: Lsn::new(end_lsn - 1),
        commit_time: PgTimestamp::new(0),
        xid: 7,
    }));
    let mut builder = batch.records.begin();
    builder.set_topic([event.topic]);
    builder.put(Place::Key, event.key);
    builder.put(Place::Payload, event.payload);
    for (name, value) in event.headers {
        builder.put(Place::Header(name), *value);
    }
    builder.finish();
    batch.entries.push(Entry::Record { inserts: 1 });
    let end_lsn = Lsn::new(end_lsn);
    batch.entries.push(Entry::Commit { end_lsn });
}

/// Events of one key with their numbers as payload, the n-th transaction ending at `10 * n`.
fn numbered(key: &str, numbers: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::new();
    for number in numbers {
        let payload = number.to_string();
        let event = Event {
            topic: TOPIC,
            key: Some(key.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &[("id", Some(b"77"))],
        };
        push(&mut batch, &event, number * 10);
    }
    batch
}

/// Takes the batch and waits until everything is acknowledged, or for the failure.
fn publish(
    publisher: &mut Publisher<KafkaProducer>,
    batch: &mut Batch,
) -> Result<(), PublishError> {
    let deadline = Instant::now() + PATIENCE;
    let mut taken = false;
    while !taken || publisher.outstanding() > 0 {
        assert!(
            Instant::now() < deadline,
            "{} outstanding",
            publisher.outstanding()
        );
        taken = taken || publisher.accept(batch)? == Accepted::All;
        publisher.poll(Duration::from_millis(1), PgTimestamp::new(0), &mut |_| ())?;
    }
    Ok(())
}

/// Polls until the state is reached.
fn wait(
    publisher: &mut Publisher<KafkaProducer>,
    reached: impl Fn(&Publisher<KafkaProducer>) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while !reached(publisher) {
        assert!(Instant::now() < deadline, "state not reached");
        publisher
            .poll(Duration::from_millis(1), PgTimestamp::new(0), &mut |_| ())
            .unwrap();
    }
}

fn confirmed(publisher: &Publisher<KafkaProducer>) -> u64 {
    publisher.confirmed().as_lsn().as_u64()
}

/// Everything in the topic, in the order of offsets within each partition.
fn consume(cluster: &Cluster, topic: &str, partitions: i32) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "test")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    let mut expected = 0;
    for partition in 0..partitions {
        let (_, high) = consumer
            .fetch_watermarks(topic, partition, PATIENCE)
            .unwrap();
        expected += usize::try_from(high).unwrap();
        assignment
            .add_partition_offset(topic, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut messages = Vec::new();
    while messages.len() < expected {
        assert!(
            Instant::now() < deadline,
            "{} of {expected}",
            messages.len()
        );
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => messages.push(message.detach()),
            Some(Err(error)) => assert!(
                matches!(error, KafkaError::MessageConsumption(_)),
                "{error}"
            ),
            None => {}
        }
    }
    messages
}

fn numbers(messages: &[OwnedMessage]) -> Vec<u64> {
    messages
        .iter()
        .map(|message| {
            std::str::from_utf8(message.payload().unwrap())
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

fn inject(cluster: &Cluster, errors: &[RDKafkaRespErr]) {
    cluster.request_errors(RDKafkaApiKey::Produce, errors);
}

#[test]
fn ten_thousand_records_arrive_once_and_in_order() {
    let cluster = cluster(3, TOPIC, 6);
    let mut publisher = publisher(&cluster, &[]);
    let mut batch = Batch::new();
    for number in 1..=10_000_u64 {
        let (key, payload) = (format!("key-{}", number % 53), number.to_string());
        let event = Event {
            topic: TOPIC,
            key: Some(key.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &[],
        };
        push(&mut batch, &event, number * 10);
    }
    publish(&mut publisher, &mut batch).unwrap();
    assert_eq!(confirmed(&publisher), 100_000);

    let messages = consume(&cluster, TOPIC, 6);
    let mut by_key: HashMap<Vec<u8>, Vec<u64>> = HashMap::new();
    let mut offsets: BTreeMap<i32, i64> = BTreeMap::new();
    for (message, number) in messages.iter().zip(numbers(&messages)) {
        let next = offsets.entry(message.partition()).or_default();
        assert_eq!(message.offset(), *next);
        *next += 1;
        by_key
            .entry(message.key().unwrap().to_vec())
            .or_default()
            .push(number);
    }
    let mut all: Vec<u64> = by_key.values().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, (1..=10_000).collect::<Vec<_>>());
    assert!(by_key.values().all(|numbers| numbers.is_sorted()));
}

#[test]
fn null_and_empty_stay_what_they_are() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    let values: [Option<&[u8]>; 3] = [None, Some(b""), Some(b"null")];
    let headers: [(&str, Option<&[u8]>); 4] = [
        ("id", Some(b"77")),
        ("missing", None),
        ("empty", Some(b"")),
        ("bytes", Some(b"\xff\x00")),
    ];
    let mut batch = Batch::new();
    for key in values {
        for payload in values {
            let event = Event {
                topic: TOPIC,
                key,
                payload,
                headers: &headers,
            };
            push(&mut batch, &event, 20);
        }
    }
    publish(&mut publisher, &mut batch).unwrap();

    let messages = consume(&cluster, TOPIC, 1);
    let mut expected = values
        .iter()
        .flat_map(|key| values.iter().map(move |payload| (*key, *payload)));
    for message in &messages {
        assert_eq!(Some((message.key(), message.payload())), expected.next());
        let found: Vec<_> = message
            .headers()
            .unwrap()
            .iter()
            .map(|header| (header.key, header.value))
            .collect();
        assert_eq!(found, headers);
    }
    assert!(expected.next().is_none());
}

#[test]
fn the_time_of_an_event_is_its_own() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    let mut batch = Batch::new();
    let mut builder = batch.records.begin();
    builder.set_topic([TOPIC]);
    builder.set_timestamp_ms(Some(1_700_000_000_123));
    builder.finish();
    batch.entries.push(Entry::Message { lsn: Lsn::new(5) });
    publish(&mut publisher, &mut batch).unwrap();
    let messages = consume(&cluster, TOPIC, 1);
    assert_eq!(messages[0].timestamp().to_millis(), Some(1_700_000_000_123));
}

/// Contract 2.6: `(murmur2(key) & 0x7fffffff) % partitions`, as Java producers do it.
#[test]
fn each_key_goes_where_java_producers_put_it() {
    let vectors: [(&str, [i32; 4]); 11] = [
        ("", [0, 3, 9, 31]),
        ("1", [0, 3, 3, 9]),
        ("42", [1, 4, 4, 22]),
        ("\"42\"", [0, 0, 0, 36]),
        ("null", [2, 5, 11, 21]),
        ("order-1", [1, 4, 10, 26]),
        ("\"order-1\"", [2, 2, 8, 22]),
        ("5f1d7e9c-0000-4000-8000-000000000001", [2, 5, 11, 15]),
        ("\"5f1d7e9c-0000-4000-8000-000000000001\"", [2, 2, 8, 4]),
        (
            "{\"schema\":{\"type\":\"string\",\"optional\":false},\"payload\":\"42\"}",
            [1, 1, 1, 15],
        ),
        ("é", [0, 3, 3, 21]),
    ];
    let cluster = MockCluster::new(1).unwrap();
    let mut publisher = publisher(&cluster, &[]);
    for (column, partitions) in [3, 6, 12, 50].into_iter().enumerate() {
        let topic = format!("partitions-{partitions}");
        cluster.create_topic(&topic, partitions, 1).unwrap();
        let mut batch = Batch::new();
        for (key, _) in &vectors {
            let event = Event {
                topic: &topic,
                key: Some(key.as_bytes()),
                payload: None,
                headers: &[],
            };
            push(&mut batch, &event, 20);
        }
        publish(&mut publisher, &mut batch).unwrap();
        let found: HashMap<Vec<u8>, i32> = consume(&cluster, &topic, partitions)
            .iter()
            .map(|message| (message.key().unwrap().to_vec(), message.partition()))
            .collect();
        for (key, expected) in &vectors {
            assert_eq!(
                found[key.as_bytes()],
                expected[column],
                "{key} of {partitions}"
            );
        }
    }
}

#[test]
fn an_explicit_partition_is_kept_and_an_impossible_one_refused() {
    let cluster = cluster(1, TOPIC, 3);
    let mut publisher = publisher(&cluster, &[]);
    let place = |partition| {
        let mut batch = Batch::new();
        let mut builder = batch.records.begin();
        builder.set_topic([TOPIC]);
        builder.put(Place::Key, Some(b"42"));
        builder.set_partition(Some(partition));
        builder.finish();
        batch.entries.push(Entry::Message { lsn: Lsn::new(5) });
        batch
    };
    publish(&mut publisher, &mut place(2)).unwrap();
    assert_eq!(consume(&cluster, TOPIC, 3)[0].partition(), 2);
    for impossible in [3, -2] {
        let error = publish(&mut publisher, &mut place(impossible)).unwrap_err();
        assert!(matches!(error, PublishError::Permanent(_)), "{error:?}");
        publisher.restart(Lsn::new(1));
    }
}

#[test]
fn what_passes_by_itself_is_no_failure() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    inject(
        &cluster,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    publish(&mut publisher, &mut numbered("k", 1..101)).unwrap();
    let found = numbers(&consume(&cluster, TOPIC, 1));
    assert_eq!(found, (1..101).collect::<Vec<_>>());
}

/// Field problem B17 (b), and what B18 says of a single error among successes. A hundred requests of one record, five
/// in flight: the first is refused, and the broker answers the four behind it as brokers do when a batch is missing.
#[test]
fn b17_b_behind_a_record_refused_by_the_broker_nothing_goes_out() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &ONE_RECORD_PER_REQUEST);
    publish(&mut publisher, &mut numbered("k", 1..2)).unwrap();
    fill_the_wire(&cluster);
    inject(&cluster, &REFUSED_AND_FOUR_OUT_OF_ORDER);

    let error = publish(&mut publisher, &mut numbered("k", 2..102)).unwrap_err();
    assert!(matches!(error, PublishError::Permanent(_)), "{error:?}");
    assert_eq!(error.failure().code(), "MSG_SIZE_TOO_LARGE");
    assert_eq!(error.failure().event_id.as_deref(), Some("77"));
    assert!(error.failure().is_from_broker());
    assert!(publisher.accept(&mut numbered("k", 102..103)).is_err());
    // Whatever the client still does: nothing of it is an event behind the refused one.
    for _ in 0..500 {
        publisher
            .poll(Duration::from_millis(1), PgTimestamp::new(0), &mut |_| ())
            .map(drop)
            .unwrap_err();
    }
    assert_eq!(numbers(&consume(&cluster, TOPIC, 1)), [1]);
    assert_eq!(confirmed(&publisher), 10);

    empty_the_wire(&cluster);
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    publisher.restart(Lsn::new(10));
    publish(&mut publisher, &mut numbered("k", 2..102)).unwrap();
    let found = numbers(&consume(&cluster, TOPIC, 1));
    assert_eq!(found, (1..102).collect::<Vec<_>>());
    assert_eq!(confirmed(&publisher), 1_010);
}

/// Field problem B18: one record is refused while fifty behind it, of another partition, are acknowledged. The position
/// stays before the refused one; it comes before whatever of its key was not sent yet; in the end everything is there.
#[test]
fn b18_one_refused_record_holds_the_position_though_those_behind_it_are_acknowledged() {
    let cluster = cluster(2, TOPIC, 2);
    for (partition, broker) in [(0, 1), (1, 2)] {
        cluster
            .partition_leader(TOPIC, partition, Some(broker))
            .unwrap();
    }
    let mut publisher = publisher(&cluster, &[]);
    publish(&mut publisher, &mut placed(0, 48..49)).unwrap();
    publish(&mut publisher, &mut placed(1, 49..50)).unwrap();
    cluster
        .broker_round_trip_time(1, Duration::from_secs(2))
        .unwrap();
    inject(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let mut refused = placed(0, 50..51);
    assert_eq!(publisher.accept(&mut refused).unwrap(), Accepted::All);
    // A quarter of the round trip, in which the request arrives and takes the injected answer.
    let sent = Instant::now();
    while sent.elapsed() < Duration::from_millis(500) {
        publisher
            .poll(Duration::from_millis(10), PgTimestamp::new(0), &mut |_| ())
            .unwrap();
    }
    let mut behind = placed(1, 51..101);
    assert_eq!(publisher.accept(&mut behind).unwrap(), Accepted::All);
    wait(&mut publisher, |publisher| publisher.outstanding() == 1);
    assert_eq!(confirmed(&publisher), 490);
    let told = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < told, "the refusal does not come");
        match publisher.poll(Duration::from_millis(10), PgTimestamp::new(0), &mut |_| ()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.failure().code(), "MSG_SIZE_TOO_LARGE");
    // The next one of its key does not overtake it.
    assert!(publisher.accept(&mut placed(0, 101..102)).is_err());
    assert_eq!(confirmed(&publisher), 490);

    empty_the_wire(&cluster);
    publisher.restart(Lsn::new(490));
    publish(&mut publisher, &mut placed(0, 50..51)).unwrap();
    publish(&mut publisher, &mut placed(1, 51..101)).unwrap();
    publish(&mut publisher, &mut placed(0, 101..102)).unwrap();
    assert_eq!(confirmed(&publisher), 1_010);
    let (of_its_key, others): (Vec<_>, Vec<_>) = consume(&cluster, TOPIC, 2)
        .into_iter()
        .partition(|message| message.partition() == 0);
    assert_eq!(numbers(&of_its_key), [48, 50, 101]);
    let others: std::collections::BTreeSet<u64> = numbers(&others).into_iter().collect();
    assert_eq!(others, std::iter::once(49).chain(51..101).collect());
}

/// Numbered events of one partition, the n-th transaction ending at `10 * n`.
fn placed(partition: i32, numbers: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::new();
    for number in numbers {
        batch.entries.push(Entry::Begin(TransactionId {
            final_lsn: Lsn::new(number * 10 - 1),
            commit_time: PgTimestamp::new(0),
            xid: 7,
        }));
        let mut builder = batch.records.begin();
        builder.set_topic([TOPIC]);
        builder.put(Place::Key, Some(&partition.to_be_bytes()));
        builder.put(Place::Payload, Some(number.to_string().as_bytes()));
        builder.set_partition(Some(partition));
        builder.finish();
        batch.entries.push(Entry::Record { inserts: 1 });
        let end_lsn = Lsn::new(number * 10);
        batch.entries.push(Entry::Commit { end_lsn });
    }
    batch
}

/// A broker that does not know the producer yet accepts whatever sequence number comes first, as the mock always
/// does. So the first record of a new client to a partition must be alone on its way: after a halt, the refused
/// event is that first record.
#[test]
fn behind_a_refused_first_record_nothing_goes_out_either() {
    let cluster = cluster(1, TOPIC, 1);
    fill_the_wire(&cluster);
    let mut publisher = publisher(&cluster, &ONE_RECORD_PER_REQUEST);
    inject(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let error = publish(&mut publisher, &mut numbered("k", 1..101)).unwrap_err();
    assert_eq!(error.failure().code(), "MSG_SIZE_TOO_LARGE");
    assert!(consume(&cluster, TOPIC, 1).is_empty());

    publisher.restart(Lsn::new(1));
    inject(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    publish(&mut publisher, &mut numbered("k", 1..101)).unwrap_err();
    assert!(consume(&cluster, TOPIC, 1).is_empty());
}

/// The control for the tests above: without the gapless guarantee, the same client sends on behind the refused
/// batch. If this fails, librdkafka has changed, and the test above may prove nothing.
#[test]
fn without_the_gapless_guarantee_librdkafka_sends_on() {
    let cluster = cluster(1, TOPIC, 1);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("enable.idempotence", "true")
        .set("batch.num.messages", "1")
        .set("linger.ms", "1")
        .create()
        .unwrap();
    let send = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let payload = number.to_string();
            let record = BaseRecord::to(TOPIC).key("k").payload(payload.as_str());
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(PATIENCE).unwrap();
    };
    send(1..2);
    fill_the_wire(&cluster);
    inject(&cluster, &REFUSED_AND_FOUR_OUT_OF_ORDER);
    send(2..12);
    let found = numbers(&consume(&cluster, TOPIC, 1));
    assert_eq!(found[..2], [1, 3]);
}

/// With larger batches, librdkafka has one request in flight per partition: its limit of five counts messages.
const ONE_RECORD_PER_REQUEST: [(&str, &str); 1] = [("batch.num.messages", "1")];

/// Lets answers take so long that five requests are on their way before the first is answered.
fn fill_the_wire(cluster: &Cluster) {
    cluster
        .broker_round_trip_time(-1, Duration::from_millis(200))
        .unwrap();
}

fn empty_the_wire(cluster: &Cluster) {
    cluster.broker_round_trip_time(-1, Duration::ZERO).unwrap();
}

const REFUSED_AND_FOUR_OUT_OF_ORDER: [RDKafkaRespErr; 5] = [
    RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
    RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
];

/// Field problem B17 (a): larger than the client's own limit.
#[test]
fn a_record_too_large_for_the_client_is_refused_with_its_id_and_size() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    let mut batch = numbered("k", 1..3);
    let event = Event {
        topic: TOPIC,
        key: Some(b"k"),
        payload: Some(&vec![b'x'; 2_000_000]),
        headers: &[("id", Some(b"too-large"))],
    };
    push(&mut batch, &event, 30);
    push(
        &mut batch,
        &Event {
            payload: Some(b"4"),
            ..event
        },
        40,
    );
    let error = publish(&mut publisher, &mut batch).unwrap_err();
    let failure = error.failure();
    assert_eq!(failure.code(), "MSG_SIZE_TOO_LARGE");
    assert!(!failure.is_from_broker());
    assert_eq!(failure.event_id.as_deref(), Some("too-large"));
    assert_eq!(failure.size_bytes, Some(2_000_012));
    // The two before it still arrive and are confirmed; asking on is allowed, and ends in the same error.
    let deadline = Instant::now() + PATIENCE;
    while confirmed(&publisher) < 20 {
        assert!(Instant::now() < deadline);
        publisher
            .poll(Duration::from_millis(1), PgTimestamp::new(0), &mut |_| ())
            .map_or_else(drop, drop);
    }
    assert_eq!(numbers(&consume(&cluster, TOPIC, 1)), [1, 2]);
}

/// Field problem B20: a fatal error is overcome by a new producer, and everything unconfirmed is sent again.
#[test]
fn b20_a_a_fatal_producer_is_replaced_by_a_restart() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    publish(&mut publisher, &mut numbered("k", 1..3)).unwrap();
    inject(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let error = publish(&mut publisher, &mut numbered("k", 3..4)).unwrap_err();
    assert!(matches!(error, PublishError::Fatal(_)), "{error:?}");
    assert_eq!(error.failure().code(), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    assert_eq!(confirmed(&publisher), 20);

    assert_eq!(publisher.producer().replacements(), 0);
    publisher.restart(Lsn::new(20));
    assert_eq!(publisher.producer().replacements(), 1);
    publish(&mut publisher, &mut numbered("k", 3..5)).unwrap();
    assert_eq!(confirmed(&publisher), 40);
    assert_eq!(numbers(&consume(&cluster, TOPIC, 1)), [1, 2, 3, 4]);
}

/// Field problem B21: a topic that is missing is told by name, and found by a later attempt once it exists.
#[test]
fn a_missing_topic_can_appear_later() {
    let cluster = cluster(1, TOPIC, 1);
    cluster
        .topic_error(
            TOPIC,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
        )
        .unwrap();
    let mut publisher = publisher(&cluster, &[("topic.metadata.propagation.max.ms", "100")]);
    let error = publish(&mut publisher, &mut numbered("k", 1..3)).unwrap_err();
    assert!(matches!(error, PublishError::Retriable(_)), "{error:?}");
    assert_eq!(error.failure().topic.as_deref(), Some(TOPIC));
    assert_eq!(confirmed(&publisher), 1);

    cluster
        .topic_error(TOPIC, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR)
        .unwrap();
    publisher.restart(Lsn::new(1));
    publish(&mut publisher, &mut numbered("k", 1..3)).unwrap();
    assert_eq!(numbers(&consume(&cluster, TOPIC, 1)), [1, 2]);
}

/// Field problem B18: while the brokers are away, records wait; nothing fails, nothing is confirmed.
#[test]
fn an_outage_holds_everything_and_loses_nothing() {
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    publish(&mut publisher, &mut numbered("k", 1..2)).unwrap();
    assert!(publisher.producer().brokers_up());

    cluster.broker_down(-1).unwrap();
    let mut batch = numbered("k", 2..102);
    assert_eq!(publisher.accept(&mut batch).unwrap(), Accepted::All);
    wait(&mut publisher, |publisher| {
        !publisher.producer().brokers_up()
    });
    assert!(publisher.producer().broker_error().is_some());
    assert_eq!((publisher.outstanding(), confirmed(&publisher)), (100, 10));

    cluster.broker_up(-1).unwrap();
    wait(&mut publisher, |publisher| publisher.outstanding() == 0);
    assert!(publisher.producer().brokers_up());
    assert!(publisher.producer().broker_error().is_none());
    assert_eq!(confirmed(&publisher), 1_010);
    let found = numbers(&consume(&cluster, TOPIC, 1));
    assert_eq!(found, (1..102).collect::<Vec<_>>());
}

#[test]
fn a_probe_tells_whether_a_broker_answers() {
    let cluster = cluster(1, TOPIC, 1);
    let config = config(&cluster, &[]);
    let producer = KafkaProducer::new(&config).unwrap();
    let probe = producer.probe();
    assert!(!producer.brokers_up());
    probe.reachable(PATIENCE).unwrap();
    assert!(producer.brokers_up());
    cluster.broker_down(-1).unwrap();
    assert!(probe.reachable(Duration::from_millis(300)).is_err());
    assert!(!producer.brokers_up());
    cluster.broker_up(-1).unwrap();
    probe.reachable(PATIENCE).unwrap();
    assert!(producer.brokers_up());
}

/// The client's own poll spins for the last millisecond of its time-out.
#[test]
#[cfg(target_os = "linux")]
fn waiting_for_deliveries_takes_no_processor_time() {
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let cluster = cluster(1, TOPIC, 1);
    let mut publisher = publisher(&cluster, &[]);
    let (start, before) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(600) {
        publisher
            .poll(Duration::from_millis(1), PgTimestamp::new(0), &mut |_| ())
            .unwrap();
    }
    let used = Duration::from_millis((ticks() - before) * 10);
    assert!(
        used < Duration::from_millis(200),
        "{used:?} of {:?}",
        start.elapsed()
    );
}

/// Field problem B19: the limits hold back the stream; the client's own queue is never the one that is full.
#[test]
fn small_limits_slow_the_stream_down_and_do_nothing_else() {
    let cluster = cluster(1, TOPIC, 1);
    cluster
        .broker_round_trip_time(-1, Duration::from_millis(5))
        .unwrap();
    let config = KafkaConfig {
        limits: Limits {
            in_flight_records_max: 50,
            in_flight_bytes_max: 1_000,
        },
        ..config(&cluster, &[])
    };
    let producer = KafkaProducer::new(&config).unwrap();
    let mut publisher = Publisher::new(producer, config.limits, Lsn::new(1));
    publish(&mut publisher, &mut numbered("k", 1..2_001)).unwrap();
    let found = numbers(&consume(&cluster, TOPIC, 1));
    assert_eq!(found, (1..2_001).collect::<Vec<_>>());
}

#[test]
fn a_client_that_cannot_be_made_says_why_without_secrets() {
    let cluster = MockCluster::new(1).unwrap();
    let config = config(
        &cluster,
        &[
            ("security.protocol", "ssl"),
            ("ssl.key.pem", "hunter2"),
            ("ssl.key.password", "hunter3"),
        ],
    );
    let error = KafkaProducer::new(&config).unwrap_err();
    let shown = format!("{error} {error:?} {config:?}");
    assert!(shown.contains("ssl.key.pem"));
    assert!(!shown.contains("hunter"), "{shown}");
}
