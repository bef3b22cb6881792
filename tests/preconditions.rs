//! Start: what cannot heal is told in one message and ends the process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::scale;
use e2e::servers::Servers;
use e2e::slot::Position;
use e2e::wait;
use xtask::postgres::PostgresOptions;
use xtask::process::Daemon;
use xtask::scratch::Scratch;

/// B31: within five seconds; the machine that runs all tests at once gets a little more.
const REFUSED_WITHIN: Duration = Duration::from_secs(8);

/// Starts the connector and demands that it ends with `exit`, saying one thing: `code`, with all of `words`.
async fn refuses(config: &Config, exit: i32, code: &str, words: &[&str]) -> Result<()> {
    let connector = Connector::start(config)?;
    let found = connector.exit_code(REFUSED_WITHIN).await?;
    ensure!(
        found == exit,
        "exit code {found}, not {exit}: {}",
        connector.log()
    );
    let lines = connector.messages_with(&["PH0"]);
    ensure!(lines.len() == 1, "not one message: {lines:#?}");
    for word in std::iter::once(&code).chain(words) {
        ensure!(
            lines.iter().all(|line| line.contains(word)),
            "no {word} in: {lines:#?}"
        );
    }
    ensure!(
        !connector.log().contains(PASSWORD),
        "the password is in the log"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_ends_the_process_with_code_3() -> Result<()> {
    let fixture = Fixture::new("password").await?;
    let url = fixture
        .servers
        .postgres
        .url(&fixture.role, Some("wrong"), &fixture.database);
    let config = fixture.config().with_text("source.url", &url);
    refuses(&config, 3, "PH0202", &[&fixture.role, "28P01"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_database_ends_the_process_with_code_3() -> Result<()> {
    let fixture = Fixture::new("no_database").await?;
    let url = fixture
        .servers
        .postgres
        .url(&fixture.role, Some(PASSWORD), "nowhere");
    let config = fixture.config().with_text("source.url", &url);
    refuses(&config, 3, "PH0203", &["nowhere"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_publication_is_named_with_the_statement_that_makes_it() -> Result<()> {
    let fixture = Fixture::new("no_publication").await?;
    let config = fixture.config().with_text("source.publication", "nothing");
    refuses(&config, 3, "PH0303", &["nothing", "CREATE PUBLICATION"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_without_inserts_is_refused() -> Result<()> {
    let fixture = Fixture::new("no_inserts").await?;
    fixture
        .sql(&format!(
            "ALTER PUBLICATION {} SET (publish = 'update, delete')",
            fixture.publication
        ))
        .await?;
    refuses(
        &fixture.config(),
        3,
        "PH0304",
        &[&fixture.publication, "ALTER PUBLICATION"],
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_of_other_tables_is_refused() -> Result<()> {
    let fixture = Fixture::new("other_table").await?;
    fixture
        .sql(&format!(
            "ALTER PUBLICATION {} SET TABLE aggregate",
            fixture.publication
        ))
        .await?;
    refuses(&fixture.config(), 3, "PH0305", &["outbox", "ADD TABLE"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_list_without_a_mapped_column_is_refused() -> Result<()> {
    let fixture = Fixture::new("column_list").await?;
    // Version 14 has neither column lists nor row filters.
    if fixture.major_version().await? < 15 {
        return Ok(());
    }
    fixture
        .sql(&format!(
            "ALTER PUBLICATION {} SET TABLE outbox (id, aggregatetype, aggregateid)",
            fixture.publication
        ))
        .await?;
    refuses(&fixture.config(), 3, "PH0306", &["payload"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_filter_is_refused() -> Result<()> {
    let fixture = Fixture::new("row_filter").await?;
    // Version 14 has neither column lists nor row filters.
    if fixture.major_version().await? < 15 {
        return Ok(());
    }
    fixture
        .sql(&format!(
            "ALTER PUBLICATION {} SET TABLE outbox WHERE (aggregatetype = 'order')",
            fixture.publication
        ))
        .await?;
    refuses(&fixture.config(), 3, "PH0307", &[&fixture.publication]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_column_that_is_generated_is_refused() -> Result<()> {
    let fixture = Fixture::new("generated").await?;
    fixture
        .sql("ALTER TABLE outbox ADD COLUMN upper text GENERATED ALWAYS AS (upper(aggregatetype)) STORED")
        .await?;
    let config = fixture.config().with_text("router.aggregate_type", "upper");
    refuses(&config, 3, "PH0308", &["upper"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_slot_is_named_with_the_statement_that_makes_it() -> Result<()> {
    let fixture = Fixture::new("no_slot").await?;
    let config = fixture.config().with_text("source.slot", "nothing");
    refuses(
        &config,
        3,
        "PH0309",
        &["nothing", "pg_create_logical_replication_slot"],
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_column_is_named_with_its_table() -> Result<()> {
    let fixture = Fixture::new("no_column").await?;
    let config = fixture.config().with_text("router.payload", "paylod");
    refuses(&config, 3, "PH0317", &["paylod", "outbox"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_a_wal_level_replica_is_named_with_what_is_needed() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("wal_level".into(), "replica".into())],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::bare_on(servers, "wal_level").await?;
    fixture
        .sql("CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, payload jsonb)")
        .await?;
    refuses(
        &fixture.config(),
        3,
        "PH0301",
        &["wal_level", "replica", "logical", "ALTER SYSTEM"],
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_b_a_role_without_the_right_to_replicate() -> Result<()> {
    let fixture = Fixture::new("b31_b").await?;
    fixture
        .sql(&format!("ALTER ROLE {} NOREPLICATION", fixture.role))
        .await?;
    refuses(&fixture.config(), 3, "PH0302", &["REPLICATION"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_c_no_free_slot_and_nothing_is_left_behind() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("max_replication_slots".into(), "1".into())],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::bare_on(servers, "b31_c").await?;
    fixture
        .sql(&format!(
            "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload jsonb);
             ALTER TABLE outbox OWNER TO {0}; GRANT CREATE ON DATABASE {1} TO {0};
             SELECT pg_create_physical_replication_slot('taken')",
            fixture.role, fixture.database
        ))
        .await?;
    let config = fixture.config().with("source.create", "true");
    for _ in 0..scale::pick(3, 10) {
        refuses(&config, 3, "PH0319", &["max_replication_slots"]).await?;
    }
    let row = fixture
        .client()
        .await?
        .query_one(
            "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication)",
            &[],
        )
        .await?;
    let left: (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    ensure!(left == (1, 0), "slots and publications: {left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_d_a_slot_of_another_database() -> Result<()> {
    let fixture = Fixture::new("b31_d").await?;
    let other = Fixture::bare("b31_d_other").await?;
    other.create_slot().await?;
    let config = fixture.config().with_text("source.slot", &other.slot);
    refuses(&config, 3, "PH0311", &[&other.slot, &other.database]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_e_a_slot_of_another_plugin() -> Result<()> {
    let fixture = Fixture::new("b31_e").await?;
    // Any plugin that is installed will do; without the contrib modules there is none to make the slot with.
    let made = fixture
        .sql("SELECT pg_create_logical_replication_slot('foreign_plugin', 'test_decoding')")
        .await;
    if made.is_err() {
        return Ok(());
    }
    let config = fixture.config().with_text("source.slot", "foreign_plugin");
    refuses(
        &config,
        3,
        "PH0310",
        &["foreign_plugin", "test_decoding", "pgoutput"],
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_f_a_physical_slot() -> Result<()> {
    let fixture = Fixture::new("b31_f").await?;
    fixture
        .sql("SELECT pg_create_physical_replication_slot('physical_one')")
        .await?;
    let config = fixture.config().with_text("source.slot", "physical_one");
    let outcome = refuses(&config, 3, "PH0312", &["physical_one"]).await;
    fixture
        .sql("SELECT pg_drop_replication_slot('physical_one')")
        .await?;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_h_a_missing_table() -> Result<()> {
    let fixture = Fixture::new("b31_h").await?;
    let tables = Fixture::list(&["public.outbux"]);
    let config = fixture.config().with("source.tables", tables);
    refuses(&config, 3, "PH0315", &["outbux"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_k_an_unlogged_table() -> Result<()> {
    let fixture = Fixture::bare("b31_k").await?;
    fixture
        .sql(&format!(
            "CREATE UNLOGGED TABLE outbox
                (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload jsonb);
             CREATE PUBLICATION {} FOR ALL TABLES",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    refuses(&fixture.config(), 3, "PH0316", &["outbox", "SET LOGGED"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_i_and_l_a_role_without_select_and_with_hostile_timeouts_runs() -> Result<()> {
    let fixture = Fixture::new("b31_l").await?;
    fixture
        .sql(&format!(
            "REVOKE ALL ON outbox FROM PUBLIC;
             ALTER ROLE {0} SET statement_timeout = '500ms';
             ALTER ROLE {0} SET default_transaction_read_only = on",
            fixture.role
        ))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let walsender = fixture.watch_slot().await?.walsender().await?;
    let client = fixture.client().await?;
    let mut n = 0;
    wait::throughout("it streams", Duration::from_secs(2), async || {
        n += 1;
        fixture.insert(&client, n).await?;
        Ok(connector.is_ready().await)
    })
    .await?;
    consumer.wait_for_records(usize::try_from(n)?, SOON).await?;
    ensure!(fixture.watch_slot().await?.walsender().await? == walsender);
    connector.stop().await
}

/// B31 g: a real pooler. It refuses the `replication` parameter, or the settings we pin; both are told as what they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_g_pgbouncer_in_between_is_named() -> Result<()> {
    let there = std::process::Command::new("pgbouncer")
        .arg("--version")
        .output();
    if there.is_err() {
        ensure!(!scale::is_full(), "the full run needs pgbouncer");
        return Ok(());
    }
    let fixture = Fixture::new("b31_g").await?;
    let (folder, port) = (Scratch::new("pgbouncer")?, xtask::scratch::free_port()?);
    let users = folder.path().join("users.txt");
    std::fs::write(&users, format!("\"{}\" \"{PASSWORD}\"\n", fixture.role))?;
    let ini = folder.path().join("pgbouncer.ini");
    let server = fixture.servers.postgres.port();
    std::fs::write(
        &ini,
        format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\n",
            users.display()
        ),
    )?;
    let _pooler = start_pgbouncer(&ini, folder.path())?;
    wait::until_true("pgbouncer to listen", SOON, async || {
        Ok(tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok())
    })
    .await?;
    let before = slots(&fixture).await?;
    let (role, database) = (&fixture.role, &fixture.database);
    let url = format!("postgres://{role}:{PASSWORD}@127.0.0.1:{port}/{database}");
    let config = fixture
        .config()
        .with_text("source.url", &url)
        .with("source.create", "true");
    refuses(
        &config,
        3,
        "PH0209",
        &["address of the PostgreSQL server itself"],
    )
    .await?;
    ensure!(
        slots(&fixture).await? == before,
        "something was left behind"
    );
    Ok(())
}

/// It does not run as root; PostgreSQL's own user may read what it needs.
fn start_pgbouncer(ini: &Path, folder: &Path) -> Result<Daemon> {
    use std::os::unix::fs::PermissionsExt;
    for path in [folder, ini] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::set_permissions(
        folder.join("users.txt"),
        std::fs::Permissions::from_mode(0o644),
    )?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = std::process::Command::new("pgbouncer");
    if folder.metadata()?.uid() == 0 {
        command.args(["-u", "postgres"]);
    }
    command.arg(ini).stdout(log.try_clone()?).stderr(log);
    Daemon::spawn("pgbouncer", &mut command)
}

async fn slots(fixture: &Fixture) -> Result<i64> {
    let client = fixture.client().await?;
    let row = client
        .query_one(
            "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()",
            &[],
        )
        .await?;
    Ok(row.try_get(0)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_an_invalidated_slot_is_told_and_never_replaced() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![
            ("max_slot_wal_keep_size".into(), "1MB".into()),
            ("min_wal_size".into(), "32MB".into()),
            ("max_wal_size".into(), "32MB".into()),
        ],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::bare_on(servers, "b23").await?;
    fixture
        .sql(&format!(
            "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload jsonb);
             CREATE TABLE other (text text); CREATE PUBLICATION {} FOR TABLE outbox",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let client = fixture.client().await?;
    wait::until_true("the server to give the slot up", SOON, async || {
        client
            .execute(
                "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 5000)",
                &[],
            )
            .await?;
        client
            .batch_execute("SELECT pg_switch_wal(); CHECKPOINT")
            .await?;
        let row = client
            .query_one(
                "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1",
                &[&fixture.slot],
            )
            .await?;
        Ok(row.try_get::<_, Option<&str>>(0)? == Some("lost"))
    })
    .await?;
    let config = fixture.config().with("source.create", "true");
    refuses(&config, 3, "PH0313", &[&fixture.slot, "invalidated"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b24_a_a_publication_younger_than_the_slot_stops_with_the_position() -> Result<()> {
    let fixture = Fixture::new("b24_a").await?;
    fixture
        .sql(&format!("DROP PUBLICATION {}", fixture.publication))
        .await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    let slot = fixture.watch_slot().await?;
    let behind = slot.wal_position().await?;
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE outbox WITH (publish = 'insert')",
            fixture.publication
        ))
        .await?;
    fixture.insert(&client, 2).await?;
    let confirmed = slot.confirmed().await?;
    let connector = Connector::start(&fixture.config())?;
    younger_publication_is_told(&fixture, &connector, confirmed).await?;
    ensure!(
        slot.confirmed().await? < behind,
        "it went past what it could not read"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b24_b_a_publication_dropped_while_streaming_stops_with_the_position() -> Result<()> {
    let fixture = Fixture::new("b24_b").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let confirmed = slot.confirmed().await?;
    fixture
        .sql(&format!("DROP PUBLICATION {}", fixture.publication))
        .await?;
    fixture.insert(&client, 3).await?;
    let behind = slot.wal_position().await?;
    fixture
        .sql(&format!(
            "CREATE PUBLICATION {} FOR TABLE outbox WITH (publish = 'insert')",
            fixture.publication
        ))
        .await?;
    fixture.insert(&client, 4).await?;
    younger_publication_is_told(&fixture, &connector, Position(0)).await?;
    ensure!(
        slot.confirmed().await? < behind,
        "it went past what it could not read"
    );
    // The same at the next start: old WAL is read with the catalogs of its time.
    let connector = Connector::start(&fixture.config())?;
    younger_publication_is_told(&fixture, &connector, confirmed).await
}

/// It ends, and says that the publication is missing where the slot reads, though it exists now.
/// The message names a position, none before `least`.
async fn younger_publication_is_told(
    fixture: &Fixture,
    connector: &Connector,
    least: Position,
) -> Result<()> {
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}: {}", connector.log());
    let told = connector.messages_with(&[
        &fixture.publication,
        "it may exist now",
        "recreate the slot",
    ]);
    ensure!(told.len() == 1, "{}", connector.log());
    let named = told
        .iter()
        .filter_map(|line| line.split(" at ").nth(1))
        .filter_map(|rest| Position::parse(rest.split([':', ' ', ';']).next()?).ok())
        .find(|position| *position >= least);
    ensure!(named.is_some(), "no position from {least} on in {told:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_fault_ends_the_process_with_code_2_and_a_suggestion() -> Result<()> {
    let fixture = Fixture::new("config").await?;
    let config = fixture.config().with_text("source.slott", "x");
    refuses(&config, 2, "PH0105", &["slott", "slot"]).await?;
    let config = fixture.config().without("source.slot");
    refuses(&config, 2, "PH0108", &["source.slot"]).await?;
    let config = fixture.config().with_kafka("acks", "1");
    refuses(&config, 2, "PH0117", &["acks"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_state_file_costs_repeats_and_nothing_else_or_is_refused_by_name() -> Result<()> {
    let fixture = Fixture::new("foreign_state").await?;
    let other = Fixture::new("foreign_state_other").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    // The other pipeline's state, which is far ahead or of another slot, must never skip our events.
    let writer = other.start().await?;
    let client = other.client().await?;
    other.consumer(&["order"])?;
    other.insert(&client, 1).await?;
    other.watch_slot().await?.catches_up(SOON).await?;
    writer.stop().await?;
    let own = fixture.client().await?;
    fixture.insert(&own, 1).await?;
    let config = fixture.config().with_text(
        "state.directory",
        &other.state_directory().to_string_lossy(),
    );
    let connector = Connector::start(&config)?;
    let code = wait::until("ready or refused", SOON, async || {
        if connector.is_ready().await {
            return Ok(Some(None));
        }
        Ok(connector.try_exit_code()?.map(Some))
    })
    .await?;
    match code {
        None => {
            consumer.wait_for_records(1, SOON).await?;
            connector.stop().await
        }
        Some(code) => {
            ensure!(code == 3 && !connector.messages_with(&["PH0702: "]).is_empty());
            Ok(())
        }
    }
}
