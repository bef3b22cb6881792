//! `sslmode` against a real server, as psql behaves.

use crate::support::certificates::{Authority, Pair, self_signed};
use crate::support::{Server, assert_refused, connect_both, proxy};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use replication::{ConnectError, ConnectOptions, connect_sql};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TLS_ON: &str = "ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'";
const TLS_ONLY: &str = "hostssl all all all scram-sha-256";
const ROLE: &str = "CREATE ROLE app LOGIN REPLICATION PASSWORD 'hunter2'";
const APP: &str = "user=app password=hunter2 dbname=postgres hostaddr=127.0.0.1";

/// A server that shows `pair` from its first start.
async fn server_with(pair: &Pair, hba: &str) -> Server {
    let server = Server::start("", hba);
    server.put_certificate(pair);
    server.configure(TLS_ON);
    server.control("restart");
    server.sql(ROLE).await;
    server
}

#[tokio::test]
async fn modes_check_what_they_promise_and_nothing_less() {
    let authority = Authority::new("right");
    let server = server_with(&authority.issue("server", &["db.internal"]), TLS_ONLY).await;
    let right = format!("sslrootcert={}", server.file("right.pem", &authority.pem));
    let wrong = format!(
        "sslrootcert={}",
        server.file("wrong.pem", Authority::new("wrong").pem)
    );
    let absent = "sslrootcert=/nonexistent/root.pem".to_owned();
    let (unknown, named) = (
        "not signed by an authority in sslrootcert",
        "db.internal, server, not for localhost",
    );
    for (mode, root, host, refused) in [
        ("disable", "", "db.internal", Some("no encryption")),
        ("prefer", "", "db.internal", None),
        ("require", "", "db.internal", None),
        ("require", "", "localhost", None),
        ("require", &absent, "localhost", None),
        // libpq: with a root certificate require is verify-ca.
        ("require", &right, "localhost", None),
        ("require", &wrong, "db.internal", Some(unknown)),
        // prefer then goes on without TLS, which this server refuses.
        ("prefer", &wrong, "db.internal", Some(unknown)),
        ("verify-ca", &right, "db.internal", None),
        ("verify-ca", &right, "localhost", None),
        ("verify-ca", &wrong, "db.internal", Some(unknown)),
        ("verify-ca", &absent, "db.internal", Some("does not exist")),
        (
            "verify-ca",
            "",
            "db.internal",
            Some("no root certificate is given"),
        ),
        ("verify-full", &right, "db.internal", None),
        ("verify-full", &right, "DB.Internal", None),
        ("verify-full", &right, "localhost", Some(named)),
        ("verify-full", &right, "", Some("needs a host name")),
        ("verify-full", &wrong, "db.internal", Some(unknown)),
        (
            "verify-full",
            &absent,
            "db.internal",
            Some("does not exist"),
        ),
        (
            "verify-full",
            "sslrootcert=system",
            "db.internal",
            Some("TLS with db.internal"),
        ),
    ] {
        let options = server.options(&format!("{APP} host='{host}' sslmode={mode} {root}"));
        match refused {
            None => connect_both(&options)
                .await
                .unwrap_or_else(|error| panic!("{mode} {root} {host}: {error}")),
            Some(part) => {
                let error = assert_refused(&options, &[part]).await;
                assert!(!error.is_transient(), "{mode} {root} {host}");
            }
        }
    }
}

#[tokio::test]
async fn both_connections_are_encrypted() {
    let pair = Authority::new("right").issue("server", &["db.internal"]);
    let server = server_with(&pair, TLS_ONLY).await;
    let options = server.options(&format!("{APP} sslmode=require"));
    let sql = connect_sql(&options).await.unwrap();
    let replication = replication::connect_replication(&options).await.unwrap();
    let admin = server.sql("").await;
    let statement = "SELECT count(*) FILTER (WHERE ssl), count(*), count(DISTINCT backend_type)
        FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'app'";
    let row = admin.query_one(statement, &[]).await.unwrap();
    let counts: (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(counts, (2, 2, 2));
    let direct = server.options(&format!("{APP} sslmode=require sslnegotiation=direct"));
    // Since version 17 servers take TLS from the first byte.
    assert_eq!(
        connect_both(&direct).await.is_ok(),
        replication.server_major() >= 17
    );
    drop(sql);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_by_every_mode_that_demands_it() {
    let server = Server::start("ssl = off", "host all all all scram-sha-256");
    server.sql(ROLE).await;
    let root = server.file("root.pem", Authority::new("any").pem);
    for mode in ["disable", "prefer"] {
        connect_both(&server.options(&format!("{APP} sslmode={mode}")))
            .await
            .unwrap();
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let text = format!("{APP} host=db.internal sslmode={mode} sslrootcert={root}");
        let error = assert_refused(&server.options(&text), &["does not support TLS"]).await;
        assert!(matches!(error, ConnectError::Tls { .. }));
    }
    // For a socket file sslmode has no meaning.
    server.set_hba("local all app scram-sha-256");
    server.control("restart");
    let sockets = server.sockets();
    let text = format!(
        "user=app password=hunter2 dbname=postgres host={} sslmode=verify-full sslrootcert={root}",
        sockets.display()
    );
    connect_both(&server.options(&text)).await.unwrap();
}

#[tokio::test]
async fn prefer_goes_without_tls_where_only_that_is_let_in() {
    let pair = Authority::new("right").issue("server", &["db.internal"]);
    let server = server_with(&pair, "hostnossl all all all scram-sha-256").await;
    connect_both(&server.options(&format!("{APP} sslmode=prefer")))
        .await
        .unwrap();
    assert_refused(
        &server.options(&format!("{APP} sslmode=require")),
        &["pg_hba.conf"],
    )
    .await;
    // Where TLS itself fails, too.
    let wrong = server.file("wrong.pem", Authority::new("wrong").pem);
    connect_both(&server.options(&format!("{APP} sslmode=prefer sslrootcert={wrong}")))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_named_and_files_are_read_again() {
    let authority = Authority::new("right");
    let server = server_with(
        &authority.issue_expired("server", &["db.internal"]),
        TLS_ONLY,
    )
    .await;
    let root = server.file("root.pem", &authority.pem);
    let full = server.options(&format!(
        "{APP} host=db.internal sslmode=verify-full sslrootcert={root}"
    ));
    let authority_only = server.options(&format!("{APP} sslmode=verify-ca sslrootcert={root}"));
    assert_refused(&full, &["has expired"]).await;
    assert_refused(&authority_only, &["has expired"]).await;
    connect_both(&server.options(&format!("{APP} sslmode=require")))
        .await
        .unwrap();

    // The same options serve after both sides were given new files.
    let renewed = Authority::new("renewed");
    server.put_certificate(&renewed.issue("server", &["db.internal"]));
    server.control("restart");
    assert_refused(&full, &["not signed by an authority"]).await;
    server.file("root.pem", &renewed.pem);
    connect_both(&full).await.unwrap();
}

#[tokio::test]
async fn certificates_made_by_the_manuals_recipes_are_accepted() {
    // Its own authority, the host only as common name, the same file given to the client as root.
    let own = self_signed("db.internal");
    let server = server_with(&own, TLS_ONLY).await;
    let root = server.file("own.pem", &own.certificate_pem);
    let full = |host: &str| {
        server.options(&format!(
            "{APP} host={host} sslmode=verify-full sslrootcert={root}"
        ))
    };
    connect_both(&full("db.internal")).await.unwrap();
    assert_refused(&full("localhost"), &["for db.internal, not for localhost"]).await;

    // Signed by an authority but without extensions: X.509 version 1.
    let authority = Authority::new("right");
    server.put_certificate(&authority.issue_version_1("db.internal"));
    server.control("restart");
    server.file("own.pem", &authority.pem);
    connect_both(&full("db.internal")).await.unwrap();
    assert_refused(&full("localhost"), &["not for localhost"]).await;
    server.file("own.pem", Authority::new("right").pem);
    assert_refused(&full("db.internal"), &["not signed by an authority"]).await;
    connect_both(&server.options(&format!("{APP} sslmode=require")))
        .await
        .unwrap();
}

#[tokio::test]
async fn client_certificates_are_shown_and_their_faults_named() {
    let authority = Authority::new("right");
    let server = server_with(
        &authority.issue("server", &["db.internal"]),
        "hostssl all all all cert",
    )
    .await;
    server.put("clients.crt", &authority.pem);
    server.configure("ssl_ca_file = 'clients.crt'");
    server.control("restart");
    let client = authority.issue("app", &[]);
    let cert = server.file("client.crt", &client.certificate_pem);
    let key = server.file("client.key", client.key.serialize_pem());
    let base = "user=app dbname=postgres hostaddr=127.0.0.1 sslmode=require";
    let with =
        |cert: &str, key: &str| server.options(&format!("{base} sslcert={cert} sslkey={key}"));

    connect_both(&with(&cert, &key)).await.unwrap();
    let der = server.file("client.der", client.key.serialized_der());
    connect_both(&with(&cert, &der)).await.unwrap();
    // Root's keys may be readable by a group, other people's not.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&with(&cert, &key), &["sslkey", "group or world access"]).await;

    let error = assert_refused(&server.options(base), &["valid client certificate"]).await;
    assert_eq!(error.sqlstate(), Some("28000"));
    assert_refused(
        &with("/nonexistent/client.crt", &key),
        &["valid client certificate"],
    )
    .await;
    assert_refused(
        &with(&cert, "/nonexistent/client.key"),
        &["sslkey", "cannot be read"],
    )
    .await;
    let other = authority.issue("other", &[]);
    let other_key = server.file("other.key", other.key.serialize_pem());
    assert_refused(
        &with(&cert, &other_key),
        &["sslkey", "is not that of the certificate"],
    )
    .await;
    let other_cert = server.file("other.crt", &other.certificate_pem);
    assert_refused(&with(&other_cert, &other_key), &["28000"]).await;
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert_refused(
        &with(&cert, &server.file("encrypted.key", text)),
        &["is encrypted"],
    )
    .await;
    assert_refused(
        &with(&cert, &server.file("empty.key", "")),
        &["no private key"],
    )
    .await;
    assert_refused(
        &with(&server.file("empty.crt", ""), &der),
        &["sslcert", "no PEM certificate"],
    )
    .await;

    let stranger = Authority::new("stranger").issue("app", &[]);
    let stranger_cert = server.file("stranger.crt", &stranger.certificate_pem);
    let stranger_key = server.file("stranger.key", stranger.key.serialize_pem());
    let error = connect_sql(&with(&stranger_cert, &stranger_key))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("refuses our client certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn channel_binding_works_with_every_hash_a_signature_can_have() {
    let server = server_with(&self_signed("db.internal"), TLS_ONLY).await;
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let authority = Authority::with_algorithm("right", algorithm);
        server.put_certificate(&authority.issue("server", &["db.internal"]));
        server.control("restart");
        let text = format!("{APP} sslmode=require channel_binding=require");
        connect_both(&server.options(&text)).await.unwrap();
    }
    // Ed25519 has no hash of its own to bind to.
    server.put_certificate(&Authority::with_algorithm("right", &PKCS_ED25519).issue("s", &["s"]));
    server.control("restart");
    connect_both(&server.options(&format!("{APP} sslmode=require")))
        .await
        .unwrap();
    let text = format!("{APP} sslmode=require channel_binding=require");
    assert_refused(&server.options(&text), &["no hash to bind to"]).await;
}

#[tokio::test]
async fn channel_binding_is_required_in_vain_without_tls_or_scram() {
    let server = Server::start(
        "ssl = off\npassword_encryption = md5",
        "host all plain all scram-sha-256\nhost all old all md5\nhost all free all trust",
    );
    server
        .sql(
            "CREATE ROLE old LOGIN REPLICATION PASSWORD 'hunter2'; CREATE ROLE free LOGIN REPLICATION;
             SET password_encryption = 'scram-sha-256';
             CREATE ROLE plain LOGIN REPLICATION PASSWORD 'hunter2'",
        )
        .await;
    for (user, part) in [
        ("plain", "without TLS"),
        ("old", "did not ask for SCRAM"),
        ("free", "did not ask for SCRAM"),
    ] {
        let text = format!(
            "user={user} password=hunter2 dbname=postgres host=127.0.0.1 channel_binding=require"
        );
        let error = assert_refused(&server.options(&text), &[part]).await;
        assert!(matches!(error, ConnectError::Auth { .. }));
    }
}

#[tokio::test]
async fn channel_binding_keeps_a_man_in_the_middle_out() {
    let authority = Authority::new("right");
    let server = server_with(&authority.issue("server", &["db.internal"]), TLS_ONLY).await;
    let port = proxy::start(&self_signed("db.internal"), &authority, server.port).await;
    let through = |setting: &str| {
        let text = format!("{APP} port={port} sslmode=require {setting}");
        ConnectOptions::parse(&text).unwrap()
    };
    // The certificate is not looked at, and still he gets nowhere.
    for setting in ["", "channel_binding=require"] {
        let error =
            assert_refused(&through(setting), &["SCRAM channel binding check failed"]).await;
        assert_eq!(error.sqlstate(), Some("28000"));
    }
    // Without binding he reads along: it is the binding that keeps him out.
    connect_both(&through("channel_binding=disable"))
        .await
        .unwrap();
}
