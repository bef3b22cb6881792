//! Role and database defaults set against us: what arrives is the same.

use anyhow::{Result, ensure};
use e2e::consumer::Record;
use e2e::fixture::{Fixture, SOON};

/// Every setting that changes how values are written or how long statements may take, with a hostile value.
const HOSTILE: &[(&str, &str)] = &[
    ("client_encoding", "'LATIN1'"),
    ("DateStyle", "'German, DMY'"),
    ("IntervalStyle", "'sql_standard'"),
    ("TimeZone", "'Asia/Kathmandu'"),
    ("bytea_output", "'escape'"),
    ("extra_float_digits", "-15"),
    ("search_path", "'hostile'"),
    ("lc_monetary", "'C.UTF-8'"),
    ("xmlbinary", "'hex'"),
    ("statement_timeout", "'300ms'"),
    ("lock_timeout", "'300ms'"),
    ("idle_in_transaction_session_timeout", "'300ms'"),
    ("idle_session_timeout", "'300ms'"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_isolation", "'serializable'"),
    ("synchronous_commit", "off"),
    ("standard_conforming_strings", "off"),
    ("quote_all_identifiers", "on"),
];

const COLUMNS: &str = "
    CREATE TABLE outbox (
        id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregatetype text DEFAULT 'order', aggregateid text,
        payload bytea, d date, t timestamp, z timestamptz, i interval, f double precision, r real, m money, x xml);";

const HEADERS: &str = r#"["d", "t", "z", "i", "f", "r", "m", "x"]"#;

const INSERT: &str = r"
    SET client_encoding TO UTF8;
    INSERT INTO outbox (aggregateid, payload, d, t, z, i, f, r, m, x) VALUES (
        'Größe 😀', '\x00ff5c27', '2026-02-01', '2026-02-01 03:04:05.678', '2026-02-01 03:04:05.678+02',
        '1 day 2 hours 3 minutes', 0.1::float8 + 0.2, 1.1, '12.34', '<a>é</a>')";

/// What arrives from one insert when `settings` are applied by `scope`.
async fn arrives(name: &str, hostile: Option<&str>) -> Result<(Vec<u8>, Vec<u8>, Vec<String>)> {
    let fixture = Fixture::bare(name).await?;
    fixture.sql(COLUMNS).await?;
    fixture
        .sql(&format!(
            "CREATE SCHEMA hostile;
             CREATE FUNCTION hostile.count() RETURNS int LANGUAGE sql AS 'SELECT 0';
             CREATE PUBLICATION {} FOR TABLE public.outbox",
            fixture.publication
        ))
        .await?;
    fixture.create_slot().await?;
    let insert_in = fixture.client().await?;
    for (setting, value) in HOSTILE {
        let scope = match hostile {
            Some("role") => format!("ROLE {}", fixture.role),
            Some("database") => format!("DATABASE {}", fixture.database),
            Some("both") => format!("ROLE {} IN DATABASE {}", fixture.role, fixture.database),
            _ => continue,
        };
        insert_in
            .batch_execute(&format!("ALTER {scope} SET {setting} = {value}"))
            .await?;
    }
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture
        .start_with(&fixture.config().with("router.headers", HEADERS))
        .await?;
    // This session began before the defaults were set against everybody.
    insert_in.batch_execute(INSERT).await?;
    let records = consumer.wait_for_records(1, SOON).await?;
    let [record] = records else {
        anyhow::bail!("{} records", records.len())
    };
    let headers = HEADERS
        .split('"')
        .filter(|name| name.chars().all(char::is_alphabetic) && !name.is_empty())
        .map(|name| Record::header(record, name).unwrap_or("<none>").to_owned())
        .collect();
    let found = (
        record.key.clone().unwrap_or_default(),
        record.payload.clone().unwrap_or_default(),
        headers,
    );
    connector.stop().await?;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_of_role_and_database_change_nothing_of_what_arrives() -> Result<()> {
    let expected = (
        "Größe 😀".as_bytes().to_vec(),
        vec![0x00, 0xff, 0x5c, 0x27],
        [
            "2026-02-01",
            "2026-02-01 03:04:05.678",
            "2026-02-01 01:04:05.678+00",
            "1 day 02:03:00",
            "0.30000000000000004",
            "1.1",
            "$12.34",
            "<a>é</a>",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    for (name, hostile) in [
        ("session_plain", None),
        ("session_role", Some("role")),
        ("session_database", Some("database")),
        ("session_both", Some("both")),
    ] {
        let found = arrives(name, hostile).await?;
        ensure!(
            found == expected,
            "{name}: {found:?}, expected {expected:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_connections_carry_the_application_name_and_no_password_is_shown() -> Result<()> {
    let fixture = Fixture::new("application").await?;
    let config = fixture
        .config()
        .with_text("source.application_name", "my app")
        .with_text("log.level", "trace");
    let connector = fixture.start_with(&config).await?;
    fixture.watch_slot().await?.walsender().await?;
    let rows = fixture
        .client()
        .await?
        .query(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE usename = $1",
            &[&fixture.role],
        )
        .await?;
    ensure!(rows.len() == 1 && rows.iter().all(|row| row.get::<_, &str>(0) == "my app"));
    let pages = connector.get("/metrics").await?.body + &connector.get("/readyz").await?.body;
    connector.stop().await?;
    let printed = connector.log() + &pages;
    ensure!(
        !printed.contains(e2e::fixture::PASSWORD),
        "the password is shown"
    );
    Ok(())
}
