//! Configurations with one thing wrong each: exactly one refusal, with the key, the value unless it is a secret, and what
//! to do.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: clippy spares only the test functions themselves"
)]

use debezium::{Format, Input, NoLookup};

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

const ROUTER: &str = "transforms.outbox.";
const PREDICATE: &str = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches";

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

/// What is refused of a configuration, as printed.
fn refused(text: &str, worker: Option<&str>) -> Vec<String> {
    let mut input = Input::new(text, "c.properties", &NoLookup);
    input.worker = worker;
    input.brokers = worker.is_none().then_some("kafka:9092");
    let reading = debezium::read(&input).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(reading.native.is_none(), reading.refused().next().is_some());
    reading.refused().map(ToString::to_string).collect()
}

fn check(changes: &str, expected: &[&str]) {
    let refused = refused(&changed(changes), None);
    assert_eq!(refused.len(), 1, "{changes}: {refused:#?}");
    for part in expected {
        assert!(
            refused[0].contains(part),
            "{changes}: {} lacks {part:?}",
            refused[0]
        );
    }
    assert!(!refused[0].contains("s3cret"), "{}", refused[0]);
}

#[test]
fn the_base_is_in_order() {
    assert_eq!(refused(BASE, None), Vec::<String>::new());
}

#[test]
fn names_with_a_slip_are_answered_with_the_right_one() {
    for (slip, right) in [
        ("slot.nmae=x", "slot.name"),
        ("tabel.include.list=a.b", "table.include.list"),
        ("transform.outbox.type=x", "transforms.outbox.type"),
        (
            "transforms.outbox.route.by.feild=x",
            "transforms.outbox.route.by.field",
        ),
        (
            "transforms.outbx.route.by.field=x",
            "transforms.outbox.route.by.field",
        ),
        ("key.converter.encodng=UTF-8", "key.converter.encoding"),
        ("producer.override.linger=5", "producer.override.linger.ms"),
        ("predicate=x", "predicates"),
    ] {
        let key = slip.split('=').next().unwrap();
        check(
            slip,
            &[
                key,
                &format!("did you mean `{right}`?"),
                "correct it, or remove it",
            ],
        );
    }
}

#[test]
fn what_is_missing_is_asked_for() {
    for key in [
        "connector.class",
        "database.hostname",
        "database.user",
        "database.dbname",
        "topic.prefix",
        "key.converter",
        "value.converter",
        "plugin.name",
        "transforms.outbox.type",
    ] {
        check(&format!("-{key}"), &[key, "is ", "write "]);
    }
    check(
        "-transforms\n-transforms.outbox.type",
        &[
            "transforms: has no io.debezium.transforms.outbox.EventRouter",
            "add the Event Router",
        ],
    );
    check(
        "database.hostname=",
        &["database.hostname", "is missing or empty; write"],
    );
}

#[test]
fn values_of_the_wrong_form_are_shown() {
    check(
        "database.port=54x32",
        &["`54x32` is no whole number; write one from 1 on"],
    );
    check(
        "database.port=70000",
        &["`70000` is no port; write a number from 1 to 65535"],
    );
    check(
        "slot.failover=ja",
        &["`ja` is neither true nor false; write one of them"],
    );
    check(
        "skipped.operations=c,u",
        &["`c,u` skips inserts", "remove `c` from it"],
    );
    check(
        "skipped.operations=insert",
        &["`insert` has a word that is none of its own; write u, d and t"],
    );
    check(
        "max.batch.size=0",
        &["`0` is too small; write a whole number from 1 on"],
    );
    check(
        "slot.name=Orders-Slot",
        &["`Orders-Slot` is no name of a slot; write 1 to 63"],
    );
    check(
        &format!("publication.name={}", "p".repeat(64)),
        &["is no name of a publication; write 1 to 63 bytes"],
    );
    check(
        "producer.override.linger.ms=soon",
        &[
            "producer.override.linger.ms",
            "`soon` is no whole number; write one",
        ],
    );
    check(
        "topic.creation.default.partitions=0\ntopic.creation.default.replication.factor=1",
        &[
            "topic.creation.default.partitions",
            "`0`",
            "or -1 for the broker's own",
        ],
    );
}

#[test]
fn words_that_are_none_are_answered_with_the_legal_ones() {
    check(
        "snapshot.mode=nodata",
        &["`nodata` is none of its words; write no_data"],
    );
    check(
        "publication.autocreate.mode=enabled",
        &["`enabled` is none of its words; write disabled, all_tables, filtered, no_tables"],
    );
    check(
        "errors.tolerance=some",
        &["`some` is none of its words; write none, all"],
    );
    check(
        "binary.handling.mode=utf8",
        &["`utf8`", "write bytes, base64, base64-url-safe or hex"],
    );
    check(
        "database.sslmode=on",
        &["`on` is none of its words; write disable, prefer"],
    );
    check(
        &format!("{ROUTER}table.op.invalid.behavior=skip"),
        &["`skip` is none of its words; write warn, error, fatal"],
    );
    check(
        "producer.override.compression.type=brotli",
        &["`brotli` is none of its words; write none, gzip, snappy, lz4, zstd"],
    );
}

#[test]
fn classes_that_are_not_known_are_named() {
    check(
        "connector.class=io.debezium.connector.mysql.MySqlConnector",
        &["`io.debezium.connector.mysql.MySqlConnector` is another connector"],
    );
    check(
        "value.converter=io.confluent.connect.avro.AvroConverter",
        &[
            "value.converter",
            "AvroConverter` is the Avro converter",
            "keep Debezium for this outbox",
        ],
    );
    check(
        "value.converter=io.confluent.connect.protobuf.ProtobufConverter",
        &["ProtobufConverter` needs a schema registry"],
    );
    check(
        "key.converter=com.example.MyConverter",
        &["`com.example.MyConverter` is no converter that is known here"],
    );
    check(
        "key.converter=org.apache.kafka.connect.storage.SimpleHeaderConverter",
        &["makes headers only; write another converter"],
    );
    check(
        "transforms=outbox,mask\ntransforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value",
        &[
            "transforms.mask.type",
            "MaskField$Value` is not among those",
            "remove it from `transforms`",
        ],
    );
    check(
        "transforms=outbox,f\ntransforms.f.type=io.debezium.transforms.Filter",
        &["`io.debezium.transforms.Filter` runs a script"],
    );
    check(
        "predicates=p\npredicates.p.type=com.example.P",
        &["predicates.p.type", "`com.example.P` is no predicate"],
    );
    check(
        "converters=x",
        &["converters", "custom converters are Java code; remove them"],
    );
}

#[test]
fn what_does_not_go_together_is_told() {
    check(
        "table.exclude.list=public.x",
        &[
            "table.exclude.list",
            "stands beside table.include.list",
            "keep one of them",
        ],
    );
    check(
        "transforms=outbox,again\ntransforms.again.type=io.debezium.transforms.outbox.EventRouter",
        &["more than one EventRouter", "keep one"],
    );
    check(
        "transforms=outbox,outbox",
        &["names `outbox` twice", "name it once"],
    );
    check(
        &format!("{ROUTER}predicate=nobody"),
        &[
            "transforms.outbox.predicate",
            "`nobody` is not named in `predicates`; add it there",
        ],
    );
    check(
        "transforms=outbox,f\ntransforms.f.type=org.apache.kafka.connect.transforms.Filter",
        &["transforms.f.predicate: is missing", "write the predicate"],
    );
    check(
        "topic.creation.default.partitions=3",
        &[
            "topic.creation.default.replication.factor: is missing beside its neighbour",
            "write it",
        ],
    );
    check(
        "topic.creation.default.partitions=3\ntopic.creation.default.replication.factor=3\ntopic.creation.groups=big",
        &[
            "topic.creation.big.include: is missing",
            "write its patterns",
        ],
    );
    check(
        "bootstrap.servers=a:9092",
        &["is a worker's key; put it into the file given with --worker"],
    );
}

#[test]
fn patterns_that_cannot_work_are_told() {
    check(
        &format!("{ROUTER}route.topic.regex=(.*)"),
        &[
            "`(.*)` has no group `(?<routedByValue>…)`",
            "name the group, or write $1",
        ],
    );
    check(
        &format!("{ROUTER}route.topic.regex=((?<routedByValue>.*)"),
        &["its brackets do not close; correct it"],
    );
    check(
        "table.include.list=public.(outbox",
        &["`public.(outbox`, whose brackets do not close; correct it"],
    );
    check(
        &format!(
            "predicates=p\npredicates.p.type={PREDICATE}\npredicates.p.pattern=outbox.event.*\n{ROUTER}predicate=p"
        ),
        &[
            "predicates.p.pattern",
            "`outbox.event.*` never matches",
            "orders.public.outbox",
            "write orders\\.public\\.outbox",
        ],
    );
    check(
        &format!(
            "predicates=p\npredicates.p.type={PREDICATE}\npredicates.p.pattern=orders[.].*\n{ROUTER}predicate=p\n{ROUTER}negate=true"
        ),
        &["matches every topic", "raw change events"],
    );
    check(
        &format!(
            "table.include.list=public.outbox_.*\npredicates=p\npredicates.p.type={PREDICATE}\npredicates.p.pattern=outbox.event.*\n{ROUTER}predicate=p"
        ),
        &["`outbox.event.*` never matches", "orders.SCHEMA.TABLE"],
    );
}

#[test]
fn the_router_has_the_last_word() {
    check(
        "transforms.outbox.route.topic.replacement=x.$7",
        &[
            "transforms.outbox.route.topic.replacement",
            "`x.$7` cannot be followed",
            "has only 1",
        ],
    );
    check(
        "transforms.outbox.route.topic.regex=(?<routedByValue>\\\\p{javaLowerCase}*)",
        &["transforms.outbox.route.topic.regex", "is not supported"],
    );
    check(
        "table.include.list=public.outbox,public.\\\\p{javaLowerCase}+",
        &["table.include.list", "is not supported"],
    );
}

#[test]
fn placements_that_are_none_are_told() {
    let key = format!("{ROUTER}table.fields.additional.placement");
    check(
        &format!("{key}=type:headers"),
        &["\"headers\"", "known are header, envelope and partition"],
    );
    check(
        &format!("{key}=type"),
        &["an entry is column:placement", "write COLUMN:header"],
    );
    check(&format!("{key}=:header"), &["cannot be empty"]);
    check(
        &format!("{ROUTER}table.field.event.key="),
        &["is empty, on which Debezium fails; write a column's name"],
    );
}

#[test]
fn what_is_not_built_is_told_with_the_way_round_it() {
    check(
        "snapshot.mode=always",
        &["`always` cannot be followed", "write no_data"],
    );
    check(
        "lsn.flush.mode=manual",
        &["`manual` cannot be followed", "write connector"],
    );
    check(
        "slot.drop.on.stop=true",
        &["never dropped", "set it to false"],
    );
    check(
        "plugin.name=decoderbufs",
        &[
            "a slot of this plugin cannot be read here",
            "write pgoutput",
        ],
    );
    check(
        "column.mask.with.10.chars=public.outbox.x",
        &["it would change the rows", "remove it"],
    );
    check(
        "provide.transaction.metadata=true",
        &["is not published here; set it to false"],
    );
    check(
        "producer.override.transactional.id=x",
        &["Connect makes it itself for exactly-once; remove it"],
    );
    check(
        "producer.override.partitioner.class=com.example.P",
        &["a Java class", "Remove it"],
    );
}

#[test]
fn old_names_are_answered_with_the_new_ones() {
    check(
        "-topic.prefix\ndatabase.server.name=orders",
        &[
            "database.server.name",
            "write `topic.prefix=orders` instead",
        ],
    );
    check(
        "table.whitelist=public.outbox",
        &["write `table.include.list=public.outbox` instead"],
    );
    check(
        &format!("{ROUTER}debezium.op.invalid.behavior=warn"),
        &["write `transforms.outbox.table.op.invalid.behavior=warn` instead"],
    );
    check("snapshot.mode=never", &["`never`", "write no_data"]);
}

#[test]
fn stores_and_logins_that_cannot_be_read_come_with_the_command() {
    let worker = |lines: &str| format!("bootstrap.servers=k:9092\n{lines}");
    for (lines, expected) in [
        (
            "producer.ssl.truststore.location=/t.jks",
            "keytool -importkeystore -srckeystore /t.jks",
        ),
        (
            "producer.ssl.truststore.location=/t.p12",
            "openssl pkcs12 -in /t.p12 -nokeys -out ca.pem",
        ),
        (
            "producer.ssl.keystore.location=/k.jks\nproducer.ssl.keystore.password=s3cret",
            "-deststoretype PKCS12",
        ),
        (
            "producer.ssl.keystore.type=BKS",
            "`BKS` is no kind of store",
        ),
        ("producer.sasl.mechanism=GSSAPI", "`GSSAPI` is Kerberos"),
        (
            "producer.sasl.mechanism=AWS_MSK_IAM",
            "use SCRAM or a client certificate",
        ),
        (
            "producer.sasl.mechanism=PLAIN\nproducer.sasl.jaas.config=x.PlainLoginModule required username=\"u\" password=\"s3cret\"",
            "does not end with a semicolon",
        ),
        (
            "producer.sasl.mechanism=PLAIN\nproducer.sasl.jaas.config=x.PlainLoginModule required username=\"u\";",
            "has no username or no password; add it",
        ),
        (
            "producer.sasl.jaas.config=x.PlainLoginModule required username=\"u\" password=\"s3cret\";",
            "stands without sasl.mechanism",
        ),
        (
            "producer.ssl.endpoint.identification.algorithm=ldaps",
            "write https, or nothing",
        ),
        (
            "producer.security.protocol=SASL_SSL\nproducer.sasl.mechanism=PLAIN",
            "`SASL_SSL` stands without sasl.jaas.config beside it; write it",
        ),
        (
            "offset.flush.intervl.ms=5",
            "did you mean `offset.flush.interval.ms`?",
        ),
        ("topic.creation.enable=si", "`si` is neither true nor false"),
    ] {
        let refused = refused(BASE, Some(&worker(lines)));
        assert_eq!(refused.len(), 1, "{lines}: {refused:#?}");
        assert!(
            refused[0].contains(expected) && refused[0].contains("(worker, line"),
            "{lines}: {}",
            refused[0]
        );
        assert!(!refused[0].contains("s3cret"), "{}", refused[0]);
    }
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
