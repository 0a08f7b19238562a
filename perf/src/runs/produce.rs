//! `perf/run.sh produce`: producers that keep requests under way, against each server in turn.
//!
//! Tarn and Kafka run all the time, warm, and one of them works; each measurement has a new topic, which is
//! deleted afterwards. What was acknowledged is compared with where the topic ends.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::in_new_directory;
use super::served::{QUANTITIES, Served};
use super::side_by_side::{Columns, Ratio, Report};
use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::{Acks, UNDER_WAY_MAX};
use crate::clients::{Enough, Producers};
use crate::failure::{Doing, Failure, Result};
use crate::measure::target::Target;
use crate::peers::kafka::Kit;
use crate::peers::server::{FlushPolicy, Server, ServerKind, Servers};
use crate::peers::tarn::Build;

/// A batch below it is small: what a request costs is then what counts.
const SMALL_BYTES: usize = 4096;

const CPU_TO_KAFKA: Ratio<Served> = Ratio {
    key: "tarn_kafka_cpu_per_gb",
    title: "Tarn / Kafka, CPU per GB",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: Served::cpu_per_gb,
    target: Target::AtMost(0.25),
};
const CPU_TO_LOOP: Ratio<Served> = Ratio {
    key: "tarn_loop_cpu_per_gb",
    title: "Tarn / loop, CPU per GB",
    of: (ServerKind::Tarn, ServerKind::Loop),
    quantity: Served::cpu_per_gb,
    target: Target::AtMost(1.4),
};
const SPEED_TO_KAFKA: Ratio<Served> = Ratio {
    key: "tarn_kafka_mb_per_second",
    title: "Tarn / Kafka, MB/s",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: Served::mb_per_second,
    target: Target::AtLeast(1.5),
};
const REQUESTS_TO_KAFKA: Ratio<Served> = Ratio {
    key: "tarn_kafka_requests_per_cpu_second",
    title: "Tarn / Kafka, requests per CPU-s",
    of: (ServerKind::Tarn, ServerKind::Kafka),
    quantity: Served::requests_per_cpu_second,
    target: Target::AtLeast(3.0),
};
const RATIOS: [Ratio<Served>; 3] = [CPU_TO_KAFKA, CPU_TO_LOOP, SPEED_TO_KAFKA];
const RATIOS_OF_SMALL: [Ratio<Served>; 1] = [REQUESTS_TO_KAFKA];

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
    ) -> Result<Served> {
        server.create_topic(topic, self.partitions, FlushPolicy::None)?;
        let batch = self.shape.batch(codec).doing(|| "making a batch".to_owned())?;
        let to = (topic, self.partitions);
        let producers = Producers::connect(&server.address, to, self.connections, acks, &batch);
        let producers = producers.doing(|| format!("connecting to {}", server.address))?;
        Served::of(server, || producers.run(UNDER_WAY_MAX, Enough::Batches(batches)))
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
        let servers = Servers::start(&self.peers, &self.tarn, &self.kit, &self.work)?;
        let settings: Vec<(Acks, Codec)> =
            self.codecs.iter().flat_map(|codec| self.acks.iter().map(|acks| (*acks, *codec))).collect();
        for setting in &settings {
            // A loop has nothing to warm.
            for (kind, _) in servers.all() {
                self.measure(kind, &servers, *setting, self.load.batches(self.warm_bytes))?;
            }
        }
        let small = self.load.shape.batch_bytes < SMALL_BYTES;
        let ratios = if small { RATIOS_OF_SMALL.as_slice() } else { RATIOS.as_slice() };
        let columns = Columns { quantities: &QUANTITIES, ratios };
        let name = |(acks, codec): &(Acks, Codec)| format!("acks={}, {}", acks.name(), codec.name());
        let names = settings.iter().map(name).collect();
        let batches = self.load.batches(self.load.bytes);
        let cases = columns.measured(names, (&self.peers, self.rounds), |case, kind| {
            self.measure(kind, &servers, settings[case], batches)
        })?;
        servers.stop()?;
        let said = format!("{}, flush.policy=none, {} rounds", self.load.text(), self.rounds);
        Ok(Report { said, cases, columns }.printed())
    }

    fn measure(
        &self,
        kind: ServerKind,
        servers: &Servers,
        setting: (Acks, Codec),
        batches: u64,
    ) -> Result<Served> {
        let topic = format!("produced-{:08x}", fastrand::u32(..));
        if kind == ServerKind::Loop {
            return in_new_directory(&self.work.join(&topic), |directory| {
                self.measure_loop(directory, &topic, setting, batches)
            });
        }
        let server = servers.get(kind)?;
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
    ) -> Result<Served> {
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
