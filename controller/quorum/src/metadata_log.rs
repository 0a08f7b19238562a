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
    AppendError, Damage, FirstBatch, FlushJob, FlushPolicy, Flushed, Log, LogConfig, LogDir, LogError,
    Opening, ReadError, RemovalJob,
};
use tarn_record::{BatchError, Epoch, Offset, PartitionIndex, Timestamp, TopicId, ValidBatch, batches};
use tarn_wire::{EncodeError, MetadataRecord};
use thiserror::Error;

use self::lost::Known;
use crate::batch::{self, NotMetadata, VoterName};
use crate::retention::{self, KeptSnapshot};
use crate::snapshot::{self, SnapshotError, SnapshotId};

mod lost;

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
        path = .damage.path.display(), position = .damage.position, fault = .damage.fault, offset = .damage.offset
    )]
    Damaged {
        /// What is damaged.
        damage: Damage,
        /// How to go on without it.
        remedy: String,
    },
    /// The log's newest part, which was there when the node was stopped, is gone.
    #[error(
        "the metadata log in {} ends at offset {end}, and ended at {marked} when this node was last stopped: its \
         newest part was lost. Put its files back from a copy; or, to go on with the metadata as it was at offset \
         {end}, remove {}: partitions that it does not know are put aside then",
        dir.display(), mark.display()
    )]
    Shortened {
        /// The log's directory.
        dir: PathBuf,
        /// Where it ends.
        end: Offset,
        /// Where it ended.
        marked: Offset,
        /// The file that says so.
        mark: PathBuf,
    },
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
            MetadataLogError::Snapshot(error) => error.is_full(),
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
        let known = Known::of(log_dir, from);
        let mut log = if has_log {
            // A snapshot holds what is committed, so all below its end was on the disk.
            let opening = Opening { clean: log_dir.was_clean(), recovery_point: from, log_start: Offset(0) };
            known.refuse_to_cut()?;
            let (log, report) = Log::open(log_dir, TOPIC, PartitionIndex(0), config, opening, now)?;
            if let Some(from) = report.cut_from {
                tracing::warn!(%from, bytes = report.cut_bytes, segments = report.dropped_segments, dir = %dir.display(), "the end of the metadata log was not whole after a crash and is cut off");
            }
            log
        } else {
            known.refuse_shortened(Offset(0))?;
            Log::create(log_dir, TOPIC, PartitionIndex(0), TopicId::METADATA, config, now)?
        };
        if from < log.start() {
            return Err(MetadataLogError::Gap { from, start: log.start() });
        }
        known.refuse_shortened(log.end())?;
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

#[cfg(test)]
mod tests;
