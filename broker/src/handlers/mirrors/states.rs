//! ReadMirrorStates, WriteMirrorStates and ReadMirrorOffsets: what coordinators and leaders know of
//! mirrored partitions.

use std::collections::HashMap;
use std::rc::Rc;

use tarn_mirror::coordinator::PartitionState;
use tarn_mirror::local_cluster::LogEnds;
use tarn_mirror::state::MirrorState;
use tarn_record::{PartitionIndex, TopicId, TopicIdPartition};
use tarn_wire::messages::read_mirror_offsets_response::{
    MirrorOffsetPartitionResult, MirrorOffsetTopicResult,
};
use tarn_wire::messages::read_mirror_states_response::{MirrorStatePartitionResult, MirrorStateTopicResult};
use tarn_wire::messages::write_mirror_states_response::{
    WriteMirrorStatePartitionResult, WriteMirrorStateTopicResult,
};
use tarn_wire::messages::{
    ReadMirrorOffsetsRequest, ReadMirrorOffsetsResponse, ReadMirrorStatesRequest, ReadMirrorStatesResponse,
    WriteMirrorStatesRequest, WriteMirrorStatesResponse,
};
use tarn_wire::{ErrorCode, Str};

use crate::coordinators::mirror_states::{self, Unwritten};
use crate::core::Core;
use crate::envelope::Envelope;
use crate::scatter::scatter;

/// Serves ReadMirrorStates.
pub async fn read_states(core: &Rc<Core>, request: ReadMirrorStatesRequest) -> ReadMirrorStatesResponse {
    let asked = request.topics.iter().flat_map(|topic| {
        let topic_id = TopicId(topic.topic_id);
        let partitions = topic.partitions.iter();
        partitions
            .map(move |asked| TopicIdPartition { topic_id, partition: PartitionIndex(asked.partition_index) })
    });
    let known = mirror_states::read(core, &request.mirror_name, asked.collect()).await;
    let topics = request.topics.into_iter().map(|topic| MirrorStateTopicResult {
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                let partition = PartitionIndex(asked.partition_index);
                let partition = TopicIdPartition { topic_id: TopicId(topic.topic_id), partition };
                state_result(asked.partition_index, known.get(&partition))
            })
            .collect(),
        topic_name: topic.topic_name,
        topic_id: topic.topic_id,
    });
    ReadMirrorStatesResponse { topics: topics.collect(), ..Default::default() }
}

fn state_result(
    index: i32,
    known: Option<&Result<Option<PartitionState>, ErrorCode>>,
) -> MirrorStatePartitionResult {
    let byte = |state: Option<MirrorState>| state.map_or(-1, MirrorState::to_byte);
    match known {
        Some(Ok(Some(state))) => MirrorStatePartitionResult {
            partition_index: index,
            state: byte(state.state),
            leader_epoch: state.leader_epoch.0,
            state_epoch: state.state_epoch,
            last_mirror_epoch: state.position.map_or(-1, |position| position.epoch.0),
            last_mirror_offset: state.position.map_or(-1, |position| position.offset.0),
            error_message: state.error_message.clone(),
            retry_attempt: state.retry_attempt,
            previous_state: byte(state.previous_state),
            reason_code: state.reason_code.clone(),
            state_version: state.state_version,
            ..Default::default()
        },
        Some(Ok(None)) => MirrorStatePartitionResult { partition_index: index, ..Default::default() },
        Some(Err(error)) => {
            MirrorStatePartitionResult { partition_index: index, error_code: error.0, ..Default::default() }
        }
        None => MirrorStatePartitionResult {
            partition_index: index,
            error_code: ErrorCode::COORDINATOR_NOT_AVAILABLE.0,
            ..Default::default()
        },
    }
}

/// Serves WriteMirrorStates.
pub async fn write_states(core: &Rc<Core>, request: WriteMirrorStatesRequest) -> WriteMirrorStatesResponse {
    let mut writes = Vec::new();
    for topic in &request.topics {
        for write in &topic.partitions {
            let partition = PartitionIndex(write.partition_index);
            writes.push((TopicIdPartition { topic_id: TopicId(topic.topic_id), partition }, write.clone()));
        }
    }
    let written = mirror_states::write(core, &request.mirror_name, writes).await;
    let topics = request.topics.into_iter().map(|topic| WriteMirrorStateTopicResult {
        partitions: topic
            .partitions
            .iter()
            .map(|write| {
                let partition = PartitionIndex(write.partition_index);
                let partition = TopicIdPartition { topic_id: TopicId(topic.topic_id), partition };
                write_result(write.partition_index, written.get(&partition))
            })
            .collect(),
        topic_name: topic.topic_name,
        topic_id: topic.topic_id,
    });
    WriteMirrorStatesResponse { topics: topics.collect(), ..Default::default() }
}

fn write_result(index: i32, written: Option<&Result<i32, Unwritten>>) -> WriteMirrorStatePartitionResult {
    let refused = |error: ErrorCode, message: Option<Str>| WriteMirrorStatePartitionResult {
        partition_index: index,
        state_epoch: -1,
        error_code: error.0,
        error_message: message,
    };
    match written {
        Some(Ok(state_epoch)) => WriteMirrorStatePartitionResult {
            partition_index: index,
            state_epoch: *state_epoch,
            ..Default::default()
        },
        Some(Err(why)) => refused(why.code(), why.message().map(Str::from)),
        None => refused(ErrorCode::COORDINATOR_NOT_AVAILABLE, None),
    }
}

/// Serves ReadMirrorOffsets: what this broker knows of the partitions it leads.
pub async fn read_offsets(core: &Rc<Core>, request: ReadMirrorOffsetsRequest) -> ReadMirrorOffsetsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let Some(topic_id) = core.view().topic_by_name(&topic.topic_name).map(|found| found.id) else {
            continue;
        };
        let partitions: Vec<_> = topic
            .partitions
            .iter()
            .map(|index| TopicIdPartition { topic_id, partition: PartitionIndex(*index) })
            .collect();
        let ends = ends(core, &partitions).await;
        let standings =
            core.node().mirrors().map(|manager| manager.offsets(&request.mirror_name, &partitions));
        let mut standings = standings.unwrap_or_default().into_iter();
        let results = partitions.iter().map(|partition| {
            let standing = standings.next().flatten();
            let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1);
            MirrorOffsetPartitionResult {
                partition_index: partition.partition.0,
                source_offset: standing
                    .as_ref()
                    .and_then(|one| one.source_high_watermark)
                    .map_or(-1, |at| at.0),
                destination_offset: ends.get(partition).map_or(-1, |ends| ends.high_watermark.0),
                lag_ms: number(standing.as_ref().and_then(|one| one.lag_ms)),
                last_fetch_age_ms: number(standing.as_ref().and_then(|one| one.last_fetch_age_ms)),
            }
        });
        topics.push(MirrorOffsetTopicResult { partitions: results.collect(), topic_name: topic.topic_name });
    }
    ReadMirrorOffsetsResponse { topics, ..Default::default() }
}

/// Where the logs of partitions led here begin and end.
pub(super) async fn ends(
    core: &Rc<Core>,
    partitions: &[TopicIdPartition],
) -> HashMap<TopicIdPartition, LogEnds> {
    let sent = scatter(core, partitions.iter().copied(), |one| *one, Envelope::Ends).await;
    let answers = partitions.iter().zip(sent.gather().await);
    answers.filter_map(|(one, ends)| Some((*one, ends?.ok()?))).collect()
}
