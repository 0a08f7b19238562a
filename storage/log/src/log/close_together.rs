//! Closing many logs at once, as a node does that stops.
//!
//! A log that is closed has up to ten files and names to sync, each of which takes the disk about as long as everything
//! does. Where there are many logs all is written first, what is to take the place of another file beside it; their file
//! systems are synced as a whole; the new files take their places; and the file systems are synced once more, so that
//! the names are on the disk too.
//!
//! Invariants:
//! * a file is replaced only by one that is on the disk;
//! * where a file system does not tell what it has on the disk, each log is closed by itself.

use std::sync::Arc;

use super::Log;
use super::flush::FlushJob;
use super::flush_together::{FileSystems, Together};
use crate::disk::{FileSystem, Reach};
use crate::error::LogError;

/// A log of which all is written that closing it writes.
struct Closing<'a> {
    log: &'a mut Log,
    job: Option<FlushJob>,
}

/// Closes the logs, as [`Log::close`] does each; waits for the disk.
///
/// # Errors
/// Where the disk refused: the shutdown is not clean then.
pub fn close_together(logs: Vec<&mut Log>, together: Together) -> Result<(), LogError> {
    match together {
        Together::Few => logs.into_iter().try_for_each(Log::close),
        Together::Many => close_many(logs),
    }
}

fn close_many(logs: Vec<&mut Log>) -> Result<(), LogError> {
    let mut closing = Vec::with_capacity(logs.len());
    for log in logs {
        let Some(job) = log.write_closing()? else { continue };
        if let Some(job) = &job {
            job.stage_epochs()?;
        }
        closing.push(Closing { log, job });
    }
    let mut on_disk = FileSystems::default();
    let mut replacing = Vec::with_capacity(closing.len());
    for one in closing {
        match on_disk.sync(one.file_system()).map_err(|cause| one.log.unsynced(cause))? {
            Reach::All => {
                if let Some(job) = &one.job {
                    job.replace_epochs()?;
                }
                replacing.push(one);
            }
            Reach::Unknown => one.log.close_as_written(one.job)?,
        }
    }
    let mut named = FileSystems::default();
    for one in replacing {
        let replaced = one.job.as_ref().is_some_and(FlushJob::has_epochs);
        if replaced {
            match named.sync(one.file_system()).map_err(|cause| one.log.unsynced(cause))? {
                Reach::All => {}
                Reach::Unknown => one.log.sync_names()?,
            }
        }
        if let Some(job) = one.job {
            one.log.flushed(job.into_result())?;
        }
    }
    Ok(())
}

impl Closing<'_> {
    fn file_system(&self) -> &Arc<dyn FileSystem> {
        self.log.file_system()
    }
}
