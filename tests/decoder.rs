//! Message kinds and operations that make no record, and do not stop or hold anything either.

use anyhow::{Result, ensure};
use e2e::fixture::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b06_every_message_kind_is_read_and_only_outbox_rows_make_records() -> Result<()> {
    let fixture = Fixture::new("b06").await?;
    fixture
        .sql(&format!(
            "DROP PUBLICATION {0}; CREATE PUBLICATION {0} FOR ALL TABLES;
             SELECT pg_drop_replication_slot('{1}')",
            fixture.publication, fixture.slot
        ))
        .await?;
    fixture.create_slot().await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let walsender = fixture.watch_slot().await?.walsender().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    let origin = format!("origin_of_{}", fixture.database);
    for statements in [
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); TRUNCATE t; TRUNCATE t, outbox",
        "CREATE TYPE ev AS ENUM ('a'); CREATE TABLE u (id int PRIMARY KEY, e ev); INSERT INTO u VALUES (1, 'a')",
        "CREATE DOMAIN short AS text; CREATE TYPE pair AS (a int, b text);
         CREATE TABLE v (id int PRIMARY KEY, s short, p pair); INSERT INTO v VALUES (1, 'x', '(1,y)')",
        "SELECT pg_logical_emit_message(true, 'hb', 'x'), pg_logical_emit_message(false, 'hb', 'y')",
        &format!("SELECT pg_replication_origin_create('{origin}'); SELECT pg_replication_origin_session_setup('{origin}')"),
    ] {
        client.batch_execute(statements).await?;
    }
    client
        .batch_execute(
            "BEGIN; SELECT pg_replication_origin_xact_setup('0/1234', now());
             INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '2', '{}'); COMMIT;
             SELECT pg_replication_origin_session_reset()",
        )
        .await?;
    client
        .execute("SELECT pg_replication_origin_drop($1)", &[&origin])
        .await?;
    fixture.insert(&client, 3).await?;
    consumer.wait_for_records(3, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    client.batch_execute("TRUNCATE t, u, outbox").await?;
    slot.catches_up(SOON).await?;
    let mut keys: Vec<&str> = consumer
        .read_to_end()
        .await?
        .iter()
        .map(e2e::consumer::Record::key_text)
        .collect();
    keys.sort_unstable();
    ensure!(keys == ["1", "2", "3"], "arrived: {keys:?}");
    ensure!(slot.walsender().await? == walsender, "it reconnected");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b07_a_and_b_housekeeping_makes_no_records_under_any_replica_identity() -> Result<()> {
    for identity in ["DEFAULT", "FULL", "NOTHING"] {
        let fixture = Fixture::new(&format!("b07_{}", identity.to_lowercase())).await?;
        let mut consumer = fixture.consumer(&["order"])?;
        fixture
            .sql(&format!("ALTER TABLE outbox REPLICA IDENTITY {identity}"))
            .await?;
        // With NOTHING the server itself refuses updates of a table whose updates are published.
        if identity != "NOTHING" {
            fixture
                .sql(&format!(
                    "ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')",
                    fixture.publication
                ))
                .await?;
        }
        let connector = fixture.start().await?;
        let client = fixture.client().await?;
        client
            .batch_execute(
                "BEGIN; INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('order', '1', '{}');
                 DELETE FROM outbox; COMMIT",
            )
            .await?;
        // Large enough that the payload is stored out of line: the update then carries a marker in its place.
        client
            .batch_execute(
                "INSERT INTO outbox (aggregatetype, aggregateid, payload)
                 SELECT 'order', '2', jsonb_build_object('text', string_agg(md5(n::text), ''))
                 FROM generate_series(1, 1000) n;
                 UPDATE outbox SET type = 'changed';
                 UPDATE outbox SET id = gen_random_uuid();
                 UPDATE outbox SET payload = '{}';
                 DELETE FROM outbox",
            )
            .await?;
        consumer.wait_for_records(2, SOON).await?;
        fixture.watch_slot().await?.catches_up(SOON).await?;
        let mut keys: Vec<&str> = consumer
            .read_to_end()
            .await?
            .iter()
            .map(e2e::consumer::Record::key_text)
            .collect();
        keys.sort_unstable();
        ensure!(keys == ["1", "2"], "{identity}: arrived {keys:?}");
        connector.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_subtransactions_that_were_kept_arrive() -> Result<()> {
    let fixture = Fixture::new("subtransactions").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    fixture
        .sql(
            "DO $$ BEGIN
               FOR n IN 1..500 LOOP
                 BEGIN
                   INSERT INTO outbox (aggregatetype, aggregateid) VALUES ('order', n::text);
                   IF n % 2 = 0 THEN RAISE EXCEPTION 'half of them'; END IF;
                 EXCEPTION WHEN raise_exception THEN NULL;
                 END;
               END LOOP;
             END $$",
        )
        .await?;
    consumer.wait_for_records(250, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 250);
    ensure!(
        records
            .iter()
            .all(|record| record.key_text().parse::<u32>().is_ok_and(|n| n % 2 == 1))
    );
    connector.stop().await
}
