//! One process of the product: its own parts, put together as `supervisor` and `pipeline` put them together.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pgoutput::{Lsn, RowId};
use posthaste::clock::Now;
use posthaste::intake::{Intake, Taken, Tolerance};
use posthaste::poison::{Poison, Rules};
use posthaste::policy::{self, OnPoison, RunError, Verdict};
use posthaste::progress::{Progress, Timing};
use posthaste::rerouting::Rerouting;
use posthaste::search::{Next, Search};
use posthaste::state::{Identity, Stored, start_position};
use posthaste::timeline::History;
use posthaste::watchlist::Watchlist;
use router::{Router, RouterConfig, TimestampSource};
use sink::{Accepted, Batch, Limits, Publisher};

use crate::broker::{Brokers, SimProducer};
use crate::server::Server;
use crate::table::Table;

pub(crate) struct Connector {
    publisher: Publisher<SimProducer>,
    connection: Option<Connection>,
    stored: Option<Stored>,
    rules: Rules,
    search: Search,
    table: Rc<RefCell<Table>>,
    /// Rows that were passed over because Kafka refuses them.
    pub(crate) given_up: Vec<RowId>,
    /// Times that records were sent one by one.
    pub(crate) searches: u64,
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
        self.intake.is_in_transaction() || self.intake.newest() < high_water
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
    /// A process starts, with the state file of the one before.
    pub(crate) fn new(
        brokers: Rc<RefCell<Brokers>>,
        table: Rc<RefCell<Table>>,
        action: OnPoison,
        stored: Option<Stored>,
    ) -> Self {
        let limits = Limits {
            in_flight_records_max: 60,
            in_flight_bytes_max: 1 << 20,
        };
        Self {
            publisher: Publisher::new(SimProducer(brokers), limits, Lsn::ZERO),
            connection: None,
            stored,
            rules: Rules {
                action,
                ..Rules::default()
            },
            search: Search::default(),
            table,
            given_up: Vec::new(),
            searches: 0,
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

    pub(crate) fn connect(&mut self, server: &mut Server, now: Now) {
        self.publisher.restart(Lsn::ZERO);
        let acknowledged = self.publisher.confirmed().as_lsn();
        if self
            .stored
            .as_ref()
            .is_some_and(|stored| acknowledged > stored.confirmed_lsn)
        {
            self.remember(acknowledged);
        }
        let start = start_position(
            server.confirmed(),
            self.stored.as_ref(),
            &identity(),
            &History::only(identity().timeline),
            server.wal_end(),
        );
        let start = start.expect("a server that never loses WAL").position;
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
        });
    }

    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Whether another frame is wanted now: none while a batch waits, none after the last commit of an orderly stop.
    pub(crate) fn wants_frame(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.taken_over
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
        match intake
            .handle_frame(frame, now.wall.unix_micros() / 1_000, batch)
            .expect("a stream that can be decoded")
        {
            Taken::Data { wal_end } => progress.handle_received(wal_end, now),
            Taken::Keepalive {
                wal_end,
                reply_requested,
            } => {
                progress.handle_keepalive(wal_end, reply_requested, now);
            }
        }
        // Durable before the batch goes on.
        self.table.borrow_mut().write(&intake.poison().take_aside());
        self.high_water = self.high_water.max(intake.newest());
    }

    /// The publishing thread's turn, and what the loop makes of it.
    pub(crate) fn publish(&mut self, now: Now) -> Turn {
        if let Err(error) = self.accept_and_poll(now) {
            let error = RunError::Publish(error);
            if self.goes_on(&error) {
                return Turn::Reconnect;
            }
            return match policy::decide(error, Lsn::ZERO, false) {
                Verdict::Retry(_) => Turn::Reconnect,
                Verdict::Halt(_) => Turn::Halted,
            };
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
            Some(Next::SendSingly) => self.searches += 1,
            Some(Next::GoOn) => {
                let condemned = self.search.condemned().iter().map(|(row, _)| *row);
                if self.rules.action == OnPoison::Skip {
                    self.given_up.extend(condemned);
                }
            }
            Some(Next::Stop) | None => return false,
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
        let drained = connection.batch.is_empty()
            && connection.pass == Pass::None
            && self.publisher.outstanding() == 0
            && !connection.is_unfinished(self.high_water);
        let stopped = self.stopping && drained;
        let status = if stopped {
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
        let turn = if stopped { Turn::Stopped } else { Turn::GoOn };
        (status.map(|status| status.flushed), turn)
    }

    fn remember(&mut self, position: Lsn) {
        self.stored = Some(Stored {
            identity: identity(),
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

fn identity() -> Identity {
    Identity {
        system_identifier: "7000000000000000001".to_owned(),
        timeline: 1,
        database: "orders".to_owned(),
        slot: "outbox".to_owned(),
    }
}
