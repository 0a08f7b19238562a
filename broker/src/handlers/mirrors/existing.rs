//! Topics that a mirror shall begin with, or try again, and that are here already: asking what `mirror::existing`
//! judges by, for all topics of a request together.

use std::collections::BTreeSet;
use std::rc::Rc;

use tarn_image::DesiredState;
use tarn_image::config::mirror::Patterns;
use tarn_mirror::existing::{Found, LocalRange, Unknown, Which, look, said};
use tarn_mirror::limits;
use tarn_mirror::reasons::Reason;
use tarn_record::TopicId;
use tarn_wire::messages::recover_mirror_topics_request::MirrorTopicName;
use tarn_wire::messages::start_mirror_topics_request::StartMirrorTopic;
use tarn_wire::messages::{
    RecoverMirrorTopicsRequest, StartMirrorTopicsRequest, recover_mirror_topics_response,
    start_mirror_topics_response,
};
use tarn_wire::{ErrorCode, Str};

use crate::coordinators::mirror_states;
use crate::core::Core;
use crate::mirror_host::MirrorHost;

/// Takes the topics that cannot be begun with out of a request, and says why.
pub(super) async fn refuse(
    core: &Rc<Core>,
    request: &mut StartMirrorTopicsRequest,
) -> Vec<start_mirror_topics_response::MirrorTopicResult> {
    let consent = Consent::of(request.allow_truncation);
    let topics = std::mem::take(&mut request.topics);
    let begun: Vec<Begun> =
        topics.iter().map(|topic| begun(core, &request.mirror_name, topic, consent)).collect();
    let ids = begun.iter().filter_map(|begun| if let Begun::Over(id) = begun { Some(*id) } else { None });
    let found = looked_at(core, &request.mirror_name, ids.collect(), Which::All).await;
    let mut refused = Vec::new();
    for (topic, begun) in topics.into_iter().zip(begun) {
        let refusal = match begun {
            Begun::Anew => None,
            Begun::Over(id) => Refusal::of(&found, id),
            Begun::Not(refusal) => Some(refusal),
        };
        match refusal {
            Some(refusal) => refused.push(refusal.of_topic(topic.topic_name).into()),
            None => request.topics.push(topic),
        }
    }
    refused
}

/// The same for topics that are to be tried again: those whose partitions have failed with records of their own. What
/// the source has lost only the leader of a partition can tell, who asks it.
pub(super) async fn refuse_recovery(
    core: &Rc<Core>,
    request: &mut RecoverMirrorTopicsRequest,
) -> Vec<recover_mirror_topics_response::MirrorTopicResult> {
    let mut refused = Vec::new();
    let Some(meant) = meant(core, request).filter(|_| !request.allow_truncation) else { return refused };
    request.patterns.clear();
    request.topics.clear();
    let ids: Vec<Option<TopicId>> =
        meant.iter().map(|name| tried_again(core, &request.mirror_name, name)).collect();
    let asked = ids.iter().copied().flatten().collect();
    let found = looked_at(core, &request.mirror_name, asked, Which::Failed).await;
    for (name, id) in meant.into_iter().zip(ids) {
        match id.and_then(|id| Refusal::of(&found, id)) {
            Some(refusal) => refused.push(refusal.of_topic(name).into()),
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

    fn of_topic(self, topic: Str) -> Refused {
        Refused { topic, refusal: self }
    }

    /// Where the topic holds records of its own, or it is not known whether it does.
    fn of(found: &Found, topic: TopicId) -> Option<Refusal> {
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

/// A topic with why it is not begun with.
struct Refused {
    topic: Str,
    refusal: Refusal,
}

/// As the answers to both requests say it, each with types of its own.
macro_rules! says_refused {
    ($($response:ident),*) => {$(
        impl From<Refused> for $response::MirrorTopicResult {
            fn from(Refused { topic: name, refusal }: Refused) -> Self {
                let Refusal { error, reason, why, ranges } = refusal;
                let truncation = |range: &LocalRange| $response::MirrorTruncation {
                    partition_index: range.partition.partition.0,
                    from_offset: range.from.0,
                    to_offset: range.to.0,
                    records: records_of(range),
                };
                let error_message = Some(format!("{reason}: {why}").into());
                let truncations = ranges.iter().map(truncation).collect();
                Self { name, error_code: error.0, error_message, truncations }
            }
        }
    )*};
}

says_refused!(start_mirror_topics_response, recover_mirror_topics_response);

fn begun(core: &Rc<Core>, mirror: &str, asked: &StartMirrorTopic, consent: Consent) -> Begun {
    let view = core.view();
    if view.binding(&asked.topic_name).is_some_and(|binding| binding.is_active()) {
        return Begun::Anew;
    }
    let Some(here) = view.topic_by_name(&asked.topic_name) else { return Begun::Anew };
    let there = TopicId(asked.topic_id);
    if !there.is_zero() && here.id != there {
        let why = format!("the topic has the id {} here and {there} at the source", here.id);
        return Begun::Not(Refusal::new(ErrorCode::INCONSISTENT_TOPIC_ID, Reason::TopicIdConflict, why));
    }
    // Of a mirror that does not exist nothing is known.
    if consent == Consent::Given || view.image().mirror(mirror).is_none() {
        return Begun::Anew;
    }
    Begun::Over(here.id)
}

/// The topic, where it is one that the mirror mirrors; the controller has its own words for others.
fn tried_again(core: &Rc<Core>, mirror: &str, topic: &str) -> Option<TopicId> {
    let view = core.view();
    let binding = view.binding(topic)?;
    let is_tried = &*binding.mirror == mirror && binding.desired == DesiredState::Mirroring;
    Some(view.topic_by_name(topic).filter(|_| is_tried)?.id)
}

async fn looked_at(core: &Rc<Core>, mirror: &str, topics: Vec<TopicId>, which: Which) -> Found {
    let host = MirrorHost::new(core.clone());
    let read = |partitions| mirror_states::read(core, mirror, partitions);
    look(&host, &topics, which, limits::COUNTED_WITHIN, read).await
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

/// How many records a range holds; −1 where they were not counted to the end.
fn records_of(range: &LocalRange) -> i64 {
    let counted = Some(range.suffix).filter(|suffix| !suffix.has_more);
    counted.map_or(-1, |suffix| i64::try_from(suffix.records).unwrap_or(i64::MAX))
}
