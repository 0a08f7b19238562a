//! Which log is compacted next: Kafka's rule.
//!
//! One that is overdue by `max.compaction.lag.ms` comes first, the longest overdue of several; then the one with the
//! largest dirty part, where that is more than `min.cleanable.dirty.ratio`. Each core proposes its best few, and the
//! threads work these off before they ask again: no list of all partitions is made.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tarn_record::TopicIdPartition;

use super::numbers::Uncleanable;

/// A log that is to be compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The partition.
    pub partition: TopicIdPartition,
    /// By how much it is overdue, in ms; 0 where it is not.
    pub overdue_ms: i64,
    /// The dirty part of it, from 0 to 1.
    pub ratio: f64,
}

/// What a core says of its compacted logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// The best, the best first.
    pub best: Vec<Candidate>,
    /// What cannot be compacted, by log directory.
    pub uncleanable: BTreeMap<PathBuf, Uncleanable>,
    /// The largest dirty part of a log, whether it is to be compacted yet or not.
    pub max_ratio: f64,
    /// By how much the one that waits for the longest is overdue.
    pub max_overdue_ms: i64,
}

impl Candidate {
    /// Whether it comes before (`Less`) or after another.
    pub(super) fn order(&self, other: &Candidate) -> Ordering {
        other.overdue_ms.cmp(&self.overdue_ms).then(other.ratio.total_cmp(&self.ratio))
    }
}

impl Candidates {
    /// Takes one in, if it is among the best `most`.
    pub(super) fn propose(&mut self, candidate: Candidate, most: usize) {
        let at = self.best.partition_point(|better| better.order(&candidate) != Ordering::Greater);
        if at < most {
            self.best.insert(at, candidate);
            self.best.truncate(most);
        }
    }

    /// A log in this directory, of which so many bytes wait for compaction, cannot be compacted.
    pub(super) fn add_uncleanable(&mut self, dir: &Path, what: Uncleanable) {
        if !self.uncleanable.contains_key(dir) {
            self.uncleanable.insert(dir.to_owned(), Uncleanable::default());
        }
        if let Some(known) = self.uncleanable.get_mut(dir) {
            known.partitions += what.partitions;
            known.bytes += what.bytes;
        }
    }

    /// Takes in what another core says.
    pub(super) fn merge(&mut self, other: &Candidates) {
        other.uncleanable.iter().for_each(|(dir, what)| self.add_uncleanable(dir, *what));
        self.max_ratio = self.max_ratio.max(other.max_ratio);
        self.max_overdue_ms = self.max_overdue_ms.max(other.max_overdue_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn the_overdue_come_first_and_then_the_dirtiest() {
        let mut candidates = Candidates::default();
        for (partition, overdue_ms, ratio) in
            [(0, 0, 0.6), (1, 5, 0.1), (2, 0, 0.9), (3, 70, 0.2), (4, 0, 0.7)]
        {
            candidates.propose(candidate(partition, overdue_ms, ratio), 4);
        }
        let found: Vec<i32> = candidates.best.iter().map(|best| best.partition.partition.0).collect();
        assert_eq!(found, [3, 1, 2, 4]);
    }

    fn candidate(partition: i32, overdue_ms: i64, ratio: f64) -> Candidate {
        let partition =
            TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) };
        Candidate { partition, overdue_ms, ratio }
    }
}
