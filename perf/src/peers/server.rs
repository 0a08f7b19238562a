//! A server that clients put a load on: Tarn, Apache Kafka, or a loop that does only what it must.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use super::free_address;
use super::kafka::{Kafka, Kit};
use super::tarn::{Build, Tarn};
use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};
use crate::program::{Program, guarded, until};

const LED_IN: Duration = Duration::from_secs(30);
const LISTENS_IN: Duration = Duration::from_secs(10);
const GONE_IN: Duration = Duration::from_secs(120);

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ServerKind {
    /// One node of Tarn.
    Tarn,
    /// One node of Apache Kafka 4.4.
    Kafka,
    /// The loop.
    Loop,
}

/// What an acknowledgement of a topic's appends promises of the disk (`flush.policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum FlushPolicy {
    /// Nothing, as Kafka has it.
    None,
    /// With acks=all it is flushed.
    Group,
    /// It is flushed.
    Each,
}

/// Those that stay while a run has its rounds.
#[derive(Debug)]
pub(crate) struct Servers(BTreeMap<ServerKind, Server>);

/// One that runs.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: String,
    /// Its process.
    pub(crate) id: u32,
    data: PathBuf,
    runs: Runs,
}

#[derive(Debug)]
enum Runs {
    Tarn(Tarn),
    Kafka(Kafka),
    Loop(Program),
}

impl ServerKind {
    /// Its name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            ServerKind::Tarn => "Tarn",
            ServerKind::Kafka => "Apache Kafka 4.4",
            ServerKind::Loop => "loop",
        }
    }

    /// Its name in JSON and on the command line.
    pub(crate) fn key(self) -> &'static str {
        match self {
            ServerKind::Tarn => "tarn",
            ServerKind::Kafka => "kafka",
            ServerKind::Loop => "loop",
        }
    }
}

impl FlushPolicy {
    /// Its name, as in Tarn's configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FlushPolicy::None => "none",
            FlushPolicy::Group => "group",
            FlushPolicy::Each => "each",
        }
    }
}

impl Servers {
    /// Starts those of these that are brokers, with their files in `work`.
    pub(crate) fn start(kinds: &[ServerKind], tarn: &Build, kit: &Kit, work: &Path) -> Result<Servers> {
        let mut servers = BTreeMap::new();
        if kinds.contains(&ServerKind::Tarn) {
            servers.insert(ServerKind::Tarn, Server::tarn(tarn, &work.join("tarn"))?);
        }
        if kinds.contains(&ServerKind::Kafka) {
            servers.insert(ServerKind::Kafka, Server::kafka(kit, &work.join("kafka"))?);
        }
        Ok(Servers(servers))
    }

    /// One of them.
    pub(crate) fn get(&self, kind: ServerKind) -> Result<&Server> {
        let server = self.0.get(&kind);
        server.ok_or_else(|| Failure::Wrong(format!("{} was not started", kind.title())))
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ServerKind, &Server)> {
        self.0.iter().map(|(kind, server)| (*kind, server))
    }

    /// A clean stop of all.
    pub(crate) fn stop(self) -> Result<()> {
        self.0.into_values().try_for_each(Server::stop)
    }
}

impl Server {
    /// Starts a Tarn whose files are in `directory`.
    pub(crate) fn tarn(build: &Build, directory: &Path) -> Result<Server> {
        let mut build = build.clone();
        // What a run deletes makes room for what follows.
        build.server.insert(0, "log.segment.delete.delay.ms=1000".to_owned());
        let tarn = Tarn::start(&build, directory)?;
        let (address, id, data) = (tarn.bootstrap().to_owned(), tarn.id(), directory.join("data"));
        Ok(Server { address, id, data, runs: Runs::Tarn(tarn) })
    }

    /// Starts a Kafka whose files are in `directory`.
    pub(crate) fn kafka(kit: &Kit, directory: &Path) -> Result<Server> {
        let kafka = Kafka::start(kit, "kafka", directory)?;
        let (address, id, data) = (kafka.bootstrap().to_owned(), kafka.id(), directory.join("data"));
        Ok(Server { address, id, data, runs: Runs::Kafka(kafka) })
    }

    /// Starts a loop as a process of its own: this program, to which `arguments` and an address are given.
    pub(crate) fn a_loop(directory: &Path, arguments: impl FnOnce(&mut Command)) -> Result<Server> {
        fs::create_dir_all(directory).doing(|| format!("making {}", directory.display()))?;
        let address = free_address()?;
        let program = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
        let mut command = guarded(program);
        arguments(&mut command);
        command.args(["--listen", &address]);
        let mut program = Program::start("loop", command, &directory.join("loop.log"))?;
        until("a loop that listens", LISTENS_IN, || {
            program.expect_running()?;
            Ok(TcpStream::connect(&address).is_ok().then_some(()))
        })?;
        let (id, data) = (program.id(), directory.to_owned());
        Ok(Server { address, id, data, runs: Runs::Loop(program) })
    }

    /// Creates a topic with one replica and waits until its partitions are led. A loop has every topic. Only Tarn knows
    /// flush policies.
    pub(crate) fn create_topic(&self, topic: &str, partitions: usize, flush: FlushPolicy) -> Result<()> {
        let configs: &[(&str, &str)] = match self.runs {
            Runs::Tarn(_) => &[("flush.policy", flush.name())],
            Runs::Kafka(_) => &[],
            Runs::Loop(_) => return Ok(()),
        };
        BrokerClient::connect(&self.address)
            .and_then(|mut broker| broker.create_topics(&[topic.to_owned()], partitions as i32, configs))
            .doing(|| format!("creating {topic}"))?;
        until("partitions that are led", LED_IN, || {
            let ends = self.ends(topic, partitions).unwrap_or_default();
            Ok((ends.len() == partitions).then_some(()))
        })
    }

    /// Where its partitions end; fails where one is not led.
    pub(crate) fn ends(&self, topic: &str, partitions: usize) -> Result<Vec<i64>> {
        let ends = BrokerClient::connect(&self.address)
            .and_then(|mut broker| broker.end_offsets(topic, partitions))
            .doing(|| format!("asking where {topic} ends"))?;
        let led: Option<Vec<i64>> = ends.into_iter().collect();
        led.ok_or_else(|| Failure::Wrong(format!("a partition of {topic} is not led")))
    }

    /// Deletes a topic and waits until its files are gone.
    pub(crate) fn delete_topic(&self, topic: &str) -> Result<()> {
        BrokerClient::connect(&self.address)
            .and_then(|mut broker| broker.delete_topic(topic))
            .doing(|| format!("deleting {topic}"))?;
        until("files of a deleted topic gone", GONE_IN, || {
            let entries = fs::read_dir(&self.data).doing(|| format!("reading {}", self.data.display()))?;
            let mut names = entries.filter_map(|entry| entry.ok()).map(|entry| entry.file_name());
            let left = names.any(|name| name.to_string_lossy().starts_with(topic));
            Ok((!left).then_some(()))
        })
    }

    /// A clean stop.
    pub(crate) fn stop(self) -> Result<()> {
        match self.runs {
            Runs::Tarn(tarn) => tarn.stop().map(|_| ()),
            Runs::Kafka(kafka) => kafka.stop(),
            Runs::Loop(program) => program.stop(),
        }
    }
}
