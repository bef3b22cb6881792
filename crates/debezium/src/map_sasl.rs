//! From Java's login modules to librdkafka's names.

use crate::finding::Verdict;
use crate::jaas::{self, Module};
use crate::map_kafka::{Options, ProducerOption};
use crate::map_login::{refuse, say, secret, set};
use crate::native::{Kafka, Secret};
use crate::reader::Reader;

/// The client of a provider of tokens since Kafka 4.1; before, it stands in the login module.
const CLIENT_ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";

/// Java fetches a ticket when the one before is nearly over, but not more often than this; librdkafka fetches one each time
/// this is over. So a small number, harmless there, would keep the realm busy here.
const RELOGIN_MS: (i64, i64) = (10_000, 86_400_000);

/// Maps one of `sasl.*`. What stands beside a login module wins over what stands in it, as in Java: it comes later by name.
pub(crate) fn sasl(reader: &mut Reader, options: &Options, name: &str, kafka: &mut Kafka) {
    let Some(option) = options.get(name) else {
        return;
    };
    match name {
        "sasl.mechanism" => mechanism(reader, option, kafka),
        "sasl.jaas.config" => jaas_config(reader, options, option, kafka),
        "sasl.client.callback.handler.class"
        | "sasl.login.callback.handler.class"
        | "sasl.login.class" => callback(reader, option),
        "sasl.oauthbearer.token.endpoint.url" | "sasl.oauthbearer.scope" => {
            set(reader, option, kafka, name, &option.text)
        }
        CLIENT_ID => set(
            reader,
            option,
            kafka,
            "sasl.oauthbearer.client.id",
            &option.text,
        ),
        CLIENT_SECRET => secret(reader, option, kafka, "sasl.oauthbearer.client.secret"),
        "sasl.oauthbearer.jwt.retriever.class" => retriever(reader, option),
        "sasl.oauthbearer.header.urlencode" => match option.text.as_str() {
            "false" => say(reader, option, Verdict::Ignored, "so it is here"),
            _ => refuse(
                reader,
                option,
                "has no counterpart: id and secret are sent as they are; write false",
            ),
        },
        "sasl.kerberos.service.name" | "sasl.kerberos.min.time.before.relogin"
            if !is_kerberos(options) =>
        {
            say(reader, option, Verdict::Ignored, "belongs to Kerberos")
        }
        "sasl.kerberos.service.name" => set(reader, option, kafka, name, &option.text),
        "sasl.kerberos.min.time.before.relogin" => relogin(reader, option, kafka),
        _ => {}
    }
}

fn is_kerberos(options: &Options) -> bool {
    options
        .get("sasl.mechanism")
        .is_some_and(|mechanism| mechanism.text == "GSSAPI")
}

fn relogin(reader: &mut Reader, option: &ProducerOption, kafka: &mut Kafka) {
    let name = "sasl.kerberos.min.time.before.relogin";
    let Ok(given) = option.text.parse::<i64>() else {
        return refuse(reader, option, "is no whole number; write one");
    };
    let within = given.clamp(RELOGIN_MS.0, RELOGIN_MS.1);
    let note = match within == given {
        true => String::new(),
        false => format!(", at {within}"),
    };
    let text = format!("kafka.properties.\"{name}\": how often a ticket is fetched{note}");
    say(reader, option, Verdict::Mapped, &text);
    let properties = &mut kafka.properties;
    properties.insert(name.to_owned(), within.to_string());
}

fn mechanism(reader: &mut Reader, option: &ProducerOption, kafka: &mut Kafka) {
    match option.text.as_str() {
        "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" | "GSSAPI" => {
            set(reader, option, kafka, "sasl.mechanism", &option.text)
        }
        "OAUTHBEARER" => {
            kafka
                .properties
                .insert("sasl.oauthbearer.method".to_owned(), "oidc".to_owned());
            set(reader, option, kafka, "sasl.mechanism", &option.text);
        }
        "AWS_MSK_IAM" => refuse(
            reader,
            option,
            "is Amazon's own, in Java; use SCRAM or a client certificate",
        ),
        _ => refuse(
            reader,
            option,
            "is no mechanism that is known here; write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI",
        ),
    }
}

fn callback(reader: &mut Reader, option: &ProducerOption) {
    let standard = [
        "OAuthBearerLoginCallbackHandler",
        "SaslClientCallbackHandler",
    ];
    follow_standard(reader, option, &standard);
}

fn retriever(reader: &mut Reader, option: &ProducerOption) {
    let standard = ["ClientCredentialsJwtRetriever", "DefaultJwtRetriever"];
    follow_standard(reader, option, &standard);
}

fn follow_standard(reader: &mut Reader, option: &ProducerOption, standard: &[&str]) {
    match standard.iter().any(|class| option.text.ends_with(class)) {
        true => say(
            reader,
            option,
            Verdict::Ignored,
            "the standard one; librdkafka does the same by itself",
        ),
        false => refuse(
            reader,
            option,
            "cannot be followed: a Java class; use PLAIN, SCRAM or OAUTHBEARER with client id and secret",
        ),
    }
}

fn jaas_config(reader: &mut Reader, options: &Options, option: &ProducerOption, kafka: &mut Kafka) {
    let module = match jaas::parse(&option.text) {
        Ok(module) => module,
        Err(why) => {
            return refuse(
                reader,
                option,
                &format!("{why}; write CLASS required username=\"…\" password=\"…\";"),
            );
        }
    };
    let mapped = match module.class.rsplit('.').next().unwrap_or_default() {
        "PlainLoginModule" | "ScramLoginModule" => pair(
            &module,
            ["username", "password"],
            ["sasl.username", "sasl.password"],
            kafka,
        ),
        "OAuthBearerLoginModule" => client(&module, options, kafka),
        "Krb5LoginModule" => keytab(&module, kafka),
        _ => Err(
            "names a login module that is not known here; the known ones are PlainLoginModule, \
                ScramLoginModule, OAuthBearerLoginModule and Krb5LoginModule"
                .to_owned(),
        ),
    };
    match mapped {
        Err(why) => refuse(reader, option, &why),
        Ok(_) if !options.contains_key("sasl.mechanism") => refuse(
            reader,
            option,
            "stands without sasl.mechanism, whose default is Kerberos; write PLAIN, SCRAM-SHA-512 or GSSAPI there",
        ),
        Ok(names) if names.is_empty() => say(
            reader,
            option,
            Verdict::Mapped,
            "the login stands beside it",
        ),
        Ok(names) => say(
            reader,
            option,
            Verdict::Mapped,
            &format!("kafka.properties: {}", names.join(", ")),
        ),
    }
}

/// A name and a secret: what they are called there and here.
fn pair(
    module: &Module,
    theirs: [&str; 2],
    ours: [&'static str; 2],
    kafka: &mut Kafka,
) -> Result<Vec<&'static str>, String> {
    let [Some(name), Some(text)] = theirs.map(|option| module.options.get(option)) else {
        return Err(format!("has no {} or no {}; add it", theirs[0], theirs[1]));
    };
    kafka.properties.insert(ours[0].to_owned(), name.clone());
    // A reference that stood for the whole text does not stand for the secret alone.
    let secret = Secret::new(text, "");
    kafka.secrets.insert(ours[1].to_owned(), secret);
    Ok(ours.to_vec())
}

/// The client of a provider of tokens, what it asks for, and whom it trusts.
fn client(
    module: &Module,
    options: &Options,
    kafka: &mut Kafka,
) -> Result<Vec<&'static str>, String> {
    let beside = [CLIENT_ID, CLIENT_SECRET];
    let mut names = match beside.iter().all(|name| options.contains_key(*name)) {
        true => Vec::new(),
        false => pair(
            module,
            ["clientId", "clientSecret"],
            [
                "sasl.oauthbearer.client.id",
                "sasl.oauthbearer.client.secret",
            ],
            kafka,
        )?,
    };
    let mut also = |name: &'static str, text: &String| {
        kafka.properties.insert(name.to_owned(), text.clone());
        names.push(name);
    };
    if let Some(scope) = module.options.get("scope") {
        also("sasl.oauthbearer.scope", scope);
    }
    if let Some(store) = module.options.get("ssl.truststore.location") {
        let kind = module.options.get("ssl.truststore.type");
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("PEM")) {
            return Err(
                "has ssl.truststore.location, a Java key store; make a PEM file of it, and write \
                ssl.truststore.type=\"PEM\" beside it"
                    .to_owned(),
            );
        }
        also("https.ca.location", store);
    }
    Ok(names)
}

fn keytab(module: &Module, kafka: &mut Kafka) -> Result<Vec<&'static str>, String> {
    let option = |name: &str| module.options.get(name).cloned();
    let by_keytab = option("useKeyTab").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let (true, Some(keytab), Some(principal)) = (by_keytab, option("keyTab"), option("principal"))
    else {
        return Err(
            "does not have useKeyTab=true, keyTab=\"…\" and principal=\"…\"; add them: only tickets by a keytab are followed"
                .to_owned(),
        );
    };
    let mut names = Vec::new();
    let mut take = |name: &'static str, text: String| {
        kafka.properties.insert(name.to_owned(), text);
        names.push(name);
    };
    take("sasl.kerberos.keytab", keytab);
    take("sasl.kerberos.principal", principal);
    if let Some(service) = option("serviceName") {
        take("sasl.kerberos.service.name", service);
    }
    Ok(names)
}
