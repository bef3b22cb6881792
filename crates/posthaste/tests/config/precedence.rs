//! File, environment, `--set`: who wins, and how values are written in each.

use std::time::Duration;

use posthaste::config::{LogFormat, Source};

use super::{Case, SMALLEST};

fn source(case: &Case) -> Source {
    case.config().pipelines.remove(0).source
}

#[test]
fn the_environment_wins_over_the_file_and_set_over_both() {
    assert_eq!(source(&Case::new(SMALLEST)).slot, "outbox");
    let case = Case::new(SMALLEST).variable("POSTHASTE__SOURCE__SLOT", "from_environment");
    assert_eq!(source(&case).slot, "from_environment");
    let case = case.set("source.slot=from_set");
    assert_eq!(source(&case).slot, "from_set");
    let case = case.set("source.slot=from_later_set");
    assert_eq!(source(&case).slot, "from_later_set");
}

#[test]
fn dotted_keys_are_tables_and_know_their_lines() {
    let text = "source.url = \"postgres://app@db/orders\"\nsource.slot = \"outbox\"\nsource.publication = \"p\"\n\
        source.table = \"outbox\"\nkafka.brokers = \"a\"\nkafka.properties.\"linger.ms\" = \"5\"\n";
    let case = Case::new(text);
    assert_eq!(
        case.config().pipelines[0].kafka.properties.get("linger.ms"),
        Some("5")
    );
    assert!(
        case.effective().contains("publication = \"p\"  # line 3"),
        "{}",
        case.effective()
    );
}

#[test]
fn options_of_their_own_win_over_set() {
    let mut case = Case::new(SMALLEST)
        .set("log.format=text")
        .set("log.level=warn");
    case.request.log_format = Some("json".to_owned());
    case.request.log_level = Some("debug".to_owned());
    let log = case.config().log;
    assert_eq!((log.format, log.level.as_str()), (LogFormat::Json, "debug"));
    case.request.log_format = Some("jsno".to_owned());
    assert!(
        case.refusal()
            .contains("PH0107: log.format (--log-format): found text \"jsno\""),
        "{}",
        case.refusal()
    );
}

#[test]
fn capitals_do_not_count_in_the_environment() {
    for name in [
        "POSTHASTE__SOURCE__SLOT",
        "posthaste__source__slot",
        "Posthaste__Source__Slot",
    ] {
        assert_eq!(source(&Case::new(SMALLEST).variable(name, "x")).slot, "x");
    }
}

#[test]
fn variables_of_others_are_left_alone() {
    // Kubernetes makes such variables for a service called posthaste.
    let case = Case::new(SMALLEST)
        .variable("POSTHASTE_PORT", "tcp://10.0.0.1:80")
        .variable("POSTHASTE_SERVICE_HOST", "10.0.0.1");
    assert_eq!(case.config(), Case::new(SMALLEST).config());
}

#[test]
fn values_are_read_by_the_kind_of_their_key() {
    let case = Case::new(SMALLEST)
        .variable("POSTHASTE__SOURCE__CREATE", "true")
        .variable("POSTHASTE__SOURCE__STATUS_INTERVAL", "2s")
        .variable(
            "POSTHASTE__SOURCE__TABLES",
            "[\"public.a\", 'public.\"B,1\"']",
        )
        .variable("POSTHASTE__SOURCE__PUBLICATION", "1")
        .variable("POSTHASTE__KAFKA__IN_FLIGHT_RECORDS_MAX", "7")
        .variable("POSTHASTE__KAFKA__BROKERS", "a:1, b:2")
        .set("source.password=12345")
        .set("router.headers=[\"type\", { column = \"t\", name = \"u\" }]")
        .set("router.timestamp=now");
    let pipeline = case.config().pipelines.remove(0);
    assert!(pipeline.source.create);
    assert_eq!(pipeline.source.status_interval, Duration::from_secs(2));
    assert_eq!(
        pipeline
            .source
            .tables
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["public.a", "public.\"B,1\""]
    );
    assert_eq!(pipeline.router.tables, pipeline.source.tables);
    assert_eq!(pipeline.source.publication, "1");
    assert_eq!(
        pipeline
            .source
            .password
            .as_ref()
            .map(|password| password.reveal()),
        Some("12345")
    );
    assert_eq!(pipeline.kafka.in_flight_records_max, 7);
    assert_eq!(pipeline.kafka.bootstrap_servers(), "a:1,b:2");
    assert_eq!(pipeline.router.headers.len(), 2);
    assert_eq!(pipeline.router.timestamp, router::TimestampSource::Now);
}

#[test]
fn one_text_is_one_table_whatever_it_contains() {
    for text in [
        "public.outbox",
        "outbox",
        "\"public\".\"outbox\"",
        "'public.outbox'",
    ] {
        let case = Case::new(SMALLEST).variable("POSTHASTE__SOURCE__TABLES", text);
        assert_eq!(
            source(&case).tables[0].to_string(),
            "public.outbox",
            "{text}"
        );
    }
    let case = Case::new(SMALLEST).set("source.table=\"Sales-EU\".\"Out\"\"box\"");
    assert_eq!(source(&case).tables[0].name, "Out\"box");
}

#[test]
fn quotes_around_a_value_are_tomls() {
    for text in [
        "source.slot=x",
        "source.slot=\"x\"",
        "source.slot='x'",
        "source . slot=x",
    ] {
        assert_eq!(source(&Case::new(SMALLEST).set(text)).slot, "x", "{text}");
    }
    // A password may have quotes inside; only a value that is a TOML string as a whole is unquoted.
    for (text, password) in [
        ("a\"b", "a\"b"),
        ("\"a", "\"a"),
        ("'a\"b'", "a\"b"),
        (" x=y ", " x=y "),
    ] {
        let case = Case::new(SMALLEST).variable("POSTHASTE__SOURCE__PASSWORD", text);
        assert_eq!(
            source(&case).password.expect("a password").reveal(),
            password,
            "{text}"
        );
    }
}

#[test]
fn properties_have_dots_and_variables_underscores() {
    let file = "[kafka.properties]\nsecurity.protocol = \"PLAINTEXT\"\n\"linger.ms\" = 5\nsocket.keepalive.enable = true";
    let case = Case::with("", file)
        .variable("POSTHASTE__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SSL")
        .variable("POSTHASTE__KAFKA__PROPERTIES__LOG_LEVEL", "7")
        .variable("POSTHASTE__KAFKA__PROPERTIES__COMPRESSION__TYPE", "zstd")
        .set("kafka.properties.\"batch.size\"=1000")
        .set("kafka.properties.linger.ms=0");
    let properties = case.config().pipelines.remove(0).kafka.properties;
    let expected = [
        ("batch.size", "1000"),
        ("compression.type", "zstd"),
        ("linger.ms", "0"),
        ("log_level", "7"),
        ("security.protocol", "SSL"),
        ("socket.keepalive.enable", "true"),
    ];
    assert_eq!(properties.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn an_override_of_one_way_of_writing_replaces_the_other() {
    let case = Case::new(SMALLEST).set("source.table=public.other");
    assert_eq!(source(&case).tables[0].name, "other");
    let url = "url = \"postgres://app@db/orders\"";
    let case = Case::with(
        url,
        "host = \"h\"\nport = 1\nuser = \"u\"\ndbname = \"d\"\nsslmode = \"require\"",
    )
    .set("source.url=postgres://a@b/c?sslmode=disable");
    let overridden = source(&case);
    assert_eq!(
        (
            overridden.host.len(),
            overridden.port.len(),
            overridden.user,
            overridden.dbname,
            overridden.sslmode
        ),
        (0, 0, None, None, None)
    );
    let case = Case::with(url, "host = \"h\"\npassword_file = \"/missing\"")
        .variable("POSTHASTE__SOURCE__PASSWORD", "x");
    assert_eq!(source(&case).password_file, None);
    let case = Case::with("", "[kafka.properties_files]\nsasl.password = \"/missing\"")
        .variable("POSTHASTE__KAFKA__PROPERTIES__SASL_PASSWORD", "x");
    assert_eq!(
        case.config().pipelines[0]
            .kafka
            .properties
            .get("sasl.password"),
        Some("x")
    );
}

#[test]
fn keys_beside_a_url_add_what_it_does_not_say() {
    let case = Case::with(
        "url = \"postgres://app@db/orders\"",
        "url = \"postgres://db\"\nuser = \"app\"\ndbname = \"orders\"\nsslmode = \"verify-full\"\nsslrootcert = \"/ca.pem\"\nconnect_timeout = \"3s\"",
    );
    let source = source(&case);
    assert_eq!(source.user.as_deref(), Some("app"));
    assert_eq!(source.sslmode.as_deref(), Some("verify-full"));
    assert_eq!(source.connect_timeout, Some(Duration::from_secs(3)));
}

#[test]
fn hosts_and_ports_are_lists_however_written() {
    let url = "url = \"postgres://app@db/orders\"";
    for text in [
        "host = \"a, b\"\nport = \"1,2\"",
        "host = [\"a\", \"b\"]\nport = [1, 2]",
    ] {
        let source = source(&Case::with(url, text));
        assert_eq!(
            (source.host, source.port),
            (vec!["a".to_owned(), "b".to_owned()], vec![1, 2]),
            "{text}"
        );
    }
    let case =
        Case::with(url, "host = \"/run/postgresql\"").variable("POSTHASTE__SOURCE__PORT", "6432");
    assert_eq!(source(&case).port, [6432]);
    // libpq's own variables may say where the server is.
    assert!(Case::with(url, "").variable("PGHOST", "db").load().is_ok());
}

#[test]
fn a_named_pipeline_is_overridden_like_a_flat_one() {
    let named = "[[pipeline]]\nname = \"orders\"\n".to_owned()
        + &SMALLEST
            .replace("[source]", "[pipeline.source]")
            .replace("[kafka]", "[pipeline.kafka]");
    let case = Case::new(&named)
        .set("source.slot=x")
        .variable("POSTHASTE__HTTP__LISTEN", "off");
    let config = case.config();
    assert_eq!(config.pipelines[0].name, "orders");
    assert_eq!(config.pipelines[0].source.slot, "x");
    assert_eq!(config.pipelines[0].kafka.client_id, "posthaste-orders");
    assert_eq!(config.http.listen, None);
}
