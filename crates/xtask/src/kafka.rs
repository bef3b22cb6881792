//! A private Apache Kafka cluster of one or three nodes, under full control of its owner.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::kafka_install::{Distribution, ensure_distribution};
pub use crate::kafka_install::{KAFKA_VERSION, prepare};
use crate::kafka_wire::Connection;
pub use crate::kafka_wire::Partition;
use crate::process::{Daemon, Signal, output, wait_for};
use crate::scratch::{Scratch, free_port};

/// A running Apache Kafka cluster (KRaft; each node is broker and controller) with its data in a scratch folder.
/// Dropping it stops the nodes and removes the data.
///
/// Nodes are numbered from 0, and so are their broker ids. Each has a plaintext listener on 127.0.0.1 where everybody may do
/// everything, and one more for each of [`KafkaOptions::listeners`].
#[derive(Debug)]
pub struct Kafka {
    // Declared before the folder, so that the servers are gone before their files are.
    nodes: Vec<Node>,
    distribution: Distribution,
    heap_mb: u32,
    java: Vec<String>,
    scratch: Scratch,
}

/// How a [`Kafka`] differs from the usual one.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// 1, or 3 for tests of replication. Topics are replicated on all nodes.
    pub nodes: u8,
    /// Lines for `server.properties`, after ours and so stronger.
    pub properties: Vec<(String, String)>,
    /// Further listeners by security protocol (`SSL`, `SASL_PLAINTEXT`, `SASL_SSL`); what they need (keys, mechanisms)
    /// stands in `properties`. Their addresses: [`Kafka::bootstrap_of`].
    pub listeners: Vec<String>,
    /// Gives each node one more plaintext listener that tells clients to come to another port than its own: that of a
    /// proxy which the caller runs. See [`Kafka::proxied`].
    pub proxied: bool,
    /// Java heap of each node.
    pub heap_mb: u32,
    /// Further options of Java, after ours and so stronger.
    pub java: Vec<String>,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            nodes: 1,
            properties: Vec::new(),
            listeners: Vec::new(),
            proxied: false,
            heap_mb: 512,
            java: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Node {
    id: usize,
    port: u16,
    controller_port: u16,
    listeners: Vec<(String, u16)>,
    proxied: Option<Proxied>,
    folder: PathBuf,
    server: Mutex<Option<Daemon>>,
}

/// The two ends of a proxy before a node: clients come to the one port, the node listens on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// Where the proxy has to listen, as clients are told.
    pub port: u16,
    /// Where the proxy has to connect to.
    pub node_port: u16,
}

const START_TIMEOUT: Duration = Duration::from_secs(90);
/// A controlled shutdown hands leadership over first, which a node without peers gives up on after a while.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const TOPIC_TIMEOUT: Duration = Duration::from_secs(30);

impl Kafka {
    /// Starts a new empty cluster; returns when all its nodes serve. The first call on a machine fetches Kafka.
    ///
    /// # Errors
    /// Java or Maven is missing, Kafka cannot be fetched, or a node does not start: the text then has its log.
    pub fn start(options: KafkaOptions) -> Result<Self> {
        if options.nodes != 1 && options.nodes != 3 {
            bail!("a cluster has 1 or 3 nodes, not {}", options.nodes);
        }
        let distribution = ensure_distribution()?;
        let scratch = Scratch::new("kafka")?;
        let mut nodes = Vec::new();
        for id in 0..usize::from(options.nodes) {
            nodes.push(Node::new(id, &options, scratch.path())?);
        }
        let kafka = Self {
            nodes,
            distribution,
            heap_mb: options.heap_mb,
            java: options.java,
            scratch,
        };
        for node in &kafka.nodes {
            kafka.prepare(node, &options.properties)?;
            kafka.spawn(node)?;
        }
        for node in &kafka.nodes {
            kafka.wait_until_ready(node, kafka.nodes.len())?;
        }
        Ok(kafka)
    }

    /// Addresses of the plaintext listeners, for `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.addresses(|node| Some(node.port))
    }

    /// Addresses of the listeners with this security protocol; empty when there are none.
    #[must_use]
    pub fn bootstrap_of(&self, protocol: &str) -> String {
        self.addresses(|node| {
            let listener = node.listeners.iter().find(|(name, _)| name == protocol);
            listener.map(|(_, port)| *port)
        })
    }

    /// The ends of the proxies that the caller has to run, one a node, with [`KafkaOptions::proxied`].
    #[must_use]
    pub fn proxied(&self) -> Vec<Proxied> {
        self.nodes.iter().filter_map(|node| node.proxied).collect()
    }

    /// Stops a node in order (SIGTERM): it hands over its leaderships first.
    ///
    /// # Errors
    /// It does not run, or did not stop in a minute.
    pub fn stop_node(&self, id: usize) -> Result<()> {
        let server = self.take(id)?;
        server.signal(Signal::TERM)?;
        server.wait(STOP_TIMEOUT).map(|_| ())
    }

    /// Kills a node as the kernel would (SIGKILL).
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_node(&self, id: usize) -> Result<()> {
        self.take(id)?.kill().map(|_| ())
    }

    /// Starts a stopped or killed node again, on the same ports and data; returns when it serves.
    ///
    /// # Errors
    /// It runs, or does not start: the text then has its log.
    pub fn start_node(&self, id: usize) -> Result<()> {
        let node = self.node(id)?;
        if node.server().is_some() {
            bail!("Kafka node {id} runs already");
        }
        self.spawn(node)?;
        let running = self.nodes.iter().filter(|node| node.server().is_some());
        self.wait_until_ready(node, running.count())
    }

    /// Freezes a node (SIGSTOP): its connections stay open and silent.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause_node(&self, id: usize) -> Result<()> {
        self.signal(id, Signal::STOP)
    }

    /// Lets a frozen node go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn resume_node(&self, id: usize) -> Result<()> {
        self.signal(id, Signal::CONT)
    }

    /// Makes a topic, replicated on all nodes; returns when every running node knows a leader for each partition.
    ///
    /// # Errors
    /// Kafka refuses (the topic exists, a configuration is wrong), or no node can be reached.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let replicas = i16::try_from(self.nodes.len()).context("too many nodes")?;
        self.connect()?
            .create_topic(name, partitions, replicas, configs)?;
        wait_for("the leaders of a new topic", TOPIC_TIMEOUT, || {
            for node in self.nodes.iter().filter(|node| node.server().is_some()) {
                let known = Connection::open(node.port)?.partitions(name)?;
                let led = known.iter().filter(|partition| partition.leader >= 0);
                if i32::try_from(led.count())? != partitions {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Sets a configuration of a topic, or removes it (`None`).
    ///
    /// # Errors
    /// Kafka refuses, or no node can be reached.
    pub fn alter_topic_config(&self, topic: &str, name: &str, value: Option<&str>) -> Result<()> {
        self.connect()?.alter_topic_config(topic, name, value)
    }

    /// Raises the number of a topic's partitions.
    ///
    /// # Errors
    /// Kafka refuses, or no node can be reached.
    pub fn add_partitions(&self, topic: &str, partitions: i32) -> Result<()> {
        self.connect()?.add_partitions(topic, partitions)
    }

    /// Deletes a topic. It vanishes from each node's view a little later.
    ///
    /// # Errors
    /// Kafka refuses, or no node can be reached.
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        self.connect()?.delete_topic(topic)
    }

    /// A topic's partitions as the first reachable node knows them; empty when it knows no such topic.
    ///
    /// # Errors
    /// No node can be reached.
    pub fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.connect()?.partitions(topic)
    }

    /// Runs one of Kafka's own tools, such as `org.apache.kafka.tools.ConfigCommand` or `AclCommand` in
    /// `org.apache.kafka.tools`, and gives its output. Takes about a second.
    ///
    /// # Errors
    /// The tool fails.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.distribution.java(64);
        output(command.arg(class).args(arguments))
    }

    /// All that a node has logged since the cluster was made.
    #[must_use]
    pub fn log(&self, id: usize) -> String {
        let file = self.node(id).map(Node::log_file).unwrap_or_default();
        fs::read(file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The cluster's scratch folder, a place for keys and other files that the properties name.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Process id of a node.
    ///
    /// # Errors
    /// It does not run.
    pub fn node_pid(&self, id: usize) -> Result<u32> {
        let server = self.node(id)?.server();
        let server = server.as_ref();
        server.map(Daemon::pid).context("the Kafka node is stopped")
    }

    fn node(&self, id: usize) -> Result<&Node> {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.with_context(|| format!("there is no Kafka node {id}"))
    }

    fn take(&self, id: usize) -> Result<Daemon> {
        let server = self.node(id)?.server().take();
        server.with_context(|| format!("Kafka node {id} is stopped already"))
    }

    fn signal(&self, id: usize, signal: Signal) -> Result<()> {
        let server = self.node(id)?.server();
        let server = server.as_ref().context("the Kafka node is stopped")?;
        server.signal(signal)
    }

    fn addresses(&self, port: impl Fn(&Node) -> Option<u16>) -> String {
        let ports = self.nodes.iter().filter_map(port);
        let addresses: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        addresses.join(",")
    }

    fn connect(&self) -> Result<Connection> {
        let running = self.nodes.iter().filter(|node| node.server().is_some());
        running
            .map(|node| Connection::open(node.port))
            .reduce(Result::or)
            .context("all Kafka nodes are stopped")?
    }

    /// Lays out what the storage tool would, and writes the configuration.
    fn prepare(&self, node: &Node, further: &[(String, String)]) -> Result<()> {
        self.distribution
            .copy_formatted(node.id, &node.data_dir())?;
        let voters: Vec<_> = self
            .nodes
            .iter()
            .map(|node| format!("{}@127.0.0.1:{}", node.id, node.controller_port))
            .collect();
        let mut properties = node.properties(&voters.join(","));
        properties.extend_from_slice(further);
        write_properties(&node.properties_file(), &properties)
    }

    fn spawn(&self, node: &Node) -> Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(node.log_file())
            .context("open the log of Kafka")?;
        let mut command = self.distribution.java(self.heap_mb);
        command
            .args(&self.java)
            .args(["-Dposthaste.private=kafka", "kafka.Kafka"])
            .arg(node.properties_file())
            .current_dir(&node.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("open the log of Kafka")?)
            .stderr(log);
        let daemon = Daemon::spawn(&format!("Kafka node {}", node.id), &mut command)?;
        daemon.leave(self.scratch.path())?;
        *node.server() = Some(daemon);
        Ok(())
    }

    /// Ready means: it answers, and knows as many brokers as are running.
    fn wait_until_ready(&self, node: &Node, brokers_min: usize) -> Result<()> {
        wait_for("Kafka to start", START_TIMEOUT, || {
            let ended = node.server().as_ref().map(Daemon::try_wait).transpose()?;
            if let Some(Some(status)) = ended {
                bail!("Kafka node {} ended at once: {status}", node.id);
            }
            let brokers = Connection::open(node.port).and_then(|mut node| node.broker_count());
            Ok(brokers
                .is_ok_and(|count| count >= brokers_min)
                .then_some(()))
        })
        .with_context(|| format!("log of Kafka node {}:\n{}", node.id, self.log(node.id)))
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Nobody wants the data any more, and an orderly stop of one node after the other waits for peers.
        for node in &self.nodes {
            if let Some(server) = node.server().take() {
                server.kill().ok();
            }
        }
    }
}

impl Node {
    fn new(id: usize, options: &KafkaOptions, scratch: &Path) -> Result<Self> {
        let folder = scratch.join(format!("node-{id}"));
        fs::create_dir(&folder).context("make a folder for a Kafka node")?;
        let mut further = Vec::new();
        for protocol in &options.listeners {
            further.push((protocol.clone(), free_port()?));
        }
        let proxied = if options.proxied {
            Some(Proxied {
                port: free_port()?,
                node_port: free_port()?,
            })
        } else {
            None
        };
        Ok(Self {
            id,
            port: free_port()?,
            controller_port: free_port()?,
            listeners: further,
            proxied,
            folder,
            server: Mutex::new(None),
        })
    }

    fn server(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn properties_file(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("kafka.log")
    }

    fn properties(&self, voters: &str) -> Vec<(String, String)> {
        let mut advertised = format!("PLAINTEXT://127.0.0.1:{}", self.port);
        let mut protocols = String::from("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT");
        for (protocol, port) in &self.listeners {
            advertised.push_str(&format!(",{protocol}://127.0.0.1:{port}"));
            protocols.push_str(&format!(",{protocol}:{protocol}"));
        }
        let mut listeners = advertised.clone();
        if let Some(Proxied { port, node_port }) = self.proxied {
            advertised.push_str(&format!(",PROXIED://127.0.0.1:{port}"));
            listeners.push_str(&format!(",PROXIED://127.0.0.1:{node_port}"));
            protocols.push_str(",PROXIED:PLAINTEXT");
        }
        let replicas = voters.split(',').count().to_string();
        let in_sync_min = if replicas == "1" { "1" } else { "2" };
        listeners.push_str(&format!(",CONTROLLER://127.0.0.1:{}", self.controller_port));
        let own: Vec<(&str, String)> = vec![
            ("process.roles", "broker,controller".into()),
            ("node.id", self.id.to_string()),
            ("controller.quorum.voters", voters.into()),
            ("controller.listener.names", "CONTROLLER".into()),
            ("listeners", listeners),
            ("advertised.listeners", advertised),
            ("listener.security.protocol.map", protocols),
            ("inter.broker.listener.name", "PLAINTEXT".into()),
            ("super.users", "User:ANONYMOUS".into()),
            ("log.dirs", self.data_dir().to_string_lossy().into_owned()),
            ("auto.create.topics.enable", "true".into()),
            ("num.partitions", "3".into()),
            ("default.replication.factor", replicas.clone()),
            ("min.insync.replicas", in_sync_min.into()),
            ("offsets.topic.num.partitions", "1".into()),
            ("offsets.topic.replication.factor", replicas.clone()),
            ("transaction.state.log.num.partitions", "1".into()),
            ("transaction.state.log.replication.factor", replicas),
            ("transaction.state.log.min.isr", in_sync_min.into()),
            // Consumers of tests come alone: nobody is waited for, nothing is cleaned up behind them.
            ("group.initial.rebalance.delay.ms", "0".into()),
            ("log.cleaner.enable", "false".into()),
        ];
        own.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Writes a Java properties file; a backslash is the only character of our values that needs an escape.
fn write_properties(file: &Path, properties: &[(String, String)]) -> Result<()> {
    let mut text = String::new();
    for (name, value) in properties {
        text.push_str(&format!("{name}={}\n", value.replace('\\', "\\\\")));
    }
    fs::write(file, text).context("write server.properties")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_can_be_stopped_killed_frozen_and_started_again() {
        let kafka = Kafka::start(KafkaOptions::default()).unwrap();
        kafka
            .create_topic("orders", 4, &[("retention.ms", "60000")])
            .unwrap();
        kafka.stop_node(0).unwrap();
        kafka.start_node(0).unwrap();
        kafka.kill_node(0).unwrap();
        kafka.start_node(0).unwrap();
        kafka.pause_node(0).unwrap();
        kafka.resume_node(0).unwrap();
        assert_eq!(kafka.partitions("orders").unwrap().len(), 4);
        assert!(kafka.log(0).contains("started"));
    }

    #[test]
    fn topics_are_changed_and_refusals_are_told() {
        let kafka = Kafka::start(KafkaOptions::default()).unwrap();
        kafka.create_topic("orders", 1, &[]).unwrap();
        let refusal = kafka.create_topic("orders", 1, &[]).unwrap_err();
        assert!(refusal.to_string().contains("already exists"), "{refusal}");
        kafka
            .alter_topic_config("orders", "max.message.bytes", Some("2000"))
            .unwrap();
        assert!(
            kafka
                .alter_topic_config("orders", "nonsense", Some("1"))
                .is_err()
        );
        kafka.add_partitions("orders", 3).unwrap();
        kafka.delete_topic("orders").unwrap();
        let topics = kafka.tool(
            "org.apache.kafka.tools.TopicCommand",
            &["--bootstrap-server", &kafka.bootstrap(), "--list"],
        );
        assert_eq!(topics.unwrap().trim(), "");
    }

    #[test]
    fn three_nodes_replicate_and_survive_the_loss_of_one() {
        let options = KafkaOptions {
            nodes: 3,
            heap_mb: 256,
            ..KafkaOptions::default()
        };
        let kafka = Kafka::start(options).unwrap();
        kafka.create_topic("orders", 1, &[]).unwrap();
        let leader = kafka.partitions("orders").unwrap()[0].leader;
        kafka.kill_node(usize::try_from(leader).unwrap()).unwrap();
        wait_for("another leader", TOPIC_TIMEOUT, || {
            let now = kafka.partitions("orders")?[0].leader;
            Ok((now >= 0 && now != leader).then_some(()))
        })
        .unwrap();
    }
}
