//! GSSAPI: tickets of a real key distribution centre, which librdkafka has `kinit` fetch with a keytab.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::consumer::Consumer;
use e2e::fixture::{Fixture, SOON};
use e2e::servers::Servers;
use e2e::wait;
use e2e::writer::Load;
use serde_json::json;
use xtask::kafka::{Kafka, KafkaOptions};

use crate::kdc::{CLIENT, Kdc, REALM, SERVICE};
use crate::{
    LISTENER, everything_arrived_once, exactly_once_arrives, is_refused, one_event_arrives,
    outages, start, start_debezium, through,
};

/// How long the broker lets a connection live before it wants to see a ticket again.
const SESSION_MS: &str = "3000";

/// Time between two calls of `kinit`; the tickets of [`SHORT`] end in between only if it fails.
const RELOGIN_MS: &str = "4000";
const SHORT: &str = "10s";
const LONG: &str = "1h";

/// So many tickets more show that those before are long over.
const RENEWALS: usize = 8;
const RENEWED_WITHIN: Duration = Duration::from_secs(90);

/// Java's, for brokers and for the connectors of Debezium.
const MODULE: &str = "com.sun.security.auth.module.Krb5LoginModule";

struct Place {
    kdc: Kdc,
    fixture: Fixture,
    consumer: Consumer,
    krb5_conf: String,
    cache: String,
}

impl Place {
    async fn new(name: &str, lifetime: &str) -> Result<Self> {
        let (kdc, kafka) = tokio::task::block_in_place(|| {
            let kdc = Kdc::start(lifetime)?;
            let kafka = guarded(&kdc)?;
            anyhow::Ok((kdc, kafka))
        })?;
        let fixture = Fixture::on(Servers::with_own_kafka(kafka)?, name).await?;
        Ok(Self {
            consumer: fixture.consumer(&["order"])?,
            krb5_conf: kdc.krb5_conf().to_string_lossy().into_owned(),
            cache: kdc.cache(name).to_string_lossy().into_owned(),
            kdc,
            fixture,
        })
    }

    fn config(&self) -> Config {
        let keytab = self.kdc.keytab(CLIENT);
        let properties = [
            ("sasl.mechanism", "GSSAPI"),
            ("sasl.kerberos.service.name", "kafka"),
            ("sasl.kerberos.principal", &format!("{CLIENT}@{REALM}")),
            ("sasl.kerberos.keytab", &keytab.to_string_lossy()),
            ("sasl.kerberos.min.time.before.relogin", RELOGIN_MS),
        ];
        through(&self.fixture, &properties)
    }

    async fn is_renewed(&self) -> Result<()> {
        let enough = self.kdc.tickets(CLIENT)? + RENEWALS;
        wait::until_true("tickets to be renewed", RENEWED_WITHIN, async || {
            Ok(self.kdc.tickets(CLIENT)? >= enough)
        })
        .await
    }
}

/// The realm, and where to keep tickets.
fn environment<'a>(krb5_conf: &'a str, cache: &'a str) -> [(&'a str, &'a str); 2] {
    [("KRB5_CONFIG", krb5_conf), ("KRB5CCNAME", cache)]
}

/// A broker in the realm.
fn guarded(kdc: &Kdc) -> Result<Kafka> {
    let listener = "listener.name.sasl_plaintext.gssapi";
    let keytab = kdc.keytab(SERVICE);
    let properties = [
        ("sasl.enabled.mechanisms".to_owned(), "GSSAPI".to_owned()),
        ("sasl.kerberos.service.name".to_owned(), "kafka".to_owned()),
        (
            format!("{listener}.sasl.jaas.config"),
            format!(
                "{MODULE} required useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"{SERVICE}@{REALM}\";",
                keytab.display()
            ),
        ),
        (
            format!("{listener}.connections.max.reauth.ms"),
            SESSION_MS.to_owned(),
        ),
    ];
    Kafka::start(KafkaOptions {
        properties: properties.to_vec(),
        listeners: vec![LISTENER.to_owned()],
        heap_mb: 256,
        java: vec![format!(
            "-Djava.security.krb5.conf={}",
            kdc.krb5_conf().display()
        )],
        ..KafkaOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_arrive_with_a_ticket_and_a_wrong_keytab_is_told() -> Result<()> {
    let mut place = Place::new("kerberos", LONG).await?;
    let (krb5_conf, cache) = (place.krb5_conf.clone(), place.cache.clone());
    let login = (&place.config(), &environment(&krb5_conf, &cache)[..]);
    let connector = start(login.0, login.1).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 1).await?;
    connector.stop().await?;
    ensure!(place.kdc.tickets(CLIENT)? > 0);
    exactly_once_arrives(&place.fixture, &mut place.consumer, login, 2).await?;

    // Not the tickets of before: they would still be good.
    let elsewhere = place.kdc.cache("elsewhere").to_string_lossy().into_owned();
    let environment = environment(&krb5_conf, &elsewhere);
    let old = place.kdc.keytab("old");
    std::fs::copy(place.kdc.keytab(CLIENT), &old)?;
    place.kdc.change_keys(CLIENT)?;
    for keytab in [old, place.kdc.keytab("missing")] {
        let keytab = keytab.to_string_lossy().into_owned();
        let config = place.config().with_kafka("sasl.kerberos.keytab", &keytab);
        let words = [
            "PH0604",
            "GSSAPI",
            "Kerberos ticket refresh failed",
            &keytab,
        ];
        is_refused(&config, &environment, &words).await?;
    }
    let connector = start(&place.config(), &environment).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 4).await?;
    connector.stop().await
}

/// As Java's producer has it: keytab and principal in a JAAS configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debezium_configuration_signs_in_unchanged() -> Result<()> {
    let mut place = Place::new("kerberos_debezium", LONG).await?;
    let keytab = place.kdc.keytab(CLIENT);
    let login = json!({
        "security.protocol": LISTENER,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": format!(
            "{MODULE} required useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"{CLIENT}@{REALM}\";",
            keytab.display()
        ),
    });
    let environment = environment(&place.krb5_conf, &place.cache);
    let connector = start_debezium(&place.fixture, &login, &environment).await?;
    one_event_arrives(&place.fixture, &mut place.consumer, 1).await?;
    connector.stop().await
}

/// Tickets end several times under load, then the realm gives no more until the last one is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_are_renewed_under_load_and_without_a_ticket_events_wait() -> Result<()> {
    let mut place = Place::new("kerberos_renewed", SHORT).await?;
    let environment = environment(&place.krb5_conf, &place.cache);
    let connector = start(&place.config(), &environment).await?;
    let load = Load::steady(40).start(&place.fixture).await?;
    place.is_renewed().await?;
    ensure!(outages(&connector) == (0, 0), "{}", connector.log());

    place.kdc.allow(CLIENT, false)?;
    let told = ["lost: PH0604", "GSSAPI", "Kerberos ticket refresh failed"];
    connector.prints(&told, 2 * SOON).await?;
    ensure!(!connector.is_ready().await, "ready without a ticket");
    load.goes_on_for(100, SOON).await?;
    place.kdc.allow(CLIENT, true)?;
    connector.prints(&["resumed: "], 2 * SOON).await?;
    place.is_renewed().await?;

    everything_arrived_once(&place.fixture, &mut place.consumer, load).await?;
    ensure!(outages(&connector) == (1, 1), "{}", connector.log());
    connector.stop().await
}
