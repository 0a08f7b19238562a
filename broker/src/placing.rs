//! Which replicas this core has: opening, changing and giving up partitions as the metadata says.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_image::{MetadataDelta, TopicImage};
use tarn_log::{Log, LogError};
use tarn_record::{Offset, Timestamp, TopicId, TopicIdPartition};
use tarn_runtime::{Queue, blocking, spawn, wall_clock_ms};
use tarn_wire::ErrorCode;
use tracing::{error, info};

use crate::core::Core;
use crate::replica::{Binding, Leadership, Replica};

/// Opens every partition of the image that belongs to this core: at start-up, before it serves.
pub(crate) async fn open_all(core: &Rc<Core>) {
    for topic in core.view().topics() {
        for (partition, leadership) in mine(core, topic) {
            open_or_say(core, topic, partition, leadership).await;
        }
    }
}

/// A log that cannot be opened takes its own partition out of service, and no other.
async fn open_or_say(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    leadership: Leadership,
) {
    if core.partitions().is_closed() || !make_way(core, topic, partition).await {
        return;
    }
    let opened = open(core, topic, partition, leadership);
    match opened {
        Ok(replica) => {
            core.node().log_dirs().opened(&topic.name, partition.partition, topic.id);
            core.partitions().insert(replica);
        }
        Err(error) => error!(topic = %topic.name, partition = %partition.partition, %error, "log not opened"),
    }
    core.wake_flusher();
}

/// Gives up a log of another topic that had the name before, on the disk and in the checkpoint files.
async fn make_way(core: &Rc<Core>, topic: &TopicImage, partition: TopicIdPartition) -> bool {
    let log_dirs = core.node().log_dirs().clone();
    let (dir, found) = log_dirs.place(&topic.name, partition.partition);
    if let Some(other) = found.map(|found| found.partition)
        && other.topic_id != topic.id
        && !other.topic_id.is_zero()
    {
        // Its deletion was cut short.
        if let Err(error) = dir.rename_for_deletion(&other) {
            error!(topic = %topic.name, partition = %partition.partition, %error, "an old log is in the way");
            return false;
        }
        log_dirs.displaced(&topic.name, partition.partition);
    }
    if !log_dirs.is_in_the_way(&topic.name, partition.partition) {
        return true;
    }
    let (name, index) = (topic.name.clone(), partition.partition);
    let made = blocking(move || log_dirs.make_way(&name, index)).await;
    if !matches!(made, Ok(Ok(()))) {
        error!(topic = %topic.name, partition = %partition.partition, ?made, "an old log's checkpoint is in the way");
    }
    matches!(made, Ok(Ok(())))
}

/// Brings the partitions of this core up to a change of the metadata.
pub(crate) async fn apply(core: &Rc<Core>, delta: &MetadataDelta) {
    for (topic_id, name) in &delta.topics_deleted {
        delete(core, *topic_id, name).await;
        core.forget_rules(*topic_id);
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

/// The partitions of a topic that this broker leads and this core owns.
fn mine(core: &Rc<Core>, topic: &TopicImage) -> Vec<(TopicIdPartition, Leadership)> {
    let mut led = core.view().led_by(core.node().broker_id(), topic);
    led.retain(|(partition, _)| core.owner(*partition) == core.id());
    led
}

async fn change(core: &Rc<Core>, topic: &TopicImage) {
    for (partition, leadership) in mine(core, topic) {
        let binding = core.view().binding(&topic.name).map(Binding::new);
        let rules = core.rules(topic);
        let known = core.partitions().get(partition).is_some();
        if known {
            let mut partitions = core.partitions();
            if let Some(replica) = partitions.get_mut(partition) {
                replica.on_metadata(leadership, rules, binding);
            }
            partitions.news_of(partition);
            continue;
        }
        open_or_say(core, topic, partition, leadership).await;
    }
}

fn open(
    core: &Rc<Core>,
    topic: &TopicImage,
    partition: TopicIdPartition,
    leadership: Leadership,
) -> Result<Replica, LogError> {
    let (rules, now) = (core.rules(topic), Timestamp(wall_clock_ms()));
    let (dir, found) = core.node().log_dirs().place(&topic.name, partition.partition);
    let config = rules.log.clone();
    let (mut log, high_watermark) = match found {
        Some(found) => {
            let (log, report) =
                Log::open(&dir, &topic.name, partition.partition, config, found.opening, now)?;
            if report.cut_bytes > 0 || report.dropped_segments > 0 {
                info!(topic = %topic.name, partition = %partition.partition, ?report, "log recovered");
            }
            (log, found.high_watermark)
        }
        None => (Log::create(&dir, &topic.name, partition.partition, topic.id, config, now)?, Offset(0)),
    };
    let binding = core.view().binding(&topic.name).map(Binding::new);
    if binding.as_ref().is_none_or(|binding| !binding.rules_the_log())
        && let Err(error) = log.begin_epoch(leadership.epoch)
    {
        error!(topic = %topic.name, partition = %partition.partition, %error, "the leader epoch has not begun");
    }
    let mut replica =
        Replica::new(partition, topic.name.clone(), log, leadership, high_watermark, rules.clone());
    replica.on_metadata(leadership, rules, binding);
    Ok(replica)
}

/// Deletes a topic's logs. What waits on them is told first, and their flushes end before a directory is
/// renamed: what a flush writes there must not find the log of a topic that has the name next.
async fn delete(core: &Rc<Core>, topic_id: TopicId, name: &str) {
    let partitions = core.partitions().iter().map(|replica| replica.partition()).collect::<Vec<_>>();
    let mut removed = Vec::new();
    for partition in partitions.into_iter().filter(|partition| partition.topic_id == topic_id) {
        removed.extend(core.partitions().remove(partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        core.machines().unload(partition);
    }
    let partitions: Vec<_> = removed.iter().map(Replica::partition).collect();
    core.flushes_ended(&partitions).await;
    for replica in removed {
        let partition = replica.partition();
        let (dir, _) = core.node().log_dirs().place(name, partition.partition);
        core.node().log_dirs().forget(name, partition.partition);
        match replica.into_log().delete() {
            Ok(renamed) => spawn(Queue::Background, async move {
                let removed = blocking(move || dir.remove(&renamed)).await;
                if !matches!(removed, Ok(Ok(()))) {
                    error!(%partition, ?removed, "the files of a deleted partition stay until the next start");
                }
            })
            .detach(),
            Err(error) => error!(%partition, %error, "a deleted partition keeps its directory"),
        }
    }
}
