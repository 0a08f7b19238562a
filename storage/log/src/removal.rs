//! Files that are no longer part of a log and wait to be removed.
//!
//! The log renames them and forgets them; unlinking large files takes long, so a job does it, on any
//! thread, when the caller wants. Until then readers whose plans name them can still be served. What a
//! crash leaves is removed when the log is opened. A whole directory of a deleted partition goes the same way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::home::Home;

/// Removes files.
#[derive(Debug)]
#[must_use = "the files stay until the job is run"]
pub struct RemovalJob {
    disk: Arc<dyn Disk>,
    files: Vec<PathBuf>,
    directory: Option<Directory>,
}

/// A directory that goes after its files.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Its files are among those of the job.
    is_listed: bool,
}

impl RemovalJob {
    pub(crate) fn new(home: Arc<Home>, files: Vec<PathBuf>) -> RemovalJob {
        RemovalJob { disk: home.disk.clone(), files, directory: None }
    }

    pub(crate) fn of_directory(disk: Arc<dyn Disk>, path: PathBuf) -> RemovalJob {
        RemovalJob { disk, files: Vec::new(), directory: Some(Directory { path, is_listed: false }) }
    }

    /// The directory that goes, where it does.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|directory| &*directory.path)
    }

    /// How many files there are, as far as that is known.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// True where nothing is to be removed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directory.is_none()
    }

    /// Removes them.
    ///
    /// # Errors
    /// The first refusal of the system; what is left is removed when the log is next opened.
    pub fn run(self) -> Result<(), LogError> {
        let mut left = Some(self);
        while let Some(job) = left {
            left = job.run_some(usize::MAX)?;
        }
        Ok(())
    }

    /// Removes `most` of them, and returns what is left.
    ///
    /// # Errors
    /// As for [`RemovalJob::run`].
    pub fn run_some(mut self, most: usize) -> Result<Option<RemovalJob>, LogError> {
        if let Some(directory) = &mut self.directory
            && !directory.is_listed
        {
            directory.is_listed = true;
            let path = &directory.path;
            let entries = match self.disk.list(path) {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
                other => other.map_err(|cause| LogError::io("list", path, cause))?,
            };
            let files = entries.into_iter().filter(|entry| !entry.is_dir);
            self.files = files.map(|entry| path.join(entry.name)).collect();
        }
        let kept = self.files.len().saturating_sub(most);
        for path in self.files.drain(kept..) {
            unless_gone(self.disk.remove_file(&path))
                .map_err(|cause| LogError::io("remove", &path, cause))?;
        }
        if kept > 0 {
            return Ok(Some(self));
        }
        if let Some(Directory { path, .. }) = &self.directory {
            unless_gone(self.disk.remove_dir_all(path))
                .map_err(|cause| LogError::io("remove", path, cause))?;
        }
        Ok(None)
    }
}

/// What is not there any more is removed.
fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
