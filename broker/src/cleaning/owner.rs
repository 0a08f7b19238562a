//! What the core that owns a log does for its compaction: it says which logs need it, begins rounds, and puts what
//! they have written in place.
//!
//! A thread that panics or is gone lets go of the slot for the end of its round, and so the round has ended too.

use std::rc::Rc;

use tarn_image::effective::BrokerView;
use tarn_image::effective::cleaner::CleanerConfig;
use tarn_log::{
    CleanError, Cleaned, Cleaning, Dirtiness, LogError, LogIdentity, RemovalJob, SegmentTimestamps, SwapError,
};
use tarn_record::{Offset, Timestamp, TopicIdPartition};
use tarn_runtime::channel::{Reply, ReplySlot, reply};
use tarn_runtime::{Queue, blocking_read, spawn, wall_clock_ms, yield_if_needed};
use tracing::{debug, error, warn};

use super::candidates::{Candidate, Candidates};
use super::ledger::{Files, Hindrance};
use super::numbers::Uncleanable;
use super::round::Outcome;
use super::shared::Unwanted;
use crate::cold_reads::disk_of;
use crate::core::Core;
use crate::failing;
use crate::flushing::{NotFlushed, flush_in_background};
use crate::limits;
use crate::log_dirs::OnDisk;
use crate::replica::Replica;

/// What a thread of the cleaner asks of a core.
#[derive(Debug)]
pub enum CleanCall {
    /// Which logs need it most.
    Candidates(ReplySlot<Candidates>),
    /// To begin a round of this log; there may be nothing to do by now.
    Begin(TopicIdPartition, ReplySlot<Option<Box<Begun>>>),
    /// To put a segment in its place.
    Swap(TopicIdPartition, Box<Cleaned>, ReplySlot<Swap>),
}

/// A round that has begun.
pub struct Begun {
    pub(super) cleaning: Cleaning,
    pub(super) unwanted: Unwanted,
    /// Where its end is told, once its thread touches no file of the log any more.
    pub(super) end: ReplySlot<Ended>,
}

/// How a round has ended.
pub struct Ended {
    pub(super) outcome: Outcome,
    /// Filled when it was noted.
    pub(super) noted: ReplySlot<()>,
}

/// What became of a segment that a round has written.
#[derive(Debug)]
pub enum Swap {
    /// It is in its place.
    Done,
    /// The log is not what it was: its files are to be removed before anything else is written for the log.
    Stale(RemovalJob),
    /// Somebody is opening a file that leaves the log: it can be handed over again.
    Busy(Box<Cleaned>),
    /// The disk refused, and nothing has changed.
    Refused(LogError),
    /// The core has gone.
    Unanswered,
}

/// Does what a thread of the cleaner asks.
pub(crate) fn answer(core: &Rc<Core>, call: CleanCall) {
    // Who asked may have gone.
    match call {
        CleanCall::Candidates(reply) => {
            let core = core.clone();
            spawn(Queue::Background, async move { propose(&core, reply).await }).detach();
        }
        CleanCall::Begin(partition, reply) => drop(reply.fill(begin(core, partition).map(Box::new))),
        CleanCall::Swap(partition, cleaned, reply) => drop(reply.fill(swap(core, partition, *cleaned))),
    }
}

/// Puts in force what the metadata say of the cleaner.
pub(crate) fn configure(core: &Core) {
    let (image, broker) = (core.image(), core.node().broker_id().to_string());
    let view = BrokerView::new(image.configs(), &broker, &core.node().config().properties);
    core.node().cleaner().configure(CleanerConfig::resolve(&view));
}

/// A log was opened: what is known of its compaction is looked up.
pub(crate) fn opened(core: &Core, partition: TopicIdPartition) {
    let log_dirs = core.node().log_dirs();
    let mut partitions = core.partitions();
    let Some(replica) = partitions.get_mut(partition) else { return };
    let (topic, index, id) = (replica.topic().clone(), partition.partition, partition.topic_id);
    let mut first_dirty = log_dirs.first_dirty(&topic, index, id);
    let is_compacted = replica.rules().compaction.is_some();
    if !is_compacted && first_dirty.is_some_and(|first_dirty| first_dirty < replica.log().start()) {
        // All that was ever compacted has gone.
        first_dirty = None;
        log_dirs.note_first_dirty(&topic, index, id, None);
    }
    replica.was_compacted = first_dirty.is_some();
    drop(partitions);
    follow(core, partition);
}

/// A log was opened, or the rules of its topic may have changed.
pub(crate) fn follow(core: &Core, partition: TopicIdPartition) {
    let log_dirs = core.node().log_dirs();
    let partitions = core.partitions();
    let Some(replica) = partitions.get(partition) else { return };
    if replica.rules().compaction.is_none() {
        return forget(core, partition);
    }
    if core.cleanings().get(partition).is_some() {
        return;
    }
    let (topic, index, id) = (replica.topic(), partition.partition, partition.topic_id);
    let first_dirty = log_dirs.first_dirty(topic, index, id).unwrap_or(replica.log().start());
    // What a recovery has cut off is to be looked at when it comes again.
    let first_dirty = first_dirty.min(replica.log().end());
    log_dirs.note_first_dirty(topic, index, id, Some(first_dirty));
    core.cleanings().add(partition, first_dirty);
}

/// A log is not here any more, or is not to be compacted: a round of it is to end.
pub(crate) fn forget(core: &Core, partition: TopicIdPartition) {
    let under_way = core.cleanings().remove(partition);
    if let Some(unwanted) = under_way {
        core.node().cleaner().end(&unwanted);
    }
}

/// The log was cut: compaction goes on no later than there.
pub(crate) fn was_truncated(core: &Core, partition: TopicIdPartition) {
    let mut partitions = core.partitions();
    let Some(replica) = partitions.get_mut(partition) else { return };
    let (log_dirs, topic) = (core.node().log_dirs(), replica.topic().clone());
    if replica.log().start() == replica.log().end() && replica.rules().compaction.is_none() {
        // Nothing is left of what was compacted.
        replica.was_compacted = false;
        return log_dirs.note_first_dirty(&topic, partition.partition, partition.topic_id, None);
    }
    let lower = core.cleanings().truncated(partition, replica.log().end());
    if lower.is_some() {
        log_dirs.note_first_dirty(&topic, partition.partition, partition.topic_id, lower);
    }
}

/// Ends the rounds of these partitions, and waits until no thread has their files any more.
pub(crate) async fn ended(core: &Core, partitions: &[TopicIdPartition]) {
    for &partition in partitions {
        loop {
            let ended = core.cleaning_ended().wait();
            let under_way = core.cleanings().under_way(partition).cloned();
            let Some(unwanted) = under_way else { break };
            core.node().cleaner().end(&unwanted);
            ended.await;
        }
    }
}

/// While it is there no round of the partition begins.
pub(crate) struct Paused {
    core: Rc<Core>,
    partition: TopicIdPartition,
}

/// Keeps rounds from a partition whose log is about to be cut.
pub(crate) async fn pause(core: &Rc<Core>, partition: TopicIdPartition) -> Paused {
    core.cleanings().pause(partition);
    let paused = Paused { core: core.clone(), partition };
    ended(core, &[partition]).await;
    paused
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.core.cleanings().resume(self.partition);
    }
}

/// Looks at every compacted log of the core, one after the other; says which are the best candidates, and then flushes
/// those that would be some if they were on the disk.
async fn propose(core: &Rc<Core>, reply: ReplySlot<Candidates>) {
    let (mut found, mut to_flush, mut at) = (Candidates::default(), Vec::new(), None);
    loop {
        let next = core.cleanings().next_after(at);
        let Some(partition) = next else { break };
        at = Some(partition);
        match look_anywhere(core, partition).await {
            Look::Clean | Look::Cold(_) => {}
            Look::Uncleanable => add_uncleanable(core, partition, &mut found),
            Look::Dirty(needs, candidate) => {
                found.max_ratio = found.max_ratio.max(candidate.ratio);
                found.max_overdue_ms = found.max_overdue_ms.max(candidate.overdue_ms);
                match needs {
                    Needs::Round => found.propose(candidate, limits::CLEANED_BEFORE_ASKED_AGAIN),
                    Needs::Flush if to_flush.len() < limits::FLUSHED_FOR_COMPACTION => {
                        to_flush.push(partition)
                    }
                    Needs::Flush | Needs::Nothing => {}
                }
            }
        }
        yield_if_needed().await;
    }
    let _ = reply.fill(found);
    for partition in to_flush {
        // One directory may be full, and the next not.
        if core.closing().is_raised() || flush_in_background(core, partition).await == Err(NotFlushed::Gone) {
            return;
        }
    }
}

/// A log that cannot be compacted counts with what of it waits for that; with all of it where that cannot be told.
fn add_uncleanable(core: &Core, partition: TopicIdPartition, found: &mut Candidates) {
    let first_dirty = core.cleanings().get(partition).map(|known| known.first_dirty);
    let mut partitions = core.partitions();
    let Some((replica, first_dirty)) = partitions.get_mut(partition).zip(first_dirty) else { return };
    let bytes = match replica.dirtiness_once_flushed(first_dirty, Timestamp(wall_clock_ms())) {
        Ok(dirt) => dirt.map_or(0, |dirt| dirt.dirty_bytes),
        Err(_) => replica.log().size_bytes(),
    };
    found.add_uncleanable(replica.log().log_dir(), Uncleanable { partitions: 1, bytes });
}

/// Looks at a log; what memory does not have of it is looked up beside the core.
async fn look_anywhere(core: &Rc<Core>, partition: TopicIdPartition) -> Look {
    loop {
        let of = core.partitions().get(partition).map(|replica| (files_of(replica), disk_of(replica)));
        let (search, (files, disk)) = match (look(core, partition), of) {
            (Look::Cold(search), Some(of)) => (search, of),
            (looked, _) => return looked,
        };
        let found = blocking_read(disk, move || search.run()).await;
        let mut partitions = core.partitions();
        let Some(replica) = partitions.get_mut(partition) else { return Look::Clean };
        match found {
            Ok(Ok(found)) if !found.is_empty() => replica.remember_timestamps(&found),
            // Its segments have left the log meanwhile.
            Ok(Err(_)) if files_of(replica) != files => return Look::Clean,
            Ok(Err(error)) => return failed(core, replica, files, &error.into()),
            Ok(Ok(_)) | Err(_) => return Look::Clean,
        }
    }
}

enum Look {
    Clean,
    /// This is to be looked up first.
    Cold(SegmentTimestamps),
    Uncleanable,
    Dirty(Needs, Candidate),
}

/// What a dirty log needs now.
enum Needs {
    Round,
    /// To be on the disk first.
    Flush,
    /// To become dirtier, or the next checkpoint; or a round is under way.
    Nothing,
}

fn look(core: &Core, partition: TopicIdPartition) -> Look {
    let Some(known) = core.cleanings().get(partition) else { return Look::Clean };
    let (now, now_ms) = (Timestamp(wall_clock_ms()), core.clock_ms());
    let mut partitions = core.partitions();
    let Some(replica) = partitions.get_mut(partition) else { return Look::Clean };
    let files = files_of(replica);
    if known.is_uncleanable(files) {
        return Look::Uncleanable;
    }
    let could_be = match replica.dirtiness_once_flushed(known.first_dirty, now) {
        Ok(Some(found)) => found,
        Ok(None) => return Look::Clean,
        Err(error) if error.is_cold() => {
            return Look::Cold(replica.log().search_timestamps(known.first_dirty));
        }
        Err(error) => return failed(core, replica, files, &error.into()),
    };
    let candidate = Candidate { partition, overdue_ms: could_be.overdue_ms, ratio: could_be.ratio() };
    let is_busy = core.cleanings().is_busy(partition);
    if is_busy || !is_due(replica, &could_be) || !known.may_be_compacted(could_be.end, files, now_ms) {
        return Look::Dirty(Needs::Nothing, candidate);
    }
    let on_disk = on_disk(core, replica);
    let found = match replica.dirtiness(known.first_dirty, on_disk.recovery_point, now) {
        Ok(found) => found.filter(|_| on_disk.is_known_as_compacted),
        Err(error) if error.is_cold() => {
            return Look::Cold(replica.log().search_timestamps(known.first_dirty));
        }
        Err(error) => return failed(core, replica, files, &error.into()),
    };
    let is_now =
        |found: &Dirtiness| is_due(replica, found) && known.may_be_compacted(found.end, files, now_ms);
    let needs = match found {
        Some(found) if is_now(&found) => Needs::Round,
        _ if replica.log().recovery_point() < could_be.end => Needs::Flush,
        _ => Needs::Nothing,
    };
    Look::Dirty(needs, candidate)
}

/// Whether a dirty part is one for Kafka's cleaner.
fn is_due(replica: &Replica, dirt: &Dirtiness) -> bool {
    let rules = replica.rules().compaction;
    rules.is_some_and(|rules| dirt.overdue_ms > 0 || dirt.ratio() > rules.min_dirty_ratio)
}

fn on_disk(core: &Core, replica: &Replica) -> OnDisk {
    let TopicIdPartition { topic_id, partition } = replica.partition();
    core.node().log_dirs().on_disk(replica.topic(), partition, topic_id)
}

fn files_of(replica: &Replica) -> Files {
    Files { generation: replica.log().generation(), start: replica.log().start() }
}

/// Notes why a log was not compacted, and says so once: a full disk passes; anything else keeps the log from being
/// compacted as long as its files are these.
fn failed(core: &Core, replica: &Replica, files: Files, error: &CleanError) -> Look {
    let (topic, partition) = (replica.topic(), replica.partition());
    if matches!(error, CleanError::Storage(cause) if cause.is_full()) {
        warn!(%topic, partition = %partition.partition, %error, "no room to compact a log; that is tried again");
        let until_ms = core.clock_ms() + limits::CLEANING_RETRY_MS;
        core.cleanings().hinder(partition, Hindrance::NoRoom(until_ms));
        return Look::Clean;
    }
    error!(%topic, partition = %partition.partition, %error, "a log cannot be compacted; that is not tried again before its files have changed or the node was started again");
    core.cleanings().hinder(partition, Hindrance::Uncleanable(files));
    Look::Uncleanable
}

fn begin(core: &Rc<Core>, partition: TopicIdPartition) -> Option<Begun> {
    let (now, now_ms) = (Timestamp(wall_clock_ms()), core.clock_ms());
    let known = core.cleanings().get(partition)?;
    let mut partitions = core.partitions();
    let replica = partitions.get_mut(partition)?;
    let (on_disk, files) = (on_disk(core, replica), files_of(replica));
    let found = replica.dirtiness(known.first_dirty, on_disk.recovery_point, now);
    let dirt = match found {
        Ok(found) => found?,
        // It has gained segments since it was proposed.
        Err(error) if error.is_cold() => return None,
        Err(error) => {
            failed(core, replica, files, &error.into());
            return None;
        }
    };
    if !on_disk.is_known_as_compacted || !known.may_be_compacted(dirt.end, files, now_ms) {
        return None;
    }
    let cleaning = replica.cleaning(&dirt, now)?;
    let unwanted = core.cleanings().begin(partition)?;
    let (end, ended) = reply();
    let round = Round { partition, of: replica.log().identity(), files, dirt };
    spawn(Queue::Background, on_end(core.clone(), round, ended)).detach();
    Some(Begun { cleaning, unwanted, end })
}

fn swap(core: &Rc<Core>, partition: TopicIdPartition, cleaned: Cleaned) -> Swap {
    let mut partitions = core.partitions();
    // A log that was given up is another if it comes again, and knows so.
    let Some(replica) = partitions.get_mut(partition) else { return Swap::Stale(cleaned.discard()) };
    match replica.swap(cleaned) {
        Ok(()) => {
            replica.was_compacted = true;
            partitions.collect_removals(partition);
            drop(partitions);
            core.remove_files();
            Swap::Done
        }
        Err(SwapError::Stale(removal)) => Swap::Stale(removal),
        Err(SwapError::Busy(cleaned)) => Swap::Busy(cleaned),
        Err(SwapError::Refused(error)) => Swap::Refused(error),
        Err(SwapError::Torn(error)) => {
            drop(partitions);
            failing::log_failed(core, partition, &error);
            Swap::Refused(error)
        }
    }
}

/// A round that is under way.
struct Round {
    partition: TopicIdPartition,
    of: LogIdentity,
    files: Files,
    dirt: Dirtiness,
}

async fn on_end(core: Rc<Core>, round: Round, ended: Reply<Ended>) {
    let ended = ended.await.ok();
    core.cleanings().end(round.partition);
    core.cleaning_ended().notify_all();
    let Some(Ended { outcome, noted }) = ended else {
        // Its thread said why; it would do the same again.
        return core.cleanings().hinder(round.partition, Hindrance::Uncleanable(round.files));
    };
    match outcome {
        Outcome::Compacted(to) => compacted(&core, &round, to).await,
        Outcome::GivenUp => {}
        Outcome::Failed(error) => {
            let partitions = core.partitions();
            if let Some(replica) = partitions.get(round.partition) {
                failed(&core, replica, round.files, &error);
            }
        }
    }
    let _ = noted.fill(());
}

/// Notes where compaction goes on: at once for the next round, and for the checkpoint file once what this one did would
/// survive a crash.
async fn compacted(core: &Rc<Core>, round: &Round, to: Offset) {
    let Round { partition, dirt, .. } = round;
    if !is_same(core, round) {
        return;
    }
    debug!(%partition, from = %dirt.first_dirty, %to, bytes = dirt.dirty_bytes, "compacted");
    if to <= dirt.first_dirty {
        return core.cleanings().hinder(*partition, Hindrance::Undecided(dirt.end));
    }
    core.cleanings().compacted(*partition, to);
    if flush_in_background(core, *partition).await.is_err() || !is_same(core, round) {
        return;
    }
    let (partitions, log_dirs) = (core.partitions(), core.node().log_dirs());
    if let Some(replica) = partitions.get(*partition) {
        log_dirs.note_first_dirty(replica.topic(), partition.partition, partition.topic_id, Some(to));
    }
}

fn is_same(core: &Core, round: &Round) -> bool {
    core.partitions().get(round.partition).is_some_and(|replica| replica.log().identity() == round.of)
}
