//! Whose a place is when a topic is deleted and another one of its name is made: their cores may be different ones, and
//! either may be the later to hear of it.
//!
//! Each change is made under one hold of the lock, and the disk follows: a log that is not open is out of its place
//! before its directory is renamed, so that only who has it renames that, and it goes back where that failed.

use std::sync::Arc;

use tarn_log::LogDir;
use tarn_record::{Offset, TopicId, TopicIdPartition};

use super::{Found, LogDirs, Name, Place, Places};

/// A log that is out of its place, for its directory to be renamed.
#[derive(Debug)]
pub(crate) struct Displaced {
    /// The log directory that it is in.
    pub(crate) dir: Arc<LogDir>,
    /// The log.
    pub(crate) found: Found,
    /// It is for a person to look at: nobody has deleted its topic, as far as is known.
    pub(crate) is_stray: bool,
    name: Name,
    /// Whose the place is meanwhile.
    taken_by: TopicId,
    /// What the place was.
    before: Place,
}

/// The place of a log is not free yet: that of an older topic is open, is being recovered or closed, or is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held;

impl Places {
    fn is_busy_for_another(&self, name: &Name, topic_id: TopicId) -> bool {
        self.busy.get(name).is_some_and(|topics| topics.iter().any(|one| *one != topic_id))
    }
}

impl LogDirs {
    /// True where the place of a partition is not free yet.
    pub fn is_held(&self, topic: &str, partition: TopicIdPartition) -> bool {
        let (name, places) = ((topic.to_owned(), partition.partition), self.places());
        let place = places.by_name.get(&name);
        place.is_some_and(|place| place.is_held_by_another(partition.topic_id))
            || places.is_busy_for_another(&name, partition.topic_id)
    }

    /// Gives a partition its place, as the metadata at an offset say. The log of an older topic in it is given up, and is
    /// to be renamed by whoever called this; that of one in a directory that has failed stays there, and the place is in
    /// another.
    ///
    /// # Errors
    /// While it is not free, and for a topic that is the older one itself.
    pub(crate) fn take_over(
        &self,
        topic: &str,
        partition: TopicIdPartition,
        as_of: Offset,
    ) -> Result<Option<Displaced>, Held> {
        let (name, topic_id) = ((topic.to_owned(), partition.partition), partition.topic_id);
        let mut places = self.places();
        if places.is_busy_for_another(&name, topic_id) {
            return Err(Held);
        }
        match places.by_name.get_mut(&name) {
            Some(place) if place.is_of(topic_id) => {
                (place.topic_id, place.as_of) = (topic_id, as_of.max(place.as_of));
                return Ok(None);
            }
            Some(place) if place.is_held_by_another(topic_id) || place.as_of >= as_of => return Err(Held),
            _ => {}
        }
        let dir_failed = places.by_name.get(&name).is_some_and(|place| places.failed.contains(&place.dir));
        let Some(before) = places.by_name.get(&name).filter(|_| !dir_failed).cloned() else {
            if let Some(left) = places.remove(&name) {
                places.leave_out(left.dir, name.clone());
            }
            let dir = self.with_fewest(&places);
            places.insert(name, Place { as_of, ..Place::new(dir, topic_id) });
            return Ok(None);
        };
        places.insert(name.clone(), Place { as_of, ..Place::new(before.dir, topic_id) });
        places.leave_out(before.dir, name.clone());
        Ok(self.displaced(name, topic_id, before))
    }

    /// Takes the log of a partition that was deleted out of its place, which stays that topic's until it is forgotten;
    /// `None` where no log is there, or where it is a later topic's.
    pub(crate) fn take_deleted(&self, topic: &str, partition: TopicIdPartition) -> Option<Displaced> {
        let (name, topic_id) = ((topic.to_owned(), partition.partition), partition.topic_id);
        let mut places = self.places();
        let place = places.by_name.get_mut(&name).filter(|place| place.is_of(topic_id))?;
        place.topic_id = topic_id;
        let before = place.clone();
        place.found = None;
        // Nothing is written there, and the next start puts the log aside.
        let is_left = places.failed.contains(&before.dir);
        drop(places);
        if is_left { None } else { self.displaced(name, topic_id, before) }
    }

    fn displaced(&self, name: Name, taken_by: TopicId, before: Place) -> Option<Displaced> {
        let (dir, found) = (self.dirs[before.dir].clone(), before.found.clone()?);
        // A directory that does not say whose it is may hold what nobody has deleted.
        let is_stray = before.is_stray || found.partition.topic_id.is_zero();
        Some(Displaced { dir, found, is_stray, name, taken_by, before })
    }

    /// The directory of a log that was taken out of its place could not be renamed: it is there again, for the next topic
    /// of its name to try.
    pub(crate) fn put_back(&self, displaced: Displaced) {
        let Displaced { name, taken_by, before, .. } = displaced;
        let mut places = self.places();
        if let Some(place) = places.by_name.get_mut(&name)
            && (place.topic_id, place.found.is_none()) == (taken_by, true)
        {
            *place = before;
        }
    }

    /// A thread beside the core is about to read or close the log of a partition: to cut, write and rename files in its
    /// place.
    pub fn begin_work(&self, topic: &str, partition: TopicIdPartition) {
        let name = (topic.to_owned(), partition.partition);
        self.places().busy.entry(name).or_default().push(partition.topic_id);
    }

    /// That has ended.
    pub fn end_work(&self, topic: &str, partition: TopicIdPartition) {
        let (name, mut places) = ((topic.to_owned(), partition.partition), self.places());
        let Some(topics) = places.busy.get_mut(&name) else { return };
        if let Some(number) = topics.iter().position(|one| *one == partition.topic_id) {
            topics.swap_remove(number);
        }
        if topics.is_empty() {
            places.busy.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::CheckpointEntry;
    use crate::log_dirs::Closing;
    use tarn_log::checkpoints::OffsetCheckpoint;
    use tarn_log::{Descriptors, RealDisk};
    use tarn_record::PartitionIndex;
    use tempfile::TempDir;

    const P: PartitionIndex = PartitionIndex(0);
    const OLDER: Offset = Offset(10);
    const NEWER: Offset = Offset(20);

    #[test]
    fn a_place_is_one_topics_until_that_is_forgotten_and_then_the_next_ones() {
        let (dirs, _files) = dirs();
        let (old, new) = (open(&dirs, "t"), partition());
        assert!(dirs.is_held("t", new) && !dirs.is_held("t", old));
        assert_eq!(take_over(&dirs, "t", new).expect_err("it is not free"), Held);
        forget(&dirs, new);
        assert!(dirs.is_held("t", new), "it was not its to forget");
        forget(&dirs, old);
        assert!(!dirs.is_held("t", new) && take_over(&dirs, "t", new).expect("it is free").is_none());
        forget(&dirs, old);
        assert!(dirs.is_held("t", old), "the next topic keeps it");
    }

    #[test]
    fn who_is_late_with_the_deletion_of_an_older_topic_leaves_the_next_ones_place() {
        let (dirs, _files) = dirs();
        let (old, new) = (left(&dirs, "t"), partition());
        dirs.write_checkpoints(&[]).expect("there is room");
        let displaced = take_over(&dirs, "t", new).expect("it is free").expect("a log is in it");
        assert_eq!((displaced.found.partition.topic_id, displaced.is_stray), (old.topic_id, false));
        dirs.make_way("t", P).expect("there is room");
        assert!(dirs.take_deleted("t", old).is_none(), "it is out of its place already");
        forget(&dirs, old);
        dirs.opened("t", P, new.topic_id);
        assert_eq!(dirs.keep_starts(&[entry("t", new)]), [Ok(())]);
        dirs.write_checkpoints(&[entry("t", new)]).expect("there is room");
        let said = |file| dirs.dirs()[0].offsets(file).expect("it can be read").len();
        assert_eq!((said(OffsetCheckpoint::RecoveryPoint), said(OffsetCheckpoint::LogStart)), (1, 1));
    }

    #[test]
    fn a_log_that_is_being_deleted_keeps_its_place_and_one_that_was_not_is_there_again() {
        let (dirs, _files) = dirs();
        let (old, new) = (left(&dirs, "t"), partition());
        let displaced = dirs.take_deleted("t", old).expect("it is there");
        assert!(dirs.take_deleted("t", old).is_none() && dirs.is_held("t", new));
        dirs.put_back(displaced);
        assert!(!dirs.is_held("t", new));
        let displaced = take_over(&dirs, "t", new).expect("it is free").expect("it is there again");
        dirs.put_back(displaced);
        assert!(dirs.take_deleted("t", new).is_none(), "it is not its log");
        assert!(dirs.take_deleted("t", old).is_some());
    }

    #[test]
    fn who_is_late_with_an_older_topic_does_not_take_the_log_of_the_next_one() {
        let (dirs, _files) = dirs();
        let (old, new) = (partition(), partition());
        assert!(take_over(&dirs, "t", new).expect("it is free").is_none());
        dirs.opened("t", P, new.topic_id);
        dirs.closed(&entry("t", new), Closing::Begun);
        assert_eq!(dirs.take_over("t", old, OLDER).expect_err("it is deleted"), Held);
        assert!(dirs.take_deleted("t", old).is_none());
        forget(&dirs, old);
        assert!(dirs.take_deleted("t", new).is_some(), "it has its place");
    }

    #[test]
    fn nobody_takes_a_place_over_while_the_files_in_it_are_read_or_closed() {
        let (dirs, _files) = dirs();
        let (old, new) = (left(&dirs, "t"), partition());
        dirs.begin_work("t", old);
        dirs.begin_work("t", new);
        assert!(dirs.is_held("t", new) && take_over(&dirs, "t", new).is_err());
        dirs.end_work("t", old);
        assert!(take_over(&dirs, "t", new).expect("it is free").is_some());
        assert!(dirs.is_held("t", old));
        dirs.end_work("t", new);
    }

    #[test]
    fn what_nobody_has_deleted_is_for_a_person_to_look_at() {
        let (dirs, files) = dirs();
        for topic in ["unknown", "unsaid"] {
            left(&dirs, topic);
            std::fs::create_dir(files.path().join(format!("{topic}-0"))).expect("there is room");
        }
        drop(dirs);
        let dirs = again(&files);
        // Nothing says whose they are.
        let refused = take_over(&dirs, "unsaid", partition()).expect("it is free");
        assert!(refused.is_none(), "it may be its own");
        let unsaid = dirs.take_deleted("unknown", partition()).expect("it is there");
        assert!(unsaid.is_stray);
        dirs.put_back(unsaid);
        let unsaid = take_over(&dirs, "unknown", partition()).expect("it is free").expect("it is there");
        assert!(unsaid.is_stray, "it is not the next topic's");
    }

    fn dirs() -> (LogDirs, TempDir) {
        let files = tempfile::tempdir().expect("a directory");
        (again(&files), files)
    }

    fn again(files: &TempDir) -> LogDirs {
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is ours");
        LogDirs::new(vec![dir], 1).expect("it can be read")
    }

    fn partition() -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::random(), partition: P }
    }

    /// Opens the log of a new topic.
    fn open(dirs: &LogDirs, topic: &str) -> TopicIdPartition {
        let partition = partition();
        assert!(dirs.take_over(topic, partition, OLDER).expect("it is free").is_none());
        dirs.opened(topic, P, partition.topic_id);
        partition
    }

    /// The same, as a crash has left it.
    fn left(dirs: &LogDirs, topic: &str) -> TopicIdPartition {
        let partition = open(dirs, topic);
        dirs.closed(&entry(topic, partition), Closing::Begun);
        partition
    }

    fn take_over(
        dirs: &LogDirs,
        topic: &str,
        partition: TopicIdPartition,
    ) -> Result<Option<Displaced>, Held> {
        dirs.take_over(topic, partition, NEWER)
    }

    fn forget(dirs: &LogDirs, partition: TopicIdPartition) {
        dirs.forget("t", P, partition.topic_id);
    }

    fn entry(topic: &str, partition: TopicIdPartition) -> CheckpointEntry {
        CheckpointEntry {
            topic: topic.into(),
            topic_id: partition.topic_id,
            partition: P,
            recovery_point: Offset(9),
            high_watermark: Offset(9),
            log_start: Offset(5),
        }
    }
}
