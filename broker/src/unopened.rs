//! The partitions of one core whose logs are not open: those that a crash left, until their turn to be recovered
//! comes, those that could not be opened or made, until they are tried again, and those that wait for their place.
//!
//! A full disk, or a process that has no descriptor left, is a state that passes: the partition then comes
//! into service by itself. Until it does its clients are told KAFKA_STORAGE_ERROR, as Kafka tells them of a
//! replica that is offline, and a retriable error makes them come back. One that is only waiting for its turn is
//! about to be there, and its clients are told NOT_LEADER_OR_FOLLOWER.
//!
//! Invariants:
//! * a partition is here from when it is queued, or from its first failure, until it was opened or is no longer to be;
//! * an attempt is under way from when its turn was taken until it has ended, also where the partition is no
//!   longer to be opened meanwhile; none begins once the core stops;
//! * the pause between two tries doubles from `LOG_RETRY_MS_MIN` to `LOG_RETRY_MS_MAX`; that between two looks whether
//!   there is a place from a millisecond to `LOG_RETRY_MS_MIN`;
//! * who waits for its place is looked at when it is due, before those whose turn may take long: it costs them nothing;
//! * a log that is deleted while it is being opened goes when that has ended: nobody may have its place before;
//! * nothing here reads a clock: `now` comes with the call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_record::TopicIdPartition;

use crate::limits::{LOG_RETRY_MS_MAX, LOG_RETRY_MS_MIN};

/// See the module.
#[derive(Debug, Default)]
pub struct Unopened {
    attempts: BTreeMap<TopicIdPartition, Attempts>,
    by_due: BTreeSet<(u64, TopicIdPartition)>,
    /// The same of those that wait for their places.
    postponed: BTreeSet<(u64, TopicIdPartition)>,
    /// How many wait for their first turn.
    queued: usize,
    under_way: BTreeSet<TopicIdPartition>,
    /// Those of the logs whose opening is under way that are to be deleted after it.
    doomed: Vec<Doomed>,
    is_over: bool,
}

/// A log that is to be deleted once its opening has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its topic's name.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: TopicIdPartition,
    /// How long its files stay.
    pub delay_ms: i64,
}

/// Whose recovery comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Topics of the node's own: others rest on them.
    Internal,
    /// All others.
    Ordinary,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    made: u32,
    /// When the next is due; `None` while it is under way, and where there is to be none.
    due_ms: Option<u64>,
    /// It waits for its place, not for the others, and was put off so often.
    postponed: u32,
}

impl Attempts {
    /// True where a log waits for its first turn.
    fn is_queued(&self) -> bool {
        self.is_first() && self.due_ms.is_some()
    }

    /// True where its first turn has not come yet, or is under way.
    fn is_first(&self) -> bool {
        self.made == 0 && self.postponed == 0
    }
}

impl Unopened {
    /// A log is to be recovered at its turn: that of the smallest rank comes first, and all before any that failed.
    pub fn queue(&mut self, partition: TopicIdPartition, rank: Rank) {
        let due_ms = rank as u64;
        self.forget(partition);
        self.attempts.insert(partition, Attempts { due_ms: Some(due_ms), ..Attempts::default() });
        self.by_due.insert((due_ms, partition));
        self.queued += 1;
    }

    /// A log has no place yet, which is no failure: it is looked at again soon. Returns how often it was put off for the
    /// longest pause by now; 0 as long as that is no wait to speak of.
    pub fn postpone(&mut self, partition: TopicIdPartition, now_ms: u64) -> u32 {
        let Attempts { made, postponed, .. } = self.take(partition).unwrap_or_default();
        let due_ms = now_ms.saturating_add((1 << postponed.min(32)).min(LOG_RETRY_MS_MIN));
        let postponed = postponed.saturating_add(1);
        self.attempts.insert(partition, Attempts { made, due_ms: Some(due_ms), postponed });
        self.postponed.insert((due_ms, partition));
        postponed.saturating_sub(LOG_RETRY_MS_MIN.ilog2() + 1)
    }

    /// How many logs wait for their first turn.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// A log was not opened. Returns how often that was tried by now.
    pub fn failed(&mut self, partition: TopicIdPartition, now_ms: u64) -> u32 {
        let made = self.forget(partition).saturating_add(1);
        let due_ms = now_ms.saturating_add(pause_ms(made));
        self.attempts.insert(partition, Attempts { made, due_ms: Some(due_ms), ..Attempts::default() });
        self.by_due.insert((due_ms, partition));
        made
    }

    /// The partition is not to be opened, and counts as one that could not be.
    pub fn keep_out(&mut self, partition: TopicIdPartition) {
        let made = self.forget(partition).max(1);
        self.attempts.insert(partition, Attempts { made, ..Attempts::default() });
    }

    /// The partition is open, or is not to be opened any more. Returns how often opening it had failed.
    pub fn forget(&mut self, partition: TopicIdPartition) -> u32 {
        self.take(partition).map_or(0, |attempts| attempts.made)
    }

    fn take(&mut self, partition: TopicIdPartition) -> Option<Attempts> {
        let attempts = self.attempts.remove(&partition)?;
        self.queued -= usize::from(attempts.is_queued());
        if let Some(due_ms) = attempts.due_ms {
            let turns = if attempts.postponed > 0 { &mut self.postponed } else { &mut self.by_due };
            turns.remove(&(due_ms, partition));
        }
        Some(attempts)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// How many could not be opened, or never will be: not those whose turn has not come yet.
    pub fn offline(&self) -> usize {
        self.attempts.values().filter(|attempts| attempts.made > 0).count()
    }

    /// The logs whose first turn has not come yet, or is under way.
    pub fn to_recover(&self) -> Vec<TopicIdPartition> {
        if self.queued == 0 && self.under_way.is_empty() {
            return Vec::new();
        }
        self.attempts
            .iter()
            .filter(|(_, attempts)| attempts.is_first())
            .map(|(partition, _)| *partition)
            .collect()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// True for a partition that could not be opened, not for one whose turn has not come yet.
    pub fn has_failed(&self, partition: TopicIdPartition) -> bool {
        self.attempts.get(&partition).is_some_and(|attempts| attempts.made > 0)
    }

    /// True for a partition whose log is not open.
    pub fn contains(&self, partition: TopicIdPartition) -> bool {
        self.attempts.contains_key(&partition)
    }

    /// Begins an attempt of the partition that is due for the longest time, and where none of it has failed, of up to
    /// `most` of those of the same kind that are due after it: those that wait for their places, or else those whose
    /// first turn it is. `failed` gives each its next turn. An attempt is under way until `ended`, and no other begins
    /// before all have.
    pub fn begin_due(&mut self, now_ms: u64, most: usize) -> Vec<TopicIdPartition> {
        let mut begun = Vec::new();
        if self.is_over || !self.under_way.is_empty() {
            return begun;
        }
        let is_place_due = self.postponed.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms);
        let turns = if is_place_due { &mut self.postponed } else { &mut self.by_due };
        while begun.len() < most
            && let Some(&(due_ms, partition)) = turns.first()
            && due_ms <= now_ms
        {
            let has_failed = self.attempts.get(&partition).is_some_and(|attempts| attempts.made > 0);
            // What has failed before may fail with all that is tried together with it.
            if has_failed && !begun.is_empty() {
                break;
            }
            turns.pop_first();
            if let Some(attempts) = self.attempts.get_mut(&partition) {
                self.queued -= usize::from(attempts.is_queued());
                attempts.due_ms = None;
            }
            begun.push(partition);
            if has_failed {
                break;
            }
        }
        self.under_way.extend(&begun);
        begun
    }

    /// An attempt that was under way has ended.
    pub fn ended(&mut self, partition: TopicIdPartition) {
        self.under_way.remove(&partition);
    }

    /// A partition was deleted. True where its log is being opened, and so is to be deleted when that has ended.
    pub fn doom(&mut self, doomed: &Doomed) -> bool {
        let is_under_way = self.under_way.contains(&doomed.partition);
        if is_under_way {
            self.doomed.push(doomed.clone());
        }
        is_under_way
    }

    /// What is to become of a log whose opening is about to end, where it was deleted meanwhile.
    pub fn take_doomed(&mut self, partition: TopicIdPartition) -> Option<Doomed> {
        let number = self.doomed.iter().position(|doomed| doomed.partition == partition)?;
        Some(self.doomed.swap_remove(number))
    }

    /// The partitions whose logs are being opened.
    pub fn under_way(&self) -> &BTreeSet<TopicIdPartition> {
        &self.under_way
    }

    /// No attempt begins any more: the core stops.
    pub fn stop(&mut self) {
        self.is_over = true;
    }

    /// When the next partition is to be tried.
    pub fn next_due_ms(&self) -> Option<u64> {
        let next = self.by_due.first().into_iter().chain(self.postponed.first());
        next.map(|(due_ms, _)| *due_ms).min().filter(|_| !self.is_over)
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
            assert_eq!(begin(&mut unopened, due_ms - 1), None);
            assert_eq!(begin(&mut unopened, due_ms), Some(p(0)));
            assert_eq!(begin(&mut unopened, u64::MAX), None, "it is under way");
            assert_eq!(unopened.under_way(), &BTreeSet::from([p(0)]));
            unopened.ended(p(0));
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
        assert_eq!(begin(&mut unopened, LOG_RETRY_MS_MIN + 10), Some(p(1)));
        unopened.ended(p(1));
        assert_eq!(begin(&mut unopened, LOG_RETRY_MS_MIN + 10), None);
        assert_eq!(begin(&mut unopened, u64::MAX), Some(p(0)), "once, after its second failure");
        assert_eq!(unopened.next_due_ms(), None);
    }

    #[test]
    fn no_two_attempts_are_under_way_and_none_begins_after_the_end() {
        let mut unopened = Unopened::default();
        for partition in 0..3 {
            unopened.failed(p(partition), 0);
        }
        assert_eq!(begin(&mut unopened, u64::MAX), Some(p(0)));
        unopened.forget(p(0));
        assert_eq!(begin(&mut unopened, u64::MAX), None);
        assert!(unopened.under_way().contains(&p(0)), "it goes on");
        unopened.ended(p(0));
        assert_eq!(begin(&mut unopened, u64::MAX), Some(p(1)));
        unopened.stop();
        unopened.ended(p(1));
        assert_eq!((begin(&mut unopened, u64::MAX), unopened.next_due_ms()), (None, None));
    }

    #[test]
    fn a_log_that_is_deleted_while_it_is_being_opened_is_deleted_at_the_end_of_that() {
        let mut unopened = Unopened::default();
        let doomed = |partition| Doomed { topic: "t".into(), partition: p(partition), delay_ms: 7 };
        unopened.failed(p(0), 0);
        assert!(!unopened.doom(&doomed(0)), "it is not being opened");
        assert_eq!(begin(&mut unopened, u64::MAX), Some(p(0)));
        assert!(!unopened.doom(&doomed(1)) && unopened.doom(&doomed(0)));
        assert_eq!(unopened.take_doomed(p(1)), None);
        assert_eq!((unopened.take_doomed(p(0)), unopened.take_doomed(p(0))), (Some(doomed(0)), None));
        unopened.ended(p(0));
    }

    #[test]
    fn what_a_crash_left_has_its_turn_before_what_failed_and_is_no_failure_until_then() {
        let mut unopened = Unopened::default();
        unopened.failed(p(0), 0);
        unopened.queue(p(1), Rank::Ordinary);
        unopened.queue(p(2), Rank::Internal);
        assert_eq!((unopened.queued(), unopened.len(), unopened.offline()), (2, 3, 1));
        assert_eq!(unopened.to_recover(), [p(1), p(2)]);
        assert!(unopened.has_failed(p(0)) && !unopened.has_failed(p(1)) && unopened.contains(p(1)));
        for expected in [p(2), p(1), p(0)] {
            assert_eq!(begin(&mut unopened, u64::MAX), Some(expected));
            unopened.ended(expected);
        }
        assert_eq!(unopened.queued(), 0);
        unopened.failed(p(1), 0);
        assert!(unopened.has_failed(p(1)));
        unopened.queue(p(3), Rank::Ordinary);
        unopened.keep_out(p(3));
        assert!(unopened.has_failed(p(3)), "it never will be open");
        unopened.queue(p(3), Rank::Ordinary);
        unopened.forget(p(3));
        assert_eq!(unopened.queued(), 0);
    }

    #[test]
    fn what_waits_for_its_place_has_not_failed_and_keeps_nobody_from_his_turn() {
        let mut unopened = Unopened::default();
        unopened.postpone(p(0), 9);
        unopened.queue(p(1), Rank::Ordinary);
        assert_eq!((unopened.queued(), unopened.len(), unopened.offline()), (1, 2, 0));
        assert_eq!(unopened.to_recover(), [p(1)]);
        for (now_ms, expected) in [(9, p(1)), (10, p(0))] {
            assert_eq!(begin(&mut unopened, now_ms), Some(expected));
            assert!(!unopened.to_recover().contains(&p(0)), "no crash has left it");
            unopened.ended(expected);
        }
        unopened.postpone(p(0), 18);
        assert_eq!(
            (unopened.queued(), unopened.has_failed(p(0)), begin(&mut unopened, 19)),
            (0, false, None)
        );
        unopened.failed(p(0), 20);
        assert!(unopened.has_failed(p(0)));
        unopened.postpone(p(0), 30);
        assert_eq!((unopened.has_failed(p(0)), unopened.forget(p(0)), unopened.len()), (true, 1, 1));
    }

    #[test]
    fn who_waits_for_its_place_is_looked_at_before_all_that_wait_to_be_recovered() {
        let mut unopened = Unopened::default();
        (0..3).for_each(|partition| unopened.queue(p(partition), Rank::Internal));
        (7..9).for_each(|partition| assert_eq!(unopened.postpone(p(partition), 9), 0));
        assert_eq!(unopened.next_due_ms(), Some(0));
        assert_eq!(unopened.begin_due(10, 4), [p(7), p(8)]);
        // One of them has its place, the other not yet.
        unopened.forget(p(7));
        unopened.postpone(p(8), 10);
        (7..9).for_each(|partition| unopened.ended(p(partition)));
        assert_eq!(unopened.begin_due(11, 4), [p(0), p(1), p(2)], "and they go on meanwhile");
        assert_eq!(unopened.queued(), 0);
        (0..3).for_each(|partition| unopened.ended(p(partition)));
        assert_eq!((begin(&mut unopened, 11), unopened.next_due_ms()), (None, Some(12)));
    }

    #[test]
    fn who_waits_long_for_its_place_is_looked_at_less_and_less_often() {
        let (mut unopened, mut now_ms, mut pauses, mut long) =
            (Unopened::default(), 0, Vec::new(), Vec::new());
        for _ in 0..14 {
            long.push(unopened.postpone(p(0), now_ms));
            let due_ms = unopened.next_due_ms().expect("it waits");
            assert_eq!(begin(&mut unopened, due_ms), Some(p(0)));
            unopened.ended(p(0));
            pauses.push(due_ms - now_ms);
            now_ms = due_ms;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000, 1000]);
        assert_eq!(long, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_a_crash_left_is_opened_many_at_a_time_and_what_has_failed_alone() {
        let mut unopened = Unopened::default();
        unopened.failed(p(8), 0);
        unopened.failed(p(9), 0);
        (0..5).for_each(|partition| unopened.queue(p(partition), Rank::Ordinary));
        unopened.queue(p(5), Rank::Internal);
        assert_eq!(unopened.begin_due(u64::MAX, 4), [p(5), p(0), p(1), p(2)]);
        assert_eq!((unopened.queued(), unopened.to_recover().len()), (2, 6));
        unopened.queue(p(2), Rank::Ordinary);
        for partition in [0, 1, 5] {
            unopened.forget(p(partition));
            unopened.ended(p(partition));
            assert!(unopened.begin_due(u64::MAX, 4).is_empty(), "not before all have ended");
        }
        unopened.ended(p(2));
        assert_eq!(unopened.begin_due(u64::MAX, 4), [p(2), p(3), p(4)], "what was put back has another turn");
        (2..5).for_each(|partition| unopened.ended(p(partition)));
        assert_eq!(unopened.begin_due(u64::MAX, 4), [p(8)]);
        unopened.ended(p(8));
        assert_eq!(unopened.begin_due(u64::MAX, 4), [p(9)]);
    }

    fn begin(unopened: &mut Unopened, now_ms: u64) -> Option<TopicIdPartition> {
        unopened.begin_due(now_ms, 1).pop()
    }

    fn p(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) }
    }
}
