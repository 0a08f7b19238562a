//! What is left of a write for which there is no room.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tarn_log::disk::Open;
use tarn_log::{AppendError, Descriptors, Log, LogConfig, LogDir, LogError, Opening, ReadFrom};
use tarn_record::{Offset, PartitionIndex, TimestampType, ValidBatch};

use crate::watched_disk::{Watch, WatchedDisk};
use crate::world::*;

#[test]
fn what_was_written_of_a_batch_without_room_is_cut_off_at_once() {
    for before in [0, 3] {
        for room in [0, 1, 60, 100] {
            let world = Full::new();
            let mut log = world.create(LogConfig::default());
            if before > 0 {
                produce(&mut log, before);
            }
            let (kept, end) = (world.bytes_of(".log"), log.end());
            world.leaves(".log", room);
            let refused = log.append_as_leader(&client(5), EPOCH, TimestampType::CreateTime, NOW);
            assert_eq!(refused.unwrap_err().code(), 56);
            assert_eq!((world.bytes_of(".log"), log.end()), (kept, end), "room for {room} bytes");
            world.has_room();
            produce(&mut log, 2);
            let expected = spans(&read_all(&log, Offset(0), 1 << 20));
            assert_eq!(expected.last(), Some(&(end.0, end.0 + 1)));
            drop(log);
            let log = world.open(LogConfig::default(), false);
            assert_eq!(spans(&read_all(&log, Offset(0), 1 << 20)), expected);
        }
    }
}

#[test]
fn batches_that_came_as_they_are_leave_nothing_either_though_some_were_written_whole() {
    let world = Full::new();
    let mut log = world.create(LogConfig::default());
    let batches = [batch(0, 2, 4), batch(2, 2, 4), batch(4, 2, 4)];
    mirror(&mut log, &batches[..1]).unwrap();
    let kept = world.bytes_of(".log");
    world.leaves(".log", batches[1].bytes().len() + 10);
    mirror(&mut log, &batches[1..]).unwrap_err();
    assert_eq!((world.bytes_of(".log"), log.end()), (kept, Offset(2)));
    drop(log);
    world.has_room();
    assert_eq!(world.open(LogConfig::default(), false).end(), Offset(2), "no crash brings it back");
}

#[test]
fn what_cannot_be_cut_at_once_is_before_the_log_goes_on() {
    for before in [0, 3] {
        let world = Full::new();
        let mut log = world.create(LogConfig::default());
        if before > 0 {
            produce(&mut log, before);
        }
        let kept = world.bytes_of(".log");
        world.leaves(".log", 70);
        world.keeps_all();
        log.append_as_leader(&client(5), EPOCH, TimestampType::CreateTime, NOW).unwrap_err();
        assert_eq!(world.bytes_of(".log"), kept + 70);
        world.has_room();
        produce(&mut log, 2);
        let (end, batches) = (log.end(), read_all(&log, Offset(0), 1 << 20));
        let written: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
        assert_eq!((end, world.bytes_of(".log")), (Offset(before as i64 + 2), written as u64));
    }
}

#[test]
fn a_batch_over_the_start_is_looked_up_in_no_log_that_has_no_segment() {
    let world = Full::new();
    let mut log = world.create(LogConfig::default());
    mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
    *world.makes_no.lock().unwrap() = Some(".log");
    log.truncate_fully_and_start_at(Offset(5), NOW).unwrap_err();
    assert_eq!((log.segment_count(), log.start(), log.end()), (0, Offset(5), Offset(5)));
    let spanning: [ValidBatch; 1] = [batch(3, 5, 4)];
    assert!(log.search_known(&spanning).is_none());
    let refused = mirror(&mut log, &spanning);
    assert!(matches!(refused, Err(AppendError::Storage(LogError::HalfCut { .. }))), "{refused:?}");
    world.has_room();
    let _ = log.truncate_fully_and_start_at(Offset(5), NOW).unwrap();
    mirror(&mut log, &spanning).unwrap();
    assert_eq!(spans(&read_all(&log, Offset(5), 1 << 20)), [(3, 7)]);
}

const EPOCH: tarn_record::Epoch = tarn_record::Epoch(0);

/// A log on a disk that has no room for some files.
#[derive(Debug)]
pub(crate) struct Full {
    pub(crate) root: tempfile::TempDir,
    disk: Arc<Room>,
}

/// What it has room for.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// A write to files whose names end like this finds room for so many bytes.
    left: Mutex<Option<(&'static str, usize)>>,
    /// It makes no files whose names end like this.
    makes_no: Mutex<Option<&'static str>>,
    /// It does not cut a file.
    keeps_all: AtomicBool,
}

impl std::ops::Deref for Full {
    type Target = Room;

    fn deref(&self) -> &Room {
        &self.disk
    }
}

impl Full {
    pub(crate) fn new() -> Full {
        Full { root: tempfile::tempdir().unwrap(), disk: Arc::default() }
    }

    fn dir(&self) -> Arc<LogDir> {
        let disk = Arc::new(WatchedDisk(self.disk.clone()));
        LogDir::open(disk, self.root.path(), Descriptors::new(100)).unwrap()
    }

    pub(crate) fn create(&self, config: LogConfig) -> Log {
        Log::create(&self.dir(), TOPIC, PartitionIndex(0), TOPIC_ID, config, NOW).unwrap()
    }

    pub(crate) fn open(&self, config: LogConfig, clean: bool) -> Log {
        let opening = Opening { clean, recovery_point: Offset(0), log_start: Offset(0) };
        Log::open(&self.dir(), TOPIC, PartitionIndex(0), config, opening, NOW).unwrap().0
    }

    /// The bytes of all files of the partition whose names end like this.
    pub(crate) fn bytes_of(&self, suffix: &str) -> u64 {
        let files = std::fs::read_dir(self.root.path().join("orders-0")).unwrap().map(Result::unwrap);
        let named = files.filter(|file| file.file_name().to_string_lossy().ends_with(suffix));
        named.map(|file| file.metadata().unwrap().len()).sum()
    }
}

impl Room {
    pub(crate) fn leaves(&self, suffix: &'static str, bytes: usize) {
        *self.left.lock().unwrap() = Some((suffix, bytes));
    }

    /// It does not cut a file either.
    pub(crate) fn keeps_all(&self) {
        self.keeps_all.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_room(&self) {
        *self.left.lock().unwrap() = None;
        *self.makes_no.lock().unwrap() = None;
        self.keeps_all.store(false, Ordering::SeqCst);
    }
}

impl Watch for Room {
    fn opens(&self, path: &str, how: Open, _: ReadFrom) -> io::Result<()> {
        let makes_no = *self.makes_no.lock().unwrap();
        match how == Open::Create && makes_no.is_some_and(|suffix| path.ends_with(suffix)) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn finds_room(&self, path: &str) -> Option<usize> {
        let left = *self.left.lock().unwrap();
        left.filter(|(suffix, _)| path.ends_with(suffix)).map(|(_, bytes)| bytes)
    }

    fn cuts(&self, _: &str) -> io::Result<()> {
        if self.keeps_all.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
