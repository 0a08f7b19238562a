//! What is set for topics at the source, as far as it is copied here.

use std::collections::BTreeMap;

use tarn_image::ResourceType;
use tarn_image::config::mirror::MirrorConfig;
use tarn_transport::Client;
use tarn_wire::messages::DescribeConfigsRequest;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::{ApiKey, ErrorCode, Str};

use super::SourceError;
use crate::limits;
use crate::sync::topics::is_copied;

/// The source of a value that was set for the topic itself.
const DYNAMIC_TOPIC_CONFIG: i8 = 1;

/// What is set for each of these topics there and copied here.
///
/// # Errors
/// Why it is not known. A topic that has gone meanwhile is left out.
pub async fn ask(
    client: &Client,
    topics: &[&str],
    config: &MirrorConfig,
) -> Result<BTreeMap<String, Vec<(String, String)>>, SourceError> {
    let mut configs = BTreeMap::new();
    for some in topics.chunks(limits::DESCRIBED_TOPICS_MAX) {
        let resource = |name: &&str| DescribeConfigsResource {
            resource_type: ResourceType::TOPIC.0,
            resource_name: Str::from(*name),
            configuration_keys: None,
        };
        let request = DescribeConfigsRequest {
            resources: some.iter().map(resource).collect(),
            ..DescribeConfigsRequest::default()
        };
        for described in client.call(&request).await?.results {
            match ErrorCode(described.error_code) {
                ErrorCode::NONE => {}
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => continue,
                code => return Err(SourceError::Refused { api: ApiKey::DESCRIBE_CONFIGS, code }),
            }
            let set = described
                .configs
                .iter()
                .filter(|entry| entry.config_source == DYNAMIC_TOPIC_CONFIG && !entry.is_sensitive)
                .filter_map(|entry| Some((entry.name.to_string(), entry.value.as_ref()?.to_string())))
                .filter(|(name, value)| is_copied(name, value, config))
                .collect();
            configs.insert(described.resource_name.to_string(), set);
        }
    }
    Ok(configs)
}
