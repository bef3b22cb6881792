//! An identity provider as small as they come: hands out signed tokens for a client's secret, and the key to check them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rcgen::{CertificateParams, KeyPair, SanType};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use xtask::scratch::Scratch;

/// The one client that is known here, and so the principal at the brokers.
pub(crate) const CLIENT: &str = "relay";
/// What the client may ask for.
pub(crate) const SCOPE: &str = "outbox";
/// Whom the tokens are for, as the brokers demand it.
pub(crate) const AUDIENCE: &str = "kafka";
/// Who made them, as the brokers demand it.
pub(crate) const ISSUER: &str = "https://identity.test";

/// A running provider. Dropping it ends it.
pub(crate) struct Provider {
    shared: Arc<Shared>,
    plain_port: u16,
    tls_port: u16,
    folder: Scratch,
    _tasks: JoinSet<()>,
}

/// How it behaves from now on.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) secret: String,
    pub(crate) audience: String,
    pub(crate) lifetime: Duration,
    /// Refuses everybody, as a client that was switched off is refused.
    pub(crate) refusing: bool,
}

struct Shared {
    key: EcdsaKeyPair,
    random: SystemRandom,
    rules: Mutex<Rules>,
    issued: Mutex<Vec<String>>,
}

impl Provider {
    /// Starts it, once with TLS and once without.
    pub(crate) async fn start(secret: &str) -> Result<Self> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ES256, &random).ok();
        let document = document.context("make a key")?;
        let key = EcdsaKeyPair::from_pkcs8(&ES256, document.as_ref(), &random).ok();
        let shared = Arc::new(Shared {
            key: key.context("read the key")?,
            random,
            rules: Mutex::new(Rules {
                secret: secret.to_owned(),
                audience: AUDIENCE.to_owned(),
                lifetime: Duration::from_secs(3600),
                refusing: false,
            }),
            issued: Mutex::default(),
        });
        let folder = Scratch::new("identity")?;
        let acceptor = certified(&root_of(&folder))?;
        let plain = TcpListener::bind("127.0.0.1:0").await?;
        let tls = TcpListener::bind("127.0.0.1:0").await?;
        let (plain_port, tls_port) = (plain.local_addr()?.port(), tls.local_addr()?.port());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(plain, None, Arc::clone(&shared)));
        tasks.spawn(serve(tls, Some(acceptor), Arc::clone(&shared)));
        Ok(Self {
            shared,
            plain_port,
            tls_port,
            folder,
            _tasks: tasks,
        })
    }

    /// Where tokens are had, as providers are reached: with TLS, by a certificate that [`Provider::root`] has issued.
    pub(crate) fn token_url(&self) -> String {
        format!("https://localhost:{}/token", self.tls_port)
    }

    /// The same without TLS.
    pub(crate) fn plain_token_url(&self) -> String {
        format!("http://localhost:{}/token", self.plain_port)
    }

    /// Where brokers find the key that checks tokens.
    pub(crate) fn keys_url(&self) -> String {
        format!("http://localhost:{}/keys", self.plain_port)
    }

    /// The certificate to trust.
    pub(crate) fn root(&self) -> PathBuf {
        root_of(&self.folder)
    }

    /// Changes the rules.
    pub(crate) fn rule(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut lock(&self.shared.rules));
    }

    /// All tokens handed out so far.
    pub(crate) fn issued(&self) -> Vec<String> {
        lock(&self.shared.issued).clone()
    }
}

impl Shared {
    fn answer(&self, request: &Request) -> (&'static str, Value) {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/keys") => ("200 OK", self.keys()),
            ("POST", "/token") => self.token(request),
            _ => ("404 Not Found", json!({ "error": "not_found" })),
        }
    }

    /// RFC 6749, 4.4: a client signs in with its secret and is given a token.
    fn token(&self, request: &Request) -> (&'static str, Value) {
        let rules = lock(&self.rules).clone();
        let login = BASE64_STANDARD.encode(format!("{CLIENT}:{}", rules.secret));
        if rules.refusing || request.header("authorization") != Some(&format!("Basic {login}")) {
            return ("401 Unauthorized", json!({ "error": "invalid_client" }));
        }
        let form = format!("grant_type=client_credentials&scope={SCOPE}");
        if request.body != form {
            return ("400 Bad Request", json!({ "error": "invalid_request" }));
        }
        match self.sign(&rules) {
            Ok(token) => {
                lock(&self.issued).push(token.clone());
                let answer = json!({ "access_token": token, "token_type": "Bearer" });
                ("200 OK", answer)
            }
            Err(error) => (
                "500 Internal Server Error",
                json!({ "error": error.to_string() }),
            ),
        }
    }

    fn keys(&self) -> Value {
        // An uncompressed point: a byte that says so, and two coordinates.
        let point = self.key.public_key().as_ref();
        let half = |range| {
            point
                .get(range)
                .map(|half| BASE64_URL_SAFE_NO_PAD.encode(half))
        };
        json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": KEY_ID,
            "x": half(1..33), "y": half(33..65),
        }] })
    }

    fn sign(&self, rules: &Rules) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": KEY_ID });
        let claims = json!({
            "iss": ISSUER, "aud": rules.audience, "sub": CLIENT, "scope": SCOPE,
            "iat": now, "exp": now + rules.lifetime.as_secs(),
        });
        let encode = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).ok();
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.context("sign")?);
        Ok(format!("{signed}.{signature}"))
    }
}

const KEY_ID: &str = "2024-1";

/// What was asked.
#[derive(Debug, Default)]
struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    /// Reads the head and as much of a body as it announces; `None` when the other side went away.
    async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Self> {
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let request = Self::parse(head, body)?;
                let length = request.header("content-length").unwrap_or("0");
                if body.len() >= length.parse().ok()? {
                    return Some(request);
                }
            }
        }
    }

    fn parse(head: &str, body: &str) -> Option<Self> {
        let mut lines = head.lines();
        let mut words = lines.next()?.split(' ');
        Some(Self {
            method: words.next()?.to_owned(),
            path: words.next()?.to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            match acceptor {
                None => converse(stream, &shared).await,
                // Who does not trust the certificate hangs up.
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        converse(stream, &shared).await;
                    }
                }
            }
        });
    }
}

/// One request, one answer.
async fn converse(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, shared: &Shared) {
    let Some(request) = Request::read(&mut stream).await else {
        return;
    };
    let (status, body) = shared.answer(&request);
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has gone needs no answer.
    stream.write_all(answer.as_bytes()).await.ok();
    stream.shutdown().await.ok();
}

/// A certificate of its own, written to `root`, and what shows it.
fn certified(root: &Path) -> Result<TlsAcceptor> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    let address = SanType::IpAddress("127.0.0.1".parse()?);
    params.subject_alt_names.push(address);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    std::fs::write(root, certificate.pem())?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn root_of(folder: &Scratch) -> PathBuf {
    folder.path().join("root.pem")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
