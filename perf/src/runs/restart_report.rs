//! What the rounds of `perf/run.sh restart` say.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::batch::{Writer, batch};
use crate::many_topics::{ManyTopics, RECORDS, VALUE};
use crate::measure::goal::{Goal, goals_json, write_goals};
use crate::measure::quantity::{Quantity, spreads, values, write_rounds};
use crate::measure::target::Target;
use crate::peers::small_source::SourceKind;

/// A clean stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// From SIGTERM to the end of the process.
    pub(crate) took: Duration,
    /// What it used meanwhile.
    pub(crate) cpu_seconds: f64,
}

/// A start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// From the new process to the first answer to a client.
    pub(crate) serving: Duration,
    /// From the new process to all partitions MIRRORING.
    pub(crate) mirroring: Duration,
    /// What it used until then.
    pub(crate) cpu_seconds: f64,
    /// What the source said until all was compared, divided by the partitions.
    pub(crate) bytes_per_partition: f64,
    /// The cores that everything else kept busy.
    pub(crate) others_cores: f64,
}

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// With all logs as the copy left them.
    pub(crate) stop_after_copy: Stop,
    /// After that.
    pub(crate) after_stop: Start,
    /// With nothing to write.
    pub(crate) stop_at_rest: Stop,
    /// After SIGKILL.
    pub(crate) after_kill: Start,
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

const QUANTITIES: [Quantity<Round>; 14] = [
    Quantity::new("stop_after_copy_seconds", "stop after the copy, s", 2, |r| {
        seconds(r.stop_after_copy.took)
    }),
    Quantity::new("stop_after_copy_cpu_seconds", "the same, CPU-s", 2, |r| r.stop_after_copy.cpu_seconds),
    Quantity::new("stop_at_rest_seconds", "stop at rest, s", 2, |r| seconds(r.stop_at_rest.took)),
    Quantity::new("stop_at_rest_cpu_seconds", "the same, CPU-s", 2, |r| r.stop_at_rest.cpu_seconds),
    Quantity::new("serving_seconds", "start after a stop, to serving, s", 2, |r| {
        seconds(r.after_stop.serving)
    }),
    Quantity::new("mirroring_seconds", "the same to all MIRRORING, s", 2, |r| {
        seconds(r.after_stop.mirroring)
    }),
    Quantity::new("start_cpu_seconds", "the same, CPU-s", 2, |r| r.after_stop.cpu_seconds),
    Quantity::new("bytes_per_partition", "bytes from the source for a partition", 0, |r| {
        r.after_stop.bytes_per_partition
    }),
    Quantity::new("killed_serving_seconds", "start after SIGKILL, to serving, s", 2, |r| {
        seconds(r.after_kill.serving)
    }),
    Quantity::new("killed_mirroring_seconds", "the same to all MIRRORING, s", 2, |r| {
        seconds(r.after_kill.mirroring)
    }),
    Quantity::new("killed_start_cpu_seconds", "the same, CPU-s", 2, |r| r.after_kill.cpu_seconds),
    Quantity::new("killed_bytes_per_partition", "bytes from the source for a partition", 0, |r| {
        r.after_kill.bytes_per_partition
    }),
    Quantity::new("others_cores", "others' cores, after a stop", 2, |r| r.after_stop.others_cores),
    Quantity::new("killed_others_cores", "others' cores, after SIGKILL", 2, |r| r.after_kill.others_cores),
];

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// What a source says of a partition besides its batches: its name, leader, epochs and ends, in a few answers. Less
/// than a batch, so that a second one does not hide in it.
const ANSWERS_BYTES: usize = 200;

/// The goals; a batch of the source is so large.
fn goals(batch_bytes: usize) -> [Goal<Round>; 4] {
    let (soon, one_batch) = (Target::Below(10.0), Target::AtMost((batch_bytes + ANSWERS_BYTES) as f64));
    [
        Goal {
            key: "mirroring_seconds",
            title: "after a stop: all MIRRORING, s",
            of: |round| seconds(round.after_stop.mirroring),
            target: soon,
        },
        Goal {
            key: "killed_mirroring_seconds",
            title: "after SIGKILL: all MIRRORING, s",
            of: |round| seconds(round.after_kill.mirroring),
            target: soon,
        },
        Goal {
            key: "bytes_per_partition",
            title: "after a stop: one batch and what is said of it, bytes",
            of: |round| round.after_stop.bytes_per_partition,
            target: one_batch,
        },
        Goal {
            key: "killed_bytes_per_partition",
            title: "after SIGKILL: one batch and what is said of it, bytes",
            of: |round| round.after_kill.bytes_per_partition,
            target: one_batch,
        },
    ]
}

impl Round {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let start = |start: &Start| {
            format!(
                "serves after {:.2} s, all MIRRORING after {:.2} s",
                seconds(start.serving),
                seconds(start.mirroring)
            )
        };
        let stops = [self.stop_after_copy, self.stop_at_rest].map(|stop| seconds(stop.took));
        let starts = [&self.after_stop, &self.after_kill].map(start);
        format!(
            "stopped in {:.2} s, at rest in {:.2} s; {}; killed: {}",
            stops[0], stops[1], starts[0], starts[1]
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
        let source = self.source.title();
        let (topics, partitions) = (self.topics.topics(), self.topics.places().len());
        writeln!(text, "{topics} topics, {partitions} partitions, mirrored from {source} and at rest.")?;
        write_rounds(text, &QUANTITIES, &self.rounds)?;
        write_goals(text, &goals(batch_bytes()), &self.rounds)
    }

    /// As one JSON document, with every round.
    pub(crate) fn json(&self) -> Value {
        json!({
            "topics": self.topics.topics(),
            "partitions": self.topics.places().len(),
            "source": self.source.key(),
            "rounds": self.rounds.iter().map(|round| values(&QUANTITIES, round)).collect::<Vec<_>>(),
            "quantities": spreads(&QUANTITIES, &self.rounds),
            "goals": goals_json(&goals(batch_bytes()), &self.rounds),
        })
    }
}

fn batch_bytes() -> usize {
    batch(Writer::Plain, RECORDS, VALUE).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_batch_does_not_hide() {
        assert!(ANSWERS_BYTES < batch_bytes());
    }

    #[test]
    fn starts_after_a_stop_and_after_a_kill_are_told_apart() {
        let stop = Stop { took: Duration::from_secs(3), cpu_seconds: 0.5 };
        let start = |mirroring, bytes_per_partition| Start {
            serving: Duration::from_secs(1),
            mirroring: Duration::from_secs(mirroring),
            cpu_seconds: 2.0,
            bytes_per_partition,
            others_cores: 0.0,
        };
        let round = Round {
            stop_after_copy: stop,
            after_stop: start(4, 100.0),
            stop_at_rest: stop,
            after_kill: start(11, 1e6),
        };
        let report = Report { topics: ManyTopics::new(3, 2), source: SourceKind::Tarn, rounds: vec![round] };
        let goals = &report.json()["goals"];
        let reached = |key: &str| goals[key]["reached"].as_bool();
        assert_eq!(reached("mirroring_seconds"), Some(true));
        assert_eq!(reached("killed_mirroring_seconds"), Some(false));
        assert_eq!(reached("bytes_per_partition"), Some(true));
        assert_eq!(reached("killed_bytes_per_partition"), Some(false));
        assert!(report.text().contains("6 partitions, mirrored from another Tarn and at rest"));
    }
}
