//! The supervisor: makes connections for the pipeline until it is told to stop, one after another.
//!
//! What can heal is tried again, with backoff; `policy` decides what that is. An outage is one line when it
//! begins and one when it ends, however many attempts lie between; of Kafka's `brokers` keeps account.

use std::time::{Duration, Instant};

use pgoutput::Lsn;
use sink::{Confirmed, EventIdentity};
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::codes::Problem;
use crate::config::{Config, Pipeline as Settings};
use crate::connector_words;
use crate::exactly_once::ExactlyOnce;
use crate::health::Health;
use crate::intake::Intake;
use crate::memory::Memory;
use crate::metrics::PipelineMetrics;
use crate::parking_lot::{Found, Hold, ParkingLot};
use crate::pipeline::{Drained, Kept, Pipeline};
use crate::poison::{Poison, Rules};
use crate::policy::{self, Pace, Retry, RunError, Target, Verdict};
use crate::preconditions::{Checked, Wanted};
use crate::publishing::Publishing;
use crate::routing::Routing;
use crate::run_id;
use crate::search::{Next, Search};
use crate::settings;
use crate::shutdown::Shutdown;
use crate::slot_lost::Gap;
use crate::supervisor_claim::Claimed;
use crate::surroundings::{Opening, Surroundings, System};

/// What others see of a pipeline.
#[derive(Debug, Clone)]
pub struct Watched {
    /// For `/metrics`.
    pub metrics: PipelineMetrics,
    /// For `/healthz` and `/readyz`.
    pub health: Health,
}

/// How a run behaves, as its command line says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conduct {
    /// End at the first problem, also at one that may heal.
    pub fail_fast: bool,
    /// Let the slot's own position decide at the first start of the stream.
    pub accept_slot_position: bool,
    /// Make a lost slot anew, once.
    pub recreate_lost_slot: bool,
}

/// Everything a pipeline needs from one attempt to the next.
#[derive(Debug)]
pub struct Supervisor<S: Surroundings = System> {
    surroundings: S,
    pub(crate) clock: S::Clock,
    pub(crate) settings: Settings,
    pub(crate) wanted: Wanted,
    pub(crate) memory: Memory,
    pub(crate) metrics: PipelineMetrics,
    health: Health,
    shutdown: Shutdown,
    fail_fast: bool,
    pub(crate) exactly_once: Option<ExactlyOnce<S::Positions>>,
    /// Says in headers which run of the process a record is of, as Debezium's does.
    run_id: String,
    publishing: Option<Publishing>,
    pub(crate) rules: Rules,
    pub(crate) search: Search,
    pub(crate) hold: Hold,
    backoff: Backoff,
    outage: Option<Outage>,
}

impl Supervisor {
    /// Prepares the pipeline of a configuration; nothing is connected yet.
    ///
    /// # Errors
    ///
    /// Settings that contradict each other, or a state directory that cannot be used.
    pub fn new(
        config: &Config,
        pipeline: &Settings,
        watched: Watched,
        shutdown: Shutdown,
        conduct: &Conduct,
    ) -> Result<Self, Problem> {
        let mut memory = Memory::open(config, &pipeline.name)?;
        memory.open_handover(config, &pipeline.source.slot)?;
        Self::amid(System, memory, pipeline, watched, shutdown, conduct)
    }
}

impl<S: Surroundings> Supervisor<S> {
    /// The same in other surroundings, with a memory that is there.
    ///
    /// # Errors
    ///
    /// Settings that contradict each other.
    pub fn amid(
        surroundings: S,
        mut memory: Memory,
        pipeline: &Settings,
        watched: Watched,
        shutdown: Shutdown,
        conduct: &Conduct,
    ) -> Result<Self, Problem> {
        if conduct.accept_slot_position {
            memory.accept_slot_position();
        }
        let mut wanted = settings::wanted(pipeline)?;
        wanted.recreate_lost = conduct.recreate_lost_slot;
        let clock = surroundings.clock();
        let seed = clock.now().wall.unix_micros().unsigned_abs();
        let retry = &pipeline.retry;
        let exactly_once = settings::transactions(pipeline).map(|config| {
            let positions = surroundings.positions(pipeline, &config);
            ExactlyOnce::new(config, positions, conduct.accept_slot_position)
        });
        Ok(Self {
            surroundings,
            clock,
            backoff: Backoff::new(retry.backoff_initial, retry.backoff_max, seed),
            rules: settings::poison_rules(pipeline),
            search: Search::default(),
            hold: Hold::default(),
            settings: pipeline.clone(),
            wanted,
            memory,
            metrics: watched.metrics,
            health: watched.health,
            shutdown,
            fail_fast: conduct.fail_fast,
            exactly_once,
            run_id: run_id::new(),
            publishing: None,
            outage: None,
        })
    }

    /// Runs until a stop is asked for.
    ///
    /// # Errors
    ///
    /// What cannot heal by itself; with `fail_fast`, what could.
    pub async fn run(mut self) -> Result<Drained, Problem> {
        loop {
            let error = match self.attempt().await {
                Ok(drained) => return Ok(self.end(drained)),
                Err(error) => error,
            };
            if self.is_searching(&error) {
                if self.pause(self.settings.retry.backoff_initial).await == Waited::StopAskedFor {
                    return Ok(self.stop_between());
                }
                continue;
            }
            match policy::decide(error, self.memory.confirmed(), self.fail_fast) {
                Verdict::Halt(problem) => {
                    let mut problem = connector_words::told_to(&self.settings, *problem);
                    self.name_culprit(&mut problem);
                    self.health.failed(&problem);
                    self.metrics.error(problem.code);
                    self.memory.save();
                    return Err(problem);
                }
                Verdict::Retry(mut retry) => {
                    *retry.problem = connector_words::told_to(&self.settings, *retry.problem);
                    if self.wait(retry).await == Waited::StopAskedFor {
                        return Ok(self.stop_between());
                    }
                }
            }
        }
    }

    /// Whether Kafka refused one record, and the next attempt goes on without it or finds out which one it is.
    fn is_searching(&mut self, error: &RunError) -> bool {
        let Some(publishing) = &self.publishing else {
            return false;
        };
        let culprit = publishing.state().culprit;
        let high_water = publishing.high_water().newest();
        let next = policy::judge_refusal(error, culprit, high_water, &self.rules, &mut self.search);
        match next {
            None | Some(Next::Stop) => return false,
            Some(Next::SendSingly) => {
                self.metrics.searching();
                info!("a record was refused: {error}; sending singly to find it");
            }
            Some(Next::GoOn) => {}
        }
        true
    }

    /// Says which row it was that stopped us, for `posthaste skip`.
    fn name_culprit(&self, problem: &mut Problem) {
        let culprit = self
            .publishing
            .as_ref()
            .and_then(|publishing| publishing.state().culprit);
        if let (Some(EventIdentity::Row(row)), 6) = (culprit, problem.code.number() / 100) {
            problem.found.push_str(&format!("; it is row {row}"));
        }
    }

    /// One connection, from opening it to its end.
    async fn attempt(&mut self) -> Result<Drained, RunError> {
        self.health.connecting();
        self.settings.renew_secrets();
        let mut publishing = match self.publishing.take() {
            Some(publishing) => publishing,
            None => self.start_publishing()?,
        };
        // On the heap: once a connection, and everything that waits for it stays small.
        let outcome = Box::pin(self.attempt_with(&mut publishing)).await;
        self.publishing = Some(publishing);
        outcome
    }

    async fn attempt_with(&mut self, publishing: &mut Publishing) -> Result<Drained, RunError> {
        let mut shutdown = self.shutdown.clone();
        // Whatever is waited for on the way to the stream, a stop is heard.
        let Some(ready) = shutdown.unless_requested(self.prepare(publishing)).await else {
            return Ok(left_behind(publishing, &mut self.memory, &self.hold));
        };
        self.stream(ready?, publishing).await
    }

    /// Everything on the way to the stream.
    ///
    /// # Cancel safety
    ///
    /// When dropped, whatever was done is right to be done again.
    async fn prepare(&mut self, publishing: &mut Publishing) -> Result<ReadyIn<S>, RunError> {
        if self.fail_fast {
            publishing.require_broker().await?;
        }
        // A slot that was read and is gone must not be made anew, whenever it goes.
        self.wanted.previous = self.memory.previous();
        let opening = self.surroundings.open(&self.settings, &self.wanted);
        let mut opened = opening.await?;
        let checked = opened.checked().clone();
        self.heed_gap(publishing, checked.gap)?;
        let table = opened.table(&self.settings).await?;
        let found = Found::open(table, &self.wanted.slot, &self.rules).await?;
        let start = self.start_position(publishing, &checked).await?;
        if let Some(once) = &self.exactly_once {
            once.note_beginning(&checked).await?;
        }
        let starting = opened.start(&self.settings, &self.wanted, start.as_lsn());
        let mut source = starting.await?;
        let routing = self.routing(&checked)?;
        let claiming = self.claim(&mut source, &checked, publishing, start, found);
        let Claimed {
            done,
            watchlist,
            lot,
        } = claiming.await?;
        self.resumed(start.as_lsn(), publishing.is_kafka_lost());
        let poison = Poison::new(self.rules.clone(), watchlist);
        let mut intake = self.intake(&checked, routing, poison).behind(done);
        intake.take_over(self.memory.taken_over());
        Ok(Ready {
            source,
            intake,
            start,
            lot,
        })
    }

    async fn stream(
        &mut self,
        ready: ReadyIn<S>,
        publishing: &mut Publishing,
    ) -> Result<Drained, RunError> {
        let Ready {
            source,
            intake,
            start,
            lot,
        } = ready;
        let began = self.clock.instant();
        let kept = Kept {
            publishing,
            memory: &mut self.memory,
            metrics: &self.metrics,
            health: &self.health,
            hold: &mut self.hold,
            search: &mut self.search,
            shutdown: self.shutdown.clone(),
        };
        let pipeline = Pipeline::new(source, self.clock.clone(), intake, start, kept, lot);
        let outcome = pipeline.run(self.settings.kafka.drain_timeout).await;
        // An attempt that got somewhere was no failure of the one before.
        let advanced = self.memory.confirmed() > start.as_lsn();
        if advanced || self.clock.since(began) >= self.settings.retry.backoff_max {
            self.backoff.reset();
        }
        outcome
    }

    /// What takes the frames of one connection.
    fn intake(&self, checked: &Checked, routing: Routing, poison: Poison) -> Intake {
        let intake = Intake::new(routing, settings::tolerance(&self.settings));
        let mut intake = intake.with_poison(poison, &self.settings.poison.schema);
        if checked.catalog.is_some() {
            // Asked for before the catalog was read.
            intake.catalog_read_at(checked.server_wal_position);
        }
        intake
    }

    /// A new slot stands where it stands: nothing that is remembered of the lost one counts any more.
    fn heed_gap(&mut self, publishing: &mut Publishing, gap: Option<Gap>) -> Result<(), RunError> {
        let Some(gap) = gap else { return Ok(()) };
        self.wanted.recreate_lost = false;
        self.metrics.slot_gap(gap.start, gap.end);
        self.memory.accept_slot_position();
        if let Some(once) = &mut self.exactly_once {
            once.accept_slot_position();
        }
        // The tracker never goes back, and a new slot may begin anywhere.
        *publishing = self.start_publishing()?;
        Ok(())
    }

    /// The router of one connection: relations are always sent again, and the catalog was read again.
    pub(crate) fn routing(&self, checked: &Checked) -> Result<Routing, RunError> {
        let (base_types, catalog) = (checked.base_types.clone(), checked.catalog.clone());
        Routing::new(&self.settings, &self.run_id, base_types, catalog)
    }

    /// Chooses where to start, and sets the tracker there. What is acknowledged up to this moment counts; what is
    /// acknowledged later comes again.
    async fn start_position(
        &mut self,
        publishing: &mut Publishing,
        checked: &Checked,
    ) -> Result<Confirmed, RunError> {
        let confirmed = publishing.restart(Lsn::ZERO).await?;
        let is_held_back = self.hold.is_active();
        self.hold.reset();
        if !is_held_back {
            self.memory.confirm(confirmed);
        }
        let start = {
            let publication = &self.wanted.publication;
            self.memory.start_position(checked, publication)?
        };
        if start.new_history || is_held_back {
            // The tracker never goes back, and here it has to.
            let high_water = publishing.high_water();
            *publishing = self.start_publishing()?;
            if !start.new_history {
                // What the one before has sent comes again, and a stop should see it through.
                publishing.comes_after(high_water);
            }
        }
        let careful = self.search.careful();
        let confirmed = publishing.restart_careful(start.position, careful).await?;
        debug_assert_eq!(confirmed.as_lsn(), start.position);
        Ok(confirmed)
    }

    fn start_publishing(&self) -> Result<Publishing, RunError> {
        let transactions = self.exactly_once.as_ref().map(ExactlyOnce::config);
        let started =
            self.surroundings
                .start_publishing(&self.settings, transactions, &self.metrics)?;
        // Nothing was refused to this client, and what was refused to one before may never come again.
        self.health.delivering();
        Ok(started)
    }

    /// Waits before the next attempt; what is in flight goes on being acknowledged meanwhile.
    async fn wait(&mut self, retry: Retry) -> Waited {
        let delay = match retry.pace {
            Pace::Backoff => self.backoff.next_delay(),
            Pace::Steady => STEADY_DELAY,
        };
        self.lost(&retry, delay);
        if let Some(publishing) = &self.publishing {
            // A standby without a broker could not take over.
            self.health.publisher(&publishing.state());
        }
        self.metrics.retry(retry.target, retry.problem.code);
        self.pause(delay).await
    }

    async fn pause(&mut self, delay: Duration) -> Waited {
        let sleeping = self.clock.sleep_until(self.clock.instant() + delay);
        match self.shutdown.unless_requested(sleeping).await {
            Some(()) => Waited::Long,
            None => Waited::StopAskedFor,
        }
    }

    /// One line when an outage begins, and one per change of who holds the slot; the tries in between only in detail.
    fn lost(&mut self, retry: &Retry, delay: Duration) {
        let problem = &retry.problem;
        self.health.waiting(retry.pace, problem);
        if let Some(publishing) = &mut self.publishing
            && retry.target == Target::Kafka
        {
            self.health.refused(problem);
            publishing.tell_refused(problem);
            return;
        }
        let standing_by = (retry.pace == Pace::Steady).then(|| problem.found.clone());
        let outage = self
            .outage
            .get_or_insert_with(|| Outage::begin(retry.target));
        outage.tries += 1;
        let holder_changed = standing_by.is_some() && standing_by != outage.standing_by;
        outage.standing_by = standing_by;
        if retry.pace == Pace::Backoff && !std::mem::replace(&mut outage.told, true) {
            warn!(side = outage.target.name(), "lost: {problem}; trying again");
        } else if holder_changed {
            info!("standing by: {problem}");
        } else {
            debug!(tries = outage.tries, ?delay, "still waiting: {problem}");
        }
    }

    /// The stream runs. Where only Kafka is lost, that is no news yet.
    fn resumed(&mut self, start: Lsn, is_kafka_lost: bool) {
        match self.outage.take() {
            Some(outage) => {
                self.metrics.reconnected(outage.target);
                info!(
                    side = outage.target.name(),
                    tries = outage.tries,
                    seconds = outage.began.elapsed().as_secs_f64(),
                    "resumed: streaming from {start}"
                );
            }
            None if is_kafka_lost => debug!("streaming from {start}"),
            None => info!("streaming from {start}"),
        }
        self.health.streaming();
    }

    /// A stop without a connection. What was acknowledged since the last one is kept for the next start.
    fn stop_between(&mut self) -> Drained {
        let drained = match &self.publishing {
            Some(publishing) => left_behind(publishing, &mut self.memory, &self.hold),
            None => Drained::Whole,
        };
        self.end(drained)
    }

    fn end(&mut self, drained: Drained) -> Drained {
        self.memory.save();
        self.health.stopped();
        drained
    }
}

/// What a stream needs.
struct Ready<F, T> {
    source: F,
    intake: Intake,
    start: Confirmed,
    lot: Option<ParkingLot<T>>,
}

/// The same in surroundings.
type ReadyIn<S> = Ready<
    <<S as Surroundings>::Opened as Opening>::Feed,
    <<S as Surroundings>::Opened as Opening>::Table,
>;

/// A stop without a connection: the server cannot be told any more what is acknowledged, but a state file can keep it.
fn left_behind(publishing: &Publishing, memory: &mut Memory, hold: &Hold) -> Drained {
    if !hold.is_active() {
        memory.confirm(publishing.state().confirmed);
    }
    if publishing.is_all_done_at(memory.safe()) {
        Drained::Whole
    } else {
        Drained::Unacknowledged(publishing.unacknowledged())
    }
}

/// Something out of reach, or the slot in other hands: from the first failure until the stream runs again.
#[derive(Debug)]
struct Outage {
    began: Instant,
    target: Target,
    tries: u32,
    /// Whether the line about the loss was written; standing by is none.
    told: bool,
    standing_by: Option<String>,
}

impl Outage {
    fn begin(target: Target) -> Self {
        Self {
            began: Instant::now(),
            target,
            tries: 0,
            told: false,
            standing_by: None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Long,
    StopAskedFor,
}

/// Pause between two looks at a slot that another process holds.
const STEADY_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
