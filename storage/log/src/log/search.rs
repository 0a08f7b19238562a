//! Finding a record by its timestamp (ListOffsets), or a batch by what comes after it.
//!
//! A search may have to read and decompress a batch that is on the disk only, so it leaves the log's core:
//! it takes a copy of what the log knows and runs on any thread.

use tarn_record::{BatchError, BatchHeader, Epoch, Offset, Timestamp};

use super::Log;
use crate::epochs::EpochHistory;
use crate::error::LogError;
use crate::limits::SEARCHED_BATCH_BYTES_MAX;
use crate::segment::{Found, NARROW, Scan, SegmentView};

/// A search that is ready to run.
#[derive(Debug)]
#[must_use = "a search finds nothing until it is run"]
pub struct TimestampSearch {
    segments: Vec<SegmentView>,
    start: Offset,
    upper: Offset,
    wanted: Wanted,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    AtLeast(Timestamp),
    Largest,
}

/// The search for the last batch that begins below an offset, ready to run.
#[derive(Debug)]
#[must_use = "a search finds nothing until it is run"]
pub struct BatchBelowSearch {
    /// Those that may have it, the later first, and where each ends.
    segments: Vec<(SegmentView, Offset)>,
    start: Offset,
    below: Offset,
    /// Where the batch ends, where it is the newest and that is known to the offset: a log may end in a gap between the
    /// last batch and an empty segment, which a cleaner has left.
    ends_at: Option<Offset>,
    epochs: EpochHistory,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    /// The record.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// The epoch of the leader that appended it.
    pub leader_epoch: Epoch,
}

impl Log {
    /// Searches the first record below `upper` whose timestamp is `timestamp` or later.
    pub fn search_timestamp(&self, timestamp: Timestamp, upper: Offset) -> TimestampSearch {
        self.search(Wanted::AtLeast(timestamp), upper)
    }

    /// Searches the first of the records with the largest timestamp; finds nothing where that record is
    /// not below `upper`.
    pub fn max_timestamp(&self, upper: Offset) -> TimestampSearch {
        self.search(Wanted::Largest, upper)
    }

    /// Searches the newest batch.
    pub fn newest_batch(&self) -> BatchBelowSearch {
        self.batch_below(self.end)
    }

    /// Searches the last batch that begins below `offset`.
    pub fn batch_below(&self, offset: Offset) -> BatchBelowSearch {
        let below = offset.min(self.end);
        let upto = self.segments.partition_point(|segment| segment.base() < below);
        // The last of them may begin with a gap that `below` is in; the one before it ends with a batch.
        let last_batch_end = self.last_batch_end();
        let end_of = |next: usize| {
            self.segments.get(next).map_or(last_batch_end, |next| next.base().min(last_batch_end))
        };
        let ended = self.segments[..upto].iter().enumerate().rev();
        let filled = ended.filter(|(_, segment)| segment.size() > 0).take(2);
        let segments: Vec<_> =
            filled.map(|(index, segment)| (segment.view().clone(), end_of(index + 1))).collect();
        let is_newest = below >= last_batch_end && self.active().size() > 0;
        let ends_at = is_newest.then_some(last_batch_end);
        BatchBelowSearch { segments, start: self.start, below, ends_at, epochs: self.epochs.clone() }
    }

    fn search(&self, wanted: Wanted, upper: Offset) -> TimestampSearch {
        let first = self.segment_of(self.start);
        let segments = self.segments[first..].iter().map(|segment| segment.view().clone()).collect();
        TimestampSearch { segments, start: self.start, upper, wanted }
    }
}

impl BatchBelowSearch {
    /// Its header; `None` where there is no such batch.
    ///
    /// # Errors
    /// Where a segment cannot be read: also when its offsets were removed meanwhile; or where what is looked at on the
    /// way cannot be what was written.
    pub fn run(self) -> Result<Option<BatchHeader>, LogError> {
        Ok(self.find()?.map(|(_, found)| found.header))
    }

    /// The same, and the batch is read and is what was written, so that whoever finds another one elsewhere is not
    /// misled by damage here.
    ///
    /// # Errors
    /// As for [`BatchBelowSearch::run`]; and where its checksum or its leader epoch, which that does not cover, is not
    /// right.
    pub fn run_checked(self) -> Result<Option<BatchHeader>, LogError> {
        let Some((segment, found)) = self.find()? else { return Ok(None) };
        let file = segment.open()?;
        let mut scan =
            Scan::new(file.as_ref(), segment.base(), found.position, u64::from(segment.size), NARROW);
        let checked = scan.check(&found).map_err(|cause| segment.failed("read", cause))?;
        checked.map_err(|fault| segment.damaged(found.position, fault))?;
        let BatchHeader { base_offset: offset, leader_epoch: stored, .. } = found.header;
        match self.epochs.at(offset) {
            Some(known) if known != stored => {
                Err(LogError::WrongEpoch { path: segment.file.path(), offset, stored, known })
            }
            _ => Ok(Some(found.header)),
        }
    }

    fn find(&self) -> Result<Option<(&SegmentView, Found)>, LogError> {
        for (segment, upper) in &self.segments {
            let Some(found) = segment.locate_below(self.below, *upper)? else { continue };
            let BatchHeader { base_offset: offset, last_offset_delta, .. } = found.header;
            if self.ends_at.is_some_and(|end| found.header.next_offset() != end) {
                let fault = BatchError::BadOffsets { offset, last_offset_delta };
                return Err(segment.damaged(found.position, fault));
            }
            let is_in_log = found.header.last_offset() >= self.start;
            return Ok(is_in_log.then_some((segment, found)));
        }
        Ok(None)
    }
}

impl TimestampSearch {
    /// Does it.
    ///
    /// # Errors
    /// Where a segment cannot be read: also when its offsets were removed meanwhile.
    pub fn run(self) -> Result<Option<FoundTimestamp>, LogError> {
        let found = match self.wanted {
            Wanted::AtLeast(timestamp) => self.first_at_least(timestamp)?,
            Wanted::Largest => self.largest()?,
        };
        Ok(found.filter(|found| found.offset < self.upper))
    }

    fn first_at_least(&self, timestamp: Timestamp) -> Result<Option<FoundTimestamp>, LogError> {
        for segment in &self.segments {
            if segment.latest()?.timestamp < timestamp.0 {
                continue;
            }
            if let Some(found) = self.first_in(segment, timestamp)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn largest(&self) -> Result<Option<FoundTimestamp>, LogError> {
        let mut largest = (Timestamp::NONE, None);
        for segment in &self.segments {
            let timestamp = Timestamp(segment.latest()?.timestamp);
            if timestamp > largest.0 {
                largest = (timestamp, Some(segment));
            }
        }
        match largest {
            (timestamp, Some(segment)) => self.first_in(segment, timestamp),
            _ => Ok(None),
        }
    }

    /// The first record of a segment, within the log, that is late enough.
    fn first_in(
        &self,
        segment: &SegmentView,
        timestamp: Timestamp,
    ) -> Result<Option<FoundTimestamp>, LogError> {
        let mut from = self.start;
        while let Some(batch) = segment.locate_time(timestamp.0, from)? {
            if let Some(found) = self.first_in_batch(segment, &batch, timestamp)? {
                return Ok(Some(found));
            }
            from = batch.header.next_offset();
        }
        Ok(None)
    }

    fn first_in_batch(
        &self,
        segment: &SegmentView,
        found: &Found,
        timestamp: Timestamp,
    ) -> Result<Option<FoundTimestamp>, LogError> {
        let file = segment.open()?;
        let scan = Scan::new(file.as_ref(), segment.base(), found.position, u64::from(segment.size), NARROW);
        let batch = scan
            .read(found)
            .map_err(|cause| segment.failed("read", cause))?
            .map_err(|fault| segment.damaged(found.position, fault))?;
        let unreadable = |cause| segment.unreadable(found.position, cause);
        let mut records = batch.reader(SEARCHED_BATCH_BYTES_MAX).map_err(|cause| unreadable(cause.into()))?;
        while let Some(record) = records.next() {
            let record = record.map_err(unreadable)?;
            let offset = found.header.base_offset.plus(i64::from(record.offset_delta));
            let at = Timestamp(found.header.timestamp_of(record.timestamp_delta));
            if at >= timestamp && offset >= self.start {
                let leader_epoch = found.header.leader_epoch;
                return Ok(Some(FoundTimestamp { offset, timestamp: at, leader_epoch }));
            }
        }
        Ok(None)
    }
}
