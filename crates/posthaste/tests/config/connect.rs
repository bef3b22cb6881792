//! `[connect]`, and a Debezium connector's own file as the configuration.

use std::path::{Path, PathBuf};

use posthaste::config::{Config, Pipeline, Request, load};
use posthaste::first_start::FirstStart;
use router::connect::DebeziumVersion;

use super::{Case, SMALLEST};

const CONNECT: &str = "[connect]\ntopic_prefix = \"orders\"\n";

/// A connector whose secrets stand in the file, so that any place may run this test.
const CONNECTOR: &str = r#"{ "name": "orders-outbox", "config": {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "database.hostname": "db",
    "database.user": "outbox_reader",
    "database.password": "hunter2",
    "database.dbname": "orders",
    "topic.prefix": "orders",
    "slot.name": "orders_outbox",
    "publication.name": "orders_pub",
    "publication.autocreate.mode": "disabled",
    "table.include.list": "public.outbox",
    "snapshot.mode": "no_data",
    "errors.tolerance": "all",
    "producer.override.linger.ms": "20",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter" } }"#;

fn connector(text: &str) -> Case {
    let mut case = Case::new("");
    case.request.file = case.file("connector.json", text.as_bytes());
    case.request.connect.brokers = Some("a:9092,b:9092".to_owned());
    case
}

fn only(config: &Config) -> &Pipeline {
    config.pipelines.first().expect("one pipeline")
}

#[test]
fn a_connect_table_takes_the_place_of_the_router() {
    let config = Case::with("", CONNECT).load().expect("legal");
    let connect = only(&config).connect.clone().expect("a connect table");
    assert_eq!(connect.topic_prefix, "orders");
    // No filter is given, so that the tables named are the captured ones.
    assert_eq!(connect.tables.names, only(&config).source.tables);
    let without = SMALLEST.replace("tables = [\"public.outbox\"]\n", "");
    let filter = format!("{CONNECT}[connect.tables]\ninclude = ['app\\..*']\n");
    let config = Case::new(&format!("{without}{filter}"))
        .load()
        .expect("legal");
    assert!(only(&config).source.tables.is_empty());
}

#[test]
fn a_connect_table_is_refused_where_it_contradicts() {
    for (added, words) in [
        (
            format!("{CONNECT}[router]\ntopic = \"a\"\n"),
            &["PH0109", "[connect] (line 10)", "[router] (line 12)"][..],
        ),
        (
            "[connect]\ntopic_perfix = \"a\"\n".to_owned(),
            &["PH0107", "connect.topic_perfix (line 11)", "topic_prefix"],
        ),
        (
            "[connect.event_router]\nroute_topic_regex = \"(\"\n".to_owned(),
            &["PH0121", "[connect]", "route_topic_regex"],
        ),
        (
            "[connect.tables]\ninclude = [\"app.outbox\"]\n".to_owned(),
            &["PH0109", "source.tables (line 6)", "public.outbox"],
        ),
    ] {
        let message = Case::with("", &added).refusal();
        for word in words {
            assert!(message.contains(word), "{word} in {message}");
        }
    }
    let message = Case::with("", CONNECT)
        .set("connect.topic_prefix=b")
        .refusal();
    assert!(message.contains("PH0105"), "{message}");
    let message = Case::with("", CONNECT)
        .variable("POSTHASTE__CONNECT__TOPIC_PREFIX", "b")
        .refusal();
    assert!(message.contains("below [connect] in the file"), "{message}");
}

#[test]
fn a_connectors_file_is_a_configuration() {
    let config = connector(CONNECTOR).load().expect("legal");
    let pipeline = only(&config);
    assert_eq!(pipeline.name, "orders-outbox");
    assert_eq!(pipeline.source.slot, "orders_outbox");
    let password = pipeline.source.password.as_ref().expect("a password");
    assert_eq!(password.reveal(), "hunter2");
    assert_eq!(pipeline.kafka.bootstrap_servers(), "a:9092,b:9092");
    assert_eq!(pipeline.kafka.properties.get("linger.ms"), Some("20"));
    assert_eq!(pipeline.kafka.client_id, "posthaste-orders-outbox");
    let connect = pipeline.connect.as_ref().expect("a connect table");
    assert!(connect.skip_errors);
    assert_eq!(connect.debezium_version, DebeziumVersion::default());
    let expected = FirstStart {
        after_debezium: true,
        publication_exists: true,
        ..FirstStart::default()
    };
    assert_eq!(pipeline.first_start, expected);
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn overrides_lie_over_a_connectors_file() {
    let mut case = connector(CONNECTOR)
        .set("source.slot=other")
        .variable("POSTHASTE__KAFKA__PROPERTIES__LINGER_MS", "5");
    case.request.create = true;
    case.request.connect.version = Some(DebeziumVersion::new(3, 1, 3));
    let config = case.load().expect("legal");
    let pipeline = only(&config);
    assert_eq!(pipeline.source.slot, "other");
    assert!(pipeline.source.create);
    assert_eq!(pipeline.kafka.properties.get("linger.ms"), Some("5"));
    let connect = pipeline.connect.as_ref().expect("a connect table");
    assert_eq!(connect.debezium_version, DebeziumVersion::new(3, 1, 3));
}

#[test]
fn every_refused_key_of_a_connector_is_named() {
    let text = CONNECTOR
        .replace("\"no_data\"", "\"never\"")
        .replace("slot.name", "slot.nmae");
    let message = connector(&text).refusal();
    for word in [
        "PH0122",
        "2 keys",
        "snapshot.mode (line 13)",
        "slot.nmae (line 9)",
    ] {
        assert!(message.contains(word), "{word} in {message}");
    }
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn warnings_of_a_connectors_file_are_kept_to_be_logged() {
    let text = CONNECTOR.replace("\"snapshot.mode\": \"no_data\",\n", "");
    let config = connector(&text).load().expect("legal");
    let remarks = config.remarks.join("\n");
    assert!(remarks.contains("snapshot.mode: "), "{remarks}");
    assert!(only(&config).first_start.snapshot);
}

#[test]
fn options_of_a_connectors_file_are_refused_beside_ours() {
    let mut case = Case::new(SMALLEST);
    case.request.connect.brokers = Some("a:9092".to_owned());
    let message = case.refusal();
    assert!(message.contains("PH0109: --brokers"), "{message}");
    case.request.connect.brokers = None;
    case.request.connect.worker = Some("w".into());
    assert!(case.refusal().contains("PH0109: --worker"));
}

#[test]
fn the_effective_configuration_is_one_that_does_the_same() {
    for case in [connector(CONNECTOR), Case::with("", CONNECT)] {
        let printed = posthaste::config::effective(&case.request).expect("legal");
        assert!(!printed.contains("hunter2"), "{printed}");
        let again = Case::new(&printed).load().expect("its own output");
        let (first, again) = (case.load().expect("legal"), again);
        assert_eq!(only(&first).connect, only(&again).connect, "{printed}");
        assert_eq!(only(&first).name, only(&again).name);
        assert_eq!(only(&first).source.tables, only(&again).source.tables);
    }
}

/// What `convert` prints, read as a configuration, is what `run` makes of the connector's own file.
#[test]
fn a_converted_file_is_the_same_configuration() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../debezium/tests/cases");
    let mut count = 0;
    for entry in std::fs::read_dir(cases).expect("the cases") {
        let folder = entry.expect("an entry").path();
        if let Some(file) = connector_in(&folder) {
            count += usize::from(check_converted(file));
        }
    }
    assert!(count >= 5, "{count} cases could be followed");
}

fn connector_in(folder: &Path) -> Option<PathBuf> {
    let names = ["connector.json", "connector.properties", "connector.yaml"];
    let mut files = names.into_iter().map(|name| folder.join(name));
    files.find(|file| file.exists())
}

/// False for one that is refused.
fn check_converted(file: PathBuf) -> bool {
    let mut request = Request {
        file,
        ..Request::default()
    };
    request.connect.brokers = Some("a:9092".to_owned());
    let mut files = request.connect.clone();
    files.file.clone_from(&request.file);
    let reading = files.read().expect("a configuration");
    let Some(native) = reading.native else {
        assert!(load(&request).is_err(), "{:?}", request.file);
        return false;
    };
    let direct = load(&request).unwrap_or_else(|problem| panic!("{:?}: {problem}", request.file));
    // Files with secrets are not on this machine.
    let text = native.to_toml();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("password_file"));
    let case = Case::new(&lines.collect::<Vec<_>>().join("\n"));
    let converted = case
        .load()
        .unwrap_or_else(|problem| panic!("{problem} in\n{text}"));
    let (direct, converted) = (only(&direct), only(&converted));
    assert_eq!(direct.connect, converted.connect, "{text}");
    let (mut direct, converted) = (direct.source.clone(), converted.source.clone());
    direct.password.clone_from(&converted.password);
    assert_eq!(direct, converted, "{text}");
    true
}
