//! Topics that a mirror shall begin with and that are here already: asking what `mirror::existing` judges by.

use std::rc::Rc;

use tarn_mirror::existing::{Verdict, holds_records, judge};
use tarn_mirror::reasons::Reason;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_wire::ErrorCode;
use tarn_wire::messages::StartMirrorTopicsRequest;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::MirrorTopicResult;

use super::states::ends;
use crate::coordinators::mirror_states;
use crate::core::Core;

/// Takes the topics that cannot be begun with out of a request, and says why.
pub(super) async fn refuse(
    core: &Rc<Core>,
    request: &mut StartMirrorTopicsRequest,
) -> Vec<MirrorTopicResult> {
    let mut refused = Vec::new();
    let mut kept = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        match refusal(core, &request.mirror_name, &topic).await {
            Some(result) => refused.push(result),
            None => kept.push(topic),
        }
    }
    request.topics = kept;
    refused
}

async fn refusal(core: &Rc<Core>, mirror: &str, asked: &StartMirrorTopic) -> Option<MirrorTopicResult> {
    let view = core.view();
    if view.binding(&asked.topic_name).is_some_and(|binding| binding.is_active()) {
        return None;
    }
    let here = view.topic_by_name(&asked.topic_name)?;
    let there = TopicId(asked.topic_id);
    let result = |error: ErrorCode, reason: Reason, why: String| MirrorTopicResult {
        name: asked.topic_name.clone(),
        error_code: error.0,
        error_message: Some(format!("{reason}: {why}").into()),
        ..MirrorTopicResult::default()
    };
    if !there.is_zero() && here.id != there {
        let why = format!("the topic has the id {} here and {there} at the source", here.id);
        return Some(result(ErrorCode::INCONSISTENT_TOPIC_ID, Reason::TopicIdConflict, why));
    }
    let partitions: Vec<TopicIdPartition> =
        here.partitions.keys().map(|&partition| TopicIdPartition { topic_id: here.id, partition }).collect();
    // Of a mirror that does not exist nothing is known; the controller says so.
    view.image().mirror(mirror)?;
    let ends = ends(core, &partitions).await;
    let filled: Vec<_> = partitions.into_iter().filter(|one| holds_records(&ends, *one)).collect();
    let known = mirror_states::read(core, mirror, filled.clone()).await;
    match judge(&filled, &known, &ends) {
        Verdict::Begin => None,
        Verdict::Unanswered(error) => {
            let why =
                "what the mirror has brought of the topic before is not known now; try again".to_owned();
            Some(result(error, Reason::CoordinatorUnavailable, why))
        }
        Verdict::LocalRecords(truncations, why) => {
            let result = result(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, Reason::LocalRecords, why);
            Some(MirrorTopicResult { truncations, ..result })
        }
    }
}
