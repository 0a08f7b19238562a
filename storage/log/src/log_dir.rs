//! One entry of `log.dirs`: its lock, its checkpoint files, and the partitions in it.
//!
//! Opened once at start-up and shared by all cores. The checkpoint files belong to the directory, not to
//! its logs: who writes them collects the offsets of all logs and hands them over together. Writers of
//! one file take turns.
//!
//! Invariants:
//! * while it is open no other process has the directory;
//! * `.kafka_cleanshutdown` is gone once the directory is open, and back only when every log was closed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use tarn_record::{Offset, PartitionIndex, TopicId};
use thiserror::Error;

use crate::checkpoints::{CheckpointError, CleanShutdown, OffsetCheckpoint};
use crate::descriptors::Descriptors;
use crate::disk::{Disk, DiskLock, FileSystem};
use crate::error::LogError;
use crate::home::{DELETED_DIR_SUFFIX, Home};
use crate::known_dirs::KnownDirs;
use crate::meta_properties::MetaProperties;
use crate::recovery::read_topic_id;
use crate::removal::RemovalJob;

/// The topic whose one partition is the metadata log; it is not among those that a directory lists.
const METADATA_TOPIC: &str = "__cluster_metadata";

const LOCK_FILE: &str = ".lock";

/// See the module.
#[derive(Debug)]
pub struct LogDir {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file_system: Arc<dyn FileSystem>,
    descriptors: Arc<Descriptors>,
    properties: Option<MetaProperties>,
    clean: Option<CleanShutdown>,
    _lock: DiskLock,
}

/// The offsets of an [`OffsetCheckpoint`] file.
pub type PartitionOffsets = BTreeMap<(String, PartitionIndex), Offset>;

/// A partition's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: PartitionIndex,
    /// The topic's id; [`TopicId::ZERO`] where the directory does not say.
    pub topic_id: TopicId,
    /// The directory.
    pub dir: PathBuf,
}

/// Why a directory cannot be used.
#[derive(Debug, Error)]
pub enum LogDirError {
    /// Another process has it.
    #[error("{path} is in use by another process")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file in it cannot be understood.
    #[error("{path}: {cause}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: CheckpointError,
    },
    /// Two directories hold a log of the same partition, and nothing says which of them counts.
    #[error("{path} and {other} hold logs of the same partition: move one of them away")]
    Twice {
        /// One log's directory.
        path: PathBuf,
        /// The other's.
        other: PathBuf,
    },
    /// The disk refused.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl LogDir {
    /// Opens a directory, creating it where needed, and takes its lock. Whether it was closed in order is
    /// known from now on only by [`LogDir::was_clean`].
    ///
    /// # Errors
    /// `Locked`; a `meta.properties` that cannot be understood; or the disk's refusal.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: impl Into<PathBuf>,
        descriptors: Arc<Descriptors>,
    ) -> Result<Arc<LogDir>, LogDirError> {
        let path = path.into();
        disk.create_dir_all(&path).map_err(|cause| LogError::io("create", &path, cause))?;
        let lock = lock(&disk, &path)?;
        let file_system = disk.file_system(&path).map_err(|cause| LogError::io("open", &path, cause))?;
        let mut dir =
            LogDir { disk, path, file_system, descriptors, properties: None, clean: None, _lock: lock };
        dir.properties = dir.read_properties()?;
        dir.clean = dir.take_clean_shutdown()?;
        Ok(Arc::new(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells directories apart: as [`crate::Log::dir_number`] of the logs in it.
    pub fn dir_number(&self) -> usize {
        number_of(&self.file_system)
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// What `meta.properties` says; `None` in a directory that was never formatted.
    pub fn properties(&self) -> Option<&MetaProperties> {
        self.properties.as_ref()
    }

    /// Formats the directory.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn write_properties(&self, properties: &MetaProperties) -> Result<(), LogDirError> {
        self.write(MetaProperties::FILE_NAME, &properties.write())
    }

    /// Which directories the node has had, where its metadata log is here; `None` without the file.
    ///
    /// # Errors
    /// Where the file is damaged; a caller then goes on as without it. Or the disk's refusal.
    pub fn known_dirs(&self) -> Result<Option<KnownDirs>, LogDirError> {
        let Some(bytes) = self.read(KnownDirs::FILE_NAME)? else { return Ok(None) };
        let known = KnownDirs::read(&bytes)
            .map_err(|cause| LogDirError::Checkpoint { path: self.path.join(KnownDirs::FILE_NAME), cause })?;
        Ok(Some(known))
    }

    /// Replaces that file. Waits for the disk.
    ///
    /// # Errors
    /// Where the disk refused; the old content stays.
    pub fn write_known_dirs(&self, known: &KnownDirs) -> Result<(), LogDirError> {
        self.write(KnownDirs::FILE_NAME, &known.write())
    }

    /// True where the directory was closed in order when it was last used.
    pub fn was_clean(&self) -> bool {
        self.clean.is_some()
    }

    /// What was said of it when it was closed in order.
    pub fn clean_shutdown(&self) -> Option<CleanShutdown> {
        self.clean
    }

    /// Says that every log was closed in order. The last that is done with a directory.
    ///
    /// # Errors
    /// Where the disk refused: the shutdown is not clean then.
    pub fn mark_clean(&self, shutdown: CleanShutdown) -> Result<(), LogDirError> {
        self.write(CleanShutdown::FILE_NAME, &shutdown.write())
    }

    /// The bytes that are free on the disk.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn available_bytes(&self) -> Result<u64, LogDirError> {
        let bytes = self.disk.available_bytes(&self.path);
        Ok(bytes.map_err(|cause| LogError::io("measure", &self.path, cause))?)
    }

    /// The bytes of the whole disk.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn total_bytes(&self) -> Result<u64, LogDirError> {
        let bytes = self.disk.total_bytes(&self.path);
        Ok(bytes.map_err(|cause| LogError::io("measure", &self.path, cause))?)
    }

    /// The partitions that have a directory here, but for the metadata log. Reads a file for each; one that
    /// cannot be read or understood says nothing here, and opening that log fails.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn partitions(&self) -> Result<Vec<FoundPartition>, LogDirError> {
        let mut found = Vec::new();
        for name in self.directories()? {
            let Some((topic, partition)) = parse_dir_name(&name) else { continue };
            if topic == METADATA_TOPIC {
                continue;
            }
            let home = self.home(topic, partition);
            let (topic, topic_id) = (topic.to_owned(), read_topic_id(&home).unwrap_or(TopicId::ZERO));
            found.push(FoundPartition { topic, partition, topic_id, dir: home.path.clone() });
        }
        Ok(found)
    }

    /// The directories whose names read like those of partitions and are not: a copy that somebody has kept, perhaps.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn not_understood(&self) -> Result<Vec<PathBuf>, LogDirError> {
        let reads_like_one = |name: &str| {
            name.rsplit_once('-')
                .is_some_and(|(_, end)| end.starts_with(|c: char| c == '+' || c.is_ascii_digit()))
        };
        let mut names = self.directories()?;
        names.retain(|name| reads_like_one(name) && parse_dir_name(name).is_none());
        Ok(names.into_iter().map(|name| self.path.join(name)).collect())
    }

    /// The directories of deleted partitions whose files are still to be removed.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn deleted(&self) -> Result<Vec<PathBuf>, LogDirError> {
        let names = self.directories()?;
        let deleted = names.into_iter().filter(|name| name.ends_with(DELETED_DIR_SUFFIX));
        Ok(deleted.map(|name| self.path.join(name)).collect())
    }

    /// Renames a partition's directory that no log has open, so that it can be removed later.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn rename_for_deletion(&self, partition: &FoundPartition) -> Result<PathBuf, LogDirError> {
        Ok(self.home(&partition.topic, partition.partition).rename_for_deletion(partition.topic_id)?)
    }

    /// Renames the directory of a partition that the metadata does not know. It stays, for a person to decide.
    ///
    /// # Errors
    /// Where the disk refused.
    pub fn rename_as_stray(&self, partition: &FoundPartition) -> Result<PathBuf, LogDirError> {
        Ok(self.home(&partition.topic, partition.partition).rename_as_stray(partition.topic_id)?)
    }

    /// Removes a directory that was renamed for it.
    pub fn removal(&self, renamed: PathBuf) -> RemovalJob {
        debug_assert!(renamed.starts_with(&self.path));
        RemovalJob::of_directory(self.disk.clone(), renamed)
    }

    /// Reads one of the checkpoint files; without the file there are no offsets.
    ///
    /// # Errors
    /// Where the file is damaged; a caller then goes on as without it. Or the disk's refusal.
    pub fn offsets(&self, checkpoint: OffsetCheckpoint) -> Result<PartitionOffsets, LogDirError> {
        let Some(bytes) = self.read(checkpoint.file_name())? else { return Ok(BTreeMap::new()) };
        let rows = OffsetCheckpoint::read(&bytes).map_err(|cause| LogDirError::Checkpoint {
            path: self.path.join(checkpoint.file_name()),
            cause,
        })?;
        Ok(rows.into_iter().collect())
    }

    /// Replaces the content of one of the checkpoint files. Waits for the disk.
    ///
    /// # Errors
    /// Where the disk refused; the old content stays.
    pub fn write_offsets<'a>(
        &self,
        checkpoint: OffsetCheckpoint,
        offsets: impl IntoIterator<Item = (&'a str, PartitionIndex, Offset)>,
    ) -> Result<(), LogDirError> {
        self.write(checkpoint.file_name(), &OffsetCheckpoint::write(offsets))
    }

    /// The home of a partition, whether it is there or not.
    pub(crate) fn home(&self, topic: &str, partition: PartitionIndex) -> Arc<Home> {
        Arc::new(Home {
            disk: self.disk.clone(),
            file_system: self.file_system.clone(),
            descriptors: self.descriptors.clone(),
            path: self.path.join(format!("{topic}-{partition}")),
            deleted_as: RwLock::default(),
        })
    }

    fn directories(&self) -> Result<Vec<String>, LogDirError> {
        let entries = self.disk.list(&self.path).map_err(|cause| LogError::io("list", &self.path, cause))?;
        Ok(entries.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
    }

    fn read_properties(&self) -> Result<Option<MetaProperties>, LogDirError> {
        let Some(bytes) = self.read(MetaProperties::FILE_NAME)? else { return Ok(None) };
        let properties = MetaProperties::read(&bytes).map_err(|cause| LogDirError::Checkpoint {
            path: self.path.join(MetaProperties::FILE_NAME),
            cause,
        })?;
        Ok(Some(properties))
    }

    /// Reads the mark of a clean shutdown and removes it, so that a crash from now on is seen as one.
    fn take_clean_shutdown(&self) -> Result<Option<CleanShutdown>, LogDirError> {
        let Some(bytes) = self.read(CleanShutdown::FILE_NAME)? else { return Ok(None) };
        let path = self.path.join(CleanShutdown::FILE_NAME);
        self.disk.remove_file(&path).map_err(|cause| LogError::io("remove", &path, cause))?;
        self.disk.sync_dir(&self.path).map_err(|cause| LogError::unsynced(&self.path, cause))?;
        Ok(CleanShutdown::read(&bytes).ok())
    }

    /// The content of a file in the directory; `None` where there is none.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LogDirError> {
        let path = self.path.join(name);
        match self.disk.read_all(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(LogError::io("read", &path, cause).into()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), LogDirError> {
        let path = self.path.join(name);
        let written = self.disk.write_atomically(&path, bytes);
        Ok(written.map_err(|cause| LogError::io("write", &path, cause))?)
    }
}

/// Tells log directories apart by what each has opened for itself, as long as it is open.
pub(crate) fn number_of(file_system: &Arc<dyn FileSystem>) -> usize {
    Arc::as_ptr(file_system).cast::<()>() as usize
}

/// Takes the lock of a directory, which no other process has then.
pub(crate) fn lock(disk: &Arc<dyn Disk>, dir: &Path) -> Result<DiskLock, LogDirError> {
    disk.lock(&dir.join(LOCK_FILE)).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => LogDirError::Locked { path: dir.to_owned() },
        _ => LogError::io("lock", dir, cause).into(),
    })
}

/// The topic and partition that a directory's name says; `None` for other directories, also for those that read like one
/// and are not written as it would be.
fn parse_dir_name(name: &str) -> Option<(&str, PartitionIndex)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let index: i32 = partition.parse().ok().filter(|index| *index >= 0)?;
    (!topic.is_empty() && index.to_string() == partition).then_some((topic, PartitionIndex(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_behind_a_link_is_one_and_those_that_are_named_nearly_like_partitions_are_told() {
        let (kept, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let names =
            ["t-1", "t-01", "t-+1", "t-1.bak", "t-1.0af-delete", "t-1.0af-stray", "mirror-exports", "t"];
        names.iter().for_each(|name| std::fs::create_dir(kept.path().join(name)).unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), kept.path().join("t-0")).unwrap();
        let descriptors = crate::Descriptors::new(10);
        let dir = LogDir::open(Arc::new(crate::RealDisk), kept.path().to_owned(), descriptors).unwrap();
        let found: Vec<_> = dir.partitions().unwrap().iter().map(|found| found.partition.0).collect();
        assert_eq!(found, [0, 1]);
        let told = ["t-+1", "t-01", "t-1.bak"].map(|name| kept.path().join(name));
        assert_eq!(dir.not_understood().unwrap(), told);
    }

    #[test]
    fn the_last_hyphen_of_a_directory_name_separates_topic_and_partition() {
        assert_eq!(parse_dir_name("orders-0"), Some(("orders", PartitionIndex(0))));
        assert_eq!(parse_dir_name("a-b-12"), Some(("a-b", PartitionIndex(12))));
        for other in ["orders", "orders-", "-1", "orders-x", "orders-0.0af-delete", "orders-+1", "orders-00"]
        {
            assert_eq!(parse_dir_name(other), None, "{other}");
        }
    }
}
