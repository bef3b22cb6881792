//! `source.create`: publication and slot made by the connector, in the right order, while somebody writes.

use anyhow::{Context, Result, ensure};
use e2e::checker::{Repeats, check};
use e2e::config::Config;
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::slot::Position;
use e2e::writer::Load;

const OUTBOX: &str = "
    CREATE TABLE outbox (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        aggregatetype text NOT NULL, aggregateid text, type text, payload jsonb, aggregate_version bigint);
    CREATE TABLE aggregate (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0);";

/// A database without publication and slot, where the connector's role owns the table as `CREATE PUBLICATION` needs.
async fn empty(name: &str) -> Result<(Fixture, Config)> {
    let fixture = Fixture::bare(name).await?;
    fixture.sql(OUTBOX).await?;
    fixture
        .sql(&format!(
            "ALTER TABLE outbox OWNER TO {0}; GRANT CREATE ON DATABASE {1} TO {0}",
            fixture.role, fixture.database
        ))
        .await?;
    let config = fixture.config().with("source.create", "true");
    Ok((fixture, config))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b24_c_nothing_committed_after_the_slot_is_missed() -> Result<()> {
    let (fixture, config) = empty("b24_c").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let load = Load::steady(80);
    let seed = load.seed;
    let load = load.start(&fixture).await?;
    load.goes_on_for(200, SOON).await?;
    let connector = fixture.start_with(&config).await?;
    load.goes_on_for(500, SOON).await?;
    let ledger = load.stop().await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() >= 500, "{} records", records.len());
    // Everything from the first record of each key on is there: what is missing was committed before the slot.
    let mut seen = Ledger::default();
    for record in records {
        let event = ledger
            .get(record.id())
            .with_context(|| format!("unknown event {}, seed {seed}", record.id()))?;
        seen.insert(record.id().to_owned(), event.key.clone(), event.version);
    }
    for (_, event) in ledger.iter().filter(|(id, _)| seen.get(id).is_none()) {
        let later = seen
            .iter()
            .filter(|(_, other)| other.key == event.key)
            .map(|(_, other)| other.version)
            .min();
        ensure!(
            later.is_none_or(|first| first > event.version),
            "key {} version {} is missing though version {later:?} came, seed {seed}",
            event.key,
            event.version
        );
    }
    check(&seen, records, Repeats::Forbidden)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_publication_is_of_inserts_into_this_table_and_older_than_the_slot() -> Result<()> {
    let (fixture, config) = empty("created").await?;
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let row = client
        .query_one(
            "SELECT pubinsert, pubupdate OR pubdelete OR pubtruncate, puballtables,
                    (SELECT string_agg(schemaname || '.' || tablename, ',') FROM pg_publication_tables
                     WHERE pg_publication_tables.pubname = pg_publication.pubname)
             FROM pg_publication WHERE pubname = $1",
            &[&fixture.publication],
        )
        .await?;
    ensure!(
        row.try_get::<_, bool>(0)? && !row.try_get::<_, bool>(1)? && !row.try_get::<_, bool>(2)?
    );
    ensure!(row.try_get::<_, &str>(3)? == "public.outbox");
    ensure!(fixture.watch_slot().await?.confirmed().await? > Position(0));
    connector.stop().await?;
    // A second start finds both and makes nothing.
    let connector = fixture.start_with(&config).await?;
    ensure!(connector.lines_with(&["created"]).is_empty());
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b07_c_the_application_may_update_and_delete_a_table_without_a_key() -> Result<()> {
    let fixture = Fixture::bare("b07_c").await?;
    fixture
        .sql(&format!(
            "CREATE TABLE ob (aggregatetype text, aggregateid text, payload text);
             ALTER TABLE ob OWNER TO {0}; GRANT CREATE ON DATABASE {1} TO {0}",
            fixture.role, fixture.database
        ))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with("source.create", "true")
        .with("source.tables", Fixture::list(&["ob"]))
        // A table without an id column: the event's id is then the aggregate's.
        .with_text("router.id", "aggregateid");
    let connector = fixture.start_with(&config).await?;
    fixture
        .sql(
            "INSERT INTO ob VALUES ('order', '1', 'one');
             UPDATE ob SET payload = 'x';
             DELETE FROM ob",
        )
        .await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let records = consumer.read_to_end().await?;
    ensure!(records.len() == 1 && records.iter().all(|record| record.payload_text() == "one"));
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_create_the_statement_is_told_and_nothing_is_made() -> Result<()> {
    let fixture = Fixture::bare("create_refused").await?;
    fixture.sql(OUTBOX).await?;
    let config = fixture.config().with("source.create", "true");
    let connector = e2e::connector::Connector::start(&config)?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    ensure!(
        connector
            .messages_with(&["PH0321: ", "CREATE PUBLICATION"])
            .len()
            == 1
    );
    let row = fixture
        .client()
        .await?
        .query_one(
            "SELECT (SELECT count(*) FROM pg_publication),
                    (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())",
            &[],
        )
        .await?;
    ensure!(row.try_get::<_, i64>(0)? == 0 && row.try_get::<_, i64>(1)? == 0);
    Ok(())
}
