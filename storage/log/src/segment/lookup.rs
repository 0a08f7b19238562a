//! Finding batches in a segment: by offset and by timestamp.
//!
//! A [`SegmentView`] is what a search needs, apart from the log: a search for a timestamp takes a copy
//! and runs on another thread. Indexes are hints: what they point to is checked, and where an index is
//! wrong the search begins at the start of the segment instead.

use std::io;
use std::sync::Arc;

use tarn_record::{BatchError, Offset, Timestamp};

use super::index::Index;
use super::offset_index::OffsetEntry;
use super::time_index::TimeEntry;
use super::{Found, Latest, NARROW, Scan, Step};
use crate::descriptors::SegmentFile;
use crate::disk::{DiskFile, ReadFrom};
use crate::error::LogError;
use crate::home::Home;

/// The good part of a segment's file and its indexes.
#[derive(Clone, Debug)]
pub(crate) struct SegmentView {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) size: u32,
    pub(super) offsets: Index<OffsetEntry>,
    pub(super) times: Index<TimeEntry>,
    /// The latest batch so far; `None` until it is needed, in a segment that was found.
    pub(crate) latest: Option<Latest>,
}

impl SegmentView {
    pub(crate) fn base(&self) -> Offset {
        self.file.base()
    }

    pub(crate) fn file(&self) -> &Arc<SegmentFile> {
        &self.file
    }

    /// The first batch whose last offset is `offset` or above.
    pub(crate) fn locate(&self, offset: Offset) -> Result<Option<Found>, LogError> {
        self.locate_from(offset, ReadFrom::Disk)
    }

    /// The same, read from there.
    pub(crate) fn locate_from(&self, offset: Offset, source: ReadFrom) -> Result<Option<Found>, LogError> {
        if self.size == 0 {
            return Ok(None);
        }
        self.first_where(self.hint(offset, source)?, source, |found| found.header.last_offset() >= offset)
    }

    /// The last batch that begins below `offset`. Batches up to the second after it that are not in order, or not all
    /// below `upper`, where the segment ends, are damaged: which of them is the wrong one cannot be told.
    pub(crate) fn locate_below(&self, offset: Offset, upper: Offset) -> Result<Option<Found>, LogError> {
        if self.size == 0 {
            return Ok(None);
        }
        let file = self.open()?;
        let (mut scan, mut step) =
            self.scan_from(file.as_ref(), self.hint(offset.plus(-1), ReadFrom::Disk)?, ReadFrom::Disk)?;
        let (mut last, mut expected, mut is_passed) = (None, self.base(), false);
        loop {
            let found = match step {
                Step::Batch(found) => found,
                Step::End => return Ok(last),
                Step::Bad(fault) => return Err(self.damaged(scan.position(), fault)),
            };
            found.follows(expected, upper).map_err(|fault| self.damaged(found.position, fault))?;
            match found.header.base_offset < offset {
                true => last = Some(found),
                false if is_passed => return Ok(last),
                // Were its offset too high, it would overlap the next.
                false => is_passed = true,
            }
            expected = found.header.next_offset();
            step = self.next(&mut scan)?;
        }
    }

    /// The first batch that begins at `position` or above.
    pub(crate) fn locate_position(&self, position: u64, source: ReadFrom) -> Result<Option<Found>, LogError> {
        if position >= u64::from(self.size) {
            return Ok(None);
        }
        let at_or_below = |entry: &OffsetEntry| u64::from(entry.position) <= position;
        let hint = self.offsets.last_where(self.home(), self.base(), source, at_or_below)?;
        self.first_where(hint, source, |found| found.position >= position)
    }

    /// The first batch from `offset` on that is later than or at `timestamp`.
    pub(crate) fn locate_time(&self, timestamp: i64, offset: Offset) -> Result<Option<Found>, LogError> {
        let base = self.base();
        let earlier = |entry: &TimeEntry| entry.timestamp < timestamp;
        let entry = self.times.last_where(self.home(), base, ReadFrom::Disk, earlier)?;
        let below = entry.map_or(base, |entry| base.plus(i64::from(entry.relative)));
        let from = below.max(offset);
        self.first_where(self.hint(from, ReadFrom::Disk)?, ReadFrom::Disk, |found| {
            found.header.last_offset() >= from && found.header.max_timestamp >= timestamp
        })
    }

    /// The largest timestamp and the batch that has it.
    pub(crate) fn latest(&self) -> Result<Latest, LogError> {
        self.latest_from(ReadFrom::Disk)
    }

    /// The same, read from there.
    pub(crate) fn latest_from(&self, source: ReadFrom) -> Result<Latest, LogError> {
        let none = Latest { timestamp: Timestamp::NONE.0, offset: self.base() };
        match self.latest {
            Some(latest) => Ok(latest),
            None => Ok(self.newest_time_entry(source)?.unwrap_or(none)),
        }
    }

    /// When the file was last written, in ms; `None` where the disk does not say.
    pub(crate) fn written_ms(&self) -> Option<i64> {
        self.home().disk.modified_ms(&self.file.path()).ok()
    }

    pub(super) fn newest_time_entry(&self, source: ReadFrom) -> Result<Option<Latest>, LogError> {
        let entry = self.times.last(self.home(), self.base(), source)?;
        Ok(entry.map(|entry| Latest {
            timestamp: entry.timestamp,
            offset: self.base().plus(i64::from(entry.relative)),
        }))
    }

    /// Where the batch of the last entry of the offset index begins; 0 without entries.
    pub(super) fn last_indexed_position(&self) -> Result<u64, LogError> {
        let entry = self.offsets.last(self.home(), self.base(), ReadFrom::Disk)?;
        let Some(entry) = entry else { return Ok(0) };
        match self.scan_from(self.open()?.as_ref(), Some(entry), ReadFrom::Disk)?.1 {
            Step::Batch(found) => Ok(found.position),
            _ => Ok(0),
        }
    }

    /// The largest timestamp of the first batch.
    pub(crate) fn first_timestamp(&self, source: ReadFrom) -> Result<i64, LogError> {
        let first = self.first_where(None, source, |_| true)?;
        Ok(first.map_or(Timestamp::NONE.0, |found| found.header.max_timestamp))
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn DiskFile>, LogError> {
        self.open_from(ReadFrom::Disk)
    }

    fn open_from(&self, source: ReadFrom) -> Result<Arc<dyn DiskFile>, LogError> {
        self.file.open_from(source).map_err(|cause| self.failed("open", cause))
    }

    pub(crate) fn failed(&self, action: &'static str, cause: io::Error) -> LogError {
        LogError::io(action, &self.file.path(), cause)
    }

    pub(crate) fn damaged(&self, position: u64, fault: BatchError) -> LogError {
        LogError::Damaged { path: self.file.path(), position, fault }
    }

    pub(crate) fn unreadable(&self, position: u64, cause: tarn_record::ReadError) -> LogError {
        LogError::Unreadable { path: self.file.path(), position, cause }
    }

    /// The last index entry at or below `offset`.
    fn hint(&self, offset: Offset, source: ReadFrom) -> Result<Option<OffsetEntry>, LogError> {
        let base = self.base();
        let relative = offset.0.saturating_sub(base.0);
        self.offsets.last_where(self.home(), base, source, |entry| i64::from(entry.relative) <= relative)
    }

    /// The first batch for which `holds`, from the one on to which the index points.
    fn first_where(
        &self,
        hint: Option<OffsetEntry>,
        source: ReadFrom,
        holds: impl Fn(&Found) -> bool,
    ) -> Result<Option<Found>, LogError> {
        let file = self.open_from(source)?;
        let (mut scan, mut step) = self.scan_from(file.as_ref(), hint, source)?;
        loop {
            match step {
                Step::Batch(found) if holds(&found) => return Ok(Some(found)),
                Step::Batch(_) => {}
                Step::Bad(fault) => return Err(self.damaged(scan.position(), fault)),
                Step::End => return Ok(None),
            }
            step = self.next(&mut scan)?;
        }
    }

    /// A scan from the batch on to which the index points, and its first step; from the start of the
    /// segment where the index is wrong.
    fn scan_from<'a>(
        &self,
        file: &'a dyn DiskFile,
        hint: Option<OffsetEntry>,
        source: ReadFrom,
    ) -> Result<(Scan<'a>, Step), LogError> {
        let end = u64::from(self.size);
        if let Some(entry) = hint {
            let mut scan =
                Scan::new(file, self.base(), u64::from(entry.position), end, NARROW).reading(source);
            let step = self.next(&mut scan)?;
            let expected = self.base().plus(i64::from(entry.relative));
            if matches!(step, Step::Batch(found) if found.header.last_offset() == expected) {
                return Ok((scan, step));
            }
        }
        let mut scan = Scan::new(file, self.base(), 0, end, NARROW).reading(source);
        let step = self.next(&mut scan)?;
        Ok((scan, step))
    }

    fn next(&self, scan: &mut Scan<'_>) -> Result<Step, LogError> {
        scan.step().map_err(|cause| self.failed("read", cause))
    }

    fn home(&self) -> &Home {
        self.file.home()
    }
}
