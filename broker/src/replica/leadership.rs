//! What the metadata says of a partition that this broker leads.

use tarn_image::PartitionRegistration;
use tarn_record::{BrokerId, Epoch};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The epoch in which this broker leads.
    pub epoch: Epoch,
    /// How many brokers hold the partition.
    pub replicas: usize,
    /// How many of them are in sync, this one included.
    pub in_sync: usize,
}

impl Leadership {
    /// As `partition` is registered; `None` where `broker` does not lead it.
    pub fn of(broker: BrokerId, partition: &PartitionRegistration) -> Option<Leadership> {
        (partition.leader == broker).then(|| Leadership {
            epoch: partition.leader_epoch,
            replicas: partition.replicas.len(),
            in_sync: partition.isr.len(),
        })
    }

    /// Where fewer replicas are in sync than have to be: how many have to be. More than there are replicas
    /// is never asked, whatever `min.insync.replicas` says.
    pub fn lacks(&self, min_in_sync: usize) -> Option<usize> {
        let effective = min_in_sync.min(self.replicas);
        (self.in_sync < effective).then_some(effective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_replicas_are_asked_for_than_there_are() {
        assert_eq!(of(1, 1).lacks(2), None, "Kafka takes it too: the effective minimum is 1");
        assert_eq!(of(3, 1).lacks(2), Some(2));
        assert_eq!(of(2, 1).lacks(5), Some(2));
        assert_eq!(of(3, 2).lacks(2), None);
    }

    fn of(replicas: usize, in_sync: usize) -> Leadership {
        Leadership { epoch: Epoch(0), replicas, in_sync }
    }
}
