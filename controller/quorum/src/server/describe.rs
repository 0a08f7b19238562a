//! DescribeQuorum: who votes and how far each is.

use tarn_record::Timestamp;
use tarn_wire::ErrorCode;
use tarn_wire::messages::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use tarn_wire::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use uuid::Uuid;

use super::Controller;
use crate::metadata_log;

impl Controller {
    /// The answer for the one partition there is. The only voter leads, so its times are now.
    pub(super) fn describe_quorum(
        &self,
        request: &DescribeQuorumRequest,
        now: Timestamp,
    ) -> DescribeQuorumResponse {
        let asks_for_it = |topic: &tarn_wire::messages::describe_quorum_request::TopicData| {
            &*topic.topic_name == metadata_log::TOPIC
                && topic.partitions.iter().all(|partition| partition.partition_index == 0)
        };
        if !request.topics.iter().all(asks_for_it) {
            let error_code = ErrorCode::INVALID_REQUEST.0;
            let error_message = Some(format!("There is no quorum but {}-0.", metadata_log::TOPIC).into());
            return DescribeQuorumResponse { error_code, error_message, ..DescribeQuorumResponse::default() };
        }
        let id = self.config.node_id.0;
        let leader = ReplicaState {
            replica_id: id,
            // Only a dynamic quorum names its voters by their directories (KIP-853).
            replica_directory_id: if self.config.quorum.voters.is_empty() {
                self.directory_id
            } else {
                Uuid::nil()
            },
            log_end_offset: self.log.end().0,
            last_fetch_timestamp: now.0,
            last_caught_up_timestamp: now.0,
        };
        let partition = PartitionData {
            partition_index: 0,
            error_code: ErrorCode::NONE.0,
            error_message: None,
            leader_id: id,
            leader_epoch: self.node.epoch().0,
            high_watermark: self.node.high_watermark().0,
            current_voters: vec![leader],
            observers: Vec::new(),
        };
        let listeners = self.config.advertised_controller_listeners().map(|listener| Listener {
            name: listener.name.as_str().into(),
            host: listener.host.as_str().into(),
            port: listener.port,
        });
        DescribeQuorumResponse {
            error_code: ErrorCode::NONE.0,
            error_message: None,
            topics: vec![TopicData { topic_name: metadata_log::TOPIC.into(), partitions: vec![partition] }],
            nodes: vec![Node { node_id: id, listeners: listeners.collect() }],
        }
    }
}
