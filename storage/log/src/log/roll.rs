//! When and how the log goes on in a new segment.
//!
//! A new segment is due when the active one would grow too large or is too old, when its indexes are
//! full, and always when a position in it must not be written again. Whatever is written at a roll beside
//! the new file (indexes, the producer snapshot) can be built anew, so a full disk does not stop the roll
//! for it.

use std::io::IoSlice;

use tarn_record::{BatchHeader, Offset, Timestamp};

use super::Log;
use crate::disk::Open;
use crate::error::LogError;
use crate::home::Kind;
use crate::limits::SEGMENT_OFFSETS_MAX;
use crate::segment::{RollRules, Segment};

impl Log {
    /// Makes the active segment one that takes this batch; true if that is a new one.
    pub(super) fn prepare(&mut self, header: &BatchHeader, now: Timestamp) -> Result<bool, LogError> {
        self.check_whole()?;
        if self.segments.is_empty() {
            self.begin_anew(self.end, now)?;
        }
        self.mend()?;
        self.note_kept_aborts()?;
        let (base, last) = (header.base_offset, header.last_offset());
        let fits = self.active().can_hold(last) && base >= self.active().base();
        if self.active().size() == 0 {
            if !fits {
                self.replace_active(base, now)?;
            }
            return Ok(!fits);
        }
        if self.dirt.roll_at.is_some() || !fits || self.is_due(header, now)? {
            self.roll(self.next_base(base, last), now)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Where the segment after the active one begins: where that one's last batch ends, which tells a
    /// recovery that nothing is missing between them. Only a gap so wide that the segment could not hold
    /// the batch after it is left out.
    fn next_base(&self, base: Offset, last: Offset) -> Offset {
        let end = self.last_batch_end();
        if last.0 - end.0 > SEGMENT_OFFSETS_MAX { base } else { end }
    }

    /// Where the last batch ends; the log end may lie above it after a truncation into a gap.
    pub(super) fn last_batch_end(&self) -> Offset {
        self.dirt.roll_at.unwrap_or(self.end)
    }

    fn is_due(&mut self, header: &BatchHeader, now: Timestamp) -> Result<bool, LogError> {
        let jitter_ms = self.jitter_ms(self.active().base());
        let rules = RollRules { config: &self.config, now, jitter_ms };
        let last = self.segments.len() - 1;
        self.segments[last].is_due(header.size(), header.max_timestamp, &rules)
    }

    /// Cuts off what a failed write left; the log then goes on in a new segment.
    pub(super) fn mend(&mut self) -> Result<(), LogError> {
        if !self.dirt.torn {
            return Ok(());
        }
        self.dirt.changes += 1;
        self.active().cut_tail()?;
        if self.active().size() == 0 {
            self.active_mut().renew_file()?;
        } else {
            self.dirt.roll_at.get_or_insert(self.end);
        }
        self.dirt.torn = false;
        Ok(())
    }

    /// Writes the entries that the transaction index still lacks.
    pub(super) fn note_kept_aborts(&mut self) -> Result<(), LogError> {
        if self.unnoted_aborts.is_empty() {
            return Ok(());
        }
        let kept = std::mem::take(&mut self.unnoted_aborts);
        let noted = self.active_mut().note_aborted(&kept);
        if noted.is_err() {
            self.unnoted_aborts = kept;
        }
        noted
    }

    /// Begins a new segment.
    pub(super) fn roll(&mut self, base: Offset, now: Timestamp) -> Result<(), LogError> {
        debug_assert!(base > self.active().base());
        self.say_unbroken()?;
        self.dirt.changes += 1;
        let segment = Segment::create(&self.home, base, now)?;
        // Both can be built anew from the segments: a disk without room for them has failed nothing yet.
        let _ = self.active_mut().finish_indexes();
        let _ = self.write_snapshot(base);
        self.segments.push(segment);
        Ok(())
    }

    /// Says on the disk, before the name of the next segment is there, that from the active one on each segment
    /// begins where the one before it ends: so a recovery knows a gap between two of them for a loss. Kafka leaves
    /// such gaps, and removes the file when it opens the log. Names reach the disk in the order in which they
    /// are made, or not at all.
    fn say_unbroken(&mut self) -> Result<(), LogError> {
        let from = self.active().base();
        if self.unbroken_from.is_some_and(|known| known <= from) {
            return Ok(());
        }
        let path = self.home.unbroken(from);
        self.dirt.changes += 1;
        self.home.disk.open(&path, Open::Create).map_err(|cause| LogError::io("create", &path, cause))?;
        self.unbroken_from = Some(from);
        Ok(())
    }

    /// Puts a new segment in the place of the active one, which is empty. A crash may leave others before it that are
    /// empty too: none stays that begins no lower, else two would have one file.
    fn replace_active(&mut self, base: Offset, now: Timestamp) -> Result<(), LogError> {
        debug_assert_eq!(self.active().size(), 0);
        let replaced = self.active().base();
        self.dirt.changes += 1;
        let segment = Segment::create(&self.home, base, now)?;
        while let Some(before) = self.segments.len().checked_sub(2)
            && self.segments[before].base() >= base
        {
            let dropped = self.segments.remove(before);
            debug_assert_eq!(dropped.size(), 0);
            if dropped.base() != base {
                self.home.remove(&self.home.file(dropped.base(), Kind::Log))?;
            }
        }
        if replaced != base {
            self.home.remove(&self.home.file(replaced, Kind::Log))?;
        }
        *self.active_mut() = segment;
        self.dirt.dirty_from = self.dirt.dirty_from.min(base);
        Ok(())
    }

    /// Writes the producer states as of the log end, which becomes `offset`.
    pub(crate) fn write_snapshot(&mut self, offset: Offset) -> Result<(), LogError> {
        let path = self.home.file(offset, Kind::Snapshot);
        let failed = |cause| LogError::io("write", &path, cause);
        let bytes = self.producers.snapshot();
        self.dirt.changes += 1;
        let file = self.home.disk.open(&path, Open::Create).map_err(failed)?;
        file.write_at(&[IoSlice::new(&bytes)], 0).map_err(failed)?;
        file.set_len(bytes.len() as u64).map_err(failed)
    }

    /// How much earlier than others a segment is rolled, so that not all partitions roll at once: the
    /// same for a segment every time.
    fn jitter_ms(&self, base: Offset) -> i64 {
        let most = self.config.segment_jitter_ms.min(self.config.segment_ms);
        if most <= 0 {
            return 0;
        }
        let path = crc32c::crc32c(self.home.path.as_os_str().as_encoded_bytes());
        let seed = crc32c::crc32c_append(path, &base.0.to_be_bytes());
        i64::from(seed) % most
    }
}
