//! What the source's brokers say of the cluster: its id, its brokers, its topics and who leads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_record::{BrokerId, Epoch, PartitionIndex, TopicId};
use tarn_transport::{Client, Endpoint};
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::metadata_response::MetadataResponseTopic;
use tarn_wire::messages::{MetadataRequest, MetadataResponse};
use tarn_wire::{ApiKey, ErrorCode};

use super::SourceError;

/// Which topics to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// None: only the cluster.
    None,
    /// These.
    Named(Vec<Arc<str>>),
    /// Every one there is.
    All,
}

/// The source at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMetadata {
    /// Its id.
    pub cluster_id: Option<String>,
    /// Its brokers.
    pub brokers: BTreeMap<BrokerId, Endpoint>,
    /// The topics that were asked for.
    pub topics: BTreeMap<Arc<str>, TopicMetadata>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Why nothing is known of it, or `ErrorCode::NONE`.
    pub error: ErrorCode,
    /// Its id, `TopicId::ZERO` where the source has none.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: BTreeMap<PartitionIndex, SourceLeader>,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLeader {
    /// The broker, `BrokerId::NONE` where there is none just now.
    pub broker: BrokerId,
    /// Its epoch, `Epoch::NONE` at a source that does not say.
    pub epoch: Epoch,
}

impl TopicMetadata {
    /// How many partitions it has.
    pub fn count(&self) -> i32 {
        self.partitions.keys().next_back().map_or(0, |last| last.0 + 1)
    }
}

/// Asks one broker.
///
/// # Errors
/// Why there is no answer.
pub async fn ask(client: &Client, topics: Topics) -> Result<SourceMetadata, SourceError> {
    let named = |name: &Arc<str>| MetadataRequestTopic {
        name: Some((&**name).into()),
        ..MetadataRequestTopic::default()
    };
    let topics = match topics {
        Topics::None => Some(Vec::new()),
        Topics::Named(names) => Some(names.iter().map(named).collect()),
        Topics::All => None,
    };
    let request = MetadataRequest { topics, allow_auto_topic_creation: false, ..MetadataRequest::default() };
    let response = client.call(&request).await?;
    match ErrorCode(response.error_code) {
        ErrorCode::NONE => Ok(read(response)),
        code => Err(SourceError::Refused { api: ApiKey::METADATA, code }),
    }
}

fn read(response: MetadataResponse) -> SourceMetadata {
    let broker =
        |port: i32, host: &str| Endpoint { host: host.to_owned(), port: u16::try_from(port).unwrap_or(0) };
    SourceMetadata {
        cluster_id: response.cluster_id.as_ref().map(|id| id.to_string()),
        brokers: response
            .brokers
            .iter()
            .map(|node| (BrokerId(node.node_id), broker(node.port, &node.host)))
            .collect(),
        topics: response
            .topics
            .into_iter()
            .filter_map(|topic| Some((Arc::from(&**topic.name.as_ref()?), read_topic(&topic))))
            .collect(),
    }
}

fn read_topic(topic: &MetadataResponseTopic) -> TopicMetadata {
    TopicMetadata {
        error: ErrorCode(topic.error_code),
        id: TopicId(topic.topic_id),
        partitions: topic
            .partitions
            .iter()
            .filter(|partition| partition.partition_index >= 0)
            .map(|partition| {
                let (broker, epoch) = (BrokerId(partition.leader_id), Epoch(partition.leader_epoch));
                (PartitionIndex(partition.partition_index), SourceLeader { broker, epoch })
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_wire::messages::metadata_response::{MetadataResponseBroker, MetadataResponsePartition};

    #[test]
    fn an_answer_is_read_by_name_and_number() {
        let response = MetadataResponse {
            cluster_id: Some("east".into()),
            brokers: vec![MetadataResponseBroker {
                node_id: 3,
                host: "b3".into(),
                port: 9092,
                ..MetadataResponseBroker::default()
            }],
            topics: vec![MetadataResponseTopic {
                name: Some("orders".into()),
                partitions: [0, 2]
                    .map(|partition_index| MetadataResponsePartition {
                        partition_index,
                        leader_id: 3,
                        leader_epoch: 7,
                        ..MetadataResponsePartition::default()
                    })
                    .into(),
                ..MetadataResponseTopic::default()
            }],
            ..MetadataResponse::default()
        };
        let metadata = read(response);
        assert_eq!(metadata.brokers[&BrokerId(3)].to_string(), "b3:9092");
        let topic = &metadata.topics["orders"];
        assert_eq!(topic.count(), 3);
        let leader = SourceLeader { broker: BrokerId(3), epoch: Epoch(7) };
        assert_eq!(topic.partitions[&PartitionIndex(2)], leader);
    }
}
