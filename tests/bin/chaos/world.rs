//! What the faults of one round act on: the connector and its standby, the server, the brokers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::Fixture;
use e2e::proxy::Link;
use e2e::slot::Slot;
use e2e::wait;
use tokio::task::{JoinHandle, spawn_blocking};
use xtask::postgres::StopMode;
use xtask::process::Signal;

use crate::Delivery;
use crate::fault::signal;
use crate::stage::Stage;

/// The processes of one round.
pub(crate) struct World<'a> {
    pub(crate) stage: &'a Stage,
    fixture: &'a Fixture,
    config: Config,
    connector: Option<Connector>,
    standby: Option<Connector>,
    frozen_walsender: Option<i32>,
    server_is_down: bool,
    /// A node that is being stopped or started, which takes seconds.
    broker_work: Option<JoinHandle<Result<()>>>,
    /// A node that has to be started.
    broker_down: Option<usize>,
    logs: Vec<String>,
}

/// Until a stop has drained or given up draining, with a broker out of reach.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Until a second instance has taken the slot of a frozen one.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(60);
/// How long an instance that woke without the slot is left to do harm.
const AWAKE_FOR: Duration = Duration::from_millis(800);

impl<'a> World<'a> {
    pub(crate) fn new(stage: &'a Stage, fixture: &'a Fixture, delivery: Delivery) -> Result<Self> {
        let port = stage.postgres.port();
        let url = stage.postgres.url(
            &fixture.role,
            Some(e2e::fixture::PASSWORD),
            &fixture.database,
        );
        let proxied = format!(":{}/", stage.postgres_link.port());
        let config = delivering(fixture, delivery)
            .with_text("source.url", &url.replace(&format!(":{port}/"), &proxied))
            .with_text("source.status_interval", "500ms")
            .with_text("kafka.brokers", &stage.brokers())
            .with_text("retry.backoff_max", "2s")
            .with_text("log.level", "debug")
            // Shorter than the longest silence of a link, so that they are among what is tested.
            .with_kafka("socket.timeout.ms", "4000")
            .with_kafka("request.timeout.ms", "4000");
        let mut world = Self {
            stage,
            fixture,
            config,
            connector: None,
            standby: None,
            frozen_walsender: None,
            server_is_down: false,
            broker_work: None,
            broker_down: None,
            logs: Vec::new(),
        };
        world.start_connector()?;
        Ok(world)
    }

    /// The topic that all events of a round go to.
    pub(crate) fn topic(&self) -> String {
        self.fixture.topic("order")
    }

    pub(crate) fn connector(&self) -> Result<&Connector> {
        self.connector.as_ref().context("no connector runs")
    }

    pub(crate) fn start_connector(&mut self) -> Result<()> {
        let started = Connector::start(&self.config)?.quiet();
        self.replace(Some(started));
        Ok(())
    }

    /// Code 4 says that something was not acknowledged in time, which a broker in trouble excuses.
    pub(crate) async fn stop_connector(&self) -> Result<()> {
        let connector = self.connector()?;
        connector.signal(Signal::TERM)?;
        let code = connector.exit_code(STOP_WITHIN).await?;
        ensure!(code == 0 || code == 4, "exit code {code} after SIGTERM");
        Ok(())
    }

    /// Nothing that we cause may end the process.
    pub(crate) fn is_alive(&self) -> Result<()> {
        for connector in self.connector.iter().chain(&self.standby) {
            if let Some(code) = connector.try_exit_code()? {
                bail!("the connector ended by itself with code {code}");
            }
        }
        Ok(())
    }

    /// Another machine: it has the configuration and not the state.
    pub(crate) fn start_standby(&mut self) -> Result<()> {
        let config = self.config.clone().without("state.directory");
        let standby = Connector::start(&config)?.quiet();
        self.standby = Some(standby);
        Ok(())
    }

    pub(crate) fn kill_beside_standby(&mut self) -> Result<()> {
        self.connector()?.kill()?;
        let standby = self.standby.take();
        self.replace(standby);
        Ok(())
    }

    pub(crate) async fn wake_after_takeover(&mut self) -> Result<()> {
        let standby = self.standby.as_ref().context("no standby runs")?;
        standby
            .prints(&["streaming from"], TAKEN_OVER_WITHIN)
            .await?;
        self.connector()?.signal(Signal::CONT)?;
        wait::pass(AWAKE_FOR).await;
        self.kill_beside_standby()
    }

    pub(crate) async fn terminate(&self, all: bool) -> Result<()> {
        let backends = if all {
            "pg_stat_activity"
        } else {
            "pg_stat_replication"
        };
        let statement = format!(
            "SELECT pg_terminate_backend(pid) FROM {backends} WHERE usename = '{}'",
            self.fixture.role
        );
        self.fixture.sql(&statement).await
    }

    /// Nobody may hold the slot at this moment, and then nobody is frozen.
    pub(crate) async fn freeze_walsender(&mut self) -> Result<()> {
        let pid = self.slot().await?.state().await?.active_pid;
        if let Some(pid) = pid
            && signal(pid, "STOP").is_ok()
        {
            self.frozen_walsender = Some(pid);
        }
        Ok(())
    }

    pub(crate) fn wake_walsender(&mut self) -> Result<()> {
        match self.frozen_walsender.take() {
            Some(pid) => signal(pid, "CONT"),
            None => Ok(()),
        }
    }

    pub(crate) async fn stop_server(&mut self, mode: StopMode) -> Result<()> {
        let postgres = Arc::clone(&self.stage.postgres);
        self.server_is_down = true;
        spawn_blocking(move || postgres.stop(mode)).await?
    }

    pub(crate) async fn start_server(&mut self) -> Result<()> {
        let postgres = Arc::clone(&self.stage.postgres);
        spawn_blocking(move || postgres.start_again()).await??;
        self.server_is_down = false;
        Ok(())
    }

    pub(crate) fn broker_is_busy(&self) -> bool {
        self.broker_work
            .as_ref()
            .is_some_and(|work| !work.is_finished())
    }

    pub(crate) fn stop_broker(&mut self, node: usize, at_once: bool) -> Result<()> {
        let kafka = Arc::clone(&self.stage.kafka);
        if at_once {
            kafka.kill_node(node)?;
        } else {
            self.after_broker_work(move || kafka.stop_node(node));
        }
        self.broker_down = Some(node);
        Ok(())
    }

    /// Returns at once; the node is given up as a victim until it serves.
    pub(crate) fn start_broker(&mut self, node: usize) {
        let kafka = Arc::clone(&self.stage.kafka);
        self.broker_down = None;
        self.after_broker_work(move || kafka.start_node(node));
    }

    fn after_broker_work(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        let before = self.broker_work.take();
        self.broker_work = Some(tokio::spawn(async move {
            if let Some(before) = before {
                before.await??;
            }
            spawn_blocking(work).await?
        }));
    }

    pub(crate) fn set_broker_link(&self, node: usize, link: Link) -> Result<()> {
        let links = &self.stage.kafka_links;
        links.get(node).context("no such link")?.set(link);
        Ok(())
    }

    /// Ends every fault that still lasts, whatever became of the round. A second call finds nothing to do.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        self.stage.open_links();
        self.wake_walsender().ok();
        if self.server_is_down {
            self.start_server().await?;
        }
        let touched = self.broker_work.is_some() || self.broker_down.is_some();
        if let Some(node) = self.broker_down {
            self.start_broker(node);
        }
        if let Some(work) = self.broker_work.take() {
            work.await??;
        }
        for node in 0..self.stage.kafka_links.len() {
            self.stage.kafka.resume_node(node)?;
        }
        if touched {
            self.stage.is_whole("chaos.probe").await?;
        }
        Ok(())
    }

    /// Waits until the slot is confirmed up to now.
    pub(crate) async fn confirms_everything(&self, within: Duration) -> Result<()> {
        self.slot().await?.catches_up(within).await
    }

    /// An orderly stop, after which nothing would be sent again.
    pub(crate) async fn ends_clean(&mut self) -> Result<()> {
        let connector = self.connector()?;
        connector.signal(Signal::TERM)?;
        let code = connector.exit_code(STOP_WITHIN).await?;
        ensure!(code == 0, "exit code {code} at the end");
        let slot = self.slot().await?;
        let to_come = slot.rows_to_come(&self.fixture.publication).await?;
        ensure!(
            to_come == 0,
            "{to_come} rows would come again after an orderly stop"
        );
        Ok(())
    }

    /// Ends the processes and gives their logs.
    pub(crate) fn into_logs(mut self) -> Vec<String> {
        if let Some(standby) = self.standby.take() {
            self.logs.push(standby.log());
        }
        self.replace(None);
        self.logs
    }

    async fn slot(&self) -> Result<Slot> {
        self.fixture.watch_slot().await
    }

    fn replace(&mut self, next: Option<Connector>) {
        if let Some(before) = std::mem::replace(&mut self.connector, next) {
            self.logs.push(before.log());
        }
    }
}

/// The topic in which an exactly-once connector keeps its position.
pub(crate) fn positions(fixture: &Fixture) -> String {
    format!("{}.positions", fixture.slot)
}

fn delivering(fixture: &Fixture, delivery: Delivery) -> Config {
    let config = fixture.config();
    match delivery {
        Delivery::AtLeastOnce => config,
        Delivery::ExactlyOnce => config
            .with_text("kafka.delivery", "exactly-once")
            .with_text("kafka.position_topic", &positions(fixture))
            .with_text("kafka.transaction_timeout", "10s"),
    }
}
