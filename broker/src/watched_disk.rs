//! The machine's disk under the eyes of a test: it counts writes of batches and syncs of its file
//! system, and can be full.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tarn_log::disk::{DiskLock, Entry, Open};
use tarn_log::{Disk, DiskFile, FileSystem, Reach, RealDisk};
use tarn_runtime::channel::Flag;

/// The system's number for a table of open files that is full, which passes.
const EMFILE: i32 = 24;

/// See the module; clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct WatchedDisk(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    syncs: AtomicUsize,
    log_writes: AtomicUsize,
    /// Writes that there is still room for.
    room: AtomicI64,
    /// Syncs of files that succeed; after them there is no descriptor left.
    file_syncs: AtomicI64,
    /// What the disk says that it has room for, in bytes.
    available: AtomicU64,
    /// Whoever opens a file to write goes on when this is raised.
    held: Mutex<Option<Flag>>,
    cold: Mutex<Option<Cold>>,
}

/// Files of which memory has nothing.
#[derive(Clone, Debug)]
struct Cold {
    /// Their paths have this in them.
    path_part: &'static str,
    /// Whoever reads them from the disk goes on when this is raised; memory has them then.
    until: Flag,
    /// The disk refuses, and memory never has them.
    is_broken: bool,
}

impl Default for WatchedDisk {
    fn default() -> WatchedDisk {
        WatchedDisk(Arc::new(Watched {
            syncs: AtomicUsize::new(0),
            log_writes: AtomicUsize::new(0),
            room: AtomicI64::new(i64::MAX),
            file_syncs: AtomicI64::new(i64::MAX),
            available: AtomicU64::new(u64::MAX),
            held: Mutex::new(None),
            cold: Mutex::new(None),
        }))
    }
}

impl WatchedDisk {
    /// How often the file system was synced as a whole.
    pub(crate) fn syncs(&self) -> usize {
        self.0.syncs.load(Ordering::SeqCst)
    }

    /// How often batches were written.
    pub(crate) fn log_writes(&self) -> usize {
        self.0.log_writes.load(Ordering::SeqCst)
    }

    /// There is room for so many more writes.
    pub(crate) fn has_room_for(&self, writes: i64) {
        self.0.room.store(writes, Ordering::SeqCst);
    }

    /// So many more files can be synced.
    pub(crate) fn syncs_only(&self, files: i64) {
        self.0.file_syncs.store(files, Ordering::SeqCst);
    }

    /// The disk says that it has room for so many more bytes.
    pub(crate) fn says_it_has(&self, bytes: u64) {
        self.0.available.store(bytes, Ordering::SeqCst);
    }

    /// Whoever makes a file from now on waits until `go_on` is raised.
    pub(crate) fn hold_until(&self, go_on: Flag) {
        *self.0.held.lock().expect("nobody panicked") = Some(go_on);
    }

    /// Memory has nothing of these files until `until` is raised, and neither does who reads them from the disk.
    pub(crate) fn is_cold(&self, path_part: &'static str, until: Flag) {
        let cold = Cold { path_part, until, is_broken: false };
        *self.0.cold.lock().expect("nobody panicked") = Some(cold);
    }

    /// Memory has nothing of these files, and the disk cannot read them.
    pub(crate) fn is_broken(&self, path_part: &'static str) {
        let cold = Cold { path_part, until: Flag::default(), is_broken: true };
        cold.until.raise();
        *self.0.cold.lock().expect("nobody panicked") = Some(cold);
    }

    fn cold(&self, path: &str) -> Option<Cold> {
        let cold = self.0.cold.lock().expect("nobody panicked").clone();
        cold.filter(|cold| path.contains(cold.path_part))
    }
}

impl FileSystem for WatchedDisk {
    fn sync(&self) -> io::Result<Reach> {
        self.0.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(Reach::All)
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    path: String,
    is_log: bool,
    disk: WatchedDisk,
}

impl DiskFile for WatchedFile {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.disk.0.log_writes.fetch_add(usize::from(self.is_log), Ordering::SeqCst);
        if self.disk.0.room.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(parts, position)
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        if let Some(cold) = self.disk.cold(&self.path) {
            cold.until.raised_blocking();
            if cold.is_broken {
                return Err(io::Error::other("the disk is broken"));
            }
        }
        self.file.read_at(buf, position)
    }

    fn read_cached_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        match self.disk.cold(&self.path) {
            Some(cold) if cold.is_broken || !cold.until.is_raised() => Err(io::ErrorKind::WouldBlock.into()),
            _ => self.file.read_at(buf, position),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.disk.0.file_syncs.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn file(&self) -> Option<Arc<File>> {
        self.file.file()
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let is_log = path.extension().is_some_and(|kind| kind == "log");
        let held = self.0.held.lock().expect("nobody panicked").clone();
        if let Some(go_on) = held.filter(|go_on| how == Open::Create && !go_on.is_raised()) {
            go_on.raised_blocking();
        }
        let (file, path) = (RealDisk.open(path, how)?, path.to_string_lossy().into_owned());
        Ok(Arc::new(WatchedFile { file, path, is_log, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }

    fn file_system(&self, _: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.clone()))
    }

    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(RealDisk.available_bytes(path)?.min(self.0.available.load(Ordering::SeqCst)))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        RealDisk.lock(path)
    }
}
