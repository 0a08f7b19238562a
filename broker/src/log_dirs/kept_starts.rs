//! Log starts that are on the disk before a client is told of them: what is deleted stays so.
//!
//! Only the lines of the logs in question are replaced, in `log-start-offset-checkpoint`. The rounds that write all
//! lines were begun before, perhaps, and then do not know of them: what was written since a round was begun is not
//! lowered by it. A start that a truncation lowered is said by the log's own `truncation-checkpoint`.

use std::io;

use tarn_log::LogError;
use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::LogDirError;
use tarn_record::Offset;

use super::{Line, LogDirs};
use crate::envelope::CheckpointEntry;

impl LogDirs {
    /// Says that somebody begins to collect what the checkpoint files are to say.
    pub fn begin_checkpoints(&self) {
        self.turn().kept.clear();
    }

    /// Writes the log starts of these logs, and no other line. Waits for the disk.
    ///
    /// # Errors
    /// A directory that does not take them.
    pub fn keep_starts(&self, entries: &[CheckpointEntry]) -> Result<(), LogDirError> {
        let mut turn = self.turn();
        if turn.is_over {
            // The last checkpoints were collected after it, and say it.
            return Ok(());
        }
        let lines = self.lines_of(entries).0;
        let failed = self.places().failed.clone();
        for (index, lines) in lines.into_iter().enumerate().filter(|(_, lines)| !lines.is_empty()) {
            let dir = &self.dirs[index];
            if failed.contains(&index) {
                let (path, cause) = (dir.path().to_owned(), io::Error::other("its disk has failed"));
                return Err(LogError::Io { action: "write to", path, cause }.into());
            }
            // One that cannot be read promises nothing.
            let mut starts = dir.offsets(OffsetCheckpoint::LogStart).unwrap_or_default();
            let mut is_changed = false;
            for Line { name, log_start, .. } in lines {
                let start = starts.entry(name.clone()).or_insert(Offset(0));
                is_changed |= *start < log_start;
                *start = log_start.max(*start);
                let kept = turn.kept.entry(name).or_insert(log_start);
                *kept = log_start.max(*kept);
            }
            if is_changed {
                let starts = starts.iter().filter(|(_, start)| **start > Offset(0));
                let lines = starts.map(|((topic, partition), start)| (&**topic, *partition, *start));
                dir.write_offsets(OffsetCheckpoint::LogStart, lines)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tarn_log::{Descriptors, LogDir, RealDisk};
    use tarn_record::{PartitionIndex, TopicId};
    use tempfile::TempDir;

    const P: PartitionIndex = PartitionIndex(0);

    #[test]
    fn a_start_that_was_told_is_not_lowered_by_what_was_collected_before() {
        let (dirs, _files) = dirs();
        let (topic, other) = (place(&dirs, "t"), place(&dirs, "other"));
        dirs.begin_checkpoints();
        let collected = [entry("t", topic, 2), entry("other", other, 3)];
        dirs.keep_starts(&[entry("t", topic, 5)]).expect("there is room");
        assert_eq!(starts(&dirs), [("t".to_owned(), 5)]);
        dirs.write_checkpoints(&collected).expect("there is room");
        assert_eq!(starts(&dirs), [("other".to_owned(), 3), ("t".to_owned(), 5)]);
        dirs.begin_checkpoints();
        dirs.write_checkpoints(&[entry("t", topic, 4)]).expect("there is room");
        assert_eq!(starts(&dirs), [("t".to_owned(), 4)], "it was collected later: the log was cut");
    }

    #[test]
    fn a_start_is_kept_of_a_log_that_is_there_and_of_no_other() {
        let (dirs, _files) = dirs();
        let old = place(&dirs, "t");
        dirs.begin_checkpoints();
        dirs.keep_starts(&[entry("t", old, 5), entry("gone", old, 5)]).expect("there is room");
        dirs.forget("t", P, old);
        let new = place(&dirs, "t");
        dirs.keep_starts(&[entry("t", old, 6)]).expect("there is nothing to do");
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
        dirs.keep_starts(&[entry("t", topic, 4)]).expect("it does nothing");
        assert_eq!(starts(&dirs), [("t".to_owned(), 3)]);
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
