//! A private worker of Apache Kafka Connect with Debezium's PostgreSQL connector, under full control of its owner.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use crate::connect_install::{DEBEZIUM_VERSION, ensure_jars};
use crate::http::{Answer, get_status, request};
use crate::maven;
use crate::process::{Daemon, Signal, wait_for};
use crate::scratch::{Scratch, free_port};

/// A running worker, alone in its group, with its files in a scratch folder. Dropping it stops it.
///
/// Connectors are made, watched and stopped through [`Connect::rest`]. Stopped or killed, it can be started again on the
/// same port: a distributed one then knows its connectors and offsets (they are in Kafka), a standalone one its offsets
/// alone (they are in [`Connect::offsets_file`]).
#[derive(Debug)]
pub struct Connect {
    // Declared before the folder, so that the process is gone before its files are.
    server: Mutex<Option<Daemon>>,
    port: u16,
    lib: PathBuf,
    heap_mb: u32,
    standalone: bool,
    scratch: Scratch,
}

/// How a worker differs from the usual one.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Keeps offsets in a file and connectors in memory, instead of both in Kafka.
    pub standalone: bool,
    /// `group.id`, and the first part of the names of its topics `<group>-configs`, `<group>-offsets` and `<group>-status`.
    pub group: String,
    /// Lines for the worker's properties, after ours and so stronger.
    pub properties: Vec<(String, String)>,
    /// Java heap.
    pub heap_mb: u32,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            standalone: false,
            group: "connect".into(),
            properties: Vec::new(),
            heap_mb: 256,
        }
    }
}

/// It loads a great many classes before it answers, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

impl Connect {
    /// Starts a worker beside a cluster; returns when its REST interface serves. The first call on a machine fetches it.
    ///
    /// # Errors
    /// Java or Maven is missing, Connect cannot be fetched, or it does not start: the text then has its log.
    pub fn start(bootstrap: &str, options: &ConnectOptions) -> Result<Self> {
        let lib = ensure_jars()?;
        let scratch = Scratch::new("connect")?;
        let connect = Self {
            server: Mutex::new(None),
            port: free_port()?,
            lib,
            heap_mb: options.heap_mb,
            standalone: options.standalone,
            scratch,
        };
        connect.write_properties(bootstrap, options)?;
        connect.start_again()?;
        Ok(connect)
    }

    /// Starts a stopped or killed worker again, on the same port and files; returns when it serves.
    ///
    /// # Errors
    /// It runs, or does not start: the text then has its log.
    pub fn start_again(&self) -> Result<()> {
        if self.server().is_some() {
            bail!("the Connect worker runs already");
        }
        self.spawn()?;
        let address = self.address();
        wait_for("Kafka Connect to start", START_TIMEOUT, || {
            if let Some(server) = self.server().as_ref()
                && let Some(status) = server.try_wait()?
            {
                bail!("Kafka Connect ended: {status}");
            }
            Ok((get_status(&address, "/health").ok() == Some(200)).then_some(()))
        })
        .with_context(|| self.log())
    }

    /// Asks its REST interface. `path` begins with a slash; `body` is JSON, or empty.
    ///
    /// # Errors
    /// It does not answer.
    pub fn rest(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        request(&self.address(), method, path, body)
    }

    /// Address of the REST interface, `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops the worker in order (SIGTERM): its tasks end, and what is acknowledged is stored as offsets.
    ///
    /// # Errors
    /// It does not run, or did not stop in a minute.
    pub fn stop(&self) -> Result<()> {
        let server = self.take()?;
        server.signal(Signal::TERM)?;
        server.wait(STOP_TIMEOUT).map(|_| ())
    }

    /// Kills the worker as the kernel would (SIGKILL).
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self) -> Result<()> {
        self.take()?.kill().map(|_| ())
    }

    /// Where a standalone worker keeps its offsets.
    #[must_use]
    pub fn offsets_file(&self) -> PathBuf {
        self.scratch.path().join("offsets")
    }

    /// Its properties file, as `--worker` takes it.
    #[must_use]
    pub fn properties_file(&self) -> PathBuf {
        self.scratch.path().join("worker.properties")
    }

    /// All that it has logged since it was made.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn server(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Daemon> {
        let server = self.server().take();
        server.context("the Connect worker is stopped already")
    }

    fn spawn(&self) -> Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .context("open the log of Kafka Connect")?;
        let main = if self.standalone {
            "org.apache.kafka.connect.cli.ConnectStandalone"
        } else {
            "org.apache.kafka.connect.cli.ConnectDistributed"
        };
        let mut command = Command::new("java");
        command
            .arg(format!("-Xmx{}m", self.heap_mb))
            // Quick to start rather than quick in the long run.
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
            .args(["-Dorg.slf4j.simpleLogger.log.io.debezium=info"])
            .args(["-Dorg.slf4j.simpleLogger.log.org.apache.kafka.connect.runtime.WorkerTask=info"])
            .args(["-Dorg.slf4j.simpleLogger.showDateTime=true"])
            .args(["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"])
            .arg("-Dposthaste.private=connect")
            .arg("-cp")
            .arg(maven::class_path(&self.lib))
            .arg(main)
            .arg(self.properties_file())
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("open the log of Kafka Connect")?)
            .stderr(log);
        let daemon = Daemon::spawn("Kafka Connect", &mut command)?;
        daemon.leave(self.scratch.path())?;
        *self.server() = Some(daemon);
        Ok(())
    }

    fn write_properties(&self, bootstrap: &str, options: &ConnectOptions) -> Result<()> {
        let group = &options.group;
        let json = "org.apache.kafka.connect.json.JsonConverter";
        let mut lines = vec![
            ("bootstrap.servers", bootstrap.to_owned()),
            ("listeners", format!("http://{}", self.address())),
            // What the image of Debezium says, and so what configurations without converters rely on.
            ("key.converter", json.to_owned()),
            ("value.converter", json.to_owned()),
            // All is on the class path and declares itself, so nothing has to be searched.
            ("plugin.discovery", "service_load".to_owned()),
            // A minute in production; tests wait for it.
            ("offset.flush.interval.ms", "1000".to_owned()),
        ];
        if options.standalone {
            let file = self.offsets_file().to_string_lossy().into_owned();
            lines.push(("offset.storage.file.filename", file));
        } else {
            lines.extend([
                ("group.id", group.clone()),
                ("config.storage.topic", format!("{group}-configs")),
                ("offset.storage.topic", format!("{group}-offsets")),
                ("status.storage.topic", format!("{group}-status")),
                ("config.storage.replication.factor", "1".to_owned()),
                ("offset.storage.replication.factor", "1".to_owned()),
                ("status.storage.replication.factor", "1".to_owned()),
                ("offset.storage.partitions", "1".to_owned()),
                ("status.storage.partitions", "1".to_owned()),
                // After a kill its own return is all there is to wait for.
                ("scheduled.rebalance.max.delay.ms", "0".to_owned()),
            ]);
        }
        let further = options.properties.iter();
        let text: String = lines
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .chain(further.map(|(name, value)| (name.as_str(), value.as_str())))
            .map(|(name, value)| format!("{name}={}\n", value.replace('\\', "\\\\")))
            .collect();
        fs::write(self.properties_file(), text).context("write the worker's properties")
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        // Offsets of a worker that is thrown away are worth no orderly end, which takes many seconds.
        self.kill().ok();
    }
}
