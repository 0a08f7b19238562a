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

/// Where a batch that begins below the log end would stand.
enum Place<'a> {
    /// Below the log start: nobody reads it, whatever stood there.
    BelowStart,
    /// In this segment.
    In(&'a SegmentView),
    /// It ends above the log end: the log has another one there.
    AcrossEnd,
}

impl Log {
    /// What an append of these batches, as they are, would have to wait for; `None` where that is nothing, as mostly.
    pub fn search_known(&self, batches: &[ValidBatch]) -> Option<KnownSearch> {
        let compared = self.places(batches).filter_map(|(header, place)| match place {
            Place::In(view) => Some((view, header.base_offset)),
            Place::BelowStart | Place::AcrossEnd => None,
        });
        let is_cold = |(view, offset): &(&SegmentView, Offset)| {
            view.locate_from(*offset, ReadFrom::Memory).is_err_and(|error| error.is_cold())
        };
        let cold = compared.skip_while(|place| !is_cold(place));
        let places: Vec<_> = cold.map(|(view, offset)| (view.clone(), offset)).collect();
        if places.is_empty() { None } else { Some(KnownSearch { places }) }
    }

    /// How many of the first batches are in the log already.
    pub(super) fn count_known(&self, batches: &[ValidBatch]) -> Result<usize, AppendError> {
        let mut known = 0;
        for (header, place) in self.places(batches) {
            let is_known = match place {
                Place::BelowStart => true,
                Place::In(view) => is_there(view, header)?,
                Place::AcrossEnd => false,
            };
            if !is_known {
                let (base, last) = (header.base_offset, header.last_offset());
                return Err(AppendError::Overlap { base, last, end: self.end });
            }
            known += 1;
        }
        Ok(known)
    }

    /// The first batches as long as they begin below the log end, and where each would stand. One that spans the start
    /// of an empty log is new.
    fn places<'a>(&'a self, batches: &'a [ValidBatch]) -> impl Iterator<Item = (&'a BatchHeader, Place<'a>)> {
        let is_new = |header: &BatchHeader| {
            header.base_offset >= self.end || header.last_offset() >= self.end && self.is_empty()
        };
        let old = batches.iter().map(ValidBatch::header).take_while(move |header| !is_new(header));
        old.map(|header| (header, self.place_of_known(header)))
    }

    fn place_of_known(&self, header: &BatchHeader) -> Place<'_> {
        let last = header.last_offset();
        if last < self.start {
            Place::BelowStart
        } else if last >= self.end {
            Place::AcrossEnd
        } else {
            // Only a log that starts at its end may have no segment.
            Place::In(self.segments[self.segment_of(header.base_offset)].view())
        }
    }
}

/// True where a segment has this very batch.
fn is_there(view: &SegmentView, header: &BatchHeader) -> Result<bool, LogError> {
    let found = view.locate(header.base_offset)?;
    Ok(found.is_some_and(|found| {
        let known = found.header;
        known.base_offset == header.base_offset
            && known.last_offset_delta == header.last_offset_delta
            && known.crc == header.crc
    }))
}
