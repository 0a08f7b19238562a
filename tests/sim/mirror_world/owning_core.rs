//! The core that owns the partition here: production's replica on a disk that forgets.
//!
//! The stand-in for its driver does one thing at a time, looks at what every append has made of the log, and tells
//! the oracle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_broker::envelope::Acks;
use tarn_broker::replica::{Binding, Leadership, ProduceError, Replica};
use tarn_broker::rules::TopicRules;
use tarn_log::disk::Disk as _;
use tarn_log::{Descriptors, FirstBatch, FlushJob, FlushPolicy, Log, LogConfig, LogDir, Opening, Together};
use tarn_mirror::local_cluster::{
    EndOrder, Gate, GateOrder, KnownState, LocalError, LogEnded, LogEnds, MirrorAppend, MirrorAppended,
    MirrorGeneration,
};
use tarn_record::{ClientBatch, Offset, Timestamp, TimestampType, batches};

use super::Broken;
use super::controller::{PARTITION, TOPIC};
use super::oracle::Oracle;
use super::source::There;
use crate::disk::{Faults, SimDisk};
use crate::simulation::Violation;

const OPEN_FILES_MAX: usize = 20;

pub(super) struct OwningCore {
    pub(super) disk: SimDisk,
    pub(super) replica: Replica,
    pub(super) oracle: Oracle,
    rules: Arc<TopicRules>,
    _dir: Arc<LogDir>,
    generations: u64,
    broken: Broken,
}

/// A flush that is on its way to the disk, and where the log ended when it began.
pub(super) struct Flushing {
    job: Option<FlushJob>,
    upto: i64,
}

impl OwningCore {
    pub(super) fn new(rng: &mut fastrand::Rng, leads: Leadership, broken: Broken) -> OwningCore {
        let disk = SimDisk::new(rng.u64(..));
        let log = LogConfig {
            flush: FlushPolicy::Group,
            segment_bytes: 1 << rng.u32(10..14),
            ..LogConfig::default()
        };
        let rules = Arc::new(TopicRules {
            log: Arc::new(log),
            max_message_bytes: 1_000_000,
            max_decompressed_bytes: 1_000_000,
            compacted: false,
            min_in_sync: 1,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: i64::MAX,
        });
        let dir = open_dir(&disk).expect("nothing has failed yet");
        let config = rules.log.clone();
        let (partition, id) = (PARTITION.partition, PARTITION.topic_id);
        let log = Log::create(&dir, TOPIC, partition, id, config, Timestamp(0));
        let mut log = log.expect("nothing has failed yet");
        if let Some(job) = log.flush_job() {
            let flushed = job.run().expect("nothing has failed yet");
            log.flushed(flushed).expect("nothing has failed yet");
        }
        disk.sync_dir(Path::new("/")).expect("nothing has failed yet");
        disk.watch_logs();
        let replica = Replica::new(PARTITION, TOPIC.into(), log, leads, Offset(0), rules.clone());
        let core =
            OwningCore { disk, replica, oracle: Oracle::default(), rules, _dir: dir, generations: 0, broken };
        core.disk.set_faults(core.quiet());
        core
    }

    /// A disk without faults, but for the one that is broken on purpose.
    pub(super) fn quiet(&self) -> Faults {
        Faults { sync_lies: self.broken == Broken::FlushSkipped, ..Faults::default() }
    }

    /// The machine stops and starts again.
    pub(super) fn crash(&mut self, leads: Leadership, now_ms: i64) -> Result<(), Violation> {
        let recovery = |text: String| Violation::new("recovery", text);
        self.disk.crash();
        self.disk.set_faults(self.quiet());
        let dir = open_dir(&self.disk).map_err(recovery)?;
        let opening = Opening { clean: dir.was_clean(), recovery_point: Offset(0), log_start: Offset(0) };
        let config = self.rules.log.clone();
        let opened = Log::open(&dir, TOPIC, PARTITION.partition, config, opening, Timestamp(now_ms));
        let (mut log, _) = opened.map_err(|error| recovery(error.to_string()))?;
        if self.broken == Broken::MarkerLeftOut {
            log.producers_mut().clear();
        }
        self.disk.watch_logs();
        self.replica = Replica::new(PARTITION, TOPIC.into(), log, leads, Offset(0), self.rules.clone());
        self._dir = dir;
        let found = self.read_from(0)?;
        self.oracle.crashed(&found)
    }

    /// New metadata.
    pub(super) fn learns(&mut self, leads: Leadership, binding: tarn_image::Binding) {
        self.replica.on_metadata(leads, self.rules.clone(), Some(Binding::new(binding)));
    }

    pub(super) fn set_gate(&mut self, order: &GateOrder) -> Option<MirrorGeneration> {
        self.generations += 1;
        let generation = MirrorGeneration(self.generations);
        self.replica.set_gate(order, generation).then_some(generation)
    }

    fn force_gate(&mut self, generation: Option<MirrorGeneration>) {
        let gate = if generation.is_some() { Gate::Open } else { Gate::Closed };
        let order = GateOrder { partition: PARTITION, gate, version: i64::MIN };
        self.replica.set_gate(&order, generation.unwrap_or(MirrorGeneration(0)));
    }

    pub(super) fn set_known_state(&mut self, known: KnownState) {
        let known = match (known, self.replica.binding()) {
            (KnownState::Known { state, .. }, Some(binding)) if self.broken == Broken::OldStopBelieved => {
                KnownState::Known { state, version: binding.desired.version }
            }
            (known, _) => known,
        };
        self.replica.set_known_state(known);
    }

    /// Appends what a lane fetched.
    pub(super) fn append_mirrored(
        &mut self,
        generation: MirrorGeneration,
        fetched: &[There],
        source_end: i64,
        stopping_at: Option<i64>,
        now_ms: i64,
    ) -> Result<MirrorAppended, Violation> {
        let closed = self.replica.binding().and_then(|binding| binding.gate);
        if self.broken == Broken::StaleGenerationAccepted {
            self.force_gate(Some(generation));
        }
        let append = MirrorAppend {
            partition: PARTITION,
            generation,
            batches: fetched.iter().map(|batch| batch.stored.valid()).collect(),
            source_log_start: Offset(0),
            source_high_watermark: Offset(source_end),
        };
        let before = self.oracle.end();
        let appended = self.replica.append_mirrored(&append, Timestamp(now_ms));
        if self.broken == Broken::StaleGenerationAccepted {
            self.force_gate(closed);
        }
        let end = self.replica.log().end().0;
        for batch in fetched.iter().filter(|batch| batch.stored.base >= before && batch.stored.last < end) {
            self.oracle.mirrored(batch, stopping_at)?;
        }
        self.check_end()?;
        Ok(appended)
    }

    /// Appends what a client sends; the offset after it, where it is taken.
    pub(super) fn append_local(
        &mut self,
        batch: &ClientBatch,
        now_ms: i64,
    ) -> Result<Option<i64>, Violation> {
        let before = self.oracle.end();
        let appended = self.replica.append(batch, Acks::All, Timestamp(now_ms));
        for (_, bytes) in self.read_from(before)? {
            let batch = tarn_record::ValidBatch::parse(bytes);
            self.oracle.local(&batch.map_err(|error| Violation::new("bytes", error.to_string()))?);
        }
        self.check_end()?;
        match appended {
            Ok(_) => Ok(Some(self.oracle.end())),
            Err(ProduceError::Refused(_) | ProduceError::Append(_)) => Ok(None),
            Err(ProduceError::NotEnoughReplicas { .. }) => {
                Err(Violation::new("client write", "one replica is not enough"))
            }
        }
    }

    pub(super) fn begin_flush(&mut self) -> Flushing {
        Flushing { job: self.replica.flush_batches_job(), upto: self.oracle.end() }
    }

    /// The flush has reached the disk, and comes back.
    pub(super) fn end_flush(&mut self, flushing: Flushing) -> Result<LogEnds, LocalError> {
        let storage = |reason: String| LocalError::Storage { partition: PARTITION, reason };
        if let Some(job) = flushing.job {
            let flushed = job.run().map_err(|error| storage(error.to_string()))?;
            self.replica.flushed(flushed).map_err(|error| storage(error.to_string()))?;
        }
        self.oracle.flushed(flushing.upto);
        if self.replica.high_watermark().0 >= flushing.upto {
            self.oracle.acknowledged(flushing.upto);
        }
        Ok(self.replica.ends())
    }

    /// Appends what ends the log; it is not durable yet.
    pub(super) fn append_end(
        &mut self,
        order: &EndOrder,
        now_ms: i64,
    ) -> Result<Result<LogEnded, LocalError>, Violation> {
        let before = self.oracle.end();
        let (now, together) = (Timestamp(now_ms), Together::Few);
        let ended = match self.replica.look_behind(order) {
            Err(why) => Err(why.of(order)),
            Ok(look) => match look.run() {
                Err(error) => Err(LocalError::Storage { partition: PARTITION, reason: error.to_string() }),
                Ok(behind) => {
                    self.replica.end_log(order, &behind, together, now).map_err(|why| why.of(order))
                }
            },
        };
        for (_, bytes) in self.read_from(before)? {
            let batch = tarn_record::ValidBatch::parse(bytes);
            let batch = batch.map_err(|error| Violation::new("bytes", error.to_string()))?;
            self.oracle.ended(&batch, order.position.offset.0)?;
        }
        self.check_end()?;
        Ok(ended)
    }

    /// The log ends where all that was told of it says.
    pub(super) fn check_end(&self) -> Result<(), Violation> {
        let (found, expected) = (self.replica.log().end().0, self.oracle.end());
        if found == expected {
            return Ok(());
        }
        Err(Violation::new("order", format!("the log ends at {found} instead of {expected}")))
    }

    pub(super) fn compare_all(&self) -> Result<(), Violation> {
        self.oracle.compare_all(&self.read_from(0)?)
    }

    fn read_from(&self, offset: i64) -> Result<Vec<(i64, Bytes)>, Violation> {
        let log = self.replica.log();
        if offset >= log.end().0 || self.disk.power_lost() {
            return Ok(Vec::new());
        }
        let wrong = |text: String| Violation::new("read", text);
        let plan = log.read(Offset(offset), usize::MAX, FirstBatch::MayBeLarger, log.end());
        let bytes = plan.map_err(|error| wrong(error.to_string()))?.read();
        let found = batches(bytes.map_err(|error| wrong(error.to_string()))?).map(|batch| {
            let batch = batch.map_err(|error| wrong(error.to_string()))?;
            Ok((batch.header().base_offset.0, batch.bytes().clone()))
        });
        found.collect()
    }
}

fn open_dir(disk: &SimDisk) -> Result<Arc<LogDir>, String> {
    LogDir::open(Arc::new(disk.clone()), PathBuf::from("/data"), Descriptors::new(OPEN_FILES_MAX))
        .map_err(|error| error.to_string())
}
