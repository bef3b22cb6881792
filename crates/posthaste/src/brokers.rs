//! Brokers: asks from time to time whether any broker answers, so that readiness and the log tell the truth.

use std::time::{Duration, Instant};

use sink::BrokerProbe;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::codes::{Code, Problem};
use crate::metrics::PipelineMetrics;
use crate::policy::Target;

/// A task that probes until it is dropped. The producer's own `brokers_up` is what it keeps up to date.
#[derive(Debug)]
pub struct BrokerWatch {
    task: JoinHandle<()>,
}

impl BrokerWatch {
    /// Starts probing.
    #[must_use]
    pub fn start(probe: BrokerProbe) -> Self {
        let task = tokio::spawn(async move {
            loop {
                let asking = probe.clone();
                let asked =
                    tokio::task::spawn_blocking(move || asking.reachable(PROBE_TIMEOUT)).await;
                let reached = matches!(asked, Ok(Ok(())));
                tokio::time::sleep(if reached { PROBE_INTERVAL } else { PROBE_RETRY }).await;
            }
        });
        Self { task }
    }
}

impl Drop for BrokerWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was last said about the brokers: one line when they are lost, one when they are back.
#[derive(Debug, Default)]
pub struct BrokersSeen {
    up: Option<bool>,
    since: Option<Instant>,
}

impl BrokersSeen {
    /// Takes in what the producer knows. Before the first contact nothing is lost.
    pub fn hear(&mut self, up: bool, metrics: &PipelineMetrics) {
        match (self.up, up) {
            (None, true) => self.up = Some(true),
            (Some(true), false) => {
                self.up = Some(false);
                self.since = Some(Instant::now());
                metrics.retry(Target::Kafka, Code::KafkaUnreachable);
                let problem =
                    Problem::new(Code::KafkaUnreachable, "Kafka").found("no broker answers");
                warn!(
                    side = "kafka",
                    "lost: {problem}; events wait, nothing is lost"
                );
            }
            (Some(false), true) => {
                self.up = Some(true);
                metrics.reconnected(Target::Kafka);
                let seconds = self
                    .since
                    .map_or(0.0, |since| since.elapsed().as_secs_f64());
                info!(side = "kafka", seconds, "resumed: a broker answers");
            }
            _ => {}
        }
    }
}

/// Longest wait for an answer.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two questions while brokers answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// … and while they do not.
const PROBE_RETRY: Duration = Duration::from_secs(1);
