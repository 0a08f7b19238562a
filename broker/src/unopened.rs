//! The partitions of one core whose logs could not be opened or made, and when each is tried again.
//!
//! A full disk, or a process that has no descriptor left, is a state that passes: the partition then comes
//! into service by itself. Until it does its clients are told KAFKA_STORAGE_ERROR, as Kafka tells them of a
//! replica that is offline, and a retriable error makes them come back.
//!
//! Invariants:
//! * a partition is here from its first failure until it was opened or is no longer to be;
//! * the pause between two tries doubles from `LOG_RETRY_MS_MIN` to `LOG_RETRY_MS_MAX`;
//! * nothing here reads a clock: `now` comes with the call.

use std::collections::{BTreeMap, BTreeSet};

use tarn_record::TopicIdPartition;

use crate::limits::{LOG_RETRY_MS_MAX, LOG_RETRY_MS_MIN};

/// See the module.
#[derive(Debug, Default)]
pub struct Unopened {
    attempts: BTreeMap<TopicIdPartition, Attempts>,
    by_due: BTreeSet<(u64, TopicIdPartition)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    made: u32,
    /// When the next is due; `None` while it is under way.
    due_ms: Option<u64>,
}

impl Unopened {
    /// A log was not opened. Returns how often that was tried by now.
    pub fn failed(&mut self, partition: TopicIdPartition, now_ms: u64) -> u32 {
        let attempts = self.attempts.entry(partition).or_default();
        attempts.made = attempts.made.saturating_add(1);
        let due_ms = now_ms.saturating_add(pause_ms(attempts.made));
        if let Some(before) = attempts.due_ms.replace(due_ms) {
            self.by_due.remove(&(before, partition));
        }
        self.by_due.insert((due_ms, partition));
        attempts.made
    }

    /// The partition is open, or is not to be opened any more. Returns how often opening it had failed.
    pub fn forget(&mut self, partition: TopicIdPartition) -> u32 {
        let Some(attempts) = self.attempts.remove(&partition) else { return 0 };
        if let Some(due_ms) = attempts.due_ms {
            self.by_due.remove(&(due_ms, partition));
        }
        attempts.made
    }

    /// True for a partition that could not be opened.
    pub fn contains(&self, partition: TopicIdPartition) -> bool {
        self.attempts.contains_key(&partition)
    }

    /// The partitions whose turn has come, the longest due first. Each is told of once: `failed` gives it its
    /// next turn.
    pub fn take_due(&mut self, now_ms: u64) -> Vec<TopicIdPartition> {
        let mut due = Vec::new();
        while let Some(&(due_ms, partition)) = self.by_due.first()
            && due_ms <= now_ms
        {
            self.by_due.pop_first();
            if let Some(attempts) = self.attempts.get_mut(&partition) {
                attempts.due_ms = None;
            }
            due.push(partition);
        }
        due
    }

    /// When the next partition is to be tried.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.by_due.first().map(|(due_ms, _)| *due_ms)
    }
}

/// How long to wait after so many attempts.
fn pause_ms(made: u32) -> u64 {
    let doublings = made.saturating_sub(1).min(32);
    LOG_RETRY_MS_MIN.saturating_mul(1 << doublings).min(LOG_RETRY_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn a_log_that_fails_again_and_again_is_tried_less_and_less_often() {
        let (mut unopened, mut now_ms, mut pauses) = (Unopened::default(), 5, Vec::new());
        for made in 1..=9 {
            assert_eq!(unopened.failed(p(0), now_ms), made);
            let due_ms = unopened.next_due_ms().expect("it waits");
            pauses.push((due_ms - now_ms) / LOG_RETRY_MS_MIN);
            assert_eq!(unopened.take_due(due_ms - 1), []);
            assert_eq!(unopened.take_due(due_ms), [p(0)]);
            assert_eq!(unopened.take_due(u64::MAX), [], "it is under way");
            now_ms = due_ms;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(unopened.contains(p(0)));
        assert_eq!((unopened.forget(p(0)), unopened.contains(p(0))), (9, false));
        assert_eq!(unopened.failed(p(0), 0), 1, "what fails later begins anew");
    }

    #[test]
    fn each_partition_has_its_own_turn() {
        let mut unopened = Unopened::default();
        for (partition, now_ms) in [(0, 0), (1, 10), (2, 20), (0, 30)] {
            unopened.failed(p(partition), now_ms);
        }
        unopened.forget(p(2));
        assert!(!unopened.contains(p(2)));
        assert_eq!(unopened.take_due(LOG_RETRY_MS_MIN + 10), [p(1)]);
        assert_eq!(unopened.take_due(u64::MAX), [p(0)], "once, after its second failure");
        assert_eq!(unopened.next_due_ms(), None);
    }

    fn p(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) }
    }
}
