//! The server and the connections: version, recovery, settings, rights, poolers.

use std::sync::Arc;

use posthaste::codes::Code;
use posthaste::preconditions::{CheckError, Wanted, open};
use replication::ConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use xtask::postgres::StopMode;

use crate::fixture::{Fixture, own_server, run};

#[test]
fn b31_a_wal_level_replica() {
    let fixture = Fixture::on(own_server(&[("wal_level", "replica")]), "b31a");
    fixture.refused(
        &fixture.wanted_created(),
        Code::WalLevel,
        &["wal_level", "replica", "logical", "ALTER SYSTEM"],
    );
}

#[test]
fn b31_a_wal_level_minimal_is_told_before_the_missing_walsenders() {
    let settings = [("wal_level", "minimal"), ("max_wal_senders", "0")];
    let fixture = Fixture::on(own_server(&settings), "b31a");
    fixture.refused(
        &fixture.wanted_created(),
        Code::WalLevel,
        &["wal_level", "minimal"],
    );
}

#[test]
fn b31_b_role_without_replication() {
    let fixture = Fixture::new("b31b");
    fixture.admin("ALTER ROLE b31b NOREPLICATION");
    fixture.refused(
        &fixture.wanted_created(),
        Code::ReplicationRight,
        &["REPLICATION", "ALTER ROLE"],
    );
}

#[test]
fn b31_g_pooler_that_refuses_the_replication_parameter() {
    let fixture = Fixture::new("b31g");
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pooler = listener.local_addr().unwrap().port();
        let port = fixture.server.port();
        let _pooler = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pool(client, port));
            }
        });
        let url = format!("postgres://b31g:secret@127.0.0.1:{pooler}/b31g?sslmode=disable");
        let options = ConnectOptions::parse(&url).unwrap();
        match open(&options, &fixture.wanted()).await {
            Err(CheckError::Problem(problem)) => {
                assert_eq!(problem.code, Code::ServerPooler, "{problem}");
                assert!(
                    problem
                        .to_string()
                        .contains("address of the PostgreSQL server itself"),
                    "{problem}"
                );
            }
            other => panic!("{other:?}"),
        }
    });
}

/// What a pooler does: ordinary sessions pass, a replication session is refused in PgBouncer's words.
async fn pool(mut client: TcpStream, port: u16) -> std::io::Result<()> {
    let length = client.read_i32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut startup).await?;
    if startup.windows(11).any(|window| window == b"replication") {
        let fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: replication\0\0";
        client.write_u8(b'E').await?;
        client
            .write_i32(i32::try_from(fields.len()).unwrap() + 4)
            .await?;
        return client.write_all(fields).await;
    }
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    server.write_i32(length).await?;
    server.write_all(&startup).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server)
        .await
        .map(drop)
}

#[test]
fn b31_j_standby_is_told_apart_so_that_a_host_list_can_go_on() {
    let server = own_server(&[]);
    let fixture = Fixture::on(Arc::clone(&server), "b31j");
    server.stop(StopMode::Fast).unwrap();
    // Without a primary to follow it stays in recovery for ever.
    std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    server.start_again().unwrap();
    match run(fixture.check(&fixture.wanted_created())) {
        Err(CheckError::Standby(problem)) => {
            assert_eq!(problem.code, Code::Standby);
            assert!(problem.to_string().contains("primary"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn b31_l_settings_of_the_role_do_not_matter() {
    let fixture = Fixture::new("b31l");
    for setting in [
        "statement_timeout = '2s'",
        "lock_timeout = '1s'",
        "default_transaction_read_only = on",
        "search_path = audit, pg_temp",
        "DateStyle = 'German'",
        "client_min_messages = 'error'",
    ] {
        fixture.admin(&format!("ALTER ROLE b31l SET {setting}"));
    }
    let checked = fixture.passes(&fixture.wanted_created());
    assert!(checked.created.publication && checked.created.slot);
    fixture.passes(&fixture.wanted());
}

#[test]
fn the_servers_facts_are_handed_on() {
    let fixture = Fixture::new("facts");
    fixture.admin("ALTER ROLE facts SET wal_sender_timeout = '7s'");
    let checked = fixture.passes(&fixture.wanted_created());
    let system_identifier = fixture.admin("SELECT system_identifier FROM pg_control_system()");
    assert_eq!(checked.identity.system_identifier, system_identifier);
    assert_eq!(
        (
            checked.identity.database.as_str(),
            checked.identity.slot.as_str()
        ),
        ("facts", "facts")
    );
    assert_eq!(checked.identity.timeline, 1);
    assert_eq!(checked.wal_sender_timeout.as_secs(), 7);
    let version = fixture.admin("SHOW server_version_num");
    assert_eq!(checked.server_version.to_string(), version);
    let confirmed =
        "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'facts'";
    assert_eq!(checked.slot_confirmed.to_string(), fixture.admin(confirmed));
    assert!(checked.server_wal_position.as_u64() > 0);
}

#[test]
fn a_wrong_password_stays_a_matter_of_the_connection() {
    let fixture = Fixture::new("wrong_password");
    fixture.admin("ALTER ROLE wrong_password PASSWORD 'changed'");
    match run(fixture.check(&Wanted::default())) {
        Err(CheckError::Connect(error)) => assert!(!error.is_transient()),
        other => panic!("{other:?}"),
    }
}
