//! Topics that a mirror shall begin with and that are here already: what can be said before they are bound.
//!
//! A courtesy: it spares a topic that cannot be mirrored the binding. The leader of each partition decides
//! again once nobody can write any more.

use std::rc::Rc;

use tarn_mirror::alignment::{Content, local_records};
use tarn_mirror::reasons::Reason;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_wire::ErrorCode;
use tarn_wire::messages::StartMirrorTopicsRequest;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::{MirrorTopicResult, MirrorTruncation};

use super::states::{ends, states};
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
    let known = states(core, mirror, partitions.clone()).await;
    let ends = ends(core, &partitions).await;
    let mut truncations = Vec::new();
    let mut first = None;
    for partition in &partitions {
        let state = known.get(partition).and_then(|known| known.as_ref().ok()).and_then(Option::as_ref);
        let is_mirrored =
            state.is_some_and(|known| Content::of(known.state, known.previous_state) == Content::Mirrored);
        let Some(ends) = ends.get(partition).filter(|_| !is_mirrored) else { continue };
        let Some(why) = local_records(ends) else { continue };
        truncations.push(MirrorTruncation {
            partition_index: partition.partition.0,
            from_offset: ends.log_start.0,
            to_offset: ends.log_end.0,
        });
        first.get_or_insert_with(|| format!("partition {}: {why}", partition.partition));
    }
    let first = first?;
    let more = match truncations.len() {
        1 => String::new(),
        count => format!(" (and {} more partitions)", count - 1),
    };
    let error = ErrorCode::INVALID_CLUSTER_MIRROR_STATE;
    Some(MirrorTopicResult { truncations, ..result(error, Reason::LocalRecords, format!("{first}{more}")) })
}
