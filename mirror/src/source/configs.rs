//! What is set for topics at the source, as far as it is copied here, and whether it compacts them.

use std::collections::BTreeMap;

use tarn_image::ResourceType;
use tarn_image::config::mirror::MirrorConfig;
use tarn_transport::Client;
use tarn_wire::messages::DescribeConfigsRequest;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_configs_response::DescribeConfigsResourceResult;
use tarn_wire::{ApiKey, ErrorCode, Str};

use super::SourceError;
use crate::limits;
use crate::sync::topics::is_copied;

/// The source of a value that was set for the topic itself.
const DYNAMIC_TOPIC_CONFIG: i8 = 1;
/// The key that says whether a topic is compacted, and its element.
const CLEANUP_POLICY: &str = "cleanup.policy";
const COMPACT: &str = "compact";

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
        for (name, described) in describe(client, some, None).await? {
            let set = described
                .iter()
                .filter(|entry| entry.config_source == DYNAMIC_TOPIC_CONFIG && !entry.is_sensitive)
                .filter_map(|entry| Some((entry.name.to_string(), entry.value.as_ref()?.to_string())))
                .filter(|(name, value)| is_copied(name, value, config))
                .collect();
            configs.insert(name, set);
        }
    }
    Ok(configs)
}

/// Whether the source compacts each of these topics, whoever says so: the topic or its brokers' defaults.
///
/// # Errors
/// Why it is not known. A topic that has gone meanwhile is left out.
pub async fn compacted(client: &Client, topics: &[&str]) -> Result<BTreeMap<String, bool>, SourceError> {
    let mut compacted = BTreeMap::new();
    for some in topics.chunks(limits::DESCRIBED_TOPICS_MAX) {
        for (name, configs) in describe(client, some, Some(CLEANUP_POLICY)).await? {
            let policy = configs.iter().find(|entry| &*entry.name == CLEANUP_POLICY);
            let policy = policy.and_then(|entry| entry.value.as_deref()).unwrap_or_default();
            compacted.insert(name, policy.split(',').any(|element| element.trim() == COMPACT));
        }
    }
    Ok(compacted)
}

/// The configurations of some topics, all keys or one, by topic.
async fn describe(
    client: &Client,
    topics: &[&str],
    key: Option<&str>,
) -> Result<Vec<(String, Vec<DescribeConfigsResourceResult>)>, SourceError> {
    let resource = |name: &&str| DescribeConfigsResource {
        resource_type: ResourceType::TOPIC.0,
        resource_name: Str::from(*name),
        configuration_keys: key.map(|key| vec![Str::from(key)]),
    };
    let request = DescribeConfigsRequest {
        resources: topics.iter().map(resource).collect(),
        ..DescribeConfigsRequest::default()
    };
    let mut described = Vec::new();
    for result in client.call(&request).await?.results {
        match ErrorCode(result.error_code) {
            ErrorCode::NONE => described.push((result.resource_name.to_string(), result.configs)),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {}
            code => return Err(SourceError::Refused { api: ApiKey::DESCRIBE_CONFIGS, code }),
        }
    }
    Ok(described)
}
