//! The machine's disk under the eyes of a test, which hears of each call first and may refuse it.
//!
//! The one double of the real disk. Other crates' tests have it by the path of this file; what a test counts, holds up
//! or refuses is its own, a [`Watch`].

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use tarn_log::disk::{DiskLock, Entry, Open};
use tarn_log::{Disk, DiskFile, FileSystem, Reach, ReadFrom, RealDisk};

/// What a test makes of the calls; where it does not say, the disk is as it is, and memory has all of it.
pub(crate) trait Watch: Debug + Send + Sync + 'static {
    /// Somebody opens a file.
    fn opens(&self, _path: &str, _how: Open, _from: ReadFrom) -> io::Result<()> {
        Ok(())
    }

    /// Somebody reads; an error of kind `WouldBlock` says that memory has nothing.
    fn reads(&self, _path: &str, _from: ReadFrom) -> io::Result<()> {
        Ok(())
    }

    /// Somebody writes; `Some` is how many bytes of it there is room for, and then it fails.
    fn finds_room(&self, _path: &str) -> Option<usize> {
        None
    }

    /// Somebody cuts a file, or writes zeros behind its end.
    fn cuts(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    /// Somebody syncs a file, or the names in a directory.
    fn syncs(&self, _synced: Synced) -> io::Result<()> {
        Ok(())
    }

    /// Somebody syncs the whole file system.
    fn syncs_all(&self) -> io::Result<Reach> {
        Ok(Reach::All)
    }

    /// What the disk says is free where it has so many bytes.
    fn says_free(&self, bytes: u64) -> u64 {
        bytes
    }
}

/// What is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    File,
    Names,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct WatchedDisk<W>(pub(crate) Arc<W>);

#[derive(Debug)]
struct WatchedFile<W> {
    file: Arc<dyn DiskFile>,
    path: String,
    watch: Arc<W>,
}

#[derive(Debug)]
struct WatchedFileSystem<W>(Arc<W>);

impl<W: Watch> WatchedDisk<W> {
    fn open_from(&self, path: &Path, how: Open, from: ReadFrom) -> io::Result<Arc<dyn DiskFile>> {
        let name = path.to_string_lossy().into_owned();
        self.0.opens(&name, how, from)?;
        let file = RealDisk.open(path, how)?;
        Ok(Arc::new(WatchedFile { file, path: name, watch: self.0.clone() }))
    }
}

impl<W: Watch> Disk for WatchedDisk<W> {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        self.open_from(path, how, ReadFrom::Disk)
    }

    fn open_cached(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        self.open_from(path, how, ReadFrom::Memory)
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
        self.0.syncs(Synced::Names)?;
        RealDisk.sync_dir(path)
    }

    fn file_system(&self, _: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(WatchedFileSystem(self.0.clone())))
    }

    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(self.0.says_free(RealDisk.available_bytes(path)?))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        RealDisk.lock(path)
    }
}

impl<W: Watch> FileSystem for WatchedFileSystem<W> {
    fn sync(&self) -> io::Result<Reach> {
        self.0.syncs_all()
    }
}

impl<W: Watch> DiskFile for WatchedFile<W> {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let Some(room) = self.watch.finds_room(&self.path) else {
            return self.file.write_at(parts, position);
        };
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(room).collect();
        self.file.write_at(&[IoSlice::new(&bytes)], position)?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.watch.reads(&self.path, ReadFrom::Disk)?;
        self.file.read_at(buf, position)
    }

    fn read_cached_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.watch.reads(&self.path, ReadFrom::Memory)?;
        self.file.read_at(buf, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.watch.syncs(Synced::File)?;
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.watch.cuts(&self.path)?;
        self.file.set_len(len)
    }

    fn file(&self) -> Option<Arc<File>> {
        self.file.file()
    }
}
