//! Connection settings: a connection string, keywords over it and the environment under it, as libpq reads them.

use crate::dsn_given::Given;
use crate::dsn_text;
use crate::error::ConnectError;
use crate::passfile::{self, Wanted};
use crate::secret::Secret;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where packaged servers put their socket, and where a server built from source does.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Everything needed to connect, parsed and checked; the same for the SQL and the replication
/// connection.
///
/// Files it names (password file, certificates, keys) are read at every connect, so they can be
/// rotated under a running process. `Debug` shows no password.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) password: Option<Secret>,
    pub(crate) passfile: Option<PathBuf>,
    pub(crate) dbname: String,
    pub(crate) ssl: SslOptions,
    pub(crate) channel_binding: Policy,
    pub(crate) application_name: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) target_session: TargetSession,
    pub(crate) tcp: TcpOptions,
    /// The user's own start-up options; our pins come after them and win.
    pub(crate) options: String,
}

/// One entry of the host list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// As written; empty means the default socket directories.
    pub(crate) name: String,
    /// `hostaddr`: spares the name lookup, while `name` still names the certificate.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// How to get at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint<'a> {
    /// Socket files to try in turn.
    Unix(Vec<PathBuf>),
    Address(IpAddr),
    Name(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SslOptions {
    pub(crate) mode: SslMode,
    pub(crate) root: RootCert,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// `sslnegotiation=direct`: TLS from the first byte (PostgreSQL 17 and later).
    pub(crate) direct: bool,
}

/// `sslmode`, from careless to careful; the order is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// `sslrootcert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RootCert {
    /// The operating system's store.
    System,
    /// A file; where it does not exist, nothing is verified unless the mode demands it.
    File(PathBuf),
    /// Neither set nor a home folder to look in.
    Absent,
}

/// `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Disable,
    Prefer,
    Require,
}

/// `target_session_attrs`. With our pin `default_transaction_read_only=off` a session is
/// read-write exactly where the server is no standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetSession {
    Any,
    Primary,
    Standby,
    PreferStandby,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TcpOptions {
    pub(crate) keepalives: bool,
    pub(crate) idle: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) count: Option<u32>,
    pub(crate) user_timeout: Option<Duration>,
}

impl ConnectOptions {
    /// Parses a URL or keyword string alone, without environment; user and home folder must be in it.
    ///
    /// # Errors
    ///
    /// `Config`, naming the keyword and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ConnectError> {
        Self::from_parts(text, &[], &|_| None)
    }

    /// Parses `text` (may be empty), lays `keywords` over it, and fills what neither says from the
    /// environment through `lookup`. Pass [`process_environment`](crate::process_environment) for
    /// what psql would do.
    ///
    /// Opens no file and no socket.
    ///
    /// # Errors
    ///
    /// `Config`, naming the keyword and what is allowed.
    pub fn from_parts(
        text: &str,
        keywords: &[(&str, &str)],
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConnectError> {
        let mut given = Given::default();
        for (keyword, value) in dsn_text::pairs(text)? {
            given.set(&keyword, value)?;
        }
        for (keyword, value) in keywords {
            given.set(keyword, (*value).to_owned())?;
        }
        given.fill_from(lookup);
        given.into_options(lookup)
    }

    /// Who signs in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Which database.
    pub fn dbname(&self) -> &str {
        &self.dbname
    }

    /// The name shown in `pg_stat_activity`, if one was given.
    pub fn application_name(&self) -> Option<&str> {
        self.application_name.as_deref()
    }

    /// The limit of one attempt at one address; `None` is without limit.
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// `host:port/dbname`, all hosts, fit for logs: holds no secret.
    pub fn display_target(&self) -> String {
        let hosts = self
            .hosts
            .iter()
            .map(Host::to_string)
            .collect::<Vec<_>>()
            .join(",");
        format!("{hosts}/{}", self.dbname)
    }

    /// Puts another password in place, for credentials that are renewed while we run.
    pub fn set_password(&mut self, password: Secret) {
        self.password = Some(password);
    }

    /// Names the application where neither string nor environment did.
    pub fn set_default_application_name(&mut self, name: &str) {
        self.application_name.get_or_insert_with(|| name.to_owned());
    }

    /// Reads the password file if no password was given, anew each time.
    pub(crate) fn password_for(&self, host: &Host) -> Option<Secret> {
        let given = self
            .password
            .clone()
            .filter(|password| !password.expose().is_empty());
        given.or_else(|| {
            let wanted = Wanted {
                host: &host.passfile_name(),
                port: host.port,
                dbname: &self.dbname,
                user: &self.user,
            };
            passfile::password(self.passfile.as_deref()?, wanted)
        })
    }
}

impl Host {
    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        if let Some(address) = self.address {
            return Endpoint::Address(address);
        }
        let socket = |directory: &str| PathBuf::from(format!("{directory}/.s.PGSQL.{}", self.port));
        if self.name.is_empty() {
            return Endpoint::Unix(SOCKET_DIRECTORIES.map(socket).to_vec());
        }
        if let Some(abstract_name) = self.name.strip_prefix('@') {
            return Endpoint::Unix(vec![socket(&format!("\0{abstract_name}"))]);
        }
        if self.name.starts_with('/') {
            return Endpoint::Unix(vec![socket(&self.name)]);
        }
        match self.name.parse() {
            Ok(address) => Endpoint::Address(address),
            Err(_) => Endpoint::Name(&self.name),
        }
    }

    /// What the password file calls this host.
    fn passfile_name(&self) -> String {
        match (self.name.as_str(), self.address) {
            ("", Some(address)) => address.to_string(),
            ("", None) => "localhost".to_owned(),
            (name, _) if name == SOCKET_DIRECTORIES[0] => "localhost".to_owned(),
            (name, _) => name.to_owned(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.address) {
            ("", None) => write!(formatter, "{}:{}", SOCKET_DIRECTORIES[0], self.port),
            ("", Some(IpAddr::V6(address))) => write!(formatter, "[{address}]:{}", self.port),
            ("", Some(address)) => write!(formatter, "{address}:{}", self.port),
            (name, _) if name.contains(':') => write!(formatter, "[{name}]:{}", self.port),
            (name, _) => write!(formatter, "{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
#[path = "dsn_tests.rs"]
mod tests;
