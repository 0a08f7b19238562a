//! `perf/run.sh consume`: consumers read a topic from its first offset, from each server in turn.
//!
//! What they read was written a moment before and is smaller than memory. Each consumer reads all of it, and
//! throws it away.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::produce::Load;
use super::side_by_side::{Case, Measured, Ratio, Report, Round, cpu_per_gb, mb_per_second, rotated};
use crate::batch::Codec;
use crate::broker_client::pipeline::Acks;
use crate::clients::{Fetching, consume};
use crate::failure::{Doing, Result};
use crate::measure::target::Target;
use crate::peers::kafka::Kit;
use crate::peers::send_loop::write_file;
use crate::peers::server::{Server, ServerKind};
use crate::peers::tarn::Build;

const TOPIC: &str = "consumed";
/// How often each case is read first, not measured.
const WARM_READS: usize = 3;

const RATIOS: [Ratio; 3] = [
    Ratio {
        key: "tarn_kafka_cpu_per_gb",
        title: "Tarn / Kafka, CPU per GB",
        of: (ServerKind::Tarn, ServerKind::Kafka),
        quantity: cpu_per_gb,
        target: Target::AtMost(0.5),
    },
    Ratio {
        key: "tarn_loop_cpu_per_gb",
        title: "Tarn / sendfile loop, CPU per GB",
        of: (ServerKind::Tarn, ServerKind::Loop),
        quantity: cpu_per_gb,
        target: Target::AtMost(1.3),
    },
    Ratio {
        key: "tarn_loop_mb_per_second",
        title: "Tarn / sendfile loop, MB/s",
        of: (ServerKind::Tarn, ServerKind::Loop),
        quantity: mb_per_second,
        target: Target::AtLeast(0.8),
    },
];

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct ConsumeRun {
    /// What is written first, and read.
    pub(crate) load: Load,
    /// Its codec.
    pub(crate) codec: Codec,
    /// How often each server is measured.
    pub(crate) rounds: usize,
    /// Who is measured.
    pub(crate) peers: Vec<ServerKind>,
    /// How many read at a time; each number is a case.
    pub(crate) consumers: Vec<usize>,
    /// The largest response to ask for, and the same for each partition.
    pub(crate) response_bytes: i32,
    /// How they ask.
    pub(crate) fetching: Fetching,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// A server, and where its topic ends.
type Filled = (Server, Vec<i64>);

impl ConsumeRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let mut servers = BTreeMap::new();
        for kind in &self.peers {
            servers.insert(*kind, self.filled(*kind)?);
        }
        rustix::fs::sync();
        let name = |consumers: &usize| {
            if *consumers == 1 { "1 consumer".to_owned() } else { format!("{consumers} consumers") }
        };
        let mut cases: Vec<Case> =
            self.consumers.iter().map(|count| Case { name: name(count), rounds: Vec::new() }).collect();
        for (server, count) in
            servers.values().flat_map(|server| self.consumers.iter().map(move |n| (server, n)))
        {
            for _ in 0..WARM_READS {
                self.measure(server, *count)?;
            }
        }
        for round in 0..self.rounds {
            for (case, count) in cases.iter_mut().zip(&self.consumers) {
                let mut measured = Round::new();
                for kind in rotated(&self.peers, round) {
                    let Some(server) = servers.get(&kind) else { continue };
                    let one = self.measure(server, *count)?;
                    let (of, name) = (self.rounds, &case.name);
                    eprintln!("round {} of {of}: {name}: {}: {}", round + 1, kind.title(), one.text());
                    measured.insert(kind, one);
                }
                case.rounds.push(measured);
            }
        }
        for (server, _) in servers.into_values() {
            server.stop()?;
        }
        let said = format!(
            "{}, {}, responses of {} KiB{}, {} rounds",
            self.load.text(),
            self.codec.name(),
            self.response_bytes >> 10,
            if self.fetching == Fetching::InSessions { " in sessions" } else { "" },
            self.rounds
        );
        Ok(Report { said, cases, ratios: &RATIOS }.printed())
    }

    /// A server that holds what is read.
    fn filled(&self, kind: ServerKind) -> Result<Filled> {
        let directory = self.work.join(kind.key());
        let batches = self.load.batches(self.load.bytes);
        let server = match kind {
            ServerKind::Tarn => Server::tarn(&self.tarn, &directory)?,
            ServerKind::Kafka => Server::kafka(&self.kit, &directory)?,
            ServerKind::Loop => return self.filled_loop(&directory, batches),
        };
        self.load.produce(&server, TOPIC, (Acks::One, self.codec), batches)?;
        let ends = server.ends(TOPIC, self.load.partitions)?;
        self.load.expect_all(&ends, batches)?;
        Ok((server, ends))
    }

    fn filled_loop(&self, directory: &std::path::Path, batches: u64) -> Result<Filled> {
        let file = directory.join("data");
        let write = || {
            std::fs::create_dir_all(directory)?;
            write_file(&file, &self.load.shape.batch(self.codec)?, self.load.shape, batches)
        };
        let sent = { write }().doing(|| format!("writing {}", file.display()))?;
        let server = Server::a_loop(directory, |command| {
            command.arg("send-loop").arg("--file").arg(&file);
            command.args(["--batch-bytes", &sent.batch_bytes.to_string()]);
            command.args(["--batch-records", &sent.batch_records.to_string()]);
        })?;
        Ok((server, vec![(batches * sent.batch_records) as i64]))
    }

    fn measure(&self, (server, ends): &Filled, consumers: usize) -> Result<Measured> {
        let how = (self.response_bytes, self.fetching);
        Measured::of(server, || consume(&server.address, TOPIC, ends, how, consumers))
    }
}
