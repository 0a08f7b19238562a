//! Which logs are to be flushed: one flush of a log in flight at most.

use std::collections::BTreeSet;
use std::mem;

use tarn_log::{FlushJob, Flushed, LogError};
use tarn_record::{Timestamp, TopicIdPartition};

use super::Partitions;
use crate::limits;
use crate::replica::Replica;

impl Partitions {
    /// The flushes that somebody waits for: one for each partition appended to since the last call. One
    /// that is being flushed already has its turn when that has ended.
    pub fn flush_jobs(&mut self) -> Vec<(TopicIdPartition, FlushJob)> {
        let mut dirty: BTreeSet<_> = mem::take(&mut self.dirty).into_iter().collect();
        let jobs = self.flush_jobs_of(&mut dirty);
        self.dirty.extend(dirty);
        jobs
    }

    /// Flushes of the batches of `wanted`, of which only those stay that are being flushed already.
    pub fn flush_jobs_of(
        &mut self,
        wanted: &mut BTreeSet<TopicIdPartition>,
    ) -> Vec<(TopicIdPartition, FlushJob)> {
        let (busy, ready): (BTreeSet<_>, BTreeSet<_>) =
            mem::take(wanted).into_iter().partition(|one| self.flushing.contains(one));
        *wanted = busy;
        let job = |partition| Some((partition, self.replicas.get_mut(&partition)?.flush_batches_job()?));
        let jobs: Vec<_> = ready.into_iter().filter_map(job).collect();
        self.flushing.extend(jobs.iter().map(|(partition, _)| *partition));
        jobs
    }

    /// A flush of everything in one partition; `None` where there is nothing to do, or one is in flight.
    pub fn flush_job_of(&mut self, partition: TopicIdPartition) -> Option<FlushJob> {
        if self.flushing.contains(&partition) {
            return None;
        }
        let job = self.replicas.get_mut(&partition)?.flush_job()?;
        self.flushing.insert(partition);
        Some(job)
    }

    /// True until the flush of a partition has ended, though the replica may have gone.
    pub fn is_flushing(&self, partition: TopicIdPartition) -> bool {
        self.flushing.contains(&partition)
    }

    /// A flush that found no room is to be tried again.
    pub fn flush_again(&mut self, partition: TopicIdPartition) {
        self.dirty.insert(partition);
    }

    /// A flush that nobody runs any more.
    pub fn flush_dropped(&mut self, partition: TopicIdPartition) {
        self.flushing.remove(&partition);
    }

    /// True where a flush is waited for.
    pub fn wants_flush(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Something was appended to a partition: it wants a flush where somebody waits for one, or the topic asks for
    /// one after so many records; and is unflushed from now on.
    pub(super) fn note_appended(&mut self, partition: TopicIdPartition, now: Timestamp) {
        let Some(replica) = self.replicas.get_mut(&partition) else { return };
        replica.note_unflushed(now);
        self.unflushed.insert(partition);
        if replica.waits_for_flush() || replica.has_many_unflushed() {
            self.dirty.insert(partition);
        }
    }

    /// The partitions to flush though nobody waits: those whose topic asks for it after a time; and, so that a crash
    /// does not make us read too much again, all while that is much, else a few of those whose epochs alone are not
    /// on the disk, since what was promised of them is.
    /// `share` is how much is not too much on this core.
    pub fn background_flush_due(&mut self, now: Timestamp, share: u64) -> Vec<TopicIdPartition> {
        let replicas = &self.replicas;
        self.unflushed.retain(|partition| replicas.get(partition).is_some_and(|replica| !replica.is_clean()));
        let replicas = self.unflushed.iter().filter_map(|partition| replicas.get(partition).map(Box::as_ref));
        let unflushed = |replica: &&Replica| replica.log().unflushed_bytes();
        self.unflushed_bytes = replicas.clone().map(|replica| unflushed(&replica)).sum();
        if self.unflushed_bytes >= share {
            return replicas.filter(|replica| unflushed(replica) > 0).map(Replica::partition).collect();
        }
        let lacks_epochs = |replica: &&Replica| replica.log().recovery_point() < replica.log().flushed_to();
        let without_epochs = replicas.clone().filter(lacks_epochs).take(limits::EPOCHS_SAVED_PER_INTERVAL);
        let late = replicas.filter(|replica| replica.is_unflushed_for_long(now));
        let due: BTreeSet<_> = late.chain(without_epochs).map(Replica::partition).collect();
        due.into_iter().collect()
    }

    /// A flush has ended.
    ///
    /// # Errors
    /// The disk's refusal: nothing that was promised on this directory may be acknowledged any more.
    pub fn flushed(
        &mut self,
        partition: TopicIdPartition,
        result: Result<Flushed, LogError>,
    ) -> Result<(), LogError> {
        self.flushing.remove(&partition);
        // A partition that is gone: what its flush met there is of no interest.
        let Some(replica) = self.replicas.get_mut(&partition) else { return Ok(()) };
        if replica.flushed(result)? {
            self.news_of(partition);
        }
        Ok(())
    }
}
