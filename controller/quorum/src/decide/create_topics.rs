//! CreateTopics (v2 to v7): names, counts, replicas, configs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_image::config::topic as topic_configs;
use tarn_image::configs::ConfigMap;
use tarn_image::effective::{self, BrokerView};
use tarn_image::{MetadataImage, ResourceType};
use tarn_record::{BrokerId, PartitionIndex, TopicId};
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tarn_wire::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use tarn_wire::messages::{ConfigRecord, CreateTopicsRequest, CreateTopicsResponse, TopicRecord};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::{ApiError, Context, Decision, PARTITIONS_PER_REQUEST_MAX, Run, names, placement};

/// A topic of the quorum itself, which nobody creates.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// "The broker's default" in a request, as the number of partitions or of replicas.
pub const AS_CONFIGURED: i32 = -1;

/// A topic that can be created.
pub(super) struct NewTopic {
    pub(super) name: Arc<str>,
    pub(super) id: TopicId,
    pub(super) replicas: Vec<Vec<BrokerId>>,
    pub(super) configs: ConfigMap,
    pub(super) records: Vec<MetadataRecord>,
}

/// Decides a whole request. A topic that fails does not hinder the others.
pub fn create_topics(
    image: &MetadataImage,
    request: &CreateTopicsRequest,
    context: &mut Context<'_>,
) -> Decision<CreateTopicsResponse> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *named.entry(&topic.name).or_default() += 1;
    }
    let excess = too_many(request, context);
    let mut records = Vec::new();
    let mut response = CreateTopicsResponse::default();
    let mut ahead = Ahead::new(image);
    for topic in &request.topics {
        let repeated = named.get(&*topic.name).is_some_and(|count| *count > 1);
        if repeated && response.topics.iter().any(|result| result.name == topic.name) {
            continue;
        }
        let created = match (&excess, repeated) {
            (_, true) => Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.")),
            (Some(error), _) => Err(error.clone()),
            _ => create_one(&mut ahead, topic, context),
        };
        response.topics.push(match created {
            Ok(new) => {
                let result = success(image, &new, context);
                records.extend(new.records);
                result
            }
            Err(error) => CreatableTopicResult {
                name: topic.name.clone(),
                error_code: error.code.0,
                error_message: error.wire_message(),
                ..CreatableTopicResult::default()
            },
        });
    }
    Decision::of(records, response).carried_out(Run::of(request.validate_only))
}

/// The image, and the names that this request has taken meanwhile.
struct Ahead<'a> {
    image: &'a MetadataImage,
    metric_names: BTreeMap<String, Arc<str>>,
}

impl<'a> Ahead<'a> {
    fn new(image: &'a MetadataImage) -> Ahead<'a> {
        Ahead { image, metric_names: BTreeMap::new() }
    }

    fn colliding_with(&self, name: &str) -> Option<Arc<str>> {
        let here = self.metric_names.get(&name.replace('.', "_"));
        self.image.topics().colliding_with(name).or(here).cloned()
    }
}

fn too_many(request: &CreateTopicsRequest, context: &Context<'_>) -> Option<ApiError> {
    let partitions = |topic: &CreatableTopic| match topic.num_partitions {
        _ if !topic.assignments.is_empty() => i64::try_from(topic.assignments.len()).unwrap_or(i64::MAX),
        AS_CONFIGURED => i64::from(context.config.topics.num_partitions),
        count => i64::from(count),
    };
    let total = request.topics.iter().map(partitions).fold(0i64, i64::saturating_add);
    (total > PARTITIONS_PER_REQUEST_MAX).then(|| {
        ApiError::new(ErrorCode::POLICY_VIOLATION, "Excessively large number of partitions per request.")
    })
}

fn create_one(
    ahead: &mut Ahead<'_>,
    topic: &CreatableTopic,
    context: &mut Context<'_>,
) -> Result<NewTopic, ApiError> {
    let image = ahead.image;
    if &*topic.name == METADATA_TOPIC {
        let why = format!("Creation of internal topic {METADATA_TOPIC} is prohibited.");
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    }
    names::check(&topic.name)?;
    if image.topics().id_of(&topic.name).is_some() {
        let why = format!("Topic '{}' already exists.", topic.name);
        return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_EXISTS, why));
    }
    if let Some(other) = ahead.colliding_with(&topic.name) {
        let why = format!("Topic '{}' collides with existing topic: {other}", topic.name);
        return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, why));
    }
    let configs = configs(&topic.configs)?;
    let id = fresh_id(image, context);
    let replicas = if topic.assignments.is_empty() {
        placed(image, topic, id, context)?
    } else {
        assigned(image, topic)?
    };
    let name: Arc<str> = Arc::from(&*topic.name);
    let new = new_topic(image, name.clone(), id, replicas, configs)?;
    if name.contains(['.', '_']) {
        ahead.metric_names.insert(name.replace('.', "_"), name);
    }
    Ok(new)
}

/// An id that no topic has.
pub(super) fn fresh_id(image: &MetadataImage, context: &mut Context<'_>) -> TopicId {
    loop {
        let id = (context.new_id)();
        if !id.is_zero() && image.topics().by_id(id).is_none() {
            return id;
        }
    }
}

fn configs(given: &[CreatableTopicConfig]) -> Result<ConfigMap, ApiError> {
    let nulls: Vec<&str> =
        given.iter().filter(|config| config.value.is_none()).map(|config| &*config.name).collect();
    if !nulls.is_empty() {
        let why = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(ApiError::new(ErrorCode::INVALID_CONFIG, why));
    }
    let configs: ConfigMap = given
        .iter()
        .filter_map(|config| Some((Arc::from(&*config.name), Arc::from(&**config.value.as_ref()?))))
        .collect();
    if let Some(internal) = configs.keys().find(|key| topic_configs::is_internal(key)) {
        let why = format!("{internal} is set by the commands of a cluster mirror only");
        return Err(ApiError::new(ErrorCode::INVALID_CONFIG, why));
    }
    topic_configs::validate(&configs).map_err(|why| ApiError::new(ErrorCode::INVALID_CONFIG, why))?;
    Ok(configs)
}

fn assigned(image: &MetadataImage, topic: &CreatableTopic) -> Result<Vec<Vec<BrokerId>>, ApiError> {
    let contradicts = |what: &str| {
        let why = format!("A manual partition assignment was specified, but {what} was not set to -1.");
        Err(ApiError::new(ErrorCode::INVALID_REQUEST, why))
    };
    if topic.replication_factor != -1 {
        return contradicts("replication factor");
    }
    if topic.num_partitions != AS_CONFIGURED {
        return contradicts("numPartitions");
    }
    let refuse = |why: String| Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
    let mut partitions: BTreeMap<i32, Vec<BrokerId>> = BTreeMap::new();
    let mut factor = None;
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        let replicas = placement::check_manual(image, &assignment.broker_ids, factor)?;
        factor = Some(replicas.len());
        if !replicas.iter().any(|id| image.registrations().is_active(*id)) {
            return refuse(format!(
                "All brokers specified in the manual partition assignment for partition {index} are fenced or in \
                 controlled shutdown."
            ));
        }
        if partitions.insert(index, replicas).is_some() {
            return refuse(format!("Found multiple manual partition assignments for partition {index}"));
        }
    }
    if !partitions.keys().copied().eq((0..).take(partitions.len())) {
        return refuse("partitions should be a consecutive 0-based integer sequence".to_owned());
    }
    Ok(partitions.into_values().collect())
}

fn placed(
    image: &MetadataImage,
    topic: &CreatableTopic,
    id: TopicId,
    context: &Context<'_>,
) -> Result<Vec<Vec<BrokerId>>, ApiError> {
    let factor = match topic.replication_factor {
        -1 => context.config.topics.replication_factor,
        factor if factor > 0 => factor,
        _ => {
            return Err(ApiError::new(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
    };
    let count = match topic.num_partitions {
        AS_CONFIGURED => context.config.topics.num_partitions,
        count if count > 0 => count,
        _ => {
            return Err(ApiError::new(
                ErrorCode::INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
    };
    placement::place(image, count, factor, circle_start(id))
}

/// Where the circle of brokers begins for a topic: somewhere else for each.
pub(super) fn circle_start(id: TopicId) -> usize {
    usize::from(u16::from_be_bytes([id.0.as_bytes()[14], id.0.as_bytes()[15]]))
}

/// The records of a topic: itself, its configs, its partitions, in Kafka's order.
pub(super) fn new_topic(
    image: &MetadataImage,
    name: Arc<str>,
    id: TopicId,
    replicas: Vec<Vec<BrokerId>>,
    configs: ConfigMap,
) -> Result<NewTopic, ApiError> {
    let mut records = vec![TopicRecord { name: (&*name).into(), topic_id: id.0 }.into()];
    records.extend(configs.iter().map(|(key, value)| config_record(&name, key, Some(value))));
    for (index, replicas) in (0..).zip(&replicas) {
        let record = placement::new_partition(image, id, PartitionIndex(index), replicas).ok_or_else(|| {
            let why = format!(
                "Unable to replicate the partition {} time(s): All brokers are currently fenced or in controlled \
                 shutdown.",
                replicas.len()
            );
            ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, why)
        })?;
        records.push(record);
    }
    Ok(NewTopic { name, id, replicas, configs, records })
}

/// The record that sets or removes a topic's config.
pub(super) fn config_record(topic: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    ConfigRecord {
        resource_type: ResourceType::TOPIC.0,
        resource_name: topic.into(),
        name: key.into(),
        value: value.map(Into::into),
    }
    .into()
}

fn success(image: &MetadataImage, new: &NewTopic, context: &Context<'_>) -> CreatableTopicResult {
    let node = context.config.node_id.to_string();
    let broker = BrokerView::new(image.configs(), &node, &context.config.properties);
    let mut configs: Vec<CreatableTopicConfigs> = effective::topic_entries(&new.configs, &broker)
        .into_iter()
        .map(|entry| CreatableTopicConfigs {
            name: entry.key.name.into(),
            value: entry.value.as_deref().map(Into::into),
            read_only: entry.read_only,
            config_source: entry.source.id(),
            is_sensitive: entry.key.kind.is_sensitive(),
        })
        .collect();
    configs.sort_by(|a, b| a.name.cmp(&b.name));
    CreatableTopicResult {
        name: (&*new.name).into(),
        topic_id: new.id.0,
        num_partitions: i32::try_from(new.replicas.len()).unwrap_or(i32::MAX),
        replication_factor: new
            .replicas
            .first()
            .map_or(0, |first| i16::try_from(first.len()).unwrap_or(i16::MAX)),
        configs: Some(configs),
        error_code: ErrorCode::NONE.0,
        error_message: None,
        ..CreatableTopicResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;
    use tarn_wire::messages::create_topics_request::CreatableReplicaAssignment;

    #[test]
    fn a_topic_gets_the_defaults_and_its_leader() {
        let mut world = World::with_brokers(1);
        let result = world.create(topic("ok", -1, -1));
        assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 1, 1));
        let created = world.image.topics().by_name("ok").unwrap().clone();
        assert_eq!(created.id.0, result.topic_id);
        let partition = &created.partitions[&PartitionIndex(0)];
        assert_eq!((partition.leader, partition.leader_epoch.0), (BrokerId(1), 0));
        let names: Vec<_> = result.configs.unwrap().iter().map(|config| config.name.to_string()).collect();
        assert!(names.is_sorted() && names.contains(&"retention.ms".to_owned()));
    }

    #[test]
    fn refusals_are_in_kafkas_words() {
        let mut world = World::with_brokers(1);
        world.create(topic("ok", 1, 1));
        world.create(topic("a.b", 1, 1));
        let mut refused = |topic: CreatableTopic| {
            let result = world.create(topic);
            (ErrorCode(result.error_code), result.error_message.unwrap().to_string())
        };
        assert_eq!(
            refused(topic("ok", 1, 1)),
            (ErrorCode::TOPIC_ALREADY_EXISTS, "Topic 'ok' already exists.".into())
        );
        assert_eq!(
            refused(topic("a_b", 1, 1)),
            (ErrorCode::INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b".into())
        );
        assert_eq!(
            refused(topic("p0", 0, 1)),
            (
                ErrorCode::INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.".into()
            )
        );
        assert_eq!(
            refused(topic("r0", 1, 0)),
            (
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.".into()
            )
        );
        assert_eq!(
            refused(topic("r3", 1, 3)),
            (
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached \
                 because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
                    .into()
            )
        );
        assert_eq!(
            refused(topic("__cluster_metadata", 1, 1)),
            (
                ErrorCode::INVALID_REQUEST,
                "Creation of internal topic __cluster_metadata is prohibited.".into()
            )
        );
        assert_eq!(
            refused(topic("big", 100_001, 1)),
            (ErrorCode::POLICY_VIOLATION, "Excessively large number of partitions per request.".into())
        );
        assert_eq!(
            refused(with_config(topic("c", 1, 1), "retention.ms", Some("x"))),
            (
                ErrorCode::INVALID_CONFIG,
                "Invalid value x for configuration retention.ms: Not a number of type LONG".into()
            )
        );
        assert_eq!(
            refused(with_config(topic("c", 1, 1), "retention.ms", None)),
            (ErrorCode::INVALID_CONFIG, "Null value not supported for topic configs: retention.ms".into())
        );
        assert_eq!(
            refused(with_config(topic("c", 1, 1), "mirror.name", Some("m"))).0,
            ErrorCode::INVALID_CONFIG
        );
    }

    #[test]
    fn assignments_are_checked_like_kafkas() {
        let mut world = World::with_brokers(2);
        let mut refused = |partitions: &[(i32, &[i32])]| {
            let result = world.create(assigned_topic("t", partitions));
            assert_eq!(ErrorCode(result.error_code), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
            result.error_message.unwrap().to_string()
        };
        assert_eq!(
            refused(&[(0, &[1]), (2, &[1])]),
            "partitions should be a consecutive 0-based integer sequence"
        );
        assert_eq!(
            refused(&[(0, &[1, 1])]),
            "The manual partition assignment includes the broker 1 more than once."
        );
        assert_eq!(
            refused(&[(0, &[9])]),
            "The manual partition assignment includes broker 9, but no such broker is registered."
        );
        assert_eq!(refused(&[(0, &[])]), "The manual partition assignment includes an empty replica list.");
        assert_eq!(
            refused(&[(0, &[1]), (1, &[1, 2])]),
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with \
             previous partitions, which have 1 replica(s)."
        );
        let result = world.create(assigned_topic("t", &[(1, &[2, 1]), (0, &[1, 2])]));
        assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 2, 2));
        let topic = world.image.topics().by_name("t").unwrap();
        assert_eq!(topic.partitions[&PartitionIndex(1)].leader, BrokerId(2));
    }

    #[test]
    fn two_topics_of_one_request_cannot_have_or_share_a_name() {
        let mut world = World::with_brokers(1);
        let request = CreateTopicsRequest {
            topics: vec![topic("dd", 1, 1), topic("dd", 2, 1), topic("x.y", 1, 1), topic("x_y", 1, 1)],
            ..CreateTopicsRequest::default()
        };
        let codes: Vec<_> =
            world.create_topics(&request).topics.iter().map(|topic| ErrorCode(topic.error_code)).collect();
        assert_eq!(codes, [ErrorCode::INVALID_REQUEST, ErrorCode::NONE, ErrorCode::INVALID_TOPIC_EXCEPTION]);
    }

    #[test]
    fn validate_only_writes_nothing() {
        let mut world = World::with_brokers(1);
        let request = CreateTopicsRequest {
            topics: vec![topic("v", 3, 1)],
            validate_only: true,
            ..CreateTopicsRequest::default()
        };
        assert_eq!(world.create_topics(&request).topics[0].num_partitions, 3);
        assert!(world.image.topics().is_empty());
    }

    #[test]
    fn leaders_go_round_the_active_brokers() {
        let mut world = World::with_brokers(3);
        world.create(topic("t", 6, 2));
        let topic = world.image.topics().by_name("t").unwrap();
        let mut leaders: Vec<_> = topic.partitions.values().map(|partition| partition.leader.0).collect();
        leaders.sort_unstable();
        assert_eq!(leaders, [1, 1, 2, 2, 3, 3]);
    }

    fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
        CreatableTopic { name: name.into(), num_partitions, replication_factor, ..CreatableTopic::default() }
    }

    fn with_config(mut topic: CreatableTopic, name: &str, value: Option<&str>) -> CreatableTopic {
        topic.configs.push(CreatableTopicConfig { name: name.into(), value: value.map(Into::into) });
        topic
    }

    fn assigned_topic(name: &str, partitions: &[(i32, &[i32])]) -> CreatableTopic {
        let assignments = partitions
            .iter()
            .map(|(index, brokers)| CreatableReplicaAssignment {
                partition_index: *index,
                broker_ids: brokers.to_vec(),
            })
            .collect();
        CreatableTopic { assignments, ..topic(name, -1, -1) }
    }
}
