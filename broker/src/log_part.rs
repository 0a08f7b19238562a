//! A slice of a log as a part of a response: the one place where the log's files meet the wire.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use tarn_log::{FileSlice, ReadFrom};
use tarn_wire::{FilePart, FileRange, Part};

struct LogRange(FileSlice);

/// What is said of it where it cannot be sent.
impl fmt::Debug for LogRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

impl FileRange for LogRange {
    fn open(&self) -> io::Result<Arc<File>> {
        self.0.open_file(ReadFrom::Disk)
    }

    fn open_cached(&self) -> io::Result<Arc<File>> {
        self.0.open_file(ReadFrom::Memory)
    }

    fn disk(&self) -> usize {
        self.0.dir_number()
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }
}

/// The part that sends `slice`. Its descriptor is taken when the part is next to be sent.
pub(crate) fn part_of(slice: FileSlice) -> Part {
    let (position, len) = (slice.position(), slice.len());
    Part::File(FilePart { range: Arc::new(LogRange(slice)), position, len })
}
