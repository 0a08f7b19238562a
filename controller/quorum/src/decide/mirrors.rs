//! CreateClusterMirror (KIP-1279): a mirror's configuration, and what mirroring needs in this cluster.
//!
//! The first mirror finalizes the feature `mirror.version`, in a batch of its own, and the internal topic
//! with the states of mirror partitions comes with it. Everything is checked before anything is written.

use std::sync::Arc;

use tarn_image::MetadataImage;
use tarn_image::config::mirror;
use tarn_image::configs::ConfigMap;
use tarn_image::features::MIRROR_VERSION;
use tarn_image::mirrors::{SOURCE_CLUSTER_ID, STATE_TOPIC};
use tarn_wire::messages::{CreateClusterMirrorRequest, CreateClusterMirrorResponse, FeatureLevelRecord};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::mirror_bindings::mirror_record;
use super::{ApiError, Context, Decision, Run, brokers, create_topics, placement, wire_result};

/// How `__mirror_state` is kept: the newest word about each partition, for ever, on the disk before it counts.
const STATE_TOPIC_CONFIGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("compression.type", "producer"),
    ("retention.ms", "-1"),
    ("flush.policy", "group"),
];

/// Decides a request. The broker that forwards it has asked the source for its cluster id.
pub fn create_mirror(
    image: &MetadataImage,
    request: &CreateClusterMirrorRequest,
    context: &mut Context<'_>,
) -> Decision<CreateClusterMirrorResponse> {
    let batches = batches(image, request, context);
    let (error_code, error_message) = wire_result(&batches);
    let response =
        CreateClusterMirrorResponse { error_code, error_message, ..CreateClusterMirrorResponse::default() };
    Decision { batches: batches.unwrap_or_default(), response }.carried_out(Run::of(request.validate_only))
}

fn batches(
    image: &MetadataImage,
    request: &CreateClusterMirrorRequest,
    context: &mut Context<'_>,
) -> Result<Vec<Vec<MetadataRecord>>, ApiError> {
    let name = &*request.mirror_name;
    let configs = check(image, request, context)?;
    let mut batches = Vec::new();
    if image.features().level(MIRROR_VERSION) == 0 {
        batches.push(vec![FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 1 }.into()]);
    }
    let mut records = state_topic(image, context)?;
    records.extend(configs.iter().map(|(key, value)| mirror_record(name, key, Some(value))));
    batches.push(records);
    Ok(batches)
}

/// Everything that can be wrong with the request itself.
fn check(
    image: &MetadataImage,
    request: &CreateClusterMirrorRequest,
    context: &Context<'_>,
) -> Result<ConfigMap, ApiError> {
    let name = &*request.mirror_name;
    let invalid = |why: String| ApiError::new(ErrorCode::INVALID_REQUEST, why);
    mirror::validate_name(name).map_err(|error| invalid(error.0))?;
    if image.mirror(name).is_some() {
        let why = format!("Cluster mirror '{name}' already exists.");
        return Err(ApiError::new(ErrorCode::CLUSTER_MIRROR_ALREADY_EXISTS, why));
    }
    let given = request.configs.iter().map(|config| (&*config.name, config.value.as_deref()));
    let configs = mirror::stored(given)
        .and_then(|configs| mirror::validate(&configs).map(|()| configs))
        .map_err(|error| ApiError::new(ErrorCode::INVALID_CONFIG, error.0))?;
    match configs.get(SOURCE_CLUSTER_ID).map(|id| &**id) {
        None => {
            return Err(invalid(format!(
                "{SOURCE_CLUSTER_ID} is required: it pins the cluster that is mirrored"
            )));
        }
        Some(id) if id == context.cluster_id => {
            return Err(invalid(format!(
                "Cluster mirror '{name}' would mirror this cluster ({id}) to itself"
            )));
        }
        Some(_) => {}
    }
    brokers::all_are_tarn(image).map_err(|stranger| {
        let why = format!("Cluster mirrors need mirror.version 1, which broker {stranger} does not support.");
        ApiError::new(ErrorCode::UNSUPPORTED_VERSION, why)
    })?;
    Ok(configs)
}

/// The records of `__mirror_state`, where it does not exist yet.
fn state_topic(image: &MetadataImage, context: &mut Context<'_>) -> Result<Vec<MetadataRecord>, ApiError> {
    if image.topics().id_of(STATE_TOPIC).is_some() {
        return Ok(Vec::new());
    }
    let configs: ConfigMap =
        STATE_TOPIC_CONFIGS.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect();
    let registered = i16::try_from(image.registrations().broker_count()).unwrap_or(i16::MAX);
    let factor = context.config.mirror.state_topic_replication_factor.min(registered.max(1));
    let id = create_topics::fresh_id(image, context);
    let start = create_topics::circle_start(id);
    let replicas = placement::place(image, context.config.mirror.state_topic_partitions, factor, start)?;
    Ok(create_topics::new_topic(image, Arc::from(STATE_TOPIC), id, replicas, configs)?.records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::{CLUSTER, World};

    const GOOD: [(&str, &str); 2] = [("bootstrap.servers", "a:1"), ("source.cluster.id", "S")];

    #[test]
    fn the_first_mirror_brings_the_feature_and_the_state_topic() {
        let mut world = World::with_brokers(1);
        let batches = world.mirror_batches("m", &GOOD);
        assert_eq!(batches.len(), 2);
        assert!(matches!(batches[0].as_slice(), [MetadataRecord::FeatureLevel(_)]));
        world.create_mirror("m", &GOOD).unwrap();
        let topic = world.image.topics().by_name(STATE_TOPIC).unwrap();
        assert_eq!(topic.partitions.len(), 50);
        assert!(topic.partitions.values().all(|partition| partition.replicas.len() == 1));
        assert_eq!(
            world.image.configs().topic(STATE_TOPIC).get("cleanup.policy").map(|value| &**value),
            Some("compact")
        );
        assert_eq!(world.image.features().level(MIRROR_VERSION), 1);
        let mirror = world.image.mirror("m").unwrap();
        assert_eq!((mirror.bootstrap_servers(), mirror.source_cluster_id()), ("a:1", Some("S")));

        let batches = world.mirror_batches("n", &GOOD);
        assert_eq!(batches.len(), 1);
        assert!(batches[0].iter().all(|record| matches!(record, MetadataRecord::Config(_))));
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_exists() {
        let mut world = World::with_brokers(1);
        world.create_mirror("taken", &GOOD).unwrap();
        let before = world.image.clone();
        let mut refused =
            |name: &str, configs: &[(&str, &str)]| world.create_mirror(name, configs).unwrap_err();
        assert_eq!(refused("taken", &GOOD).code, ErrorCode::CLUSTER_MIRROR_ALREADY_EXISTS);
        assert_eq!(refused("a b", &GOOD).code, ErrorCode::INVALID_REQUEST);
        assert_eq!(
            refused("m", &[("source.cluster.id", "S")]).message.as_deref(),
            Some("bootstrap.servers is required")
        );
        assert!(refused("m", &GOOD[..1]).message.unwrap().starts_with("source.cluster.id is required"));
        assert_eq!(refused("m", &[GOOD[0], ("source.cluster.id", CLUSTER)]).code, ErrorCode::INVALID_REQUEST);
        assert_eq!(refused("m", &[GOOD[0], GOOD[1], ("nosuch", "1")]).code, ErrorCode::INVALID_CONFIG);
        assert_eq!(
            refused("m", &[GOOD[0], GOOD[1], ("security.protocol", "SASL_SSL")]).code,
            ErrorCode::INVALID_CONFIG
        );
        assert_eq!(world.image, before);
    }

    #[test]
    fn a_cluster_with_a_stranger_has_no_mirrors() {
        let mut world = World::with_brokers(1);
        let mut request = world.registration(2, uuid::Uuid::from_u128(2));
        request.features.clear();
        assert_eq!(world.decide_registration(&request).error_code, 0);
        let error = world.create_mirror("m", &GOOD).unwrap_err();
        assert_eq!(error.code, ErrorCode::UNSUPPORTED_VERSION);
        assert!(error.message.unwrap().contains("broker 2"));
    }
}
