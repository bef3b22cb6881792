//! Credentials that change under a running connector: read again at every connect, and told once when they no longer fit.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::Repeats;
use e2e::config::Config;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::servers::Servers;
use e2e::writer::Load;
use xtask::postgres::PostgresOptions;
use xtask::scratch::Scratch;

use crate::sign_in::{Authority, turn_tls_on};

/// Ends the connector's backends, as the server does when it restarts.
async fn terminate(fixture: &Fixture, role: &str) -> Result<()> {
    fixture
        .sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
        ))
        .await
}

/// Tries to sign in that the server refused.
fn refusals(fixture: &Fixture) -> usize {
    let log = fixture.servers.postgres.log();
    log.lines()
        .filter(|line| line.contains("authentication failed") && line.contains(&fixture.role))
        .count()
}

/// B25 g: a changed password, and a role of another name, are told once and end the process; nobody is hammered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_g_credentials_changed_during_an_outage_end_the_process_at_once() -> Result<()> {
    for (name, change) in [
        ("b25_g_password", "PASSWORD 'another'"),
        ("b25_g_renamed", "RENAME TO b25_g_other"),
    ] {
        let fixture = Fixture::new(name).await?;
        let mut consumer = fixture.consumer(&["order"])?;
        let connector = fixture.start().await?;
        let client = fixture.client().await?;
        fixture.insert(&client, 1).await?;
        consumer.wait_for_records(1, SOON).await?;
        fixture.watch_slot().await?.catches_up(SOON).await?;
        let (role, slot) = (&fixture.role, fixture.watch_slot().await?);
        let walsender = slot.walsender().await?;
        fixture.sql(&format!("ALTER ROLE {role} {change}")).await?;
        client
            .execute("SELECT pg_terminate_backend($1)", &[&walsender])
            .await?;
        let code = connector.exit_code(SOON).await?;
        ensure!(code == 3, "exit code {code}");
        let told = connector.messages_with(&["PH0202: ", "28P01"]);
        ensure!(told.len() == 1, "{}", connector.log());
        ensure!(refusals(&fixture) <= 2, "{} tries", refusals(&fixture));
        // With the right ones it goes on where it was.
        let url = match change.strip_prefix("RENAME TO ") {
            None => fixture
                .servers
                .postgres
                .url(role, Some("another"), &fixture.database),
            Some(renamed) => {
                // Renaming clears an md5 password; SCRAM's stays.
                fixture
                    .servers
                    .postgres
                    .url(renamed, Some(PASSWORD), &fixture.database)
            }
        };
        fixture.insert(&client, 2).await?;
        let connector = fixture
            .start_with(&fixture.config().with_text("source.url", &url))
            .await?;
        consumer.wait_for_records(2, SOON).await?;
        ensure!(consumer.read_to_end().await?.len() == 2);
        connector.stop().await?;
    }
    Ok(())
}

/// The configuration without a password in its URL.
fn without_password(fixture: &Fixture) -> Config {
    let postgres = &fixture.servers.postgres;
    let url = postgres.url(&fixture.role, None, &fixture.database);
    fixture.config().with_text("source.url", &url)
}

/// Rotates the password under load twice: after each terminated backend the connector is back with the new one.
async fn rotates(
    fixture: &Fixture,
    config: &Config,
    file: &Path,
    line: impl Fn(&str) -> String,
) -> Result<()> {
    std::fs::write(file, line(PASSWORD))?;
    private(file)?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start_with(config).await?;
    let slot = fixture.watch_slot().await?;
    let load = Load::steady(40).start(fixture).await?;
    consumer.wait_for_events(50, SOON).await?;
    for password in ["rotated-once", "rotated 'twice'"] {
        let before = slot.walsender().await?;
        std::fs::write(file, format!("{}\n", line(password)))?;
        let quoted = password.replace('\'', "''");
        fixture
            .sql(&format!("ALTER ROLE {} PASSWORD '{quoted}'", fixture.role))
            .await?;
        terminate(fixture, &fixture.role).await?;
        slot.has_another_walsender(before, SOON).await?;
        load.goes_on_for(50, SOON).await?;
    }
    let ledger = load.stop().await?;
    all_arrive(fixture, &mut consumer, &ledger, Repeats::Reruns).await?;
    connector.stop().await?;
    for password in [PASSWORD, "rotated-once", "twice"] {
        ensure!(
            !connector.log().contains(password),
            "a password is in the log"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_file_is_read_again_at_every_connect() -> Result<()> {
    let fixture = Fixture::new("rotated_file").await?;
    let folder = Scratch::new("rotated")?;
    let file = folder.path().join("password");
    let config =
        without_password(&fixture).with_text("source.password_file", &file.to_string_lossy());
    rotates(&fixture, &config, &file, str::to_owned).await
}

/// Only its owner may read it: libpq's rule for password files.
fn private(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(
        file,
        std::fs::Permissions::from_mode(0o600),
    )?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libpqs_password_file_is_read_again_at_every_connect() -> Result<()> {
    let fixture = Fixture::new("rotated_passfile").await?;
    let folder = Scratch::new("rotated")?;
    let file = folder.path().join("pgpass");
    let config = without_password(&fixture).with_text("source.passfile", &file.to_string_lossy());
    let role = fixture.role.clone();
    rotates(&fixture, &config, &file, |password| {
        format!("127.0.0.1:*:*:{role}:{password}")
    })
    .await
}

/// Everything at once: another authority, and so another certificate of the server, and another one and another key of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_keys_are_read_again_at_every_connect() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        hba: vec![
            "hostssl all +by_certificate 127.0.0.1/32 cert".into(),
            "host all +by_certificate 127.0.0.1/32 reject".into(),
        ],
        ..PostgresOptions::default()
    })?;
    servers
        .postgres
        .psql("postgres", "CREATE ROLE by_certificate NOLOGIN")?;
    let fixture = Fixture::on(servers, "rotated_certificates").await?;
    fixture
        .sql(&format!("GRANT by_certificate TO {}", fixture.role))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let folder = Scratch::new("certificates")?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let turn = || -> Result<()> {
        let authority = Authority::new()?;
        let (certificate, key) = authority.issue("server", &["localhost"], "server")?;
        let root = authority.certificate("root.crt")?;
        let (own, own_key) = authority.issue("client", &[], &fixture.role)?;
        for (from, to) in [(&root, "root"), (&own, "own"), (&own_key, "key")] {
            std::fs::copy(from, file(to))?;
        }
        turn_tls_on(
            &fixture.servers,
            &[
                ("server.crt", &certificate),
                ("server.key", &key),
                ("root.crt", &root),
            ],
        )
    };
    turn()?;
    let url = format!(
        "postgres://{}@localhost:{}/{}",
        fixture.role,
        fixture.servers.postgres.port(),
        fixture.database
    );
    let config = fixture
        .config()
        .with_text("source.url", &url)
        .with_text("source.sslmode", "verify-full")
        .with_text("source.sslrootcert", &file("root"))
        .with_text("source.sslcert", &file("own"))
        .with_text("source.sslkey", &file("key"));
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let load = Load::steady(40).start(&fixture).await?;
    consumer.wait_for_events(50, SOON).await?;
    for _ in 0..2 {
        let before = slot.walsender().await?;
        turn()?;
        terminate(&fixture, &fixture.role).await?;
        slot.has_another_walsender(before, SOON).await?;
        load.goes_on_for(50, SOON).await?;
    }
    let ledger = load.stop().await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_command_is_run_at_every_connect() -> Result<()> {
    let fixture = Fixture::new("token").await?;
    let folder = Scratch::new("token")?;
    let file = folder.path().join("token");
    let command = Fixture::list(&["cat", &file.to_string_lossy()]);
    let config = without_password(&fixture).with("source.token_command", command);
    rotates(&fixture, &config, &file, str::to_owned).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_command_that_fails_is_waited_for() -> Result<()> {
    let fixture = Fixture::new("token_fails").await?;
    let folder = Scratch::new("token_fails")?;
    let file = folder.path().join("token");
    let command = Fixture::list(&["cat", &file.to_string_lossy()]);
    let config = without_password(&fixture).with("source.token_command", command);
    let connector = e2e::connector::Connector::start(&config)?;
    connector.prints(&["PH0216"], SOON).await?;
    ensure!(!connector.is_ready().await);
    std::fs::write(&file, PASSWORD)?;
    connector.ready().await?;
    ensure!(
        connector.messages_with(&["PH0216"]).len() == 1,
        "one line an outage"
    );
    connector.stop().await
}
