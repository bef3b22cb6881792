//! A database of its own for each test, on a server that most of them share.
//!
//! `POSTHASTE_TEST_POSTGRES_BIN` names the folder of another version's `initdb` and `postgres`; otherwise it is the
//! newest one installed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use posthaste::codes::{Code, Problem};
use posthaste::preconditions::{CheckError, Checked, Wanted, open};
use replication::{ConnectOptions, quote_ident};
use router::TableName;
use xtask::postgres::{Postgres, PostgresOptions};

/// A database with an outbox table that belongs to a role that may replicate.
pub(crate) struct Fixture {
    pub(crate) server: Arc<Postgres>,
    pub(crate) database: String,
    pub(crate) role: String,
}

/// Lives while a test uses it; the last one to end stops it and removes its data.
static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

fn shared_server() -> Arc<Postgres> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        // Many tests need slots at the same time.
        let server = own_server(&[("max_replication_slots", "100")]);
        *shared = Arc::downgrade(&server);
        server
    })
}

/// A server for tests that need settings of their own.
pub(crate) fn own_server(settings: &[(&str, &str)]) -> Arc<Postgres> {
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let options = PostgresOptions {
        settings,
        // Passwords are not what is tested here, and checking them hundreds of times takes most of the time.
        hba: vec![
            "host all wrong_password 127.0.0.1/32 scram-sha-256".to_owned(),
            "host all all 127.0.0.1/32 trust".to_owned(),
        ],
        bin_dir: std::env::var_os("POSTHASTE_TEST_POSTGRES_BIN").map(PathBuf::from),
        ..PostgresOptions::default()
    };
    Arc::new(Postgres::start(options).expect("a PostgreSQL server"))
}

impl Fixture {
    /// On the shared server. The name is used for the database, the role and, where a test makes them, slots.
    pub(crate) fn new(name: &str) -> Self {
        Self::on(shared_server(), name)
    }

    pub(crate) fn on(server: Arc<Postgres>, name: &str) -> Self {
        let fixture = Self {
            server,
            database: name.to_owned(),
            role: name.to_lowercase(),
        };
        let (database, role) = (quote_ident(&fixture.database), quote_ident(&fixture.role));
        fixture.admin_in(
            "postgres",
            &format!("CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'secret'"),
        );
        fixture.admin_in(
            "postgres",
            &format!("CREATE DATABASE {database} OWNER {role}"),
        );
        fixture.admin(&format!(
            "GRANT CREATE ON SCHEMA public TO {role}; SET ROLE {role}; {OUTBOX}"
        ));
        fixture
    }

    /// Column lists, row filters and TABLES IN SCHEMA came with PostgreSQL 15: on 14 there is nothing to be checked.
    pub(crate) fn has_column_lists(&self) -> bool {
        *self.admin("SHOW server_version_num") >= *"150000"
    }

    /// Runs statements as the superuser in the test's database.
    pub(crate) fn admin(&self, sql: &str) -> String {
        self.admin_in(&self.database, sql)
    }

    pub(crate) fn admin_in(&self, database: &str, sql: &str) -> String {
        match self.server.psql(database, sql) {
            Ok(output) => output,
            Err(error) => panic!("{sql}: {error}"),
        }
    }

    /// Runs statements as the superuser acting for the test's role.
    pub(crate) fn owner(&self, sql: &str) -> String {
        self.admin(&format!("SET ROLE {}; {sql}", quote_ident(&self.role)))
    }

    /// The usual wish: slot and publication of the test's name, the outbox table, Debezium's columns.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            slot: self.role.clone(),
            publication: "outbox_pub".to_owned(),
            tables: vec![table("public.outbox")],
            columns: columns(&["id", "aggregatetype", "aggregateid", "payload"]),
            ..Wanted::default()
        }
    }

    /// The usual wish, with publication and slot made when they are missing.
    pub(crate) fn wanted_created(&self) -> Wanted {
        Wanted {
            create: true,
            ..self.wanted()
        }
    }

    pub(crate) fn create_publication(&self) {
        self.owner(
            "CREATE PUBLICATION outbox_pub FOR TABLE public.outbox WITH (publish = 'insert')",
        );
    }

    pub(crate) fn create_slot(&self, plugin: &str) {
        self.admin(&format!(
            "SELECT pg_create_logical_replication_slot('{}', '{plugin}')",
            self.role
        ));
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        let url = self.server.url(&self.role, Some("secret"), &self.database);
        ConnectOptions::parse(&url).expect("a URL")
    }

    pub(crate) async fn check(&self, wanted: &Wanted) -> Result<Checked, CheckError> {
        open(&self.options(), wanted)
            .await
            .map(|(_, _, checked)| checked)
    }

    #[track_caller]
    pub(crate) fn passes(&self, wanted: &Wanted) -> Checked {
        match run(self.check(wanted)) {
            Ok(checked) => checked,
            Err(error) => panic!("{error}"),
        }
    }

    /// Refused ten times with the same message within the time a person waits, and nothing left behind.
    #[track_caller]
    pub(crate) fn refused(&self, wanted: &Wanted, code: Code, words: &[&str]) -> Problem {
        let before = self.objects(wanted);
        let began = Instant::now();
        let mut problem = problem_of(run(self.check(wanted)));
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{:?}",
            began.elapsed()
        );
        let text = problem.to_string();
        for _ in 1..10 {
            problem = problem_of(run(self.check(wanted)));
            assert_eq!(problem.to_string(), text);
        }
        assert_eq!(problem.code, code, "{text}");
        for word in words {
            assert!(text.contains(word), "{word:?} not in {text}");
        }
        assert!(
            !problem.needed.is_empty() && !problem.fix.is_empty(),
            "{text}"
        );
        assert_eq!(self.objects(wanted), before, "something was left behind");
        problem
    }

    /// Publications of the database, and slots of the database or of the wanted name.
    fn objects(&self, wanted: &Wanted) -> String {
        self.admin(&format!(
            "SELECT (SELECT count(*) FROM pg_publication), \
                    (SELECT count(*) FROM pg_replication_slots WHERE database = current_database() OR slot_name = '{}')",
            wanted.slot
        ))
    }
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

#[track_caller]
pub(crate) fn problem_of(result: Result<Checked, CheckError>) -> Problem {
    match result {
        Err(CheckError::Problem(problem)) => problem,
        other => panic!("no problem, but {other:?}"),
    }
}

pub(crate) fn table(name: &str) -> TableName {
    name.parse().expect("a table name")
}

/// Required columns.
pub(crate) fn columns(names: &[&str]) -> Vec<(String, bool)> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), true))
        .collect()
}

const OUTBOX: &str = "CREATE TABLE public.outbox (\
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text, type text, payload jsonb)";
