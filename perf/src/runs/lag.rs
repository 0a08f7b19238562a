//! `perf/run.sh lag`: from an append at the source to the record in a consumer's hands at the destination.
//!
//! `perf/lag.py` produces and consumes with librdkafka's defaults. Each peer is started once in a round and
//! measured at every rate; the order of the peers rotates. The source alone shows what of it is not the
//! mirror's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::in_new_directory;
use crate::broker_client::BrokerClient;
use crate::failure::{Doing, Failure, Result};
use crate::measure::arrival::Arrival;
use crate::measure::cpu::{Processes, memory_peak_bytes};
use crate::measure::quantity::{Quantity, spreads, table_head, table_line, values};
use crate::measure::spread::Spread;
use crate::peers::kafka::{Kafka, Kit};
use crate::peers::mirrormaker::MirrorMaker;
use crate::peers::tarn::{Build, Tarn};
use crate::program::{guarded, run};

const TOPIC: &str = "lag";
/// Records are produced so long before any is counted: connections, and Java's compiler.
const WARM_UP_SECONDS: u64 = 5;
/// How the source is warmed before the first peer.
const WARMING: (u64, u64) = (1000, 10);
/// A median and a 99th percentile in milliseconds that Tarn is meant to stay below.
const TARGETS_MS: (f64, f64) = (3.0, 8.0);

/// Whose lag is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LagPeer {
    /// The destination is a Tarn.
    Tarn,
    /// MirrorMaker 2 copies to an Apache Kafka.
    Mirrormaker,
    /// Nobody copies: the consumer reads from the source.
    Source,
}

impl LagPeer {
    fn title(self) -> &'static str {
        match self {
            LagPeer::Tarn => "Tarn",
            LagPeer::Mirrormaker => "MirrorMaker 2 + its broker",
            LagPeer::Source => "the source alone",
        }
    }

    fn key(self) -> &'static str {
        match self {
            LagPeer::Tarn => "tarn",
            LagPeer::Mirrormaker => "mirrormaker",
            LagPeer::Source => "source",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct LagRun {
    /// Records a second.
    pub(crate) rates: Vec<u64>,
    /// Seconds that are counted at each rate.
    pub(crate) seconds: u64,
    /// How often each peer is measured.
    pub(crate) rounds: usize,
    /// Who is.
    pub(crate) peers: Vec<LagPeer>,
    /// A Python that has confluent-kafka.
    pub(crate) python: PathBuf,
    /// The source tree.
    pub(crate) root: PathBuf,
    /// The Tarn to measure.
    pub(crate) tarn: Build,
    /// Jars.
    pub(crate) kit: Kit,
    /// A directory for everything that is written.
    pub(crate) work: PathBuf,
}

/// What one peer showed at one rate in one round.
#[derive(Clone, Copy, Debug)]
struct Seen {
    peer: LagPeer,
    rate: u64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    /// Of one core, all processes of the destination.
    cpu_percent: f64,
    memory_mb: f64,
    /// Cores that everything else kept busy, but for the producer and the consumer.
    others_cores: f64,
}

const QUANTITIES: [Quantity<Seen>; 7] = [
    Quantity { key: "p50_ms", title: "p50 ms", decimals: 2, of: |seen| seen.p50 },
    Quantity { key: "p90_ms", title: "p90 ms", decimals: 2, of: |seen| seen.p90 },
    Quantity { key: "p99_ms", title: "p99 ms", decimals: 2, of: |seen| seen.p99 },
    Quantity { key: "p999_ms", title: "p99.9 ms", decimals: 2, of: |seen| seen.p999 },
    Quantity { key: "cpu_percent", title: "% of a core", decimals: 1, of: |seen| seen.cpu_percent },
    Quantity { key: "memory_peak_mb", title: "memory MB", decimals: 0, of: |seen| seen.memory_mb },
    Quantity { key: "others_cores", title: "others' cores", decimals: 2, of: |seen| seen.others_cores },
];

impl LagRun {
    /// Runs all rounds; the report as JSON and as text.
    pub(crate) fn run(&self) -> Result<(Value, String)> {
        let source = Kafka::start(&self.kit, "source", &self.work.join("source"))?;
        source.create_topic(TOPIC, 1)?;
        self.measure(source.bootstrap(), source.bootstrap(), WARMING.0, WARMING.1)?;
        let mut seen = Vec::new();
        for round in 0..self.rounds {
            let mut peers = self.peers.clone();
            let first = round % peers.len().max(1);
            peers.rotate_left(first);
            for peer in peers {
                eprintln!("round {} of {}: {}", round + 1, self.rounds, peer.title());
                let path = self.work.join(format!("round-{round}-{}", peer.key()));
                seen.extend(in_new_directory(&path, |directory| self.peer(peer, &source, directory))?);
            }
        }
        source.stop()?;
        Ok((self.json(&seen), self.text(&seen)))
    }

    fn peer(&self, peer: LagPeer, source: &Kafka, directory: &Path) -> Result<Vec<Seen>> {
        let ends = source_ends(source)?;
        match peer {
            LagPeer::Source => self.rates(peer, source, source.bootstrap(), &[source.id()]),
            LagPeer::Tarn => {
                let mut tarn = Tarn::start(&self.tarn, directory)?;
                tarn.create_mirror(source.bootstrap())?;
                tarn.start_mirror(TOPIC)?;
                Arrival::at(tarn.bootstrap(), TOPIC, ends)?.last(|| tarn.expect_running())?;
                let seen = self.rates(peer, source, tarn.bootstrap(), &[tarn.id()])?;
                tarn.stop().map(|_| seen)
            }
            LagPeer::Mirrormaker => {
                let destination = Kafka::start(&self.kit, "destination", &directory.join("kafka"))?;
                let mut mirror = MirrorMaker::start(&self.kit, source, destination, TOPIC, 1, directory)?;
                Arrival::at(mirror.bootstrap(), TOPIC, ends)?.last(|| mirror.expect_running())?;
                let seen = self.rates(peer, source, mirror.bootstrap(), &mirror.ids())?;
                mirror.stop().map(|()| seen)
            }
        }
    }

    fn rates(&self, peer: LagPeer, source: &Kafka, destination: &str, ids: &[u32]) -> Result<Vec<Seen>> {
        let at_rate = |&rate: &u64| {
            let running = Processes::new(ids, source.id()).start();
            let lags = self.measure(source.bootstrap(), destination, rate, self.seconds)?;
            let cost = running.stop();
            let ms = |name: &str| lags[name].as_f64().unwrap_or(f64::NAN);
            let memory: u64 = ids.iter().map(|id| memory_peak_bytes(&id.to_string())).sum();
            let seen = Seen {
                peer,
                rate,
                p50: ms("p50"),
                p90: ms("p90"),
                p99: ms("p99"),
                p999: ms("p999"),
                cpu_percent: 100.0 * cost.cpu_seconds / cost.seconds,
                memory_mb: memory as f64 / 1e6,
                others_cores: cost.others_cores,
            };
            eprintln!("  {rate} records/s: p50 {:.2} ms, p99 {:.2} ms", seen.p50, seen.p99);
            Ok(seen)
        };
        self.rates.iter().map(at_rate).collect()
    }

    fn measure(&self, source: &str, destination: &str, rate: u64, seconds: u64) -> Result<Value> {
        let mut command = guarded(&self.python);
        command.arg(self.root.join("perf/lag.py")).args(["--topic", TOPIC]);
        command.args(["--source", source, "--destination", destination]);
        command.args(["--rate", &rate.to_string(), "--seconds", &seconds.to_string()]);
        command.args(["--warm-up", &WARM_UP_SECONDS.to_string()]);
        let limit = Duration::from_secs(2 * (seconds + WARM_UP_SECONDS) + 180);
        let printed = run("lag.py", command, &self.work, limit)?;
        serde_json::from_str(&printed)
            .map_err(|error| Failure::Wrong(format!("lag.py printed {printed:?}: {error}")))
    }

    fn text(&self, seen: &[Seen]) -> String {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = self.write(seen, &mut text);
        text
    }

    fn write(&self, seen: &[Seen], text: &mut String) -> std::fmt::Result {
        let (seconds, rounds) = (self.seconds, self.rounds);
        writeln!(text, "{rounds} rounds of {seconds} s at each rate: median (least–most) of the rounds\n")?;
        text.write_str(&table_head(&["records/s", ""], &QUANTITIES))?;
        for ((rate, peer), seen) in grouped(seen) {
            text.write_str(&table_line(&[&rate.to_string(), peer.title()], &QUANTITIES, &seen))?;
        }
        writeln!(text)?;
        for (rate, reached) in reached(seen) {
            let (p50, p99) = TARGETS_MS;
            let word = if reached { "reached" } else { "missed" };
            writeln!(text, "Tarn at {rate}/s, p50 < {p50} ms and p99 < {p99} ms: {word}")?;
        }
        Ok(())
    }

    fn json(&self, seen: &[Seen]) -> Value {
        let result = |((rate, peer), seen): ((u64, LagPeer), Vec<Seen>)| {
            let mut value = spreads(&QUANTITIES, &seen);
            value.insert("rate".to_owned(), json!(rate));
            value.insert("peer".to_owned(), json!(peer.key()));
            value.insert("rounds".to_owned(), seen.iter().map(|seen| values(&QUANTITIES, seen)).collect());
            Value::Object(value)
        };
        let results: Vec<Value> = grouped(seen).into_iter().map(result).collect();
        let reached = reached(seen).into_iter().map(|(rate, reached)| (rate.to_string(), json!(reached)));
        json!({
            "seconds": self.seconds,
            "rounds": self.rounds,
            "results": results,
            "reached": Value::Object(reached.collect()),
        })
    }
}

fn grouped(seen: &[Seen]) -> BTreeMap<(u64, LagPeer), Vec<Seen>> {
    let mut groups: BTreeMap<_, Vec<Seen>> = BTreeMap::new();
    for one in seen {
        groups.entry((one.rate, one.peer)).or_default().push(*one);
    }
    groups
}

/// Whether Tarn's medians over the rounds are below the targets, by rate.
fn reached(seen: &[Seen]) -> Vec<(u64, bool)> {
    let of_tarn = grouped(seen).into_iter().filter(|((_, peer), _)| *peer == LagPeer::Tarn);
    of_tarn
        .map(|((rate, _), seen)| {
            let median = |of: fn(&Seen) -> f64| Spread::of(seen.iter().map(of)).map(|spread| spread.median);
            let below = |value: Option<f64>, target: f64| value.is_some_and(|value| value < target);
            let (p50, p99) = TARGETS_MS;
            (rate, below(median(|seen| seen.p50), p50) && below(median(|seen| seen.p99), p99))
        })
        .collect()
}

fn source_ends(source: &Kafka) -> Result<Vec<i64>> {
    let ends = BrokerClient::connect(source.bootstrap()).and_then(|mut broker| broker.end_offsets(TOPIC, 1));
    let ends = ends.doing(|| format!("asking {} for its end offsets", source.bootstrap()))?;
    ends.into_iter()
        .map(|end| end.ok_or_else(|| Failure::Wrong(format!("the source does not lead {TOPIC}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: LagPeer, rate: u64, p50: f64, p99: f64) -> Seen {
        Seen {
            peer,
            rate,
            p50,
            p90: p50,
            p99,
            p999: p99,
            cpu_percent: 1.0,
            memory_mb: 100.0,
            others_cores: 0.0,
        }
    }

    #[test]
    fn targets_are_held_against_the_median_of_tarns_rounds() {
        let all = [
            seen(LagPeer::Tarn, 20, 1.0, 9.0),
            seen(LagPeer::Tarn, 20, 1.5, 6.0),
            seen(LagPeer::Tarn, 20, 2.0, 7.0),
            seen(LagPeer::Tarn, 100, 3.5, 6.0),
            seen(LagPeer::Mirrormaker, 100, 1.0, 1.0),
        ];
        assert_eq!(reached(&all), [(20, true), (100, false)]);
    }
}
