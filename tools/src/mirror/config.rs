//! Configurations that the mirror commands look up.

use std::collections::BTreeMap;

use tarn_image::ResourceType;
use tarn_image::config::{mirror, table};
use tarn_wire::messages::DescribeConfigsRequest;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;

use crate::admin::Cluster;
use crate::failure::Failure;

/// Where a broker keeps how often a failed partition is tried again.
const ATTEMPTS_MAX: &str = "mirror.failed.retry.max.attempts";

/// Where a mirror keeps how long its source may wait.
const WAIT_MAX_MS: &str = "fetch.wait.max.ms";

/// Fails unless the mirror, which exists, is configured as `given` says: what is done already is no error,
/// but a mirror of something else is not what was asked for.
pub(super) async fn check_same(
    cluster: &Cluster,
    mirror: &str,
    given: &[(String, String)],
) -> Result<(), Failure> {
    let current = describe(cluster, ResourceType::CLUSTER_MIRROR, mirror).await?;
    match difference(&current, given)? {
        None => Ok(()),
        Some(difference) => Err(Failure::Precondition(format!(
            "mirror {mirror} exists already, with another configuration: {difference}"
        ))),
    }
}

/// The first key whose value is another than the one given.
fn difference(
    current: &BTreeMap<String, String>,
    given: &[(String, String)],
) -> Result<Option<String>, Failure> {
    let pairs = given.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    let given = mirror::stored(pairs).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(given.iter().find_map(|(key, wanted)| {
        let there = current.get(&**key).map_or("unset", String::as_str);
        (*there != **wanted).then(|| format!("{key} is {there}, not {wanted}"))
    }))
}

/// How long the source may wait before it answers a fetch of this mirror.
pub(super) async fn wait_max_ms(cluster: &Cluster, mirror: &str) -> Result<i64, Failure> {
    let configs = describe(cluster, ResourceType::CLUSTER_MIRROR, mirror).await?;
    let default = || table::mirror_key(WAIT_MAX_MS)?.default_text();
    let text = configs.get(WAIT_MAX_MS).map(String::as_str).or_else(default);
    Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}

/// How often a partition is tried again; `None` where no broker says.
pub(super) async fn attempts_max(cluster: &Cluster) -> Option<i16> {
    let id = cluster.some_broker_id().await.ok()??;
    let configs = describe(cluster, ResourceType::BROKER, &id.to_string()).await.ok()?;
    configs.get(ATTEMPTS_MAX)?.parse().ok()
}

async fn describe(
    cluster: &Cluster,
    kind: ResourceType,
    name: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let resource = DescribeConfigsResource {
        resource_type: kind.0,
        resource_name: name.into(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = cluster.call(&request).await?;
    let mut configs = BTreeMap::new();
    for result in &answer.results {
        Failure::check(result.error_code, result.error_message.as_deref())?;
        for config in &result.configs {
            let value = config.value.as_deref().unwrap_or_default();
            configs.insert(config.name.to_string(), value.to_owned());
        }
    }
    Ok(configs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_configuration_is_the_same_in_either_spelling_and_where_keys_were_added() {
        let current: BTreeMap<String, String> =
            pairs(&[("bootstrap.servers", "a:1"), ("topics.include", "t"), ("source.cluster.id", "S")])
                .into_iter()
                .collect();
        let difference = |given: &[(&str, &str)]| difference(&current, &pairs(given));
        assert_eq!(difference(&[("bootstrap.servers", "a:1"), ("mirror.topics.include", "t")]), Ok(None));
        let other = difference(&[("bootstrap.servers", "b:1")]);
        assert_eq!(other, Ok(Some("bootstrap.servers is a:1, not b:1".to_owned())));
        assert!(difference(&[("no.such.key", "1")]).is_err());
    }
}
