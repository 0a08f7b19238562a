//! What the source has where the newest batch of a log here is: fetched again, so that its CRC can be
//! compared.
//!
//! Of each partition just as many bytes are asked for as the batch here has. A source gives the first
//! partition of a request a larger batch whole (KIP-74) and the others none, so what stays unanswered is
//! asked for again until each has either been answered or been the first. A link that cuts an answer is asked for
//! half as much.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tarn_image::config::mirror::MirrorConfig;
use tarn_record::{BatchHeader, Epoch, Offset, PartitionIndex, batches};
use tarn_transport::{CallLimits, Client, ClientError, Endpoint};
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::fetch_response::PartitionData;
use tarn_wire::messages::{FetchRequest, FetchResponse};
use tarn_wire::{ErrorCode, Str};

use super::SourceError;
use super::connections::Connections;
use crate::alignment::BatchThere;
use crate::fetch::budget::{FetchBudget, Permit, size_of};
use crate::limits;

/// The last version of Fetch that names topics.
const NAMES_UNTIL: i16 = 12;
/// A consumer, where a replica would give its id; and a request outside of any session.
const CONSUMER: i32 = -1;
const NO_SESSION: i32 = -1;

/// A batch that is asked for.
#[derive(Clone, Debug)]
pub struct BatchQuestion {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader epoch that the source is thought to have.
    pub leader_epoch: Epoch,
    /// The newest batch here.
    pub ours: BatchHeader,
}

/// What is found for one question.
pub type BatchAnswer = Result<BatchThere, Unanswered>;

/// Why it is not known what the source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The source says so: OFFSET_NOT_AVAILABLE where it does not know yet that the records are committed, or has
    /// removed them since it was asked where its log begins.
    Refused(ErrorCode),
    /// It sends nothing, though its high watermark is above. A cleaner may have removed all that was there; where
    /// there is none the source has not got at it in time, as to a segment in another tier (KIP-405), and says nothing
    /// of its history.
    Empty,
}

/// The answer of a source that has none now.
const NOT_NOW: BatchAnswer = Err(Unanswered::Refused(ErrorCode::OFFSET_NOT_AVAILABLE));

/// How much may be fetched.
pub struct BatchLimits<'a> {
    /// The mirror's configuration.
    pub config: &'a MirrorConfig,
    /// How long the source may wait for what it has in another tier.
    pub wait: Duration,
    /// The largest batch that is taken.
    pub batch_max_bytes: usize,
    /// The memory for responses.
    pub budget: &'a Arc<FetchBudget>,
}

/// Asks the leader of all these partitions. One answer for each, in their order.
///
/// # Errors
/// The connection failed, or leads to another cluster.
pub async fn ask(
    connections: &Connections,
    endpoint: &Endpoint,
    questions: &[BatchQuestion],
    limits: &BatchLimits<'_>,
) -> Result<Vec<BatchAnswer>, SourceError> {
    let mut answers: BTreeMap<usize, BatchAnswer> = BTreeMap::new();
    let mut open: VecDeque<usize> = (0..questions.len()).collect();
    let mut most = limits::COMPARED_BATCHES_BYTES;
    while let Some(&first) = open.front() {
        let some = within_one_answer(&open, questions, most);
        let bytes: usize = some.iter().map(|&index| questions[index].ours.size()).sum();
        let mut memory = limits.budget.reserve(bytes).await;
        // A response that is too large has closed the last connection.
        let client = connections.to(endpoint).await?;
        match fetch(&client, &some, questions, bytes, limits).await {
            Ok(response) => {
                let found = take(response, &some, questions, &mut memory);
                // A source that holds us back by its quota leaves every partition out.
                let is_left_out = !found.iter().any(|(index, _)| *index == first);
                let of_first = if is_left_out { NOT_NOW } else { Err(Unanswered::Empty) };
                answers.extend(found.into_iter().filter_map(|(index, answer)| Some((index, answer?))));
                answers.entry(first).or_insert(of_first);
            }
            Err(ClientError::TooLarge { .. }) => {
                answers.insert(first, Ok(BatchThere::Larger));
            }
            Err(ClientError::Closed { .. } | ClientError::TimedOut { .. }) if some.len() > 1 => {
                most = bytes / 2
            }
            Err(error) => return Err(error.into()),
        }
        drop(memory);
        open.retain(|index| !answers.contains_key(index));
    }
    Ok(answers.into_values().collect())
}

/// The first of the open questions, as many as one answer of `most` bytes holds.
fn within_one_answer(open: &VecDeque<usize>, questions: &[BatchQuestion], most: usize) -> Vec<usize> {
    let mut some = Vec::new();
    let mut bytes = 0;
    for &index in open {
        bytes += questions[index].ours.size();
        if !some.is_empty() && bytes > most {
            break;
        }
        some.push(index);
    }
    some
}

/// Fetches some.
async fn fetch(
    client: &Client,
    some: &[usize],
    questions: &[BatchQuestion],
    bytes: usize,
    limits: &BatchLimits<'_>,
) -> Result<FetchResponse, ClientError> {
    let version = client.version_up_to::<FetchRequest>(NAMES_UNTIL)?;
    let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
    for &index in some {
        let question = &questions[index];
        topics.entry(&question.topic).or_default().push(FetchPartition {
            partition: question.partition.0,
            current_leader_epoch: question.leader_epoch.0,
            fetch_offset: question.ours.last_offset().0,
            last_fetched_epoch: Epoch::NONE.0,
            partition_max_bytes: as_i32(question.ours.size()),
            ..FetchPartition::default()
        });
    }
    // The first question's topic leads, with its partition before the others.
    let first = some.first().map(|&index| &questions[index]);
    let mut topics: Vec<FetchTopic> = topics
        .into_iter()
        .map(|(name, partitions)| FetchTopic { topic: Str::from(name), partitions, ..FetchTopic::default() })
        .collect();
    if let Some(first) = first {
        topics.sort_by_key(|topic| *topic.topic != *first.topic);
        if let Some(topic) = topics.first_mut() {
            topic.partitions.sort_by_key(|partition| partition.partition != first.partition.0);
        }
    }
    let request = FetchRequest {
        replica_id: CONSUMER,
        // What the source has at hand is sent at once: it waits for nothing but what is in another tier.
        max_wait_ms: as_i32(limits.wait.as_millis()),
        min_bytes: 0,
        max_bytes: as_i32(bytes),
        session_epoch: NO_SESSION,
        topics,
        ..FetchRequest::default()
    };
    let within = CallLimits {
        timeout: limits.wait + limits.config.request_timeout,
        max_response_bytes: limits.batch_max_bytes + limits::RESPONSE_ALLOWANCE_BYTES,
    };
    client.call_within(&request, version, within).await
}

/// Takes an answer over, counted with the size it has. What is `None` of it is an empty one, which leaves its
/// question open unless it was the first.
fn take(
    response: FetchResponse,
    some: &[usize],
    questions: &[BatchQuestion],
    memory: &mut Permit,
) -> Vec<(usize, Option<BatchAnswer>)> {
    memory.resize(size_of(&response));
    let code = ErrorCode(response.error_code);
    if code != ErrorCode::NONE {
        return some.iter().map(|&index| (index, Some(Err(Unanswered::Refused(code))))).collect();
    }
    let place = |&index: &usize| ((&*questions[index].topic, questions[index].partition.0), index);
    let asked: BTreeMap<(&str, i32), usize> = some.iter().map(place).collect();
    let mut found = Vec::new();
    for topic in response.responses {
        for data in topic.partitions {
            let Some(&index) = asked.get(&(&*topic.topic, data.partition_index)) else { continue };
            found.push((index, read(&questions[index], data)));
        }
    }
    found
}

/// What an answer says; `None` where it leaves the question open.
fn read(question: &BatchQuestion, data: PartitionData) -> Option<BatchAnswer> {
    match ErrorCode(data.error_code) {
        ErrorCode::NONE => {}
        // Its log reached beyond that when it was asked for its end, so it begins above it by now.
        ErrorCode::OFFSET_OUT_OF_RANGE => return Some(NOT_NOW),
        code => return Some(Err(Unanswered::Refused(code))),
    }
    let asked = question.ours.last_offset();
    if Offset(data.high_watermark) <= asked {
        return Some(NOT_NOW);
    }
    let records = data.records.and_then(|records| records.to_bytes()).unwrap_or_default();
    match batches(records).next()? {
        Ok(batch) if batch.header().base_offset > asked => Some(Ok(BatchThere::Nothing)),
        Ok(batch) => Some(Ok(BatchThere::Batch(*batch.header()))),
        Err(_) => Some(Err(Unanswered::Refused(ErrorCode::CORRUPT_MESSAGE))),
    }
}

fn as_i32(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tarn_record::{BatchBuilder, Compression, Record};
    use tarn_wire::messages::fetch_response::FetchableTopicResponse;

    #[test]
    fn what_is_not_committed_there_yet_is_asked_again_and_what_is_empty_stays_open() {
        let question = question(10, 3);
        let read = |high_watermark, records: Bytes| read(&question, data(0, high_watermark, records));
        assert_eq!(read(12, Bytes::new()), Some(NOT_NOW));
        assert_eq!(read(13, Bytes::new()), None);
        assert_eq!(read(13, batch(10, 3).slice(..70)), None, "it is cut short");
        let same = BatchThere::Batch(question.ours);
        assert_eq!(read(13, batch(10, 3)), Some(Ok(same)));
        assert_eq!(read(20, batch(13, 3)), Some(Ok(BatchThere::Nothing)), "the next one is after it");
        let mut damaged = batch(10, 3).to_vec();
        damaged[64] ^= 1;
        let refused = |code| Some(Err(Unanswered::Refused(code)));
        assert_eq!(read(13, damaged.into()), refused(ErrorCode::CORRUPT_MESSAGE));
        let error = |code: ErrorCode| super::read(&question, data(code.0, -1, Bytes::new()));
        assert_eq!(error(ErrorCode::FENCED_LEADER_EPOCH), refused(ErrorCode::FENCED_LEADER_EPOCH));
        assert_eq!(error(ErrorCode::OFFSET_OUT_OF_RANGE), Some(NOT_NOW), "it is removed, not another");
    }

    #[test]
    fn an_answer_counts_with_the_size_it_has_until_it_is_compared() {
        let budget = FetchBudget::new(10);
        let mut memory = budget.try_reserve(10).expect("it is free");
        let larger = batch(10, 3);
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: "orders".into(),
                partitions: vec![data(0, 13, larger.clone())],
                ..FetchableTopicResponse::default()
            }],
            ..FetchResponse::default()
        };
        let questions = [question(10, 3)];
        let found = take(response, &[0], &questions, &mut memory);
        assert_eq!(found, [(0, Some(Ok(BatchThere::Batch(questions[0].ours))))]);
        assert_eq!(budget.used(), larger.len());
        drop(memory);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_answer_holds_many_small_batches_or_a_single_large_one() {
        let mut large = question(0, 1);
        large.ours.length = 3 << 20;
        let questions = [large.clone(), question(0, 1), large, question(0, 1)];
        let within = |open: &[usize]| {
            within_one_answer(&open.iter().copied().collect(), &questions, limits::COMPARED_BATCHES_BYTES)
        };
        assert_eq!(within(&[0, 1, 2, 3]), [0, 1]);
        assert_eq!(within(&[2, 3]), [2, 3]);
        let mut huge = question(0, 1);
        huge.ours.length = 50 << 20;
        assert_eq!(within_one_answer(&[0].into(), &[huge], 1), [0]);
    }

    fn question(base: i64, records: usize) -> BatchQuestion {
        let ours =
            *batches(batch(base, records)).next().expect("there is one").expect("it is whole").header();
        BatchQuestion { topic: "orders".into(), partition: PartitionIndex(0), leader_epoch: Epoch(1), ours }
    }

    fn batch(base: i64, records: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base), Compression::None);
        for _ in 0..records {
            builder.add(&Record { value: Some(b"value"), ..Record::default() });
        }
        builder.build()
    }

    fn data(error_code: i16, high_watermark: i64, records: Bytes) -> PartitionData {
        PartitionData {
            error_code,
            high_watermark,
            records: Some(records.into()),
            ..PartitionData::default()
        }
    }
}
