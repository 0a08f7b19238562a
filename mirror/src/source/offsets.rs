//! Where logs begin and end at the source: what the comparison of histories needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_record::{Epoch, Offset, PartitionIndex};
use tarn_transport::{Client, ClientError};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use tarn_wire::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};
use tarn_wire::{ErrorCode, Str};

use crate::alignment::{EpochEnd, SourceLog};
use crate::local_cluster::LogEnds;

/// Timestamps that mean the first and the last offset.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// What a consumer calls itself where a replica would give its id.
const CONSUMER: i32 = -1;

/// A partition of which the source is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader epoch that the source is thought to have.
    pub leader_epoch: Epoch,
    /// The log here.
    pub ours: LogEnds,
}

/// An epoch of a partition, of which the source is asked where it ends there.
#[derive(Clone, Debug)]
pub struct EpochQuestion {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader epoch that the source is thought to have.
    pub leader_epoch: Epoch,
    /// The epoch.
    pub asked: Epoch,
}

impl Question {
    fn about(&self, asked: Epoch) -> EpochQuestion {
        let (topic, partition) = (self.topic.clone(), self.partition);
        EpochQuestion { topic, partition, leader_epoch: self.leader_epoch, asked }
    }
}

type Answers<T> = BTreeMap<(Arc<str>, PartitionIndex), Result<T, ErrorCode>>;

/// Asks the leader of all these partitions. One answer for each, in their order: an error of the source,
/// or where its log begins and ends.
///
/// # Errors
/// The connection failed.
pub async fn ask(
    client: &Client,
    questions: &[Question],
) -> Result<Vec<Result<SourceLog, ErrorCode>>, ClientError> {
    let starts = list(client, questions.iter().collect(), EARLIEST).await?;
    let has_history = |question: &&Question| question.ours.latest_epoch != Epoch::NONE;
    let newest = |question: &Question| question.about(question.ours.latest_epoch);
    let of_epochs: Vec<_> = questions.iter().filter(has_history).map(newest).collect();
    let epoch_ends = answers_on_epochs(client, &of_epochs).await?;
    let only_an_end = |question: &&Question| !has_history(question) && question.ours.log_end > Offset(0);
    let ends = list(client, questions.iter().filter(only_an_end).collect(), LATEST).await?;
    let answer = |question: &Question| {
        let key = (question.topic.clone(), question.partition);
        let missing = Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let log_start = starts.get(&key).copied().unwrap_or(missing)?;
        let high_watermark = ends.get(&key).copied().unwrap_or(Ok(log_start))?;
        let epoch_end = match epoch_ends.get(&key) {
            Some(end) => Some((*end)?),
            None if has_history(&question) => return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            None => None,
        };
        Ok(SourceLog { log_start, high_watermark, epoch_end })
    };
    Ok(questions.iter().map(answer).collect())
}

/// Asks the leader of all these partitions where epochs end. One answer for each, in their order; a partition is asked
/// of one epoch only.
///
/// # Errors
/// The connection failed.
pub async fn epoch_ends(
    client: &Client,
    questions: &[EpochQuestion],
) -> Result<Vec<Result<EpochEnd, ErrorCode>>, ClientError> {
    let answers = answers_on_epochs(client, questions).await?;
    let answer = |question: &EpochQuestion| {
        let found = answers.get(&(question.topic.clone(), question.partition));
        found.copied().unwrap_or(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
    };
    Ok(questions.iter().map(answer).collect())
}

async fn list(
    client: &Client,
    questions: Vec<&Question>,
    timestamp: i64,
) -> Result<Answers<Offset>, ClientError> {
    let mut answers = Answers::new();
    if questions.is_empty() {
        return Ok(answers);
    }
    let partition = |question: &Question| ListOffsetsPartition {
        partition_index: question.partition.0,
        current_leader_epoch: question.leader_epoch.0,
        timestamp,
    };
    let topics = by_topic(&questions, partition)
        .into_iter()
        .map(|(name, partitions)| ListOffsetsTopic { name, partitions })
        .collect();
    let request = ListOffsetsRequest { replica_id: CONSUMER, topics, ..ListOffsetsRequest::default() };
    for topic in client.call(&request).await?.topics {
        let name: Arc<str> = Arc::from(&*topic.name);
        for partition in topic.partitions {
            let answer = match ErrorCode(partition.error_code) {
                ErrorCode::NONE => Ok(Offset(partition.offset)),
                code => Err(code),
            };
            answers.insert((name.clone(), PartitionIndex(partition.partition_index)), answer);
        }
    }
    Ok(answers)
}

async fn answers_on_epochs(
    client: &Client,
    questions: &[EpochQuestion],
) -> Result<Answers<EpochEnd>, ClientError> {
    let mut answers = Answers::new();
    if questions.is_empty() {
        return Ok(answers);
    }
    let mut topics: BTreeMap<&str, Vec<OffsetForLeaderPartition>> = BTreeMap::new();
    for question in questions {
        topics.entry(&question.topic).or_default().push(OffsetForLeaderPartition {
            partition: question.partition.0,
            current_leader_epoch: question.leader_epoch.0,
            leader_epoch: question.asked.0,
        });
    }
    let topics = topics
        .into_iter()
        .map(|(topic, partitions)| OffsetForLeaderTopic { topic: Str::from(topic), partitions })
        .collect();
    let request = OffsetForLeaderEpochRequest { replica_id: CONSUMER, topics };
    for topic in client.call(&request).await?.topics {
        let name: Arc<str> = Arc::from(&*topic.topic);
        for end in topic.partitions {
            let answer = match ErrorCode(end.error_code) {
                ErrorCode::NONE => {
                    Ok(EpochEnd { epoch: Epoch(end.leader_epoch), end: Offset(end.end_offset) })
                }
                code => Err(code),
            };
            answers.insert((name.clone(), PartitionIndex(end.partition)), answer);
        }
    }
    Ok(answers)
}

fn by_topic<T>(questions: &[&Question], partition: impl Fn(&Question) -> T) -> Vec<(Str, Vec<T>)> {
    let mut topics: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for question in questions {
        topics.entry(&question.topic).or_default().push(partition(question));
    }
    topics.into_iter().map(|(name, partitions)| (Str::from(name), partitions)).collect()
}
