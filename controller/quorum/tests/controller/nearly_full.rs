//! A disk whose room a test decides: it says how much there is, and where there is none every write fails.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_log::disk::{DiskLock, Entry, Open};
use tarn_log::{Disk, DiskFile, FileSystem, RealDisk};

/// Shared by the test and the controller.
#[derive(Debug)]
pub(crate) struct NearlyFull {
    disk: RealDisk,
    room: Arc<Room>,
}

#[derive(Debug)]
struct Room {
    available: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug)]
struct File {
    file: Arc<dyn DiskFile>,
    room: Arc<Room>,
}

impl NearlyFull {
    /// A disk with all the room there can be.
    pub(crate) fn new() -> NearlyFull {
        let room = Room { available: AtomicU64::new(u64::MAX), refused: AtomicU64::new(0) };
        NearlyFull { disk: RealDisk, room: Arc::new(room) }
    }

    /// Says how many bytes there are from now on.
    pub(crate) fn leave(&self, bytes: u64) {
        self.room.available.store(bytes, Ordering::SeqCst);
    }

    /// How many writes were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.room.refused.load(Ordering::SeqCst)
    }
}

impl DiskFile for File {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        if self.room.available.load(Ordering::SeqCst) == 0 {
            self.room.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(parts, position)
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buf, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn file(&self) -> Option<Arc<std::fs::File>> {
        self.file.file()
    }
}

impl Disk for NearlyFull {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(File { file: self.disk.open(path, how)?, room: self.room.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn file_system(&self, path: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.disk.file_system(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn available_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.room.available.load(Ordering::SeqCst))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.disk.lock(path)
    }
}
