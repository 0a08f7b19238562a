//! Which replicas this core has: opening, changing and giving up partitions as the metadata says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::{MetadataDelta, MetadataImage, TopicImage};
use tarn_log::log_dir::LogDirError;
use tarn_log::{FlushJob, FlushPolicy, Log, LogConfig, LogDir, LogError, Opening, RecoveryReport};
use tarn_record::{Offset, Timestamp, TopicId, TopicIdPartition};
use tarn_runtime::{BlockingError, blocking, sleep, wall_clock_ms};
use tarn_wire::ErrorCode;
use thiserror::Error;
use tracing::{error, info, warn};

use crate::closing::close_logs;
use crate::core::Core;
use crate::envelope::CheckpointEntry;
use crate::failing;
use crate::internal_topics::is_internal;
use crate::limits;
use crate::log_dirs::{Closing, Found};
use crate::metadata_view::MetadataView;
use crate::removing::Removal;
use crate::replica::{Binding, Leadership, Replica};
use crate::unopened::{Doomed, Rank};
use crate::{cleaning, connections};

mod turns;

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
    if core.node().log_dirs().is_to_be_recovered(&topic.name, partition.partition) {
        core.unopened().queue(partition, rank(topic));
    } else if is_held(core, topic, partition) {
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
    let opened = match make_way(core, topic, partition).await {
        Ok(()) => open_log(log_to_open(core, topic, partition)),
        Err(in_the_way) => Err(in_the_way),
    };
    let opened = opened.map(|log| replica(core, topic, partition, leadership, log));
    keep_or_say(core, topic, partition, opened);
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
            warn!(topic = %name, partition = %partition.partition, "the log of an older topic of this name is still to be deleted; waiting for its place");
            core.unopened().postpone(partition, core.clock_ms().saturating_add(limits::LOG_RETRY_MS_MIN));
            core.openings().notify_all();
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

/// Gives up a log of another topic that had the name before, on the disk and in the checkpoint files. Where the core
/// that has it is about to delete it, that is waited for a little.
async fn make_way(core: &Rc<Core>, topic: &TopicImage, partition: TopicIdPartition) -> Result<(), NotOpened> {
    let log_dirs = core.node().log_dirs().clone();
    let let_go_by_ms = core.clock_ms().saturating_add(limits::PLACE_LET_GO_MS);
    while log_dirs.is_held_by_another(&topic.name, partition.partition, topic.id)
        && core.clock_ms() < let_go_by_ms
    {
        sleep(limits::PLACE_LOOK_AGAIN).await;
    }
    if is_held(core, topic, partition) {
        return Err(NotOpened::Held);
    }
    let (dir, found) = log_dirs.place(&topic.name, partition.partition, topic.id);
    if let Some(other) = found.map(|found| found.partition)
        && other.topic_id != topic.id
        && !other.topic_id.is_zero()
    {
        let path = dir.rename_as_stray(&other)?;
        error!(topic = %topic.name, partition = %partition.partition, path = %path.display(), "another topic's log is kept under this name");
        log_dirs.displaced(&topic.name, partition.partition);
    }
    if !log_dirs.is_in_the_way(&topic.name, partition.partition) {
        return Ok(());
    }
    let (name, index) = (topic.name.clone(), partition.partition);
    Ok(blocking(move || log_dirs.make_way(&name, index)).await??)
}

/// True where the log of an older topic of this name is still there, and is about to be deleted.
fn is_held(core: &Rc<Core>, topic: &TopicImage, partition: TopicIdPartition) -> bool {
    let log_dirs = core.node().log_dirs();
    log_dirs.is_held_by_another(&topic.name, partition.partition, topic.id)
        || log_dirs.is_another_being_opened(&topic.name, partition)
}

/// Brings the partitions of this core up to a change of the metadata; `before` is what was in force.
pub(crate) async fn apply(core: &Rc<Core>, before: &MetadataImage, delta: &MetadataDelta) {
    for topic_id in delta.topics_deleted.keys() {
        if let Some(topic) = before.topics().by_id(*topic_id) {
            delete(core, topic).await;
        }
        core.partitions().traffic().forget(*topic_id);
        core.forget_rules(*topic_id);
    }
    if delta.broker_configs_changed(&core.node().broker_id().to_string()) {
        cleaning::configure(core);
        connections::configure(core);
    }
    let view = core.view();
    for topic_id in changed_topics(core, delta) {
        core.forget_rules(topic_id);
        if let Some(topic) = view.topic_by_id(topic_id) {
            change(core, topic).await;
        }
    }
}

/// The topics of which something has changed that their logs here act on.
fn changed_topics(core: &Rc<Core>, delta: &MetadataDelta) -> BTreeSet<TopicId> {
    let view = core.view();
    if delta.broker_configs_changed(&core.node().broker_id().to_string()) {
        return view.topics().map(|topic| topic.id).collect();
    }
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
    for replica in &replicas {
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
    let (high_watermark, read_bytes) = (found.high_watermark, report.checked_bytes);
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
    if report.reread_epochs {
        warn!(%topic, %partition, "leader-epoch-checkpoint cannot be understood; the epochs were read from the log");
    }
}

/// Deletes a topic's logs. What waits on them is told first, and their flushes end before a directory is
/// renamed: what a flush writes there must not find the log of a topic that has the name next. A log that is being
/// recovered is deleted at the end of that, in the background.
async fn delete(core: &Rc<Core>, topic: &TopicImage) {
    let delay_ms = core.rules(topic).file_delete_delay_ms;
    let partitions: Vec<_> = owned(core, topic).into_iter().map(|(partition, _)| partition).collect();
    let mut replicas = Vec::new();
    for partition in &partitions {
        replicas.extend(give_up(core, *partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    }
    cleaning::ended(core, &partitions).await;
    core.flushes_ended(&partitions).await;
    let log_dirs = core.node().log_dirs();
    for replica in replicas {
        let partition = replica.partition();
        let (dir, _) = log_dirs.place(&topic.name, partition.partition, topic.id);
        match replica.into_log().delete() {
            Ok(renamed) => remove_later(core, &dir, renamed, delay_ms),
            Err(error) => error!(%partition, %error, "a deleted partition keeps its directory"),
        }
        log_dirs.forget(&topic.name, partition.partition, topic.id);
    }
    for partition in partitions {
        let doomed = Doomed { topic: topic.name.clone(), partition, delay_ms };
        // Who reads it renames and cuts its files, and may take minutes: it goes after that, and nobody waits for it.
        let is_doomed = core.unopened().doom(&doomed);
        if !is_doomed {
            delete_closed(core, &doomed);
        }
    }
}

/// Deletes a log that is here and not open: another broker led it, or it could not be opened, or not yet.
fn delete_closed(core: &Rc<Core>, doomed: &Doomed) {
    let (log_dirs, Doomed { topic, partition, delay_ms }) = (core.node().log_dirs(), doomed);
    let topic_id = partition.topic_id;
    let (dir, found) = log_dirs.place(topic, partition.partition, topic_id);
    let is_known = |found: &Found| found.partition.topic_id == topic_id;
    match found {
        Some(found) if is_known(&found) => match dir.rename_for_deletion(&found.partition) {
            Ok(renamed) => remove_later(core, &dir, renamed, *delay_ms),
            Err(error) => error!(%partition, %error, "a deleted partition keeps its directory"),
        },
        // It may hold what nobody has deleted, and must not be in the way of the next topic of the name.
        Some(found) => match dir.rename_as_stray(&found.partition) {
            Ok(path) => {
                error!(%partition, path = %path.display(), "a directory did not say that it was the deleted topic's: it is kept under this name");
            }
            Err(error) => error!(%partition, %error, "a deleted partition keeps its directory"),
        },
        None => {}
    }
    log_dirs.forget(topic, partition.partition, topic_id);
}

/// The directory goes when whoever still reads from it has had `file.delete.delay.ms`.
fn remove_later(core: &Rc<Core>, dir: &LogDir, renamed: PathBuf, delay_ms: i64) {
    core.removing().later(Removal { job: dir.removal(renamed), delay_ms }, core.clock_ms());
}

#[cfg(test)]
mod tests;
