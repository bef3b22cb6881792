//! Fetches Apache Kafka once per machine, and prepares what makes each later start take a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::install::{Need, announce, cache_dir, check};
use crate::maven;
use crate::process::{Daemon, Signal, output, wait_for};
use crate::scratch::{Scratch, free_port};

/// The version under test; the image of `docker/compose.yaml` has the same.
pub const KAFKA_VERSION: &str = "4.4.0";

/// Apache Kafka's jars in the user's cache folder, with formatted log folders and a class archive beside them.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    folder: PathBuf,
}

const POM: &str = include_str!("kafka.pom.xml");
/// Any 16 bytes in base64url; all clusters share it, since a formatted folder is copied.
const CLUSTER_ID: &str = "cG9zdGhhc3RlLXRlc3RzIQ";
const NODES_MAX: usize = 3;

/// Does beforehand what the first start of a cluster on a machine would do: fetches Kafka and prepares it.
///
/// # Errors
/// Java 17 or Maven cannot be had, or Maven fails: the text then has what it said.
pub fn prepare() -> Result<()> {
    ensure_distribution().map(|_| ())
}

/// Finds Kafka in the cache, or fetches it from Maven Central. Processes wait for each other, so it is fetched once.
///
/// # Errors
/// Java 17 or Maven cannot be had, or Maven fails: the text then has what it said.
pub(crate) fn ensure_distribution() -> Result<Distribution> {
    let cache = cache_dir()?;
    let distribution = Distribution {
        folder: cache.join(format!("kafka-{KAFKA_VERSION}")),
    };
    if distribution.is_complete() {
        return Ok(distribution);
    }
    fs::create_dir_all(&cache).context("make the cache folder")?;
    let lock = fs::File::create(cache.join("kafka.lock")).context("lock the cache folder")?;
    lock.lock().context("lock the cache folder")?;
    if !distribution.lib().exists() {
        check(&[Need::Java, Need::Maven])?;
        announce("fetching Apache Kafka");
        distribution.fetch_jars()?;
    }
    if !distribution.is_complete() {
        check(&[Need::Java])?;
        distribution.format_templates()?;
        distribution.archive_classes()?;
    }
    Ok(distribution)
}

impl Distribution {
    /// Java with Kafka's classes, ready for the name of a main class.
    pub(crate) fn java(&self, heap_mb: u32) -> Command {
        let mut command = self.plain_java(heap_mb);
        // Another Java than the archive's only starts slower; its complaint about that is not worth a line.
        command
            .arg(format!(
                "-XX:SharedArchiveFile={}",
                self.archive().display()
            ))
            .args(["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]);
        command
    }

    /// Puts a formatted log folder of a new node in place.
    ///
    /// # Errors
    /// The target cannot be written.
    pub(crate) fn copy_formatted(&self, node_id: usize, target: &Path) -> Result<()> {
        copy_folder(&self.template(node_id), target).context("lay out Kafka's log folder")
    }

    fn is_complete(&self) -> bool {
        let templates = (0..NODES_MAX).all(|id| self.template(id).exists());
        templates && self.archive().exists()
    }

    fn lib(&self) -> PathBuf {
        self.folder.join("lib")
    }

    fn archive(&self) -> PathBuf {
        self.folder.join("classes.jsa")
    }

    fn template(&self, node_id: usize) -> PathBuf {
        self.folder.join(format!("formatted-{node_id}"))
    }

    /// Quick to start rather than quick in the long run: short-lived tests gain seconds from it.
    fn plain_java(&self, heap_mb: u32) -> Command {
        let mut command = Command::new("java");
        command
            .arg(format!("-Xmx{heap_mb}m"))
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
            .args(["-Dorg.slf4j.simpleLogger.log.kafka.server=info"])
            .args(["-Dorg.slf4j.simpleLogger.showDateTime=true"])
            .args(["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"])
            .arg("-cp")
            .arg(maven::class_path(&self.lib()));
        command
    }

    fn fetch_jars(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).context("make a folder for Kafka")?;
        maven::fetch(&POM.replace("@VERSION@", KAFKA_VERSION), &self.lib())
            .context("fetch Apache Kafka with Maven")
    }

    fn format_templates(&self) -> Result<()> {
        for id in 0..NODES_MAX {
            let scratch = Scratch::new("format")?;
            let partial = self.folder.join("formatted.partial");
            fs::remove_dir_all(&partial).ok();
            let properties = single_node(id, 9092, 9093, &partial);
            let file = scratch.path().join("server.properties");
            fs::write(&file, properties).context("write server.properties")?;
            let mut tool = self.plain_java(128);
            tool.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
            output(tool.arg(&file)).context("format a log folder of Kafka")?;
            fs::remove_dir_all(self.template(id)).ok();
            fs::rename(&partial, self.template(id)).context("put a log folder in place")?;
        }
        Ok(())
    }

    /// Runs a node once and lets Java keep the classes it loaded (application class data sharing): later starts take a
    /// third of the time.
    fn archive_classes(&self) -> Result<()> {
        let scratch = Scratch::new("classes")?;
        let data = scratch.path().join("data");
        self.copy_formatted(0, &data)?;
        let port = free_port()?;
        let file = scratch.path().join("server.properties");
        fs::write(&file, single_node(0, port, free_port()?, &data)).context("write properties")?;
        let partial = self.folder.join("classes.partial");
        fs::remove_file(&partial).ok();
        let mut command = self.plain_java(256);
        command
            .arg(format!("-XX:ArchiveClassesAtExit={}", partial.display()))
            .args(["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "kafka.Kafka"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Daemon::spawn("Kafka", &mut command)?;
        wait_for("Kafka to start for the first time", START_TIMEOUT, || {
            if let Some(status) = server.try_wait()? {
                bail!("Kafka ended at once: {status}");
            }
            let known = crate::kafka_wire::Connection::open(port)
                .and_then(|mut node| node.create_topic("warm-up", 1, 1, &[]));
            Ok(known.ok())
        })?;
        server.terminate(Signal::TERM, START_TIMEOUT)?;
        fs::rename(&partial, self.archive()).context("put the class archive in place")
    }
}

const START_TIMEOUT: Duration = Duration::from_secs(120);

fn single_node(id: usize, port: u16, controller_port: u16, data: &Path) -> String {
    let data = data.display();
    format!(
        "process.roles=broker,controller\n\
         node.id={id}\n\
         controller.quorum.voters={id}@127.0.0.1:{controller_port}\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
         log.dirs={data}\n"
    )
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
