//! What the checkpoint files have to do with compaction: where it goes on in each log, and up to where a recovery
//! would not read a log again.
//!
//! A log is compacted only once the cleaner's file has a line of it: whatever becomes of its topic's policy, a start
//! then knows that its batches may not be those that were appended.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::LogDirError;
use tarn_record::{Offset, PartitionIndex, TopicId};

use super::{Line, LogDirs, Name, Place};
use crate::limits;

/// What a cleaner's file says of a log of a topic: where compaction goes on.
pub(super) type CleanerLine = (Name, TopicId, Offset);

/// The same of all logs, for each directory whose file is to be written.
pub(super) type CleanerLines = BTreeMap<usize, Vec<CleanerLine>>;

/// What the checkpoint files say of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// Its recovery point, 0 where there is none.
    pub recovery_point: Offset,
    /// Its high watermark likewise.
    pub high_watermark: Offset,
    /// Its log start likewise.
    pub log_start: Offset,
    /// True where there is a line of it in the cleaner's file.
    pub is_known_as_compacted: bool,
}

impl OnDisk {
    /// True where the files that speak of every log have something of it.
    pub(super) fn is_said(&self) -> bool {
        [self.recovery_point, self.high_watermark, self.log_start].iter().any(|said| *said > Offset(0))
    }
}

impl LogDirs {
    /// Where compaction of a log goes on, as the cleaner's file says or will say; `None` where it was never to be
    /// compacted.
    pub fn first_dirty(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) -> Option<Offset> {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        places.by_name.get(&name).filter(|place| place.topic_id == topic_id)?.first_dirty
    }

    /// Notes where compaction of a log goes on, for the next time that the cleaner's file is written.
    pub fn note_first_dirty(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        first_dirty: Option<Offset>,
    ) {
        let (name, mut places) = ((topic.to_owned(), partition), self.places());
        if let Some(place) = places.by_name.get_mut(&name).filter(|place| place.topic_id == topic_id)
            && place.first_dirty != first_dirty
        {
            place.first_dirty = first_dirty;
            let dir = place.dir;
            places.uncleaned.insert(dir);
        }
    }

    /// What the checkpoint files say of a log now.
    pub fn on_disk(&self, topic: &str, partition: PartitionIndex, topic_id: TopicId) -> OnDisk {
        let (name, places) = ((topic.to_owned(), partition), self.places());
        let place = places.by_name.get(&name).filter(|place| place.topic_id == topic_id);
        place.map_or_else(OnDisk::default, |place| place.on_disk)
    }

    /// Writes the cleaner's file of each directory where something was noted since it was last written. Waits for the
    /// disk.
    ///
    /// # Errors
    /// A directory that does not take it; it is written with the next.
    pub fn write_cleaner_offsets(&self) -> Result<(), LogDirError> {
        let turn = self.turn();
        if turn.is_over {
            return Ok(());
        }
        let failed = self.places().failed.clone();
        let changed = self.cleaner_lines(&failed);
        let written = changed.iter().map(|(dir, lines)| self.write_cleaner_offsets_of(*dir, lines));
        // A directory that refuses keeps no other from being written.
        written.collect::<Vec<_>>().into_iter().collect()
    }

    /// What the cleaner's file of each directory is to say where something was noted since it was last written, but for
    /// those that have failed. The turn is the caller's, who writes all of them: what is noted meanwhile makes a file be
    /// written again.
    pub(super) fn cleaner_lines(&self, failed: &BTreeSet<usize>) -> CleanerLines {
        let mut lines = {
            let mut places = self.places();
            let of_all = places.uncleaned.iter().copied();
            let (left, changed) = of_all.partition::<BTreeSet<usize>, _>(|dir| failed.contains(dir));
            places.uncleaned = left;
            changed.into_iter().map(|dir| (dir, Vec::new())).collect::<CleanerLines>()
        };
        if lines.is_empty() {
            return lines;
        }
        self.each_place(|name, place| {
            let Some(lines) = lines.get_mut(&place.dir) else { return };
            match place.first_dirty {
                Some(first_dirty) => lines.push((name.clone(), place.topic_id, first_dirty)),
                // Its line goes, so that it is not to be compacted before there is one again.
                None => place.on_disk.is_known_as_compacted = false,
            }
        });
        lines
    }

    /// Writes the cleaner's file of one directory. The turn is the caller's.
    pub(super) fn write_cleaner_offsets_of(
        &self,
        index: usize,
        lines: &[CleanerLine],
    ) -> Result<(), LogDirError> {
        // One that cannot be read is written anew.
        let holds_none =
            self.dirs[index].offsets(OffsetCheckpoint::Cleaner).is_ok_and(|held| held.is_empty());
        if lines.is_empty() && holds_none {
            return Ok(());
        }
        let rows = lines.iter().map(|((topic, partition), _, at)| (&**topic, *partition, *at));
        let written = self.dirs[index].write_offsets(OffsetCheckpoint::Cleaner, rows);
        if written.is_err() {
            self.places().uncleaned.insert(index);
            return written;
        }
        self.each_of(
            lines,
            |(name, topic_id, _)| (name, *topic_id),
            |place, _| {
                place.on_disk.is_known_as_compacted = true;
            },
        );
        Ok(())
    }

    /// Notes what the files of a directory have of each log. Where the recovery points were not written, their file may be
    /// the old or the new one, so that only what both say counts: the lower of both, which is noted before.
    pub(super) fn points_written(&self, lines: &[Line], is_written: bool) {
        self.each_of(
            lines,
            |line| (&line.name, line.topic_id),
            |place, line| {
                if is_written {
                    place.on_disk.recovery_point = line.recovery_point;
                }
                place.on_disk.high_watermark = line.high_watermark;
                place.on_disk.log_start = line.log_start;
            },
        );
    }

    /// Goes through the places of these lines as far as they are still those of their topics, as [`LogDirs::each_place`]
    /// does through all.
    fn each_of<L>(
        &self,
        lines: &[L],
        named: impl Fn(&L) -> (&Name, TopicId),
        mut visit: impl FnMut(&mut Place, &L),
    ) {
        for some in lines.chunks(limits::PLACES_AT_ONCE) {
            let mut places = self.places();
            for line in some {
                let (name, topic_id) = named(line);
                let place = places.by_name.get_mut(name).filter(|place| place.topic_id == topic_id);
                place.into_iter().for_each(|place| visit(place, line));
            }
            drop(places);
            thread::sleep(limits::PLACES_PAUSE);
        }
    }
}
