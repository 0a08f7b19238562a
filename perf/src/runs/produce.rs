//! `perf/run.sh produce`: producers that keep requests under way, against each server in turn.
//!
//! Tarn and Kafka run all the time, warm, and one of them works; each measurement has a new topic, which is
//! deleted afterwards. What was acknowledged is compared with where the topic ends.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::in_new_directory;
use super::side_by_side::{
    Case, Measured, Ratio, Report, Round, cpu_per_gb, mb_per_second, requests_per_cpu_second, rotated,
};
use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::Acks;
use crate::clients::{Done, Producers};
use crate::failure::{Doing, Failure, Result};
use crate::measure::target::Target;
use crate::peers::kafka::Kit;
use crate::peers::server::{Server, ServerKind};
use crate::peers::tarn::Build;

/// A batch below it is small: what a request costs is then what counts.
const SMALL_BYTES: usize = 4096;

const CPU_TO_KAFKA: Ratio = Ratio {
    key: "tarn_kafka_cpu_per_gb",
    title: "Tarn / Kafka, CPU per GB",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: cpu_per_gb,
    target: Target::AtMost(0.25),
};
const CPU_TO_LOOP: Ratio = Ratio {
    key: "tarn_loop_cpu_per_gb",
    title: "Tarn / loop, CPU per GB",
    of: (ServerKind::Tarn, ServerKind::Loop),
    quantity: cpu_per_gb,
    target: Target::AtMost(1.4),
};
const SPEED_TO_KAFKA: Ratio = Ratio {
    key: "tarn_kafka_mb_per_second",
    title: "Tarn / Kafka, MB/s",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: mb_per_second,
    target: Target::AtLeast(1.5),
};
const REQUESTS_TO_KAFKA: Ratio = Ratio {
    key: "tarn_kafka_requests_per_cpu_second",
    title: "Tarn / Kafka, requests per CPU-s",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: requests_per_cpu_second,
    target: Target::AtLeast(3.0),
};
const RATIOS: [Ratio; 3] = [CPU_TO_KAFKA, CPU_TO_LOOP, SPEED_TO_KAFKA];
const RATIOS_OF_SMALL: [Ratio; 1] = [REQUESTS_TO_KAFKA];

/// What is written, and by how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// What each batch is like.
    pub(crate) shape: Shape,
    /// Values in all, in bytes.
    pub(crate) bytes: u64,
    /// Connections.
    pub(crate) connections: usize,
    /// Partitions of the topic.
    pub(crate) partitions: usize,
}

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct ProduceRun {
    /// What is written each time.
    pub(crate) load: Load,
    /// How often each server is measured.
    pub(crate) rounds: usize,
    /// Who is measured.
    pub(crate) peers: Vec<ServerKind>,
    /// Each with each codec is a case.
    pub(crate) acks: Vec<Acks>,
    /// The codecs.
    pub(crate) codecs: Vec<Codec>,
    /// Values that each case writes first, not measured, in bytes.
    pub(crate) warm_bytes: u64,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// The servers that stay.
#[derive(Debug, Default)]
struct Servers {
    tarn: Option<Server>,
    kafka: Option<Server>,
}

impl Load {
    /// How many batches that is.
    pub(crate) fn batches(&self, bytes: u64) -> u64 {
        bytes.div_ceil((self.shape.records() * self.shape.record_bytes) as u64)
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:.2} GB of values of {} bytes in batches of {} records, {} connections, {} partitions",
            self.bytes as f64 / 1e9,
            self.shape.record_bytes,
            self.shape.records(),
            self.connections,
            self.partitions
        )
    }

    /// Fills a new topic of a server with so many batches, and counts what that costs.
    pub(crate) fn produce(
        &self,
        server: &Server,
        topic: &str,
        (acks, codec): (Acks, Codec),
        batches: u64,
    ) -> Result<Measured> {
        server.create_topic(topic, self.partitions)?;
        let batch = self.shape.batch(codec).doing(|| "making a batch".to_owned())?;
        let to = (topic, self.partitions as i32);
        let producers = Producers::connect(&server.address, to, self.connections, acks, &batch);
        let producers = producers.doing(|| format!("connecting to {}", server.address))?;
        Measured::of(server, || -> std::io::Result<Done> { producers.run(batches) })
    }

    /// Fails where the topic does not hold what was acknowledged.
    pub(crate) fn expect_all(&self, ends: &[i64], batches: u64) -> Result<()> {
        let (held, written) = (ends.iter().sum::<i64>(), batches as i64 * self.shape.records() as i64);
        if held == written {
            return Ok(());
        }
        Err(Failure::Wrong(format!("{written} records were acknowledged, and the topic ends after {held}")))
    }
}

impl ProduceRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let mut servers = Servers::default();
        if self.peers.contains(&ServerKind::Tarn) {
            servers.tarn = Some(Server::tarn(&self.tarn, &self.work.join("tarn"))?);
        }
        if self.peers.contains(&ServerKind::Kafka) {
            servers.kafka = Some(Server::kafka(&self.kit, &self.work.join("kafka"))?);
        }
        let settings: Vec<(Acks, Codec)> =
            self.codecs.iter().flat_map(|codec| self.acks.iter().map(|acks| (*acks, *codec))).collect();
        let mut cases: Vec<Case> = settings
            .iter()
            .map(|(acks, codec)| Case {
                name: format!("acks={}, {}", acks.name(), codec.name()),
                rounds: Vec::new(),
            })
            .collect();
        for setting in &settings {
            // A loop has nothing to warm.
            for kind in self.peers.iter().filter(|kind| **kind != ServerKind::Loop) {
                self.measure(*kind, &servers, *setting, self.load.batches(self.warm_bytes))?;
            }
        }
        for round in 0..self.rounds {
            for (case, setting) in cases.iter_mut().zip(&settings) {
                let mut measured = Round::new();
                for kind in rotated(&self.peers, round) {
                    let one = self.measure(kind, &servers, *setting, self.load.batches(self.load.bytes))?;
                    let (of, name) = (self.rounds, &case.name);
                    eprintln!("round {} of {of}: {name}: {}: {}", round + 1, kind.title(), one.text());
                    measured.insert(kind, one);
                }
                case.rounds.push(measured);
            }
        }
        for server in [servers.tarn, servers.kafka].into_iter().flatten() {
            server.stop()?;
        }
        let small = self.load.shape.batch_bytes < SMALL_BYTES;
        let said = format!("{}, flush.policy=none, {} rounds", self.load.text(), self.rounds);
        let ratios = if small { RATIOS_OF_SMALL.as_slice() } else { RATIOS.as_slice() };
        Ok(Report { said, cases, ratios }.printed())
    }

    fn measure(
        &self,
        kind: ServerKind,
        servers: &Servers,
        setting: (Acks, Codec),
        batches: u64,
    ) -> Result<Measured> {
        let topic = format!("produced-{:08x}", fastrand::u32(..));
        let server = match kind {
            ServerKind::Tarn => &servers.tarn,
            ServerKind::Kafka => &servers.kafka,
            ServerKind::Loop => {
                return in_new_directory(&self.work.join(&topic), |directory| {
                    self.measure_loop(directory, &topic, setting, batches)
                });
            }
        };
        let server = server.as_ref().ok_or_else(|| Failure::Wrong("a server that was not started".into()))?;
        let measured = self.load.produce(server, &topic, setting, batches)?;
        self.load.expect_all(&server.ends(&topic, self.load.partitions)?, batches)?;
        server.delete_topic(&topic)?;
        rustix::fs::sync();
        Ok(measured)
    }

    fn measure_loop(
        &self,
        directory: &Path,
        topic: &str,
        setting: (Acks, Codec),
        batches: u64,
    ) -> Result<Measured> {
        let server = Server::a_loop(directory, |command| {
            command.arg("append-loop").arg("--into").arg(directory.join("data"));
        })?;
        let measured = self.load.produce(&server, topic, setting, batches)?;
        server.stop()?;
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_holds_all_that_was_acknowledged_or_the_run_fails() {
        let shape = Shape { record_bytes: 100, batch_bytes: 1100 };
        let load = Load { shape, bytes: 2_000, connections: 1, partitions: 2 };
        let records = shape.records() as i64;
        assert_eq!(load.batches(2_000), 3, "{records}");
        assert!(load.expect_all(&[2 * records, records], 3).is_ok());
        assert!(load.expect_all(&[records, records], 3).is_err());
    }
}
