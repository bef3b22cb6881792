//! The numbered SQL files of `sql/`, applied as a user applies them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::postgres::Postgres;

/// Applies every file of `sql/` in order of its number, as superuser.
///
/// # Errors
/// A file cannot be read, or PostgreSQL refuses a statement.
pub fn apply(postgres: &Postgres, db: &str) -> Result<()> {
    for file in files()? {
        postgres
            .psql_file(db, &file)
            .with_context(|| format!("apply {}", file.display()))?;
    }
    Ok(())
}

fn files() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql");
    let entries = fs::read_dir(folder).context("read the folder sql")?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.context("read the folder sql")?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::postgres::PostgresOptions;
    use crate::process::output;

    #[test]
    fn files_are_numbered_without_a_gap() {
        for (index, file) in files().unwrap().iter().enumerate() {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            assert!(name.starts_with(&format!("{:03}_", index + 1)), "{name}");
        }
    }

    #[test]
    fn applying_twice_is_applying_once() {
        let postgres = Postgres::start(PostgresOptions::default()).unwrap();
        let schema = || {
            let dump = output(
                Command::new(postgres.bin("pg_dump").unwrap())
                    .args(["-s", "-U", "postgres", "-d", "postgres", "-h"])
                    .arg(postgres.socket_dir())
                    .args(["-p", &postgres.port().to_string()]),
            );
            // Newer versions mark each dump with a random word.
            let lines = dump.unwrap();
            let lines = lines.lines().filter(|line| !line.starts_with('\\'));
            lines.collect::<Vec<_>>().join("\n")
        };
        apply(&postgres, "postgres").unwrap();
        let once = schema();
        apply(&postgres, "postgres").unwrap();
        assert_eq!(schema(), once);
        let operations = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication";
        assert_eq!(postgres.psql("postgres", operations).unwrap(), "t|f|f|f");
    }

    #[test]
    fn the_role_may_stream_and_nothing_else() {
        let postgres = Postgres::start(PostgresOptions::default()).unwrap();
        apply(&postgres, "postgres").unwrap();
        let password = "ALTER ROLE posthaste PASSWORD 'secret'";
        postgres.psql("postgres", password).unwrap();
        let url = postgres.url("posthaste", Some("secret"), "postgres");
        let run = |parameters: &str, statement: &str| {
            let target = format!("{url}?{parameters}");
            let psql = postgres.bin("psql").unwrap();
            output(Command::new(psql).args(["-X", "-w", "-c", statement, &target]))
        };
        run(
            "replication=database",
            "CREATE_REPLICATION_SLOT s LOGICAL pgoutput",
        )
        .unwrap();
        assert!(run("", "SELECT * FROM public.outbox").is_err());
        assert!(run("", "INSERT INTO public.outbox (aggregatetype) VALUES ('x')").is_err());
    }
}
