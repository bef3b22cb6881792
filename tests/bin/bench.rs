//! The load, the independent consumer and the bare producer of `cargo xtask bench`.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use e2e::fixture::connect;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{
    BorrowedMessage, DeliveryResult, Header, Headers as _, Message as _, OwnedHeaders,
};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use xtask::process::usage;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Fills the outbox by concurrent writers.
    Write {
        #[arg(long)]
        postgres: String,
        #[arg(long)]
        rows: u64,
        /// Rows in each transaction.
        #[arg(long)]
        batch: u64,
        #[arg(long)]
        writers: u64,
    },
    /// Reads a topic until every id of the outbox was seen. Prints `ready` when it is about to read, `done` at the end.
    Consume {
        #[arg(long)]
        postgres: String,
        #[arg(long)]
        kafka: String,
        #[arg(long)]
        topic: String,
    },
    /// Sends the records of one topic to another with nothing else around librdkafka, and prints the time it took and
    /// the CPU time it used, both in milliseconds.
    Produce {
        #[arg(long)]
        kafka: String,
        #[arg(long)]
        from: String,
        #[arg(long)]
        to: String,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Write {
            postgres,
            rows,
            batch,
            writers,
        } => block_on(write(&postgres, rows, batch, writers)),
        Task::Consume {
            postgres,
            kafka,
            topic,
        } => consume(block_on(ids(&postgres))?, &kafka, &topic),
        Task::Produce { kafka, from, to } => produce(&kafka, &from, &to),
    }
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("start a runtime")?.block_on(future)
}

/// About the size of a small event: 160 bytes of payload, one of 10 000 aggregates.
const INSERT: &str = "
    INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
    SELECT 'order', 'order-' || (random() * 10000)::int, 'OrderPlaced',
           jsonb_build_object('order', n, 'customer', md5(n::text), 'cents', n % 100000, 'note', repeat('x', 60))
    FROM generate_series($1::bigint, $2::bigint) n";

async fn write(url: &str, rows: u64, batch: u64, writers: u64) -> Result<()> {
    ensure!(
        batch > 0 && writers > 0,
        "rows are written by somebody, some at a time"
    );
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        // The first writers take what cannot be shared evenly.
        let own = rows / writers + u64::from(writer < rows % writers);
        tasks.spawn(write_own(connect(url).await?, own, batch));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn write_own(client: Client, rows: u64, batch: u64) -> Result<()> {
    let insert = client.prepare(INSERT).await?;
    let mut written = 0;
    while written < rows {
        let last = rows.min(written + batch);
        let range = (i64::try_from(written + 1)?, i64::try_from(last)?);
        client.execute(&insert, &[&range.0, &range.1]).await?;
        written = last;
    }
    Ok(())
}

/// Ids of the whole outbox, as numbers.
async fn ids(url: &str) -> Result<HashSet<u128>> {
    let client = connect(url).await?;
    let rows = client
        .query("SELECT id::text FROM public.outbox", &[])
        .await?;
    rows.iter()
        .map(|row| number(row.try_get(0)?).context("an id that is no uuid"))
        .collect()
}

fn number(uuid: &str) -> Option<u128> {
    let digits: String = uuid.chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&digits, 16).ok()
}

/// Nothing may stall for longer than this; a benchmark of a dead pipeline ends.
const STALL_MAX: Duration = Duration::from_secs(120);

fn consume(mut awaited: HashSet<u128>, kafka: &str, topic: &str) -> Result<()> {
    let consumer = reader(kafka, topic)?;
    say("ready");
    let mut strange = 0_u64;
    let mut heard = Instant::now();
    while !awaited.is_empty() {
        let Some(record) = consumer.poll(Duration::from_millis(100)) else {
            ensure!(
                heard.elapsed() < STALL_MAX,
                "{} records never came",
                awaited.len()
            );
            continue;
        };
        heard = Instant::now();
        let id = id(&record?)?;
        if !awaited.remove(&id) {
            strange += 1;
        }
    }
    say("done");
    ensure!(strange == 0, "{strange} records came twice or are nobody's");
    Ok(())
}

fn id(record: &BorrowedMessage<'_>) -> Result<u128> {
    let headers = record.headers().context("a record without headers")?;
    let header = headers.iter().find(|header| header.key == "id");
    let value = header
        .and_then(|header| header.value)
        .context("a record without an id")?;
    std::str::from_utf8(value)
        .ok()
        .and_then(number)
        .context("an id that is no uuid")
}

/// Reads all partitions from their beginning, without a group.
fn reader(kafka: &str, topic: &str) -> Result<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .create()
        .context("make a consumer")?;
    let metadata = consumer.fetch_metadata(Some(topic), STALL_MAX)?;
    let known = metadata.topics().first().context("no such topic")?;
    let mut assignment = TopicPartitionList::new();
    for partition in known.partitions() {
        assignment.add_partition_offset(topic, partition.id(), Offset::Beginning)?;
    }
    ensure!(assignment.count() > 0, "the topic has no partitions");
    consumer.assign(&assignment)?;
    Ok(consumer)
}

fn produce(kafka: &str, from: &str, to: &str) -> Result<()> {
    let records = Kept::all(kafka, from)?;
    let (wall, cpu) = (Instant::now(), cpu_ms()?);
    // The very options of the connector, so that the difference is the connector's work and not a setting's.
    let producer: BaseProducer<Failures> = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("max.in.flight.requests.per.connection", "5")
        .set("message.timeout.ms", "0")
        .set("linger.ms", "1")
        .set("queue.buffering.max.messages", "20000")
        .create_with_context(Failures::default())
        .context("make a producer")?;
    records.send(&producer, to)?;
    while producer.in_flight_count() > 0 {
        producer.poll(Duration::from_millis(1));
    }
    ensure!(
        producer.context().0.load(Ordering::Relaxed) == 0,
        "some records were not acknowledged"
    );
    say(&format!(
        "{} {}",
        wall.elapsed().as_millis(),
        cpu_ms()? - cpu
    ));
    Ok(())
}

/// Records in memory, one after the other in one piece: as quick to walk through as the connector's own batches.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    records: Vec<Shape>,
}

/// Where a record stands: its key, its payload, then the value of its one header.
#[derive(Clone, Copy)]
struct Shape {
    partition: i32,
    timestamp: i64,
    start: usize,
    key_len: usize,
    payload_len: usize,
    id_len: usize,
}

impl Kept {
    fn all(kafka: &str, topic: &str) -> Result<Self> {
        let consumer = reader(kafka, topic)?;
        let mut left = 0;
        for partition in 0..i32::try_from(consumer.assignment()?.count())? {
            let (low, high) = consumer.fetch_watermarks(topic, partition, STALL_MAX)?;
            left += high - low;
        }
        let mut kept = Self::default();
        for _ in 0..left {
            let record = consumer
                .poll(STALL_MAX)
                .context("the topic ended early")??;
            kept.push(&record)?;
        }
        Ok(kept)
    }

    fn push(&mut self, record: &BorrowedMessage<'_>) -> Result<()> {
        let headers = record.headers().context("a record without headers")?;
        ensure!(
            headers.count() == 1,
            "a record with more than the header `id`"
        );
        let id = headers.get(0).value.unwrap_or_default();
        let (key, payload) = (
            record.key().unwrap_or_default(),
            record.payload().unwrap_or_default(),
        );
        self.records.push(Shape {
            partition: record.partition(),
            timestamp: record.timestamp().to_millis().unwrap_or_default(),
            start: self.bytes.len(),
            key_len: key.len(),
            payload_len: payload.len(),
            id_len: id.len(),
        });
        for part in [key, payload, id] {
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }

    fn send(&self, producer: &BaseProducer<Failures>, topic: &str) -> Result<()> {
        for shape in &self.records {
            let bytes = self.bytes.get(shape.start..).unwrap_or_default();
            let (key, bytes) = bytes.split_at(shape.key_len);
            let (payload, bytes) = bytes.split_at(shape.payload_len);
            let (id, _) = bytes.split_at(shape.id_len);
            let header = Header {
                key: "id",
                value: Some(id),
            };
            let record = BaseRecord::with_opaque_to(topic, 0_usize)
                .partition(shape.partition)
                .key(key)
                .payload(payload)
                .timestamp(shape.timestamp)
                .headers(OwnedHeaders::new_with_capacity(1).insert(header));
            send(producer, record)?;
        }
        Ok(())
    }
}

fn send(
    producer: &BaseProducer<Failures>,
    mut record: BaseRecord<'_, [u8], [u8], usize>,
) -> Result<()> {
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                producer.poll(Duration::from_millis(1));
                record = again;
            }
            Err((error, _)) => return Err(error).context("send a record"),
        }
    }
}

/// Counts deliveries that failed.
#[derive(Default)]
struct Failures(AtomicU64);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, _: usize) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// User and system time of this process so far.
fn cpu_ms() -> Result<u64> {
    let pid = std::process::id();
    Ok(usage(pid).context("read this process's CPU time")?.cpu_ms)
}

fn say(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}
