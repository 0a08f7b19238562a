//! Dropping records: from the end, when another leader's history wins, and from the start.
//!
//! A truncation removes whole batches. Whole segments go by a rename, newest first, so that a crash in
//! between leaves an older but unbroken log; the segment that holds the first dropped batch is cut. The
//! log then goes on in a new segment, so that no byte a reader was promised is ever replaced by another.
//!
//! What the directory's checkpoint files say of the log may be wrong from then on; see
//! `truncation_mark`. What has to be read for it, up to a whole segment, can be read on another thread
//! before; see `truncation_search`.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_record::{Offset, Timestamp};

use super::Log;
use super::truncation_mark::Extent;
use super::truncation_search::FoundTruncation;
use crate::error::LogError;
use crate::home::Kind;
use crate::recovery;
use crate::removal::RemovalJob;
use crate::segment::Segment;

/// What a truncation left.
#[derive(Debug)]
pub struct Truncated {
    /// The new log end: the offset asked for, or the base of the batch that held it.
    pub end: Offset,
    /// The files that can be removed.
    pub removal: RemovalJob,
}

impl Log {
    /// Drops all batches that end at `offset` or above. An offset at or above the log end drops nothing;
    /// one below the log start empties the log, which then starts there. Where no batch is left the log
    /// starts at its end.
    ///
    /// # Errors
    /// Where the disk refuses. The log is then as long as [`Log::end`] says; where [`Log::is_half_cut`], nothing is
    /// appended or flushed before a truncation succeeds.
    pub fn truncate_to(&mut self, offset: Offset, now: Timestamp) -> Result<Truncated, LogError> {
        let cut = self.search_truncation(offset).run()?;
        self.truncate_as_found(cut, now)
    }

    /// The same, where what has to be read was read before; and is again where the log has changed since.
    ///
    /// # Errors
    /// As for [`Log::truncate_to`].
    pub fn truncate_as_found(&mut self, cut: FoundTruncation, now: Timestamp) -> Result<Truncated, LogError> {
        if !cut.is_of(self) {
            return self.truncate_to(cut.offset, now);
        }
        let FoundTruncation { offset, end, kept, position, producers, snapshot, .. } = cut;
        if offset < self.start {
            return self.truncate_fully_and_start_at(offset, now);
        }
        if offset >= self.end {
            self.check_whole()?;
            // An epoch that began here and wrote nothing may be the one that the leader does not know.
            self.truncate_epochs(self.end);
            let removal = RemovalJob::new(self.home.clone(), Vec::new());
            return Ok(Truncated { end: self.end, removal });
        }
        let extent = if kept == 0 { Extent::Everything } else { Extent::Suffix };
        self.begin_truncation(end, self.start, extent)?;
        self.cut_swapped_out(end);
        let mut removed = Vec::new();
        self.drop_segments_from(kept, &mut removed)?;
        if let Some(position) = position {
            self.dirt.changes += 1;
            self.active_mut().cut_at(position, end)?;
            self.dirt.torn = false;
        }
        self.unnoted_aborts.retain(|aborted| aborted.last_offset < end);
        self.end = end;
        self.truncate_epochs(end);
        recovery::drop_snapshots_above(&self.home, end)?;
        let before = std::mem::replace(&mut self.producers, producers);
        self.dirt.snapshot = snapshot;
        self.producers.keep_unreplicated(&before, end);
        // Snapshots and batches know those again that were forgotten.
        self.expire_producers(now);
        if self.segments.is_empty() {
            self.begin_anew(end, now)?;
        } else {
            self.dirt.dirty_from = self.dirt.dirty_from.min(self.active().base());
            self.dirt.roll_at = self.active_mut().resume()?.map(|last| last.next_offset());
            self.unflush_from(self.last_batch_end());
        }
        self.dirt.half_cut = false;
        Ok(Truncated { end, removal: RemovalJob::new(self.home.clone(), removed) })
    }

    /// Drops everything; the log then starts and ends at `offset`.
    ///
    /// # Errors
    /// As for [`Log::truncate_to`].
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        now: Timestamp,
    ) -> Result<Truncated, LogError> {
        self.begin_truncation(offset, offset, Extent::Everything)?;
        self.retired.drain(..).filter_map(|file| file.upgrade()).for_each(|file| file.cut_at(0));
        self.cut_swapped_out(Offset::NONE);
        recovery::drop_snapshots_above(&self.home, Offset::NONE)?;
        let mut removed = Vec::new();
        self.drop_segments_from(0, &mut removed)?;
        self.epochs.clear();
        self.producers.clear();
        self.unnoted_aborts.clear();
        self.begin_anew(offset, now)?;
        self.dirt.half_cut = false;
        Ok(Truncated { end: offset, removal: RemovalJob::new(self.home.clone(), removed) })
    }

    /// Moves the log start up to `offset` (a mirror's source). Segments that lie wholly below it leave the log; the
    /// job removes them. A lower start changes nothing.
    ///
    /// # Errors
    /// `StartBeyondEnd`; or the disk's refusal.
    pub fn advance_start(&mut self, offset: Offset, now: Timestamp) -> Result<Option<RemovalJob>, LogError> {
        if !self.raise_start(offset)? {
            return Ok(None);
        }
        self.drop_below_start(usize::MAX, now)
    }

    /// The same, but the segments stay until [`Log::drop_below_start`]. False where the start is not lower.
    ///
    /// # Errors
    /// As for [`Log::advance_start`].
    pub fn raise_start(&mut self, offset: Offset) -> Result<bool, LogError> {
        if offset > self.end {
            return Err(LogError::StartBeyondEnd { asked: offset, end: self.end });
        }
        if offset <= self.start {
            return Ok(false);
        }
        self.mark_start(offset)?;
        self.start = offset;
        self.epochs.advance_log_start(offset);
        self.dirt.epoch_changes += 1;
        Ok(true)
    }

    /// Takes up to `most` segments that lie wholly below the log start out of the log, oldest first, and all of it
    /// where the log starts at its end: it then goes on in a new segment.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn drop_below_start(&mut self, most: usize, now: Timestamp) -> Result<Option<RemovalJob>, LogError> {
        self.check_whole()?;
        if self.has_nothing_from_start() {
            self.mend()?;
            self.note_kept_aborts()?;
            self.roll(self.last_batch_end(), now)?;
        }
        let mut removed = Vec::new();
        for _ in 0..most {
            if self.segments.get(1).is_none_or(|next| next.base() > self.start) {
                break;
            }
            self.retire(0, &mut removed)?;
            let file = self.segments.remove(0).file().clone();
            self.retired.push(Arc::downgrade(&file));
        }
        self.retired.retain(|file| file.strong_count() > 0);
        let first = self.segments.first().map_or(self.start, Segment::base);
        self.recovery_point = self.recovery_point.max(first);
        self.flushed_to = self.flushed_to.max(first);
        self.drop_mark()?;
        Ok((!removed.is_empty()).then(|| RemovalJob::new(self.home.clone(), removed)))
    }

    /// True where something of the log lies wholly below its start.
    pub(crate) fn has_segment_below_start(&self) -> bool {
        self.segments.get(1).is_some_and(|next| next.base() <= self.start) || self.has_nothing_from_start()
    }

    /// True where every batch lies below the log start.
    fn has_nothing_from_start(&self) -> bool {
        self.start == self.end && self.segments.last().is_some_and(|active| active.size() > 0)
    }

    /// The log start, where the checkpoint has to say it. Kafka leaves out those that are the base of the
    /// first segment; but until the directory is synced a crash can bring segments below it back.
    pub fn start_to_checkpoint(&self) -> Option<Offset> {
        (self.start > Offset(0)).then_some(self.start)
    }

    /// Leaves the log directory: renames the partition's directory so that its files can be removed later. Until then
    /// plans that name them can be served, and after that as far as the files are open. Waits for who opens one of them.
    ///
    /// # Errors
    /// Where the system refuses the rename.
    pub fn delete(self) -> Result<RemovalJob, LogError> {
        self.segments.iter().for_each(|segment| segment.file().settle());
        let renamed = self.home.rename_for_deletion(self.topic_id)?;
        Ok(RemovalJob::of_directory(self.home.disk.clone(), renamed))
    }

    /// True where a truncation has dropped a part and failed: producers and epochs are not those of what is left.
    pub fn is_half_cut(&self) -> bool {
        self.dirt.half_cut
    }

    /// That no truncation has failed half-way.
    pub(super) fn check_whole(&self) -> Result<(), LogError> {
        match self.dirt.half_cut {
            true => Err(LogError::HalfCut { path: self.home.path.clone() }),
            false => Ok(()),
        }
    }

    fn truncate_epochs(&mut self, end: Offset) {
        let before = self.epochs.starts().len();
        self.epochs.truncate_to(end);
        self.dirt.epoch_changes += u32::from(self.epochs.starts().len() != before);
    }

    /// Raises the generation and says on the disk, before any byte is dropped, what stays true.
    fn begin_truncation(&mut self, end: Offset, start: Offset, extent: Extent) -> Result<(), LogError> {
        self.mark_truncation(end, start, extent)?;
        self.dirt.half_cut = true;
        self.generation += 1;
        self.dirt.epoch_changes += 1;
        self.dirt.snapshot = None;
        self.unflush_from(end);
        Ok(())
    }

    /// What is appended from `end` on is not on the disk, whatever was there before.
    fn unflush_from(&mut self, end: Offset) {
        self.recovery_point = self.recovery_point.min(end);
        self.flushed_to = self.flushed_to.min(end);
    }

    /// Removes the segments from number `first` on, newest first.
    fn drop_segments_from(&mut self, first: usize, removed: &mut Vec<PathBuf>) -> Result<(), LogError> {
        if first >= self.segments.len() {
            return Ok(());
        }
        self.dirt.torn = false;
        while self.segments.len() > first {
            let last = self.segments.len() - 1;
            self.segments[last].file().cut_at(0);
            self.retire(last, removed)?;
            self.end = self.segments[last].base().min(self.end).max(self.start);
            self.segments.truncate(last);
        }
        self.home.sync()
    }

    /// Renames a segment's files.
    fn retire(&mut self, index: usize, removed: &mut Vec<PathBuf>) -> Result<(), LogError> {
        self.dirt.changes += 1;
        let file = self.segments[index].file();
        for kind in Kind::ALL {
            let deleted = self.home.deleted(file.base(), kind);
            if self.home.rename(&self.home.file(file.base(), kind), &deleted)? {
                removed.push(deleted);
            }
        }
        file.retire();
        Ok(())
    }

    /// Puts an empty segment where there is none left.
    pub(super) fn begin_anew(&mut self, at: Offset, now: Timestamp) -> Result<(), LogError> {
        debug_assert!(self.segments.is_empty());
        self.mark_start(at)?;
        (self.start, self.end, self.dirt.dirty_from) = (at, at, at);
        self.epochs.confine(at, at);
        self.dirt.roll_at = None;
        self.dirt.changes += 1;
        self.segments.push(Segment::create(&self.home, at, now)?);
        Ok(())
    }
}
