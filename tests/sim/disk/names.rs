//! The names of the simulated disk: directories, and what a crash leaves of changes in them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

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
    now: BTreeMap<String, Target>,
    durable: BTreeMap<String, Target>,
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Link(String, Target),
    Unlink(String),
    Rename(String, String),
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
        let mut found = Target::Dir(0);
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let Target::Dir(dir) = found else { return Err(io::ErrorKind::NotADirectory.into()) };
            let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            found = *self.dirs[dir].now.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(found)
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<impl Iterator<Item = (&String, &Target)>> {
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
        if from.parent() != to.parent() {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let (_, new) = self.place(to)?;
        let (dir, old) = self.place(from)?;
        dir.change(Change::Rename(old, new));
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

    pub(super) fn crash(&mut self, rng: &mut fastrand::Rng) {
        for dir in &mut self.dirs {
            if !dir.pending.is_empty() {
                let kept = rng.usize(..=dir.pending.len());
                dir.keep(kept);
                dir.pending.clear();
                dir.now.clone_from(&dir.durable);
            }
        }
    }

    /// The directory of a path, and its last name.
    fn place(&mut self, path: &Path) -> io::Result<(&mut Dir, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        match self.find(path.parent().unwrap_or(Path::new("")))? {
            Target::Dir(dir) => Ok((&mut self.dirs[dir], name.to_owned())),
            Target::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
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
    fn apply(&self, names: &mut BTreeMap<String, Target>) {
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
