//! The log of the cluster's metadata: `__cluster_metadata-0` and the snapshots beside it.
//!
//! Owned by the controller's thread. It is an ordinary partition log in Kafka's format, always flushed
//! before anything in it counts. Old snapshots go with the log below them (`retention`).
//!
//! Invariant: some snapshot reaches up to the log's start, where that is not 0.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_image::config::server::MetadataLogConfig;
use tarn_log::disk::Disk;
use tarn_log::{
    AppendError, Damage, Fault, FirstBatch, FlushJob, FlushPolicy, Flushed, Log, LogConfig, LogDir, LogError,
    Opening, ReadError, RemovalJob,
};
use tarn_record::{BatchError, Epoch, Offset, PartitionIndex, Timestamp, TopicId, ValidBatch, batches};
use tarn_wire::{EncodeError, MetadataRecord};
use thiserror::Error;

use crate::batch::{self, NotMetadata, VoterName};
use crate::retention::{self, KeptSnapshot};
use crate::snapshot::{self, SnapshotError, SnapshotId};

/// The topic of the metadata log.
pub const TOPIC: &str = "__cluster_metadata";
/// What the log's other files may take while batches are appended: indexes, a new segment.
const BESIDE_BATCHES_BYTES: u64 = 64 * 1024;
/// Bytes of the log that are replayed at a time.
const REPLAY_BYTES: usize = 1024 * 1024;

/// What the metadata log cannot do.
#[derive(Debug, Error)]
pub enum MetadataLogError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An append.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file.
    #[error("the metadata log cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A record that is not metadata.
    #[error(transparent)]
    NotMetadata(#[from] NotMetadata),
    /// A record that does not fit.
    #[error(transparent)]
    Unencodable(#[from] EncodeError),
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Bytes of the log that were on the disk are not what was written.
    #[error(
        "{path} is damaged at byte {position}: {fault}. The metadata from offset {offset} on was committed and \
         cannot be read. Put the file back from a copy; or {remedy}",
        path = .0.path.display(), position = .0.position, fault = .0.fault, offset = .0.offset,
        remedy = remedy(.0, *.1)
    )]
    Damaged(Damage, Offset),
    /// Records that are neither in a snapshot nor in the log.
    #[error(
        "the metadata from offset {from} up to {start} is missing: no finished snapshot reaches so far, and the log \
         goes on at {start}"
    )]
    Gap {
        /// Where the newest finished snapshot ends.
        from: Offset,
        /// Where the log starts.
        start: Offset,
    },
}

impl MetadataLogError {
    /// True where the disk has no room: nothing was written, and a later try may succeed.
    pub fn is_full(&self) -> bool {
        match self {
            MetadataLogError::Log(error) | MetadataLogError::Append(AppendError::Storage(error)) => {
                error.is_full()
            }
            _ => false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct MetadataLog {
    log: Log,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    voter: Option<VoterName>,
    limits: MetadataLogConfig,
    /// From the oldest to the newest.
    snapshots: Vec<KeptSnapshot>,
    bytes_since_snapshot: u64,
    last_timestamp: Timestamp,
}

/// One batch of the log, replayed.
#[derive(Clone, Debug)]
pub struct MetadataBatch {
    /// The offset of its last record.
    pub last_offset: Offset,
    /// The epoch of the controller that wrote it.
    pub epoch: Epoch,
    /// When it was written.
    pub timestamp: Timestamp,
    /// Its records; none of a control batch.
    pub records: Vec<MetadataRecord>,
}

/// A metadata log, and what it held when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: MetadataLog,
    /// The newest snapshot and its records.
    pub snapshot: Option<(SnapshotId, Vec<MetadataRecord>)>,
    /// The batches after it.
    pub batches: Vec<MetadataBatch>,
}

impl MetadataLog {
    /// Opens the metadata log of a formatted directory; makes it at the first start. `voter` names this
    /// node in a dynamic quorum.
    ///
    /// # Errors
    /// Where the log or its snapshots cannot be read.
    pub fn open(
        log_dir: &Arc<LogDir>,
        voter: Option<VoterName>,
        limits: &MetadataLogConfig,
        now: Timestamp,
    ) -> Result<Opened, MetadataLogError> {
        let (disk, dir) = (log_dir.disk().clone(), log_dir.path().join(format!("{TOPIC}-0")));
        let config = Arc::new(LogConfig {
            segment_bytes: limits.segment_bytes.unsigned_abs(),
            segment_ms: limits.segment_ms,
            flush: FlushPolicy::Group,
            ..LogConfig::default()
        });
        let snapshot = if disk.exists(&dir) { snapshot::newest(&disk, &dir)? } else { None };
        let from = snapshot.as_ref().map_or(Offset(0), |(id, _)| id.end_offset);
        let has_log = disk.exists(&dir) && disk.list(&dir)?.iter().any(|entry| entry.name.ends_with(".log"));
        let mut log = if has_log {
            // A snapshot holds what is committed, so all below its end was on the disk.
            let opening = Opening { clean: log_dir.was_clean(), recovery_point: from, log_start: Offset(0) };
            refuse_to_cut_what_was_committed(log_dir, from)?;
            let (log, report) = Log::open(log_dir, TOPIC, PartitionIndex(0), config, opening, now)?;
            if let Some(from) = report.cut_from {
                tracing::warn!(%from, bytes = report.cut_bytes, segments = report.dropped_segments, dir = %dir.display(), "the end of the metadata log was not whole after a crash and is cut off");
            }
            log
        } else {
            Log::create(log_dir, TOPIC, PartitionIndex(0), TopicId::METADATA, config, now)?
        };
        if from < log.start() {
            return Err(MetadataLogError::Gap { from, start: log.start() });
        }
        if from > log.end() {
            // The snapshot says more than the log, which lost its end or was never there.
            log.truncate_fully_and_start_at(from, now)?.removal.run()?;
        }
        let mut log = MetadataLog {
            snapshots: snapshot::kept(&disk, &dir)?,
            limits: limits.clone(),
            log,
            dir,
            disk,
            voter,
            bytes_since_snapshot: 0,
            last_timestamp: now,
        };
        let (batches, bytes) = log.replay(from)?;
        log.bytes_since_snapshot = bytes;
        let last = batches.last().map(|batch| batch.timestamp);
        let last = last.or_else(|| log.snapshots.last()?.last_timestamp);
        log.last_timestamp = last.unwrap_or(now);
        Ok(Opened { log, snapshot, batches })
    }

    /// The epoch of the last record.
    pub fn latest_epoch(&self) -> Epoch {
        self.log.latest_epoch()
    }

    /// The directory of the log.
    pub fn dir(&self) -> &PathBuf {
        &self.dir
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The offset after the last record.
    pub fn end(&self) -> Offset {
        self.log.end()
    }

    /// Everything below is on the disk.
    pub fn flushed_end(&self) -> Offset {
        self.log.recovery_point().min(self.log.end())
    }

    /// Bytes written since the last snapshot.
    pub fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    /// Appends records in one batch: all of them or none. Returns the offset of the last.
    ///
    /// # Errors
    /// Where they do not fit or the disk refuses.
    pub fn append(
        &mut self,
        records: &[MetadataRecord],
        epoch: Epoch,
        now: Timestamp,
    ) -> Result<Offset, MetadataLogError> {
        let batch = batch::data(records, self.log.end(), epoch, now)?;
        self.append_batch(batch, epoch, now)
    }

    /// Whether the disk has room for batches that belong together, as far as that can be known before. A
    /// disk that does not tell is asked by writing to it.
    ///
    /// # Errors
    /// Records that fit no batch.
    pub fn has_room_for(&self, batches: &[Vec<MetadataRecord>]) -> Result<bool, MetadataLogError> {
        let mut bytes = BESIDE_BATCHES_BYTES;
        for records in batches {
            let batch = batch::data(records, self.log.end(), Epoch::NONE, Timestamp(0))?;
            bytes = bytes.saturating_add(batch.len() as u64);
        }
        Ok(self.disk.available_bytes(&self.dir).map_or(true, |available| available >= bytes))
    }

    /// Appends the first records of an epoch of which this node, `leader`, is the leader.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn append_leader_change(
        &mut self,
        leader: i32,
        epoch: Epoch,
        now: Timestamp,
    ) -> Result<Offset, MetadataLogError> {
        let voter = if self.log.end() == Offset(0) { self.voter.as_ref() } else { None };
        let records = batch::leader_change(leader, voter)?;
        let batch = batch::control(&records, self.log.end(), epoch, now);
        self.append_batch(batch, epoch, now)
    }

    /// A flush of what is not yet on the disk.
    pub fn flush_job(&mut self) -> Option<FlushJob> {
        self.log.flush_job()
    }

    /// A flush has ended.
    ///
    /// # Errors
    /// Where its result does not fit the log.
    pub fn flushed(&mut self, flushed: Flushed) -> Result<(), MetadataLogError> {
        Ok(self.log.flushed(flushed)?)
    }

    /// Writes a snapshot that ends at `id`.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn write_snapshot(
        &mut self,
        id: SnapshotId,
        records: &[MetadataRecord],
        now: Timestamp,
    ) -> Result<(), MetadataLogError> {
        let contents = snapshot::contents(id, records, self.voter.as_ref(), self.last_timestamp, now)?;
        snapshot::store(&self.disk, &self.dir, id, &contents)?;
        self.bytes_since_snapshot = 0;
        let last_timestamp = Some(Timestamp(self.last_timestamp.0.max(0)));
        self.snapshots.push(KeptSnapshot { id, bytes: contents.len() as u64, last_timestamp });
        Ok(())
    }

    /// Deletes the oldest snapshots and the log below those that stay, as far as the retention of the
    /// metadata says. The jobs remove the log's files.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn shorten(&mut self, now: Timestamp) -> Result<Vec<RemovalJob>, MetadataLogError> {
        let mut removals = Vec::new();
        let next = |log: &MetadataLog| {
            retention::next_to_keep(&log.snapshots, log.log.size_bytes(), &log.limits, now)
        };
        while let Some(keep) = next(self) {
            // The log first: what a crash leaves has a snapshot that reaches the log's start.
            removals.extend(self.log.advance_start(keep.end_offset, now)?);
            let oldest = self.snapshots.remove(0);
            self.disk.remove_file(&self.dir.join(oldest.id.to_string()))?;
        }
        Ok(removals)
    }

    /// Closes the log.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn close(&mut self) -> Result<(), MetadataLogError> {
        Ok(self.log.close()?)
    }

    fn append_batch(
        &mut self,
        batch: bytes::Bytes,
        epoch: Epoch,
        now: Timestamp,
    ) -> Result<Offset, MetadataLogError> {
        let batch = ValidBatch::parse(batch)?;
        let appended = self.log.append_as_leader_raw(&batch, epoch, now)?;
        self.bytes_since_snapshot += appended.bytes as u64;
        self.last_timestamp = now;
        self.log.on_high_watermark(self.log.end());
        Ok(appended.last)
    }

    /// The batches from an offset on, and how many bytes they have.
    fn replay(&self, from: Offset) -> Result<(Vec<MetadataBatch>, u64), MetadataLogError> {
        let (mut replayed, mut bytes) = (Vec::new(), 0);
        let mut next = from;
        while next < self.log.end() {
            let plan = self.log.read(next, REPLAY_BYTES, FirstBatch::MayBeLarger, self.log.end())?;
            if plan.is_empty() {
                break;
            }
            for batch in batches(plan.read()?) {
                let batch = batch?;
                if batch.header().base_offset > next {
                    return Err(MetadataLogError::Gap { from: next, start: batch.header().base_offset });
                }
                next = batch.header().next_offset();
                bytes += batch.bytes().len() as u64;
                replayed.push(MetadataBatch {
                    last_offset: batch.header().last_offset(),
                    epoch: batch.header().leader_epoch,
                    timestamp: Timestamp(batch.header().max_timestamp),
                    records: batch::records_of(&batch)?,
                });
            }
        }
        Ok((replayed, bytes))
    }
}

/// How to go on without what is damaged, and what that costs.
fn remedy(damage: &Damage, snapshot_end: Offset) -> String {
    if damage.next_segment.is_some_and(|next| next <= snapshot_end) {
        return format!(
            "move this one file out of that directory: the newest snapshot, which ends at offset {snapshot_end}, \
             holds all that is in it"
        );
    }
    if damage.offset < snapshot_end {
        return format!(
            "to go on with the newest snapshot, which ends at offset {snapshot_end}, and without anything after \
             it, move the .log files out of that directory"
        );
    }
    format!(
        "to go on without the metadata from offset {} on, cut the file to {} bytes and move the .log files with \
         higher numbers out of that directory",
        damage.offset, damage.position
    )
}

/// Opening the log would end it at its first damage. After a clean stop all of it was on the disk; after a
/// crash, all below the newest snapshot, which holds committed records only. What is above that may be the end
/// of an append that the crash cut short: but nothing follows such an end.
fn refuse_to_cut_what_was_committed(
    log_dir: &Arc<LogDir>,
    snapshot_end: Offset,
) -> Result<(), MetadataLogError> {
    let found = Log::first_damage(log_dir, TOPIC, PartitionIndex(0), snapshot_end)?;
    let Some(damage) = found else { return Ok(()) };
    if !log_dir.was_clean() && damage.offset >= snapshot_end && !damage.is_followed {
        return Ok(());
    }
    match damage.fault {
        Fault::MissingUpTo(start) => Err(MetadataLogError::Gap { from: damage.offset, start }),
        Fault::Batch(_) => Err(MetadataLogError::Damaged(damage, snapshot_end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_log::{Descriptors, RealDisk};
    use tarn_wire::messages::FeatureLevelRecord;
    use tempfile::TempDir;

    const EPOCH: Epoch = Epoch(1);

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
        drop(log);
        world.dir.mark_clean(1).expect("there is room");
        world.reopen();
        let size = world.flip(20);
        let refused = world.open(Timestamp(2)).map(drop).expect_err("it was all on the disk");
        let message = refused.to_string();
        assert!(
            message.contains("00000000000000000000.log") && message.contains("Put the file back"),
            "{message}"
        );
        let MetadataLogError::Damaged(damage, _) = refused else { panic!("{message}") };
        assert!(Offset(0) < damage.offset && damage.offset < Offset(40), "{damage:?}");
        assert_eq!(world.flip(20), size, "nothing was cut");
        assert_eq!(world.open(Timestamp(3)).expect("it is whole again").log.end(), Offset(40));
    }

    #[test]
    fn after_a_crash_damage_that_right_batches_follow_is_not_cut_and_the_remedy_works() {
        let mut world = World::new(limits(-1, -1));
        let mut log = world.open(Timestamp(0)).expect("it is new").log;
        append(&mut log, 40, Timestamp(1));
        drop(log);
        for is_clean in [false, true] {
            if is_clean {
                world.dir.mark_clean(1).expect("there is room");
            }
            world.reopen();
            world.flip(20);
            let damage = world.damage();
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
            let again = world.open(Timestamp(3)).expect("it goes on before the damage");
            assert_eq!((again.log.end(), again.batches.len() as i64), (damage.offset, damage.offset.0));
        }
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
            drop(log);
            if is_clean {
                world.dir.mark_clean(1).expect("there is room");
            }
            world.reopen();
            world.flip(20);
            let damage = world.damage();
            assert!(remedy(&damage, Offset(40)).starts_with("move this one file"), "{damage:?}");
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
        let damage = world.damage();
        assert!(remedy(&damage, Offset(40)).ends_with("move the .log files out of that directory"));
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
        assert!(matches!(refused, Err(MetadataLogError::Damaged(_, Offset(10)))), "{refused:?}");
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
                world.dir.mark_clean(1).expect("there is room");
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

        /// Why the log is not opened.
        fn damage(&self) -> Damage {
            match self.open(Timestamp(9)) {
                Err(MetadataLogError::Damaged(damage, _)) => damage,
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
}
