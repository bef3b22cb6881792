//! Ways to sign in at Kafka that are features of the build: with tokens of an identity provider, and in a Kerberos realm.
//! Run by `cargo xtask test --only sign-in`, which builds the connector with them.

// OAUTHBEARER: tokens that a real broker checks by the provider's key.
mod oauthbearer;
mod provider;
// GSSAPI: tickets of a real key distribution centre.
mod kdc;
mod kerberos;

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::connector::{Connector, binary};
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::takeover;
use e2e::writer::Running;
use serde_json::Value;
use xtask::scratch::Scratch;

/// The listener of both.
pub(crate) const LISTENER: &str = "SASL_PLAINTEXT";

/// From the end of a load until everything is read.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// What the process is given beside its configuration.
pub(crate) type Environment<'a> = &'a [(&'a str, &'a str)];

/// The fixture's configuration through the listener that wants a sign-in.
pub(crate) fn through(fixture: &Fixture, properties: &[(&str, &str)]) -> Config {
    let brokers = fixture.servers.kafka.bootstrap_of(LISTENER);
    let mut config = fixture
        .config()
        .with_text("kafka.brokers", &brokers)
        .with_kafka("security.protocol", LISTENER);
    for (name, value) in properties {
        config = config.with_kafka(name, value);
    }
    config
}

pub(crate) async fn start(config: &Config, environment: Environment<'_>) -> Result<Connector> {
    let connector = Connector::start_with(config, &[], environment)?;
    connector.ready().await?;
    Ok(connector)
}

/// Starts a connector of Debezium's, with these options of the Java producer.
pub(crate) async fn start_debezium(
    fixture: &Fixture,
    options: &Value,
    environment: Environment<'_>,
) -> Result<Connector> {
    let mut config = takeover::configuration(fixture, "orders-outbox");
    let keys = config.get_mut("config").and_then(Value::as_object_mut);
    if let (Some(keys), Some(options)) = (keys, options.as_object()) {
        for (name, value) in options {
            keys.insert(format!("producer.override.{name}"), value.clone());
        }
    }
    let brokers = fixture.servers.kafka.bootstrap_of(LISTENER);
    let state = takeover::state(fixture);
    let arguments = [
        "--brokers",
        &brokers,
        "--log-format",
        "json",
        "--set",
        &state,
    ];
    let text = config.to_string();
    let connector = Connector::start_file("connector.json", &text, &arguments, environment)?;
    connector.ready().await?;
    Ok(connector)
}

/// One event, and everything is confirmed.
pub(crate) async fn one_event_arrives(
    fixture: &Fixture,
    consumer: &mut Consumer,
    n: i32,
) -> Result<()> {
    fixture.insert(&fixture.client().await?, n).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    consumer.wait_for_records(usize::try_from(n)?, SOON).await?;
    Ok(())
}

/// With exactly-once as well: the second start finds the position that the first has left in Kafka, and the client that reads
/// it signs in on its own.
pub(crate) async fn exactly_once_arrives(
    fixture: &Fixture,
    consumer: &mut Consumer,
    (config, environment): (&Config, Environment<'_>),
    first: i32,
) -> Result<String> {
    let config = config
        .clone()
        .with_text("kafka.delivery", "exactly-once")
        .with_text(
            "kafka.position_topic",
            &format!("{}.position", fixture.slot),
        );
    let mut log = String::new();
    for (n, arguments) in [(first, &["--accept-slot-position"][..]), (first + 1, &[])] {
        let connector = Connector::start_with(&config, arguments, environment)?;
        connector.ready().await?;
        one_event_arrives(fixture, consumer, n).await?;
        connector.stop().await?;
        log += &connector.log();
    }
    Ok(log)
}

/// Ends the load: everything committed was read, once and in order, without a restart of anything.
pub(crate) async fn everything_arrived_once(
    fixture: &Fixture,
    consumer: &mut Consumer,
    load: Running,
) -> Result<usize> {
    let ledger = load.stop().await?;
    consumer.wait_for_events(ledger.len(), READ_WITHIN).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    Ok(check(&ledger, records, Repeats::Forbidden)?.events)
}

/// It is not ready and says why once, in these words; `check` says the same and ends with 3. Gives all that was printed.
pub(crate) async fn is_refused(
    config: &Config,
    environment: Environment<'_>,
    words: &[&str],
) -> Result<String> {
    let connector = Connector::start_with(config, &[], environment)?;
    connector.prints(words, 2 * SOON).await?;
    ensure!(!connector.is_ready().await, "ready without brokers");
    let told = connector.messages_with(&["lost: PH0604"]);
    ensure!(told.len() == 1, "not one message: {}", connector.log());
    connector.kill()?;
    let folder = Scratch::new("check")?;
    let file = folder.path().join("posthaste.toml");
    std::fs::write(&file, config.render())?;
    let output = tokio::process::Command::new(binary()?)
        .args(["check", "-c"])
        .arg(&file)
        .envs(environment.iter().copied())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && words.iter().all(|word| said.contains(word)),
        "check: {:?}, {said}",
        output.status
    );
    Ok(connector.log() + &said)
}

/// The number of lines that tell of an outage of Kafka, and of its end.
pub(crate) fn outages(connector: &Connector) -> (usize, usize) {
    let count = |word| connector.lines_with(&[word]).len();
    (count("\"lost: "), count("\"resumed: "))
}

/// None of these stands in what was printed.
pub(crate) fn is_clean(text: &str, secrets: &[String]) -> Result<()> {
    ensure!(!text.is_empty(), "nothing was printed");
    for secret in secrets {
        let found = text.lines().find(|line| line.contains(secret.as_str()));
        ensure!(found.is_none(), "a secret is printed: {found:?}");
    }
    Ok(())
}
