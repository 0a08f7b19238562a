//! The core that owns the partition here: production's replica on a disk that forgets.
//!
//! The stand-in for its driver does one thing at a time, looks at what every append has made of the log, and tells
//! the oracle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_broker::envelope::Acks;
use tarn_broker::replica::{Binding, Leadership, NotTruncated, ProduceError, ReadyToTruncate, Replica};
use tarn_broker::rules::{CompactionRules, TopicRules};
use tarn_image::DesiredState;
use tarn_log::disk::Disk as _;
use tarn_log::{Descriptors, FirstBatch, FlushJob, FlushPolicy, Log, LogConfig, LogDir, Opening, Together};
use tarn_mirror::local_cluster::{
    EndOrder, Gate, GateOrder, KnownState, LastPosition, LocalError, LogEnded, LogEnds, MirrorAppend,
    MirrorAppended, MirrorGeneration, Truncate, TruncateOrder,
};
use tarn_mirror::state::MirrorState;
use tarn_record::{ClientBatch, Offset, Timestamp, ValidBatch, batches};

use super::broken::Broken;
use super::consents::{Asked, Consents};
use super::controller::{PARTITION, TOPIC};
use super::exports::Exports;
use super::lane::Fetched;
use super::mirrors::Life;
use super::oracle::{Found, Left, Oracle};
use super::source::{Source, There};
use crate::disk::{Faults, SimDisk};
use crate::simulation::Violation;

const OPEN_FILES_MAX: usize = 20;

pub(super) struct OwningCore {
    pub(super) disk: SimDisk,
    pub(super) replica: Replica,
    pub(super) oracle: Oracle,
    pub(super) exports: Exports,
    rules: Arc<TopicRules>,
    _dir: Arc<LogDir>,
    generations: u64,
    /// The log start that the log directory's checkpoint has.
    checkpointed_start: Offset,
    broken: Broken,
    /// A flush has failed, though there was room.
    failed: bool,
    /// What the disk refused since the machine started: a crash may leave the first batches of that.
    refused: Vec<There>,
    /// The same of an end of the log, behind this position.
    refused_end: Option<LastPosition>,
}

/// A flush that is on its way to the disk, and where the log ended when it began, after so many cuts.
pub(super) struct Flushing {
    job: Option<FlushJob>,
    upto: i64,
    cuts: u64,
}

impl OwningCore {
    pub(super) fn new(
        rng: &mut fastrand::Rng,
        leads: Leadership,
        compacted: bool,
        broken: Broken,
    ) -> OwningCore {
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
            compaction: compacted.then(CompactionRules::default),
            timestamp_after_max_ms: i64::MAX,
            ..TopicRules::default()
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
        let core = OwningCore {
            disk,
            replica,
            oracle: Oracle::default(),
            exports: Exports::default(),
            rules,
            _dir: dir,
            generations: 0,
            checkpointed_start: Offset(0),
            broken,
            failed: false,
            refused: Vec::new(),
            refused_end: None,
        };
        core.disk.set_faults(core.quiet());
        core
    }

    /// A disk without faults, but for the one that is broken on purpose.
    pub(super) fn quiet(&self) -> Faults {
        Faults { sync_lies: self.broken == Broken::FlushSkipped, ..Faults::default() }
    }

    /// True where the process must end: a full disk is a state, any other failure to make something durable is none,
    /// nor is a log of which a truncation has dropped a part, and failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed || self.replica.log().is_half_cut()
    }

    /// The machine stops and starts again.
    pub(super) fn crash(
        &mut self,
        leads: Leadership,
        (by, source): (Life, &Source),
        now_ms: i64,
    ) -> Result<(), Violation> {
        let recovery = |text: String| Violation::new("recovery", text);
        self.disk.crash();
        self.failed = false;
        self.disk.set_faults(self.quiet());
        let dir = open_dir(&self.disk).map_err(recovery)?;
        let opening =
            Opening { clean: dir.was_clean(), recovery_point: Offset(0), log_start: self.checkpointed_start };
        let config = self.rules.log.clone();
        let opened = Log::open(&dir, TOPIC, PARTITION.partition, config, opening, Timestamp(now_ms));
        let (mut log, _) = opened.map_err(|error| recovery(error.to_string()))?;
        if self.broken == Broken::MarkerLeftOut {
            log.producers_mut().clear();
        }
        self.disk.watch_logs();
        self.replica = Replica::new(PARTITION, TOPIC.into(), log, leads, Offset(0), self.rules.clone());
        self._dir = dir;
        let found = self.found()?;
        if !self.oracle.knows(&found) {
            self.take_refused(&found, by, source)?;
        }
        self.refused.clear();
        self.refused_end = None;
        self.oracle.crashed(&found)?;
        self.exports.crashed(&self.disk)
    }

    /// What the disk had refused may be there all the same.
    fn take_refused(&mut self, found: &Found, by: Life, source: &Source) -> Result<(), Violation> {
        let end = self.oracle.end();
        for (base, bytes) in found.batches.iter().filter(|(base, _)| *base >= end) {
            let is_it = |batch: &&There| batch.stored.base == *base && batch.stored.bytes == *bytes;
            if let Some(refused) = self.refused.iter().find(is_it) {
                self.oracle.mirrored(refused, by, None, source)?;
            } else if let Some(position) = self.refused_end {
                self.oracle.ended(&parsed(bytes)?, position)?;
            }
        }
        Ok(())
    }

    /// New metadata.
    pub(super) fn learns(&mut self, leads: Leadership, binding: Option<tarn_image::Binding>) {
        self.replica.on_metadata(leads, self.rules.clone(), binding.map(Binding::new));
        if self.broken == Broken::UnknownTakenForStopped {
            self.take_for_stopped();
        }
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

    /// What is broken: what is not known of a partition that is to be stopped is taken for STOPPED.
    fn take_for_stopped(&mut self) {
        if let Some(Binding { desired, known: KnownState::Unknown | KnownState::None, .. }) =
            self.replica.binding()
            && desired.desired == DesiredState::Stopping
        {
            let version = desired.version;
            self.replica.set_known_state(KnownState::Known { state: MirrorState::Stopped, version });
        }
    }

    /// Appends what a lane fetched.
    pub(super) fn append_mirrored(
        &mut self,
        fetched: &Fetched,
        stopping_at: Option<i64>,
        (by, source): (Life, &Source),
        now_ms: i64,
    ) -> Result<MirrorAppended, Violation> {
        let Fetched { generation, batches: ref fetched, shown, .. } = *fetched;
        let closed = self.replica.binding().and_then(|binding| binding.gate);
        if self.broken == Broken::StaleGenerationAccepted {
            self.force_gate(Some(generation));
        }
        let append = MirrorAppend {
            partition: PARTITION,
            generation,
            batches: fetched.iter().map(|batch| batch.stored.valid()).collect(),
            source_log_start: Offset(shown.start),
            source_high_watermark: Offset(shown.high_watermark),
        };
        let truncations = self.replica.log().generation();
        let appended = self.replica.append_mirrored(&append, Timestamp(now_ms));
        if self.broken == Broken::StaleGenerationAccepted {
            self.force_gate(closed);
        }
        if self.replica.log().generation() != truncations {
            self.oracle.emptied(shown.start)?;
        }
        let (start, end) = (self.replica.log().start().0, self.replica.log().end().0);
        let before = self.oracle.end();
        self.goes_on_at(before, by);
        for batch in fetched.iter().filter(|batch| batch.stored.last >= before && batch.stored.last < end) {
            self.oracle.mirrored(batch, by, stopping_at, source)?;
        }
        self.oracle.starts_at(start, shown.start)?;
        self.remove_files();
        self.check_end()?;
        if matches!(appended, MirrorAppended::Storage(_)) {
            self.refused.extend(fetched.iter().filter(|batch| batch.stored.base >= end).cloned());
        }
        Ok(appended)
    }

    /// Cuts the log; what it loses has been exported to a directory, if anywhere.
    pub(super) fn cut(
        &mut self,
        order: &TruncateOrder,
        ready: ReadyToTruncate,
        export: Option<&Path>,
        asked: &Asked,
        consents: &mut Consents,
        now_ms: i64,
    ) -> Result<Result<Offset, NotTruncated>, Violation> {
        let truncations = self.replica.log().generation();
        let result = self.replica.truncate(order, ready, Timestamp(now_ms));
        let log = self.replica.log();
        if result.is_err() && log.generation() == truncations {
            return Ok(result);
        }
        let (from, all) = match order.truncate {
            Truncate::To(offset) => (offset.0, false),
            Truncate::Fully { .. } => (0, true),
        };
        let lost = self.oracle.lost_by(from);
        let (start, end) = (log.start().0, log.end().0);
        // What a disk has refused in the middle of it may be done later, or never.
        let is_all_gone = all && result.is_ok();
        self.oracle.cut(Left { start, end, is_all_gone }, if all { 0 } else { from.min(end) });
        if result.is_ok() {
            consents.check(asked, lost.dropped)?;
            self.oracle.check_is_mirrored()?;
        }
        self.exports.cut(&self.disk, export, lost.batches)?;
        self.remove_files();
        self.check_end()?;
        Ok(result)
    }

    /// Where something was appended since, what the disk refused before is cut off: a crash may undo that.
    fn goes_on_at(&mut self, before: i64, by: Life) {
        if self.replica.log().end().0 > before && !self.refused.is_empty() {
            self.oracle.may_come_back(&std::mem::take(&mut self.refused), by);
        }
    }

    fn remove_files(&mut self) {
        for removal in self.replica.take_removals() {
            // What is left is removed at the next start.
            drop(removal.job.run());
        }
    }

    /// Appends what a client sends; the offset after it, where it is taken.
    pub(super) fn append_local(
        &mut self,
        batch: &ClientBatch,
        by: Life,
        now_ms: i64,
    ) -> Result<Option<i64>, Violation> {
        let before = self.oracle.end();
        let appended = self.replica.append(batch, Acks::All, Timestamp(now_ms));
        self.goes_on_at(before, by);
        for (_, bytes) in self.read_from(before)? {
            self.oracle.local(&parsed(&bytes)?);
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
        let (job, upto) = (self.replica.flush_batches_job(), self.oracle.end());
        Flushing { job, upto, cuts: self.oracle.cuts() }
    }

    /// The flush has reached the disk, and comes back.
    pub(super) fn end_flush(&mut self, flushing: Flushing) -> Result<LogEnds, LocalError> {
        let storage = |reason: String| LocalError::Storage { partition: PARTITION, reason };
        if let Some(job) = flushing.job {
            let flushed = match job.run() {
                Ok(flushed) => flushed,
                Err(error) => {
                    self.failed = !error.is_full();
                    return Err(storage(error.to_string()));
                }
            };
            self.replica.flushed(Ok(flushed)).map_err(|error| storage(error.to_string()))?;
        }
        self.oracle.flushed(flushing.upto, flushing.cuts);
        if flushing.cuts == self.oracle.cuts() {
            self.checkpointed_start = self.replica.log().start();
        }
        if self.replica.high_watermark().0 >= flushing.upto && flushing.cuts == self.oracle.cuts() {
            self.oracle.acknowledged(flushing.upto);
        }
        Ok(self.replica.ends())
    }

    /// Appends what ends the log; it is not durable yet.
    pub(super) fn append_end(
        &mut self,
        order: &EndOrder,
        by: Life,
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
        if matches!(ended, Err(LocalError::Storage { .. })) {
            self.refused_end = Some(order.position);
        }
        self.goes_on_at(before, by);
        let appended = self.read_from(before)?;
        let is_found_done = appended.is_empty();
        for (_, bytes) in appended {
            self.oracle.ended(&parsed(&bytes)?, order.position)?;
        }
        self.check_end()?;
        if self.broken == Broken::AbortedForgotten && is_found_done {
            return Ok(ended.map(|ended| LogEnded { aborted_count: 0, aborted: Vec::new(), ..ended }));
        }
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
        self.oracle.compare_all(&self.found()?)?;
        self.exports.check_all(&self.disk)
    }

    fn found(&self) -> Result<Found, Violation> {
        let (start, end) = (self.replica.log().start().0, self.replica.log().end().0);
        Ok(Found { start, end, batches: self.read_from(start)? })
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

fn parsed(bytes: &Bytes) -> Result<ValidBatch, Violation> {
    ValidBatch::parse(bytes.clone()).map_err(|error| Violation::new("bytes", error.to_string()))
}

fn open_dir(disk: &SimDisk) -> Result<Arc<LogDir>, String> {
    LogDir::open(Arc::new(disk.clone()), PathBuf::from("/data"), Descriptors::new(OPEN_FILES_MAX))
        .map_err(|error| error.to_string())
}
