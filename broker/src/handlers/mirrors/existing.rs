//! Topics that a mirror shall begin with, or try again, and that are here already: asking what `mirror::existing`
//! judges by.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_image::DesiredState;
use tarn_image::config::mirror::Patterns;
use tarn_mirror::existing::{LocalRange, holds_records, places, ranges, said};
use tarn_mirror::limits;
use tarn_mirror::local_cluster::{CountOrder, LocalCluster};
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::{Offset, TopicId, TopicIdPartition};
use tarn_wire::messages::recover_mirror_topics_request::MirrorTopicName;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::{MirrorTopicResult, MirrorTruncation};
use tarn_wire::messages::{
    RecoverMirrorTopicsRequest, StartMirrorTopicsRequest, recover_mirror_topics_response as recovering,
};
use tarn_wire::{ErrorCode, Str};

use super::states::ends;
use crate::coordinators::mirror_states;
use crate::core::Core;
use crate::mirror_host::MirrorHost;

/// Takes the topics that cannot be begun with out of a request, and says why.
pub(super) async fn refuse(
    core: &Rc<Core>,
    request: &mut StartMirrorTopicsRequest,
) -> Vec<MirrorTopicResult> {
    let mut refused = Vec::new();
    let mut kept = Vec::with_capacity(request.topics.len());
    let consent = Consent::of(request.allow_truncation);
    for topic in std::mem::take(&mut request.topics) {
        match refusal(core, &request.mirror_name, &topic, consent).await {
            Some(Refusal { error, reason, why, ranges }) => refused.push(MirrorTopicResult {
                name: topic.topic_name,
                error_code: error.0,
                error_message: Some(format!("{reason}: {why}").into()),
                truncations: ranges.iter().map(truncation).collect(),
            }),
            None => kept.push(topic),
        }
    }
    request.topics = kept;
    refused
}

/// The same for topics that are to be tried again: those whose partitions have failed with records of their own. What
/// the source has lost only the leader of a partition can tell, who asks it.
pub(super) async fn refuse_recovery(
    core: &Rc<Core>,
    request: &mut RecoverMirrorTopicsRequest,
) -> Vec<recovering::MirrorTopicResult> {
    let mut refused = Vec::new();
    let Some(meant) = meant(core, request).filter(|_| !request.allow_truncation) else { return refused };
    request.patterns.clear();
    request.topics.clear();
    for name in meant {
        match recovery_refusal(core, &request.mirror_name, &name).await {
            Some(Refusal { error, reason, why, ranges }) => refused.push(recovering::MirrorTopicResult {
                name,
                error_code: error.0,
                error_message: Some(format!("{reason}: {why}").into()),
                truncations: ranges
                    .iter()
                    .map(|range| recovering::MirrorTruncation {
                        partition_index: range.partition.partition.0,
                        from_offset: range.from.0,
                        to_offset: range.to.0,
                    })
                    .collect(),
            }),
            None => request.topics.push(MirrorTopicName { topic_name: name }),
        }
    }
    refused
}

/// Whether what only this cluster has may be dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consent {
    Given,
    Refused,
}

impl Consent {
    fn of(is_given: bool) -> Consent {
        if is_given { Consent::Given } else { Consent::Refused }
    }
}

/// Why a topic is not begun with.
struct Refusal {
    error: ErrorCode,
    reason: Reason,
    why: String,
    ranges: Vec<LocalRange>,
}

impl Refusal {
    fn new(error: ErrorCode, reason: Reason, why: String) -> Refusal {
        Refusal { error, reason, why, ranges: Vec::new() }
    }

    /// Where the ranges hold records, or it is not known whether they do.
    fn of_ranges(found: Result<Vec<LocalRange>, ErrorCode>) -> Option<Refusal> {
        match found {
            Err(error) => {
                let why = "what the mirror has brought of the topic before is not known now; try again";
                Some(Refusal::new(error, Reason::CoordinatorUnavailable, why.to_owned()))
            }
            Ok(ranges) => {
                let why = said(&ranges)?;
                let refusal =
                    Refusal::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, Reason::LocalRecords, why);
                Some(Refusal { ranges, ..refusal })
            }
        }
    }
}

async fn refusal(
    core: &Rc<Core>,
    mirror: &str,
    asked: &StartMirrorTopic,
    consent: Consent,
) -> Option<Refusal> {
    let view = core.view();
    if view.binding(&asked.topic_name).is_some_and(|binding| binding.is_active()) {
        return None;
    }
    let here = view.topic_by_name(&asked.topic_name)?;
    let there = TopicId(asked.topic_id);
    if !there.is_zero() && here.id != there {
        let why = format!("the topic has the id {} here and {there} at the source", here.id);
        return Some(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, Reason::TopicIdConflict, why));
    }
    // Of a mirror that does not exist nothing is known; the controller says so.
    view.image().mirror(mirror)?;
    if consent == Consent::Given {
        return None;
    }
    let partitions: Vec<TopicIdPartition> =
        here.partitions.keys().map(|&partition| TopicIdPartition { topic_id: here.id, partition }).collect();
    Refusal::of_ranges(local_ranges(core, mirror, partitions, Which::All).await)
}

async fn recovery_refusal(core: &Rc<Core>, mirror: &str, topic: &str) -> Option<Refusal> {
    let view = core.view();
    let binding = view.binding(topic)?;
    if &*binding.mirror != mirror || binding.desired != DesiredState::Mirroring {
        // The controller has its own words for it.
        return None;
    }
    let here = view.topic_by_name(topic)?;
    let partitions: Vec<TopicIdPartition> =
        here.partitions.keys().map(|&partition| TopicIdPartition { topic_id: here.id, partition }).collect();
    Refusal::of_ranges(local_ranges(core, mirror, partitions, Which::Failed).await)
}

/// Of which partitions something is said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Failed,
}

/// What no mirror has brought into these partitions.
async fn local_ranges(
    core: &Rc<Core>,
    mirror: &str,
    partitions: Vec<TopicIdPartition>,
    which: Which,
) -> Result<Vec<LocalRange>, ErrorCode> {
    let ends = ends(core, &partitions).await;
    let mut filled: Vec<_> = partitions.into_iter().filter(|one| holds_records(&ends, *one)).collect();
    let known = mirror_states::read(core, mirror, filled.clone()).await;
    let has_failed = |partition: &TopicIdPartition| match known.get(partition) {
        Some(Ok(state)) => state.as_ref().is_some_and(|state| state.state == Some(MirrorState::Failed)),
        _ => true,
    };
    filled.retain(|partition| which == Which::All || has_failed(partition));
    let places = places(&filled, &known, &ends)?;
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let order = |&(partition, from): &(TopicIdPartition, Offset)| CountOrder {
        partition,
        from,
        records_max: limits::COUNTED_RECORDS_MAX,
    };
    let suffixes = MirrorHost::new(core.clone()).suffixes(places.iter().map(order).collect()).await;
    Ok(ranges(&places, &ends, suffixes.into_iter().map(Result::ok)))
}

/// The topics that a request names and those of the mirror that its patterns match; `None` where a pattern is none.
fn meant(core: &Rc<Core>, request: &RecoverMirrorTopicsRequest) -> Option<Vec<Str>> {
    let patterns = Patterns::parse(request.patterns.iter().map(|pattern| &**pattern)).ok()?;
    let named: BTreeSet<&str> = request.topics.iter().map(|topic| &*topic.topic_name).collect();
    let view = core.view();
    let bound = view.image().bindings().topics_of(&request.mirror_name).map(|topic| &**topic);
    let matched = bound.filter(|topic| patterns.matches(topic) && !named.contains(topic));
    let names = request.topics.iter().map(|topic| topic.topic_name.clone());
    Some(names.chain(matched.map(Str::from)).collect())
}

fn truncation(range: &LocalRange) -> MirrorTruncation {
    MirrorTruncation {
        partition_index: range.partition.partition.0,
        from_offset: range.from.0,
        to_offset: range.to.0,
    }
}
