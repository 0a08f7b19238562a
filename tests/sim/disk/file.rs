//! One file of the simulated disk: what readers see, what is on the medium, and the writes in between.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use tarn_log::disk::DiskFile;

use super::{Damage, SimDisk, State, Synced, disk_failed};

/// A crash keeps or loses whole sectors, but for one that it may tear.
const SECTOR_BYTES: usize = 512;

/// In a crash, one of so many files that have a checksum gets a flipped bit.
const FLIPPED_ONE_IN: u8 = 50;

#[derive(Debug)]
pub(super) struct Inode {
    /// What readers see.
    pub(super) bytes: Vec<u8>,
    /// What is on the medium.
    durable: Vec<u8>,
    /// What a sync still has to do, in order.
    pending: Vec<Pending>,
    /// A failed sync made the medium differ from what readers see.
    diverged: bool,
    is_log: bool,
    /// Its content has a checksum over all of it, so that damage is noticed.
    is_guarded: bool,
    /// Bytes below were promised to readers; `None` before the log is served.
    pub(super) written: Option<u64>,
}

#[derive(Debug)]
enum Pending {
    Write { position: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Inode {
    pub(super) fn new(path: &Path) -> Inode {
        // What is written first under another name is to be a file of this one.
        let final_path = if path.extension().is_some_and(|kind| kind == "tmp") {
            path.with_extension("")
        } else {
            path.to_owned()
        };
        let is_a = |kind: &str| final_path.extension().is_some_and(|extension| extension == kind);
        Inode {
            bytes: Vec::new(),
            durable: Vec::new(),
            pending: Vec::new(),
            diverged: false,
            is_log: is_a("log"),
            is_guarded: is_a("snapshot"),
            written: Some(0),
        }
    }

    pub(super) fn describe(&self) -> String {
        format!("{}/{}", self.durable.len(), self.bytes.len())
    }

    /// Writes, and says whether bytes were replaced: those that readers were promised, or those that a
    /// failed write left, which a crash could join with these.
    fn write(&mut self, position: usize, bytes: Vec<u8>) -> bool {
        let end = (position + bytes.len()) as u64;
        let replaces = self.is_log && self.written.is_some_and(|written| (position as u64) < written);
        self.written = self.written.map(|written| written.max(end));
        write(&mut self.bytes, position, &bytes);
        self.pending.push(Pending::Write { position, bytes });
        replaces
    }

    fn set_len(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        self.pending.push(Pending::SetLen(len));
    }

    pub(super) fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            pending.apply(&mut self.durable);
        }
    }

    /// What was to be synced is lost or not, each write for itself; readers do not notice yet.
    pub(super) fn fail_sync(&mut self, rng: &mut fastrand::Rng, damage: &mut Damage) {
        for pending in self.pending.drain(..) {
            pending.apply_in_part(&mut self.durable, rng, damage);
        }
        self.diverged = true;
    }

    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng, damage: &mut Damage) {
        self.written = None;
        if !self.pending.is_empty() || self.diverged {
            self.fail_sync(rng, damage);
            self.bytes.clone_from(&self.durable);
            self.diverged = false;
        }
        if self.is_guarded && !self.durable.is_empty() && rng.u8(..FLIPPED_ONE_IN) == 0 {
            let at = rng.usize(..self.durable.len());
            damage.bits_flipped += 1;
            self.durable[at] ^= 1 << rng.u32(..8);
            self.bytes[at] = self.durable[at];
        }
    }
}

impl Pending {
    fn apply(self, durable: &mut Vec<u8>) {
        match self {
            Pending::Write { position, bytes } => write(durable, position, &bytes),
            Pending::SetLen(len) => durable.resize(len, 0),
        }
    }

    fn apply_in_part(self, durable: &mut Vec<u8>, rng: &mut fastrand::Rng, damage: &mut Damage) {
        match (rng.u8(..8), self) {
            (0..3, all) => all.apply(durable),
            (3..5, Pending::Write { position, mut bytes }) => {
                let kept = rng.usize(..=bytes.len());
                damage.cut_short += u64::from(kept < bytes.len());
                bytes.truncate(kept);
                write(durable, position, &bytes);
            }
            (5, Pending::Write { position, mut bytes }) => {
                damage.torn += 1;
                let torn = rng.usize(..bytes.len().max(1)) / SECTOR_BYTES * SECTOR_BYTES;
                let end = bytes.len().min(torn + SECTOR_BYTES);
                bytes[torn.min(end)..end].fill_with(|| rng.u8(..));
                write(durable, position, &bytes);
            }
            _ => damage.lost += 1,
        }
    }
}

/// Writes into a file; a gap before `position` reads as zeros.
fn write(file: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = position + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[position..end].copy_from_slice(bytes);
}

/// An open file.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) inode: usize,
    pub(super) boot: u32,
    pub(super) writable: bool,
}

impl SimFile {
    fn with<R>(&self, use_it: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        let mut state = self.disk.lock();
        if state.boot != self.boot {
            return Err(io::Error::other("the file was opened before a crash"));
        }
        use_it(&mut state)
    }

    fn with_writable<R>(&self, use_it: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.with(use_it)
    }
}

impl DiskFile for SimFile {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        self.with_writable(|state| {
            let mut bytes: Vec<u8> = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            let refused = state.change().and_then(|()| state.room()).err();
            if refused.is_some() {
                bytes.truncate(state.rng.usize(..bytes.len().max(1)));
            }
            let inode = &mut state.inodes[self.inode];
            if inode.write(position as usize, bytes) {
                let twice = format!("bytes from position {position} on were written twice");
                state.violation.get_or_insert(twice);
            }
            refused.map_or(Ok(()), Err)
        })
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|state| {
            state.power()?;
            let bytes = &state.inodes[self.inode].bytes;
            let from = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
            let read = buf.len().min(bytes.len() - from);
            buf[..read].copy_from_slice(&bytes[from..from + read]);
            Ok(read)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state| {
            state.power()?;
            Ok(state.inodes[self.inode].bytes.len() as u64)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            let synced = state.sync()?;
            let State { inodes, rng, damage, .. } = &mut *state;
            let inode = &mut inodes[self.inode];
            match synced {
                Synced::Done => inode.sync(),
                Synced::Lied => {}
                Synced::Failed => {
                    inode.fail_sync(rng, damage);
                    return Err(disk_failed(&mut state.rng));
                }
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_writable(|state| {
            state.change()?;
            let inode = &mut state.inodes[self.inode];
            inode.set_len(len as usize);
            Ok(())
        })
    }

    fn file(&self) -> Option<Arc<File>> {
        None
    }
}
