//! Metadata, DescribeCluster and DescribeTopicPartitions: what there is, and who leads it.
//!
//! An answer about very many partitions is made beside the core. Clients ask for all topics at once, most of all when
//! they all have to connect anew: that answer is kept for as long as the metadata stays what it is.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::{PartitionRegistration, TopicImage, topic_name};
use tarn_record::{BrokerId, PartitionIndex, TopicId};
use tarn_runtime::blocking_work;
use tarn_transport::Answer;
use tarn_wire::frame::encode_response;
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
use tarn_wire::{ApiKey, ErrorCode, Str};

use crate::core::Core;
use crate::creating;
use crate::dispatch::Call;
use crate::internal_topics::is_internal;
use crate::kept_answers::KeptAnswer;
use crate::limits;
use crate::metadata_view::MetadataView;
use crate::metrics::ErrorCounts;
use crate::node::Node;

/// The endpoint types of brokers and controllers (KIP-919).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// The first version in which a client may say that a topic is not to be created.
const CHOOSES_CREATION: i16 = 4;

/// Serves Metadata.
pub async fn metadata(call: Call, request: MetadataRequest) -> Answer {
    let version = call.header.api_version;
    let question = Question {
        view: call.core.view(),
        node: call.core.node().clone(),
        listener: call.listener.as_str().to_owned(),
        version,
        topics: asked(version, &request),
    };
    // They are unknown in this answer: who asks comes back for those that can be made.
    if request.allow_auto_topic_creation || version < CHOOSES_CREATION {
        creating::begin(&call.core, question.unknown());
    }
    if !question.is_large() {
        return call.frame(&question.answer());
    }
    let made = match question.kept() {
        Some(kept) => Ok(kept),
        None => blocking_work(move || question.made()).await.unwrap_or_else(|error| Err(error.to_string())),
    };
    match made {
        Ok(KeptAnswer { frame, errors }) => {
            call.core.metrics().requests.errors(ApiKey::METADATA, &errors);
            Answer::Frame(frame.answering(call.header.correlation_id))
        }
        Err(error) => Answer::Close(format!("the metadata could not be written: {error}")),
    }
}

/// What a Metadata request comes to. Nothing else in it changes the answer.
struct Question {
    view: MetadataView,
    node: Arc<Node>,
    listener: String,
    version: i16,
    topics: Option<Vec<(Option<Str>, TopicId)>>,
}

impl Question {
    /// The names of topics that there are not, and could be.
    fn unknown(&self) -> Vec<Str> {
        let names = self.topics.iter().flatten().filter_map(|(name, _)| name.as_ref());
        let is_unknown =
            |name: &&Str| self.view.topic_by_name(name).is_none() && topic_name::check(name).is_ok();
        names.filter(is_unknown).cloned().collect()
    }

    /// True where the answer takes long to make.
    fn is_large(&self) -> bool {
        let mut left = limits::PARTITIONS_DESCRIBED_INLINE;
        let mut is_too_much = |topic: Option<&TopicImage>| {
            let size = topic.map_or(1, |topic| topic.partitions.len().max(1));
            left.checked_sub(size).map(|rest| left = rest).is_none()
        };
        match &self.topics {
            None => self.view.topics().any(|topic| is_too_much(Some(topic))),
            Some(asked) => {
                asked.iter().any(|(name, id)| is_too_much(find(&self.view, name.as_deref(), *id).ok()))
            }
        }
    }

    fn answer(&self) -> MetadataResponse {
        let Question { view, node, listener, version, topics } = self;
        let nodes: Vec<_> = view.nodes(listener).into_iter().filter(|node| !node.fenced).collect();
        let reachable: BTreeSet<BrokerId> = nodes.iter().map(|node| node.id).collect();
        let brokers = nodes.iter().map(|node| MetadataResponseBroker {
            node_id: node.id.0,
            host: node.host.as_str().into(),
            port: i32::from(node.port),
            rack: node.rack.as_deref().map(Str::from),
        });
        let topic = |topic: &TopicImage| described(topic, &reachable, *version);
        let topics = match topics {
            None => view.topics().map(|found| topic(found)).collect(),
            Some(asked) => asked
                .iter()
                .map(|(name, id)| match find(view, name.as_deref(), *id) {
                    Ok(found) => topic(found),
                    Err(error) => MetadataResponseTopic {
                        error_code: error.0,
                        name: name.clone(),
                        topic_id: id.0,
                        ..Default::default()
                    },
                })
                .collect(),
        };
        MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some(node.cluster_id().into()),
            controller_id: node.broker_id().0,
            topics,
            ..Default::default()
        }
    }

    /// The answer to who asked before, where it is to the same question.
    fn kept(&self) -> Option<KeptAnswer> {
        let kept = self.node.all_topics();
        self.topics.is_none().then(|| kept.find(self.view.image(), &self.listener, self.version)).flatten()
    }

    /// The answer as it is sent. Who asked meanwhile may have had it made.
    fn made(&self) -> Result<KeptAnswer, String> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let answer = self.answer();
        let frame = encode_response(0, self.version, &answer).map_err(|error| error.to_string())?;
        let made = KeptAnswer { frame, errors: Arc::new(ErrorCounts::of(self.version, &answer)) };
        if self.topics.is_none() {
            self.node.all_topics().keep(self.view.image(), &self.listener, self.version, made.clone());
        }
        Ok(made)
    }
}

/// The topics asked for; `None` for all. In version 0 an empty list is all of them.
fn asked(version: i16, request: &MetadataRequest) -> Option<Vec<(Option<Str>, TopicId)>> {
    let topics = request.topics.as_ref()?;
    if version == 0 && topics.is_empty() {
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
    // Of all topics no more than an answer takes is looked at: there may be very many.
    let names: BTreeSet<String> = match request.topics.as_slice() {
        [] => view.topics_from(&from_topic).take(limit + 1).map(|topic| topic.name.to_string()).collect(),
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
