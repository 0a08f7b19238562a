//! A disk in memory, for decoders that read their files themselves. It never fails and nothing on it lasts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tarn_log::disk::{Disk, DiskFile, DiskLock, Entry, FileSystem, Open, Reach};

/// What it says is free.
const FREE_BYTES: u64 = 1 << 40;

/// No file grows beyond it, whatever length it is given.
const FILE_BYTES_MAX: u64 = 1 << 24;

type Content = Arc<Mutex<Vec<u8>>>;

/// Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaperDisk {
    /// A directory is a path without content.
    names: Arc<Mutex<BTreeMap<PathBuf, Option<Content>>>>,
}

impl PaperDisk {
    /// Puts a file there, and the directories above it.
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        let above = path.parent().expect("a file has a directory");
        self.create_dir_all(above).expect("this disk never fails");
        self.lock().insert(path.to_owned(), Some(Arc::new(Mutex::new(bytes))));
    }

    /// The names of all files with what they hold.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = self.lock();
        let files = names.iter().filter_map(|(path, content)| Some((path.clone(), content.as_ref()?)));
        files.map(|(path, content)| (path, bytes_of(content).clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Option<Content>>> {
        held(&self.names)
    }

    fn content(&self, path: &Path) -> io::Result<Content> {
        match self.lock().get(path) {
            Some(Some(content)) => Ok(content.clone()),
            Some(None) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A decoder that panics leaves nothing half done here.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn bytes_of(content: &Content) -> MutexGuard<'_, Vec<u8>> {
    held(content)
}

impl Disk for PaperDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let content = match self.content(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && how == Open::Create => {
                let content = Content::default();
                self.lock().insert(path.to_owned(), Some(content.clone()));
                content
            }
            other => other?,
        };
        Ok(Arc::new(PaperFile(content)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let names = &mut *self.lock();
        if !names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let moved: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in moved {
            let content = names.remove(&path).expect("it was just there");
            let rest = path.strip_prefix(from).expect("it starts like this");
            names.insert(if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) }, content);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.content(path)?;
        self.lock().remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.lock().retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let names = &mut *self.lock();
        for above in path.ancestors() {
            names.entry(above.to_owned()).or_insert(None);
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let names = self.lock();
        if !names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = names.iter().filter(|(name, _)| name.parent() == Some(path));
        let entry = |(name, content): (&PathBuf, &Option<Content>)| Entry {
            name: name.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            len: content.as_ref().map_or(0, |content| bytes_of(content).len() as u64),
            is_dir: content.is_none(),
        };
        Ok(inside.map(entry).collect())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn file_system(&self, _: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.clone()))
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().contains_key(path)
    }

    fn available_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(FREE_BYTES)
    }

    fn lock(&self, _: &Path) -> io::Result<DiskLock> {
        Ok(DiskLock::new(()))
    }
}

impl FileSystem for PaperDisk {
    fn sync(&self) -> io::Result<Reach> {
        Ok(Reach::All)
    }
}

#[derive(Debug)]
struct PaperFile(Content);

impl DiskFile for PaperFile {
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() as u64;
        let end = position.saturating_add(length);
        let mut bytes = bytes_of(&self.0);
        if end > bytes.len() as u64 {
            grow(&mut bytes, end)?;
        }
        let mut at = position as usize;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = bytes_of(&self.0);
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let read = buf.len().min(bytes.len() - start);
        buf[..read].copy_from_slice(&bytes[start..start + read]);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(bytes_of(&self.0).len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        grow(&mut bytes_of(&self.0), len)
    }

    fn file(&self) -> Option<Arc<File>> {
        None
    }
}

fn grow(bytes: &mut Vec<u8>, len: u64) -> io::Result<()> {
    if len > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes.resize(len as usize, 0);
    Ok(())
}
