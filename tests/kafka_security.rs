//! Kafka with TLS, client certificates and SASL, as its own brokers do them; and what is said when something does not fit.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, SOON};
use e2e::servers::{NODE, Servers};
use e2e::wait;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::scratch::Scratch;

const USER: &str = "relay";
const PASSWORD: &str = "s3cret-of-the-relay";

/// Keys and certificates in PEM, which both sides read.
struct Authority {
    folder: Scratch,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
            folder: Scratch::new("kafka-tls")?,
        };
        std::fs::write(authority.root(), authority.issuer.pem())?;
        Ok(authority)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// Writes `<name>.crt`, `<name>.key`, and both together in `<name>.pem`.
    fn issue(&self, name: &str) -> Result<(PathBuf, PathBuf, PathBuf)> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params
            .subject_alt_names
            .push(SanType::IpAddress("127.0.0.1".parse()?));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let file = |suffix: &str, text: &str| -> Result<PathBuf> {
            let path = self.folder.path().join(format!("{name}.{suffix}"));
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        Ok((
            file("crt", &certificate)?,
            file("key", &key)?,
            file("pem", &format!("{key}\n{certificate}"))?,
        ))
    }
}

/// A broker with every way in.
fn guarded(authority: &Authority) -> Result<Kafka> {
    let (_, _, keystore) = authority.issue("broker")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut properties = vec![
        ("ssl.keystore.type", "PEM".to_owned()),
        ("ssl.keystore.location", text(&keystore)),
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", text(&authority.root())),
        ("listener.name.ssl.ssl.client.auth", "required".to_owned()),
        (
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned(),
        ),
    ];
    let plain = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
    );
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let jaas = |listener: &str, mechanism: &str| {
        format!("listener.name.{listener}.{mechanism}.sasl.jaas.config")
    };
    let mut ways = Vec::new();
    for listener in ["sasl_plaintext", "sasl_ssl"] {
        ways.push((jaas(listener, "plain"), plain.clone()));
        for mechanism in ["scram-sha-256", "scram-sha-512"] {
            ways.push((jaas(listener, mechanism), scram.to_owned()));
        }
    }
    properties.extend(
        ways.iter()
            .map(|(name, value)| (name.as_str(), value.clone())),
    );
    let kafka = Kafka::start(KafkaOptions {
        properties: properties
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        listeners: ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
            .map(str::to_owned)
            .to_vec(),
        heap_mb: 256,
        ..KafkaOptions::default()
    })?;
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        set_password(&kafka, mechanism, PASSWORD)?;
    }
    Ok(kafka)
}

/// One mechanism a call: Kafka does not take two changes of a user at once.
fn set_password(kafka: &Kafka, mechanism: &str, password: &str) -> Result<()> {
    let credential = format!("{mechanism}=[password={password}]");
    let class = "org.apache.kafka.tools.ConfigCommand";
    let bootstrap = kafka.bootstrap();
    let mut arguments = vec!["--bootstrap-server", &bootstrap, "--alter"];
    arguments.extend(["--add-config", &credential]);
    arguments.extend(["--entity-type", "users", "--entity-name", USER]);
    kafka.tool(class, &arguments).map(|_| ())
}

/// The fixture's configuration with another way to the brokers.
fn through(fixture: &Fixture, protocol: &str, properties: &[(&str, &str)]) -> Config {
    let mut config = fixture
        .config()
        .with_text(
            "kafka.brokers",
            &fixture.servers.kafka.bootstrap_of(protocol),
        )
        .with_kafka("security.protocol", protocol);
    for (name, value) in properties {
        config = config.with_kafka(name, value);
    }
    config
}

/// One event through, and everything confirmed.
async fn delivers(fixture: &Fixture, config: &Config, n: &mut i32) -> Result<()> {
    let connector = fixture.start_with(config).await?;
    *n += 1;
    fixture.insert(&fixture.client().await?, *n).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    connector.stop().await?;
    ensure!(
        !connector.log().contains(PASSWORD),
        "the password is in the log"
    );
    Ok(())
}

/// Nothing goes out, one message says why, and it is not ready; the check says the same and ends.
async fn is_refused(fixture: &Fixture, config: &Config, code: &str, words: &[&str]) -> Result<()> {
    let connector = Connector::start(config)?;
    let mut all = vec![code];
    all.extend(words);
    connector
        .prints(&all, SOON)
        .await
        .with_context(|| connector.log())?;
    ensure!(!connector.is_ready().await, "ready without brokers");
    ensure!(
        connector.messages_with(&[code]).len() == 1,
        "not one message: {}",
        connector.log()
    );
    ensure!(
        !connector.log().contains("not-the-password"),
        "a secret is in the log"
    );
    let position = fixture.watch_slot().await?.confirmed().await?;
    connector.kill()?;
    fixture.watch_slot().await?.released().await?;
    ensure!(fixture.watch_slot().await?.confirmed().await? == position);
    let folder = Scratch::new("check")?;
    let file = folder.path().join("posthaste.toml");
    std::fs::write(&file, config.render())?;
    let output = tokio::process::Command::new(e2e::connector::binary()?)
        .args(["check", "-c"])
        .arg(&file)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && said.contains(code),
        "check: {:?}, {said}",
        output.status
    );
    ensure!(
        !said.contains("not-the-password"),
        "a secret is in the output"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_client_certificates_and_sasl_deliver_and_what_does_not_fit_is_told_once() -> Result<()>
{
    let authority = Authority::new("authority")?;
    let stranger = Authority::new("stranger")?;
    let kafka = tokio::task::block_in_place(|| guarded(&authority))?;
    let fixture = Fixture::on(Servers::with_own_kafka(kafka)?, "kafka_security").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let (certificate, key, _) = authority.issue("relay")?;
    let (foreign, foreign_key, _) = stranger.issue("relay")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (root, wrong) = (text(&authority.root()), text(&stranger.root()));
    let (certificate, key) = (text(&certificate), text(&key));
    let (foreign, foreign_key) = (text(&foreign), text(&foreign_key));
    let mut n = 0;
    let mutual = |root: &str, certificate: &str, key: &str| {
        let files = [
            ("ssl.ca.location", root),
            ("ssl.certificate.location", certificate),
            ("ssl.key.location", key),
        ];
        through(&fixture, "SSL", &files)
    };
    delivers(&fixture, &mutual(&root, &certificate, &key), &mut n).await?;
    let sasl = |protocol, mechanism: &str, password: &str, root: &str| {
        let mut properties = vec![
            ("sasl.mechanism", mechanism),
            ("sasl.username", USER),
            ("sasl.password", password),
        ];
        if protocol == "SASL_SSL" {
            properties.push(("ssl.ca.location", root));
        }
        through(&fixture, protocol, &properties)
    };
    for (protocol, mechanism) in [
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ] {
        let config = sasl(protocol, mechanism, PASSWORD, &root);
        delivers(&fixture, &config, &mut n)
            .await
            .with_context(|| format!("{protocol} {mechanism}"))?;
    }
    let arrived = usize::try_from(n)?;
    consumer.wait_for_records(arrived, SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == arrived);

    let tls = "PH0605";
    is_refused(
        &fixture,
        &mutual(&wrong, &certificate, &key),
        tls,
        &["certificate"],
    )
    .await?;
    // The client does not even send a certificate that nobody there would trust, and the broker hangs up without a word.
    let foreign = mutual(&root, &foreign, &foreign_key);
    let told = ["the broker trusts no issuer of our client certificate"];
    is_refused(&fixture, &foreign, tls, &told).await?;
    let wrong_root = sasl("SASL_SSL", "PLAIN", PASSWORD, &wrong);
    is_refused(&fixture, &wrong_root, tls, &["certificate"]).await?;
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        let config = sasl("SASL_PLAINTEXT", mechanism, "not-the-password", &root);
        is_refused(&fixture, &config, "PH0604", &["sasl."]).await?;
    }
    still_waits_and_recovers(
        &fixture,
        &sasl("SASL_PLAINTEXT", "SCRAM-SHA-512", "later", &root),
    )
    .await
}

/// Rotation: certificates, key and root of both sides, then the password in a file. The brokers no longer take the old
/// ones; the connector notices, reads the files again, and goes on without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_passwords_that_changed_are_read_again_when_brokers_refuse() -> Result<()>
{
    let authority = Authority::new("first")?;
    let kafka = tokio::task::block_in_place(|| guarded(&authority))?;
    let fixture = Fixture::on(Servers::with_own_kafka(kafka)?, "kafka_rotation").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    let (certificate, key, _) = authority.issue("relay")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mutual = through(
        &fixture,
        "SSL",
        &[
            ("ssl.ca.location", &*text(&authority.root())),
            ("ssl.certificate.location", &*text(&certificate)),
            ("ssl.key.location", &*text(&key)),
        ],
    );
    let connector = fixture.start_with(&mutual).await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let second = Authority::new("second")?;
    restarts(&fixture, || second.take_the_place_of(&authority))?;
    fixture.insert(&client, 2).await?;
    wait::until_true("ready with the new files", 2 * SOON, async || {
        Ok(connector.is_ready().await)
    })
    .await
    .with_context(|| connector.log())?;
    consumer.wait_for_events(2, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    one_outage(&connector)?;
    connector.stop().await?;

    let file = authority.folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n"))?;
    let files = format!(
        "{{ \"sasl.password\" = {} }}",
        e2e::config::quoted(&text(&file))
    );
    let sasl = through(
        &fixture,
        "SASL_SSL",
        &[
            ("ssl.ca.location", &*text(&authority.root())),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", USER),
        ],
    )
    .with("kafka.properties_files", files);
    let connector = fixture.start_with(&sasl).await?;
    fixture.insert(&client, 3).await?;
    consumer.wait_for_events(3, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    set_password(&fixture.servers.kafka, "SCRAM-SHA-512", "rotated-password")?;
    restarts(&fixture, || Ok(std::fs::write(&file, "rotated-password")?))?;
    fixture.insert(&client, 4).await?;
    wait::until_true("ready with the new password", 2 * SOON, async || {
        Ok(connector.is_ready().await)
    })
    .await
    .with_context(|| connector.log())?;
    consumer.wait_for_events(4, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    one_outage(&connector)?;
    connector.stop().await?;
    for secret in [PASSWORD, "rotated-password"] {
        ensure!(!connector.log().contains(secret), "a secret is in the log");
    }
    Ok(())
}

impl Authority {
    /// Puts files of its own where those of the other are.
    fn take_the_place_of(&self, other: &Self) -> Result<()> {
        for name in ["broker", "relay"] {
            self.issue(name)?;
        }
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            let name = path.file_name().context("a file")?;
            std::fs::copy(&path, other.folder.path().join(name))?;
        }
        Ok(())
    }
}

/// Does something while the broker is down.
fn restarts(fixture: &Fixture, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| {
        kafka.stop_node(NODE)?;
        change()?;
        kafka.start_node(NODE)
    })
}

/// However many attempts were needed, it is one line when it begins and one when it ends.
fn one_outage(connector: &Connector) -> Result<()> {
    for word in ["\"lost: ", "\"resumed: "] {
        let lines = connector.lines_with(&[word]);
        ensure!(lines.len() == 1, "{lines:#?}\n{}", connector.log());
    }
    Ok(())
}

/// A password that the brokers come to know while the connector waits: it goes on by itself.
async fn still_waits_and_recovers(fixture: &Fixture, config: &Config) -> Result<()> {
    let connector = Connector::start(config)?;
    connector.prints(&["PH0604"], SOON).await?;
    fixture.insert(&fixture.client().await?, 1000).await?;
    let kafka = &fixture.servers.kafka;
    tokio::task::block_in_place(|| set_password(kafka, "SCRAM-SHA-512", "later"))?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    wait::until_true("ready", SOON, async || Ok(connector.is_ready().await)).await?;
    connector.stop().await
}
