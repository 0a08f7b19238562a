//! The replicas that one core owns, and what is to be done when they change.
//!
//! Everything here happens on the owning core without waiting. An operation that lets readers see more
//! leaves it as news, which the core delivers when it is done with its own bookkeeping.
//!
//! Invariants:
//! * a partition is here exactly while the metadata places it on this broker and the placement on this
//!   core, or its log could not be opened;
//! * a produce request that waits here is answered by its high watermark, its failure or its deadline;
//! * a log has one flush in flight at most, and is in `flushing` until it has ended, whatever becomes of
//!   the replica meanwhile;
//! * a replica that is not clean is in `unflushed`, until the next look finds it clean;
//! * once closed, there is no replica any more and none comes.

use std::collections::{HashMap, HashSet};
use std::mem;

use tarn_mirror::local_cluster::MirrorGeneration;
use tarn_record::TopicIdPartition;
use tarn_runtime::channel::Flag;
use tarn_wire::ErrorCode;

use crate::cold_reads::ColdReads;
use crate::interest::Interests;
use crate::limits;
use crate::metrics::Traffic;
use crate::removing::Removal;
use crate::replica::Replica;
use crate::replica::waiting::Waiting;

use appending::{WaitingProduce, answer};
use turned_away::TurnedAway;

mod appending;
mod deleting;
mod fetching;
mod flushing;
mod mirroring;
mod turned_away;

/// The partitions of one core.
#[derive(Debug)]
pub struct Partitions {
    /// Each in its own place: a table that held them would be half empty, and copied whole whenever it grows.
    replicas: HashMap<TopicIdPartition, Box<Replica>>,
    interests: Interests<Flag>,
    cold_reads: ColdReads,
    waiting: Waiting<WaitingProduce>,
    turned_away: TurnedAway,
    dirty: HashSet<TopicIdPartition>,
    /// At least those of which something is not on the disk: so that few of very many are gone through.
    unflushed: HashSet<TopicIdPartition>,
    flushing: HashSet<TopicIdPartition>,
    is_closed: bool,
    removals: Vec<Removal>,
    generations: u64,
    traffic: Traffic,
    unflushed_bytes: u64,
}

impl Default for Partitions {
    fn default() -> Partitions {
        Partitions {
            replicas: HashMap::new(),
            interests: Interests::default(),
            cold_reads: ColdReads::default(),
            waiting: Waiting::new(limits::WAITING_PRODUCES_PER_CORE),
            turned_away: TurnedAway::default(),
            dirty: HashSet::new(),
            unflushed: HashSet::new(),
            flushing: HashSet::new(),
            is_closed: false,
            removals: Vec::new(),
            generations: 0,
            traffic: Traffic::default(),
            unflushed_bytes: 0,
        }
    }
}

impl Partitions {
    /// A generation that no gate of this core has had, also of a partition that left and came back.
    pub fn next_generation(&mut self) -> MirrorGeneration {
        self.generations += 1;
        MirrorGeneration(self.generations)
    }

    /// The replica of a partition.
    pub fn get(&self, partition: TopicIdPartition) -> Option<&Replica> {
        self.replicas.get(&partition).map(Box::as_ref)
    }

    /// The replica of a partition, to be changed. Call `news_of` after a change that readers can see.
    pub fn get_mut(&mut self, partition: TopicIdPartition) -> Option<&mut Replica> {
        let replica = self.replicas.get_mut(&partition)?;
        self.unflushed.insert(partition);
        Some(replica)
    }

    /// Every replica.
    pub fn iter(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values().map(Box::as_ref)
    }

    /// How many replicas there are.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Produce requests that wait for a high watermark.
    pub fn waiting_produces(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes that were not on the disk when it was last looked what is to be flushed in the background.
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// What clients produced and fetched by this core.
    pub fn traffic(&mut self) -> &mut Traffic {
        &mut self.traffic
    }

    /// Takes a replica in. Sessions that asked for it before are told.
    pub fn insert(&mut self, mut replica: Replica) {
        let partition = replica.partition();
        self.interests.watchers_of(partition).into_iter().for_each(|watcher| replica.watch(watcher));
        if replica.waits_for_flush() && replica.log().flushed_to() < replica.log().end() {
            // What a crash left behind is promised, and seen, once it is on the disk for certain.
            self.dirty.insert(partition);
        }
        self.unflushed.insert(partition);
        self.replicas.insert(partition, Box::new(replica));
        self.news_of(partition);
    }

    /// Gives a replica up: what waits on it fails, and sessions are told at their next fetch.
    pub fn remove(&mut self, partition: TopicIdPartition, error: ErrorCode) -> Option<Replica> {
        let replica = self.replicas.remove(&partition)?;
        answer(self.waiting.fail(partition, error));
        for watcher in replica.watchers() {
            wake(self.interests.has_news(*watcher));
        }
        Some(*replica)
    }

    /// Gives every replica up for good: what waits fails, and none is taken in any more.
    pub fn close(&mut self) -> Vec<Replica> {
        self.is_closed = true;
        let all: Vec<_> = self.replicas.keys().copied().collect();
        all.into_iter()
            .filter_map(|partition| self.remove(partition, ErrorCode::NOT_LEADER_OR_FOLLOWER))
            .collect()
    }

    /// True once the partitions were given up for good.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Tells the watchers of a partition, and the requests that wait on its high watermark.
    pub fn news_of(&mut self, partition: TopicIdPartition) {
        let Some(replica) = self.replicas.get(&partition) else { return };
        for watcher in replica.watchers() {
            wake(self.interests.has_news(*watcher));
        }
        answer(self.waiting.high_watermark(partition, replica.high_watermark()));
    }

    /// Takes over the files that the log of a partition has let go.
    pub fn collect_removals(&mut self, partition: TopicIdPartition) {
        if let Some(replica) = self.replicas.get_mut(&partition) {
            self.removals.extend(replica.take_removals());
        }
    }

    /// Files that logs have let go, to be removed on another thread.
    pub fn take_removals(&mut self) -> Vec<Removal> {
        mem::take(&mut self.removals)
    }
}

fn wake(flag: Option<&Flag>) {
    if let Some(flag) = flag {
        flag.raise();
    }
}

#[cfg(test)]
mod tests;
