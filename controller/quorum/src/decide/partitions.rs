//! CreatePartitions: a topic grows.

use std::collections::BTreeMap;

use tarn_image::{DesiredState, MetadataImage};
use tarn_record::{BrokerId, PartitionIndex};
use tarn_wire::messages::create_partitions_request::CreatePartitionsTopic;
use tarn_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use tarn_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::create_topics::circle_start;
use super::{ApiError, Decision, PARTITIONS_PER_REQUEST_MAX, Run, names, placement, wire_result};

/// Who asks for more partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grower {
    /// A client, who may not touch mirror topics.
    Client,
    /// The mirror that fills the topic, because the source has more partitions; as long as it does fill it.
    Mirror,
}

/// Decides a whole request. A topic that fails does not hinder the others.
pub fn create_partitions(
    image: &MetadataImage,
    request: &CreatePartitionsRequest,
    grower: Grower,
) -> Decision<CreatePartitionsResponse> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *named.entry(&topic.name).or_default() += 1;
    }
    let excess = too_many(image, request);
    let mut records = Vec::new();
    let mut response = CreatePartitionsResponse::default();
    for topic in &request.topics {
        let repeated = named.get(&*topic.name).is_some_and(|count| *count > 1);
        if repeated && response.results.iter().any(|result| result.name == topic.name) {
            continue;
        }
        let grown = match (&excess, repeated) {
            (_, true) => Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.")),
            (Some(error), _) => Err(error.clone()),
            _ => grow(image, topic, grower),
        };
        let (error_code, error_message) = wire_result(&grown);
        response.results.push(CreatePartitionsTopicResult {
            name: topic.name.clone(),
            error_code,
            error_message,
        });
        records.extend(grown.unwrap_or_default());
    }
    Decision::of(records, response).carried_out(Run::of(request.validate_only))
}

fn too_many(image: &MetadataImage, request: &CreatePartitionsRequest) -> Option<ApiError> {
    let additional = |topic: &CreatePartitionsTopic| {
        let known = image.topics().by_name(&topic.name)?;
        Some((i64::from(topic.count) - known.partitions.len() as i64).max(0))
    };
    let total = request.topics.iter().filter_map(additional).fold(0i64, i64::saturating_add);
    (total > PARTITIONS_PER_REQUEST_MAX).then(|| {
        ApiError::new(
            ErrorCode::POLICY_VIOLATION,
            "Excessively large number of additional partitions per request.",
        )
    })
}

fn grow(
    image: &MetadataImage,
    asked: &CreatePartitionsTopic,
    grower: Grower,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let unknown = ApiError::bare(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let topic = image.topics().by_name(&asked.name).ok_or(unknown)?;
    match (grower, image.bindings().of(&topic.name)) {
        (Grower::Client, binding) => names::refuse_mirrored(&topic.name, binding)?,
        (Grower::Mirror, Some(binding)) if binding.desired == DesiredState::Mirroring => {}
        // Its mirror decided on what was wanted when it asked its source.
        (Grower::Mirror, _) => {
            let why = format!(
                "Topic '{}' is not mirrored any more, and does not grow with its source.",
                topic.name
            );
            return Err(ApiError::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, why));
        }
    }
    let refuse = |why: String| Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, why));
    let current = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if asked.count == current {
        return refuse(format!("Topic already has {current} partition(s)."));
    }
    if asked.count < current {
        return refuse(format!(
            "The topic {} currently has {current} partition(s); {} would not be an increase.",
            topic.name, asked.count
        ));
    }
    let additional = asked.count - current;
    let factor = topic.partitions.values().next().map_or(1, |first| first.replicas.len());
    let replicas = match &asked.assignments {
        Some(assignments) => {
            if assignments.len() != usize::try_from(additional).unwrap_or(0) {
                let why = format!(
                    "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                    assignments.len()
                );
                return Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
            }
            assignments
                .iter()
                .map(|assignment| placement::check_manual(image, &assignment.broker_ids, Some(factor)))
                .collect::<Result<Vec<Vec<BrokerId>>, ApiError>>()?
        }
        None => {
            let start = circle_start(topic.id).wrapping_add(topic.partitions.len());
            placement::place(image, additional, i16::try_from(factor).unwrap_or(i16::MAX), start)?
        }
    };
    (current..)
        .zip(&replicas)
        .map(|(index, replicas)| {
            placement::new_partition(image, topic.id, PartitionIndex(index), replicas).ok_or_else(|| {
                let why = format!(
                    "All brokers specified in the manual partition assignment for partition {index} are fenced or in \
                     controlled shutdown."
                );
                ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_wire::messages::create_partitions_request::CreatePartitionsAssignment;

    #[test]
    fn refusals_are_in_kafkas_words() {
        let mut world = World::with_topics(&["ok"]);
        let mut refused = |count, assignments: Option<&[&[i32]]>| {
            let result = world.grow(topic("ok", count, assignments), Grower::Client);
            result.error_message.unwrap().to_string()
        };
        assert_eq!(refused(1, None), "Topic already has 1 partition(s).");
        assert_eq!(
            refused(0, None),
            "The topic ok currently has 1 partition(s); 0 would not be an increase."
        );
        assert_eq!(
            refused(3, Some(&[&[1]])),
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
        );
        assert_eq!(
            refused(2, Some(&[&[7]])),
            "The manual partition assignment includes broker 7, but no such broker is registered."
        );
        assert_eq!(refused(200_000, None), "Excessively large number of additional partitions per request.");
        assert_eq!(world.image.topics().by_name("ok").unwrap().partitions.len(), 1);
    }

    #[test]
    fn a_topic_grows_behind_its_last_partition() {
        let mut world = World::with_topics(&["ok"]);
        assert_eq!(world.grow(topic("ok", 3, None), Grower::Client).error_code, 0);
        let indexes: Vec<_> =
            world.image.topics().by_name("ok").unwrap().partitions.keys().map(|index| index.0).collect();
        assert_eq!(indexes, [0, 1, 2]);
    }

    #[test]
    fn a_mirror_topic_grows_with_its_source_only() {
        let mut world = World::with_topics(&["t"]);
        world.bind("t", "m", "mirroring:1");
        let refused = world.grow(topic("t", 2, None), Grower::Client);
        assert_eq!(ErrorCode(refused.error_code), ErrorCode::POLICY_VIOLATION);
        assert_eq!(world.grow(topic("t", 2, None), Grower::Mirror).error_code, 0);
    }

    #[test]
    fn a_topic_that_was_stopped_or_paused_meanwhile_does_not_grow_with_its_source() {
        for state in ["paused:1", "stopping:1", "stopped:1"] {
            let mut world = World::with_topics(&["t"]);
            world.bind("t", "m", state);
            let refused = world.grow(topic("t", 2, None), Grower::Mirror);
            assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE, "{state}");
        }
        let mut world = World::with_topics(&["t"]);
        assert_ne!(world.grow(topic("t", 2, None), Grower::Mirror).error_code, 0, "its mirror was deleted");
    }

    fn topic(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
        let assignments = assignments.map(|lists| {
            lists.iter().map(|ids| CreatePartitionsAssignment { broker_ids: ids.to_vec() }).collect()
        });
        CreatePartitionsTopic { name: name.into(), count, assignments }
    }
}
