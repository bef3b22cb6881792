//! Getting in: passwords, sockets, host lists, and every way of being turned away.

use crate::support::certificates::self_signed;
use crate::support::{Server, assert_refused, connect_both, with_causes};
use replication::{ConnectError, ConnectOptions, connect_replication, connect_sql};
use std::time::{Duration, Instant};

const ROLES: &str = "
    CREATE ROLE scram LOGIN REPLICATION PASSWORD 'hunter2';
    CREATE ROLE clear LOGIN REPLICATION PASSWORD 'hunter2';
    CREATE ROLE free LOGIN REPLICATION;
    CREATE ROLE reader LOGIN PASSWORD 'hunter2';
    CREATE ROLE \"O'Brien \"\"x\" LOGIN REPLICATION PASSWORD 'p w''\\\\';
    SET password_encryption = 'md5';
    CREATE ROLE old LOGIN REPLICATION PASSWORD 'hunter2'";
const HBA: &str = "
    host  all old    all md5
    host  all clear  all password
    host  all free   all trust
    local all free   trust
    host  all all    all scram-sha-256
    local all all    scram-sha-256";

async fn server() -> Server {
    let server = Server::start("", HBA);
    server.sql(ROLES).await;
    server
}

#[tokio::test]
async fn passwords_are_accepted_by_every_method_and_refused_by_name() {
    let server = server().await;
    let options = |text: &str| server.options(&format!("dbname=postgres host=127.0.0.1 {text}"));
    for user in ["scram", "old"] {
        connect_both(&options(&format!("user={user} password=hunter2")))
            .await
            .unwrap();
        let error = assert_refused(
            &options(&format!("user={user} password=wrong-hunter2")),
            &["28P01"],
        )
        .await;
        assert!(!error.is_transient());
        assert_refused(
            &options(&format!("user={user}")),
            &["asks for a password and none is given"],
        )
        .await;
    }
    connect_both(&options("user=free")).await.unwrap();
    connect_both(&options(r#"user='O\'Brien "x' password='p w\'\\\\'"#))
        .await
        .unwrap();
    assert_refused(&options("user=nobody password=hunter2"), &["28P01"]).await;
}

#[tokio::test]
async fn clear_text_passwords_leave_inside_tls_only() {
    let server = Server::start("", HBA);
    server.put_certificate(&self_signed("db.internal"));
    server.configure("ssl = on");
    server.control("restart");
    server.sql(ROLES).await;
    let options = |mode: &str| {
        server.options(&format!(
            "dbname=postgres host=127.0.0.1 user=clear password=hunter2 sslmode={mode}"
        ))
    };
    connect_both(&options("require")).await.unwrap();
    connect_both(&options("prefer")).await.unwrap();
    let error = assert_refused(&options("disable"), &["clear text", "without TLS"]).await;
    assert!(matches!(error, ConnectError::Auth { .. }));
}

#[tokio::test]
async fn the_password_file_and_the_environment_supply_passwords() {
    let server = server().await;
    let passfile = server.file(
        "pass",
        format!("127.0.0.1:{}:*:scram:hunter2\n", server.port),
    );
    let text = format!("dbname=postgres host=127.0.0.1 user=scram passfile={passfile}");
    connect_both(&server.options(&text)).await.unwrap();
    // Read at every connect.
    server.file("pass", "*:*:*:*:wrong\n");
    assert_refused(&server.options(&text), &["28P01"]).await;

    let port = server.port.to_string();
    let lookup = |name: &str| match name {
        "PGHOST" => Some("127.0.0.1".to_owned()),
        "PGPORT" => Some(port.clone()),
        "PGUSER" => Some("scram".to_owned()),
        "PGDATABASE" => Some("postgres".to_owned()),
        "PGPASSWORD" => Some("hunter2".to_owned()),
        _ => None,
    };
    connect_both(&ConnectOptions::from_parts("", &[], &lookup).unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn sockets_and_both_kinds_of_address_are_reached() {
    let server = server().await;
    let sockets = server.sockets().display().to_string();
    let port = server.port;
    for text in [
        format!("host={sockets} user=scram password=hunter2 dbname=postgres port={port}"),
        format!(
            "postgres://scram:hunter2@{}:{port}/postgres",
            sockets.replace('/', "%2F")
        ),
        format!("postgres://scram:hunter2@/postgres?host={sockets}&port={port}"),
        format!("postgres://scram:hunter2@[::1]:{port}/postgres"),
        format!("postgres://scram:hunter2@127.0.0.1:{port}/postgres"),
        format!("postgres://scram:hunter2@localhost:{port}/postgres"),
        format!("postgres://scram:hunter2@no.such.name:{port}/postgres?hostaddr=::1"),
        format!(
            "postgres://scram:hunter2@localhost:{port}/postgres?keepalives_idle=30&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=5000"
        ),
    ] {
        let options = ConnectOptions::parse(&text).unwrap();
        connect_both(&options)
            .await
            .unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[tokio::test]
async fn abstract_sockets_are_reached() {
    let server = Server::start("", "local all free trust");
    server.sql("CREATE ROLE free LOGIN REPLICATION").await;
    let name = format!("@replication-test-{}", server.port);
    server.configure(&format!(
        "unix_socket_directories = '{},{name}'",
        server.sockets().display()
    ));
    server.control("restart");
    connect_both(&server.options(&format!("host={name} user=free dbname=postgres")))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_host_list_is_searched_for_the_wanted_kind_of_server() {
    let server = server().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let options = |hosts: &str, ports: &str, wanted: &str| {
        let text = format!(
            "host={hosts} port={ports} user=free dbname=postgres target_session_attrs={wanted}"
        );
        ConnectOptions::parse(&text).unwrap()
    };
    let live = server.port;
    let two = format!("{closed},{live}");
    for wanted in ["any", "read-write", "primary", "prefer-standby"] {
        connect_both(&options("127.0.0.1,127.0.0.1", &two, wanted))
            .await
            .unwrap();
    }
    for wanted in ["standby", "read-only"] {
        let error = assert_refused(
            &options("127.0.0.1,::1", &live.to_string(), wanted),
            &[
                "no host is usable",
                &format!("127.0.0.1:{live}"),
                &format!("[::1]:{live}"),
                "is not a standby",
            ],
        )
        .await;
        assert!(error.is_transient());
    }
    let error = assert_refused(
        &options("127.0.0.1,::1", &closed.to_string(), "any"),
        &["connection refused"],
    )
    .await;
    assert!(matches!(error, ConnectError::Unreachable { .. }));
    // A refusal ends the search, as with libpq.
    let text = format!("host=127.0.0.1,::1 port={live} user=scram password=wrong dbname=postgres");
    assert_refused(&ConnectOptions::parse(&text).unwrap(), &["28P01"]).await;
}

#[tokio::test]
async fn a_role_that_defaults_to_read_only_counts_as_read_write() {
    let server = server().await;
    server
        .sql("ALTER ROLE free SET default_transaction_read_only = on")
        .await;
    let text = "host=127.0.0.1 user=free dbname=postgres target_session_attrs=read-write";
    let client = connect_sql(&server.options(text)).await.unwrap();
    client
        .batch_execute("CREATE TEMPORARY TABLE t (a int)")
        .await
        .unwrap();
    connect_replication(&server.options(text)).await.unwrap();
}

#[tokio::test]
async fn refusals_keep_their_codes() {
    let server = server().await;
    let options = |text: &str| server.options(&format!("host=127.0.0.1 {text}"));
    let error = assert_refused(&options("user=free dbname=nowhere"), &["3D000"]).await;
    assert!(!error.is_transient());
    let reader = options("user=reader password=hunter2 dbname=postgres");
    connect_sql(&reader).await.unwrap();
    let error = connect_replication(&reader).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("42501"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_full_server_is_unreachable_for_now() {
    let server = Server::start(
        "max_connections = 4\nsuperuser_reserved_connections = 1",
        HBA,
    );
    server.sql(ROLES).await;
    let options = server.options("host=127.0.0.1 user=free dbname=postgres");
    let mut held = Vec::new();
    let error = loop {
        match connect_sql(&options).await {
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
    };
    assert!(held.len() <= 4);
    assert_eq!(error.sqlstate(), Some("53300"));
    assert!(
        matches!(error, ConnectError::Unreachable { .. }) && error.is_transient(),
        "{error}"
    );
}

#[tokio::test]
async fn a_stopped_server_is_unreachable_over_socket_and_tcp() {
    let server = server().await;
    server.control("stop");
    for host in [
        server.sockets().display().to_string(),
        "127.0.0.1".to_owned(),
    ] {
        let options = server.options(&format!("host={host} user=free dbname=postgres"));
        let error = assert_refused(&options, &["cannot reach", &host]).await;
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_silent_peer_is_given_up_after_the_timeout() {
    // Accepts by its backlog and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for mode in ["disable", "prefer", "require"] {
        let text = format!("host=127.0.0.1 port={port} user=u connect_timeout=1 sslmode={mode}");
        let start = Instant::now();
        let error = connect_sql(&ConnectOptions::parse(&text).unwrap())
            .await
            .unwrap_err();
        assert!(
            with_causes(&error).contains("no answer within 1 s"),
            "{error}"
        );
        assert!(error.is_transient());
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test]
async fn primary_and_standby_are_told_apart_and_a_promotion_is_noticed() {
    let primary = Server::start("", HBA);
    primary.sql(ROLES).await;
    let standby = Server::standby_of(&primary);
    let (first, second) = (primary.port, standby.port);
    let reached = async |ports: &str, wanted: &str| {
        let text = format!(
            "host=127.0.0.1,127.0.0.1 port={ports} user=free dbname=postgres target_session_attrs={wanted}"
        );
        let client = connect_sql(&ConnectOptions::parse(&text).unwrap()).await?;
        let row = client.query_one("SHOW port", &[]).await.unwrap();
        Ok::<u16, ConnectError>(row.get::<_, String>(0).parse().unwrap())
    };
    for ports in [format!("{first},{second}"), format!("{second},{first}")] {
        for wanted in ["primary", "read-write"] {
            assert_eq!(
                reached(&ports, wanted).await.unwrap(),
                first,
                "{ports} {wanted}"
            );
        }
        for wanted in ["standby", "read-only", "prefer-standby"] {
            assert_eq!(
                reached(&ports, wanted).await.unwrap(),
                second,
                "{ports} {wanted}"
            );
        }
    }
    primary.control("stop");
    let ports = format!("{first},{second}");
    let error = reached(&ports, "primary").await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("is a standby"),
        "{error}"
    );

    standby.control("promote");
    assert_eq!(reached(&ports, "primary").await.unwrap(), second);
    let mut client = connect_replication(&standby.superuser()).await.unwrap();
    let identity = client.identify_system().await.unwrap();
    assert_eq!(identity.timeline, 2);
    let history = client.timeline_history(2).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].timeline, 1);
    assert!(history[0].end > 0 && history[0].end <= identity.wal_position);
}
