//! DescribeConfigs: what is in force, and where it comes from.

use std::rc::Rc;

use tarn_image::effective::{self, BrokerView, ConfigEntry};
use tarn_image::{ConfigResource, ResourceType};
use tarn_quorum::decide::sentence;
use tarn_runtime::yield_if_needed;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use tarn_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use tarn_wire::{ErrorCode, Str};

use super::loggers;
use crate::core::Core;

/// Serves DescribeConfigs.
pub async fn describe(core: &Rc<Core>, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in &request.resources {
        results.push(result(core, resource, &request));
        yield_if_needed().await;
    }
    DescribeConfigsResponse { results, ..Default::default() }
}

fn result(
    core: &Rc<Core>,
    resource: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResult {
    let described = match ResourceType(resource.resource_type) {
        ResourceType::BROKER_LOGGER => loggers::describe(core, &resource.resource_name),
        _ => entries(core, resource)
            .map(|entries| entries.iter().map(|entry| described_entry(entry, request)).collect()),
    };
    let (error, message, mut configs) = match described {
        Ok(configs) => (ErrorCode::NONE, None, configs),
        Err((error, message)) => (error, Some(sentence(&message)), Vec::new()),
    };
    if let Some(wanted) = &resource.configuration_keys {
        configs.retain(|config| wanted.contains(&config.name));
    }
    DescribeConfigsResult {
        error_code: error.0,
        error_message: message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        configs,
    }
}

type Refusal = (ErrorCode, String);

fn entries(core: &Rc<Core>, resource: &DescribeConfigsResource) -> Result<Vec<ConfigEntry>, Refusal> {
    let view = core.view();
    let image = view.image();
    let own_id = core.node().broker_id().to_string();
    let broker = BrokerView::new(image.configs(), &own_id, &core.node().config().properties);
    let name = &*resource.resource_name;
    match ResourceType(resource.resource_type) {
        ResourceType::TOPIC => {
            if image.topics().by_name(name).is_none() {
                return Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, String::new()));
            }
            Ok(effective::topic_entries(image.configs().topic(name), &broker))
        }
        ResourceType::BROKER if name.is_empty() => Ok(effective::default_broker_entries(image.configs())),
        ResourceType::BROKER if name == own_id => Ok(effective::broker_entries(&broker)),
        ResourceType::BROKER => Err((
            ErrorCode::INVALID_REQUEST,
            format!("Unexpected broker id, expected {own_id} or empty string, but received {name}"),
        )),
        ResourceType::CLUSTER_MIRROR => match image.mirror(name) {
            Some(_) => Ok(effective::mirror_entries(image.configs().of(&ConfigResource::mirror(name)))),
            None => Err((ErrorCode::UNKNOWN_CLUSTER_MIRROR, format!("there is no mirror {name}"))),
        },
        other => Err((ErrorCode::INVALID_REQUEST, format!("resource type {} is not served", other.0))),
    }
}

fn described_entry(entry: &ConfigEntry, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = entry.synonyms.iter().map(|synonym| DescribeConfigsSynonym {
        name: synonym.name.into(),
        value: synonym.value.as_deref().map(Str::from),
        source: synonym.source.id(),
    });
    let sensitive = entry.key.kind.is_sensitive();
    DescribeConfigsResourceResult {
        name: entry.key.name.into(),
        value: if sensitive { None } else { entry.value.as_deref().map(Str::from) },
        read_only: entry.read_only,
        config_source: entry.source.id(),
        is_sensitive: sensitive,
        synonyms: if request.include_synonyms { synonyms.collect() } else { Vec::new() },
        config_type: entry.key.kind.id(),
        documentation: request.include_documentation.then(|| entry.key.doc.into()),
    }
}
