//! Connection strings as psql users write them, and as they get them wrong.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn no_environment(_: &str) -> Option<String> {
    None
}

fn parse(text: &str) -> ConnectOptions {
    ConnectOptions::from_parts(text, &[("user", "u")], &no_environment).unwrap()
}

fn refusal(text: &str) -> String {
    match ConnectOptions::parse(text) {
        Ok(options) => panic!("{text} was accepted as {options:?}"),
        Err(error) => {
            assert!(matches!(error, ConnectError::Config { .. }), "{text}");
            assert!(!error.is_transient());
            error.to_string()
        }
    }
}

fn with_environment(
    text: &str,
    variables: &[(&str, &str)],
) -> Result<ConnectOptions, ConnectError> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    ConnectOptions::from_parts(text, &[], &lookup)
}

#[test]
fn both_written_forms_reach_the_same_target() {
    for (text, target) in [
        // URLs.
        ("postgres://app@db/orders", "db:5432/orders"),
        ("postgresql://app@db/orders", "db:5432/orders"),
        ("postgres://app:pw@db:6000/orders", "db:6000/orders"),
        ("postgres://app@db", "db:5432/app"),
        ("postgres://app@db/", "db:5432/app"),
        ("postgres://app@db/?port=7000", "db:7000/app"),
        ("postgres://app@db:6000/orders?port=7000", "db:7000/orders"),
        ("postgres:///orders?host=db&user=app", "db:5432/orders"),
        ("postgres://app@/orders?host=/run/pg", "/run/pg:5432/orders"),
        ("postgres://app@%2Frun%2Fpg/orders", "/run/pg:5432/orders"),
        (
            "postgres://app@%2Frun%2Fpg:6000/orders",
            "/run/pg:6000/orders",
        ),
        ("postgres://app@a,b/orders", "a:5432,b:5432/orders"),
        ("postgres://app@a:1,b:2/orders", "a:1,b:2/orders"),
        ("postgres://app@a,b:2/orders", "a:5432,b:2/orders"),
        ("postgres://app@[::1]/orders", "[::1]:5432/orders"),
        ("postgres://app@[::1]:6000/orders", "[::1]:6000/orders"),
        (
            "postgres://app@[2001:db8::1],[::1]:2/orders",
            "[2001:db8::1]:5432,[::1]:2/orders",
        ),
        ("postgres://app@192.0.2.7/orders", "192.0.2.7:5432/orders"),
        ("postgres://app@db/My-Db.1", "db:5432/My-Db.1"),
        (
            "postgres://app@db/with%20blank%2Fslash",
            "db:5432/with blank/slash",
        ),
        ("postgres://app@db/gr%C3%B6%C3%9Fe", "db:5432/größe"),
        ("postgres://app@db/a?dbname=b", "db:5432/b"),
        ("postgres://app@/orders", "/var/run/postgresql:5432/orders"),
        // Keyword strings.
        ("host=db user=app dbname=orders", "db:5432/orders"),
        ("host = db  user= app dbname =orders", "db:5432/orders"),
        ("host=db\nuser=app\tdbname=orders\n", "db:5432/orders"),
        (
            "host='db' user='app' dbname='with blank'",
            "db:5432/with blank",
        ),
        (r"host=db user=app dbname=with\ blank", "db:5432/with blank"),
        (r"host=db user=app dbname='it\'s'", "db:5432/it's"),
        (
            r"host=db user=app dbname='back\\slash'",
            r"db:5432/back\slash",
        ),
        ("host=db port=6000 user=app", "db:6000/app"),
        ("host=a,b,c port=1,2,3 user=app", "a:1,b:2,c:3/app"),
        ("host=a,b port=6000 user=app", "a:6000,b:6000/app"),
        (
            "host=a,,b port=1,,3 user=app",
            "a:1,/var/run/postgresql:5432,b:3/app",
        ),
        ("host=/run/pg user=app", "/run/pg:5432/app"),
        ("host=@abstract user=app", "@abstract:5432/app"),
        ("hostaddr=192.0.2.7 user=app", "192.0.2.7:5432/app"),
        ("hostaddr=::1 user=app", "[::1]:5432/app"),
        (
            "host=db.internal hostaddr=127.0.0.1 user=app",
            "db.internal:5432/app",
        ),
        ("user=app host=first host=last", "last:5432/app"),
        ("user=app host=''", "/var/run/postgresql:5432/app"),
        ("user=app", "/var/run/postgresql:5432/app"),
    ] {
        let options = ConnectOptions::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(options.display_target(), target, "{text}");
        assert_eq!(options.user(), "app", "{text}");
    }
}

#[test]
fn passwords_survive_any_way_of_writing_them() {
    for (text, password) in [
        ("postgres://u:pw@db", Some("pw")),
        ("postgres://u:p%40%2F%3A%25@db", Some("p@/:%")),
        ("postgres://u:a:b@db", Some("a:b")),
        ("postgres://u:@db", None),
        ("postgres://u@db?password=a%26b", Some("a&b")),
        ("postgres://u@db?password=plus+stays", Some("plus+stays")),
        ("host=db password=pw", Some("pw")),
        (r"host=db password='a b\'c\\d=e'", Some(r"a b'c\d=e")),
        (r"host=db password=a\ b", Some("a b")),
        ("host=db password=''", None),
        ("host=db", None),
    ] {
        let options = parse(text);
        let host = &options.hosts[0];
        assert_eq!(
            options.password_for(host),
            password.map(Secret::new),
            "{text}"
        );
    }
}

#[test]
fn broken_strings_are_refused_with_a_position_and_without_their_text() {
    for (text, part) in [
        ("postgres://u:p%4@db", "byte 14"),
        ("postgres://u:p%zz@db", "two hexadecimal digits"),
        ("postgres://u:p%00@db", "%00"),
        ("postgres://u:p%FF@db", "UTF-8"),
        ("postgres://u@[::1/db", "no `]`"),
        ("postgres://u@[]/db", "no IPv6 address"),
        ("postgres://u@[::1]x/db", "after `]`"),
        ("postgres://u@db?sslmode", "without `=`"),
        ("postgres://u@db?options=-c%20a=b=c", "two `=`"),
        ("mysql://u@db", "postgres://"),
        ("host", "no `=`"),
        ("host=db password", "byte 8"),
        ("host=db =x", "without a keyword"),
        ("user=u password='open", "not closed"),
        ("just some words", "no `=`"),
    ] {
        let reason = refusal(text);
        assert!(reason.contains(part), "{text}: {reason}");
    }
}

#[test]
fn a_slash_in_a_password_is_explained_and_not_repeated() {
    let reason = refusal("postgres://app:hunter/2@db/orders");
    assert!(
        reason.contains("%2F") && !reason.contains("hunter"),
        "{reason}"
    );
}

#[test]
fn wrong_values_are_refused_with_the_legal_ones() {
    for (setting, parts) in [
        (
            "sslmode=verify_full",
            &[
                "disable, prefer, require, verify-ca, verify-full",
                "did you mean verify-full?",
            ][..],
        ),
        ("sslmode=Require", &["did you mean require?"]),
        (
            "sslmode=allow",
            &["is not one of disable, prefer, require, verify-ca, verify-full"],
        ),
        ("sslmode=yes", &["is not one of"]),
        (
            "target_session_attrs=master",
            &["any, read-write, read-only, primary, standby, prefer-standby"],
        ),
        (
            "target_session_attrs=readwrite",
            &["did you mean read-write?"],
        ),
        (
            "channel_binding=required",
            &["disable, prefer, require", "did you mean require?"],
        ),
        ("gssencmode=require", &["disable, prefer"]),
        ("client_encoding=LATIN1", &["UTF8"]),
        ("load_balance_hosts=random", &["disable"]),
        ("sslnegotiation=direct", &["direct needs sslmode=require"]),
        ("sslrootcert=system sslmode=require", &["verify-full"]),
        ("port=0", &["1 to 65535"]),
        ("port=70000", &["1 to 65535"]),
        ("port=x", &["1 to 65535"]),
        ("host=a,b port=1,2,3", &["3 ports for 2 hosts"]),
        ("host=a,b hostaddr=::1", &["1 addresses for 2 hosts"]),
        ("hostaddr=db.internal", &["not an IP address"]),
        ("connect_timeout=soon", &["whole number"]),
        ("connect_timeout=1.5", &["whole number"]),
        ("keepalives_idle=x", &["whole number"]),
        (r"options='-c a=b\\'", &["single backslash"]),
    ] {
        let reason = refusal(&format!("user=u {setting}"));
        for part in parts {
            assert!(reason.contains(part), "{setting}: {reason}");
        }
    }
}

#[test]
fn unknown_and_refused_keywords_are_named() {
    for (setting, part) in [
        ("sslmodee=require", "did you mean sslmode?"),
        ("pasword=x", "did you mean password?"),
        ("hostname=db", "unknown keyword"),
        ("sslpassword=x", "encrypted keys are not supported"),
        ("service=prod", "service files are not supported"),
        ("krbsrvname=x", "Kerberos"),
        ("replication=database", "set by this program"),
        ("sslcrl=x", "revocation lists"),
    ] {
        let reason = refusal(&format!("user=u {setting}"));
        assert!(reason.contains(part), "{setting}: {reason}");
    }
}

#[test]
fn ssl_settings_are_read() {
    let ssl = parse("sslmode=verify-full sslrootcert=/ca.pem sslcert=/c.pem sslkey=/k.pem").ssl;
    assert_eq!(ssl.mode, SslMode::VerifyFull);
    assert_eq!(ssl.root, RootCert::File("/ca.pem".into()));
    assert_eq!(
        (ssl.cert, ssl.key),
        (Some("/c.pem".into()), Some("/k.pem".into()))
    );
    assert!(!ssl.direct);
    assert_eq!(parse("").ssl.mode, SslMode::Prefer);
    assert_eq!(parse("").ssl.root, RootCert::Absent);
    let system = parse("sslrootcert=system").ssl;
    assert_eq!(
        (system.mode, system.root),
        (SslMode::VerifyFull, RootCert::System)
    );
    assert_eq!(parse("postgres://db?ssl=true").ssl.mode, SslMode::Require);
    assert!(parse("sslmode=require sslnegotiation=direct").ssl.direct);
}

#[test]
fn home_supplies_the_files_libpq_looks_for() {
    let options = with_environment("user=u", &[("HOME", "/home/u")]).unwrap();
    assert_eq!(options.passfile, Some("/home/u/.pgpass".into()));
    assert_eq!(
        options.ssl.root,
        RootCert::File("/home/u/.postgresql/root.crt".into())
    );
    assert_eq!(
        options.ssl.cert,
        Some("/home/u/.postgresql/postgresql.crt".into())
    );
    assert_eq!(
        options.ssl.key,
        Some("/home/u/.postgresql/postgresql.key".into())
    );
}

#[test]
fn session_settings_are_read() {
    let options = parse(
        "application_name=orders connect_timeout=3 target_session_attrs=primary channel_binding=require options='-c geqo=off'",
    );
    assert_eq!(options.application_name(), Some("orders"));
    assert_eq!(options.connect_timeout(), Some(Duration::from_secs(3)));
    assert_eq!(options.target_session, TargetSession::Primary);
    assert_eq!(options.channel_binding, Policy::Require);
    assert_eq!(options.options, "-c geqo=off");
    assert_eq!(parse("").connect_timeout(), Some(Duration::from_secs(10)));
    assert_eq!(parse("connect_timeout=0").connect_timeout(), None);
    assert_eq!(parse("connect_timeout=-1").connect_timeout(), None);
    assert_eq!(
        parse("target_session_attrs=read-write").target_session,
        TargetSession::Primary
    );
    assert_eq!(
        parse("fallback_application_name=f").application_name(),
        Some("f")
    );
    assert_eq!(
        parse("fallback_application_name=f application_name=a").application_name(),
        Some("a")
    );
}

#[test]
fn tcp_settings_are_read() {
    let tcp =
        parse("keepalives_idle=60 keepalives_interval=5 keepalives_count=3 tcp_user_timeout=1500")
            .tcp;
    assert!(tcp.keepalives);
    assert_eq!(tcp.idle, Some(Duration::from_secs(60)));
    assert_eq!(tcp.interval, Some(Duration::from_secs(5)));
    assert_eq!(tcp.count, Some(3));
    assert_eq!(tcp.user_timeout, Some(Duration::from_millis(1500)));
    assert!(!parse("keepalives=0").tcp.keepalives);
    assert_eq!(
        parse("keepalives_idle=0 tcp_user_timeout=0").tcp,
        parse("").tcp
    );
}

#[test]
fn endpoints_are_told_apart() {
    let endpoint = |text: &str| {
        let options = parse(text);
        match options.hosts[0].endpoint() {
            Endpoint::Unix(paths) => format!("{paths:?}"),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(endpoint("host=/run/pg port=1"), r#"["/run/pg/.s.PGSQL.1"]"#);
    assert_eq!(endpoint("host=@pg port=1"), r#"["\0pg/.s.PGSQL.1"]"#);
    assert_eq!(
        endpoint(""),
        r#"["/var/run/postgresql/.s.PGSQL.5432", "/tmp/.s.PGSQL.5432"]"#
    );
    assert_eq!(endpoint("host=db"), r#"Name("db")"#);
    assert_eq!(endpoint("host=db hostaddr=127.0.0.1"), "Address(127.0.0.1)");
    assert_eq!(
        endpoint("host=/run/pg hostaddr=127.0.0.1"),
        "Address(127.0.0.1)"
    );
    assert_eq!(
        parse("postgres://u@[::1]").hosts[0].endpoint(),
        Endpoint::Address(Ipv6Addr::LOCALHOST.into())
    );
    assert_eq!(
        parse("host=127.0.0.1").hosts[0].endpoint(),
        Endpoint::Address(Ipv4Addr::LOCALHOST.into())
    );
}

#[test]
fn the_environment_fills_what_the_string_leaves_open() {
    let variables = [
        ("PGHOST", "envhost"),
        ("PGHOSTADDR", "192.0.2.1"),
        ("PGPORT", "6001"),
        ("PGUSER", "envuser"),
        ("PGPASSWORD", "envpw"),
        ("PGPASSFILE", "/env/pass"),
        ("PGDATABASE", "envdb"),
        ("PGSSLMODE", "verify-ca"),
        ("PGSSLROOTCERT", "/env/ca"),
        ("PGSSLCERT", "/env/cert"),
        ("PGSSLKEY", "/env/key"),
        ("PGAPPNAME", "envapp"),
        ("PGCONNECT_TIMEOUT", "7"),
        ("PGTARGETSESSIONATTRS", "standby"),
    ];
    let options = with_environment("", &variables).unwrap();
    assert_eq!(options.display_target(), "envhost:6001/envdb");
    assert_eq!(options.user(), "envuser");
    assert_eq!(options.password, Some(Secret::new("envpw")));
    assert_eq!(options.passfile, Some("/env/pass".into()));
    assert_eq!(options.ssl.mode, SslMode::VerifyCa);
    assert_eq!(options.ssl.root, RootCert::File("/env/ca".into()));
    assert_eq!(options.ssl.cert, Some("/env/cert".into()));
    assert_eq!(options.ssl.key, Some("/env/key".into()));
    assert_eq!(options.application_name(), Some("envapp"));
    assert_eq!(options.connect_timeout(), Some(Duration::from_secs(7)));
    assert_eq!(options.target_session, TargetSession::Standby);
    assert_eq!(
        options.hosts[0].address,
        Some(Ipv4Addr::new(192, 0, 2, 1).into())
    );
}

#[test]
fn string_beats_environment_and_keywords_beat_the_string() {
    let lookup = |name: &str| match name {
        "PGPORT" => Some("1".to_owned()),
        "PGUSER" => Some("envuser".to_owned()),
        "PGAPPNAME" => Some("envapp".to_owned()),
        _ => None,
    };
    let text = "postgres://urluser@db:2/orders?application_name=";
    let options = ConnectOptions::from_parts(text, &[("port", "3")], &lookup).unwrap();
    assert_eq!(options.display_target(), "db:3/orders");
    assert_eq!(options.user(), "urluser");
    assert_eq!(options.application_name(), None, "empty is a value");
}

#[test]
fn the_user_is_the_systems_where_nobody_names_one() {
    let options = with_environment("host=db", &[("USER", "os")]).unwrap();
    assert_eq!((options.user(), options.dbname()), ("os", "os"));
    assert!(refusal("host=db").contains("user"));
}

#[test]
fn a_bad_environment_value_is_refused_too() {
    let error = with_environment("user=u", &[("PGSSLMODE", "verify_ca")]).unwrap_err();
    assert!(error.to_string().contains("did you mean verify-ca?"));
}

#[test]
fn zero_bytes_are_refused_wherever_they_come_from() {
    let error = ConnectOptions::from_parts("", &[("user", "a\0b")], &no_environment).unwrap_err();
    assert!(error.to_string().contains("zero byte"));
}

#[test]
fn debug_output_shows_no_password() {
    let options = parse("postgres://u:hunter2@db/orders?options=-c%20geqo%3Doff");
    let text = format!("{options:?} {options:#?} {}", options.display_target());
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("orders"));
}

#[test]
fn the_password_file_is_asked_by_host_and_only_without_a_password() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pass");
    std::fs::write(&path, "localhost:*:*:*:socket\ndb:5432:orders:app:file\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let passfile = format!("passfile={}", path.display());
    for (text, expected) in [
        ("host=db user=app dbname=orders", Some("file")),
        (
            "host=db user=app dbname=orders password=given",
            Some("given"),
        ),
        (
            "host=db hostaddr=192.0.2.1 user=app dbname=orders",
            Some("file"),
        ),
        ("host=db user=app dbname=other", None),
        ("user=app", Some("socket")),
        ("host=/var/run/postgresql user=app", Some("socket")),
        ("host=/elsewhere user=app", None),
    ] {
        let options = ConnectOptions::parse(&format!("{text} {passfile}")).unwrap();
        let found = options.password_for(&options.hosts[0]);
        assert_eq!(found, expected.map(Secret::new), "{text}");
    }
}

#[test]
fn later_settings_can_be_put_in_place() {
    let mut options = parse("host=db password=old");
    options.set_password(Secret::new("new"));
    assert_eq!(options.password, Some(Secret::new("new")));
    options.set_default_application_name("posthaste");
    assert_eq!(options.application_name(), Some("posthaste"));
    options.set_default_application_name("other");
    assert_eq!(options.application_name(), Some("posthaste"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*", tail in any::<Vec<u8>>()) {
        let tail = String::from_utf8_lossy(&tail).into_owned();
        for text in [text.clone(), format!("postgres://{text}{tail}"), format!("{text}{tail}")] {
            // Only the absence of a panic is asserted.
            drop(ConnectOptions::parse(&text));
        }
    }

    #[test]
    fn any_value_can_be_written_in_quotes(value in "[^\0]{1,40}") {
        let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
        let options = ConnectOptions::parse(&format!("user='{quoted}'")).unwrap();
        prop_assert_eq!(options.user(), value);
    }

    #[test]
    fn any_value_can_be_percent_encoded(value in "[^\0]{1,40}") {
        let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let options = ConnectOptions::parse(&format!("postgres://{encoded}:x@db")).unwrap();
        prop_assert_eq!(options.user(), value);
    }
}
