//! The log directories of a node: which partition is where, and their checkpoint files.
//!
//! Shared by all cores. The one lock is taken when a partition is opened, made or deleted and when
//! checkpoints are written, never on the way of records.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::{FoundPartition, LogDirError, PartitionOffsets};
use tarn_log::{LogDir, Opening};
use tarn_record::{Offset, PartitionIndex, TopicId};

use crate::envelope::CheckpointEntry;

/// A partition by the name of its directory.
type Name = (String, PartitionIndex);

/// See the module.
#[derive(Debug)]
pub struct LogDirs {
    dirs: Vec<Arc<LogDir>>,
    places: Mutex<HashMap<Name, Place>>,
}

/// Where a partition is, and what the start found of it.
#[derive(Clone, Debug)]
struct Place {
    dir: usize,
    found: Option<Found>,
}

/// A log that was in a directory when the node started.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory, and the topic's id; zero where the directory does not say.
    pub partition: FoundPartition,
    /// What the checkpoints promise of it.
    pub opening: Opening,
    /// The high watermark of the checkpoint.
    pub high_watermark: Offset,
}

impl LogDirs {
    /// Looks through the directories.
    ///
    /// # Errors
    /// A directory or a checkpoint file that cannot be read.
    pub fn new(dirs: Vec<Arc<LogDir>>) -> Result<LogDirs, (PathBuf, LogDirError)> {
        let places = look_through(&dirs)?;
        Ok(LogDirs { dirs, places: Mutex::new(places) })
    }

    /// Every directory.
    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The directory for a partition, and the log in it where there was one when the node started. A new
    /// partition goes where the fewest are. What was found is told once: a topic made again under the
    /// same name begins anew.
    pub fn place(&self, topic: &str, partition: PartitionIndex) -> (Arc<LogDir>, Option<Found>) {
        let mut places = self.places();
        let fewest = self.with_fewest(&places);
        let name = (topic.to_owned(), partition);
        let place = places.entry(name).or_insert(Place { dir: fewest, found: None });
        (self.dirs[place.dir].clone(), place.found.take())
    }

    /// A partition is gone.
    pub fn forget(&self, topic: &str, partition: PartitionIndex) {
        self.places().remove(&(topic.to_owned(), partition));
    }

    /// Renames the directories of topics that are not there any more, so that they can be removed: a
    /// deletion that was cut short.
    ///
    /// # Errors
    /// A directory that cannot be renamed.
    pub fn give_up_deleted(&self, exists: impl Fn(TopicId) -> bool) -> Result<(), LogDirError> {
        let mut places = self.places();
        let mut gone = Vec::new();
        for (name, place) in places.iter() {
            let Some(found) = &place.found else { continue };
            if !found.partition.topic_id.is_zero() && !exists(found.partition.topic_id) {
                self.dirs[place.dir].rename_for_deletion(&found.partition)?;
                gone.push(name.clone());
            }
        }
        gone.iter().for_each(|name| drop(places.remove(name)));
        Ok(())
    }

    /// Writes the checkpoint files of every directory.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn write_checkpoints(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let by_dir = {
            let places = self.places();
            let mut by_dir = vec![Vec::new(); self.dirs.len()];
            for entry in entries {
                if let Some(place) = places.get(&(entry.topic.to_string(), entry.partition)) {
                    by_dir[place.dir].push(entry);
                }
            }
            by_dir
        };
        for (dir, entries) in self.dirs.iter().zip(by_dir) {
            let offsets = |of: fn(&CheckpointEntry) -> Offset| {
                let named = entries.iter().map(|entry| (&*entry.topic, entry.partition, of(entry)));
                named.collect::<Vec<_>>()
            };
            dir.write_offsets(OffsetCheckpoint::RecoveryPoint, offsets(|entry| entry.recovery_point))?;
            dir.write_offsets(OffsetCheckpoint::Replication, offsets(|entry| entry.high_watermark))?;
            let starts = entries.iter().filter(|entry| entry.log_start > Offset(0));
            let starts = starts.map(|entry| (&*entry.topic, entry.partition, entry.log_start));
            dir.write_offsets(OffsetCheckpoint::LogStart, starts)?;
        }
        Ok(())
    }

    /// Directories that a deletion left behind.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn leftovers(&self) -> Result<Vec<(Arc<LogDir>, PathBuf)>, LogDirError> {
        let mut leftovers = Vec::new();
        for dir in &self.dirs {
            leftovers.extend(dir.deleted()?.into_iter().map(|path| (dir.clone(), path)));
        }
        Ok(leftovers)
    }

    fn with_fewest(&self, places: &HashMap<Name, Place>) -> usize {
        let mut counts = vec![0usize; self.dirs.len()];
        if self.dirs.len() > 1 {
            places.values().for_each(|place| counts[place.dir] += 1);
        }
        (0..counts.len()).min_by_key(|dir| counts[*dir]).unwrap_or(0)
    }

    /// A panic while the lock was held leaves a map that is whole: every change is one insertion.
    fn places(&self) -> MutexGuard<'_, HashMap<Name, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_through(dirs: &[Arc<LogDir>]) -> Result<HashMap<Name, Place>, (PathBuf, LogDirError)> {
    let mut places = HashMap::new();
    for (index, dir) in dirs.iter().enumerate() {
        for (name, found) in found_in(dir).map_err(|cause| (dir.path().to_owned(), cause))? {
            places.insert(name, Place { dir: index, found: Some(found) });
        }
    }
    Ok(places)
}

/// The logs of one directory, with what its checkpoints promise of them. A checkpoint that cannot be read
/// promises nothing.
fn found_in(dir: &LogDir) -> Result<Vec<(Name, Found)>, LogDirError> {
    let read = |checkpoint| dir.offsets(checkpoint).unwrap_or_default();
    let recovery_points = read(OffsetCheckpoint::RecoveryPoint);
    let log_starts = read(OffsetCheckpoint::LogStart);
    let high_watermarks = read(OffsetCheckpoint::Replication);
    let found = dir.partitions()?.into_iter().map(|found| {
        let name = (found.topic.clone(), found.partition);
        let offset = |offsets: &PartitionOffsets| offsets.get(&name).copied().unwrap_or(Offset(0));
        let opening = Opening {
            clean: dir.was_clean(),
            recovery_point: offset(&recovery_points),
            log_start: offset(&log_starts),
        };
        let high_watermark = offset(&high_watermarks);
        (name, Found { partition: found, opening, high_watermark })
    });
    Ok(found.collect())
}
