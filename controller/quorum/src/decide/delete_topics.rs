//! DeleteTopics, by name or by id.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_image::{MetadataImage, TopicImage};
use tarn_record::TopicId;
use tarn_wire::messages::delete_topics_request::DeleteTopicState;
use tarn_wire::messages::delete_topics_response::DeletableTopicResult;
use tarn_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse, RemoveTopicRecord};
use tarn_wire::{ErrorCode, MetadataRecord};

use super::{ApiError, Context, Decision, names, wire_result};

/// Decides a whole request; versions below 6 have the names in a field of their own.
pub fn delete_topics(
    image: &MetadataImage,
    request: &DeleteTopicsRequest,
    context: &Context<'_>,
) -> Decision<DeleteTopicsResponse> {
    let by_name = request
        .topic_names
        .iter()
        .map(|name| DeleteTopicState { name: Some(name.clone()), ..DeleteTopicState::default() });
    let mut deleted = BTreeSet::new();
    let mut records: Vec<MetadataRecord> = Vec::new();
    let mut response = DeleteTopicsResponse::default();
    for asked in request.topics.iter().cloned().chain(by_name) {
        let found = find(image, &asked, context).and_then(|topic| {
            names::refuse_mirrored(&topic.name, image.bindings().of(&topic.name))?;
            if deleted.insert(topic.id) {
                Ok(topic)
            } else {
                Err(ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name or id."))
            }
        });
        let (error_code, error_message) = wire_result(&found);
        let (name, topic_id) = match &found {
            Ok(topic) => (Some((&*topic.name).into()), topic.id.0),
            Err(_) => (asked.name.clone(), asked.topic_id),
        };
        response.responses.push(DeletableTopicResult { name, topic_id, error_code, error_message });
        records.extend(found.ok().map(|topic| RemoveTopicRecord { topic_id: topic.id.0 }.into()));
    }
    Decision::of(records, response)
}

fn find(
    image: &MetadataImage,
    asked: &DeleteTopicState,
    context: &Context<'_>,
) -> Result<Arc<TopicImage>, ApiError> {
    if !context.config.topics.deletion_enabled {
        return Err(ApiError::new(ErrorCode::TOPIC_DELETION_DISABLED, "Topic deletion is disabled."));
    }
    let id = TopicId(asked.topic_id);
    let invalid = |why: &str| Err(ApiError::new(ErrorCode::INVALID_REQUEST, why));
    match (&asked.name, id.is_zero()) {
        (Some(_), false) => invalid("You may not specify both topic name and topic id."),
        (None, true) => invalid("Neither topic name nor id were specified."),
        (Some(name), true) => {
            image.topics().by_name(name).cloned().ok_or(ApiError::bare(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
        }
        (None, false) => image.topics().by_id(id).cloned().ok_or(ApiError::bare(ErrorCode::UNKNOWN_TOPIC_ID)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::world::World;

    #[test]
    fn a_topic_goes_by_name_or_by_id() {
        let mut world = World::with_topics(&["a", "b"]);
        let id = world.image.topics().id_of("b").unwrap();
        let request = DeleteTopicsRequest {
            topics: vec![named("a"), DeleteTopicState { name: None, topic_id: id.0 }, named("nosuch")],
            ..DeleteTopicsRequest::default()
        };
        assert_eq!(
            codes(&world.delete(&request)),
            [ErrorCode::NONE, ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]
        );
        assert!(world.image.topics().is_empty());
    }

    #[test]
    fn one_topic_is_deleted_once() {
        let mut world = World::with_topics(&["a"]);
        let request =
            DeleteTopicsRequest { topics: vec![named("a"), named("a")], ..DeleteTopicsRequest::default() };
        assert_eq!(codes(&world.delete(&request)), [ErrorCode::NONE, ErrorCode::INVALID_REQUEST]);
    }

    #[test]
    fn a_mirror_topic_stays_until_it_is_stopped() {
        let mut world = World::with_topics(&["a"]);
        world.bind("a", "m", "paused:4");
        let request = DeleteTopicsRequest { topic_names: vec!["a".into()], ..DeleteTopicsRequest::default() };
        let response = world.delete(&request);
        assert_eq!(codes(&response), [ErrorCode::POLICY_VIOLATION]);
        assert_eq!(
            response.responses[0].error_message.as_deref(),
            Some(
                "topic 'a' belongs to cluster mirror m (state paused) and is read-only; to make it writable: \
                 tarn mirror stop --mirror m --topics a"
            )
        );
        world.bind("a", "m", "stopped:5");
        assert_eq!(codes(&world.delete(&request)), [ErrorCode::NONE]);
    }

    fn named(name: &str) -> DeleteTopicState {
        DeleteTopicState { name: Some(name.into()), ..DeleteTopicState::default() }
    }

    fn codes(response: &DeleteTopicsResponse) -> Vec<ErrorCode> {
        response.responses.iter().map(|result| ErrorCode(result.error_code)).collect()
    }
}
