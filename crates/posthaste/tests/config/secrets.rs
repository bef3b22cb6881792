//! Secrets: taken from every place they may stand, shown in none.

use posthaste::cli::{Cli, Command};
use posthaste::commands;

use super::{Case, SMALLEST};

const SECRET: &str = "hunter2";

/// Looks for the secret in everything that can be printed of a case.
fn check_hidden(case: &Case) {
    let shown = match case.load() {
        Ok(config) => format!("{config:?} {config:#?}"),
        Err(problem) => {
            let cause =
                std::error::Error::source(&problem).map(|cause| format!("{cause} {cause:?}"));
            format!("{problem} {problem:?} {cause:?}")
        }
    };
    assert!(!shown.contains(SECRET), "{shown}");
    let effective = posthaste::config::effective(&case.request)
        .unwrap_or_else(|problem| format!("{problem} {problem:?}"));
    assert!(!effective.contains(SECRET), "{effective}");
}

#[test]
fn secrets_are_read_and_not_shown() {
    let url = "url = \"postgres://app@db/orders\"";
    let case = Case::with(
        url,
        "url = \"postgres://app:hunter2@db/orders?sslmode=require\"",
    );
    check_hidden(&case);
    assert!(
        case.config().pipelines[0]
            .source
            .url
            .as_ref()
            .is_some_and(|url| url.reveal().contains(SECRET))
    );
    assert!(
        case.effective()
            .contains("url = \"postgres://app:********@db/orders?sslmode=require\""),
        "{}",
        case.effective()
    );

    let case = Case::with(url, "host = \"db\"\npassword = \"hunter2\"");
    check_hidden(&case);
    assert_eq!(
        case.config().pipelines[0]
            .source
            .password
            .as_ref()
            .map(|password| password.reveal()),
        Some(SECRET)
    );

    check_hidden(&Case::with(url, "url = \"host=db password='hunter2 x'\""));
    check_hidden(&Case::with(url, "url = \"postgres://db?password=hunter2\""));
    check_hidden(&Case::new(SMALLEST).variable("POSTHASTE__SOURCE__PASSWORD", SECRET));
    check_hidden(
        &Case::new(SMALLEST).variable("POSTHASTE__SOURCE__URL", "postgres://a:hunter2@db"),
    );
    check_hidden(&Case::new(SMALLEST).set("source.password=hunter2"));
    check_hidden(&Case::new(SMALLEST).set("kafka.properties.sasl.password=hunter2"));

    let case = Case::with(
        "",
        "[kafka.properties]\nsasl.username = \"app\"\nsasl.password = \"hunter2\"\n\"ssl.key.pem\" = \"hunter2\"\nsasl.oauthbearer.client.secret = \"hunter2\"",
    );
    check_hidden(&case);
    assert_eq!(
        case.config().pipelines[0]
            .kafka
            .properties
            .get("sasl.password"),
        Some(SECRET)
    );
    assert!(format!("{:?}", case.config()).contains("\"app\""));
}

#[test]
fn secrets_come_from_files() {
    let mut case = Case::new(SMALLEST);
    let (password, sasl) = (
        case.file("password", b"hunter2\n"),
        case.file("sasl", b"hunter2"),
    );
    case = case
        .set(&format!("source.password_file={}", password.display()))
        .variable(
            "POSTHASTE__KAFKA__PROPERTIES_FILES__SASL_PASSWORD",
            &sasl.display().to_string(),
        );
    check_hidden(&case);
    let pipeline = case.config().pipelines.remove(0);
    assert_eq!(
        pipeline
            .source
            .password
            .as_ref()
            .map(|password| password.reveal()),
        Some(SECRET)
    );
    assert_eq!(pipeline.kafka.properties.get("sasl.password"), Some(SECRET));
    let printed = case.effective();
    assert!(
        printed.contains("password_file = ") && printed.contains("\"sasl.password\" = "),
        "{printed}"
    );
    assert!(!printed.contains("\npassword = "), "{printed}");
}

#[test]
fn a_missing_secret_file_stops_the_start_but_not_the_printing() {
    let case = Case::new(SMALLEST).set("source.password_file=/missing/password");
    let message = case.refusal();
    assert!(
        message.starts_with(
            "PH0114: source.password_file: found file \"/missing/password\" unreadable"
        ),
        "{message}"
    );
    assert!(case.effective().contains("/missing/password"));
}

#[test]
fn messages_about_secrets_do_not_show_them() {
    let url = "url = \"postgres://app@db/orders\"";
    for (from, to) in [
        (url, "url = \"mysql://app:hunter2@db\""),
        (url, "url = \"app:hunter2@db\""),
        (url, "url = \"hunter2\""),
        (url, "url = [\"postgres://app:hunter2@db\"]"),
        (
            url,
            "url = \"postgres://app:hunter2@db\"\npassword = \"hunter2\"",
        ),
        (url, "url = \"postgres://app:hunter2@db\"\nhost = \"x\""),
        (url, "host = \"db\"\npassword = [\"hunter2\"]"),
        (url, "host = \"db\"\npassword = { text = \"hunter2\" }"),
        (
            url,
            "host = \"db\"\npassword = \"hunter2\"\npassword_file = \"x\"",
        ),
        (url, "host = \"db\"\npassword = \"hunter2"),
        (url, "host = \"db\"\npassword = hunter2"),
        (url, "host = \"db\"\npasswort = \"hunter2\""),
        (url, "host = \"db\"\npassword = \"hunter2\"\nslto = 1"),
        ("", "[kafka.properties]\nsasl.password = [\"hunter2\"]"),
        (
            "",
            "[kafka.properties]\n\"sasl.password\" = \"hunter2\"\nsasl.password = \"hunter2\"",
        ),
        (
            "",
            "[kafka.properties]\nsasl.password = \"hunter2\"\n[kafka.properties_files]\nsasl.password = \"f\"",
        ),
    ] {
        let case = Case::with(from, to);
        check_hidden(&case);
        assert!(case.load().is_err(), "{to}");
    }
    for argument in [
        "source.password:hunter2",
        "hunter2",
        "source.passwort=hunter2",
        "source.password.x=hunter2",
        "postgres://a:hunter2@db",
        "source=hunter2",
        "kafka.properties=hunter2",
    ] {
        let case = Case::new(SMALLEST).set(argument);
        check_hidden(&case);
        assert!(case.load().is_err(), "{argument}");
    }
    for name in [
        "POSTHASTE__SOURCE__PASSWORT",
        "POSTHASTE__PASSWORD",
        "POSTHASTE__SOURCE__PASSWORD__X",
        "POSTHASTE__KAFKA__PROPERTIES",
    ] {
        let case = Case::new(SMALLEST).variable(name, SECRET);
        check_hidden(&case);
        assert!(case.load().is_err(), "{name}");
    }
}

#[test]
fn the_config_command_prints_without_secrets() {
    let case = Case::with(
        "url = \"postgres://app@db/orders\"",
        "url = \"postgres://app:hunter2@db/orders\"",
    );
    let file = case.request.file.display().to_string();
    let cli = <Cli as clap::Parser>::try_parse_from([
        "posthaste",
        "config",
        "-c",
        &file,
        "--set",
        "kafka.properties.sasl.password=hunter2",
    ])
    .expect("legal");
    assert!(!format!("{cli:?}").contains(SECRET));
    let Command::Config(arguments) = cli.command else {
        panic!("not config")
    };
    let mut out = Vec::new();
    commands::config::run(&arguments, &mut out).unwrap_or_else(|problem| panic!("{problem}"));
    let printed = String::from_utf8(out).expect("text");
    assert!(
        printed.contains("[source]") && printed.contains("\"sasl.password\" = \"********\""),
        "{printed}"
    );
    assert!(!printed.contains(SECRET), "{printed}");
    assert!(Case::new(&printed).load().is_ok(), "{printed}");
}
