//! The response of a fetch.

use std::rc::Rc;

use tarn_record::PartitionIndex;
use tarn_wire::messages::FetchResponse;
use tarn_wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use tarn_wire::{ErrorCode, Str};

use super::found::Found;
use super::held::HeldSession;
use crate::core::Core;
use crate::interest::FetchedPartition;
use crate::named::TopicKey;

/// The first version whose clients know KAFKA_STORAGE_ERROR; older ones refresh their metadata for another.
const WITH_STORAGE_ERROR: i16 = 6;
/// The first version that tells the current leader, and where logs part (KIP-595).
const WITH_EPOCHS: i16 = 12;
/// The first version that tells where leaders are reached (KIP-951).
const WITH_ENDPOINTS: i16 = 16;

/// A request whose session is not right.
pub(super) fn refused(error: ErrorCode) -> FetchResponse {
    FetchResponse { error_code: error.0, ..Default::default() }
}

/// What was found, topic by topic: partitions of one topic that follow each other share its entry.
pub(super) fn response(core: &Rc<Core>, held: &HeldSession, found: Found, version: i16) -> FetchResponse {
    let session = held.session();
    let session_id = if session.named.is_empty() { 0 } else { session.id };
    let mut response = FetchResponse { session_id, ..Default::default() };
    for partition in found.into_partitions() {
        core.partitions().traffic().fetched(&partition);
        let Some(key) = session.named.key_of(partition.partition.topic_id) else { continue };
        let mut data = partition_data(core, partition, &mut response.node_endpoints);
        if data.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0 {
            data.error_code = unknown(key).0;
        }
        if version < WITH_STORAGE_ERROR && data.error_code == ErrorCode::KAFKA_STORAGE_ERROR.0 {
            data.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
        }
        if version < WITH_EPOCHS {
            (data.current_leader, data.diverging_epoch) = Default::default();
        }
        push(&mut response, key, data);
    }
    if version < WITH_ENDPOINTS {
        response.node_endpoints.clear();
    }
    for (key, index) in session.named.missing() {
        push(&mut response, key, missing(key, index));
    }
    response
}

fn push(response: &mut FetchResponse, key: &TopicKey, data: PartitionData) {
    let (topic, topic_id) = match key {
        TopicKey::Name(name) => (&**name, uuid::Uuid::nil()),
        TopicKey::Id(id) => ("", id.0),
    };
    match response.responses.last_mut() {
        Some(last) if *last.topic == *topic && last.topic_id == topic_id => last.partitions.push(data),
        _ => response.responses.push(FetchableTopicResponse {
            topic: topic.into(),
            topic_id,
            partitions: vec![data],
        }),
    }
}

/// What a client is told of a topic that is not there, by how it names topics.
fn unknown(key: &TopicKey) -> ErrorCode {
    match key {
        TopicKey::Name(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        TopicKey::Id(_) => ErrorCode::UNKNOWN_TOPIC_ID,
    }
}

fn missing(key: &TopicKey, index: PartitionIndex) -> PartitionData {
    PartitionData {
        partition_index: index.0,
        error_code: unknown(key).0,
        high_watermark: -1,
        aborted_transactions: None,
        ..Default::default()
    }
}

fn partition_data(
    core: &Rc<Core>,
    found: FetchedPartition,
    endpoints: &mut Vec<NodeEndpoint>,
) -> PartitionData {
    let aborted = found.aborted.map(|aborted| {
        let transactions = aborted.into_iter();
        transactions
            .map(|(producer_id, first)| AbortedTransaction { producer_id, first_offset: first.0 })
            .collect()
    });
    let diverging = found.diverging.map(|(epoch, end)| EpochEndOffset { epoch: epoch.0, end_offset: end.0 });
    PartitionData {
        partition_index: found.partition.partition.0,
        error_code: found.error.0,
        high_watermark: found.high_watermark.0,
        last_stable_offset: found.last_stable_offset.0,
        log_start_offset: found.log_start.0,
        diverging_epoch: diverging.unwrap_or_default(),
        current_leader: current_leader(core, &found.partition, found.error, endpoints),
        aborted_transactions: aborted,
        records: Some(found.records),
        ..Default::default()
    }
}

/// Where the client should go instead (KIP-951).
fn current_leader(
    core: &Rc<Core>,
    partition: &tarn_record::TopicIdPartition,
    error: ErrorCode,
    endpoints: &mut Vec<NodeEndpoint>,
) -> LeaderIdAndEpoch {
    if ![ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH].contains(&error) {
        return LeaderIdAndEpoch::default();
    }
    let Some((leader, epoch)) = core.view().leader(*partition) else { return LeaderIdAndEpoch::default() };
    if let Some(node) = core.view().endpoint(leader, None)
        && endpoints.iter().all(|known| known.node_id != leader.0)
    {
        let (host, rack) = (node.host.into(), node.rack.map(Str::from));
        endpoints.push(NodeEndpoint { node_id: leader.0, host, port: i32::from(node.port), rack });
    }
    LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 }
}
