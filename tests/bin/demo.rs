//! The demo's service and its reader: order events written in ordinary transactions, and every record as it arrives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::fixture::connect;
use e2e::wait;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio_postgres::Client;

/// Writes order events and prints them as a consumer sees them.
#[derive(Debug, Parser)]
struct Arguments {
    /// Connection URL of the service's database.
    #[arg(long)]
    postgres: String,
    /// Bootstrap servers of Kafka.
    #[arg(long)]
    kafka: String,
    /// The connector's slot, whose confirmed position the summary shows.
    #[arg(long)]
    slot: String,
    /// How long to write.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Write until interrupted.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let shop = Arc::new(Shop::default());
    prepare(&arguments.postgres).await?;
    let consumer = Arc::new(consumer(&arguments.kafka)?);
    let reader = tokio::spawn(read(consumer.clone(), shop.clone()));
    // Joining its group takes a moment, which is no part of an event's way.
    wait::until_true(
        "the consumer to have its partitions",
        PATIENCE,
        async || Ok(consumer.assignment()?.count() > 0),
    )
    .await?;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let client = connect(&arguments.postgres).await?;
        writers.push(tokio::spawn(write(client, number, shop.clone())));
    }
    let ended = tokio::time::timeout(
        Duration::from_secs(arguments.seconds),
        tokio::signal::ctrl_c(),
    );
    if arguments.keep {
        tokio::signal::ctrl_c().await?;
    } else {
        ended.await.ok().transpose()?;
    }
    shop.closed.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await??;
    }
    let all_read = wait::until_true("every event to be read", PATIENCE, async || {
        Ok(shop.awaits_none())
    });
    let all_read = all_read.await;
    reader.abort();
    let confirmed = confirmed_behind_the_writers(&arguments).await;
    shop.summary(&confirmed?);
    ensure!(
        shop.surplus.load(Ordering::Relaxed) == 0,
        "records were read that nobody awaited"
    );
    all_read
}

/// Two is enough to see transactions interleave and keys keep their order.
const WRITERS: usize = 2;
/// Between two transactions of a writer: slow enough to read along.
const PACE: Duration = Duration::from_millis(400);
/// How long the last events and the confirmation may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What writers and reader know of each other.
#[derive(Default)]
struct Shop {
    /// Events on their way, with the moment before their COMMIT was sent.
    under_way: Mutex<HashMap<String, Instant>>,
    latencies: Mutex<Vec<Duration>>,
    written: AtomicU64,
    /// Records whose event nobody wrote, or that came again.
    surplus: AtomicU64,
    rolled_back: AtomicU64,
    closed: AtomicBool,
}

impl Shop {
    fn awaits_none(&self) -> bool {
        lock(&self.under_way).is_empty()
    }

    /// Takes an event off those that are under way.
    fn arrived(&self, id: &str) -> Option<Duration> {
        let sent = lock(&self.under_way).remove(id);
        let latency = sent.map(|moment| moment.elapsed());
        match latency {
            Some(latency) => lock(&self.latencies).push(latency),
            None => {
                self.surplus.fetch_add(1, Ordering::Relaxed);
            }
        }
        latency
    }

    fn summary(&self, confirmed: &str) {
        let mut latencies = lock(&self.latencies);
        latencies.sort_unstable();
        let at = |part: usize| latencies.get(latencies.len() * part / 100).copied();
        let written = self.written.load(Ordering::Relaxed);
        let surplus = self.surplus.load(Ordering::Relaxed);
        say("");
        say(&format!("events written      {written}"));
        say(&format!("events read         {}", latencies.len()));
        say(&format!("read twice          {surplus}"));
        let rolled_back = self.rolled_back.load(Ordering::Relaxed);
        say(&format!(
            "rolled back         {rolled_back}, none of them read"
        ));
        say(&format!("confirmed position  {confirmed}"));
        say(&format!(
            "commit to consumer  median {}, 99 % within {}",
            milliseconds(at(50)),
            milliseconds(at(99))
        ));
    }
}

/// The service's own table; the outbox is there already.
async fn prepare(url: &str) -> Result<()> {
    let client = connect(url).await?;
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS public.orders (
                 id text PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL, state text NOT NULL)",
        )
        .await
        .context("create the table of orders")
}

/// One clerk: places an order, has it paid, ships it; now and then a customer changes their mind.
async fn write(mut client: Client, clerk: usize, shop: Arc<Shop>) -> Result<()> {
    let mut pace = tokio::time::interval(PACE);
    for number in 1_u64.. {
        let order = format!("order-{}{number:03}", clerk + 1);
        for step in [&PLACED, &PAID, &SHIPPED] {
            pace.tick().await;
            if shop.closed.load(Ordering::Relaxed) {
                return Ok(());
            }
            step.run(&mut client, &order, number, &shop).await?;
        }
    }
    Ok(())
}

/// A change of an order and the event that tells of it, in one transaction.
struct Step {
    event: &'static str,
    change: &'static str,
}

const PLACED: Step = Step {
    event: "OrderPlaced",
    change:
        "INSERT INTO public.orders VALUES ($1, 'customer-' || $2::bigint % 7, $2 * 250, 'placed')
             RETURNING jsonb_build_object('order', id, 'customer', customer, 'cents', cents)",
};
const PAID: Step = Step {
    event: "OrderPaid",
    change: "UPDATE public.orders SET state = 'paid' WHERE id = $1 AND $2::bigint > 0
             RETURNING jsonb_build_object('order', id, 'cents', cents)",
};
const SHIPPED: Step = Step {
    event: "OrderShipped",
    change: "UPDATE public.orders SET state = 'shipped' WHERE id = $1 AND $2::bigint > 0
             RETURNING jsonb_build_object('order', id, 'parcel', 'P' || $2)",
};
/// Every so many orders the payment is rolled back first and then repeated.
const CHANGES_OF_MIND: u64 = 4;

impl Step {
    async fn run(&self, client: &mut Client, order: &str, number: u64, shop: &Shop) -> Result<()> {
        if self.event == PAID.event && number.is_multiple_of(CHANGES_OF_MIND) {
            let transaction = client.transaction().await?;
            self.statements(&transaction, order, number).await?;
            transaction.rollback().await?;
            shop.rolled_back.fetch_add(1, Ordering::Relaxed);
        }
        let transaction = client.transaction().await?;
        let id = self.statements(&transaction, order, number).await?;
        // Noted before the COMMIT, since the record may be read before its answer is.
        lock(&shop.under_way).insert(id, Instant::now());
        transaction.commit().await?;
        shop.written.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn statements(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        order: &str,
        number: u64,
    ) -> Result<String> {
        let statement = format!(
            "WITH change AS ({}) INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
             SELECT 'order', $1, '{}', jsonb_build_object FROM change RETURNING id::text",
            self.change, self.event
        );
        let number = i64::try_from(number)?;
        let row = transaction
            .query_one(&statement, &[&order, &number])
            .await?;
        Ok(row.try_get(0)?)
    }
}

fn consumer(bootstrap: &str) -> Result<StreamConsumer> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "demo")
        .set("auto.offset.reset", "earliest")
        .set("topic.metadata.refresh.interval.ms", "1000")
        .create()
        .context("make a consumer")?;
    consumer.subscribe(&[TOPICS]).context("subscribe")?;
    Ok(consumer)
}

/// All topics of events, as the default template names them.
const TOPICS: &str = "^outbox\\.event\\..*";

async fn read(consumer: Arc<StreamConsumer>, shop: Arc<Shop>) {
    loop {
        match consumer.recv().await {
            Ok(record) => print(&record, &shop),
            // A topic that is not there yet, a broker that starts: the client goes on by itself.
            Err(error) => say(&format!("consumer: {error}")),
        }
    }
}

fn print(record: &BorrowedMessage<'_>, shop: &Shop) {
    let mut id = String::new();
    let mut headers = String::new();
    for header in record.headers().iter().flat_map(|headers| headers.iter()) {
        let value = header
            .value
            .map_or_else(|| "null".into(), String::from_utf8_lossy);
        headers.push_str(&format!("  {}={value}", header.key));
        if header.key == "id" {
            id = value.into_owned();
        }
    }
    let latency = shop.arrived(&id);
    let text = |bytes: Option<&[u8]>| {
        bytes.map_or_else(
            || "null".into(),
            |bytes| String::from_utf8_lossy(bytes).into_owned(),
        )
    };
    say(&format!(
        "{}[{}] @{}  key={}  {}\n   {headers}\n     {}",
        record.topic(),
        record.partition(),
        record.offset(),
        text(record.key()),
        milliseconds(latency),
        text(record.payload()),
    ));
}

/// Waits until the slot is confirmed up to now, and says how far it is.
async fn confirmed_behind_the_writers(arguments: &Arguments) -> Result<String> {
    let client = connect(&arguments.postgres).await?;
    let written = client
        .query_one("SELECT pg_current_wal_lsn()::text", &[])
        .await?;
    let written: String = written.try_get(0)?;
    let mut confirmed = String::new();
    wait::until_true("the slot to be confirmed", PATIENCE, async || {
        let row = client
            .query_opt(
                "SELECT confirmed_flush_lsn::text, confirmed_flush_lsn >= $2::text::pg_lsn
                 FROM pg_replication_slots WHERE slot_name = $1",
                &[&arguments.slot, &written],
            )
            .await?
            .context("the slot is gone")?;
        confirmed = row.try_get(0)?;
        Ok(row.try_get(1)?)
    })
    .await?;
    ensure!(!confirmed.is_empty(), "the slot has no confirmed position");
    Ok(format!("{confirmed} (written up to {written})"))
}

fn milliseconds(latency: Option<Duration>) -> String {
    latency.map_or_else(
        || "not ours".into(),
        |latency| format!("{:.1} ms", latency.as_secs_f64() * 1000.0),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}").ok();
}
