//! Reading without waiting for the disk: what memory has is found as it is on the disk, with as many calls; what it
//! has not is an error at once, and a search on another thread finds it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::Advice;
use tarn_log::disk::Open;
use tarn_log::{
    Aborted, CleanBound, CleanRules, Descriptors, Disk, FirstBatch, Log, LogDir, Opening, Read, ReadError,
    ReadFrom, ReadOrder, RealDisk,
};
use tarn_record::{Offset, Outcome, PartitionIndex, Timestamp};

use crate::watched_disk::{Watch, WatchedDisk};
use crate::world::{Idempotent, NOW, TOPIC, TOPIC_ID, dated, marker, mirror, segments_of};

#[test]
fn what_memory_has_is_found_as_on_the_disk_with_as_many_calls() {
    let world = Cold::new();
    let log = world.log();
    for order in orders(&log) {
        // Segments are opened by the first who needs them.
        log.read_from(&order, ReadFrom::Disk).unwrap();
        let on_disk = world.calls_of(|| log.read_from(&order, ReadFrom::Disk).unwrap());
        let in_memory = world.calls_of(|| log.read_from(&order, ReadFrom::Memory).unwrap());
        assert_eq!(shown(&in_memory.0), shown(&on_disk.0), "{order:?}");
        assert_eq!(in_memory.1, on_disk.1, "{order:?}");
        assert_eq!(shown(&log.read_search(&order).run().unwrap()), shown(&on_disk.0), "{order:?}");
    }
}

#[test]
fn what_is_cold_is_an_error_at_once_whatever_of_it_is() {
    let world = Cold::new();
    let log = world.log();
    for suffix in [".log", ".index", ".txnindex"] {
        let order = ReadOrder { aborted: Aborted::Named, ..order(Offset(25), log.end()) };
        let expected = shown(&log.read_from(&order, ReadFrom::Disk).unwrap());
        world.chill(suffix);
        let (read, waits) = world.waits_of(|| log.read_from(&order, ReadFrom::Memory));
        assert!(matches!(&read, Err(ReadError::Storage(error)) if error.is_cold()), "{suffix}: {read:?}");
        assert_eq!(waits, 0, "{suffix}");
        let (found, waits) = world.waits_of(|| log.read_search(&order).run());
        assert_eq!(shown(&found.unwrap()), expected, "{suffix}");
        assert!(waits > 0, "{suffix}");
        world.warm();
    }
}

#[test]
fn what_is_appended_again_is_looked_up_before_and_what_is_new_is_not() {
    let world = Cold::new();
    let mut log = world.log();
    let again = [dated(0, 3, 0, NOW.0), dated(3, 3, 0, NOW.0 + 1)];
    assert!(log.search_known(&again).is_none(), "memory has it");
    world.chill("");
    let new = [dated(log.end().0, 3, 0, NOW.0)];
    let ((search, nothing), waits) = world.waits_of(|| (log.search_known(&again), log.search_known(&new)));
    assert_eq!((nothing.is_none(), waits), (true, 0));
    let ((), waits) = world.waits_of(|| search.expect("it is cold").run().unwrap());
    assert!(waits > 0);
    assert_eq!(mirror(&mut log, &again).unwrap().skipped, 2);
}

#[test]
fn nothing_is_looked_up_for_a_read_without_room() {
    let world = Cold::new();
    let log = world.log();
    let order = ReadOrder { max_bytes: 0, first_batch: FirstBatch::MustFit, ..order(Offset(0), log.end()) };
    let (read, calls) = world.calls_of(|| log.read_from(&order, ReadFrom::Disk).unwrap());
    assert_eq!((read.plan.bytes, calls), (0, 0));
}

#[test]
fn how_dirty_a_log_is_never_waits_for_the_disk() {
    let world = Cold::new();
    let mut log = world.log();
    let bound = CleanBound { high_watermark: log.end(), recovery_point: log.end() };
    let rules = CleanRules { min_lag_ms: 1, max_lag_ms: 1000, ..CleanRules::default() };
    let now = Timestamp(NOW.0 + 10_000);
    world.chill("");
    let looked = world.waits_of(|| log.dirtiness(Offset(0), &bound, &rules, now));
    assert!(matches!(&looked.0, Err(error) if error.is_cold()), "{:?}", looked.0);
    assert_eq!(looked.1, 0);
    let found = log.search_timestamps(Offset(0)).run().unwrap();
    log.remember_timestamps(&found);
    let (dirt, waits) = world.waits_of(|| log.dirtiness(Offset(0), &bound, &rules, now).unwrap().unwrap());
    assert_eq!(waits, 0);
    world.warm();
    let mut again = world.again(log);
    assert_eq!(again.dirtiness(Offset(0), &bound, &rules, now).unwrap(), Some(dirt));
    assert_eq!(dirt.overdue_ms, 8_998, "the first batch has records of 3 ms");
}

#[test]
fn the_first_append_to_a_log_that_was_opened_asks_the_disk_for_nothing() {
    let world = Cold::new();
    let log = world.log();
    let mut log = world.again(log);
    let end = log.end().0;
    let (_, waits) = world.waits_of(|| mirror(&mut log, &[dated(end, 1, 0, NOW.0)]).unwrap());
    assert_eq!(waits, 0);
}

#[test]
fn a_file_that_the_kernel_has_let_go_is_cold_until_it_was_read() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("0.log");
    let file = RealDisk.open(&path, Open::Create).unwrap();
    file.write_at(&[IoSlice::new(&[7; 1 << 20])], 0).unwrap();
    let mut bytes = [0; 4096];
    assert_eq!(file.read_cached_at(&mut bytes, 4096).unwrap(), 4096, "it was just written");
    assert_eq!(file.read_cached_at(&mut bytes, (1 << 20) - 10).unwrap(), 10, "up to the end of the file");
    file.sync_data().unwrap();
    let descriptor = file.file().unwrap();
    // One page is one page: no reading ahead of what was asked for.
    rustix::fs::fadvise(&descriptor, 0, None, Advice::Random).unwrap();
    // The kernel keeps pages that another CPU is just looking at; a file system in memory keeps all.
    let cold = (0..1000).find_map(|_| {
        rustix::fs::fadvise(&descriptor, 0, None, Advice::DontNeed).unwrap();
        file.read_cached_at(&mut bytes, 8192).err()
    });
    let Some(cold) = cold else { return };
    assert_eq!(cold.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(file.read_at(&mut bytes, 8192).unwrap(), 4096);
    assert_eq!(file.read_cached_at(&mut bytes, 8192).unwrap(), 4096);
    assert_eq!(bytes, [7; 4096]);
    let opened = RealDisk.open_cached(&path, Open::Read).unwrap();
    assert_eq!(opened.len().unwrap(), 1 << 20, "its name was just used");
}

/// Reads that begin and end wherever, with room for little and for all.
fn orders(log: &Log) -> Vec<ReadOrder> {
    let offsets = (0..=log.end().0).step_by(3).map(Offset);
    let pairs = offsets.clone().flat_map(|from| offsets.clone().map(move |upper| (from, upper)));
    let sizes = pairs.flat_map(|pair| [0, 300, 1 << 20].map(|max_bytes| (pair, max_bytes)));
    let order = |((from, upper), max_bytes)| ReadOrder {
        max_bytes,
        aborted: if max_bytes == 300 { Aborted::Unnamed } else { Aborted::Named },
        ..order(from, upper)
    };
    sizes.map(order).collect()
}

fn order(from: Offset, upper: Offset) -> ReadOrder {
    let (max_bytes, first_batch) = (1 << 20, FirstBatch::MayBeLarger);
    ReadOrder { from, max_bytes, first_batch, upper, aborted: Aborted::Unnamed }
}

/// The slices of a read, and what it names.
fn shown(read: &Read) -> String {
    let slices: Vec<_> = read.plan.slices.iter().map(|slice| (slice.position(), slice.len())).collect();
    format!("{} {slices:?} {} {:?}", read.plan.first_offset, read.plan.first_batch_bytes, read.aborted)
}

/// A disk of which some files are cold.
#[derive(Debug, Default)]
struct Cold(Arc<Chill>);

#[derive(Debug, Default)]
struct Chill {
    directory: Mutex<Option<tempfile::TempDir>>,
    /// Files whose names end like this are not in memory.
    suffix: Mutex<Option<&'static str>>,
    calls: AtomicU32,
    /// Calls that had to wait.
    waits: AtomicU32,
}

impl Cold {
    fn new() -> Cold {
        let cold = Cold::default();
        *cold.0.directory.lock().unwrap() = Some(tempfile::tempdir().unwrap());
        cold
    }

    fn directory(&self) -> Arc<LogDir> {
        let path = self.0.directory.lock().unwrap().as_ref().unwrap().path().to_owned();
        LogDir::open(Arc::new(WatchedDisk(self.0.clone())), &path, Descriptors::new(100)).unwrap()
    }

    /// A log of several segments with aborted transactions, opened again so that little of it is in its memory.
    fn log(&self) -> Log {
        let directory = self.directory();
        let mut log =
            Log::create(&directory, TOPIC, PartitionIndex(0), TOPIC_ID, segments_of(900), NOW).unwrap();
        for number in 0..20 {
            let base = log.end().0;
            mirror(&mut log, &[dated(base, 3, 0, NOW.0 + number)]).unwrap();
            if number % 5 == 4 {
                let producer = Idempotent { id: number, epoch: 0, sequence: 0, transactional: true };
                let base = log.end().0;
                mirror(&mut log, &[producer.batch(base, 2, 0), marker(number, Outcome::Abort, base + 2)])
                    .unwrap();
            }
        }
        drop(directory);
        self.again(log)
    }

    fn again(&self, mut log: Log) -> Log {
        log.close().unwrap();
        drop(log);
        let opening = Opening { clean: true, recovery_point: Offset(0), log_start: Offset(0) };
        let config = segments_of(900);
        Log::open(&self.directory(), TOPIC, PartitionIndex(0), config, opening, NOW).unwrap().0
    }

    fn chill(&self, suffix: &'static str) {
        *self.0.suffix.lock().unwrap() = Some(suffix);
    }

    fn warm(&self) {
        *self.0.suffix.lock().unwrap() = None;
    }

    fn calls_of<R>(&self, what: impl FnOnce() -> R) -> (R, u32) {
        self.0.calls.store(0, Ordering::SeqCst);
        let result = what();
        (result, self.0.calls.load(Ordering::SeqCst))
    }

    fn waits_of<R>(&self, what: impl FnOnce() -> R) -> (R, u32) {
        self.0.waits.store(0, Ordering::SeqCst);
        let result = what();
        (result, self.0.waits.load(Ordering::SeqCst))
    }
}

impl Chill {
    fn is_cold(&self, path: &str) -> bool {
        self.suffix.lock().unwrap().is_some_and(|suffix| path.ends_with(suffix))
    }
}

impl Watch for Chill {
    fn opens(&self, path: &str, how: Open, from: ReadFrom) -> io::Result<()> {
        if how == Open::Create { Ok(()) } else { self.reads(path, from) }
    }

    fn reads(&self, path: &str, from: ReadFrom) -> io::Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match (from, self.is_cold(path)) {
            (ReadFrom::Memory, true) => Err(io::ErrorKind::WouldBlock.into()),
            (ReadFrom::Memory, false) => Ok(()),
            (ReadFrom::Disk, _) => {
                self.waits.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }
}
