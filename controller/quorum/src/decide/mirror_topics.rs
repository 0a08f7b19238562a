//! StartMirrorTopics (KIP-1279): topics of the source are created here, or taken over, and bound.
//!
//! The broker has resolved names and patterns against the source; here is decided with ids, partition
//! counts and configs.
//!
//! Discovery asks for topics that the mirror's lists meant when its source was asked. Meanwhile an operator may have
//! stopped everything, and here is the one place where both come in order.
//!
//! Invariants:
//! * what is excluded is never begun with;
//! * of what discovery has found, nothing is begun with that the lists do not mean now, or that is here already.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_image::config::mirror::Patterns;
use tarn_image::config::topic as topic_configs;
use tarn_image::configs::ConfigMap;
use tarn_image::mirrors::{Truncation, Wanted, is_never_mirrored};
use tarn_image::{DesiredState, MetadataImage, TopicImage};
use tarn_record::{PartitionIndex, TopicId};
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;
use tarn_wire::messages::{StartMirrorTopicsRequest, StartMirrorTopicsResponse};
use tarn_wire::{ErrorCode, MetadataRecord, Str};

use super::create_topics::{circle_start, fresh_id, new_topic};
use super::mirror_bindings::{bound, check_version, mirror};
use super::mirror_patterns::{EXCLUDE, INCLUDE, Lists, parse_given};
use super::{ApiError, Context, Decision, Run, names, placement, sentence, wire_result};

/// Decides a whole request. A topic that fails does not hinder the others.
pub fn start(
    image: &MetadataImage,
    request: &StartMirrorTopicsRequest,
    context: &mut Context<'_>,
) -> Decision<StartMirrorTopicsResponse> {
    match try_start(image, request, context) {
        Ok(decision) => decision.carried_out(Run::of(request.validate_only)),
        Err(error) => Decision::unchanged(StartMirrorTopicsResponse {
            error_code: error.code.0,
            error_message: error.wire_message(),
            ..StartMirrorTopicsResponse::default()
        }),
    }
}

fn try_start(
    image: &MetadataImage,
    request: &StartMirrorTopicsRequest,
    context: &mut Context<'_>,
) -> Result<Decision<StartMirrorTopicsResponse>, ApiError> {
    let mirror = mirror(image, &request.mirror_name)?;
    parse_given(&request.include_patterns)?;
    parse_given(&request.exclude_patterns)?;
    let mut lists = Lists::of(&mirror);
    lists.started(&request.include_patterns, &request.exclude_patterns);
    let exclusion = lists.exclusion()?;
    let inclusion = request.discovered.then(|| lists.inclusion()).transpose()?;
    check_version(image, request.state_version, request.topics.iter().map(|topic| &*topic.topic_name))?;
    let mut records = lists.records(mirror.name)?;
    let mut response = StartMirrorTopicsResponse::default();
    let (mut named, mut identified) = (BTreeSet::new(), BTreeSet::new());
    for topic in &request.topics {
        let id = TopicId(topic.topic_id);
        let started = if !named.insert(&*topic.topic_name) {
            Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name."))
        } else if !id.is_zero() && !identified.insert(id) {
            Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic id."))
        } else if let Some(why) = inclusion.as_ref().and_then(|now| overtaken(image, now, topic)) {
            Err(ApiError::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, why))
        } else if exclusion.matches(&topic.topic_name) {
            let why = format!("Topic '{}' is excluded by {EXCLUDE} of the mirror.", topic.topic_name);
            // Discovery was overtaken by whoever has excluded it.
            let is_late = request.discovered;
            let code =
                if is_late { ErrorCode::INVALID_CLUSTER_MIRROR_STATE } else { ErrorCode::INVALID_REQUEST };
            Err(ApiError::new(code, why))
        } else {
            start_one(image, request, topic, context)
        };
        let (error_code, error_message) = wire_result(&started);
        let (more, skipped) = started.unwrap_or_default();
        records.extend(more);
        response.topics.push(MirrorTopicResult {
            name: topic.topic_name.clone(),
            error_code,
            error_message: error_message.or_else(|| skipped_message(&skipped)),
            ..MirrorTopicResult::default()
        });
    }
    Ok(Decision::of(records, response))
}

/// Why a topic that discovery has found is not begun with: somebody was faster.
fn overtaken(image: &MetadataImage, inclusion: &Patterns, found: &StartMirrorTopic) -> Option<String> {
    let name = &*found.topic_name;
    if image.topics().id_of(name).is_some() {
        return Some(format!("Topic '{name}' is here already: discovery begins with new ones alone."));
    }
    let is_meant = inclusion.matches(name);
    (!is_meant).then(|| format!("Topic '{name}' is not one that {INCLUDE} of the mirror means any more."))
}

/// The records that start one topic, and the source's configs that were left out.
fn start_one(
    image: &MetadataImage,
    request: &StartMirrorTopicsRequest,
    asked: &StartMirrorTopic,
    context: &mut Context<'_>,
) -> Result<(Vec<MetadataRecord>, Vec<String>), ApiError> {
    let name = &*asked.topic_name;
    names::check(name)?;
    if is_never_mirrored(name) {
        let why = format!("Topic '{name}' is internal to its cluster and never mirrored.");
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    }
    if asked.num_partitions <= 0 {
        let why = format!("Topic '{name}' cannot have {} partitions.", asked.num_partitions);
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, why));
    }
    if is_started(image, &request.mirror_name, name)? {
        return if request.allow_truncation { Err(no_consent(name)) } else { Ok((Vec::new(), Vec::new())) };
    }
    let existing = image.topics().by_name(name);
    check_id(image, asked, existing.map(|topic| &**topic))?;
    let (mut records, skipped) = match existing {
        Some(topic) => (grown(image, topic, asked)?, Vec::new()),
        None => created(image, asked, context)?,
    };
    let truncation = if request.allow_truncation { Truncation::Allowed } else { Truncation::Refused };
    let wanted = Wanted { state: DesiredState::Mirroring, version: context.next_offset.0, truncation };
    records.extend(bound(name, &request.mirror_name, &wanted));
    Ok((records, skipped))
}

/// True where the topic is being mirrored by this mirror already.
fn is_started(image: &MetadataImage, mirror: &str, topic: &str) -> Result<bool, ApiError> {
    let Some(binding) = image.bindings().of(topic).filter(|binding| binding.is_active()) else {
        return Ok(false);
    };
    if &*binding.mirror != mirror {
        let why = format!("Topic '{topic}' belongs to cluster mirror '{}'.", binding.mirror);
        return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_IN_CLUSTER_MIRROR, why));
    }
    if binding.desired == DesiredState::Mirroring {
        return Ok(true);
    }
    let why = format!("Topic '{topic}' is {}; only a stopped topic can be started again.", binding.desired);
    Err(ApiError::new(ErrorCode::MIRROR_TOPIC_NOT_STOPPED, why))
}

/// What a topic that is being mirrored may drop is not decided by beginning with it once more.
fn no_consent(topic: &str) -> ApiError {
    let why = format!(
        "Topic '{topic}' is being mirrored already, so nothing was changed; recover --allow-truncation consents to \
         dropping what the source has not."
    );
    ApiError::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, why)
}

fn check_id(
    image: &MetadataImage,
    asked: &StartMirrorTopic,
    existing: Option<&TopicImage>,
) -> Result<(), ApiError> {
    let id = TopicId(asked.topic_id);
    if id.is_zero() {
        return Ok(());
    }
    match (existing, image.topics().by_id(id)) {
        (Some(topic), _) if topic.id != id => Err(ApiError::new(
            ErrorCode::INCONSISTENT_TOPIC_ID,
            format!("Topic '{}' has the id {} here and {id} at the source.", topic.name, topic.id),
        )),
        (None, Some(other)) => Err(ApiError::new(
            ErrorCode::TOPIC_ALREADY_EXISTS,
            format!("The id {id} of topic '{}' belongs to topic '{}' here.", asked.topic_name, other.name),
        )),
        _ => Ok(()),
    }
}

/// The partitions that an existing topic lacks.
fn grown(
    image: &MetadataImage,
    topic: &TopicImage,
    asked: &StartMirrorTopic,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let current = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if current > asked.num_partitions {
        let why = format!(
            "Topic '{}' has {current} partitions here and {} at the source.",
            topic.name, asked.num_partitions
        );
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, why));
    }
    let factor = topic.partitions.values().next().map_or(1, |first| first.replicas.len());
    let start = circle_start(topic.id).wrapping_add(topic.partitions.len());
    let replicas =
        placement::place(image, asked.num_partitions - current, i16::try_from(factor).unwrap_or(1), start)?;
    (current..)
        .zip(&replicas)
        .map(|(index, replicas)| {
            placement::new_partition(image, topic.id, PartitionIndex(index), replicas)
                .ok_or_else(no_active_broker)
        })
        .collect()
}

fn created(
    image: &MetadataImage,
    asked: &StartMirrorTopic,
    context: &mut Context<'_>,
) -> Result<(Vec<MetadataRecord>, Vec<String>), ApiError> {
    let id = match TopicId(asked.topic_id) {
        id if id.is_zero() => fresh_id(image, context),
        id => id,
    };
    let factor = context.config.topics.replication_factor;
    let replicas = placement::place(image, asked.num_partitions, factor, circle_start(id))?;
    let active = |id: &tarn_record::BrokerId| image.registrations().is_active(*id);
    if !replicas.iter().flatten().all(active) {
        return Err(no_active_broker());
    }
    let (configs, skipped) = usable_configs(asked);
    let new = new_topic(image, Arc::from(&*asked.topic_name), id, replicas, configs)?;
    Ok((new.records, skipped))
}

fn no_active_broker() -> ApiError {
    ApiError::new(
        ErrorCode::INVALID_REPLICATION_FACTOR,
        "A mirror topic is created only where all of its replicas are active.",
    )
}

/// The source's configs that can be set here, and those that cannot: a key or value that is not known is
/// left out, never the whole topic.
fn usable_configs(asked: &StartMirrorTopic) -> (ConfigMap, Vec<String>) {
    let mut usable = ConfigMap::new();
    let mut skipped = Vec::new();
    for config in &asked.configs {
        let Some(value) = &config.value else { continue };
        let local = config.name.starts_with("remote.") || config.name.starts_with("local.");
        if local || topic_configs::is_internal(&config.name) {
            continue;
        }
        let mut with = usable.clone();
        with.insert(Arc::from(&*config.name), Arc::from(&**value));
        match topic_configs::validate(&with) {
            Ok(()) => usable = with,
            Err(_) => skipped.push(format!("{}={value}", config.name)),
        }
    }
    (usable, skipped)
}

fn skipped_message(skipped: &[String]) -> Option<Str> {
    (!skipped.is_empty()).then(|| sentence(&format!("Left out, not known here: {}", skipped.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::mirror_desired;
    use crate::decide::world::World;
    use tarn_wire::messages::StopMirrorTopicsRequest;
    use tarn_wire::messages::start_mirror_topics_request::MirrorTopicConfig;
    use uuid::Uuid;

    #[test]
    fn a_topic_of_the_source_is_created_with_its_id_count_and_configs_and_bound() {
        let mut world = world();
        let mut topic = topic("orders", 7, 3);
        topic.configs =
            vec![config("retention.ms", "5"), config("nosuch", "1"), config("remote.storage.enable", "true")];
        let version = world.next_offset.0;
        let result = &world.start("m", vec![topic]).topics[0];
        assert_eq!(
            (result.error_code, result.error_message.as_deref()),
            (0, Some("Left out, not known here: nosuch=1"))
        );
        let created = world.image.topics().by_name("orders").unwrap();
        assert_eq!((created.id, created.partitions.len()), (TopicId(Uuid::from_u128(7)), 3));
        assert_eq!(
            world.image.configs().topic("orders").get("retention.ms").map(|value| &**value),
            Some("5")
        );
        let binding = world.image.bindings().of("orders").unwrap();
        assert_eq!(
            (&*binding.mirror, binding.desired, binding.version),
            ("m", DesiredState::Mirroring, version)
        );
        assert_eq!(binding.truncation, Truncation::Refused);
    }

    #[test]
    fn starting_twice_changes_nothing() {
        let mut world = world();
        world.start("m", vec![topic("t", 7, 1)]);
        let before = world.image.clone();
        assert_eq!(world.start("m", vec![topic("t", 7, 1)]).topics[0].error_code, 0);
        assert_eq!(world.image.bindings(), before.bindings());
    }

    #[test]
    fn consent_for_a_topic_that_is_being_mirrored_is_refused_and_says_how_to_give_it() {
        let mut world = world();
        world.start("m", vec![topic("t", 7, 1)]);
        let before = world.image.clone();
        let request = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics: vec![topic("t", 7, 1), topic("new", 8, 1)],
            allow_truncation: true,
            ..StartMirrorTopicsRequest::default()
        };
        let response = world.start_with(&request);
        let refused = &response.topics[0];
        assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE);
        let said = refused.error_message.as_deref().unwrap_or_default();
        assert!(said.contains("recover --allow-truncation"), "{said}");
        assert_eq!(world.image.bindings().of("t"), before.bindings().of("t"));
        assert_eq!(response.topics[1].error_code, 0, "it hinders no other");
        // One that is paused is resumed first, whatever is allowed.
        world.bind("t", "m", "paused:9");
        let code = world.start_with(&request).topics[0].error_code;
        assert_eq!(ErrorCode(code), ErrorCode::MIRROR_TOPIC_NOT_STOPPED);
    }

    #[test]
    fn a_stopped_topic_starts_again_with_a_newer_version_and_consent() {
        let mut world = world();
        world.start("m", vec![topic("t", 7, 1)]);
        world.bind("t", "m", "stopped:3");
        let request = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics: vec![topic("t", 7, 2)],
            allow_truncation: true,
            ..StartMirrorTopicsRequest::default()
        };
        assert_eq!(world.start_with(&request).topics[0].error_code, 0);
        let binding = world.image.bindings().of("t").unwrap();
        assert!(binding.version > 3 && binding.truncation == Truncation::Allowed);
        assert_eq!(world.image.topics().by_name("t").unwrap().partitions.len(), 2, "it grew with the source");
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let mut world = world();
        world.create_mirror("n", &[("bootstrap.servers", "b:1"), ("source.cluster.id", "T")]).unwrap();
        world.create_with("local", 2, 1);
        world.start("m", vec![topic("mine", 7, 1)]);
        world.bind("local", "m", "stopped:1");
        let code = |world: &mut World, mirror, topic| {
            ErrorCode(world.start(mirror, vec![topic]).topics[0].error_code)
        };
        assert_eq!(code(&mut world, "m", topic("local", 9, 2)), ErrorCode::INCONSISTENT_TOPIC_ID);
        assert_eq!(code(&mut world, "m", topic("local", 0, 1)), ErrorCode::INVALID_PARTITIONS);
        assert_eq!(code(&mut world, "m", topic("other", 7, 1)), ErrorCode::TOPIC_ALREADY_EXISTS);
        assert_eq!(code(&mut world, "n", topic("mine", 7, 1)), ErrorCode::TOPIC_ALREADY_IN_CLUSTER_MIRROR);
        assert_eq!(code(&mut world, "m", topic("__x", 8, 1)), ErrorCode::INVALID_REQUEST);
        assert_eq!(code(&mut world, "m", topic("zero", 8, 0)), ErrorCode::INVALID_PARTITIONS);
        world.bind("mine", "m", "paused:9");
        assert_eq!(code(&mut world, "m", topic("mine", 7, 1)), ErrorCode::MIRROR_TOPIC_NOT_STOPPED);
        let unknown = world.start("nosuch", vec![topic("t", 8, 1)]);
        assert_eq!(ErrorCode(unknown.error_code), ErrorCode::UNKNOWN_CLUSTER_MIRROR);
    }

    #[test]
    fn a_name_or_id_counts_once_in_a_request() {
        let mut world = world();
        let topics =
            vec![topic("a", 7, 1), topic("a", 8, 1), topic("b", 7, 1), topic("c", 0, 1), topic("d", 0, 1)];
        let codes: Vec<_> = world.start("m", topics).topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, ErrorCode::INVALID_REQUEST.0, ErrorCode::INVALID_REQUEST.0, 0, 0]);
    }

    #[test]
    fn a_decision_on_an_older_state_is_refused_whole() {
        let mut world = world();
        world.start("m", vec![topic("a", 7, 1)]);
        let version = world.image.bindings().of("a").unwrap().version;
        let request = |state_version| StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics: vec![topic("a", 7, 1), topic("b", 8, 1)],
            state_version,
            ..StartMirrorTopicsRequest::default()
        };
        let refused = world.start_with(&request(version - 1));
        assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE);
        assert!(world.image.topics().by_name("b").is_none());
        assert_eq!(world.start_with(&request(version)).error_code, 0);
        assert!(world.image.topics().by_name("b").is_some());
    }

    #[test]
    fn patterns_are_remembered_for_topics_to_come() {
        let mut world = world();
        let request = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics: vec![topic("orders", 7, 1), topic("tmp1", 8, 1)],
            include_patterns: vec!["orders.*".into()],
            exclude_patterns: vec!["tmp.*".into()],
            ..StartMirrorTopicsRequest::default()
        };
        let response = world.start_with(&request);
        assert_eq!(ErrorCode(response.topics[1].error_code), ErrorCode::INVALID_REQUEST, "it is excluded");
        let mirror = world.image.mirror("m").unwrap();
        assert_eq!(mirror.configs.get("topics.include").map(|value| &**value), Some("orders.*"));
        assert_eq!(mirror.configs.get("topics.exclude").map(|value| &**value), Some("__.*,tmp.*"));
    }

    /// In whichever order the stop of everything and discovery's request come to be decided, nothing that was found is
    /// mirrored afterwards.
    #[test]
    fn what_discovery_found_is_not_begun_with_once_everything_is_stopped() {
        let stop = |world: &mut World| {
            let request = StopMirrorTopicsRequest {
                mirror_name: "m".into(),
                patterns: vec![".*".into()],
                ..StopMirrorTopicsRequest::default()
            };
            let response = world.decided(|image, context| mirror_desired::stop(image, &request, context));
            assert_eq!(response.error_code, 0);
        };
        let discover = |world: &mut World| {
            let result = world.start_with(&discovered(vec![topic("new", 8, 1)])).topics.remove(0);
            (ErrorCode(result.error_code), result.error_message.map(|why| why.to_string()))
        };
        let mut world = including(".*");
        assert_eq!(discover(&mut world), (ErrorCode::NONE, None));
        stop(&mut world);
        assert_eq!(
            world.image.bindings().of("new").map(|binding| binding.desired),
            Some(DesiredState::Stopping)
        );

        let mut world = including(".*");
        stop(&mut world);
        let why = "Topic 'new' is not one that topics.include of the mirror means any more.".to_owned();
        assert_eq!(discover(&mut world), (ErrorCode::INVALID_CLUSTER_MIRROR_STATE, Some(why)));
        assert!(world.image.topics().by_name("new").is_none());
        // What everything was begun with again means what is found as well.
        let again = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            include_patterns: vec!["n.*".into()],
            ..StartMirrorTopicsRequest::default()
        };
        assert_eq!(world.start_with(&again).error_code, 0);
        assert_eq!(discover(&mut world), (ErrorCode::NONE, None));
    }

    #[test]
    fn what_discovery_found_is_left_as_it_is_where_it_is_here_already() {
        let mut world = including(".*");
        world.create_with("local", 1, 1);
        for state in ["mirroring:3", "paused:3", "stopping:3", "stopped:3"] {
            let name = state.split(':').next().unwrap();
            world.create_with(name, 1, 1);
            world.bind(name, "m", state);
            let before = world.bound(name);
            let result = world.start_with(&discovered(vec![topic(name, 0, 2)])).topics.remove(0);
            assert_eq!(ErrorCode(result.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE, "{state}");
            assert_eq!(world.bound(name), before);
        }
        let result = world.start_with(&discovered(vec![topic("local", 0, 1)])).topics.remove(0);
        assert_eq!(ErrorCode(result.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE);
        assert_eq!(world.bound("local"), None);
    }

    #[test]
    fn what_was_excluded_while_discovery_looked_is_no_error_of_the_request() {
        let mut world = including(".*");
        let exclude = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            exclude_patterns: vec!["n.*".into()],
            ..StartMirrorTopicsRequest::default()
        };
        assert_eq!(world.start_with(&exclude).error_code, 0);
        let code = |world: &mut World, request| ErrorCode(world.start_with(&request).topics[0].error_code);
        let found = discovered(vec![topic("new", 8, 1)]);
        assert_eq!(code(&mut world, found.clone()), ErrorCode::INVALID_CLUSTER_MIRROR_STATE);
        let asked = StartMirrorTopicsRequest { discovered: false, ..found };
        assert_eq!(code(&mut world, asked), ErrorCode::INVALID_REQUEST);
    }

    #[test]
    fn a_pattern_is_in_one_list_and_has_no_comma() {
        let mut world = world();
        let request = |include: &[&str], exclude: &[&str]| StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            include_patterns: include.iter().map(|one| Str::from(*one)).collect(),
            exclude_patterns: exclude.iter().map(|one| Str::from(*one)).collect(),
            ..StartMirrorTopicsRequest::default()
        };
        assert_eq!(world.start_with(&request(&["a.*", "b"], &["b", "c"])).error_code, 0);
        let lists = |world: &World| {
            ["topics.include", "topics.exclude"].map(|key| world.mirror_config("m", key).unwrap())
        };
        assert_eq!(lists(&world), ["a.*", "__.*,b,c"], "what is given for both is excluded");
        assert_eq!(world.start_with(&request(&["c"], &["a.*"])).error_code, 0);
        assert_eq!(lists(&world), ["c", "__.*,b,a.*"]);
        for (include, exclude) in [(["x,y"], []), ([""], [])] {
            let refused = world.start_with(&request(&include, &exclude));
            assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_REQUEST);
            let refused = world.start_with(&request(&exclude, &include));
            assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_REQUEST);
        }
        assert_eq!(lists(&world), ["c", "__.*,b,a.*"]);
    }

    /// A mirror that discovers what this matches.
    fn including(pattern: &str) -> World {
        let mut world = world();
        let request = StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            include_patterns: vec![pattern.into()],
            ..StartMirrorTopicsRequest::default()
        };
        assert_eq!(world.start_with(&request).error_code, 0);
        world
    }

    fn discovered(topics: Vec<StartMirrorTopic>) -> StartMirrorTopicsRequest {
        StartMirrorTopicsRequest {
            mirror_name: "m".into(),
            topics,
            discovered: true,
            ..StartMirrorTopicsRequest::default()
        }
    }

    fn world() -> World {
        let mut world = World::with_brokers(1);
        world.create_mirror("m", &[("bootstrap.servers", "a:1"), ("source.cluster.id", "S")]).unwrap();
        world
    }

    fn topic(name: &str, id: u128, num_partitions: i32) -> StartMirrorTopic {
        StartMirrorTopic {
            topic_id: Uuid::from_u128(id),
            topic_name: name.into(),
            num_partitions,
            ..StartMirrorTopic::default()
        }
    }

    fn config(name: &str, value: &str) -> MirrorTopicConfig {
        MirrorTopicConfig { name: name.into(), value: Some(value.into()) }
    }
}
