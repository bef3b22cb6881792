//! Brokers: asks from time to time whether any broker answers, so that readiness and the log tell the truth.

use std::time::{Duration, Instant};

use pgoutput::Lsn;
use sink::{BrokerProbe, PublishError};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::codes::{Code, Problem};
use crate::explain;
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

/// What was last said about Kafka: one line when it is lost, one when it is back, however many attempts fail in between.
///
/// It is lost when no broker answers, and when records are refused for a reason that may pass. In the second case an
/// answer says nothing: Kafka is back once the position has passed everything that was tried before.
#[derive(Debug, Default)]
pub struct KafkaSeen {
    up: Option<bool>,
    outage: Option<Outage>,
}

/// What [`KafkaSeen`] had to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// An outage has begun.
    Lost,
    /// The outage is over.
    Resumed,
}

/// From the first sign until records are acknowledged again.
#[derive(Debug)]
struct Outage {
    began: Instant,
    /// Attempts that ended with refused records.
    tries: u32,
    /// The position has to pass this; zero while no record was refused.
    beyond: Lsn,
    /// What was said to be wrong.
    told: Code,
}

impl KafkaSeen {
    /// Takes in whether a broker answers, or why none does, and what is acknowledged. Before the first contact nothing is
    /// lost, until it is sure that nobody answers.
    pub fn hear(
        &mut self,
        up: bool,
        error: Option<&PublishError>,
        confirmed: Lsn,
        metrics: &PipelineMetrics,
    ) -> Option<Said> {
        let was_up = self.up;
        if up || was_up.is_some() {
            self.up = Some(up);
        }
        match &mut self.outage {
            None if !up && (was_up == Some(true) || error.is_some()) => {
                let problem = reason(error);
                metrics.retry(Target::Kafka, problem.code);
                Some(self.begin(&problem, 0, Lsn::ZERO))
            }
            // A broker that is there again and refuses us needs a person; one that is away did not.
            Some(outage) if !up && outage.told == Code::KafkaUnreachable => {
                let problem = reason(error);
                if problem.code != outage.told {
                    outage.told = problem.code;
                    metrics.retry(Target::Kafka, problem.code);
                    warn!(side = Target::Kafka.name(), "still lost: {problem}");
                }
                None
            }
            Some(outage) if up && confirmed > outage.beyond => Some(self.end(metrics)),
            _ => None,
        }
    }

    /// Takes in that an attempt ended with refused records; those that were tried reach up to `beyond`.
    pub fn refused(&mut self, problem: &Problem, beyond: Lsn) -> Option<Said> {
        match &mut self.outage {
            None => Some(self.begin(problem, 1, beyond)),
            Some(outage) => {
                outage.tries += 1;
                outage.beyond = outage.beyond.max(beyond);
                debug!(tries = outage.tries, "still refused: {problem}");
                None
            }
        }
    }

    /// Whether an outage was told and its end was not.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.outage.is_some()
    }

    fn begin(&mut self, problem: &Problem, tries: u32, beyond: Lsn) -> Said {
        warn!(
            side = Target::Kafka.name(),
            "lost: {problem}; events wait, nothing is lost"
        );
        self.outage = Some(Outage {
            began: Instant::now(),
            tries,
            beyond,
            told: problem.code,
        });
        Said::Lost
    }

    fn end(&mut self, metrics: &PipelineMetrics) -> Said {
        if let Some(outage) = self.outage.take() {
            info!(
                side = Target::Kafka.name(),
                tries = outage.tries,
                seconds = outage.began.elapsed().as_secs_f64(),
                "resumed: a broker answers"
            );
        }
        metrics.reconnected(Target::Kafka);
        Said::Resumed
    }
}

/// What is wrong while nobody answers.
fn reason(error: Option<&PublishError>) -> Problem {
    let refusal = error.cloned().map(explain::publish);
    refusal
        .filter(|problem| problem.code != Code::KafkaUnreachable)
        .unwrap_or_else(|| Problem::new(Code::KafkaUnreachable, "Kafka").found("no broker answers"))
}

/// Longest wait for an answer.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two questions while brokers answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// … and while they do not.
const PROBE_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        Problem::new(Code::KafkaTopicUnknown, "topic orders")
    }

    #[test]
    fn brokers_that_go_and_come_are_two_lines() {
        let metrics = PipelineMetrics::new("test");
        let mut seen = KafkaSeen::default();
        let at = Lsn::new(10);
        assert_eq!(seen.hear(false, None, at, &metrics), None, "not met yet");
        assert_eq!(seen.hear(true, None, at, &metrics), None);
        assert_eq!(seen.hear(false, None, at, &metrics), Some(Said::Lost));
        assert_eq!(seen.hear(false, None, at, &metrics), None);
        assert_eq!(seen.hear(true, None, at, &metrics), Some(Said::Resumed));
        assert_eq!(seen.hear(true, None, at, &metrics), None);
    }

    #[test]
    fn attempts_that_fail_again_and_again_are_one_outage() {
        let metrics = PipelineMetrics::new("test");
        let mut seen = KafkaSeen::default();
        seen.hear(true, None, Lsn::new(10), &metrics);
        assert_eq!(seen.refused(&problem(), Lsn::new(100)), Some(Said::Lost));
        for _ in 0..3 {
            // The producer is made anew, so that it knows no broker for a moment.
            assert_eq!(seen.hear(false, None, Lsn::new(10), &metrics), None);
            assert_eq!(seen.hear(true, None, Lsn::new(100), &metrics), None);
            assert_eq!(seen.refused(&problem(), Lsn::new(120)), None);
        }
        assert!(seen.is_lost());
        assert_eq!(seen.hear(true, None, Lsn::new(120), &metrics), None);
        assert_eq!(
            seen.hear(true, None, Lsn::new(121), &metrics),
            Some(Said::Resumed)
        );
        assert!(!seen.is_lost());
    }

    #[test]
    fn records_refused_while_no_broker_answers_make_no_second_line() {
        let metrics = PipelineMetrics::new("test");
        let mut seen = KafkaSeen::default();
        seen.hear(true, None, Lsn::new(10), &metrics);
        assert_eq!(
            seen.hear(false, None, Lsn::new(10), &metrics),
            Some(Said::Lost)
        );
        assert_eq!(seen.refused(&problem(), Lsn::new(100)), None);
        assert_eq!(seen.hear(true, None, Lsn::new(10), &metrics), None);
        assert_eq!(
            seen.hear(true, None, Lsn::new(108), &metrics),
            Some(Said::Resumed)
        );
    }

    #[test]
    fn a_refusal_is_told_by_its_own_code_once() {
        let metrics = PipelineMetrics::new("test");
        let mut seen = KafkaSeen::default();
        let mut hear = |code: &str| {
            let error = PublishError::from_code(code).expect("listed");
            let said = seen.hear(false, Some(&error), Lsn::new(10), &metrics);
            (said, seen.outage.as_ref().map(|outage| outage.told))
        };
        let unreachable = Some(Code::KafkaUnreachable);
        let refused = Some(Code::KafkaAuthentication);
        assert_eq!(hear("_ALL_BROKERS_DOWN"), (Some(Said::Lost), unreachable));
        assert_eq!(hear("_AUTHENTICATION"), (None, refused));
        assert_eq!(hear("_TRANSPORT"), (None, refused), "not made vague again");
    }
}
