//! What fetch sessions read and wait for.

use tarn_log::ReadFrom;
use tarn_record::TopicIdPartition;
use tarn_runtime::channel::Flag;
use tarn_wire::ErrorCode;

use super::Partitions;
use crate::cold_reads::{Asked, Attempt, ColdRead, LookedUp, NOBODY};
use crate::envelope::{FetchAnswer, FetchRead};
use crate::interest::{FetchedPartition, InterestId, Room, Scope, Wanted};
use crate::replica::Reading;

impl Partitions {
    /// Reads for a fetch session, and keeps what it wants; `absence` says why a partition is not here. Returns what is
    /// to be looked up on the disk for it.
    pub fn fetch(
        &mut self,
        read: FetchRead,
        absence: impl Fn(TopicIdPartition) -> ErrorCode,
    ) -> Vec<ColdRead> {
        if read.scope == Scope::Once {
            return self.read_once(read, absence);
        }
        let interest = read.interest;
        self.interests.open(interest, read.wake, read.upserts.len());
        for partition in read.forgets {
            self.cold_reads.forget(interest, partition);
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
        self.interests.requeue(interest, &read.requeue);
        for (partition, before, now) in self.interests.compact(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(before);
                replica.watch(now);
            }
        }
        let (replicas, cold) = (&self.replicas, &mut self.cold_reads);
        let mut reads = Vec::new();
        // What is looked up is as much as may be sent, and takes no room from what memory has.
        let mut cold_room = read.max_bytes.max(1);
        let partitions =
            self.interests.fetch(interest, read.scope, read.max_bytes, |partition, wanted, limit, first| {
                let Some(replica) = replicas.get(&partition) else {
                    return FetchedPartition::failed(partition, absence(partition));
                };
                if cold.is_under_way(interest, partition, wanted.fetch_offset)
                    && let Reading::Cold(left_out, order) =
                        replica.order(wanted, limit, first, read.isolation)
                    && replica.log().has_offset(order.from)
                {
                    return left_out;
                }
                let read_from = |source| replica.read(wanted, limit, first, read.isolation, source);
                let (left_out, order) = match read_from(ReadFrom::Memory) {
                    Reading::Read(fetched) => {
                        if !cold.is_empty() {
                            cold.forget(interest, partition);
                        }
                        return fetched;
                    }
                    Reading::Cold(left_out, _) if cold_room == 0 => return left_out,
                    Reading::Cold(left_out, order) => (left_out, order),
                };
                match cold.attempt(interest, partition, order.from) {
                    Attempt::Wait => left_out,
                    Attempt::LookUp(lookup) => {
                        cold_room = cold_room.saturating_sub(limit.max(1));
                        reads.push(ColdRead::new(interest, lookup, replica, &order));
                        left_out
                    }
                    Attempt::Fail => FetchedPartition::failed(partition, ErrorCode::KAFKA_STORAGE_ERROR),
                    Attempt::Read => read_from(ReadFrom::Disk).into_fetched(),
                }
            });
        let lookups = self.cold_reads.under_way(interest);
        // A session that has gone closes its interest itself.
        let waiting = self.interests.waiting(interest);
        let _ = read.reply.fill(FetchAnswer { partitions, lookups, waiting });
        reads
    }

    /// A lookup for a session has ended: the partition is news for it.
    pub fn looked_up(&mut self, asked: &Asked, how: LookedUp) {
        let replica = self.replicas.get(&asked.partition);
        let is_changed = replica.is_none_or(|replica| replica.log().files() != asked.files);
        self.cold_reads.ended(asked, if is_changed { LookedUp::Changed } else { how });
        super::wake(self.interests.has_news_of(asked.session, asked.partition));
    }

    fn read_once(
        &mut self,
        read: FetchRead,
        absence: impl Fn(TopicIdPartition) -> ErrorCode,
    ) -> Vec<ColdRead> {
        let (replicas, cold) = (&self.replicas, &mut self.cold_reads);
        let (mut room, mut cold_room) = (Room::of(read.max_bytes), read.max_bytes.max(1));
        let (mut reads, mut lookups) = (Vec::new(), 0);
        let look = |(partition, wanted): &(TopicIdPartition, Wanted)| {
            room.fill(wanted, |limit, first| {
                let Some(replica) = replicas.get(partition) else {
                    return FetchedPartition::failed(*partition, absence(*partition));
                };
                let (left_out, order) =
                    match replica.read(wanted, limit, first, read.isolation, ReadFrom::Memory) {
                        Reading::Read(fetched) => return fetched,
                        Reading::Cold(left_out, order) => (left_out, order),
                    };
                lookups += 1;
                if cold_room > 0
                    && let Attempt::LookUp(lookup) = cold.attempt(NOBODY, *partition, order.from)
                {
                    cold_room = cold_room.saturating_sub(limit.max(1));
                    reads.push(ColdRead::new(NOBODY, lookup, replica, &order));
                }
                left_out
            })
        };
        let partitions = read.upserts.iter().map(look).collect();
        // Whoever has gone does not want it.
        let _ = read.reply.fill(FetchAnswer { partitions, lookups, waiting: 0 });
        reads
    }

    /// Wakes the session at its next news; at once where there is news already.
    pub fn arm(&mut self, interest: InterestId, wake: &Flag) {
        if !self.interests.arm(interest) {
            wake.raise();
        }
    }

    /// Ends a session's interest.
    pub fn close_interest(&mut self, interest: InterestId) {
        self.cold_reads.close(interest);
        for (partition, watcher) in self.interests.close(interest) {
            if let Some(replica) = self.replicas.get_mut(&partition) {
                replica.unwatch(watcher);
            }
        }
    }
}
