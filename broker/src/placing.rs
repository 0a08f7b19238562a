//! Which replicas this core has: opening, changing and giving up partitions as the metadata says.

use std::rc::Rc;
use std::sync::Arc;

use tarn_image::MetadataDelta;
use tarn_log::{Log, LogError};
use tarn_record::{Epoch, Offset, PartitionIndex, Timestamp, TopicId, TopicIdPartition};
use tarn_runtime::{Queue, blocking, spawn, wall_clock_ms};
use tarn_wire::ErrorCode;
use tracing::{error, info};

use crate::core::Core;
use crate::metadata_view::TopicRef;
use crate::replica::{Binding, Replica};

/// Opens every partition of the image that belongs to this core: at start-up, before it serves.
///
/// # Errors
/// The first log that cannot be opened.
pub fn open_all(core: &Rc<Core>) -> Result<(), LogError> {
    for topic in core.view().topics() {
        for (partition, epoch) in mine(core, &topic) {
            let replica = open(core, &topic, partition, epoch)?;
            core.partitions().insert(replica);
        }
    }
    Ok(())
}

/// Brings the partitions of this core up to a change of the metadata.
pub fn apply(core: &Rc<Core>, delta: &MetadataDelta) {
    for topic_id in delta.deleted_topics() {
        delete(core, topic_id);
    }
    for topic_id in delta.changed_topics() {
        if let Some(topic) = core.view().topic_by_id(topic_id) {
            change(core, &topic);
        }
    }
}

/// The partitions of a topic that this broker leads and this core owns.
fn mine(core: &Rc<Core>, topic: &TopicRef) -> Vec<(TopicIdPartition, Epoch)> {
    let view = core.view();
    let partitions = (0..topic.partition_count).map(|index| TopicIdPartition {
        topic_id: topic.id,
        partition: PartitionIndex(index),
    });
    partitions
        .filter(|partition| core.owner(*partition) == core.id())
        .filter_map(|partition| {
            let (leader, epoch) = view.leader(partition)?;
            (leader == core.node().broker_id()).then_some((partition, epoch))
        })
        .collect()
}

fn change(core: &Rc<Core>, topic: &TopicRef) {
    for (partition, epoch) in mine(core, topic) {
        let binding = core.view().binding(&topic.name).map(Binding::new);
        let rules = core.rules(topic.id);
        if let Some(replica) = core.partitions().get_mut(partition) {
            replica.on_metadata(epoch, rules, binding);
            continue;
        }
        match open(core, topic, partition, epoch) {
            Ok(replica) => core.partitions().insert(replica),
            Err(error) => error!(topic = %topic.name, partition = %partition.partition, %error, "log not opened"),
        }
        core.partitions().news_of(partition);
    }
}

fn open(
    core: &Rc<Core>,
    topic: &TopicRef,
    partition: TopicIdPartition,
    leader_epoch: Epoch,
) -> Result<Replica, LogError> {
    let (rules, now) = (core.rules(topic.id), Timestamp(wall_clock_ms()));
    let logs = core.node().logs();
    let place = logs.place(&topic.name, partition.partition);
    let (mut log, high_watermark) = match place.found(topic.id) {
        Some(opening) => {
            let (log, report) =
                Log::open(place.dir(), &topic.name, partition.partition, rules.log.clone(), opening.opening, now)?;
            if report.lost_anything() {
                info!(topic = %topic.name, partition = %partition.partition, ?report, "log recovered");
            }
            (log, opening.high_watermark)
        }
        None => {
            let dir = place.dir();
            let log =
                Log::create(dir, &topic.name, partition.partition, topic.id, rules.log.clone(), now)?;
            (log, Offset(0))
        }
    };
    let binding = core.view().binding(&topic.name).map(Binding::new);
    if binding.as_ref().is_none_or(|binding| !binding.rules_the_log()) {
        log.begin_epoch(leader_epoch).map_err(LogError::from)?;
    }
    let name: Arc<str> = Arc::from(&*topic.name);
    let mut replica = Replica::new(partition, name, log, leader_epoch, high_watermark, rules.clone());
    replica.on_metadata(leader_epoch, rules, binding);
    Ok(replica)
}

fn delete(core: &Rc<Core>, topic_id: TopicId) {
    let gone: Vec<_> = core
        .partitions()
        .iter()
        .map(|replica| replica.partition())
        .filter(|partition| partition.topic_id == topic_id)
        .collect();
    for partition in gone {
        let removed = core.partitions().remove(partition, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        core.machines().unload(partition);
        let Some(mut replica) = removed else { continue };
        match replica.log_mut().delete() {
            Ok(job) => spawn(Queue::Background, async move {
                match blocking(move || job.run()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => error!(%partition, %error, "the files of a deleted partition stay"),
                    Err(error) => error!(%partition, %error, "the files of a deleted partition stay"),
                }
            })
            .detach(),
            Err(error) => error!(%partition, %error, "a deleted partition keeps its name"),
        }
    }
}
