//! What a connector's file takes from elsewhere, such as `${file:…}`: looked up again at every connect, so that a password
//! can be rotated under a running process.
//!
//! The texts of the files are kept as they were at the start: only what they refer to is read again, never half of an edit.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use debezium::NativeConfig;
use tracing::{debug, warn};

use crate::config::{Properties, Secret, Source};
use crate::connect_file::{ConnectFiles, Outside, Texts};

/// A connector's file, and what was last found where it points to.
#[derive(Clone, PartialEq)]
pub struct ConnectSecrets {
    files: ConnectFiles,
    texts: Texts,
    paths: Vec<PathBuf>,
    known: Known,
    is_told: bool,
}

/// The values that change when somebody rotates them.
#[derive(Clone, Default, PartialEq)]
struct Known {
    user: String,
    password: Option<String>,
    kafka: BTreeMap<String, String>,
}

impl ConnectSecrets {
    /// What `native` was made of, and where it was looked for.
    pub(crate) fn new(
        files: ConnectFiles,
        texts: Texts,
        outside: Outside,
        native: &NativeConfig,
    ) -> Self {
        Self {
            files,
            texts,
            paths: outside.into_paths(),
            known: Known::of(native),
            is_told: false,
        }
    }

    /// The files that the connector's file and the worker's point to.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Looks again, and puts the database's login in the place of what it was. A value that the environment or `--set` gave
    /// stays. Where nothing can be found now, everything stays: it may be just about to be replaced, and the server judges.
    pub(crate) fn renew_source(&mut self, source: &mut Source) {
        let Some(now) = self.look() else {
            if !std::mem::replace(&mut self.is_told, true) {
                warn!(
                    "what the connector's file refers to cannot be read now; the values read before are used"
                );
            }
            return;
        };
        self.is_told = false;
        let before = &mut self.known;
        if source.user.as_deref() == Some(before.user.as_str()) && now.user != before.user {
            source.user = Some(now.user.clone());
        }
        let password = source.password.as_ref().map(Secret::reveal);
        if password == before.password.as_deref() && now.password != before.password {
            source.password = now.password.clone().map(Secret::new);
            debug!("the database's password was rotated");
        }
        (before.user, before.password) = (now.user, now.password);
    }

    /// Looks again, and gives those of Kafka's properties that have changed. One that the environment or `--set` gave is none
    /// of them.
    pub(crate) fn changed_properties(&self, given: &Properties) -> Vec<(String, String)> {
        let Some(now) = self.look() else {
            return Vec::new();
        };
        let has_changed = |(name, value): &(String, String)| {
            let before = self.known.kafka.get(name).map(String::as_str);
            before != Some(value) && given.get(name) == before
        };
        now.kafka.into_iter().filter(has_changed).collect()
    }

    fn look(&self) -> Option<Known> {
        let reading = self.files.interpret(&self.texts, &Outside::default());
        let now = Known::of(reading.ok()?.native.as_ref()?);
        (!now.lacks_what(&self.known)).then_some(now)
    }
}

impl Known {
    fn of(native: &NativeConfig) -> Self {
        let password = native.source.password.as_ref();
        let shown = native.kafka.properties.iter();
        let shown = shown.map(|(name, value)| (name.clone(), value.clone()));
        let secret = native.kafka.secrets.iter();
        let secret = secret.map(|(name, value)| (name.clone(), value.expose().to_owned()));
        Self {
            user: native.source.user.clone(),
            password: password.map(|password| password.expose().to_owned()),
            kafka: shown.chain(secret).collect(),
        }
    }

    /// Whether a reference stands where a value was: what cannot be looked up stays as it is written, as in Connect.
    fn lacks_what(&self, before: &Self) -> bool {
        let is_lost = |now: &str, before: &str| now.contains("${") && !before.contains("${");
        let password = (self.password.as_deref()).zip(before.password.as_deref());
        let kafka = self.kafka.iter();
        is_lost(&self.user, &before.user)
            || password.is_some_and(|(now, before)| is_lost(now, before))
            || kafka
                .filter_map(|(name, now)| Some((now, before.kafka.get(name)?)))
                .any(|(now, before)| is_lost(now, before))
    }
}

impl fmt::Debug for ConnectSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectSecrets")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Request, load};

    const CONNECTOR: &str = "\
name=orders
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
database.hostname=db
database.user=${file:FOLDER/db:user}
database.password=${file:FOLDER/db:password}
database.dbname=orders
topic.prefix=orders
table.include.list=public.outbox
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
producer.override.security.protocol=SASL_PLAINTEXT
producer.override.sasl.mechanism=PLAIN
producer.override.sasl.jaas.config=x.PlainLoginModule required username=\"${file:FOLDER/kafka:user}\" password=\"${file:FOLDER/kafka:password}\";
transforms=outbox
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
";

    fn put(folder: &Path, name: &str, user: &str, password: &str) {
        let text = format!("user={user}\npassword={password}\n");
        std::fs::write(folder.join(name), text).expect("written");
    }

    fn loaded(folder: &Path, sets: &[&str]) -> Config {
        put(folder, "db", "u1", "db-one");
        put(folder, "kafka", "k1", "kafka-one");
        let file = folder.join("connector.properties");
        let text = CONNECTOR.replace("FOLDER", &folder.display().to_string());
        std::fs::write(&file, text).expect("written");
        let request = Request {
            file,
            connect: ConnectFiles {
                brokers: Some("kafka:9092".to_owned()),
                ..ConnectFiles::default()
            },
            set: sets.iter().map(|set| (*set).to_owned()).collect(),
            ..Request::default()
        };
        load(&request).expect("legal")
    }

    fn password(config: &Config) -> Option<&str> {
        config
            .pipelines
            .first()?
            .source
            .password
            .as_ref()
            .map(Secret::reveal)
    }

    fn renew(config: &mut Config) {
        config.pipelines.first_mut().expect("one").renew_secrets();
    }

    fn changed(config: &Config) -> Vec<(String, String)> {
        let pipeline = config.pipelines.first().expect("one");
        let secrets = pipeline.connect_secrets.as_ref().expect("a connector");
        secrets.changed_properties(&pipeline.kafka.properties)
    }

    #[test]
    fn what_was_rotated_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = loaded(folder.path(), &[]);
        assert_eq!(password(&config), Some("db-one"));
        put(folder.path(), "db", "u2", "db-two");
        renew(&mut config);
        let source = &config.pipelines.first().expect("one").source;
        assert_eq!(source.user.as_deref(), Some("u2"));
        assert_eq!(password(&config), Some("db-two"));
        assert_eq!(changed(&config), []);
        put(folder.path(), "kafka", "k2", "kafka-two");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            pair("sasl.password", "kafka-two"),
            pair("sasl.username", "k2"),
        ];
        assert_eq!(changed(&config), expected);
    }

    #[test]
    fn files_that_are_pointed_to_are_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = loaded(folder.path(), &[]);
        let kafka = crate::settings::kafka_config(config.pipelines.first().expect("one"));
        assert_eq!(
            kafka.secret_files,
            [folder.path().join("db"), folder.path().join("kafka")]
        );
        put(folder.path(), "kafka", "k1", "kafka-two");
        let read = kafka.secrets.expect("a reader");
        assert_eq!(
            read(),
            [("sasl.password".to_owned(), "kafka-two".to_owned())]
        );
    }

    #[test]
    fn a_file_that_is_gone_leaves_what_was_read_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = loaded(folder.path(), &[]);
        std::fs::remove_file(folder.path().join("db")).expect("removed");
        renew(&mut config);
        assert_eq!(password(&config), Some("db-one"));
        put(folder.path(), "db", "u1", "db-two");
        renew(&mut config);
        assert_eq!(password(&config), Some("db-two"));
    }

    #[test]
    fn a_value_given_beside_the_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let sets = [
            "source.password=given",
            "kafka.properties.sasl.password=given",
        ];
        let mut config = loaded(folder.path(), &sets);
        assert_eq!(password(&config), Some("given"));
        put(folder.path(), "db", "u1", "db-two");
        put(folder.path(), "kafka", "k1", "kafka-two");
        renew(&mut config);
        assert_eq!(password(&config), Some("given"));
        assert_eq!(changed(&config), []);
    }

    #[test]
    fn nothing_of_it_shows() {
        let folder = tempfile::tempdir().expect("a folder");
        let shown = format!("{:?}", loaded(folder.path(), &[]));
        assert!(!shown.contains("-one"), "{shown}");
    }
}
