//! `perf/run.sh latency`: from the moment when a batch was due to a consumer that has it, at the same rate for each
//! server: a share of what Apache Kafka can do at most, which is measured first.
//!
//! A server's most is what producers with several requests under way get acknowledged while as many consumers read;
//! this warms the servers, too. Then batches are sent by the clock (`open_loop`), and consumers wait at the end of the
//! topic in long polls.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread::scope;
use std::time::Duration;

use serde_json::Value;

use super::consume::consumers_text;
use super::delivered::{RESPONSE_BYTES, delivered, in_new_topic};
use super::served::Served;
use super::side_by_side::{Columns, Ratio, Report};
use crate::batch::{Codec, Shape};
use crate::broker_client::bad;
use crate::broker_client::pipeline::{Acks, UNDER_WAY_MAX};
use crate::clients::{Done, Enough, Producers, follow, in_threads};
use crate::failure::{Doing, Failure, Result};
use crate::measure::percentiles::Percentiles;
use crate::measure::quantity::Quantity;
use crate::measure::target::Target;
use crate::open_loop::{Delivery, Schedule};
use crate::peers::kafka::Kit;
use crate::peers::server::{Server, ServerKind, Servers};
use crate::peers::tarn::Build;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRun {
    /// What each batch is like.
    pub(crate) shape: Shape,
    /// Partitions of the topic, each with a connection that writes to it.
    pub(crate) partitions: usize,
    /// Consumers, each of all partitions.
    pub(crate) consumers: usize,
    /// Who has a batch when it is acknowledged.
    pub(crate) acks: Acks,
    /// At which rate.
    pub(crate) rate: Rate,
    /// How long servers are loaded as much as they take: once to warm them, and once to measure it.
    pub(crate) saturated: Duration,
    /// How long batches are sent that are not counted, and how long those that are.
    pub(crate) warm_up: Duration,
    /// See above.
    pub(crate) counted: Duration,
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

/// How many batches are due in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rate {
    /// So many.
    Batches(f64),
    /// So many percent of what Kafka can do at most.
    PercentOfKafka(f64),
}

/// What one server did in one round.
#[derive(Clone, Copy, Debug)]
struct Timed {
    served: Served,
    sent: Percentiles,
    acknowledged: Percentiles,
    delivered: Percentiles,
}

const COLUMNS: Columns<Timed> = Columns {
    quantities: &[
        Quantity::new("p50_ms", "p50 ms", 2, |timed| timed.delivered.p50_ms),
        Quantity::new("p99_ms", "p99 ms", 2, |timed| timed.delivered.p99_ms),
        Quantity::new("p999_ms", "p99.9 ms", 2, |timed| timed.delivered.p999_ms),
        Quantity::new("max_ms", "max ms", 1, |timed| timed.delivered.max_ms),
        Quantity::new("acknowledged_p99_ms", "acknowledged p99 ms", 2, |timed| timed.acknowledged.p99_ms),
        Quantity::new("sent_p99_ms", "sent p99 ms", 2, |timed| timed.sent.p99_ms),
        Quantity::new("cpu_percent", "server % of a core", 0, |timed| {
            100.0 * timed.served.cost.cpu_seconds / timed.served.cost.seconds
        }),
        Quantity::new("others_cores", "others' cores", 2, |timed| timed.served.cost.others_cores),
    ],
    ratios: &[Ratio {
        key: "tarn_kafka_p99",
        title: "Tarn / Kafka, p99",
        of: (ServerKind::Tarn, ServerKind::Kafka),
        quantity: |timed| timed.delivered.p99_ms,
        target: Target::AtMost(0.333),
    }],
};

impl Rate {
    /// Batches a second, where Kafka can do so many at most.
    fn batches_per_second(self, most_of_kafka: Option<f64>) -> Result<f64> {
        let batches = match (self, most_of_kafka) {
            (Rate::Batches(batches), _) => batches,
            (Rate::PercentOfKafka(percent), Some(most)) => most * percent / 100.0,
            (Rate::PercentOfKafka(_), None) => {
                let text = "a share of what Kafka can do needs Kafka among the peers, or --rate";
                return Err(Failure::Wrong(text.to_owned()));
            }
        };
        if !batches.is_normal() || batches < 0.0 {
            return Err(Failure::Wrong(format!("{batches} batches a second cannot be sent")));
        }
        Ok(batches)
    }

    fn text(self) -> String {
        match self {
            Rate::Batches(_) => "as asked for".to_owned(),
            Rate::PercentOfKafka(percent) => format!("{percent} % of Kafka's most"),
        }
    }
}

impl LatencyRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let batch = self.shape.batch(Codec::None).doing(|| "making a batch".to_owned())?;
        let servers = Servers::start(&self.peers, &self.tarn, &self.kit, &self.work)?;
        let mut most_of_kafka = None;
        for (kind, server) in servers.all() {
            self.most(server, &batch)?;
            let most = self.most(server, &batch)?;
            eprintln!("{} takes {most:.0} batches/s at most", kind.title());
            if kind == ServerKind::Kafka {
                most_of_kafka = Some(most);
            }
        }
        let per_second = self.rate.batches_per_second(most_of_kafka)?;
        let schedule = Schedule::new(per_second, self.partitions, self.warm_up, self.counted);
        let name = format!("acks={}", self.acks.name());
        let cases = COLUMNS.measured(vec![name], (&self.peers, self.rounds), |_, kind| {
            self.timed(servers.get(kind)?, &batch, schedule)
        })?;
        servers.stop()?;
        let said = format!(
            "{per_second:.0} batches/s of {} records of {} bytes, {}, to {} partitions, {}, {:?} counted, \
             flush.policy=none, {} rounds",
            self.shape.records(),
            self.shape.record_bytes,
            self.rate.text(),
            self.partitions,
            consumers_text(self.consumers),
            self.counted,
            self.rounds
        );
        Ok(Report { said, cases, columns: COLUMNS }.printed())
    }

    fn timed(&self, server: &Server, batch: &[u8], schedule: Schedule) -> Result<Timed> {
        let delivery = Delivery {
            acks: self.acks,
            batch,
            batch_records: self.shape.records() as u64,
            consumers: self.consumers,
            response_bytes: RESPONSE_BYTES,
        };
        let (served, seen) = delivered(server, delivery, schedule)?;
        Ok(Timed {
            served,
            sent: Percentiles::of(seen.sent),
            acknowledged: Percentiles::of(seen.acknowledged),
            delivered: Percentiles::of(seen.delivered),
        })
    }

    /// How many batches a second a server takes at most while they are read.
    fn most(&self, server: &Server, batch: &[u8]) -> Result<f64> {
        let produce = |topic: &str| -> io::Result<Done> {
            let to = (topic, self.partitions);
            let producers = Producers::connect(&server.address, to, self.partitions, self.acks, batch)?;
            producers.run(UNDER_WAY_MAX, Enough::Time(self.saturated))
        };
        in_new_topic(server, self.partitions, |topic| {
            let to = (topic, self.partitions);
            let ends: OnceLock<Vec<i64>> = OnceLock::new();
            let at_end = |offsets: &[i64]| ends.get().is_some_and(|ends| ends == offsets);
            let one = |()| follow(&server.address, to, RESPONSE_BYTES, at_end, |_, _| ());
            let produced = scope(|threads| {
                let consumers = threads.spawn(|| in_threads(vec![(); self.consumers], one));
                let produced = produce(topic).doing(|| format!("producing to {}", server.address))?;
                let _ = ends.set(server.ends(topic, self.partitions)?);
                let read = consumers.join().unwrap_or_else(|_| Err(bad("the consumers died")));
                read.doing(|| format!("consuming from {}", server.address))?;
                Ok::<_, Failure>(produced)
            })?;
            Ok(produced.requests as f64 / self.saturated.as_secs_f64())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_a_share_of_what_kafka_can_do() {
        assert_eq!(Rate::PercentOfKafka(20.0).batches_per_second(Some(5_000.0)).unwrap(), 1_000.0);
        assert!(Rate::PercentOfKafka(20.0).batches_per_second(None).is_err());
        assert!(Rate::Batches(0.0).batches_per_second(None).is_err());
        assert_eq!(Rate::Batches(7.0).batches_per_second(None).unwrap(), 7.0);
    }

    #[test]
    fn a_third_of_kafkas_p99_is_reached_and_more_is_not() {
        let target = COLUMNS.ratios[0].target;
        assert!(target.is_met(2.0 / 6.1) && !target.is_met(2.0 / 5.9));
    }
}
