//! Topics that a mirror shall begin with and that are here already: what can be said before they are bound.
//!
//! A courtesy: it spares a topic that cannot be mirrored the binding. The leader of each partition decides
//! again once nobody can write any more.

use std::collections::HashMap;
use std::rc::Rc;

use tarn_mirror::alignment::{Content, local_records};
use tarn_mirror::local_cluster::LogEnds;
use tarn_mirror::reasons::Reason;
use tarn_record::{TopicId, TopicIdPartition};
use tarn_wire::ErrorCode;
use tarn_wire::messages::StartMirrorTopicsRequest;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::{MirrorTopicResult, MirrorTruncation};

use super::states::ends;
use crate::coordinators::mirror_states::{self, Known};
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

/// What can be said of a topic before it is bound.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// Nothing is against it.
    Begin,
    /// A coordinator does not answer: whose records these are will be known later.
    Unanswered(ErrorCode),
    /// It holds records of its own: the ranges, and the first of them in words.
    LocalRecords(Vec<MirrorTruncation>, String),
}

fn holds_records(ends: &HashMap<TopicIdPartition, LogEnds>, partition: TopicIdPartition) -> bool {
    ends.get(&partition).is_some_and(|ends| local_records(ends).is_some())
}

/// Judges the partitions that hold records.
fn judge(filled: &[TopicIdPartition], known: &Known, ends: &HashMap<TopicIdPartition, LogEnds>) -> Verdict {
    let mut truncations = Vec::new();
    let mut first = None;
    for partition in filled {
        let state = match known.get(partition) {
            Some(Ok(state)) => state.as_ref(),
            Some(Err(error)) => return Verdict::Unanswered(*error),
            None => return Verdict::Unanswered(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
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
    let Some(first) = first else { return Verdict::Begin };
    let more = match truncations.len() {
        1 => String::new(),
        count => format!(" (and {} more partitions)", count - 1),
    };
    Verdict::LocalRecords(truncations, format!("{first}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_mirror::coordinator::PartitionState;
    use tarn_mirror::state::MirrorState;
    use tarn_record::{Epoch, Offset, PartitionIndex};

    #[test]
    fn a_coordinator_that_does_not_answer_makes_no_record_a_local_one() {
        for error in [ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR] {
            assert_eq!(verdict(Err(error)), Verdict::Unanswered(error), "it is asked again, and then known");
        }
    }

    #[test]
    fn records_are_local_unless_the_mirror_brought_them() {
        let Verdict::LocalRecords(truncations, why) = verdict(Ok(None)) else {
            panic!("nobody brought them")
        };
        assert_eq!((truncations[0].from_offset, truncations[0].to_offset), (2, 9));
        assert!(why.starts_with("partition 0: "), "{why}");
        let brought = PartitionState { state: Some(MirrorState::Mirroring), ..PartitionState::default() };
        assert_eq!(verdict(Ok(Some(brought))), Verdict::Begin);
    }

    /// What is said of a topic whose one partition holds the offsets from 2 to 9.
    fn verdict(known: Result<Option<PartitionState>, ErrorCode>) -> Verdict {
        let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) };
        let ends = LogEnds {
            log_start: Offset(2),
            log_end: Offset(9),
            high_watermark: Offset(9),
            latest_epoch: Epoch(0),
            leader_epoch: Epoch(0),
            compacted: false,
        };
        judge(&[partition], &[(partition, known)].into(), &[(partition, ends)].into())
    }
}
