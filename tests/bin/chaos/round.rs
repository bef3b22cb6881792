//! One round: a load, some faults that may overlap, everything healed, and then the question what was read.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::checker::{Repeats, Verdict, examine};
use e2e::consumer::{Consumer, Record};
use e2e::fixture::Fixture;
use e2e::ledger::Ledger;
use e2e::random::Random;
use e2e::wait;
use e2e::writer::{Load, Running};

use crate::Delivery;
use crate::fault::{Fault, Victim};
use crate::stage::Stage;
pub(crate) use crate::world::World;
use crate::world::positions;

/// What is to be played.
pub(crate) struct Round<'a> {
    stage: &'a Stage,
    delivery: Delivery,
    number: u64,
    seed: u64,
    random: Random,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) faults: Vec<Fault>,
    pub(crate) ledger: Ledger,
    pub(crate) records: Vec<Record>,
    pub(crate) verdict: Verdict,
    /// What failed beside the events: a process that ended, a position that stood still.
    pub(crate) error: Option<anyhow::Error>,
    /// The connectors' logs in the order of their starts.
    pub(crate) logs: Vec<String>,
    took: Duration,
}

/// Faults of one round.
const FAULTS_MIN: usize = 2;
const FAULTS_MAX: usize = 5;
/// At a time: a fault on top of another finds what neither finds alone.
const ACTIVE_MAX: usize = 2;
/// Each of mixed sizes, a dozen rows on average.
const TRANSACTIONS_PER_SECOND: u32 = 30;
/// From the last fault's end until the last event is read.
const DELIVERED_WITHIN: Duration = Duration::from_secs(90);
/// Until all that is read is confirmed.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

impl<'a> Round<'a> {
    pub(crate) fn new(stage: &'a Stage, delivery: Delivery, seed: u64, number: u64) -> Self {
        // No round depends on how the one before went, and runs of neighbouring seeds have no round in common.
        let run = Random::new(seed).number();
        let seed = Random::new(run.wrapping_add(number)).number() >> 1;
        Self {
            stage,
            delivery,
            number,
            seed,
            random: Random::new(seed),
        }
    }

    pub(crate) async fn play(mut self) -> Outcome {
        let began = Instant::now();
        let mut outcome = Outcome {
            number: self.number,
            seed: self.seed,
            faults: Vec::new(),
            ledger: Ledger::default(),
            records: Vec::new(),
            verdict: Verdict::default(),
            error: None,
            logs: Vec::new(),
            took: Duration::ZERO,
        };
        outcome.error = self.play_into(&mut outcome).await.err();
        outcome.took = began.elapsed();
        outcome
    }

    async fn play_into(&mut self, outcome: &mut Outcome) -> Result<()> {
        let fixture = Fixture::on(self.stage.servers(), "chaos").await?;
        fixture.set_sender_timeout("2s").await?;
        let mut consumer = fixture.consumer(&["order"])?;
        let mut world = World::new(self.stage, &fixture, self.delivery)?;
        let load = Load {
            seed: self.seed,
            ..Load::steady(TRANSACTIONS_PER_SECOND)
        };
        let load = load.start(&fixture).await?;
        let outcome_of_load = self
            .under_load(&mut world, load, &mut consumer, outcome)
            .await;
        let healed = world.heal().await;
        outcome.logs = world.into_logs();
        outcome_of_load.and(healed)?;
        self.clear(fixture).await
    }

    async fn under_load(
        &mut self,
        world: &mut World<'_>,
        load: Running,
        consumer: &mut Consumer,
        outcome: &mut Outcome,
    ) -> Result<()> {
        load.goes_on_for(20, WRITERS_GO_ON_WITHIN).await?;
        let disturbed = self.disturb(world, &mut outcome.faults).await;
        // What went wrong first is what is told.
        let healed = world.heal().await;
        disturbed.and(healed)?;
        load.goes_on_for(40, WRITERS_GO_ON_WITHIN).await?;
        outcome.ledger = load.stop().await?;
        let read = consumer
            .wait_for_events(outcome.ledger.len(), DELIVERED_WITHIN)
            .await
            .map(|_| ());
        let confirmed = world.confirms_everything(CONFIRMED_WITHIN).await;
        outcome.records = self.read_all(world).await?;
        let repeats = match self.delivery {
            Delivery::AtLeastOnce => Repeats::Reruns,
            Delivery::ExactlyOnce => Repeats::Forbidden,
        };
        outcome.verdict = examine(&outcome.ledger, &outcome.records, repeats);
        read?;
        confirmed?;
        world.ends_clean().await?;
        let more = self.read_all(world).await?.len();
        let before = outcome.records.len();
        ensure!(
            more == before,
            "{} records came after everything was confirmed",
            more - before
        );
        Ok(())
    }

    /// What stands in the topic, as a consumer reads it that comes now and sees committed records only.
    async fn read_all(&self, world: &World<'_>) -> Result<Vec<Record>> {
        let topics = [world.topic()];
        let mut consumer = Consumer::new(&self.stage.kafka.bootstrap(), &topics)?;
        Ok(consumer.read_committed_to_end().await?.to_vec())
    }

    /// Begins faults and ends them, so that sometimes two last at the same time.
    async fn disturb(&mut self, world: &mut World<'_>, faults: &mut Vec<Fault>) -> Result<()> {
        let mut active: Vec<Fault> = Vec::new();
        let count = FAULTS_MIN + self.random.below(FAULTS_MAX - FAULTS_MIN + 1);
        while faults.len() < count {
            let fault = self.draw(&active, world);
            faults.push(fault);
            fault.begin(world).await?;
            active.push(fault);
            let lasts = self.up_to(fault.lasts_max());
            let overlaps = self.random.percent(40) && active.len() < ACTIVE_MAX;
            if overlaps {
                wait::pass(lasts / 4).await;
                continue;
            }
            wait::pass(lasts).await;
            end_all(&mut active, world).await?;
            world.is_alive()?;
            let pause = self.up_to(Duration::from_millis(1200));
            wait::pass(pause).await;
        }
        end_all(&mut active, world).await
    }

    fn draw(&mut self, active: &[Fault], world: &World<'_>) -> Fault {
        loop {
            let fault = Fault::draw(&mut self.random, self.delivery);
            let busy = fault.victim() == Victim::Broker && world.broker_is_busy();
            if !busy && active.iter().all(|other| fault.goes_with(*other)) {
                return fault;
            }
        }
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        let milliseconds = usize::try_from(longest.as_millis()).unwrap_or(usize::MAX);
        Duration::from_millis(self.random.below(milliseconds) as u64)
    }

    /// Leaves nothing behind that the next rounds would have to carry.
    async fn clear(&self, fixture: Fixture) -> Result<()> {
        let (database, role) = (fixture.database.clone(), fixture.role.clone());
        let topics = vec![fixture.topic("order"), positions(&fixture)];
        drop(fixture);
        self.stage.forget(&database, &role, topics).await
    }
}

/// Ends what lasts, in the order of its beginnings. What ends only when all else works again comes last.
async fn end_all(active: &mut Vec<Fault>, world: &mut World<'_>) -> Result<()> {
    active.sort_by_key(|fault| fault.needs_others_ended());
    for fault in active.drain(..) {
        fault.end(world).await?;
    }
    Ok(())
}

/// Writers wait for a server that restarts, and for nothing else.
const WRITERS_GO_ON_WITHIN: Duration = Duration::from_secs(60);

impl Outcome {
    pub(crate) fn held(&self) -> bool {
        self.error.is_none() && self.verdict.faults.is_empty()
    }

    /// One line, and more where something is wrong.
    pub(crate) fn line(&self) -> String {
        let faults: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        let mut text = format!(
            "round {}: {}; {} events, {} duplicates, {:.1} s: {}",
            self.number,
            faults.join(", "),
            self.ledger.len(),
            self.verdict.repeats,
            self.took.as_secs_f64(),
            if self.held() { "held" } else { "FAILED" }
        );
        for fault in self.verdict.faults.iter().take(FAULTS_SHOWN_MAX) {
            text.push_str(&format!("\n  {}", fault.text));
        }
        if let Some(error) = &self.error {
            text.push_str(&format!("\n  {error:#}"));
        }
        text
    }
}

const FAULTS_SHOWN_MAX: usize = 6;
