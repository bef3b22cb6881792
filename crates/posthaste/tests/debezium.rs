//! `posthaste debezium check` and `convert` as their users see them: output and exit status of the built binary, for the six
//! configurations of the contract with Debezium, whose secrets stand in files and variables and must show nowhere.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// What every secret of these tests contains.
const SECRET: &str = "s3cret";

/// A connector's file in a folder of its own, with what it refers to.
struct Case {
    folder: TempDir,
    file: String,
    arguments: Vec<String>,
}

impl Case {
    /// One of the cases of the crate that reads them.
    fn new(case: &str) -> Self {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../debezium/tests/cases");
        let from = cases.join(case);
        let name = ["connector.json", "connector.properties", "connector.yaml"]
            .into_iter()
            .find(|name| from.join(name).exists())
            .expect("a connector's file");
        let text = std::fs::read_to_string(from.join(name)).expect("the case");
        Self::with(name, &text)
    }

    fn with(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().to_str().expect("a path of text").to_owned();
        let mut text = text.to_owned();
        for path in ["/opt/connect/secrets", "/run/secrets", "/mnt/secrets"] {
            text = text.replace(path, &format!("{root}{path}"));
        }
        let case = Self {
            file: format!("{root}/{name}"),
            arguments: Vec::new(),
            folder,
        };
        case.write(name, &text);
        case.write(
            "opt/connect/secrets/orders.properties",
            "db.password=s3cret-file\n",
        );
        case.write("run/secrets/fleet", "pw=s3cret-file\n");
        case.write("mnt/secrets/payments/password", "s3cret-file");
        case.write("k8s/kafka/inventory-db/password", "s3cret-file");
        case
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    fn with_brokers(self) -> Self {
        self.with_arguments(&["--brokers", "kafka:9092"])
    }

    /// Runs the binary; no secret may show, whatever comes of it.
    fn run(&self, command: &str) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_posthaste"))
            .args(["debezium", command, &self.file])
            .args(&self.arguments)
            .args(["--secrets-directory"])
            .arg(self.folder.path().join("k8s"))
            .env("BILLING_DB_HOST", "billing-db")
            .env("BILLING_DB_USER", "billing")
            .env("BILLING_DB_PASSWORD", "s3cret-env")
            .env("SR_USER_INFO", "s3cret-env")
            .output()
            .expect("the binary runs");
        Ran::new(&output)
    }
}

struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let ran = Self {
            status: output.status.code().expect("a status"),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        };
        assert!(!ran.stdout.contains(SECRET), "{}", ran.stdout);
        assert!(!ran.stderr.contains(SECRET), "{}", ran.stderr);
        ran
    }

    /// The key's line in a report.
    fn line(&self, verdict: &str, key: &str) -> &str {
        let start = format!("{verdict:<8} {key}");
        let line = self.stdout.lines().find(|line| {
            line.strip_prefix(&start)
                .is_some_and(|rest| rest.starts_with([' ', ':']))
        });
        line.unwrap_or_else(|| panic!("no line {start:?} in\n{}", self.stdout))
    }

    fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}

#[track_caller]
fn check_starts(case: &Case, slot: &str) -> Ran {
    let ran = case.run("check");
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let expected = format!("run would start: from where slot {slot} stands; ");
    assert!(ran.last_line().starts_with(&expected), "{}", ran.stdout);
    ran
}

#[track_caller]
fn check_refused(case: &Case, keys: &[&str]) -> Ran {
    let ran = case.run("check");
    assert_eq!(ran.status, 2, "{}{}", ran.stdout, ran.stderr);
    let (count, keys) = (keys.len(), keys.join(", "));
    let noun = if count == 1 { "key" } else { "keys" };
    let expected = format!("run would not start: {count} {noun} refused: {keys}");
    assert_eq!(ran.last_line(), expected, "{}", ran.stdout);
    ran
}

/// The native configuration, as far as TOML is concerned.
#[track_caller]
fn check_converts(case: &Case) -> toml::Table {
    let ran = case.run("convert");
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    ran.stdout.parse().expect("TOML")
}

#[test]
fn a_the_body_of_a_rest_call() {
    let case = Case::new("a_rest_body").with_brokers();
    let ran = check_starts(&case, "orders_outbox");
    assert!(ran.line("kept", "topic.prefix").contains("(line 12)"));
    assert!(
        ran.line("mapped", "database.password")
            .ends_with("source.password")
    );
    ran.line("default", "extended.headers.enabled");
    let native = check_converts(&case);
    assert_eq!(native["source"]["slot"].as_str(), Some("orders_outbox"));
    assert_eq!(native["kafka"]["brokers"][0].as_str(), Some("kafka:9092"));
    assert_eq!(native["connect"]["topic_prefix"].as_str(), Some("orders"));
}

#[test]
fn b_a_bare_map_with_variables() {
    let case = Case::new("b_bare_map").with_brokers();
    check_starts(&case, "billing_outbox");
    let native = check_converts(&case);
    assert_eq!(native["source"]["host"][0].as_str(), Some("billing-db"));
}

#[test]
fn c_raw_bytes() {
    let case = Case::new("c_raw_bytes").with_brokers();
    check_starts(&case, "payments_cdc");
    let native = check_converts(&case);
    let file = native["source"]["password_file"].as_str();
    let expected = case.folder.path().join("mnt/secrets/payments/password");
    assert_eq!(file.map(Path::new), Some(&*expected));
}

#[test]
fn d_avro_is_refused_by_name() {
    let case = Case::new("d_avro").with_brokers();
    let ran = check_refused(&case, &["key.converter", "value.converter"]);
    assert!(
        ran.line("refused", "key.converter")
            .contains("AvroConverter")
    );
    let ran = case.run("convert");
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    for word in [
        "PH0122",
        "key.converter",
        "value.converter",
        "AvroConverter",
    ] {
        assert!(ran.stderr.contains(word), "{word} in {}", ran.stderr);
    }
    let case = Case::new("d_json").with_brokers();
    check_starts(&case, "inventory_outbox");
    check_converts(&case);
}

#[test]
fn e_logical_messages() {
    let case = Case::new("e_messages").with_brokers();
    check_starts(&case, "fleet_msgs");
    let native = check_converts(&case);
    let prefixes = &native["connect"]["messages"]["prefix_include"];
    assert_eq!(prefixes[0].as_str(), Some("outbox"));
}

#[test]
fn f_old_names_are_refused_with_the_new_ones() {
    let case = Case::new("f_old_names").with_brokers();
    let ran = case.run("check");
    assert_eq!(ran.status, 2, "{}", ran.stdout);
    for (old, new) in [
        ("database.server.name", "`topic.prefix=legacy`"),
        ("table.whitelist", "`table.include.list=public.outbox`"),
        ("plugin.name", "pgoutput"),
        ("snapshot.mode", "no_data"),
        ("key.converter", "--worker"),
        (
            "transforms.outbox.table.field.event.payload.id",
            "table.field.event.key=aggregate_id",
        ),
    ] {
        let line = ran.line("refused", old);
        assert!(line.contains(new), "{new} in {line}");
    }
    check_starts(&Case::new("f_new_names").with_brokers(), "debezium");
}

#[test]
fn without_brokers_nothing_starts() {
    let ran = check_refused(&Case::new("a_rest_body"), &["bootstrap.servers"]);
    assert!(
        ran.line("refused", "bootstrap.servers")
            .contains("--worker")
    );
}

#[test]
fn the_workers_file_is_looked_at() {
    let case = Case::new("f_new_names");
    case.write("worker.properties", "bootstrap.servers=a:1,b:2\nkey.converter=org.apache.kafka.connect.storage.StringConverter\n");
    let worker = case.folder.path().join("worker.properties");
    let case = case.with_arguments(&["--worker", worker.to_str().expect("text")]);
    let ran = check_starts(&case, "debezium");
    assert!(
        ran.line("mapped", "bootstrap.servers")
            .contains("worker, line 1")
    );
    let native = check_converts(&case);
    assert_eq!(native["kafka"]["brokers"][1].as_str(), Some("b:2"));
}

#[test]
fn strimzis_worker_is_taken_as_it_is() {
    let case = Case::new("f_new_names");
    case.write(
        "connect.yaml",
        "kind: KafkaConnect\nspec:\n  bootstrapServers: a:1\n  config:\n    producer.linger.ms: 7\n",
    );
    let worker = case.folder.path().join("connect.yaml");
    let case = case.with_arguments(&["--worker", worker.to_str().expect("text")]);
    let native = check_converts(&case);
    assert_eq!(native["kafka"]["brokers"][0].as_str(), Some("a:1"));
    assert_eq!(
        native["kafka"]["properties"]["linger.ms"].as_str(),
        Some("7")
    );
}

#[test]
fn a_value_that_only_the_client_refuses_shows_in_the_check() {
    let case = Case::new("f_new_names");
    case.write(
        "worker.properties",
        "bootstrap.servers=a:1\nproducer.client.dns.lookup=default\n",
    );
    let worker = case.folder.path().join("worker.properties");
    let case = case.with_arguments(&["--worker", worker.to_str().expect("text")]);
    let ran = case.run("check");
    assert_eq!(ran.status, 2, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.last_line().contains("`client.dns.lookup`"),
        "{}",
        ran.stdout
    );
}

#[test]
fn another_version_has_other_defaults() {
    let case = Case::new("a_rest_body").with_brokers();
    let case = case.with_arguments(&["--debezium-version", "3.1.3.Final"]);
    let ran = check_starts(&case, "orders_outbox");
    assert!(
        ran.line("default", "extended.headers.enabled")
            .contains(" = false")
    );
    let native = check_converts(&case);
    assert_eq!(
        native["connect"]["debezium_version"].as_str(),
        Some("3.1.3")
    );
    for version in ["1.9.7", "three"] {
        let case = Case::new("a_rest_body").with_arguments(&["--debezium-version", version]);
        let ran = case.run("check");
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains(version), "{}", ran.stderr);
    }
}

#[test]
fn a_first_start_is_told_beforehand() {
    let case = Case::new("a_rest_body").with_brokers();
    let text = std::fs::read_to_string(&case.file).expect("the file");
    let ran = case.run("check");
    assert!(
        ran.last_line().contains("only with --create"),
        "{}",
        ran.stdout
    );
    case.write("connector.json", &text.replace("no_data", "initial"));
    let ran = case.run("check");
    assert_eq!(ran.status, 0);
    assert!(ran.last_line().contains("write no_data"), "{}", ran.stdout);
}

#[test]
fn what_is_no_configuration_is_named_with_its_line() {
    for (name, text, words) in [
        ("c.json", "{\n  \"name\": s3cret }", "line 2"),
        ("c.yaml", "kind: KafkaTopic\n", "c.yaml"),
    ] {
        let ran = Case::with(name, text).run("check");
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{text}");
        assert!(
            ran.stderr.contains("PH0124") && ran.stderr.contains(words),
            "{}",
            ran.stderr
        );
    }
    let case = Case::new("a_rest_body").with_arguments(&["--format", "xml"]);
    let ran = case.run("convert");
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("connect-json"), "{}", ran.stderr);
}
