//! DeleteClusterMirror (KIP-1279): a mirror goes, and the topics that it has stopped are ordinary ones.
//!
//! Everything goes in one batch, so there is never a topic bound to a mirror that does not exist. What the
//! coordinators keep of the mirror goes after it; they tell it by the versions of its bindings, all of which
//! are below the batch.

use tarn_image::{DesiredState, MetadataImage};
use tarn_wire::messages::{DeleteClusterMirrorRequest, DeleteClusterMirrorResponse};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::mirror_bindings::{check_version, mirror, mirror_record, unbound};
use super::{ApiError, Decision, Run, wire_result};

/// Decides a request.
pub fn delete_mirror(
    image: &MetadataImage,
    request: &DeleteClusterMirrorRequest,
) -> Decision<DeleteClusterMirrorResponse> {
    let records = records(image, request);
    let (error_code, error_message) = wire_result(&records);
    let response =
        DeleteClusterMirrorResponse { error_code, error_message, ..DeleteClusterMirrorResponse::default() };
    Decision::of(records.unwrap_or_default(), response).carried_out(Run::of(request.validate_only))
}

fn records(
    image: &MetadataImage,
    request: &DeleteClusterMirrorRequest,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let mirror = mirror(image, &request.mirror_name)?;
    let topics = || image.bindings().topics_of(mirror.name);
    check_version(image, request.state_version, topics().map(|topic| &**topic))?;
    check_stopped(image, mirror.name)?;
    let unbound = topics().flat_map(|topic| unbound(topic));
    let configs = mirror.configs.keys().map(|key| mirror_record(mirror.name, key, None));
    Ok(unbound.chain(configs).collect())
}

/// Refuses while a topic of the mirror is anything but stopped.
fn check_stopped(image: &MetadataImage, mirror: &str) -> Result<(), ApiError> {
    let mut others = image.bindings().topics_of(mirror).filter_map(|topic| {
        let desired = image.bindings().of(topic)?.desired;
        (desired != DesiredState::Stopped).then_some((topic, desired))
    });
    let Some((first, desired)) = others.next() else { return Ok(()) };
    let count = 1 + others.count();
    let topics = if count == 1 { "1 topic that is".to_owned() } else { format!("{count} topics that are") };
    let why = format!(
        "Cluster mirror '{mirror}' still has {topics} not stopped: '{first}' is {desired}. Stop what it has first: \
         tarn mirror stop --mirror {mirror} --topics '.*'"
    );
    Err(ApiError::new(ErrorCode::CLUSTER_MIRROR_NOT_EMPTY, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;

    #[test]
    fn a_mirror_and_the_bindings_of_its_stopped_topics_go_in_one_batch() {
        let mut world = world();
        let others = world.bound("c");
        let decision = delete_mirror(&world.image, &request("m"));
        assert_eq!(decision.batches.len(), 1, "it is atomic");
        assert_eq!(world.apply(decision).error_code, 0);
        assert!(world.image.mirror("m").is_none());
        for topic in ["a", "b"] {
            assert!(world.image.topics().by_name(topic).is_some() && world.bound(topic).is_none());
            assert_eq!(world.image.configs().topic(topic).len(), 0);
        }
        assert!(world.image.mirror("other").is_some());
        assert_eq!(world.bound("c"), others, "it belongs to another");
        let again = world.decided(|image, _| delete_mirror(image, &request("m")));
        assert_eq!(ErrorCode(again.error_code), ErrorCode::UNKNOWN_CLUSTER_MIRROR);
        world.create_mirror("m", &GOOD).unwrap();
        assert_eq!(world.image.bindings().topics_of("m").count(), 0, "nothing is left of the old one");
    }

    #[test]
    fn a_mirror_stays_while_a_topic_of_it_is_not_stopped() {
        for state in ["mirroring:9", "paused:9", "stopping:9"] {
            let mut world = world();
            world.bind("b", "m", state);
            let before = world.image.clone();
            let refused = world.decided(|image, _| delete_mirror(image, &request("m")));
            assert_eq!(ErrorCode(refused.error_code), ErrorCode::CLUSTER_MIRROR_NOT_EMPTY, "{state}");
            assert_eq!(world.image, before);
        }
        let mut world = world();
        world.bind("a", "m", "mirroring:9");
        world.bind("b", "m", "paused:9");
        let refused = delete_mirror(&world.image, &request("m")).response;
        assert_eq!(
            refused.error_message.as_deref(),
            Some(
                "Cluster mirror 'm' still has 2 topics that are not stopped: 'a' is mirroring. Stop what it has first: \
                 tarn mirror stop --mirror m --topics '.*'"
            )
        );
        world.bind("b", "m", "stopped:9");
        let said = delete_mirror(&world.image, &request("m")).response.error_message;
        assert!(said.is_some_and(|said| said.contains("has 1 topic that is not stopped: 'a'")));
    }

    #[test]
    fn a_decision_on_an_older_state_is_refused() {
        let mut world = world();
        let before = world.image.clone();
        let request = |state_version| DeleteClusterMirrorRequest { state_version, ..request("m") };
        let refused = world.decided(|image, _| delete_mirror(image, &request(4)));
        assert_eq!(ErrorCode(refused.error_code), ErrorCode::INVALID_CLUSTER_MIRROR_STATE);
        assert_eq!(world.image, before);
        assert_eq!(world.decided(|image, _| delete_mirror(image, &request(5))).error_code, 0);
    }

    #[test]
    fn what_is_only_to_be_validated_changes_nothing() {
        let mut world = world();
        let before = world.image.clone();
        let request = DeleteClusterMirrorRequest { validate_only: true, ..request("m") };
        assert_eq!(world.decided(|image, _| delete_mirror(image, &request)).error_code, 0);
        assert_eq!(world.image, before);
    }

    const GOOD: [(&str, &str); 2] = [("bootstrap.servers", "a:1"), ("source.cluster.id", "S")];

    /// Mirror `m` with the stopped topics `a` and `b`, and mirror `other` with `c`.
    fn world() -> World {
        let mut world = World::with_topics(&["a", "b", "c"]);
        world.create_mirror("m", &GOOD).unwrap();
        world.create_mirror("other", &GOOD).unwrap();
        world.bind("a", "m", "stopped:4");
        world.bind("b", "m", "stopped:5");
        world.bind("c", "other", "mirroring:6");
        world
    }

    fn request(mirror: &str) -> DeleteClusterMirrorRequest {
        DeleteClusterMirrorRequest { mirror_name: mirror.into(), ..DeleteClusterMirrorRequest::default() }
    }
}
