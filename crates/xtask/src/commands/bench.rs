//! `cargo xtask bench`: how fast a backlog reaches Kafka, beside `pg_recvlogical` reading the same slot to nothing.
//!
//! For each size of transaction a backlog is written once, behind a base slot. Each round then measures, in this order,
//! the connector, `pg_recvlogical` and a bare producer: pairs are interleaved, so that what else happens on the machine
//! hits all alike. Every run starts from a copy of the base slot and a new topic.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use xtask::install::{Need, ensure};
use xtask::kafka::{Kafka, KafkaOptions};
use xtask::migrations;
use xtask::postgres::{Postgres, PostgresOptions};
use xtask::process::{Daemon, Signal, Usage, output, usage, wait_for};
use xtask::scratch::Scratch;

use super::bench_report::{Measure, Report, Round, spliced};
use super::run::{Interrupt, command_line, plain, target_dir};
use super::tidy;
use crate::report;

/// What the user asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Events in the backlog.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Sizes of transactions, each measured on a backlog of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,10,1000")]
    batch: Vec<u64>,
    /// Rounds for each size; the report shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure exactly-once in the same rounds, beside the default.
    #[arg(long)]
    exactly_once: bool,
    /// Connect to PostgreSQL through its unix socket rather than TCP.
    #[arg(long)]
    socket: bool,
    /// Also write the report into this Markdown file, in place of the section of the same name.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Measures and prints the report.
///
/// # Errors
/// Something cannot be built or started, an event does not arrive, or the user interrupts.
pub(crate) fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::new()?;
    ensure(&[Need::Postgres, Need::Java, Need::Maven, Need::Librdkafka])?;
    let mut cargo =
        command_line("cargo build --release --locked --workspace --bin posthaste --bin bench")?;
    plain(&mut cargo, &interrupt).context("build the connector")?;
    let bench = Bench::start(options, interrupt)?;
    let mut sizes = Vec::new();
    for batch in &options.batch {
        sizes.push((*batch, bench.size(*batch, options.rounds)?));
    }
    let report = Report {
        rows: options.rows,
        sizes,
        machine: bench.machine()?,
    };
    report::line(&format!("\n{}", report.markdown()));
    if let Some(file) = &options.write {
        let before = fs::read_to_string(file).context("read the file to write into")?;
        let after = spliced(&before, &report.markdown());
        fs::write(file, after).context("write the report")?;
    }
    Ok(())
}

struct Bench {
    postgres: Postgres,
    kafka: Kafka,
    rows: u64,
    socket: bool,
    exactly_once: bool,
    interrupt: Interrupt,
}

const WRITERS: u64 = 4;
const PARTITIONS: i32 = 6;
const LIMIT: Duration = Duration::from_secs(1800);

impl Bench {
    fn start(options: &Options, interrupt: Interrupt) -> Result<Self> {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let postgres = Postgres::start(PostgresOptions {
            // Nothing of the server's own may start in the middle of a measurement.
            settings: vec![
                setting("autovacuum", "off"),
                setting("max_wal_size", "64GB"),
                setting("checkpoint_timeout", "1d"),
                setting("shared_buffers", "256MB"),
            ],
            ..PostgresOptions::default()
        })?;
        migrations::apply(&postgres, DATABASE)?;
        let kafka = Kafka::start(KafkaOptions {
            heap_mb: 1024,
            // A broker that lives long enough is worth the optimising compiler.
            java: vec!["-XX:TieredStopAtLevel=4".into()],
            ..KafkaOptions::default()
        })?;
        Ok(Self {
            postgres,
            kafka,
            rows: options.rows,
            socket: options.socket,
            exactly_once: options.exactly_once,
            interrupt,
        })
    }

    fn size(&self, batch: u64, rounds: usize) -> Result<Vec<Round>> {
        report::line(&format!(
            "== {} events in transactions of {batch}",
            self.rows
        ));
        self.sql("TRUNCATE public.outbox")?;
        self.sql("SELECT pg_create_logical_replication_slot('base', 'pgoutput')")?;
        let url = self.url();
        let numbers = [self.rows, batch, WRITERS].map(|number| number.to_string());
        let [rows, batch_text, writers] = &numbers;
        let mut write = Command::new(built_program("bench"));
        write
            .args(["write", "--postgres", &url, "--rows", rows])
            .args(["--batch", batch_text, "--writers", writers]);
        plain(&mut write, &self.interrupt).context("write the backlog")?;
        self.sql("VACUUM ANALYZE public.outbox")?;
        self.sql("CHECKPOINT")?;
        let end = self.sql("SELECT pg_current_wal_insert_lsn()")?;
        let measured = (0..rounds)
            .map(|number| self.round(batch, number, &end))
            .collect();
        self.sql("SELECT pg_drop_replication_slot('base')")?;
        measured
    }

    fn round(&self, batch: u64, number: usize, end: &str) -> Result<Round> {
        let topic = format!("run-{batch}-{number}.order");
        let copy = format!("copy-{batch}-{number}");
        self.kafka.create_topic(&topic, PARTITIONS, &[])?;
        self.kafka.create_topic(&copy, PARTITIONS, &[])?;
        let once = format!("once-{batch}-{number}.order");
        let round = Round {
            connector: self.connector(&topic, "")?,
            exactly_once: self.exactly_once(&once)?,
            reference: self.pg_recvlogical(end)?,
            producer: self.producer(&topic, &copy)?,
        };
        self.kafka.delete_topic(&topic)?;
        self.kafka.delete_topic(&copy)?;
        report::line(&round.line(self.rows));
        Ok(round)
    }

    /// The same with exactly-once, if that is asked for: each run is a first start, with a position topic of its own.
    fn exactly_once(&self, topic: &str) -> Result<Option<Measure>> {
        if !self.exactly_once {
            return Ok(None);
        }
        self.kafka.create_topic(topic, PARTITIONS, &[])?;
        let positions = format!("{topic}.positions");
        let keys = format!("delivery = \"exactly-once\"\nposition_topic = \"{positions}\"\n");
        let measure = self.connector(topic, &keys)?;
        self.kafka.delete_topic(topic)?;
        self.kafka.delete_topic(&positions)?;
        Ok(Some(measure))
    }

    /// From the start of the process until an independent consumer has every id. `keys` are further ones of `[kafka]`.
    fn connector(&self, topic: &str, keys: &str) -> Result<Measure> {
        let mut consumer = Program::start(
            "consumer",
            Command::new(built_program("bench"))
                .args(["consume", "--postgres", &self.url()])
                .args(["--kafka", &self.kafka.bootstrap(), "--topic", topic]),
        )?;
        consumer.expect("ready")?;
        self.copy_slot()?;
        let scratch = Scratch::new("bench")?;
        let config = scratch.path().join("posthaste.toml");
        fs::write(&config, self.configuration(topic, scratch.path(), keys))
            .context("write the configuration")?;
        let log = scratch.path().join("log");
        let mut command = Command::new(built_program("posthaste"));
        command
            .arg("run")
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.stderr(fs::File::create(&log).context("create the connector's log")?);
        let start = Instant::now();
        let connector = Daemon::spawn("posthaste", &mut command)?;
        let ended = || fs::read_to_string(&log).unwrap_or_default();
        self.wait(&consumer.daemon, || {
            if connector.try_wait()?.is_some() {
                bail!("the connector ended:\n{}", ended());
            }
            Ok(())
        })?;
        let wall = start.elapsed();
        let used = usage(connector.pid()).context("the connector ended")?;
        consumer.expect("done")?;
        connector.terminate(Signal::TERM, Duration::from_secs(30))?;
        self.drop_slot()?;
        Ok(Measure::new(wall, used))
    }

    fn pg_recvlogical(&self, end: &str) -> Result<Measure> {
        self.copy_slot()?;
        let mut command = Command::new(self.postgres.bin("pg_recvlogical")?);
        command
            .args([
                "--dbname",
                &self.url(),
                "--slot",
                SLOT,
                "--start",
                "--file",
                "/dev/null",
            ])
            .args(["--endpos", end, "--option", "proto_version=1"])
            .args(["--option", "publication_names=outbox"])
            .stdin(Stdio::null());
        let start = Instant::now();
        let process = Daemon::spawn("pg_recvlogical", &mut command)?;
        let mut used = Usage::default();
        self.wait(&process, || {
            // It ends by itself, so the last look before its end counts.
            used = usage(process.pid()).unwrap_or(used);
            Ok(())
        })?;
        let wall = start.elapsed();
        self.drop_slot()?;
        Ok(Measure::new(wall, used))
    }

    /// It counts itself: reading the records into memory first is no part of the measurement.
    fn producer(&self, from: &str, to: &str) -> Result<Measure> {
        let mut producer = Program::start(
            "producer",
            Command::new(built_program("bench"))
                .args(["produce", "--kafka", &self.kafka.bootstrap()])
                .args(["--from", from, "--to", to]),
        )?;
        self.wait(&producer.daemon, || Ok(()))?;
        let line = producer.line()?;
        let (wall, cpu) = line.split_once(' ').context("the producer said nothing")?;
        let used = Usage {
            cpu_ms: cpu.parse().context("CPU time of the producer")?,
            peak_kib: 0,
        };
        let wall = Duration::from_millis(wall.parse().context("time of the producer")?);
        Ok(Measure::new(wall, used))
    }

    /// Waits until a program ends, looking at something else meanwhile.
    fn wait(&self, process: &Daemon, mut look: impl FnMut() -> Result<()>) -> Result<()> {
        let status = wait_for("a measurement", LIMIT, || {
            self.interrupt.check()?;
            look()?;
            process.try_wait()
        })?;
        if !status.success() {
            bail!("a measured program failed: {status}");
        }
        Ok(())
    }

    fn copy_slot(&self) -> Result<()> {
        self.sql(&format!(
            "SELECT pg_copy_logical_replication_slot('base', '{SLOT}')"
        ))
        .map(|_| ())
    }

    /// The walsender lets go of the slot a little after its client has gone.
    fn drop_slot(&self) -> Result<()> {
        wait_for("the slot to be released", Duration::from_secs(30), || {
            let dropped = self.sql(&format!("SELECT pg_drop_replication_slot('{SLOT}')"));
            Ok(dropped.ok().map(|_| ()))
        })
    }

    fn sql(&self, statement: &str) -> Result<String> {
        self.postgres.psql(DATABASE, statement)
    }

    fn url(&self) -> String {
        if self.socket {
            self.postgres.socket_url("postgres", None, DATABASE)
        } else {
            self.postgres.url("postgres", None, DATABASE)
        }
    }

    /// The defaults, apart from what a run needs for itself.
    fn configuration(&self, topic: &str, folder: &Path, keys: &str) -> String {
        let topic = topic.replace(".order", ".{aggregatetype}");
        let url = self.url();
        let brokers = self.kafka.bootstrap();
        let state = folder.join("state");
        let state = state.display();
        format!(
            "[source]\nurl = \"{url}\"\nslot = \"{SLOT}\"\npublication = \"outbox\"\ntable = \"public.outbox\"\n\
             [router]\ntopic = \"{topic}\"\n\
             [kafka]\nbrokers = \"{brokers}\"\n{keys}\
             [http]\nlisten = \"off\"\n\
             [state]\ndirectory = \"{state}\"\n"
        )
    }

    /// What the numbers depend on.
    fn machine(&self) -> Result<String> {
        let processors = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.map_or("unknown processor", |name| {
            name.trim_start_matches(['\t', ':', ' '])
        });
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let version = self.sql("SHOW server_version")?;
        let mut git = Command::new("git");
        let commit = output(
            git.current_dir(tidy::root())
                .args(["rev-parse", "--short", "HEAD"]),
        )?;
        let way = if self.socket {
            "a unix socket"
        } else {
            "TCP on loopback"
        };
        Ok(format!(
            "{cores} cores of {model}; PostgreSQL {version} over {way}; Apache Kafka {}, one node; commit {}",
            xtask::kafka::KAFKA_VERSION,
            commit.trim()
        ))
    }
}

const DATABASE: &str = "postgres";
const SLOT: &str = "run";

fn built_program(name: &str) -> PathBuf {
    target_dir().join("release").join(name)
}

/// A program of ours that talks to us on its standard output.
struct Program {
    daemon: Daemon,
    output: BufReader<PipeReader>,
}

impl Program {
    fn start(name: &str, command: &mut Command) -> Result<Self> {
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        let daemon = Daemon::spawn(name, command.stdin(Stdio::null()).stdout(writer))?;
        // The command holds our copy of the writing end; the output ends when the program does.
        command.stdout(Stdio::null());
        Ok(Self {
            daemon,
            output: BufReader::new(reader),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .context("read what a program says")?;
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        if line == word {
            return Ok(());
        }
        Err(anyhow!("a program said {line:?} where {word:?} was due"))
    }
}
