//! The node's budget of open segment files.
//!
//! A hundred thousand partitions have more segments than a process may have descriptors. A
//! [`SegmentFile`] is therefore a name that is opened when it is needed and closed again when others
//! need the descriptor more: the ring of open files is swept like a clock, and a file used since the
//! hand last passed gets another round. Shared by all threads; the hot path takes only the file's own
//! lock.
//!
//! Invariants:
//! * every open file is in the ring once;
//! * a file that a response holds, or whose unflushed bytes were promised to be durable, is not closed;
//!   when all are such, the budget is exceeded rather than an append refused.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use tarn_record::Offset;

use crate::disk::{DiskFile, Open, ReadFrom, temporary};
use crate::error::LogError;
use crate::home::{Home, Kind};

/// The budget. One for each node.
#[derive(Debug)]
pub struct Descriptors {
    limit: usize,
    ring: Mutex<VecDeque<Weak<SegmentFile>>>,
    closed: AtomicU64,
}

impl Descriptors {
    /// A budget of `limit` open files, at least one.
    pub fn new(limit: usize) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            limit: limit.max(1),
            ring: Mutex::new(VecDeque::new()),
            closed: AtomicU64::new(0),
        })
    }

    /// How many files may be open.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many files are open; more than the limit only where none of them could be closed.
    pub fn in_use(&self) -> usize {
        lock(&self.ring).len()
    }

    /// How many files were closed to make room, since the start.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Counts a file that was just opened, and closes others where the budget is exceeded.
    fn admit(&self, file: &Arc<SegmentFile>) {
        let mut to_close = Vec::new();
        let mut ring = lock(&self.ring);
        ring.push_back(Arc::downgrade(file));
        // Two rounds: the first takes away the marks of use, the second finds what stayed unused.
        let mut steps = 2 * ring.len();
        while ring.len() > self.limit && steps > 0 {
            steps -= 1;
            let Some(candidate) = ring.pop_front() else { break };
            let Some(open) = candidate.upgrade() else { continue };
            match if Arc::ptr_eq(&open, file) { None } else { open.close_if_idle() } {
                Some(closed) => to_close.push(closed),
                None => ring.push_back(candidate),
            }
        }
        drop(ring);
        self.closed.fetch_add(to_close.len() as u64, Ordering::Relaxed);
    }
}

/// The `.log` file of one segment: opened on demand, counted in [`Descriptors`].
#[derive(Debug)]
pub struct SegmentFile {
    home: Arc<Home>,
    base: Offset,
    open: Mutex<Option<Arc<dyn DiskFile>>>,
    used: AtomicBool,
    promised: AtomicBool,
    /// By which `.deleted` name the file goes: [`IN_PLACE`], [`RETIRED`] or the number of a swap.
    retired: AtomicU64,
    /// Up to where the bytes are those that were handed out to readers.
    current_bytes: AtomicU64,
}

const IN_PLACE: u64 = 0;
const RETIRED: u64 = u64::MAX;

impl SegmentFile {
    pub(crate) fn new(home: Arc<Home>, base: Offset) -> Arc<SegmentFile> {
        Arc::new(SegmentFile {
            home,
            base,
            open: Mutex::new(None),
            used: AtomicBool::new(false),
            promised: AtomicBool::new(false),
            retired: AtomicU64::new(IN_PLACE),
            current_bytes: AtomicU64::new(u64::MAX),
        })
    }

    /// Makes a new file. What an interrupted attempt left under its name is replaced, so that there is no moment
    /// without a file of this name: it may be all that tells where the log ends.
    pub(crate) fn create(home: Arc<Home>, base: Offset) -> Result<Arc<SegmentFile>, LogError> {
        let file = SegmentFile::new(home, base);
        let path = file.path();
        let failed = |cause| LogError::io("create", &path, cause);
        let found = file.home.disk.open(&path, Open::Create).map_err(failed)?;
        let is_new = found.is_empty().map_err(failed)?;
        let opened = if is_new { found } else { file.replace().map_err(failed)? };
        Ok(file.opened(opened))
    }

    /// The same where a file of this name has been written to, and may have been cut since.
    pub(crate) fn create_anew(home: Arc<Home>, base: Offset) -> Result<Arc<SegmentFile>, LogError> {
        let file = SegmentFile::new(home, base);
        let opened = file.replace().map_err(|cause| LogError::io("create", &file.path(), cause))?;
        Ok(file.opened(opened))
    }

    /// Puts an empty file in the place of the one of this name.
    fn replace(&self) -> io::Result<Arc<dyn DiskFile>> {
        let (disk, path) = (&self.home.disk, self.path());
        let written_first = temporary(&path);
        let opened = disk.open(&written_first, Open::Create)?;
        opened.set_len(0)?;
        disk.replace(&path)?;
        Ok(opened)
    }

    /// The new file, which is open.
    fn opened(self: Arc<Self>, opened: Arc<dyn DiskFile>) -> Arc<SegmentFile> {
        *lock(&self.open) = Some(opened);
        self.home.descriptors.admit(&self);
        self
    }

    /// The open file, opened again where it was closed. It stays open while the `Arc` lives.
    ///
    /// # Errors
    /// Where it cannot be opened: `NotFound` once it was deleted.
    pub fn open(self: &Arc<Self>) -> io::Result<Arc<dyn DiskFile>> {
        self.open_from(ReadFrom::Disk)
    }

    /// The same; from memory only where memory knows the name of a file that is not open.
    ///
    /// # Errors
    /// As for [`SegmentFile::open`], and `WouldBlock`.
    pub(crate) fn open_from(self: &Arc<Self>, source: ReadFrom) -> io::Result<Arc<dyn DiskFile>> {
        self.used.store(true, Ordering::Relaxed);
        let mut slot = match source {
            ReadFrom::Disk => lock(&self.open),
            // Who holds it may wait for the disk.
            ReadFrom::Memory => match self.open.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            },
        };
        if let Some(open) = &*slot {
            return Ok(open.clone());
        }
        let opened = self.home.open_to_read(source, || self.name())?;
        *slot = Some(opened.clone());
        drop(slot);
        self.home.descriptors.admit(self);
        Ok(opened)
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        self.home.now_at(self.name())
    }

    /// Where it was while its partition was not deleted.
    fn name(&self) -> PathBuf {
        match self.retired.load(Ordering::Acquire) {
            IN_PLACE => self.home.file(self.base, Kind::Log),
            RETIRED => self.home.deleted(self.base, Kind::Log),
            swap => self.home.swapped_out(self.base, Kind::Log, swap),
        }
    }

    /// The segment's base offset, which names its files.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// True while the bytes of `position..position + len` are those of a plan made before.
    pub(crate) fn is_current(&self, position: u64, len: u32) -> bool {
        position + u64::from(len) <= self.current_bytes.load(Ordering::Acquire)
    }

    /// Says that bytes from `position` on are no longer part of the log, because of a truncation.
    pub(crate) fn cut_at(&self, position: u64) {
        self.current_bytes.fetch_min(position, Ordering::AcqRel);
    }

    /// Says that the file was renamed to be removed. Plans that name it can still be served.
    pub(crate) fn retire(&self) {
        self.retired.store(RETIRED, Ordering::Release);
    }

    /// Keeps others from opening the file, and so from looking up its name, as long as the guard is there; `None` where
    /// somebody is opening it, who may wait for the disk.
    pub(crate) fn keep_unopened(&self) -> Option<MutexGuard<'_, Option<Arc<dyn DiskFile>>>> {
        match self.open.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Says that the file was renamed because another is put in its place, by a swap with a number from 1 on. Nobody may
    /// open it from before it is renamed until this: a name that was looked up before would be that of the other file.
    pub(crate) fn swap_out(&self, swap: u64) {
        debug_assert!(swap > IN_PLACE && swap < RETIRED);
        self.retired.store(swap, Ordering::Release);
    }

    /// True where the file waits to be removed or is gone.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire) != IN_PLACE
    }

    /// Keeps the file open until [`SegmentFile::settle`]: a failed write-back must be seen by the next
    /// flush, and that needs the descriptor.
    pub(crate) fn promise(&self) {
        self.promised.store(true, Ordering::Relaxed);
    }

    /// The promise is kept: the bytes are on the disk.
    pub(crate) fn settle(&self) {
        self.promised.store(false, Ordering::Relaxed);
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// Takes the descriptor out where nobody needs it; the caller drops it.
    fn close_if_idle(&self) -> Option<Arc<dyn DiskFile>> {
        if self.used.swap(false, Ordering::Relaxed) || self.promised.load(Ordering::Relaxed) {
            return None;
        }
        let mut slot = self.open.try_lock().ok()?;
        let open = slot.as_ref()?;
        if is_held(open) {
            return None;
        }
        slot.take()
    }
}

/// True where someone beside the ring has the file or its descriptor.
fn is_held(open: &Arc<dyn DiskFile>) -> bool {
    // One of the two is the clone that is counted here.
    Arc::strong_count(open) > 1 || open.file().is_some_and(|file| Arc::strong_count(&file) > 2)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
