//! The log directories of a node: which partition is where, and their checkpoint files.
//!
//! Shared by all cores. One lock is taken when a partition is opened, made or deleted, never on the way of
//! records; the other by writers of checkpoint files, who take turns.
//!
//! Invariants:
//! * a log that was found and is not open keeps its lines in the checkpoint files;
//! * no line of a log that is gone stands there when another log is made under its name: a recovery point
//!   that is not its own would make a crash lose what was promised;
//! * after the last checkpoints of a stop nobody writes any.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::{FoundPartition, LogDirError, PartitionOffsets};
use tarn_log::{LogDir, Opening, RemovalJob};
use tarn_record::{Offset, PartitionIndex, TopicId};
use tracing::warn;

use crate::envelope::CheckpointEntry;

pub use failed::Failure;

mod failed;
mod kept_starts;

/// A partition by the name of its directory.
type Name = (String, PartitionIndex);

/// See the module.
#[derive(Debug)]
pub struct LogDirs {
    dirs: Vec<Arc<LogDir>>,
    /// So many, the first, get new partitions.
    listed: usize,
    places: Mutex<Places>,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Places {
    by_name: HashMap<Name, Place>,
    /// Logs that are gone and may still have a line in the checkpoint files of their directory.
    gone: BTreeSet<(usize, Name)>,
    /// The directories whose disk has failed.
    failed: BTreeSet<usize>,
}

/// Where a partition is, whose it is, and the log in it as long as that is not open.
#[derive(Clone, Debug)]
struct Place {
    dir: usize,
    topic_id: TopicId,
    found: Option<Found>,
}

/// The turn to write checkpoint files.
#[derive(Debug, Default)]
struct Turn {
    is_over: bool,
    /// Log starts that were written since the checkpoints were last begun; see `kept_starts`.
    kept: HashMap<Name, Offset>,
}

/// How a log was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It is being closed: only its checkpoint can be trusted.
    Begun,
    /// All of it is on the disk.
    InOrder,
}

/// A log that is in a directory and not open.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory, and the topic's id; zero where the directory does not say.
    pub partition: FoundPartition,
    /// What the checkpoints promise of it.
    pub opening: Opening,
    /// The high watermark of the checkpoint.
    pub high_watermark: Offset,
}

impl Place {
    /// True where a core has the place for another topic, with a log that is open or could not be made.
    fn is_held_by_another(&self, topic_id: TopicId) -> bool {
        self.found.is_none() && !self.topic_id.is_zero() && self.topic_id != topic_id
    }
}

impl LogDirs {
    /// Looks through the directories, of which the first `listed` are in `log.dirs`: another one that only
    /// `metadata.log.dir` names gets no partition.
    ///
    /// # Errors
    /// A directory or a checkpoint file that cannot be read.
    pub fn new(dirs: Vec<Arc<LogDir>>, listed: usize) -> Result<LogDirs, (PathBuf, LogDirError)> {
        let places = Places { by_name: look_through(&dirs)?, ..Places::default() };
        Ok(LogDirs { dirs, listed, places: Mutex::new(places), turn: Mutex::default() })
    }

    /// Every directory.
    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// Those in `log.dirs`.
    pub fn listed(&self) -> &[Arc<LogDir>] {
        &self.dirs[..self.listed.min(self.dirs.len())]
    }

    /// The directory for a partition of a topic, and the log in it where there is one that is not open. A new
    /// partition goes where the fewest are.
    pub fn place(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
    ) -> (Arc<LogDir>, Option<Found>) {
        let mut places = self.places();
        let fewest = self.with_fewest(&places);
        let new = Place { dir: fewest, topic_id, found: None };
        let place = places.by_name.entry((topic.to_owned(), partition)).or_insert(new);
        (self.dirs[place.dir].clone(), place.found.clone())
    }

    /// True where the log of a partition was found as a crash left it, so that its end has to be read.
    pub fn is_to_be_recovered(&self, topic: &str, partition: PartitionIndex) -> bool {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        let found = places.by_name.get(&name).and_then(|place| place.found.as_ref());
        found.is_some_and(|found| !found.opening.clean)
    }

    /// The log of a partition is open, and no longer as it was found.
    pub fn opened(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) {
        if let Some(place) = self.places().by_name.get_mut(&(topic.to_owned(), partition)) {
            (place.topic_id, place.found) = (topic_id, None);
        }
    }

    /// A log is not open any more, and is to be opened again as this says.
    pub fn closed(&self, entry: &CheckpointEntry, closing: Closing) {
        let (name, mut places) = ((entry.topic.to_string(), entry.partition), self.places());
        let Some(place) = places.by_name.get_mut(&name) else { return };
        let opening = Opening {
            clean: closing == Closing::InOrder,
            recovery_point: entry.recovery_point,
            log_start: entry.log_start,
        };
        let dir = self.dirs[place.dir].path().join(format!("{}-{}", name.0, name.1));
        let (topic, partition, topic_id) = (name.0, name.1, entry.topic_id);
        let partition = FoundPartition { topic, partition, topic_id, dir };
        place.found = Some(Found { partition, opening, high_watermark: entry.high_watermark });
    }

    /// The log in a partition's place is another topic's and is given up.
    pub fn displaced(&self, topic: &str, partition: PartitionIndex) {
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        let Some(place) = places.by_name.get_mut(&name) else { return };
        place.found = None;
        let dir = place.dir;
        places.gone.insert((dir, name));
    }

    /// A partition of a topic is gone. A later topic of its name may have the place already, and keeps it.
    pub fn forget(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) {
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        if let Some(place) = places.by_name.get(&name)
            && !place.is_held_by_another(topic_id)
        {
            let dir = place.dir;
            places.by_name.remove(&name);
            places.gone.insert((dir, name));
        }
    }

    /// True where the core of an older topic of this name has not let go of the place yet.
    pub fn is_held_by_another(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) -> bool {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        places.by_name.get(&name).is_some_and(|place| place.is_held_by_another(topic_id))
    }

    /// True where the checkpoint files may still speak of another log of this name: `make_way` first.
    pub fn is_in_the_way(&self, topic: &str, partition: PartitionIndex) -> bool {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        places.by_name.get(&name).is_some_and(|place| places.gone.contains(&(place.dir, name.clone())))
    }

    /// Takes the lines of a log that is gone out of the checkpoint files. Waits for the disk.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn make_way(&self, topic: &str, partition: PartitionIndex) -> Result<(), LogDirError> {
        let mut turn = self.turn();
        let name = (topic.to_owned(), partition);
        turn.kept.remove(&name);
        let gone: Vec<_> = self.places().gone.iter().filter(|(_, gone)| *gone == name).cloned().collect();
        for (index, name) in &gone {
            let dir = &self.dirs[*index];
            for checkpoint in CHECKPOINTS {
                // One that cannot be read promises nothing.
                let mut offsets = dir.offsets(checkpoint).unwrap_or_default();
                if offsets.remove(name).is_some() {
                    let left = offsets.iter();
                    dir.write_offsets(checkpoint, left.map(|((topic, one), at)| (&**topic, *one, *at)))?;
                }
            }
        }
        let mut places = self.places();
        places.gone.retain(|one| !gone.contains(one));
        drop((places, turn));
        Ok(())
    }

    /// Renames the directories of partitions whose topic the metadata does not know, and keeps them: the
    /// deletion of the topic was cut short, or the metadata was lost. `exists` is asked with the topic's name
    /// and id, which is zero where the directory does not say. Where they are now.
    ///
    /// # Errors
    /// A directory that cannot be renamed.
    pub fn put_strays_aside(
        &self,
        exists: impl Fn(&str, TopicId) -> bool,
    ) -> Result<Vec<PathBuf>, LogDirError> {
        let mut places = self.places();
        let mut strays = Vec::new();
        for (name, place) in &places.by_name {
            if let Some(found) = &place.found
                && !exists(&name.0, place.topic_id)
            {
                strays.push((name.clone(), place.dir, found.partition.clone()));
            }
        }
        let mut renamed = Vec::with_capacity(strays.len());
        for (name, dir, partition) in strays {
            renamed.push(self.dirs[dir].rename_as_stray(&partition)?);
            places.by_name.remove(&name);
            places.gone.insert((dir, name));
        }
        Ok(renamed)
    }

    /// Writes the checkpoint files of every directory; not any more after the last ones. Waits for the disk.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn write_checkpoints(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let turn = self.turn();
        if turn.is_over { Ok(()) } else { self.write(entries, &turn.kept) }
    }

    /// Writes the checkpoint files for the last time: what others collected before comes too late.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn write_last_checkpoints(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let mut turn = self.turn();
        turn.is_over = true;
        self.write(entries, &HashMap::new())
    }

    fn write(&self, entries: &[CheckpointEntry], kept: &HashMap<Name, Offset>) -> Result<(), LogDirError> {
        let (mut lines, gone) = self.lines(entries);
        for line in lines.iter_mut().flatten() {
            line.log_start = line.log_start.max(kept.get(&line.name).copied().unwrap_or(Offset(0)));
        }
        let failed = self.places().failed.clone();
        let mut refused = Ok(());
        for (index, lines) in lines.iter().enumerate().filter(|(index, _)| !failed.contains(index)) {
            match write_lines(&self.dirs[index], lines) {
                Ok(()) => self.places().gone.retain(|one| one.0 != index || !gone.contains(one)),
                // The others take theirs all the same.
                Err(error) => refused = refused.and(Err(error)),
            }
        }
        refused
    }

    /// What the files of each directory are to say, and which logs that are gone they do not name then.
    fn lines(&self, entries: &[CheckpointEntry]) -> (Vec<Vec<Line>>, BTreeSet<(usize, Name)>) {
        let (mut lines, places) = self.lines_of(entries);
        for (name, place) in &places.by_name {
            if let Some(found) = &place.found {
                lines[place.dir].push(Line {
                    name: name.clone(),
                    recovery_point: found.opening.recovery_point,
                    high_watermark: found.high_watermark,
                    log_start: found.opening.log_start,
                });
            }
        }
        (lines, places.gone.clone())
    }

    /// The lines of these logs, as far as they are open, for each directory.
    fn lines_of(&self, entries: &[CheckpointEntry]) -> (Vec<Vec<Line>>, MutexGuard<'_, Places>) {
        let places = self.places();
        let mut lines = vec![Vec::new(); self.dirs.len()];
        for entry in entries {
            let name = (entry.topic.to_string(), entry.partition);
            // What was collected before the partition went, or came again, is of another log.
            if let Some(place) = places.by_name.get(&name)
                && (place.topic_id, place.found.is_none()) == (entry.topic_id, true)
            {
                lines[place.dir].push(Line {
                    name,
                    recovery_point: entry.recovery_point,
                    high_watermark: entry.high_watermark,
                    log_start: entry.log_start,
                });
            }
        }
        (lines, places)
    }

    /// The directories of which it may be said that they were closed in order: not those with a log that was
    /// left otherwise and never opened since. Its bytes are still to be checked, and that is known of the
    /// whole directory only.
    pub fn closed_in_order(&self) -> Vec<Arc<LogDir>> {
        let places = self.places();
        let is_unchecked = |place: &&Place| place.found.as_ref().is_some_and(|found| !found.opening.clean);
        let mut unchecked = places.failed.clone();
        unchecked.extend(places.by_name.values().filter(is_unchecked).map(|place| place.dir));
        let dirs = self.dirs.iter().enumerate();
        dirs.filter(|(index, _)| !unchecked.contains(index)).map(|(_, dir)| dir.clone()).collect()
    }

    /// Removes directories that a deletion left behind.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn leftovers(&self) -> Result<Vec<RemovalJob>, LogDirError> {
        let mut leftovers = Vec::new();
        for dir in &self.dirs {
            leftovers.extend(dir.deleted()?.into_iter().map(|path| dir.removal(path)));
        }
        Ok(leftovers)
    }

    /// A panic while the lock was held leaves a map that is whole: every change is one insertion.
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic of a writer leaves the old files or the new.
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the checkpoint files say of one log.
#[derive(Clone, Debug)]
struct Line {
    name: Name,
    recovery_point: Offset,
    high_watermark: Offset,
    log_start: Offset,
}

fn write_lines(dir: &LogDir, lines: &[Line]) -> Result<(), LogDirError> {
    let offsets =
        |of: fn(&Line) -> Offset| lines.iter().map(move |line| (&*line.name.0, line.name.1, of(line)));
    dir.write_offsets(OffsetCheckpoint::RecoveryPoint, offsets(|line| line.recovery_point))?;
    dir.write_offsets(OffsetCheckpoint::Replication, offsets(|line| line.high_watermark))?;
    let starts = offsets(|line| line.log_start).filter(|(_, _, start)| *start > Offset(0));
    dir.write_offsets(OffsetCheckpoint::LogStart, starts)
}

const CHECKPOINTS: [OffsetCheckpoint; 3] =
    [OffsetCheckpoint::RecoveryPoint, OffsetCheckpoint::Replication, OffsetCheckpoint::LogStart];

fn look_through(dirs: &[Arc<LogDir>]) -> Result<HashMap<Name, Place>, (PathBuf, LogDirError)> {
    let mut places: HashMap<Name, Place> = HashMap::new();
    for (index, dir) in dirs.iter().enumerate() {
        for (name, found) in found_in(dir).map_err(|cause| (dir.path().to_owned(), cause))? {
            let (topic_id, path) = (found.partition.topic_id, found.partition.dir.clone());
            let place = Place { dir: index, topic_id, found: Some(found) };
            if let Some(other) = places.insert(name, place).and_then(|other| other.found) {
                let twice = LogDirError::Twice { path, other: other.partition.dir };
                return Err((dir.path().to_owned(), twice));
            }
        }
    }
    Ok(places)
}

/// The logs of one directory, with what its checkpoints promise of them. A checkpoint that cannot be read
/// promises nothing, which is said.
fn found_in(dir: &LogDir) -> Result<Vec<(Name, Found)>, LogDirError> {
    let read = |checkpoint: OffsetCheckpoint| match dir.offsets(checkpoint) {
        Ok(offsets) => offsets,
        Err(error) => {
            warn!(file = checkpoint.file_name(), %error, "a checkpoint file cannot be read; nothing in it is believed");
            PartitionOffsets::new()
        }
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_log::{Descriptors, Log, LogConfig, RealDisk};
    use tarn_record::Timestamp;
    use tempfile::TempDir;

    const P: PartitionIndex = PartitionIndex(0);

    #[test]
    fn what_was_collected_before_the_stop_does_not_replace_the_last_checkpoints() {
        let (dirs, _files) = dirs(&[]);
        let topic = place(&dirs, "t");
        dirs.write_last_checkpoints(&[entry("t", topic, 9)]).expect("there is room");
        dirs.write_checkpoints(&[entry("t", topic, 5)]).expect("it does nothing");
        assert_eq!(points(&dirs), [("t".to_owned(), 9)]);
    }

    #[test]
    fn a_log_that_is_made_again_does_not_inherit_a_recovery_point() {
        let (dirs, _files) = dirs(&[]);
        let (old, other) = (place(&dirs, "t"), place(&dirs, "other"));
        let collected = [entry("t", old, 9), entry("other", other, 3)];
        dirs.write_checkpoints(&collected).expect("there is room");
        dirs.forget("t", P, old);
        let new = place(&dirs, "t");
        assert!(dirs.is_in_the_way("t", P));
        dirs.make_way("t", P).expect("there is room");
        assert!(!dirs.is_in_the_way("t", P));
        assert_eq!(points(&dirs), [("other".to_owned(), 3)], "before the new log can hold anything");
        dirs.write_checkpoints(&collected).expect("there is room");
        assert_eq!(points(&dirs), [("other".to_owned(), 3)], "what was collected is of the old log");
        dirs.write_checkpoints(&[entry("t", new, 1)]).expect("there is room");
        assert_eq!(points(&dirs), [("t".to_owned(), 1)]);
    }

    #[test]
    fn checkpoints_without_a_log_that_is_gone_make_way_for_the_next() {
        let (dirs, _files) = dirs(&[]);
        let old = place(&dirs, "t");
        dirs.write_checkpoints(&[entry("t", old, 9)]).expect("there is room");
        dirs.forget("t", P, old);
        dirs.write_checkpoints(&[]).expect("there is room");
        place(&dirs, "t");
        assert!(!dirs.is_in_the_way("t", P));
    }

    #[test]
    fn a_place_is_one_topics_until_that_is_forgotten_and_then_the_next_ones() {
        let (dirs, _files) = dirs(&[]);
        let (old, new) = (place(&dirs, "t"), TopicId::random());
        assert!(dirs.is_held_by_another("t", P, new) && !dirs.is_held_by_another("t", P, old));
        dirs.forget("t", P, new);
        assert!(dirs.is_held_by_another("t", P, new), "it was not its to forget");
        dirs.forget("t", P, old);
        assert!(!dirs.is_held_by_another("t", P, new));
        dirs.place("t", P, new);
        dirs.forget("t", P, old);
        assert!(dirs.is_held_by_another("t", P, old), "the next topic keeps it");
    }

    #[test]
    fn a_log_that_is_found_and_not_opened_keeps_its_line() {
        let (dirs, _files) = dirs(&["t"]);
        dirs.write_checkpoints(&[]).expect("there is room");
        assert_eq!(points(&dirs), [("t".to_owned(), 7)]);
        assert!(
            dirs.place("t", P, TopicId::ZERO).1.is_some() && dirs.place("t", P, TopicId::ZERO).1.is_some(),
            "until it is open"
        );
        dirs.opened("t", P, TopicId::random());
        assert!(dirs.place("t", P, TopicId::ZERO).1.is_none());
    }

    #[test]
    fn a_directory_with_a_log_that_was_not_checked_is_not_closed_in_order() {
        let (dirs, _files) = dirs(&["t", "u"]);
        assert_eq!(dirs.closed_in_order().len(), 0, "no mark was there");
        dirs.opened("t", P, TopicId::random());
        assert_eq!(dirs.closed_in_order().len(), 0, "the other may still be damaged");
        dirs.opened("u", P, TopicId::random());
        assert_eq!(dirs.closed_in_order().len(), 1);
        dirs.closed(&entry("t", TopicId::random(), 7), Closing::Begun);
        assert_eq!(dirs.closed_in_order().len(), 0);
        dirs.closed(&entry("t", TopicId::random(), 7), Closing::InOrder);
        assert_eq!(dirs.closed_in_order().len(), 1);
    }

    #[test]
    fn a_log_of_a_topic_that_the_metadata_does_not_know_is_put_aside_and_kept() {
        let (dirs, files) = dirs(&["known", "stray"]);
        let known = dirs.place("known", P, TopicId::ZERO).1.expect("it is there").partition.topic_id;
        let renamed = dirs.put_strays_aside(|_, id| id == known).expect("it can be renamed");
        let [stray] = &renamed[..] else { panic!("one of them: {renamed:?}") };
        let name = stray.file_name().unwrap_or_default().to_string_lossy();
        assert!(name.starts_with("stray-0.") && name.ends_with("-stray"), "{name}");
        assert!(stray.join("00000000000000000000.log").exists(), "with all that is in it");
        assert!(dirs.leftovers().expect("it can be read").is_empty(), "nobody will remove it");
        assert!(
            dirs.place("known", P, TopicId::ZERO).1.is_some()
                && dirs.place("stray", P, TopicId::ZERO).1.is_none()
        );
        drop(dirs);
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is ours");
        let again = LogDirs::new(vec![dir], 1).expect("it can be read");
        assert!(again.place("stray", P, TopicId::ZERO).1.is_none(), "nor is it found at the next start");
    }

    #[test]
    fn a_log_that_was_closed_keeps_its_line_and_is_opened_as_it_was_left() {
        let (dirs, _files) = dirs(&[]);
        let topic = place(&dirs, "t");
        let left = entry("t", topic, 5);
        for (closing, clean) in [(Closing::Begun, false), (Closing::InOrder, true)] {
            dirs.closed(&left, closing);
            let (_, found) = dirs.place("t", P, TopicId::ZERO);
            let found = found.expect("it is there and not open");
            assert_eq!((found.opening.clean, found.high_watermark), (clean, Offset(5)));
            assert_eq!(found.partition.topic_id, topic);
            dirs.write_checkpoints(&[]).expect("there is room");
            assert_eq!(points(&dirs), [("t".to_owned(), 5)]);
        }
    }

    #[test]
    fn a_directory_of_the_metadata_log_alone_gets_no_partition() {
        let files: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let open = |files: &TempDir| {
            LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new")
        };
        let dirs = LogDirs::new(files.iter().map(open).collect(), 2).expect("they can be read");
        for topic in ["a", "b", "c", "d"] {
            let (dir, _) = dirs.place(topic, P, TopicId::ZERO);
            assert_ne!(dir.path(), files[2].path(), "{topic}");
        }
    }

    #[test]
    fn a_partition_in_two_directories_is_refused_with_both() {
        let files: Vec<_> = (0..2).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let open = |files: &TempDir| {
            let dir =
                LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
            let config = LogConfig::default();
            Log::create(&dir, "t", P, TopicId::random(), config, Timestamp(0)).expect("it is new");
            dir
        };
        let refused = LogDirs::new(files.iter().map(open).collect(), 2).expect_err("which of them counts?");
        let LogDirError::Twice { path, other } = refused.1 else { panic!("{}", refused.1) };
        let partitions: Vec<_> = files.iter().map(|files| files.path().join("t-0")).collect();
        assert_eq!([other, path], partitions[..]);
    }

    /// One directory in which these logs are, each with a recovery point of 7.
    fn dirs(found: &[&str]) -> (LogDirs, TempDir) {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
        for topic in found {
            let (id, config) = (TopicId::random(), LogConfig::default());
            let mut log = Log::create(&dir, topic, P, id, config, Timestamp(0)).expect("it is new");
            log.close().expect("there is room");
        }
        let points = found.iter().map(|topic| (*topic, P, Offset(7)));
        dir.write_offsets(OffsetCheckpoint::RecoveryPoint, points).expect("there is room");
        (LogDirs::new(vec![dir], 1).expect("it can be read"), files)
    }

    /// Opens a log of a new topic.
    fn place(dirs: &LogDirs, topic: &str) -> TopicId {
        let id = TopicId::random();
        dirs.place(topic, P, id);
        dirs.opened(topic, P, id);
        id
    }

    fn entry(topic: &str, topic_id: TopicId, recovery_point: i64) -> CheckpointEntry {
        CheckpointEntry {
            topic: topic.into(),
            topic_id,
            partition: P,
            recovery_point: Offset(recovery_point),
            high_watermark: Offset(recovery_point),
            log_start: Offset(0),
        }
    }

    fn points(dirs: &LogDirs) -> Vec<(String, i64)> {
        let points = dirs.dirs()[0].offsets(OffsetCheckpoint::RecoveryPoint).expect("it can be read");
        points.into_iter().map(|((topic, _), offset)| (topic, offset.0)).collect()
    }
}
