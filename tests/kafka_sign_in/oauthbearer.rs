//! OAUTHBEARER by OIDC: a provider hands out tokens for a client's secret, and the broker checks their signature by its key.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::config::{Config, quoted};
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::servers::Servers;
use e2e::wait;
use e2e::writer::Load;
use serde_json::json;
use xtask::kafka::{Kafka, KafkaOptions};

use crate::provider::{AUDIENCE, CLIENT, ISSUER, Provider, SCOPE};
use crate::{
    LISTENER, everything_arrived_once, exactly_once_arrives, is_clean, is_refused,
    one_event_arrives, outages, start, start_debezium, through,
};

const SECRET: &str = "s3cret-of-the-client";
const WRONG: &str = "not-the-secret";

/// Short enough to end several times in a test. librdkafka asks for the next token when four fifths of this are over, give or
/// take a second, and shows it to the broker after nine tenths: much shorter ones it would show twice.
const LIFETIME: Duration = Duration::from_secs(20);

/// So many tokens more show that the one before is over.
const RENEWALS: usize = 3;

struct Place {
    provider: Provider,
    fixture: Fixture,
    consumer: Consumer,
}

impl Place {
    async fn new(name: &str) -> Result<Self> {
        let provider = Provider::start(SECRET).await?;
        let kafka = tokio::task::block_in_place(|| guarded(&provider))?;
        let fixture = Fixture::on(Servers::with_own_kafka(kafka)?, name).await?;
        Ok(Self {
            consumer: fixture.consumer(&["order"])?,
            provider,
            fixture,
        })
    }

    /// Everything but the secret.
    fn config(&self) -> Config {
        let root = self.provider.root();
        let properties = [
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", CLIENT),
            ("sasl.oauthbearer.scope", SCOPE),
            (
                "sasl.oauthbearer.token.endpoint.url",
                &self.provider.token_url(),
            ),
            ("https.ca.location", &root.to_string_lossy()),
        ];
        through(&self.fixture, &properties)
    }

    fn config_with(&self, secret: &str) -> Config {
        self.config()
            .with_kafka("sasl.oauthbearer.client.secret", secret)
    }

    /// What nobody may read: the secrets as they are and as they are sent, and every token.
    fn secrets(&self) -> Vec<String> {
        let mut secrets = self.provider.issued();
        for secret in [SECRET, WRONG] {
            secrets.push(secret.to_owned());
            secrets.push(BASE64_STANDARD.encode(format!("{CLIENT}:{secret}")));
        }
        secrets
    }
}

/// A broker that takes tokens of the provider, and ends connections whose token is over.
fn guarded(provider: &Provider) -> Result<Kafka> {
    let listener = "listener.name.sasl_plaintext.oauthbearer";
    let class = "org.apache.kafka.common.security.oauthbearer";
    let keys = provider.keys_url();
    let properties = [
        (
            "sasl.enabled.mechanisms".to_owned(),
            "OAUTHBEARER".to_owned(),
        ),
        (
            format!("{listener}.sasl.jaas.config"),
            format!("{class}.OAuthBearerLoginModule required;"),
        ),
        (
            format!("{listener}.sasl.server.callback.handler.class"),
            format!("{class}.OAuthBearerValidatorCallbackHandler"),
        ),
        // A connection lasts as long as its token, and this long at most.
        (
            format!("{listener}.connections.max.reauth.ms"),
            "3600000".to_owned(),
        ),
        (
            "sasl.oauthbearer.jwks.endpoint.url".to_owned(),
            keys.clone(),
        ),
        (
            "sasl.oauthbearer.expected.audience".to_owned(),
            AUDIENCE.to_owned(),
        ),
        (
            "sasl.oauthbearer.expected.issuer".to_owned(),
            ISSUER.to_owned(),
        ),
        (
            "sasl.oauthbearer.clock.skew.seconds".to_owned(),
            "1".to_owned(),
        ),
    ];
    Kafka::start(KafkaOptions {
        properties: properties.to_vec(),
        listeners: vec![LISTENER.to_owned()],
        heap_mb: 256,
        java: vec![format!(
            "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
        )],
        ..KafkaOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_with_a_token_and_no_secret_is_printed() -> Result<()> {
    let mut place = Place::new("oauth").await?;
    let config = place
        .config_with(SECRET)
        .with_kafka("debug", "all")
        .with_text("log.level", "trace");
    let connector = start(&config, &[]).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 1).await?;
    connector.stop().await?;
    ensure!(!place.provider.issued().is_empty());
    is_clean(&connector.log(), &place.secrets())?;

    let login = (&config, &[][..]);
    let log = exactly_once_arrives(&place.fixture, &mut place.consumer, login, 2).await?;
    is_clean(&log, &place.secrets())?;

    let wrong = place
        .config_with(WRONG)
        .with_kafka("debug", "all")
        .with_text("log.level", "trace");
    let words = ["PH0604", "OAUTHBEARER", "invalid_client"];
    let said = is_refused(&wrong, &[], &words).await?;
    is_clean(&said, &place.secrets())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_provider_or_the_broker_refuses_is_told_once() -> Result<()> {
    let place = Place::new("oauth_refused").await?;
    let config = place.config_with(SECRET);
    let untrusted = config.clone().with_kafka(
        "sasl.oauthbearer.token.endpoint.url",
        &place.provider.token_url(),
    );
    let untrusted = untrusted.without("kafka.properties.\"https.ca.location\"");
    is_refused(&untrusted, &[], &["PH0604", "OAUTHBEARER", "certificate"]).await?;
    let nobody = config.clone().with_kafka(
        "sasl.oauthbearer.token.endpoint.url",
        "http://localhost:9/token",
    );
    is_refused(&nobody, &[], &["PH0604", "OAUTHBEARER", "connect"]).await?;
    place
        .provider
        .rule(|rules| rules.audience = "somebody-else".to_owned());
    let said = is_refused(&config, &[], &["PH0604", "invalid_token"]).await?;
    is_clean(&said, &place.secrets())
}

/// Tokens end several times under load, then the provider refuses the client until the broker no longer takes the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_renewed_under_load_and_without_a_token_events_wait() -> Result<()> {
    let mut place = Place::new("oauth_renewed").await?;
    place.provider.rule(|rules| rules.lifetime = LIFETIME);
    let connector = start(&place.config_with(SECRET), &[]).await?;
    let load = Load::steady(40).start(&place.fixture).await?;
    is_renewed(&place).await?;
    ensure!(outages(&connector) == (0, 0), "{}", connector.log());

    place.provider.rule(|rules| rules.refusing = true);
    let told = ["lost: PH0604", "OAUTHBEARER", "invalid_client"];
    connector.prints(&told, 2 * SOON).await?;
    ensure!(!connector.is_ready().await, "ready without a token");
    load.goes_on_for(100, SOON).await?;
    place.provider.rule(|rules| rules.refusing = false);
    connector.prints(&["resumed: "], 2 * SOON).await?;

    everything_arrived_once(&place.fixture, &mut place.consumer, load).await?;
    ensure!(outages(&connector) == (1, 1), "{}", connector.log());
    connector.stop().await?;
    is_clean(&connector.log(), &place.secrets())
}

async fn is_renewed(place: &Place) -> Result<()> {
    let enough = place.provider.issued().len() + RENEWALS;
    let deadline = LIFETIME * u32::try_from(RENEWALS)? + SOON;
    wait::until_true("tokens to be renewed", deadline, async || {
        Ok(place.provider.issued().len() >= enough)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_changed_is_read_again() -> Result<()> {
    let mut place = Place::new("oauth_rotated").await?;
    place.provider.rule(|rules| rules.lifetime = LIFETIME);
    let file = place.fixture.state_directory().with_file_name("secret");
    std::fs::write(&file, format!("{SECRET}\n"))?;
    let files = format!(
        "{{ \"sasl.oauthbearer.client.secret\" = {} }}",
        quoted(&file.to_string_lossy())
    );
    let config = place.config().with("kafka.properties_files", files);
    let connector = start(&config, &[]).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 1).await?;
    let rotated = "another-s3cret";
    place
        .provider
        .rule(|rules| rotated.clone_into(&mut rules.secret));
    connector.prints(&["lost: PH0604"], 2 * SOON).await?;
    std::fs::write(&file, rotated)?;
    connector.prints(&["resumed: "], 2 * SOON).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 2).await?;
    ensure!(place.consumer.read_to_end().await?.len() == 2);
    connector.stop().await?;
    let mut secrets = place.secrets();
    secrets.push(rotated.to_owned());
    is_clean(&connector.log(), &secrets)
}

/// As Java's producer has it: the login in a JAAS configuration, or since Kafka 4.1 beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debezium_configurations_sign_in_unchanged() -> Result<()> {
    let mut place = Place::new("oauth_debezium").await?;
    let class = "org.apache.kafka.common.security.oauthbearer";
    let module = format!("{class}.OAuthBearerLoginModule required");
    let handler = format!("{class}.OAuthBearerLoginCallbackHandler");
    let root = place.provider.root();
    let within = json!({
        "sasl.jaas.config": format!(
            "{module} clientId=\"{CLIENT}\" clientSecret=\"{SECRET}\" scope=\"{SCOPE}\" \
             ssl.truststore.type=\"PEM\" ssl.truststore.location=\"{}\";",
            root.display()
        ),
        "sasl.oauthbearer.token.endpoint.url": place.provider.token_url(),
    });
    let beside = json!({
        "sasl.jaas.config": format!("{module};"),
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": SCOPE,
        "sasl.oauthbearer.token.endpoint.url": place.provider.plain_token_url(),
    });
    for (mut login, n) in [(within, 1), (beside, 2)] {
        login["security.protocol"] = LISTENER.into();
        login["sasl.mechanism"] = "OAUTHBEARER".into();
        login["sasl.login.callback.handler.class"] = handler.clone().into();
        let connector = start_debezium(&place.fixture, &login, &[]).await?;
        one_event_arrives(&place.fixture, &mut place.consumer, n).await?;
        connector.stop().await?;
        is_clean(&connector.log(), &place.secrets())?;
    }
    Ok(())
}
