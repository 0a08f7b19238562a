//! RecoverMirrorTopics: what is known of topics that are to be tried again, before the controller decides.
//!
//! What a failed partition has and its source had not was written down when it failed, so nobody asks the source here.
//!
//! Invariants:
//! * a topic of which every partition mirrors is left alone: no consent stays behind with it;
//! * topics whose own records would be dropped are refused without consent; the leader of a partition drops nothing
//!   without it in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tarn_image::DesiredState;
use tarn_image::config::mirror::Patterns;
use tarn_mirror::existing::{LocalRange, Which};
use tarn_mirror::reasons::Reason;
use tarn_mirror::state::MirrorState;
use tarn_record::{PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::describe_cluster_mirrors_response::DescribedMirrorPartition;
use tarn_wire::messages::recover_mirror_topics_request::MirrorTopicName;
use tarn_wire::messages::recover_mirror_topics_response::{MirrorTopicResult, MirrorTruncation};
use tarn_wire::messages::{RecoverMirrorTopicsRequest, RecoverMirrorTopicsResponse};
use tarn_wire::{ErrorCode, Str};

use super::apart::Apart;
use super::describe::rows;
use super::existing::{self, Refusal, export_place, looked_at};
use super::states::ends;
use super::verbs::recover_decided;
use crate::core::Core;

/// Serves RecoverMirrorTopics.
pub async fn recover(
    core: &Rc<Core>,
    mut request: RecoverMirrorTopicsRequest,
) -> RecoverMirrorTopicsResponse {
    let looked = look(core, &mut request).await;
    let mut response = recover_decided(core, request).await;
    for topic in response.topics.iter_mut().filter(|topic| topic.error_code == ErrorCode::NONE.0) {
        topic.truncations = looked.apart.get(&topic.name).cloned().unwrap_or_default();
    }
    response.topics.extend(looked.answered);
    response
}

/// What is known of the topics of a request.
#[derive(Default)]
struct Looked {
    /// Those that the controller has nothing to decide about, with their answers.
    answered: Vec<MirrorTopicResult>,
    /// What failed partitions of the others have and their source had not.
    apart: BTreeMap<Str, Vec<MirrorTruncation>>,
}

/// How the partitions of a topic stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Every one mirrors.
    Well,
    /// At least one has failed.
    Failed,
    /// They are on their way, or it is not known.
    Other,
}

/// Takes the topics out of a request that are refused or have no need of it.
async fn look(core: &Rc<Core>, request: &mut RecoverMirrorTopicsRequest) -> Looked {
    let mut looked = Looked::default();
    let Some(meant) = meant(core, request) else { return looked };
    request.patterns.clear();
    request.topics.clear();
    let mirror = request.mirror_name.clone();
    let ids: Vec<Option<TopicId>> = meant.iter().map(|name| tried_again(core, &mirror, name)).collect();
    let standing = standing(core, &mirror, ids.iter().copied().flatten()).await;
    let health = |id: &TopicId| standing.get(id).map_or(Health::Other, |rows| health_of(rows));
    let asked: Vec<TopicId> = match request.allow_truncation {
        true => Vec::new(),
        false => ids.iter().copied().flatten().filter(|id| health(id) == Health::Failed).collect(),
    };
    let found = looked_at(core, &mirror, asked, Which::Failed).await;
    for (name, id) in meant.into_iter().zip(ids) {
        let is_well = id.as_ref().is_some_and(|id| health(id) == Health::Well);
        match id.and_then(|id| Refusal::of(&found, id)) {
            Some(refusal) => looked.answered.push(refused(name, &refusal)),
            None if is_well => looked.answered.push(undone(name)),
            None => {
                if let Some((id, rows)) = id.and_then(|id| Some((id, standing.get(&id)?))) {
                    looked.apart.insert(name.clone(), apart(core, (id, &name), rows).await);
                }
                request.topics.push(MirrorTopicName { topic_name: name });
            }
        }
    }
    looked
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

/// The topic, where it is one that the mirror mirrors; the controller has its own words for others.
fn tried_again(core: &Rc<Core>, mirror: &str, topic: &str) -> Option<TopicId> {
    let view = core.view();
    let binding = view.binding(topic)?;
    let is_tried = &*binding.mirror == mirror && binding.desired == DesiredState::Mirroring;
    Some(view.topic_by_name(topic).filter(|_| is_tried)?.id)
}

/// What `describe` shows of each partition of these topics.
async fn standing(
    core: &Rc<Core>,
    mirror: &str,
    topics: impl Iterator<Item = TopicId>,
) -> BTreeMap<TopicId, Vec<DescribedMirrorPartition>> {
    let mut partitions = Vec::new();
    let topics: BTreeSet<TopicId> = topics.collect();
    {
        let view = core.view();
        for topic in topics.iter().filter_map(|id| view.topic_by_id(*id)) {
            let of_topic = topic.partitions.keys();
            partitions.extend(of_topic.map(|&partition| TopicIdPartition { topic_id: topic.id, partition }));
        }
    }
    let mut standing: BTreeMap<TopicId, Vec<DescribedMirrorPartition>> = BTreeMap::new();
    for (partition, row) in partitions.iter().zip(rows(core, mirror, &partitions).await) {
        standing.entry(partition.topic_id).or_default().push(row);
    }
    standing
}

fn health_of(rows: &[DescribedMirrorPartition]) -> Health {
    let is = |row: &DescribedMirrorPartition, state: MirrorState| &*row.state_value == state.name();
    match () {
        () if rows.iter().any(|row| is(row, MirrorState::Failed)) => Health::Failed,
        () if rows.iter().all(|row| is(row, MirrorState::Mirroring)) => Health::Well,
        () => Health::Other,
    }
}

/// What failed partitions of a topic have and their source had not.
async fn apart(
    core: &Rc<Core>,
    (id, name): (TopicId, &str),
    rows: &[DescribedMirrorPartition],
) -> Vec<MirrorTruncation> {
    let named = |row: &DescribedMirrorPartition| TopicIdPartition {
        topic_id: id,
        partition: PartitionIndex(row.partition_index),
    };
    let failed: Vec<_> = rows.iter().filter(|row| reason_to_drop(row).is_some()).collect();
    let partitions: Vec<TopicIdPartition> = failed.iter().map(|row| named(row)).collect();
    let ends = if partitions.is_empty() { Default::default() } else { ends(core, &partitions).await };
    failed
        .into_iter()
        .zip(partitions)
        .map(|(row, partition)| {
            let apart = row.error_message.as_deref().and_then(Apart::read);
            let apart = apart.and_then(|apart| apart.of(ends.get(&partition)));
            let place = export_place(core, name, partition);
            MirrorTruncation {
                partition_index: row.partition_index,
                from_offset: apart.map_or(-1, |apart| apart.from.0),
                to_offset: apart.map_or(-1, |apart| apart.to.0),
                records: apart.and_then(|apart| apart.records).unwrap_or(-1),
                reason_code: reason_to_drop(row).map(|reason| reason.code().into()),
                export_broker_id: place.as_ref().map_or(-1, |(broker, _)| broker.0),
                export_directory: place.map(|(_, directory)| directory),
            }
        })
        .collect()
}

/// The reason of a partition that has failed for what only it has.
fn reason_to_drop(row: &DescribedMirrorPartition) -> Option<Reason> {
    let has_failed = &*row.state_value == MirrorState::Failed.name();
    let reason = row.reason_code.as_deref().and_then(Reason::from_code).filter(|_| has_failed)?;
    matches!(reason, Reason::SourceTruncated | Reason::LocalRecords).then_some(reason)
}

fn refused(name: Str, refusal: &Refusal) -> MirrorTopicResult {
    let truncation = |range: &LocalRange| MirrorTruncation {
        partition_index: existing::partition_of(range),
        from_offset: range.from.0,
        to_offset: range.to.0,
        records: existing::records_of(range),
        ..MirrorTruncation::default()
    };
    MirrorTopicResult {
        name,
        error_code: refusal.error.0,
        error_message: Some(refusal.message()),
        truncations: refusal.ranges.iter().map(truncation).collect(),
    }
}

/// The answer for a topic that has not failed.
fn undone(name: Str) -> MirrorTopicResult {
    let why = format!("Every partition of topic '{name}' is mirroring, so there is nothing to recover.");
    MirrorTopicResult { name, error_message: Some(why.into()), ..MirrorTopicResult::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_well_only_where_every_partition_mirrors() {
        let rows = |states: &[MirrorState]| {
            let row = |state: &MirrorState| row(*state, None);
            states.iter().map(row).collect::<Vec<_>>()
        };
        use MirrorState::{Failed, LogAlignment, Mirroring, Paused};
        assert_eq!(health_of(&rows(&[Mirroring, Mirroring])), Health::Well);
        assert_eq!(health_of(&rows(&[Mirroring, LogAlignment, Failed])), Health::Failed);
        assert_eq!(
            health_of(&rows(&[Mirroring, LogAlignment])),
            Health::Other,
            "a consent may be meant for it"
        );
        assert_eq!(health_of(&rows(&[Mirroring, Paused])), Health::Other);
        let unknown = DescribedMirrorPartition { state_value: "UNKNOWN".into(), ..row(Mirroring, None) };
        assert_eq!(health_of(&[row(Mirroring, None), unknown]), Health::Other);
    }

    #[test]
    fn only_what_failed_for_what_the_source_has_not_has_something_to_drop() {
        let reason = |state, code| reason_to_drop(&row(state, Some(code)));
        assert_eq!(reason(MirrorState::Failed, "SOURCE_TRUNCATED"), Some(Reason::SourceTruncated));
        assert_eq!(reason(MirrorState::Failed, "LOCAL_RECORDS"), Some(Reason::LocalRecords));
        assert_eq!(reason(MirrorState::Failed, "DESTINATION_STORAGE"), None);
        assert_eq!(reason(MirrorState::Mirroring, "SOURCE_TRUNCATED"), None, "that was cut before");
    }

    fn row(state: MirrorState, code: Option<&str>) -> DescribedMirrorPartition {
        DescribedMirrorPartition {
            state_value: state.name().into(),
            reason_code: code.map(Str::from),
            ..DescribedMirrorPartition::default()
        }
    }
}
