//! What runs with several servers and cases say: each server's middle and spread in each case, and how they
//! compare.
//!
//! Servers take turns within a round. Ratios are taken within a round, where the servers met the same machine, and
//! then summed up.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::failure::Result;
use crate::measure::quantity::{Quantity, spreads, table_head, table_line, values};
use crate::measure::spread::Spread;
use crate::measure::target::Target;
use crate::peers::server::ServerKind;

/// What each server did in one round of a case.
pub(crate) type Round<T> = BTreeMap<ServerKind, T>;

/// One setting, and its rounds.
#[derive(Debug)]
pub(crate) struct Case<T> {
    /// Its name in tables and in JSON.
    pub(crate) name: String,
    /// In their order.
    pub(crate) rounds: Vec<Round<T>>,
}

/// A comparison of two servers, and what it is meant to reach.
#[derive(Clone, Copy)]
pub(crate) struct Ratio<T> {
    /// Its name in JSON.
    pub(crate) key: &'static str,
    /// Its name in a table.
    pub(crate) title: &'static str,
    /// The second is the measure.
    pub(crate) of: (ServerKind, ServerKind),
    /// What is compared.
    pub(crate) quantity: fn(&T) -> f64,
    /// What it is to reach.
    pub(crate) target: Target,
}

/// What is told and what is compared.
pub(crate) struct Columns<T: 'static> {
    /// Of each server.
    pub(crate) quantities: &'static [Quantity<T>],
    /// Of two.
    pub(crate) ratios: &'static [Ratio<T>],
}

/// All that was measured.
pub(crate) struct Report<T: 'static> {
    /// What was done, in a sentence.
    pub(crate) said: String,
    /// The cases.
    pub(crate) cases: Vec<Case<T>>,
    /// What is told of them.
    pub(crate) columns: Columns<T>,
}

impl<T> Columns<T> {
    /// Measures all cases, named so, in so many rounds: each server once in each case and round. `measure` gets the
    /// number of the case.
    pub(crate) fn measured(
        &self,
        names: Vec<String>,
        (peers, rounds): (&[ServerKind], usize),
        mut measure: impl FnMut(usize, ServerKind) -> Result<T>,
    ) -> Result<Vec<Case<T>>> {
        let mut cases: Vec<_> = names.into_iter().map(|name| Case { name, rounds: Vec::new() }).collect();
        for round in 0..rounds {
            for (number, case) in cases.iter_mut().enumerate() {
                let mut measured = Round::new();
                for kind in rotated(peers, round) {
                    let one = measure(number, kind)?;
                    let (name, kind_title, text) = (&case.name, kind.title(), self.text(&one));
                    eprintln!("round {} of {rounds}: {name}: {kind_title}: {text}", round + 1);
                    measured.insert(kind, one);
                }
                case.rounds.push(measured);
            }
        }
        Ok(cases)
    }

    /// One measurement in words.
    fn text(&self, one: &T) -> String {
        let each = self.quantities.iter().map(|quantity| {
            let (decimals, value) = (quantity.decimals, (quantity.of)(one));
            format!("{value:.decimals$} {}", quantity.title)
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

impl<T: Clone> Report<T> {
    /// As JSON and as text.
    pub(crate) fn printed(&self) -> (Value, String) {
        let mut text = String::new();
        // A string takes whatever is written.
        let _ = self.write(&mut text);
        (self.json(), text)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Columns { quantities, ratios } = self.columns;
        writeln!(text, "{}; median (least–most)\n", self.said)?;
        text.write_str(&table_head(&["", ""], quantities))?;
        for case in &self.cases {
            for kind in case.kinds() {
                let first = [case.name.as_str(), kind.title()];
                text.write_str(&table_line(&first, quantities, &case.measured(kind)))?;
            }
        }
        let mut lines = String::new();
        for case in &self.cases {
            for (ratio, spread) in case.ratios(ratios) {
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
        let cases = self.cases.iter().map(|case| (case.name.clone(), case.json(&self.columns)));
        json!({ "measured": self.said, "cases": cases.collect::<Map<String, Value>>() })
    }
}

impl<T: Clone> Case<T> {
    fn kinds(&self) -> Vec<ServerKind> {
        self.rounds.first().map(|round| round.keys().copied().collect()).unwrap_or_default()
    }

    fn measured(&self, kind: ServerKind) -> Vec<T> {
        self.rounds.iter().filter_map(|round| round.get(&kind).cloned()).collect()
    }

    fn ratios<'a>(&self, ratios: &'a [Ratio<T>]) -> Vec<(&'a Ratio<T>, Spread)> {
        let within = |ratio: &Ratio<T>, round: &Round<T>| {
            let (one, other) = ratio.of;
            Some((ratio.quantity)(round.get(&one)?) / (ratio.quantity)(round.get(&other)?))
        };
        let spread = |ratio: &'a Ratio<T>| {
            let spread = Spread::of(self.rounds.iter().filter_map(|round| within(ratio, round)))?;
            Some((ratio, spread))
        };
        ratios.iter().filter_map(spread).collect()
    }

    fn json(&self, columns: &Columns<T>) -> Value {
        let quantities = columns.quantities;
        let round = |round: &Round<T>| -> Value {
            let each =
                round.iter().map(|(kind, one)| (kind.key().to_owned(), values(quantities, one).into()));
            Value::Object(each.collect())
        };
        let servers: Map<String, Value> = self
            .kinds()
            .into_iter()
            .map(|kind| (kind.key().to_owned(), spreads(quantities, &self.measured(kind)).into()))
            .collect();
        let ratio = |(ratio, spread): (&Ratio<T>, Spread)| {
            let mut value = spread.json();
            value["target"] = json!(ratio.target.text());
            value["reached"] = json!(ratio.target.is_met(spread.median));
            (ratio.key.to_owned(), value)
        };
        json!({
            "rounds": self.rounds.iter().map(round).collect::<Vec<_>>(),
            "servers": servers,
            "ratios": self.ratios(columns.ratios).into_iter().map(ratio).collect::<Map<String, Value>>(),
        })
    }
}

/// The servers of a round in their order, which rotates, so that none always follows the same other.
fn rotated(kinds: &[ServerKind], round: usize) -> Vec<ServerKind> {
    let mut kinds = kinds.to_vec();
    let first = round % kinds.len().max(1);
    kinds.rotate_left(first);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Columns<f64> = Columns {
        quantities: &[Quantity { key: "seconds", title: "s", decimals: 2, of: |seconds| *seconds }],
        ratios: &[Ratio {
            key: "half",
            title: "Tarn / loop, s",
            of: (ServerKind::Tarn, ServerKind::Loop),
            quantity: |seconds| *seconds,
            target: Target::AtMost(0.5),
        }],
    };

    #[test]
    fn ratios_are_taken_within_rounds_of_a_case() {
        let round = |tarn, light| Round::from([(ServerKind::Tarn, tarn), (ServerKind::Loop, light)]);
        let case = Case { name: "acks=1".to_owned(), rounds: vec![round(1.0, 4.0), round(6.0, 8.0)] };
        let report = Report { said: "two rounds".to_owned(), cases: vec![case], columns: SECONDS };
        let (json, text) = report.printed();
        let half = &json["cases"]["acks=1"]["ratios"]["half"];
        assert_eq!((half["median"].as_f64(), half["reached"].as_bool()), (Some(0.5), Some(true)));
        assert!(text.contains("| acks=1 | Tarn | 3.50 (1.00–6.00) |"), "{text}");
        assert!(text.contains("Tarn / loop, s | 0.500 (0.250–0.750) | ≤ 0.5 | reached |"), "{text}");
    }

    #[test]
    fn each_server_is_measured_once_in_each_case_and_round_and_the_order_rotates() {
        use ServerKind::{Kafka, Loop, Tarn};
        let mut order = Vec::new();
        let names = vec!["one".to_owned(), "two".to_owned()];
        let cases = SECONDS
            .measured(names, (&[Tarn, Kafka, Loop], 2), |case, kind| {
                order.push((case, kind));
                Ok(order.len() as f64)
            })
            .unwrap();
        assert_eq!(order[..4], [(0, Tarn), (0, Kafka), (0, Loop), (1, Tarn)]);
        assert_eq!(order[6..9], [(0, Kafka), (0, Loop), (0, Tarn)]);
        assert_eq!((cases[1].name.as_str(), cases[1].rounds[1][&Tarn]), ("two", 12.0));
    }
}
