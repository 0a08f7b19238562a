//! BumpLeaderEpochs (KIP-1279): a mirror partition's leader epoch is raised above its source's.
//!
//! A partition that is already above what is asked stays as it is, so asking twice does no harm. The raised
//! epoch is a whole PartitionRecord: Kafka's change record can only add one.

use tarn_image::MetadataImage;
use tarn_record::{Epoch, PartitionIndex};
use tarn_wire::messages::bump_leader_epochs_request::BumpLeaderEpochsPartition;
use tarn_wire::messages::bump_leader_epochs_response::{
    BumpLeaderEpochsPartitionResult, BumpLeaderEpochsTopicResult,
};
use tarn_wire::messages::{BumpLeaderEpochsRequest, BumpLeaderEpochsResponse};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::{ApiError, Decision, placement, wire_result};

/// Decides a whole request. A partition that fails does not hinder the others.
pub fn bump(image: &MetadataImage, request: &BumpLeaderEpochsRequest) -> Decision<BumpLeaderEpochsResponse> {
    let mut records = Vec::new();
    let mut response = BumpLeaderEpochsResponse::default();
    for topic in &request.topics {
        let partitions = topic
            .partitions
            .iter()
            .map(|asked| {
                let bumped = bump_one(image, &topic.topic_name, asked);
                let (error_code, error_message) = wire_result(&bumped);
                records.extend(bumped.ok().flatten());
                BumpLeaderEpochsPartitionResult {
                    partition_index: asked.partition_index,
                    error_code,
                    error_message,
                }
            })
            .collect();
        response
            .topics
            .push(BumpLeaderEpochsTopicResult { topic_name: topic.topic_name.clone(), partitions });
    }
    Decision::of(records, response)
}

fn bump_one(
    image: &MetadataImage,
    topic: &str,
    asked: &BumpLeaderEpochsPartition,
) -> Result<Option<MetadataRecord>, ApiError> {
    let index = PartitionIndex(asked.partition_index);
    let unknown = || {
        ApiError::new(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("There is no partition {topic}-{index}."),
        )
    };
    let known = image.topics().by_name(topic).ok_or_else(unknown)?;
    let partition = known.partitions.get(&index).ok_or_else(unknown)?;
    if partition.leader_epoch.0 > asked.min_leader_epoch {
        return Ok(None);
    }
    let epoch = asked.min_leader_epoch.checked_add(1).ok_or_else(|| {
        let why = format!("There is no leader epoch above {}.", asked.min_leader_epoch);
        ApiError::new(ErrorCode::INVALID_REQUEST, why)
    })?;
    Ok(Some(placement::with_leader_epoch(partition, known.id, index, Epoch(epoch))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_record::BrokerId;
    use tarn_wire::messages::bump_leader_epochs_request::BumpLeaderEpochsTopic;

    #[test]
    fn an_epoch_is_raised_above_what_is_asked_and_only_once() {
        let mut world = World::with_topics(&["t"]);
        assert_eq!(codes(&world.apply(bump(&world.image, &request("t", 0, 16)))), [0]);
        let partition =
            |world: &World| world.image.topics().by_name("t").unwrap().partitions[&PartitionIndex(0)].clone();
        assert_eq!((partition(&world).leader_epoch, partition(&world).leader), (Epoch(17), BrokerId(1)));
        assert_eq!(partition(&world).partition_epoch, 1);
        assert!(bump(&world.image, &request("t", 0, 16)).batches.is_empty());
    }

    #[test]
    fn what_there_is_not_is_named() {
        let world = World::with_topics(&["t"]);
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
        assert_eq!(codes(&bump(&world.image, &request("t", 5, 1)).response), [unknown]);
        assert_eq!(codes(&bump(&world.image, &request("u", 0, 1)).response), [unknown]);
        assert_eq!(
            codes(&bump(&world.image, &request("t", 0, i32::MAX)).response),
            [ErrorCode::INVALID_REQUEST.0]
        );
    }

    fn request(topic: &str, partition_index: i32, min_leader_epoch: i32) -> BumpLeaderEpochsRequest {
        let partitions = vec![BumpLeaderEpochsPartition { partition_index, min_leader_epoch }];
        BumpLeaderEpochsRequest {
            topics: vec![BumpLeaderEpochsTopic { topic_name: topic.into(), partitions }],
        }
    }

    fn codes(response: &BumpLeaderEpochsResponse) -> Vec<i16> {
        response
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| partition.error_code))
            .collect()
    }
}
