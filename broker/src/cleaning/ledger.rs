//! What a core knows of its compacted logs: where compaction of each goes on, and what keeps it from being compacted.
//!
//! Sans-IO. Invariants:
//! * a log is here exactly while the core has it and its topic's `cleanup.policy` says compact;
//! * of a partition one round is under way at most, from when it began until its thread has ended it, also where the
//!   log is no longer here meanwhile; none begins while the partition is paused;
//! * where compaction goes on never lies above what was cut.

use std::collections::BTreeMap;
use std::ops::Bound;

use tarn_record::{Offset, TopicIdPartition};

use super::shared::Unwanted;

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    logs: BTreeMap<TopicIdPartition, Compacted>,
    rounds: BTreeMap<TopicIdPartition, Unwanted>,
    paused: BTreeMap<TopicIdPartition, usize>,
}

/// One log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compacted {
    /// Where compaction goes on.
    pub(super) first_dirty: Offset,
    hindrance: Option<Hindrance>,
}

/// Why a log is not compacted though it is dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// The last round came to nothing, and so would the next before the dirty part ends higher than this.
    Undecided(Offset),
    /// There was no room, and it is tried again then, in ms of the core's clock.
    NoRoom(u64),
    /// It cannot be compacted as long as its files are these.
    Uncleanable(Files),
}

/// What tells whether the files of a log have changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) generation: u64,
    pub(super) start: Offset,
}

impl Ledger {
    /// A log is to be compacted from `first_dirty` on, unless it is here already.
    pub(super) fn add(&mut self, partition: TopicIdPartition, first_dirty: Offset) {
        self.logs.entry(partition).or_insert(Compacted { first_dirty, hindrance: None });
    }

    /// A log has gone, or is not to be compacted any more. The round to end, if one is under way.
    pub(super) fn remove(&mut self, partition: TopicIdPartition) -> Option<Unwanted> {
        self.logs.remove(&partition)?;
        self.rounds.get(&partition).cloned()
    }

    pub(super) fn get(&self, partition: TopicIdPartition) -> Option<Compacted> {
        self.logs.get(&partition).copied()
    }

    /// The first partition after `at` whose log is here.
    pub(super) fn next_after(&self, at: Option<TopicIdPartition>) -> Option<TopicIdPartition> {
        let from = at.map_or(Bound::Unbounded, Bound::Excluded);
        self.logs.range((from, Bound::Unbounded)).next().map(|(partition, _)| *partition)
    }

    /// A round of the log begins; `None` where it may not.
    pub(super) fn begin(&mut self, partition: TopicIdPartition) -> Option<Unwanted> {
        if self.is_busy(partition) || !self.logs.contains_key(&partition) {
            return None;
        }
        let unwanted = Unwanted::default();
        self.rounds.insert(partition, unwanted.clone());
        Some(unwanted)
    }

    /// The round has ended: its thread has let go of the log's files.
    pub(super) fn end(&mut self, partition: TopicIdPartition) {
        self.rounds.remove(&partition);
    }

    /// The round that is under way.
    pub(super) fn under_way(&self, partition: TopicIdPartition) -> Option<&Unwanted> {
        self.rounds.get(&partition)
    }

    /// True while a round is under way, or none may begin.
    pub(crate) fn is_busy(&self, partition: TopicIdPartition) -> bool {
        self.rounds.contains_key(&partition) || self.paused.contains_key(&partition)
    }

    /// Has no round begin until as many `resume` were called.
    pub(super) fn pause(&mut self, partition: TopicIdPartition) {
        *self.paused.entry(partition).or_default() += 1;
    }

    /// Undoes one `pause`.
    pub(super) fn resume(&mut self, partition: TopicIdPartition) {
        if let Some(paused) = self.paused.get_mut(&partition) {
            *paused -= 1;
            if *paused == 0 {
                self.paused.remove(&partition);
            }
        }
    }

    /// The log was cut and ends at `end`. Where compaction goes on if that has changed.
    pub(super) fn truncated(&mut self, partition: TopicIdPartition, end: Offset) -> Option<Offset> {
        let log = self.logs.get_mut(&partition)?;
        log.hindrance = None;
        if end >= log.first_dirty {
            return None;
        }
        log.first_dirty = end;
        Some(end)
    }

    /// A round has compacted the log up to here.
    pub(super) fn compacted(&mut self, partition: TopicIdPartition, to: Offset) {
        if let Some(log) = self.logs.get_mut(&partition) {
            (log.first_dirty, log.hindrance) = (to, None);
        }
    }

    /// A round came to nothing.
    pub(super) fn hinder(&mut self, partition: TopicIdPartition, hindrance: Hindrance) {
        if let Some(log) = self.logs.get_mut(&partition) {
            log.hindrance = Some(hindrance);
        }
    }
}

impl Compacted {
    /// True where a round could do something now: of a dirty part up to `end`, with these files.
    pub(super) fn may_be_compacted(&self, end: Offset, files: Files, now_ms: u64) -> bool {
        match self.hindrance {
            None => true,
            Some(Hindrance::Undecided(before)) => end > before,
            Some(Hindrance::NoRoom(until_ms)) => now_ms >= until_ms,
            Some(Hindrance::Uncleanable(_)) => !self.is_uncleanable(files),
        }
    }

    /// True where a round has failed on these files.
    pub(super) fn is_uncleanable(&self, files: Files) -> bool {
        self.hindrance == Some(Hindrance::Uncleanable(files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    const FILES: Files = Files { generation: 3, start: Offset(5) };

    #[test]
    fn a_log_has_one_round_at_a_time_also_once_it_has_gone() {
        let mut ledger = Ledger::default();
        assert!(ledger.begin(p(0)).is_none(), "it is not here");
        [7, 9].into_iter().for_each(|first_dirty| ledger.add(p(0), Offset(first_dirty)));
        assert_eq!(ledger.get(p(0)).map(|log| log.first_dirty), Some(Offset(7)));
        assert!(ledger.begin(p(0)).is_some());
        assert!(ledger.begin(p(0)).is_none());
        assert!(ledger.remove(p(0)).is_some(), "it is to be ended");
        ledger.add(p(0), Offset(0));
        assert!(ledger.begin(p(0)).is_none(), "its thread has the files");
        ledger.end(p(0));
        assert!(ledger.begin(p(0)).is_some());
    }

    #[test]
    fn none_begins_while_the_partition_is_paused() {
        let mut ledger = Ledger::default();
        ledger.add(p(0), Offset(0));
        (0..2).for_each(|_| ledger.pause(p(0)));
        ledger.resume(p(0));
        assert!(ledger.begin(p(0)).is_none());
        ledger.resume(p(0));
        assert!(ledger.begin(p(0)).is_some());
    }

    #[test]
    fn a_cut_takes_back_where_compaction_goes_on_and_never_brings_it_forward() {
        let mut ledger = Ledger::default();
        ledger.add(p(0), Offset(10));
        assert_eq!(ledger.truncated(p(0), Offset(12)), None);
        assert_eq!(ledger.truncated(p(0), Offset(4)), Some(Offset(4)));
        assert_eq!(ledger.truncated(p(1), Offset(4)), None, "it is none of ours");
        assert_eq!(ledger.get(p(0)).map(|log| log.first_dirty), Some(Offset(4)));
    }

    #[test]
    fn what_failed_is_tried_again_once_there_is_a_reason() {
        let of = |hindrance| Compacted { first_dirty: Offset(0), hindrance: Some(hindrance) };
        let undecided = of(Hindrance::Undecided(Offset(30)));
        assert!(!undecided.may_be_compacted(Offset(30), FILES, 0));
        assert!(undecided.may_be_compacted(Offset(31), FILES, 0));
        let no_room = of(Hindrance::NoRoom(100));
        assert!(!no_room.may_be_compacted(Offset(30), FILES, 99));
        assert!(no_room.may_be_compacted(Offset(30), FILES, 100));
        let damaged = of(Hindrance::Uncleanable(FILES));
        assert!(!damaged.may_be_compacted(Offset(99), FILES, u64::MAX) && damaged.is_uncleanable(FILES));
        for changed in [Files { generation: 4, ..FILES }, Files { start: Offset(6), ..FILES }] {
            assert!(damaged.may_be_compacted(Offset(99), changed, 0) && !damaged.is_uncleanable(changed));
        }
    }

    #[test]
    fn logs_are_gone_through_one_after_the_other() {
        let mut ledger = Ledger::default();
        for partition in 0..3 {
            ledger.add(p(partition), Offset(0));
        }
        let mut found = Vec::new();
        while let Some(next) = ledger.next_after(found.last().copied()) {
            found.push(next);
        }
        assert_eq!(found, [p(0), p(1), p(2)]);
    }

    fn p(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) }
    }
}
