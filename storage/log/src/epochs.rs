//! Which leader wrote which offsets of one partition.
//!
//! A leader epoch begins at the first offset its leader appended. Replication compares these
//! beginnings to find where two logs part (KIP-101, KIP-279, KIP-320). After compaction the batches
//! alone no longer tell, so the list is kept in the `leader-epoch-checkpoint` file.
//!
//! Invariants, whatever the order of calls:
//! * epochs and their start offsets strictly increase: an epoch that wrote nothing leaves no trace
//!   once the next begins;
//! * every start offset lies in `[log start, log end]`.

use std::cmp::Ordering;

use tarn_record::{Epoch, Offset};
use thiserror::Error;

use crate::checkpoints::CheckpointError;
use crate::checkpoints::rows::Rows;

/// The leader epochs of one partition, oldest first. Owned by the partition's core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    starts: Vec<EpochStart>,
}

/// The first offset that one leader wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// Where its first batch is, or will be.
    pub start: Offset,
}

/// Where an epoch ends: the answer of OffsetForLeaderEpoch (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The epoch found, which may be older than the one asked for.
    pub epoch: Epoch,
    /// The offset after its last record.
    pub end: Offset,
}

/// A beginning that would break the order of epochs. The history stays as it was.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EpochError {
    /// An epoch older than the newest known, as from a deposed leader.
    #[error("epoch {epoch} cannot begin at offset {offset}: epoch {newest} has already begun")]
    Regressed {
        /// Where it would have begun.
        offset: Offset,
        /// The epoch that came too late.
        epoch: Epoch,
        /// The newest epoch known.
        newest: Epoch,
    },
}

impl EpochHistory {
    /// Begins `epoch` at `log_end`, where it is not the newest already: when this broker becomes
    /// leader, and before a replicated batch of a newer epoch is appended.
    ///
    /// # Errors
    /// `Regressed` where a newer epoch has begun.
    pub fn begin(&mut self, epoch: Epoch, log_end: Offset) -> Result<(), EpochError> {
        match self.newest() {
            Some(newest) if epoch < newest => Err(EpochError::Regressed { offset: log_end, epoch, newest }),
            Some(newest) if epoch == newest => Ok(()),
            _ => {
                self.truncate_to(log_end);
                self.starts.push(EpochStart { epoch, start: log_end });
                self.assert_ordered();
                Ok(())
            }
        }
    }

    /// Where the newest epoch not above `asked` ends; `log_end` closes the newest of all. An epoch
    /// older than all that is known ends where the oldest known begins. `None` for an epoch that has
    /// not begun, or where no epoch has.
    pub fn end_of(&self, asked: Epoch, log_end: Offset) -> Option<EpochEnd> {
        if asked > self.newest()? {
            return None;
        }
        let after = self.starts.partition_point(|entry| entry.epoch <= asked);
        let epoch = after.checked_sub(1).map_or(asked, |found| self.starts[found].epoch);
        let end = self.starts.get(after).map_or(log_end, |next| next.start);
        Some(EpochEnd { epoch, end })
    }

    /// Drops the epochs that wrote nothing below `log_end`: what a truncation to it removes.
    pub fn truncate_to(&mut self, log_end: Offset) {
        self.starts.retain(|entry| entry.start < log_end);
    }

    /// Drops what a new log start made unreachable. The epoch that spans `log_start` now begins there.
    pub fn advance_log_start(&mut self, log_start: Offset) {
        let after = self.starts.partition_point(|entry| entry.start <= log_start);
        if let Some(spanning) = after.checked_sub(1) {
            self.starts.drain(..spanning);
            self.starts[0].start = log_start;
        }
    }

    /// Drops what a log that spans these offsets cannot have. An epoch that wrote nothing stays only where
    /// the log is empty, which then still knows which epoch ended where it begins.
    pub(crate) fn confine(&mut self, log_start: Offset, log_end: Offset) {
        let above = if log_start < log_end { log_end } else { log_end.plus(1) };
        self.truncate_to(above);
        self.advance_log_start(log_start);
    }

    /// Takes note of a batch that is in the log at `base`. It is right: what says that a newer epoch began
    /// there or below, or an older one above, was written before a crash, of a history that was dropped.
    pub(crate) fn found(&mut self, epoch: Epoch, base: Offset) {
        self.starts.retain(|entry| match entry.start.cmp(&base) {
            Ordering::Less => entry.epoch <= epoch,
            Ordering::Equal => entry.epoch == epoch,
            Ordering::Greater => entry.epoch > epoch,
        });
        if self.at(base) != Some(epoch) {
            let after = self.starts.partition_point(|entry| entry.start < base);
            self.starts.insert(after, EpochStart { epoch, start: base });
        }
        self.assert_ordered();
    }

    /// Forgets all epochs: the log begins anew.
    pub fn clear(&mut self) {
        self.starts.clear();
    }

    /// The newest epoch that has begun.
    pub fn newest(&self) -> Option<Epoch> {
        self.starts.last().map(|entry| entry.epoch)
    }

    /// The epoch whose leader wrote `offset`: the newest that begins at or below it.
    pub fn at(&self, offset: Offset) -> Option<Epoch> {
        let after = self.starts.partition_point(|entry| entry.start <= offset);
        after.checked_sub(1).map(|found| self.starts[found].epoch)
    }

    /// The epochs with their first offsets, oldest first.
    pub fn starts(&self) -> &[EpochStart] {
        &self.starts
    }

    /// Reads a `leader-epoch-checkpoint` file.
    ///
    /// # Errors
    /// Where the text is not such a file, or epochs or offsets in it do not increase.
    pub fn from_checkpoint(bytes: &[u8]) -> Result<EpochHistory, CheckpointError> {
        let mut rows = Rows::parse(bytes)?;
        let mut history = EpochHistory::default();
        while let Some(mut row) = rows.next_row()? {
            let entry = EpochStart { epoch: Epoch(row.number()?), start: Offset(row.number()?) };
            row.end()?;
            let follows = |last: &EpochStart| last.epoch < entry.epoch && last.start < entry.start;
            if entry.epoch.0 < 0 || entry.start.0 < 0 || !history.starts.last().is_none_or(follows) {
                return Err(row.refuse("an epoch and its offset, both higher than in the line before,"));
            }
            history.starts.push(entry);
        }
        Ok(history)
    }

    /// The content of a `leader-epoch-checkpoint` file.
    pub fn to_checkpoint(&self) -> Vec<u8> {
        Rows::write(self.starts.iter().map(|entry| format!("{} {}", entry.epoch, entry.start)))
    }

    fn assert_ordered(&self) {
        debug_assert!(self.starts.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let history = history(&[(0, 0), (3, 10), (5, 40)]);
        assert_eq!(history.end_of(Epoch(3), Offset(99)), Some(end(3, 40)));
        assert_eq!(history.end_of(Epoch(4), Offset(99)), Some(end(3, 40)));
        assert_eq!(history.end_of(Epoch(5), Offset(99)), Some(end(5, 99)));
        assert_eq!(history.end_of(Epoch(6), Offset(99)), None, "epoch 6 has not begun");
    }

    #[test]
    fn an_epoch_older_than_all_known_ends_where_the_oldest_known_begins() {
        let history = history(&[(3, 10), (5, 40)]);
        assert_eq!(history.end_of(Epoch(1), Offset(99)), Some(end(1, 10)));
    }

    #[test]
    fn a_leader_that_wrote_nothing_leaves_no_trace() {
        assert_eq!(history(&[(0, 0), (3, 10), (4, 10), (5, 40)]), history(&[(0, 0), (4, 10), (5, 40)]));
    }

    #[test]
    fn a_deposed_leader_cannot_begin_again() {
        let mut history = history(&[(0, 0), (3, 10)]);
        let refused = history.begin(Epoch(2), Offset(20));
        assert_eq!(
            refused,
            Err(EpochError::Regressed { offset: Offset(20), epoch: Epoch(2), newest: Epoch(3) })
        );
        assert_eq!(history.newest(), Some(Epoch(3)));
    }

    #[test]
    fn the_epoch_that_spans_a_new_log_start_begins_there() {
        let mut history = history(&[(0, 0), (3, 10), (5, 40)]);
        history.advance_log_start(Offset(25));
        assert_eq!(history.starts, [start(3, 25), start(5, 40)]);
    }

    #[test]
    fn a_batch_is_right_about_the_epoch_of_its_offset() {
        let after = |epoch, base| {
            let mut history = history(&[(0, 0), (3, 10), (5, 40)]);
            history.found(Epoch(epoch), Offset(base));
            history.starts.iter().map(|entry| (entry.epoch.0, entry.start.0)).collect::<Vec<_>>()
        };
        assert_eq!(after(0, 9), [(0, 0), (3, 10), (5, 40)], "it was known");
        assert_eq!(after(7, 50), [(0, 0), (3, 10), (5, 40), (7, 50)]);
        assert_eq!(after(7, 40), [(0, 0), (3, 10), (7, 40)], "epoch 5 wrote nothing");
        assert_eq!(after(2, 9), [(0, 0), (2, 9), (3, 10), (5, 40)]);
        assert_eq!(after(2, 20), [(0, 0), (2, 20), (5, 40)], "epoch 3 cannot have begun below");
        assert_eq!(after(2, 50), [(0, 0), (2, 50)]);
        assert_eq!(after(4, 5), [(0, 0), (4, 5), (5, 40)], "epoch 3 cannot begin above");
        assert_eq!(after(5, 30), [(0, 0), (3, 10), (5, 30)]);
    }

    #[test]
    fn an_epoch_that_wrote_nothing_is_kept_by_an_empty_log_alone() {
        for (log_start, kept) in [(39, vec![start(3, 39)]), (40, vec![start(5, 40)])] {
            let mut history = history(&[(3, 10), (5, 40), (6, 50)]);
            history.confine(Offset(log_start), Offset(40));
            assert_eq!(history.starts, kept);
        }
    }

    #[test]
    fn an_offset_belongs_to_the_newest_epoch_that_begins_at_or_below_it() {
        let history = history(&[(3, 10), (5, 40)]);
        assert_eq!(history.at(Offset(9)), None);
        assert_eq!(history.at(Offset(10)), Some(Epoch(3)));
        assert_eq!(history.at(Offset(39)), Some(Epoch(3)));
        assert_eq!(history.at(Offset(40)), Some(Epoch(5)));
    }

    #[test]
    fn the_checkpoint_has_kafkas_lines() {
        assert_eq!(history(&[(0, 0), (3, 10)]).to_checkpoint(), b"0\n2\n0 0\n3 10\n");
        assert_eq!(EpochHistory::default().to_checkpoint(), b"0\n0\n");
    }

    #[test]
    fn a_checkpoint_out_of_order_is_refused() {
        for text in ["0\n2\n3 10\n3 20\n", "0\n2\n3 10\n4 10\n", "0\n1\n-1 0\n", "0\n1\n1 0 0\n", "0\n1\n1\n"]
        {
            let refused = EpochHistory::from_checkpoint(text.as_bytes());
            assert!(matches!(refused, Err(CheckpointError::Malformed { .. })), "{text:?}: {refused:?}");
        }
    }

    proptest! {
        #[test]
        fn a_history_reads_back_from_its_checkpoint(begun in leaders()) {
            let history = history(&begun);
            prop_assert_eq!(EpochHistory::from_checkpoint(&history.to_checkpoint()), Ok(history));
        }

        /// Truncating to any offset leaves what the leaders up to it would have built.
        #[test]
        fn truncation_undoes_later_leaders(begun in leaders(), cut in 0i64..200) {
            let mut whole = history(&begun);
            whole.truncate_to(Offset(cut));
            let kept: Vec<_> = begun.into_iter().filter(|&(_, log_end)| log_end < cut).collect();
            prop_assert_eq!(whole, history(&kept));
        }
    }

    fn leaders() -> impl Strategy<Value = Vec<(i32, i64)>> {
        prop::collection::vec((0i32..3, 1i64..10), 0..40).prop_map(|steps| {
            steps
                .iter()
                .scan((0, 0), |at, step| {
                    *at = (at.0 + step.0, at.1 + step.1);
                    Some(*at)
                })
                .collect()
        })
    }

    fn history(begun: &[(i32, i64)]) -> EpochHistory {
        let mut history = EpochHistory::default();
        for &(epoch, log_end) in begun {
            history.begin(Epoch(epoch), Offset(log_end)).expect("epochs are in order");
        }
        history
    }

    fn start(epoch: i32, offset: i64) -> EpochStart {
        EpochStart { epoch: Epoch(epoch), start: Offset(offset) }
    }

    fn end(epoch: i32, offset: i64) -> EpochEnd {
        EpochEnd { epoch: Epoch(epoch), end: Offset(offset) }
    }
}
