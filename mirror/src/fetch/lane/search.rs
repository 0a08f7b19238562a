//! Finding the partition whose next batch is so large that its response is refused.
//!
//! A response announces its size before it says what it holds, and a source sends the first batch of the
//! first partition that has records whole, however large it is (KIP-74). So halves of the partitions are
//! asked for, in the order in which they waited, until one is left that alone brings too much. Whoever
//! answers with records is not the one; whoever has none is not the first.
//!
//! Invariants:
//! * each step leaves fewer partitions to ask;
//! * only a partition that was asked alone is found.

use tarn_record::TopicIdPartition;

/// Which partitions it can still be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// Not asked yet, who waited longest first; none where the search is over.
    open: Vec<TopicIdPartition>,
    /// How many of them are asked next.
    asked: usize,
}

impl Search {
    /// It is one of these, who waited longest first.
    pub(super) fn among(open: Vec<TopicIdPartition>) -> Search {
        let asked = open.len().div_ceil(2);
        Search { open, asked }
    }

    /// Whom to ask next; nobody where the search is over.
    pub(super) fn next(&self) -> &[TopicIdPartition] {
        &self.open[..self.asked]
    }

    /// What was asked brought too much. The partition, where it was asked alone.
    pub(super) fn too_large(&mut self) -> Option<TopicIdPartition> {
        self.open.truncate(self.asked);
        if self.open.len() == 1 {
            return self.open.pop().inspect(|_| self.asked = 0);
        }
        self.asked = self.open.len().div_ceil(2);
        None
    }

    /// What was asked brought an answer, with records of these.
    pub(super) fn answered(&mut self, with_records: &[TopicIdPartition]) {
        let before = self.asked;
        let mut index = 0;
        self.open.retain(|partition| {
            index += 1;
            index > before || !with_records.contains(partition)
        });
        let cleared = index - self.open.len();
        self.asked = before - cleared;
        if cleared == 0 {
            // All of them are empty: it is not among them.
            self.open.drain(..before);
            self.asked = self.open.len().div_ceil(2);
        }
        if self.asked == 0 {
            self.asked = self.open.len().div_ceil(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_record::{PartitionIndex, TopicId};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Has {
        Nothing,
        Records,
        TooMuch,
    }

    proptest! {
        /// Whatever the others have, it is found where it is there, nobody else ever is, and it takes few
        /// steps where those before it have nothing.
        #[test]
        fn the_first_that_is_too_large_is_found(source in prop::collection::vec(has(), 0..60)) {
            let mut search = Search::among((0..source.len()).map(partition).collect());
            let (mut found, mut steps) = (None, 0);
            while !search.next().is_empty() && found.is_none() {
                steps += 1;
                let of = |partition: &&TopicIdPartition| source[partition.partition.0 as usize];
                match search.next().iter().find(|partition| of(partition) != Has::Nothing) {
                    Some(first) if of(&first) == Has::TooMuch => found = search.too_large(),
                    Some(first) => {
                        let first = *first;
                        search.answered(&[first]);
                    }
                    None => search.answered(&[]),
                }
                prop_assert!(steps <= 3 * source.len() + 10);
            }
            let first = source.iter().position(|has| *has == Has::TooMuch);
            prop_assert_eq!(found, first.map(partition));
            let have_records = source.iter().filter(|has| **has == Has::Records).count();
            prop_assert!(steps <= have_records + 10, "{} steps of {}", steps, source.len());
        }
    }

    fn has() -> impl Strategy<Value = Has> {
        prop_oneof![8 => Just(Has::Nothing), 1 => Just(Has::Records), 1 => Just(Has::TooMuch)]
    }

    fn partition(index: usize) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(index as i32) }
    }
}
