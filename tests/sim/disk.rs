//! The simulator's disk: tarn-log's file trait with a page cache that a crash can lose.
//!
//! Each file has the bytes that readers see and the bytes that are on the medium; between them lies a list
//! of writes not yet synced. A crash keeps any part of each of them, tears the last page of what it keeps
//! and flips bits of files that a checksum guards. Of the names made, changed or removed in a directory
//! since it was synced it keeps the first ones: journaling file systems keep the order of names, and POSIX
//! promises no more.
//!
//! A disk can be full, can fail to sync, and can lose power in the middle of an operation: from then on
//! everything fails until [`SimDisk::crash`]. A failed sync leaves nothing to a second try: what it should
//! have written is lost or not, and a later sync does not tell. The order of all that happens depends on
//! the seed alone.
//!
//! What the disk itself watches: once a log is served, no byte of a `.log` file is written twice.

mod file;
mod names;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tarn_log::disk::{Disk, DiskFile, DiskLock, Entry, FileSystem, Open, Reach};

use file::{Inode, SimFile};
use names::{Names, Target};

/// A disk; clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// How the disk behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Nothing more can be written.
    pub(crate) full: bool,
    /// So many writes still find room, whatever else they belong to.
    pub(crate) full_after: Option<u32>,
    /// Every sync fails.
    pub(crate) sync_fails: bool,
    /// Syncs say that they succeeded and do nothing: no disk does that; a checker must notice.
    pub(crate) sync_lies: bool,
    /// The same for directories only.
    pub(crate) names_lie: bool,
}

#[derive(Debug)]
struct State {
    names: Names,
    inodes: Vec<Inode>,
    faults: Faults,
    /// Changes that still happen before the power goes; `None` while it stays.
    until_power_loss: Option<u32>,
    power_lost: bool,
    /// Counts crashes: what was opened before the last one is of no use.
    boot: u32,
    locked: bool,
    /// A rule that the code under test broke.
    violation: Option<String>,
    rng: fastrand::Rng,
    syncs: u64,
    /// Inodes that nothing names or has open.
    unused: Vec<usize>,
    damage: Damage,
}

/// What crashes and failed syncs did to writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    /// Writes of which only a beginning is there.
    pub(crate) cut_short: u64,
    /// Writes with a sector of something else in them.
    pub(crate) torn: u64,
    /// Writes and changes of length of which nothing is there.
    pub(crate) lost: u64,
    /// Changes of names that are undone.
    pub(crate) names_lost: u64,
    /// Bits that are another in files whose content has a checksum.
    pub(crate) bits_flipped: u64,
}

impl SimDisk {
    pub(crate) fn new(seed: u64) -> SimDisk {
        let state = State {
            names: Names::default(),
            inodes: Vec::new(),
            faults: Faults::default(),
            until_power_loss: None,
            power_lost: false,
            boot: 0,
            locked: false,
            violation: None,
            rng: fastrand::Rng::with_seed(seed),
            syncs: 0,
            unused: Vec::new(),
            damage: Damage::default(),
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(crate) fn faults(&self) -> Faults {
        self.lock().faults
    }

    /// The power goes after so many more changes, in the middle of whatever makes them.
    pub(crate) fn lose_power_after(&self, changes: u32) {
        self.lock().until_power_loss = Some(changes);
    }

    /// The power stays, whatever was announced.
    pub(crate) fn keep_power(&self) {
        self.lock().until_power_loss = None;
    }

    pub(crate) fn power_lost(&self) -> bool {
        self.lock().power_lost
    }

    /// The rule that was broken first.
    pub(crate) fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// From now on bytes in `.log` files are promised to readers: none may change.
    pub(crate) fn watch_logs(&self) {
        let state = &mut *self.lock();
        for inode in &mut state.inodes {
            inode.written = Some(inode.bytes.len() as u64);
        }
    }

    /// The files of a directory with their sizes, and how much of each is on the medium.
    pub(crate) fn describe(&self, dir: &Path) -> String {
        let state = self.lock();
        let Ok(names) = state.names.list(dir) else { return "no directory".to_owned() };
        let shown = names.filter_map(|(name, target)| match *target {
            Target::File(inode) => Some(format!("{name} {}", state.inodes[inode].describe())),
            Target::Dir(_) => None,
        });
        shown.collect::<Vec<_>>().join(", ").replace("0000000000000000", "")
    }

    /// How many syncs succeeded.
    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The machine stops and starts again: what was not synced is lost in part, and the faults are gone. Returns what
    /// was damaged since the last time.
    pub(crate) fn crash(&self) -> Damage {
        let state = &mut *self.lock();
        state.boot += 1;
        state.faults = Faults::default();
        state.until_power_loss = None;
        state.power_lost = false;
        state.locked = false;
        let State { names, inodes, rng, damage, .. } = state;
        damage.names_lost += names.crash(rng);
        inodes.iter_mut().for_each(|inode| inode.crash(rng, damage));
        state.forget_unnamed();
        std::mem::take(&mut state.damage)
    }

    /// The process stops and starts again, the machine does not.
    pub(crate) fn restart(&self) {
        let state = &mut *self.lock();
        state.boot += 1;
        state.locked = false;
        state.inodes.iter_mut().for_each(|inode| inode.written = None);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of a simulation panics while it holds the disk")
    }
}

impl State {
    /// Fails once the power is lost; a change may be the last one.
    fn change(&mut self) -> io::Result<()> {
        self.power()?;
        if let Some(left) = &mut self.until_power_loss {
            if *left == 0 {
                self.power_lost = true;
                return Err(power_lost());
            }
            *left -= 1;
        }
        Ok(())
    }

    fn power(&self) -> io::Result<()> {
        if self.power_lost { Err(power_lost()) } else { Ok(()) }
    }

    /// Fails where the disk is full, which it may have become by the write before.
    fn room(&mut self) -> io::Result<()> {
        match &mut self.faults.full_after {
            Some(0) => self.faults.full = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.faults.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<Synced> {
        self.change()?;
        if self.faults.sync_lies {
            return Ok(Synced::Lied);
        }
        if self.faults.sync_fails {
            return Ok(Synced::Failed);
        }
        self.syncs += 1;
        Ok(Synced::Done)
    }

    /// After a crash nobody has a file open: what has no name is gone.
    fn forget_unnamed(&mut self) {
        let mut is_named = vec![false; self.inodes.len()];
        self.names.files().into_iter().for_each(|inode| is_named[inode] = true);
        self.unused.clear();
        for (inode, _) in is_named.iter().enumerate().filter(|(_, is_named)| !**is_named) {
            self.inodes[inode] = Inode::new(Path::new(""));
            self.unused.push(inode);
        }
    }

    fn new_inode(&mut self, path: &Path) -> usize {
        let inode = Inode::new(path);
        match self.unused.pop() {
            Some(number) => {
                self.inodes[number] = inode;
                number
            }
            None => {
                self.inodes.push(inode);
                self.inodes.len() - 1
            }
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.find(path)? {
            Target::File(inode) => Ok(inode),
            Target::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

/// What became of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    Done,
    Failed,
    Lied,
}

fn power_lost() -> io::Error {
    io::Error::other("the power is lost")
}

/// Also one that had no room left for what it had taken has failed.
fn disk_failed(rng: &mut fastrand::Rng) -> io::Error {
    match rng.u8(..3) {
        0 => io::Error::other("the disk failed to sync"),
        1 => io::ErrorKind::StorageFull.into(),
        _ => io::ErrorKind::QuotaExceeded.into(),
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.power()?;
        let inode = match state.file(path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && how == Open::Create => {
                state.change()?;
                if state.faults.full {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let inode = state.new_inode(path);
                state.names.link(path, Target::File(inode))?;
                inode
            }
            other => other?,
        };
        Ok(Arc::new(SimFile { disk: self.clone(), inode, boot: state.boot, writable: how != Open::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.names.find(from)?;
        state.change()?;
        state.names.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.file(path)?;
        state.change()?;
        state.names.unlink(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.names.find(path)?;
        state.change()?;
        state.names.unlink(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let mut above = PathBuf::new();
        for part in path.components() {
            above.push(part);
            if state.names.find(&above).is_err() {
                state.change()?;
                let dir = state.names.new_dir();
                state.names.link(&above, dir)?;
            }
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let state = self.lock();
        state.power()?;
        let entry = |(name, target): (&Arc<str>, &Target)| {
            let (len, is_dir) = match *target {
                Target::File(inode) => (state.inodes[inode].bytes.len() as u64, false),
                Target::Dir(_) => (0, true),
            };
            Entry { name: name.to_string(), len, is_dir }
        };
        Ok(state.names.list(path)?.map(entry).collect())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.names.find(path)?;
        match state.sync()? {
            Synced::Done if state.faults.names_lie => Ok(()),
            Synced::Done => state.names.sync(path),
            Synced::Failed => Err(disk_failed(&mut state.rng)),
            Synced::Lied => Ok(()),
        }
    }

    fn file_system(&self, _: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(SimFileSystem { disk: self.clone(), boot: self.lock().boot }))
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().names.find(path).is_ok()
    }

    fn available_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.lock().faults.full { 0 } else { 1 << 30 })
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.open(path, Open::Create)?;
        let mut state = self.lock();
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(DiskLock::new(Unlock { disk: self.clone(), boot: state.boot }))
    }
}

/// The whole disk, as it was when somebody began to use it.
#[derive(Debug)]
struct SimFileSystem {
    disk: SimDisk,
    boot: u32,
}

impl FileSystem for SimFileSystem {
    fn sync(&self) -> io::Result<Reach> {
        let state = &mut *self.disk.lock();
        if state.boot != self.boot {
            return Err(io::Error::other("the file system was opened before a crash"));
        }
        match state.sync()? {
            Synced::Done => {
                state.inodes.iter_mut().for_each(Inode::sync);
                if !state.faults.names_lie {
                    state.names.sync_all();
                }
                Ok(Reach::All)
            }
            Synced::Failed => {
                let State { inodes, rng, damage, .. } = state;
                inodes.iter_mut().for_each(|inode| inode.fail_sync(rng, damage));
                // A full one is told by the files, one by one, as the real disk has it.
                Err(io::Error::other("the disk failed to sync"))
            }
            Synced::Lied => Ok(Reach::All),
        }
    }
}

/// Gives the lock up when the holder goes, unless a crash took it before.
struct Unlock {
    disk: SimDisk,
    boot: u32,
}

impl Drop for Unlock {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.boot == self.boot {
            state.locked = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    #[test]
    fn what_was_synced_survives() {
        for seed in 0..50 {
            let disk = with_dir(seed);
            let file = disk.open(Path::new("/d/f"), Open::Create).unwrap();
            file.write_at(&[IoSlice::new(b"synced")], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_at(&[IoSlice::new(b" and not")], 6).unwrap();
            disk.crash();
            let bytes = disk.read_all(Path::new("/d/f")).unwrap();
            assert_eq!(bytes[..6], *b"synced");
            assert!(file.sync_data().is_err(), "a file that was opened before the crash is of no use");
        }
    }

    #[test]
    fn what_is_in_a_file_system_that_was_synced_survives() {
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all(Path::new("/d/e")).unwrap();
            let file = disk.open(Path::new("/d/e/f"), Open::Create).unwrap();
            file.write_at(&[IoSlice::new(b"synced")], 0).unwrap();
            assert_eq!(disk.file_system(Path::new("/d")).unwrap().sync().unwrap(), Reach::All);
            disk.crash();
            assert_eq!(disk.read_all(Path::new("/d/e/f")).unwrap(), b"synced");
        }
    }

    #[test]
    fn a_crash_keeps_a_part_of_what_was_not_synced() {
        let mut kept: Vec<_> = (0..200)
            .map(|seed| {
                let disk = with_dir(seed);
                let file = disk.open(Path::new("/d/f"), Open::Create).unwrap();
                disk.sync_dir(Path::new("/d")).unwrap();
                file.write_at(&[IoSlice::new(&[7; 20])], 0).unwrap();
                disk.crash();
                disk.read_all(Path::new("/d/f")).unwrap().len()
            })
            .collect();
        kept.sort_unstable();
        kept.dedup();
        assert!(kept.len() > 5 && kept[0] == 0 && kept[kept.len() - 1] == 20, "{kept:?}");
    }

    #[test]
    fn a_rename_is_lost_or_kept_as_a_whole_and_in_order() {
        let mut seen: Vec<_> = (0..100)
            .map(|seed| {
                let disk = with_dir(seed);
                disk.open(Path::new("/d/a"), Open::Create).unwrap();
                disk.sync_dir(Path::new("/d")).unwrap();
                disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
                disk.open(Path::new("/d/c"), Open::Create).unwrap();
                disk.crash();
                let names = disk.list(Path::new("/d")).unwrap();
                names.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(" ")
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, ["a", "b", "b c"]);
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next() {
        let lost = (0..100).filter(|&seed| {
            let disk = with_dir(seed);
            let file = disk.open(Path::new("/d/f"), Open::Create).unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_at(&[IoSlice::new(b"bytes")], 0).unwrap();
            disk.set_faults(Faults { sync_fails: true, ..Faults::default() });
            file.sync_data().unwrap_err();
            disk.set_faults(Faults::default());
            file.sync_data().unwrap();
            assert_eq!(disk.read_all(Path::new("/d/f")).unwrap(), b"bytes", "readers do not notice");
            disk.crash();
            disk.read_all(Path::new("/d/f")).unwrap() != b"bytes"
        });
        assert!(lost.count() > 20);
    }

    #[test]
    fn a_byte_of_a_log_that_is_written_twice_is_told() {
        let disk = with_dir(0);
        let file = disk.open(Path::new("/d/0.log"), Open::Create).unwrap();
        file.write_at(&[IoSlice::new(b"once")], 0).unwrap();
        assert_eq!(disk.violation(), None);
        file.set_len(2).unwrap();
        file.write_at(&[IoSlice::new(b"twice")], 2).unwrap();
        assert!(disk.violation().is_some());
    }

    fn with_dir(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/d")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk
    }
}
