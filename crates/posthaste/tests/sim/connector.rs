//! One process of the product: its own parts, put together as `supervisor` and `pipeline` put them together.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgoutput::{Lsn, RowId};
use posthaste::backoff::Backoff;
use posthaste::clock::Now;
use posthaste::codes::Code;
use posthaste::dead_letter::DeadLetters;
use posthaste::intake::{Intake, Taken, Tolerance};
use posthaste::poison::{Poison, Rules};
use posthaste::policy::{self, OnPoison, Pace, RunError, Target, Verdict};
use posthaste::progress::{Progress, Timing};
use posthaste::rerouting::Rerouting;
use posthaste::search::{Next, Search};
use posthaste::state::{Identity, Stored, start_position};
use posthaste::watchlist::Watchlist;
use router::{Router, RouterConfig, TimestampSource};
use sink::{Accepted, Batch, EventIdentity, Limits, Publisher};

use crate::broker::{Brokers, DEAD_LETTERS, SimProducer};
use crate::server::Server;
use crate::table::Table;
use crate::trouble::Trouble;

/// What a process is started with.
pub(crate) struct Setup {
    pub(crate) action: OnPoison,
    /// The state file of the one before.
    pub(crate) stored: Option<Stored>,
    pub(crate) accept_slot_position: bool,
    pub(crate) fail_fast: bool,
    pub(crate) seed: u64,
}

/// What the process decided, each time it had to.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// In the order of [`Decisions::BRANCHES`].
    pub(crate) counts: [u64; Self::BRANCHES.len()],
}

impl Decisions {
    pub(crate) const BRANCHES: [&str; 9] = [
        "retry: the database, with backoff",
        "retry: the database, steadily",
        "retry: Kafka",
        "halt",
        "halt: a row",
        "halt: the position is not in the history",
        "refusal: search",
        "refusal: go on without the culprit",
        "refusal: stop",
    ];

    fn count(&mut self, branch: usize) {
        self.counts[branch] += 1;
    }
}

pub(crate) struct Connector {
    publisher: Publisher<SimProducer>,
    connection: Option<Connection>,
    stored: Option<Stored>,
    /// The server of the last connection.
    identity: Identity,
    accept_slot_position: bool,
    fail_fast: bool,
    backoff: Backoff,
    /// No attempt before.
    rest_until: Option<Instant>,
    pub(crate) decisions: Decisions,
    /// Why it ended by itself.
    pub(crate) halted_by: Option<Code>,
    /// The row that stopped it, if Kafka refused one.
    pub(crate) culprit: Option<RowId>,
    rules: Rules,
    search: Search,
    table: Rc<RefCell<Table>>,
    /// Rows that were passed over because Kafka refuses them.
    pub(crate) given_up: Vec<RowId>,
    /// The newest transaction of which any connection of this process has read anything.
    high_water: Lsn,
    pub(crate) stopping: bool,
}

struct Connection {
    intake: Intake,
    progress: Progress,
    batch: Batch,
    taken_over: bool,
    pass: Pass,
    last_sent: Lsn,
    start: Lsn,
    /// A row that cannot be taken; what came before it is still delivered.
    failed: Option<RunError>,
}

/// How far the publishing of parked rows is.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    None,
    /// What was read before is being acknowledged.
    Draining,
    /// These are on their way.
    Sent(Vec<RowId>),
}

impl Connection {
    fn is_unfinished(&self, high_water: Lsn) -> bool {
        self.intake.is_in_transaction() || self.intake.reach().newest() < high_water
    }
}

/// How a turn of the process ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    GoOn,
    /// The connection was given up; it will be opened again.
    Reconnect,
    /// The process ended because somebody has to act.
    Halted,
    /// An orderly stop is complete.
    Stopped,
}

impl Connector {
    /// A process starts.
    pub(crate) fn new(
        brokers: Rc<RefCell<Brokers>>,
        table: Rc<RefCell<Table>>,
        setup: Setup,
    ) -> Self {
        let dead_letters = match setup.action {
            OnPoison::DeadLetterTopic => DeadLetters {
                topic: DEAD_LETTERS.to_owned(),
                bytes_max: 1 << 20,
            },
            OnPoison::Halt | OnPoison::Park | OnPoison::Skip => DeadLetters::default(),
        };
        let limits = Limits {
            in_flight_records_max: 60,
            in_flight_bytes_max: 1 << 20,
        };
        Self {
            publisher: Publisher::new(SimProducer(brokers), limits, Lsn::ZERO),
            connection: None,
            stored: setup.stored,
            identity: identity(1),
            accept_slot_position: setup.accept_slot_position,
            fail_fast: setup.fail_fast,
            backoff: Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX, setup.seed),
            rest_until: None,
            decisions: Decisions::default(),
            halted_by: None,
            culprit: None,
            rules: Rules {
                action: setup.action,
                dead_letters,
                ..Rules::default()
            },
            search: Search::default(),
            table,
            given_up: Vec::new(),
            high_water: Lsn::ZERO,
            stopping: false,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// What a state file holds if it is written now.
    pub(crate) fn stored(&self) -> Option<Stored> {
        self.stored.clone()
    }

    /// When the pause between two attempts ends, if there is one.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.rest_until
    }

    /// One attempt, which may meet trouble.
    pub(crate) fn connect(
        &mut self,
        server: &mut Server,
        trouble: Option<Trouble>,
        now: Now,
    ) -> Turn {
        assert!(
            self.rest_until.is_none_or(|until| now.instant >= until),
            "an attempt during the pause"
        );
        self.rest_until = None;
        if let Some(trouble) = trouble {
            return self.judge(trouble.error(), now);
        }
        self.publisher.restart(Lsn::ZERO);
        let acknowledged = self.publisher.confirmed().as_lsn();
        if self
            .stored
            .as_ref()
            .is_some_and(|stored| acknowledged > stored.confirmed_lsn)
        {
            self.remember(acknowledged);
        }
        let found = identity(server.timeline());
        let slot_decides = self.accept_slot_position;
        let start = start_position(
            server.confirmed(),
            self.stored.as_ref().filter(|_| !slot_decides),
            &found,
            &server.history(),
            server.wal_end(),
        );
        let start = match start {
            Ok(start) => start.position,
            Err(problem) => return self.judge(problem.into(), now),
        };
        self.accept_slot_position = false;
        self.identity = found;
        self.begin(server, start, now);
        Turn::GoOn
    }

    /// The stream starts at `start`.
    fn begin(&mut self, server: &mut Server, start: Lsn, now: Now) {
        server.start(start);
        self.search.start_at(start);
        let mut table = self.table.borrow_mut();
        for (row, _) in self.search.take_refused_again() {
            table.refused(row);
        }
        let mut watchlist = Watchlist::default();
        for (row, reason) in self.search.condemned() {
            watchlist.condemn(*row, reason.clone());
        }
        table.load(start, &mut watchlist);
        watchlist.skip(table.requests(start));
        drop(table);
        self.publisher.restart_careful(start, self.search.careful());
        let confirmed = self.publisher.confirmed();
        assert_eq!(
            confirmed.as_lsn(),
            start,
            "the tracker stands where the stream starts"
        );
        self.remember(start);
        let timing = Timing::for_server(Duration::from_secs(60), Duration::from_secs(10));
        self.connection = Some(Connection {
            intake: Intake::new(router(), Tolerance::default())
                .with_poison(Poison::new(self.rules.clone(), watchlist), "posthaste"),
            progress: Progress::new(confirmed, now, timing),
            batch: Batch::new(),
            taken_over: true,
            pass: Pass::None,
            last_sent: Lsn::ZERO,
            start,
            failed: None,
        });
    }

    pub(crate) fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take()
            && connection.progress.confirmed() > connection.start
        {
            self.backoff.reset();
        }
    }

    /// Try again after a pause, or end.
    fn judge(&mut self, error: RunError, now: Now) -> Turn {
        let is_row = matches!(error, RunError::Intake(_));
        let retry = match policy::decide(error, Lsn::ZERO, self.fail_fast) {
            Verdict::Retry(retry) => retry,
            Verdict::Halt(problem) => {
                let is_history = problem.code == Code::HistoryDiverged;
                self.decisions.count(match (is_row, is_history) {
                    (true, _) => 4,
                    (_, true) => 5,
                    _ => 3,
                });
                self.halted_by = Some(problem.code);
                return Turn::Halted;
            }
        };
        self.decisions.count(match (retry.target, retry.pace) {
            (Target::Postgres, Pace::Backoff) => 0,
            (Target::Postgres, Pace::Steady) => 1,
            (Target::Kafka, _) => 2,
        });
        let pause = match retry.pace {
            Pace::Backoff => self.backoff.next_delay(),
            Pace::Steady => STEADY_PAUSE,
        };
        assert!(pause >= BACKOFF_INITIAL / 2, "a tight loop: {pause:?}");
        assert!(pause <= BACKOFF_MAX.max(STEADY_PAUSE), "{pause:?}");
        self.rest_until = Some(now.instant + pause);
        Turn::Reconnect
    }

    /// Whether another frame is wanted now: none while a batch waits, none after the last commit of an orderly stop.
    pub(crate) fn wants_frame(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.taken_over
                && connection.failed.is_none()
                && connection.pass == Pass::None
                && (!self.stopping || connection.is_unfinished(self.high_water))
        })
    }

    pub(crate) fn take(&mut self, frame: &[u8], now: Now) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let Connection {
            intake,
            progress,
            batch,
            ..
        } = connection;
        match intake.handle_frame(frame, now.wall.unix_micros() / 1_000, batch) {
            Ok(Taken::Data { wal_end }) => progress.handle_received(wal_end, now),
            Ok(Taken::Keepalive {
                wal_end,
                reply_requested,
            }) => {
                progress.handle_keepalive(wal_end, reply_requested, now);
            }
            Err(error) => connection.failed = Some(error.into()),
        }
        // Durable before the batch goes on.
        let aside = intake.poison().take_aside();
        self.given_up
            .extend(aside.skipped.iter().map(|(_, row)| *row));
        self.table.borrow_mut().write(&aside);
        self.high_water = self.high_water.max(intake.reach().newest());
    }

    /// The publishing thread's turn, and what the loop makes of it.
    pub(crate) fn publish(&mut self, now: Now) -> Turn {
        if let Err(error) = self.accept_and_poll(now) {
            let error = RunError::Publish(error);
            if self.goes_on(&error) {
                return Turn::Reconnect;
            }
            return self.judge(error, now);
        }
        let confirmed = self.publisher.confirmed();
        if let Some(connection) = &mut self.connection {
            connection.progress.confirm(confirmed);
            self.remember(confirmed.as_lsn());
        }
        self.go_on_with_pass();
        Turn::GoOn
    }

    /// Whether a refusal is only about one record, which is searched for or known now.
    fn goes_on(&mut self, error: &RunError) -> bool {
        let culprit = self.publisher.culprit();
        let next = policy::judge_refusal(
            error,
            culprit,
            self.high_water,
            &self.rules,
            &mut self.search,
        );
        match next {
            Some(Next::SendSingly) => self.decisions.count(6),
            Some(Next::GoOn) => {
                self.decisions.count(7);
                let condemned = self.search.condemned().iter().map(|(row, _)| *row);
                if self.rules.action == OnPoison::Skip {
                    self.given_up.extend(condemned);
                }
            }
            Some(Next::Stop) => {
                self.decisions.count(8);
                if let Some(EventIdentity::Row(row)) = culprit {
                    self.culprit = Some(row);
                }
                return false;
            }
            None => return false,
        }
        true
    }

    /// Parked rows that may leave are published: what was read before has to be acknowledged first.
    pub(crate) fn begin_pass(&mut self) {
        if let Some(connection) = &mut self.connection
            && connection.pass == Pass::None
            && !self
                .table
                .borrow()
                .publishable(connection.progress.confirmed())
                .is_empty()
        {
            connection.pass = Pass::Draining;
        }
    }

    fn go_on_with_pass(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if !connection.batch.is_empty() || self.publisher.outstanding() > 0 {
            return;
        }
        let mut table = self.table.borrow_mut();
        match std::mem::replace(&mut connection.pass, Pass::None) {
            Pass::None => {}
            Pass::Draining => {
                let mut sent = Vec::new();
                let mut rerouting = Rerouting::new(router());
                for row in table.publishable(connection.progress.confirmed()) {
                    match rerouting.route(&row, 0, &mut connection.batch) {
                        Ok(()) => sent.push(row.row),
                        Err(_) => {
                            table.refused(row.row);
                            break;
                        }
                    }
                }
                connection.taken_over = false;
                connection.pass = Pass::Sent(sent);
            }
            Pass::Sent(rows) => {
                table.published(&rows);
                self.search.parked_went_through();
                table.refresh(connection.intake.poison().watchlist());
            }
        }
    }

    fn accept_and_poll(&mut self, now: Now) -> Result<(), sink::PublishError> {
        if let Some(connection) = &mut self.connection {
            match self.publisher.accept(&mut connection.batch)? {
                Accepted::All => {
                    connection.batch.clear();
                    connection.taken_over = true;
                }
                Accepted::Full => connection.taken_over = false,
            }
        }
        self.publisher.poll(Duration::ZERO, now.wall, &mut |_| ())?;
        Ok(())
    }

    /// The status update that is due, and whether an orderly stop is complete with it.
    pub(crate) fn status(&mut self, now: Now) -> (Option<Lsn>, Turn) {
        let Some(connection) = &mut self.connection else {
            return (None, Turn::GoOn);
        };
        let delivered = connection.batch.is_empty() && self.publisher.outstanding() == 0;
        let drained = delivered
            && connection.pass == Pass::None
            && !connection.is_unfinished(self.high_water);
        let stopped = self.stopping && drained && connection.failed.is_none();
        let failed = connection.failed.take_if(|_| delivered);
        let status = if stopped || failed.is_some() {
            Some(connection.progress.status(now))
        } else {
            connection.progress.poll_status(now)
        };
        if let Some(status) = &status {
            assert!(
                status.flushed >= connection.last_sent,
                "the position we send went back"
            );
            connection.last_sent = status.flushed;
        }
        let turn = match failed {
            Some(error) => self.judge(error, now),
            None if stopped => Turn::Stopped,
            None => Turn::GoOn,
        };
        (status.map(|status| status.flushed), turn)
    }

    fn remember(&mut self, position: Lsn) {
        self.stored = Some(Stored {
            identity: self.identity.clone(),
            confirmed_lsn: position,
            saved_at_unix_micros: 0,
        });
    }
}

pub(crate) fn router() -> Router {
    let config = RouterConfig {
        tables: vec!["public.outbox".parse().expect("a table")],
        timestamp: TimestampSource::Column("at".to_owned()),
        ..RouterConfig::default()
    };
    Router::new(config).expect("legal")
}

fn identity(timeline: u32) -> Identity {
    Identity {
        system_identifier: "7000000000000000001".to_owned(),
        timeline,
        database: "orders".to_owned(),
        slot: "outbox".to_owned(),
    }
}

const BACKOFF_INITIAL: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_millis(800);
const STEADY_PAUSE: Duration = Duration::from_secs(1);
