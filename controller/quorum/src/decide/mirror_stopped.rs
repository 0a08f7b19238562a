//! CompleteMirrorStop: a topic that was being stopped has stopped, on every partition.
//!
//! The broker that asks has read it from the coordinators. Its word counts for the version of the binding
//! that it names and for no other, so one that comes late, or twice, does no harm; the version stays, because
//! the partitions stopped at it.

use tarn_image::mirrors::{Truncation, Wanted};
use tarn_image::{DesiredState, MetadataImage};
use tarn_record::TopicId;
use tarn_wire::messages::complete_mirror_stop_request::CompletedMirrorStop;
use tarn_wire::messages::complete_mirror_stop_response::MirrorTopicResult;
use tarn_wire::messages::{CompleteMirrorStopRequest, CompleteMirrorStopResponse};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::mirror_bindings::{bound, mirror};
use super::{ApiError, Decision, wire_result};

/// Decides a whole request. A topic that fails does not hinder the others.
pub fn complete(
    image: &MetadataImage,
    request: &CompleteMirrorStopRequest,
) -> Decision<CompleteMirrorStopResponse> {
    if let Err(error) = mirror(image, &request.mirror_name) {
        return Decision::unchanged(CompleteMirrorStopResponse {
            error_code: error.code.0,
            error_message: error.wire_message(),
            ..CompleteMirrorStopResponse::default()
        });
    }
    let mut records = Vec::new();
    let mut response = CompleteMirrorStopResponse::default();
    for topic in &request.topics {
        let completed = complete_one(image, &request.mirror_name, topic);
        let (error_code, error_message) = wire_result(&completed);
        records.extend(completed.unwrap_or_default());
        response.topics.push(MirrorTopicResult { name: topic.topic_name.clone(), error_code, error_message });
    }
    Decision::of(records, response)
}

/// The records that say so of one topic; none where they were written before.
fn complete_one(
    image: &MetadataImage,
    mirror: &str,
    stopped: &CompletedMirrorStop,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let name = &*stopped.topic_name;
    let refuse = |why: String| {
        let why = format!("Topic '{name}' has not stopped at version {}: {why}.", stopped.state_version);
        Err(ApiError::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, why))
    };
    match image.topics().id_of(name) {
        None => return refuse("there is no such topic".to_owned()),
        Some(id) if id != TopicId(stopped.topic_id) => return refuse(format!("it has the id {id}")),
        Some(_) => {}
    }
    match image.bindings().of(name) {
        Some(binding) if *binding.mirror == *mirror && binding.version == stopped.state_version => {
            match binding.desired {
                DesiredState::Stopping => {
                    let (state, version) = (DesiredState::Stopped, binding.version);
                    let wanted = Wanted { state, version, truncation: Truncation::Refused };
                    Ok(bound(name, mirror, &wanted).into())
                }
                DesiredState::Stopped => Ok(Vec::new()),
                desired => refuse(format!("it is {desired}")),
            }
        }
        Some(binding) => refuse(format!(
            "in mirror '{}' it is {} at version {}",
            binding.mirror, binding.desired, binding.version
        )),
        None => refuse("it belongs to no cluster mirror".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;

    #[test]
    fn stopping_becomes_stopped_at_the_same_version_and_stays_so() {
        let mut world = world("stopping:7");
        assert_eq!(ask(&mut world, "m", "t", 7), ErrorCode::NONE);
        assert_eq!(world.bound("t"), Some(("m".to_owned(), "stopped:7".to_owned())));
        let before = (world.image.clone(), world.next_offset);
        assert_eq!(ask(&mut world, "m", "t", 7), ErrorCode::NONE, "it was so already");
        assert_eq!((world.image, world.next_offset), before);
    }

    #[test]
    fn a_word_about_anything_else_changes_nothing() {
        let refused = ErrorCode::INVALID_CLUSTER_MIRROR_STATE;
        for bound in ["mirroring:7", "paused:7", "stopping:6", "stopping:8", "stopped:6", "stopped:8"] {
            let mut world = world(bound);
            let before = world.image.clone();
            assert_eq!(ask(&mut world, "m", "t", 7), refused, "{bound}");
            assert_eq!(world.image, before);
        }
        let mut world = world("stopping:7");
        world.create_with("alone", 1, 1);
        let before = world.image.clone();
        assert_eq!(ask(&mut world, "other", "t", 7), refused, "it is not that mirror's");
        assert_eq!(ask(&mut world, "m", "alone", 7), refused);
        assert_eq!(ask(&mut world, "m", "nosuch", 7), refused);
        assert_eq!(ask(&mut world, "nosuch", "t", 7), ErrorCode::UNKNOWN_CLUSTER_MIRROR);
        let response = complete(&world.image, &request("m", "t", uuid::Uuid::from_u128(9), 7)).response;
        assert_eq!(ErrorCode(response.topics[0].error_code), refused, "another topic had the name");
        assert_eq!(world.image, before);
    }

    #[test]
    fn one_topic_that_fails_does_not_hinder_the_others() {
        let mut world = world("stopping:7");
        let id = world.image.topics().id_of("t").unwrap();
        let mut both = request("m", "nosuch", uuid::Uuid::from_u128(9), 7);
        both.topics.extend(request("m", "t", id.0, 7).topics);
        let response = world.decided(|image, _| complete(image, &both));
        let why = response.topics[0].error_message.as_deref();
        assert_eq!(why, Some("Topic 'nosuch' has not stopped at version 7: there is no such topic."));
        assert_eq!(response.topics[1].error_code, 0);
        assert_eq!(world.bound("t").unwrap().1, "stopped:7");
    }

    /// Topic `t` of mirror `m`; mirror `other` has none.
    fn world(bound: &str) -> World {
        let mut world = World::with_topics(&["t"]);
        for mirror in ["m", "other"] {
            world.create_mirror(mirror, &[("bootstrap.servers", "a:1"), ("source.cluster.id", "S")]).unwrap();
        }
        world.bind("t", "m", bound);
        world
    }

    fn request(
        mirror: &str,
        topic: &str,
        topic_id: uuid::Uuid,
        state_version: i64,
    ) -> CompleteMirrorStopRequest {
        let topic = CompletedMirrorStop { topic_name: topic.into(), topic_id, state_version };
        CompleteMirrorStopRequest { mirror_name: mirror.into(), topics: vec![topic] }
    }

    /// What becomes of one topic, or of the whole.
    fn ask(world: &mut World, mirror: &str, topic: &str, version: i64) -> ErrorCode {
        let id = world.image.topics().id_of(topic).map_or(uuid::Uuid::nil(), |id| id.0);
        let request = request(mirror, topic, id, version);
        let response = world.decided(|image, _| complete(image, &request));
        ErrorCode(response.topics.first().map_or(response.error_code, |topic| topic.error_code))
    }
}
