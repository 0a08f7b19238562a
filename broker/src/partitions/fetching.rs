//! What fetch sessions read and wait for.

use tarn_record::TopicIdPartition;
use tarn_runtime::channel::Flag;
use tarn_wire::ErrorCode;

use super::Partitions;
use crate::envelope::FetchRead;
use crate::interest::{FetchedPartition, InterestId};

impl Partitions {
    /// Reads for a fetch session, and keeps what it wants; `absence` says why a partition is not here.
    pub fn fetch(&mut self, read: FetchRead, absence: impl Fn(TopicIdPartition) -> ErrorCode) {
        let interest = read.interest;
        self.interests.open(interest, read.wake, read.upserts.len());
        for partition in read.forgets {
            if let (Some(watcher), Some(replica)) =
                (self.interests.forget(interest, partition), self.replicas.get_mut(&partition))
            {
                replica.unwatch(watcher);
            }
        }
        for (partition, wanted) in read.upserts {
            if let (Some(watcher), Some(replica)) =
                (self.interests.upsert(interest, partition, wanted), self.replicas.get_mut(&partition))
            {
                replica.watch(watcher);
            }
        }
        read.requeue.into_iter().for_each(|partition| self.interests.requeue(interest, partition));
        for (partition, before, now) in self.interests.compact(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(before);
                replica.watch(now);
            }
        }
        let replicas = &self.replicas;
        let partitions =
            self.interests.fetch(interest, read.scope, read.max_bytes, |partition, wanted, limit, first| {
                match replicas.get(&partition) {
                    Some(replica) => replica.read(wanted, limit, first, read.isolation),
                    None => FetchedPartition::failed(partition, absence(partition)),
                }
            });
        // A session that has gone closes its interest itself.
        let _ = read.reply.fill(partitions);
    }

    /// Wakes the session at its next news; at once where there is news already.
    pub fn arm(&mut self, interest: InterestId, wake: &Flag) {
        if !self.interests.arm(interest) {
            wake.raise();
        }
    }

    /// Ends a session's interest.
    pub fn close_interest(&mut self, interest: InterestId) {
        for (partition, watcher) in self.interests.close(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(watcher);
            }
        }
    }
}
