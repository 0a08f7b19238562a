//! ListConfigResources: what has, or could have, a configuration of its own.

use std::rc::Rc;

use tarn_image::{MetadataImage, ResourceType};
use tarn_wire::messages::list_config_resources_response::ConfigResource;
use tarn_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use tarn_wire::{ErrorCode, Str};

use crate::core::Core;

/// The first version that names the kinds that are wanted (KIP-1142); before it was subscriptions for client metrics.
const NAMES_KINDS: i16 = 1;
/// Every kind that is listed.
const LISTED: [ResourceType; 6] = [
    ResourceType::TOPIC,
    ResourceType::BROKER,
    ResourceType::BROKER_LOGGER,
    ResourceType::CLIENT_METRICS,
    ResourceType::GROUP,
    ResourceType::CLUSTER_MIRROR,
];

/// Serves ListConfigResources.
pub fn list(
    core: &Rc<Core>,
    version: i16,
    request: &ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let asked: Vec<_> = request.resource_types.iter().map(|kind| ResourceType(*kind)).collect();
    let kinds = match asked.is_empty() {
        _ if version < NAMES_KINDS => vec![ResourceType::CLIENT_METRICS],
        true => LISTED.to_vec(),
        false => asked,
    };
    if kinds.iter().any(|kind| !LISTED.contains(kind)) {
        return ListConfigResourcesResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION.0,
            ..Default::default()
        };
    }
    let view = core.view();
    let named = kinds.into_iter().flat_map(|kind| {
        names(view.image(), kind)
            .into_iter()
            .map(move |resource_name| ConfigResource { resource_name, resource_type: kind.0 })
    });
    ListConfigResourcesResponse { config_resources: named.collect(), ..Default::default() }
}

fn names(image: &MetadataImage, kind: ResourceType) -> Vec<Str> {
    match kind {
        ResourceType::TOPIC => image.topics().iter().map(|topic| Str::from(&*topic.name)).collect(),
        ResourceType::BROKER | ResourceType::BROKER_LOGGER => {
            image.registrations().brokers().map(|broker| broker.id.to_string().into()).collect()
        }
        _ => image.configs().resources(kind).map(|(resource, _)| Str::from(&*resource.name)).collect(),
    }
}
