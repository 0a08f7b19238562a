//! The machine's disk as this crate's tests watch it: they count writes of batches and syncs of its file system, let
//! it be full, hold it up and let it have forgotten files.

#[path = "../../storage/log/tests/log/watched_disk.rs"]
mod double;

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tarn_log::disk::Open;
use tarn_log::{Disk, Reach, ReadFrom};
use tarn_runtime::channel::Flag;
use tarn_runtime::yield_now;

use double::{Synced, Watch};

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
    cold: Mutex<Vec<Cold>>,
    /// Files whose names memory does not have.
    unknown: Mutex<Vec<(&'static str, Flag)>>,
    /// Reads of both that were begun.
    cold_reads: AtomicUsize,
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
            cold: Mutex::new(Vec::new()),
            unknown: Mutex::default(),
            cold_reads: AtomicUsize::new(0),
        }))
    }
}

impl WatchedDisk {
    /// The disk to open a log directory on.
    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(double::WatchedDisk(self.0.clone()))
    }

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
        self.0.cold.lock().expect("nobody panicked").push(cold);
    }

    /// Memory does not have the names of these files, and whoever opens them from the disk waits until `until` is raised.
    pub(crate) fn opens_slowly(&self, path_part: &'static str, until: Flag) {
        self.0.unknown.lock().expect("nobody panicked").push((path_part, until));
    }

    /// Memory has nothing of these files, and the disk says when `until` is raised that it cannot read them.
    pub(crate) fn is_broken_from(&self, path_part: &'static str, until: Flag) {
        let cold = Cold { path_part, until, is_broken: true };
        self.0.cold.lock().expect("nobody panicked").push(cold);
    }

    /// Waits until so many reads of what memory does not have were begun.
    pub(crate) async fn has_begun(&self, cold_reads: usize) {
        while self.0.cold_reads.load(Ordering::SeqCst) < cold_reads {
            yield_now().await;
        }
    }

    /// Who reads from now on is not held up, whatever was said before.
    pub(crate) fn is_mended(&self) {
        self.0.cold.lock().expect("nobody panicked").clear();
    }

    /// Memory has nothing of these files, and the disk cannot read them.
    pub(crate) fn is_broken(&self, path_part: &'static str) {
        let until = Flag::default();
        until.raise();
        self.is_broken_from(path_part, until);
    }
}

impl Watched {
    fn opens_slowly(&self, path: &str) -> Option<Flag> {
        let unknown = self.unknown.lock().expect("nobody panicked");
        let found = unknown.iter().find(|(path_part, until)| path.contains(path_part) && !until.is_raised());
        found.map(|(_, until)| until.clone())
    }

    fn cold(&self, path: &str) -> Option<Cold> {
        let cold = self.cold.lock().expect("nobody panicked");
        cold.iter().find(|cold| path.contains(cold.path_part)).cloned()
    }
}

impl Watch for Watched {
    fn opens(&self, path: &str, how: Open, from: ReadFrom) -> io::Result<()> {
        if let Some(until) = self.opens_slowly(path).filter(|_| how != Open::Create) {
            if from == ReadFrom::Memory {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.cold_reads.fetch_add(1, Ordering::SeqCst);
            until.raised_blocking();
        }
        let held = self.held.lock().expect("nobody panicked").clone();
        if let Some(go_on) = held.filter(|go_on| how == Open::Create && !go_on.is_raised()) {
            go_on.raised_blocking();
        }
        Ok(())
    }

    fn reads(&self, path: &str, from: ReadFrom) -> io::Result<()> {
        match (self.cold(path), from) {
            (Some(cold), ReadFrom::Memory) if cold.is_broken || !cold.until.is_raised() => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            (Some(cold), ReadFrom::Disk) => {
                self.cold_reads.fetch_add(1, Ordering::SeqCst);
                if !cold.until.is_raised() {
                    cold.until.raised_blocking();
                }
                if cold.is_broken { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn finds_room(&self, path: &str) -> Option<usize> {
        self.log_writes.fetch_add(usize::from(path.ends_with(".log")), Ordering::SeqCst);
        (self.room.fetch_sub(1, Ordering::SeqCst) <= 0).then_some(0)
    }

    fn syncs(&self, synced: Synced) -> io::Result<()> {
        if synced == Synced::File && self.file_syncs.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        Ok(())
    }

    fn syncs_all(&self) -> io::Result<Reach> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(Reach::All)
    }

    fn says_free(&self, bytes: u64) -> u64 {
        bytes.min(self.available.load(Ordering::SeqCst))
    }
}
