//! What the metadata log keeps, and what it refuses to go on without.

use super::*;
use tarn_log::checkpoints::CleanShutdown;
use tarn_log::{Descriptors, RealDisk};
use tarn_wire::messages::FeatureLevelRecord;
use tempfile::TempDir;

const EPOCH: Epoch = Epoch(1);
const MARK: &str = CleanShutdown::FILE_NAME;

#[test]
fn a_log_that_is_too_large_goes_up_to_a_snapshot_and_is_read_from_there() {
    let world = World::new(limits(6000, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    for round in 1..=5 {
        append(&mut log, 100, Timestamp(round));
        snapshot(&mut log, Timestamp(round));
    }
    append(&mut log, 3, Timestamp(6));
    let (end, before) = (log.end(), world.files(".log"));
    shorten(&mut log, Timestamp(6));
    assert!(world.files(".log") < before, "segments went");
    let (start, kept) = (log.log.start(), world.files(".checkpoint"));
    assert!(Offset(0) < start && start < end && kept < 5, "{start} {kept}");
    assert_eq!(Some(start), log.snapshots.first().map(|oldest| oldest.id.end_offset));
    log.close().expect("there is room");
    let again = world.open(Timestamp(7)).expect("snapshot and log make it whole");
    assert_eq!(again.snapshot.map(|(id, _)| id.end_offset), Some(end.plus(-3)));
    assert_eq!((again.batches.len(), again.log.end()), (3, end));
}

#[test]
fn a_snapshot_that_is_too_old_goes_with_the_log_below_the_next() {
    let world = World::new(limits(-1, 1000));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    for at in [0, 500, 5000] {
        append(&mut log, 10, Timestamp(at));
        snapshot(&mut log, Timestamp(at));
    }
    shorten(&mut log, Timestamp(1000));
    assert_eq!(log.snapshots.len(), 3, "none is older than that");
    shorten(&mut log, Timestamp(1500));
    assert_eq!((log.snapshots.len(), log.log.start()), (2, Offset(20)));
    log.close().expect("there is room");
    let again = world.open(Timestamp(9000)).expect("it is whole").log;
    let kept: Vec<_> = again.snapshots.iter().map(|one| one.last_timestamp).collect();
    assert_eq!(kept, [Some(Timestamp(500)), Some(Timestamp(5000))], "as the files say");
}

#[test]
fn a_log_without_the_snapshot_that_reaches_its_start_is_not_taken_for_whole() {
    let world = World::new(limits(0, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    for round in 1..=3 {
        append(&mut log, 100, Timestamp(round));
        snapshot(&mut log, Timestamp(round));
    }
    shorten(&mut log, Timestamp(4));
    log.close().expect("there is room");
    for kept in log.snapshots {
        std::fs::remove_file(log.dir.join(kept.id.to_string())).expect("it is there");
    }
    let refused = world.open(Timestamp(5)).map(|_| ());
    assert!(matches!(refused, Err(MetadataLogError::Gap { .. })), "{refused:?}");
}

#[test]
fn a_snapshot_beyond_the_log_is_where_the_log_goes_on() {
    let world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 10, Timestamp(1));
    let id = SnapshotId { end_offset: Offset(50), epoch: EPOCH };
    log.write_snapshot(id, &[record()], Timestamp(2)).expect("there is room");
    log.close().expect("there is room");
    let mut again = world.open(Timestamp(3)).expect("the snapshot says it all").log;
    assert_eq!(again.append(&[record()], EPOCH, Timestamp(4)).expect("there is room"), Offset(50));
}

#[test]
fn committed_metadata_that_is_damaged_is_not_cut_but_told_with_its_offset() {
    let mut world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 40, Timestamp(1));
    log.close().expect("there is room");
    world.mark_clean(log.end());
    drop(log);
    world.reopen();
    let size = world.flip(20);
    let refused = world.open(Timestamp(2)).map(drop).expect_err("it was all on the disk");
    let message = refused.to_string();
    assert!(
        message.contains("00000000000000000000.log") && message.contains("Put the file back"),
        "{message}"
    );
    let MetadataLogError::Damaged { damage, .. } = refused else { panic!("{message}") };
    assert!(Offset(0) < damage.offset && damage.offset < Offset(40), "{damage:?}");
    assert_eq!(world.flip(20), size, "nothing was cut");
    assert_eq!(world.open(Timestamp(3)).expect("it is whole again").log.end(), Offset(40));
}

#[test]
fn after_a_crash_damage_that_right_batches_follow_is_not_cut_and_the_remedy_works() {
    let mut world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 40, Timestamp(1));
    let end = log.end();
    drop(log);
    for is_clean in [false, true] {
        if is_clean {
            world.mark_clean(end);
        }
        world.reopen();
        world.flip(20);
        let (damage, remedy) = world.damage();
        assert!(damage.offset > Offset(0) && damage.is_followed && damage.path == world.log());
        let segments = world.paths(".log");
        assert!(segments.len() > 1);
        if !is_clean {
            world.flip(20);
            continue;
        }
        let file = std::fs::OpenOptions::new().write(true).open(&damage.path).expect("it is there");
        file.set_len(damage.position).expect("there is room");
        let later = segments.iter().filter(|path| **path != damage.path);
        later.for_each(|path| std::fs::remove_file(path).expect("it is there"));
        // Else it is not known that a person wants it shorter.
        assert!(remedy.ends_with(&format!(", and remove {}", world.files.path().join(MARK).display())));
        world.lose_the_mark();
        let again = world.open(Timestamp(3)).expect("it goes on before the damage");
        assert_eq!((again.log.end(), again.batches.len() as i64), (damage.offset, damage.offset.0));
    }
}

#[test]
fn a_log_that_lost_its_newest_part_since_a_clean_stop_is_refused_until_the_mark_is_removed() {
    for has_snapshot in [false, true] {
        for lose in [World::lose_the_newest_segment, World::cut_the_newest_batch, World::lose_all_segments] {
            let mut world = World::new(limits(-1, -1));
            let mut log = world.open(Timestamp(0)).expect("it is new").log;
            append(&mut log, 40, Timestamp(1));
            if has_snapshot {
                snapshot(&mut log, Timestamp(2));
                append(&mut log, 2, Timestamp(3));
            }
            log.close().expect("there is room");
            world.mark_clean(log.end());
            let whole = log.end();
            drop(log);
            lose(&world);
            world.reopen();
            for _ in 0..2 {
                let before = world.contents();
                let refused = world.open(Timestamp(4)).map(drop).expect_err("a part of it is gone");
                let MetadataLogError::Shortened { end, marked, .. } = refused else { panic!("{refused}") };
                assert!(end < whole && marked == whole, "{end} of {marked}");
                assert!(refused.to_string().contains(MARK), "{refused}");
                assert_eq!(world.contents(), before, "nothing was written");
            }
            world.lose_the_mark();
            let again = world.open(Timestamp(5)).expect("after a crash a log may be short");
            assert!(again.log.end() < whole);
        }
    }
}

#[test]
fn a_log_that_is_as_the_mark_says_or_longer_or_of_which_it_says_nothing_is_opened() {
    let mut world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 10, Timestamp(1));
    log.close().expect("there is room");
    drop(log);
    for metadata_end in [None, Some(Offset(0)), Some(Offset(9)), Some(Offset(10))] {
        let mark = CleanShutdown { broker_epoch: 1, metadata_end };
        world.dir.mark_clean(mark).expect("there is room");
        world.reopen();
        assert_eq!(world.open(Timestamp(2)).expect("it is whole").log.end(), Offset(10));
    }
    // Kafka's own.
    std::fs::write(world.files.path().join(MARK), r#"{"version":0,"brokerEpoch":7}"#).expect("there is room");
    world.cut_the_newest_batch();
    world.reopen();
    assert!(world.dir.was_clean());
    assert_eq!(world.open(Timestamp(3)).expect("nothing is known of its end").log.end(), Offset(9));
}

#[test]
fn a_snapshot_that_reaches_as_far_as_the_mark_stands_for_the_log() {
    let mut world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 10, Timestamp(1));
    snapshot(&mut log, Timestamp(2));
    log.close().expect("there is room");
    world.mark_clean(log.end());
    drop(log);
    world.lose_all_segments();
    world.reopen();
    assert_eq!(world.open(Timestamp(3)).expect("the snapshot has it all").log.end(), Offset(10));
}

#[test]
fn a_damaged_segment_below_the_snapshot_is_all_that_has_to_go() {
    for is_clean in [false, true] {
        let mut world = World::new(limits(-1, -1));
        let mut log = world.open(Timestamp(0)).expect("it is new").log;
        append(&mut log, 40, Timestamp(1));
        snapshot(&mut log, Timestamp(2));
        append(&mut log, 5, Timestamp(3));
        log.close().expect("there is room");
        if is_clean {
            world.mark_clean(log.end());
        }
        drop(log);
        world.reopen();
        world.flip(20);
        let (damage, remedy) = world.damage();
        assert!(remedy.starts_with("move this one file") && !remedy.contains(MARK), "{remedy}");
        std::fs::remove_file(damage.path).expect("it is there");
        let again = world.open(Timestamp(4)).expect("the snapshot has what was in it");
        assert_eq!((again.log.end(), again.batches.len()), (Offset(45), 5));
    }
}

#[test]
fn without_its_segments_a_log_goes_on_where_the_snapshot_ends() {
    let mut world = World::new(MetadataLogConfig { segment_bytes: 1 << 20, ..limits(-1, -1) });
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 40, Timestamp(1));
    snapshot(&mut log, Timestamp(2));
    append(&mut log, 5, Timestamp(3));
    drop(log);
    world.reopen();
    world.flip(20);
    let (damage, remedy) = world.damage();
    assert!(remedy.ends_with("move the .log files out of that directory"), "{remedy} for {damage:?}");
    world.paths(".log").iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
    let again = world.open(Timestamp(4)).expect("the snapshot is whole");
    assert_eq!((again.log.end(), again.batches.len()), (Offset(40), 0));
}

#[test]
fn after_a_crash_what_no_snapshot_has_is_cut_where_it_is_damaged_and_the_rest_is_not() {
    let mut world = World::new(limits(-1, -1));
    let mut log = world.open(Timestamp(0)).expect("it is new").log;
    append(&mut log, 10, Timestamp(1));
    snapshot(&mut log, Timestamp(2));
    append(&mut log, 2, Timestamp(3));
    drop(log);
    world.reopen();
    let path = world.log();
    let whole = std::fs::read(&path).expect("it is there");
    std::fs::write(&path, &whole[..whole.len() - 3]).expect("there is room");
    assert_eq!(world.open(Timestamp(4)).expect("a torn tail").log.end(), Offset(11));
    world.flip(5);
    let refused = world.open(Timestamp(5)).map(drop);
    assert!(matches!(refused, Err(MetadataLogError::Damaged { .. })), "{refused:?}");
}

#[test]
fn a_segment_that_is_gone_from_the_middle_matters_where_no_snapshot_has_it() {
    for has_snapshot in [true, false] {
        let mut world = World::new(limits(-1, -1));
        let mut log = world.open(Timestamp(0)).expect("it is new").log;
        append(&mut log, 100, Timestamp(1));
        if has_snapshot {
            snapshot(&mut log, Timestamp(2));
            append(&mut log, 2, Timestamp(3));
        } else {
            log.close().expect("there is room");
            world.mark_clean(log.end());
        }
        let end = log.end();
        drop(log);
        world.reopen();
        let mut segments: Vec<_> = world.paths(".log");
        segments.sort();
        std::fs::remove_file(&segments[1]).expect("there are several");
        match world.open(Timestamp(4)) {
            Ok(opened) => assert_eq!((has_snapshot, opened.log.end()), (true, end)),
            Err(MetadataLogError::Gap { .. }) => assert!(!has_snapshot),
            Err(error) => panic!("{error}"),
        }
    }
}

struct World {
    dir: Arc<LogDir>,
    limits: MetadataLogConfig,
    files: TempDir,
}

impl World {
    fn new(limits: MetadataLogConfig) -> World {
        let files = tempfile::tempdir().expect("a directory");
        let dir = LogDir::open(Arc::new(RealDisk), files.path(), Descriptors::new(100));
        World { dir: dir.expect("it is new"), limits, files }
    }

    fn open(&self, now: Timestamp) -> Result<Opened, MetadataLogError> {
        MetadataLog::open(&self.dir, None, &self.limits, now)
    }

    /// The directory as the next start finds it.
    fn reopen(&mut self) {
        let other = tempfile::tempdir().expect("a directory");
        let unused = LogDir::open(Arc::new(RealDisk), other.path(), Descriptors::new(100));
        self.dir = unused.expect("it is new");
        let dir = LogDir::open(Arc::new(RealDisk), self.files.path(), Descriptors::new(100));
        self.dir = dir.expect("nobody has it");
    }

    fn mark_clean(&self, end: Offset) {
        let mark = CleanShutdown { broker_epoch: 1, metadata_end: Some(end) };
        self.dir.mark_clean(mark).expect("there is room");
    }

    /// The directory as the next start finds it without the mark of a clean stop.
    fn lose_the_mark(&mut self) {
        let _ = std::fs::remove_file(self.files.path().join(MARK));
        self.reopen();
    }

    fn lose_the_newest_segment(&self) {
        let newest = self.paths(".log").into_iter().max().expect("there are segments");
        std::fs::remove_file(newest).expect("it is there");
    }

    fn lose_all_segments(&self) {
        self.paths(".log").iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
    }

    fn cut_the_newest_batch(&self) {
        let newest = self.paths(".log").into_iter().max().expect("there are segments");
        let bytes = std::fs::read(&newest).expect("it is there");
        let last = batches(bytes.clone().into()).last().expect("it has batches").expect("they are whole");
        let left = bytes.len() - last.bytes().len();
        std::fs::write(&newest, &bytes[..left]).expect("there is room");
    }

    /// Every segment's name and length.
    fn contents(&self) -> Vec<(PathBuf, u64)> {
        let len = |path: &PathBuf| std::fs::metadata(path).expect("it is there").len();
        let mut contents: Vec<_> =
            self.paths(".log").into_iter().map(|path| (path.clone(), len(&path))).collect();
        contents.sort();
        contents
    }

    /// Why the log is not opened.
    fn damage(&self) -> (Damage, String) {
        match self.open(Timestamp(9)) {
            Err(MetadataLogError::Damaged { damage, remedy }) => (damage, remedy),
            other => panic!("it is damaged: {:?}", other.map(drop)),
        }
    }

    /// How many files of a kind the log has.
    fn files(&self, suffix: &str) -> usize {
        self.paths(suffix).len()
    }

    fn paths(&self, suffix: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.files.path().join(format!("{TOPIC}-0"))).expect("it is there");
        let paths = files.map(|file| file.expect("an entry").path());
        paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
    }

    /// The first segment's file.
    fn log(&self) -> PathBuf {
        self.files.path().join(format!("{TOPIC}-0")).join("00000000000000000000.log")
    }

    /// Turns a bit in a percentage of the first segment, or back. The size of the file.
    fn flip(&self, percent: usize) -> usize {
        let mut bytes = std::fs::read(self.log()).expect("it is there");
        let at = bytes.len() * percent / 100;
        bytes[at] ^= 1;
        std::fs::write(self.log(), &bytes).expect("there is room");
        bytes.len()
    }
}

fn limits(max_retention_bytes: i64, max_retention_ms: i64) -> MetadataLogConfig {
    MetadataLogConfig {
        segment_bytes: 2000,
        segment_ms: i64::MAX,
        max_record_bytes_between_snapshots: 1000,
        max_snapshot_interval_ms: 0,
        max_idle_interval_ms: 0,
        max_retention_bytes,
        max_retention_ms,
    }
}

fn append(log: &mut MetadataLog, records: usize, now: Timestamp) {
    for _ in 0..records {
        log.append(&[record()], EPOCH, now).expect("there is room");
    }
}

fn snapshot(log: &mut MetadataLog, now: Timestamp) {
    let id = SnapshotId { end_offset: log.end(), epoch: EPOCH };
    log.write_snapshot(id, &[record()], now).expect("there is room");
}

fn shorten(log: &mut MetadataLog, now: Timestamp) {
    let removals = log.shorten(now).expect("there is room");
    removals.into_iter().try_for_each(RemovalJob::run).expect("the files are there");
}

fn record() -> MetadataRecord {
    FeatureLevelRecord { name: "metadata.version".into(), feature_level: 33 }.into()
}
