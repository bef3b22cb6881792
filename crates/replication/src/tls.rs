//! TLS as psql understands `sslmode`: what is loaded, how it is negotiated, how failures are named.

use crate::certificate::Certificate;
use crate::dsn::{Endpoint, Host, RootCert, SslMode, SslOptions};
use crate::error::{ConnectError, TlsFailure};
use crate::tls_verify::{Roots, Verifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig};
use std::fs::{self, Metadata};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Certificates and keys as they are on disk at this connect.
#[derive(Debug)]
pub(crate) struct Material {
    provider: Arc<CryptoProvider>,
    roots: Option<Arc<Roots>>,
    client: Option<Arc<SingleCertAndKey>>,
    mode: SslMode,
    direct: bool,
}

/// The outcome of asking for TLS.
#[derive(Debug)]
pub(crate) enum Negotiated {
    Tls {
        stream: Box<TlsStream<TcpStream>>,
        /// For channel binding.
        end_point: Option<Vec<u8>>,
    },
    /// The server has no TLS, and the mode allows to go on without.
    Plain(TcpStream),
}

impl Material {
    /// Reads the files the options name.
    ///
    /// As in libpq a root certificate that is there is used in every mode, so `require` with one is
    /// `verify-ca`; one that is not there is an error only where the mode asks for verification.
    ///
    /// # Errors
    ///
    /// `Config`, naming keyword and file.
    pub(crate) fn load(options: &SslOptions) -> Result<Self, ConnectError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(Self {
            roots: load_roots(options)?.map(Arc::new),
            client: load_client(options, &provider)?.map(Arc::new),
            mode: options.mode,
            direct: options.direct,
            provider,
        })
    }

    /// Asks the server for TLS and shakes hands.
    ///
    /// # Errors
    ///
    /// `Tls` where a check failed or the server has none and the mode demands it.
    pub(crate) async fn negotiate(
        &self,
        mut stream: TcpStream,
        host: &Host,
        peer: SocketAddr,
        target: &str,
    ) -> Result<Negotiated, ConnectError> {
        let io_error = |error| ConnectError::io(target, "negotiating TLS", error);
        if !self.direct {
            // Length 8, then the code 80877103: SSLRequest.
            stream
                .write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
                .await
                .map_err(io_error)?;
            // One byte and no more: what a man in the middle adds after it goes into the handshake
            // and fails there.
            match stream.read_u8().await.map_err(io_error)? {
                b'S' => {}
                b'N' if self.mode == SslMode::Prefer => return Ok(Negotiated::Plain(stream)),
                b'N' => {
                    return Err(unavailable(target));
                }
                // An error before encryption could be anybody's; its text is not to be trusted.
                b'E' => {
                    let reason = "the server answered the request for TLS with an error";
                    return Err(ConnectError::unreachable(target, reason));
                }
                _ => {
                    return Err(ConnectError::protocol(
                        "an unknown answer to the request for TLS",
                    ));
                }
            }
        }
        let connector = TlsConnector::from(Arc::new(self.client_config(host, target)?));
        let name = server_name(host, peer);
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| ConnectError::io(target, "TLS handshake", error))?;
        let end_point = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first)
            .and_then(|der| Certificate::parse(der)?.end_point());
        Ok(Negotiated::Tls {
            stream: Box::new(stream),
            end_point,
        })
    }

    fn client_config(&self, host: &Host, target: &str) -> Result<ClientConfig, ConnectError> {
        let expected_name = match (self.mode, host.name.as_str()) {
            (SslMode::VerifyFull, "") => {
                let reason = "sslmode=verify-full needs a host name, hostaddr alone does not do";
                return Err(ConnectError::config("host", reason));
            }
            (SslMode::VerifyFull, name) => Some(name.to_owned()),
            _ => None,
        };
        let verifier = Verifier::new(&self.provider, self.roots.clone(), expected_name);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectError::Tls {
                kind: TlsFailure::Handshake,
                target: target.to_owned(),
                reason: "no protocol version is usable".into(),
                source: Some(error.into()),
            })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.client {
            Some(client) => builder.with_client_cert_resolver(Arc::clone(client) as _),
            None => builder.with_no_client_auth(),
        };
        if self.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(config)
    }
}

fn unavailable(target: &str) -> ConnectError {
    ConnectError::Tls {
        kind: TlsFailure::Unavailable,
        target: target.to_owned(),
        reason: "the server does not support TLS, but sslmode demands it".to_owned(),
        source: None,
    }
}

/// What the handshake announces; addresses are never announced, names that are no DNS names neither.
fn server_name(host: &Host, peer: SocketAddr) -> ServerName<'static> {
    let named = Host {
        address: None,
        ..host.clone()
    };
    match named.endpoint() {
        Endpoint::Name(name) => {
            ServerName::try_from(name.to_owned()).unwrap_or_else(|_| peer.ip().into())
        }
        _ => peer.ip().into(),
    }
}

fn load_roots(options: &SslOptions) -> Result<Option<Roots>, ConnectError> {
    let must_verify = options.mode >= SslMode::VerifyCa;
    let path = match &options.root {
        RootCert::System => return Roots::system().map(Some),
        RootCert::File(path) => path,
        RootCert::Absent if must_verify => {
            let reason = "no root certificate is given and no home folder is known to look in; name a file or write sslrootcert=system";
            return Err(ConnectError::config("sslrootcert", reason));
        }
        RootCert::Absent => return Ok(None),
    };
    if fs::metadata(path).is_err() {
        if must_verify {
            let reason = format!(
                "root certificate file {} does not exist; name one, write sslrootcert=system, or choose an sslmode that does not verify",
                path.display()
            );
            return Err(ConnectError::config("sslrootcert", reason));
        }
        tracing::debug!(file = %path.display(), "no root certificate, the server's certificate is not verified");
        return Ok(None);
    }
    let certificates = read_certificates("sslrootcert", path)?;
    Roots::new(certificates).map(Some).map_err(|()| {
        let reason = format!("{} holds no usable certificate", path.display());
        ConnectError::config("sslrootcert", reason)
    })
}

/// The client certificate, if the file is there; libpq connects without one if it is not.
fn load_client(
    options: &SslOptions,
    provider: &CryptoProvider,
) -> Result<Option<SingleCertAndKey>, ConnectError> {
    let Some(path) = &options.cert else {
        return Ok(None);
    };
    if fs::metadata(path).is_err() {
        tracing::debug!(file = %path.display(), "no client certificate");
        return Ok(None);
    }
    let certificates = read_certificates("sslcert", path)?;
    let Some(key_path) = &options.key else {
        return Err(ConnectError::config(
            "sslkey",
            "a client certificate needs its key",
        ));
    };
    let key = read_key(key_path)?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| ConnectError::Config {
            keyword: "sslkey".into(),
            reason: format!("{} holds no key of a supported kind", key_path.display()),
            source: Some(error.into()),
        })?;
    let key_info = key.public_key();
    let leaf = certificates.first().and_then(|der| Certificate::parse(der));
    let belongs = match (&leaf, &key_info) {
        (Some(leaf), Some(info)) => leaf.public_key_info == info.as_ref(),
        (leaf, _) => leaf.is_some(),
    };
    if !belongs {
        let reason = format!(
            "the key in {} is not that of the certificate in {}",
            key_path.display(),
            path.display()
        );
        return Err(ConnectError::config("sslkey", reason));
    }
    Ok(Some(SingleCertAndKey::from(CertifiedKey::new(
        certificates,
        key,
    ))))
}

fn read_certificates(
    keyword: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let contents = read_file(keyword, path)?;
    let certificates: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_slice_iter(&contents).collect();
    let certificates = certificates.map_err(|error| ConnectError::Config {
        keyword: keyword.to_owned(),
        reason: format!("{} is not a valid PEM file", path.display()),
        source: Some(error.into()),
    })?;
    if certificates.is_empty() {
        let reason = format!("{} holds no PEM certificate", path.display());
        return Err(ConnectError::config(keyword, reason));
    }
    Ok(certificates)
}

/// PEM (PKCS#8, PKCS#1, SEC1) or DER of the same.
fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConnectError> {
    let contents = read_file("sslkey", path)?;
    let metadata = fs::metadata(path).map_err(|error| file_error("sslkey", path, error))?;
    check_key_permissions(path, &metadata)?;
    let encrypted = [&b"ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    if encrypted
        .iter()
        .any(|mark| contents.windows(mark.len()).any(|window| window == *mark))
    {
        let reason = format!(
            "{} is encrypted, which is not supported; decrypt it with `openssl pkey`",
            path.display()
        );
        return Err(ConnectError::config("sslkey", reason));
    }
    // The parser's own error may quote the file, so it is not kept as the source.
    match PrivateKeyDer::from_pem_slice(&contents) {
        Ok(key) => Ok(key),
        Err(_) => PrivateKeyDer::try_from(contents).map_err(|_| {
            let reason = format!("{} holds no private key in PEM or DER", path.display());
            ConnectError::config("sslkey", reason)
        }),
    }
}

/// libpq's rule: nobody but the owner, except that root's files may be readable by a group.
fn check_key_permissions(path: &Path, metadata: &Metadata) -> Result<(), ConnectError> {
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if !metadata.is_file() {
        let reason = format!("{} is not a plain file", path.display());
        return Err(ConnectError::config("sslkey", reason));
    }
    if metadata.mode() & forbidden != 0 {
        let reason = format!(
            "{} has group or world access; it must be u=rw (0600) or less, or u=rw,g=r (0640) or less if owned by root",
            path.display()
        );
        return Err(ConnectError::config("sslkey", reason));
    }
    Ok(())
}

fn read_file(keyword: &str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    fs::read(path).map_err(|error| file_error(keyword, path, error))
}

fn file_error(keyword: &str, path: &Path, error: io::Error) -> ConnectError {
    ConnectError::Config {
        keyword: keyword.to_owned(),
        reason: format!("{} cannot be read", path.display()),
        source: Some(error.into()),
    }
}

/// Which check failed, in words; the library's own text follows as the source.
pub(crate) fn describe(error: &rustls::Error) -> String {
    let text = match error {
        rustls::Error::InvalidCertificate(reason) => return describe_certificate(reason),
        rustls::Error::AlertReceived(alert) => return describe_alert(*alert),
        rustls::Error::NoCertificatesPresented => "the server sent no certificate",
        rustls::Error::PeerIncompatible(_) => {
            "the server speaks no TLS version or cipher that we do (TLS 1.2 or 1.3 is needed)"
        }
        rustls::Error::InvalidMessage(_) => "the server's answer is not TLS",
        _ => "the handshake failed",
    };
    text.to_owned()
}

fn describe_certificate(error: &CertificateError) -> String {
    let text = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        CertificateError::UnknownIssuer => {
            "the server's certificate is not signed by an authority in sslrootcert"
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            return format!(
                "the server's certificate is for {}, not for {}",
                presented.join(", "),
                expected.to_str()
            );
        }
        CertificateError::NotValidForName => {
            "the server's certificate is for another host name (sslmode=verify-full)"
        }
        CertificateError::BadSignature => "a signature is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not meant for servers"
        }
        CertificateError::BadEncoding => "the server's certificate is malformed",
        _ => "the server's certificate is not acceptable",
    };
    text.to_owned()
}

fn describe_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server demands a client certificate (sslcert, sslkey)".to_owned()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError => {
            format!("the server refuses our client certificate ({alert:?})")
        }
        _ => format!("the server broke off the handshake ({alert:?})"),
    }
}
