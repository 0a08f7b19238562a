//! Which core owns a partition.
//!
//! Rendezvous hashing over the cores that have the partition role: every core computes the same owner
//! from the topic id and the partition number alone, and a node started with another number of cores
//! moves no file, because files do not know of cores.
//!
//! Invariants:
//! * the owner depends on the topic id, the partition and the set of cores only;
//! * a core that is taken away moves only the partitions it owned.

use tarn_record::{PartitionIndex, TopicId};
use tarn_runtime::CoreId;

/// The cores of this node that own partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    cores: Vec<CoreId>,
}

impl Placement {
    /// A placement over `cores`, which has at least one element.
    ///
    /// # Panics
    /// Where `cores` is empty: the configuration refuses a node without partition cores.
    pub fn new(cores: Vec<CoreId>) -> Placement {
        assert!(!cores.is_empty(), "a node has at least one core with the partition role");
        Placement { cores }
    }

    /// The core that owns this partition.
    pub fn owner(&self, topic: TopicId, partition: PartitionIndex) -> CoreId {
        let key = mix(topic.0.as_u128() as u64 ^ mix((topic.0.as_u128() >> 64) as u64 ^ partition.0 as u64));
        let mut best = (0, self.cores[0]);
        for core in &self.cores {
            let weight = mix(key ^ mix(u64::from(core.0) + 1));
            if weight >= best.0 {
                best = (weight, *core);
            }
        }
        best.1
    }

    /// Every core with the partition role.
    pub fn cores(&self) -> &[CoreId] {
        &self.cores
    }
}

/// The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(cores: u16) -> Placement {
        Placement::new((0..cores).map(CoreId).collect())
    }

    #[test]
    fn partitions_spread_evenly_over_the_cores() {
        let placement = placement(4);
        let mut owned = [0u32; 4];
        for _ in 0..100 {
            let topic = TopicId::random();
            for partition in 0..100 {
                owned[usize::from(placement.owner(topic, PartitionIndex(partition)).0)] += 1;
            }
        }
        for count in owned {
            assert!((2200..2800).contains(&count), "uneven: {owned:?}");
        }
    }

    #[test]
    fn a_core_that_goes_moves_only_its_own_partitions() {
        let (four, three) = (placement(4), placement(3));
        let topic = TopicId::random();
        for partition in (0..1000).map(PartitionIndex) {
            let before = four.owner(topic, partition);
            if before != CoreId(3) {
                assert_eq!(three.owner(topic, partition), before);
            }
        }
    }
}
