//! The names of the simulated disk: directories, and what a crash leaves of changes in them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// All directories, the root first. One that was removed stays here without a name.
#[derive(Debug)]
pub(super) struct Names {
    dirs: Vec<Dir>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File(usize),
    Dir(usize),
}

#[derive(Debug, Default)]
struct Dir {
    now: BTreeMap<Arc<str>, Target>,
    durable: BTreeMap<Arc<str>, Target>,
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Link(Arc<str>, Target),
    Unlink(Arc<str>),
    Rename(Arc<str>, Arc<str>),
}

impl Default for Names {
    fn default() -> Names {
        Names { dirs: vec![Dir::default()] }
    }
}

impl Names {
    pub(super) fn new_dir(&mut self) -> Target {
        self.dirs.push(Dir::default());
        Target::Dir(self.dirs.len() - 1)
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Target> {
        self.find_named(text_of(path)?)
    }

    /// Paths are absolute and have no dots in them: nobody who uses this disk makes others.
    fn find_named(&self, path: &str) -> io::Result<Target> {
        let mut found = Target::Dir(0);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Target::Dir(dir) = found else { return Err(io::ErrorKind::NotADirectory.into()) };
            found = *self.dirs[dir].now.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(found)
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<impl Iterator<Item = (&Arc<str>, &Target)>> {
        match self.find(path)? {
            Target::Dir(dir) => Ok(self.dirs[dir].now.iter()),
            Target::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn link(&mut self, path: &Path, target: Target) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        dir.change(Change::Link(name, target));
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        dir.change(Change::Unlink(name));
        Ok(())
    }

    /// Renames within one directory, which is all that a log does.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, _), (to_dir, new)) = (split(from)?, split(to)?);
        if from_dir != to_dir {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let (dir, old) = self.place(from)?;
        dir.change(Change::Rename(old, new.into()));
        Ok(())
    }

    pub(super) fn sync(&mut self, path: &Path) -> io::Result<()> {
        let Target::Dir(dir) = self.find(path)? else { return Err(io::ErrorKind::NotADirectory.into()) };
        self.dirs[dir].keep_all();
        Ok(())
    }

    pub(super) fn sync_all(&mut self) {
        self.dirs.iter_mut().for_each(Dir::keep_all);
    }

    /// Returns how many changes are lost.
    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng) -> u64 {
        let mut lost = 0;
        for dir in &mut self.dirs {
            if !dir.pending.is_empty() {
                let kept = rng.usize(..=dir.pending.len());
                lost += dir.pending.len() - kept;
                dir.keep(kept);
                dir.pending.clear();
                dir.now.clone_from(&dir.durable);
            }
        }
        lost as u64
    }

    /// All files that have a name.
    pub(super) fn files(&self) -> Vec<usize> {
        let (mut dirs, mut files) = (vec![0], Vec::new());
        while let Some(dir) = dirs.pop() {
            for target in self.dirs[dir].now.values() {
                match *target {
                    Target::Dir(below) => dirs.push(below),
                    Target::File(inode) => files.push(inode),
                }
            }
        }
        files
    }

    /// The directory of a path, and its last name.
    fn place(&mut self, path: &Path) -> io::Result<(&mut Dir, Arc<str>)> {
        let (above, name) = split(path)?;
        match self.find_named(above)? {
            Target::Dir(dir) => Ok((&mut self.dirs[dir], name.into())),
            Target::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

fn text_of(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or(io::ErrorKind::InvalidInput.into())
}

/// The path of the directory, and the last name.
fn split(path: &Path) -> io::Result<(&str, &str)> {
    text_of(path)?.rsplit_once('/').ok_or(io::ErrorKind::InvalidInput.into())
}

impl Dir {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn keep_all(&mut self) {
        self.keep(self.pending.len());
    }

    /// Makes the first changes durable.
    fn keep(&mut self, changes: usize) {
        for change in self.pending.drain(..changes) {
            change.apply(&mut self.durable);
        }
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<Arc<str>, Target>) {
        match self {
            Change::Link(name, target) => {
                names.insert(name.clone(), *target);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to) => {
                if let Some(target) = names.remove(from) {
                    names.insert(to.clone(), target);
                }
            }
        }
    }
}
