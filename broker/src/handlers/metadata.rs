//! Metadata, DescribeCluster and DescribeTopicPartitions: what there is, and who leads it.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_image::{PartitionRegistration, TopicImage, topic_name};
use tarn_record::{BrokerId, PartitionIndex, TopicId};
use tarn_wire::messages::describe_cluster_response::DescribeClusterBroker;
use tarn_wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use tarn_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use tarn_wire::messages::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, MetadataRequest, MetadataResponse,
};
use tarn_wire::{ErrorCode, RequestHeader, Str};

use crate::core::Core;
use crate::internal_topics::is_internal;
use crate::metadata_view::{MetadataView, Node};

/// The endpoint types of brokers and controllers (KIP-919).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Serves Metadata to clients of `listener`.
pub fn metadata(
    core: &Rc<Core>,
    header: &RequestHeader,
    listener: &str,
    request: &MetadataRequest,
) -> MetadataResponse {
    let view = core.view();
    let nodes: Vec<Node> = view.nodes(listener).into_iter().filter(|node| !node.fenced).collect();
    let reachable: BTreeSet<BrokerId> = nodes.iter().map(|node| node.id).collect();
    let brokers = nodes.iter().map(|node| MetadataResponseBroker {
        node_id: node.id.0,
        host: node.host.as_str().into(),
        port: i32::from(node.port),
        rack: node.rack.as_deref().map(Str::from),
    });
    let topic = |topic: &TopicImage| described(topic, &reachable, header.api_version);
    let topics = match asked(header, request) {
        None => view.topics().map(|found| topic(found)).collect(),
        Some(asked) => asked
            .into_iter()
            .map(|(name, id)| match find(&view, name.as_deref(), id) {
                Ok(found) => topic(found),
                Err(error) => {
                    MetadataResponseTopic { error_code: error.0, name, topic_id: id.0, ..Default::default() }
                }
            })
            .collect(),
    };
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(core.node().cluster_id().into()),
        controller_id: core.node().broker_id().0,
        topics,
        ..Default::default()
    }
}

/// The topics asked for; `None` for all. In version 0 an empty list is all of them.
fn asked(header: &RequestHeader, request: &MetadataRequest) -> Option<Vec<(Option<Str>, TopicId)>> {
    let topics = request.topics.as_ref()?;
    if header.api_version == 0 && topics.is_empty() {
        return None;
    }
    Some(topics.iter().map(|topic| (topic.name.clone(), TopicId(topic.topic_id))).collect())
}

fn find<'a>(view: &'a MetadataView, name: Option<&str>, id: TopicId) -> Result<&'a TopicImage, ErrorCode> {
    match name {
        Some(name) if topic_name::check(name).is_err() => Err(ErrorCode::INVALID_TOPIC_EXCEPTION),
        Some(name) => {
            view.topic_by_name(name).map(AsRef::as_ref).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        }
        None => view.topic_by_id(id).map(AsRef::as_ref).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
    }
}

fn described(topic: &TopicImage, reachable: &BTreeSet<BrokerId>, version: i16) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter().map(|(index, partition)| MetadataResponsePartition {
        error_code: partition_error(partition, reachable, version).0,
        partition_index: index.0,
        leader_id: partition.leader.0,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: offline(partition, reachable),
    });
    MetadataResponseTopic {
        name: Some((&*topic.name).into()),
        topic_id: topic.id.0,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

fn partition_error(
    partition: &PartitionRegistration,
    reachable: &BTreeSet<BrokerId>,
    version: i16,
) -> ErrorCode {
    const LISTENER_ERRORS: i16 = 6;
    if partition.leader == BrokerId::NONE {
        ErrorCode::LEADER_NOT_AVAILABLE
    } else if reachable.contains(&partition.leader) {
        ErrorCode::NONE
    } else if version >= LISTENER_ERRORS {
        ErrorCode::LISTENER_NOT_FOUND
    } else {
        ErrorCode::LEADER_NOT_AVAILABLE
    }
}

fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

fn offline(partition: &PartitionRegistration, reachable: &BTreeSet<BrokerId>) -> Vec<i32> {
    let replicas = partition.replicas.iter().filter(|replica| !reachable.contains(replica));
    replicas.map(|replica| replica.0).collect()
}

/// Serves DescribeCluster to clients of `listener`.
pub fn cluster(core: &Rc<Core>, listener: &str, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    let of_controllers = core.node().config().is_controller_listener(listener);
    let endpoint_type = if of_controllers { CONTROLLERS } else { BROKERS };
    if request.endpoint_type != endpoint_type {
        return DescribeClusterResponse {
            error_code: ErrorCode::MISMATCHED_ENDPOINT_TYPE.0,
            error_message: Some(format!("this listener is of endpoint type {endpoint_type}").into()),
            endpoint_type,
            ..Default::default()
        };
    }
    let view = core.view();
    let nodes = if of_controllers { view.controllers(listener) } else { view.nodes(listener) };
    let nodes = nodes.into_iter();
    let brokers = nodes.filter(|node| request.include_fenced_brokers || !node.fenced);
    DescribeClusterResponse {
        endpoint_type,
        cluster_id: core.node().cluster_id().into(),
        controller_id: core.node().broker_id().0,
        brokers: brokers
            .map(|node| DescribeClusterBroker {
                broker_id: node.id.0,
                host: node.host.as_str().into(),
                port: i32::from(node.port),
                rack: node.rack.as_deref().map(Str::from),
                is_fenced: node.fenced,
            })
            .collect(),
        ..Default::default()
    }
}

/// Serves DescribeTopicPartitions: topics in the order of their names, page by page (KIP-966).
pub fn topic_partitions(
    core: &Rc<Core>,
    listener: &str,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let view = core.view();
    let nodes = view.nodes(listener).into_iter().filter(|node| !node.fenced);
    let reachable: BTreeSet<BrokerId> = nodes.map(|node| node.id).collect();
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let limit = limit.clamp(1, core.node().partitions_per_answer());
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.to_string(), cursor.partition_index),
        None => (String::new(), 0),
    };
    let names: BTreeSet<String> = match request.topics.as_slice() {
        [] => view.topics().map(|topic| topic.name.to_string()).collect(),
        named => named.iter().map(|topic| topic.name.to_string()).collect(),
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = limit;
    for name in names.range(from_topic.clone()..) {
        let first = if *name == from_topic { from_partition } else { 0 };
        let Some(topic) = view.topic_by_name(name) else {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
            let name = Some(name.as_str().into());
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code,
                name,
                ..Default::default()
            });
            continue;
        };
        if left == 0 {
            response.next_cursor = Some(Cursor { topic_name: name.as_str().into(), partition_index: first });
            break;
        }
        let partitions: Vec<_> = topic.partitions.range(PartitionIndex(first)..).take(left).collect();
        left -= partitions.len();
        let next = partitions.last().map_or(first, |(index, _)| index.0 + 1);
        response.topics.push(page_of(topic, partitions, &reachable));
        if topic.partitions.contains_key(&PartitionIndex(next)) {
            response.next_cursor = Some(Cursor { topic_name: name.as_str().into(), partition_index: next });
            break;
        }
    }
    response
}

fn page_of(
    topic: &TopicImage,
    partitions: Vec<(&PartitionIndex, &std::sync::Arc<PartitionRegistration>)>,
    reachable: &BTreeSet<BrokerId>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions =
        partitions.into_iter().map(|(index, partition)| DescribeTopicPartitionsResponsePartition {
            error_code: partition_error(partition, reachable, i16::MAX).0,
            partition_index: index.0,
            leader_id: partition.leader.0,
            leader_epoch: partition.leader_epoch.0,
            replica_nodes: ids(&partition.replicas),
            isr_nodes: ids(&partition.isr),
            eligible_leader_replicas: Some(ids(&partition.elr)),
            last_known_elr: Some(ids(&partition.last_known_elr)),
            offline_replicas: offline(partition, reachable),
        });
    DescribeTopicPartitionsResponseTopic {
        name: Some((&*topic.name).into()),
        topic_id: topic.id.0,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..Default::default()
    }
}
