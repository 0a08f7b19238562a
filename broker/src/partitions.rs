//! The replicas that one core owns, and what is to be done when they change.
//!
//! Everything here happens on the owning core without waiting. An operation that lets readers see more
//! leaves it as news, which the core delivers when it is done with its own bookkeeping.
//!
//! Invariants:
//! * a partition is here exactly while the metadata places it on this broker and the placement on this
//!   core, or its log could not be opened;
//! * a produce request that waits here is answered by its high watermark, its failure or its deadline;
//! * a log has one flush in flight at most, and is in `flushing` until it has ended, whatever becomes of
//!   the replica meanwhile;
//! * once closed, there is no replica any more and none comes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;

use tarn_log::{FlushJob, Flushed, LogError, RemovalJob};
use tarn_mirror::local_cluster::{LocalError, MirrorAppend, MirrorAppended, MirrorGeneration};
use tarn_record::{Offset, Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Flag, ReplySlot};
use tarn_wire::ErrorCode;
use tracing::info;

use crate::envelope::{Acks, AppendRequest, FetchRead, Produced};
use crate::interest::{FetchedPartition, InterestId, Interests};
use crate::limits;
use crate::replica::waiting::{Done, Waiting};
use crate::replica::{ProduceError, Replica};

/// The partitions of one core.
#[derive(Debug)]
pub struct Partitions {
    replicas: HashMap<TopicIdPartition, Replica>,
    interests: Interests<Flag>,
    waiting: Waiting<WaitingProduce>,
    dirty: HashSet<TopicIdPartition>,
    flushing: HashSet<TopicIdPartition>,
    is_closed: bool,
    removals: Vec<RemovalJob>,
    generations: u64,
}

/// A produce request that waits for the high watermark.
#[derive(Debug)]
struct WaitingProduce {
    produced: Vec<Produced>,
    reply: ReplySlot<Vec<Produced>>,
}

impl Default for Partitions {
    fn default() -> Partitions {
        Partitions {
            replicas: HashMap::new(),
            interests: Interests::default(),
            waiting: Waiting::new(limits::WAITING_PRODUCES_PER_CORE),
            dirty: HashSet::new(),
            flushing: HashSet::new(),
            is_closed: false,
            removals: Vec::new(),
            generations: 0,
        }
    }
}

impl Partitions {
    /// A generation that no gate of this core has had, also of a partition that left and came back.
    pub fn next_generation(&mut self) -> MirrorGeneration {
        self.generations += 1;
        MirrorGeneration(self.generations)
    }

    /// The replica of a partition.
    pub fn get(&self, partition: TopicIdPartition) -> Option<&Replica> {
        self.replicas.get(&partition)
    }

    /// The replica of a partition, to be changed. Call `news_of` after a change that readers can see.
    pub fn get_mut(&mut self, partition: TopicIdPartition) -> Option<&mut Replica> {
        self.replicas.get_mut(&partition)
    }

    /// Every replica.
    pub fn iter(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    /// Takes a replica in. Sessions that asked for it before are told.
    pub fn insert(&mut self, mut replica: Replica) {
        let partition = replica.partition();
        self.interests.watchers_of(partition).into_iter().for_each(|watcher| replica.watch(watcher));
        if replica.waits_for_flush() && replica.log().flushed_to() < replica.log().end() {
            // What a crash left behind is promised, and seen, once it is on the disk for certain.
            self.dirty.insert(partition);
        }
        self.replicas.insert(partition, replica);
        self.news_of(partition);
    }

    /// Gives a replica up: what waits on it fails, and sessions are told at their next fetch.
    pub fn remove(&mut self, partition: TopicIdPartition, error: ErrorCode) -> Option<Replica> {
        let replica = self.replicas.remove(&partition)?;
        answer(self.waiting.fail(partition, error));
        for watcher in replica.watchers() {
            wake(self.interests.has_news(*watcher));
        }
        Some(replica)
    }

    /// Gives every replica up for good: what waits fails, and none is taken in any more.
    pub fn close(&mut self) -> Vec<Replica> {
        self.is_closed = true;
        let all: Vec<_> = self.replicas.keys().copied().collect();
        all.into_iter()
            .filter_map(|partition| self.remove(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER))
            .collect()
    }

    /// True once the partitions were given up for good.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Appends what clients produced, and answers or lets the request wait; `absence` says why a partition
    /// is not here.
    pub fn append(
        &mut self,
        request: AppendRequest,
        now: Timestamp,
        absence: impl Fn(TopicIdPartition) -> ErrorCode,
    ) {
        let mut produced = Vec::with_capacity(request.items.len());
        let mut open = Vec::new();
        for (partition, batch) in &request.items {
            let Some(replica) = self.replicas.get_mut(partition) else {
                produced.push(Produced::failed(*partition, absence(*partition), None));
                continue;
            };
            let result = replica.append(batch, request.acks, now);
            let outcome = Produced::from_result(replica, result.as_ref());
            if let Ok(appended) = &result {
                if replica.waits_for_flush() {
                    self.dirty.insert(*partition);
                }
                let required = match appended.duplicate_of {
                    Some(_) => replica.log().end(),
                    None => appended.last.plus(1),
                };
                if request.acks == Acks::All && replica.high_watermark() < required {
                    open.push((*partition, required));
                }
            }
            produced.push(outcome);
            self.news_of(*partition);
        }
        let waiting = WaitingProduce { produced, reply: request.reply };
        if open.is_empty() {
            waiting.answer(Vec::new());
        } else if let Err(refused) = self.waiting.park(waiting, &open, request.deadline_ms) {
            let errors =
                open.iter().map(|(partition, _)| (*partition, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND));
            refused.answer(errors.collect());
        }
    }

    /// Answers when all that is in the partition's log now is committed.
    pub fn wait_for_commit(
        &mut self,
        partition: TopicIdPartition,
        reply: ReplySlot<Vec<Produced>>,
        deadline_ms: u64,
    ) {
        let produced = vec![Produced::failed(partition, ErrorCode::NONE, None)];
        let waiting = WaitingProduce { produced, reply };
        let Some(replica) = self.replicas.get(&partition) else { return };
        let end = replica.log().end();
        if replica.high_watermark() >= end {
            return waiting.answer(Vec::new());
        }
        if let Err(refused) = self.waiting.park(waiting, &[(partition, end)], deadline_ms) {
            refused.answer(vec![(partition, ErrorCode::NOT_ENOUGH_REPLICAS)]);
        }
    }

    /// Appends what a mirror fetched; `absence` says why a partition is not here.
    pub fn append_mirrored(
        &mut self,
        appends: &[MirrorAppend],
        now: Timestamp,
        absence: impl Fn(TopicIdPartition) -> LocalError,
    ) -> Vec<MirrorAppended> {
        appends
            .iter()
            .map(|append| {
                let Some(replica) = self.replicas.get_mut(&append.partition) else {
                    return match absence(append.partition) {
                        LocalError::Storage { reason, .. } => MirrorAppended::Storage(reason),
                        LocalError::NotLeader(_)
                        | LocalError::Unanswered { .. }
                        | LocalError::NotEnded { .. }
                        | LocalError::NotTruncated { .. }
                        | LocalError::Export { .. } => MirrorAppended::NotLeader,
                    };
                };
                let before = (replica.high_watermark(), replica.log().start());
                let held_records = before.1 < replica.log().end();
                let appended = replica.append_mirrored(append, now);
                if held_records && replica.log().start() == replica.log().end() {
                    tell_emptied(replica, before.1);
                }
                self.removals.extend(replica.take_removals());
                if before != (replica.high_watermark(), replica.log().start()) {
                    self.news_of(append.partition);
                }
                appended
            })
            .collect()
    }

    /// The first of these of whose logs a truncation has dropped a part, and failed.
    pub(crate) fn half_cut(
        &self,
        partitions: impl IntoIterator<Item = TopicIdPartition>,
    ) -> Option<TopicIdPartition> {
        let is_half_cut = |partition: &TopicIdPartition| {
            self.replicas.get(partition).is_some_and(|it| it.log().is_half_cut())
        };
        partitions.into_iter().find(is_half_cut)
    }

    /// Reads for a fetch session, and keeps what it wants; `absence` says why a partition is not here.
    pub fn fetch(&mut self, read: FetchRead, absence: impl Fn(TopicIdPartition) -> ErrorCode) {
        let interest = read.interest;
        self.interests.open(interest, read.wake, read.upserts.len());
        for partition in read.forgets {
            if let (Some(watcher), Some(replica)) =
                (self.interests.forget(interest, partition), self.replicas.get_mut(&partition))
            {
                replica.unwatch(watcher);
            }
        }
        for (partition, wanted) in read.upserts {
            if let (Some(watcher), Some(replica)) =
                (self.interests.upsert(interest, partition, wanted), self.replicas.get_mut(&partition))
            {
                replica.watch(watcher);
            }
        }
        read.requeue.into_iter().for_each(|partition| self.interests.requeue(interest, partition));
        for (partition, before, now) in self.interests.compact(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(before);
                replica.watch(now);
            }
        }
        let replicas = &self.replicas;
        let partitions =
            self.interests.fetch(interest, read.scope, read.max_bytes, |partition, wanted, limit, first| {
                match replicas.get(&partition) {
                    Some(replica) => replica.read(wanted, limit, first, read.isolation),
                    None => FetchedPartition::failed(partition, absence(partition)),
                }
            });
        // A session that has gone closes its interest itself.
        let _ = read.reply.fill(partitions);
    }

    /// Wakes the session at its next news; at once where there is news already.
    pub fn arm(&mut self, interest: InterestId, wake: &Flag) {
        if !self.interests.arm(interest) {
            wake.raise();
        }
    }

    /// Ends a session's interest.
    pub fn close_interest(&mut self, interest: InterestId) {
        for (partition, watcher) in self.interests.close(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(watcher);
            }
        }
    }

    /// Tells the watchers of a partition, and the requests that wait on its high watermark.
    pub fn news_of(&mut self, partition: TopicIdPartition) {
        let Some(replica) = self.replicas.get(&partition) else { return };
        for watcher in replica.watchers() {
            wake(self.interests.has_news(*watcher));
        }
        answer(self.waiting.high_watermark(partition, replica.high_watermark()));
    }

    /// The log of a partition was cut: those who read it are told, and what waits for records that may be gone
    /// is not confirmed any more, whatever is appended in their place.
    pub fn was_truncated(&mut self, partition: TopicIdPartition) {
        if let Some(replica) = self.replicas.get_mut(&partition) {
            self.removals.extend(replica.take_removals());
        }
        self.news_of(partition);
        answer(self.waiting.fail(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER));
    }

    /// Answers the produce requests whose time is up.
    pub fn expire(&mut self, now_ms: u64) {
        answer(self.waiting.expire(now_ms));
    }

    /// When `expire` has something to do next.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.next_deadline_ms()
    }

    /// The flushes that somebody waits for: one for each partition appended to since the last call. One
    /// that is being flushed already has its turn when that has ended.
    pub fn flush_jobs(&mut self) -> Vec<(TopicIdPartition, FlushJob)> {
        let mut dirty: BTreeSet<_> = mem::take(&mut self.dirty).into_iter().collect();
        let jobs = self.flush_jobs_of(&mut dirty);
        self.dirty.extend(dirty);
        jobs
    }

    /// Flushes of the batches of `wanted`, of which only those stay that are being flushed already.
    pub fn flush_jobs_of(
        &mut self,
        wanted: &mut BTreeSet<TopicIdPartition>,
    ) -> Vec<(TopicIdPartition, FlushJob)> {
        let (busy, ready): (BTreeSet<_>, BTreeSet<_>) =
            mem::take(wanted).into_iter().partition(|one| self.flushing.contains(one));
        *wanted = busy;
        let job = |partition| Some((partition, self.replicas.get_mut(&partition)?.flush_batches_job()?));
        let jobs: Vec<_> = ready.into_iter().filter_map(job).collect();
        self.flushing.extend(jobs.iter().map(|(partition, _)| *partition));
        jobs
    }

    /// A flush of everything in one partition; `None` where there is nothing to do, or one is in flight.
    pub fn flush_job_of(&mut self, partition: TopicIdPartition) -> Option<FlushJob> {
        if self.flushing.contains(&partition) {
            return None;
        }
        let job = self.replicas.get_mut(&partition)?.flush_job()?;
        self.flushing.insert(partition);
        Some(job)
    }

    /// True until the flush of a partition has ended, though the replica may have gone.
    pub fn is_flushing(&self, partition: TopicIdPartition) -> bool {
        self.flushing.contains(&partition)
    }

    /// A flush that found no room is to be tried again.
    pub fn flush_again(&mut self, partition: TopicIdPartition) {
        self.dirty.insert(partition);
    }

    /// A flush that nobody runs any more.
    pub fn flush_dropped(&mut self, partition: TopicIdPartition) {
        self.flushing.remove(&partition);
    }

    /// Files that logs have let go, to be removed on another thread.
    pub fn take_removals(&mut self) -> Vec<RemovalJob> {
        mem::take(&mut self.removals)
    }

    /// True where a flush is waited for.
    pub fn wants_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The partitions to flush so that a crash does not make us read too much again: all while that is much,
    /// else a few of those whose epochs alone are not on the disk, since what was promised of them is.
    pub fn background_flush_due(&self) -> Vec<TopicIdPartition> {
        let unflushed = |replica: &&Replica| replica.log().unflushed_bytes();
        let replicas = self.replicas.values();
        if replicas.clone().map(|replica| unflushed(&replica)).sum::<u64>()
            >= limits::UNFLUSHED_BYTES_PER_CORE
        {
            return replicas.filter(|replica| unflushed(replica) > 0).map(Replica::partition).collect();
        }
        let lacks_epochs = |replica: &&Replica| replica.log().recovery_point() < replica.log().flushed_to();
        let due = replicas.filter(lacks_epochs).map(Replica::partition);
        due.take(limits::EPOCHS_SAVED_PER_INTERVAL).collect()
    }

    /// A flush has ended.
    ///
    /// # Errors
    /// The disk's refusal: nothing that was promised on this directory may be acknowledged any more.
    pub fn flushed(
        &mut self,
        partition: TopicIdPartition,
        result: Result<Flushed, LogError>,
    ) -> Result<(), LogError> {
        self.flushing.remove(&partition);
        // A partition that is gone: what its flush met there is of no interest.
        let Some(replica) = self.replicas.get_mut(&partition) else { return Ok(()) };
        if replica.flushed(result?)? {
            self.news_of(partition);
        }
        Ok(())
    }
}

impl Produced {
    /// A batch that was not appended.
    pub fn failed(partition: TopicIdPartition, error: ErrorCode, message: Option<String>) -> Produced {
        Produced {
            partition,
            error,
            message,
            base_offset: Offset::NONE,
            log_append_time: Timestamp::NONE,
            log_start: Offset::NONE,
            leader_epoch: tarn_record::Epoch::NONE,
        }
    }

    fn from_result(replica: &Replica, result: Result<&tarn_log::Appended, &ProduceError>) -> Produced {
        let partition = replica.partition();
        let produced = match result {
            Ok(appended) => Produced {
                base_offset: appended.duplicate_of.map_or(appended.first, |(first, _)| first),
                log_append_time: appended.log_append_time,
                ..Produced::failed(partition, ErrorCode::NONE, None)
            },
            Err(ProduceError::Refused(why)) => Produced::failed(partition, why.code(), Some(why.to_string())),
            Err(ProduceError::NotEnoughReplicas { in_sync, required }) => {
                let message = format!("{in_sync} replicas are in sync and {required} have to be");
                Produced::failed(partition, ErrorCode::NOT_ENOUGH_REPLICAS, Some(message))
            }
            Err(ProduceError::Append(why)) => {
                Produced::failed(partition, ErrorCode(why.code()), Some(why.to_string()))
            }
        };
        Produced { log_start: replica.log().start(), leader_epoch: replica.leader_epoch(), ..produced }
    }
}

impl WaitingProduce {
    fn answer(mut self, errors: Vec<(TopicIdPartition, ErrorCode)>) {
        for (partition, error) in errors {
            for produced in self.produced.iter_mut().filter(|produced| produced.partition == partition) {
                produced.error = error;
            }
        }
        // A client that has gone does not want its answer.
        let _ = self.reply.fill(self.produced);
    }
}

fn answer(done: Vec<Done<WaitingProduce>>) {
    done.into_iter().for_each(|done| done.answer.answer(done.errors));
}

fn wake(flag: Option<&Flag>) {
    if let Some(flag) = flag {
        flag.raise();
    }
}

/// Says that the source has removed all that was here.
fn tell_emptied(replica: &Replica, from: Offset) {
    let (topic, partition, to) = (replica.topic(), replica.partition().partition, replica.log().start());
    info!(%topic, %partition, %from, %to, "the source has removed all that was mirrored, and so has this cluster");
}

#[cfg(test)]
mod tests;
