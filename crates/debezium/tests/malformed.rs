//! Configurations with one thing wrong each: exactly one refusal, with the key, the value unless it may be a secret, and
//! what to do. The cases stand in `malformed.cases`.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use std::collections::{BTreeMap, BTreeSet};

use debezium::{Finding, Format, Input, NoLookup, Origin};

/// A configuration in order, to which each case does one thing.
const BASE: &str = "\
name=orders
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
database.hostname=db
database.port=5432
database.user=u
database.password=s3cret
database.dbname=orders
topic.prefix=orders
table.include.list=public.outbox
slot.name=orders
publication.name=orders
publication.autocreate.mode=disabled
snapshot.mode=no_data
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
transforms=outbox
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
";

/// One thing that is wrong, and what has to be said of it.
struct Case {
    kind: &'static str,
    /// Whether only its values differ from those of another case.
    is_variant: bool,
    changes: Vec<&'static str>,
    worker: Vec<&'static str>,
    expected: Vec<&'static str>,
}

fn cases() -> Vec<Case> {
    let mut kind = "";
    let mut cases = Vec::new();
    for block in include_str!("malformed.cases").split("\n\n") {
        let lines: Vec<&str> = block
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        if let [heading] = lines.as_slice() {
            kind = heading.strip_prefix("== ").unwrap();
            continue;
        }
        let mut case = Case {
            kind,
            is_variant: false,
            changes: Vec::new(),
            worker: Vec::new(),
            expected: Vec::new(),
        };
        for line in lines {
            if line == "~" {
                case.is_variant = true;
            } else if let Some(part) = line.strip_prefix("> ") {
                case.expected.push(part);
            } else if let Some(line) = line.strip_prefix("worker ") {
                case.worker.push(line);
            } else {
                case.changes.push(line);
            }
        }
        if !case.changes.is_empty() || !case.worker.is_empty() {
            cases.push(case);
        }
    }
    cases
}

impl Case {
    /// The keys that are not as in the base, each with what became of it; values do not count.
    fn signature(&self) -> BTreeSet<String> {
        let key = |line: &&str| line.split('=').next().unwrap().to_owned();
        let worker = self
            .worker
            .iter()
            .map(|line| format!("worker {}", key(line)));
        self.changes.iter().map(key).chain(worker).collect()
    }

    /// Whether a line was put there; where lines were only taken away, one of those is what has to be named.
    fn adds_something(&self) -> bool {
        let is_line = |change: &&str| !change.starts_with('-');
        !self.worker.is_empty() || self.changes.iter().any(is_line)
    }

    fn text(&self) -> String {
        changed(&self.changes.join("\n"))
    }

    fn worker_text(&self) -> Option<String> {
        let lines = self.worker.join("\n");
        (!lines.is_empty()).then(|| format!("bootstrap.servers=k:9092\n{lines}"))
    }

    /// What stands there of a key, as it is written.
    fn value(&self, finding: &Finding) -> Option<String> {
        let text = match finding.origin {
            Origin::Connector(_) => self.text(),
            Origin::Worker(_) => self.worker_text()?,
        };
        let pairs: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let value = pairs.get(finding.key.as_str())?;
        (!value.is_empty()).then(|| (*value).to_owned())
    }
}

/// Lines that replace those of the same key; `-key` takes one away.
fn changed(changes: &str) -> String {
    let mut lines: Vec<String> = BASE.lines().map(str::to_owned).collect();
    for change in changes.lines().filter(|line| !line.is_empty()) {
        let key = change.trim_start_matches('-').split('=').next().unwrap();
        let line = lines
            .iter()
            .position(|line| line.split('=').next() == Some(key));
        match (line, change.starts_with('-')) {
            (Some(at), true) => drop(lines.remove(at)),
            (Some(at), false) => change.clone_into(&mut lines[at]),
            (None, _) => lines.push(change.to_owned()),
        }
    }
    lines.join("\n")
}

fn findings(text: &str, worker: Option<&str>) -> Vec<Finding> {
    let mut input = Input::new(text, "c.properties", &NoLookup);
    input.worker = worker;
    input.brokers = worker.is_none().then_some("kafka:9092");
    let reading = debezium::read(&input).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(reading.native.is_none(), reading.refused().next().is_some());
    reading.refused().cloned().collect()
}

/// What is refused of a configuration, as printed.
fn refused(text: &str, worker: Option<&str>) -> Vec<String> {
    let findings = findings(text, worker);
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_base_is_in_order() {
    assert_eq!(refused(BASE, None), Vec::<String>::new());
}

#[test]
fn each_gets_one_message_with_the_key_the_value_and_the_fix() {
    let mut wrong = Vec::new();
    for case in cases() {
        let text = case.text();
        let findings = findings(&text, case.worker_text().as_deref());
        let [finding] = findings.as_slice() else {
            wrong.push(format!(
                "{:?}: {} refusals: {findings:#?}",
                case.changes,
                findings.len()
            ));
            continue;
        };
        let message = finding.to_string();
        let mut lacks = |what: &str| {
            wrong.push(format!(
                "{:?} {:?}: no {what} in {message}",
                case.changes, case.worker
            ))
        };
        for part in case
            .expected
            .iter()
            .filter(|part| !message.contains(**part))
        {
            lacks(part);
        }
        let signature = case.signature();
        let is_named = |key: &String| {
            key.trim_start_matches(['-']).trim_start_matches("worker ") == finding.key
        };
        // One of those that were changed, or one that is not there and should be beside them.
        let is_absent = case.value(finding).is_none() && case.adds_something();
        if !signature.iter().any(is_named) && !is_absent {
            lacks("key");
        }
        if let Some(value) = case.value(finding)
            && !may_be_secret(finding)
            && !shows(&message, &value)
        {
            lacks(&format!("value {value:?}"));
        }
        if !FIXES.iter().any(|fix| message.contains(fix)) {
            lacks("fix");
        }
        if !case.worker.is_empty() && !message.contains("(worker, line") {
            lacks("place");
        }
        if message.contains("s3cret") {
            lacks("silence about the secret");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The value, or the part of it that is wrong.
fn shows(message: &str, value: &str) -> bool {
    let quoted = |text: &str| {
        message.contains(&format!("`{text}`")) || message.contains(&format!("{text:?}"))
    };
    // Or the line that takes its place.
    let is_given_again = message.contains(&format!("={value}`"));
    quoted(value) || is_given_again || value.split([',', ':']).any(|part| quoted(part.trim()))
}

/// Passwords, logins, and whatever stands under a name that nobody knows.
fn may_be_secret(finding: &Finding) -> bool {
    let key = finding.key.as_str();
    key.contains("password") || key.contains("jaas") || finding.text.contains("did you mean")
}

/// How a message says what to do.
const FIXES: [&str; 13] = [
    "write ",
    "remove ",
    "add ",
    "keep ",
    "correct ",
    "set ",
    "name ",
    "put ",
    "convert it with",
    "Remove ",
    "use ",
    "keytool -",
    "openssl ",
];

#[test]
fn forty_differ_in_more_than_values_and_are_of_ten_kinds() {
    let cases = cases();
    let counted: Vec<&Case> = cases.iter().filter(|case| !case.is_variant).collect();
    let mut signatures = BTreeSet::new();
    for case in &counted {
        let signature = case.signature();
        assert!(
            signatures.insert(signature.clone()),
            "differs from another in nothing but values: {signature:?}; begin the block with ~"
        );
    }
    let kinds: BTreeSet<&str> = counted.iter().map(|case| case.kind).collect();
    assert!(counted.len() >= 40, "{}", counted.len());
    assert!(kinds.len() >= 10, "{kinds:?}");
    // A variant is one of a case that is counted.
    for case in cases.iter().filter(|case| case.is_variant) {
        assert!(signatures.contains(&case.signature()), "{:?}", case.changes);
    }
}

/// What may be meant is not refused.
#[test]
fn predicates_that_may_be_meant_are_let_pass() {
    let filter = "transforms=f,outbox\n\
        transforms.f.type=org.apache.kafka.connect.transforms.Filter\n\
        transforms.f.predicate=p\n\
        predicates=p\n\
        predicates.p.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches\n";
    for (pattern, is_warned) in [
        ("orders[.]public[.]typo", true),
        ("__debezium-heartbeat.*", false),
        ("(?!orders[.]public).*", false),
    ] {
        let text = changed(&format!("{filter}predicates.p.pattern={pattern}"));
        let reading = debezium::read(&Input::new(&text, "c.properties", &NoLookup)).unwrap();
        let warned = reading
            .findings
            .iter()
            .any(|finding| finding.text.contains("the filter drops nothing"));
        assert_eq!(warned, is_warned, "{pattern}");
        assert_eq!(refused(&text, None), Vec::<String>::new(), "{pattern}");
    }
    // Of tables that only patterns name, more than the messages reaches the router.
    let text = changed(
        "table.include.list=public.outbox_.*\n\
        transforms=decode,outbox\n\
        transforms.decode.type=io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent\n\
        transforms.outbox.predicate=p\n\
        predicates=p\n\
        predicates.p.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches\n\
        predicates.p.pattern=orders[.]public[.].*",
    );
    assert_eq!(refused(&text, None), Vec::<String>::new());
}

#[test]
fn brokers_have_to_be_known() {
    let none = refused(BASE, Some("group.id=x\n"));
    assert!(none[0].contains("give --brokers HOST:PORT"), "{none:?}");
    let odd = refused(BASE, Some("bootstrap.servers=kafka\n"));
    assert!(odd[0].contains("`kafka`; write HOST:PORT"), "{odd:?}");
    let forbidden = refused(
        &changed("producer.override.linger.ms=5"),
        Some("bootstrap.servers=k:9092\nconnector.client.config.override.policy=None\n"),
    );
    assert!(
        forbidden[0].contains("forbidden by the worker's"),
        "{forbidden:?}"
    );
}

#[test]
fn texts_that_are_no_configuration_are_told_with_the_line() {
    for (name, text, expected) in [
        (
            "c.json",
            "{\"name\": \"s3cret\",,}",
            "c.json, line 1: the JSON is broken at column",
        ),
        (
            "c.json",
            "{\"name\": \"s3cret\",\n\"a\": ",
            "line 2: the JSON ends too early",
        ),
        ("c.json", "[]", "no JSON object; give"),
        ("c.json", "// a comment\n{}", "no JSON object; give"),
        (
            "c.properties",
            "a=b\nc=\\u00zz",
            "c.properties, line 2: `\\u` without four hexadecimal digits",
        ),
        (
            "c.yaml",
            "kind: KafkaConnector\nspec: {a: s3cret",
            "the YAML is broken",
        ),
        (
            "c.yaml",
            "kind: KafkaConnect\n",
            "no resource of kind KafkaConnector",
        ),
        (
            "c.yaml",
            "kind: KafkaConnector\nspec: &a {}\nx: *a\n",
            "line 3: a YAML alias",
        ),
    ] {
        let error = debezium::read(&Input::new(text, name, &NoLookup))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    let mut input = Input::new(BASE, "c.properties", &NoLookup);
    input.version = debezium_version("1.9.7");
    let error = debezium::read(&input).unwrap_err().to_string();
    assert!(
        error.contains("`1.9.7`") && error.contains("from 2.5 to 3.7"),
        "{error}"
    );
    assert!(
        "xml"
            .parse::<Format>()
            .unwrap_err()
            .to_string()
            .contains("write connect-json")
    );
}

fn debezium_version(text: &str) -> router::connect::DebeziumVersion {
    text.parse().unwrap()
}

#[test]
fn json_says_where_values_are_no_text() {
    let text = "{\"config\": {\n\"slot.name\": [\"a\"]}, \"confg\": 1}";
    let refused = refused_json(text);
    assert!(
        refused
            .iter()
            .any(|line| line.contains("slot.name (line 2): is a list or an object")),
        "{refused:#?}"
    );
    assert!(
        refused
            .iter()
            .any(|line| line.contains("confg (line 2): stands beside `config`")),
        "{refused:#?}"
    );
}

fn refused_json(text: &str) -> Vec<String> {
    let reading = debezium::read(&Input::new(text, "c.json", &NoLookup)).unwrap();
    reading.refused().map(ToString::to_string).collect()
}
