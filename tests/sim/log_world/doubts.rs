//! What a log may have forgotten of producers and transactions.
//!
//! At a start and at a truncation a log learns them anew: from the batches that it looks at, and of those before from a
//! snapshot, where one is left. What only a snapshot could tell may be gone, and is gone then from the snapshots and
//! indexes that the log writes later, wherever it starts. So the doubt stays with the batch.

use std::collections::BTreeMap;

use super::batches::{Meaning, Stored};

/// What a log may not know of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// What it says of its producer.
    pub(crate) producer: bool,
    /// That its transaction has it.
    pub(crate) transaction: bool,
    /// That it is there: it was not flushed, lies below the start, and nothing that follows shows it.
    pub(crate) presence: bool,
}

/// How a log has learnt its producers and transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    /// It has looked at the batches that end here or above.
    pub(crate) looked_from: i64,
    /// It has noted again what was aborted from here on; what is noted of those before stays as it was.
    pub(crate) noted_from: i64,
    pub(crate) recalls: Recalls,
}

/// What it knows of the batches that a producer may send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalls {
    /// The last one, as a snapshot does.
    Last,
    /// All that it has looked at.
    LookedAt,
}

impl Learnt {
    /// Marks in the history what the log may have forgotten.
    pub(crate) fn doubt(&self, history: &mut [Stored]) {
        let below = history.partition_point(|batch| batch.last < self.looked_from);
        let doubted = self.transactions_doubted(history, below);
        history[..below].iter_mut().for_each(|batch| batch.doubt.producer = true);
        doubted.into_iter().for_each(|at| history[at].doubt.transaction = true);
    }

    /// Of the first `below` batches, the numbers of those whose transaction was not over when all was noted of it that
    /// ever is.
    fn transactions_doubted(&self, history: &[Stored], below: usize) -> Vec<usize> {
        let mut doubted = Vec::new();
        let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (at, batch) in history.iter().enumerate() {
            match batch.meaning {
                Meaning::Records(sent) if sent.transactional && at < below => {
                    open.entry(sent.id).or_default().push(at);
                }
                Meaning::Marker { id, .. } => {
                    let ended = open.remove(&id).filter(|_| batch.base >= self.noted_from);
                    doubted.extend(ended.into_iter().flatten());
                }
                Meaning::Reset => open.clear(),
                Meaning::Records(_) => {}
            }
        }
        doubted.extend(open.into_values().flatten());
        doubted
    }
}

#[cfg(test)]
mod tests {
    use super::super::batches::tests::{abort, in_transaction};
    use super::*;

    /// Producer 3 has a transaction at 0, 10 and 20 that ends at 30, and one that begins at 40.
    fn history() -> Vec<Stored> {
        let begun = [0, 10, 20].map(|base| in_transaction(3, base));
        begun.into_iter().chain([abort(3, 30), in_transaction(3, 40)]).collect()
    }

    fn doubted(learnt: Learnt) -> (Vec<i64>, Vec<i64>) {
        let mut history = history();
        learnt.doubt(&mut history);
        let bases = |is_doubted: fn(&Doubt) -> bool| {
            history.iter().filter(|batch| is_doubted(&batch.doubt)).map(|batch| batch.base).collect()
        };
        (bases(|doubt| doubt.producer), bases(|doubt| doubt.transaction))
    }

    #[test]
    fn what_was_looked_at_is_known() {
        let learnt = Learnt { looked_from: 0, noted_from: 0, recalls: Recalls::LookedAt };
        assert_eq!(doubted(learnt), (vec![], vec![]));
    }

    #[test]
    fn a_transaction_that_is_noted_again_may_be_so_without_its_first_batches() {
        let learnt = Learnt { looked_from: 15, noted_from: 30, recalls: Recalls::LookedAt };
        assert_eq!(doubted(learnt), (vec![0, 10], vec![0, 10]));
    }

    #[test]
    fn one_that_was_over_before_stays_as_it_was_noted() {
        let learnt = Learnt { looked_from: 45, noted_from: 31, recalls: Recalls::Last };
        assert_eq!(doubted(learnt), (vec![0, 10, 20, 30, 40], vec![40]));
    }
}
