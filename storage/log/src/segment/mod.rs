//! One segment: a `.log` file of batches and what is known of it.
//!
//! Only the last segment of a log is appended to. A segment knows how long its good part is: bytes
//! beyond `size` are what a failed write left, and are cut off before the log goes on. Owned by the log.
//!
//! Invariants:
//! * bytes below `size` are whole batches in order of their offsets, and are never written again;
//! * every index entry points to a batch below `size`.

mod index;
mod offset_index;
mod scan;
mod time_index;
pub mod txn_index;

use std::sync::Arc;

use tarn_record::{BatchHeader, Offset, Timestamp};

use crate::config::LogConfig;
use crate::descriptors::SegmentFile;
use crate::error::LogError;
use crate::home::{Home, Kind};
use crate::limits::{INDEX_ENTRIES_IN_MEMORY_MAX, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX};

use index::Index;
use offset_index::OffsetEntry;
pub(crate) use scan::{Found, NARROW, Scan, Step, WIDE};
use time_index::TimeEntry;
use txn_index::{AbortedTransaction, TxnIndex};

/// One segment of a log.
#[derive(Debug)]
pub(crate) struct Segment {
    base: Offset,
    file: Arc<SegmentFile>,
    size: u32,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    aborted: Option<Box<TxnIndex>>,
    /// Bytes since the last entry of the offset index.
    unindexed_bytes: u32,
    /// The latest batch so far; `None` until it is needed, in a segment that was found.
    latest: Option<Latest>,
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

/// What of a segment a search on another thread needs.
#[derive(Clone, Debug)]
pub(crate) struct SegmentView {
    base: Offset,
    file: Arc<SegmentFile>,
    size: u32,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    latest: Option<Latest>,
}

impl Segment {
    /// A new segment with an empty file.
    pub(crate) fn create(home: &Arc<Home>, base: Offset, now: Timestamp) -> Result<Segment, LogError> {
        for kind in [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex] {
            home.remove(&home.file(base, kind))?;
        }
        let file = SegmentFile::create(home.clone(), base)?;
        Ok(Segment {
            base,
            file,
            size: 0,
            offsets: Index::new(),
            times: Index::new(),
            aborted: None,
            unindexed_bytes: 0,
            latest: Some(Latest { timestamp: Timestamp::NONE.0, offset: base }),
            first_timestamp: None,
            created_ms: now.0,
        })
    }

    /// A segment whose files are there, with their sizes.
    pub(crate) fn found(
        home: &Arc<Home>,
        base: Offset,
        size: u32,
        index_bytes: u64,
        time_index_bytes: u64,
        now: Timestamp,
    ) -> Segment {
        Segment {
            base,
            file: SegmentFile::new(home.clone(), base),
            size,
            offsets: Index::in_file(index_bytes),
            times: Index::in_file(time_index_bytes),
            aborted: None,
            unindexed_bytes: 0,
            latest: None,
            first_timestamp: None,
            created_ms: now.0,
        }
    }

    pub(crate) fn base(&self) -> Offset {
        self.base
    }

    pub(crate) fn file(&self) -> &Arc<SegmentFile> {
        &self.file
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    pub(crate) fn has_index(&self) -> bool {
        self.offsets.len() > 0
    }

    fn home(&self) -> &Arc<Home> {
        self.file.home()
    }

    /// True where the offset fits into the segment's indexes.
    pub(crate) fn can_hold(&self, last: Offset) -> bool {
        last.0 - self.base.0 <= SEGMENT_OFFSETS_MAX
    }

    /// True where a batch of this size and this largest timestamp belongs into a new segment.
    pub(crate) fn is_due(
        &mut self,
        bytes: usize,
        largest_timestamp: i64,
        rules: &RollRules<'_>,
    ) -> Result<bool, LogError> {
        if self.size == 0 {
            return Ok(false);
        }
        let config = rules.config;
        let bytes_max = config.segment_bytes.min(SEGMENT_BYTES_MAX) as usize;
        Ok(self.size as usize + bytes > bytes_max
            || self.offsets.len() >= config.segment_index_bytes / 8
            || self.times.len() >= config.segment_index_bytes / 12
            || self.age_ms(largest_timestamp, rules.now)? > config.segment_ms - rules.jitter_ms)
    }

    /// How old the segment is as of a batch with this timestamp: by the records' time, or by the clock
    /// where they have none.
    fn age_ms(&mut self, largest_timestamp: i64, now: Timestamp) -> Result<i64, LogError> {
        let first = match self.first_timestamp {
            Some(first) => first,
            None => {
                let first = self.first_header()?.map_or(Timestamp::NONE.0, |header| header.max_timestamp);
                *self.first_timestamp.insert(first)
            }
        };
        Ok(match first {
            0.. => largest_timestamp.saturating_sub(first),
            _ => now.0.saturating_sub(self.created_ms),
        })
    }

    fn first_header(&self) -> Result<Option<BatchHeader>, LogError> {
        let file = self.open()?;
        match Scan::new(file.as_ref(), 0, u64::from(self.size), NARROW).step() {
            Ok(Step::Batch(found)) => Ok(Some(found.header)),
            Ok(_) => Ok(None),
            Err(cause) => Err(self.failed("read", cause)),
        }
    }

    /// Takes note of a batch that was written at the end of the good part.
    pub(crate) fn note(&mut self, header: &BatchHeader, config: &LogConfig) {
        debug_assert!(self.can_hold(header.last_offset()));
        let relative = (header.last_offset().0 - self.base.0) as u32;
        let latest = self.latest.get_or_insert(Latest { timestamp: Timestamp::NONE.0, offset: self.base });
        if header.max_timestamp > latest.timestamp {
            *latest = Latest { timestamp: header.max_timestamp, offset: header.last_offset() };
        }
        if self.unindexed_bytes > config.index_interval_bytes {
            self.offsets.push(OffsetEntry { relative, position: self.size });
            self.push_latest();
            self.unindexed_bytes = 0;
        }
        if self.size == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        self.size += header.size() as u32;
        self.unindexed_bytes = self.unindexed_bytes.saturating_add(header.size() as u32);
    }

    /// Bounds what the indexes hold in memory. What cannot be written now is kept.
    pub(crate) fn spill(&mut self) {
        if self.offsets.unstored().max(self.times.unstored()) >= INDEX_ENTRIES_IN_MEMORY_MAX {
            // A full disk shows at the next append; the entries stay usable in memory.
            let _ = self.store_indexes();
        }
    }

    /// Writes all entries of the indexes to their files, the segment's largest timestamp included.
    pub(crate) fn finish_indexes(&mut self) -> Result<(), LogError> {
        self.push_latest();
        self.store_indexes()
    }

    fn store_indexes(&mut self) -> Result<(), LogError> {
        let home = self.file.home().clone();
        self.offsets.store(&home, self.base)?;
        self.times.store(&home, self.base)
    }

    fn push_latest(&mut self) {
        let Some(latest) = self.latest else { return };
        if latest.timestamp > self.times.newest() {
            let relative = (latest.offset.0 - self.base.0) as u32;
            self.times.push(TimeEntry { timestamp: latest.timestamp, relative });
        }
    }
}
