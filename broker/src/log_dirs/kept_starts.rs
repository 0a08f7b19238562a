//! Log starts that are on the disk before a client is told of them: what is deleted stays so.
//!
//! Only the lines of the logs in question are replaced, in `log-start-offset-checkpoint`. The rounds that write all
//! lines were begun before, perhaps, and then do not know of them: what was written since a round was begun is not
//! lowered by it. A start that a truncation lowered is said by the log's own `truncation-checkpoint`.

use std::collections::{HashMap, HashSet};

use tarn_log::LogDir;
use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_record::{Offset, TopicId};
use thiserror::Error;

use super::{Line, LogDirs, Name};
use crate::envelope::CheckpointEntry;

impl LogDirs {
    /// Says that somebody begins to collect what the checkpoint files are to say.
    pub fn begin_checkpoints(&self) {
        self.turn().kept.clear();
    }

    /// Writes the log starts of these logs, and no other line: for each whether it is on the disk. Waits for the disk.
    ///
    /// # Errors
    /// For the logs of a directory that does not take them, and for those that are not here.
    pub fn keep_starts(&self, entries: &[CheckpointEntry]) -> Vec<Result<(), NotKept>> {
        let mut turn = self.turn();
        if turn.is_over {
            // What the last checkpoints say, nobody knows here.
            return entries.iter().map(|_| Err(NotKept::Stopped)).collect();
        }
        let (lines, places) = self.lines_of(entries);
        let failed = places.failed.clone();
        drop(places);
        let named = |line: &Line| (line.name.clone(), line.topic_id);
        let open: HashSet<(Name, TopicId)> = lines.iter().flatten().map(named).collect();
        let mut refused: HashMap<Name, NotKept> = HashMap::new();
        for (index, lines) in lines.into_iter().enumerate().filter(|(_, lines)| !lines.is_empty()) {
            let written = match failed.contains(&index) {
                true => Err(NotKept::DirFailed),
                false => keep_lines(&self.dirs[index], &lines, &mut turn.kept),
            };
            match written {
                Ok(()) => self.starts_written(&lines),
                Err(why) => refused.extend(lines.into_iter().map(|line| (line.name, why.clone()))),
            }
        }
        let became = |entry: &CheckpointEntry| {
            let name = (entry.topic.to_string(), entry.partition);
            match refused.get(&name) {
                Some(why) => Err(why.clone()),
                None if open.contains(&(name, entry.topic_id)) => Ok(()),
                None => Err(NotKept::Gone),
            }
        };
        entries.iter().map(became).collect()
    }

    /// Notes what the file has of these logs.
    fn starts_written(&self, lines: &[Line]) {
        let mut places = self.places();
        for line in lines {
            let place = places.by_name.get_mut(&line.name).filter(|place| place.topic_id == line.topic_id);
            if let Some(place) = place {
                place.on_disk.log_start = place.on_disk.log_start.max(line.log_start);
            }
        }
    }
}

/// Why a log start is not on the disk.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotKept {
    /// The node stops.
    #[error("the node stops")]
    Stopped,
    /// The log has no place any more, or is not open, so that no file says anything new of it.
    #[error("the log is not here any more")]
    Gone,
    /// The disk of its directory has failed.
    #[error("the disk of its log directory has failed")]
    DirFailed,
    /// The directory did not take it.
    #[error("{0}")]
    Refused(String),
}

fn keep_lines(dir: &LogDir, lines: &[Line], kept: &mut HashMap<Name, Offset>) -> Result<(), NotKept> {
    // A file that cannot be read promises nothing.
    let mut starts = dir.offsets(OffsetCheckpoint::LogStart).unwrap_or_default();
    let mut is_changed = false;
    for Line { name, log_start, .. } in lines {
        let start = starts.entry(name.clone()).or_insert(Offset(0));
        is_changed |= *start < *log_start;
        *start = *log_start.max(start);
        let kept = kept.entry(name.clone()).or_insert(*log_start);
        *kept = *log_start.max(kept);
    }
    if !is_changed {
        return Ok(());
    }
    let starts = starts.iter().filter(|(_, start)| **start > Offset(0));
    let lines = starts.map(|((topic, partition), start)| (&**topic, *partition, *start));
    dir.write_offsets(OffsetCheckpoint::LogStart, lines).map_err(|error| NotKept::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::Failure;
    use super::*;
    use std::sync::Arc;
    use tarn_log::{Descriptors, LogDir, RealDisk};
    use tarn_record::PartitionIndex;
    use tempfile::TempDir;

    const P: PartitionIndex = PartitionIndex(0);

    #[test]
    fn a_start_that_was_told_is_not_lowered_by_what_was_collected_before() {
        let (dirs, _files) = dirs();
        let (topic, other) = (place(&dirs, "t"), place(&dirs, "other"));
        dirs.begin_checkpoints();
        let collected = [entry("t", topic, 2), entry("other", other, 3)];
        kept(&dirs, &[entry("t", topic, 5)]);
        assert_eq!(starts(&dirs), [("t".to_owned(), 5)]);
        dirs.write_checkpoints(&collected).expect("there is room");
        assert_eq!(starts(&dirs), [("other".to_owned(), 3), ("t".to_owned(), 5)]);
        dirs.begin_checkpoints();
        dirs.write_checkpoints(&[entry("t", topic, 4)]).expect("there is room");
        let cut = [("other".to_owned(), 3), ("t".to_owned(), 4)];
        assert_eq!(starts(&dirs), cut, "it was collected later: the log was cut");
    }

    #[test]
    fn a_start_is_kept_of_a_log_that_is_there_and_of_no_other() {
        let (dirs, _files) = dirs();
        let old = place(&dirs, "t");
        dirs.begin_checkpoints();
        let kept = dirs.keep_starts(&[entry("t", old, 5), entry("gone", old, 5)]);
        assert_eq!(kept, [Ok(()), Err(NotKept::Gone)]);
        dirs.forget("t", P, old);
        let new = place(&dirs, "t");
        assert_eq!(dirs.keep_starts(&[entry("t", old, 6), entry("t", new, 0)]), [Err(NotKept::Gone), Ok(())]);
        assert_eq!(starts(&dirs), [("t".to_owned(), 5)]);
        dirs.make_way("t", P).expect("there is room");
        dirs.write_checkpoints(&[entry("t", new, 0)]).expect("there is room");
        assert_eq!(starts(&dirs), [], "the next topic of the name begins at 0");
    }

    #[test]
    fn after_the_last_checkpoints_nothing_is_written() {
        let (dirs, _files) = dirs();
        let topic = place(&dirs, "t");
        dirs.write_last_checkpoints(&[entry("t", topic, 3)]).expect("there is room");
        assert_eq!(dirs.keep_starts(&[entry("t", topic, 4)]), [Err(NotKept::Stopped)]);
        assert_eq!(starts(&dirs), [("t".to_owned(), 3)]);
    }

    #[test]
    fn a_directory_that_refuses_takes_its_own_starts_along_and_no_others() {
        let files = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let open = |files: &TempDir| {
            LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new")
        };
        let dirs = LogDirs::new(files.iter().map(open).collect(), 3).expect("they can be read");
        let topics = ["a", "b", "c"].map(|topic| (topic, place(&dirs, topic)));
        let dir_of = |topic: &str| dirs.place(topic, P, TopicId::ZERO).0.path().to_owned();
        // In the way of the new file.
        let name = format!("{}.tmp", OffsetCheckpoint::LogStart.file_name());
        std::fs::create_dir(dir_of("a").join(name)).expect("it is ours");
        assert!(matches!(dirs.fail("b", P, std::path::Path::new("elsewhere")), Failure::New { .. }));
        let kept = dirs.keep_starts(&topics.map(|(topic, id)| entry(topic, id, 5)));
        assert!(matches!(kept[..], [Err(NotKept::Refused(_)), Err(NotKept::DirFailed), Ok(())]), "{kept:?}");
    }

    fn kept(dirs: &LogDirs, entries: &[CheckpointEntry]) {
        assert!(dirs.keep_starts(entries).iter().all(Result::is_ok));
    }

    fn dirs() -> (LogDirs, TempDir) {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100)).expect("it is new");
        (LogDirs::new(vec![dir], 1).expect("it can be read"), files)
    }

    /// Opens a log of a new topic.
    fn place(dirs: &LogDirs, topic: &str) -> TopicId {
        let id = TopicId::random();
        dirs.place(topic, P, id);
        dirs.opened(topic, P, id);
        id
    }

    fn entry(topic: &str, topic_id: TopicId, start: i64) -> CheckpointEntry {
        CheckpointEntry {
            topic: topic.into(),
            topic_id,
            partition: P,
            recovery_point: Offset(9),
            high_watermark: Offset(9),
            log_start: Offset(start),
        }
    }

    fn starts(dirs: &LogDirs) -> Vec<(String, i64)> {
        let found = dirs.dirs[0].offsets(OffsetCheckpoint::LogStart).expect("it can be read");
        found.into_iter().map(|((topic, _), start)| (topic, start.0)).collect()
    }
}
