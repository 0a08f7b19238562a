//! Ending a stop in the metadata: once the coordinators hold STOPPED for every partition of a topic, the controller
//! is told, and the topic's binding goes from stopping to stopped (mirroring.md §2).
//!
//! Clients may write before that; it frees leaders from asking coordinators, and lets the topic be mirrored again. Done
//! by the mirror's home broker, which may lead none of the topic's partitions, for many topics at once.
//!
//! Invariants:
//! * the controller is told only of what coordinators have just answered, all of it at the version of the stop;
//! * one question is under way at a time; what could not be completed is tried again without end, less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_image::{Binding, DesiredState};
use tarn_record::{TopicId, TopicIdPartition};
use tarn_runtime::{Elapsed, Queue, spawn, timeout};
use tarn_wire::Str;
use tarn_wire::messages::complete_mirror_stop_request::CompletedMirrorStop;
use tarn_wire::messages::complete_mirror_stop_response::MirrorTopicResult;
use tarn_wire::messages::read_mirror_states_request::{MirrorStatePartition, MirrorStateTopic};
use tarn_wire::messages::read_mirror_states_response::MirrorStateTopicResult;
use tarn_wire::messages::{CompleteMirrorStopRequest, ReadMirrorStatesRequest};

use super::following::is_home;
use super::mirror::{Context, Mirror};
use super::shared::Event;
use super::work::{place, refusal};
use crate::backoff::Backoff;
use crate::crash_points;
use crate::limits;
use crate::local_cluster::LocalCluster;
use crate::reasons::Reason;
use crate::state::MirrorState;

/// The topics of a mirror that are stopping.
#[derive(Debug, Default)]
pub(super) struct Completing {
    /// With the version of the stop.
    stopping: BTreeMap<TopicId, i64>,
    /// Those whose partitions may all have stopped by now.
    to_look_at: BTreeSet<TopicId>,
    /// This broker is the mirror's home.
    is_home: bool,
    is_running: bool,
    not_before_ms: u64,
    attempts: u32,
}

/// What became of a topic.
#[derive(Debug)]
pub(super) enum Completion {
    /// The controller has written it down.
    Done,
    /// A partition has not stopped.
    NotYet,
    /// It is not known, or not written down.
    Failed(Reason, String),
}

/// A topic whose partitions may all have stopped.
struct Candidate {
    id: TopicId,
    name: Arc<str>,
    version: i64,
    partitions: Vec<TopicIdPartition>,
}

impl Completing {
    /// The binding of a topic is this now.
    pub(super) fn bound(&mut self, topic: TopicId, binding: &Binding) {
        if binding.desired == DesiredState::Stopping {
            self.stopping.insert(topic, binding.version);
            self.look_at(topic);
        } else {
            self.gone(topic);
        }
    }

    /// A topic is not of the mirror any more, or not stopping.
    pub(super) fn gone(&mut self, topic: TopicId) {
        self.stopping.remove(&topic);
        self.to_look_at.remove(&topic);
    }

    /// Something has happened to a topic that may have been the last that was missing.
    pub(super) fn look_at(&mut self, topic: TopicId) {
        if self.stopping.contains_key(&topic) {
            self.to_look_at.insert(topic);
        }
    }

    /// When to look again without anything happening.
    pub(super) fn due_ms(&self) -> u64 {
        let is_due = self.is_home && !self.is_running && !self.to_look_at.is_empty();
        if is_due { self.not_before_ms } else { u64::MAX }
    }

    /// Some of a question could not be completed.
    fn missed(&mut self, now_ms: u64) {
        self.attempts = self.attempts.saturating_add(1);
        let wait_ms = Backoff::new(limits::HOLD_MS).wait_ms(self.attempts, fastrand::f64());
        self.not_before_ms = now_ms + wait_ms;
    }
}

impl Mirror {
    /// Begins to complete the stops of topics that may have stopped, on the mirror's home broker.
    pub(super) fn begin_completing(&mut self, cluster: &impl LocalCluster, context: &Context<'_>) {
        if self.completing.stopping.is_empty() {
            return;
        }
        self.completing.is_home = is_home(&self.life.mirror, context.image, cluster.broker_id());
        if self.completing.due_ms() > context.now_ms {
            return;
        }
        let candidates = self.candidates(context);
        if candidates.is_empty() {
            return;
        }
        self.completing.is_running = true;
        let (life, shared, cluster) = (self.life.clone(), context.shared.clone(), cluster.clone());
        spawn(Queue::Mirror, async move {
            let results = complete(&life.mirror, &cluster, &candidates).await;
            shared.events.put(Event::Completed { mirror: life, results });
        })
        .detach();
    }

    /// The topics to ask for: those of which nothing that is led here is missing, as many as are one question.
    fn candidates(&mut self, context: &Context<'_>) -> Vec<Candidate> {
        let (mut candidates, mut partitions) = (Vec::new(), 0);
        while partitions < limits::PARTITIONS_PER_REQUEST_MAX
            && let Some(id) = self.completing.to_look_at.pop_first()
        {
            let Some(&version) = self.completing.stopping.get(&id) else { continue };
            let Some(topic) = context.image.topics().by_id(id) else { continue };
            let here = self.partitions_of(id);
            let has_stopped = |one| self.partitions.get(one).is_some_and(|one| one.partition.has_stopped());
            if !here.iter().all(has_stopped) {
                continue;
            }
            let all = topic.partitions.keys().map(|&partition| TopicIdPartition { topic_id: id, partition });
            let candidate = Candidate { id, name: topic.name.clone(), version, partitions: all.collect() };
            partitions += candidate.partitions.len();
            candidates.push(candidate);
        }
        candidates
    }

    /// A question has been answered.
    pub(super) fn completed(&mut self, results: Vec<(TopicId, Completion)>, context: &mut Context<'_>) {
        self.completing.is_running = false;
        let is_missed = |(_, result): &(TopicId, Completion)| !matches!(result, Completion::Done);
        if results.iter().any(is_missed) {
            self.completing.missed(context.now_ms);
        } else {
            self.completing.attempts = 0;
        }
        let (mut failed, mut first) = (0, None);
        for (topic, result) in results {
            let (reason, why): (Reason, Arc<str>) = match result {
                // The metadata will show it.
                Completion::Done => continue,
                Completion::NotYet => {
                    self.completing.look_at(topic);
                    continue;
                }
                Completion::Failed(reason, why) => (reason, Arc::from(why)),
            };
            self.completing.look_at(topic);
            for partition in self.partitions_of(topic) {
                self.fail(partition, reason, why.clone(), context);
                self.show(partition, None, context.shared);
            }
            failed += 1;
            first.get_or_insert((topic, reason, why));
        }
        if let Some((topic, reason, why)) = first {
            let (mirror, reason) = (&self.life.mirror, reason.code());
            tracing::warn!(%mirror, topics = failed, first = %topic, reason, %why, "stops not completed yet");
        }
    }
}

/// Asks the coordinators whether topics have stopped, and tells the controller of those that have.
async fn complete(
    mirror: &str,
    cluster: &impl LocalCluster,
    candidates: &[Candidate],
) -> Vec<(TopicId, Completion)> {
    let known = match timeout(limits::LOCAL_ANSWER_MAX, stops_of(mirror, cluster, candidates)).await {
        Ok(known) => known,
        Err(elapsed) => return all_failed(candidates, Reason::CoordinatorUnavailable, elapsed),
    };
    let (mut results, mut stopped) = (Vec::with_capacity(candidates.len()), Vec::new());
    for topic in candidates {
        match judge(topic, &known) {
            Some(result) => results.push((topic.id, result)),
            None => stopped.push(topic),
        }
    }
    if stopped.is_empty() {
        return results;
    }
    match timeout(limits::LOCAL_ANSWER_MAX, tell(mirror, cluster, &stopped)).await {
        Ok(told) => results.extend(told),
        Err(elapsed) => results.extend(all_failed(stopped, Reason::ControllerUnavailable, elapsed)),
    }
    results
}

/// The version at which a partition is STOPPED, `None` where it is not; or why that is not known.
type Stops = BTreeMap<TopicIdPartition, Result<Option<i64>, String>>;

async fn stops_of(mirror: &str, cluster: &impl LocalCluster, candidates: &[Candidate]) -> Stops {
    let all: Vec<(&Candidate, TopicIdPartition)> = candidates
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (topic, *partition)))
        .collect();
    let mut stops = Stops::new();
    for some in all.chunks(limits::PARTITIONS_PER_REQUEST_MAX) {
        let answer = cluster.call(to_read(mirror, some)).await.map_err(|error| error.to_string());
        let answer = answer.and_then(|answer| match refusal(answer.error_code, &answer.error_message) {
            Some(why) => Err(why),
            None => Ok(answer),
        });
        match answer {
            Ok(answer) => stops.extend(answer.topics.iter().flat_map(stops_in)),
            Err(why) => stops.extend(some.iter().map(|(_, partition)| (*partition, Err(why.clone())))),
        }
    }
    stops
}

fn to_read(mirror: &str, partitions: &[(&Candidate, TopicIdPartition)]) -> ReadMirrorStatesRequest {
    let mut topics: BTreeMap<TopicId, MirrorStateTopic> = BTreeMap::new();
    for (topic, partition) in partitions {
        let asked = topics.entry(topic.id).or_insert_with(|| MirrorStateTopic {
            topic_name: Str::from(&*topic.name),
            topic_id: topic.id.0,
            partitions: Vec::new(),
        });
        asked.partitions.push(MirrorStatePartition { partition_index: partition.partition.0 });
    }
    ReadMirrorStatesRequest { mirror_name: mirror.into(), topics: topics.into_values().collect() }
}

fn stops_in(
    topic: &MirrorStateTopicResult,
) -> impl Iterator<Item = (TopicIdPartition, Result<Option<i64>, String>)> {
    topic.partitions.iter().map(|answer| {
        let stopped = answer.state == MirrorState::Stopped.to_byte();
        let stop = match refusal(answer.error_code, &answer.error_message) {
            Some(why) => Err(why),
            None => Ok(stopped.then_some(answer.state_version)),
        };
        (place(topic.topic_id, answer.partition_index), stop)
    })
}

/// What is missing of a topic's stop; `None` where nothing is.
fn judge(topic: &Candidate, stops: &Stops) -> Option<Completion> {
    let mut not_yet = None;
    for partition in &topic.partitions {
        match stops.get(partition) {
            Some(Ok(Some(version))) if *version == topic.version => {}
            Some(Ok(_)) => not_yet = Some(Completion::NotYet),
            Some(Err(why)) => return Some(Completion::Failed(Reason::CoordinatorUnavailable, why.clone())),
            None => {
                let why = format!("the answer leaves {partition} out");
                return Some(Completion::Failed(Reason::CoordinatorUnavailable, why));
            }
        }
    }
    not_yet
}

/// Tells the controller of topics that have stopped.
async fn tell(
    mirror: &str,
    cluster: &impl LocalCluster,
    topics: &[&Candidate],
) -> Vec<(TopicId, Completion)> {
    let told = topics.iter().map(|topic| CompletedMirrorStop {
        topic_name: Str::from(&*topic.name),
        topic_id: topic.id.0,
        state_version: topic.version,
    });
    let request = CompleteMirrorStopRequest { mirror_name: mirror.into(), topics: told.collect() };
    let answer = cluster.call(request).await.map_err(|error| error.to_string());
    let answers: Result<BTreeMap<Str, Option<String>>, String> = answer.and_then(|answer| {
        let of_topic = |topic: MirrorTopicResult| {
            let why = refusal(topic.error_code, &topic.error_message);
            (topic.name, why)
        };
        match refusal(answer.error_code, &answer.error_message) {
            Some(why) => Err(why),
            None => Ok(answer.topics.into_iter().map(of_topic).collect()),
        }
    });
    let result = |topic: &Candidate| {
        let answer = answers.as_ref().map(|answers| answers.get(&Str::from(&*topic.name)));
        let why = match answer {
            Ok(Some(None)) => {
                crash_points::reached("stop.completed");
                tracing::info!(%mirror, topic = %topic.name, version = topic.version, "stopped");
                return Completion::Done;
            }
            Ok(Some(Some(why))) | Err(why) => why.clone(),
            Ok(None) => "the answer leaves the topic out".to_owned(),
        };
        Completion::Failed(Reason::ControllerUnavailable, why)
    };
    topics.iter().map(|topic| (topic.id, result(topic))).collect()
}

fn all_failed<'a>(
    topics: impl IntoIterator<Item = &'a Candidate>,
    reason: Reason,
    elapsed: Elapsed,
) -> Vec<(TopicId, Completion)> {
    let failed =
        |topic: &Candidate| (topic.id, Completion::Failed(reason, format!("no answer in {:?}", elapsed.0)));
    topics.into_iter().map(failed).collect()
}
