//! Making a log durable, and closing it.
//!
//! A flush is a job for a thread that may wait for the disk. It syncs data before names and epochs, and
//! indexes with the segments that are closed, so that below the recovery point everything can be
//! trusted. One job of a log runs at a time. A failed sync is never tried again into silence: its error
//! takes the log directory offline, also where it failed for lack of room: what was written had been taken before.
//!
//! Somebody waits for the batches alone. A flush of these leaves new epochs for the next flush of everything,
//! because their file takes several syncs of its own; the recovery point stays below them until then, and a
//! recovery reads them from the batches.

use std::io;
use std::sync::Arc;

use smallvec::SmallVec;
use tarn_record::Offset;

use super::Log;
use crate::checkpoints::PartitionMetadata;
use crate::descriptors::SegmentFile;
use crate::disk::FileSystem;
use crate::error::LogError;
use crate::home::{EPOCHS_FILE, Home, Kind};
use crate::limits;
use crate::segment::Segment;

/// Syncs what was appended so far.
#[derive(Debug)]
#[must_use = "nothing is flushed until the job is run"]
pub struct FlushJob {
    home: Arc<Home>,
    segments: SmallVec<[ToSync; 1]>,
    /// The content of `leader-epoch-checkpoint`, where it is to be written.
    epochs: Option<Vec<u8>>,
    names: bool,
    created: bool,
    result: Flushed,
    /// The bytes to make durable, at the end of the segments.
    unsynced_bytes: u64,
    /// Why the flush cannot succeed.
    blocked: Option<LogError>,
}

#[derive(Debug)]
struct ToSync {
    file: Arc<SegmentFile>,
    /// Closed segments are synced with their indexes and the snapshot at their end.
    snapshot_after: Option<Offset>,
}

/// What a job made durable; to be handed to [`Log::flushed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    generation: u64,
    upto: Offset,
    appended_bytes: u64,
    epoch_changes: u32,
    changes: u32,
    active: Offset,
    extent: Extent,
}

/// What a flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The batches: a recovery still reads them again.
    Batches,
    /// Whatever a recovery would else have to find out.
    Everything,
}

impl FlushJob {
    /// The offset below which everything is durable once the job has run.
    pub fn upto(&self) -> Offset {
        self.result.upto
    }

    /// Does it; waits for the disk.
    ///
    /// # Errors
    /// Where the disk failed: nothing is known of what it holds above the recovery point.
    pub fn run(mut self) -> Result<Flushed, LogError> {
        self.check()?;
        for segment in &self.segments {
            segment.sync(&self.home, self.unsynced_bytes)?;
        }
        self.save_epochs()?;
        if self.created {
            self.home.sync_file(&self.home.path.join(PartitionMetadata::FILE_NAME))?;
        }
        if self.names {
            self.home.sync()?;
        }
        if self.created {
            self.home.sync_parent()?;
        }
        Ok(self.result)
    }

    /// The same, once the whole file system was synced.
    pub(super) fn finish(mut self) -> Result<Flushed, LogError> {
        self.check()?;
        self.save_epochs()?;
        Ok(self.result)
    }

    /// The file system could not be synced.
    pub(super) fn failed(self, cause: io::Error) -> LogError {
        LogError::io("sync the file system of", &self.home.path, cause)
    }

    pub(super) fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.home.file_system
    }

    /// True where the file of the epochs is to be written.
    pub(super) fn has_epochs(&self) -> bool {
        self.epochs.is_some()
    }

    /// Writes the epochs beside the file that they are to replace.
    pub(super) fn stage_epochs(&self) -> Result<(), LogError> {
        let Some(epochs) = &self.epochs else { return Ok(()) };
        let path = self.home.path.join(EPOCHS_FILE);
        self.home.disk.write_beside(&path, epochs).map_err(|cause| LogError::io("write", &path, cause))
    }

    /// Puts them in its place, once they are on the disk. The name is not, yet.
    pub(super) fn replace_epochs(&self) -> Result<(), LogError> {
        if self.epochs.is_none() {
            return Ok(());
        }
        let path = self.home.path.join(EPOCHS_FILE);
        self.home.disk.replace(&path).map_err(|cause| LogError::io("replace", &path, cause))
    }

    /// What is to be handed to [`Log::flushed`] by who has made it durable.
    pub(super) fn into_result(self) -> Flushed {
        self.result
    }

    pub(super) fn check(&mut self) -> Result<(), LogError> {
        self.blocked.take().map_or(Ok(()), Err)
    }

    fn save_epochs(&self) -> Result<(), LogError> {
        let Some(epochs) = &self.epochs else { return Ok(()) };
        let path = self.home.path.join(EPOCHS_FILE);
        let written = self.home.disk.write_atomically(&path, epochs);
        written.map_err(|cause| LogError::io("write", &path, cause))
    }
}

impl ToSync {
    /// Of the segment, no more than the last `unsynced_bytes` are new.
    fn sync(&self, home: &Home, unsynced_bytes: u64) -> Result<(), LogError> {
        let synced = self.file.open().and_then(|file| {
            if unsynced_bytes > limits::WRITE_OUT_BYTES {
                file.write_out(file.len()?.saturating_sub(unsynced_bytes))?;
            }
            file.sync_data()
        });
        match synced {
            // Its offsets were removed from the log since the job was made.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && self.file.is_retired() => return Ok(()),
            other => other.map_err(|cause| LogError::unsynced(&self.file.path(), cause))?,
        }
        let Some(next) = self.snapshot_after else { return Ok(()) };
        let base = self.file.base();
        home.sync_indexes(base)?;
        home.sync_file(&home.file(next, Kind::Snapshot))
    }
}

impl Log {
    /// What has to be done to make everything up to the log end durable; `None` where it is. The next
    /// job is to be made after this one was handed back.
    pub fn flush_job(&mut self) -> Option<FlushJob> {
        let is_recoverable = self.recovery_point >= self.last_batch_end() && !self.has_new_epochs();
        self.job(is_recoverable, Extent::Everything)
    }

    /// The same for the batches alone, where somebody waits for these.
    pub fn flush_batches_job(&mut self) -> Option<FlushJob> {
        let extent = if self.has_new_epochs() { Extent::Batches } else { Extent::Everything };
        self.job(self.flushed_to >= self.last_batch_end(), extent)
    }

    fn job(&mut self, is_flushed: bool, extent: Extent) -> Option<FlushJob> {
        let has_changed = |log: &Log| log.dirt.changes != log.dirt.changes_saved;
        // What a failed write left may hold whole batches, which a crash would bring back behind what was promised.
        let is_clean = !self.dirt.torn && !self.dirt.half_cut && !has_changed(self);
        if self.segments.is_empty() || is_flushed && is_clean {
            return None;
        }
        let blocked = self.check_whole().and_then(|()| self.prepare_flush(extent)).err();
        let changed = has_changed(self);
        let first = self.segment_of(self.dirt.dirty_from);
        let to_sync = |(index, segment): (usize, &Segment)| ToSync {
            file: segment.file().clone(),
            snapshot_after: self.segments.get(index + 1).map(Segment::base),
        };
        let saves_epochs = extent == Extent::Everything && self.has_new_epochs();
        Some(FlushJob {
            home: self.home.clone(),
            segments: self.segments.iter().enumerate().skip(first).map(to_sync).collect(),
            epochs: saves_epochs.then(|| self.epochs.to_checkpoint()),
            names: changed || self.dirt.inherited,
            created: self.dirt.created || self.dirt.inherited,
            result: Flushed {
                generation: self.generation,
                upto: self.last_batch_end(),
                appended_bytes: self.dirt.appended_bytes,
                epoch_changes: self.dirt.epoch_changes,
                changes: self.dirt.changes,
                active: self.active().base(),
                extent,
            },
            unsynced_bytes: self.dirt.appended_bytes - self.dirt.synced_bytes,
            blocked,
        })
    }

    fn has_new_epochs(&self) -> bool {
        self.dirt.epoch_changes != self.dirt.epoch_changes_saved
    }

    /// Cuts off what a failed write left, so that the job does not make it durable, and writes what the
    /// files of closed segments still lack.
    fn prepare_flush(&mut self, extent: Extent) -> Result<(), LogError> {
        self.mend()?;
        if extent == Extent::Everything {
            self.note_kept_aborts()?;
        }
        let (first, active) = (self.segment_of(self.dirt.dirty_from), self.segments.len() - 1);
        self.segments[first.min(active)..active].iter_mut().try_for_each(Segment::finish_indexes)
    }

    /// Takes note of what a job made durable. A job from before a truncation is of no interest.
    ///
    /// # Errors
    /// Where the system refuses to remove what is no longer needed.
    pub fn flushed(&mut self, flushed: Flushed) -> Result<(), LogError> {
        if flushed.generation != self.generation {
            return Ok(());
        }
        let first = self.segment_of(self.flushed_to);
        self.flushed_to = self.flushed_to.max(flushed.upto);
        self.dirt.synced_bytes = flushed.appended_bytes;
        if flushed.extent == Extent::Everything {
            self.recovery_point = self.recovery_point.max(flushed.upto);
            self.dirt.recoverable_bytes = flushed.appended_bytes;
            self.dirt.epoch_changes_saved = flushed.epoch_changes;
        }
        self.dirt.changes_saved = flushed.changes;
        self.dirt.inherited = false;
        self.dirt.created &= self.dirt.changes != flushed.changes;
        self.dirt.dirty_from = self.dirt.dirty_from.max(flushed.active);
        for index in first..self.segments.len() {
            if self.segment_end(index) <= flushed.upto {
                self.segments[index].file().settle();
            }
        }
        self.drop_mark()
    }

    /// Makes everything durable and leaves the files so that the next start can trust them. Waits for
    /// the disk. Nothing may be appended after it.
    ///
    /// # Errors
    /// Where the disk refused: the shutdown is not clean then.
    pub fn close(&mut self) -> Result<(), LogError> {
        match self.write_closing()? {
            Some(job) => self.close_as_written(job),
            None => Ok(()),
        }
    }

    /// Writes what closing the log writes, but for its epochs; the flush that is then due, if any. `None` where
    /// nothing is to be synced.
    pub(super) fn write_closing(&mut self) -> Result<Option<Option<FlushJob>>, LogError> {
        self.mend()?;
        self.note_kept_aborts()?;
        self.segments.iter_mut().try_for_each(Segment::finish_indexes)?;
        let has_news = self.dirt.snapshot != Some(self.end) && self.size_bytes() > 0;
        if has_news {
            self.write_snapshot(self.end)?;
        }
        let mut job = self.flush_job();
        job.as_mut().map_or(Ok(()), FlushJob::check)?;
        let was_touched = self.dirt.appended_bytes > 0 || self.dirt.changes > 0;
        Ok((job.is_some() || was_touched).then_some(job))
    }

    /// Syncs what was written.
    pub(super) fn close_as_written(&mut self, job: Option<FlushJob>) -> Result<(), LogError> {
        if let Some(job) = job {
            let flushed = job.run()?;
            self.flushed(flushed)?;
        }
        let was_touched = self.dirt.appended_bytes > 0 || self.dirt.changes > 0;
        if was_touched && !self.segments.is_empty() {
            self.sync_closing()?;
        }
        Ok(())
    }

    pub(super) fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.home.file_system
    }

    /// Its file system could not be synced.
    pub(super) fn unsynced(&self, cause: io::Error) -> LogError {
        LogError::io("sync the file system of", &self.home.path, cause)
    }

    /// Makes the names in its directory survive a crash.
    pub(super) fn sync_names(&self) -> Result<(), LogError> {
        self.home.sync()
    }

    /// Syncs what only a closing writes: the active segment's indexes and the snapshot at the log end.
    fn sync_closing(&mut self) -> Result<(), LogError> {
        let file = self.active().file().clone();
        ToSync { file, snapshot_after: Some(self.end) }.sync(&self.home, 0)
    }
}
