//! Flushing many logs at once.
//!
//! A sync of a file costs the disk about as much as a sync of everything: where very many logs have changed,
//! their file systems are synced as a whole. What follows it, the epochs, is done log by log as ever.

use std::io;
use std::sync::Arc;

use super::flush::{FlushJob, Flushed};
use crate::disk::{FileSystem, Reach};
use crate::error::LogError;
use crate::limits::FILES_SYNCED_ALONE_MAX;

/// How many logs are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Few: file by file. A failed write-back is told only to who had the file open, so that it has to stay
    /// open from the append on.
    Few,
    /// Many: by file systems, which tell of a failed write-back of any file.
    Many,
}

impl Together {
    /// The way for so many logs.
    pub fn of(logs: usize) -> Together {
        if logs > FILES_SYNCED_ALONE_MAX { Together::Many } else { Together::Few }
    }
}

/// Runs the jobs; waits for the disk. One result for each, in their order, as [`FlushJob::run`] has it.
pub fn flush_together(jobs: Vec<FlushJob>, together: Together) -> Vec<Result<Flushed, LogError>> {
    match together {
        Together::Few => jobs.into_iter().map(FlushJob::run).collect(),
        Together::Many => {
            let mut file_systems = FileSystems::default();
            jobs.into_iter().map(|job| file_systems.flush(job)).collect()
        }
    }
}

/// The file systems that were synced, each once, and what came of it.
#[derive(Default)]
pub(super) struct FileSystems {
    synced: Vec<(Arc<dyn FileSystem>, io::Result<Reach>)>,
}

impl FileSystems {
    fn flush(&mut self, job: FlushJob) -> Result<Flushed, LogError> {
        match self.sync(job.file_system()) {
            Ok(Reach::All) => job.finish(),
            Ok(Reach::Unknown) => job.run(),
            Err(cause) => Err(job.failed(cause)),
        }
    }

    /// All was written before the first sync, so that one is enough for all.
    pub(super) fn sync(&mut self, file_system: &Arc<dyn FileSystem>) -> io::Result<Reach> {
        let index = match self.synced.iter().position(|(synced, _)| Arc::ptr_eq(synced, file_system)) {
            Some(index) => index,
            None => {
                self.synced.push((file_system.clone(), file_system.sync()));
                self.synced.len() - 1
            }
        };
        match &self.synced[index].1 {
            Ok(reach) => Ok(*reach),
            Err(cause) => Err(again(cause)),
        }
    }
}

/// The same error for another log.
fn again(cause: &io::Error) -> io::Error {
    match cause.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(cause.kind(), cause.to_string()),
    }
}
