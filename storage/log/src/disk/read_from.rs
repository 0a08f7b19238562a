//! Reading for a core, which may not wait for the disk, and for others, who may.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile, Open};

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// It may not: what memory does not have is an error of kind `WouldBlock`. For the cores.
    Memory,
    /// It may.
    Disk,
}

impl ReadFrom {
    pub(crate) fn open(self, disk: &dyn Disk, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        match self {
            ReadFrom::Memory => disk.open_cached(path, how),
            ReadFrom::Disk => disk.open(path, how),
        }
    }

    pub(crate) fn read_at(self, file: &dyn DiskFile, buf: &mut [u8], position: u64) -> io::Result<usize> {
        match self {
            ReadFrom::Memory => file.read_cached_at(buf, position),
            ReadFrom::Disk => file.read_at(buf, position),
        }
    }
}
