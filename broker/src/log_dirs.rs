//! The log directories of a node: which partition is where, and their checkpoint files.
//!
//! Shared by all cores. One lock is taken when a partition is opened, made or deleted, never on the way of
//! records, and never for longer than some of the partitions take; the other by writers of checkpoint files, who take
//! turns.
//!
//! Invariants:
//! * a log that was found and is not open keeps its lines in the checkpoint files;
//! * a place is a topic's from when it has taken it over, with or without the log of an older topic in it, until that
//!   topic itself is forgotten: who is late with the older one finds that it is not its any more;
//! * whoever renames a log's directory has taken the log out of its place before, so that nobody else does;
//! * no line of a log that is gone stands there when another log is made under its name: a recovery point
//!   that is not its own would make a crash lose what was promised;
//! * after the last checkpoints of a stop nobody writes any;
//! * what is known to be in the recovery point and cleaner files is there: compaction rests on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::{FoundPartition, LogDirError, PartitionOffsets};
use tarn_log::{LogDir, Opening, RemovalJob};
use tarn_record::{Offset, PartitionIndex, TopicId, TopicIdPartition};
use tracing::warn;

use crate::envelope::CheckpointEntry;
use crate::limits;

use compacting::CleanerLine;
pub use compacting::OnDisk;
pub use failed::Failure;
pub use kept_starts::NotKept;
pub use strays::Stray;
pub(crate) use taking_over::{Displaced, Held};

mod compacting;
mod failed;
mod kept_starts;
mod strays;
mod taking_over;

/// A partition by the name of its directory.
type Name = (String, PartitionIndex);

/// See the module.
#[derive(Debug)]
pub struct LogDirs {
    dirs: Vec<Arc<LogDir>>,
    /// So many, the first, get new partitions.
    listed: usize,
    /// Those that could not be opened, and those that the node had and that are not in `log.dirs`; not among `dirs`.
    missing: Vec<PathBuf>,
    places: Mutex<Places>,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Places {
    /// In order, so that those who go through all of them know how far they are.
    by_name: BTreeMap<Name, Place>,
    /// How many of them are in each directory.
    in_dir: BTreeMap<usize, usize>,
    /// Logs that are gone and may still have a line in the checkpoint files of their directory.
    gone: BTreeSet<(usize, Name)>,
    /// Logs of other topics' ids under a name that another directory has too: a topic that was deleted, or made again,
    /// while the disk of one of them was away. The metadata says which of the two is a stray.
    twins: Vec<(Name, Place)>,
    /// The topics whose logs of these names a thread beside the cores reads or closes, or is about to: nobody else gets
    /// at their files, whatever becomes of the topics.
    busy: HashMap<Name, Vec<TopicId>>,
    /// Partitions whose logs must be in a directory that is missing.
    missing: HashSet<TopicIdPartition>,
    /// The directories whose disk has failed.
    failed: BTreeSet<usize>,
    /// Those in which something could not be closed, or the last checkpoints not written.
    unclosed: BTreeSet<usize>,
    /// Directories whose cleaner's file does not say what was noted.
    uncleaned: BTreeSet<usize>,
}

/// Where a partition is, whose it is, and the log in it as long as that is not open.
#[derive(Clone, Debug)]
struct Place {
    dir: usize,
    topic_id: TopicId,
    /// The metadata, by their offset, in which the topic has taken it over. No older metadata say anything of the place.
    as_of: Offset,
    found: Option<Found>,
    /// The metadata has never known the log's topic, and it could not be put aside.
    is_stray: bool,
    /// The first offset that compaction has not seen; `None` of a log that was never to be compacted.
    first_dirty: Option<Offset>,
    on_disk: OnDisk,
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

impl Places {
    /// A log has its place; that of another of its name, if it had one.
    fn insert(&mut self, name: Name, place: Place) -> Option<Place> {
        *self.in_dir.entry(place.dir).or_default() += 1;
        let before = self.by_name.insert(name, place);
        self.count_out(before.as_ref());
        before
    }

    fn remove(&mut self, name: &Name) -> Option<Place> {
        let removed = self.by_name.remove(name);
        self.count_out(removed.as_ref());
        removed
    }

    fn count_out(&mut self, place: Option<&Place>) {
        let count = place.and_then(|place| self.in_dir.get_mut(&place.dir));
        count.into_iter().for_each(|count| *count -= 1);
    }

    /// The checkpoint files of the directory are not to speak of the log any more.
    fn leave_out(&mut self, dir: usize, name: Name) {
        self.gone.insert((dir, name));
        self.uncleaned.insert(dir);
    }
}

impl Place {
    fn new(dir: usize, topic_id: TopicId) -> Place {
        Place {
            dir,
            topic_id,
            as_of: Offset::NONE,
            found: None,
            is_stray: false,
            first_dirty: None,
            on_disk: OnDisk::default(),
        }
    }

    /// True where the place is this topic's, or may be: the directory does not say.
    fn is_of(&self, topic_id: TopicId) -> bool {
        self.topic_id.is_zero() || self.topic_id == topic_id
    }

    /// True where a core has the place for another topic, with a log that is open, is being deleted or could not be made.
    fn is_held_by_another(&self, topic_id: TopicId) -> bool {
        self.found.is_none() && !self.is_of(topic_id)
    }
}

impl LogDirs {
    /// Looks through the directories, of which the first `listed` are in `log.dirs`: another one that only
    /// `metadata.log.dir` names gets no partition.
    ///
    /// # Errors
    /// A directory or a checkpoint file that cannot be read.
    pub fn new(dirs: Vec<Arc<LogDir>>, listed: usize) -> Result<LogDirs, (PathBuf, LogDirError)> {
        let places = look_through(&dirs)?;
        Ok(LogDirs { dirs, listed, missing: Vec::new(), places: Mutex::new(places), turn: Mutex::default() })
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
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        if let Some(place) = places.by_name.get(&name) {
            return (self.dirs[place.dir].clone(), place.found.clone());
        }
        let dir = self.with_fewest(&places);
        places.insert(name, Place::new(dir, topic_id));
        (self.dirs[dir].clone(), None)
    }

    /// The directory that a partition's log is in.
    pub fn dir_of(&self, topic: &str, partition: PartitionIndex) -> Option<PathBuf> {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        places.by_name.get(&name).map(|place| self.dirs[place.dir].path().to_owned())
    }

    /// True where the log of a partition was found as a crash left it, so that its end has to be read.
    pub fn is_to_be_recovered(&self, topic: &str, partition: TopicIdPartition) -> bool {
        let (name, places) = ((topic.to_owned(), partition.partition), self.places());
        let place = places.by_name.get(&name).filter(|place| place.is_of(partition.topic_id));
        let found = place.and_then(|place| place.found.as_ref());
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
        let place = places.by_name.get_mut(&name).filter(|place| place.is_of(entry.topic_id));
        let Some(place) = place else { return };
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

    /// A partition of a topic is gone. A later topic of its name may have the place already, and keeps it.
    pub fn forget(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) {
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        places.missing.remove(&TopicIdPartition { topic_id, partition });
        if let Some(place) = places.by_name.get(&name)
            && place.is_of(topic_id)
        {
            let dir = place.dir;
            places.remove(&name);
            places.leave_out(dir, name);
        }
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
        let gone: Vec<_> = {
            let places = self.places();
            let here = |(dir, gone): &&(usize, Name)| *gone == name && !places.failed.contains(dir);
            places.gone.iter().filter(here).cloned().collect()
        };
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

    /// Writes the checkpoint files of every directory; not any more after the last ones. Waits for the disk.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn write_checkpoints(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let turn = self.turn();
        if turn.is_over {
            return Ok(());
        }
        self.write(entries, &turn.kept).into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Writes the checkpoint files for the last time: what others collected before comes too late. A directory that does
    /// not take them is not closed in order.
    ///
    /// # Errors
    /// The first of those.
    pub fn write_last_checkpoints(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let mut turn = self.turn();
        turn.is_over = true;
        let refused = self.write(entries, &HashMap::new());
        self.places().unclosed.extend(refused.iter().map(|(dir, _)| *dir));
        refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Writes the files of every directory; those that did not take theirs.
    fn write(&self, entries: &[CheckpointEntry], kept: &HashMap<Name, Offset>) -> Vec<(usize, LogDirError)> {
        let (mut lines, gone) = self.lines(entries);
        for line in lines.iter_mut().flatten() {
            line.log_start = line.log_start.max(kept.get(&line.name).copied().unwrap_or(Offset(0)));
        }
        let failed = self.places().failed.clone();
        let cleaner = self.cleaner_lines(&failed);
        let mut refused = Vec::new();
        for (index, lines) in lines.iter().enumerate().filter(|(index, _)| !failed.contains(index)) {
            match self.write_of(index, lines, cleaner.get(&index)) {
                Ok(()) => self.places().gone.retain(|one| one.0 != index || !gone.contains(one)),
                // The others take theirs all the same.
                Err(error) => refused.push((index, error)),
            }
        }
        refused
    }

    /// Writes the files of one directory.
    fn write_of(
        &self,
        index: usize,
        lines: &[Line],
        cleaner: Option<&Vec<CleanerLine>>,
    ) -> Result<(), LogDirError> {
        // First: what it says has to be known before a recovery point lets a log be compacted.
        cleaner.map_or(Ok(()), |lines| self.write_cleaner_offsets_of(index, lines))?;
        let dir = &self.dirs[index];
        let offsets =
            |of: fn(&Line) -> Offset| lines.iter().map(move |line| (&*line.name.0, line.name.1, of(line)));
        let written = dir.write_offsets(OffsetCheckpoint::RecoveryPoint, offsets(|line| line.recovery_point));
        self.points_written(lines, written.is_ok());
        written?;
        dir.write_offsets(OffsetCheckpoint::Replication, offsets(|line| line.high_watermark))?;
        let starts = offsets(|line| line.log_start).filter(|(_, _, start)| *start > Offset(0));
        dir.write_offsets(OffsetCheckpoint::LogStart, starts)
    }

    /// What the files of each directory are to say, and which logs that are gone they do not name then. From now on no
    /// more counts as said than they will say.
    fn lines(&self, entries: &[CheckpointEntry]) -> (Vec<Vec<Line>>, BTreeSet<(usize, Name)>) {
        let collected: HashMap<(&str, PartitionIndex), &CheckpointEntry> =
            entries.iter().map(|entry| ((&*entry.topic, entry.partition), entry)).collect();
        // Before the others: what goes meanwhile may be named, and is still to be left out.
        let gone = self.places().gone.clone();
        let mut lines = vec![Vec::new(); self.dirs.len()];
        self.each_place(|name, place| {
            // What was collected before the partition went, or came again, is of another log.
            let entry = collected.get(&(&*name.0, name.1)).filter(|entry| entry.topic_id == place.topic_id);
            let (recovery_point, high_watermark, log_start) = match (&place.found, entry) {
                (Some(found), _) => {
                    (found.opening.recovery_point, found.high_watermark, found.opening.log_start)
                }
                (None, Some(entry)) => (entry.recovery_point, entry.high_watermark, entry.log_start),
                // It was opened while the others were collected: what is said of it stays said.
                (None, None) if place.on_disk.is_said() => {
                    let said = place.on_disk;
                    (said.recovery_point, said.high_watermark, said.log_start)
                }
                (None, None) => {
                    place.on_disk.recovery_point = Offset(0);
                    return;
                }
            };
            place.on_disk.recovery_point = place.on_disk.recovery_point.min(recovery_point);
            let (name, topic_id) = (name.clone(), place.topic_id);
            lines[place.dir].push(Line { name, topic_id, recovery_point, high_watermark, log_start });
        });
        (lines, gone)
    }

    /// Goes through all places in the order of their names, some at a time: between them others have their turn. Not to be
    /// called on a core. One that comes or goes meanwhile is met or not.
    fn each_place(&self, visit: impl FnMut(&Name, &mut Place)) {
        // Whoever waits for the lock would not get it before this thread takes it again.
        self.each_place_pausing(visit, || thread::sleep(limits::PLACES_PAUSE));
    }

    fn each_place_pausing(&self, mut visit: impl FnMut(&Name, &mut Place), pause: impl Fn()) {
        let mut after: Option<Name> = None;
        loop {
            let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let (mut visited, mut last) = (0, None);
            {
                let mut places = self.places();
                let ahead = places.by_name.range_mut::<Name, _>((from, Bound::Unbounded));
                for (name, place) in ahead.take(limits::PLACES_AT_ONCE) {
                    visit(name, place);
                    visited += 1;
                    if visited == limits::PLACES_AT_ONCE {
                        last = Some(name.clone());
                    }
                }
            }
            if last.is_none() {
                return;
            }
            after = last;
            pause();
        }
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
                    topic_id: place.topic_id,
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
        let mut unchecked: BTreeSet<usize> = &places.failed | &places.unclosed;
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
    topic_id: TopicId,
    recovery_point: Offset,
    high_watermark: Offset,
    log_start: Offset,
}

const CHECKPOINTS: [OffsetCheckpoint; 4] = [
    OffsetCheckpoint::RecoveryPoint,
    OffsetCheckpoint::Replication,
    OffsetCheckpoint::LogStart,
    OffsetCheckpoint::Cleaner,
];

/// Every log that is there.
fn look_through(dirs: &[Arc<LogDir>]) -> Result<Places, (PathBuf, LogDirError)> {
    let mut places = Places::default();
    for (index, dir) in dirs.iter().enumerate() {
        for (name, place) in found_in(index, dir).map_err(|cause| (dir.path().to_owned(), cause))? {
            let Some(other) = places.by_name.get(&name) else {
                places.insert(name, place);
                continue;
            };
            if other.topic_id == place.topic_id || other.topic_id.is_zero() || place.topic_id.is_zero() {
                let path = |place: &Place| dirs[place.dir].path().join(format!("{}-{}", name.0, name.1));
                let twice = LogDirError::Twice { path: path(&place), other: path(other) };
                return Err((dir.path().to_owned(), twice));
            }
            places.twins.push((name, place));
        }
    }
    Ok(places)
}

/// The logs of one directory, with what its checkpoints promise of them. A checkpoint that cannot be read
/// promises nothing, which is said.
fn found_in(index: usize, dir: &LogDir) -> Result<Vec<(Name, Place)>, LogDirError> {
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
    let first_dirty = read(OffsetCheckpoint::Cleaner);
    for path in dir.not_understood()? {
        warn!(path = %path.display(), "a directory has no name of a partition, though nearly: what is in it is not served");
    }
    let found = dir.partitions()?.into_iter().map(|found| {
        let name = (found.topic.clone(), found.partition);
        let offset = |offsets: &PartitionOffsets| offsets.get(&name).copied().unwrap_or(Offset(0));
        let opening = Opening {
            clean: dir.was_clean(),
            recovery_point: offset(&recovery_points),
            log_start: offset(&log_starts),
        };
        let high_watermark = offset(&high_watermarks);
        let first_dirty = first_dirty.get(&name).copied();
        let on_disk = OnDisk {
            recovery_point: opening.recovery_point,
            high_watermark,
            log_start: opening.log_start,
            is_known_as_compacted: first_dirty.is_some(),
        };
        let topic_id = found.topic_id;
        let found = Some(Found { partition: found, opening, high_watermark });
        (name, Place { found, first_dirty, on_disk, ..Place::new(index, topic_id) })
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests;
