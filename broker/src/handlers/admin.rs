//! What the controller decides, for whoever asks this broker.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_image::ResourceType;
use tarn_quorum::decide::ApiError;
use tarn_quorum::decide::partitions::Grower;
use tarn_wire::messages as m;
use tarn_wire::messages::alter_configs_response::AlterConfigsResourceResponse as ReplacedConfigs;
use tarn_wire::messages::bump_leader_epochs_response::BumpLeaderEpochsTopicResult;
use tarn_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use tarn_wire::messages::create_topics_response::CreatableTopicResult;
use tarn_wire::messages::delete_topics_response::DeletableTopicResult;
use tarn_wire::messages::incremental_alter_configs_request::AlterConfigsResource;
use tarn_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use tarn_wire::{ErrorCode, Str};

use super::loggers;
use crate::core::Core;
use crate::dispatch::Call;

/// What a client is told while the controller does not answer: to try again.
const NO_CONTROLLER: ErrorCode = ErrorCode::NOT_CONTROLLER;

/// Serves CreateTopics.
pub async fn create_topics(call: &Call, request: m::CreateTopicsRequest) -> m::CreateTopicsResponse {
    let names: Vec<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let decided = call.core.decided(call.core.node().controller().create_topics(request)).await;
    decided.unwrap_or_else(|error| m::CreateTopicsResponse {
        topics: names
            .into_iter()
            .map(|name| CreatableTopicResult {
                name,
                error_code: NO_CONTROLLER.0,
                error_message: Some(error.to_string().into()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    })
}

/// Serves DeleteTopics.
pub async fn delete_topics(call: &Call, request: m::DeleteTopicsRequest) -> m::DeleteTopicsResponse {
    let named = request.topic_names.iter().map(|name| (Some(name.clone()), uuid::Uuid::nil()));
    let by_state = request.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
    let asked: Vec<_> = named.chain(by_state).collect();
    let decided = call.core.decided(call.core.node().controller().delete_topics(request)).await;
    decided.unwrap_or_else(|error| m::DeleteTopicsResponse {
        responses: asked
            .into_iter()
            .map(|(name, topic_id)| DeletableTopicResult {
                name,
                topic_id,
                error_code: NO_CONTROLLER.0,
                error_message: Some(error.to_string().into()),
            })
            .collect(),
        ..Default::default()
    })
}

/// Serves CreatePartitions.
pub async fn create_partitions(
    call: &Call,
    request: m::CreatePartitionsRequest,
) -> m::CreatePartitionsResponse {
    grow(&call.core, request, Grower::Client).await
}

/// Adds partitions to mirrored topics, as their mirror asks.
pub async fn grow_mirrored_topics(
    core: &Rc<Core>,
    request: m::CreatePartitionsRequest,
) -> m::CreatePartitionsResponse {
    grow(core, request, Grower::Mirror).await
}

async fn grow(
    core: &Rc<Core>,
    request: m::CreatePartitionsRequest,
    grower: Grower,
) -> m::CreatePartitionsResponse {
    let names: Vec<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let decided = core.decided(core.node().controller().create_partitions(request, grower)).await;
    decided.unwrap_or_else(|error| m::CreatePartitionsResponse {
        results: names
            .into_iter()
            .map(|name| CreatePartitionsTopicResult {
                name,
                error_code: NO_CONTROLLER.0,
                error_message: Some(error.to_string().into()),
            })
            .collect(),
        ..Default::default()
    })
}

/// Serves IncrementalAlterConfigs.
pub async fn alter_configs(
    call: &Call,
    request: m::IncrementalAlterConfigsRequest,
) -> m::IncrementalAlterConfigsResponse {
    let is_of_loggers = |one: &AlterConfigsResource| one.resource_type == ResourceType::BROKER_LOGGER.0;
    let (of_loggers, others): (Vec<_>, Vec<_>) = request.resources.into_iter().partition(is_of_loggers);
    let run = if request.validate_only { loggers::Run::Dry } else { loggers::Run::Real };
    let mut responses = alter_loggers(&call.core, &of_loggers, run);
    if !others.is_empty() || of_loggers.is_empty() {
        let request = m::IncrementalAlterConfigsRequest { resources: others, ..request };
        responses.extend(decide_configs(call, request).await.responses);
    }
    m::IncrementalAlterConfigsResponse { responses, ..Default::default() }
}

/// Serves AlterConfigs: what a resource is given is all that it has from then on.
pub async fn replace_configs(call: &Call, request: m::AlterConfigsRequest) -> m::AlterConfigsResponse {
    let asked: Vec<_> =
        request.resources.iter().map(|one| (one.resource_type, one.resource_name.clone())).collect();
    let decided = call.core.decided(call.core.node().controller().replace_configs(request)).await;
    decided.unwrap_or_else(|error| m::AlterConfigsResponse {
        responses: asked
            .into_iter()
            .map(|(resource_type, resource_name)| ReplacedConfigs {
                error_code: NO_CONTROLLER.0,
                error_message: Some(error.to_string().into()),
                resource_type,
                resource_name,
            })
            .collect(),
        ..Default::default()
    })
}

/// Serves UpdateFeatures.
pub async fn update_features(call: &Call, request: m::UpdateFeaturesRequest) -> m::UpdateFeaturesResponse {
    let decided = call.core.decided(call.core.node().controller().update_features(request)).await;
    decided.unwrap_or_else(|error| m::UpdateFeaturesResponse {
        error_code: NO_CONTROLLER.0,
        error_message: Some(error.to_string().into()),
        ..Default::default()
    })
}

/// What becomes of the levels of this broker's loggers, about which no controller is asked.
fn alter_loggers(
    core: &Rc<Core>,
    asked: &[AlterConfigsResource],
    run: loggers::Run,
) -> Vec<AlterConfigsResourceResponse> {
    let mut times = BTreeMap::new();
    asked.iter().for_each(|one| *times.entry(&*one.resource_name).or_insert(0) += 1);
    let altered = |one: &AlterConfigsResource| match times[&*one.resource_name] > 1 {
        true => Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.")),
        false => loggers::alter(core, one, run),
    };
    let response = |one: &AlterConfigsResource| {
        let refused = altered(one).err();
        AlterConfigsResourceResponse {
            error_code: refused.as_ref().map_or(ErrorCode::NONE, |refused| refused.code).0,
            error_message: refused.and_then(|refused| refused.wire_message()),
            resource_type: one.resource_type,
            resource_name: one.resource_name.clone(),
        }
    };
    asked.iter().map(response).collect()
}

/// What the controller decides of all other configurations.
async fn decide_configs(
    call: &Call,
    request: m::IncrementalAlterConfigsRequest,
) -> m::IncrementalAlterConfigsResponse {
    let asked: Vec<_> =
        request.resources.iter().map(|one| (one.resource_type, one.resource_name.clone())).collect();
    let decided = call.core.decided(call.core.node().controller().alter_configs(request)).await;
    decided.unwrap_or_else(|error| m::IncrementalAlterConfigsResponse {
        responses: asked
            .into_iter()
            .map(|(resource_type, resource_name)| AlterConfigsResourceResponse {
                error_code: NO_CONTROLLER.0,
                error_message: Some(error.to_string().into()),
                resource_type,
                resource_name,
            })
            .collect(),
        ..Default::default()
    })
}

/// Serves DescribeQuorum.
pub async fn describe_quorum(call: &Call, request: m::DescribeQuorumRequest) -> m::DescribeQuorumResponse {
    match call.core.node().controller().describe_quorum(request).await {
        Ok(answered) => answered.response,
        Err(error) => m::DescribeQuorumResponse {
            error_code: NO_CONTROLLER.0,
            error_message: Some(error.to_string().into()),
            ..Default::default()
        },
    }
}

/// Raises leader epochs, as a mirror asks.
pub async fn bump_leader_epochs(
    core: &Rc<Core>,
    request: m::BumpLeaderEpochsRequest,
) -> m::BumpLeaderEpochsResponse {
    let names: Vec<Str> = request.topics.iter().map(|topic| topic.topic_name.clone()).collect();
    let decided = core.decided(core.node().controller().bump_leader_epochs(request)).await;
    decided.unwrap_or_else(|error| m::BumpLeaderEpochsResponse {
        error_code: NO_CONTROLLER.0,
        error_message: Some(error.to_string().into()),
        topics: names
            .into_iter()
            .map(|topic_name| BumpLeaderEpochsTopicResult { topic_name, ..Default::default() })
            .collect(),
        ..Default::default()
    })
}
