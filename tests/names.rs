//! Names that need quoting, and table names that stand in two schemas.

use anyhow::{Result, ensure};
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b10_rows_of_a_namesake_in_another_schema_stay_out() -> Result<()> {
    for (name, table, expected) in [
        ("b10_public", "public.outbox", "p"),
        ("b10_audit", "audit.outbox", "a"),
        ("b10_bare", "outbox", "p"),
    ] {
        let fixture = Fixture::new(name).await?;
        fixture
            .sql(&format!(
                "CREATE SCHEMA audit; CREATE TABLE audit.outbox (LIKE public.outbox INCLUDING ALL);
                 DROP PUBLICATION {0}; CREATE PUBLICATION {0} FOR ALL TABLES;
                 SELECT pg_drop_replication_slot('{1}');
                 ALTER ROLE {2} SET search_path = audit, public",
                fixture.publication, fixture.slot, fixture.role
            ))
            .await?;
        fixture.create_slot().await?;
        let mut consumer = fixture.consumer(&["order"])?;
        let config = fixture
            .config()
            .with("source.tables", Fixture::list(&[table]));
        let connector = fixture.start_with(&config).await?;
        fixture
            .sql(
                "INSERT INTO audit.outbox (aggregatetype, aggregateid) VALUES ('order', 'a');
                 INSERT INTO public.outbox (aggregatetype, aggregateid) VALUES ('order', 'p')",
            )
            .await?;
        consumer.wait_for_records(1, SOON).await?;
        fixture.watch_slot().await?.catches_up(SOON).await?;
        let records = consumer.read_to_end().await?;
        let keys: Vec<&str> = records
            .iter()
            .map(e2e::consumer::Record::key_text)
            .collect();
        ensure!(keys == [expected], "{table}: arrived {keys:?}");
        connector.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_names_that_need_quoting_work_everywhere() -> Result<()> {
    let fixture = Fixture::bare("b11").await?;
    let postgres = &fixture.servers.postgres;
    let database = format!("My-Db.1 \"{}\"", fixture.slot);
    let role = format!("Role '{}'", fixture.role);
    let admin = connect(&postgres.url("postgres", None, "postgres")).await?;
    admin
        .batch_execute(&format!("CREATE DATABASE {}", identifier(&database)))
        .await?;
    admin
        .batch_execute(&format!(
            "CREATE ROLE {} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
            identifier(&role)
        ))
        .await?;
    let client = connect(&postgres.url("postgres", None, &database)).await?;
    client.batch_execute(&table(&role, &database)).await?;
    // Once a publication that the connector makes itself, once one whose name looks like two.
    for (number, publication, create) in [(1, "Pub-1 \"q' x\"", true), (2, "a,b", false)] {
        let slot = format!("{}_{number}", fixture.slot);
        let mut consumer = fixture.consumer(&[&format!("order{number}")])?;
        if !create {
            client
                .execute(
                    "SELECT pg_create_logical_replication_slot($1, 'pgoutput')",
                    &[&slot],
                )
                .await?;
        }
        let config = quoted_names(&fixture)
            .with_text(
                "source.url",
                &postgres.url(&role, Some(PASSWORD), &database),
            )
            .with_text("source.slot", &slot)
            .with_text("source.publication", publication)
            .with("source.create", create.to_string());
        let connector = fixture.start_with(&config).await?;
        client
            .execute(
                r#"INSERT INTO "Sales-EU"."Out""box'" VALUES ($1, 'order' || $1::int, 9007199254740993, '{"a": 1}')"#,
                &[&number],
            )
            .await?;
        let records = consumer.wait_for_records(1, SOON).await?;
        ensure!(
            records
                .iter()
                .all(|record| record.key_text() == "9007199254740993"
                    && record.id() == number.to_string()
                    && record.payload_text() == "{\"a\": 1}")
        );
        connector.stop().await?;
    }
    let row = client
        .query_one(
            "SELECT string_agg(pubname::text, ' and ' ORDER BY pubname) FROM pg_publication",
            &[],
        )
        .await?;
    ensure!(row.try_get::<_, &str>(0)? == "Pub-1 \"q' x\" and a,b");
    // The fixture drops the slots of its own database only.
    client
        .batch_execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
             WHERE database = current_database() AND NOT active",
        )
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_an_illegal_slot_name_is_refused_before_anything_is_made() -> Result<()> {
    let fixture = Fixture::bare("b11_slot").await?;
    fixture
        .sql(&format!(
            "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload jsonb);
             ALTER TABLE outbox OWNER TO {0}; GRANT CREATE ON DATABASE {1} TO {0}",
            fixture.role, fixture.database
        ))
        .await?;
    let config = fixture
        .config()
        .with_text("source.slot", "Outbox-Slot")
        .with("source.create", "true");
    let connector = Connector::start(&config)?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 2, "exit code {code}");
    let lines = connector.messages_with(&[
        "PH0115: ",
        "Outbox-Slot",
        "lower-case letters, digits and underscores",
    ]);
    ensure!(lines.len() == 1, "{}", connector.log());
    let row = fixture
        .client()
        .await?
        .query_one(
            "SELECT (SELECT count(*) FROM pg_publication) + (
                SELECT count(*) FROM pg_replication_slots WHERE database = current_database())",
            &[],
        )
        .await?;
    ensure!(row.try_get::<_, i64>(0)? == 0);
    Ok(())
}

/// The mapping of the case's table.
fn quoted_names(fixture: &Fixture) -> e2e::config::Config {
    fixture
        .config()
        .with(
            "source.tables",
            Fixture::list(&[r#""Sales-EU"."Out""box'""#]),
        )
        .with_text("router.aggregate_type", "AggregateType")
        .with_text("router.aggregate_id", "aggregate Id")
        .with_text("router.payload", "pay\"load")
        // The databases differ from the fixture's own, so the state would be foreign.
        .without("state.directory")
}

/// The table of the case, owned by the connector's role, and the publication made by hand.
fn table(role: &str, database: &str) -> String {
    format!(
        r#"CREATE SCHEMA "Sales-EU";
           CREATE TABLE "Sales-EU"."Out""box'" (
               id int PRIMARY KEY, "AggregateType" text, "aggregate Id" bigint, "pay""load" jsonb);
           ALTER TABLE "Sales-EU"."Out""box'" OWNER TO {0};
           GRANT USAGE ON SCHEMA "Sales-EU" TO {0};
           GRANT CREATE ON DATABASE {1} TO {0};
           CREATE PUBLICATION "a,b" FOR TABLE "Sales-EU"."Out""box'" WITH (publish = 'insert')"#,
        identifier(role),
        identifier(database),
    )
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
