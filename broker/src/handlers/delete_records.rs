//! DeleteRecords: the beginnings of logs go, as a client asks.

use std::rc::Rc;
use std::time::Duration;

use tarn_record::{Offset, TopicIdPartition};
use tarn_runtime::timeout;
use tarn_wire::ErrorCode;
use tarn_wire::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use tarn_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use crate::core::Core;
use crate::delete_records::{DeleteOrder, Deleted};
use crate::envelope::Envelope;
use crate::internal_topics::is_internal;
use crate::limits;
use crate::replica::DeleteUpTo;
use crate::scatter::scatter;

/// What stands for the high watermark in a request.
const HIGH_WATERMARK: i64 = -1;

/// Serves DeleteRecords. A single replica has nobody to wait for but its disk, so a shorter timeout than that takes
/// is no reason to fail, as it is none in Kafka.
pub async fn handle(core: Rc<Core>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let (mut orders, mut planned) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        for asked in &topic.partitions {
            let upto = match asked.offset {
                HIGH_WATERMARK => DeleteUpTo::HighWatermark,
                offset => DeleteUpTo::Offset(Offset(offset)),
            };
            let order = check(&core, &topic.name, asked.partition_index)
                .map(|partition| DeleteOrder { partition, upto });
            planned.push(order.map(drop));
            orders.extend(order.ok());
        }
    }
    let limit = u64::try_from(request.timeout_ms).unwrap_or(0).max(limits::DELETE_RECORDS_WAIT_MS_MIN);
    let asked = orders.len();
    let answers: Vec<Deleted> = match timeout(Duration::from_millis(limit), delete(&core, &orders)).await {
        Ok(answers) => answers,
        Err(_) => vec![Err(ErrorCode::REQUEST_TIMED_OUT); asked],
    };
    let (mut planned, mut answers) = (planned.into_iter(), answers.into_iter());
    let mut next = || match planned.next() {
        Some(Ok(())) => answers.next().unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR)),
        Some(Err(error)) => Err(error),
        None => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
    };
    let topics = request.topics.into_iter().map(|topic| DeleteRecordsTopicResult {
        partitions: topic.partitions.iter().map(|asked| result(asked.partition_index, next())).collect(),
        name: topic.name,
    });
    DeleteRecordsResponse { topics: topics.collect(), ..Default::default() }
}

/// A core has others to serve between two pieces of a long request.
async fn delete(core: &Rc<Core>, orders: &[DeleteOrder]) -> Vec<Deleted> {
    let mut answers = Vec::with_capacity(orders.len());
    for piece in orders.chunks(limits::DELETIONS_PER_ENVELOPE) {
        let piece = piece.iter().copied();
        let sent = scatter(core, piece, |order| order.partition, Envelope::DeleteRecords).await;
        let gathered = sent.gather().await.into_iter();
        answers.extend(gathered.map(|one| one.unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR))));
    }
    answers
}

/// The partition of that name, if this broker leads it and clients may delete from it.
fn check(core: &Rc<Core>, topic: &str, index: i32) -> Result<TopicIdPartition, ErrorCode> {
    let partition = core.view().led_by(core.node().broker_id(), topic, index);
    match partition {
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => partition,
        _ if is_internal(topic) => Err(ErrorCode::INVALID_TOPIC_EXCEPTION),
        _ => partition,
    }
}

fn result(partition_index: i32, deleted: Deleted) -> DeleteRecordsPartitionResult {
    let (low_watermark, error) = match deleted {
        Ok(start) => (start, ErrorCode::NONE),
        Err(error) => (Offset::NONE, error),
    };
    DeleteRecordsPartitionResult { partition_index, low_watermark: low_watermark.0, error_code: error.0 }
}
