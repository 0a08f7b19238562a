//! Files that are no longer part of a log and wait to be removed.
//!
//! The log renames them and forgets them; unlinking large files takes long, so a job does it, on any
//! thread, when the caller wants. Until then readers whose plans name them can still be served. What a
//! crash leaves is removed when the log is opened.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::LogError;
use crate::home::Home;

/// Removes files.
#[derive(Debug)]
#[must_use = "the files stay until the job is run"]
pub struct RemovalJob {
    home: Arc<Home>,
    files: Vec<PathBuf>,
}

impl RemovalJob {
    pub(crate) fn new(home: Arc<Home>, files: Vec<PathBuf>) -> RemovalJob {
        RemovalJob { home, files }
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Removes them.
    ///
    /// # Errors
    /// The first refusal of the system; what is left is removed when the log is next opened.
    pub fn run(self) -> Result<(), LogError> {
        self.files.iter().try_for_each(|path| self.home.remove(path))
    }
}
