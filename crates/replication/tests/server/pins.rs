//! Session settings that nobody can turn against us.

use crate::support::Server;
use replication::{connect_replication, connect_sql};

/// Every pin, the value somebody sets against it, and what must hold nevertheless.
const PINS: &[(&str, &str, &str)] = &[
    ("client_encoding", "'LATIN1'", "UTF8"),
    ("DateStyle", "'SQL, DMY'", "ISO, MDY"),
    ("IntervalStyle", "'sql_standard'", "postgres"),
    ("TimeZone", "'Asia/Kathmandu'", "UTC"),
    ("bytea_output", "'escape'", "hex"),
    ("extra_float_digits", "-15", "3"),
    ("search_path", "hostile, public", ""),
    ("lc_monetary", "'C.UTF-8'", "C"),
    ("xmlbinary", "'hex'", "base64"),
    ("statement_timeout", "'2s'", "0"),
    ("lock_timeout", "'1s'", "0"),
    ("idle_in_transaction_session_timeout", "'1s'", "0"),
    ("idle_session_timeout", "'2s'", "0"),
    ("default_transaction_read_only", "on", "off"),
    ("synchronous_commit", "off", "on"),
];
/// Known to PostgreSQL 17 and later.
const PINS_17: &[(&str, &str, &str)] = &[("transaction_timeout", "'2s'", "0")];

async fn assert_pinned(server: &Server, pins: &[(&str, &str, &str)], options: &str) {
    let text = format!(
        "host={} user=app dbname=app {options}",
        server.sockets().display()
    );
    let options = server.options(&text);
    let sql = connect_sql(&options).await.unwrap();
    let mut replication = connect_replication(&options).await.unwrap();
    for (name, _, expected) in pins {
        let row = sql.query_one(&format!("SHOW {name}"), &[]).await.unwrap();
        assert_eq!(
            row.get::<_, String>(0),
            *expected,
            "{name} on the SQL connection"
        );
        let shown = replication.show(name).await.unwrap();
        assert_eq!(
            shown.as_deref(),
            Some(*expected),
            "{name} on the replication connection"
        );
    }
}

#[tokio::test]
async fn pins_hold_against_role_database_and_role_in_database() {
    let server = Server::start("", "local all app trust");
    let admin = server
        .sql("CREATE ROLE app LOGIN REPLICATION; CREATE SCHEMA hostile;")
        .await;
    admin.batch_execute("CREATE DATABASE app").await.unwrap();
    let major = connect_replication(&server.superuser())
        .await
        .unwrap()
        .server_major();
    let mut pins = PINS.to_vec();
    if major >= 17 {
        pins.extend(PINS_17);
    }
    assert_pinned(&server, &pins, "").await;

    for target in ["ROLE app", "DATABASE app", "ROLE app IN DATABASE app"] {
        for (name, hostile, _) in &pins {
            admin
                .batch_execute(&format!("ALTER {target} SET {name} = {hostile}"))
                .await
                .unwrap();
        }
        assert_pinned(&server, &pins, "").await;
        for (name, _, _) in &pins {
            admin
                .batch_execute(&format!("ALTER {target} RESET {name}"))
                .await
                .unwrap();
        }
    }

    // All three levels at once, and the user's own start-up options on top.
    for target in ["ROLE app", "DATABASE app", "ROLE app IN DATABASE app"] {
        for (name, hostile, _) in &pins {
            admin
                .batch_execute(&format!("ALTER {target} SET {name} = {hostile}"))
                .await
                .unwrap();
        }
    }
    let own = pins
        .iter()
        .filter(|(name, _, _)| *name != "transaction_timeout");
    let own = own.map(|(name, hostile, _)| {
        format!(
            "-c {name}={}",
            hostile.replace('\'', "").replace(' ', "\\ ")
        )
    });
    let own = own.collect::<Vec<_>>().join(" ").replace('\\', r"\\");
    assert_pinned(&server, &pins, &format!("options='{own}'")).await;
}

#[tokio::test]
async fn the_hostile_settings_would_apply_without_the_pins() {
    // Guards the test above: settings for a role reach both kinds of session.
    let server = Server::start("", "local all app trust");
    server
        .sql(
            "CREATE ROLE app LOGIN REPLICATION;
             ALTER ROLE app SET geqo_seed = 0.25; ALTER ROLE app SET work_mem = '777kB'",
        )
        .await;
    let text = format!(
        "host={} user=app dbname=postgres",
        server.sockets().display()
    );
    let sql = connect_sql(&server.options(&text)).await.unwrap();
    let row = sql.query_one("SHOW work_mem", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "777kB");
    let mut replication = connect_replication(&server.options(&text)).await.unwrap();
    assert_eq!(
        replication.show("geqo_seed").await.unwrap().as_deref(),
        Some("0.25")
    );
}

#[tokio::test]
async fn the_users_options_and_name_arrive() {
    let server = Server::start("", "local all app trust");
    server.sql("CREATE ROLE app LOGIN REPLICATION").await;
    let text = format!(
        r"host={} user=app dbname=postgres application_name='po st' options='-c geqo=off -c work_mem=1MB'",
        server.sockets().display()
    );
    let options = server.options(&text);
    let sql = connect_sql(&options).await.unwrap();
    let row = sql
        .query_one(
            "SELECT current_setting('geqo'), current_setting('application_name')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, String>(0), row.get::<_, String>(1)),
        ("off".into(), "po st".into())
    );
    let mut replication = connect_replication(&options).await.unwrap();
    assert_eq!(
        replication.show("work_mem").await.unwrap().as_deref(),
        Some("1MB")
    );
    assert_eq!(replication.show("no_such.setting").await.unwrap(), None);
    assert_eq!(replication.show("no such setting").await.unwrap(), None);
}
