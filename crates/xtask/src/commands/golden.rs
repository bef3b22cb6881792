//! `cargo xtask golden capture`: the bytes of real servers for the golden tests of `pgoutput`.
//!
//! What is captured, and how, is written in `crates/pgoutput/tests/golden/capture.sql`.

use std::fs;
use std::io::{BufRead, BufReader, Lines, PipeReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};
use xtask::install::{Need, ensure};
use xtask::postgres::{Postgres, PostgresOptions};
use xtask::postgres_versions::{MAJORS, bin_dir};

use super::tidy;
use crate::report;

/// What the user asked for.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Options {
    /// Writes the captures of one or all major versions anew; `UPDATE_GOLDEN=1 cargo test -p pgoutput` then decodes them.
    Capture {
        /// The major version; all of them by default.
        #[arg(long, value_name = "MAJOR")]
        pg: Option<u32>,
    },
}

/// # Errors
/// A server cannot be had, or refuses a statement of the script.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options::Capture { pg } = options;
    ensure(&[Need::Postgres, Need::Npm])?;
    let folder = tidy::root().join("crates/pgoutput/tests/golden");
    let text = fs::read_to_string(folder.join("capture.sql")).context("read capture.sql")?;
    let script = Script::parse(&text)?;
    for major in MAJORS {
        if pg.is_none_or(|wanted| wanted == major) {
            capture(&script, major, &folder.join(format!("pg{major}")))
                .with_context(|| format!("PostgreSQL {major}"))?;
        }
    }
    Ok(())
}

fn capture(script: &Script, major: u32, folder: &PathBuf) -> Result<()> {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let postgres = Postgres::start(PostgresOptions {
        settings: vec![
            setting("timezone", "UTC"),
            setting("max_prepared_transactions", "2"),
            // Its records would stand between those of a scenario.
            setting("autovacuum", "off"),
        ],
        bin_dir: Some(bin_dir(major)?),
        ..PostgresOptions::default()
    })?;
    fs::create_dir_all(folder).context("make a folder for the captures")?;
    let version = postgres.psql(DATABASE, "SELECT version()")?;
    postgres.psql(DATABASE, &script.preamble)?;
    for scenario in script
        .scenarios
        .iter()
        .filter(|scenario| scenario.from <= major)
    {
        let messages = scenario
            .capture(&postgres)
            .with_context(|| format!("scenario {}", scenario.name))?;
        let file = folder.join(format!("{}.hex", scenario.name));
        fs::write(file, format!("# {version}\n{messages}")).context("write a capture")?;
    }
    report::line(&format!("captured {version}"));
    Ok(())
}

const DATABASE: &str = "postgres";
const SLOT: &str = "golden";

/// The parts of `capture.sql`.
#[derive(Debug, Default)]
struct Script {
    preamble: String,
    scenarios: Vec<Scenario>,
}

#[derive(Debug, Default)]
struct Scenario {
    name: String,
    /// The oldest major version that can run it.
    from: u32,
    options: Vec<(String, String)>,
    messages_max: Option<usize>,
    /// Statements with the session that runs them, in order.
    steps: Vec<(String, String)>,
}

impl Script {
    fn parse(text: &str) -> Result<Self> {
        let mut script = Self::default();
        for line in text.lines() {
            let Some(scenario) = script.scenarios.last_mut() else {
                match line.strip_prefix("-- scenario: ") {
                    Some(name) => script.scenarios.push(Scenario::new(name)),
                    None => push_line(&mut script.preamble, line),
                }
                continue;
            };
            if let Some(name) = line.strip_prefix("-- scenario: ") {
                script.scenarios.push(Scenario::new(name));
            } else if let Some(major) = line.strip_prefix("-- from: ") {
                scenario.from = major.parse().context("a scenario's oldest version")?;
            } else if let Some(options) = line.strip_prefix("-- options: ") {
                scenario.set_options(options)?;
            } else if let Some(count) = line.strip_prefix("-- messages: ") {
                scenario.messages_max = Some(count.parse().context("a number of messages")?);
            } else if let Some(session) = line.strip_prefix("-- session: ") {
                scenario.steps.push((session.to_owned(), String::new()));
            } else if let Some((_, statements)) = scenario.steps.last_mut() {
                push_line(statements, line);
            }
        }
        Ok(script)
    }
}

impl Scenario {
    fn new(name: &str) -> Self {
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Self {
            name: name.to_owned(),
            options: vec![
                option("proto_version", "1"),
                option("publication_names", "p"),
                option("messages", "true"),
            ],
            steps: vec![("main".to_owned(), String::new())],
            ..Self::default()
        }
    }

    fn set_options(&mut self, text: &str) -> Result<()> {
        for option in text.split_whitespace() {
            let (name, value) = option
                .split_once('=')
                .context("an option without a value")?;
            self.options.retain(|(known, _)| known != name);
            self.options.push((name.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// Runs it and gives a line per message: position, xid, bytes.
    fn capture(&self, postgres: &Postgres) -> Result<String> {
        let slot = format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')");
        postgres.psql(DATABASE, &slot)?;
        let mut sessions: Vec<(&str, Session)> = Vec::new();
        for (name, statements) in &self.steps {
            if !sessions.iter().any(|(known, _)| known == name) {
                sessions.push((name, Session::open(postgres)?));
            }
            for (known, session) in &mut sessions {
                if known == name {
                    session.run(statements)?;
                }
            }
        }
        let options: Vec<_> = self
            .options
            .iter()
            .map(|(name, value)| format!("'{name}', '{value}'"))
            .collect();
        // In a session of the scenario, since some change how decoding works.
        let (_, session) = sessions
            .first_mut()
            .context("a scenario without a session")?;
        let messages = session.run(&format!(
            "SELECT concat_ws(' ', lsn, xid, encode(data, 'hex')) \
             FROM pg_logical_slot_peek_binary_changes('{SLOT}', NULL, NULL, {});",
            options.join(", ")
        ))?;
        drop(sessions);
        postgres.psql(
            DATABASE,
            &format!("SELECT pg_drop_replication_slot('{SLOT}')"),
        )?;
        let kept = messages
            .lines()
            .take(self.messages_max.unwrap_or(usize::MAX));
        Ok(kept.map(|line| format!("{line}\n")).collect())
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A session that stays open from step to step, so that transactions can be interleaved.
struct Session {
    psql: Child,
    input: ChildStdin,
    output: Lines<BufReader<PipeReader>>,
}

/// What psql prints when it has run everything before.
const DONE: &str = "step done";

impl Session {
    fn open(postgres: &Postgres) -> Result<Self> {
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        let mut psql = Command::new(postgres.bin("psql")?)
            .args([
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
            ])
            .arg("-h")
            .arg(postgres.socket_dir())
            .args(["-p", &postgres.port().to_string(), "-d", DATABASE])
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(Stdio::piped())
            .stdout(writer)
            .spawn()
            .context("start psql")?;
        let input = psql.stdin.take().context("psql has no input")?;
        let output = BufReader::new(reader).lines();
        Ok(Self {
            psql,
            input,
            output,
        })
    }

    /// Runs statements and gives their rows.
    fn run(&mut self, statements: &str) -> Result<String> {
        write!(self.input, "{statements}\n\\echo {DONE}\n").context("talk to psql")?;
        let mut rows = String::new();
        for line in self.output.by_ref() {
            let line = line.context("listen to psql")?;
            if line == DONE {
                return Ok(rows);
            }
            push_line(&mut rows, &line);
        }
        bail!("psql gave up");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Told to leave rather than by the end of its input, which stays open until after this.
        writeln!(self.input, "\\q").ok();
        self.psql.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_parted_into_scenarios_and_sessions() {
        let text = "CREATE PUBLICATION p;\n-- scenario: one\nSELECT 1;\n-- session: other\nSELECT 2;\n\
                    -- scenario: two\n-- from: 15\n-- options: binary=true messages=false\n-- messages: 1\n";
        let script = Script::parse(text).unwrap();
        assert_eq!(script.preamble, "CREATE PUBLICATION p;\n");
        let [one, two] = script.scenarios.as_slice() else {
            panic!("{script:?}");
        };
        let steps = [("main", "SELECT 1;\n"), ("other", "SELECT 2;\n")];
        assert_eq!(
            one.steps,
            steps.map(|(name, sql)| (name.to_owned(), sql.to_owned()))
        );
        assert_eq!((two.from, two.messages_max), (15, Some(1)));
        let options: Vec<_> = two
            .options
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            options,
            [
                "proto_version=1",
                "publication_names=p",
                "binary=true",
                "messages=false"
            ]
        );
    }
}
