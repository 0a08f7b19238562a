//! The log of the cluster's metadata: `__cluster_metadata-0` and the snapshots beside it.
//!
//! Owned by the controller's thread. It is an ordinary partition log in Kafka's format, always flushed
//! before anything in it counts.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_log::disk::Disk;
use tarn_log::{
    AppendError, FlushJob, FlushPolicy, Flushed, Log, LogConfig, LogDir, LogError, Opening, ReadError,
};
use tarn_record::{BatchError, Epoch, Offset, PartitionIndex, Timestamp, TopicId, ValidBatch, batches};
use tarn_wire::{EncodeError, MetadataRecord};
use thiserror::Error;

use crate::batch::{self, NotMetadata, VoterName};
use crate::snapshot::{self, SnapshotError, SnapshotId};

/// The topic of the metadata log.
pub const TOPIC: &str = "__cluster_metadata";
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
        now: Timestamp,
    ) -> Result<Opened, MetadataLogError> {
        let (disk, dir) = (log_dir.disk().clone(), log_dir.path().join(format!("{TOPIC}-0")));
        let config = Arc::new(LogConfig {
            segment_bytes: 1024 * 1024 * 1024,
            flush: FlushPolicy::Group,
            ..LogConfig::default()
        });
        let snapshot = if disk.exists(&dir) { snapshot::newest(&disk, &dir)? } else { None };
        let has_log = disk.exists(&dir) && disk.list(&dir)?.iter().any(|entry| entry.name.ends_with(".log"));
        let log = if has_log {
            let opening =
                Opening { clean: log_dir.was_clean(), recovery_point: Offset(0), log_start: Offset(0) };
            Log::open(log_dir, TOPIC, PartitionIndex(0), config, opening, now)?.0
        } else {
            Log::create(log_dir, TOPIC, PartitionIndex(0), TopicId::METADATA, config, now)?
        };
        let bytes_since_snapshot = log.size_bytes();
        let last_timestamp = now;
        let log = MetadataLog { log, dir, disk, voter, bytes_since_snapshot, last_timestamp };
        let from = snapshot.as_ref().map_or(Offset(0), |(id, _)| id.end_offset);
        let batches = log.replay(from.max(log.log.start()))?;
        Ok(Opened { log, snapshot, batches })
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

    /// Writes a snapshot that ends at `id`, and drops older ones but the one before it.
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
        let mut older = snapshot::list(&self.disk, &self.dir)?;
        older.sort();
        older.retain(|other| *other < id && other.end_offset > Offset(0));
        older.pop();
        for old in older {
            self.disk.remove_file(&self.dir.join(old.to_string()))?;
        }
        Ok(())
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

    fn replay(&self, from: Offset) -> Result<Vec<MetadataBatch>, MetadataLogError> {
        let mut replayed = Vec::new();
        let mut next = from;
        while next < self.log.end() {
            let plan = self.log.read(next, REPLAY_BYTES, true, self.log.end())?;
            if plan.is_empty() {
                break;
            }
            for batch in batches(plan.read()?) {
                let batch = batch?;
                next = batch.header().next_offset();
                replayed.push(MetadataBatch {
                    last_offset: batch.header().last_offset(),
                    epoch: batch.header().leader_epoch,
                    timestamp: Timestamp(batch.header().max_timestamp),
                    records: batch::records_of(&batch)?,
                });
            }
        }
        Ok(replayed)
    }
}
