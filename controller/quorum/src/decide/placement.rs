//! Which brokers hold a new partition.
//!
//! Leaders go round the active brokers, so that they share the load; the other replicas follow in the same
//! circle. A fenced broker gets a replica only where there are not enough active ones.

use tarn_image::{MetadataImage, PartitionRegistration};
use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicId};
use tarn_wire::messages::PartitionRecord;
use tarn_wire::{ErrorCode, MetadataRecord};

use super::ApiError;

/// Replicas for `count` partitions, the leader of each first. `start` says where the circle begins.
///
/// # Errors
/// INVALID_REPLICATION_FACTOR with Kafka's words.
pub fn place(
    image: &MetadataImage,
    count: i32,
    factor: i16,
    start: usize,
) -> Result<Vec<Vec<BrokerId>>, ApiError> {
    let unable = |why: String| {
        Err(ApiError::new(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            format!("Unable to replicate the partition {factor} time(s): {why}"),
        ))
    };
    let registered = image.registrations().broker_count();
    let wanted = usize::try_from(factor).unwrap_or(0);
    if wanted > registered {
        return unable(format!(
            "The target replication factor of {factor} cannot be reached because only {registered} broker(s) are \
             registered or some brokers have all their log directories cordoned."
        ));
    }
    let (active, idle): (Vec<_>, Vec<_>) =
        image.registrations().brokers().partition(|broker| broker.is_active());
    if active.is_empty() {
        return unable("All brokers are currently fenced.".to_owned());
    }
    let partitions = 0..usize::try_from(count).unwrap_or(0);
    Ok(partitions
        .map(|partition| {
            let first = start.wrapping_add(partition) % active.len();
            let circle = active[first..].iter().chain(&active[..first]);
            circle.chain(&idle).take(wanted).map(|broker| broker.id).collect()
        })
        .collect())
}

/// Checks replicas that a request names; `factor` is what the other partitions have.
///
/// # Errors
/// INVALID_REPLICA_ASSIGNMENT with Kafka's words.
pub fn check_manual(
    image: &MetadataImage,
    replicas: &[i32],
    factor: Option<usize>,
) -> Result<Vec<BrokerId>, ApiError> {
    let refuse = |why: String| Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
    if replicas.is_empty() {
        return refuse("The manual partition assignment includes an empty replica list.".to_owned());
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    for (at, id) in sorted.iter().enumerate() {
        if image.registrations().broker(BrokerId(*id)).is_none() {
            return refuse(format!(
                "The manual partition assignment includes broker {id}, but no such broker is registered."
            ));
        }
        if at > 0 && sorted[at - 1] == *id {
            return refuse(format!(
                "The manual partition assignment includes the broker {id} more than once."
            ));
        }
    }
    match factor {
        Some(others) if others != replicas.len() => refuse(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with \
             previous partitions, which have {others} replica(s).",
            replicas.len()
        )),
        _ => Ok(replicas.iter().map(|id| BrokerId(*id)).collect()),
    }
}

/// The record of a new partition; `None` where none of its replicas is active.
pub fn new_partition(
    image: &MetadataImage,
    topic: TopicId,
    index: PartitionIndex,
    replicas: &[BrokerId],
) -> Option<MetadataRecord> {
    let registrations = image.registrations();
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(|id| registrations.is_active(*id)).collect();
    let leader = *isr.first()?;
    let directories =
        replicas.iter().filter_map(|id| registrations.broker(*id)).map(|broker| broker.default_directory());
    let record = PartitionRecord {
        partition_id: index.0,
        topic_id: topic.0,
        replicas: replicas.iter().map(|id| id.0).collect(),
        isr: isr.iter().map(|id| id.0).collect(),
        leader: leader.0,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: directories.collect(),
        ..PartitionRecord::default()
    };
    Some(record.into())
}

/// The whole record of a partition that has the leader epoch `epoch` from now on. Kafka's change records
/// can only raise an epoch by one, and no record of Kafka's is extended here.
pub fn with_leader_epoch(
    partition: &PartitionRegistration,
    topic: TopicId,
    index: PartitionIndex,
    epoch: Epoch,
) -> MetadataRecord {
    let mut record = partition.to_record(topic, index);
    record.leader_epoch = epoch.0;
    // The image takes no change of a partition that has the highest.
    record.partition_epoch = record.partition_epoch.saturating_add(1);
    record.into()
}
