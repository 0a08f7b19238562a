//! The rules of a partition's leader: what may be appended, and how far readers see.
//!
//! Owned by the partition's core. It touches the log's files and nothing else: flushes and answers are
//! the business of whoever calls it.
//!
//! Invariants:
//! * `log start <= high watermark <= log end`, and the high watermark never goes back but by a
//!   truncation;
//! * while a mirror rules the log, only its appends under the current gate get in, and the high watermark
//!   is the log end, once it has passed what clients wrote before;
//! * otherwise, with one replica, the high watermark is the end of what the flush policy promises; with
//!   fewer replicas in sync than `min.insync.replicas` asks for it stays where it is (KIP-966).

use std::sync::Arc;

use tarn_log::{
    Aborted, AppendError, Appended, EpochEnd, FirstBatch, Log, LogError, Read, ReadError, ReadFrom,
    ReadOrder, RemovalJob, Together, close_together,
};
use tarn_mirror::local_cluster::{
    Gate, GateOrder, KnownState, LogEnds, MirrorAppend, MirrorAppended, MirrorGeneration,
};
use tarn_record::{ClientBatch, Epoch, Offset, Timestamp, TopicIdPartition};
use tarn_wire::ErrorCode;

use super::guard::{Binding, WriteRefused};
use super::leadership::Leadership;
use crate::envelope::{Acks, Marker};
use crate::interest::{FetchedPartition, Wanted, Watcher};
use crate::log_part::part_of;
use crate::removing::Removal;
use crate::rules::TopicRules;

/// How far a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset, with the aborted transactions named.
    ReadCommitted,
    /// Up to the log end: replicas and debugging consumers.
    Replica,
}

/// One partition that this core owns and this broker leads.
#[derive(Debug)]
pub struct Replica {
    partition: TopicIdPartition,
    pub(super) topic: Arc<str>,
    pub(super) log: Log,
    pub(super) leadership: Leadership,
    pub(super) high_watermark: Offset,
    /// The end of what clients have appended since the log was opened.
    pub(super) produced_to: Offset,
    pub(super) rules: Arc<TopicRules>,
    pub(super) binding: Option<Binding>,
    watchers: Vec<Watcher>,
    /// Compaction has written a part of the log anew, whatever the topic's policy is now.
    pub(crate) was_compacted: bool,
    pub(super) removals: Vec<RemovalJob>,
    /// When the oldest of what no flush has been begun for was appended.
    pub(super) unflushed_since: Option<Timestamp>,
}

/// Why a client's batch was not appended.
#[derive(Debug)]
pub enum ProduceError {
    /// A mirror rules the partition.
    Refused(WriteRefused),
    /// It was to be safe on more replicas than are in sync.
    NotEnoughReplicas {
        /// How many are in sync.
        in_sync: usize,
        /// How many have to be.
        required: usize,
    },
    /// The log did not take it.
    Append(AppendError),
}

/// What reading a partition came to.
#[derive(Debug)]
pub enum Reading {
    /// What is to be told.
    Read(FetchedPartition),
    /// Memory does not have what this order needs. Until it has, this can be told: all but the records.
    Cold(FetchedPartition, ReadOrder),
}

impl Reading {
    /// What can be told now.
    pub fn into_fetched(self) -> FetchedPartition {
        match self {
            Reading::Read(fetched) | Reading::Cold(fetched, _) => fetched,
        }
    }
}

impl Replica {
    /// A replica of `log` that this broker leads; `high_watermark` is what the checkpoint says.
    pub fn new(
        partition: TopicIdPartition,
        topic: Arc<str>,
        mut log: Log,
        leadership: Leadership,
        high_watermark: Offset,
        rules: Arc<TopicRules>,
    ) -> Replica {
        let high_watermark = high_watermark.clamp(log.start(), log.end());
        // What recovery read again may be committed already, and nothing may move the watermark for long.
        log.on_high_watermark(high_watermark);
        let mut replica = Replica {
            partition,
            topic,
            log,
            leadership,
            high_watermark,
            produced_to: high_watermark,
            rules,
            binding: None,
            watchers: Vec::new(),
            was_compacted: false,
            removals: Vec::new(),
            unflushed_since: None,
        };
        replica.advance_high_watermark();
        replica
    }

    /// The partition.
    pub fn partition(&self) -> TopicIdPartition {
        self.partition
    }

    /// The topic's name.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, for a test to change.
    #[cfg(test)]
    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Closes the logs; what they made durable is committed. Waits for the disk.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn close_all(replicas: &mut [Replica]) -> Result<(), LogError> {
        let together = Together::of(replicas.len());
        close_together(replicas.iter_mut().map(|replica| &mut replica.log).collect(), together)?;
        for replica in replicas {
            replica.advance_high_watermark();
        }
        Ok(())
    }

    /// The log, to be deleted.
    pub fn into_log(self) -> Log {
        self.log
    }

    /// The epoch in which this broker leads.
    pub fn leader_epoch(&self) -> Epoch {
        self.leadership.epoch
    }

    /// The offset below which everything is committed.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The topic's rules in force.
    pub fn rules(&self) -> &Arc<TopicRules> {
        &self.rules
    }

    /// How the partition is bound to a mirror.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// Puts a watcher on the partition.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watchers.push(watcher);
    }

    /// Takes a watcher off.
    pub fn unwatch(&mut self, watcher: Watcher) {
        self.watchers.retain(|other| *other != watcher);
    }

    /// Who is to be told of news.
    pub fn watchers(&self) -> &[Watcher] {
        &self.watchers
    }

    /// The metadata has changed: how this broker leads, the topic's rules, the binding.
    pub fn on_metadata(&mut self, leadership: Leadership, rules: Arc<TopicRules>, binding: Option<Binding>) {
        self.leadership = leadership;
        self.log.configure(rules.log.clone());
        self.rules = rules;
        self.binding = match (self.binding.take(), binding) {
            (Some(kept), Some(new)) if kept.desired.mirror == new.desired.mirror => {
                Some(Binding { desired: new.desired, ..kept })
            }
            (_, new) => new,
        };
        self.advance_high_watermark();
    }

    /// Appends what a client produced.
    ///
    /// # Errors
    /// Why it was not appended.
    pub fn append(
        &mut self,
        batch: &ClientBatch,
        acks: Acks,
        now: Timestamp,
    ) -> Result<Appended, ProduceError> {
        if let Some(binding) = &self.binding {
            binding.check_write(&self.topic).map_err(ProduceError::Refused)?;
        }
        if acks == Acks::All {
            self.check_in_sync()?;
        }
        let appended = self
            .log
            .append_as_leader(batch, self.leadership.epoch, self.rules.timestamp_type, now)
            .map_err(ProduceError::Append)?;
        self.produced_to = self.log.end();
        self.advance_high_watermark();
        Ok(appended)
    }

    /// Appends the end of a transaction as its coordinator decided; `None` where a mirror rules the
    /// partition, whose source ends its transactions.
    ///
    /// # Errors
    /// Why it was not appended.
    pub fn append_marker(
        &mut self,
        marker: &Marker,
        now: Timestamp,
    ) -> Result<Option<Appended>, ProduceError> {
        match self.binding.as_ref().map(|binding| binding.check_write(&self.topic)) {
            Some(Err(WriteRefused::ReadOnly(_))) => return Ok(None),
            Some(Err(refused)) => return Err(ProduceError::Refused(refused)),
            Some(Ok(())) | None => {}
        }
        self.check_in_sync()?;
        let (epoch, timestamp_type) = (self.leadership.epoch, self.rules.timestamp_type);
        let appended = self
            .log
            .append_marker(&marker.end, marker.rule, epoch, timestamp_type, now)
            .map_err(ProduceError::Append)?;
        self.produced_to = self.log.end();
        self.advance_high_watermark();
        Ok(Some(appended))
    }

    /// Checks that enough replicas are in sync for what is to be safe on all of them.
    fn check_in_sync(&self) -> Result<(), ProduceError> {
        match self.leadership.lacks(self.rules.min_in_sync) {
            Some(required) => {
                Err(ProduceError::NotEnoughReplicas { in_sync: self.leadership.in_sync, required })
            }
            None => Ok(()),
        }
    }

    /// Appends what a mirror fetched, and takes over the source's watermarks.
    pub fn append_mirrored(&mut self, append: &MirrorAppend, now: Timestamp) -> MirrorAppended {
        let leader_epoch = self.leadership.epoch;
        let Some(binding) = &mut self.binding else { return MirrorAppended::StaleGeneration };
        if binding.gate != Some(append.generation) {
            return MirrorAppended::StaleGeneration;
        }
        if let Some(last) = append.batches.last()
            && last.header().leader_epoch > leader_epoch
        {
            return MirrorAppended::EpochBehind { batch_epoch: last.header().leader_epoch, leader_epoch };
        }
        if append.source_log_start > append.source_high_watermark {
            let reason = format!(
                "the source says that its log starts at {} and is committed up to {}",
                append.source_log_start, append.source_high_watermark
            );
            return MirrorAppended::NotNext { log_end: self.log.end(), reason };
        }
        binding.source_high_watermark = append.source_high_watermark;
        let result = self.take_over(append, now);
        self.advance_high_watermark();
        match result {
            Ok(()) => {
                MirrorAppended::Appended { log_end: self.log.end(), high_watermark: self.high_watermark }
            }
            Err(AppendError::Storage(error)) => MirrorAppended::Storage(error.to_string()),
            Err(error) => MirrorAppended::NotNext { log_end: self.log.end(), reason: error.to_string() },
        }
    }

    /// Follows the source: its log start, and its batches as they are.
    fn take_over(&mut self, append: &MirrorAppend, now: Timestamp) -> Result<(), AppendError> {
        let source_start = append.source_log_start;
        if source_start > self.log.end() {
            // Nothing of what is here, if anything, is at the source any more.
            let truncated = self.log.truncate_fully_and_start_at(source_start, now)?;
            self.high_watermark = truncated.end;
            self.removals.push(truncated.removal);
        }
        let appended = self.log.append_as_is(&append.batches, now);
        if source_start > self.log.start() {
            self.removals.extend(self.log.advance_start(source_start.min(self.log.end()), now)?);
        }
        appended.map(|_| ())
    }

    /// Forgets producers that were idle for too long.
    pub fn expire_producers(&mut self, now: Timestamp) {
        self.log.expire_producers(now);
    }

    /// Files that the log has let go, to be removed on another thread when `file.delete.delay.ms` is over.
    pub fn take_removals(&mut self) -> Vec<Removal> {
        let delay_ms = self.rules.file_delete_delay_ms;
        std::mem::take(&mut self.removals).into_iter().map(|job| Removal { job, delay_ms }).collect()
    }

    /// Opens the gate for a mirror's appends under a generation of its own, or closes it. False where this
    /// core does not know of that binding yet, so that clients may still write what comes first.
    pub fn set_gate(&mut self, order: &GateOrder, generation: MirrorGeneration) -> bool {
        match &mut self.binding {
            Some(binding) if binding.desired.version >= order.version => {
                binding.gate = (order.gate == Gate::Open).then_some(generation);
                true
            }
            _ => false,
        }
    }

    /// What the coordinator knows of the partition; what it knew under an earlier binding, and is told late, changes
    /// nothing. False where this core does not know of its binding yet.
    pub fn set_known_state(&mut self, known: KnownState) -> bool {
        let Some(binding) = &mut self.binding else { return false };
        if let (KnownState::Known { version: before, .. }, KnownState::Known { version, .. }) =
            (binding.known, known)
            && version < before
        {
            return true;
        }
        binding.known = known;
        self.advance_high_watermark();
        true
    }

    /// Where the log begins and ends.
    pub fn ends(&self) -> LogEnds {
        LogEnds {
            log_start: self.log.start(),
            log_end: self.log.end(),
            high_watermark: self.high_watermark,
            latest_epoch: self.log.latest_epoch(),
            leader_epoch: self.leadership.epoch,
            compacted: self.rules.compaction.is_some() || self.was_compacted,
        }
    }

    /// Where the newest epoch not above `asked` ends; `None` where there is none, or that one has not begun.
    pub fn epoch_end(&self, asked: Epoch) -> Option<EpochEnd> {
        if asked == self.leadership.epoch && !self.is_ruled_by_a_mirror() {
            return Some(EpochEnd { epoch: asked, end: self.log.end() });
        }
        self.log.epochs().end_of(asked, self.log.end())
    }

    /// The offset before which every transaction is decided.
    pub fn last_stable_offset(&self) -> Offset {
        self.log.last_stable_offset(self.high_watermark)
    }

    /// The offset a reader may read up to.
    pub fn visible_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable_offset(),
            Isolation::Replica => self.log.end(),
        }
    }

    /// Checks the leader epoch that a client thinks is in force.
    ///
    /// # Errors
    /// FENCED_LEADER_EPOCH where it is older, UNKNOWN_LEADER_EPOCH where it is newer (KIP-320).
    pub fn check_epoch(&self, known_to_client: Epoch) -> Result<(), ErrorCode> {
        match known_to_client {
            Epoch::NONE => Ok(()),
            epoch if epoch < self.leadership.epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
            epoch if epoch > self.leadership.epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            _ => Ok(()),
        }
    }

    /// Reads for a fetch: at most about `limit` bytes.
    pub fn read(
        &self,
        wanted: &Wanted,
        limit: usize,
        first_batch: FirstBatch,
        isolation: Isolation,
        source: ReadFrom,
    ) -> Reading {
        let (mut fetched, order) = match self.order(wanted, limit, first_batch, isolation) {
            Reading::Cold(left_out, order) => (left_out, order),
            answered => return answered,
        };
        match self.log.read_from(&order, source) {
            Ok(Read { plan, aborted }) => {
                let aborted = aborted.iter().map(|one| (one.producer_id.0, one.first_offset));
                fetched.aborted = (order.aborted == Aborted::Named).then(|| aborted.collect());
                fetched.first_batch_bytes = plan.first_batch_bytes;
                plan.slices.into_iter().for_each(|slice| fetched.records.push(part_of(slice)));
                Reading::Read(fetched)
            }
            Err(ReadError::Storage(error)) if error.is_cold() => Reading::Cold(fetched, order),
            Err(error) => Reading::Read(FetchedPartition::failed(self.partition, ErrorCode(error.code()))),
        }
    }

    /// The same without a look at the log's files, as if memory had nothing of them.
    pub fn order(
        &self,
        wanted: &Wanted,
        limit: usize,
        first_batch: FirstBatch,
        isolation: Isolation,
    ) -> Reading {
        let failed = |error| Reading::Read(FetchedPartition::failed(self.partition, error));
        if let Err(error) = self.check_epoch(wanted.current_leader_epoch) {
            return failed(error);
        }
        let (visible, fetch_offset) = (self.visible_end(isolation), wanted.fetch_offset);
        let fetched = FetchedPartition {
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset(),
            log_start: self.log.start(),
            is_behind: fetch_offset < visible,
            ..FetchedPartition::failed(self.partition, ErrorCode::NONE)
        };
        if wanted.last_fetched_epoch != Epoch::NONE {
            match self.diverging(wanted) {
                Ok(None) => {}
                Ok(diverging) => return Reading::Read(FetchedPartition { diverging, ..fetched }),
                Err(error) => return failed(error),
            }
        }
        if fetch_offset > visible && self.is_known_at_the_source(fetch_offset) {
            return Reading::Read(fetched);
        }
        let is_committed = isolation == Isolation::ReadCommitted;
        let aborted = if is_committed { Aborted::Named } else { Aborted::Unnamed };
        let (from, max_bytes, upper) = (fetch_offset, limit, visible);
        Reading::Cold(fetched, ReadOrder { from, max_bytes, first_batch, upper, aborted })
    }

    /// True while a mirror rules the log.
    pub fn is_ruled_by_a_mirror(&self) -> bool {
        self.binding.as_ref().is_some_and(Binding::rules_the_log)
    }

    /// Moves the high watermark to where it belongs; true where it moved.
    pub(super) fn advance_high_watermark(&mut self) -> bool {
        let promised = if self.is_under_min_isr() {
            self.high_watermark
        } else if self.waits_for_flush() {
            self.log.flushed_to()
        } else {
            self.log.end()
        };
        let promised = promised.clamp(self.log.start(), self.log.end());
        if promised <= self.high_watermark && self.high_watermark >= self.log.start() {
            return false;
        }
        self.high_watermark = promised;
        self.log.on_high_watermark(promised);
        true
    }

    /// True while a mirror rules the log, but for what clients wrote to a promoted topic just before: whoever waits for
    /// that was promised what the topic promises.
    pub(super) fn is_filled_by_a_mirror(&self) -> bool {
        self.is_ruled_by_a_mirror() && self.high_watermark >= self.produced_to
    }

    /// A mirrored partition is not held back: its source has what is here.
    fn is_under_min_isr(&self) -> bool {
        !self.is_filled_by_a_mirror() && self.leadership.lacks(self.rules.min_in_sync).is_some()
    }

    /// A consumer that comes from the source may ask for what is not copied yet: that is no error.
    fn is_known_at_the_source(&self, offset: Offset) -> bool {
        self.binding.as_ref().is_some_and(|binding| {
            binding.rules_the_log() && offset <= binding.source_high_watermark && offset > self.log.end()
        }) || offset <= self.log.end()
    }

    fn diverging(&self, wanted: &Wanted) -> Result<Option<(Epoch, Offset)>, ErrorCode> {
        let found = self.log.epochs().end_of(wanted.last_fetched_epoch, self.log.end());
        let found = found.ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?;
        let (epoch, offset) = (wanted.last_fetched_epoch, wanted.fetch_offset);
        let parted = found.epoch < epoch || found.end < offset;
        Ok(parted.then_some((found.epoch, found.end)))
    }
}
