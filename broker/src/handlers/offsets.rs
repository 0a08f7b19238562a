//! ListOffsets and OffsetForLeaderEpoch: where logs and epochs begin and end.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use tarn_record::{Epoch, Timestamp, TopicIdPartition};
use tarn_wire::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use tarn_wire::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use tarn_wire::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use tarn_wire::{ErrorCode, RequestHeader};

use crate::core::Core;
use crate::envelope::{Envelope, EpochEndAnswer, OffsetAnswer, OffsetQuery, OffsetSpec};
use crate::replica::Isolation;
use crate::scatter::scatter;

/// Serves ListOffsets.
pub async fn list(
    core: Rc<Core>,
    header: &RequestHeader,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = match (request.replica_id, request.isolation_level) {
        (-1, 1) => Isolation::ReadCommitted,
        (-1, _) => Isolation::ReadUncommitted,
        _ => Isolation::Replica,
    };
    let mut queries: Vec<OffsetQuery> = Vec::new();
    let mut answers: HashMap<(usize, usize), Result<TopicIdPartition, ErrorCode>> = HashMap::new();
    let mut seen = BTreeSet::new();
    for (t, topic) in request.topics.iter().enumerate() {
        for (p, asked) in topic.partitions.iter().enumerate() {
            let partition = find(&core, &topic.name, asked.partition_index);
            let query = match (partition, spec(asked.timestamp, header.api_version)) {
                _ if !seen.insert((topic.name.clone(), asked.partition_index)) => {
                    Err(ErrorCode::INVALID_REQUEST)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(partition), Ok(spec)) => Ok(OffsetQuery {
                    partition,
                    current_leader_epoch: Epoch(asked.current_leader_epoch),
                    spec,
                    isolation,
                }),
            };
            answers.insert((t, p), query.map(|query| query.partition));
            queries.extend(query.ok());
        }
    }
    let sent = scatter(&core, queries, |query| query.partition, Envelope::Offsets).await;
    let found: HashMap<TopicIdPartition, OffsetAnswer> =
        sent.gather().await.into_iter().flatten().map(|answer| (answer.partition, answer)).collect();
    let topics = request.topics.into_iter().enumerate().map(|(t, topic)| ListOffsetsTopicResponse {
        partitions: topic
            .partitions
            .iter()
            .enumerate()
            .map(|(p, asked)| {
                let answer = answers[&(t, p)].and_then(|partition| {
                    found.get(&partition).copied().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
                });
                offset_response(asked.partition_index, answer, header.api_version)
            })
            .collect(),
        name: topic.name,
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

/// What a timestamp of the request asks for.
fn spec(timestamp: i64, version: i16) -> Result<OffsetSpec, ErrorCode> {
    let (spec, since) = match timestamp {
        -1 => (OffsetSpec::Latest, 0),
        -2 => (OffsetSpec::Earliest, 0),
        -3 => (OffsetSpec::MaxTimestamp, 7),
        -4 => (OffsetSpec::Earliest, 8),
        -5 => (OffsetSpec::LatestTiered, 9),
        -6 => (OffsetSpec::EarliestPendingUpload, 11),
        time if time >= 0 => (OffsetSpec::AtOrAfter(Timestamp(time)), 0),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    if version >= since { Ok(spec) } else { Err(ErrorCode::UNSUPPORTED_VERSION) }
}

/// The first version of ListOffsets that tells the epoch of an offset.
const WITH_EPOCH: i16 = 4;

fn offset_response(
    index: i32,
    answer: Result<OffsetAnswer, ErrorCode>,
    version: i16,
) -> ListOffsetsPartitionResponse {
    match answer {
        Ok(answer) => ListOffsetsPartitionResponse {
            partition_index: index,
            error_code: answer.error.0,
            timestamp: answer.timestamp.0,
            offset: answer.offset.0,
            leader_epoch: if version >= WITH_EPOCH { answer.leader_epoch.0 } else { Epoch::NONE.0 },
        },
        Err(error) => {
            ListOffsetsPartitionResponse { partition_index: index, error_code: error.0, ..Default::default() }
        }
    }
}

/// The partition of that name, if this broker leads it.
fn find(core: &Rc<Core>, topic: &str, index: i32) -> Result<TopicIdPartition, ErrorCode> {
    core.view().led_by(core.node().broker_id(), topic, index)
}

/// Serves OffsetForLeaderEpoch.
pub async fn epoch_ends(
    core: Rc<Core>,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut queries = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            if let Ok(partition) = find(&core, &topic.topic, asked.partition) {
                queries.push((partition, Epoch(asked.current_leader_epoch), Epoch(asked.leader_epoch)));
            }
        }
    }
    let sent = scatter(&core, queries, |(partition, _, _)| *partition, Envelope::EpochEnds).await;
    let found: HashMap<TopicIdPartition, EpochEndAnswer> =
        sent.gather().await.into_iter().flatten().map(|answer| (answer.partition, answer)).collect();
    let topics = request.topics.into_iter().map(|topic| OffsetForLeaderTopicResult {
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                let answer = find(&core, &topic.topic, asked.partition).and_then(|partition| {
                    found.get(&partition).copied().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
                });
                epoch_response(asked.partition, answer)
            })
            .collect(),
        topic: topic.topic.clone(),
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

fn epoch_response(partition: i32, answer: Result<EpochEndAnswer, ErrorCode>) -> EpochEndOffset {
    match answer {
        Ok(answer) => EpochEndOffset {
            error_code: answer.error.0,
            partition,
            leader_epoch: answer.leader_epoch.0,
            end_offset: answer.end_offset.0,
        },
        Err(error) => EpochEndOffset { error_code: error.0, partition, ..Default::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_timestamps_need_their_version() {
        assert_eq!(spec(-1, 1), Ok(OffsetSpec::Latest));
        assert_eq!(spec(-3, 6), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(spec(-3, 7), Ok(OffsetSpec::MaxTimestamp));
        assert_eq!(spec(-4, 8), Ok(OffsetSpec::Earliest));
        assert_eq!(spec(-7, 11), Err(ErrorCode::UNSUPPORTED_VERSION));
        assert_eq!(spec(5, 1), Ok(OffsetSpec::AtOrAfter(Timestamp(5))));
    }
}
