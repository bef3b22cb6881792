//! Health: what the pipeline is doing, and the two questions that others ask of it.
//!
//! *Ready*: does this instance do its job now? For the active one that is to deliver, for a standby to be able to take
//! over. *Live*: is it still able to, or would a restart help? The first may well be "no" for hours, while a broker is
//! down; the second is "no" only for a loop that no longer turns. Both answers are pure functions of what was reported
//! and of the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::codes::Problem;
use crate::policy::Pace;
use crate::publishing::PublishState;

/// One pipeline's health, shared between the pipeline that reports and the page that asks.
#[derive(Debug, Clone)]
pub struct Health(Arc<Mutex<Report>>);

/// What a pipeline is doing.
///
/// ```text
///              ┌──────────── waiting ◄──────────┐   (something is out of reach)
///              ▼                                │
/// starting ─► connecting ─► streaming ──────────┤
///              ▲                 │              │
///              │                 ▼              ▼
///              └─ standing-by  draining ─► stopped, failed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Not begun.
    Starting,
    /// Opening connections and checking preconditions.
    Connecting,
    /// Something is out of reach; tried again after a pause.
    Waiting,
    /// Another instance reads the slot.
    StandingBy,
    /// Reading the slot.
    Streaming,
    /// Told to stop; what was read is on its way.
    Draining,
    /// Ended in order.
    Stopped,
    /// Ended by something that needs a person.
    Failed,
}

/// The part an instance plays among those that share a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It reads the slot.
    Active,
    /// Another one reads the slot; this one waits for it.
    Standby,
    /// Neither, at the moment.
    None,
}

/// The answer to *ready?*, as the page shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether this instance does its job.
    pub ready: bool,
    /// Which part it plays among the instances of its slot.
    pub role: Role,
    /// What it is doing.
    pub phase: Phase,
    /// Why it is not ready; for a standby, who holds the slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it has been in this phase.
    pub seconds_in_phase: u64,
}

/// What was reported last. Pure: the time comes in.
#[derive(Debug, Clone)]
struct Report {
    phase: Phase,
    since: Instant,
    reason: Option<String>,
    brokers_up: bool,
    /// Why records were refused, until they are acknowledged.
    refused: Option<String>,
    confirmed: u64,
    outstanding: u64,
    /// Since when events wait without any of them being acknowledged.
    waiting_since: Option<Instant>,
    server_heard_at: Instant,
    beat_at: Option<Instant>,
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// A pipeline that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Report::new(Instant::now()))))
    }

    /// Opening connections.
    pub fn connecting(&self) {
        let mut report = self.report();
        // A standby tries once a second whether the slot is free. It is one for as long as no try says otherwise.
        if report.phase == Phase::StandingBy {
            return;
        }
        // The reason for the try stays: while it lasts, that is still what is wrong.
        let reason = report.reason.take();
        report.enter(Phase::Connecting, reason, Instant::now());
    }

    /// A try failed; it will be repeated.
    pub fn waiting(&self, pace: Pace, problem: &Problem) {
        let phase = match pace {
            Pace::Steady => Phase::StandingBy,
            Pace::Backoff => Phase::Waiting,
        };
        self.report()
            .enter(phase, Some(problem.to_string()), Instant::now());
    }

    /// Reading the slot.
    pub fn streaming(&self) {
        self.report().enter(Phase::Streaming, None, Instant::now());
    }

    /// Told to stop.
    pub fn draining(&self) {
        let reason = Some("stopping: what was read is on its way".to_owned());
        self.report().enter(Phase::Draining, reason, Instant::now());
    }

    /// Ended in order.
    pub fn stopped(&self) {
        self.report()
            .enter(Phase::Stopped, Some("stopped".to_owned()), Instant::now());
    }

    /// Ended by something that needs a person.
    pub fn failed(&self, problem: &Problem) {
        self.report()
            .enter(Phase::Failed, Some(problem.to_string()), Instant::now());
    }

    /// News from the publisher.
    pub fn publisher(&self, state: &PublishState) {
        let confirmed = state.confirmed.as_lsn().as_u64();
        self.report().publisher(
            state.brokers_up,
            state.outstanding,
            confirmed,
            Instant::now(),
        );
    }

    /// Kafka refused records. The stream may run again before it takes them: that alone is not yet doing the job.
    pub fn refused(&self, problem: &Problem) {
        self.report().refused = Some(problem.to_string());
    }

    /// Kafka takes records again.
    pub fn delivering(&self) {
        self.report().refused = None;
    }

    /// Something arrived from the server.
    pub fn heard_from_server(&self) {
        self.report().server_heard_at = Instant::now();
    }

    /// The loop has turned. Once a loop has called this while streaming, it has to go on calling it.
    pub fn beat(&self) {
        self.report().beat_at = Some(Instant::now());
    }

    /// Does this instance do its job?
    #[must_use]
    pub fn readiness(&self, now: Instant) -> Readiness {
        self.report().readiness(now)
    }

    /// Why a restart would help, if it would.
    ///
    /// # Errors
    /// The reason.
    pub fn liveness(&self, now: Instant) -> Result<(), String> {
        self.report().liveness(now)
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Starting,
            since: now,
            reason: None,
            brokers_up: false,
            refused: None,
            confirmed: 0,
            outstanding: 0,
            waiting_since: None,
            server_heard_at: now,
            beat_at: None,
        }
    }

    fn enter(&mut self, phase: Phase, reason: Option<String>, now: Instant) {
        if self.phase != phase {
            self.since = now;
            self.beat_at = None;
        }
        if phase == Phase::Streaming {
            self.server_heard_at = now;
        }
        self.phase = phase;
        self.reason = reason;
    }

    fn publisher(&mut self, brokers_up: bool, outstanding: u64, confirmed: u64, now: Instant) {
        // Fewer outstanding, or a later position: something was acknowledged, so the wait begins anew.
        let advanced = confirmed > self.confirmed || outstanding < self.outstanding;
        if outstanding == 0 {
            self.waiting_since = None;
        } else if advanced || self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
        self.brokers_up = brokers_up;
        self.outstanding = outstanding;
        self.confirmed = confirmed;
    }

    fn readiness(&self, now: Instant) -> Readiness {
        let hindrance = match self.phase {
            Phase::Streaming => self.hindrance(now),
            // It would take the slot and then stand still.
            Phase::StandingBy if !self.brokers_up => Some(NO_BROKER.to_owned()),
            Phase::StandingBy => None,
            Phase::Starting => Some("starting".to_owned()),
            Phase::Connecting => Some(
                self.reason
                    .clone()
                    .unwrap_or_else(|| "connecting".to_owned()),
            ),
            Phase::Waiting | Phase::Draining | Phase::Stopped | Phase::Failed => {
                Some(self.reason.clone().unwrap_or_default())
            }
        };
        let ready = hindrance.is_none();
        Readiness {
            ready,
            role: self.role(),
            phase: self.phase,
            reason: hindrance.or_else(|| self.reason.clone()),
            seconds_in_phase: now.saturating_duration_since(self.since).as_secs(),
        }
    }

    fn role(&self) -> Role {
        match self.phase {
            Phase::Streaming => Role::Active,
            Phase::StandingBy => Role::Standby,
            Phase::Starting
            | Phase::Connecting
            | Phase::Waiting
            | Phase::Draining
            | Phase::Stopped
            | Phase::Failed => Role::None,
        }
    }

    /// What keeps a streaming pipeline from delivering.
    fn hindrance(&self, now: Instant) -> Option<String> {
        if !self.brokers_up {
            return Some(NO_BROKER.to_owned());
        }
        if self.refused.is_some() {
            return self.refused.clone();
        }
        if let Some(waited) = self
            .waiting_since
            .map(|since| now.saturating_duration_since(since))
            && waited > ACKNOWLEDGEMENT_WAIT_MAX
        {
            return Some(format!(
                "{} events wait and none was acknowledged for {} s",
                self.outstanding,
                waited.as_secs()
            ));
        }
        None
    }

    fn liveness(&self, now: Instant) -> Result<(), String> {
        let turning = matches!(self.phase, Phase::Streaming | Phase::Draining);
        match self.beat_at.map(|at| now.saturating_duration_since(at)) {
            Some(still) if turning && still > STANDSTILL_MAX => Err(format!(
                "the pipeline's loop has stood still for {} s",
                still.as_secs()
            )),
            _ => Ok(()),
        }
    }
}

const NO_BROKER: &str = "no Kafka broker reached";

/// Events that wait longer than this without any being acknowledged make the instance not ready, although brokers answer.
const ACKNOWLEDGEMENT_WAIT_MAX: Duration = Duration::from_secs(25);

/// A loop that has not turned for so long does not recover; it turns at least once a status interval.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Code;

    const SECOND: Duration = Duration::from_secs(1);

    fn streaming(now: Instant) -> Report {
        let mut report = Report::new(now);
        report.enter(Phase::Streaming, None, now);
        report.publisher(true, 0, 10, now);
        report
    }

    fn standing_by(now: Instant) -> Report {
        let mut report = streaming(now);
        report.enter(Phase::StandingBy, Some("held by PID 7".to_owned()), now);
        report
    }

    #[test]
    fn ready_only_while_streaming_or_standing_by_with_a_broker() {
        let now = Instant::now();
        assert!(streaming(now).readiness(now).ready);
        assert!(standing_by(now).readiness(now).ready);
        for phase in [
            Phase::Starting,
            Phase::Connecting,
            Phase::Waiting,
            Phase::Draining,
            Phase::Stopped,
            Phase::Failed,
        ] {
            let mut report = streaming(now);
            report.enter(phase, None, now);
            let readiness = report.readiness(now);
            assert!(!readiness.ready, "{phase:?}");
            assert!(readiness.reason.is_some(), "{phase:?}");
            assert_eq!(readiness.role, Role::None, "{phase:?}");
        }
        for mut report in [streaming(now), standing_by(now)] {
            report.publisher(false, 0, 10, now);
            let readiness = report.readiness(now);
            assert!(!readiness.ready, "{:?}", readiness.phase);
            assert_eq!(readiness.reason.as_deref(), Some(NO_BROKER));
        }
    }

    #[test]
    fn a_standby_says_that_it_is_one_and_who_holds_the_slot() {
        let now = Instant::now();
        let readiness = standing_by(now).readiness(now + 7200 * SECOND);
        assert_eq!((readiness.ready, readiness.role), (true, Role::Standby));
        assert_eq!(readiness.reason.as_deref(), Some("held by PID 7"));
        assert_eq!(streaming(now).readiness(now).role, Role::Active);
    }

    #[test]
    fn a_standby_stays_one_while_it_tries() {
        let health = Health::new();
        health.waiting(Pace::Steady, &Problem::new(Code::SlotActive, "slot"));
        health.connecting();
        assert_eq!(health.readiness(Instant::now()).phase, Phase::StandingBy);
        health.waiting(
            Pace::Backoff,
            &Problem::new(Code::ServerUnreachable, "db:5432"),
        );
        health.connecting();
        let readiness = health.readiness(Instant::now());
        assert_eq!(
            (readiness.ready, readiness.phase),
            (false, Phase::Connecting)
        );
    }

    #[test]
    fn hours_of_quiet_are_no_reason_to_worry() {
        let now = Instant::now();
        let report = streaming(now);
        let later = now + 7200 * SECOND;
        assert!(report.readiness(later).ready);
        assert!(report.liveness(later).is_ok());
    }

    #[test]
    fn events_that_nobody_acknowledges_make_it_not_ready_within_thirty_seconds() {
        let now = Instant::now();
        let mut report = streaming(now);
        report.publisher(true, 5, 10, now);
        assert!(report.readiness(now + 20 * SECOND).ready);
        // More events arrive, none is acknowledged: that is no progress.
        report.publisher(true, 9, 10, now + 20 * SECOND);
        let readiness = report.readiness(now + 30 * SECOND);
        assert!(!readiness.ready);
        assert!(readiness.reason.unwrap().contains("9 events wait"));
    }

    #[test]
    fn each_acknowledgement_starts_the_wait_anew() {
        let now = Instant::now();
        let mut report = streaming(now);
        report.publisher(true, 5, 10, now);
        report.publisher(true, 4, 10, now + 20 * SECOND);
        assert!(
            report.readiness(now + 40 * SECOND).ready,
            "one was acknowledged"
        );
        report.publisher(true, 4, 11, now + 40 * SECOND);
        assert!(
            report.readiness(now + 60 * SECOND).ready,
            "as many came as went"
        );
        report.publisher(true, 0, 12, now + 60 * SECOND);
        assert!(report.readiness(now + 7200 * SECOND).ready, "nothing waits");
    }

    #[test]
    fn an_outage_of_others_never_asks_for_a_restart() {
        let now = Instant::now();
        for phase in [
            Phase::Waiting,
            Phase::StandingBy,
            Phase::Connecting,
            Phase::Failed,
        ] {
            let mut report = streaming(now);
            report.beat_at = Some(now);
            report.enter(phase, None, now);
            assert!(report.liveness(now + 7200 * SECOND).is_ok(), "{phase:?}");
        }
    }

    #[test]
    fn a_loop_that_stands_still_asks_for_one() {
        let now = Instant::now();
        let mut report = streaming(now);
        report.beat_at = Some(now);
        assert!(report.liveness(now + 59 * SECOND).is_ok());
        let reason = report.liveness(now + 61 * SECOND).unwrap_err();
        assert!(reason.contains("61 s"), "{reason}");
    }

    #[test]
    fn the_reason_of_an_outage_stays_while_connecting() {
        let health = Health::new();
        health.waiting(
            Pace::Backoff,
            &Problem::new(Code::ServerUnreachable, "db:5432"),
        );
        health.connecting();
        let readiness = health.readiness(Instant::now());
        assert_eq!(readiness.phase, Phase::Connecting);
        assert!(readiness.reason.unwrap().contains("PH0201"));
        health.streaming();
        assert_eq!(health.readiness(Instant::now()).phase, Phase::Streaming);
    }

    #[test]
    fn a_stream_that_runs_again_is_not_ready_before_kafka_takes_what_it_refused() {
        let health = Health::new();
        let problem = Problem::new(Code::KafkaTopicUnknown, "topic orders");
        health.waiting(Pace::Backoff, &problem);
        health.refused(&problem);
        health.streaming();
        health.report().brokers_up = true;
        let readiness = health.readiness(Instant::now());
        assert_eq!(readiness.phase, Phase::Streaming);
        assert!(readiness.reason.unwrap().contains("PH0606"));
        health.delivering();
        assert!(health.readiness(Instant::now()).ready);
    }

    #[test]
    fn waiting_for_the_slot_is_told_apart_from_an_outage() {
        let health = Health::new();
        health.waiting(Pace::Steady, &Problem::new(Code::SlotActive, "slot"));
        assert_eq!(health.readiness(Instant::now()).phase, Phase::StandingBy);
    }
}
