//! One segment: a `.log` file of batches and what is known of it.
//!
//! Only the last segment of a log is appended to. A segment knows how long its good part is: bytes
//! beyond `size` are what a failed write left, and are cut off before the log goes on. Owned by the log.
//!
//! Invariants:
//! * bytes below `size` are whole batches in order of their offsets, and are never written again;
//! * every index entry points to a batch below `size`.

mod index;
mod lookup;
mod offset_index;
mod scan;
mod time_index;
pub mod txn_index;

use std::io::IoSlice;
use std::sync::Arc;

use tarn_record::{BatchHeader, Offset, Timestamp};

use crate::config::LogConfig;
use crate::descriptors::SegmentFile;
use crate::disk::ReadFrom;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::limits::{INDEX_ENTRIES_IN_MEMORY_MAX, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX};

use index::Index;
pub(crate) use lookup::SegmentView;
use offset_index::OffsetEntry;
pub(crate) use scan::{Found, NARROW, Scan, Step, WIDE};
use time_index::TimeEntry;
use txn_index::{AbortedTransaction, TxnIndex, TxnIndexError};

/// One segment of a log.
#[derive(Debug)]
pub(crate) struct Segment {
    view: SegmentView,
    aborted: Option<Box<TxnIndex>>,
    /// Bytes since the last entry of the offset index.
    unindexed_bytes: u32,
    /// The newest timestamp in the time index, in ms.
    indexed_timestamp: i64,
    /// What the age of the segment is counted from: its first batch's timestamp.
    first_timestamp: Option<i64>,
    created_ms: i64,
}

/// The largest timestamp of a segment, in ms, and the last offset of the batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latest {
    pub(crate) timestamp: i64,
    pub(crate) offset: Offset,
}

impl Latest {
    /// Takes note of a batch. One that compaction left without records keeps a timestamp that no record has.
    fn note(&mut self, header: &BatchHeader) {
        if header.record_count > 0 && header.max_timestamp > self.timestamp {
            *self = Latest { timestamp: header.max_timestamp, offset: header.last_offset() };
        }
    }
}

/// The files of a segment as a directory listing shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSizes {
    pub(crate) log: u32,
    pub(crate) index: u64,
    pub(crate) time_index: u64,
}

/// When a segment is full enough or old enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollRules<'a> {
    pub(crate) config: &'a LogConfig,
    pub(crate) now: Timestamp,
    pub(crate) jitter_ms: i64,
}

impl Segment {
    /// A new segment with an empty file.
    pub(crate) fn create(home: &Arc<Home>, base: Offset, now: Timestamp) -> Result<Segment, LogError> {
        for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
            home.remove(&home.file(base, kind))?;
        }
        let file = SegmentFile::create(home.clone(), base)?;
        let mut segment = Segment::with_file(file, FileSizes::default(), now);
        segment.view.latest = Some(Latest { timestamp: Timestamp::NONE.0, offset: base });
        Ok(segment)
    }

    /// A segment whose files are there. Before the first append it must be resumed.
    pub(crate) fn found(home: &Arc<Home>, base: Offset, sizes: FileSizes, now: Timestamp) -> Segment {
        Segment::with_file(SegmentFile::new(home.clone(), base), sizes, now)
    }

    /// A segment that is to take the place of others. Its files are written under other names, by who makes it.
    pub(crate) fn replacing(home: &Arc<Home>, base: Offset, now: Timestamp) -> Segment {
        let mut segment = Segment::found(home, base, FileSizes::default(), now);
        segment.view.latest = Some(Latest { timestamp: Timestamp::NONE.0, offset: base });
        segment
    }

    fn with_file(file: Arc<SegmentFile>, sizes: FileSizes, now: Timestamp) -> Segment {
        let view = SegmentView {
            file,
            size: sizes.log,
            offsets: Index::in_file(sizes.index),
            times: Index::in_file(sizes.time_index),
            latest: None,
        };
        Segment {
            view,
            aborted: None,
            unindexed_bytes: 0,
            indexed_timestamp: Timestamp::NONE.0,
            first_timestamp: None,
            created_ms: now.0,
        }
    }

    pub(crate) fn base(&self) -> Offset {
        self.view.file.base()
    }

    pub(crate) fn file(&self) -> &Arc<SegmentFile> {
        &self.view.file
    }

    pub(crate) fn size(&self) -> u32 {
        self.view.size
    }

    /// What lookups need.
    pub(crate) fn view(&self) -> &SegmentView {
        &self.view
    }

    /// True where entries of the offset index are known.
    pub(crate) fn is_indexed(&self) -> bool {
        self.view.offsets.len() > 0
    }

    /// True where the offset fits into the segment's indexes.
    pub(crate) fn can_hold(&self, last: Offset) -> bool {
        last.0 - self.base().0 <= SEGMENT_OFFSETS_MAX
    }

    /// True where a batch of this size and this largest timestamp belongs into a new segment.
    pub(crate) fn is_due(
        &mut self,
        bytes: usize,
        largest_timestamp: i64,
        rules: &RollRules<'_>,
    ) -> Result<bool, LogError> {
        if self.size() == 0 {
            return Ok(false);
        }
        let config = rules.config;
        let bytes_max = config.segment_bytes.min(SEGMENT_BYTES_MAX) as usize;
        Ok(self.size() as usize + bytes > bytes_max
            || self.view.offsets.is_full(config.segment_index_bytes)
            || self.view.times.is_full(config.segment_index_bytes)
            || self.age_ms(largest_timestamp, rules.now)? > config.segment_ms - rules.jitter_ms)
    }

    /// How old the segment is as of a batch with this timestamp: by the records' time, or by the clock
    /// where they have none.
    fn age_ms(&mut self, largest_timestamp: i64, now: Timestamp) -> Result<i64, LogError> {
        let first = match self.first_timestamp {
            Some(first) => first,
            None => *self.first_timestamp.insert(self.view.first_timestamp(ReadFrom::Disk)?),
        };
        Ok(match first {
            0.. => largest_timestamp.saturating_sub(first),
            _ => now.0.saturating_sub(self.created_ms),
        })
    }

    /// Writes at the end of the good part, which does not grow before [`Segment::note`].
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> Result<(), LogError> {
        let written = self.view.file.open().and_then(|file| file.write_at(parts, u64::from(self.size())));
        written.map_err(|cause| self.view.failed("write", cause))
    }

    /// Takes note of a batch that was written at the end of the good part.
    pub(crate) fn note(&mut self, header: &BatchHeader, config: &LogConfig) {
        let last = header.last_offset();
        debug_assert!(self.can_hold(last) && self.view.latest.is_some());
        let start = Latest { timestamp: Timestamp::NONE.0, offset: self.base() };
        let latest = self.view.latest.get_or_insert(start);
        latest.note(header);
        if self.unindexed_bytes > config.index_interval_bytes {
            let relative = (last.0 - self.base().0) as u32;
            self.view.offsets.push(OffsetEntry { relative, position: self.size() });
            self.index_latest();
            self.unindexed_bytes = 0;
        }
        if self.size() == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        self.view.size += header.size() as u32;
        self.unindexed_bytes = self.unindexed_bytes.saturating_add(header.size() as u32);
    }

    /// Bounds what the indexes hold in memory. What cannot be written now is kept.
    pub(crate) fn spill(&mut self) {
        if self.view.offsets.unstored() >= INDEX_ENTRIES_IN_MEMORY_MAX {
            // A full disk shows at the next append; the entries stay usable in memory.
            let _ = self.store_indexes();
        }
    }

    /// Writes all entries of the indexes to their files, the segment's largest timestamp included, and leaves the
    /// transaction index whole.
    pub(crate) fn finish_indexes(&mut self) -> Result<(), LogError> {
        self.index_latest();
        self.store_indexes()?;
        Ok(self.aborted.as_mut().map_or(Ok(()), |aborted| aborted.mend())?)
    }

    fn store_indexes(&mut self) -> Result<(), LogError> {
        let (home, base) = (self.view.file.home().clone(), self.base());
        if self.view.times.unstored() > 0 {
            // Kafka takes a time index without an offset index for damage.
            self.view.offsets.make_file(&home, base)?;
        }
        self.view.offsets.store(&home, base)?;
        self.view.times.store(&home, base)
    }

    fn index_latest(&mut self) {
        let Some(latest) = self.view.latest else { return };
        if latest.timestamp > self.indexed_timestamp {
            let relative = (latest.offset.0 - self.base().0) as u32;
            self.view.times.push(TimeEntry { timestamp: latest.timestamp, relative });
            self.indexed_timestamp = latest.timestamp;
        }
    }

    /// What the files of both indexes have to hold, offsets first, where somebody else writes them.
    pub(crate) fn take_indexes(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.index_latest();
        (self.view.offsets.take_unstored(), self.view.times.take_unstored())
    }

    /// The sizes of the files of both indexes.
    pub(crate) fn index_bytes(&self) -> (u64, u64) {
        (self.view.offsets.bytes(), self.view.times.bytes())
    }

    /// The largest timestamp, in ms; negative without one. What its file says of it is remembered.
    pub(crate) fn largest_timestamp(&mut self, source: ReadFrom) -> Result<i64, LogError> {
        let latest = self.view.latest_from(source)?;
        self.remember_latest(latest);
        Ok(latest.timestamp)
    }

    /// Remembers what the disk says of the largest timestamp, where that is not known yet.
    pub(crate) fn remember_latest(&mut self, latest: Latest) {
        if self.view.latest.is_none() {
            // It comes from the time index, which must not get the same entry again.
            self.indexed_timestamp = latest.timestamp;
            self.view.latest = Some(latest);
        }
    }

    /// The largest timestamp of the first batch, in ms; negative without one. Remembered likewise.
    pub(crate) fn oldest_timestamp(&mut self, source: ReadFrom) -> Result<i64, LogError> {
        if self.size() == 0 {
            return Ok(Timestamp::NONE.0);
        }
        match self.first_timestamp {
            Some(first) => Ok(first),
            None => Ok(*self.first_timestamp.insert(self.view.first_timestamp(source)?)),
        }
    }

    /// Remembers what the disk says of it, where that is not known yet.
    pub(crate) fn remember_oldest(&mut self, first_timestamp: i64) {
        self.first_timestamp.get_or_insert(first_timestamp);
    }

    /// True where both timestamps are known, or none is needed.
    pub(crate) fn knows_its_timestamps(&self) -> bool {
        self.size() == 0 || self.view.latest.is_some() && self.first_timestamp.is_some()
    }

    /// Makes a segment that was found ready for appends, from its indexes and the batches above their
    /// last entry. Returns the header of its last batch; `None` where it has none.
    pub(crate) fn resume(&mut self) -> Result<Option<BatchHeader>, LogError> {
        let newest = self.view.newest_time_entry(ReadFrom::Disk)?;
        self.indexed_timestamp = newest.map_or(Timestamp::NONE.0, |latest| latest.timestamp);
        let mut latest = newest.unwrap_or(Latest { timestamp: Timestamp::NONE.0, offset: self.base() });
        let (file, from) = (self.view.open()?, self.view.last_indexed_position()?);
        let mut scan = Scan::new(file.as_ref(), self.base(), from, u64::from(self.size()), WIDE);
        let mut last = None;
        loop {
            match scan.step().map_err(|cause| self.view.failed("read", cause))? {
                Step::Batch(Found { header, .. }) => {
                    last = Some(header);
                    latest.note(&header);
                }
                Step::Bad(fault) => return Err(self.view.damaged(scan.position(), fault)),
                Step::End => break,
            }
        }
        self.unindexed_bytes = (u64::from(self.size()) - from) as u32;
        self.view.latest = Some(latest);
        if last.is_some() {
            // The first append asks for it, and that is on a core.
            self.oldest_timestamp(ReadFrom::Disk)?;
        }
        Ok(last)
    }

    /// Forgets everything but the file: before the segment is built anew, batch by batch.
    pub(crate) fn reset(&mut self) -> Result<(), LogError> {
        let home = self.view.file.home().clone();
        home.remove(&home.file(self.base(), Kind::TxnIndex))?;
        self.aborted = None;
        self.forget_indexes()
    }

    /// Builds both indexes anew from the headers of the batches.
    pub(crate) fn reindex(&mut self, config: &LogConfig) -> Result<(), LogError> {
        let (view, size) = (self.view.clone(), self.size());
        self.forget_indexes()?;
        let file = view.open()?;
        let mut scan = Scan::new(file.as_ref(), view.base(), 0, u64::from(size), WIDE);
        loop {
            match scan.step().map_err(|cause| view.failed("read", cause))? {
                Step::Batch(found) => self.note(&found.header, config),
                Step::Bad(fault) => return Err(view.damaged(scan.position(), fault)),
                Step::End => return Ok(()),
            }
            self.spill();
        }
    }

    fn forget_indexes(&mut self) -> Result<(), LogError> {
        let (home, base) = (self.view.file.home().clone(), self.base());
        for kind in [Kind::OffsetIndex, Kind::TimeIndex] {
            home.remove(&home.file(base, kind))?;
        }
        self.view.size = 0;
        self.view.offsets = Index::in_file(0);
        self.view.times = Index::in_file(0);
        self.view.latest = Some(Latest { timestamp: Timestamp::NONE.0, offset: base });
        self.unindexed_bytes = 0;
        self.indexed_timestamp = Timestamp::NONE.0;
        self.first_timestamp = None;
        Ok(())
    }

    /// Puts a new file in the place of one without a batch. Parts of several failed writes, joined by a
    /// crash, could look like a batch: base offset and epoch are not covered by its checksum.
    pub(crate) fn renew_file(&mut self) -> Result<(), LogError> {
        debug_assert_eq!(self.size(), 0);
        let home = self.view.file.home().clone();
        self.view.file = SegmentFile::create_anew(home, self.base())?;
        Ok(())
    }

    /// Cuts off what is beyond the good part.
    pub(crate) fn cut_tail(&self) -> Result<(), LogError> {
        let cut = self.view.file.open().and_then(|file| file.set_len(u64::from(self.size())));
        cut.map_err(|cause| self.view.failed("cut", cause))
    }

    /// Drops the batches from `position` on; `offset` is the first offset that goes. Readers whose plans
    /// name the dropped bytes find them not current before the bytes go.
    pub(crate) fn cut_at(&mut self, position: u32, offset: Offset) -> Result<(), LogError> {
        self.view.file.cut_at(u64::from(position));
        self.view.size = self.view.size.min(position);
        let (home, base) = (self.view.file.home().clone(), self.base());
        let relative = (offset.0 - base.0).clamp(0, i64::from(u32::MAX)) as u32;
        self.cut_tail()?;
        self.view.offsets.truncate_to(&home, base, |entry| entry.position < position)?;
        self.view.times.truncate_to(&home, base, |entry| entry.relative < relative)?;
        if let Some(aborted) = &mut self.aborted {
            aborted.truncate_to(offset)?;
        }
        self.view.latest = None;
        Ok(())
    }

    /// Opens the file of the transaction index, where there is one.
    pub(crate) fn find_txn_index(&self) -> Result<Option<TxnIndex>, TxnIndexError> {
        let home = self.view.file.home();
        TxnIndex::open(home.disk.clone(), home.file(self.base(), Kind::TxnIndex))
    }

    /// The transaction index, where the segment has one.
    pub(crate) fn txn_index(&self) -> Option<&TxnIndex> {
        self.aborted.as_deref()
    }

    /// Gives a segment the transaction index that was found or written for it.
    pub(crate) fn set_txn_index(&mut self, index: TxnIndex) {
        self.aborted = Some(Box::new(index));
    }

    /// Adds an aborted transaction to the transaction index.
    pub(crate) fn note_aborted(&mut self, aborted: &[AbortedTransaction]) -> Result<(), LogError> {
        let (home, base) = (self.view.file.home(), self.view.file.base());
        let index = self.aborted.get_or_insert_with(|| {
            Box::new(TxnIndex::new(home.disk.clone(), home.file(base, Kind::TxnIndex)))
        });
        Ok(index.append(aborted)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, ProducerId};

    use crate::descriptors::Descriptors;
    use crate::disk::RealDisk;
    use crate::log_dir::LogDir;

    #[test]
    fn a_segment_that_is_finished_has_a_whole_transaction_index() {
        let directory = tempfile::tempdir().unwrap();
        let dir = LogDir::open(Arc::new(RealDisk), directory.path(), Descriptors::new(10)).unwrap();
        let home = dir.home("orders", PartitionIndex(0));
        std::fs::create_dir(&home.path).unwrap();
        let mut segment = Segment::create(&home, Offset(0), Timestamp(0)).unwrap();
        let aborted = |last| AbortedTransaction {
            producer_id: ProducerId(7),
            first_offset: Offset(0),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        };
        segment.note_aborted(&[aborted(3)]).unwrap();
        segment.aborted.as_mut().unwrap().tear();
        segment.finish_indexes().unwrap();
        let found = segment.find_txn_index().unwrap().unwrap();
        found.sanity_check(&(Offset(0)..Offset(4))).unwrap();
        assert_eq!(found.len(), 1);
        segment.note_aborted(&[aborted(5)]).unwrap();
        assert_eq!(segment.find_txn_index().unwrap().unwrap().len(), 2);
    }
}
