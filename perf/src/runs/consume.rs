//! `perf/run.sh consume`: consumers read a topic from its first offset, from each server in turn.
//!
//! What they read was written a moment before and is smaller than memory. Each consumer reads all of it, and
//! throws it away; few consumers read it again, so that they read about as much as many do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::produce::Load;
use super::served::{QUANTITIES, Served};
use super::side_by_side::{Columns, Ratio, Report};
use crate::batch::Codec;
use crate::broker_client::pipeline::Acks;
use crate::clients::{Fetching, Reading, consume};
use crate::failure::{Doing, Failure, Result};
use crate::measure::target::Target;
use crate::peers::kafka::Kit;
use crate::peers::send_loop::write_file;
use crate::peers::server::{Server, ServerKind};
use crate::peers::tarn::Build;

const TOPIC: &str = "consumed";

const RATIOS: [Ratio<Served>; 3] = [
    Ratio {
        key: "tarn_kafka_cpu_per_gb",
        title: "Tarn / Kafka, CPU per GB",
        of: (ServerKind::Tarn, ServerKind::Kafka),
        quantity: Served::cpu_per_gb,
        target: Target::AtMost(0.5),
    },
    Ratio {
        key: "tarn_loop_cpu_per_gb",
        title: "Tarn / sendfile loop, CPU per GB",
        of: (ServerKind::Tarn, ServerKind::Loop),
        quantity: Served::cpu_per_gb,
        target: Target::AtMost(1.3),
    },
    Ratio {
        key: "tarn_loop_mb_per_second",
        title: "Tarn / sendfile loop, MB/s",
        of: (ServerKind::Tarn, ServerKind::Loop),
        quantity: Served::mb_per_second,
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
    /// What all of them together read at least, in bytes of values.
    pub(crate) read_bytes: u64,
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
        for count in &self.consumers {
            for server in servers.values() {
                self.measure(server, *count)?;
            }
        }
        let columns = Columns { quantities: &QUANTITIES, ratios: &RATIOS };
        let names = self.consumers.iter().map(|count| consumers_text(*count)).collect();
        let cases = columns.measured(names, (&self.peers, self.rounds), |case, kind| {
            let server = servers.get(&kind).ok_or_else(|| Failure::Wrong(format!("no {}", kind.title())))?;
            self.measure(server, self.consumers[case])
        })?;
        for (server, _) in servers.into_values() {
            server.stop()?;
        }
        let said = format!(
            "{}, {}, {:.1} GB read at least, responses of {} KiB{}, {} rounds",
            self.load.text(),
            self.codec.name(),
            self.read_bytes as f64 / 1e9,
            self.response_bytes >> 10,
            if self.fetching == Fetching::InSessions { " in sessions" } else { "" },
            self.rounds
        );
        Ok(Report { said, cases, columns }.printed())
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
            sent.arguments(command);
            command.arg("--file").arg(&file);
        })?;
        Ok((server, vec![(batches * sent.batch_records) as i64]))
    }

    fn measure(&self, (server, ends): &Filled, consumers: usize) -> Result<Served> {
        let (response_bytes, fetching) = (self.response_bytes, self.fetching);
        let times = times(self.read_bytes, self.load.bytes, consumers as u64);
        let reading = Reading { response_bytes, fetching, times };
        Served::of(server, || consume(&server.address, TOPIC, ends, reading, consumers))
    }
}

/// So many consumers, in words.
pub(super) fn consumers_text(count: usize) -> String {
    if count == 1 { "1 consumer".to_owned() } else { format!("{count} consumers") }
}

/// How often each of so many consumers reads a topic, for all to have read so much.
fn times(read_bytes: u64, topic_bytes: u64, consumers: u64) -> u64 {
    read_bytes.div_ceil(topic_bytes * consumers).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_consumers_read_the_topic_again_until_they_have_read_as_much_as_many() {
        assert_eq!([1, 7, 50].map(|consumers| times(6_000, 200, consumers)), [30, 5, 1]);
    }
}
