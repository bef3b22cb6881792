//! `cargo xtask image`: builds the image of `docker/` and runs it against real servers, as a user would.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use xtask::install::{Need, ensure};
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::postgres::{Postgres, PostgresOptions};
use xtask::process::{Daemon, output, wait_for};
use xtask::scratch::{Scratch, free_port};
use xtask::{http, migrations};

use super::run::{Interrupt, plain, program};
use super::tidy;
use crate::report;

/// What the user asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the image.
    #[arg(long, default_value = "posthaste")]
    tag: String,
    /// Only run the image, which is there already.
    #[arg(long)]
    no_build: bool,
    /// Further arguments of `docker build`, such as `-- --network host`.
    #[arg(last = true)]
    build: Vec<String>,
}

/// Builds the image, looks at it, lets it deliver events and stops it.
///
/// # Errors
/// No Docker engine answers, the image cannot be built or is not what it should be, or an event does not arrive.
pub(crate) fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::new()?;
    output(Command::new("docker").args(["info", "--format", "{{.ServerVersion}}"]))
        .context("this needs a running Docker engine, and the right to use it")?;
    ensure(&[Need::Postgres, Need::Java, Need::Maven])?;
    if !options.no_build {
        build(options, &interrupt)?;
    }
    let image = Image(&options.tag);
    image.inspect()?;
    interrupt.check()?;
    let servers = Servers::start()?;
    interrupt.check()?;
    let container = Container::start(image, &servers)?;
    container.wait_until_healthy(&interrupt)?;
    servers.deliver(&interrupt)?;
    container.stop()
}

fn build(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let start = Instant::now();
    let mut docker = program(&["docker", "build", "-f", "docker/Dockerfile"])?;
    docker
        // The default since version 23; before, it has to be asked for.
        .env("DOCKER_BUILDKIT", "1")
        .args(["-t", &options.tag])
        .args(&options.build)
        .arg(".");
    plain(&mut docker, interrupt).context("build the image")?;
    report::line(&format!("built in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

#[derive(Clone, Copy)]
struct Image<'a>(&'a str);

/// What the first stage has and the image must not.
const BUILD_TOOLS: &str = "cc gcc c++ ld make pkg-config cargo rustc";
/// Of the image; see `docker/Dockerfile`.
const USER: &str = "10001:10001";

impl Image<'_> {
    fn inspect(self) -> Result<()> {
        let format = "{{.Config.User}} {{.Size}}";
        let text =
            output(Command::new("docker").args(["image", "inspect", "--format", format, self.0]))?;
        let (user, size) = text.trim_end().split_once(' ').context("no size")?;
        if user != USER {
            bail!("the image's user is {user:?}, not {USER}");
        }
        let size_bytes: f64 = size.parse().context("the size of the image")?;
        let tools = self.shell(&format!("command -v {BUILD_TOOLS} || true"))?;
        if !tools.is_empty() {
            bail!("the image holds build tools: {tools}");
        }
        let version = output(Command::new("docker").args(["run", "--rm", self.0, "--version"]))?;
        let megabytes = size_bytes / 1e6;
        report::line(&format!(
            "{}: {}, {megabytes:.0} MB, user {user}, no build tools",
            self.0,
            version.trim()
        ));
        Ok(())
    }

    fn shell(self, script: &str) -> Result<String> {
        let arguments = ["run", "--rm", "--entrypoint", "bash", self.0, "-c", script];
        output(Command::new("docker").args(arguments))
    }
}

struct Servers {
    postgres: Postgres,
    kafka: Kafka,
}

/// As in `docker/compose.yaml`.
const DATABASE: &str = "app";
const SLOT: &str = "outbox";
/// Of a database that lives for a minute and listens on loopback only.
const PASSWORD: &str = "it's only here";

impl Servers {
    fn start() -> Result<Self> {
        let kafka = thread::spawn(|| Kafka::start(KafkaOptions::default()));
        let postgres = Self::start_postgres();
        let kafka = kafka.join().map_err(|_| anyhow!("starting Kafka failed"))?;
        Ok(Self {
            postgres: postgres?,
            kafka: kafka?,
        })
    }

    /// With the files that `docker/compose.yaml` gives to its server, in the same order.
    fn start_postgres() -> Result<Postgres> {
        let postgres = Postgres::start(PostgresOptions::default())?;
        postgres.psql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        migrations::apply(&postgres, DATABASE)?;
        let url = postgres.url("postgres", None, DATABASE);
        output(
            Command::new(postgres.bin("psql")?)
                .env("POSTHASTE_PASSWORD", PASSWORD)
                .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"])
                .arg(tidy::root().join("docker/password.sql"))
                .arg(url),
        )
        .context("apply docker/password.sql")?;
        Ok(postgres)
    }

    /// Writes events, reads them from Kafka and waits until the slot has moved behind them.
    fn deliver(&self, interrupt: &Interrupt) -> Result<()> {
        let start = Instant::now();
        self.postgres.psql(DATABASE, EVENTS)?;
        let end = self
            .postgres
            .psql(DATABASE, "SELECT pg_current_wal_lsn()")?;
        let ids = self.postgres.psql(DATABASE, "SELECT id FROM outbox")?;
        let records = self.consume()?;
        let missing = ids.lines().filter(|id| !records.contains(*id)).count();
        if missing > 0 || records.lines().count() != EVENT_COUNT {
            bail!("{missing} of {EVENT_COUNT} events did not arrive");
        }
        let confirmed = format!(
            "SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        );
        wait_for("the confirmation", CONFIRM_TIMEOUT, || {
            interrupt.check()?;
            let answer = self.postgres.psql(DATABASE, &confirmed)?;
            Ok((answer == "t").then_some(()))
        })?;
        let seconds = start.elapsed().as_secs_f64();
        report::line(&format!(
            "{EVENT_COUNT} events written, read and confirmed in {seconds:.1} s"
        ));
        Ok(())
    }

    /// With the options that `docker/compose.yaml` recommends.
    fn consume(&self) -> Result<String> {
        let bootstrap = self.kafka.bootstrap();
        let count = EVENT_COUNT.to_string();
        let arguments = [
            "--bootstrap-server",
            &bootstrap,
            "--topic",
            "outbox.event.order",
            "--from-beginning",
            "--max-messages",
            &count,
            "--timeout-ms",
            "60000",
            "--formatter-property",
            "print.key=true",
            "--formatter-property",
            "print.headers=true",
        ];
        self.kafka.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            &arguments,
        )
    }
}

const EVENT_COUNT: usize = 100;
const EVENTS: &str = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) \
    SELECT 'order', n % 10, 'OrderPlaced', jsonb_build_object('cents', n) FROM generate_series(1, 100) n";

const HEALTHY_TIMEOUT: Duration = Duration::from_secs(60);
/// Above the default of `source.status_interval`.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// As in `docker/compose.yaml`: above the connector's own limit for draining.
const STOP_TIMEOUT_S: &str = "20";
/// The engine removes the container before its client ends.
const END_TIMEOUT: Duration = Duration::from_secs(20);

struct Container {
    // It is the engine's client in the foreground: signals are passed on, and its status is the connector's.
    client: Daemon,
    name: String,
    http: String,
    log: PathBuf,
    _scratch: Scratch,
}

impl Container {
    /// With the configuration that `docker/compose.yaml` mounts and as few rights as there; what differs is overridden.
    fn start(image: Image<'_>, servers: &Servers) -> Result<Self> {
        let scratch = Scratch::new("image")?;
        let path = scratch.path().join("posthaste.log");
        let log = File::create(&path).context("create the container's log")?;
        let port = free_port()?;
        let http = format!("127.0.0.1:{port}");
        let name = format!("posthaste-image-{port}");
        let config = tidy::root().join("docker/posthaste.toml");
        let url = servers.postgres.url("posthaste", None, DATABASE);
        let mut docker = Command::new("docker");
        docker
            .args(["run", "--rm", "--name", &name, "--network", "host"])
            .args(["--read-only", "--cap-drop", "ALL"])
            .args(["--security-opt", "no-new-privileges:true"])
            .args(["--health-interval", "1s"])
            .arg("-v")
            .arg(format!(
                "{}:/etc/posthaste/posthaste.toml:ro",
                config.display()
            ))
            // Without a value: taken from the environment here, and so on no command line.
            .args(["-e", "POSTHASTE__SOURCE__PASSWORD"])
            .env("POSTHASTE__SOURCE__PASSWORD", PASSWORD)
            .args(["-e", &format!("POSTHASTE__SOURCE__URL={url}")])
            .args(["-e", &format!("POSTHASTE__HTTP__LISTEN={http}")])
            .arg("-e")
            .arg(format!(
                "POSTHASTE__KAFKA__BROKERS={}",
                servers.kafka.bootstrap()
            ))
            .arg(image.0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the container's log")?)
            .stderr(log);
        Ok(Self {
            client: Daemon::spawn("docker run", &mut docker)?,
            name,
            http,
            log: path,
            _scratch: scratch,
        })
    }

    /// Healthy in the engine's eyes, ready in its own, and not root.
    fn wait_until_healthy(&self, interrupt: &Interrupt) -> Result<()> {
        let start = Instant::now();
        wait_for("the container to be healthy", HEALTHY_TIMEOUT, || {
            interrupt.check()?;
            if let Some(status) = self.client.try_wait()? {
                bail!("the container ended: {status}");
            }
            let ready = http::get_status(&self.http, "/readyz").is_ok_and(|status| status == 200);
            Ok((ready && self.health() == "healthy").then_some(()))
        })
        .with_context(|| format!("the container's log:\n{}", self.log()))?;
        let user = output(Command::new("docker").args(["exec", &self.name, "id", "-u"]))?;
        if !USER.starts_with(user.trim()) {
            bail!("runs as user {}", user.trim());
        }
        let seconds = start.elapsed().as_secs_f64();
        report::line(&format!("healthy and streaming after {seconds:.1} s"));
        Ok(())
    }

    /// Empty as long as there is no container.
    fn health(&self) -> String {
        let format = "{{.State.Health.Status}}";
        output(Command::new("docker").args(["inspect", "--format", format, &self.name]))
            .map(|health| health.trim().to_owned())
            .unwrap_or_default()
    }

    /// As compose stops it; it confirms what it delivered and ends with status 0.
    fn stop(&self) -> Result<()> {
        let start = Instant::now();
        output(Command::new("docker").args(["stop", "-t", STOP_TIMEOUT_S, &self.name]))?;
        let seconds = start.elapsed().as_secs_f64();
        let status = self.client.wait(END_TIMEOUT)?;
        if !status.success() {
            bail!("it did not stop clean ({status}):\n{}", self.log());
        }
        report::line(&format!(
            "stopped by SIGTERM with status 0 in {seconds:.1} s"
        ));
        Ok(())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
