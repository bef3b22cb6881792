//! From Java's key stores to librdkafka's files and names.

use crate::finding::Verdict;
use crate::map_kafka::{Options, ProducerOption};
use crate::map_sasl::sasl;
use crate::map_source::shell_word;
use crate::native::Kafka;
use crate::reader::Reader;

/// Maps `ssl.*` and `sasl.*`.
pub(crate) fn login(reader: &mut Reader, options: &Options, kafka: &mut Kafka) {
    for (name, option) in options {
        match name.as_str() {
            name if name.starts_with("sasl.") => sasl(reader, options, name, kafka),
            "ssl.endpoint.identification.algorithm" => endpoint(reader, option, kafka),
            "ssl.truststore.location" => truststore(reader, options, option, kafka),
            "ssl.truststore.certificates" => set(reader, option, kafka, "ssl.ca.pem", &option.text),
            "ssl.keystore.location" => keystore(reader, options, option, kafka),
            "ssl.keystore.key" => secret(reader, option, kafka, "ssl.key.pem"),
            "ssl.keystore.certificate.chain" => {
                set(reader, option, kafka, "ssl.certificate.pem", &option.text)
            }
            "ssl.key.password" => secret(reader, option, kafka, "ssl.key.password"),
            "ssl.keystore.password" => say(
                reader,
                option,
                Verdict::Mapped,
                "goes with ssl.keystore.location",
            ),
            "ssl.truststore.password" => say(
                reader,
                option,
                Verdict::Ignored,
                "certificates of authorities need no password",
            ),
            "ssl.truststore.type" | "ssl.keystore.type" => store_type(reader, option),
            _ => {}
        }
    }
    complete(reader, options);
}

/// With `security.protocol=SASL_…`, mechanism and login have to be there: Java's default is Kerberos.
fn complete(reader: &mut Reader, options: &Options) {
    let Some(protocol) = options.get("security.protocol") else {
        return;
    };
    if !protocol.text.to_ascii_uppercase().starts_with("SASL_") {
        return;
    }
    for needed in ["sasl.mechanism", "sasl.jaas.config"] {
        if !options.contains_key(needed) {
            return refuse(
                reader,
                protocol,
                &format!(
                    "stands without {needed} beside it; write it with the same beginning of its key"
                ),
            );
        }
    }
}

pub(crate) fn say(reader: &mut Reader, option: &ProducerOption, verdict: Verdict, text: &str) {
    reader.say_in(option.file, &option.key, verdict, text);
}

pub(crate) fn refuse(reader: &mut Reader, option: &ProducerOption, text: &str) {
    reader.refuse_in(option.file, &option.key, text);
}

pub(crate) fn set(
    reader: &mut Reader,
    option: &ProducerOption,
    kafka: &mut Kafka,
    name: &str,
    value: &str,
) {
    say(
        reader,
        option,
        Verdict::Mapped,
        &format!("kafka.properties.\"{name}\""),
    );
    kafka.properties.insert(name.to_owned(), value.to_owned());
}

pub(crate) fn secret(reader: &mut Reader, option: &ProducerOption, kafka: &mut Kafka, name: &str) {
    say(
        reader,
        option,
        Verdict::Mapped,
        &format!("kafka.properties.\"{name}\""),
    );
    kafka.secrets.insert(name.to_owned(), option.secret.clone());
}

/// Java's empty text switches the check off; librdkafka has a word for it.
fn endpoint(reader: &mut Reader, option: &ProducerOption, kafka: &mut Kafka) {
    let name = "ssl.endpoint.identification.algorithm";
    match option.text.to_ascii_lowercase().as_str() {
        "" => set(reader, option, kafka, name, "none"),
        "https" => set(reader, option, kafka, name, "https"),
        _ => refuse(
            reader,
            option,
            "is none of its words; write https, or nothing to leave host names unchecked",
        ),
    }
}

fn store_type(reader: &mut Reader, option: &ProducerOption) {
    match option.text.to_ascii_uppercase().as_str() {
        "JKS" | "PKCS12" | "PEM" => say(reader, option, Verdict::Mapped, "how the store is read"),
        _ => refuse(
            reader,
            option,
            "is no kind of store that is known here; write JKS, PKCS12 or PEM",
        ),
    }
}

#[derive(PartialEq)]
enum Store {
    Pem,
    Pkcs12,
    Jks,
}

/// The kind of a store: by what is said, else by its name, else Java's default.
fn kind(options: &Options, type_key: &str, path: &str) -> Store {
    let said = options
        .get(type_key)
        .map(|option| option.text.to_ascii_uppercase());
    let lower = path.to_ascii_lowercase();
    match said.as_deref() {
        Some("PEM") => Store::Pem,
        Some("PKCS12") => Store::Pkcs12,
        // Java reads PKCS#12 stores under this name as well.
        _ if [".p12", ".pfx", ".pkcs12"]
            .iter()
            .any(|end| lower.ends_with(end)) =>
        {
            Store::Pkcs12
        }
        _ => Store::Jks,
    }
}

fn truststore(reader: &mut Reader, options: &Options, option: &ProducerOption, kafka: &mut Kafka) {
    let path = shell_word(&option.text);
    match kind(options, "ssl.truststore.type", &option.text) {
        Store::Pem => set(reader, option, kafka, "ssl.ca.location", &option.text),
        Store::Pkcs12 => refuse(
            reader,
            option,
            &format!(
                "is a PKCS#12 store, which cannot be read for authorities; make a PEM file with `openssl pkcs12 \
                    -in {path} -nokeys -out ca.pem`, and write its name here and ssl.truststore.type=PEM beside \
                    it"
            ),
        ),
        Store::Jks => refuse(
            reader,
            option,
            &format!(
                "is a Java key store; make a PEM file with `keytool -importkeystore -srckeystore {path} \
                    -destkeystore ca.p12 -deststoretype PKCS12` and `openssl pkcs12 -in ca.p12 -nokeys -out \
                    ca.pem`, and write its name here and ssl.truststore.type=PEM beside it"
            ),
        ),
    }
}

fn keystore(reader: &mut Reader, options: &Options, option: &ProducerOption, kafka: &mut Kafka) {
    let path = shell_word(&option.text);
    match kind(options, "ssl.keystore.type", &option.text) {
        Store::Pem => {
            kafka
                .properties
                .insert("ssl.certificate.location".to_owned(), option.text.clone());
            set(reader, option, kafka, "ssl.key.location", &option.text);
            say(
                reader,
                option,
                Verdict::Mapped,
                "kafka.properties.\"ssl.key.location\" and \"ssl.certificate.location\"",
            );
        }
        Store::Pkcs12 => {
            set(reader, option, kafka, "ssl.keystore.location", &option.text);
            if let Some(password) = options.get("ssl.keystore.password") {
                kafka
                    .secrets
                    .insert("ssl.keystore.password".to_owned(), password.secret.clone());
            }
        }
        Store::Jks => refuse(
            reader,
            option,
            &format!(
                "is a Java key store; make a PKCS#12 store with `keytool -importkeystore -srckeystore {path} \
                    -destkeystore client.p12 -deststoretype PKCS12`, and write its name here and \
                    ssl.keystore.type=PKCS12 beside it"
            ),
        ),
    }
}
