//! What is done for many partitions at once: questions to the coordinators, the controller, the owning cores
//! and the source, and what their answers mean.
//!
//! Of each kind one request is under way, and a kind is as narrow as what can hold it up: one coordinator,
//! one source broker. None waits for its own cluster for ever.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tarn_image::config::mirror::MirrorConfig;
use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicId, TopicIdPartition};
use tarn_runtime::timeout;
use tarn_transport::Endpoint;
use tarn_wire::messages::bump_leader_epochs_request::{BumpLeaderEpochsPartition, BumpLeaderEpochsTopic};
use tarn_wire::messages::read_mirror_states_request::{MirrorStatePartition, MirrorStateTopic};
use tarn_wire::messages::read_mirror_states_response::MirrorStatePartitionResult;
use tarn_wire::messages::write_mirror_states_request::{WriteMirrorStatePartition, WriteMirrorStateTopic};
use tarn_wire::messages::{BumpLeaderEpochsRequest, ReadMirrorStatesRequest, WriteMirrorStatesRequest};
use tarn_wire::{ErrorCode, Str};

use super::compare;
use crate::alignment::{Alignment, Content};
use crate::fetch::budget::FetchBudget;
use crate::limits;
use crate::local_cluster::{Gate, GateOrder, KnownState, LocalCluster, MirrorGeneration};
use crate::partition::{Bound, Persisted, Want};
use crate::reasons::Reason;
use crate::source::connections::Connections;
use crate::source::metadata::SourceLeader;
use crate::state::MirrorState;

/// The kinds of work; of each, one request at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Asking the coordinator that is this partition of `__mirror_state`.
    ReadStates(PartitionIndex),
    /// Having it write.
    WriteStates(PartitionIndex),
    /// Opening and closing gates.
    Gates,
    /// Comparing histories with one source broker.
    Compare(BrokerId),
    /// Having the controller raise leader epochs.
    RaiseEpochs,
}

impl Work {
    /// The work that a partition wants, whose state this coordinator keeps.
    pub(super) fn of(want: Want, coordinator: PartitionIndex) -> Option<Work> {
        match want {
            Want::ReadState => Some(Work::ReadStates(coordinator)),
            Want::WriteState(_) => Some(Work::WriteStates(coordinator)),
            Want::OpenGate | Want::CloseGate => Some(Work::Gates),
            Want::Compare(leader) => Some(Work::Compare(leader.broker)),
            Want::RaiseEpoch(_) => Some(Work::RaiseEpochs),
            Want::Nothing | Want::Wait(_) | Want::SourceMetadata | Want::Fetch(..) | Want::LeaveLane => None,
        }
    }

    /// True where this is the work that a partition wants. Its coordinator may have become another one since
    /// it was queued: the request finds the right one.
    pub(super) fn is_wanted(self, want: Want) -> bool {
        let coordinator = match self {
            Work::ReadStates(coordinator) | Work::WriteStates(coordinator) => coordinator,
            Work::Gates | Work::Compare(_) | Work::RaiseEpochs => PartitionIndex(0),
        };
        Work::of(want, coordinator) == Some(self)
    }

    /// The reason of partitions whose own cluster does not answer in time.
    fn unanswered(self) -> Reason {
        match self {
            Work::ReadStates(_) | Work::WriteStates(_) => Reason::CoordinatorUnavailable,
            Work::Gates | Work::Compare(_) => Reason::DestinationNoLeader,
            Work::RaiseEpochs => Reason::ControllerUnavailable,
        }
    }

    /// The source broker that is asked.
    pub(super) fn broker(self) -> Option<BrokerId> {
        match self {
            Work::Compare(broker) => Some(broker),
            _ => None,
        }
    }
}

/// A partition for which work is done.
pub(super) struct Item {
    pub(super) partition: TopicIdPartition,
    pub(super) life: u64,
    pub(super) topic: Arc<str>,
    pub(super) want: Want,
    pub(super) bound: Bound,
    pub(super) state_epoch: i32,
    pub(super) trouble: Option<(Reason, Arc<str>)>,
    pub(super) content: Content,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What the coordinator has.
    Read(Persisted),
    /// The coordinator has written the state as this number, for this version of the binding.
    Written { state: MirrorState, state_epoch: i32, version: i64 },
    /// Somebody else has written meanwhile.
    WrittenByOthers,
    /// The gate is closed.
    GateClosed,
    /// The gate is open.
    GateOpened(MirrorGeneration),
    /// Histories were compared with this leader's.
    Compared(SourceLeader, Alignment),
    /// The controller has raised the leader epoch above this; the metadata will show it.
    Raised(Epoch),
    /// The source's broker does not lead it.
    SourceLost(ErrorCode),
    /// It went wrong.
    Failed(Reason, String),
}

/// Where work is done.
pub(super) struct Site {
    pub(super) mirror: Arc<str>,
    pub(super) connections: Rc<Connections>,
    /// The source broker that is asked, where one is.
    pub(super) endpoint: Option<Endpoint>,
    pub(super) config: Arc<MirrorConfig>,
    pub(super) batch_max_bytes: usize,
    pub(super) budget: Arc<FetchBudget>,
}

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
            Work::WriteStates(_) => write_states(&site.mirror, cluster, &items).await,
            Work::Gates => set_gates(cluster, &items).await,
            Work::Compare(_) => compare::compare(site, cluster, &items).await,
            Work::RaiseEpochs => raise_epochs(cluster, &items).await,
        }
    };
    // A comparison waits for the source as well, within the limits of each call to it.
    if let Work::Compare(_) = work {
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
            let outcome = read_state(&answer);
            if let Outcome::Read(persisted) = &outcome {
                known.push((partition, persisted.state.map_or(KnownState::None, KnownState::Known)));
            }
            answers.insert(partition, outcome);
        }
    }
    cluster.set_states(known).await;
    in_order(items, answers, Reason::CoordinatorUnavailable)
}

fn read_state(answer: &MirrorStatePartitionResult) -> Outcome {
    if let Some(why) = refusal(answer.error_code, &answer.error_message) {
        return Outcome::Failed(Reason::CoordinatorUnavailable, why);
    }
    let state = |byte| match byte {
        -1 => Ok(None),
        byte => MirrorState::from_byte(byte).map(Some),
    };
    let (state, previous) = match (state(answer.state), state(answer.previous_state)) {
        (Ok(state), Ok(previous)) => (state, previous),
        (Err(error), _) | (_, Err(error)) => {
            return Outcome::Failed(Reason::CoordinatorUnavailable, error.to_string());
        }
    };
    Outcome::Read(Persisted {
        state,
        state_epoch: answer.state_epoch,
        version: answer.state_version,
        reason: answer.reason_code.as_ref().and_then(|code| Reason::from_code(code)),
        message: answer.error_message.as_ref().map(|message| Arc::from(&**message)),
        previous,
    })
}

async fn write_states(mirror: &str, cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let topics = by_topic(items, state_to_write)
        .into_iter()
        .map(|(topic_name, id, partitions)| WriteMirrorStateTopic { topic_name, topic_id: id.0, partitions })
        .collect();
    let response = match cluster.call(WriteMirrorStatesRequest { mirror_name: mirror.into(), topics }).await {
        Ok(response) => response,
        Err(error) => return all_failed(items, Reason::CoordinatorUnavailable, &error),
    };
    if let Some(why) = refusal(response.error_code, &response.error_message) {
        return all_failed(items, Reason::CoordinatorUnavailable, &why);
    }
    let states: Answers<(MirrorState, i64)> = items
        .iter()
        .filter_map(|item| match item.want {
            Want::WriteState(state) => Some((item.partition, (state, item.bound.version))),
            _ => None,
        })
        .collect();
    let mut answers: Answers<Outcome> = Answers::new();
    let mut known = Vec::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let partition = place(topic.topic_id, answer.partition_index);
            let Some(&(state, version)) = states.get(&partition) else { continue };
            let outcome = match refusal(answer.error_code, &answer.error_message) {
                None => {
                    known.push((partition, KnownState::Known(state)));
                    Outcome::Written { state, state_epoch: answer.state_epoch, version }
                }
                Some(why) => match ErrorCode(answer.error_code) {
                    ErrorCode::FENCED_STATE_EPOCH => Outcome::WrittenByOthers,
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

fn state_to_write(item: &Item) -> WriteMirrorStatePartition {
    let state = match item.want {
        Want::WriteState(state) => state.to_byte(),
        _ => -1,
    };
    let is_failed = state == MirrorState::Failed.to_byte();
    let trouble = item.trouble.as_ref().filter(|_| is_failed);
    WriteMirrorStatePartition {
        partition_index: item.partition.partition.0,
        state,
        leader_epoch: item.bound.leader_epoch.0,
        state_epoch: item.state_epoch,
        state_version: item.bound.version,
        error_message: trouble.map(|(_, message)| Str::from(&**message)),
        reason_code: trouble.map(|(reason, _)| Str::from(reason.code())),
        retry_attempt: if is_failed { -1 } else { 0 },
        non_retryable: is_failed,
        ..WriteMirrorStatePartition::default()
    }
}

async fn set_gates(cluster: &impl LocalCluster, items: &[Item]) -> Vec<Outcome> {
    let gate = |item: &Item| if item.want == Want::OpenGate { Gate::Open } else { Gate::Closed };
    let order =
        |item: &Item| GateOrder { partition: item.partition, gate: gate(item), version: item.bound.version };
    let set = cluster.set_gates(items.iter().map(order).collect()).await;
    let outcome = |(item, result): (&Item, Result<MirrorGeneration, _>)| match (result, gate(item)) {
        (Ok(generation), Gate::Open) => Outcome::GateOpened(generation),
        (Ok(_), Gate::Closed) => Outcome::GateClosed,
        (Err(error), _) => Outcome::Failed(Reason::DestinationNoLeader, format!("{error}")),
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

fn place(topic_id: uuid::Uuid, partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId(topic_id), partition: PartitionIndex(partition) }
}

/// Why an answer is none; `None` where it is one.
fn refusal(code: i16, message: &Option<Str>) -> Option<String> {
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

fn fill(outcomes: &mut Vec<Outcome>, count: usize, reason: Reason) {
    outcomes.resize_with(count, || unanswered(reason));
}

fn unanswered(reason: Reason) -> Outcome {
    Outcome::Failed(reason, "the answer leaves the partition out".to_owned())
}
