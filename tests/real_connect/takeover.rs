//! Taking over from the real Debezium while eight writers go on, and going back to it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::connector::Connector;
use e2e::consumer::{Consumer, Record};
use e2e::debezium::Worker;
use e2e::fixture::Fixture;
use e2e::ledger::Ledger;
use e2e::random::Random;
use e2e::takeover::{Ended, PREFIX, announced, configuration, state, takeover, takeover_from};
use e2e::wait;
use e2e::writer::{Load, Running};
use serde_json::{Value, json};
use xtask::connect::ConnectOptions;

const NAME: &str = "outbox";

/// Transactions a second: enough that one is always under way, and few enough for a small machine with a JVM.
const TRANSACTIONS_PER_SECOND: u32 = 100;

/// On a machine that others use as well.
const LONG: Duration = Duration::from_secs(120);

/// Connect at work on a fixture's slot, while writers write.
struct Place {
    fixture: Fixture,
    worker: Worker,
    consumer: Consumer,
    config: Value,
    load: Running,
}

impl Place {
    async fn new(name: &str, properties: &[(&str, &str)]) -> Result<Self> {
        Self::with_keys(name, properties, &[]).await
    }

    async fn with_keys(
        name: &str,
        properties: &[(&str, &str)],
        keys: &[(&str, &str)],
    ) -> Result<Self> {
        let fixture = Fixture::new(name).await?;
        // Which rows belong together; a transaction's own rows may have several numbers, of savepoints.
        fixture
            .sql(&format!(
                "ALTER TABLE public.outbox ADD COLUMN tx text DEFAULT pg_current_xact_id()::text;
                 GRANT SELECT ON public.outbox TO {}",
                fixture.role
            ))
            .await?;
        let consumer = fixture.consumer(&["order"])?;
        let properties = properties.iter();
        let options = ConnectOptions {
            group: fixture.slot.clone(),
            properties: properties
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..ConnectOptions::default()
        };
        let worker = Worker::start_with(&fixture.servers.kafka.bootstrap(), &options)?;
        let mut config = configuration(&fixture, NAME);
        let own = config.get_mut("config").and_then(Value::as_object_mut);
        let own = own.context("keys")?;
        for (key, value) in keys {
            own.insert((*key).to_owned(), Value::from(*value));
        }
        worker
            .put(NAME, config.get("config").context("keys")?)
            .await?;
        let load = Load::steady(TRANSACTIONS_PER_SECOND)
            .start(&fixture)
            .await?;
        Ok(Self {
            fixture,
            worker,
            consumer,
            config,
            load,
        })
    }

    /// Waits for a moment that nobody chose.
    async fn some_time(&mut self) -> Result<()> {
        let records = 300 + Random::new(Random::run_seed()).below(700);
        self.consumer.wait_for_records(records, LONG).await?;
        Ok(())
    }

    /// Waits until there is something to take over from.
    async fn has_stored_an_offset(&self) -> Result<()> {
        let bootstrap = self.fixture.servers.kafka.bootstrap();
        let topic = format!("{}-offsets", self.fixture.slot);
        let mut offsets = Consumer::new(&bootstrap, &[topic])?;
        offsets.wait_for_records(1, LONG).await.map(drop)
    }

    async fn take_over_after_a_stop(&self, variant: &str) -> Result<Ended> {
        self.fixture.watch_slot().await?.released().await?;
        let answer = self.worker.offsets(NAME)?;
        let state = state(&self.fixture);
        let arguments = ["--variant", variant, "--yes", "--set", &state];
        let ended = takeover(&self.fixture, &self.config, &answer, &arguments).await?;
        ensure!(ended.code == 0, "{answer}: {}", ended.text);
        Ok(ended)
    }

    async fn run(&self) -> Result<Connector> {
        let brokers = self.fixture.servers.kafka.bootstrap();
        let state = state(&self.fixture);
        let arguments = [
            "--brokers",
            &brokers,
            "--log-format",
            "json",
            "--set",
            &state,
        ];
        let text = self.config.to_string();
        let connector = Connector::start_file("connector.json", &text, &arguments, &[])?;
        connector.ready().await?;
        Ok(connector)
    }

    /// Ends the load, waits until all of it has arrived, and gives the events that were sent more than once.
    async fn end(mut self, reader: Option<Connector>) -> Result<Repeated> {
        let ledger = self.load.stop().await?;
        let missing = |records: &[Record]| {
            let arrived: HashSet<&str> = records.iter().map(Record::id).collect();
            let ids = ledger.iter().map(|(id, _)| id);
            ids.filter(|id| !arrived.contains(id)).count()
        };
        let consumer = &mut self.consumer;
        let all = wait::until_true("all events to arrive", LONG, async || {
            Ok(missing(consumer.read_to_end().await?) == 0)
        });
        let arrived = all.await;
        let records = self.consumer.read_to_end().await?;
        arrived.with_context(|| {
            format!(
                "{} of {} events are missing",
                missing(records),
                ledger.len()
            )
        })?;
        if let Some(reader) = reader {
            reader.stop().await?;
        }
        Repeated::of(&self.fixture, &ledger, records).await
    }
}

/// Events that were sent more than once.
struct Repeated {
    events: usize,
    transactions: HashSet<String>,
}

impl Repeated {
    async fn of(fixture: &Fixture, ledger: &Ledger, records: &[Record]) -> Result<Self> {
        let client = fixture.client().await?;
        let rows = client
            .query("SELECT id::text, tx FROM public.outbox", &[])
            .await?;
        let mut transactions = HashMap::new();
        for row in rows {
            let (id, transaction): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            transactions.insert(id, transaction);
        }
        let mut seen = HashSet::new();
        let mut repeated = Self {
            events: 0,
            transactions: HashSet::new(),
        };
        for record in records {
            ensure!(
                ledger.get(record.id()).is_some(),
                "nobody committed {record:?}"
            );
            if !seen.insert(record.id()) {
                repeated.events += 1;
                let transaction = transactions.get(record.id()).context("a row")?;
                repeated.transactions.insert(transaction.clone());
            }
        }
        Ok(repeated)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_at_most_one_transaction_repeats() -> Result<()> {
    let mut place = Place::new("over_stop", &[]).await?;
    place.some_time().await?;
    place.worker.stop(NAME).await?;
    place.load.goes_on_for(100, LONG).await?;
    let ended = place.take_over_after_a_stop("at-least-once").await?;
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    let repeated = place.end(Some(connector)).await?;
    let (after_stop, _) = announced(&ended.text, "at-least-once")?;
    ensure!(
        repeated.transactions.len() <= 1,
        "{:?}\n{}",
        repeated.transactions,
        ended.text
    );
    ensure!(
        repeated.events <= after_stop,
        "{} repeated\n{}",
        repeated.events,
        ended.text
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_the_skip_variant_repeats_nothing() -> Result<()> {
    let mut place = Place::new("over_skip", &[]).await?;
    place.some_time().await?;
    place.worker.stop(NAME).await?;
    place.load.goes_on_for(100, LONG).await?;
    let ended = place.take_over_after_a_stop("skip").await?;
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    let repeated = place.end(Some(connector)).await?;
    ensure!(
        repeated.events == 0,
        "{} repeated\n{}",
        repeated.events,
        ended.text
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_no_more_repeats_than_announced() -> Result<()> {
    let seldom = [("offset.flush.interval.ms", "3000")];
    let mut place = Place::new("over_kill", &seldom).await?;
    place.some_time().await?;
    place.has_stored_an_offset().await?;
    place.worker.process().kill()?;
    place.fixture.watch_slot().await?.released().await?;
    let properties = place.worker.process().properties_file();
    let (worker, state) = (properties.to_string_lossy(), state(&place.fixture));
    let arguments = ["--yes", "--worker", &worker, "--set", &state];
    let ended = takeover_from(&place.fixture, &place.config, "topic", &arguments).await?;
    ensure!(ended.code == 0, "{}", ended.text);
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    let repeated = place.end(Some(connector)).await?;
    let (_, after_kill) = announced(&ended.text, "at-least-once")?;
    ensure!(
        repeated.events <= after_kill,
        "{} repeated\n{}",
        repeated.events,
        ended.text
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_goes_on_where_we_stopped() -> Result<()> {
    let mut place = Place::new("over_back", &[]).await?;
    place.some_time().await?;
    place.worker.stop(NAME).await?;
    place.take_over_after_a_stop("at-least-once").await?;
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    connector.stop().await?;
    let slot = place.fixture.watch_slot().await?;
    slot.released().await?;
    // One less than the position: a row may begin there, and Debezium would take it for the last one that it has sent, and
    // pass over everything that comes before it.
    let before = slot.confirmed().await?.0 - 1;
    place.load.goes_on_for(100, LONG).await?;
    let offset =
        json!({ "lsn": before, "lsn_proc": before, "lsn_commit": before, "messageType": "COMMIT" });
    place.worker.set_offset(NAME, PREFIX, &offset)?;
    place.worker.resume(NAME).await?;
    place.load.goes_on_for(200, LONG).await?;
    let repeated = place.end(None).await?;
    // Of the takeover; the way back repeats nothing.
    ensure!(
        repeated.transactions.len() <= 1,
        "{:?}",
        repeated.transactions
    );
    Ok(())
}

/// Both deliver exactly once: a consumer of committed records sees each event once, over the takeover and over a kill after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_once_goes_on_where_exactly_once_stopped() -> Result<()> {
    let worker = [("exactly.once.source.support", "enabled")];
    let keys = [("exactly.once.support", "required")];
    let mut place = Place::with_keys("over_once", &worker, &keys).await?;
    place.some_time().await?;
    place.worker.stop(NAME).await?;
    place.load.goes_on_for(100, LONG).await?;
    let ended = place.take_over_after_a_stop("skip").await?;
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    connector.kill()?;
    let connector = place.run().await?;
    place.load.goes_on_for(200, LONG).await?;
    let Place {
        fixture,
        mut consumer,
        load,
        ..
    } = place;
    let ledger = load.stop().await?;
    consumer.wait_for_events(ledger.len(), LONG).await?;
    fixture.watch_slot().await?.catches_up(LONG).await?;
    connector.stop().await?;
    let topics = [fixture.topic("order")];
    let mut seen = Consumer::new(&fixture.servers.kafka.bootstrap(), &topics)?;
    let records = seen.read_committed_to_end().await?;
    let repeated = Repeated::of(&fixture, &ledger, records).await?;
    ensure!(
        repeated.events == 0 && records.len() == ledger.len(),
        "{} repeated\n{}",
        repeated.events,
        ended.text
    );
    Ok(())
}
