//! The controller of the destination, as far as mirroring asks it. What it decides is tested where it does.

use tarn_record::TopicId;
use tarn_wire::ErrorCode;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;
use tarn_wire::messages::*;

use super::cluster::{Cluster, config, led_here};

impl Cluster {
    pub(super) fn starting_is_stuck(&self) -> bool {
        let mut state = self.state();
        state.starts_asked += 1;
        state.stuck_controller
    }

    pub(super) fn start(&self, request: StartMirrorTopicsRequest) -> StartMirrorTopicsResponse {
        let mut response = StartMirrorTopicsResponse::default();
        for topic in request.topics {
            let id = TopicId(topic.topic_id);
            let name = &*topic.topic_name;
            let mut result = MirrorTopicResult { name: name.into(), ..MirrorTopicResult::default() };
            // The rule is the controller's, and tested there.
            if request.discovered && self.state().has_nothing_to_discover {
                result.error_code = ErrorCode::INVALID_CLUSTER_MIRROR_STATE.0;
                response.topics.push(result);
                continue;
            }
            response.topics.push(result);
            let mut records = vec![TopicRecord { name: name.into(), topic_id: id.0 }.into()];
            records.extend((0..topic.num_partitions).map(|partition| led_here(id, partition, 0)));
            records.push(config(2, name, "mirror.name", "m"));
            records.push(config(2, name, "mirror.desired.state", "mirroring:1"));
            let configs = topic.configs.iter().map(|entry| {
                (
                    entry.name.to_string(),
                    entry.value.as_ref().map(|value| value.to_string()).unwrap_or_default(),
                )
            });
            self.state().begun_with.insert(name.to_owned(), configs.collect());
            self.apply(records);
        }
        response
    }

    pub(super) fn raise(&self, request: BumpLeaderEpochsRequest) -> BumpLeaderEpochsResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let id = self.state().image.topics().id_of(&topic.topic_name).expect("it exists");
            let mut partitions = Vec::new();
            for partition in topic.partitions {
                self.apply(vec![led_here(id, partition.partition_index, partition.min_leader_epoch + 1)]);
                partitions.push(bump_leader_epochs_response::BumpLeaderEpochsPartitionResult {
                    partition_index: partition.partition_index,
                    ..Default::default()
                });
            }
            topics.push(bump_leader_epochs_response::BumpLeaderEpochsTopicResult {
                topic_name: topic.topic_name,
                partitions,
            });
        }
        BumpLeaderEpochsResponse { topics, ..Default::default() }
    }

    pub(super) fn complete(&self, request: CompleteMirrorStopRequest) -> CompleteMirrorStopResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let (name, version) = (&*topic.topic_name, topic.state_version);
            let is_right = self.wanted(name) == format!("stopping:{version}");
            let is_taken = is_right && !self.state().completes_nothing;
            if is_taken {
                self.want(name, &format!("stopped:{version}"));
            }
            let error = if is_taken { ErrorCode::NONE } else { ErrorCode::INVALID_CLUSTER_MIRROR_STATE };
            topics.push(complete_mirror_stop_response::MirrorTopicResult {
                name: topic.topic_name.clone(),
                error_code: error.0,
                ..Default::default()
            });
        }
        CompleteMirrorStopResponse { topics, ..Default::default() }
    }

    /// Topics whose stop it has decided, which this broker's metadata do not show yet, do not grow.
    pub(super) fn grow(&self, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
        let refused = |topic: create_partitions_request::CreatePartitionsTopic| {
            create_partitions_response::CreatePartitionsTopicResult {
                name: topic.name,
                error_code: ErrorCode::INVALID_CLUSTER_MIRROR_STATE.0,
                ..Default::default()
            }
        };
        CreatePartitionsResponse {
            results: request.topics.into_iter().map(refused).collect(),
            ..Default::default()
        }
    }
}
