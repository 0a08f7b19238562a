//! What runs with several servers and cases say: each server's middle and spread in each case, and how they
//! compare.
//!
//! Ratios are taken within a round, where the servers met the same machine, and then summed up. MB are 10^6 and
//! GB 10^9 bytes of batches, as they are sent and stored.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::clients::Done;
use crate::failure::{Doing, Result};
use crate::measure::cpu::{Cost, Processes, memory_peak_bytes};
use crate::measure::quantity::{Quantity, spreads, table_head, table_line, values};
use crate::measure::spread::Spread;
use crate::measure::target::Target;
use crate::peers::server::{Server, ServerKind};

/// What one server did once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    done: Done,
    cost: Cost,
    memory_peak_bytes: f64,
}

/// What each server did in one round of a case.
pub(crate) type Round = BTreeMap<ServerKind, Measured>;

/// One setting, and its rounds.
#[derive(Debug)]
pub(crate) struct Case {
    /// Its name in tables and in JSON.
    pub(crate) name: String,
    /// In their order.
    pub(crate) rounds: Vec<Round>,
}

/// A comparison of two servers, and what it is meant to reach.
#[derive(Clone, Copy)]
pub(crate) struct Ratio {
    /// Its name in JSON.
    pub(crate) key: &'static str,
    /// Its name in a table.
    pub(crate) title: &'static str,
    /// The second is the measure.
    pub(crate) of: (ServerKind, ServerKind),
    /// What is compared.
    pub(crate) quantity: fn(&Measured) -> f64,
    /// What it is to reach.
    pub(crate) target: Target,
}

/// All that was measured.
pub(crate) struct Report {
    /// What was done, in a sentence.
    pub(crate) said: String,
    /// The cases.
    pub(crate) cases: Vec<Case>,
    /// What is compared.
    pub(crate) ratios: &'static [Ratio],
}

const QUANTITIES: [Quantity<Measured>; 5] = [
    Quantity { key: "mb_per_second", title: "MB/s", decimals: 0, of: mb_per_second },
    Quantity { key: "cpu_seconds_per_gb", title: "server CPU-s/GB", decimals: 2, of: cpu_per_gb },
    Quantity {
        key: "requests_per_cpu_second",
        title: "requests per server CPU-s",
        decimals: 0,
        of: requests_per_cpu_second,
    },
    Quantity {
        key: "memory_peak_mb",
        title: "memory MB",
        decimals: 0,
        of: |measured| measured.memory_peak_bytes / 1e6,
    },
    Quantity {
        key: "others_cores",
        title: "others' cores",
        decimals: 2,
        of: |measured| measured.cost.others_cores,
    },
];

pub(crate) fn mb_per_second(measured: &Measured) -> f64 {
    measured.done.bytes as f64 / 1e6 / measured.cost.seconds
}

pub(crate) fn cpu_per_gb(measured: &Measured) -> f64 {
    measured.cost.cpu_seconds / (measured.done.bytes as f64 / 1e9)
}

pub(crate) fn requests_per_cpu_second(measured: &Measured) -> f64 {
    measured.done.requests as f64 / measured.cost.cpu_seconds
}

impl Measured {
    /// Runs the clients' work, and counts what it costs the server.
    pub(crate) fn of(server: &Server, work: impl FnOnce() -> std::io::Result<Done>) -> Result<Measured> {
        let running = Processes::of_server(server.id).start();
        let done = work();
        let cost = running.stop();
        let done = done.doing(|| format!("putting a load on {}", server.address))?;
        let memory_peak_bytes = memory_peak_bytes(&server.id.to_string()) as f64;
        Ok(Measured { done, cost, memory_peak_bytes })
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        format!("{:.0} MB/s, {:.2} server CPU-s/GB", mb_per_second(self), cpu_per_gb(self))
    }
}

impl Report {
    /// As JSON and as text.
    pub(crate) fn printed(&self) -> (Value, String) {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = self.write(&mut text);
        (self.json(), text)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}; median (least–most)\n", self.said)?;
        text.write_str(&table_head(&["", ""], &QUANTITIES))?;
        for case in &self.cases {
            for kind in case.kinds() {
                let first = [case.name.as_str(), kind.title()];
                text.write_str(&table_line(&first, &QUANTITIES, &case.measured(kind)))?;
            }
        }
        let mut lines = String::new();
        for case in &self.cases {
            for (ratio, spread) in case.ratios(self.ratios) {
                let (word, target) = (ratio.target.word(spread.median), ratio.target.text());
                let (title, spread) = (ratio.title, spread.text(3));
                writeln!(lines, "| {} | {title} | {spread} | {target} | {word} |", case.name)?;
            }
        }
        if !lines.is_empty() {
            writeln!(text, "\n| | ratio within a round | | to reach | |\n|---|---|---|---|---|")?;
            text.push_str(&lines);
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let cases = self.cases.iter().map(|case| (case.name.clone(), case.json(self.ratios)));
        json!({ "measured": self.said, "cases": cases.collect::<Map<String, Value>>() })
    }
}

impl Case {
    fn kinds(&self) -> Vec<ServerKind> {
        self.rounds.first().map(|round| round.keys().copied().collect()).unwrap_or_default()
    }

    fn measured(&self, kind: ServerKind) -> Vec<Measured> {
        self.rounds.iter().filter_map(|round| round.get(&kind).copied()).collect()
    }

    fn ratios<'a>(&self, ratios: &'a [Ratio]) -> Vec<(&'a Ratio, Spread)> {
        let within = |ratio: &Ratio, round: &Round| {
            let (one, other) = ratio.of;
            Some((ratio.quantity)(round.get(&one)?) / (ratio.quantity)(round.get(&other)?))
        };
        let spread = |ratio: &'a Ratio| {
            let spread = Spread::of(self.rounds.iter().filter_map(|round| within(ratio, round)))?;
            Some((ratio, spread))
        };
        ratios.iter().filter_map(spread).collect()
    }

    fn json(&self, ratios: &[Ratio]) -> Value {
        let round = |round: &Round| -> Value {
            let each =
                round.iter().map(|(kind, one)| (kind.key().to_owned(), values(&QUANTITIES, one).into()));
            Value::Object(each.collect())
        };
        let servers: Map<String, Value> = self
            .kinds()
            .into_iter()
            .map(|kind| (kind.key().to_owned(), spreads(&QUANTITIES, &self.measured(kind)).into()))
            .collect();
        let ratio = |(ratio, spread): (&Ratio, Spread)| {
            let mut value = spread.json();
            value["target"] = json!(ratio.target.text());
            value["reached"] = json!(ratio.target.is_met(spread.median));
            (ratio.key.to_owned(), value)
        };
        json!({
            "rounds": self.rounds.iter().map(round).collect::<Vec<_>>(),
            "servers": servers,
            "ratios": self.ratios(ratios).into_iter().map(ratio).collect::<Map<String, Value>>(),
        })
    }
}

/// The servers of a round in their order, which rotates, so that none always follows the same other.
pub(crate) fn rotated(kinds: &[ServerKind], round: usize) -> Vec<ServerKind> {
    let mut kinds = kinds.to_vec();
    let first = round % kinds.len().max(1);
    kinds.rotate_left(first);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: [Ratio; 1] = [Ratio {
        key: "half",
        title: "Tarn / loop, CPU per GB",
        of: (ServerKind::Tarn, ServerKind::Loop),
        quantity: cpu_per_gb,
        target: Target::AtMost(0.5),
    }];

    fn measured(cpu_seconds: f64) -> Measured {
        let cost = Cost { seconds: 2.0, cpu_seconds, source_cpu_seconds: 0.0, others_cores: 0.0 };
        let done = Done { bytes: 2_000_000_000, requests: 100 };
        Measured { done, cost, memory_peak_bytes: 1e6 }
    }

    #[test]
    fn ratios_are_taken_within_rounds_of_a_case() {
        let round = |tarn, light| {
            Round::from([(ServerKind::Tarn, measured(tarn)), (ServerKind::Loop, measured(light))])
        };
        let case = Case { name: "acks=1".to_owned(), rounds: vec![round(1.0, 4.0), round(6.0, 8.0)] };
        let report = Report { said: "two rounds".to_owned(), cases: vec![case], ratios: &HALF };
        let (json, text) = report.printed();
        let half = &json["cases"]["acks=1"]["ratios"]["half"];
        assert_eq!((half["median"].as_f64(), half["reached"].as_bool()), (Some(0.5), Some(true)));
        assert!(text.contains("| acks=1 | Tarn | 1000 (1000–1000) | 1.75 (0.50–3.00) | 58 ("), "{text}");
        assert!(text.contains("CPU per GB | 0.500 (0.250–0.750) | ≤ 0.5 | reached |"), "{text}");
    }

    #[test]
    fn the_order_rotates_from_round_to_round() {
        use ServerKind::{Kafka, Loop, Tarn};
        assert_eq!(rotated(&[Tarn, Kafka, Loop], 4), [Kafka, Loop, Tarn]);
    }
}
