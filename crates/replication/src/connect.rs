//! The way through the host list: one attempt per address, each with a limit of time.

use crate::dsn::{ConnectOptions, Endpoint, Host, SslMode, TargetSession};
use crate::error::ConnectError;
use crate::session::{self, Purpose, Session};
use crate::socket::{self, Stream};
use crate::tls::{Material, Negotiated};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Tries the hosts in order and returns the first session of the wanted kind.
///
/// # Errors
///
/// What ended the search: a host that cannot be reached leads to the next one, a refusal does not,
/// as with libpq. With all hosts out of reach the error is `Unreachable` and names each.
///
/// # Cancel safety
///
/// Dropping the future closes whatever was open.
pub(crate) async fn connect(
    options: &ConnectOptions,
    purpose: Purpose,
) -> Result<Session, ConnectError> {
    let passes: &[TargetSession] = match options.target_session {
        TargetSession::PreferStandby => &[TargetSession::Standby, TargetSession::Any],
        TargetSession::Any => &[TargetSession::Any],
        TargetSession::Primary => &[TargetSession::Primary],
        TargetSession::Standby => &[TargetSession::Standby],
    };
    let mut failures = Vec::new();
    for wanted in passes {
        failures.clear();
        for host in &options.hosts {
            let search = Search {
                options,
                host,
                purpose,
                wanted: *wanted,
            };
            match search.run().await {
                Ok(session) => return Ok(session),
                Err(error @ ConnectError::Unreachable { .. }) => failures.push(error),
                Err(error) => return Err(error),
            }
        }
    }
    Err(all_unreachable(options, failures))
}

/// One error for the whole list, with each host's reason; its source is the last host's own.
fn all_unreachable(options: &ConnectOptions, mut failures: Vec<ConnectError>) -> ConnectError {
    if options.hosts.len() == 1
        && let Some(only) = failures.pop()
    {
        return only;
    }
    let (mut reasons, mut last) = (Vec::new(), None);
    for failure in failures {
        if let ConnectError::Unreachable {
            target,
            reason,
            source,
        } = failure
        {
            reasons.push(format!("{target}: {reason}"));
            last = source;
        }
    }
    ConnectError::Unreachable {
        target: options.display_target(),
        reason: format!("no host is usable ({})", reasons.join("; ")),
        source: last,
    }
}

/// The search at one host.
struct Search<'a> {
    options: &'a ConnectOptions,
    host: &'a Host,
    purpose: Purpose,
    wanted: TargetSession,
}

/// One place to connect to.
#[derive(Debug, Clone)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Search<'_> {
    /// Tries every address of the host.
    async fn run(&self) -> Result<Session, ConnectError> {
        let target = self.target();
        let places = self
            .limited(&target, "looking up the host name", self.places())
            .await?;
        let mut failure = ConnectError::unreachable(&target, "the host name has no address");
        for place in places {
            match self
                .limited(&target, "connecting", self.attempt(&place))
                .await
            {
                Err(error @ ConnectError::Unreachable { .. }) => failure = error,
                other => return other,
            }
        }
        Err(failure)
    }

    async fn places(&self) -> Result<Vec<Place>, ConnectError> {
        let port = self.host.port;
        Ok(match self.host.endpoint() {
            Endpoint::Unix(paths) => paths.into_iter().map(Place::Unix).collect(),
            Endpoint::Address(address) => vec![Place::Tcp(SocketAddr::new(address, port))],
            Endpoint::Name(name) => tokio::net::lookup_host((name, port))
                .await
                .map_err(|error| ConnectError::Unreachable {
                    target: self.target(),
                    reason: "the host name cannot be resolved".into(),
                    source: Some(error.into()),
                })?
                .map(Place::Tcp)
                .collect(),
        })
    }

    /// One address, with everything `sslmode` says about a second try.
    async fn attempt(&self, place: &Place) -> Result<Session, ConnectError> {
        let address = match place {
            Place::Unix(path) => {
                // As in libpq, sslmode has no meaning for a socket file.
                let stream = self.opened(socket::unix(path).await)?;
                return self.establish(Stream::Unix(stream), None).await;
            }
            Place::Tcp(address) => *address,
        };
        match self.options.ssl.mode {
            SslMode::Disable => self.plain(address).await,
            SslMode::Prefer => self.preferably_encrypted(address).await,
            _ => {
                let material = Material::load(&self.options.ssl)?;
                let stream = self.opened(socket::tcp(address, &self.options.tcp).await)?;
                let negotiated = material
                    .negotiate(stream, self.host, address, &self.target())
                    .await?;
                self.over(negotiated).await
            }
        }
    }

    /// `prefer`: without TLS where the server has none, where TLS fails, and where the server lets
    /// us in only without. The error reported is that of the encrypted try.
    async fn preferably_encrypted(&self, address: SocketAddr) -> Result<Session, ConnectError> {
        let stream = self.opened(socket::tcp(address, &self.options.tcp).await)?;
        let target = self.target();
        let negotiated = match Material::load(&self.options.ssl) {
            Ok(material) => {
                material
                    .negotiate(stream, self.host, address, &target)
                    .await
            }
            Err(error) => Err(error),
        };
        let error = match negotiated {
            Ok(negotiated) => {
                let encrypted = matches!(negotiated, Negotiated::Tls { .. });
                match self.over(negotiated).await {
                    Err(error) if encrypted && is_refusal(&error) => error,
                    other => return other,
                }
            }
            Err(error) => error,
        };
        tracing::debug!(target, %error, "no TLS with sslmode=prefer, trying without");
        self.plain(address)
            .await
            .map_err(|second| if is_refusal(&second) { error } else { second })
    }

    async fn plain(&self, address: SocketAddr) -> Result<Session, ConnectError> {
        let stream = self.opened(socket::tcp(address, &self.options.tcp).await)?;
        self.establish(Stream::Tcp(stream), None).await
    }

    async fn over(&self, negotiated: Negotiated) -> Result<Session, ConnectError> {
        match negotiated {
            Negotiated::Tls { stream, end_point } => {
                self.establish(Stream::Tls(stream), end_point).await
            }
            Negotiated::Plain(stream) => self.establish(Stream::Tcp(stream), None).await,
        }
    }

    async fn establish(
        &self,
        stream: Stream,
        end_point: Option<Vec<u8>>,
    ) -> Result<Session, ConnectError> {
        let Self {
            options,
            host,
            purpose,
            wanted,
        } = self;
        session::establish(stream, options, host, end_point, *purpose, *wanted).await
    }

    fn opened<T>(&self, stream: std::io::Result<T>) -> Result<T, ConnectError> {
        stream.map_err(|error| ConnectError::io(&self.target(), "connecting", error))
    }

    fn target(&self) -> String {
        format!("{}/{}", self.host, self.options.dbname)
    }

    /// Runs a step within `connect_timeout`.
    async fn limited<T>(
        &self,
        target: &str,
        doing: &str,
        step: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        let Some(limit) = self.options.connect_timeout else {
            return step.await;
        };
        // Boxed: the whole handshake lives in this future.
        match tokio::time::timeout(limit, Box::pin(step)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(timed_out(target, doing, limit)),
        }
    }
}

fn timed_out(target: &str, doing: &str, limit: Duration) -> ConnectError {
    let reason = format!(
        "{doing}: no answer within {} s (connect_timeout)",
        limit.as_secs()
    );
    ConnectError::unreachable(target, reason)
}

/// Whether the server refused who or how we are: class 28, or a way to sign in that we refuse.
fn is_refusal(error: &ConnectError) -> bool {
    match error {
        ConnectError::Server(error) => error.sqlstate.starts_with("28"),
        ConnectError::Auth { .. } => true,
        _ => false,
    }
}
