//! The files a log stands on, behind one trait.
//!
//! Everything that tarn-log stores goes through [`Disk`], whose second implementation is the
//! simulator's: a disk that crashes, tears writes, fills up and fails to sync. The trait therefore
//! offers only what a crash can be reasoned about: positioned writes, syncs, renames. Owned by whoever
//! opened it; a [`DiskFile`] may be used from several threads at once.
//!
//! Invariants:
//! * a write that returned is whole, or it failed and nothing is known of its range;
//! * only what was synced, data by [`DiskFile::sync_data`], names by [`Disk::sync_dir`], both by
//!   [`FileSystem::sync`], is sure to survive a crash.

use std::any::Any;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags};

use crate::error::sync_failed;
use crate::limits;

mod read_from;

pub use read_from::ReadFrom;

/// A file system, as far as a log needs one. Errors are the system's own; the caller knows the path.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens one file; its descriptor is not passed on to child processes.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;

    /// The same of a file that exists, where memory knows its name; else an error of kind `WouldBlock`, at once. A
    /// disk that cannot tell waits.
    fn open_cached(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, how)
    }

    /// Gives a file or directory another name, replacing a file that has it. Sure to survive a crash
    /// once the directory is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. One that is not there is an error of kind `NotFound`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and all below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory and those above it; one that exists is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// What a directory holds, ordered by name.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Makes the names in a directory survive a crash.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// The file system that holds a directory, for as long as it is of interest: see [`FileSystem`].
    fn file_system(&self, path: &Path) -> io::Result<Arc<dyn FileSystem>>;

    /// True where the path names something.
    fn exists(&self, path: &Path) -> bool;

    /// The bytes that may still be written below `path` before the disk is full.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;

    /// The bytes of the whole disk that `path` is on; a disk that has no size says `Unsupported`.
    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// When a file was last written, in ms since 1970; a disk that has no clock says `Unsupported`.
    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the lock file `path` for this process, creating it where needed.
    ///
    /// # Errors
    /// `WouldBlock` while another process, or another holder in this one, has it.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;

    /// The whole of a file.
    fn read_all(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Open::Read)?;
        let len = usize::try_from(file.len()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes `<path>.tmp`, the content that is to replace that of a file. It is not synced.
    fn write_beside(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.open(&temporary(path), Open::Create)?;
        file.set_len(0)?;
        file.write_at(&[IoSlice::new(bytes)], 0)
    }

    /// Puts `<path>.tmp` in the place of a file. The name is not synced.
    fn replace(&self, path: &Path) -> io::Result<()> {
        self.rename(&temporary(path), path)
    }

    /// Replaces the content of a file so that a crash leaves the old content or the new one, whole:
    /// writes `<path>.tmp`, syncs it, renames it and syncs the directory. What could not be written whole does not
    /// stay: it would take the room of what others have to write.
    fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let written_first = temporary(path);
        let file = self.open(&written_first, Open::Create)?;
        let written = file.set_len(0).and_then(|()| file.write_at(&[IoSlice::new(bytes)], 0));
        if let Err(error) = written.and_then(|()| file.sync_data().map_err(sync_failed)) {
            // The next start removes it where this cannot.
            let _ = self.remove_file(&written_first);
            return Err(error);
        }
        self.rename(&written_first, path)?;
        path.parent().map_or(Ok(()), |directory| self.sync_dir(directory)).map_err(sync_failed)
    }
}

/// One open file. Positions are absolute: there is no cursor that two users could move.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Writes the parts one after the other from `position` on, all of them or it is an error.
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Fills `buf` from `position` on and says how much; less than asked only at the end of the file.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;

    /// The same where memory has all of it; else an error of kind `WouldBlock`, at once. A disk that cannot tell
    /// waits.
    fn read_cached_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buf, position)
    }

    /// The bytes in the file.
    fn len(&self) -> io::Result<u64>;

    /// True for a file without a byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the bytes and the length survive a crash. After an error nothing is known of what was
    /// written since the last success, whatever a second try says.
    fn sync_data(&self) -> io::Result<()>;

    /// Has what was written from `position` on reach the disk, a piece at a time, and waits for it. That
    /// makes nothing survive a crash; it leaves little to the [`sync_data`](Self::sync_data) that follows,
    /// whose commit would else hold up those who append meanwhile. An error means what it means there.
    fn write_out(&self, position: u64) -> io::Result<()> {
        let _ = position;
        Ok(())
    }

    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The descriptor, for `sendfile`; `None` in the simulator.
    fn file(&self) -> Option<Arc<File>>;
}

/// All files of a file system, which can be made durable together: where very many have changed, that takes
/// a fraction of the time.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Makes every byte and every name survive a crash, if it can say so. An error means that something
    /// written since this value was made, by whomever, did not reach the disk.
    fn sync(&self) -> io::Result<Reach>;
}

/// What is known after the sync of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of it is on the disk.
    All,
    /// Something may not be. Whose file it was, its own sync tells.
    Unknown,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    ReadWrite,
    /// To read and write; an empty file is made where there is none.
    Create,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last part of the path.
    pub name: String,
    /// The bytes in the file; of no meaning for a directory.
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// A lock file that is held until this is dropped.
pub struct DiskLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DiskLock {
    /// A lock that is given up when `held` is dropped.
    pub fn new(held: impl Any + Send + Sync) -> DiskLock {
        DiskLock { _held: Box::new(held) }
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

/// The path at which [`Disk::write_atomically`] writes first.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(how != Open::Read).create(how == Open::Create);
        let file = options.open(path)?;
        Ok(Arc::new(RealFile { file: Arc::new(file) }))
    }

    fn open_cached(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let access = if how == Open::Read { OFlags::RDONLY } else { OFlags::RDWR };
        match openat2(CWD, path, access | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED) {
            Ok(opened) => Ok(Arc::new(RealFile { file: Arc::new(File::from(opened)) })),
            // Before Linux 5.12, or forbidden by a sandbox.
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::INTR) => self.open(path, how),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(path)? {
            let found = found?;
            let metadata = match found.metadata() {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            // A directory may lie elsewhere, behind a link.
            let behind = metadata.is_symlink().then(|| fs::metadata(found.path()));
            let metadata = behind.and_then(Result::ok).unwrap_or(metadata);
            let name = found.file_name().to_string_lossy().into_owned();
            entries.push(Entry { name, len: metadata.len(), is_dir: metadata.is_dir() });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|directory| directory.sync_all())
    }

    /// Holds a descriptor: the kernel reports a failed write-back to those that were open at the time.
    fn file_system(&self, path: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(RealFileSystem { directory: File::open(path)?, was_asked: AtomicBool::new(false) }))
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let since = fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        i64::try_from(since.as_millis()).map_err(io::Error::other)
    }

    /// Takes both kinds of lock that Linux has: `flock`, which a second holder in this process meets,
    /// and the record lock that a Kafka broker on the same directory takes.
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(would_block)?;
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(would_block)?;
        Ok(DiskLock::new(file))
    }
}

/// `fcntl` may say "access" where `flock` says "would block".
fn would_block(errno: Errno) -> io::Error {
    if errno == Errno::ACCESS { io::ErrorKind::WouldBlock.into() } else { errno.into() }
}

/// A file system of the machine, by a directory in it.
#[derive(Debug)]
struct RealFileSystem {
    directory: File,
    /// The kernel has said once what failed since the last time that somebody asked it.
    was_asked: AtomicBool,
}

impl FileSystem for RealFileSystem {
    fn sync(&self) -> io::Result<Reach> {
        let synced = loop {
            match rustix::fs::syncfs(&self.directory) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let was_asked = self.was_asked.swap(true, Ordering::Relaxed);
        match synced {
            Ok(()) => Ok(Reach::All),
            // A full disk is no failure of it.
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Reach::Unknown),
            // It may have failed long before, when no file of ours was open.
            Err(_) if !was_asked => Ok(Reach::Unknown),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A file of the machine.
#[derive(Debug)]
struct RealFile {
    file: Arc<File>,
}

/// The most slices that one system call takes (`IOV_MAX`).
const PARTS_PER_CALL_MAX: usize = 1024;

impl DiskFile for RealFile {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = position;
        let mut rest = parts;
        // Bytes of `rest[0]` that a short write has already taken.
        let mut taken = 0;
        while let Some(first) = rest.first() {
            if taken == first.len() {
                (rest, taken) = (&rest[1..], 0);
                continue;
            }
            let asked = &rest[..rest.len().min(PARTS_PER_CALL_MAX)];
            let written = if taken > 0 {
                rustix::io::pwrite(&self.file, &first[taken..], position)
            } else {
                rustix::io::pwritev(&self.file, asked, position)
            };
            let mut written = match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            position += written as u64;
            while let Some(first) = rest.first()
                && written >= first.len() - taken
            {
                written -= first.len() - taken;
                (rest, taken) = (&rest[1..], 0);
            }
            taken += written;
        }
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match rustix::io::pread(&self.file, &mut buf[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(filled)
    }

    fn read_cached_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let mut rest = [IoSliceMut::new(&mut buf[filled..])];
            let at = position + filled as u64;
            match rustix::io::preadv2(&self.file, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // A file system that cannot tell, or a kernel before 4.14.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return self.read_at(buf, position),
                // `WouldBlock` among them; the kernel has begun to read.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(filled)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_out(&self, position: u64) -> io::Result<()> {
        let end = self.len()?;
        let mut position = position;
        while position < end {
            let bytes = (end - position).min(limits::WRITE_OUT_BYTES);
            write_out_range(&self.file, position, bytes)?;
            position += bytes;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn file(&self) -> Option<Arc<File>> {
        Some(self.file.clone())
    }
}

/// Writes a range out and waits for it, as far as the kernel offers that.
fn write_out_range(file: &File, position: u64, bytes: u64) -> io::Result<()> {
    const HOW: libc::c_uint =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let offset = i64::try_from(position).map_err(io::Error::other)?;
    let count = i64::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: takes a live descriptor and numbers, and touches no memory of ours.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, count, HOW) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_written_one_after_the_other_beyond_one_call() {
        let (kept, disk) = disk();
        let file = disk.open(&kept.path().join("f"), Open::Create).unwrap();
        let parts: Vec<_> = (0..3000u32).map(|n| n.to_be_bytes()).collect();
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_at(&slices, 5).unwrap();
        let mut read = vec![0xff; 13_000];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 12_005);
        assert_eq!(read[..5], [0; 5]);
        assert_eq!(read[5..12_005], parts.concat());
        assert_eq!(file.read_at(&mut read, 20_000).unwrap(), 0);
    }

    #[test]
    fn only_create_makes_a_file() {
        let (kept, disk) = disk();
        let path = kept.path().join("f");
        for how in [Open::Read, Open::ReadWrite] {
            assert_eq!(disk.open(&path, how).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let file = disk.open(&path, Open::Create).unwrap();
        file.write_at(&[IoSlice::new(b"abc")], 0).unwrap();
        assert_eq!(disk.open(&path, Open::Create).unwrap().len().unwrap(), 3, "it is not emptied");
        let reader = disk.open(&path, Open::Read).unwrap();
        assert!(reader.write_at(&[IoSlice::new(b"x")], 0).is_err());
    }

    #[test]
    fn replacing_a_file_leaves_no_trace_of_the_old_one() {
        let (kept, disk) = disk();
        let path = kept.path().join("f");
        disk.write_atomically(&path, b"the old, longer content").unwrap();
        disk.write_atomically(&path, b"new").unwrap();
        assert_eq!(disk.read_all(&path).unwrap(), b"new");
        assert_eq!(names(&disk, kept.path()), ["f"]);
    }

    #[test]
    fn a_torn_replacement_does_not_lengthen_the_next() {
        let (kept, disk) = disk();
        std::fs::write(kept.path().join("f.tmp"), b"what a crash left behind").unwrap();
        disk.write_atomically(&kept.path().join("f"), b"new").unwrap();
        assert_eq!(disk.read_all(&kept.path().join("f")).unwrap(), b"new");
    }

    #[test]
    fn names_are_listed_in_order() {
        let (kept, disk) = disk();
        disk.create_dir_all(&kept.path().join("b/c")).unwrap();
        disk.write_atomically(&kept.path().join("a"), b"12345").unwrap();
        let entries = disk.list(kept.path()).unwrap();
        assert_eq!(names(&disk, kept.path()), ["a", "b"]);
        assert_eq!((entries[0].len, entries[0].is_dir, entries[1].is_dir), (5, false, true));
        disk.rename(&kept.path().join("a"), &kept.path().join("b/d")).unwrap();
        disk.sync_dir(kept.path()).unwrap();
        assert!(disk.exists(&kept.path().join("b/d")));
        disk.remove_dir_all(&kept.path().join("b")).unwrap();
        assert_eq!(names(&disk, kept.path()), [""; 0]);
    }

    #[test]
    fn a_lock_has_one_holder() {
        let (kept, disk) = disk();
        let path = kept.path().join(".lock");
        let held = disk.lock(&path).unwrap();
        assert_eq!(disk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        disk.lock(&path).unwrap();
    }

    #[test]
    fn there_is_room_on_the_disk() {
        let (kept, disk) = disk();
        assert!(disk.available_bytes(kept.path()).unwrap() > 0);
    }

    proptest! {
        /// Any parts at any position read back, and nothing else changes.
        #[test]
        fn what_was_written_reads_back(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            position in 0usize..100,
        ) {
            let (kept, disk) = disk();
            let file = disk.open(&kept.path().join("f"), Open::Create).unwrap();
            file.write_at(&[IoSlice::new(&[7; 50])], 0).unwrap();
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            file.write_at(&slices, position as u64).unwrap();
            let mut expected = vec![7; 50];
            let written = parts.concat();
            if !written.is_empty() {
                expected.resize(expected.len().max(position + written.len()), 0);
                expected[position..position + written.len()].copy_from_slice(&written);
            }
            prop_assert_eq!(disk.read_all(&kept.path().join("f")).unwrap(), expected);
        }
    }

    fn disk() -> (tempfile::TempDir, RealDisk) {
        (tempfile::tempdir().unwrap(), RealDisk)
    }

    fn names(disk: &RealDisk, path: &Path) -> Vec<String> {
        disk.list(path).unwrap().into_iter().map(|entry| entry.name).collect()
    }
}
