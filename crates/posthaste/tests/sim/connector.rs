//! One process of the product: its own parts, put together as `supervisor` and `pipeline` put them together.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pgoutput::Lsn;
use posthaste::clock::Now;
use posthaste::intake::{Intake, Taken, Tolerance};
use posthaste::policy::{self, RunError, Verdict};
use posthaste::progress::{Progress, Timing};
use posthaste::state::{Identity, Stored, start_position};
use router::{Router, RouterConfig};
use sink::{Accepted, Batch, Limits, Publisher};

use crate::broker::{Brokers, SimProducer};
use crate::server::Server;

pub(crate) struct Connector {
    publisher: Publisher<SimProducer>,
    connection: Option<Connection>,
    stored: Option<Stored>,
    /// The newest transaction of which any connection of this process has read anything.
    high_water: Lsn,
    pub(crate) stopping: bool,
}

struct Connection {
    intake: Intake,
    progress: Progress,
    batch: Batch,
    taken_over: bool,
    last_sent: Lsn,
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
    pub(crate) fn new(brokers: Rc<RefCell<Brokers>>, stored: Option<Stored>) -> Self {
        let limits = Limits {
            in_flight_records_max: 60,
            in_flight_bytes_max: 1 << 20,
        };
        Self {
            publisher: Publisher::new(SimProducer(brokers), limits, Lsn::ZERO),
            connection: None,
            stored,
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
            server.wal_end(),
        );
        let start = start.expect("a server that never loses WAL").position;
        server.start(start);
        self.publisher.restart(start);
        let confirmed = self.publisher.confirmed();
        assert_eq!(
            confirmed.as_lsn(),
            start,
            "the tracker stands where the stream starts"
        );
        self.remember(start);
        let config = RouterConfig {
            tables: vec!["public.outbox".parse().expect("a table")],
            ..RouterConfig::default()
        };
        let timing = Timing::for_server(Duration::from_secs(60), Duration::from_secs(10));
        self.connection = Some(Connection {
            intake: Intake::new(Router::new(config).expect("legal"), Tolerance::default()),
            progress: Progress::new(confirmed, now, timing),
            batch: Batch::new(),
            taken_over: true,
            last_sent: Lsn::ZERO,
        });
    }

    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Whether another frame is wanted now: none while a batch waits, none after the last commit of an orderly stop.
    pub(crate) fn wants_frame(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.taken_over && (!self.stopping || connection.is_unfinished(self.high_water))
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
        self.high_water = self.high_water.max(intake.newest());
    }

    /// The publishing thread's turn, and what the loop makes of it.
    pub(crate) fn publish(&mut self, now: Now) -> Turn {
        if let Err(error) = self.accept_and_poll(now) {
            return match policy::decide(RunError::Publish(error), Lsn::ZERO, false) {
                Verdict::Retry(_) => Turn::Reconnect,
                Verdict::Halt(_) => Turn::Halted,
            };
        }
        let confirmed = self.publisher.confirmed();
        if let Some(connection) = &mut self.connection {
            connection.progress.confirm(confirmed);
            self.remember(confirmed.as_lsn());
        }
        Turn::GoOn
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

fn identity() -> Identity {
    Identity {
        system_identifier: "7000000000000000001".to_owned(),
        timeline: 1,
        database: "orders".to_owned(),
        slot: "outbox".to_owned(),
    }
}
