//! What can go wrong between this crate and a server, by what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// Boxed cause of an error, whatever library it came from.
pub(crate) type Cause = Box<dyn StdError + Send + Sync + 'static>;

/// A connection could not be made, or ended.
///
/// The text never holds a password, a key or a value of a row. Whether to retry is the caller's
/// decision; [`is_transient`](Self::is_transient) says what this crate knows about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answered, the answer was "not now", or an open connection was lost. Heals by itself.
    #[error("cannot reach {target}: {reason}")]
    Unreachable {
        /// Where to, as `host:port/dbname`; several hosts are separated by commas.
        target: String,
        /// What was met there.
        reason: String,
        /// The system's or the server's own error.
        #[source]
        source: Option<Cause>,
    },
    /// The server answered with an error of its own.
    #[error(transparent)]
    Server(Box<ServerError>),
    /// TLS was asked for and could not be had as asked.
    #[error("TLS with {target} failed: {reason}")]
    Tls {
        /// What kind of failure, for those who tell them apart.
        kind: TlsFailure,
        /// Where to, as `host:port/dbname`.
        target: String,
        /// Which check failed.
        reason: String,
        /// The TLS library's error.
        #[source]
        source: Option<Cause>,
    },
    /// We refuse the way the server wants to sign us in, or the server failed to prove itself.
    #[error("cannot sign in at {target}: {reason}")]
    Auth {
        /// What kind of failure, for those who tell them apart.
        kind: AuthFailure,
        /// Where to, as `host:port/dbname`.
        target: String,
        /// What is missing or was refused.
        reason: String,
        /// The authentication library's error.
        #[source]
        source: Option<Cause>,
    },
    /// A setting is wrong, or a file it names cannot be used. Trying again gives the same.
    #[error("connection setting {keyword}: {reason}")]
    Config {
        /// The keyword, or the part of the connection string.
        keyword: String,
        /// What is wrong and what is allowed.
        reason: String,
        /// The system's error for a file.
        #[source]
        source: Option<Cause>,
    },
    /// The peer sent bytes that are not the PostgreSQL protocol, or not at this place.
    #[error("protocol violation by the server: {context}")]
    Protocol {
        /// What was being read and what was wrong with it.
        context: String,
    },
}

/// What about TLS is not as asked: each kind is put right elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The server has no TLS at all.
    Unavailable,
    /// The handshake, or a check of a certificate.
    Handshake,
}

/// Why there is no signing in: each kind is put right elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailure {
    /// The server asks for a password, and there is none.
    NoPassword,
    /// The server wants the password in clear text over an open line.
    ClearText,
    /// The server asks for a method that is not spoken here.
    Method,
    /// Channel binding is required and cannot be had.
    ChannelBinding,
    /// The server did not prove that it knows the password.
    ServerProof,
}

/// An ErrorResponse, field by field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, never translated.
    pub severity: String,
    /// Five characters, see the manual's appendix "PostgreSQL Error Codes".
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// More about it, when the server has more.
    pub detail: Option<String>,
    /// What the server advises.
    pub hint: Option<String>,
}

impl ConnectError {
    /// The server's code, also when the error was filed under [`Unreachable`](Self::Unreachable).
    pub fn sqlstate(&self) -> Option<&str> {
        self.server().map(|error| error.sqlstate.as_str())
    }

    /// The server's own error behind this one, if there is one.
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            Self::Unreachable { source, .. } => source.as_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// Whether the same attempt can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Server(error) => error.is_transient(),
            _ => false,
        }
    }

    pub(crate) fn config(keyword: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            keyword: keyword.into(),
            reason: reason.into(),
            source: None,
        }
    }

    pub(crate) fn protocol(context: impl Into<String>) -> Self {
        Self::Protocol {
            context: context.into(),
        }
    }

    pub(crate) fn auth(kind: AuthFailure, target: &str, reason: impl Into<String>) -> Self {
        Self::Auth {
            kind,
            target: target.to_owned(),
            reason: reason.into(),
            source: None,
        }
    }

    pub(crate) fn unreachable(target: &str, reason: impl Into<String>) -> Self {
        Self::Unreachable {
            target: target.to_owned(),
            reason: reason.into(),
            source: None,
        }
    }

    /// Sorts an I/O error: the TLS library reports its findings wrapped in one.
    pub(crate) fn io(target: &str, doing: &str, error: io::Error) -> Self {
        if let Some(tls) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            return Self::Tls {
                kind: TlsFailure::Handshake,
                target: target.to_owned(),
                reason: crate::tls::describe(tls),
                source: Some(error.into()),
            };
        }
        Self::Unreachable {
            target: target.to_owned(),
            reason: format!("{doing}: {}", io_reason(&error)),
            source: Some(error.into()),
        }
    }

    /// Files a server's error met while connecting: "not now" answers are not errors of ours.
    pub(crate) fn at_start(target: &str, error: ServerError) -> Self {
        let reason = match error.sqlstate.as_str() {
            "57P03" => "the server is starting up, shutting down or in recovery",
            "53300" => "the server has no free connection slot",
            "57P01" | "57P02" => "the server is going down",
            _ => return Self::Server(Box::new(error)),
        };
        Self::Unreachable {
            target: target.to_owned(),
            reason: reason.to_owned(),
            source: Some(Box::new(error)),
        }
    }
}

impl ServerError {
    /// Whether the code stands for a state that passes: the server going down or coming up,
    /// resources used up, the slot or object in use elsewhere.
    pub fn is_transient(&self) -> bool {
        match self.sqlstate.as_str() {
            // A protocol violation (a pooler refusing `replication`) or a refusal stays one.
            "08P01" | "08004" => false,
            // A database dropped under us does not come back.
            "57P04" => false,
            "55006" | "55P03" | "40001" | "40P01" | "57014" => true,
            code => code.starts_with("08") || code.starts_with("53") || code.starts_with("57P"),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} (SQLSTATE {})",
            self.severity, self.message, self.sqlstate
        )
    }
}

impl StdError for ServerError {}

/// A short reason in our words; the system's own text follows as the source.
fn io_reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by the peer",
        io::ErrorKind::ConnectionAborted => "connection aborted",
        io::ErrorKind::BrokenPipe => "the peer closed the connection",
        io::ErrorKind::UnexpectedEof => "the peer closed the connection without a message",
        io::ErrorKind::NotFound => "no such socket (is the server running?)",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::TimedOut => "timed out",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to host",
        io::ErrorKind::AddrNotAvailable => "address not available",
        _ => "input/output error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(sqlstate: &str) -> ServerError {
        ServerError {
            severity: "FATAL".into(),
            sqlstate: sqlstate.into(),
            message: "text".into(),
            detail: None,
            hint: None,
        }
    }

    #[test]
    fn states_that_pass_are_transient() {
        for code in [
            "57P01", "57P02", "57P03", "57P05", "53300", "53100", "08006", "55006", "40001",
        ] {
            assert!(server(code).is_transient(), "{code}");
        }
    }

    #[test]
    fn states_that_need_a_person_are_permanent() {
        for code in [
            "28000", "28P01", "3D000", "42501", "42704", "42710", "08P01", "08004", "0A000",
            "57P04", "",
        ] {
            assert!(!server(code).is_transient(), "{code}");
        }
    }

    #[test]
    fn not_now_answers_at_start_are_unreachable_and_keep_their_code() {
        for code in ["57P03", "53300", "57P01"] {
            let error = ConnectError::at_start("db:5432/app", server(code));
            assert!(matches!(error, ConnectError::Unreachable { .. }), "{code}");
            assert_eq!(error.sqlstate(), Some(code));
            assert!(error.is_transient());
        }
        let refused = ConnectError::at_start("db:5432/app", server("28P01"));
        assert!(matches!(refused, ConnectError::Server(_)));
        assert!(!refused.is_transient());
    }

    #[test]
    fn an_io_error_is_named_and_kept_as_source() {
        let io = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = ConnectError::io("db:5432/app", "connecting", io);
        assert_eq!(
            error.to_string(),
            "cannot reach db:5432/app: connecting: connection refused"
        );
        assert!(error.source().is_some());
    }
}
