//! Brokers: asks from time to time whether any broker answers, so that readiness and the log tell the truth.

use std::time::Duration;

use sink::BrokerProbe;
use tokio::task::JoinHandle;

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

/// Longest wait for an answer.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two questions while brokers answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// … and while they do not.
const PROBE_RETRY: Duration = Duration::from_secs(1);
