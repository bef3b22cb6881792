//! The faults, how they begin and end, and which of them are drawn.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::proxy::Link;
use e2e::random::Random;
use xtask::postgres::StopMode;
use xtask::process::Signal;

use crate::Delivery;
use crate::round::World;
use crate::stage::NODES;

/// One fault. It lasts from [`Fault::begin`] to [`Fault::end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of the connector; its end is the next start.
    Kill,
    /// An orderly stop; its end is the next start.
    Stop,
    /// SIGSTOP of the connector; its end is SIGCONT.
    Freeze,
    /// A second instance waits for the slot; then the first one is killed.
    Successor,
    /// The instance that delivers is frozen until a second one has the slot, and wakes then.
    Takeover,
    /// The walsender is terminated.
    Terminate,
    /// All backends of the connector's role are terminated.
    TerminateAll,
    /// SIGSTOP of the walsender.
    FreezeWalsender,
    /// PostgreSQL is stopped, fast or immediate; its end is the next start.
    Restart(Mode),
    /// The link to PostgreSQL.
    DatabaseLink(Trouble),
    /// SIGTERM of a broker; its end is the next start.
    StopBroker(usize),
    /// SIGKILL of a broker; its end is the next start.
    KillBroker(usize),
    /// SIGSTOP of a broker.
    FreezeBroker(usize),
    /// The link to one broker.
    BrokerLink(usize, Trouble),
    /// The links to all brokers.
    BrokerLinks(Trouble),
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Fast,
    Immediate,
}

/// What becomes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Slow,
    Silent,
    Cut,
}

/// Whom a fault befalls: two faults at a time never befall the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Connector,
    Server,
    DatabaseLink,
    Broker,
    BrokerLink,
}

impl Fault {
    /// Draws a fault, each victim as often as it has kinds of trouble.
    pub(crate) fn draw(random: &mut Random, delivery: Delivery) -> Self {
        let node = random.below(NODES);
        let trouble = *pick(random, &[Trouble::Slow, Trouble::Silent, Trouble::Cut]);
        // At least once, a frozen holder that wakes may publish what it had enqueued: nothing but a transaction stops it.
        let takeover = match delivery {
            Delivery::AtLeastOnce => Self::Successor,
            Delivery::ExactlyOnce => Self::Takeover,
        };
        *pick(
            random,
            &[
                Self::Kill,
                Self::Kill,
                Self::Kill,
                Self::Stop,
                Self::Stop,
                Self::Freeze,
                Self::Successor,
                takeover,
                Self::Terminate,
                Self::Terminate,
                Self::TerminateAll,
                Self::FreezeWalsender,
                Self::Restart(Mode::Fast),
                Self::Restart(Mode::Immediate),
                Self::DatabaseLink(trouble),
                Self::DatabaseLink(Trouble::Cut),
                Self::StopBroker(node),
                Self::KillBroker(node),
                Self::FreezeBroker(node),
                Self::FreezeBroker(node),
                Self::BrokerLink(node, trouble),
                Self::BrokerLinks(trouble),
            ],
        )
    }

    pub(crate) fn victim(self) -> Victim {
        match self {
            Self::Kill | Self::Stop | Self::Freeze | Self::Successor | Self::Takeover => {
                Victim::Connector
            }
            Self::Terminate | Self::TerminateAll | Self::FreezeWalsender | Self::Restart(_) => {
                Victim::Server
            }
            Self::DatabaseLink(_) => Victim::DatabaseLink,
            Self::StopBroker(_) | Self::KillBroker(_) | Self::FreezeBroker(_) => Victim::Broker,
            Self::BrokerLink(..) | Self::BrokerLinks(_) => Victim::BrokerLink,
        }
    }

    /// Whether it may begin while the other lasts.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        // A fast stop of the server waits until all readers have confirmed everything, so for as long as Kafka is away.
        let waits = self == Self::Restart(Mode::Fast);
        let kafka = matches!(other.victim(), Victim::Broker | Victim::BrokerLink);
        self.victim() != other.victim() && !(waits && kafka)
    }

    /// Whether its end waits for a state that another fault may stand in the way of.
    pub(crate) fn needs_others_ended(self) -> bool {
        // The standby streams once it has both the server and the brokers.
        self == Self::Takeover
    }

    /// How long it lasts at most: a frozen peer longer than it takes to be noticed, others not as long.
    pub(crate) fn lasts_max(self) -> Duration {
        let milliseconds = match self {
            Self::Terminate | Self::TerminateAll => 1,
            Self::Kill | Self::Stop | Self::Restart(_) => 1500,
            Self::Freeze
            | Self::FreezeWalsender
            | Self::FreezeBroker(_)
            | Self::DatabaseLink(Trouble::Silent)
            | Self::BrokerLink(_, Trouble::Silent)
            | Self::BrokerLinks(Trouble::Silent) => 7000,
            _ => 3000,
        };
        Duration::from_millis(milliseconds)
    }

    /// The name under which it is counted.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "connector killed",
            Self::Stop => "connector stopped",
            Self::Freeze => "connector frozen",
            Self::Successor => "active instance killed beside a standby",
            Self::Takeover => "active instance frozen until a standby took over",
            Self::Terminate => "walsender terminated",
            Self::TerminateAll => "all backends terminated",
            Self::FreezeWalsender => "walsender frozen",
            Self::Restart(Mode::Fast) => "server restarted fast",
            Self::Restart(Mode::Immediate) => "server restarted immediate",
            Self::DatabaseLink(Trouble::Slow) => "database link slow",
            Self::DatabaseLink(Trouble::Silent) => "database link silent",
            Self::DatabaseLink(Trouble::Cut) => "database link cut",
            Self::StopBroker(_) => "broker stopped",
            Self::KillBroker(_) => "broker killed",
            Self::FreezeBroker(_) => "broker frozen",
            Self::BrokerLink(_, Trouble::Slow) => "broker link slow",
            Self::BrokerLink(_, Trouble::Silent) => "broker link silent",
            Self::BrokerLink(_, Trouble::Cut) => "broker link cut",
            Self::BrokerLinks(Trouble::Slow) => "all broker links slow",
            Self::BrokerLinks(Trouble::Silent) => "all broker links silent",
            Self::BrokerLinks(Trouble::Cut) => "all broker links cut",
        }
    }

    pub(crate) async fn begin(self, world: &mut World<'_>) -> Result<()> {
        match self {
            Self::Kill => world.connector()?.kill(),
            Self::Stop => world.stop_connector().await,
            Self::Freeze => world.connector()?.signal(Signal::STOP),
            Self::Successor => world.start_standby(),
            Self::Takeover => {
                world.start_standby()?;
                world.connector()?.signal(Signal::STOP)
            }
            Self::Terminate => world.terminate(false).await,
            Self::TerminateAll => world.terminate(true).await,
            Self::FreezeWalsender => world.freeze_walsender().await,
            Self::Restart(mode) => world.stop_server(mode.stop_mode()).await,
            Self::DatabaseLink(trouble) => {
                world.stage.postgres_link.set(trouble.link());
                Ok(())
            }
            Self::StopBroker(node) => world.stop_broker(node, false),
            Self::KillBroker(node) => world.stop_broker(node, true),
            Self::FreezeBroker(node) => world.stage.kafka.pause_node(node),
            Self::BrokerLink(node, trouble) => world.set_broker_link(node, trouble.link()),
            Self::BrokerLinks(trouble) => {
                (0..NODES).try_for_each(|node| world.set_broker_link(node, trouble.link()))
            }
        }
        .with_context(|| format!("begin: {}", self.name()))
    }

    pub(crate) async fn end(self, world: &mut World<'_>) -> Result<()> {
        match self {
            Self::Kill | Self::Stop => world.start_connector(),
            Self::Freeze => world.connector()?.signal(Signal::CONT),
            Self::Successor => world.kill_beside_standby(),
            Self::Takeover => world.wake_after_takeover().await,
            Self::Terminate | Self::TerminateAll => Ok(()),
            Self::FreezeWalsender => world.wake_walsender(),
            Self::Restart(_) => world.start_server().await,
            Self::DatabaseLink(_) => {
                world.stage.postgres_link.set(Link::Open);
                Ok(())
            }
            Self::StopBroker(node) | Self::KillBroker(node) => {
                world.start_broker(node);
                Ok(())
            }
            Self::FreezeBroker(node) => world.stage.kafka.resume_node(node),
            Self::BrokerLink(node, _) => world.set_broker_link(node, Link::Open),
            Self::BrokerLinks(_) => {
                (0..NODES).try_for_each(|node| world.set_broker_link(node, Link::Open))
            }
        }
        .with_context(|| format!("end: {}", self.name()))
    }
}

impl Mode {
    fn stop_mode(self) -> StopMode {
        match self {
            Self::Fast => StopMode::Fast,
            Self::Immediate => StopMode::Immediate,
        }
    }
}

impl Trouble {
    fn link(self) -> Link {
        match self {
            Self::Slow => Link::Slow(Duration::from_millis(150)),
            Self::Silent => Link::Silent,
            Self::Cut => Link::Cut,
        }
    }
}

fn pick<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[random.below(choices.len())]
}

/// Signals a process whose number another program told.
pub(crate) fn signal(pid: i32, name: &str) -> Result<()> {
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .status()?;
    if !status.success() {
        bail!("kill -{name} {pid}: {status}");
    }
    Ok(())
}
