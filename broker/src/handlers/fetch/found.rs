//! What the rounds of one fetch have found so far, in the order in which it is to be answered.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tarn_record::TopicIdPartition;
use tarn_wire::Records;

use super::Order;
use crate::envelope::FetchAnswer;
use crate::interest::{FetchedPartition, Scope};

/// See the module.
pub(super) struct Found {
    /// The order of the request; empty for an incremental fetch, which has the order of finding.
    pub(super) order: Order,
    scope: Scope,
    partitions: Vec<FetchedPartition>,
    /// How many partitions are being looked up on the disk.
    pub(super) lookups: usize,
    places: HashMap<TopicIdPartition, usize>,
}

impl Found {
    pub(super) fn new(order: Order, scope: Scope) -> Found {
        let order = if scope == Scope::All { order } else { Vec::new() };
        Found { order, scope, partitions: Vec::new(), lookups: 0, places: HashMap::new() }
    }

    /// Takes in what a core answers.
    pub(super) fn take_in(&mut self, answer: FetchAnswer) {
        self.lookups += answer.lookups;
        self.add(answer.partitions);
    }

    /// Takes in what a core found; what was found of a partition before is replaced.
    fn add(&mut self, found: Vec<FetchedPartition>) {
        for partition in found {
            match self.places.get(&partition.partition) {
                Some(place) => self.partitions[*place] = partition,
                None => {
                    self.places.insert(partition.partition, self.partitions.len());
                    self.partitions.push(partition);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.partitions.iter().map(|partition| partition.records.len()).sum()
    }

    /// True where the fetch must be answered at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.partitions.iter().any(FetchedPartition::is_urgent)
    }

    /// True where there is nothing to send, and there may be once the disk has answered.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.lookups > 0 && self.partitions.iter().all(|partition| partition.records.is_empty())
    }

    /// Cuts what exceeds `max_bytes`, but for the first batch of the first partition with records. Returns the
    /// partitions whose records all have to wait for the next fetch.
    pub(super) fn fit(&mut self, max_bytes: usize) -> Vec<TopicIdPartition> {
        let mut used = 0;
        let mut cut = Vec::new();
        let mut seen = vec![false; self.partitions.len()];
        for index in self.in_order() {
            // A request may name a partition twice.
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let partition = &mut self.partitions[index];
            let (bytes, room) = (partition.records.len(), max_bytes.saturating_sub(used));
            if bytes <= room || used == 0 {
                used += bytes;
            } else if partition.first_batch_bytes <= room {
                partition.records.truncate(room);
                used += room;
            } else {
                cut.push(partition.partition);
                partition.records = Records::from(Bytes::new());
            }
        }
        if self.scope == Scope::News {
            let cut: HashSet<_> = cut.iter().copied().collect();
            self.partitions.retain(|partition| !cut.contains(&partition.partition));
        }
        cut
    }

    /// What was found, in the order of the answer.
    pub(super) fn into_partitions(mut self) -> Vec<FetchedPartition> {
        if self.order.is_empty() {
            return self.partitions;
        }
        let order = self.in_order();
        let mut partitions: Vec<Option<FetchedPartition>> = self.partitions.drain(..).map(Some).collect();
        order.into_iter().filter_map(|index| partitions[index].take()).collect()
    }

    fn in_order(&self) -> Vec<usize> {
        if self.order.is_empty() {
            return (0..self.partitions.len()).collect();
        }
        self.order.iter().filter_map(|partition| self.places.get(partition).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};
    use tarn_wire::ErrorCode;

    #[test]
    fn what_is_over_is_cut_down_to_whole_first_batches_in_the_order_of_the_request() {
        let order = [3, 0, 2, 1];
        let mut found = Found::new(order.map(partition).to_vec(), Scope::All);
        // As two cores find them: each as much as may be sent of all.
        found.add(vec![with(0, 60, 10), with(2, 60, 30)]);
        found.add(vec![with(1, 20, 20), with(3, 50, 10)]);
        assert_eq!(found.fit(100), [partition(2), partition(1)]);
        assert_eq!(answer(found), [(3, 50), (0, 50), (2, 0), (1, 0)], "all are told");
    }

    #[test]
    fn an_incremental_answer_leaves_out_what_has_no_room() {
        let mut found = Found::new(Vec::new(), Scope::News);
        found.add(vec![with(0, 90, 10), with(2, 60, 30), with(1, 10, 10)]);
        assert_eq!(found.fit(100), [partition(2)]);
        assert_eq!(answer(found), [(0, 90), (1, 10)]);
    }

    #[test]
    fn a_first_batch_that_is_larger_than_all_is_sent_alone() {
        let mut found = Found::new(Vec::new(), Scope::News);
        found.add(vec![with(0, 0, 0), with(1, 500, 500)]);
        found.add(vec![with(2, 500, 500)]);
        assert_eq!(found.fit(100), [partition(2)]);
        assert_eq!(answer(found), [(0, 0), (1, 500)]);
    }

    #[test]
    fn a_partition_that_is_named_twice_is_answered_once() {
        let mut found = Found::new([0, 0].map(partition).to_vec(), Scope::All);
        found.add(vec![with(0, 60, 60)]);
        assert_eq!(found.fit(100), []);
        assert_eq!(answer(found), [(0, 60)]);
    }

    #[test]
    fn only_who_has_nothing_to_send_waits_for_the_disk() {
        let mut found = Found::new(Vec::new(), Scope::News);
        found.add(vec![with(0, 0, 0)]);
        assert!(!found.waits_for_disk());
        found.lookups = 1;
        assert!(found.waits_for_disk());
        found.add(vec![with(1, 10, 10)]);
        assert!(!found.waits_for_disk());
    }

    fn answer(found: Found) -> Vec<(i32, usize)> {
        let partitions = found.into_partitions();
        partitions.iter().map(|one| (one.partition.partition.0, one.records.len())).collect()
    }

    fn with(number: i32, bytes: usize, first_batch_bytes: usize) -> FetchedPartition {
        let records = Records::from(Bytes::from(vec![0; bytes]));
        let none = FetchedPartition::failed(partition(number), ErrorCode::NONE);
        FetchedPartition { records, first_batch_bytes, ..none }
    }

    fn partition(number: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(number) }
    }
}
