//! What is done for many partitions at once: questions to the coordinators, the controller, the owning cores
//! and the source, and what their answers mean.
//!
//! Of each kind one request is under way, and a kind is as narrow as what can hold it up: one coordinator,
//! one source broker. None waits for its own cluster for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_image::DesiredState;
use tarn_record::{Epoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::timeout;
use tarn_wire::messages::bump_leader_epochs_request::{BumpLeaderEpochsPartition, BumpLeaderEpochsTopic};
use tarn_wire::messages::read_mirror_states_request::{MirrorStatePartition, MirrorStateTopic};
use tarn_wire::messages::read_mirror_states_response::MirrorStatePartitionResult;
use tarn_wire::messages::write_mirror_states_request::{WriteMirrorStatePartition, WriteMirrorStateTopic};
use tarn_wire::messages::{BumpLeaderEpochsRequest, ReadMirrorStatesRequest, WriteMirrorStatesRequest};
use tarn_wire::{ErrorCode, Str};

use super::job::{Item, Outcome, Site, Work};
use super::{compare, ending, search, truncating};
use crate::crash_points;
use crate::fetch::progress::Clock;
use crate::limits;
use crate::local_cluster::{
    Gate, GateOrder, KnownState, LastPosition, LocalCluster, LocalError, MirrorGeneration,
};
use crate::partition::{Persisted, Want};
use crate::reasons::Reason;
use crate::state::MirrorState;

type Answers<T> = BTreeMap<TopicIdPartition, T>;

/// Does the work; one outcome for each item, in their order.
pub(super) async fn run(
    work: Work,
    site: &Site,
    cluster: &impl LocalCluster,
    items: Vec<Item>,
) -> Vec<Outcome> {
    let here = async {
        match work {
            Work::ReadStates(_) => read_states(&site.mirror, cluster, &items).await,
            Work::WriteStates(_) => write_states(site, cluster, &items).await,
            Work::Gates => set_gates(cluster, &items).await,
            Work::Compare(_) => compare::compare(site, cluster, &items).await,
            Work::Search(_) => search::search(site, cluster, &items).await,
            Work::RaiseEpochs => raise_epochs(cluster, &items).await,
            Work::Flush => ending::flush(site, cluster, &items).await,
            Work::EndLogs => ending::end_logs(site, cluster, &items).await,
            Work::Truncate => truncating::truncate(cluster, &items).await,
        }
    };
    // A comparison or a search waits for the source as well, within the limits of each call to it; a truncation for a copy
    // that takes as long as the disk does, and whose answer says what was dropped.
    if let Work::Compare(_) | Work::Search(_) | Work::Truncate = work {
        return here.await;
    }
    match timeout(limits::LOCAL_ANSWER_MAX, here).await {
        Ok(outcomes) => outcomes,
        Err(elapsed) => {
            let why = format!("no answer in {:?}", elapsed.0);
            all_failed(&items, work.unanswered(), &why)
        }
    }
}

async fn read_states(mirror: &str, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let partition = |item: &Item| MirrorStatePartition { partition_index: item.partition.partition.0 };
    let topics = by_topic(items, partition)
        .into_iter()
        .map(|(topic_name, id, partitions)| MirrorStateTopic { topic_name, topic_id: id.0, partitions })
        .collect();
    let response = match cluster.call(ReadMirrorStatesRequest { mirror_name: mirror.into(), topics }).await {
        Ok(response) => response,
        Err(error) => return all_failed(items, Reason::CoordinatorUnavailable, &error),
    };
    if let Some(why) = refusal(response.error_code, &response.error_message) {
        return all_failed(items, Reason::CoordinatorUnavailable, &why);
    }
    let mut answers: Answers<Outcome> = Answers::new();
    let mut known = Vec::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let partition = place(topic.topic_id, answer.partition_index);
            let outcome = match read_state(&answer) {
                Ok(persisted) => {
                    known.push((partition, known_state(&persisted)));
                    Outcome::Read(persisted, None)
                }
                Err(why) => Outcome::Failed(Reason::CoordinatorUnavailable, why),
            };
            answers.insert(partition, outcome);
        }
    }
    cluster.set_states(known).await;
    look_up_exports(cluster, &mut answers).await;
    in_order(items, answers, Reason::CoordinatorUnavailable)
}

/// Looks up what was exported of logs that may have been truncated under the state that was read: whoever ordered it
/// may have died since, or not have waited. What cannot be read holds nobody up, a stop least of all: it would have
/// been told, and nothing is decided by it.
async fn look_up_exports(cluster: &impl LocalCluster, answers: &mut Answers<Outcome>) {
    let may_be = |outcome: &Outcome| match outcome {
        Outcome::Read(persisted, _) => persisted.state.is_some_and(|state| state != MirrorState::Stopped),
        _ => false,
    };
    let asked: Vec<_> = answers.iter().filter(|(_, outcome)| may_be(outcome)).map(|(one, _)| *one).collect();
    if asked.is_empty() {
        return;
    }
    for (partition, noted) in asked.iter().zip(cluster.noted_exports(asked.clone()).await) {
        match (answers.get_mut(partition), noted) {
            (Some(Outcome::Read(_, found)), Ok(noted)) => *found = noted.map(Box::new),
            (Some(_), Err(LocalError::Storage { reason: why, .. })) => {
                tracing::warn!(%partition, %why, "whether its end was exported once cannot be looked up");
            }
            (Some(outcome), Err(error)) => *outcome = Outcome::refused_here(&error),
            _ => {}
        }
    }
}

fn known_state(persisted: &Persisted) -> KnownState {
    let version = persisted.version;
    persisted.state.map_or(KnownState::None, |state| KnownState::Known { state, version })
}

fn read_state(answer: &MirrorStatePartitionResult) -> Result<Persisted, String> {
    if let Some(why) = refusal(answer.error_code, &answer.error_message) {
        return Err(why);
    }
    let state = |byte| match byte {
        -1 => Ok(None),
        byte => MirrorState::from_byte(byte).map(Some).map_err(|error| error.to_string()),
    };
    let (state, previous) = (state(answer.state)?, state(answer.previous_state)?);
    Ok(Persisted {
        state,
        state_epoch: answer.state_epoch,
        version: answer.state_version,
        reason: answer.reason_code.as_ref().and_then(|code| Reason::from_code(code)),
        message: answer.error_message.as_ref().map(|message| Arc::from(&**message)),
        previous,
        position: (answer.last_mirror_offset >= 0).then_some(LastPosition {
            epoch: Epoch(answer.last_mirror_epoch),
            offset: Offset(answer.last_mirror_offset),
        }),
    })
}

async fn write_states(site: &Site, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let topics = by_topic(items, |item| state_to_write(item, &site.shared.clock))
        .into_iter()
        .map(|(topic_name, id, partitions)| WriteMirrorStateTopic { topic_name, topic_id: id.0, partitions })
        .collect();
    let mirror_name = Str::from(&*site.mirror);
    let response = match cluster.call(WriteMirrorStatesRequest { mirror_name, topics }).await {
        Ok(response) => response,
        Err(error) => return all_failed(items, Reason::CoordinatorUnavailable, &error),
    };
    if let Some(why) = refusal(response.error_code, &response.error_message) {
        return all_failed(items, Reason::CoordinatorUnavailable, &why);
    }
    let asked: Answers<(MirrorState, &Item)> = items
        .iter()
        .filter_map(|item| match item.want {
            Want::WriteState(state) => Some((item.partition, (state, item))),
            _ => None,
        })
        .collect();
    let mut answers: Answers<Outcome> = Answers::new();
    let mut known = Vec::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let partition = place(topic.topic_id, answer.partition_index);
            let Some(&(state, item)) = asked.get(&partition) else { continue };
            let outcome = match refusal(answer.error_code, &answer.error_message) {
                None => {
                    known.push((partition, KnownState::Known { state, version: item.bound.version }));
                    written(state, item, answer.state_epoch)
                }
                Some(why) => match ErrorCode(answer.error_code) {
                    ErrorCode::FENCED_STATE_EPOCH => Outcome::WrittenByOthers(why),
                    ErrorCode::FENCED_LEADER_EPOCH => Outcome::Failed(Reason::DestinationNoLeader, why),
                    _ => Outcome::Failed(Reason::CoordinatorUnavailable, why),
                },
            };
            answers.insert(partition, outcome);
        }
    }
    cluster.set_states(known).await;
    in_order(items, answers, Reason::CoordinatorUnavailable)
}

fn written(state: MirrorState, item: &Item, state_epoch: i32) -> Outcome {
    let version = item.bound.version;
    match (state, item.position) {
        (MirrorState::Stopping, Some(position)) => {
            crash_points::reached("stop.position_written");
            Outcome::StoppingWritten { position, known: item.known, state_epoch, version }
        }
        (MirrorState::Stopped, _) => {
            crash_points::reached("stop.report_written");
            Outcome::Written { state, state_epoch, version }
        }
        _ => Outcome::Written { state, state_epoch, version },
    }
}

fn state_to_write(item: &Item, clock: &Clock) -> WriteMirrorStatePartition {
    let Want::WriteState(state) = item.want else { return WriteMirrorStatePartition::default() };
    let is_failed = state == MirrorState::Failed;
    let said = match state {
        MirrorState::Failed => item.trouble.as_ref(),
        MirrorState::Mirroring => item.truncation_notice.as_ref(),
        _ => None,
    };
    let of_stop = match state {
        MirrorState::Stopping => ending::position_to_write(item, clock),
        MirrorState::Stopped => ending::report_to_write(item, clock),
        _ => WriteMirrorStatePartition::default(),
    };
    let of_export = || item.unreported.as_ref().map(ending::export_to_write);
    WriteMirrorStatePartition {
        partition_index: item.partition.partition.0,
        state: state.to_byte(),
        leader_epoch: item.bound.leader_epoch.0,
        state_epoch: item.state_epoch,
        state_version: item.bound.version,
        error_message: said.map(|(_, message)| Str::from(&**message)),
        reason_code: said.map(|(reason, _)| Str::from(reason.code())),
        retry_attempt: if is_failed { -1 } else { 0 },
        non_retryable: is_failed,
        report: of_stop.report.or_else(of_export),
        ..of_stop
    }
}

async fn set_gates(cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let gate = |item: &Item| if item.want == Want::OpenGate { Gate::Open } else { Gate::Closed };
    let order =
        |item: &Item| GateOrder { partition: item.partition, gate: gate(item), version: item.bound.version };
    let set = cluster.set_gates(items.iter().map(order).collect()).await;
    let outcome = |(item, result): (&Item, Result<MirrorGeneration, _>)| match (result, gate(item)) {
        (Ok(generation), Gate::Open) => Outcome::GateOpened(generation),
        (Ok(_), Gate::Closed) => {
            if item.bound.desired == DesiredState::Stopping {
                crash_points::reached("stop.gate_closed");
            }
            Outcome::GateClosed
        }
        (Err(error), _) => Outcome::refused_here(&error),
    };
    let mut outcomes: Vec<Outcome> = items.iter().zip(set).map(outcome).collect();
    fill(&mut outcomes, items.len(), Reason::DestinationNoLeader);
    outcomes
}

async fn raise_epochs(cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let above = |item: &Item| match item.want {
        Want::RaiseEpoch(above) => above,
        _ => Epoch::NONE,
    };
    let partition = |item: &Item| BumpLeaderEpochsPartition {
        partition_index: item.partition.partition.0,
        min_leader_epoch: above(item).0,
    };
    let topics = by_topic(items, partition)
        .into_iter()
        .map(|(topic_name, _, partitions)| BumpLeaderEpochsTopic { topic_name, partitions })
        .collect();
    let response = match cluster.call(BumpLeaderEpochsRequest { topics }).await {
        Ok(response) => response,
        Err(error) => return all_failed(items, Reason::ControllerUnavailable, &error),
    };
    if let Some(why) = refusal(response.error_code, &response.error_message) {
        return all_failed(items, Reason::ControllerUnavailable, &why);
    }
    let mut answers: BTreeMap<(Str, i32), Option<String>> = BTreeMap::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let why = refusal(answer.error_code, &answer.error_message);
            answers.insert((topic.topic_name.clone(), answer.partition_index), why);
        }
    }
    let outcome = |item: &Item| match answers.get(&(Str::from(&*item.topic), item.partition.partition.0)) {
        Some(None) => Outcome::Raised(above(item)),
        Some(Some(why)) => Outcome::Failed(Reason::ControllerUnavailable, why.clone()),
        None => unanswered(Reason::ControllerUnavailable),
    };
    items.iter().map(outcome).collect()
}

fn by_topic<T>(items: &[Item], partition: impl Fn(&Item) -> T) -> Vec<(Str, TopicId, Vec<T>)> {
    let mut topics: BTreeMap<TopicId, (Str, Vec<T>)> = BTreeMap::new();
    for item in items {
        let topic = topics.entry(item.partition.topic_id);
        topic.or_insert_with(|| (Str::from(&*item.topic), Vec::new())).1.push(partition(item));
    }
    topics.into_iter().map(|(id, (name, partitions))| (name, id, partitions)).collect()
}

pub(super) fn place(topic_id: uuid::Uuid, partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId(topic_id), partition: PartitionIndex(partition) }
}

/// Why an answer is none; `None` where it is one.
pub(super) fn refusal(code: i16, message: &Option<Str>) -> Option<String> {
    let code = ErrorCode(code);
    let why = message.as_ref().map_or(code.message(), |message| message);
    (code != ErrorCode::NONE).then(|| format!("{}: {why}", code.name()))
}

fn in_order(items: &[Item], mut answers: Answers<Outcome>, reason: Reason) -> Vec<Outcome> {
    items.iter().map(|item| answers.remove(&item.partition).unwrap_or_else(|| unanswered(reason))).collect()
}

fn all_failed(items: &[Item], reason: Reason, why: &impl std::fmt::Display) -> Vec<Outcome> {
    items.iter().map(|_| Outcome::Failed(reason, why.to_string())).collect()
}

pub(super) fn fill(outcomes: &mut Vec<Outcome>, count: usize, reason: Reason) {
    outcomes.resize_with(count, || unanswered(reason));
}

fn unanswered(reason: Reason) -> Outcome {
    Outcome::Failed(reason, "the answer leaves the partition out".to_owned())
}
