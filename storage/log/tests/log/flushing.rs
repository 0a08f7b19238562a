//! Making logs durable: the batches alone, many logs at once.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tarn_log::disk::Open;
use tarn_log::{
    Descriptors, Flushed, Log, LogConfig, LogDir, LogError, Opening, Reach, ReadFrom, RealDisk, Together,
    close_together, flush_together,
};
use tarn_record::{Epoch, Offset, PartitionIndex};

use crate::watched_disk::{Synced, Watch, WatchedDisk};
use crate::world::*;

#[test]
fn a_flush_of_batches_leaves_new_epochs_to_the_next_flush_of_everything() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    flush(&mut log);
    mirror(&mut log, &[batch(0, 3, 4)]).unwrap();
    flush_batches(&mut log);
    assert_eq!((log.flushed_to(), log.recovery_point()), (Offset(3), Offset(0)));
    assert!(log.flush_batches_job().is_none() && log.unflushed_bytes() > 0);
    assert!(!world.names().contains(&EPOCHS.to_owned()));
    flush(&mut log);
    assert_eq!((log.flushed_to(), log.recovery_point()), (Offset(3), Offset(3)));
    assert!(log.flush_job().is_none() && log.unflushed_bytes() == 0);
    assert!(world.names().contains(&EPOCHS.to_owned()));
    mirror(&mut log, &[batch(3, 1, 4)]).unwrap();
    flush_batches(&mut log);
    assert_eq!(log.recovery_point(), Offset(4), "the file has all epochs");
}

#[test]
fn epochs_that_were_not_saved_are_read_from_the_batches_after_a_crash() {
    let world = World::new(segments_of(300));
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 3, 4), batch(3, 3, 5)]).unwrap();
    flush(&mut log);
    mirror(&mut log, &[batch(6, 3, 6), batch(9, 3, 8)]).unwrap();
    flush_batches(&mut log);
    let (epochs, recovery_point) = (starts(&log), log.recovery_point());
    assert_eq!(recovery_point, Offset(6));
    drop(log);
    assert_eq!(starts(&world.open_unclean(recovery_point.0).0), epochs);
}

#[test]
fn a_truncation_takes_back_what_was_flushed() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    mirror(&mut log, &[batch(0, 3, 4), batch(3, 3, 5)]).unwrap();
    let late = log.flush_batches_job().unwrap();
    log.truncate_to(Offset(3), NOW).unwrap().removal.run().unwrap();
    log.flushed(late.run().unwrap()).unwrap();
    assert_eq!(log.flushed_to(), Offset(0), "what is there now may be other bytes");
    flush_batches(&mut log);
    assert_eq!(log.flushed_to(), Offset(3));
    log.truncate_to(Offset(0), NOW).unwrap().removal.run().unwrap();
    assert_eq!(log.flushed_to(), Offset(0));
}

#[test]
fn few_logs_are_synced_file_by_file_and_many_by_one_sync_of_their_file_system() {
    let mut many = Logs::new(200);
    assert_eq!(many.flush(Together::of(200)), vec![Offset(2); 200]);
    assert_eq!((many.disk.file_systems(), many.disk.files()), (1, 0));
    let mut few = Logs::new(3);
    assert_eq!(few.flush(Together::of(3)), vec![Offset(2); 3]);
    assert_eq!(few.disk.file_systems(), 0);
    assert!(few.disk.files() >= 3);
}

#[test]
fn what_a_file_system_does_not_tell_its_files_are_asked() {
    let mut logs = Logs::new(3);
    logs.disk.answers(Ok(Reach::Unknown));
    assert_eq!(logs.flush(Together::Many), vec![Offset(2); 3]);
    assert_eq!(logs.disk.file_systems(), 1);
    assert!(logs.disk.files() >= 3);
}

#[test]
fn a_file_system_that_failed_has_flushed_nothing() {
    let mut logs = Logs::new(3);
    logs.disk.answers(Err(libc::EIO));
    let jobs = logs.logs.iter_mut().map(|log| log.flush_batches_job().unwrap()).collect();
    let results: Vec<Result<Flushed, LogError>> = flush_together(jobs, Together::Many);
    assert_eq!(results.len(), 3);
    for result in results {
        let error = result.unwrap_err();
        assert!(!error.is_full() && error.to_string().contains("Input/output error"), "{error}");
    }
    assert_eq!((logs.disk.file_systems(), logs.disk.files()), (1, 0), "it is asked once, and never again");
}

#[test]
fn the_epochs_of_many_logs_are_saved_with_the_rest() {
    let mut logs = Logs::new(3);
    let jobs = logs.logs.iter_mut().map(|log| log.flush_job().unwrap()).collect();
    for (log, result) in logs.logs.iter_mut().zip(flush_together(jobs, Together::Many)) {
        log.flushed(result.unwrap()).unwrap();
        assert_eq!(log.recovery_point(), Offset(2));
    }
    let saved = logs.root.path().join("orders-1").join(EPOCHS);
    assert_eq!(std::fs::read_to_string(saved).unwrap(), "0\n1\n4 0\n");
}

#[test]
fn many_logs_are_closed_by_two_syncs_of_their_file_system_and_open_as_they_were() {
    let closed = |together: Together| {
        let mut logs = Logs::new(200);
        close_together(logs.logs.iter_mut().collect(), together).unwrap();
        let syncs = (logs.disk.file_systems(), logs.disk.files());
        logs.logs.clear();
        let dir = LogDir::open(Arc::new(RealDisk), logs.root.path(), Descriptors::new(1000)).unwrap();
        for number in 0..200 {
            let opening = Opening { clean: true, recovery_point: Offset(2), log_start: Offset(0) };
            let partition = PartitionIndex(number);
            let (mut log, report) =
                Log::open(&dir, TOPIC, partition, LogConfig::default(), opening, NOW).unwrap();
            assert_eq!((log.end(), starts(&log).len(), report.checked_bytes), (Offset(2), 1, 0));
            assert!(log.flush_job().is_none(), "nothing is left to be done");
        }
        let files = |number: i32| {
            let path = logs.root.path().join(format!("orders-{number}"));
            let mut names: Vec<_> =
                std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        (syncs, files(7))
    };
    let (many, files) = closed(Together::of(200));
    assert_eq!(many, (2, 0));
    let ((file_systems, synced), one_by_one) = closed(Together::Few);
    assert_eq!((file_systems, synced > 200), (0, true));
    assert_eq!(files, one_by_one);
}

#[test]
fn where_a_file_system_does_not_tell_each_log_is_closed_by_itself() {
    let mut logs = Logs::new(3);
    logs.disk.answers(Ok(Reach::Unknown));
    close_together(logs.logs.iter_mut().collect(), Together::Many).unwrap();
    assert_eq!(logs.disk.file_systems(), 1);
    assert!(logs.disk.files() >= 12, "{}", logs.disk.files());
    let mut failing = Logs::new(3);
    failing.disk.answers(Err(libc::EIO));
    let error = close_together(failing.logs.iter_mut().collect(), Together::Many).unwrap_err();
    assert!(!error.is_full() && error.to_string().contains("Input/output error"), "{error}");
    assert!(!failing.root.path().join("orders-1").join(EPOCHS).exists(), "nothing is replaced");
}

#[test]
fn what_was_closed_is_not_synced_again() {
    let mut logs = Logs::new(200);
    close_together(logs.logs.iter_mut().collect(), Together::Many).unwrap();
    logs.logs.clear();
    let dir =
        LogDir::open(Arc::new(WatchedDisk(logs.disk.clone())), logs.root.path(), Descriptors::new(1000))
            .unwrap();
    let before = (logs.disk.file_systems(), logs.disk.files());
    let mut opened: Vec<Log> = (0..200)
        .map(|number| {
            let opening = Opening { clean: true, recovery_point: Offset(2), log_start: Offset(0) };
            let partition = PartitionIndex(number);
            Log::open(&dir, TOPIC, partition, LogConfig::default(), opening, NOW).unwrap().0
        })
        .collect();
    close_together(opened.iter_mut().collect(), Together::Many).unwrap();
    assert_eq!((logs.disk.file_systems(), logs.disk.files()), before);
}

#[test]
fn what_a_crash_left_as_it_was_flushed_is_opened_without_a_sync() {
    for records in [0, 2] {
        let (root, disk) = (tempfile::tempdir().unwrap(), Arc::new(Counts::default()));
        let dir =
            LogDir::open(Arc::new(WatchedDisk(disk.clone())), root.path(), Descriptors::new(1000)).unwrap();
        let config = LogConfig::default;
        let mut log = Log::create(&dir, TOPIC, PartitionIndex(0), TOPIC_ID, config(), NOW).unwrap();
        log.begin_epoch(Epoch(4)).unwrap();
        if records > 0 {
            mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
        }
        flush(&mut log);
        drop(log);
        let saved = root.path().join("orders-0").join(EPOCHS);
        assert_eq!(saved.exists(), records > 0, "an epoch without a batch says nothing");
        let before = disk.files();
        let opening = Opening { clean: false, recovery_point: Offset(records), log_start: Offset(0) };
        let (mut log, report) = Log::open(&dir, TOPIC, PartitionIndex(0), config(), opening, NOW).unwrap();
        assert_eq!((log.end(), report.checked_bytes), (Offset(records), 0));
        log.begin_epoch(Epoch(4)).unwrap();
        assert_eq!(disk.files(), before, "{records} records");
        // The names may be in the cache only: the process was killed, and the power can still fail.
        mirror(&mut log, &[batch(records, 2, 4)]).unwrap();
        flush(&mut log);
        let (root, names, data, epochs) = (1, 1, 2, if records > 0 { 0 } else { 2 });
        assert_eq!(disk.files() - before, root + names + data + epochs, "{records} records");
        assert_eq!(std::fs::read_to_string(&saved).unwrap(), "0\n1\n4 0\n");
    }
}

#[test]
fn names_that_a_killed_process_left_are_synced_by_the_first_flush_however_often_the_log_was_opened_meanwhile()
{
    let (root, disk) = (tempfile::tempdir().unwrap(), Arc::new(Counts::default()));
    let dir = LogDir::open(Arc::new(WatchedDisk(disk.clone())), root.path(), Descriptors::new(1000)).unwrap();
    let config = LogConfig::default;
    let log = Log::create(&dir, TOPIC, PartitionIndex(0), TOPIC_ID, config(), NOW).unwrap();
    drop(log);
    let before = disk.files();
    for clean in [false, true] {
        let opening = Opening { clean, recovery_point: Offset(0), log_start: Offset(0) };
        let (mut log, _) = Log::open(&dir, TOPIC, PartitionIndex(0), config(), opening, NOW).unwrap();
        log.close().unwrap();
    }
    assert_eq!(disk.files(), before, "it holds nothing yet");
    let opening = Opening { clean: true, recovery_point: Offset(0), log_start: Offset(0) };
    let (mut log, _) = Log::open(&dir, TOPIC, PartitionIndex(0), config(), opening, NOW).unwrap();
    mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
    flush_batches(&mut log);
    let (data, metadata, names, root) = (1, 1, 1, 1);
    assert_eq!(disk.files() - before, data + metadata + names + root);
}

#[test]
fn an_epoch_is_written_down_with_its_first_batch_and_costs_nothing_before() {
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    produce(&mut log, 3);
    log.close().unwrap();
    let mut log = world.open_clean();
    let newer = Epoch(log.latest_epoch().0 + 1);
    log.begin_epoch(newer).unwrap();
    assert!(log.flush_job().is_none());
    let saved = || std::fs::read_to_string(world.path().join(EPOCHS)).unwrap();
    let before = saved();
    log.close().unwrap();
    assert_eq!(saved(), before);
    let mut log = world.open_clean();
    log.begin_epoch(newer).unwrap();
    mirror(&mut log, &[batch(3, 1, newer.0)]).unwrap();
    flush(&mut log);
    assert!(saved().ends_with(&format!("{newer} 3\n")), "{}", saved());
}

#[test]
fn a_flush_of_a_log_that_lacks_nothing_drops_what_a_refused_write_left_whole() {
    for records in [0, 2] {
        let (root, disk) = (tempfile::tempdir().unwrap(), Arc::new(Counts::default()));
        let dir =
            LogDir::open(Arc::new(WatchedDisk(disk.clone())), root.path(), Descriptors::new(1000)).unwrap();
        let mut log =
            Log::create(&dir, TOPIC, PartitionIndex(0), TOPIC_ID, LogConfig::default(), NOW).unwrap();
        flush(&mut log);
        if records > 0 {
            mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
            flush(&mut log);
        }
        let file = root.path().join("orders-0/00000000000000000000.log");
        let bytes = || std::fs::metadata(&file).unwrap().len();
        let kept = bytes();
        let refused = [batch(records, 2, 4), batch(records + 2, 2, 4)];
        disk.takes(Some(refused[0].bytes().len()));
        disk.cuts_nothing.store(true, Ordering::Relaxed);
        mirror(&mut log, &refused).unwrap_err();
        disk.takes(None);
        disk.cuts_nothing.store(false, Ordering::Relaxed);
        assert_eq!(
            bytes() - kept,
            refused[0].bytes().len() as u64,
            "a recovery would find the first of them"
        );
        flush_batches(&mut log);
        assert_eq!(bytes(), kept);
        assert!(log.flush_batches_job().is_none());
    }
}

#[test]
fn a_log_without_a_batch_ends_where_it_did_also_where_no_new_file_finds_room() {
    // The name of the only segment's file is all that tells where such a log ends.
    let (root, disk) = (tempfile::tempdir().unwrap(), Arc::new(Counts::default()));
    let open_dir = || LogDir::open(Arc::new(WatchedDisk(disk.clone())), root.path(), Descriptors::new(1000));
    let dir = open_dir().unwrap();
    let mut log = Log::create(&dir, TOPIC, PartitionIndex(0), TOPIC_ID, LogConfig::default(), NOW).unwrap();
    mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
    log.truncate_fully_and_start_at(Offset(30), NOW).unwrap().removal.run().unwrap();
    flush(&mut log);
    let job = log.flush_job();
    assert!(job.is_none(), "what was cut is on the disk");
    disk.takes(Some(10));
    mirror(&mut log, &[batch(30, 2, 4)]).unwrap_err();
    let job = log.flush_batches_job().unwrap();
    disk.makes_no_files.store(true, Ordering::Relaxed);
    mirror(&mut log, &[batch(30, 2, 4)]).unwrap_err();
    let _ = job.run();
    drop((log, dir));
    disk.takes(None);
    disk.makes_no_files.store(false, Ordering::Relaxed);
    let opening = Opening { clean: false, recovery_point: Offset(0), log_start: Offset(0) };
    let dir = open_dir().unwrap();
    let opened = Log::open(&dir, TOPIC, PartitionIndex(0), LogConfig::default(), opening, NOW);
    let (mut log, _) = opened.unwrap();
    assert_eq!((log.start(), log.end()), (Offset(30), Offset(30)));
    mirror(&mut log, &[batch(30, 2, 4)]).unwrap();
    assert_eq!(spans(&read_all(&log, Offset(30), 1000)), [(30, 31)]);
}

#[test]
fn a_small_segment_is_closed_with_both_its_indexes_or_with_none() {
    // Kafka's log reader dies of a time index beside which there is no offset index.
    let world = World::new(LogConfig::default());
    let mut log = world.create();
    log.close().unwrap();
    assert_eq!(world.indexes(), Vec::<String>::new());
    produce(&mut log, 3);
    log.close().unwrap();
    assert_eq!(world.indexes(), ["00000000000000000000.index", "00000000000000000000.timeindex"]);
}

const EPOCHS: &str = "leader-epoch-checkpoint";

/// Logs of two records each, none of which was flushed.
struct Logs {
    logs: Vec<Log>,
    disk: Arc<Counts>,
    root: tempfile::TempDir,
}

impl Logs {
    fn new(count: i32) -> Logs {
        let (root, disk) = (tempfile::tempdir().unwrap(), Arc::new(Counts::default()));
        let dir =
            LogDir::open(Arc::new(WatchedDisk(disk.clone())), root.path(), Descriptors::new(1000)).unwrap();
        let logs = (0..count).map(|number| {
            let (partition, config) = (PartitionIndex(number), LogConfig::default());
            let mut log = Log::create(&dir, TOPIC, partition, TOPIC_ID, config, NOW).unwrap();
            mirror(&mut log, &[batch(0, 2, 4)]).unwrap();
            log
        });
        Logs { logs: logs.collect(), disk, root }
    }

    /// Flushes all; up to where each is flushed then.
    fn flush(&mut self, together: Together) -> Vec<Offset> {
        let jobs = self.logs.iter_mut().map(|log| log.flush_batches_job().unwrap()).collect();
        let flushed = self.logs.iter_mut().zip(flush_together(jobs, together));
        flushed
            .map(|(log, result)| {
                log.flushed(result.unwrap()).unwrap();
                log.flushed_to()
            })
            .collect()
    }
}

/// It counts the syncs, and says of those of file systems what a test wants.
#[derive(Debug, Default)]
struct Counts {
    files: AtomicUsize,
    file_systems: AtomicUsize,
    answer: Mutex<Option<Result<Reach, i32>>>,
    /// So many bytes of a write find room.
    takes: Mutex<Option<usize>>,
    /// There is no room for a file more.
    makes_no_files: AtomicBool,
    /// It refuses to cut files.
    cuts_nothing: AtomicBool,
}

impl Counts {
    fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }

    fn file_systems(&self) -> usize {
        self.file_systems.load(Ordering::Relaxed)
    }

    fn answers(&self, answer: Result<Reach, i32>) {
        *self.answer.lock().unwrap() = Some(answer);
    }

    fn takes(&self, bytes: Option<usize>) {
        *self.takes.lock().unwrap() = bytes;
    }
}

impl Watch for Counts {
    fn opens(&self, path: &str, how: Open, _: ReadFrom) -> io::Result<()> {
        let is_new = how == Open::Create && !Path::new(path).exists();
        match is_new && self.makes_no_files.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn finds_room(&self, _: &str) -> Option<usize> {
        *self.takes.lock().unwrap()
    }

    fn cuts(&self, _: &str) -> io::Result<()> {
        if self.cuts_nothing.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn syncs(&self, _: Synced) -> io::Result<()> {
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn syncs_all(&self) -> io::Result<Reach> {
        self.file_systems.fetch_add(1, Ordering::Relaxed);
        match *self.answer.lock().unwrap() {
            Some(answer) => answer.map_err(io::Error::from_raw_os_error),
            None => Ok(Reach::All),
        }
    }
}
