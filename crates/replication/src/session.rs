//! From a bare stream to a session whose settings nobody but us decides.

use crate::auth::{self, Credentials};
use crate::dsn::{ConnectOptions, Host, TargetSession};
use crate::error::ConnectError;
use crate::message::{Body, server_error, tag_name};
use crate::socket::Stream;
use crate::wire::{STRANGER_BYTES_MAX, Wire, log_notice};
use bytes::Bytes;
use postgres_protocol::message::frontend;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Sql,
    Replication,
}

/// A session that is signed in, pinned, checked and idle.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) wire: Wire<Stream>,
    /// ParameterStatus, in the order of arrival.
    pub(crate) parameters: Vec<(String, String)>,
    /// The body of BackendKeyData.
    pub(crate) backend_key: Option<Bytes>,
}

/// A setting that would change what we decode or break us in the middle.
struct Pin {
    name: &'static str,
    value: &'static str,
    /// What `current_setting` makes of it.
    shown: &'static str,
    /// Servers before this major version do not know it. Such a name in the start-up options would
    /// be refused, so pins with a version are set once it is known.
    since: Option<u32>,
}

const fn pin(name: &'static str, value: &'static str) -> Pin {
    Pin {
        name,
        value,
        shown: value,
        since: None,
    }
}

/// Start-up options outrank what is set for the role, the database and the role in the database;
/// both connections have all of them, since a replication connection runs helper statements too.
const PINS: &[Pin] = &[
    pin("client_encoding", "UTF8"),
    Pin {
        name: "DateStyle",
        value: "ISO,MDY",
        shown: "ISO, MDY",
        since: None,
    },
    pin("IntervalStyle", "postgres"),
    pin("TimeZone", "UTC"),
    pin("bytea_output", "hex"),
    pin("extra_float_digits", "3"),
    pin("search_path", ""),
    // A warning in the stream may be all that tells of rows left out.
    pin("client_min_messages", "warning"),
    pin("lc_monetary", "C"),
    pin("xmlbinary", "base64"),
    // A cut statement or session would look like a fault of the server's.
    pin("statement_timeout", "0"),
    // Creating a slot waits for older transactions through locks.
    pin("lock_timeout", "0"),
    pin("idle_in_transaction_session_timeout", "0"),
    pin("default_transaction_read_only", "off"),
    pin("synchronous_commit", "on"),
    Pin {
        name: "idle_session_timeout",
        value: "0",
        shown: "0",
        since: Some(14),
    },
    Pin {
        name: "transaction_timeout",
        value: "0",
        shown: "0",
        since: Some(17),
    },
];

/// Starts, signs in, waits for readiness, checks the kind of server, and checks every pin.
///
/// # Errors
///
/// As [`ConnectError`] says; a server of the wrong kind is `Unreachable`.
pub(crate) async fn establish(
    stream: Stream,
    options: &ConnectOptions,
    host: &Host,
    end_point: Option<Vec<u8>>,
    purpose: Purpose,
    wanted: TargetSession,
) -> Result<Session, ConnectError> {
    let credentials = Credentials {
        user: &options.user,
        password: options.password_for(host),
        channel_binding: options.channel_binding,
        encrypted: matches!(stream, Stream::Tls(_)),
        end_point,
    };
    let mut wire = Wire::new(stream, format!("{host}/{}", options.dbname));
    send_startup(&mut wire, options, purpose).await?;
    auth::sign_in(&mut wire, &credentials).await?;
    let mut session = Session {
        wire,
        parameters: Vec::new(),
        backend_key: None,
    };
    session.await_ready().await?;
    session.check_target(wanted).await?;
    session.settle().await?;
    if purpose == Purpose::Sql {
        // The library that takes it over hears only what it asked for. A replication connection hears them with its next answer.
        session.wire.hear_remarks().await?;
    }
    Ok(session)
}

async fn send_startup(
    wire: &mut Wire<Stream>,
    options: &ConnectOptions,
    purpose: Purpose,
) -> Result<(), ConnectError> {
    let startup_options = startup_options(&options.options);
    let mut parameters = vec![
        ("user", options.user.as_str()),
        ("database", options.dbname.as_str()),
        ("options", startup_options.as_str()),
    ];
    parameters.extend(
        options
            .application_name()
            .map(|name| ("application_name", name)),
    );
    if purpose == Purpose::Replication {
        parameters.push(("replication", "database"));
    }
    wire.encode(|output| frontend::startup_message(parameters, output))?;
    wire.flush().await
}

/// The user's options, then the pins: of two values for one name the server keeps the later.
fn startup_options(user: &str) -> String {
    let mut options = user.to_owned();
    for pin in PINS.iter().filter(|pin| pin.since.is_none()) {
        if !options.is_empty() {
            options.push(' ');
        }
        options.push_str("-c ");
        options.push_str(pin.name);
        options.push('=');
        options.push_str(&quote_option(pin.value));
    }
    options
}

/// Start-up options are split at blanks; a backslash takes the next character as it is.
fn quote_option(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len());
    for character in value.chars() {
        if character == '\\' || character.is_ascii_whitespace() {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

impl Session {
    /// The major version, as in `15.20 (Debian …)`, `17beta1`, `18devel`; 0 if it cannot be told.
    pub(crate) fn server_major(&self) -> u32 {
        self.parameter("server_version").map_or(0, major_version)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter().rev();
        parameters
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads what the server tells between signing in and its first ReadyForQuery.
    async fn await_ready(&mut self) -> Result<(), ConnectError> {
        loop {
            let message = self.wire.message(STRANGER_BYTES_MAX).await?;
            match message.tag {
                b'S' => {
                    let mut body = Body::new(b'S', &message.body);
                    self.parameters.push((body.text()?, body.text()?));
                }
                b'K' => self.backend_key = Some(message.body),
                b'N' => log_notice(&message.body),
                b'E' => {
                    let error = server_error(b'E', &message.body)?;
                    return Err(ConnectError::at_start(&self.wire.target, error));
                }
                b'Z' => return Ok(()),
                tag => {
                    let context = format!("message {} before the server was ready", tag_name(tag));
                    return Err(ConnectError::protocol(context));
                }
            }
        }
    }

    /// Refuses a server that is not of the kind asked for; another of the list may be.
    async fn check_target(&mut self, wanted: TargetSession) -> Result<(), ConnectError> {
        let standby_wanted = match wanted {
            TargetSession::Any | TargetSession::PreferStandby => return Ok(()),
            TargetSession::Primary => false,
            TargetSession::Standby => true,
        };
        let is_standby = match self.parameter("in_hot_standby") {
            Some(value) => value == "on",
            // Before version 14 the server does not say so by itself.
            None => {
                let rows = self
                    .wire
                    .query("SELECT pg_catalog.pg_is_in_recovery()")
                    .await?;
                first_value(&rows) == Some(b"t")
            }
        };
        if is_standby == standby_wanted {
            return Ok(());
        }
        let found = if is_standby {
            "a standby"
        } else {
            "not a standby"
        };
        let reason = format!("the server is {found} (target_session_attrs)");
        Err(ConnectError::unreachable(&self.wire.target, reason))
    }

    /// Sets the pins that depend on the version and reads all of them back: a pooler in between or
    /// a login trigger may have changed what we asked for, and decoding would be silently wrong.
    async fn settle(&mut self) -> Result<(), ConnectError> {
        let major = self.server_major();
        let known = PINS
            .iter()
            .filter(|pin| pin.since.is_none_or(|since| major >= since));
        let known = known.collect::<Vec<_>>();
        let mut statement = String::new();
        for pin in known.iter().filter(|pin| pin.since.is_some()) {
            statement.push_str(&format!("SET {} = {}; ", pin.name, pin.value));
        }
        let settings = known
            .iter()
            .map(|pin| format!("pg_catalog.current_setting('{}')", pin.name));
        statement.push_str("SELECT ");
        statement.push_str(&settings.collect::<Vec<_>>().join(", "));
        let rows = self.wire.query(&statement).await?;
        let values = rows.first().map(Vec::as_slice).unwrap_or_default();
        for (index, pin) in known.iter().enumerate() {
            let value = values
                .get(index)
                .and_then(Option::as_deref)
                .unwrap_or_default();
            if value != pin.shown.as_bytes() {
                return Err(ConnectError::config(
                    "options",
                    format!(
                        "the session has {} = '{}' where '{}' was asked for; a pooler in between or a login trigger changes start-up options",
                        pin.name,
                        value.escape_ascii(),
                        pin.shown
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn first_value(rows: &[crate::message::Row]) -> Option<&[u8]> {
    rows.first()?.first()?.as_deref()
}

fn major_version(text: &str) -> u32 {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..digits)
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_come_after_the_users_options() {
        let options = startup_options("-c geqo=off -c bytea_output=escape");
        assert!(options.starts_with("-c geqo=off -c bytea_output=escape -c client_encoding=UTF8 "));
        assert!(options.contains(" -c bytea_output=hex "));
        assert!(options.contains(" -c search_path= "));
        assert!(!startup_options("").starts_with(' '));
    }

    #[test]
    fn pins_newer_than_the_oldest_server_are_not_start_up_options() {
        let options = startup_options("");
        assert!(!options.contains("idle_session_timeout"));
        assert!(!options.contains("transaction_timeout"));
    }

    #[test]
    fn option_values_are_escaped() {
        assert_eq!(quote_option(r"a b\c"), r"a\ b\\c");
        assert_eq!(quote_option("x\ty"), "x\\\ty");
        assert_eq!(quote_option(""), "");
    }

    #[test]
    fn major_versions_are_told_from_any_form() {
        for (text, major) in [
            ("15.20 (Debian 15.20-0+deb12u1)", 15),
            ("17beta1", 17),
            ("18devel", 18),
            ("9.6.24", 9),
            ("", 0),
            ("x", 0),
        ] {
            assert_eq!(major_version(text), major, "{text}");
        }
    }
}
