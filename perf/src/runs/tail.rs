//! `perf/run.sh tail`: consumers at the end of a topic while producers write to it at a fixed rate.
//!
//! Each measurement of a broker is two: the producers alone, and the same with the consumers. What the consumers cost
//! is the difference. A sendfile loop has no producers: it shows a file that was written before, batch by batch, at
//! the same rate, and its consumers wait as they do elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::consume::consumers_text;
use super::delivered::{RESPONSE_BYTES, delivered};
use super::in_new_directory;
use super::served::Served;
use super::side_by_side::{Columns, Ratio, Report};
use crate::batch::{Codec, Shape};
use crate::broker_client::pipeline::Acks;
use crate::clients::{follow, in_threads};
use crate::failure::{Doing, Failure, Result};
use crate::measure::quantity::Quantity;
use crate::measure::target::Target;
use crate::open_loop::{Delivery, Schedule};
use crate::peers::kafka::Kit;
use crate::peers::send_loop::write_file;
use crate::peers::server::{Server, ServerKind, Servers};
use crate::peers::tarn::Build;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct TailRun {
    /// What each batch is like.
    pub(crate) shape: Shape,
    /// Partitions of the topic, each with a connection that writes to it.
    pub(crate) partitions: usize,
    /// How many read, and what is written each second, in bytes of values; each pair is a case.
    pub(crate) cases: Vec<(usize, f64)>,
    /// How long each of the two takes.
    pub(crate) time: Duration,
    /// How often each server is measured.
    pub(crate) rounds: usize,
    /// Who is.
    pub(crate) peers: Vec<ServerKind>,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// What one server did in one round.
#[derive(Clone, Copy, Debug)]
struct Tailed {
    /// With consumers.
    served: Served,
    /// The server's with the same producers alone.
    cpu_seconds_alone: f64,
}

const COLUMNS: Columns<Tailed> = Columns {
    quantities: &[
        Quantity::new("mb_per_second", "MB/s read", 0, |tailed| tailed.served.mb_per_second()),
        Quantity::new("cpu_seconds_per_gb", "server CPU-s/GB read", 2, |tailed| tailed.served.cpu_per_gb()),
        Quantity::new("reading_cpu_seconds_per_gb", "of which for consumers", 2, Tailed::reading_cpu_per_gb),
        Quantity::new("kb_per_fetch", "KB per fetch", 0, |tailed| {
            tailed.served.done.bytes as f64 / 1e3 / tailed.served.done.requests as f64
        }),
        Quantity::new("others_cores", "others' cores", 2, |tailed| tailed.served.cost.others_cores),
    ],
    ratios: &[
        Ratio {
            key: "tarn_kafka_cpu_per_gb",
            title: "Tarn / Kafka, CPU per GB, producers included",
            of: (ServerKind::Tarn, ServerKind::Kafka),
            quantity: |tailed| tailed.served.cpu_per_gb(),
            target: Target::AtMost(0.5),
        },
        Ratio {
            key: "tarn_kafka_reading_cpu_per_gb",
            title: "Tarn / Kafka, CPU per GB for consumers",
            of: (ServerKind::Tarn, ServerKind::Kafka),
            quantity: Tailed::reading_cpu_per_gb,
            target: Target::AtMost(0.5),
        },
        Ratio {
            key: "tarn_loop_reading_cpu_per_gb",
            title: "Tarn / sendfile loop, CPU per GB for consumers",
            of: (ServerKind::Tarn, ServerKind::Loop),
            quantity: Tailed::reading_cpu_per_gb,
            target: Target::AtMost(1.3),
        },
    ],
};

impl Tailed {
    fn reading_cpu_per_gb(&self) -> f64 {
        (self.served.cost.cpu_seconds - self.cpu_seconds_alone) / (self.served.done.bytes as f64 / 1e9)
    }
}

impl TailRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let batch = self.shape.batch(Codec::None).doing(|| "making a batch".to_owned())?;
        let servers = Servers::start(&self.peers, &self.tarn, &self.kit, &self.work)?;
        for case in &self.cases {
            for (_, server) in servers.all() {
                self.tailed(server, &batch, *case)?;
            }
        }
        let name = |(count, rate): &(usize, f64)| format!("{}, {} MB/s", consumers_text(*count), rate / 1e6);
        let names = self.cases.iter().map(name).collect();
        let cases = COLUMNS.measured(names, (&self.peers, self.rounds), |case, kind| match kind {
            ServerKind::Loop => self.tailed_loop(&batch, self.cases[case]),
            _ => self.tailed(servers.get(kind)?, &batch, self.cases[case]),
        })?;
        servers.stop()?;
        let said = format!(
            "batches of {} records of {} bytes by the clock to {} partitions, acks=1, {:?} each, \
             flush.policy=none, {} rounds",
            self.shape.records(),
            self.shape.record_bytes,
            self.partitions,
            self.time,
            self.rounds
        );
        Ok(Report { said, cases, columns: COLUMNS }.printed())
    }

    /// Batches that are due in a second.
    fn batches_per_second(&self, rate: f64) -> f64 {
        rate / (self.shape.records() * self.shape.record_bytes) as f64
    }

    fn schedule(&self, rate: f64) -> Schedule {
        Schedule::new(self.batches_per_second(rate), self.partitions, Duration::ZERO, self.time)
    }

    fn tailed(&self, server: &Server, batch: &[u8], (consumers, rate): (usize, f64)) -> Result<Tailed> {
        let with = |consumers| {
            let delivery = Delivery {
                acks: Acks::One,
                batch,
                batch_records: self.shape.records() as u64,
                consumers,
                response_bytes: RESPONSE_BYTES,
            };
            delivered(server, delivery, self.schedule(rate)).map(|(served, _)| served)
        };
        let cpu_seconds_alone = with(0)?.cost.cpu_seconds;
        Ok(Tailed { served: with(consumers)?, cpu_seconds_alone })
    }

    fn tailed_loop(&self, batch: &[u8], (consumers, rate): (usize, f64)) -> Result<Tailed> {
        in_new_directory(&self.work.join("loop"), |directory| {
            let file = directory.join("data");
            let batches = self.schedule(rate).batches();
            let sent = write_file(&file, batch, self.shape, batches);
            let sent = sent.doing(|| format!("writing {}", file.display()))?;
            let server = Server::a_loop(directory, |command| {
                sent.arguments(command);
                command.arg("--file").arg(&file);
                command.args(["--batches-per-second", &self.batches_per_second(rate).to_string()]);
            })?;
            let end = [(batches * sent.batch_records) as i64];
            let read_all = |offsets: &[i64]| offsets == end;
            let one = |()| follow(&server.address, ("any", 1), RESPONSE_BYTES, read_all, |_, _| ());
            let served = Served::of(&server, || {
                in_threads(vec![(); consumers], one).map(|read| read.into_iter().sum())
            })?;
            server.stop()?;
            Ok(Tailed { served, cpu_seconds_alone: 0.0 })
        })
    }
}

/// How many read, each with what is written each second; one rate is for all.
pub(crate) fn cases(consumers: &[u16], mb_per_second: &[f64]) -> Result<Vec<(usize, f64)>> {
    let rates: Vec<f64> = match mb_per_second {
        [rate] => vec![*rate; consumers.len()],
        rates => rates.to_vec(),
    };
    if rates.len() != consumers.len() || rates.iter().any(|rate| !rate.is_normal() || *rate < 0.0) {
        let text = format!("{} numbers of consumers and rates {mb_per_second:?}", consumers.len());
        return Err(Failure::Wrong(text));
    }
    Ok(consumers.iter().zip(rates).map(|(count, rate)| (usize::from(*count), rate * 1e6)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Done;
    use crate::measure::cpu::Cost;

    #[test]
    fn consumers_cost_what_the_producers_alone_do_not() {
        let cost = Cost { seconds: 2.0, cpu_seconds: 5.0, source_cpu_seconds: 0.0, others_cores: 0.0 };
        let served = Served::new(Done { bytes: 2_000_000_000, requests: 1_000 }, cost);
        let tailed = Tailed { served, cpu_seconds_alone: 3.0 };
        assert_eq!((tailed.served.cpu_per_gb(), tailed.reading_cpu_per_gb()), (2.5, 1.0));
    }

    #[test]
    fn each_number_of_consumers_has_a_rate() {
        assert_eq!(cases(&[1, 50], &[60.0, 8.0]).unwrap(), [(1, 6e7), (50, 8e6)]);
        assert_eq!(cases(&[1, 50], &[8.0]).unwrap(), [(1, 8e6), (50, 8e6)]);
        assert!(cases(&[1, 50], &[8.0, 8.0, 8.0]).is_err());
        assert!(cases(&[1], &[0.0]).is_err());
    }
}
