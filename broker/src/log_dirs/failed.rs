//! Directories whose disk has failed while the node runs, or before: until it is started again nothing is opened, made or
//! written there, and nothing is said of it in a checkpoint.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tarn_record::{PartitionIndex, TopicIdPartition};

use super::{LogDirs, Place, Places};

/// What a failure means to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The node cannot go on without the directory: it holds the metadata, or is the last one left.
    Fatal,
    /// It has failed just now.
    New {
        /// Its number.
        dir: usize,
        /// Its path.
        path: PathBuf,
    },
    /// It had failed before.
    Known {
        /// Its number.
        dir: usize,
    },
}

impl LogDirs {
    /// The disk under a partition's log has failed; `metadata` is the directory that the node cannot be without.
    pub fn fail(&self, topic: &str, partition: PartitionIndex, metadata: &Path) -> Failure {
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        // Whose log it was is not known any more, so neither is what is safe.
        let Some(dir) = places.by_name.get(&name).map(|place| place.dir) else { return Failure::Fatal };
        if places.failed.contains(&dir) {
            return Failure::Known { dir };
        }
        let is_left = |one: &usize| *one != dir && !places.failed.contains(one);
        if self.dirs[dir].path() == metadata || !(0..self.listed).any(|one| is_left(&one)) {
            return Failure::Fatal;
        }
        places.failed.insert(dir);
        Failure::New { dir, path: self.dirs[dir].path().to_owned() }
    }

    /// True where a partition is in a directory that has failed; not where only an older topic of its name is.
    pub fn is_in_failed(&self, topic: &str, partition: TopicIdPartition) -> bool {
        let (name, places) = ((topic.to_owned(), partition.partition), self.places());
        let has_failed =
            |place: &Place| place.is_of(partition.topic_id) && places.failed.contains(&place.dir);
        places.missing.contains(&partition) || places.by_name.get(&name).is_some_and(has_failed)
    }

    /// Without these directories, which could not be opened or are in `log.dirs` no more.
    pub fn without(mut self, missing: impl IntoIterator<Item = PathBuf>) -> LogDirs {
        self.missing.extend(missing);
        self
    }

    /// The last paths of those.
    pub fn missing(&self) -> &[PathBuf] {
        &self.missing
    }

    /// The same, each once, but for paths at which there is another directory now: two that are missing may have been at
    /// the same path, one after the other.
    pub fn missing_paths(&self) -> impl Iterator<Item = &Path> {
        let is_taken = |path: &Path| self.dirs.iter().any(|dir| dir.path() == path);
        let paths: BTreeSet<_> = self.missing.iter().map(PathBuf::as_path).collect();
        paths.into_iter().filter(move |path| !is_taken(path))
    }

    /// A partition has a log; true where that is nowhere to be found, and so in a directory that is missing. What another
    /// topic has left under the name is not its log.
    pub fn note_missing(&self, topic: &str, partition: TopicIdPartition) -> bool {
        let (name, mut places) = ((topic.to_owned(), partition.partition), self.places());
        let is_here = places.by_name.get(&name).is_some_and(|place| place.is_of(partition.topic_id));
        !is_here && places.missing.insert(partition)
    }

    /// Something in this directory could not be closed: it does not count as closed in order.
    pub fn not_closed(&self, path: &Path) {
        let dir = self.dirs.iter().position(|dir| dir.path() == path);
        self.places().unclosed.extend(dir);
    }

    /// The directories that have failed since they were opened.
    pub fn failed(&self) -> Vec<PathBuf> {
        self.places().failed.iter().map(|dir| self.dirs[*dir].path().to_owned()).collect()
    }

    /// The directory of those that are left in which the fewest partitions are.
    pub(super) fn with_fewest(&self, places: &Places) -> usize {
        let left = (0..self.dirs.len().min(self.listed)).filter(|dir| !places.failed.contains(dir));
        left.min_by_key(|dir| places.in_dir.get(dir).copied().unwrap_or(0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Closing, Held};
    use super::*;
    use crate::envelope::CheckpointEntry;
    use tarn_log::checkpoints::OffsetCheckpoint;
    use tarn_log::{Descriptors, LogDir, RealDisk};
    use tarn_record::{Offset, TopicId};
    use tempfile::TempDir;

    const P: PartitionIndex = PartitionIndex(0);

    #[test]
    fn a_directory_that_fails_gets_no_partition_and_no_checkpoint_and_is_not_closed_in_order() {
        let (dirs, _files) = three();
        let topics: Vec<_> = ["a", "b", "c"].map(|topic| (topic, open(&dirs, topic))).into();
        let metadata = dirs.dirs()[0].path().to_owned();
        let (in_second, id) = *topics.iter().find(|(topic, _)| is_in(&dirs, topic, 1)).expect("one in each");
        let path = dirs.dirs()[1].path().to_owned();
        assert_eq!(dirs.fail(in_second, P, &metadata), Failure::New { dir: 1, path: path.clone() });
        assert_eq!(dirs.fail(in_second, P, &metadata), Failure::Known { dir: 1 });
        assert_eq!(dirs.failed(), [path]);
        assert!(dirs.is_in_failed(in_second, TopicIdPartition { topic_id: id, partition: P }));
        for topic in ["d", "e", "f", "g"] {
            let id = open(&dirs, topic);
            assert!(!dirs.is_in_failed(topic, TopicIdPartition { topic_id: id, partition: P }), "{topic}");
        }
        let entries: Vec<_> = topics.iter().map(|(topic, id)| entry(topic, *id)).collect();
        dirs.write_checkpoints(&entries).expect("the others have room");
        let lines = |dir: &LogDir| dir.offsets(OffsetCheckpoint::RecoveryPoint).map(|lines| lines.len());
        let written: Vec<_> = dirs.dirs().iter().map(|dir| lines(dir).unwrap_or_default()).collect();
        assert_eq!(written, [1, 0, 1]);
        let in_order: BTreeSet<_> = dirs.closed_in_order().iter().map(|dir| dir.path().to_owned()).collect();
        assert!(in_order.len() == 2 && !in_order.contains(dirs.dirs()[1].path()));
    }

    #[test]
    fn the_node_cannot_be_without_its_metadata_or_its_last_directory() {
        let (dirs, _files) = three();
        let topics = ["a", "b", "c"];
        for topic in topics {
            open(&dirs, topic);
        }
        let of = |dir: usize| *topics.iter().find(|topic| is_in(&dirs, topic, dir)).expect("one in each");
        let metadata = dirs.dirs()[0].path().to_owned();
        assert_eq!(dirs.fail(of(0), P, &metadata), Failure::Fatal);
        let elsewhere = Path::new("elsewhere");
        assert!(matches!(dirs.fail(of(0), P, elsewhere), Failure::New { dir: 0, .. }));
        assert!(matches!(dirs.fail(of(1), P, elsewhere), Failure::New { dir: 1, .. }));
        assert_eq!(dirs.fail(of(2), P, elsewhere), Failure::Fatal);
        assert_eq!(dirs.fail("unknown", P, elsewhere), Failure::Fatal);
    }

    #[test]
    fn what_must_be_in_a_directory_that_is_missing_is_out_of_service_until_it_is_deleted() {
        let (dirs, _files) = three();
        let here = TopicIdPartition { topic_id: open(&dirs, "here"), partition: P };
        let gone = TopicIdPartition { topic_id: TopicId::random(), partition: P };
        let again = TopicIdPartition { topic_id: TopicId::random(), partition: P };
        let dirs = dirs.without(vec!["/missing".into()]);
        assert!(!dirs.note_missing("here", here) && dirs.note_missing("gone", gone));
        assert!(!dirs.is_in_failed("here", here) && dirs.is_in_failed("gone", gone));
        assert!(!dirs.is_in_failed("gone", again), "another topic of the name is new");
        dirs.forget("gone", P, gone.topic_id);
        assert!(!dirs.is_in_failed("gone", gone));
    }

    #[test]
    fn what_an_older_topic_has_left_under_its_name_is_no_log_of_a_partition() {
        let (dirs, _files) = three();
        open(&dirs, "t");
        let dirs = dirs.without(vec!["/missing".into()]);
        let again = TopicIdPartition { topic_id: TopicId::random(), partition: P };
        assert!(dirs.note_missing("t", again) && dirs.is_in_failed("t", again));
    }

    #[test]
    fn a_topic_that_is_made_again_is_not_kept_out_by_the_directory_of_the_older_one() {
        for is_open in [true, false] {
            let (dirs, _files) = three();
            let old = open(&dirs, "t");
            if !is_open {
                dirs.closed(&entry("t", old), Closing::Begun);
            }
            let new = TopicIdPartition { topic_id: TopicId::random(), partition: P };
            let failed = dirs.place("t", P, old).0;
            assert!(matches!(dirs.fail("t", P, Path::new("elsewhere")), Failure::New { .. }));
            assert!(!dirs.is_in_failed("t", new));
            if is_open {
                assert_eq!(dirs.take_over("t", new, Offset(1)).expect_err("its core has it"), Held);
                dirs.forget("t", P, old);
            }
            assert!(
                dirs.take_over("t", new, Offset(1)).expect("it is free").is_none(),
                "nothing is renamed there"
            );
            assert_ne!(dirs.place("t", P, new.topic_id).0.path(), failed.path());
            dirs.forget("t", P, old);
            assert!(
                dirs.is_held("t", TopicIdPartition { topic_id: old, partition: P }),
                "it is the next one's"
            );
        }
    }

    #[test]
    fn the_path_of_a_missing_directory_is_shown_unless_another_one_is_there() {
        let (dirs, _files) = three();
        let taken = dirs.dirs()[0].path().to_owned();
        let dirs = dirs.without(["/unreadable".into()]).without(["/gone".into(), taken, "/gone".into()]);
        assert_eq!(dirs.missing().len(), 4, "two were at one path, one after the other");
        assert!(dirs.missing_paths().eq([Path::new("/gone"), Path::new("/unreadable")]));
    }

    /// Three directories, empty.
    fn three() -> (LogDirs, Vec<TempDir>) {
        let files: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let open = |files: &TempDir| {
            LogDir::open(std::sync::Arc::new(RealDisk), files.path(), Descriptors::new(100))
                .expect("it is new")
        };
        (LogDirs::new(files.iter().map(open).collect(), 3).expect("they can be read"), files)
    }

    fn is_in(dirs: &LogDirs, topic: &str, dir: usize) -> bool {
        dirs.place(topic, P, TopicId::ZERO).0.path() == dirs.dirs()[dir].path()
    }

    fn open(dirs: &LogDirs, topic: &str) -> TopicId {
        let id = TopicId::random();
        dirs.place(topic, P, id);
        dirs.opened(topic, P, id);
        id
    }

    fn entry(topic: &str, topic_id: TopicId) -> CheckpointEntry {
        let (recovery_point, high_watermark, log_start) = (Offset(5), Offset(5), Offset(0));
        CheckpointEntry {
            topic: topic.into(),
            topic_id,
            partition: P,
            recovery_point,
            high_watermark,
            log_start,
        }
    }
}
