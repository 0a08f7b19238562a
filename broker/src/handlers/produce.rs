//! Produce: what clients write (kafka-protocol key 0).
//!
//! On the connection's core every batch is validated; then one envelope goes to each owning core. The
//! call returns when the envelopes are on their way, so that a connection's batches keep their order; the
//! answer waits for the replies.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tarn_image::TopicImage;
use tarn_record::validate::{ClientBatch, ClientBatchValidator, InvalidBatch, ProduceRules, Progress};
use tarn_record::{BatchHeader, Compression, PartitionIndex, Timestamp, TopicIdPartition};
use tarn_runtime::{wall_clock_ms, yield_if_needed};
use tarn_transport::{Answer, Outcome};
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use tarn_wire::messages::{ProduceRequest, ProduceResponse};
use tarn_wire::{ApiKey, ErrorCode, RequestHeader, Str};
use tracing::warn;

use crate::core::Core;
use crate::dispatch::frame;
use crate::envelope::{Acks, AppendRequest, Envelope, Produced};
use crate::internal_topics::takes_writes_of;
use crate::limits;
use crate::rules::TopicRules;
use crate::scatter::scatter;

/// The first version that names topics by id.
const BY_ID: i16 = 13;
/// The first version that tells where a partition is led now (KIP-951).
const WITH_LEADER: i16 = 10;
/// The first version in which a producer may send zstd (KIP-110).
const ZSTD: i16 = 7;

/// How many bad records of a batch are named in the log.
const RECORDS_NAMED: usize = 3;

/// Serves one request.
pub async fn handle(core: Rc<Core>, header: RequestHeader, request: ProduceRequest) -> Outcome {
    let Some(acks) = acks_of(request.acks) else {
        return refuse_all(&core, &header, &request, ErrorCode::INVALID_REQUIRED_ACKS);
    };
    if let Err(error) = check_transactions(&request) {
        return refuse_all(&core, &header, &request, error);
    }
    let mut plan = Plan::default();
    for topic in request.topic_data {
        plan_topic(&core, &header, topic, &mut plan).await;
    }
    let deadline_ms = core.clock_ms() + (request.timeout_ms.max(0) as u64).min(limits::PRODUCE_WAIT_MS_MAX);
    let Plan { topics, slots, items, failed, .. } = plan;
    let append = |items, reply| Envelope::Append(AppendRequest { items, acks, deadline_ms, reply });
    let sent = scatter(&core, items, |(partition, _)| *partition, append).await;
    Outcome::Answer(Box::pin(async move {
        let mut produced: BTreeMap<Slot, Outcomes> = failed.into_iter().collect();
        for ((slot, partition), answer) in slots.into_iter().zip(sent.gather().await) {
            let lost = || Produced::failed(partition, ErrorCode::UNKNOWN_SERVER_ERROR, None);
            produced.insert(slot, answer.unwrap_or_else(lost).into());
        }
        note_refused(&core, &produced);
        if acks == Acks::None {
            return answer_nothing(&core, &produced);
        }
        let leaders = if header.api_version >= WITH_LEADER { Leaders::Told } else { Leaders::NotTold };
        frame(&core, &header, &respond(&core, topics, produced, leaders))
    }))
}

/// One partition's outcome on its way to the response.
struct Outcomes {
    produced: Produced,
    record_errors: Vec<(i32, String)>,
}

impl From<Produced> for Outcomes {
    fn from(produced: Produced) -> Outcomes {
        Outcomes { produced, record_errors: Vec::new() }
    }
}

/// Whether the version of the response has a place for the current leader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaders {
    Told,
    NotTold,
}

/// Which partition of the request, counted over all its topics.
type Slot = usize;

/// What a request comes to: items for the owning cores, and what has failed already. Topics and partitions
/// stay in the order of the request, and each has a slot of its own, however often it is named.
#[derive(Default)]
struct Plan {
    topics: Vec<(TopicKeys, Vec<(PartitionIndex, Slot)>)>,
    items: Vec<(TopicIdPartition, ClientBatch)>,
    /// Where the outcomes of `items` go.
    slots: Vec<(Slot, TopicIdPartition)>,
    failed: Vec<(Slot, Outcomes)>,
    next_slot: Slot,
}

struct TopicKeys {
    name: Str,
    id: uuid::Uuid,
}

async fn plan_topic(core: &Rc<Core>, header: &RequestHeader, topic: TopicProduceData, plan: &mut Plan) {
    let keys = TopicKeys { name: topic.name.to_owned_str(), id: topic.topic_id };
    let view = core.view();
    let found = if header.api_version >= BY_ID {
        view.topic_by_id(tarn_record::TopicId(topic.topic_id)).cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        view.topic_by_name(&topic.name).cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    };
    let mut partitions = Vec::with_capacity(topic.partition_data.len());
    for data in topic.partition_data {
        let index = PartitionIndex(data.index);
        let topic_id = found.as_ref().map_or(tarn_record::TopicId(keys.id), |topic| topic.id);
        let partition = TopicIdPartition { topic_id, partition: index };
        let slot = plan.next_slot;
        plan.next_slot += 1;
        partitions.push((index, slot));
        let planned = match &found {
            Ok(topic) => check(core, header, topic, data).await,
            Err(error) => Err(Produced::failed(partition, *error, None).into()),
        };
        match planned {
            Ok(batch) => {
                plan.items.push((partition, batch));
                plan.slots.push((slot, partition));
            }
            Err(outcome) => {
                if found.is_ok() {
                    core.partitions().traffic().refused(topic_id);
                }
                plan.failed.push((slot, outcome));
            }
        }
    }
    plan.topics.push((keys, partitions));
}

/// What the connection's core can tell of one partition's data.
async fn check(
    core: &Rc<Core>,
    header: &RequestHeader,
    topic: &Arc<TopicImage>,
    data: PartitionProduceData,
) -> Result<ClientBatch, Outcomes> {
    let partition = TopicIdPartition { topic_id: topic.id, partition: PartitionIndex(data.index) };
    let failed = |error, message: &str| Produced::failed(partition, error, Some(message.to_owned())).into();
    if !takes_writes_of(&topic.name, header.client_id.as_deref()) {
        return Err(failed(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "internal topics are written by coordinators only",
        ));
    }
    core.view()
        .check_leader(core.node().broker_id(), partition)
        .map_err(|error| Produced::failed(partition, error, None))?;
    let records = data.records.and_then(|records| records.to_bytes()).unwrap_or_default();
    if records.is_empty() {
        return Err(failed(
            ErrorCode::INVALID_RECORD,
            "a produce request holds one batch for each partition",
        ));
    }
    let rules = core.rules(topic);
    let rules = produce_rules(&rules, header.api_version);
    let turns = core.node().decompression();
    let mut turn = turns.begin(compression_of(&records)).await;
    let mut validator = ClientBatchValidator::new(records, &rules, Timestamp(wall_clock_ms()));
    loop {
        match validator.step(limits::VALIDATION_SLICE_BYTES) {
            Progress::More => yield_if_needed().await,
            Progress::NeedsRoom => {
                turns.enlarge(&mut turn).await;
                validator.give_room();
            }
            Progress::Done(Ok(batch)) => return Ok(batch),
            Progress::Done(Err(invalid)) => return Err(invalid_outcome(partition, invalid)),
        }
    }
}

/// How the batch says that it is compressed; where it says nothing sensible it is refused before that matters.
fn compression_of(records: &[u8]) -> Compression {
    BatchHeader::parse(records).ok().and_then(|header| header.compression().ok()).unwrap_or_default()
}

fn produce_rules(rules: &TopicRules, api_version: i16) -> ProduceRules {
    ProduceRules {
        max_batch_bytes: rules.max_message_bytes,
        segment_bytes: rules.log.segment_bytes as usize,
        compacted: rules.compaction.is_some(),
        timestamp_type: rules.timestamp_type,
        before_max_ms: rules.timestamp_before_max_ms,
        after_max_ms: rules.timestamp_after_max_ms,
        zstd_allowed: api_version >= ZSTD,
        decompressed_limit: limits::DECOMPRESSED_BATCH_BYTES,
        record_max: rules.max_decompressed_bytes,
        recompress: rules.recompress,
    }
}

fn invalid_outcome(partition: TopicIdPartition, invalid: InvalidBatch) -> Outcomes {
    let error = ErrorCode(invalid.error.code());
    let produced = Produced::failed(partition, error, Some(invalid.message));
    Outcomes { produced, record_errors: invalid.record_errors }
}

/// Checks that batches of a transaction come with its name, and all from one producer.
fn check_transactions(request: &ProduceRequest) -> Result<(), ErrorCode> {
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let headers = partitions.filter_map(|data| {
        let records = data.records.as_ref()?.to_bytes()?;
        BatchHeader::parse(&records).ok().filter(BatchHeader::is_transactional)
    });
    let producers: BTreeSet<_> =
        headers.map(|header| (header.producer_id.0, header.producer_epoch.0)).collect();
    match producers.len() {
        0 => Ok(()),
        _ if request.transactional_id.is_none() => Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        1 => Ok(()),
        _ => Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING),
    }
}

/// Says which batches were refused, and why; not too often for each error.
fn note_refused(core: &Rc<Core>, produced: &BTreeMap<Slot, Outcomes>) {
    for Outcomes { produced, record_errors } in produced.values() {
        let Some(message) = &produced.message else { continue };
        let Some(remark) = core.refusals().may_say(produced.error.0, Instant::now()) else { continue };
        let view = core.view();
        let topic = view.topic_by_id(produced.partition.topic_id).map(|topic| topic.name.to_string());
        let records: Vec<_> = record_errors.iter().take(RECORDS_NAMED).map(|(index, _)| index).collect();
        warn!(
            topic,
            partition = %produced.partition.partition,
            error = produced.error.name(),
            ?records,
            "a batch was refused: {message}{remark}"
        );
    }
}

fn acks_of(acks: i16) -> Option<Acks> {
    match acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    }
}

/// `acks=0` has no answer; the only way to tell a client to refresh its metadata is to hang up.
fn answer_nothing(core: &Rc<Core>, produced: &BTreeMap<Slot, Outcomes>) -> Answer {
    let has_failed = |outcome: &&Outcomes| outcome.produced.error != ErrorCode::NONE;
    let failed = || produced.values().filter(has_failed);
    core.metrics().requests.failed(ApiKey::PRODUCE, failed().map(|outcome| outcome.produced.error));
    match failed().next() {
        Some(outcome) => Answer::Close(format!(
            "a produce with acks=0 to {} failed: {}",
            outcome.produced.partition,
            outcome.produced.error.name()
        )),
        None => Answer::Nothing,
    }
}

fn refuse_all(
    core: &Rc<Core>,
    header: &RequestHeader,
    request: &ProduceRequest,
    error: ErrorCode,
) -> Outcome {
    if request.acks == 0 {
        return Outcome::Close(format!("a produce with acks=0 failed: {}", error.name()));
    }
    let responses = request.topic_data.iter().map(|topic| TopicProduceResponse {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partition_responses: topic
            .partition_data
            .iter()
            .map(|data| PartitionProduceResponse {
                index: data.index,
                error_code: error.0,
                base_offset: -1,
                ..Default::default()
            })
            .collect(),
    });
    let response = ProduceResponse { responses: responses.collect(), ..Default::default() };
    let answer = frame(core, header, &response);
    Outcome::Answer(Box::pin(async move { answer }))
}

fn respond(
    core: &Rc<Core>,
    topics: Vec<(TopicKeys, Vec<(PartitionIndex, Slot)>)>,
    mut produced: BTreeMap<Slot, Outcomes>,
    leaders: Leaders,
) -> ProduceResponse {
    let responses = topics.into_iter().map(|(keys, partitions)| TopicProduceResponse {
        name: keys.name,
        topic_id: keys.id,
        partition_responses: partitions
            .into_iter()
            .map(|(index, slot)| partition_response(core, index, produced.remove(&slot), leaders))
            .collect(),
    });
    ProduceResponse { responses: responses.collect(), ..Default::default() }
}

fn partition_response(
    core: &Rc<Core>,
    index: PartitionIndex,
    outcome: Option<Outcomes>,
    leaders: Leaders,
) -> PartitionProduceResponse {
    let Some(Outcomes { produced, record_errors }) = outcome else {
        let error_code = ErrorCode::INVALID_REQUEST.0;
        return PartitionProduceResponse {
            index: index.0,
            error_code,
            base_offset: -1,
            ..Default::default()
        };
    };
    let moved = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH].contains(&produced.error);
    let tells = moved && leaders == Leaders::Told;
    let leader = if tells { core.view().leader(produced.partition) } else { None };
    PartitionProduceResponse {
        index: index.0,
        error_code: produced.error.0,
        base_offset: produced.base_offset.0,
        log_append_time_ms: produced.log_append_time.0,
        log_start_offset: produced.log_start.0,
        record_errors: record_errors
            .into_iter()
            .map(|(batch_index, message)| BatchIndexAndErrorMessage {
                batch_index,
                batch_index_error_message: Some(message.into()),
            })
            .collect(),
        error_message: produced.message.map(Str::from),
        current_leader: leader.map_or_else(LeaderIdAndEpoch::default, |(leader, epoch)| LeaderIdAndEpoch {
            leader_id: leader.0,
            leader_epoch: epoch.0,
        }),
    }
}
