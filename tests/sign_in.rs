//! The ways to name the server and to sign in, with and without TLS: both connections take the same way.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use e2e::config::Config;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON};
use e2e::servers::Servers;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use xtask::postgres::PostgresOptions;
use xtask::scratch::Scratch;

/// Starts the connector so, sees one event through, and stops it.
async fn delivers(fixture: &Fixture, config: &Config, environment: &[(&str, &str)]) -> Result<()> {
    let connector = Connector::start_with(config, &[], environment)?;
    connector.ready().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(connector.metric("posthaste_events_delivered_total").await? > 0.5);
    connector.stop().await
}

/// A configuration without the URL of the fixture.
fn nameless(fixture: &Fixture) -> Config {
    fixture.config().without("source.url")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keywords_files_and_environment_name_the_server_as_libpq_users_know_them() -> Result<()> {
    let fixture = Fixture::new("forms").await?;
    fixture.consumer(&["order"])?;
    let postgres = &fixture.servers.postgres;
    let port = postgres.port().to_string();
    let folder = Scratch::new("passwords")?;
    let secret = private_file(folder.path(), "secret", &format!("{PASSWORD}\n"))?;
    let passfile = private_file(
        folder.path(),
        "pgpass",
        &format!(
            "# comment\n127.0.0.1:{port}:*:{}:{PASSWORD}\n",
            fixture.role
        ),
    )?;
    let keywords = nameless(&fixture)
        .with_text("source.host", "127.0.0.1")
        .with("source.port", &*port)
        .with_text("source.user", &fixture.role)
        .with_text("source.dbname", &fixture.database);
    delivers(
        &fixture,
        &keywords.clone().with_text("source.password", PASSWORD),
        &[],
    )
    .await?;
    let path = secret.to_string_lossy();
    delivers(
        &fixture,
        &keywords.clone().with_text("source.password_file", &path),
        &[],
    )
    .await?;
    delivers(&fixture, &keywords, &[("PGPASSWORD", PASSWORD)]).await?;
    let path = passfile.to_string_lossy();
    delivers(&fixture, &keywords, &[("PGPASSFILE", &path)]).await?;
    let environment = [
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", &port),
        ("PGUSER", &fixture.role),
        ("PGDATABASE", &fixture.database),
        ("PGPASSWORD", PASSWORD),
    ];
    delivers(&fixture, &nameless(&fixture), &environment).await?;
    let text = format!(
        "host=127.0.0.1 port={port} user={} dbname={} password='{PASSWORD}'",
        fixture.role, fixture.database
    );
    delivers(
        &fixture,
        &fixture.config().with_text("source.url", &text),
        &[],
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_under_way_is_read_from_its_file() -> Result<()> {
    let fixture = Fixture::new("rotated").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let folder = Scratch::new("rotated")?;
    let file = private_file(folder.path(), "password", &format!("{PASSWORD}\n"))?;
    let postgres = &fixture.servers.postgres;
    let url = postgres.url(&fixture.role, None, &fixture.database);
    let config = fixture
        .config()
        .with_text("source.url", &url)
        .with_text("source.password_file", &file.to_string_lossy());
    let connector = fixture.start_with(&config).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    std::fs::write(&file, "another one\n")?;
    let client = fixture.client().await?;
    client
        .batch_execute(&format!(
            "ALTER ROLE {} PASSWORD 'another one'; SELECT pg_terminate_backend({walsender})",
            fixture.role
        ))
        .await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    ensure!(slot.walsender().await? != walsender);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_a_host_list_and_ipv6_reach_the_server() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("listen_addresses".into(), "127.0.0.1,::1".into())],
        hba: vec!["host all all ::1/128 scram-sha-256".into()],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::on(servers, "hosts").await?;
    fixture.consumer(&["order"])?;
    let postgres = &fixture.servers.postgres;
    let (role, database, port) = (&fixture.role, &fixture.database, postgres.port());
    let dead = xtask::scratch::free_port()?;
    for url in [
        postgres.socket_url(role, Some(PASSWORD), database),
        format!("postgres://{role}:{PASSWORD}@127.0.0.1:{dead},127.0.0.1:{port}/{database}"),
        format!("postgres://{role}:{PASSWORD}@[::1]:{port}/{database}"),
        // Percent-encoding of what needs none.
        format!(
            "postgresql://%72{}:{PASSWORD}@127.0.0.1:{port}/{database}",
            &role[1..]
        ),
    ] {
        delivers(
            &fixture,
            &fixture.config().with_text("source.url", &url),
            &[],
        )
        .await?;
    }
    let socket = postgres.socket_dir();
    let keywords = nameless(&fixture)
        .with_text("source.host", &socket.to_string_lossy())
        .with("source.port", port.to_string())
        .with_text("source.user", role)
        .with_text("source.password", PASSWORD)
        .with_text("source.dbname", database);
    delivers(&fixture, &keywords, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn md5_works_and_clear_text_is_refused_without_tls() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("password_encryption".into(), "md5".into())],
        hba: vec![
            "host clear all 127.0.0.1/32 password".into(),
            "host all +old 127.0.0.1/32 md5".into(),
        ],
        ..PostgresOptions::default()
    })?;
    servers
        .postgres
        .psql("postgres", "CREATE ROLE old NOLOGIN")?;
    let fixture = Fixture::on(servers, "md5").await?;
    fixture.consumer(&["order"])?;
    fixture
        .sql(&format!("GRANT old TO {}", fixture.role))
        .await?;
    delivers(&fixture, &fixture.config(), &[]).await?;
    fixture.sql("CREATE DATABASE clear").await?;
    let url = fixture
        .servers
        .postgres
        .url(&fixture.role, Some(PASSWORD), "clear");
    let connector = Connector::start(&fixture.config().with_text("source.url", &url))?;
    let code = connector.exit_code(SOON).await?;
    ensure!(code == 3, "exit code {code}");
    ensure!(
        connector.messages_with(&["PH0212: "]).len() == 1,
        "{}",
        connector.log()
    );
    Ok(())
}

/// Keys and certificates of the TLS cases.
pub(crate) struct Authority {
    folder: Scratch,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self {
            folder: Scratch::new("tls")?,
            issuer,
        })
    }

    /// Writes `<name>.crt` and `<name>.key`, for these host names or as this user's client certificate.
    pub(crate) fn issue(
        &self,
        name: &str,
        hosts: &[&str],
        common_name: &str,
    ) -> Result<(PathBuf, PathBuf)> {
        self.issue_until(name, hosts, common_name, 2099)
    }

    /// As [`Authority::issue`], valid until this year.
    fn issue_until(
        &self,
        name: &str,
        hosts: &[&str],
        common_name: &str,
        year: i32,
    ) -> Result<(PathBuf, PathBuf)> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let folder = self.folder.path();
        Ok((
            private_file(folder, &format!("{name}.crt"), &certificate.pem())?,
            private_file(folder, &format!("{name}.key"), &key.serialize_pem())?,
        ))
    }

    pub(crate) fn certificate(&self, name: &str) -> Result<PathBuf> {
        private_file(self.folder.path(), name, &self.issuer.pem())
    }
}

/// A file that only its owner may read, as libpq and the server demand of keys and password files.
pub(crate) fn private_file(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path)
}

/// Turns TLS on with this certificate; the key must belong to whoever runs the server.
pub(crate) fn turn_tls_on(servers: &Servers, files: &[(&str, &Path)]) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let postgres = &servers.postgres;
    let data = postgres.data_dir();
    let owner = std::fs::metadata(&data)?;
    for (name, source) in files {
        let target = data.join(name);
        std::fs::copy(source, &target)?;
        std::os::unix::fs::chown(&target, Some(owner.uid()), Some(owner.gid()))?;
    }
    postgres.set("ssl_cert_file", "server.crt")?;
    postgres.set("ssl_key_file", "server.key")?;
    postgres.set("ssl_ca_file", "root.crt")?;
    postgres.set("ssl", "on")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b30_each_sslmode_checks_what_its_name_says_on_both_connections() -> Result<()> {
    let authority = Authority::new()?;
    let stranger = Authority::new()?;
    let (certificate, key) = authority.issue("server", &["localhost"], "server")?;
    let (root, wrong) = (
        authority.certificate("root.crt")?,
        stranger.certificate("wrong.crt")?,
    );
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: vec![("log_connections".into(), "on".into())],
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::on(servers, "tls").await?;
    fixture.consumer(&["order"])?;
    let config = |mode, host, root| with_tls(&fixture, mode, host, root);
    // While the server has no TLS, whoever asks for it gets no plain text.
    for mode in ["require", "verify-ca", "verify-full"] {
        is_refused(&config(mode, "127.0.0.1", Some(&root)), 3, "PH0206").await?;
    }
    delivers(&fixture, &config("prefer", "127.0.0.1", None), &[]).await?;
    turn_tls_on(
        &fixture.servers,
        &[
            ("server.crt", &certificate),
            ("server.key", &key),
            ("root.crt", &root),
        ],
    )?;
    for (mode, host, root, encrypted) in [
        ("disable", "127.0.0.1", None, false),
        ("prefer", "127.0.0.1", None, true),
        ("require", "127.0.0.1", None, true),
        ("verify-ca", "127.0.0.1", Some(root.as_path()), true),
        ("verify-full", "localhost", Some(root.as_path()), true),
    ] {
        let before = sign_ins(&fixture).len();
        delivers(&fixture, &config(mode, host, root), &[]).await?;
        let sign_ins = sign_ins(&fixture).split_off(before);
        ensure!(
            sign_ins.len() >= 2
                && sign_ins
                    .iter()
                    .all(|line| line.contains("SSL enabled") == encrypted),
            "{mode}: {sign_ins:#?}"
        );
    }
    for (mode, host, root) in [
        ("verify-full", "127.0.0.1", &root),
        ("verify-full", "localhost", &wrong),
        ("verify-ca", "localhost", &wrong),
    ] {
        is_refused(&config(mode, host, Some(root)), 3, "PH0205").await?;
    }
    is_refused(
        &config("verify_full", "localhost", Some(&root)),
        2,
        "PH0107",
    )
    .await?;
    bound_and_expired(&fixture, &authority, &root).await
}

/// B30: channel binding, and a certificate that was good once.
async fn bound_and_expired(fixture: &Fixture, authority: &Authority, root: &Path) -> Result<()> {
    let config = |mode, host, root| with_tls(fixture, mode, host, root);
    // SCRAM bound to the channel: over TLS, and never without.
    let bound = |mode, root| {
        let url = tls_url(fixture, "localhost") + "?channel_binding=require";
        with_tls(fixture, mode, "localhost", root).with_text("source.url", &url)
    };
    delivers(fixture, &bound("verify-full", Some(root)), &[]).await?;
    is_refused(&bound("disable", None), 3, "PH0211").await?;
    // A certificate that was good once: whoever verifies refuses it, whoever only encrypts does not look.
    let (certificate, key) = authority.issue_until("expired", &["localhost"], "server", 2020)?;
    turn_tls_on(
        &fixture.servers,
        &[("server.crt", &certificate), ("server.key", &key)],
    )?;
    for mode in ["verify-ca", "verify-full"] {
        let connector = Connector::start(&config(mode, "localhost", Some(root)))?;
        let code = connector.exit_code(SOON).await?;
        let told = connector.messages_with(&["PH0205: ", "expired"]);
        ensure!(code == 3 && told.len() == 1, "{mode}: {}", connector.log());
    }
    delivers(fixture, &config("require", "localhost", None), &[]).await
}

/// The configuration for this mode, host and root certificate.
fn with_tls(fixture: &Fixture, mode: &str, host: &str, root: Option<&Path>) -> Config {
    let config = fixture
        .config()
        .with_text("source.url", &tls_url(fixture, host))
        .with_text("source.sslmode", mode);
    match root {
        Some(root) => config.with_text("source.sslrootcert", &root.to_string_lossy()),
        None => config,
    }
}

fn tls_url(fixture: &Fixture, host: &str) -> String {
    let (role, database) = (&fixture.role, &fixture.database);
    let port = fixture.servers.postgres.port();
    format!("postgres://{role}:{PASSWORD}@{host}:{port}/{database}")
}

/// What the server logged about the connector's sign-ins, one line a connection.
fn sign_ins(fixture: &Fixture) -> Vec<String> {
    let authorized = format!("connection authorized: user={}", fixture.role);
    let log = fixture.servers.postgres.log();
    log.lines()
        .filter(|line| line.contains(&authorized))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b30_a_client_certificate_signs_in() -> Result<()> {
    let authority = Authority::new()?;
    let (certificate, key) = authority.issue("server", &["localhost"], "server")?;
    let root = authority.certificate("root.crt")?;
    let servers = Servers::with_own_postgres(PostgresOptions {
        hba: vec![
            "hostssl all +by_certificate 127.0.0.1/32 cert".into(),
            "host all +by_certificate 127.0.0.1/32 reject".into(),
            "hostssl all +by_both 127.0.0.1/32 scram-sha-256 clientcert=verify-full".into(),
        ],
        ..PostgresOptions::default()
    })?;
    servers.postgres.psql(
        "postgres",
        "CREATE ROLE by_certificate NOLOGIN; CREATE ROLE by_both NOLOGIN",
    )?;
    let fixture = Fixture::on(servers, "client_cert").await?;
    fixture.consumer(&["order"])?;
    fixture
        .sql(&format!("GRANT by_certificate TO {}", fixture.role))
        .await?;
    let (own, own_key) = authority.issue("client", &[], &fixture.role)?;
    turn_tls_on(
        &fixture.servers,
        &[
            ("server.crt", &certificate),
            ("server.key", &key),
            ("root.crt", &root),
        ],
    )?;
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
        .with_text("source.sslrootcert", &root.to_string_lossy())
        .with_text("source.sslcert", &own.to_string_lossy())
        .with_text("source.sslkey", &own_key.to_string_lossy());
    delivers(&fixture, &config, &[]).await?;
    let refused_without = async |config: &Config| -> Result<()> {
        let without = config
            .clone()
            .without("source.sslcert")
            .without("source.sslkey");
        let connector = Connector::start(&without)?;
        let code = connector.exit_code(SOON).await?;
        ensure!(code == 3, "exit code {code}: {}", connector.log());
        Ok(())
    };
    refused_without(&config).await?;
    // A password and the certificate, both: neither alone will do.
    fixture
        .sql(&format!(
            "REVOKE by_certificate FROM {0}; GRANT by_both TO {0}",
            fixture.role
        ))
        .await?;
    let both = config.with_text("source.url", &tls_url(&fixture, "localhost"));
    delivers(&fixture, &both, &[]).await?;
    refused_without(&both).await?;
    is_refused(&both.with_text("source.url", &url), 3, "PH0202").await
}

async fn is_refused(config: &Config, exit: i32, code: &str) -> Result<()> {
    let connector = Connector::start(config)?;
    let found = connector.exit_code(SOON).await?;
    let told = connector.messages_with(&[&format!("{code}: ")]);
    ensure!(
        found == exit && told.len() == 1,
        "exit code {found}, not {exit} with {code}: {}",
        connector.log()
    );
    Ok(())
}
