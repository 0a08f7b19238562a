//! What the checkpoint files have to do with compaction: where it goes on in each log, and up to where a recovery
//! would not read a log again.
//!
//! A log is compacted only once the cleaner's file has a line of it: whatever becomes of its topic's policy, a start
//! then knows that its batches may not be those that were appended.

use std::collections::HashMap;
use std::thread;

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::log_dir::LogDirError;
use tarn_record::{Offset, PartitionIndex, TopicId};

use super::{Line, LogDirs, Name};
use crate::limits;

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
        let mut changed = self.places().uncleaned.clone();
        changed.retain(|dir| !self.places().failed.contains(dir));
        changed.into_iter().try_for_each(|dir| self.write_cleaner_offsets_of(dir))
    }

    /// The same of one directory. The turn is the caller's.
    pub(super) fn write_cleaner_offsets_of(&self, index: usize) -> Result<(), LogDirError> {
        if !self.places().uncleaned.remove(&index) {
            return Ok(());
        }
        // What is noted meanwhile makes it be written again.
        let mut lines = Vec::new();
        self.each_place(|name, place| {
            if let Some(first_dirty) = place.first_dirty.filter(|_| place.dir == index) {
                lines.push((name.clone(), place.topic_id, first_dirty));
            }
        });
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
        for some in lines.chunks(limits::PLACES_AT_ONCE) {
            let mut places = self.places();
            for (name, topic_id, _) in some {
                if let Some(place) = places.by_name.get_mut(name).filter(|place| place.topic_id == *topic_id)
                {
                    place.on_disk.is_known_as_compacted = true;
                }
            }
            drop(places);
            thread::sleep(limits::PLACES_PAUSE);
        }
        Ok(())
    }

    /// Notes what the files have of each log. Where the recovery points were not written, their file may be the old or the
    /// new one, so that only what both say counts.
    pub(super) fn points_written(
        &self,
        index: usize,
        lines: &[Line],
        written: Result<(), LogDirError>,
    ) -> Result<(), LogDirError> {
        let points: HashMap<&Name, &Line> = lines.iter().map(|line| (&line.name, line)).collect();
        self.each_place(|name, place| {
            if place.dir != index {
                return;
            }
            let line = points.get(name).filter(|line| line.topic_id == place.topic_id);
            let point = line.map_or(Offset(0), |line| line.recovery_point);
            let before = place.on_disk.recovery_point;
            place.on_disk.recovery_point = if written.is_ok() { point } else { point.min(before) };
            if let Some(line) = line {
                place.on_disk.high_watermark = line.high_watermark;
                place.on_disk.log_start = line.log_start;
            }
        });
        written
    }
}
