//! DescribeProducers: who writes to a partition, and whose transactions are open (KIP-664).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tarn_wire::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use tarn_wire::messages::{DescribeProducersRequest, DescribeProducersResponse};
use tarn_wire::{ErrorCode, Str};

use crate::core::Core;
use crate::envelope::{ActiveProducer, Envelope};
use crate::scatter::scatter;

/// Serves DescribeProducers.
pub async fn describe(core: &Rc<Core>, request: DescribeProducersRequest) -> DescribeProducersResponse {
    let find = |topic: &str, index| core.view().led_by(core.node().broker_id(), topic, index);
    // Each partition once, however often it is named: an answer is far longer than a question.
    let mut named: BTreeMap<Str, BTreeSet<i32>> = BTreeMap::new();
    for topic in request.topics {
        named.entry(topic.name).or_default().extend(topic.partition_indexes);
    }
    let mut asked = Vec::new();
    let mut topics = Vec::with_capacity(named.len());
    for (name, indexes) in named {
        let partitions: Vec<_> = indexes.into_iter().map(|index| (index, find(&name, index))).collect();
        asked.extend(partitions.iter().filter_map(|(_, found)| found.ok()));
        topics.push((name, partitions));
    }
    let sent = scatter(core, asked, |partition| *partition, Envelope::Producers).await;
    let mut answers = sent.gather().await.into_iter();
    let topics = topics.into_iter().map(|(name, partitions)| TopicResponse {
        name,
        partitions: partitions
            .into_iter()
            .map(|(index, found)| {
                let gone = Err(ErrorCode::UNKNOWN_SERVER_ERROR);
                partition_response(index, found.and_then(|_| answers.next().flatten().unwrap_or(gone)))
            })
            .collect(),
    });
    DescribeProducersResponse { topics: topics.collect(), ..Default::default() }
}

fn partition_response(
    partition_index: i32,
    answer: Result<Vec<ActiveProducer>, ErrorCode>,
) -> PartitionResponse {
    match answer {
        Ok(producers) => PartitionResponse {
            partition_index,
            active_producers: producers.into_iter().map(state).collect(),
            ..Default::default()
        },
        Err(error) => PartitionResponse { partition_index, error_code: error.0, ..Default::default() },
    }
}

fn state(producer: ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.id.0,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence.0,
        last_timestamp: producer.last_timestamp.0,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_start.0,
    }
}
