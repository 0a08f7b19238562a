//! Where a node keeps what it cuts off logs, and how much room there is.
//!
//! Copies of several logs may be made at once, each on another core's thread, and by default on the disk that also
//! has the metadata log and the state of the mirrors, which must be able to say why a copy was not made.
//!
//! Invariant: no copy is begun for which there is no room beside all that others were promised, and the reserve.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::LogError;
use crate::limits::EXPORT_RESERVE_BYTES;

/// The directory for exports of one node: one value for all that copy there.
#[derive(Debug)]
pub struct ExportDir {
    path: PathBuf,
    /// What copies that are under way have yet to write.
    promised_bytes: Mutex<u64>,
}

/// Room for a copy; what of it was not written is given back when it is dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is promised to nobody"]
pub(super) struct Room<'a> {
    dir: &'a ExportDir,
    bytes: u64,
}

impl ExportDir {
    /// The directory; it is made when something is first copied there.
    pub fn new(path: impl Into<PathBuf>) -> ExportDir {
        ExportDir { path: path.into(), promised_bytes: Mutex::new(0) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Promises room for so many bytes in `place`, which is in the directory and has so many `available`; nobody else
    /// is promised any while that is measured.
    ///
    /// # Errors
    /// `NoRoom`; or it cannot be measured.
    pub(super) fn room(
        &self,
        place: &Path,
        bytes: u64,
        available: impl FnOnce() -> Result<u64, LogError>,
    ) -> Result<Room<'_>, LogError> {
        let mut promised = self.promised();
        let available = available()?;
        let kept = promised.saturating_add(EXPORT_RESERVE_BYTES);
        if available < bytes.saturating_add(kept) {
            return Err(LogError::NoRoom { path: place.to_owned(), needed: bytes, kept, available });
        }
        *promised += bytes;
        Ok(Room { dir: self, bytes })
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room<'_> {
    /// So many bytes of it are written: from now on the disk itself says that they are taken.
    pub(super) fn was_filled(&mut self, bytes: u64) {
        let filled = bytes.min(self.bytes);
        self.bytes -= filled;
        *self.dir.promised() -= filled;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.was_filled(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = EXPORT_RESERVE_BYTES + 1000;

    #[test]
    fn what_others_were_promised_and_have_not_written_is_not_promised_again() {
        let dir = ExportDir::new("/exports");
        let room = |bytes, free| dir.room(dir.path(), bytes, || Ok(free));
        let mut first = room(600, DISK_BYTES).expect("there is so much");
        let refused = room(600, DISK_BYTES).expect_err("the rest is promised");
        let LogError::NoRoom { needed, kept, available, .. } = refused else { panic!("{refused}") };
        assert_eq!((needed, kept, available), (600, EXPORT_RESERVE_BYTES + 600, DISK_BYTES));
        let second = room(400, DISK_BYTES).expect("there is so much beside the first");
        first.was_filled(500);
        assert_eq!(*dir.promised(), 500);
        assert!(room(1, DISK_BYTES - 500).is_err());
        drop(second);
        let _third = room(400, DISK_BYTES - 500).expect("the second has left it");
        drop(first);
        assert_eq!(*dir.promised(), 400);
    }

    #[test]
    fn a_reserve_is_left_whatever_is_asked_for() {
        let dir = ExportDir::new("/exports");
        for (bytes, free) in [(1, EXPORT_RESERVE_BYTES), (1, 0), (u64::MAX, u64::MAX - 1), (1001, DISK_BYTES)]
        {
            let refused = dir.room(dir.path(), bytes, || Ok(free)).expect_err("there is none");
            assert!(refused.is_full(), "{refused}");
        }
        assert_eq!(*dir.promised(), 0);
    }
}
