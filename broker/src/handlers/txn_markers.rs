//! WriteTxnMarkers: what a transaction coordinator has decided, on its way into the logs.

use std::collections::BTreeMap;
use std::rc::Rc;

use tarn_log::producers::MarkerRule;
use tarn_record::builder::{EndTransaction, Outcome};
use tarn_record::{ProducerEpoch, ProducerId, TopicIdPartition};
use tarn_wire::messages::write_txn_markers_request::WritableTxnMarker;
use tarn_wire::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use tarn_wire::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tarn_wire::{ErrorCode, Str};

use crate::core::Core;
use crate::envelope::{Envelope, Marker, MarkerRequest};
use crate::limits;
use crate::scatter::scatter;

/// The first transaction version that ends each transaction with a new epoch (KIP-890).
const WITH_EPOCH_BUMP: i8 = 2;

/// What became of each partition of each producer: a producer that is named twice has one answer.
type Results = BTreeMap<i64, BTreeMap<Str, BTreeMap<i32, ErrorCode>>>;

/// Serves WriteTxnMarkers: answers when every marker is committed.
pub async fn write(core: &Rc<Core>, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse {
    let mut results = Results::new();
    let mut items: Vec<(TopicIdPartition, Marker)> = Vec::new();
    let mut places = Vec::new();
    for marker in &request.markers {
        let of_producer = results.entry(marker.producer_id).or_default();
        for topic in &marker.topics {
            let of_topic = of_producer.entry(topic.name.clone()).or_default();
            for &index in &topic.partition_indexes {
                if of_topic.contains_key(&index) {
                    continue;
                }
                let found = core.view().led_by(core.node().broker_id(), &topic.name, index);
                match found.and_then(|partition| Ok((partition, parsed(marker)?))) {
                    Ok(item) => {
                        of_topic.insert(index, ErrorCode::UNKNOWN_SERVER_ERROR);
                        items.push(item);
                        places.push((marker.producer_id, topic.name.clone(), index));
                    }
                    Err(error) => {
                        of_topic.insert(index, error);
                    }
                }
            }
        }
    }
    // A core has others to serve between two pieces of a long request.
    let mut items = items.into_iter().peekable();
    let mut places = places.into_iter();
    while items.peek().is_some() {
        let piece: Vec<_> = items.by_ref().take(limits::MARKERS_PER_ENVELOPE).collect();
        let deadline_ms = core.clock_ms() + limits::MARKER_WAIT_MS;
        let envelope = |items, reply| Envelope::Markers(MarkerRequest { items, deadline_ms, reply });
        let sent = scatter(core, piece, |(partition, _)| *partition, envelope).await;
        for (answer, (producer_id, topic, index)) in sent.gather().await.into_iter().zip(places.by_ref()) {
            let error = answer.map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |produced| produced.error);
            results.entry(producer_id).or_default().entry(topic).or_default().insert(index, error);
        }
    }
    respond(results)
}

/// The marker of a request.
fn parsed(marker: &WritableTxnMarker) -> Result<Marker, ErrorCode> {
    if marker.producer_id < 0 || marker.producer_epoch < 0 {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let end = EndTransaction {
        producer_id: ProducerId(marker.producer_id),
        producer_epoch: ProducerEpoch(marker.producer_epoch),
        outcome: if marker.transaction_result { Outcome::Commit } else { Outcome::Abort },
        coordinator_epoch: marker.coordinator_epoch,
    };
    let bumps = marker.transaction_version >= WITH_EPOCH_BUMP;
    Ok(Marker { end, rule: if bumps { MarkerRule::BumpedEpoch } else { MarkerRule::SameEpoch } })
}

fn respond(results: Results) -> WriteTxnMarkersResponse {
    let partition = |(partition_index, error): (i32, ErrorCode)| WritableTxnMarkerPartitionResult {
        partition_index,
        error_code: error.0,
    };
    let topic = |(name, partitions): (Str, BTreeMap<i32, ErrorCode>)| WritableTxnMarkerTopicResult {
        name,
        partitions: partitions.into_iter().map(partition).collect(),
    };
    let markers = results.into_iter().map(|(producer_id, topics)| WritableTxnMarkerResult {
        producer_id,
        topics: topics.into_iter().map(topic).collect(),
    });
    WriteTxnMarkersResponse { markers: markers.collect() }
}
