//! `cargo xtask demo`: the whole path on real servers, in a terminal, within a minute.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use xtask::install::{Need, ensure};
use xtask::kafka::{KAFKA_VERSION, Kafka, KafkaOptions};
use xtask::postgres::{Postgres, PostgresOptions};
use xtask::process::{Daemon, Signal, wait_for};
use xtask::scratch::{Scratch, free_port};
use xtask::{http, migrations};

use super::run::{Interrupt, command_line, plain, target_dir};
use crate::report;

/// What the user asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run on until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// How long to write events.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
}

/// Starts everything, lets the demo's writer and consumer run, and stops everything again.
///
/// # Errors
/// Something cannot be built or started, or what was read is not what was written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::new()?;
    ensure(&[Need::Postgres, Need::Java, Need::Maven, Need::Librdkafka])?;
    report::line("== building the connector");
    let servers = thread::spawn(Servers::start);
    let built = build(&interrupt);
    // The servers are waited for in any case: dropping them is what stops them.
    let servers = servers
        .join()
        .map_err(|_| anyhow!("starting the servers failed"))?;
    built?;
    interrupt.check()?;
    let servers = servers?;
    let connector = Connector::start(&servers)?;
    connector.wait_until_ready(&interrupt)?;
    servers.introduce(&connector);
    let outcome = watch(options, &servers, &connector, &interrupt);
    let stopped = connector.stop();
    outcome.and(stopped)
}

/// The profile without optimisation builds fastest, and is fast enough to read along.
fn build(interrupt: &Interrupt) -> Result<()> {
    let mut cargo = command_line("cargo build --locked --workspace --bin posthaste --bin demo")?;
    plain(&mut cargo, interrupt).context("build the connector")
}

fn built_program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// Where the service's tables are.
const DATABASE: &str = "shop";
const SLOT: &str = "outbox";
const TOPIC: &str = "outbox.event.order";
/// Keys are spread over partitions, as in earnest.
const PARTITIONS: i32 = 3;
/// Of a database that lives for a minute and listens on loopback only.
const PASSWORD: &str = "demo";

struct Servers {
    postgres: Postgres,
    kafka: Kafka,
}

impl Servers {
    fn start() -> Result<Self> {
        let kafka = thread::spawn(|| -> Result<Kafka> {
            let kafka = Kafka::start(KafkaOptions::default())?;
            kafka.create_topic(TOPIC, PARTITIONS, &[])?;
            Ok(kafka)
        });
        let postgres = Self::start_postgres();
        let kafka = kafka.join().map_err(|_| anyhow!("starting Kafka failed"))?;
        Ok(Self {
            postgres: postgres?,
            kafka: kafka?,
        })
    }

    fn start_postgres() -> Result<Postgres> {
        let postgres = Postgres::start(PostgresOptions::default())?;
        postgres.psql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        migrations::apply(&postgres, DATABASE)?;
        let password = format!("ALTER ROLE posthaste PASSWORD '{PASSWORD}'");
        postgres.psql("postgres", &password)?;
        Ok(postgres)
    }

    fn admin_url(&self) -> String {
        self.postgres.url("postgres", None, DATABASE)
    }

    fn introduce(&self, connector: &Connector) {
        report::line(&format!("== PostgreSQL    {}", self.admin_url()));
        report::line(&format!(
            "== Kafka {KAFKA_VERSION}   {}",
            self.kafka.bootstrap()
        ));
        report::line(&format!(
            "== connector     posthaste run -c {}",
            connector.config.display()
        ));
        report::line(&format!(
            "== metrics       http://{}/metrics\n",
            connector.http
        ));
    }
}

struct Connector {
    process: Daemon,
    config: PathBuf,
    http: String,
    log: PathBuf,
    // Declared after the process, so that its files outlive it.
    _scratch: Scratch,
}

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Above the connector's own limit for draining.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Enough to see what went wrong.
const LOG_LINES_SHOWN: usize = 20;

impl Connector {
    fn start(servers: &Servers) -> Result<Self> {
        let scratch = Scratch::new("demo")?;
        let http = format!("127.0.0.1:{}", free_port()?);
        let config = scratch.path().join("posthaste.toml");
        let text = configuration(servers, &http, scratch.path());
        fs::write(&config, text).context("write the configuration")?;
        let path = scratch.path().join("posthaste.log");
        let log = File::create(&path).context("create the connector's log")?;
        let mut command = Command::new(built_program("posthaste"));
        command
            .arg("run")
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the connector's log")?)
            .stderr(log);
        let process = Daemon::spawn("posthaste", &mut command)?;
        process.leave(scratch.path())?;
        Ok(Self {
            process,
            config,
            http,
            log: path,
            _scratch: scratch,
        })
    }

    fn wait_until_ready(&self, interrupt: &Interrupt) -> Result<()> {
        wait_for("the connector to stream", READY_TIMEOUT, || {
            interrupt.check()?;
            self.check_alive()?;
            let status = http::get_status(&self.http, "/readyz");
            Ok(status.is_ok_and(|status| status == 200).then_some(()))
        })
        .with_context(|| format!("the connector's log ends with:\n{}", self.log_end()))
    }

    fn check_alive(&self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the connector ended: {status}"),
        }
    }

    /// A graceful stop; it confirms what it delivered and exits clean.
    fn stop(&self) -> Result<()> {
        let start = Instant::now();
        let status = self.process.terminate(Signal::TERM, STOP_TIMEOUT)?;
        if !status.success() {
            bail!(
                "the connector did not stop clean ({status}):\n{}",
                self.log_end()
            );
        }
        let seconds = start.elapsed().as_secs_f64();
        report::line(&format!(
            "connector           stopped clean in {seconds:.1} s"
        ));
        Ok(())
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
        lines.get(shown..).unwrap_or_default().join("\n")
    }
}

/// What a user would write, plus ports and folders of this run.
fn configuration(servers: &Servers, http: &str, folder: &Path) -> String {
    let url = servers.postgres.url("posthaste", Some(PASSWORD), DATABASE);
    let brokers = servers.kafka.bootstrap();
    let state = folder.join("state");
    let state = state.display();
    format!(
        "[source]\n\
         url = \"{url}\"\n\
         slot = \"{SLOT}\"\n\
         publication = \"outbox\"\n\
         table = \"public.outbox\"\n\
         # Creates the slot, since there is none yet.\n\
         create = true\n\
         status_interval = \"1s\"\n\
         \n\
         [router]\n\
         headers = [{{ column = \"type\", name = \"eventType\" }}]\n\
         \n\
         [kafka]\n\
         brokers = \"{brokers}\"\n\
         \n\
         [http]\n\
         listen = \"{http}\"\n\
         \n\
         [state]\n\
         directory = \"{state}\"\n\
         \n\
         [log]\n\
         format = \"text\"\n"
    )
}

/// Runs writer and consumer in the foreground. An interrupt is passed on: they end with their summary.
fn watch(
    options: &Options,
    servers: &Servers,
    connector: &Connector,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut command = Command::new(built_program("demo"));
    command
        .args(["--postgres", &servers.admin_url()])
        .args(["--kafka", &servers.kafka.bootstrap(), "--slot", SLOT])
        .args(["--seconds", &options.seconds.to_string()])
        .stdin(Stdio::null());
    if options.keep {
        report::line("runs until Ctrl-C");
        command.arg("--keep");
    }
    let demo = Daemon::spawn("demo", &mut command)?;
    let status = wait_for("the demo", FOREVER, || {
        if interrupt.is_raised() {
            return demo.terminate(Signal::INT, SUMMARY_TIMEOUT).map(Some);
        }
        if let Err(ended) = connector.check_alive() {
            demo.terminate(Signal::TERM, Duration::ZERO)?;
            bail!("{ended}; its log ends with:\n{}", connector.log_end());
        }
        demo.try_wait()
    })?;
    check(status, connector)
}

/// A demo that is kept running has no end of its own.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// The last events and the confirmation are waited for this long and a little more.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(60);

fn check(status: ExitStatus, connector: &Connector) -> Result<()> {
    if !status.success() {
        let log = connector.log_end();
        bail!("the demo failed; the connector's log ends with:\n{log}");
    }
    Ok(())
}
