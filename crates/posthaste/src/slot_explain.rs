//! What a refusal of the slot means: by the server's words when it is created or read, by ours when it is judged.

use pgoutput::Lsn;
use replication::{ConnectError, ServerError};

use crate::codes::{Code, Problem};
use crate::preconditions::CheckError;
use crate::slot::{Slot, check_name};

/// The stream an error or notice of the server belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Stream<'a> {
    /// The slot that is read.
    pub slot: &'a str,
    /// The publication named in START_REPLICATION.
    pub publication: &'a str,
    /// The last position known to be good: confirmed, or given to START_REPLICATION.
    pub position: Lsn,
}

/// Says what an error of START_REPLICATION, or of the running stream, means and whether it heals by itself.
///
/// Decided by SQLSTATE first; where PostgreSQL uses one code for several things, by the words of versions 14 to 18.
#[must_use]
pub fn explain_start_error(stream: Stream<'_>, error: ConnectError) -> CheckError {
    let Some(server) = error.server() else {
        return error.into();
    };
    let text = server.message.as_str();
    let explained = match server.sqlstate.as_str() {
        "55006" => {
            return CheckError::Held {
                slot: stream.slot.to_owned(),
                pid: pid_in(text),
            };
        }
        "42704" if text.contains("publication") => publication_absent(stream),
        "42704" if text.contains("slot") => lost(stream.slot, stream.position),
        "55000" | "0A000" if text.contains("recovery") || text.contains("standby") => {
            return CheckError::Standby(standby(text));
        }
        "55000" => match explain_state(stream, server) {
            Some(problem) => problem,
            None => refused(stream, server),
        },
        "22023" if text.contains("proto_version") || text.contains("publication_names") => {
            wrong_plugin(stream.slot, &format!("a plugin that answers: {text}"))
        }
        "58P01" if text.contains("WAL segment") => {
            invalidated(stream.slot, text, Some(stream.position))
        }
        "42501" => right_missing(text),
        _ if error.is_transient() => return error.into(),
        _ => refused(stream, server),
    };
    CheckError::Problem(explained.caused_by(error))
}

/// Says whether a notice of the running stream means that events are being left out.
///
/// PostgreSQL 18 no longer fails when a publication did not exist at the position it decodes: it sends this warning once
/// and then drops the rows silently, so the warning has to stop the stream before anything after it is confirmed.
#[must_use]
pub fn explain_notice(stream: Stream<'_>, sqlstate: &str, message: &str) -> Option<Problem> {
    // One publication is named in our streams, so the warning can be about no other; its words depend on lc_messages.
    let ours = sqlstate == "55000" || message.contains("skipped loading publication");
    ours.then(|| publication_absent(stream))
}

/// `55000` (object not in prerequisite state) stands for all the ways in which a slot is the wrong one.
fn explain_state(stream: Stream<'_>, server: &ServerError) -> Option<Problem> {
    let text = server.message.as_str();
    let detail = server.detail.as_deref().unwrap_or(text);
    if text.contains("not created in this database") {
        return Some(other_database(stream.slot, None, "the one connected to"));
    }
    if text.contains("skipped loading publication") {
        return Some(publication_absent(stream));
    }
    if text.contains("physical") {
        return Some(physical(stream.slot));
    }
    if text.contains("synchronized from the primary")
        || detail.contains("synchronized from the primary")
    {
        return Some(standby(detail));
    }
    if text.contains("wal_level") {
        return Some(wal_level("lower than logical"));
    }
    // 14 and 15: "cannot read from logical replication slot"; 16 and 17: "can no longer get changes from replication
    // slot"; 18: "can no longer access replication slot". A bare "invalidated" is there for the details of each.
    let gone = ["cannot read from logical", "can no longer", "invalidated"];
    gone.iter()
        .any(|words| text.contains(words) || detail.contains(words))
        .then(|| invalidated(stream.slot, detail, Some(stream.position)))
}

/// What the server says when a slot cannot be made.
pub(crate) fn explain_create_error(name: &str, error: ConnectError) -> CheckError {
    let Some(server) = error.server() else {
        return error.into();
    };
    let text = server.message.clone();
    let problem = match server.sqlstate.as_str() {
        // Made by another instance between our look and our statement: the next check finds it.
        "42710" => {
            return CheckError::Held {
                slot: name.to_owned(),
                pid: None,
            };
        }
        "53400" => exhausted(&text),
        "42501" => right_missing(&text),
        "42602" => match check_name(name) {
            Err(problem) => problem,
            Ok(()) => create_refused(name, &text),
        },
        "55000" if text.contains("wal_level") => wal_level("lower than logical"),
        _ if error.is_transient() => return error.into(),
        _ => create_refused(name, &text),
    };
    CheckError::Problem(problem.caused_by(error))
}

fn create_refused(name: &str, text: &str) -> Problem {
    Problem::new(Code::CreateRefused, describe(name))
        .found(format!("the server refuses to make it: {text}"))
        .needed("a logical slot with plugin pgoutput")
        .fix(create_sql(name))
}

fn refused(stream: Stream<'_>, server: &ServerError) -> Problem {
    let detail = server
        .detail
        .as_deref()
        .map(|detail| format!(" ({detail})"));
    Problem::new(
        Code::StreamRefused,
        format!("stream of {}", describe(stream.slot)),
    )
    .found(format!(
        "SQLSTATE {}: {}{}",
        server.sqlstate,
        server.message,
        detail.unwrap_or_default()
    ))
    .needed(format!("a stream from {} on", stream.position))
    .fix("see the server's message and its log")
}

fn publication_absent(stream: Stream<'_>) -> Problem {
    let Stream {
        slot,
        publication,
        position,
    } = stream;
    Problem::new(Code::PublicationAge, format!("publication {} at {position}", replication::quote_ident(publication)))
        .found(format!(
            "missing in what was written at or after {position}, though it may exist now: old WAL is read with the \
             catalogs of its time"
        ))
        .needed(format!("a publication older than everything slot {slot} still has to read"))
        .fix(format!(
            "this slot cannot get past that stretch: see that the publication exists, recreate the slot ({}), remove \
             this pipeline's state file, and look in the table for rows committed after {position}",
            recreate_sql(slot)
        ))
}

/// The slot is missing and may not be made.
pub(crate) fn missing(name: &str) -> Problem {
    Problem::new(Code::SlotMissing, describe(name))
        .found("no slot of this name")
        .needed("a logical slot with plugin pgoutput in this database")
        .fix(format!("{}; or set source.create = true", create_sql(name)))
}

/// The slot was read before and is gone: making a new one would hide a hole, so this stops even with `source.create`.
pub(crate) fn lost(name: &str, confirmed: Lsn) -> Problem {
    Problem::new(Code::SlotLost, describe(name))
        .found(format!("no slot of this name, though it was read up to {confirmed} before"))
        .needed("the slot, or the decision to go on without what was committed in between")
        .fix(format!(
            "events committed after {confirmed} are not in any new slot: look for them in the table, then start once with \
             --recreate-lost-slot; or remove this pipeline's state file and make the slot ({})",
            create_sql(name)
        ))
}

/// The publication is to be made, but the slot is there already.
pub(crate) fn older_than_publication(slot: &Slot, publication: &str) -> Problem {
    let confirmed = slot.confirmed.unwrap_or_default();
    Problem::new(Code::PublicationAge, format!("publication {}", replication::quote_ident(publication)))
        .found(format!("missing, while slot {} already stands at {confirmed}", slot.name))
        .needed("a publication that is older than the slot")
        .fix(format!(
            "a publication made now would be unknown to what the slot reads first: create it, then recreate the slot \
             ({}); rows committed after {confirmed} have to be looked up in the table",
            recreate_sql(&slot.name)
        ))
}

pub(crate) fn invalidated(name: &str, reason: &str, confirmed: Option<Lsn>) -> Problem {
    let last = confirmed.map_or_else(|| "an unknown position".to_owned(), |lsn| lsn.to_string());
    Problem::new(Code::SlotInvalidated, describe(name))
        .found(format!("invalidated ({reason}); last confirmed position {last}"))
        .needed("a slot that still has its WAL")
        .fix(format!(
            "events committed after {last} may be missing: look for them in the table, then start once with \
             --recreate-lost-slot; or recreate the slot ({}) and remove this pipeline's state file",
            recreate_sql(name)
        ))
}

pub(crate) fn physical(name: &str) -> Problem {
    Problem::new(Code::SlotPhysical, describe(name))
        .found("a physical slot")
        .needed("a logical slot with plugin pgoutput")
        .fix("name another slot in source.slot")
}

pub(crate) fn wrong_plugin(name: &str, found: &str) -> Problem {
    Problem::new(Code::SlotPlugin, describe(name))
        .found(found)
        .needed("output plugin pgoutput")
        .fix(format!(
            "name another slot in source.slot, or recreate this one: {}",
            recreate_sql(name)
        ))
}

pub(crate) fn other_database(name: &str, found: Option<&str>, needed: &str) -> Problem {
    let found = found.map_or_else(
        || "it was made in another database".to_owned(),
        |database| {
            format!(
                "it was made in database {}",
                replication::quote_ident(database)
            )
        },
    );
    Problem::new(Code::SlotDatabase, describe(name))
        .found(found)
        .needed(format!(
            "a slot made in database {}",
            replication::quote_ident(needed)
        ))
        .fix("connect to the slot's database, or name another slot in source.slot")
}

pub(crate) fn exhausted(found: &str) -> Problem {
    Problem::new(Code::SlotsExhausted, "setting max_replication_slots")
        .found(found)
        .needed("one free slot")
        .fix("SELECT pg_drop_replication_slot(…) for a slot nobody reads, or raise max_replication_slots and restart the server")
}

pub(crate) fn right_missing(text: &str) -> Problem {
    Problem::new(Code::ReplicationRight, "replication right of the role")
        .found(format!("refused by the server: {text}"))
        .needed("a role with REPLICATION")
        .fix("ALTER ROLE … REPLICATION (on hosted services: grant the service's replication role)")
}

pub(crate) fn wal_level(found: &str) -> Problem {
    Problem::new(Code::WalLevel, "setting wal_level")
        .found(found)
        .needed("logical")
        .fix("ALTER SYSTEM SET wal_level = logical; then restart the server")
}

pub(crate) fn standby(found: &str) -> Problem {
    Problem::new(Code::Standby, "server")
        .found(found)
        .needed("the primary")
        .fix("give the address of the primary in source, or a list of hosts that holds it")
}

/// The process that holds the slot, out of `replication slot "s" is active for PID 16258`.
fn pid_in(text: &str) -> Option<i32> {
    text.rsplit(|character: char| !character.is_ascii_digit())
        .find(|digits| !digits.is_empty())?
        .parse()
        .ok()
}

pub(crate) fn describe(name: &str) -> String {
    format!("replication slot {}", replication::quote_ident(name))
}

pub(crate) fn create_sql(name: &str) -> String {
    format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
}

pub(crate) fn recreate_sql(name: &str) -> String {
    format!(
        "SELECT pg_drop_replication_slot('{name}'); {}",
        create_sql(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream<'_> = Stream {
        slot: "s",
        publication: "pub",
        position: Lsn::new(0x2A),
    };

    fn explain(sqlstate: &str, message: &str, detail: Option<&str>) -> CheckError {
        let mut server = ServerError::default();
        server.severity = "ERROR".to_owned();
        server.sqlstate = sqlstate.to_owned();
        server.message = message.to_owned();
        server.detail = detail.map(str::to_owned);
        explain_start_error(STREAM, ConnectError::Server(Box::new(server)))
    }

    #[track_caller]
    fn check_explained(sqlstate: &str, message: &str, detail: Option<&str>, expected: Code) {
        match explain(sqlstate, message, detail) {
            CheckError::Problem(problem) => assert_eq!(problem.code, expected, "{problem}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_active_slot_names_its_holder() {
        match explain(
            "55006",
            "replication slot \"s6\" is active for PID 16258",
            None,
        ) {
            CheckError::Held { pid, .. } => assert_eq!(pid, Some(16258)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn invalidation_is_recognised_in_the_words_of_14_to_18() {
        let size =
            Some("This slot has been invalidated because it exceeded the maximum reserved size.");
        let removed = Some("This replication slot has been invalidated due to \"wal_removed\".");
        for (message, detail) in [
            ("cannot read from logical replication slot \"s\"", size),
            (
                "can no longer get changes from replication slot \"s\"",
                size,
            ),
            ("can no longer access replication slot \"s\"", removed),
        ] {
            check_explained("55000", message, detail, Code::SlotInvalidated);
        }
        let segment = "requested WAL segment 000000010000000000000001 has already been removed";
        check_explained("58P01", segment, None, Code::SlotInvalidated);
    }

    #[test]
    fn a_publication_missing_in_the_past_is_told_with_its_position() {
        match explain("42704", "publication \"pub\" does not exist", None) {
            CheckError::Problem(problem) => {
                assert_eq!(problem.code, Code::PublicationAge);
                assert!(problem.to_string().contains("0/2A"), "{problem}");
                assert!(problem.to_string().contains("may exist now"), "{problem}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn version_18_warns_where_older_ones_fail() {
        let explain = |sqlstate, message| explain_notice(STREAM, sqlstate, message);
        let problem = explain("55000", "skipped loading publication \"pub\"").expect("a problem");
        assert_eq!(problem.code, Code::PublicationAge);
        assert!(explain("55000", "Laden der Publikation »pub« wurde übersprungen").is_some());
        assert!(explain("01000", "there is no transaction in progress").is_none());
    }

    #[test]
    fn the_other_refusals_have_their_codes() {
        check_explained(
            "42704",
            "replication slot \"s\" does not exist",
            None,
            Code::SlotLost,
        );
        let database = "replication slot \"s\" was not created in this database";
        check_explained("55000", database, None, Code::SlotDatabase);
        let physical = "cannot use physical replication slot for logical decoding";
        check_explained("55000", physical, None, Code::SlotPhysical);
        let option = "option \"proto_version\" = \"1\" is unknown";
        check_explained("22023", option, None, Code::SlotPlugin);
        check_explained(
            "42501",
            "permission denied to use replication slots",
            None,
            Code::ReplicationRight,
        );
        check_explained("XX000", "something new", None, Code::StreamRefused);
    }

    #[test]
    fn a_server_going_down_is_no_problem_of_the_slot() {
        let ended = "terminating connection due to administrator command";
        assert!(matches!(
            explain("57P01", ended, None),
            CheckError::Connect(_)
        ));
    }

    #[test]
    fn a_standby_is_told_apart() {
        let recovery = "logical decoding cannot be used while in recovery";
        assert!(matches!(
            explain("0A000", recovery, None),
            CheckError::Standby(_)
        ));
    }
}
