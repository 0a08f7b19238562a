//! What a truncation has to read: where the first dropped batch is, and the producers below it.
//!
//! That can be most of a segment, so it leaves the log's core: it takes a copy of what the log knows and runs on
//! any thread. What was found counts for the log as it was then; a log that has changed since is looked at again.

use std::sync::Arc;

use tarn_record::Offset;

use super::{Log, LogIdentity};
use crate::error::LogError;
use crate::home::Home;
use crate::producers::ProducerStates;
use crate::recovery::ProducersBelow;
use crate::segment::SegmentView;

/// A search that is ready to run.
#[derive(Debug)]
#[must_use = "nothing is found until it is run"]
pub struct TruncationSearch {
    home: Arc<Home>,
    offset: Offset,
    of: Version,
    /// The segment that holds the offset and its number, where the log holds it.
    segment: Option<(usize, SegmentView)>,
    producers: ProducersBelow,
}

/// What a truncation needs; to be handed to [`Log::truncate_as_found`].
#[derive(Debug)]
pub struct FoundTruncation {
    pub(super) offset: Offset,
    of: Version,
    /// Where the log will end.
    pub(super) end: Offset,
    /// How many segments stay.
    pub(super) kept: usize,
    /// Where the last of them is cut, if it is.
    pub(super) position: Option<u32>,
    pub(super) producers: ProducerStates,
    /// The snapshot that they rest on.
    pub(super) snapshot: Option<Offset>,
}

/// What the log was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    log: LogIdentity,
    start: Offset,
    end: Offset,
    segments: usize,
    swaps: u64,
}

impl Log {
    /// Looks for what a truncation to `offset` needs.
    pub fn search_truncation(&self, offset: Offset) -> TruncationSearch {
        let holds = self.start <= offset && offset < self.end;
        let segment = holds.then(|| {
            let index = self.segment_of(offset);
            (index, self.segments[index].view().clone())
        });
        let producers = ProducersBelow::of(self, offset);
        TruncationSearch { home: self.home.clone(), offset, of: self.version(), segment, producers }
    }

    fn version(&self) -> Version {
        let (segments, swaps) = (self.segments.len(), self.swaps);
        Version { log: self.identity(), start: self.start, end: self.end, segments, swaps }
    }
}

impl FoundTruncation {
    /// True while it is what would be found again.
    pub(super) fn is_of(&self, log: &Log) -> bool {
        self.of == log.version()
    }
}

impl TruncationSearch {
    /// Reads it.
    ///
    /// # Errors
    /// Where a segment cannot be read: also when its offsets were removed meanwhile; or is damaged.
    pub fn run(self) -> Result<FoundTruncation, LogError> {
        let TruncationSearch { home, offset, of, segment, producers } = self;
        let start = of.start;
        let mut cut = FoundTruncation {
            offset,
            of,
            end: offset,
            kept: 0,
            position: None,
            producers: ProducerStates::default(),
            snapshot: None,
        };
        let Some((index, view)) = segment else { return Ok(cut) };
        let found = view.locate(offset)?;
        cut.end = found.map_or(offset, |found| found.header.base_offset.min(offset)).max(start);
        // Where its first batch goes, nothing of the segment stays.
        cut.position = found.map(|found| found.position as u32).filter(|&position| position > 0);
        let all_goes = found.is_some() && cut.position.is_none();
        cut.kept = if all_goes { index } else { index + 1 };
        let mut producers = producers.below(cut.end, found.map_or(offset, |found| found.header.base_offset));
        if all_goes {
            producers = producers.without_segment(view.base());
        }
        if cut.kept == 0 {
            producers = producers.without_batches();
        }
        (cut.producers, cut.snapshot) = producers.build(&home)?;
        Ok(cut)
    }
}
