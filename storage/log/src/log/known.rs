//! Batches that are appended as they are and that the log has already: a follower or a mirror may fetch again.
//!
//! They are compared with what stands at their places. An append waits for the disk where memory does not have that;
//! whoever must not wait has it looked up first, on another thread.

use tarn_record::{BatchHeader, Offset, ValidBatch};

use super::Log;
use crate::disk::ReadFrom;
use crate::error::{AppendError, LogError};
use crate::segment::SegmentView;

/// A look at the places of batches, ready to run: memory has them then.
#[derive(Debug)]
#[must_use = "nothing is read until it is run"]
pub struct KnownSearch {
    places: Vec<(SegmentView, Offset)>,
}

impl KnownSearch {
    /// Reads what stands there.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn run(self) -> Result<(), LogError> {
        self.places.into_iter().try_for_each(|(view, offset)| view.locate(offset).map(drop))
    }
}

impl Log {
    /// What an append of these batches, as they are, would have to wait for; `None` where that is nothing, as mostly.
    pub fn search_known(&self, batches: &[ValidBatch]) -> Option<KnownSearch> {
        let headers = batches.iter().map(ValidBatch::header);
        let there = headers.take_while(|header| header.base_offset < self.end);
        let compared = there.filter(|header| self.start <= header.last_offset());
        let place = |header: &BatchHeader| (self.view_at(header.base_offset), header.base_offset);
        let is_cold = |(view, offset): &(&SegmentView, Offset)| {
            view.locate_from(*offset, ReadFrom::Memory).is_err_and(|error| error.is_cold())
        };
        let cold = compared.map(place).skip_while(|place| !is_cold(place));
        let places: Vec<_> = cold.map(|(view, offset)| (view.clone(), offset)).collect();
        if places.is_empty() { None } else { Some(KnownSearch { places }) }
    }

    /// How many of the first batches are in the log already.
    pub(super) fn count_known(&self, batches: &[ValidBatch]) -> Result<usize, AppendError> {
        let mut known = 0;
        for batch in batches {
            let header = batch.header();
            let (base, last) = (header.base_offset, header.last_offset());
            let spans_start_of_empty = last >= self.end && self.is_empty();
            if base >= self.end || spans_start_of_empty {
                break;
            }
            if last >= self.start && !self.has(header)? {
                return Err(AppendError::Overlap { base, last, end: self.end });
            }
            known += 1;
        }
        Ok(known)
    }

    /// True where the log has this very batch.
    fn has(&self, header: &BatchHeader) -> Result<bool, LogError> {
        if header.last_offset() >= self.end {
            return Ok(false);
        }
        let found = self.view_at(header.base_offset).locate(header.base_offset)?;
        Ok(found.is_some_and(|found| {
            let known = found.header;
            known.base_offset == header.base_offset
                && known.last_offset_delta == header.last_offset_delta
                && known.crc == header.crc
        }))
    }

    fn view_at(&self, offset: Offset) -> &SegmentView {
        self.segments[self.segment_of(offset)].view()
    }
}
