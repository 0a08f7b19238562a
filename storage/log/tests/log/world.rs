//! A log in a temporary directory, and batches to put into it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tarn_log::{
    AppendError, Appended, Descriptors, FirstBatch, Log, LogConfig, LogDir, Opening, RealDisk, RecoveryReport,
};
use tarn_record::{
    BatchBuilder, ClientBatch, Compression, EndTransaction, Epoch, Offset, Outcome, PartitionIndex,
    ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TimestampType, TopicId, ValidBatch,
    end_transaction_marker,
};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const TOPIC: &str = "orders";
pub(crate) const TOPIC_ID: TopicId =
    TopicId(uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));

/// One directory with one log.
pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    pub(crate) dir: Arc<LogDir>,
    pub(crate) config: LogConfig,
}

impl World {
    pub(crate) fn new(config: LogConfig) -> World {
        World::with_descriptors(100, config)
    }

    /// So many files are open at most.
    pub(crate) fn with_descriptors(limit: usize, config: LogConfig) -> World {
        let root = tempfile::tempdir().unwrap();
        let dir = LogDir::open(Arc::new(RealDisk), root.path(), Descriptors::new(limit)).unwrap();
        World { root, dir, config }
    }

    pub(crate) fn create(&self) -> Log {
        Log::create(&self.dir, TOPIC, PartitionIndex(0), TOPIC_ID, self.config.clone(), NOW).unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("orders-0")
    }

    pub(crate) fn open(&self, opening: Opening) -> (Log, RecoveryReport) {
        Log::open(&self.dir, TOPIC, PartitionIndex(0), self.config.clone(), opening, NOW).unwrap()
    }

    pub(crate) fn open_clean(&self) -> Log {
        self.open(Opening { clean: true, recovery_point: Offset(0), log_start: Offset(0) }).0
    }

    pub(crate) fn open_unclean(&self, recovery_point: i64) -> (Log, RecoveryReport) {
        self.open(Opening { clean: false, recovery_point: Offset(recovery_point), log_start: Offset(0) })
    }

    /// True where a file of a segment is there that left the log.
    pub(crate) fn waits_for_removal(&self) -> bool {
        let is_kept = |name: &String| name.ends_with(".unbroken.deleted");
        self.names().iter().any(|name| name.ends_with(".deleted") && !is_kept(name))
    }

    /// The names in the partition's directory.
    /// The names of the offset and time indexes.
    pub(crate) fn indexes(&self) -> Vec<String> {
        let is_index = |name: &String| name.ends_with(".index") || name.ends_with(".timeindex");
        self.names().into_iter().filter(is_index).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Segments of about `bytes`.
pub(crate) fn segments_of(bytes: u32) -> LogConfig {
    LogConfig { segment_bytes: bytes, index_interval_bytes: 200, ..LogConfig::default() }
}

/// A batch as another leader wrote it.
pub(crate) fn batch(base: i64, records: usize, epoch: i32) -> ValidBatch {
    dated(base, records, epoch, NOW.0)
}

pub(crate) fn dated(base: i64, records: usize, epoch: i32, timestamp: i64) -> ValidBatch {
    let mut builder = BatchBuilder::new(Offset(base), Compression::None).leader_epoch(Epoch(epoch));
    for number in 0..records {
        let value = format!("record {} of epoch {epoch}", base + number as i64);
        builder.add(&Record {
            value: Some(value.as_bytes()),
            timestamp: Timestamp(timestamp + number as i64),
            ..Record::default()
        });
    }
    ValidBatch::parse(builder.build()).unwrap()
}

/// A batch as a producer sends it.
pub(crate) fn client(records: usize) -> ClientBatch {
    client_of(batch(0, records, -1))
}

pub(crate) fn client_of(batch: ValidBatch) -> ClientBatch {
    let max_timestamp = batch.header().max_timestamp;
    ClientBatch { batch, max_timestamp, offset_of_max_timestamp: 0 }
}

pub(crate) struct Idempotent {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) transactional: bool,
}

impl Idempotent {
    pub(crate) fn batch(&self, base: i64, records: usize, leader_epoch: i32) -> ValidBatch {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None)
            .producer(ProducerId(self.id), ProducerEpoch(self.epoch), Sequence(self.sequence))
            .leader_epoch(Epoch(leader_epoch));
        if self.transactional {
            builder = builder.transactional();
        }
        for _ in 0..records {
            builder.add(&Record { value: Some(b"value"), timestamp: NOW, ..Record::default() });
        }
        ValidBatch::parse(builder.build()).unwrap()
    }
}

/// Appends a producer's batch of so many records in epoch 0.
pub(crate) fn produce(log: &mut Log, records: usize) -> Appended {
    log.append_as_leader(&client(records), Epoch(0), TimestampType::CreateTime, NOW).unwrap()
}

pub(crate) fn mirror(log: &mut Log, batches: &[ValidBatch]) -> Result<Appended, AppendError> {
    log.append_as_is(batches, NOW)
}

/// All batches from `from` to the log end, as they are read in pieces of `max_bytes`.
pub(crate) fn read_all(log: &Log, from: Offset, max_bytes: usize) -> Vec<ValidBatch> {
    let mut batches = Vec::new();
    let mut at = from;
    while at < log.end() {
        let plan = log.read(at, max_bytes, FirstBatch::MayBeLarger, log.end()).unwrap();
        if plan.is_empty() {
            break;
        }
        for batch in tarn_record::batches(plan.read().unwrap()) {
            let batch = batch.unwrap();
            at = batch.header().next_offset();
            batches.push(batch);
        }
    }
    batches
}

/// The epochs, with their first offsets.
pub(crate) fn starts(log: &Log) -> Vec<(i32, i64)> {
    log.epochs().starts().iter().map(|entry| (entry.epoch.0, entry.start.0)).collect()
}

/// The offsets that a list of batches covers, as (base, last).
pub(crate) fn spans(batches: &[ValidBatch]) -> Vec<(i64, i64)> {
    batches.iter().map(|batch| (batch.header().base_offset.0, batch.header().last_offset().0)).collect()
}

/// Slices of one buffer, as batches of one fetch response are.
pub(crate) fn contiguous(batches: &[ValidBatch]) -> Vec<ValidBatch> {
    let all: Vec<u8> = batches.iter().flat_map(|batch| batch.bytes().to_vec()).collect();
    tarn_record::batches(Bytes::from(all)).map(Result::unwrap).collect()
}

/// The end of a transaction, as its coordinator writes it in epoch 0.
pub(crate) fn marker(id: i64, outcome: Outcome, base: i64) -> ValidBatch {
    let end = EndTransaction {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        outcome,
        coordinator_epoch: 1,
    };
    ValidBatch::parse(end_transaction_marker(&end, Offset(base), Epoch(0), NOW)).unwrap()
}

/// Flushes all that was appended.
pub(crate) fn flush(log: &mut Log) {
    if let Some(job) = log.flush_job() {
        let flushed = job.run().unwrap();
        log.flushed(flushed).unwrap();
    }
}

/// Flushes the batches alone.
pub(crate) fn flush_batches(log: &mut Log) {
    if let Some(job) = log.flush_batches_job() {
        let flushed = job.run().unwrap();
        log.flushed(flushed).unwrap();
    }
}
