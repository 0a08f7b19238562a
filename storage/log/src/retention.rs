//! What of a log is old, or too much, and goes: whole segments, the oldest first.
//!
//! As in Kafka a segment goes by `retention.bytes` as long as no less than that stays, and then by `retention.ms`
//! where its newest record is older; without a timestamp, the time its file was last written stands in. The active
//! segment goes too, where all of it is to: the log then goes on in a new one.
//!
//! Ages that nobody has looked up since the log was opened are read from the disk, by a search that runs on any
//! thread.
//!
//! Invariants:
//! * no record at or above the high watermark goes, and none of a log that a truncation has left half cut;
//! * a segment goes only with all that are before it.

use std::sync::Arc;

use tarn_record::{Offset, Timestamp};

use crate::config::Retention;
use crate::descriptors::SegmentFile;
use crate::error::LogError;
use crate::limits::AGES_READ_AT_ONCE;
use crate::log::Log;
use crate::segment::{Latest, SegmentView};

/// What retention asks for.
#[derive(Debug)]
pub enum Expiry {
    /// Nothing goes.
    Kept,
    /// The log may start here, which is where a segment ends.
    UpTo(Offset),
    /// How old some segments are has to be looked up first.
    Unread(AgeSearch),
}

/// A look at how old segments are, ready to run.
#[derive(Debug)]
#[must_use = "no age is known before it is run"]
pub struct AgeSearch {
    segments: Vec<SegmentView>,
    /// What is not older stays, and so does what comes after it.
    cutoff: Timestamp,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Ages {
    found: Vec<Age>,
}

#[derive(Debug)]
struct Age {
    file: Arc<SegmentFile>,
    latest: Latest,
    /// When the file was last written, where no record has a timestamp; `None` where the disk does not say.
    written_ms: Option<i64>,
}

impl Log {
    /// What goes by these rules. `ages` is what was found when this asked for it.
    pub fn expiry(
        &self,
        retention: &Retention,
        high_watermark: Offset,
        now: Timestamp,
        ages: &Ages,
    ) -> Expiry {
        if self.is_half_cut() {
            return Expiry::Kept;
        }
        let mut gone = self.beyond_size(retention, high_watermark);
        if let Some(ms) = retention.ms {
            let cutoff = Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)));
            while self.may_go(gone, high_watermark) {
                match self.is_older(gone, cutoff, ages) {
                    Some(true) => gone += 1,
                    Some(false) => break,
                    None => return Expiry::Unread(self.search_ages(gone, cutoff)),
                }
            }
        }
        match gone.checked_sub(1) {
            Some(last) => Expiry::UpTo(self.segment_end(last)),
            None if self.has_segment_below_start() => Expiry::UpTo(self.start),
            None => Expiry::Kept,
        }
    }

    /// Remembers the timestamps that were found.
    pub fn remember(&mut self, ages: &Ages) {
        for age in ages.found.iter().filter(|age| age.written_ms.is_none()) {
            let same = self.segments.iter_mut().find(|segment| Arc::ptr_eq(segment.file(), &age.file));
            if let Some(segment) = same {
                segment.remember_latest(age.latest);
            }
        }
    }

    /// How many segments go so that no less than `retention.bytes` stays.
    fn beyond_size(&self, retention: &Retention, high_watermark: Offset) -> usize {
        let Some(mut beyond) = retention.bytes.and_then(|kept| self.size_bytes().checked_sub(kept)) else {
            return 0;
        };
        let mut gone = 0;
        while self.may_go(gone, high_watermark) {
            let Some(left) = beyond.checked_sub(u64::from(self.segments[gone].size())) else { break };
            (beyond, gone) = (left, gone + 1);
        }
        gone
    }

    /// True for a segment below the high watermark, but for an active one without a batch.
    fn may_go(&self, index: usize, high_watermark: Offset) -> bool {
        let is_last = index + 1 == self.segments.len();
        self.segments.get(index).is_some_and(|segment| !(is_last && segment.size() == 0))
            && self.segment_end(index) <= high_watermark
    }

    /// Whether all of a segment is older than `cutoff`; `None` where that has to be looked up.
    fn is_older(&self, index: usize, cutoff: Timestamp, ages: &Ages) -> Option<bool> {
        let segment = &self.segments[index];
        let found = ages.found.iter().find(|age| Arc::ptr_eq(&age.file, segment.file()));
        let latest = segment.view().latest.or(found.map(|age| age.latest))?;
        match latest.timestamp {
            0.. => Some(latest.timestamp < cutoff.0),
            _ => found.map(|age| age.written_ms.is_some_and(|written| written < cutoff.0)),
        }
    }

    fn search_ages(&self, from: usize, cutoff: Timestamp) -> AgeSearch {
        let segments = self.segments[from..].iter().take(AGES_READ_AT_ONCE);
        AgeSearch { segments: segments.map(|segment| segment.view().clone()).collect(), cutoff }
    }
}

impl AgeSearch {
    /// Looks, up to the first segment that is not older.
    ///
    /// # Errors
    /// Where an index cannot be read; also when its segment was removed meanwhile.
    pub fn run(self) -> Result<Ages, LogError> {
        let mut found = Vec::new();
        for segment in self.segments {
            let latest = segment.latest()?;
            let has_timestamp = latest.timestamp >= 0;
            let written_ms = if has_timestamp { None } else { segment.written_ms() };
            let newest = if has_timestamp { Some(latest.timestamp) } else { written_ms };
            found.push(Age { file: segment.file().clone(), latest, written_ms });
            if newest.is_none_or(|newest| newest >= self.cutoff.0) {
                break;
            }
        }
        Ok(Ages { found })
    }
}

impl Ages {
    /// True where nothing was looked up.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds what was found next.
    pub fn extend(&mut self, more: Ages) {
        self.found.extend(more.found);
    }
}
