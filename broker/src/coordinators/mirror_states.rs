//! The way to the mirror coordinators: which partition of `__mirror_state` holds the state of a mirrored
//! partition, and what may be written there at all.
//!
//! The coordinators' machines tell writers apart by their epochs; what there is to be written about, only
//! the metadata knows. So a write is held against the image before it reaches a machine: nothing is stored
//! of a mirror, a topic id or a partition that does not exist, or of a topic that another mirror fills.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use tarn_image::MetadataImage;
use tarn_mirror::coordinator::{
    PartitionState, STATE_TOPIC, StateRequest, StateResponse, StateWrite, StopReport, WriteRefused,
    coordinator_partition,
};
use tarn_record::TopicIdPartition;
use tarn_runtime::channel::{self, Reply};
use tarn_wire::ErrorCode;
use tarn_wire::messages::write_mirror_states_request::WriteMirrorStatePartition;
use thiserror::Error;

use super::mirror::CoordinatorCall;
use crate::core::Core;
use crate::envelope::Envelope;

/// What one partition's coordinator knows, or why it does not answer.
pub type Known = HashMap<TopicIdPartition, Result<Option<PartitionState>, ErrorCode>>;

/// What became of each write: the new state epoch, or why it was not taken.
pub type Written = HashMap<TopicIdPartition, Result<i32, Unwritten>>;

/// Why a write was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// The metadata knows nothing of the kind.
    Unbound(Unbound),
    /// Its coordinator has seen a newer writer.
    Refused(WriteRefused),
    /// No coordinator answers.
    Unanswered(ErrorCode),
}

/// Something of which no state is kept. It may be that this broker has not heard of it yet.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unbound {
    /// There is no such mirror.
    #[error("there is no mirror {0}")]
    Mirror(String),
    /// There is no topic of this id.
    #[error("there is no topic with the id of {0}")]
    TopicId(TopicIdPartition),
    /// The topic has no such partition.
    #[error("there is no partition {0}")]
    Partition(TopicIdPartition),
    /// The topic belongs to another mirror or to none.
    #[error("topic {topic} does not belong to mirror {mirror}")]
    Topic {
        /// The topic.
        topic: String,
        /// The mirror of the request.
        mirror: String,
    },
}

impl Unwritten {
    /// The error code of the protocol.
    pub fn code(&self) -> ErrorCode {
        match self {
            Unwritten::Unbound(Unbound::Mirror(_)) => ErrorCode::UNKNOWN_CLUSTER_MIRROR,
            Unwritten::Unbound(Unbound::TopicId(_)) => ErrorCode::UNKNOWN_TOPIC_ID,
            Unwritten::Unbound(Unbound::Partition(_)) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Unwritten::Unbound(Unbound::Topic { .. }) => ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR,
            Unwritten::Refused(why) => why.code(),
            Unwritten::Unanswered(error) => *error,
        }
    }

    /// A sentence, where there is more to say than the code does.
    pub fn message(&self) -> Option<String> {
        match self {
            Unwritten::Unbound(why) => Some(why.to_string()),
            Unwritten::Refused(why) => Some(why.to_string()),
            Unwritten::Unanswered(_) => None,
        }
    }
}

/// What the coordinators know of partitions of a mirror; an error where one does not answer.
pub async fn read(core: &Rc<Core>, mirror: &str, partitions: Vec<TopicIdPartition>) -> Known {
    let mut known = Known::new();
    let by_coordinator = match by_coordinator(core, mirror, partitions.iter().map(|one| (*one, ())).collect())
    {
        Ok(by_coordinator) => by_coordinator,
        Err(error) => return partitions.into_iter().map(|one| (one, Err(error))).collect(),
    };
    let mut asked_all = Vec::with_capacity(by_coordinator.len());
    for (coordinator, asked) in by_coordinator {
        let asked: Vec<_> = asked.into_iter().map(|(partition, ())| partition).collect();
        let request = StateRequest::Read(mirror.to_owned(), asked.clone());
        asked_all.push((asked, ask(core, coordinator, request).await));
    }
    for (asked, answer) in asked_all {
        match answered(answer).await {
            Ok(StateResponse::Read(states)) => {
                known.extend(states.into_iter().map(|(partition, state)| (partition, Ok(state))));
            }
            Ok(_) => known.extend(asked.into_iter().map(|one| (one, Err(ErrorCode::UNKNOWN_SERVER_ERROR)))),
            Err(error) => known.extend(asked.into_iter().map(|one| (one, Err(error)))),
        }
    }
    known
}

/// Has the coordinators of partitions of a mirror write down new states.
pub async fn write(
    core: &Rc<Core>,
    mirror: &str,
    writes: Vec<(TopicIdPartition, WriteMirrorStatePartition)>,
) -> Written {
    let image = core.image();
    let mut written = Written::new();
    let mut allowed = Vec::with_capacity(writes.len());
    for (partition, write) in writes {
        match check_bound(&image, mirror, partition) {
            Ok(topic) => allowed.push((partition, StateWrite { topic: topic.into(), state: write })),
            Err(why) => {
                written.insert(partition, Err(Unwritten::Unbound(why)));
            }
        }
    }
    let unanswered = |asked: Vec<TopicIdPartition>, error: ErrorCode| {
        asked.into_iter().map(move |one| (one, Err(Unwritten::Unanswered(error))))
    };
    let partitions: Vec<_> = allowed.iter().map(|(partition, _)| *partition).collect();
    let by_coordinator = match by_coordinator(core, mirror, allowed) {
        Ok(by_coordinator) => by_coordinator,
        Err(error) => {
            written.extend(unanswered(partitions, error));
            return written;
        }
    };
    let mut asked_all = Vec::with_capacity(by_coordinator.len());
    for (coordinator, writes) in by_coordinator {
        let asked: Vec<_> = writes.iter().map(|(partition, _)| *partition).collect();
        let request = StateRequest::Write(mirror.to_owned(), writes);
        asked_all.push((asked, ask(core, coordinator, request).await));
    }
    for (asked, answer) in asked_all {
        match answered(answer).await {
            Ok(StateResponse::Written(results)) => {
                let results = results.into_iter();
                written.extend(results.map(|(one, result)| (one, result.map_err(Unwritten::Refused))));
            }
            Ok(_) => written.extend(unanswered(asked, ErrorCode::UNKNOWN_SERVER_ERROR)),
            Err(error) => written.extend(unanswered(asked, error)),
        }
    }
    written
}

/// What the stops of a mirror have left, from all coordinators.
///
/// # Errors
/// Where one of them does not answer.
pub async fn reports(
    core: &Rc<Core>,
    mirror: &str,
) -> Result<Vec<(TopicIdPartition, StopReport)>, ErrorCode> {
    let image = core.image();
    let Some(topic) = image.topics().by_name(STATE_TOPIC) else { return Ok(Vec::new()) };
    let mut asked = Vec::with_capacity(topic.partitions.len());
    for &index in topic.partitions.keys() {
        let coordinator = TopicIdPartition { topic_id: topic.id, partition: index };
        asked.push(ask(core, coordinator, StateRequest::Reports(mirror.to_owned())).await);
    }
    let mut reports = Vec::new();
    for answer in asked {
        match answered(answer).await? {
            StateResponse::Reports(more) => reports.extend(more),
            _ => return Err(ErrorCode::UNKNOWN_SERVER_ERROR),
        }
    }
    Ok(reports)
}

/// Checks that the metadata knows a partition as one of the mirror's; the name of its topic.
fn check_bound<'a>(
    image: &'a MetadataImage,
    mirror: &str,
    partition: TopicIdPartition,
) -> Result<&'a str, Unbound> {
    if image.mirror(mirror).is_none() {
        return Err(Unbound::Mirror(mirror.to_owned()));
    }
    let topic = image.topics().by_id(partition.topic_id).ok_or(Unbound::TopicId(partition))?;
    if !topic.partitions.contains_key(&partition.partition) {
        return Err(Unbound::Partition(partition));
    }
    match image.bindings().of(&topic.name) {
        Some(binding) if *binding.mirror == *mirror => Ok(&topic.name),
        _ => Err(Unbound::Topic { topic: topic.name.to_string(), mirror: mirror.to_owned() }),
    }
}

type ByCoordinator<T> = BTreeMap<TopicIdPartition, Vec<(TopicIdPartition, T)>>;

/// Items by the partition of `__mirror_state` that holds them.
fn by_coordinator<T>(
    core: &Rc<Core>,
    mirror: &str,
    items: Vec<(TopicIdPartition, T)>,
) -> Result<ByCoordinator<T>, ErrorCode> {
    let view = core.view();
    let topic = view.topic_by_name(STATE_TOPIC).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
    let mut by_coordinator: ByCoordinator<T> = BTreeMap::new();
    for (partition, item) in items {
        let index = coordinator_partition(mirror, partition, topic.partitions.len() as i32);
        let coordinator = TopicIdPartition { topic_id: topic.id, partition: index };
        by_coordinator.entry(coordinator).or_default().push((partition, item));
    }
    Ok(by_coordinator)
}

/// A coordinator's answer that is on its way, or why nobody was asked.
pub(super) type OnItsWay = Result<Reply<Result<StateResponse, ErrorCode>>, ErrorCode>;

/// Sends a request to a coordinator, so that all coordinators work at the same time.
pub(super) async fn ask(core: &Rc<Core>, coordinator: TopicIdPartition, request: StateRequest) -> OnItsWay {
    core.view().check_leader(core.node().broker_id(), coordinator).map_err(|_| ErrorCode::NOT_COORDINATOR)?;
    let (reply, answer) = channel::reply();
    let call = CoordinatorCall { partition: coordinator, request, reply };
    core.deliver(core.owner(coordinator), Envelope::Coordinator(call)).await;
    Ok(answer)
}

pub(super) async fn answered(answer: OnItsWay) -> Result<StateResponse, ErrorCode> {
    answer?.await.unwrap_or(Err(ErrorCode::NOT_COORDINATOR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_image::MetadataDelta;
    use tarn_record::{PartitionIndex, TopicId};
    use tarn_wire::MetadataRecord;
    use tarn_wire::messages::{ConfigRecord, PartitionRecord, TopicRecord};
    use uuid::Uuid;

    const TOPIC: TopicId = TopicId(Uuid::from_u128(7));

    #[test]
    fn a_state_is_kept_of_nothing_that_the_metadata_does_not_bind_to_the_mirror() {
        let image = image();
        assert_eq!(check_bound(&image, "m", at(TOPIC, 0)), Ok("t"));
        let refused = |mirror: &str, partition| {
            Unwritten::Unbound(check_bound(&image, mirror, partition).expect_err("it is invented")).code()
        };
        assert_eq!(refused("invented", at(TOPIC, 0)), ErrorCode::UNKNOWN_CLUSTER_MIRROR);
        assert_eq!(refused("m", at(TopicId(Uuid::from_u128(8)), 0)), ErrorCode::UNKNOWN_TOPIC_ID);
        assert_eq!(refused("m", at(TOPIC, 1)), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(refused("other", at(TOPIC, 0)), ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR);
    }

    /// Topic `t` with one partition, bound to mirror `m`; mirror `other` has no topic.
    fn image() -> MetadataImage {
        let config = |kind: i8, resource: &str, key: &str, value: &str| -> MetadataRecord {
            ConfigRecord {
                resource_type: kind,
                resource_name: resource.into(),
                name: key.into(),
                value: Some(value.into()),
            }
            .into()
        };
        let records = [
            TopicRecord { name: "t".into(), topic_id: TOPIC.0 }.into(),
            PartitionRecord {
                topic_id: TOPIC.0,
                partition_id: 0,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                ..PartitionRecord::default()
            }
            .into(),
            config(64, "m", "bootstrap.servers", "a:9092"),
            config(64, "other", "bootstrap.servers", "b:9092"),
            config(2, "t", "mirror.name", "m"),
            config(2, "t", "mirror.desired.state", "mirroring:1"),
        ];
        let mut image = MetadataImage::default();
        for record in &records {
            image.apply(record, &mut MetadataDelta::default()).expect("the records fit each other");
        }
        image
    }

    fn at(topic_id: TopicId, partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id, partition: PartitionIndex(partition) }
    }
}
