//! Putting a segment that compaction has written in the place of those that it was made from.
//!
//! Kafka's order of renames: the new files get names that end in `.swap`, the old ones are renamed to be removed, and
//! the new ones get their own names. Names reach the disk in their order, so whatever a crash leaves of it, the next
//! opening comes to the old segments or to the new one (`recovery::swaps`), and Kafka does too. Nothing is synced: the
//! new files were, and names are with the next flush; before it a crash undoes the swap.
//!
//! Plans that name the old files can still be served. The log's generation stays: what was read of the log under it
//! is still true, and a flush that is under way still counts. Only what names segments by their numbers looks again.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use tarn_record::Offset;
use thiserror::Error;

use super::output::Cleaned;
use crate::descriptors::SegmentFile;
use crate::error::LogError;
use crate::home::Kind;
use crate::log::Log;
use crate::removal::RemovalJob;

/// What a swap did.
#[derive(Debug)]
pub struct Swapped {
    /// The files of the segments that left the log.
    pub removal: RemovalJob,
}

/// Why a segment was not put in its place.
#[derive(Debug, Error)]
pub enum SwapError {
    /// The log is not what it was when the segment was begun. Its files are to be removed before the log is compacted
    /// again: those of another round have the same names.
    #[error("the log has changed since it was compacted")]
    Stale(RemovalJob),
    /// Somebody is opening one of the files that leave the log, and may wait for the disk. Nothing has changed, and the
    /// segment can be put in its place later.
    #[error("a file of the log is being opened")]
    Busy(Box<Cleaned>),
    /// The disk refused before anything was changed, and what was renamed is removed again.
    #[error("nothing was swapped: {0}")]
    Refused(#[source] LogError),
    /// The disk failed in the middle. What the files of the log are is for the next opening to say.
    #[error("a segment was swapped in part: {0}")]
    Torn(#[source] LogError),
}

/// A file in whose place another was put, and that plans may still name.
#[derive(Clone, Debug)]
pub(crate) struct SwappedOut {
    /// Where its segment ended.
    end: Offset,
    file: Weak<SegmentFile>,
}

impl Log {
    /// Puts a segment in the place of those it was made from. To be called on the log's core; takes some renames for
    /// each of them, and waits for nobody who reads.
    ///
    /// # Errors
    /// See [`SwapError`]. After `Torn` the log must not be used.
    pub fn swap(&mut self, cleaned: Cleaned) -> Result<Swapped, SwapError> {
        let Some(first) = self.place_of(&cleaned) else { return Err(SwapError::Stale(cleaned.discard())) };
        let files = cleaned.sources.clone();
        let unopened: Option<Vec<_>> = files.iter().map(|file| file.keep_unopened()).collect();
        let Some(unopened) = unopened else { return Err(SwapError::Busy(Box::new(cleaned))) };
        let Cleaned { sources, segment, snapshots, .. } = cleaned;
        let (base, end) = (segment.base(), self.segment_end(first + sources.len() - 1));
        let swap = self.swaps + 1;
        self.dirt.changes += 1;
        if let Err(error) = self.announce(base, &snapshots) {
            return self.take_back(base, error);
        }
        let mut removed = Vec::new();
        self.put_out(&sources, swap, &mut removed)
            .and_then(|()| self.put_in(base))
            .map_err(SwapError::Torn)?;
        drop(unopened);
        self.swapped_out.retain(|gone| gone.file.strong_count() > 0);
        for file in &sources {
            file.settle();
            self.swapped_out.push(SwappedOut { end, file: Arc::downgrade(file) });
        }
        self.segments.drain(first + 1..first + sources.len());
        self.segments[first] = segment;
        self.swaps = swap;
        if self.dirt.snapshot.is_some_and(|newest| snapshots.contains(&newest)) {
            self.dirt.snapshot = None;
        }
        Ok(Swapped { removal: RemovalJob::new(self.home.clone(), removed) })
    }

    /// The number of the first segment that goes, where all of them are still there and on the disk.
    fn place_of(&self, cleaned: &Cleaned) -> Option<usize> {
        let first = self.segments.iter().position(|segment| segment.base() == cleaned.base())?;
        let after = first + cleaned.sources.len();
        let there = self.segments.get(first..after)?.iter().map(|segment| segment.file());
        let are_same = there.zip(&cleaned.sources).all(|(there, source)| Arc::ptr_eq(there, source));
        let is_settled = after < self.segments.len() && self.segment_end(after - 1) <= self.recovery_point;
        let is_same_log = cleaned.of == self.identity() && !self.is_half_cut();
        (is_same_log && are_same && is_settled).then_some(first)
    }

    /// Renames the new files so that an opening knows them for complete; before that the snapshots go that must not
    /// be read beside them.
    fn announce(&self, base: Offset, snapshots: &[Offset]) -> Result<(), LogError> {
        let home = &self.home;
        snapshots.iter().try_for_each(|&offset| home.remove(&home.file(offset, Kind::Snapshot)))?;
        for kind in Kind::OF_SEGMENT {
            home.rename(&home.cleaned(base, kind), &home.swap(base, kind))?;
        }
        Ok(())
    }

    /// Removes what was announced: as long as it is there, an opening would put it in place.
    fn take_back(&self, base: Offset, error: LogError) -> Result<Swapped, SwapError> {
        let names = Kind::OF_SEGMENT.map(|kind| [self.home.swap(base, kind), self.home.cleaned(base, kind)]);
        match names.iter().flatten().try_for_each(|path| self.home.remove(path)) {
            Ok(()) => Err(SwapError::Refused(error)),
            Err(error) => Err(SwapError::Torn(error)),
        }
    }

    fn put_out(
        &self,
        sources: &[Arc<SegmentFile>],
        swap: u64,
        removed: &mut Vec<PathBuf>,
    ) -> Result<(), LogError> {
        for file in sources {
            let mut put_out = |kind| -> Result<(), LogError> {
                let out = self.home.swapped_out(file.base(), kind, swap);
                if self.home.rename(&self.home.file(file.base(), kind), &out)? {
                    removed.push(out);
                }
                Ok(())
            };
            put_out(Kind::Log)?;
            file.swap_out(swap);
            Kind::OF_SEGMENT.into_iter().filter(|kind| *kind != Kind::Log).try_for_each(put_out)?;
        }
        Ok(())
    }

    /// The `.log` first: with it in place nothing else is replaced any more.
    fn put_in(&self, base: Offset) -> Result<(), LogError> {
        for kind in Kind::OF_SEGMENT {
            self.home.rename(&self.home.swap(base, kind), &self.home.file(base, kind))?;
        }
        Ok(())
    }

    /// Says that the files that compaction put out, and that reach beyond `end`, are no longer current: a truncation
    /// drops what they hold, or a part of it. Where in them it begins is not known.
    pub(crate) fn cut_swapped_out(&mut self, end: Offset) {
        self.swapped_out.retain(|gone| {
            let Some(file) = gone.file.upgrade() else { return false };
            if gone.end > end {
                file.cut_at(0);
            }
            gone.end <= end
        });
    }
}
