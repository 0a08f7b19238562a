//! Which replicas this core has: opening, changing and giving up partitions as the metadata says.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::{MetadataDelta, MetadataImage, TopicImage};
use tarn_log::log_dir::LogDirError;
use tarn_log::{
    FlushJob, FlushPolicy, Hole, Log, LogConfig, LogDir, LogError, Opening, RebuiltTxnIndex, RecoveryReport,
};
use tarn_record::{Offset, Timestamp, TopicId, TopicIdPartition};
use tarn_runtime::{BlockingError, blocking, wall_clock_ms, yield_if_needed};
use tarn_wire::ErrorCode;
use thiserror::Error;
use tracing::{error, info, warn};

use crate::closing::close_logs;
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::failing;
use crate::internal_topics::is_internal;
use crate::log_dirs::{Closing, Found, Held};
use crate::metadata_view::MetadataView;
use crate::replica::{Binding, Leadership, Replica};
use crate::rules::TopicRules;
use crate::unopened::Rank;
use crate::{cleaning, connections};

mod deleting;
mod turns;

use deleting::{delete, delete_closed, give_up_displaced};
pub(crate) use turns::keep_opening;

/// Why a partition is not in service yet.
#[derive(Debug, Error)]
enum NotOpened {
    /// Its log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The core of an older topic of this name has the place.
    #[error("the log of an older topic of this name is not deleted yet")]
    Held,
    /// Another log, or a line of one in a checkpoint file, has its place.
    #[error("an old log is in the way: {0}")]
    InTheWay(#[from] LogDirError),
    /// The thread that was to make its place free.
    #[error("an old log is in the way: {0}")]
    NoThread(#[from] BlockingError),
    /// The thread that was to open it.
    #[error("it was not read: {0}")]
    NotRun(Arc<BlockingError>),
}

/// Opens every partition of the image that belongs to this core: at start-up, before it serves. What a crash left is
/// recovered while it serves.
pub(crate) async fn open_all(core: &Rc<Core>) {
    cleaning::configure(core);
    connections::configure(core);
    for topic in core.view().topics() {
        for (partition, leadership) in owned(core, topic) {
            let Some(leadership) = leadership else { continue };
            open_or_queue(core, topic, partition, leadership).await;
        }
    }
    let logs = core.unopened().queued();
    if logs > 0 {
        info!(
            core = core.id().0,
            logs, "not stopped in order: these logs are recovered while the node serves"
        );
    }
    core.openings().notify_all();
}

/// The topic of a partition that this broker leads, and how.
fn wanted<'a>(
    core: &Rc<Core>,
    view: &'a MetadataView,
    partition: TopicIdPartition,
) -> Option<(&'a TopicImage, Leadership)> {
    let topic = view.topic_by_id(partition.topic_id)?;
    let registered = topic.partitions.get(&partition.partition)?;
    Some((topic, Leadership::of(core.node().broker_id(), registered)?))
}

/// Opens a partition at once; one whose log is to be recovered, or has no place yet, has its turn, beside the core.
async fn open_or_queue(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    leadership: Leadership,
) {
    if core.node().log_dirs().is_to_be_recovered(&topic.name, partition) {
        core.unopened().queue(partition, rank(topic));
    } else if core.node().log_dirs().is_held(&topic.name, partition) {
        core.unopened().postpone(partition, core.clock_ms());
    } else {
        open_or_say(core, topic, partition, leadership).await;
    }
}

fn rank(topic: &TopicImage) -> Rank {
    if is_internal(&topic.name) { Rank::Internal } else { Rank::Ordinary }
}

/// Opens a partition at once: at the start, or a new one.
async fn open_or_say(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    leadership: Leadership,
) {
    if core.partitions().is_closed() {
        return;
    }
    if core.node().log_dirs().is_in_failed(&topic.name, partition) {
        return core.unopened().keep_out(partition);
    }
    core.node().log_dirs().begin_work(&topic.name, partition);
    let opened = match make_way(core, topic, partition).await {
        Ok(()) => open_log(log_to_open(core, topic, partition)),
        Err(in_the_way) => Err(in_the_way),
    };
    let opened = opened.map(|log| replica(core, topic, partition, leadership, log));
    keep_or_say(core, topic, partition, opened);
    core.node().log_dirs().end_work(&topic.name, partition);
}

/// A log that cannot be opened takes its own partition out of service, and no other, until a later attempt
/// succeeds.
fn keep_or_say(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    opened: Result<Replica, NotOpened>,
) {
    let name = &topic.name;
    match opened {
        // While it was opened, its disk has failed.
        Ok(_) if core.node().log_dirs().is_in_failed(name, partition) => {
            core.unopened().keep_out(partition);
        }
        Ok(replica) => {
            core.node().log_dirs().opened(name, partition.partition, topic.id);
            core.partitions().insert(replica);
            cleaning::opened(core, partition);
            let failures = core.unopened().forget(partition);
            if failures > 0 {
                info!(topic = %name, partition = %partition.partition, failures, "log opened at last");
            }
        }
        // What recovery was to make sure of may be lost, and a second sync would say nothing of it.
        Err(NotOpened::Log(error)) if error.is_failed_sync() => {
            failing::log_failed(core, partition, &error);
            core.unopened().keep_out(partition);
        }
        // Nothing has failed: it is about to be there.
        Err(NotOpened::Held) => {
            let looks = core.unopened().postpone(partition, core.clock_ms());
            core.openings().notify_all();
            if looks.is_power_of_two() {
                warn!(topic = %name, partition = %partition.partition, looks, "the log of an older topic of this name is still to be deleted; waiting for its place");
            }
        }
        Err(error) => {
            let failures = core.unopened().failed(partition, core.clock_ms());
            core.openings().notify_all();
            if failures.is_power_of_two() {
                error!(topic = %name, partition = %partition.partition, failures, %error, "log not opened; it is tried again");
            }
        }
    }
    core.wake_flusher();
}

/// Gives a partition its place, where that is free; the log of an older topic of the name that is in it is given up, on
/// the disk and in the checkpoint files.
async fn make_way(core: &Rc<Core>, topic: &TopicImage, partition: TopicIdPartition) -> Result<(), NotOpened> {
    let log_dirs = core.node().log_dirs().clone();
    let as_of = core.image().provenance().offset;
    let displaced = log_dirs.take_over(&topic.name, partition, as_of).map_err(|Held| NotOpened::Held)?;
    if let Some(displaced) = displaced {
        give_up_displaced(core, topic, displaced).await?;
    }
    if !log_dirs.is_in_the_way(&topic.name, partition.partition) {
        return Ok(());
    }
    let (name, index) = (topic.name.clone(), partition.partition);
    Ok(blocking(move || log_dirs.make_way(&name, index)).await??)
}

/// Brings the partitions of this core up to a change of the metadata; `before` is what was in force.
pub(crate) async fn apply(core: &Rc<Core>, before: &MetadataImage, delta: &MetadataDelta) {
    for topic_id in delta.topics_deleted.keys() {
        if let Some(topic) = before.topics().by_id(*topic_id) {
            delete(core, before, topic).await;
        }
        core.partitions().traffic().forget(*topic_id);
        core.forget_rules(*topic_id);
    }
    let view = core.view();
    if delta.broker_configs_changed(&core.node().broker_id().to_string()) {
        cleaning::configure(core);
        connections::configure(core);
        if !TopicRules::are_same(before, view.image(), core.node()) {
            for topic in view.topics() {
                follow_topic(core, topic).await;
            }
            return;
        }
    }
    for topic_id in changed_topics(&view, delta) {
        match view.topic_by_id(topic_id) {
            Some(topic) => follow_topic(core, topic).await,
            None => core.forget_rules(topic_id),
        }
    }
}

/// Something that a topic's logs here act on may have changed.
async fn follow_topic(core: &Rc<Core>, topic: &TopicImage) {
    core.forget_rules(topic.id);
    change(core, topic).await;
    // There may be very many others.
    yield_if_needed().await;
}

/// The topics of which something has changed that their logs here act on.
fn changed_topics(view: &MetadataView, delta: &MetadataDelta) -> BTreeSet<TopicId> {
    let mut changed: BTreeSet<TopicId> = delta.partitions_changed.iter().map(|(topic, _)| *topic).collect();
    let named = delta.topic_configs_changed().chain(&delta.bindings_changed);
    changed.extend(named.filter_map(|name| view.image().topics().id_of(name)));
    changed
}

/// The partitions of a topic that belong to this core, and how this broker leads each, if it does.
fn owned(core: &Rc<Core>, topic: &TopicImage) -> Vec<(TopicIdPartition, Option<Leadership>)> {
    let broker = core.node().broker_id();
    let named = topic.partitions.iter().map(|(index, registered)| {
        let partition = TopicIdPartition { topic_id: topic.id, partition: *index };
        (partition, Leadership::of(broker, registered))
    });
    named.filter(|(partition, _)| core.owner(*partition) == core.id()).collect()
}

async fn change(core: &Rc<Core>, topic: &TopicImage) {
    let mut given_up = Vec::new();
    for (partition, leadership) in owned(core, topic) {
        let Some(leadership) = leadership else {
            core.openings_ended(&[partition]).await;
            given_up.extend(give_up(core, partition, ErrorCode::NOT_LEADER_OR_FOLLOWER));
            continue;
        };
        let binding = core.view().binding(&topic.name).map(Binding::new);
        let rules = core.rules(topic);
        let known = core.partitions().get(partition).is_some();
        if known {
            let mut partitions = core.partitions();
            if let Some(replica) = partitions.get_mut(partition) {
                replica.on_metadata(leadership, rules, binding);
            }
            partitions.news_of(partition);
            drop(partitions);
            cleaning::follow(core, partition);
            continue;
        }
        // What could not be opened has its turn, and is opened as the metadata says then.
        if !core.unopened().contains(partition) {
            open_or_queue(core, topic, partition, leadership).await;
            core.openings().notify_all();
        }
    }
    if !given_up.is_empty() {
        resign(core, given_up).await;
    }
}

/// Takes a partition out of service; whatever waits on it is told at once.
fn give_up(core: &Rc<Core>, partition: TopicIdPartition, error: ErrorCode) -> Option<Replica> {
    core.machines().unload(partition);
    core.unopened().forget(partition);
    cleaning::forget(core, partition);
    core.partitions().remove(partition, error)
}

/// Somebody else leads these partitions: their logs stay, closed.
async fn resign(core: &Rc<Core>, replicas: Vec<Replica>) {
    let log_dirs = core.node().log_dirs();
    let name = |replica: &Replica| (replica.topic().clone(), replica.partition());
    let names: Vec<_> = replicas.iter().map(name).collect();
    for (replica, (topic, partition)) in replicas.iter().zip(&names) {
        log_dirs.begin_work(topic, *partition);
        log_dirs.closed(&CheckpointEntry::of(replica), Closing::Begun);
    }
    for dir in close_logs(core, replicas).await {
        let closing = if dir.result.is_ok() { Closing::InOrder } else { Closing::Begun };
        dir.logs.iter().for_each(|log| log_dirs.closed(log, closing));
        match (dir.result, dir.logs.first()) {
            (Err(error), Some(log)) if !error.is_full() => {
                let partition = TopicIdPartition { topic_id: log.topic_id, partition: log.partition };
                failing::log_failed(core, partition, &error);
            }
            (Err(error), _) => {
                warn!(dir = %dir.path.display(), %error, "logs not closed in order; they are checked when they are opened");
            }
            (Ok(()), _) => {}
        }
    }
    names.iter().for_each(|(topic, partition)| log_dirs.end_work(topic, *partition));
}

/// All that opening a log needs.
struct ToOpen {
    topic: Arc<str>,
    topic_id: TopicId,
    partition: TopicIdPartition,
    dir: Arc<LogDir>,
    found: Option<Found>,
    config: Arc<LogConfig>,
    /// Nothing of it counts before it is on the disk.
    flushes_first: bool,
}

fn log_to_open(core: &Rc<Core>, topic: &TopicImage, partition: TopicIdPartition) -> ToOpen {
    let (dir, found) = core.node().log_dirs().place(&topic.name, partition.partition, topic.id);
    let config = core.rules(topic).log.clone();
    let binding = core.view().binding(&topic.name).map(Binding::new);
    let is_mirrored = binding.is_some_and(|binding| binding.rules_the_log());
    let flushes_first = config.flush != FlushPolicy::None && !is_mirrored;
    ToOpen { topic: topic.name.clone(), topic_id: topic.id, partition, dir, found, config, flushes_first }
}

/// A log that was opened, with what has to be done before it serves.
struct Unflushed {
    log: Log,
    high_watermark: Offset,
    flushes_first: bool,
    /// What was read of it.
    read_bytes: u64,
}

impl Unflushed {
    /// What is not on the disk is not committed, and a log that serves already must not end earlier than it did.
    fn job(&mut self) -> Option<FlushJob> {
        let is_due = self.flushes_first && self.log.unflushed_bytes() > 0;
        if is_due { self.log.flush_batches_job() } else { None }
    }
}

/// Opens a log, or makes one where there is none; with its high watermark. May take as long as reading all of it.
fn open_log(to_open: ToOpen) -> Result<(Log, Offset), NotOpened> {
    let opened = open_unflushed(u64::MAX, to_open)?;
    let mut opened = opened.expect("there is no log of more bytes");
    if let Some(job) = opened.job() {
        opened.log.flushed(job.run()?)?;
    }
    Ok((opened.log, opened.high_watermark))
}

/// The same where no more than so many bytes of it are to be read; else `None`. It is not flushed.
fn open_unflushed(bytes: u64, to_open: ToOpen) -> Result<Option<Unflushed>, NotOpened> {
    let ToOpen { topic, topic_id, partition, dir, found, config, flushes_first } = to_open;
    let (index, now) = (partition.partition, Timestamp(wall_clock_ms()));
    let Some(found) = found else {
        let log = Log::create(&dir, &topic, index, topic_id, config, now)?;
        return Ok(Some(Unflushed { log, high_watermark: Offset(0), flushes_first, read_bytes: 0 }));
    };
    let opened = Log::open_within(bytes, &dir, &topic, index, config, found.opening, now)?;
    let Some((log, report)) = opened else { return Ok(None) };
    tell_recovery(&topic, partition, &found.opening, &report, log.end());
    let read_bytes = report.read_bytes + report.looked_through_bytes;
    let high_watermark = found.high_watermark;
    Ok(Some(Unflushed { log, high_watermark, flushes_first, read_bytes }))
}

/// The replica on a log that was opened, under the rules in force.
fn replica(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    leadership: Leadership,
    (mut log, high_watermark): (Log, Offset),
) -> Replica {
    let rules = core.rules(topic);
    let binding = core.view().binding(&topic.name).map(Binding::new);
    if binding.as_ref().is_none_or(|binding| !binding.rules_the_log())
        && let Err(error) = log.begin_epoch(leadership.epoch)
    {
        error!(topic = %topic.name, partition = %partition.partition, %error, "the leader epoch has not begun");
    }
    let mut replica =
        Replica::new(partition, topic.name.clone(), log, leadership, high_watermark, rules.clone());
    replica.on_metadata(leadership, rules, binding);
    replica
}

/// Says what was cut off a log, and what else was not as it should be.
fn tell_recovery(
    topic: &str,
    partition: TopicIdPartition,
    opening: &Opening,
    report: &RecoveryReport,
    end: Offset,
) {
    let partition = partition.partition;
    if report.lost_all_segments {
        let Opening { log_start, recovery_point: flushed, .. } = *opening;
        error!(%topic, %partition, %log_start, %flushed, "no segment is left of a log: its records are gone, and it begins where it was flushed");
    }
    if let Some(from) = report.cut_from {
        let (bytes, segments) = (report.cut_bytes, report.dropped_segments);
        if from < opening.recovery_point {
            let flushed = opening.recovery_point;
            error!(%topic, %partition, %from, %flushed, bytes, segments, "a log is damaged below what was flushed: its records from this offset on are gone");
        } else {
            let closed_in_order = opening.clean;
            warn!(%topic, %partition, %from, bytes, segments, closed_in_order, "the end of a log was not whole and is cut off from this offset on");
        }
    } else if report.ends_below_flushed {
        let (from, flushed) = (end, opening.recovery_point);
        error!(%topic, %partition, %from, %flushed, "a log ends below what was flushed: its records from this offset on are gone");
    }
    if report.distrusted_recovery_point {
        let flushed = opening.recovery_point;
        warn!(%topic, %partition, %flushed, "what was flushed of a log was not as it was left; all of it was read and checked");
    }
    if let Some(fault) = &report.reread_epochs {
        warn!(%topic, %partition, %fault, "leader-epoch-checkpoint is not right; the epochs were read from the log");
    }
    for RebuiltTxnIndex { path, position, fault } in &report.rebuilt_txn_indexes {
        warn!(%topic, %partition, path = %path.display(), position, fault, "a transaction index was not right and was built anew");
    }
    for Hole { from, to } in &report.holes {
        warn!(%topic, %partition, %from, %to, "segments are missing within a log: reads go on behind them");
    }
}

#[cfg(test)]
mod tests;
