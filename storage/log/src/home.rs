//! Where one partition lives: its directory, the disk it is on and the node's budget of descriptors.
//!
//! Shared by the log and by every file that a plan or a job of it names, on any thread. It does not
//! change: a partition that moves gets a new home. But once it is deleted its files are in a directory of another
//! name until they are removed, and who reads them goes on there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use tarn_record::{Offset, TopicId};

use crate::descriptors::Descriptors;
use crate::disk::{Disk, DiskFile, FileSystem, Open, ReadFrom};
use crate::error::LogError;
use crate::log_dir::number_of;

/// The directory of one partition.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) path: PathBuf,
    /// What the directory is called since the partition was deleted. Held while a file in it is opened to be read: once it
    /// is renamed another topic's directory may have its name.
    pub(crate) deleted_as: RwLock<Option<Box<Path>>>,
}

/// The kinds of files that a segment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    Snapshot,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::Snapshot];

    /// Those that follow from the batches of one segment alone.
    pub(crate) const OF_SEGMENT: [Kind; 4] = [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Kind::Log => ".log",
            Kind::OffsetIndex => ".index",
            Kind::TimeIndex => ".timeindex",
            Kind::TxnIndex => ".txnindex",
            Kind::Snapshot => ".snapshot",
        }
    }

    /// What a file name says: the kind and the offset; `None` for other files.
    pub(crate) fn parse(name: &str) -> Option<(Kind, Offset)> {
        let (digits, _) = name.split_once('.')?;
        let kind = Kind::ALL.into_iter().find(|kind| name[digits.len()..] == *kind.suffix())?;
        Some((kind, offset_of(digits)?))
    }
}

/// The offset in the name of a file that says from which segment on the log is unbroken.
pub(crate) fn parse_unbroken(name: &str) -> Option<Offset> {
    offset_of(name.strip_suffix(UNBROKEN_SUFFIX)?)
}

fn offset_of(digits: &str) -> Option<Offset> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Offset) } else { None }
}

/// What a file is called while it waits to be removed.
pub(crate) const DELETED_SUFFIX: &str = ".deleted";

/// What a file is called while compaction writes it.
pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";

/// What it is called from when it is complete until the files that it replaces are out of the way.
pub(crate) const SWAP_SUFFIX: &str = ".swap";

/// The leader epochs of the log.
pub(crate) const EPOCHS_FILE: &str = "leader-epoch-checkpoint";

/// The end of the name of a file that is there as long as only Tarn opens the log: Kafka removes what ends like this
/// before it does anything else with a log. What it says is with `Log::say_unbroken`.
const UNBROKEN_SUFFIX: &str = ".unbroken.deleted";

/// What the directory of a deleted partition is called.
pub(crate) const DELETED_DIR_SUFFIX: &str = "-delete";

/// What the directory of a partition is called that the metadata does not know.
const STRAY_DIR_SUFFIX: &str = "-stray";

/// The longest name that file systems take.
const NAME_BYTES_MAX: usize = 255;

/// How many directories of one partition may be out of the way at once.
const DELETED_DIRS_MAX: u32 = 1000;

impl Home {
    /// Tells log directories apart: what is in the same one has the same number, as long as it is open.
    pub(crate) fn dir_number(&self) -> usize {
        number_of(&self.file_system)
    }

    /// The partition as its directory names it: `topic-0`.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Opens a file of the directory, also where the partition was deleted since; `path` is asked once the directory keeps
    /// its name for as long as that takes.
    ///
    /// # Errors
    /// The system's; `WouldBlock` from memory also while the directory is being renamed.
    pub(crate) fn open_to_read(
        &self,
        source: ReadFrom,
        path: impl FnOnce() -> PathBuf,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let deleted_as = match source {
            ReadFrom::Disk => self.deleted_as.read().unwrap_or_else(PoisonError::into_inner),
            ReadFrom::Memory => match self.deleted_as.try_read() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            },
        };
        source.open(self.disk.as_ref(), &moved(path(), deleted_as.as_deref()), Open::ReadWrite)
    }

    /// Where a file of the directory is by now; while the directory is being renamed, where it was. It waits for nobody.
    pub(crate) fn now_at(&self, path: PathBuf) -> PathBuf {
        match self.deleted_as.try_read() {
            Ok(deleted_as) => moved(path, deleted_as.as_deref()),
            Err(TryLockError::Poisoned(deleted_as)) => moved(path, deleted_as.into_inner().as_deref()),
            Err(TryLockError::WouldBlock) => path,
        }
    }

    /// The path of a segment's file.
    pub(crate) fn file(&self, base: Offset, kind: Kind) -> PathBuf {
        self.path.join(format!("{:020}{}", base.0, kind.suffix()))
    }

    /// The path of a file that is to be removed.
    pub(crate) fn deleted(&self, base: Offset, kind: Kind) -> PathBuf {
        self.path.join(format!("{:020}{}{DELETED_SUFFIX}", base.0, kind.suffix()))
    }

    /// The path of a segment's file that compaction is writing.
    pub(crate) fn cleaned(&self, base: Offset, kind: Kind) -> PathBuf {
        self.path.join(format!("{:020}{}{CLEANED_SUFFIX}", base.0, kind.suffix()))
    }

    /// The path of one that compaction has written, and that is about to take the place of others.
    pub(crate) fn swap(&self, base: Offset, kind: Kind) -> PathBuf {
        self.path.join(format!("{:020}{}{SWAP_SUFFIX}", base.0, kind.suffix()))
    }

    /// The path of a file in whose place another was put, by the log's swap of this number: the next swap may put out
    /// a file of the same base, and plans may still name both.
    pub(crate) fn swapped_out(&self, base: Offset, kind: Kind, swap: u64) -> PathBuf {
        self.path.join(format!("{:020}{}.{swap}{DELETED_SUFFIX}", base.0, kind.suffix()))
    }

    /// The path of the file that says from which segment on the log is unbroken.
    pub(crate) fn unbroken(&self, from: Offset) -> PathBuf {
        self.path.join(format!("{:020}{UNBROKEN_SUFFIX}", from.0))
    }

    /// Removes a file; one that is not there is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), LogError> {
        match self.disk.remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", path, cause)),
            _ => Ok(()),
        }
    }

    /// Renames a file; true if it was there.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<bool, LogError> {
        match self.disk.rename(from, to) {
            Ok(()) => Ok(true),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(LogError::io("rename", from, cause)),
        }
    }

    /// Renames the directory so that it is no longer a partition's: `topic-0.<32 hex digits>-delete`. Waits until nobody
    /// is opening a file in it.
    pub(crate) fn rename_for_deletion(&self, topic_id: TopicId) -> Result<PathBuf, LogError> {
        let mut deleted_as = self.deleted_as.write().unwrap_or_else(PoisonError::into_inner);
        let renamed = self.rename_away(topic_id, DELETED_DIR_SUFFIX)?;
        *deleted_as = Some(renamed.as_path().into());
        Ok(renamed)
    }

    /// The same for one that is kept for a person to look at, as in Kafka: `topic-0.<32 hex digits>-stray`.
    pub(crate) fn rename_as_stray(&self, topic_id: TopicId) -> Result<PathBuf, LogError> {
        self.rename_away(topic_id, STRAY_DIR_SUFFIX)
    }

    fn rename_away(&self, topic_id: TopicId, suffix: &str) -> Result<PathBuf, LogError> {
        let name = self.name();
        let id = topic_id.0.as_u128();
        let mut renamed = self.path.clone();
        for attempt in 0..DELETED_DIRS_MAX {
            let unique = format!(".{:032x}{suffix}", id.wrapping_add(u128::from(attempt)));
            // A name has at most 255 bytes; topic names are ASCII.
            let kept = name.len().min(NAME_BYTES_MAX - unique.len());
            renamed.set_file_name(format!("{}{unique}", &name[..kept]));
            if !self.disk.exists(&renamed) {
                break;
            }
        }
        self.disk.rename(&self.path, &renamed).map_err(|cause| LogError::io("rename", &self.path, cause))?;
        Ok(renamed)
    }

    /// Makes the content of a file survive a crash; one that is not there is fine.
    pub(crate) fn sync_file(&self, path: &Path) -> Result<(), LogError> {
        match self.disk.open(path, Open::ReadWrite).and_then(|file| file.sync_data()) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(LogError::unsynced(path, cause)),
            _ => Ok(()),
        }
    }

    /// The same for the indexes of a segment.
    pub(crate) fn sync_indexes(&self, base: Offset) -> Result<(), LogError> {
        let indexes = [Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex];
        indexes.into_iter().try_for_each(|kind| self.sync_file(&self.file(base, kind)))
    }

    /// Makes the directory's own name survive a crash.
    pub(crate) fn sync_parent(&self) -> Result<(), LogError> {
        let parent = self.path.parent().unwrap_or(&self.path);
        self.disk.sync_dir(parent).map_err(|cause| LogError::unsynced(parent, cause))
    }

    /// Makes the names in the directory survive a crash.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.disk.sync_dir(&self.path).map_err(|cause| LogError::unsynced(&self.path, cause))
    }
}

/// The path of a file whose directory may have another name.
fn moved(path: PathBuf, directory: Option<&Path>) -> PathBuf {
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_says_kind_and_offset() {
        assert_eq!(Kind::parse("00000000000000000042.log"), Some((Kind::Log, Offset(42))));
        assert_eq!(Kind::parse("00000000000000000007.snapshot"), Some((Kind::Snapshot, Offset(7))));
        assert_eq!(Kind::parse("00000000000000000007.txnindex"), Some((Kind::TxnIndex, Offset(7))));
    }

    #[test]
    fn other_names_say_nothing() {
        for name in
            ["leader-epoch-checkpoint", "x.log", ".log", "0.log.deleted", "+1.log", "partition.metadata"]
        {
            assert_eq!(Kind::parse(name), None, "{name}");
        }
        assert_eq!(Kind::parse("99999999999999999999.log"), None, "beyond the largest offset");
        assert_eq!(parse_unbroken("00000000000000000042.unbroken.deleted"), Some(Offset(42)));
        assert_eq!(parse_unbroken("00000000000000000042.log.deleted"), None);
    }
}
