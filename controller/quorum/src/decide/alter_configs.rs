//! IncrementalAlterConfigs: topics, brokers, cluster mirrors.
//!
//! A resource changes whole or not at all. What a mirror's commands write into a topic is refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_image::config::table::{self, ConfigKey, Update};
use tarn_image::config::value::{ConfigType, elements};
use tarn_image::config::{mirror, topic};
use tarn_image::configs::ConfigMap;
use tarn_image::mirrors::SOURCE_CLUSTER_ID;
use tarn_image::{ConfigResource, MetadataImage, ResourceType};
use tarn_wire::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tarn_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use tarn_wire::messages::{ConfigRecord, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::{ApiError, Decision, Run, names, wire_result};

/// What to do with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It gets a value.
    Set,
    /// It loses its value.
    Delete,
    /// Its list gets more elements.
    Append,
    /// Its list loses elements.
    Subtract,
}

/// Decides a whole request. A resource that fails does not hinder the others.
pub fn alter_configs(
    image: &MetadataImage,
    request: &IncrementalAlterConfigsRequest,
) -> Decision<IncrementalAlterConfigsResponse> {
    let mut named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in &request.resources {
        *named.entry((resource.resource_type, &resource.resource_name)).or_default() += 1;
    }
    let mut records = Vec::new();
    let mut response = IncrementalAlterConfigsResponse::default();
    for resource in &request.resources {
        let altered = match named.get(&(resource.resource_type, &*resource.resource_name)) {
            Some(1) => alter(image, resource),
            _ => Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.")),
        };
        let (error_code, error_message) = wire_result(&altered);
        response.responses.push(AlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
        });
        records.extend(altered.unwrap_or_default());
    }
    Decision::of(records, response).carried_out(Run::of(request.validate_only))
}

fn alter(image: &MetadataImage, asked: &AlterConfigsResource) -> Result<Vec<MetadataRecord>, ApiError> {
    let operations = operations(&asked.configs)?;
    let name = &*asked.resource_name;
    let resource = ConfigResource { kind: ResourceType(asked.resource_type), name: Arc::from(name) };
    let keys: &dyn Fn(&str) -> Option<&'static ConfigKey> = match resource.kind {
        ResourceType::TOPIC => {
            check_topic(image, name, &operations)?;
            &table::topic_key
        }
        ResourceType::BROKER => {
            check_broker(name, &operations)?;
            &table::broker_key
        }
        ResourceType::CLUSTER_MIRROR => {
            check_mirror(image, name)?;
            &table::mirror_key
        }
        other => {
            let why = format!("The configs of {other} resources cannot be altered here.");
            return Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
        }
    };
    let before = image.configs().of(&resource);
    let after = apply(before, &operations, keys)?;
    match resource.kind {
        ResourceType::TOPIC => {
            topic::validate(&after).map_err(|why| ApiError::new(ErrorCode::INVALID_CONFIG, why))?
        }
        ResourceType::BROKER => validate_broker(&after)?,
        _ => validate_mirror(before, &after)?,
    }
    Ok(difference(&resource, before, &after))
}

/// The operations of a request, each key once: its name, what to do, and the value.
///
/// # Errors
/// Where a key is there twice, an operation is none, or a value is missing.
pub fn operations(asked: &[AlterableConfig]) -> Result<Vec<(&str, Operation, &str)>, ApiError> {
    let invalid = |why: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    let keys: BTreeSet<&str> = asked.iter().map(|config| &*config.name).collect();
    if keys.len() < asked.len() {
        return invalid("Error due to duplicate config keys".to_owned());
    }
    let mut operations = Vec::new();
    let mut nulls = Vec::new();
    for config in asked {
        let operation = match config.config_operation {
            0 => Operation::Set,
            1 => Operation::Delete,
            2 => Operation::Append,
            3 => Operation::Subtract,
            other => return invalid(format!("Unknown operation type {other}")),
        };
        match &config.value {
            None if operation != Operation::Delete => nulls.push(&*config.name),
            value => operations.push((&*config.name, operation, value.as_deref().unwrap_or_default())),
        }
    }
    if nulls.is_empty() {
        Ok(operations)
    } else {
        invalid(format!("Null value not supported for : {}", nulls.join(",")))
    }
}

fn apply(
    before: &ConfigMap,
    operations: &[(&str, Operation, &str)],
    keys: &dyn Fn(&str) -> Option<&'static ConfigKey>,
) -> Result<ConfigMap, ApiError> {
    let mut after = before.clone();
    for (name, operation, value) in operations {
        let known = keys(name);
        let name = known.map_or(*name, |key| key.name);
        match operation {
            Operation::Set => {
                after.insert(Arc::from(name), Arc::from(*value));
            }
            Operation::Delete => {
                after.remove(name);
            }
            Operation::Append | Operation::Subtract => {
                let Some(key) = known.filter(|key| key.kind == ConfigType::List) else {
                    let verb = if *operation == Operation::Append { "APPEND" } else { "SUBTRACT" };
                    let why = format!("Can't {verb} to key {name} because its type is not LIST.");
                    return Err(ApiError::new(ErrorCode::INVALID_CONFIG, why));
                };
                let current = before.get(name).map_or(key.default_text().unwrap_or(""), |value| value);
                after.insert(Arc::from(name), Arc::from(spliced(current, *operation, value)));
            }
        }
    }
    Ok(after)
}

fn spliced(current: &str, operation: Operation, value: &str) -> String {
    let mut list = elements(current);
    for element in elements(value) {
        match operation {
            Operation::Append if !list.contains(&element) => list.push(element),
            Operation::Subtract => list.retain(|known| *known != element),
            _ => {}
        }
    }
    list.join(",")
}

fn check_topic(
    image: &MetadataImage,
    name: &str,
    operations: &[(&str, Operation, &str)],
) -> Result<(), ApiError> {
    if name.is_empty() {
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Default topic resources are not allowed."));
    }
    names::check(name)?;
    if image.topics().id_of(name).is_none() {
        let why = format!("The topic '{name}' does not exist.");
        return Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, why));
    }
    match operations.iter().find(|(key, ..)| topic::is_internal(key)) {
        Some((key, ..)) => {
            let why = format!("{key} is set by the commands of a cluster mirror only");
            Err(ApiError::new(ErrorCode::INVALID_CONFIG, why))
        }
        None => Ok(()),
    }
}

fn check_broker(name: &str, operations: &[(&str, Operation, &str)]) -> Result<(), ApiError> {
    let invalid = |why: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    if !name.is_empty() && name.parse::<i32>().is_err() {
        return invalid(format!("Node id must be an integer, but it is: {name}"));
    }
    let altered_with = |update: Update| -> Vec<&str> {
        let is = |key: &str| table::broker_key(key).is_some_and(|known| known.update == update);
        operations.iter().map(|(key, ..)| *key).filter(|key| is(key)).collect()
    };
    let fixed = altered_with(Update::ReadOnly);
    if !fixed.is_empty() {
        return invalid(format!("Cannot update these configs dynamically: [{}]", fixed.join(", ")));
    }
    let own = altered_with(Update::PerBroker);
    if name.is_empty() && !own.is_empty() {
        return invalid(format!(
            "Cannot update these configs at default cluster level: [{}]",
            own.join(", ")
        ));
    }
    Ok(())
}

fn validate_broker(after: &ConfigMap) -> Result<(), ApiError> {
    for (name, value) in after {
        if let Some(key) = table::broker_key(name) {
            key.canonical(value)
                .map_err(|refusal| ApiError::new(ErrorCode::INVALID_REQUEST, refusal.of(name)))?;
        }
    }
    Ok(())
}

fn check_mirror(image: &MetadataImage, name: &str) -> Result<(), ApiError> {
    match image.mirror(name) {
        Some(_) => Ok(()),
        None => {
            let why = format!("Cluster mirror '{name}' does not exist.");
            Err(ApiError::new(ErrorCode::UNKNOWN_CLUSTER_MIRROR, why))
        }
    }
}

fn validate_mirror(before: &ConfigMap, after: &ConfigMap) -> Result<(), ApiError> {
    let invalid = |why: String| ApiError::new(ErrorCode::INVALID_CONFIG, why);
    if before.get(SOURCE_CLUSTER_ID) != after.get(SOURCE_CLUSTER_ID) {
        return Err(invalid(format!(
            "{SOURCE_CLUSTER_ID} is pinned when a mirror is created and cannot be altered"
        )));
    }
    mirror::validate(after).map_err(|error| invalid(error.0))
}

fn difference(resource: &ConfigResource, before: &ConfigMap, after: &ConfigMap) -> Vec<MetadataRecord> {
    let record = |key: &Arc<str>, value: Option<&Arc<str>>| {
        ConfigRecord {
            resource_type: resource.kind.0,
            resource_name: (&*resource.name).into(),
            name: (&**key).into(),
            value: value.map(|value| (&**value).into()),
        }
        .into()
    };
    let set = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value))
        .map(|(key, value)| record(key, Some(value)));
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| record(key, None));
    set.chain(removed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_wire::Message;

    #[test]
    fn a_list_is_appended_to_and_taken_from() {
        let mut world = World::with_topics(&["ok"]);
        let value = |world: &World| {
            world.image.configs().topic("ok").get("cleanup.policy").map(|value| value.to_string())
        };
        assert_eq!(world.alter(2, "ok", &[("cleanup.policy", 2, Some("compact"))]), Ok(()));
        assert_eq!(value(&world).as_deref(), Some("delete,compact"), "an append begins with the default");
        assert_eq!(world.alter(2, "ok", &[("cleanup.policy", 2, Some("compact"))]), Ok(()));
        assert_eq!(world.alter(2, "ok", &[("cleanup.policy", 3, Some("delete"))]), Ok(()));
        assert_eq!(value(&world).as_deref(), Some("compact"));
        assert_eq!(world.alter(2, "ok", &[("cleanup.policy", 1, None)]), Ok(()));
        assert_eq!(value(&world), None);
        assert_eq!(world.alter(2, "ok", &[("nosuch", 1, None)]), Ok(()));
    }

    #[test]
    fn a_list_grows_no_longer_than_a_record_can_hold() {
        let mut world = World::with_topics(&["ok"]);
        let part = |number: usize| format!("{number}{}", "x".repeat(20_000));
        assert_eq!(world.alter(4, "", &[("metric.reporters", 2, Some(&part(1)))]), Ok(()));
        let refused = world.alter(4, "", &[("metric.reporters", 2, Some(&part(2)))]).unwrap_err();
        let message = refused.message.unwrap_or_default();
        assert!(message.contains("values have 0 to 32767 bytes"), "{message}");
        let key = "follower.replication.throttled.replicas";
        let pairs =
            |from: usize| (from..from + 3_000).map(|at| format!("{at}:1")).collect::<Vec<_>>().join(",");
        assert_eq!(world.alter(2, "ok", &[(key, 2, Some(&pairs(0)))]), Ok(()));
        assert_eq!(
            world.alter(2, "ok", &[(key, 2, Some(&pairs(3_000)))]).unwrap_err().code,
            ErrorCode::INVALID_CONFIG
        );
    }

    #[test]
    fn a_refusal_that_repeats_a_long_name_still_fits_its_response() {
        let image = World::with_topics(&["ok"]).image;
        let resource = AlterConfigsResource {
            resource_type: 2,
            resource_name: "é".repeat(16_383).as_str().into(),
            ..Default::default()
        };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
        let response = alter_configs(&image, &request).response;
        assert_eq!(response.responses[0].error_code, ErrorCode::INVALID_TOPIC_EXCEPTION.0);
        assert!(response.encoded_size(1).is_ok());
    }

    #[test]
    fn refusals_are_in_kafkas_words() {
        let mut world = World::with_topics(&["ok"]);
        let mut refused = |kind, name: &str, configs: &[(&str, i8, Option<&str>)]| {
            let error = world.alter(kind, name, configs).unwrap_err();
            (error.code, error.message.unwrap_or_default())
        };
        use ErrorCode as E;
        assert_eq!(
            refused(2, "ok", &[("retention.ms", 0, Some("x"))]),
            (
                E::INVALID_CONFIG,
                "Invalid value x for configuration retention.ms: Not a number of type LONG".into()
            )
        );
        assert_eq!(
            refused(2, "nosuch", &[("retention.ms", 0, Some("7"))]),
            (E::UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nosuch' does not exist.".into())
        );
        assert_eq!(
            refused(2, "ok", &[("retention.ms", 2, Some("7"))]),
            (E::INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST.".into())
        );
        assert_eq!(
            refused(2, "ok", &[("nosuch", 0, Some("7"))]),
            (E::INVALID_CONFIG, "Unknown topic config name: nosuch".into())
        );
        assert_eq!(
            refused(2, "", &[("retention.ms", 0, Some("7"))]),
            (E::INVALID_REQUEST, "Default topic resources are not allowed.".into())
        );
        assert_eq!(
            refused(2, "ok", &[("retention.ms", 0, None)]),
            (E::INVALID_REQUEST, "Null value not supported for : retention.ms".into())
        );
        assert_eq!(
            refused(2, "ok", &[("retention.ms", 0, Some("6")), ("retention.ms", 0, Some("7"))]),
            (E::INVALID_REQUEST, "Error due to duplicate config keys".into())
        );
        assert_eq!(
            refused(4, "1", &[("num.partitions", 0, Some("7"))]),
            (E::INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]".into())
        );
        assert_eq!(
            refused(4, "", &[("log.segment.bytes", 0, Some("x"))]),
            (
                E::INVALID_REQUEST,
                "Invalid value x for configuration log.segment.bytes: Not a number of type INT".into()
            )
        );
        assert_eq!(refused(64, "m", &[("fetch.min.bytes", 0, Some("7"))]).0, E::UNKNOWN_CLUSTER_MIRROR);
        assert_eq!(refused(32, "g", &[("x", 0, Some("7"))]).0, E::INVALID_REQUEST);
    }

    #[test]
    fn a_mirrors_words_about_a_topic_are_its_own() {
        let mut world = World::with_topics(&["ok"]);
        world.bind("ok", "m", "mirroring:1");
        for (operation, value) in [(0, Some("stopped:9")), (1, None)] {
            let error = world.alter(2, "ok", &[("mirror.desired.state", operation, value)]).unwrap_err();
            assert_eq!(error.code, ErrorCode::INVALID_CONFIG);
        }
        assert_eq!(world.alter(2, "ok", &[("retention.ms", 0, Some("7"))]), Ok(()));
        assert!(world.image.bindings().of("ok").is_some());
    }

    #[test]
    fn a_mirrors_keys_are_stored_in_one_spelling_and_checked_together() {
        let mut world = World::with_brokers(1);
        world.create_mirror("m", &[("bootstrap.servers", "a:1"), ("source.cluster.id", "S")]).unwrap();
        assert_eq!(world.alter(64, "m", &[("mirror.topics.include", 2, Some("a.*"))]), Ok(()));
        assert_eq!(
            world.image.mirror("m").unwrap().configs.get("topics.include").map(|value| &**value),
            Some("a.*")
        );
        let mut refused = |key, operation, value| {
            world.alter(64, "m", &[(key, operation, value)]).unwrap_err().message.unwrap()
        };
        assert_eq!(refused("bootstrap.servers", 1, None), "bootstrap.servers is required");
        assert!(refused("source.cluster.id", 0, Some("T")).contains("is pinned"));
        assert_eq!(refused("nosuch", 0, Some("1")), "Unknown cluster mirror config name: nosuch");
    }
}
