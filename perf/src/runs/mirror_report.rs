//! What the rounds of `perf/run.sh mirror` say: each peer's middle and spread, and how they compare.
//!
//! Ratios are taken within a round, where peers met the same machine, and then summed up. MB are 10^6 and
//! GB 10^9 bytes of the source's log.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::measure::quantity::{Quantity, spreads, table_head, table_line, values};
use crate::measure::spread::Spread;
use crate::measure::target::Target;
use crate::peers::{Copy, Peer};

/// One copy by each peer.
pub(crate) type Round = BTreeMap<Peer, Copy>;

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    /// Bytes of log that were copied each time.
    pub(crate) bytes: u64,
    /// The records in them.
    pub(crate) records: u64,
    /// The response size that the loop used.
    pub(crate) response_bytes: i32,
    /// How that size was found.
    pub(crate) trials: Vec<Trial>,
    /// The rounds.
    pub(crate) rounds: Vec<Round>,
}

/// The loop with one response size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// The size.
    pub(crate) response_bytes: i32,
    /// MB a second.
    pub(crate) mb_per_second: f64,
    cpu_per_gb: f64,
}

const QUANTITIES: [Quantity<Copy>; 7] = [
    Quantity { key: "mb_per_second", title: "MB/s", decimals: 0, of: mb_per_second },
    Quantity { key: "cpu_seconds_per_gb", title: "CPU-s/GB", decimals: 2, of: cpu_per_gb },
    Quantity {
        key: "source_cpu_seconds_per_gb",
        title: "source CPU-s/GB",
        decimals: 2,
        of: |copy| copy.cost.source_cpu_seconds / gigabytes(copy),
    },
    Quantity {
        key: "first_after_seconds",
        title: "first record after s",
        decimals: 2,
        of: |copy| copy.first_after_seconds,
    },
    Quantity { key: "whole_seconds", title: "whole copy s", decimals: 2, of: |copy| copy.whole_seconds },
    Quantity {
        key: "memory_peak_mb",
        title: "memory MB",
        decimals: 0,
        of: |copy| copy.memory_peak_bytes / 1e6,
    },
    Quantity { key: "others_cores", title: "others' cores", decimals: 2, of: |copy| copy.cost.others_cores },
];

/// A comparison of two peers, and what it is meant to reach.
struct Ratio {
    key: &'static str,
    title: &'static str,
    peers: (Peer, Peer),
    of: fn(&Copy) -> f64,
    target: Target,
}

const RATIOS: [Ratio; 3] = [
    Ratio {
        key: "tarn_loop_mb_per_second",
        title: "Tarn / loop, MB/s",
        peers: (Peer::Tarn, Peer::Loop),
        of: mb_per_second,
        target: Target::AtLeast(0.7),
    },
    Ratio {
        key: "tarn_loop_cpu_per_gb",
        title: "Tarn / loop, CPU per GB",
        peers: (Peer::Tarn, Peer::Loop),
        of: cpu_per_gb,
        target: Target::AtMost(1.6),
    },
    Ratio {
        key: "tarn_mirrormaker_cpu_per_gb",
        title: "Tarn / MirrorMaker 2 + its broker, CPU per GB",
        peers: (Peer::Tarn, Peer::Mirrormaker),
        of: cpu_per_gb,
        target: Target::AtMost(0.05),
    },
];

fn gigabytes(copy: &Copy) -> f64 {
    copy.bytes / 1e9
}

fn mb_per_second(copy: &Copy) -> f64 {
    copy.bytes / 1e6 / copy.cost.seconds
}

fn cpu_per_gb(copy: &Copy) -> f64 {
    copy.cost.cpu_seconds / gigabytes(copy)
}

impl Trial {
    /// What a copy showed.
    pub(crate) fn of(response_bytes: i32, copy: &Copy) -> Trial {
        Trial { response_bytes, mb_per_second: mb_per_second(copy), cpu_per_gb: cpu_per_gb(copy) }
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        format!("{:.0} MB/s, {:.2} CPU-s/GB", self.mb_per_second, self.cpu_per_gb)
    }
}

impl Report {
    /// As tables.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let (rounds, records, gb) = (self.rounds.len(), self.records, self.bytes as f64 / 1e9);
        writeln!(text, "{records} records, {gb:.2} GB of log, {rounds} rounds: median (least–most)\n")?;
        text.write_str(&table_head(&[""], &QUANTITIES))?;
        for peer in self.peers() {
            text.write_str(&table_line(&[peer.title()], &QUANTITIES, &self.copies(peer)))?;
        }
        let ratios: Vec<(&Ratio, Spread)> =
            RATIOS.iter().filter_map(|ratio| Some((ratio, self.ratio(ratio)?))).collect();
        if !ratios.is_empty() {
            writeln!(text, "\n| ratio within a round | | to reach | |\n|---|---|---|---|")?;
        }
        for (ratio, spread) in ratios {
            let (reached, target) = (ratio.target.word(spread.median), ratio.target.text());
            writeln!(text, "| {} | {} | {target} | {reached} |", ratio.title, spread.text(3))?;
        }
        if self.peers().contains(&Peer::Loop) {
            writeln!(text, "\nThe loop asked for responses of {} KiB.", self.response_bytes >> 10)?;
        }
        Ok(())
    }

    /// As one JSON document, with every round.
    pub(crate) fn json(&self) -> Value {
        let peers: Map<String, Value> = self
            .peers()
            .into_iter()
            .map(|peer| (peer.key().to_owned(), spreads(&QUANTITIES, &self.copies(peer)).into()))
            .collect();
        let ratios: Map<String, Value> = RATIOS
            .iter()
            .filter_map(|ratio| {
                let spread = self.ratio(ratio)?;
                let mut value = spread.json();
                value["target"] = json!(ratio.target.text());
                value["reached"] = json!(ratio.target.is_met(spread.median));
                Some((ratio.key.to_owned(), value))
            })
            .collect();
        json!({
            "records": self.records,
            "bytes": self.bytes,
            "loop_response_bytes": self.response_bytes,
            "loop_trials": self.trials.iter().map(|trial| json!({
                "response_bytes": trial.response_bytes,
                "mb_per_second": trial.mb_per_second,
                "cpu_seconds_per_gb": trial.cpu_per_gb,
            })).collect::<Vec<_>>(),
            "rounds": self.rounds.iter().map(round_json).collect::<Vec<_>>(),
            "peers": peers,
            "ratios": ratios,
        })
    }

    fn peers(&self) -> Vec<Peer> {
        self.rounds.first().map(|round| round.keys().copied().collect()).unwrap_or_default()
    }

    fn copies(&self, peer: Peer) -> Vec<Copy> {
        self.rounds.iter().filter_map(|round| round.get(&peer).copied()).collect()
    }

    fn ratio(&self, ratio: &Ratio) -> Option<Spread> {
        let (one, other) = ratio.peers;
        Spread::of(
            self.rounds
                .iter()
                .filter_map(|round| Some((ratio.of)(round.get(&one)?) / (ratio.of)(round.get(&other)?))),
        )
    }
}

fn round_json(round: &Round) -> Value {
    let copies = round.iter().map(|(peer, copy)| (peer.key().to_owned(), values(&QUANTITIES, copy).into()));
    Value::Object(copies.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cpu::Cost;

    fn copy(seconds: f64, cpu_seconds: f64) -> Copy {
        let cost = Cost { seconds, cpu_seconds, source_cpu_seconds: 0.5, others_cores: 0.0 };
        Copy { bytes: 2e9, cost, first_after_seconds: 0.1, whole_seconds: seconds, memory_peak_bytes: 1e8 }
    }

    fn report(rounds: Vec<Round>) -> Report {
        Report {
            bytes: 2_000_000_000,
            records: 1_950_000,
            response_bytes: 1 << 20,
            trials: Vec::new(),
            rounds,
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let quick = Round::from([(Peer::Tarn, copy(2.0, 2.0)), (Peer::Loop, copy(2.0, 1.0))]);
        let slow = Round::from([(Peer::Tarn, copy(20.0, 3.0)), (Peer::Loop, copy(10.0, 2.0))]);
        let json = report(vec![quick, slow]).json();
        let speed = &json["ratios"]["tarn_loop_mb_per_second"];
        assert_eq!((speed["min"].as_f64(), speed["max"].as_f64()), (Some(0.5), Some(1.0)));
        assert_eq!((speed["median"].as_f64(), speed["reached"].as_bool()), (Some(0.75), Some(true)));
        let cpu = &json["ratios"]["tarn_loop_cpu_per_gb"];
        assert_eq!((cpu["median"].as_f64(), cpu["reached"].as_bool()), (Some(1.75), Some(false)));
        assert!(json["ratios"].get("tarn_mirrormaker_cpu_per_gb").is_none());
    }

    #[test]
    fn the_table_has_a_line_for_each_peer_and_says_what_is_missed() {
        let round = Round::from([(Peer::Tarn, copy(4.0, 2.0)), (Peer::Mirrormaker, copy(20.0, 40.0))]);
        let text = report(vec![round]).text();
        assert!(text.contains("| Tarn | 500 (500–500) | 1.00 (1.00–1.00) |"), "{text}");
        assert!(
            text.contains("| MirrorMaker 2 + its broker | 100 (100–100) | 20.00 (20.00–20.00) |"),
            "{text}"
        );
        assert!(text.contains("CPU per GB | 0.050 (0.050–0.050) | ≤ 0.05 | reached |"), "{text}");
        assert!(!text.contains("copy loop"), "{text}");
    }
}
