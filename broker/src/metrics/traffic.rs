//! What clients produced and fetched on one core, topic by topic.
//!
//! A topic has a place from its first batch until it is deleted: what a client asks for and is not there has none, or
//! names that it makes up would fill the memory. The sums of all topics never fall.

use std::collections::HashMap;

use tarn_record::TopicId;
use tarn_record::validate::ClientBatch;

use crate::interest::FetchedPartition;
use tarn_log::Appended;
use tarn_wire::ErrorCode;

/// See the module. Owned by the core.
#[derive(Debug, Default)]
pub struct Traffic {
    all: TopicTraffic,
    topics: HashMap<TopicId, TopicTraffic>,
}

/// The traffic of one topic, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicTraffic {
    /// Records produced.
    pub messages_in: u64,
    /// Bytes of their batches.
    pub bytes_in: u64,
    /// Bytes of batches fetched.
    pub bytes_out: u64,
    /// Batches that clients wanted to append.
    pub produce_requests: u64,
    /// Those that were not appended.
    pub failed_produce_requests: u64,
    /// Partitions in answers to fetches.
    pub fetch_requests: u64,
    /// Those with an error.
    pub failed_fetch_requests: u64,
}

impl TopicTraffic {
    /// Adds what another core has seen of it.
    pub fn add(&mut self, other: &TopicTraffic) {
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.produce_requests += other.produce_requests;
        self.failed_produce_requests += other.failed_produce_requests;
        self.fetch_requests += other.fetch_requests;
        self.failed_fetch_requests += other.failed_fetch_requests;
    }
}

impl Traffic {
    /// A batch for a topic was appended, or not.
    pub fn produced<E>(&mut self, topic: TopicId, batch: &ClientBatch, result: Result<&Appended, E>) {
        let mut seen = TopicTraffic { produce_requests: 1, ..TopicTraffic::default() };
        match result {
            Ok(_) => {
                seen.messages_in = u64::try_from(batch.batch.header().record_count).unwrap_or(0);
                seen.bytes_in = batch.batch.bytes().len() as u64;
            }
            Err(_) => seen.failed_produce_requests = 1,
        }
        self.add(topic, &seen);
    }

    /// A batch for a topic that is there was refused before anybody tried to append it.
    pub fn refused(&mut self, topic: TopicId) {
        let seen =
            TopicTraffic { produce_requests: 1, failed_produce_requests: 1, ..TopicTraffic::default() };
        self.add(topic, &seen);
    }

    /// A partition is in an answer to a fetch.
    pub fn fetched(&mut self, found: &FetchedPartition) {
        let seen = TopicTraffic {
            fetch_requests: 1,
            failed_fetch_requests: u64::from(found.error != ErrorCode::NONE),
            bytes_out: found.records.len() as u64,
            ..TopicTraffic::default()
        };
        match found.error {
            ErrorCode::NONE => self.add(found.partition.topic_id, &seen),
            _ => {
                self.all.add(&seen);
                let known = self.topics.get_mut(&found.partition.topic_id);
                known.into_iter().for_each(|topic| topic.add(&seen));
            }
        }
    }

    /// All topics together, those included that are gone.
    pub fn all(&self) -> &TopicTraffic {
        &self.all
    }

    /// Every topic that had traffic.
    pub fn topics(&self) -> &HashMap<TopicId, TopicTraffic> {
        &self.topics
    }

    /// A topic is deleted.
    pub fn forget(&mut self, topic: TopicId) {
        self.topics.remove(&topic);
    }

    fn add(&mut self, topic: TopicId, seen: &TopicTraffic) {
        self.all.add(seen);
        self.topics.entry(topic).or_default().add(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicIdPartition};

    #[test]
    fn what_a_deleted_topic_had_stays_in_the_sum() {
        let (kept, deleted) = (TopicId::random(), TopicId::random());
        let mut traffic = Traffic::default();
        [kept, deleted].into_iter().for_each(|topic| traffic.refused(topic));
        traffic.fetched(&failed(kept));
        traffic.forget(deleted);
        assert_eq!(traffic.topics().keys().collect::<Vec<_>>(), [&kept]);
        assert_eq!(traffic.topics()[&kept].failed_fetch_requests, 1);
        let TopicTraffic { fetch_requests, failed_fetch_requests, failed_produce_requests, .. } =
            *traffic.all();
        assert_eq!((fetch_requests, failed_fetch_requests, failed_produce_requests), (1, 1, 2));
    }

    #[test]
    fn a_topic_that_is_not_there_takes_no_room() {
        let mut traffic = Traffic::default();
        (0..100).for_each(|_| traffic.fetched(&failed(TopicId::random())));
        assert!(traffic.topics().is_empty());
        assert_eq!(traffic.all().failed_fetch_requests, 100);
    }

    fn failed(topic_id: TopicId) -> FetchedPartition {
        let partition = TopicIdPartition { topic_id, partition: PartitionIndex(0) };
        FetchedPartition::failed(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER)
    }
}
