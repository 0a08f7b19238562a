//! What is deleted from the beginnings of logs.

use tarn_log::{Ages, LogError};
use tarn_record::{Timestamp, TopicIdPartition};

use super::Partitions;
use crate::envelope::CheckpointEntry;
use crate::replica::{DeleteUpTo, NotDeleted, Replica, Retained};

impl Partitions {
    /// Deletes records, as a client asks. What the checkpoint files are to say of the partition before the client is
    /// told; `None` where it is not here.
    pub fn delete_records(
        &mut self,
        partition: TopicIdPartition,
        upto: DeleteUpTo,
        now: Timestamp,
    ) -> Option<Result<CheckpointEntry, NotDeleted>> {
        let deleted = self.drop_from(partition, |replica| replica.delete_records(upto, now))?;
        let replica = self.replicas.get(&partition)?;
        Some(deleted.map(|()| CheckpointEntry::of(replica)))
    }

    /// Drops some of what retention lets go; `None` where the partition is not here.
    pub fn drop_expired(
        &mut self,
        partition: TopicIdPartition,
        ages: &Ages,
        now: Timestamp,
    ) -> Option<Result<Retained, LogError>> {
        self.drop_from(partition, |replica| replica.drop_expired(ages, now))
    }

    fn drop_from<R>(
        &mut self,
        partition: TopicIdPartition,
        change: impl FnOnce(&mut Replica) -> R,
    ) -> Option<R> {
        let replica = self.replicas.get_mut(&partition)?;
        let before = replica.log().start();
        let changed = change(replica);
        self.removals.extend(replica.take_removals());
        self.unflushed.insert(partition);
        if replica.log().start() != before {
            self.news_of(partition);
        }
        Some(changed)
    }
}
