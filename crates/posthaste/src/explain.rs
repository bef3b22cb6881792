//! Explain: turns each library's error into one message with a code. Says what is wrong; never decides what to do.

use pgoutput::{Lsn, RowId};
use replication::{AuthFailure, ConnectError, ServerError, TlsFailure};
use router::{ConnectConfigError, RouteError, RouterConfigError};
use sink::{KafkaConfigError, PublishError};

use crate::codes::{Code, Problem};
use crate::intake::IntakeError;
use crate::poison::{Reason, Stage};
use crate::timeline::ACCEPT;

/// A connection to PostgreSQL that cannot be made, or ended.
pub(crate) fn connect(error: ConnectError) -> Problem {
    let problem = match &error {
        ConnectError::Unreachable { target, reason, .. } => {
            let found = with_server(reason, error.server());
            match error.server() {
                Some(server) if server.sqlstate == "53300" => exhausted(server, target, found),
                Some(server) if server.sqlstate.starts_with("57P") => {
                    Problem::new(Code::ServerStarting, target.clone()).found(found)
                }
                _ => Problem::new(Code::ServerUnreachable, target.clone())
                    .found(found)
                    .needed("a running PostgreSQL"),
            }
        }
        ConnectError::Server(server) => server_error(server),
        ConnectError::Tls {
            kind,
            target,
            reason,
            ..
        } => Problem::new(tls_code(*kind), target.clone())
            .found(reason.clone())
            .needed("TLS as sslmode asks for")
            .fix("check sslmode, sslrootcert and the server's certificate"),
        ConnectError::Auth {
            kind,
            target,
            reason,
            ..
        } => Problem::new(auth_code(*kind), target.clone()).found(reason.clone()),
        ConnectError::Config {
            keyword, reason, ..
        } => Problem::new(config_code(keyword), keyword.clone()).found(reason.clone()),
        ConnectError::Protocol { context } => {
            Problem::new(Code::ServerProtocol, "server").found(context.clone())
        }
        other => Problem::new(Code::Unexpected, "connection").found(other.to_string()),
    };
    problem.caused_by(error)
}

/// A password that must not go over an open line is no method that is missing.
fn auth_code(kind: AuthFailure) -> Code {
    match kind {
        AuthFailure::ClearText => Code::ServerCleartextPassword,
        AuthFailure::NoPassword => Code::ServerAuthentication,
        AuthFailure::ServerProof => Code::ServerProtocol,
        _ => Code::ServerAuthenticationMethod,
    }
}

/// The keywords themselves were checked with the configuration; what is found wrong with these now are the files.
fn config_code(keyword: &str) -> Code {
    match keyword {
        "sslrootcert" | "sslcert" | "sslkey" => Code::ServerTlsFiles,
        _ => Code::ConfigConnection,
    }
}

/// A server without TLS is another thing to repair than a certificate that does not fit.
fn tls_code(kind: TlsFailure) -> Code {
    match kind {
        TlsFailure::Unavailable => Code::ServerTlsUnavailable,
        _ => Code::ServerTls,
    }
}

/// An error that the server itself reported, by SQLSTATE (manual, appendix "PostgreSQL Error Codes").
fn server_error(server: &ServerError) -> Problem {
    let found = format!("{} (SQLSTATE {})", server.message, server.sqlstate);
    match server.sqlstate.as_str() {
        "28P01" => Problem::new(Code::ServerAuthentication, "password")
            .found(found)
            .needed("the password of the role")
            .fix("check source.user and source.password or source.password_file"),
        "28000" => Problem::new(Code::ServerAccessRefused, "server")
            .found(found)
            .needed("a role that may log in, and a line of pg_hba.conf that lets it in")
            .fix("check source.user, and pg_hba.conf on the server (the database name, not the word replication, is what a logical replication connection matches)"),
        "3D000" => Problem::new(Code::ServerDatabaseUnknown, "database")
            .found(found)
            .needed("the database that holds the outbox")
            .fix("check source.dbname or the path of source.url"),
        // The words of PgBouncer, which takes none of the settings that we pin.
        "08P01" if server.message.contains("startup parameter") => {
            Problem::new(Code::ServerPooler, "server")
                .found(found)
                .needed("a direct connection to PostgreSQL")
                .fix("give the address of the PostgreSQL server itself in source")
        }
        "53300" => exhausted(server, "server", found),
        "57P01" | "57P02" | "57P03" => {
            Problem::new(Code::ServerStarting, "server").found(found)
        }
        code if code.starts_with("08") || code.starts_with("57") => {
            Problem::new(Code::ServerConnectionLost, "server").found(found)
        }
        _ => Problem::new(Code::StreamRefused, "server")
            .found(found)
            .fix(server.hint.clone().unwrap_or_default()),
    }
}

/// No slot of a kind is left. The name of the setting stands in every translation of the server's message.
fn exhausted(server: &ServerError, target: &str, found: String) -> Problem {
    let (code, needed, fix) = if server.message.contains("max_wal_senders") {
        (
            Code::SendersExhausted,
            "a free walsender",
            "stop replicas that nobody needs, or raise max_wal_senders, if this does not pass",
        )
    } else {
        (
            Code::ServerConnectionsExhausted,
            "a free connection",
            "free connections, or raise max_connections or the role's limit, if this does not pass",
        )
    };
    Problem::new(code, target)
        .found(found)
        .needed(needed)
        .fix(fix)
}

fn with_server(reason: &str, server: Option<&ServerError>) -> String {
    match server {
        Some(server) => format!(
            "{reason}: {} (SQLSTATE {})",
            server.message, server.sqlstate
        ),
        None => reason.to_owned(),
    }
}

/// A frame that could not be taken; `confirmed` is where the position stays.
pub(crate) fn intake(error: IntakeError, confirmed: Lsn) -> Problem {
    let problem = match &error {
        IntakeError::Decode(decode) => Problem::new(Code::StreamDecode, "replication stream")
            .found(format!("{decode}; the position stays at {confirmed}"))
            .needed("protocol version 1 as PostgreSQL 14 to 18 speak it"),
        IntakeError::Route { source, .. } => route(source, &stays(confirmed)),
        IntakeError::TooLarge {
            table,
            lsn,
            size_bytes,
        } => Problem::new(Code::FrameTooLarge, format!("row of {table} at LSN {lsn}"))
            .found(format!("{size_bytes} bytes; the position stays at {confirmed}"))
            .needed("at most source.frame_bytes_max")
            .fix("raise source.frame_bytes_max (and the topic's max.message.bytes), or pass over the row (posthaste skip): docs/operations.md"),
        IntakeError::AggregateUnknown {
            table,
            lsn,
            size_bytes,
        } => Problem::new(
            Code::ParkedAggregateUnknown,
            format!("row of {table} at LSN {lsn}"),
        )
        .found(format!(
            "{size_bytes} bytes, and a column of its aggregate is too large to be kept; {}",
            stays(confirmed)
        ))
        .needed("type and id of the aggregate, of 4 KiB at most each, to park it in its place")
        .fix("raise source.frame_bytes_max, or pass over the event: posthaste skip"),
        IntakeError::ParkingFull {
            row,
            table,
            rows,
            bytes,
        } => Problem::new(Code::ParkingFull, format!("row {row} of {table}"))
            .found(format!(
                "{rows} rows with {bytes} bytes parked; {}",
                stays(confirmed)
            ))
            .needed("fewer than poison.parked_rows_max and poison.parked_bytes_max")
            .fix("posthaste parked retry or discard, or raise the limit"),
        IntakeError::Updated { table, lsn } => {
            Problem::new(Code::RowUpdated, format!("row of {table} at LSN {lsn}"))
                .found(format!("an UPDATE; {}", stays(confirmed)))
                .needed("inserts only, as table.op.invalid.behavior=fatal says")
                .fix("publish inserts only (ALTER PUBLICATION … SET (publish = 'insert')), or write warn for that option")
        }
        IntakeError::Misfit(misfit) => Problem::new(Code::PositionHalfDone, "replication stream")
            .found(format!("{misfit}; nothing more was published"))
            .needed("the stream in which the position was taken")
            .fix(ACCEPT),
    };
    problem.caused_by(error)
}

/// Why a row is poison, for headers and tables.
pub(crate) fn reason(error: &IntakeError) -> Reason {
    let (stage, code, text) = match error {
        IntakeError::Route { source, .. } => (Stage::Route, route_code(source), source.to_string()),
        IntakeError::TooLarge { .. } => (Stage::Read, Code::FrameTooLarge, error.to_string()),
        _ => (Stage::Route, Code::Unexpected, error.to_string()),
    };
    Reason {
        stage,
        code,
        text,
        attempts: 1,
    }
}

fn stays(confirmed: Lsn) -> String {
    format!("the position stays at {confirmed}")
}

fn route(error: &RouteError, consequence: &str) -> Problem {
    let (needed, fix) = match error {
        RouteError::MissingColumn { .. } => (
            "the mapped column in the row",
            "map the name that this row has, in [router], and start again",
        ),
        RouteError::NullAggregateType { .. } => (
            "a value, since the topic is made of it",
            "pass over the row (posthaste skip, docs/operations.md) and declare the column NOT NULL",
        ),
        RouteError::IllegalTopic { .. } => (
            "1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'",
            "pass over the row (posthaste skip, docs/operations.md), or change router.topic",
        ),
        RouteError::BadValue { .. }
        | RouteError::Unconvertible { .. }
        | RouteError::BadMessage { .. }
        | RouteError::PatternTooComplex { .. } => (
            "a value that fits its place",
            "pass over the row (posthaste skip, docs/operations.md), or change the mapping",
        ),
        _ => (
            "the whole row in text form",
            "report this: an INSERT always carries whole rows",
        ),
    };
    // The row is named first, so it need not be named again in front of the reason.
    let row = error.row().to_string();
    let text = error.to_string();
    let reason = text
        .strip_prefix(&format!("{row}: "))
        .unwrap_or(&text)
        .to_owned();
    let position = RowId {
        commit_lsn: error.row().transaction.final_lsn,
        insert_index: error.row().insert_index,
    };
    Problem::new(route_code(error), row)
        .found(format!("{reason}; it is row {position}; {consequence}"))
        .needed(needed)
        .fix(fix)
}

fn route_code(error: &RouteError) -> Code {
    match error {
        RouteError::MissingColumn { .. } => Code::RowColumnMissing,
        RouteError::NullAggregateType { .. } => Code::RowAggregateTypeNull,
        RouteError::IllegalTopic { .. } => Code::RowTopicIllegal,
        RouteError::BadValue { .. }
        | RouteError::Unconvertible { .. }
        | RouteError::BadMessage { .. }
        | RouteError::PatternTooComplex { .. } => Code::RowValue,
        _ => Code::RowValueAbsent,
    }
}

/// A record that Kafka did not take.
pub(crate) fn publish(error: PublishError) -> Problem {
    let failure = error.failure();
    let what = match (&failure.topic, &failure.event_id) {
        (Some(topic), Some(event)) => format!("event {event} for topic {topic}"),
        (Some(topic), None) => format!("record for topic {topic}"),
        _ => "Kafka producer".to_owned(),
    };
    let side = if failure.is_from_broker() {
        "the broker"
    } else {
        "our client"
    };
    let size = failure
        .size_bytes
        .map_or_else(String::new, |bytes| format!(" ({bytes} bytes)"));
    let detail = failure
        .detail
        .as_deref()
        .map_or_else(String::new, |detail| format!(": {detail}"));
    let problem = Problem::new(publish_code(failure.code()), what)
        .found(format!("{side} says {}{size}{detail}", failure.code()))
        .fix(publish_fix(failure.code()));
    problem.caused_by(error)
}

fn publish_code(name: &str) -> Code {
    match name {
        "MSG_SIZE_TOO_LARGE" | "RECORD_LIST_TOO_LARGE" | "INVALID_MSG_SIZE" => {
            Code::KafkaRecordTooLarge
        }
        "TOPIC_AUTHORIZATION_FAILED" | "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" => {
            Code::KafkaAuthorization
        }
        "CLUSTER_AUTHORIZATION_FAILED" => Code::KafkaIdempotentWrite,
        "SASL_AUTHENTICATION_FAILED"
        | "_AUTHENTICATION"
        | "UNSUPPORTED_SASL_MECHANISM"
        | "ILLEGAL_SASL_STATE" => Code::KafkaAuthentication,
        "_SSL" => Code::KafkaTls,
        "UNKNOWN_TOPIC_OR_PART"
        | "_UNKNOWN_TOPIC"
        | "INVALID_PARTITIONS"
        | "INVALID_CONFIG"
        | "INVALID_REPLICATION_FACTOR" => Code::KafkaTopicUnknown,
        "_TRANSPORT"
        | "_ALL_BROKERS_DOWN"
        | "_RESOLVE"
        | "_TIMED_OUT"
        | "_MSG_TIMED_OUT"
        | "BROKER_NOT_AVAILABLE"
        | "NETWORK_EXCEPTION"
        | "REQUEST_TIMED_OUT" => Code::KafkaUnreachable,
        "PRODUCER_FENCED" | "_FENCED" => Code::KafkaFenced,
        "OUT_OF_ORDER_SEQUENCE_NUMBER"
        | "UNKNOWN_PRODUCER_ID"
        | "INVALID_PRODUCER_EPOCH"
        | "_FATAL"
        | "_GAPLESS_GUARANTEE"
        | "DUPLICATE_SEQUENCE_NUMBER"
        | "_INCONSISTENT"
        | "_STATE" => Code::KafkaClientFatal,
        _ => Code::KafkaRecordRefused,
    }
}

fn publish_fix(name: &str) -> &'static str {
    match name {
        "MSG_SIZE_TOO_LARGE" | "RECORD_LIST_TOO_LARGE" | "INVALID_MSG_SIZE" => {
            "raise the topic's max.message.bytes and kafka.properties.\"message.max.bytes\", or pass over the row (posthaste skip): docs/operations.md"
        }
        "TOPIC_AUTHORIZATION_FAILED" => {
            "grant WRITE and DESCRIBE on the topic, and CREATE where it is to be created"
        }
        "CLUSTER_AUTHORIZATION_FAILED" => {
            "grant IDEMPOTENT_WRITE on the cluster, or WRITE on any topic"
        }
        "SASL_AUTHENTICATION_FAILED" | "_AUTHENTICATION" => {
            "check the sasl.* entries of kafka.properties"
        }
        "UNKNOWN_TOPIC_OR_PART" | "_UNKNOWN_TOPIC" => {
            "create the topic, or let the brokers create topics"
        }
        "INVALID_PARTITIONS" | "INVALID_CONFIG" | "INVALID_REPLICATION_FACTOR" => {
            "correct topic.creation.* of the connector's file (connect.topic_creation), or create the topic"
        }
        "PRODUCER_FENCED" | "_FENCED" => {
            "if no other instance took over, give each pipeline a kafka.transactional_id of its own"
        }
        _ => "",
    }
}

/// The producer cannot be made as configured.
pub(crate) fn kafka_config(error: KafkaConfigError) -> Problem {
    let code = match &error {
        KafkaConfigError::NotAllowed { .. } => Code::ConfigKafkaPropertyRefused,
        KafkaConfigError::Unknown { .. } | KafkaConfigError::Invalid { .. } => {
            Code::ConfigKafkaProperty
        }
        _ => Code::KafkaClient,
    };
    Problem::new(code, "kafka.properties")
        .found(error.to_string())
        .caused_by(error)
}

/// The router that follows Debezium cannot be made as configured. The reasons beneath are the router's own words, about the
/// configuration alone.
pub(crate) fn connect_config(error: ConnectConfigError) -> Problem {
    let mut found = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(reason) = cause {
        found.push_str(&format!(": {reason}"));
        cause = reason.source();
    }
    Problem::new(Code::ConfigRouter, "[connect]")
        .found(found)
        .needed("settings with which any record can be made")
        .fix(
            "change this option; posthaste debezium check tells of every key of a connector's file",
        )
        .caused_by(error)
}

/// The router cannot be made as configured.
pub(crate) fn router_config(error: RouterConfigError) -> Problem {
    Problem::new(Code::ConfigRouter, "[router]")
        .found(error.to_string())
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_refusal_has_its_code_whatever_its_words() {
        for (kind, code) in [
            (AuthFailure::NoPassword, Code::ServerAuthentication),
            (AuthFailure::ClearText, Code::ServerCleartextPassword),
            (AuthFailure::Method, Code::ServerAuthenticationMethod),
            (
                AuthFailure::ChannelBinding,
                Code::ServerAuthenticationMethod,
            ),
            (AuthFailure::ServerProof, Code::ServerProtocol),
        ] {
            let problem = connect(ConnectError::Auth {
                kind,
                target: "db:5432/app".to_owned(),
                reason: "words".to_owned(),
                source: None,
            });
            assert_eq!(problem.code, code, "{kind:?}");
        }
        for (kind, code) in [
            (TlsFailure::Unavailable, Code::ServerTlsUnavailable),
            (TlsFailure::Handshake, Code::ServerTls),
        ] {
            let problem = connect(ConnectError::Tls {
                kind,
                target: "db:5432/app".to_owned(),
                reason: "words".to_owned(),
                source: None,
            });
            assert_eq!(problem.code, code, "{kind:?}");
        }
    }
}
