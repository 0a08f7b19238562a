//! Apache Kafka 4.4: one node, its own controller, with the heap and the collector of its start scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{await_ready, free_port, properties};
use crate::failure::{Doing, Failure, Result};
use crate::program::{Program, guarded, run};

const CLUSTER_ID: &str = "VGFyblBlcmZTb3VyY2UwMQ";
const FORMATTED_IN: Duration = Duration::from_secs(180);
const TOOL_ENDS_IN: Duration = Duration::from_secs(180);
/// The options of kafka-run-class.sh and kafka-server-start.sh.
const STOCK_OPTIONS: [&str; 6] = [
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// Where jars are.
#[derive(Clone, Debug)]
pub(crate) struct Kit {
    directory: PathBuf,
    logging: PathBuf,
}

impl Kit {
    /// The kit that perf/prepare.sh fills; `root` is the source tree.
    pub(crate) fn new(directory: &Path, root: &Path) -> Kit {
        Kit { directory: directory.to_owned(), logging: root.join("tests/kafka/log4j2-server.properties") }
    }

    /// A Java virtual machine as Kafka's own scripts start a server, with Kafka 4.4 on its class path.
    fn kafka_java(&self) -> Result<Command> {
        self.java("k440/lib", &STOCK_OPTIONS)
    }

    /// The same for MirrorMaker 2.
    pub(crate) fn mirrormaker_java(&self) -> Result<Command> {
        self.java("mirrormaker/lib", &STOCK_OPTIONS)
    }

    /// A short-lived tool of Kafka 4.4.
    fn tool_java(&self) -> Result<Command> {
        self.java("k440/lib", &["-Xmx512m"])
    }

    fn java(&self, jars: &str, options: &[&str]) -> Result<Command> {
        let jars = self.directory.join(jars);
        if !jars.is_dir() {
            return Err(Failure::Wrong(format!("{} is missing: run perf/prepare.sh", jars.display())));
        }
        let mut command = guarded("java");
        command.args(options);
        command.arg(format!("-Dlog4j2.configurationFile={}", self.logging.display()));
        command.arg("-cp").arg(jars.join("*"));
        Ok(command)
    }
}

/// A node that runs.
#[derive(Debug)]
pub(crate) struct Kafka {
    program: Program,
    bootstrap: String,
    kit: Kit,
    directory: PathBuf,
}

impl Kafka {
    /// Starts a node whose files are in `directory`; formats it first where it is new. A directory may be
    /// started again later, on other ports.
    pub(crate) fn start(kit: &Kit, name: &str, directory: &Path) -> Result<Kafka> {
        Kafka::start_behind(None, kit, name, directory)
    }

    /// The same with this as the address that it tells others.
    pub(crate) fn start_behind(
        relay: Option<&str>,
        kit: &Kit,
        name: &str,
        directory: &Path,
    ) -> Result<Kafka> {
        fs::create_dir_all(directory).doing(|| format!("making {}", directory.display()))?;
        let (config, data) = (directory.join("server.properties"), directory.join("data"));
        let bootstrap = format!("127.0.0.1:{}", free_port()?);
        let controller = format!("127.0.0.1:{}", free_port()?);
        let listeners = format!("PLAINTEXT://{bootstrap},CONTROLLER://{controller}");
        let advertised = format!("PLAINTEXT://{},CONTROLLER://{controller}", relay.unwrap_or(&bootstrap));
        let one = || "1".to_owned();
        let lines = [
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", one()),
            // Static voters: their address may change with each start.
            ("controller.quorum.voters", format!("1@{controller}")),
            ("listeners", listeners),
            ("advertised.listeners", advertised),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("log.dirs", data.display().to_string()),
            ("offsets.topic.replication.factor", one()),
            ("offsets.topic.num.partitions", "4".to_owned()),
            ("transaction.state.log.replication.factor", one()),
            ("transaction.state.log.min.isr", one()),
            ("share.coordinator.state.topic.replication.factor", one()),
            ("share.coordinator.state.topic.min.isr", one()),
            // So that a batch of a transaction is taken that no coordinator knows: it stays open for ever.
            ("transaction.partition.verification.enable", "false".to_owned()),
            ("group.initial.rebalance.delay.ms", "0".to_owned()),
            // What a run deletes makes room for what follows.
            ("log.segment.delete.delay.ms", "1000".to_owned()),
        ];
        fs::write(&config, properties(&lines, &[])).doing(|| format!("writing {}", config.display()))?;
        if !data.exists() {
            let mut format = kit.tool_java()?;
            format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(&config);
            run("format", format, directory, FORMATTED_IN)?;
        }
        let mut server = kit.kafka_java()?;
        server.arg("kafka.Kafka").arg(&config);
        let mut program = Program::start(name, server, &directory.join("kafka.log"))?;
        await_ready(&mut program, &bootstrap)?;
        Ok(Kafka { program, bootstrap, kit: kit.clone(), directory: directory.to_owned() })
    }

    /// The address of its listener.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Fails where it has ended.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        self.program.expect_running()
    }

    /// Creates a topic.
    pub(crate) fn create_topic(&self, topic: &str, partitions: usize) -> Result<()> {
        let partitions = partitions.to_string();
        let arguments =
            ["--create", "--topic", topic, "--partitions", &partitions, "--replication-factor", "1"];
        self.tool("TopicCommand", &arguments, TOOL_ENDS_IN).map(|_| ())
    }

    /// Runs one of Kafka's tools against it, by its class within `org.apache.kafka.tools`; what it printed.
    pub(crate) fn tool(&self, class: &str, arguments: &[&str], limit: Duration) -> Result<String> {
        let mut command = self.kit.tool_java()?;
        command.arg(format!("org.apache.kafka.tools.{class}"));
        command.args(["--bootstrap-server", &self.bootstrap]).args(arguments);
        run(class, command, &self.directory, limit)
    }

    /// A clean stop.
    pub(crate) fn stop(self) -> Result<()> {
        self.program.stop()
    }
}
