//! What compaction does with one replica's log, on its core.

use tarn_log::{CleanBound, Cleaned, Cleaning, Dirtiness, LogError, SegmentTimestamps, SwapError};
use tarn_record::{Offset, Timestamp};

use super::Replica;

impl Replica {
    /// What could be compacted from `first_dirty` on, were all of the log on the disk; `None` where there is nothing, or
    /// the topic is not to be compacted.
    ///
    /// # Errors
    /// Where a segment cannot be read.
    pub fn dirtiness_once_flushed(
        &mut self,
        first_dirty: Offset,
        now: Timestamp,
    ) -> Result<Option<Dirtiness>, LogError> {
        let Some(rules) = self.rules().compaction else { return Ok(None) };
        self.log.dirtiness_once_flushed(first_dirty, self.high_watermark, &rules.clean, now)
    }

    /// What can be compacted now, where the checkpoint file has this recovery point.
    ///
    /// # Errors
    /// As for [`Replica::dirtiness_once_flushed`].
    pub fn dirtiness(
        &mut self,
        first_dirty: Offset,
        recovery_point: Offset,
        now: Timestamp,
    ) -> Result<Option<Dirtiness>, LogError> {
        let Some(rules) = self.rules().compaction else { return Ok(None) };
        let bound = CleanBound { high_watermark: self.high_watermark, recovery_point };
        self.log.dirtiness(first_dirty, &bound, &rules.clean, now)
    }

    /// Remembers timestamps that were looked up for it.
    pub fn remember_timestamps(&mut self, timestamps: &SegmentTimestamps) {
        self.log.remember_timestamps(timestamps);
    }

    /// Prepares a round of what was just found.
    pub fn cleaning(&self, dirtiness: &Dirtiness, now: Timestamp) -> Option<Cleaning> {
        let rules = self.rules().compaction?;
        Some(self.log.cleaning(dirtiness, &rules.clean, now))
    }

    /// Puts a segment that a round has written in its place.
    ///
    /// # Errors
    /// As for [`tarn_log::Log::swap`].
    pub fn swap(&mut self, cleaned: Cleaned) -> Result<(), SwapError> {
        let swapped = self.log.swap(cleaned)?;
        self.removals.push(swapped.removal);
        Ok(())
    }
}
