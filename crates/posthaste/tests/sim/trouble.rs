//! What an attempt can meet before anything is read: one of each kind of error that `policy` judges.

use std::io;
use std::time::Duration;

use posthaste::codes::{Code, Problem};
use posthaste::policy::RunError;
use posthaste::preconditions::CheckError;
use posthaste::publishing::ThreadEnded;
use replication::{ConnectError, ServerError};
use router::{Router, RouterConfig};
use sink::{KafkaConfigError, PublishError};

use crate::random::Random;

/// Named after who would tell the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Unreachable,
    StartingUp,
    AccessRefused,
    Precondition,
    Standby,
    SlotHeld,
    QueriesInterrupted,
    Silent,
    StreamEnded,
    KafkaAway,
    KafkaClientDead,
    KafkaRights,
    KafkaSettings,
    RouterSettings,
    TokenCommand,
    ThreadEnded,
    System,
}

impl Trouble {
    pub(crate) const ALL: [Self; 17] = [
        Self::Unreachable,
        Self::StartingUp,
        Self::AccessRefused,
        Self::Precondition,
        Self::Standby,
        Self::SlotHeld,
        Self::QueriesInterrupted,
        Self::Silent,
        Self::StreamEnded,
        Self::KafkaAway,
        Self::KafkaClientDead,
        Self::KafkaRights,
        Self::KafkaSettings,
        Self::RouterSettings,
        Self::TokenCommand,
        Self::ThreadEnded,
        Self::System,
    ];

    pub(crate) fn draw(random: &mut Random) -> Self {
        let index = random.below(Self::ALL.len() as u64);
        Self::ALL[usize::try_from(index).expect("few")]
    }

    /// PostgreSQL is out of reach: it is tried again with backoff.
    pub(crate) fn is_outage(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::StartingUp
                | Self::QueriesInterrupted
                | Self::Silent
                | Self::StreamEnded
        )
    }

    pub(crate) fn error(self) -> RunError {
        let problem = |code| Problem::new(code, "something");
        let publish = |code| RunError::Publish(PublishError::from_code(code).expect("listed"));
        match self {
            Self::Unreachable => connect(ConnectError::Unreachable {
                target: "a:5432/d".to_owned(),
                reason: "no route".to_owned(),
                source: None,
            }),
            Self::StartingUp => connect(server("57P03")),
            Self::AccessRefused => connect(server("28P01")),
            Self::Precondition => CheckError::Problem(problem(Code::WalLevel)).into(),
            Self::Standby => CheckError::Standby(problem(Code::Standby)).into(),
            Self::SlotHeld => CheckError::Held {
                slot: "outbox".to_owned(),
                pid: Some(7),
            }
            .into(),
            Self::QueriesInterrupted => {
                let error = "port=none".parse::<tokio_postgres::Config>();
                CheckError::Interrupted(error.expect_err("no port")).into()
            }
            Self::Silent => RunError::Stalled {
                silent_for: Duration::from_secs(120),
            },
            Self::StreamEnded => RunError::StreamEnded,
            Self::KafkaAway => publish("_TRANSPORT"),
            Self::KafkaClientDead => publish("OUT_OF_ORDER_SEQUENCE_NUMBER"),
            Self::KafkaRights => publish("TOPIC_AUTHORIZATION_FAILED"),
            Self::KafkaSettings => RunError::KafkaConfig(KafkaConfigError::Client {
                reason: "no such file".to_owned(),
            }),
            Self::RouterSettings => {
                let nothing = RouterConfig {
                    tables: Vec::new(),
                    ..RouterConfig::default()
                };
                RunError::RouterConfig(Router::new(nothing).expect_err("no table"))
            }
            Self::TokenCommand => RunError::Token(Box::new(problem(Code::ServerTokenCommand))),
            Self::ThreadEnded => RunError::ThreadEnded(ThreadEnded),
            Self::System => RunError::System {
                what: "a thread",
                source: io::Error::from(io::ErrorKind::OutOfMemory),
            },
        }
    }
}

fn connect(error: ConnectError) -> RunError {
    CheckError::Connect(error).into()
}

fn server(sqlstate: &str) -> ConnectError {
    let mut error = ServerError::default();
    error.sqlstate = sqlstate.to_owned();
    ConnectError::Server(Box::new(error))
}
