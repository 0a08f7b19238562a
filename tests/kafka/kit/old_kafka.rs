//! Apache Kafka of older versions, as sources: brokers with a ZooKeeper of their own, or one that is its own
//! controller.
//!
//! The first use of a version gets its jars with Maven (`tests/kafka/old/prepare.sh`). No class archives: these
//! run in few tests, and are not many enough to be worth making some.

use crate::cluster::{Cluster, Partition};
use crate::kafka::CLUSTER_ID;
use crate::kit_files::{kit_dir, source_root};
use crate::ports::{free_port, local};
use crate::process::{Process, guarded, run};
use crate::raw::RawClient;
use crate::waiting::until_some;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tarn_wire::messages::CreateTopicsRequest;
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tempfile::TempDir;

const READY: Duration = Duration::from_secs(60);
const STOPPED: Duration = Duration::from_secs(60);
const STARTS_MAX: u32 = 5;
/// Every release here knows it.
const CREATE_TOPICS_VERSION: i16 = 2;
const TOPIC_ALREADY_EXISTS: i16 = 36;
const JARS: Duration = Duration::from_secs(300);

/// Lines of `server.properties` that every broker has: a footprint that lets several share a small machine,
/// and a cleaner that runs soon.
const PROPERTIES: &[(&str, &str)] = &[
    ("offsets.topic.num.partitions", "4"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.max.timeout.ms", "2147483647"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("log.cleaner.dedupe.buffer.size", "2097152"),
    ("log.cleaner.backoff.ms", "200"),
    ("num.network.threads", "2"),
    ("num.io.threads", "2"),
    ("background.threads", "2"),
    ("auto.create.topics.enable", "false"),
];

/// Who decides who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// A ZooKeeper, from the same jars.
    ZooKeeper,
    /// The one node itself.
    KRaft,
}

/// One release in one way of running it.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// As Maven names it.
    pub version: &'static str,
    /// Who decides who leads.
    pub controller: Controller,
}

/// No topic ids, no flexible fetches, nothing of KIP-951; nor does it know of a last fetched epoch.
pub const KAFKA_2_1_1: Release = Release { version: "2.1.1", controller: Controller::ZooKeeper };
/// Topic ids in its metadata, and fetches by name.
pub const KAFKA_2_8_2: Release = Release { version: "2.8.2", controller: Controller::ZooKeeper };
/// The last with ZooKeeper.
pub const KAFKA_3_9_2_ZOOKEEPER: Release = Release { version: "3.9.2", controller: Controller::ZooKeeper };
/// The same without.
pub const KAFKA_3_9_2_KRAFT: Release = Release { version: "3.9.2", controller: Controller::KRaft };

/// A cluster of one release; each node can be killed and started again.
#[derive(Debug)]
pub struct OldCluster {
    // Before the directory: processes print from files there.
    nodes: Vec<OldNode>,
    zookeeper: Option<Process>,
    release: Release,
    controller_port: u16,
    directory: PathBuf,
    properties: Vec<(String, String)>,
    scratch_directory: TempDir,
}

#[derive(Debug)]
struct OldNode {
    process: Option<Process>,
    id: i32,
    port: u16,
}

impl OldCluster {
    /// Starts `brokers` nodes on the directories in `directory`, which are formatted where there are none, with
    /// further lines of `server.properties`, and waits until they serve.
    ///
    /// # Panics
    /// Where they do not in a minute; with more than one node without ZooKeeper.
    pub fn start(
        release: Release,
        directory: &Path,
        brokers: i32,
        properties: &[(&str, &str)],
    ) -> OldCluster {
        assert!(
            release.controller == Controller::ZooKeeper || brokers == 1,
            "a quorum of one is all there is"
        );
        get_jars(release.version);
        let properties = properties.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let node = |id| OldNode { process: None, id, port: free_port() };
        let mut cluster = OldCluster {
            nodes: (1..=brokers).map(node).collect(),
            zookeeper: None,
            release,
            controller_port: free_port(),
            directory: directory.to_path_buf(),
            properties,
            scratch_directory: TempDir::with_prefix("tarn-old-kafka-")
                .expect("the temporary directory is writable"),
        };
        match release.controller {
            Controller::ZooKeeper => cluster.start_zookeeper(),
            Controller::KRaft if !cluster.data(1).exists() => cluster.format(),
            Controller::KRaft => {}
        }
        for id in 1..=brokers {
            cluster.spawn(id);
        }
        for id in 1..=brokers {
            cluster.await_ready(id);
        }
        cluster
    }

    /// The addresses of all nodes.
    pub fn bootstrap(&self) -> String {
        self.nodes.iter().map(|node| local(node.port)).collect::<Vec<_>>().join(",")
    }

    /// The address of one node.
    ///
    /// # Panics
    /// Where there is no such node.
    pub fn address(&self, id: i32) -> String {
        local(self.nodes.iter().find(|node| node.id == id).expect("there is such a node").port)
    }

    /// Creates a topic, and waits until each of its partitions has a leader.
    ///
    /// # Panics
    /// Where it has not been created in a minute.
    pub fn create_topic(&self, name: &str, partitions: i32, replicas: i16, configs: &[(&str, &str)]) {
        let config = |&(name, value): &(&str, &str)| CreatableTopicConfig {
            name: name.into(),
            value: Some(value.into()),
        };
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: replicas,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        // Of several nodes only one is the controller, which alone creates topics.
        let create = |node: &OldNode| {
            let mut client = RawClient::try_connect(&local(node.port)).map_err(|error| error.to_string())?;
            let answer = client.try_call(CREATE_TOPICS_VERSION, &request)?;
            match answer.topics.first().map(|topic| topic.error_code) {
                Some(0 | TOPIC_ALREADY_EXISTS) => Ok(()),
                other => Err(format!("error {other:?}")),
            }
        };
        until_some(&format!("topic {name}"), READY, || {
            let answers: Vec<_> = self.nodes.iter().map(create).collect();
            if answers.contains(&Ok(())) { Ok(()) } else { Err(format!("{answers:?}")) }
        });
        for node in &self.nodes {
            self.await_topic(node, name, |partition| partition.leader >= 0);
        }
    }

    /// Waits until `holds` is true of every partition of a topic, as one node tells it.
    ///
    /// # Panics
    /// Where it is not in a minute.
    pub fn await_partitions(&self, id: i32, topic: &str, holds: impl Fn(&Partition) -> bool) {
        let node = self.nodes.iter().find(|node| node.id == id).expect("there is such a node");
        self.await_topic(node, topic, holds);
    }

    fn await_topic(&self, node: &OldNode, name: &str, holds: impl Fn(&Partition) -> bool) {
        let address = local(node.port);
        until_some(&format!("the partitions of topic {name} at node {}", node.id), READY, || {
            let topics = Cluster::try_connect(&address)?.try_topics()?;
            let topic = topics.iter().find(|topic| topic.name == name).ok_or("it is not known")?;
            let missed = topic.partitions.iter().find(|partition| !holds(partition));
            missed.map_or(Ok(()), |partition| Err(format!("{partition:?}")))
        });
    }

    /// Starts a node after a stop or a kill, and waits until it serves and every partition has a leader.
    ///
    /// # Panics
    /// Where it does not in a minute.
    pub fn start_again(&mut self, id: i32) {
        self.spawn(id);
        self.await_ready(id);
    }

    /// A clean stop of one node.
    ///
    /// # Panics
    /// Where it has not stopped in a minute.
    pub fn stop(&mut self, id: i32) {
        if let Some(mut process) = self.node(id).process.take() {
            process.terminate(STOPPED);
        }
    }

    /// SIGKILL to one node.
    pub fn kill(&mut self, id: i32) {
        if let Some(mut process) = self.node(id).process.take() {
            process.kill();
        }
    }

    /// A clean stop of everything. Its directory can be copied then.
    ///
    /// # Panics
    /// Where it has not stopped in a minute.
    pub fn shut_down(mut self) {
        for id in 1..=self.nodes.len() {
            self.stop(id as i32);
        }
        if let Some(mut process) = self.zookeeper.take() {
            process.terminate(STOPPED);
        }
    }

    fn start_zookeeper(&mut self) {
        let data = self.directory.join("zookeeper");
        fs::create_dir_all(&data).expect("the cluster's directory is writable");
        let config = self.scratch("zookeeper.cfg");
        let lines = format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             admin.enableServer=false\ntickTime=500\n",
            data.display(),
            self.controller_port
        );
        fs::write(&config, lines).expect("the temporary directory is writable");
        let mut command = self.java("128m");
        command.arg("-Dzookeeper.admin.enableServer=false");
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&config);
        let mut process = Process::spawn("ZooKeeper", command, &self.scratch("zookeeper.log"));
        let address = local(self.controller_port);
        until_some("ZooKeeper to listen", READY, || {
            assert!(process.ended().is_none(), "ZooKeeper ended at its start");
            TcpStream::connect(&address).map(drop).map_err(|error| error.to_string())
        });
        self.zookeeper = Some(process);
    }

    fn format(&self) {
        self.write_properties(1);
        let mut command = self.java("128m");
        command.arg("kafka.tools.StorageTool").args(["format", "-t", CLUSTER_ID, "-c"]);
        command.arg(self.scratch("1.properties"));
        run("StorageTool", command, None, READY).ok();
    }

    fn write_properties(&self, id: i32) {
        let mut lines: Vec<(String, String)> =
            PROPERTIES.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        let mut set = |key: &str, value: String| lines.push((key.into(), value));
        let listener = format!("PLAINTEXT://{}", self.address(id));
        set("log.dirs", self.data(id).display().to_string());
        set("advertised.listeners", listener.clone());
        match self.release.controller {
            Controller::ZooKeeper => {
                set("listeners", listener);
                set("broker.id", id.to_string());
                set("zookeeper.connect", local(self.controller_port));
                set("zookeeper.session.timeout.ms", "2000".into());
            }
            Controller::KRaft => {
                let controller = local(self.controller_port);
                set("listeners", format!("{listener},CONTROLLER://{controller}"));
                set("process.roles", "broker,controller".into());
                set("node.id", id.to_string());
                set("controller.quorum.voters", format!("{id}@{controller}"));
                set("controller.listener.names", "CONTROLLER".into());
                set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".into());
                set("broker.session.timeout.ms", "6000".into());
                set("broker.heartbeat.interval.ms", "300".into());
            }
        }
        lines.extend(self.properties.iter().cloned());
        let text: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        fs::write(self.scratch(&format!("{id}.properties")), text)
            .expect("the temporary directory is writable");
    }

    fn spawn(&mut self, id: i32) {
        self.write_properties(id);
        let mut command = self.java("256m");
        command.arg("kafka.Kafka").arg(self.scratch(&format!("{id}.properties")));
        let name = format!("Kafka {} node {id}", self.release.version);
        let log = self.scratch(&format!("{id}.log"));
        let node = self.node(id);
        assert!(node.process.is_none(), "{name} runs already");
        node.process = Some(Process::spawn(&name, command, &log));
    }

    fn await_ready(&mut self, id: i32) {
        let address = self.address(id);
        let name = format!("Kafka {} node {id} to serve", self.release.version);
        let mut starts = 1;
        until_some(&name, READY, || {
            let process = self.node(id).process.as_mut().expect("it was just started");
            if process.ended().is_some() {
                // In ZooKeeper a killed broker lives until its session ends, and one that comes back before
                // may not register.
                assert!(starts < STARTS_MAX, "node {id} ended at each of {starts} starts");
                starts += 1;
                self.node(id).process = None;
                self.spawn(id);
            }
            let mut cluster = Cluster::try_connect(&address)?;
            let topics = cluster.try_topics()?;
            let leaderless = topics.iter().flat_map(|topic| &topic.partitions).any(|one| one.leader < 0);
            match cluster.knows_node(id) && !leaderless {
                true => Ok(()),
                false => Err("it is not known, or partitions have no leader".into()),
            }
        });
    }

    fn java(&self, heap: &str) -> Command {
        let mut command = guarded("java");
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        command.arg(format!("-Xmx{heap}"));
        let logging = source_root().join("tests/kafka/old/log4j.properties");
        command.arg(format!("-Dlog4j.configuration=file:{}", logging.display()));
        command.arg("-cp").arg(format!("{}/lib/*", jars(self.release.version).display()));
        command
    }

    fn data(&self, id: i32) -> PathBuf {
        self.directory.join(format!("broker-{id}"))
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.scratch_directory.path().join(name)
    }

    fn node(&mut self, id: i32) -> &mut OldNode {
        self.nodes.iter_mut().find(|node| node.id == id).expect("there is such a node")
    }
}

/// The directory with the jars of a version.
fn jars(version: &str) -> PathBuf {
    kit_dir().join(format!("old-{version}"))
}

/// Gets the jars of a version where they are not there.
fn get_jars(version: &str) {
    let mut command = guarded("bash");
    command.arg(source_root().join("tests/kafka/old/prepare.sh")).arg(version);
    run("tests/kafka/old/prepare.sh", command, None, JARS).ok();
}
