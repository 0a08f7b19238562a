//! What the rounds of `perf/run.sh partitions` say.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::partitions::Held;
use crate::many_topics::ManyTopics;
use crate::measure::goal::{Goal, goals_json, write_goals};
use crate::measure::quantity::{Quantity, spreads, values, write_rounds};
use crate::measure::target::Target;

/// A start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// From the new process to the first answer to a client.
    pub(crate) serving: Duration,
    /// From the new process to the end of every partition.
    pub(crate) led: Duration,
    /// What it used until then.
    pub(crate) cpu_seconds: f64,
    /// Bytes resident then.
    pub(crate) memory: f64,
    /// The cores that everything else kept busy.
    pub(crate) others_cores: f64,
}

/// Memory without partitions, with half and with all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) empty: Held,
    pub(crate) half: Held,
    pub(crate) all: Held,
    pub(crate) half_count: usize,
    pub(crate) count: usize,
}

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Making all topics.
    pub(crate) creating: Duration,
    pub(crate) memory: Memory,
    /// Open files.
    pub(crate) descriptors: usize,
    /// Metadata for one topic, and for all.
    pub(crate) one: Duration,
    pub(crate) everything: Duration,
    /// The longest that others waited for an answer of no size meanwhile.
    pub(crate) held_up: Duration,
    /// From SIGTERM to the end of the process.
    pub(crate) stopping: Duration,
    pub(crate) after_stop: Start,
    pub(crate) after_kill: Start,
}

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    /// What was made.
    pub(crate) topics: ManyTopics,
    /// The rounds.
    pub(crate) rounds: Vec<Round>,
}

impl Memory {
    /// Bytes of the process for each partition of the second half.
    fn slope(&self) -> f64 {
        (self.all.resident - self.half.resident) / (self.count - self.half_count) as f64
    }

    /// Bytes of the kernel for each partition of the second half.
    fn slab_slope(&self) -> f64 {
        (self.all.slab - self.half.slab) / (self.count - self.half_count) as f64
    }
}

const QUANTITIES: [Quantity<Round>; 19] = [
    Quantity::new("creating_seconds", "made in, s", 1, |r| seconds(r.creating)),
    Quantity::new("bytes_per_partition", "memory, bytes for each of the second half", 0, |r| {
        r.memory.slope()
    }),
    Quantity::new("slab_per_partition", "the kernel's, the same", 0, |r| r.memory.slab_slope()),
    Quantity::new("empty_megabytes", "memory without partitions, MB", 1, |r| r.memory.empty.resident / 1e6),
    Quantity::new("megabytes", "with all, MB", 1, |r| r.memory.all.resident / 1e6),
    Quantity::new("descriptors", "open files", 0, |r| r.descriptors as f64),
    Quantity::new("one_topic_ms", "metadata of one topic, ms", 2, |r| seconds(r.one) * 1e3),
    Quantity::new("all_topics_ms", "metadata of all, ms", 1, |r| seconds(r.everything) * 1e3),
    Quantity::new("held_up_ms", "the longest that others waited meanwhile, ms", 2, |r| {
        seconds(r.held_up) * 1e3
    }),
    Quantity::new("stop_seconds", "clean stop, s", 2, |r| seconds(r.stopping)),
    Quantity::new("serving_seconds", "start after it, to serving, s", 2, |r| seconds(r.after_stop.serving)),
    Quantity::new("led_seconds", "the same to all partitions, s", 2, |r| seconds(r.after_stop.led)),
    Quantity::new("start_cpu_seconds", "the same, CPU-s", 2, |r| r.after_stop.cpu_seconds),
    Quantity::new("start_megabytes", "memory then, MB", 1, |r| r.after_stop.memory / 1e6),
    Quantity::new("killed_serving_seconds", "start after SIGKILL, to serving, s", 2, |r| {
        seconds(r.after_kill.serving)
    }),
    Quantity::new("killed_led_seconds", "the same to all partitions, s", 2, |r| seconds(r.after_kill.led)),
    Quantity::new("killed_cpu_seconds", "the same, CPU-s", 2, |r| r.after_kill.cpu_seconds),
    Quantity::new("others_cores", "others' cores, after a stop", 2, |r| r.after_stop.others_cores),
    Quantity::new("killed_others_cores", "others' cores, after SIGKILL", 2, |r| r.after_kill.others_cores),
];

const GOALS: [Goal<Round>; 4] = [
    Goal {
        key: "bytes_per_partition",
        title: "memory for each partition of the second half, bytes",
        of: |round| round.memory.slope(),
        target: Target::AtMost(4096.0),
    },
    Goal {
        key: "led_seconds",
        title: "after a stop: all partitions, s",
        of: |round| seconds(round.after_stop.led),
        target: Target::AtMost(10.0),
    },
    Goal {
        key: "killed_led_seconds",
        title: "after SIGKILL: all partitions, s",
        of: |round| seconds(round.after_kill.led),
        target: Target::AtMost(30.0),
    },
    Goal {
        key: "held_up_ms",
        title: "the longest that others waited while all were described, ms",
        of: |round| seconds(round.held_up) * 1e3,
        target: Target::AtMost(5.0),
    },
];

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

impl Round {
    /// In words.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:.0} bytes each, stopped in {:.1} s, all there after {:.1} s, killed: after {:.1} s",
            self.memory.slope(),
            seconds(self.stopping),
            seconds(self.after_stop.led),
            seconds(self.after_kill.led)
        )
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
        let (topics, partitions) = (self.topics.topics(), self.topics.places().len());
        writeln!(text, "{topics} topics, {partitions} empty partitions on one node.")?;
        write_rounds(text, &QUANTITIES, &self.rounds)?;
        write_goals(text, &GOALS, &self.rounds)
    }

    /// As one JSON document, with every round.
    pub(crate) fn json(&self) -> Value {
        json!({
            "topics": self.topics.topics(),
            "partitions": self.topics.places().len(),
            "rounds": self.rounds.iter().map(|round| values(&QUANTITIES, round)).collect::<Vec<_>>(),
            "quantities": spreads(&QUANTITIES, &self.rounds),
            "goals": goals_json(&GOALS, &self.rounds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_of_the_second_half_and_the_limits_are_told() {
        let held = |resident| Held { resident, slab: 2.0 * resident };
        let start = |led| Start {
            serving: Duration::from_secs(1),
            led: Duration::from_secs(led),
            cpu_seconds: 2.0,
            memory: 1e6,
            others_cores: 0.0,
        };
        let round = Round {
            creating: Duration::from_secs(9),
            memory: Memory {
                empty: held(1e6),
                half: held(2e6),
                all: held(2e6 + 3e5),
                half_count: 50,
                count: 150,
            },
            descriptors: 20,
            one: Duration::from_millis(1),
            everything: Duration::from_millis(40),
            held_up: Duration::from_millis(6),
            stopping: Duration::from_secs(1),
            after_stop: start(4),
            after_kill: start(31),
        };
        assert_eq!((round.memory.slope(), round.memory.slab_slope()), (3000.0, 6000.0));
        let goals = &Report { topics: ManyTopics::new(3, 50), rounds: vec![round] }.json()["goals"];
        let reached = |key: &str| goals[key]["reached"].as_bool();
        let all = ["bytes_per_partition", "led_seconds", "killed_led_seconds", "held_up_ms"].map(reached);
        assert_eq!(all, [Some(true), Some(true), Some(false), Some(false)]);
    }
}
