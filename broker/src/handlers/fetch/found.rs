//! What the rounds of one fetch have found so far, in the order in which it is to be answered.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tarn_record::TopicIdPartition;
use tarn_wire::Records;

use super::Order;
use crate::interest::{FetchedPartition, Scope};

/// See the module.
pub(super) struct Found {
    /// The order of the request; empty for an incremental fetch, which has the order of finding.
    pub(super) order: Order,
    scope: Scope,
    partitions: Vec<FetchedPartition>,
    places: HashMap<TopicIdPartition, usize>,
}

impl Found {
    pub(super) fn new(order: Order, scope: Scope) -> Found {
        let order = if scope == Scope::All { order } else { Vec::new() };
        Found { order, scope, partitions: Vec::new(), places: HashMap::new() }
    }

    /// Takes in what a core found; what was found of a partition before is replaced.
    pub(super) fn add(&mut self, found: Vec<FetchedPartition>) {
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

    /// Cuts what exceeds `max_bytes`, but for the first partition with records. Returns the partitions
    /// whose records have to wait for the next fetch.
    pub(super) fn fit(&mut self, max_bytes: usize) -> Vec<TopicIdPartition> {
        let mut used = 0;
        let mut cut = Vec::new();
        for index in self.in_order() {
            let partition = &mut self.partitions[index];
            let bytes = partition.records.len();
            if bytes > 0 && used > 0 && used + bytes > max_bytes {
                cut.push(partition.partition);
                partition.records = Records::from(Bytes::new());
            } else {
                used += bytes;
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
