//! How much of a log compaction has not seen, and how far it may go.
//!
//! Only closed segments are compacted, as wholes, and only what nobody can take back: below the high watermark and
//! the last stable offset, and below the recovery point that the checkpoint file has, so that a recovery never
//! judges what compaction wrote. The last batch of the log is left alone always: by it a mirror tells whether two
//! logs have one history.

use std::ops::ControlFlow;
use std::sync::Arc;

use tarn_record::{Offset, Timestamp};

use crate::descriptors::SegmentFile;
use crate::disk::ReadFrom;
use crate::error::LogError;
use crate::limits::AGES_READ_AT_ONCE;
use crate::log::Log;
use crate::segment::{Latest, SegmentView};

/// What of the topic's configuration compaction acts on, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanRules {
    /// `delete.retention.ms`: how long a tombstone stays after compaction has first seen it.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records younger than this are not compacted; 0 for none.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: when they are, at the latest; `i64::MAX` for whenever it pays.
    pub max_lag_ms: i64,
}

/// Up to where everything is as it will stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanBound {
    /// The high watermark.
    pub high_watermark: Offset,
    /// The recovery point that the file on the disk has, not the one that will be written next.
    pub recovery_point: Offset,
}

/// The part of a log that can be compacted and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirtiness {
    /// Where it begins.
    pub first_dirty: Offset,
    /// Where it ends, which is where a segment begins.
    pub end: Offset,
    /// The bytes of its segments.
    pub dirty_bytes: u64,
    /// The bytes of those before.
    pub clean_bytes: u64,
    /// By how much the oldest of it is older than `max.compaction.lag.ms` allows, in ms; 0 where it is not.
    pub overdue_ms: i64,
}

impl Default for CleanRules {
    fn default() -> CleanRules {
        CleanRules { delete_retention_ms: 24 * 60 * 60 * 1000, min_lag_ms: 0, max_lag_ms: i64::MAX }
    }
}

/// The timestamps of some segments, to be looked up on any thread.
#[derive(Debug)]
pub struct SegmentTimestamps {
    unread: Vec<SegmentView>,
    found: Vec<(Arc<SegmentFile>, Latest, i64)>,
}

impl SegmentTimestamps {
    /// Looks them up.
    ///
    /// # Errors
    /// Where a file cannot be read; also when its segment was removed meanwhile.
    pub fn run(mut self) -> Result<SegmentTimestamps, LogError> {
        for segment in std::mem::take(&mut self.unread) {
            let (latest, oldest) = (segment.latest()?, segment.first_timestamp(ReadFrom::Disk)?);
            self.found.push((segment.file().clone(), latest, oldest));
        }
        Ok(self)
    }

    /// True where nothing was looked up.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl Dirtiness {
    /// The dirty part of what would be read, from 0 to 1: what `min.cleanable.dirty.ratio` speaks of.
    pub fn ratio(&self) -> f64 {
        match self.dirty_bytes + self.clean_bytes {
            0 => 0.0,
            all => self.dirty_bytes as f64 / all as f64,
        }
    }
}

impl Log {
    /// What can be compacted from `first_dirty` on, which is the cleaner's checkpoint; one that is not in the log
    /// counts for the log start. `None` where there is nothing. Reads files only where a lag is configured, once
    /// for each segment, and never waits for the disk.
    ///
    /// # Errors
    /// Where a segment or its time index cannot be read; one that [is cold](LogError::is_cold) is to be looked up by
    /// [`Log::search_timestamps`] first.
    pub fn dirtiness(
        &mut self,
        first_dirty: Offset,
        bound: &CleanBound,
        rules: &CleanRules,
        now: Timestamp,
    ) -> Result<Option<Dirtiness>, LogError> {
        let bound = CleanBound { recovery_point: bound.recovery_point.min(self.recovery_point), ..*bound };
        self.dirtiness_within(first_dirty, &bound, rules, now)
    }

    /// The same, as if all of the log were on the disk: what a flush, and then a checkpoint, would let be compacted.
    ///
    /// # Errors
    /// As for [`Log::dirtiness`].
    pub fn dirtiness_once_flushed(
        &mut self,
        first_dirty: Offset,
        high_watermark: Offset,
        rules: &CleanRules,
        now: Timestamp,
    ) -> Result<Option<Dirtiness>, LogError> {
        let bound = CleanBound { high_watermark, recovery_point: self.end };
        self.dirtiness_within(first_dirty, &bound, rules, now)
    }

    /// A look at the timestamps of the next segments from `first_dirty` on of which they are not known.
    pub fn search_timestamps(&self, first_dirty: Offset) -> SegmentTimestamps {
        let segments = &self.segments[self.segment_of(first_dirty.clamp(self.start, self.end))..];
        let unknown = segments.iter().filter(|segment| !segment.knows_its_timestamps());
        let unread = unknown.take(AGES_READ_AT_ONCE).map(|segment| segment.view().clone()).collect();
        SegmentTimestamps { unread, found: Vec::new() }
    }

    /// Remembers what was found.
    pub fn remember_timestamps(&mut self, timestamps: &SegmentTimestamps) {
        for (file, latest, oldest) in &timestamps.found {
            let same = self.segments.iter_mut().find(|segment| Arc::ptr_eq(segment.file(), file));
            if let Some(segment) = same {
                segment.remember_latest(*latest);
                segment.remember_oldest(*oldest);
            }
        }
    }

    fn dirtiness_within(
        &mut self,
        first_dirty: Offset,
        bound: &CleanBound,
        rules: &CleanRules,
        now: Timestamp,
    ) -> Result<Option<Dirtiness>, LogError> {
        let is_inside = self.start <= first_dirty && first_dirty <= self.end;
        let first_dirty = if is_inside { first_dirty } else { self.start };
        let first = self.segment_of(first_dirty);
        let after = self.first_uncleanable(first, bound, rules, now)?;
        let end = self.segments.get(after).map_or(first_dirty, |segment| segment.base());
        if self.is_half_cut() || end <= first_dirty {
            return Ok(None);
        }
        let bytes = |from: usize, to: usize| -> u64 {
            self.segments[from..to].iter().map(|segment| u64::from(segment.size())).sum()
        };
        let clean = self.segments.partition_point(|segment| segment.base() < first_dirty);
        let (dirty_bytes, clean_bytes) = (bytes(first, after), bytes(0, clean));
        let overdue_ms = self.overdue_ms(first, after, rules, now)?;
        Ok(Some(Dirtiness { first_dirty, end, dirty_bytes, clean_bytes, overdue_ms }))
    }

    /// The number of the first segment from number `first` on that may not be compacted.
    fn first_uncleanable(
        &mut self,
        first: usize,
        bound: &CleanBound,
        rules: &CleanRules,
        now: Timestamp,
    ) -> Result<usize, LogError> {
        let stable = self.last_stable_offset(bound.high_watermark);
        let limit = stable.min(bound.recovery_point);
        let has_last_batch = self.segments.iter().rposition(|segment| segment.size() > 0).unwrap_or(0);
        let youngest = now.0.saturating_sub(rules.min_lag_ms);
        for index in first..has_last_batch {
            let is_settled = self.segment_end(index) <= limit;
            if !is_settled
                || rules.min_lag_ms > 0
                    && self.segments[index].largest_timestamp(ReadFrom::Memory)? > youngest
            {
                return Ok(index);
            }
        }
        Ok(has_last_batch.max(first))
    }

    fn overdue_ms(
        &mut self,
        first: usize,
        after: usize,
        rules: &CleanRules,
        now: Timestamp,
    ) -> Result<i64, LogError> {
        if rules.max_lag_ms == i64::MAX {
            return Ok(0);
        }
        let mut oldest = i64::MAX;
        for segment in &mut self.segments[first..after] {
            let timestamp = segment.oldest_timestamp(ReadFrom::Memory)?;
            oldest = if timestamp < 0 { oldest } else { oldest.min(timestamp) };
        }
        Ok(now.0.saturating_sub(rules.max_lag_ms).saturating_sub(oldest).max(0))
    }
}

/// What a piece of the work took since the last time that it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes read from the disk, or the page cache.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Is told what was spent, waits where that was too much, and says whether to go on.
pub type Watch<'a> = dyn FnMut(Spent) -> ControlFlow<()> + 'a;
