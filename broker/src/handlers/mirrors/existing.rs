//! Topics that a mirror shall begin with, or try again, and that are here already: asking what `mirror::existing`
//! judges by, for all topics of a request together.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_mirror::existing::{Found, LocalRange, Unknown, Which, look, said};
use tarn_mirror::limits;
use tarn_mirror::reasons::Reason;
use tarn_record::{BrokerId, TopicId, TopicIdPartition};
use tarn_wire::messages::StartMirrorTopicsRequest;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::start_mirror_topics_response::{MirrorTopicResult, MirrorTruncation};
use tarn_wire::{ErrorCode, Str};

use super::states::ends;
use crate::coordinators::mirror_states;
use crate::core::Core;
use crate::mirror_host::MirrorHost;

/// What was found of the topics of a request.
#[derive(Default)]
pub(super) struct Looked {
    /// Those that cannot be begun with, and why.
    pub(super) refused: Vec<MirrorTopicResult>,
    /// What would be dropped of the others: of a request that is only tried, and consents to it.
    dropped: BTreeMap<Str, Dropped>,
}

/// What would be dropped of a topic, or why that is not known.
type Dropped = Result<Vec<MirrorTruncation>, Str>;

/// Takes the topics that cannot be begun with out of a request, and says why.
pub(super) async fn look_at(core: &Rc<Core>, request: &mut StartMirrorTopicsRequest) -> Looked {
    let asked = Asked::of(request);
    let topics = std::mem::take(&mut request.topics);
    let begun: Vec<Begun> =
        topics.iter().map(|topic| begun(core, &request.mirror_name, topic, asked)).collect();
    let ids = begun.iter().filter_map(|begun| if let Begun::Over(id) = begun { Some(*id) } else { None });
    let found = looked_at(core, &request.mirror_name, ids.collect(), Which::All).await;
    let mut looked = Looked::default();
    for (topic, begun) in topics.into_iter().zip(begun) {
        let refusal = match begun {
            Begun::Anew => None,
            Begun::Over(id) => Refusal::of(&found, id),
            Begun::Not(refusal) => Some(refusal),
        };
        match refusal {
            Some(refusal) if asked == Asked::WhatIsDropped && refusal.reason != Reason::TopicIdConflict => {
                let dropped = dropped(core, &topic.topic_name, refusal).await;
                looked.dropped.insert(topic.topic_name.clone(), dropped);
                request.topics.push(topic);
            }
            Some(refusal) => looked.refused.push(MirrorTopicResult {
                name: topic.topic_name,
                error_code: refusal.error.0,
                error_message: Some(refusal.message()),
                truncations: refusal.ranges.iter().map(truncation).collect(),
            }),
            None => request.topics.push(topic),
        }
    }
    looked
}

impl Looked {
    /// Says of the topics that would be started what would be dropped of them.
    pub(super) fn tell(&mut self, started: &mut [MirrorTopicResult]) {
        for topic in started.iter_mut().filter(|topic| topic.error_code == ErrorCode::NONE.0) {
            match self.dropped.remove(&topic.name) {
                Some(Ok(dropped)) => topic.truncations = dropped,
                Some(Err(why)) => topic.error_message = Some(why),
                None => {}
            }
        }
    }
}

/// What would be dropped of a topic for the sake of what only it has. A compacted one goes whole.
async fn dropped(core: &Rc<Core>, topic: &str, refusal: Refusal) -> Dropped {
    if refusal.ranges.is_empty() {
        return Err(format!("what would be dropped is not known now: {}", refusal.message()).into());
    }
    let partitions: Vec<TopicIdPartition> = refusal.ranges.iter().map(|range| range.partition).collect();
    let ends = ends(core, &partitions).await;
    let dropped = |range: &LocalRange| {
        let place = export_place(core, topic, range.partition);
        let told = MirrorTruncation {
            reason_code: Some(refusal.reason.code().into()),
            export_broker_id: place.as_ref().map_or(-1, |(broker, _)| broker.0),
            export_directory: place.map(|(_, directory)| directory),
            ..truncation(range)
        };
        match ends.get(&range.partition) {
            Some(ends) if ends.compacted => {
                MirrorTruncation { from_offset: ends.log_start.0, records: -1, ..told }
            }
            _ => told,
        }
    };
    Ok(refusal.ranges.iter().map(dropped).collect())
}

/// The directory below which this node would export what is dropped of a partition that it leads.
pub(super) fn export_place(
    core: &Rc<Core>,
    topic: &str,
    partition: TopicIdPartition,
) -> Option<(BrokerId, Str)> {
    let us = core.node().broker_id();
    let (leader, _) = core.view().leader(partition)?;
    let directory = core.node().exports().path().join(format!("{topic}-{}", partition.partition));
    (leader == us).then(|| (us, directory.to_string_lossy().as_ref().into()))
}

/// What a request wants to know of what only this cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Whether there is any: it must not be dropped.
    WhetherAny,
    /// How much of it would be dropped.
    WhatIsDropped,
    /// Nothing: it may be dropped.
    Nothing,
}

impl Asked {
    fn of(request: &StartMirrorTopicsRequest) -> Asked {
        match (request.allow_truncation, request.validate_only) {
            (false, _) => Asked::WhetherAny,
            (true, true) => Asked::WhatIsDropped,
            (true, false) => Asked::Nothing,
        }
    }
}

/// What the metadata say of a topic that is to be begun with.
enum Begun {
    /// Nothing of it is here that could be dropped unasked; or the controller has its own words for it.
    Anew,
    /// It is here already.
    Over(TopicId),
    /// It cannot be.
    Not(Refusal),
}

/// Why a topic is not begun with.
pub(super) struct Refusal {
    pub(super) error: ErrorCode,
    reason: Reason,
    why: String,
    pub(super) ranges: Vec<LocalRange>,
}

impl Refusal {
    fn new(error: ErrorCode, reason: Reason, why: String) -> Refusal {
        Refusal { error, reason, why, ranges: Vec::new() }
    }

    /// What is said of it.
    pub(super) fn message(&self) -> Str {
        format!("{}: {}", self.reason, self.why).into()
    }

    /// Where the topic holds records of its own, or it is not known whether it does.
    pub(super) fn of(found: &Found, topic: TopicId) -> Option<Refusal> {
        match found.get(&topic)? {
            Err(Unknown { error, reason, why }) => Some(Refusal::new(*error, *reason, why.clone())),
            Ok(ranges) => {
                let why = said(ranges)?;
                let refusal =
                    Refusal::new(ErrorCode::INVALID_CLUSTER_MIRROR_STATE, Reason::LocalRecords, why);
                Some(Refusal { ranges: ranges.clone(), ..refusal })
            }
        }
    }
}

fn begun(core: &Rc<Core>, mirror: &str, topic: &StartMirrorTopic, asked: Asked) -> Begun {
    let view = core.view();
    if view.binding(&topic.topic_name).is_some_and(|binding| binding.is_active()) {
        return Begun::Anew;
    }
    let Some(here) = view.topic_by_name(&topic.topic_name) else { return Begun::Anew };
    let there = TopicId(topic.topic_id);
    if !there.is_zero() && here.id != there {
        let why = format!("the topic has the id {} here and {there} at the source", here.id);
        return Begun::Not(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, Reason::TopicIdConflict, why));
    }
    // More partitions than the source has are refused whatever is in them.
    let partitions_max = usize::try_from(topic.num_partitions).unwrap_or(usize::MAX);
    if here.partitions.len() > partitions_max.max(1) {
        return Begun::Anew;
    }
    // Of a mirror that does not exist nothing is known.
    if asked == Asked::Nothing || view.image().mirror(mirror).is_none() {
        return Begun::Anew;
    }
    Begun::Over(here.id)
}

/// Looks at topics that are here.
pub(super) async fn looked_at(core: &Rc<Core>, mirror: &str, topics: Vec<TopicId>, which: Which) -> Found {
    let host = MirrorHost::new(core.clone());
    let read = |partitions| mirror_states::read(core, mirror, partitions);
    look(&host, &topics, which, limits::COUNTED_WITHIN, read).await
}

fn truncation(range: &LocalRange) -> MirrorTruncation {
    MirrorTruncation {
        partition_index: partition_of(range),
        from_offset: range.from.0,
        to_offset: range.to.0,
        records: records_of(range),
        ..MirrorTruncation::default()
    }
}

/// The number of the partition that a range is of.
pub(super) fn partition_of(range: &LocalRange) -> i32 {
    range.partition.partition.0
}

/// How many records a range holds; −1 where they were not counted to the end.
pub(super) fn records_of(range: &LocalRange) -> i64 {
    let counted = Some(range.suffix).filter(|suffix| !suffix.has_more);
    counted.map_or(-1, |suffix| i64::try_from(suffix.records).unwrap_or(i64::MAX))
}
