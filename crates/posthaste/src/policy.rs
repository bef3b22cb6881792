//! Policy: the one place that decides what an error means: try again, or stop.
//!
//! What can heal by itself is tried again. What needs a person stops, with one message that says so.
#![deny(clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use pgoutput::Lsn;
use replication::ConnectError;
use router::{RouteError, RouterConfigError};
use serde::Deserialize;
use sink::{EventIdentity, KafkaConfigError, PublishError};
use thiserror::Error;

use crate::codes::{Code, Problem};
use crate::explain;
use crate::intake::IntakeError;
use crate::poison::{Reason, Rules, Stage};
use crate::preconditions::CheckError;
use crate::publishing::ThreadEnded;
use crate::search::{Next, Refusal, Search};

/// What is done with an event that can never be delivered as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnPoison {
    /// Stop in front of it.
    #[default]
    Halt,
    /// Keep it, and what follows of its aggregate, in a table of the source database.
    Park,
    /// Send it to another topic.
    DeadLetterTopic,
    /// Pass it over, and count it.
    Skip,
}

impl OnPoison {
    /// What was done, for a log line.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Halt => "stopped",
            Self::Park => "parked",
            Self::DeadLetterTopic => "sent to the dead-letter topic",
            Self::Skip => "passed over",
        }
    }
}

/// Everything that can end an attempt.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// Connecting, or a precondition.
    #[error(transparent)]
    Check(Box<CheckError>),
    /// The server was silent, or took nothing, for too long.
    #[error("PostgreSQL has been silent for {} s", silent_for.as_secs())]
    Stalled {
        /// How long.
        silent_for: Duration,
    },
    /// The server ended the stream in order: it is shutting down.
    #[error("the server ended the stream")]
    StreamEnded,
    /// A frame could not be taken.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// Kafka did not take a record.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The Kafka client cannot be made.
    #[error(transparent)]
    KafkaConfig(#[from] KafkaConfigError),
    /// The router's settings contradict each other.
    #[error(transparent)]
    RouterConfig(#[from] RouterConfigError),
    /// A finished message from somewhere else.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The command that gives the password did not.
    #[error(transparent)]
    Token(Box<Problem>),
    /// A table was changed, and what the catalog says of it now could not be had.
    #[error("the catalog says nothing of {table} in time")]
    CatalogUnread {
        /// The table.
        table: String,
    },
    /// The publishing thread is gone.
    #[error(transparent)]
    ThreadEnded(#[from] ThreadEnded),
    /// The operating system refused something.
    #[error("the operating system refused {what}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl From<CheckError> for RunError {
    fn from(error: CheckError) -> Self {
        Self::Check(Box::new(error))
    }
}

impl From<Problem> for RunError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

/// What to do about an error.
#[derive(Debug)]
pub enum Verdict {
    /// Try again after a pause.
    Retry(Retry),
    /// Stop: a person has to act.
    Halt(Box<Problem>),
}

/// A retry, with what it is waiting for.
#[derive(Debug)]
pub struct Retry {
    /// For the log and the health page.
    pub problem: Box<Problem>,
    /// How to wait.
    pub pace: Pace,
    /// Who is being waited for.
    pub target: Target,
}

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Longer with every failure.
    Backoff,
    /// Once a second, without limit: somebody else does our job, and we want it soon after they stop.
    Steady,
}

/// Which side an error came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The database.
    Postgres,
    /// The brokers.
    Kafka,
}

impl Target {
    /// The word in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Kafka => "kafka",
        }
    }
}

/// Decides. `at` is the last confirmed position, for messages; with `fail_fast` nothing is tried again.
#[must_use]
pub fn decide(error: RunError, at: Lsn, fail_fast: bool) -> Verdict {
    let verdict = judge(error, at);
    match verdict {
        Verdict::Retry(retry) if fail_fast => Verdict::Halt(retry.problem),
        Verdict::Retry(_) | Verdict::Halt(_) => verdict,
    }
}

/// Whether it is the row itself that is wrong, so that going on without it helps. What is wrong with every row, such as a
/// column that is missing, needs a person; unless `tolerant`, which takes it for poison too.
#[must_use]
pub fn is_poison(error: &IntakeError, tolerant: bool) -> bool {
    match error {
        IntakeError::Route { source, .. } => {
            tolerant
                || !matches!(
                    source,
                    RouteError::MissingColumn { .. } | RouteError::UnsupportedTuple { .. }
                )
        }
        IntakeError::TooLarge { .. } => true,
        IntakeError::Decode(_)
        | IntakeError::Misfit(_)
        | IntakeError::Updated { .. }
        | IntakeError::AggregateUnknown { .. }
        | IntakeError::ParkingFull { .. } => false,
    }
}

/// Whether Kafka refuses one record for good, for what it is. Rights, credentials and settings concern all of them, and
/// stop; so does a dead letter that is refused.
#[must_use]
pub fn refuses_record(error: &PublishError, dead_letter_topic: Option<&str>) -> bool {
    let failure = error.failure();
    let is_dead_letter =
        dead_letter_topic.is_some() && failure.topic.as_deref() == dead_letter_topic;
    matches!(error, PublishError::Permanent(_))
        && !is_dead_letter
        && REFUSALS_OF_RECORDS.contains(&failure.code())
}

/// The client's names of what is wrong with a record, or with where it is to go.
const REFUSALS_OF_RECORDS: [&str; 8] = [
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_MSG_SIZE",
    "TOPIC_EXCEPTION",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "_UNKNOWN_PARTITION",
    "_INVALID_ARG",
];

/// What to do about a refused record: find out which one it is, go on without it, or stop. `None`: it is no matter of one
/// record, and [`decide`] judges it.
pub fn judge_refusal(
    error: &RunError,
    culprit: Option<EventIdentity>,
    high_water: Lsn,
    rules: &Rules,
    search: &mut Search,
) -> Option<Next> {
    let RunError::Publish(error) = error else {
        return None;
    };
    let dead_letter_topic =
        Some(rules.dead_letters.topic.as_str()).filter(|topic| !topic.is_empty());
    if !refuses_record(error, dead_letter_topic) {
        return None;
    }
    let problem = explain::publish(error.clone());
    let reason = Reason {
        stage: Stage::Publish,
        code: problem.code,
        text: problem.found,
        attempts: 1,
    };
    let refusal = Refusal {
        culprit,
        high_water,
        reason,
    };
    Some(search.handle(refusal, rules.action == OnPoison::Halt))
}

fn judge(error: RunError, at: Lsn) -> Verdict {
    match error {
        RunError::Check(error) => judge_check(*error),
        RunError::Stalled { silent_for } => retry(
            Target::Postgres,
            Problem::new(Code::ServerStalled, "replication stream")
                .found(format!(
                    "nothing from the server for {} s",
                    silent_for.as_secs()
                ))
                .needed("a keepalive or data"),
        ),
        RunError::StreamEnded => retry(
            Target::Postgres,
            Problem::new(Code::StreamEnded, "replication stream")
                .found("the server ended it, as it does when it shuts down"),
        ),
        RunError::Intake(error) => halt(explain::intake(error, at)),
        RunError::Publish(error) => judge_publish(error),
        RunError::KafkaConfig(error) => halt(explain::kafka_config(error)),
        RunError::RouterConfig(error) => halt(explain::router_config(error)),
        RunError::Problem(problem) => halt(*problem),
        RunError::Token(problem) => retry(Target::Postgres, *problem),
        RunError::CatalogUnread { table } => retry(
            Target::Postgres,
            Problem::new(Code::ServerStalled, format!("catalog, about table {table}"))
                .found("no answer in time")
                .needed("its columns as they are after a change of the table"),
        ),
        RunError::ThreadEnded(error) => halt(
            Problem::new(Code::Unexpected, "publishing thread")
                .found("it ended")
                .caused_by(error),
        ),
        RunError::System { what, source } => halt(
            Problem::new(Code::Unexpected, what)
                .found(source.to_string())
                .needed("the operating system to allow it")
                .caused_by(source),
        ),
    }
}

fn judge_check(error: CheckError) -> Verdict {
    match error {
        CheckError::Problem(problem) => halt(problem),
        CheckError::Standby(problem) => retry(Target::Postgres, problem),
        CheckError::Held { slot, pid } => Verdict::Retry(Retry {
            problem: Box::new(
                Problem::new(Code::SlotActive, format!("replication slot {slot}"))
                    .found(match pid {
                        Some(pid) => format!("held by PID {pid}"),
                        None => "held by another process".to_owned(),
                    })
                    .needed("the slot to be free; this instance stands by"),
            ),
            pace: Pace::Steady,
            target: Target::Postgres,
        }),
        CheckError::Connect(error) => judge_connect(error),
        CheckError::Interrupted(error) => retry(
            Target::Postgres,
            Problem::new(Code::ServerConnectionLost, "SQL connection")
                .found("interrupted while checking the preconditions")
                .caused_by(error),
        ),
    }
}

/// A connection that fails: what the network or the server will get over, and what only a person can change.
fn judge_connect(error: ConnectError) -> Verdict {
    let heals = error.is_transient();
    let problem = explain::connect(error);
    if heals {
        retry(Target::Postgres, problem)
    } else {
        halt(problem)
    }
}

fn judge_publish(error: PublishError) -> Verdict {
    // Fatal is the client's end, not the record's: the next attempt has a new one. Any kind that is added later stops,
    // which is the safe answer.
    let heals = matches!(error, PublishError::Retriable(_) | PublishError::Fatal(_));
    let problem = explain::publish(error);
    if heals {
        retry(Target::Kafka, problem)
    } else {
        halt(problem)
    }
}

fn retry(target: Target, problem: Problem) -> Verdict {
    Verdict::Retry(Retry {
        problem: Box::new(problem),
        pace: Pace::Backoff,
        target,
    })
}

fn halt(problem: Problem) -> Verdict {
    Verdict::Halt(Box::new(problem))
}

#[cfg(test)]
mod tests {
    use replication::ServerError;

    use super::*;

    fn server(sqlstate: &str) -> ConnectError {
        let mut error = ServerError::default();
        error.severity = "FATAL".to_owned();
        error.sqlstate = sqlstate.to_owned();
        error.message = "text".to_owned();
        ConnectError::Server(Box::new(error))
    }

    fn check(error: RunError, expected: Option<(Pace, Target)>, code: Code) {
        let shown = format!("{error:?}");
        match decide(error, Lsn::ZERO, false) {
            Verdict::Retry(retry) => {
                assert_eq!(expected, Some((retry.pace, retry.target)), "{shown}");
                assert_eq!(retry.problem.code, code, "{shown}");
            }
            Verdict::Halt(problem) => {
                assert_eq!(expected, None, "{shown}");
                assert_eq!(problem.code, code, "{shown}");
            }
        }
    }

    const BACKOFF: Option<(Pace, Target)> = Some((Pace::Backoff, Target::Postgres));

    #[test]
    fn a_server_that_comes_and_goes_is_tried_again() {
        for (sqlstate, code) in [
            ("57P01", Code::ServerStarting),
            ("57P03", Code::ServerStarting),
            ("53300", Code::ServerConnectionsExhausted),
            ("08006", Code::ServerConnectionLost),
        ] {
            check(CheckError::Connect(server(sqlstate)).into(), BACKOFF, code);
        }
        check(RunError::StreamEnded, BACKOFF, Code::StreamEnded);
        let token = Problem::new(Code::ServerTokenCommand, "command");
        check(
            RunError::Token(Box::new(token)),
            BACKOFF,
            Code::ServerTokenCommand,
        );
        let silent_for = Duration::from_secs(120);
        check(
            RunError::Stalled { silent_for },
            BACKOFF,
            Code::ServerStalled,
        );
    }

    #[test]
    fn what_only_a_person_can_change_stops() {
        for (sqlstate, code) in [
            ("28P01", Code::ServerAuthentication),
            ("28000", Code::ServerAccessRefused),
            ("3D000", Code::ServerDatabaseUnknown),
        ] {
            check(CheckError::Connect(server(sqlstate)).into(), None, code);
        }
        let problem = Problem::new(Code::WalLevel, "setting wal_level");
        check(CheckError::Problem(problem).into(), None, Code::WalLevel);
    }

    #[test]
    fn used_up_walsenders_are_told_apart_from_used_up_connections() {
        let mut error = ServerError::default();
        error.sqlstate = "53300".to_owned();
        error.message =
            "number of requested standby connections exceeds max_wal_senders (currently 1)"
                .to_owned();
        let error = CheckError::Connect(ConnectError::Server(Box::new(error)));
        check(error.into(), BACKOFF, Code::SendersExhausted);
    }

    #[test]
    fn a_certificate_that_cannot_be_used_stops_with_a_code_of_its_own() {
        for (keyword, code) in [
            ("sslrootcert", Code::ServerTlsFiles),
            ("sslkey", Code::ServerTlsFiles),
            ("options", Code::ConfigConnection),
        ] {
            let error = ConnectError::Config {
                keyword: keyword.to_owned(),
                reason: "text".to_owned(),
                source: None,
            };
            check(CheckError::Connect(error).into(), None, code);
        }
    }

    #[test]
    fn a_held_slot_is_waited_for_steadily() {
        let held = CheckError::Held {
            slot: "outbox".to_owned(),
            pid: Some(7),
        };
        check(
            held.into(),
            Some((Pace::Steady, Target::Postgres)),
            Code::SlotActive,
        );
    }

    #[test]
    fn kafka_is_waited_for_unless_it_refuses_the_record_for_good() {
        let publish = |name| RunError::Publish(PublishError::from_code(name).expect("listed"));
        let retried = Some((Pace::Backoff, Target::Kafka));
        check(publish("_UNKNOWN_TOPIC"), retried, Code::KafkaTopicUnknown);
        check(publish("_TRANSPORT"), retried, Code::KafkaUnreachable);
        check(
            publish("OUT_OF_ORDER_SEQUENCE_NUMBER"),
            retried,
            Code::KafkaClientFatal,
        );
        check(
            publish("MSG_SIZE_TOO_LARGE"),
            None,
            Code::KafkaRecordTooLarge,
        );
        check(
            publish("TOPIC_AUTHORIZATION_FAILED"),
            None,
            Code::KafkaAuthorization,
        );
    }

    #[test]
    fn a_record_is_refused_for_what_it_is_and_rights_concern_all_of_them() {
        let publish = |name| PublishError::from_code(name).expect("listed");
        for name in REFUSALS_OF_RECORDS {
            assert!(refuses_record(&publish(name), None), "{name}");
        }
        for name in [
            "TOPIC_AUTHORIZATION_FAILED",
            "_TRANSPORT",
            "POLICY_VIOLATION",
            "_FATAL",
        ] {
            assert!(!refuses_record(&publish(name), None), "{name}");
        }
    }

    /// A record for `topic` that is too large for the broker.
    fn refused_in(topic: &str) -> PublishError {
        let mut error = PublishError::from_code("MSG_SIZE_TOO_LARGE").expect("listed");
        if let PublishError::Permanent(failure) = &mut error {
            failure.topic = Some(topic.into());
        }
        error
    }

    #[test]
    fn a_dead_letter_that_is_refused_stops() {
        assert!(refuses_record(&refused_in("orders"), Some("dead")));
        assert!(!refuses_record(&refused_in("dead"), Some("dead")));
    }

    /// What follows a refusal with this action and dead-letter topic, when it is known or not whose it is.
    fn next(
        error: PublishError,
        action: OnPoison,
        dead_letters: &str,
        is_known: bool,
    ) -> Option<Next> {
        let mut rules = Rules {
            action,
            ..Rules::default()
        };
        rules.dead_letters.topic = dead_letters.to_owned();
        let row = EventIdentity::Row("0/50#3".parse().expect("a row"));
        judge_refusal(
            &RunError::Publish(error),
            is_known.then_some(row),
            Lsn::new(100),
            &rules,
            &mut Search::default(),
        )
    }

    #[test]
    fn a_refused_record_is_searched_for_and_then_the_action_decides() {
        let refused = || refused_in("orders");
        let park = |is_known| next(refused(), OnPoison::Park, "", is_known);
        assert_eq!(park(false), Some(Next::SendSingly));
        assert_eq!(park(true), Some(Next::GoOn));
        let halt = |is_known| next(refused(), OnPoison::Halt, "", is_known);
        assert_eq!(halt(false), Some(Next::SendSingly));
        assert_eq!(halt(true), Some(Next::Stop));
    }

    #[test]
    fn what_is_no_matter_of_one_record_is_not_searched_for() {
        let rights = PublishError::from_code("TOPIC_AUTHORIZATION_FAILED").expect("listed");
        assert_eq!(next(rights, OnPoison::Park, "", false), None);
        let letters = OnPoison::DeadLetterTopic;
        assert_eq!(next(refused_in("dead"), letters, "dead", true), None);
        let orders = next(refused_in("orders"), letters, "dead", true);
        assert_eq!(orders, Some(Next::GoOn));
        // Without a topic of dead letters, a record of an empty topic is none.
        assert_eq!(
            next(refused_in(""), OnPoison::Skip, "", true),
            Some(Next::GoOn)
        );
        let ended = judge_refusal(
            &RunError::StreamEnded,
            None,
            Lsn::ZERO,
            &Rules::default(),
            &mut Search::default(),
        );
        assert_eq!(ended, None);
    }

    #[test]
    fn a_too_large_row_is_poison_and_an_update_is_not() {
        let (table, lsn) = (String::new(), Lsn::ZERO);
        let size_bytes = 1;
        let too_large = IntakeError::TooLarge {
            table: table.clone(),
            lsn,
            size_bytes,
        };
        assert!(is_poison(&too_large, false));
        assert!(!is_poison(&IntakeError::Updated { table, lsn }, true));
    }

    #[test]
    fn a_log_line_says_what_was_done_with_a_poison_event() {
        let done = [
            OnPoison::Halt,
            OnPoison::Park,
            OnPoison::DeadLetterTopic,
            OnPoison::Skip,
        ]
        .map(OnPoison::done);
        assert_eq!(
            done,
            [
                "stopped",
                "parked",
                "sent to the dead-letter topic",
                "passed over"
            ]
        );
    }

    #[test]
    fn fail_fast_stops_at_what_would_be_retried() {
        let verdict = decide(RunError::StreamEnded, Lsn::ZERO, true);
        assert!(matches!(verdict, Verdict::Halt(problem) if problem.code == Code::StreamEnded));
    }
}
