//! What the rounds of `perf/run.sh failover` say.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::many_topics::ManyTopics;
use crate::measure::cpu::Cost;
use crate::measure::goal::{Goal, goals_json, write_goals};
use crate::measure::quantity::{Quantity, spreads, values, write_rounds};
use crate::measure::target::Target;
use crate::measure::writable::FirstWrites;
use crate::peers::small_source::SourceKind;

/// What one round showed.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// From `mirror start` to all partitions copied.
    pub(crate) copied: Duration,
    /// From the command to each partition's first write.
    pub(crate) writes: FirstWrites,
    /// What Tarn used from the command to the last first write.
    pub(crate) cost: Cost,
    /// The most memory that Tarn had resident.
    pub(crate) memory_peak_bytes: f64,
}

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    /// What was mirrored.
    pub(crate) topics: ManyTopics,
    /// From whom.
    pub(crate) source: SourceKind,
    /// The rounds.
    pub(crate) rounds: Vec<Round>,
}

const QUANTITIES: [Quantity<Round>; 9] = [
    Quantity {
        key: "writable_p50_ms",
        title: "writable after, p50 ms",
        decimals: 0,
        of: |r| r.after_ms(0.5),
    },
    Quantity { key: "writable_p99_ms", title: "writable after, p99 ms", decimals: 0, of: p99_ms },
    Quantity {
        key: "writable_max_ms",
        title: "writable after, max ms",
        decimals: 0,
        of: |r| r.after_ms(1.0),
    },
    Quantity {
        key: "turn_max_ms",
        title: "asked again after at most ms",
        decimals: 0,
        of: |round| ms(round.writes.turn_max),
    },
    Quantity {
        key: "failover_cpu_seconds",
        title: "failover, CPU-s",
        decimals: 2,
        of: |round| round.cost.cpu_seconds,
    },
    Quantity {
        key: "copied_seconds",
        title: "start of the mirror to all copied, s",
        decimals: 2,
        of: |round| round.copied.as_secs_f64(),
    },
    Quantity {
        key: "memory_peak_mb",
        title: "memory, MB",
        decimals: 0,
        of: |round| round.memory_peak_bytes / 1e6,
    },
    Quantity { key: "failover_seconds", title: "failover, s", decimals: 2, of: |round| round.cost.seconds },
    Quantity {
        key: "others_cores",
        title: "others' cores",
        decimals: 2,
        of: |round| round.cost.others_cores,
    },
];

const GOALS: [Goal<Round>; 1] = [Goal {
    key: "writable_p99_ms",
    title: "failover: p99 from the command to writable, ms",
    of: p99_ms,
    target: Target::Below(5_000.0),
}];

fn p99_ms(round: &Round) -> f64 {
    round.after_ms(0.99)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Round {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let (p50, p99, most) = (self.after_ms(0.5), self.after_ms(0.99), self.after_ms(1.0));
        let copied = self.copied.as_secs_f64();
        format!("writable p50 {p50:.0}, p99 {p99:.0}, max {most:.0} ms; copied {copied:.1} s")
    }

    /// The time within which this part of the partitions took a write.
    fn after_ms(&self, part: f64) -> f64 {
        let after = &self.writes.after;
        let within = (after.len() as f64 * part).ceil() as usize;
        after.get(within.saturating_sub(1)).map_or(f64::NAN, |after| ms(*after))
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
        let source = self.source.title();
        let (topics, partitions) = (self.topics.topics(), self.topics.places().len());
        writeln!(text, "{topics} topics, {partitions} partitions, mirrored from {source}, which is killed.")?;
        write_rounds(text, &QUANTITIES, &self.rounds)?;
        write_goals(text, &GOALS, &self.rounds)
    }

    /// As one JSON document, with every round.
    pub(crate) fn json(&self) -> Value {
        json!({
            "topics": self.topics.topics(),
            "partitions": self.topics.places().len(),
            "source": self.source.key(),
            "rounds": self.rounds.iter().map(|round| values(&QUANTITIES, round)).collect::<Vec<_>>(),
            "quantities": spreads(&QUANTITIES, &self.rounds),
            "goals": goals_json(&GOALS, &self.rounds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round whose partitions were writable after 1, 2, … of these milliseconds.
    fn round(partitions: u64) -> Round {
        let after = (1..=partitions).map(Duration::from_millis).collect();
        Round {
            copied: Duration::from_secs(1),
            writes: FirstWrites { after, turn_max: Duration::from_millis(20) },
            cost: Cost { seconds: 1.0, cpu_seconds: 0.7, source_cpu_seconds: 0.0, others_cores: 0.0 },
            memory_peak_bytes: 1e8,
        }
    }

    #[test]
    fn a_part_of_the_partitions_is_writable_within_its_percentile() {
        let round = round(200);
        assert_eq!([0.5, 0.99, 1.0].map(|part| round.after_ms(part)), [100.0, 198.0, 200.0]);
    }

    #[test]
    fn the_goal_is_held_against_the_median_of_the_rounds() {
        let rounds = vec![round(4_000), round(6_000), round(5_000)];
        let report = Report { topics: ManyTopics::new(3, 2), source: SourceKind::Tarn, rounds };
        let goals = &report.json()["goals"];
        assert_eq!(goals["writable_p99_ms"]["median"].as_f64(), Some(4_950.0));
        let text = report.text();
        assert!(text.contains("3 topics, 6 partitions, mirrored from another Tarn"), "{text}");
        assert!(text.contains("4950.00 (3960.00–5940.00) | < 5000 | reached |"), "{text}");
    }
}
