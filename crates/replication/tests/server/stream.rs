//! Slots and streaming against a real walsender.

use crate::support::Server;
use replication::{
    ConnectError, CopyBoth, Frame, ReplicationClient, connect_replication, quote_ident,
    quote_literal,
};
use std::time::Duration;
use tokio_postgres::Client;

async fn server() -> (Server, Client) {
    let server = Server::start("wal_sender_timeout = 2s", "");
    let admin = server
        .sql("CREATE TABLE public.t (id int PRIMARY KEY, body text); CREATE PUBLICATION pub FOR TABLE public.t")
        .await;
    (server, admin)
}

async fn replication(server: &Server) -> ReplicationClient {
    connect_replication(&server.superuser()).await.unwrap()
}

async fn create_slot(server: &Server) {
    let mut client = replication(server).await;
    client.create_logical_slot("outbox", false).await.unwrap();
}

async fn streaming(server: &Server, slot: &str, publication: &str) -> CopyBoth {
    let options = [
        ("proto_version", "1".to_owned()),
        ("publication_names", quote_ident(publication)),
    ];
    replication(server)
        .await
        .start_replication(slot, 0, &options)
        .await
        .unwrap()
}

/// A standby status update that confirms `position`, by the manual's "Streaming Replication Protocol".
fn status(position: u64, reply_requested: bool) -> Vec<u8> {
    let mut body = vec![b'r'];
    (0..3).for_each(|_| body.extend(position.to_be_bytes()));
    body.extend(0i64.to_be_bytes());
    body.push(u8::from(reply_requested));
    body
}

/// The next piece of WAL data, with keepalives answered on the way.
async fn next_message(stream: &mut CopyBoth) -> Vec<u8> {
    let limit = Duration::from_secs(20);
    loop {
        let answer = match tokio::time::timeout(limit, stream.next_frame())
            .await
            .unwrap()
            .unwrap()
        {
            Frame::Data([b'w', rest @ ..]) => return rest[24..].to_vec(),
            Frame::Data([b'k', rest @ ..]) => rest[16] == 1,
            other => panic!("{other:?}"),
        };
        if answer {
            stream.send(&status(0, false)).await.unwrap();
        }
    }
}

/// Messages up to the end of a transaction, as their tags.
async fn next_transaction(stream: &mut CopyBoth) -> String {
    let mut tags = String::new();
    while !tags.ends_with('C') {
        tags.push(char::from(next_message(stream).await[0]));
    }
    tags
}

#[tokio::test]
async fn the_server_tells_who_it_is() {
    let (server, admin) = server().await;
    let mut client = replication(&server).await;
    let identity = client.identify_system().await.unwrap();
    let row = admin
        .query_one(
            "SELECT system_identifier::text FROM pg_control_system()",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(identity.system_id, row.get::<_, String>(0));
    assert_eq!(
        (identity.timeline, identity.dbname.as_str()),
        (1, "postgres")
    );
    assert!(identity.wal_position > 0);
    assert_eq!(
        client.show("wal_level").await.unwrap().as_deref(),
        Some("logical")
    );
    assert_eq!(client.timeline_history(1).await.unwrap(), []);
    // An error of a command leaves the connection usable.
    let error = client.timeline_history(7).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("58P01"));
    assert_eq!(
        client.identify_system().await.unwrap().system_id,
        identity.system_id
    );
    client.close().await;
}

#[tokio::test]
async fn slots_are_made_and_dropped_and_bad_names_refused() {
    let (server, admin) = server().await;
    let mut client = replication(&server).await;
    let position = client.create_logical_slot("outbox", false).await.unwrap();
    let statement = "SELECT plugin, confirmed_flush_lsn - '0/0'::pg_lsn = $1::text::numeric FROM pg_replication_slots";
    let row = admin
        .query_one(statement, &[&position.to_string()])
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, String>(0), row.get::<_, bool>(1)),
        ("pgoutput".into(), true)
    );

    let error = client
        .create_logical_slot("outbox", false)
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some("42710"));
    let error = client
        .create_logical_slot("Bad-Name", false)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains(r#"replication slot name "Bad-Name" contains invalid character"#),
        "{error}"
    );
    // The walsender's parser knows no doubled quote inside a name: two names, a syntax error.
    for (hostile, code) in [
        (r#"x" LOGICAL pgoutput; DROP TABLE public.t; --"#, "42601"),
        (r#"x" LOGICAL test_decoding --"#, "42601"),
        ("it's", "42602"),
        ("", "42602"),
    ] {
        let error = client
            .create_logical_slot(hostile, false)
            .await
            .unwrap_err();
        assert_eq!(error.sqlstate(), Some(code), "{error}");
    }
    if client.server_major() < 17 {
        let error = client
            .create_logical_slot("standby", true)
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Config { .. }), "{error}");
    } else {
        client.create_logical_slot("standby", true).await.unwrap();
        client.drop_slot("standby").await.unwrap();
    }
    client.drop_slot("outbox").await.unwrap();
    let error = client.drop_slot("outbox").await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("42704"));
    let slots = admin
        .query_one("SELECT count(*) FROM pg_replication_slots", &[])
        .await
        .unwrap();
    assert_eq!(slots.get::<_, i64>(0), 0);
    admin
        .query_one("SELECT count(*) FROM public.t", &[])
        .await
        .unwrap();
}

#[tokio::test]
async fn rows_are_streamed_and_a_quiet_stream_is_kept_alive() {
    let (server, admin) = server().await;
    create_slot(&server).await;
    let mut stream = streaming(&server, "outbox", "pub").await;
    admin
        .batch_execute("INSERT INTO public.t VALUES (1, 'a'), (2, 'b')")
        .await
        .unwrap();
    assert_eq!(next_transaction(&mut stream).await, "BRIIC");

    // Longer than wal_sender_timeout: only answered keepalives keep the connection.
    let pid = "SELECT active_pid FROM pg_replication_slots";
    let before: i32 = admin.query_one(pid, &[]).await.unwrap().get(0);
    let quiet = async {
        loop {
            match stream.next_frame().await.unwrap() {
                Frame::Data([b'k', .., 1]) => {}
                Frame::Data([b'k', ..]) => continue,
                other => panic!("{other:?}"),
            }
            stream.send(&status(0, false)).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(5), quiet)
        .await
        .unwrap_err();
    admin
        .batch_execute("INSERT INTO public.t VALUES (3, 'c')")
        .await
        .unwrap();
    assert_eq!(next_transaction(&mut stream).await, "BIC");
    let after: i32 = admin.query_one(pid, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
}

#[tokio::test]
async fn what_was_sent_before_finishing_has_been_confirmed() {
    let (server, admin) = server().await;
    let mut client = replication(&server).await;
    client.create_logical_slot("outbox", false).await.unwrap();
    let mut stream = streaming(&server, "outbox", "pub").await;
    admin
        .batch_execute("INSERT INTO public.t VALUES (1, 'a')")
        .await
        .unwrap();
    assert_eq!(next_transaction(&mut stream).await, "BRIC");
    let position = client.identify_system().await.unwrap().wal_position;
    stream.send(&status(position, false)).await.unwrap();
    stream.finish().await;
    let statement =
        "SELECT active, (confirmed_flush_lsn - '0/0'::pg_lsn)::text FROM pg_replication_slots";
    let row = admin.query_one(statement, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(1), position.to_string());
    // Nothing comes twice.
    let mut stream = streaming(&server, "outbox", "pub").await;
    admin
        .batch_execute("INSERT INTO public.t VALUES (2, 'b')")
        .await
        .unwrap();
    assert_eq!(next_transaction(&mut stream).await, "BRIC");
}

#[tokio::test]
async fn finishing_under_load_is_bounded() {
    let (server, admin) = server().await;
    create_slot(&server).await;
    let rows = "INSERT INTO public.t SELECT g, repeat('x', 200) FROM generate_series(1, 100000) g";
    admin.batch_execute(rows).await.unwrap();
    let mut stream = streaming(&server, "outbox", "pub").await;
    next_message(&mut stream).await;
    tokio::time::timeout(Duration::from_secs(5), stream.finish())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_frame_above_the_limit_is_passed_over_and_the_stream_goes_on() {
    let (server, admin) = server().await;
    create_slot(&server).await;
    let mut stream = streaming(&server, "outbox", "pub").await;
    stream.set_frame_bytes_max(1024 * 1024);
    admin
        .batch_execute("INSERT INTO public.t VALUES (1, 'a'), (2, repeat('x', 20000000)), (3, 'c')")
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&'C') {
        match stream.next_frame().await.unwrap() {
            Frame::Data([b'w', rest @ ..]) => seen.push(char::from(rest[24])),
            Frame::Data(_) => {}
            Frame::TooLarge { size_bytes, head } => {
                assert!(
                    (20_000_000..20_001_000).contains(&size_bytes),
                    "{size_bytes}"
                );
                assert_eq!(head.len(), 4096);
                assert_eq!((head[0], head[25]), (b'w', b'I'));
                seen.push('!');
            }
            Frame::End => panic!("the stream ended"),
        }
    }
    assert_eq!(seen, ['B', 'R', 'I', '!', 'I', 'C']);
}

#[tokio::test]
async fn a_slot_in_use_is_said_so() {
    let (server, admin) = server().await;
    create_slot(&server).await;
    let _stream = streaming(&server, "outbox", "pub").await;
    let options = [
        ("proto_version", "1".to_owned()),
        ("publication_names", "pub".to_owned()),
    ];
    let client = replication(&server).await;
    let error = client
        .start_replication("outbox", 0, &options)
        .await
        .unwrap_err();
    let pid: i32 = admin
        .query_one("SELECT active_pid FROM pg_replication_slots", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(error.sqlstate(), Some("55006"));
    assert!(
        error.to_string().contains(&format!(
            r#"replication slot "outbox" is active for PID {pid}"#
        )),
        "{error}"
    );
    assert!(error.is_transient());
    let error = replication(&server)
        .await
        .drop_slot("outbox")
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some("55006"));
}

#[tokio::test]
async fn names_that_need_quoting_arrive_as_they_are() {
    let server = Server::start("", "local all all trust");
    let admin = server
        .sql(r#"CREATE ROLE "App-Role" LOGIN REPLICATION"#)
        .await;
    admin
        .batch_execute(r#"CREATE DATABASE "My-Db.1""#)
        .await
        .unwrap();
    let text = format!(
        "host={} user=App-Role dbname=My-Db.1",
        server.sockets().display()
    );
    let options = server.options(&text);
    let owner = format!(
        "host={} user=postgres dbname=My-Db.1",
        server.sockets().display()
    );
    let sql = replication::connect_sql(&server.options(&owner))
        .await
        .unwrap();
    sql.batch_execute(
        r#"CREATE SCHEMA "Sales-EU"; CREATE TABLE "Sales-EU"."Out""box" (id int PRIMARY KEY);
           CREATE PUBLICATION "a,b" FOR TABLE "Sales-EU"."Out""box";
           CREATE PUBLICATION "Pub-1 it's ""x""" FOR TABLE "Sales-EU"."Out""box""#,
    )
    .await
    .unwrap();
    let mut client = connect_replication(&options).await.unwrap();
    assert_eq!(client.identify_system().await.unwrap().dbname, "My-Db.1");
    client.create_logical_slot("slot_1", false).await.unwrap();
    let names = ["a,b", r#"Pub-1 it's "x""#].map(quote_ident).join(",");
    let options = [
        ("proto_version", "1".to_owned()),
        ("publication_names", names),
    ];
    let mut stream = client
        .start_replication("slot_1", 0, &options)
        .await
        .unwrap();
    sql.batch_execute(r#"INSERT INTO "Sales-EU"."Out""box" VALUES (1)"#)
        .await
        .unwrap();
    assert_eq!(next_transaction(&mut stream).await, "BRIC");
    // The quoting functions against the server's own parser.
    for name in [
        r#"Out"box"#,
        r"back\slash",
        "it's",
        "a b",
        "größe",
        r#"\"'"#,
    ] {
        let statement = format!("SELECT {} AS {}", quote_literal(name), quote_ident(name));
        for strings in ["on", "off"] {
            sql.batch_execute(&format!("SET standard_conforming_strings = {strings}"))
                .await
                .unwrap();
            let row = sql.query_one(&statement, &[]).await.unwrap();
            assert_eq!(
                (row.get::<_, &str>(0), row.columns()[0].name()),
                (name, name)
            );
        }
    }
}

#[tokio::test]
async fn an_ended_backend_is_told_from_a_lost_connection() {
    let (server, admin) = server().await;
    create_slot(&server).await;
    let mut stream = streaming(&server, "outbox", "pub").await;
    let end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots";
    admin.query_one(end, &[]).await.unwrap();
    let error = loop {
        match stream.next_frame().await {
            Ok(Frame::End) => panic!("ended without an error"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.sqlstate(), Some("57P01"), "{error}");
    assert!(error.is_transient());
    let error = stream.next_frame().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_shuts_down_ends_the_stream() {
    let (server, _admin) = server().await;
    let mut client = replication(&server).await;
    client.create_logical_slot("outbox", false).await.unwrap();
    let stream = streaming(&server, "outbox", "pub").await;
    let reader = tokio::spawn(async move {
        let mut stream = stream;
        loop {
            let position = match stream.next_frame().await {
                Ok(Frame::Data([b'k', rest @ ..])) => {
                    u64::from_be_bytes(rest[..8].try_into().unwrap())
                }
                Ok(Frame::End) => return Ok(()),
                Ok(_) => continue,
                Err(error) => return Err(error),
            };
            // Confirming everything lets the server go.
            stream.send(&status(position, false)).await?;
        }
    });
    let stopped = tokio::task::spawn_blocking(move || {
        server.control("stop");
        server
    });
    let _server = tokio::time::timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    reader.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_command_dropped_half_way_does_not_answer_the_next() {
    let (server, admin) = server().await;
    // An open transaction makes the creation of a slot wait.
    admin
        .batch_execute("BEGIN; INSERT INTO public.t VALUES (1, 'a')")
        .await
        .unwrap();
    let mut client = replication(&server).await;
    let creation = client.create_logical_slot("outbox", false);
    tokio::time::timeout(Duration::from_millis(300), creation)
        .await
        .unwrap_err();
    let error = client.identify_system().await.unwrap_err();
    assert!(error.to_string().contains("was not finished"), "{error}");
}
