//! Apache Kafka 4.4.0 nodes: each a combined broker and controller.
//!
//! Tuned for short lives: a small heap, a class archive, and session timeouts of 6 s: a node that
//! was killed may come back only after its old registration has timed out.

use crate::cluster::Cluster;
use crate::ports::{free_port, local};
use crate::process::{Process, run};
use crate::tool_server::run_tool;
use crate::tools::java;
use crate::waiting::until_some;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const READY: Duration = Duration::from_secs(60);
const STOPPED: Duration = Duration::from_secs(60);

/// The cluster id of every source that these tests start.
pub const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";

/// Lines of `server.properties` that every node has: single replicas of internal topics, a footprint
/// that lets several nodes share a small machine, and cleaners that run soon.
const PROPERTIES: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("controller.listener.names", "CONTROLLER"),
    ("inter.broker.listener.name", "PLAINTEXT"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAY:PLAINTEXT"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("share.coordinator.state.topic.num.partitions", "4"),
    ("transaction.max.timeout.ms", "2147483647"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("log.cleaner.dedupe.buffer.size", "2097152"),
    ("log.cleaner.backoff.ms", "200"),
    ("num.network.threads", "2"),
    ("num.io.threads", "2"),
    ("background.threads", "2"),
    ("broker.session.timeout.ms", "6000"),
    ("broker.heartbeat.interval.ms", "300"),
    // Patience where several nodes and tests share a small machine.
    ("controller.quorum.fetch.timeout.ms", "6000"),
    ("controller.quorum.request.timeout.ms", "6000"),
];

/// How a node differs from the others.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// A directory that a node formatted before; it is used in place. `None` formats a new one.
    pub data: Option<PathBuf>,
    /// The port of a relay in front of this node: it gets a listener that advertises it.
    pub relay_port: Option<u16>,
    /// Features to format with, each as `NAME=LEVEL`; Kafka's defaults where there is none.
    pub features: Vec<String>,
    /// Further lines of `server.properties`; they win over the kit's.
    pub properties: Vec<(String, String)>,
    /// Its heap, as Java's `-Xmx` takes it, where the kit's is too small.
    pub heap: Option<&'static str>,
}

/// One node, running or not.
#[derive(Debug)]
pub struct KafkaNode {
    // Before the directory: it is dropped first, and prints from a file there.
    process: Option<Process>,
    id: i32,
    port: u16,
    relayed_port: Option<u16>,
    controller_port: u16,
    heap: &'static str,
    directory: TempDir,
}

/// The static voters of a node's cluster. (Static, because a set of voters in the metadata log would name
/// the ports of the run that made it.)
struct Quorum {
    voters: String,
    controller_port: u16,
    replicas: usize,
}

impl KafkaNode {
    /// A cluster of one, ready for clients.
    ///
    /// # Panics
    /// Where it is not ready in a minute.
    pub fn start(options: &NodeOptions) -> KafkaNode {
        let controller_port = free_port();
        let alone = Quorum { voters: format!("1@{}", local(controller_port)), controller_port, replicas: 1 };
        let mut node = KafkaNode::prepared(1, options, &alone);
        node.start_again();
        node
    }

    /// The address of its listener for clients.
    pub fn bootstrap(&self) -> String {
        local(self.port)
    }

    /// The address of the listener whose advertised address is the relay's.
    ///
    /// # Panics
    /// Where the node has no relay.
    pub fn relayed(&self) -> String {
        local(self.relayed_port.expect("the node was started with a relay"))
    }

    /// The address of its controller listener.
    pub fn controller(&self) -> String {
        local(self.controller_port)
    }

    /// Its `node.id`.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Where its logs are, if the kit made the directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Starts it after a stop or a kill, and waits until it serves and leads its partitions again.
    ///
    /// # Panics
    /// Where it is not ready in a minute.
    pub fn start_again(&mut self) {
        self.spawn();
        self.await_ready();
    }

    /// A clean stop.
    ///
    /// # Panics
    /// Where it has not stopped in a minute.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate(STOPPED);
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn pause(&mut self) {
        self.running().pause();
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.running().resume();
    }

    /// The broker epoch of its newest registration, from its log.
    ///
    /// # Panics
    /// Where it has not registered in a minute.
    pub fn broker_epoch(&self) -> i64 {
        let log = self.directory.path().join("kafka.log");
        until_some("a registered broker", READY, || {
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let epoch = text.rsplit("with broker epoch ").next().filter(|rest| rest.len() < text.len());
            let digits: String = epoch.unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().map_err(|_| "no registration in its log".to_string())
        })
    }

    fn prepared(id: i32, options: &NodeOptions, quorum: &Quorum) -> KafkaNode {
        let directory = TempDir::with_prefix("tarn-kafka-").expect("the temporary directory is writable");
        let node = KafkaNode {
            id,
            port: free_port(),
            relayed_port: options.relay_port.map(|_| free_port()),
            controller_port: quorum.controller_port,
            heap: options.heap.unwrap_or("256m"),
            directory,
            process: None,
        };
        let properties = node.properties(options, quorum);
        fs::write(node.config(), properties).expect("the node's directory is writable");
        if options.data.is_none() {
            node.format(&options.features);
        }
        node
    }

    fn properties(&self, options: &NodeOptions, quorum: &Quorum) -> String {
        let data = options.data.clone().unwrap_or_else(|| self.data());
        let mut listeners = format!("PLAINTEXT://{}", self.bootstrap());
        let mut advertised = listeners.clone();
        if let (Some(port), Some(relay)) = (self.relayed_port, options.relay_port) {
            write!(listeners, ",RELAY://{}", local(port)).expect("a string takes it");
            write!(advertised, ",RELAY://{}", local(relay)).expect("a string takes it");
        }
        let controller = format!(",CONTROLLER://{}", self.controller());
        let mut lines: Vec<(String, String)> =
            PROPERTIES.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let mut set = |key: &str, value: String| lines.push((key.into(), value));
        set("node.id", self.id.to_string());
        set("listeners", listeners + &controller);
        set("advertised.listeners", advertised + &controller);
        set("log.dirs", data.display().to_string());
        set("controller.quorum.voters", quorum.voters.clone());
        if quorum.replicas > 1 {
            set("broker.rack", format!("r{}", self.id));
        }
        for prefix in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
            set(&format!("{prefix}.replication.factor"), quorum.replicas.to_string());
        }
        for prefix in ["transaction.state.log", "share.coordinator.state.topic"] {
            set(&format!("{prefix}.min.isr"), (quorum.replicas / 2 + 1).to_string());
        }
        lines.extend(options.properties.iter().cloned());
        lines.iter().fold(String::new(), |text, (key, value)| text + key + "=" + value + "\n")
    }

    fn format(&self, features: &[String]) {
        let config = self.config().display().to_string();
        let mut arguments = vec!["format", "-t", CLUSTER_ID, "-c", &config];
        arguments.extend(features.iter().flat_map(|feature| ["--feature", feature]));
        run_tool("kafka.tools.StorageTool", &arguments, None, READY).ok();
    }

    fn spawn(&mut self) {
        assert!(self.process.is_none(), "node {} runs already", self.id);
        let mut command = java("server", self.heap);
        command.arg("kafka.Kafka").arg(self.config());
        let log = self.directory.path().join("kafka.log");
        self.process = Some(Process::spawn(&format!("Kafka node {}", self.id), command, &log));
    }

    fn await_ready(&mut self) {
        let address = self.bootstrap();
        let id = self.id;
        until_some(&format!("Kafka node {id} to serve"), READY, || {
            assert!(self.running().ended().is_none(), "Kafka node {id} ended at its start");
            let mut cluster = Cluster::try_connect(&address)?;
            let topics = cluster.try_topics()?;
            let leaderless =
                topics.iter().flat_map(|topic| &topic.partitions).filter(|partition| partition.leader < 0);
            match (cluster.knows_node(id), leaderless.count()) {
                (false, _) => Err("it is fenced".into()),
                (true, 0) => Ok(()),
                (true, count) => Err(format!("{count} partitions have no leader")),
            }
        });
    }

    fn running(&mut self) -> &mut Process {
        self.process.as_mut().expect("the node runs")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }
}

/// A cluster of three combined nodes with static voters and a rack each.
#[derive(Debug)]
pub struct ThreeNodes {
    /// The nodes, with the ids 1, 2 and 3.
    pub nodes: Vec<KafkaNode>,
}

impl ThreeNodes {
    /// Formats three nodes, and starts them at once.
    ///
    /// # Panics
    /// Where they are not ready in a minute.
    pub fn start() -> ThreeNodes {
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let voters: Vec<String> =
            ports.iter().enumerate().map(|(index, port)| format!("{}@{}", index + 1, local(*port))).collect();
        let list = voters.join(",");
        let prepare = |id: usize| {
            let quorum = Quorum { voters: list.clone(), controller_port: ports[id - 1], replicas: 3 };
            KafkaNode::prepared(id as i32, &NodeOptions::default(), &quorum)
        };
        let mut nodes: Vec<KafkaNode> = (1..=3).map(prepare).collect();
        nodes.iter_mut().for_each(KafkaNode::spawn);
        nodes.iter_mut().for_each(KafkaNode::await_ready);
        ThreeNodes { nodes }
    }

    /// The addresses of all three.
    pub fn bootstrap(&self) -> String {
        self.nodes.iter().map(KafkaNode::bootstrap).collect::<Vec<_>>().join(",")
    }
}

impl Drop for ThreeNodes {
    fn drop(&mut self) {
        // The last of a quorum would wait minutes for the others in a clean stop.
        self.nodes.iter_mut().for_each(KafkaNode::kill);
    }
}

/// Copies a directory that no node uses.
///
/// # Panics
/// Where that fails.
pub fn copy_directory(from: &Path, to: &Path) {
    let mut command = std::process::Command::new("cp");
    command.args(["-a", "--reflink=auto"]).arg(from).arg(to);
    run("cp", command, None, READY).ok();
}
