//! The oracle for transactions, written from Kafka's rules and not from the code: where each began, and which were
//! aborted.

use std::collections::BTreeMap;

use super::batches::{Meaning, Stored};
use crate::simulation::Compared;

/// Where a transaction began.
#[derive(Clone, Debug)]
pub(crate) struct Began {
    first: i64,
    /// Where a log may take it to have begun that has forgotten what came before.
    later: Vec<i64>,
    /// False where the log may have forgotten all of it.
    is_known: bool,
}

impl Began {
    pub(crate) fn with(batch: &Stored) -> Began {
        Began { first: batch.base, later: Vec::new(), is_known: !batch.doubt.transaction }
    }

    /// It has one more batch.
    pub(crate) fn go_on(&mut self, batch: &Stored) {
        if !self.is_known {
            self.later.push(batch.base);
            self.is_known = !batch.doubt.transaction;
        }
    }

    /// Where it did.
    pub(crate) fn first(&self) -> i64 {
        self.first
    }

    /// The highest offset that a log may take for it; `None` where it may have forgotten all.
    pub(crate) fn highest(&self) -> Option<i64> {
        self.is_known.then(|| self.later.last().copied().unwrap_or(self.first))
    }

    /// True where the log may have forgotten all of it.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        !self.is_known
    }

    /// True for an offset that a log may take for where it began.
    pub(crate) fn may_be_at(&self, offset: i64) -> bool {
        self.first == offset || self.later.contains(&offset)
    }
}

/// An aborted transaction as a log tells it: producer, first offset and marker.
pub(crate) type Aborted = (i64, i64, i64);

/// What a history says of transactions that were aborted.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbortedTransactions {
    /// Of each producer, the transaction that is open.
    open: BTreeMap<i64, Began>,
    /// By marker.
    aborted: Vec<Ended>,
}

#[derive(Clone, Debug)]
struct Ended {
    id: i64,
    began: Began,
    marker: i64,
}

impl AbortedTransactions {
    pub(crate) fn replayed(history: &[Stored]) -> AbortedTransactions {
        let mut transactions = AbortedTransactions::default();
        history.iter().for_each(|batch| transactions.apply(batch));
        transactions
    }

    pub(crate) fn apply(&mut self, batch: &Stored) {
        match batch.meaning {
            Meaning::Records(sent) if sent.transactional => {
                let began = self.open.entry(sent.id).and_modify(|began| began.go_on(batch));
                began.or_insert_with(|| Began::with(batch));
            }
            Meaning::Marker { id, aborted: is_aborted, .. } => {
                if let Some(began) = self.open.remove(&id).filter(|_| is_aborted) {
                    self.aborted.push(Ended { id, began, marker: batch.base });
                }
            }
            Meaning::Reset => self.open.clear(),
            Meaning::Records(_) => {}
        }
    }

    /// Compares those that touch `from..upper` with those that were found.
    pub(crate) fn compare(&self, from: i64, upper: i64, found: &[Aborted]) -> Result<Compared, String> {
        let below = self.aborted.partition_point(|ended| ended.marker < from);
        let touching = || self.aborted[below..].iter().filter(|ended| ended.began.first < upper);
        let wrong = || Err(format!("{found:?} instead of {:?}", touching().collect::<Vec<_>>()));
        let (mut compared, mut rest) = (Compared::default(), found);
        for ended in touching() {
            compared.count(ended.is_certain());
            match rest.split_first() {
                Some((next, after)) if ended.may_be(next, upper) => rest = after,
                _ if ended.may_be_missing(upper) => {}
                _ => return wrong(),
            }
        }
        if rest.is_empty() { Ok(compared) } else { wrong() }
    }
}

impl Ended {
    fn is_certain(&self) -> bool {
        self.began.highest() == Some(self.began.first)
    }

    fn may_be(&self, &(id, first, marker): &Aborted, upper: i64) -> bool {
        (id, marker) == (self.id, self.marker) && first < upper && self.began.may_be_at(first)
    }

    /// A log that has forgotten it, or takes it to have begun above, does not tell it.
    fn may_be_missing(&self, upper: i64) -> bool {
        self.began.highest().is_none_or(|highest| highest >= upper)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batches::tests::{abort, in_transaction};
    use super::super::doubts::Doubt;
    use super::*;

    /// Producer 3 aborts a transaction with batches at 0, 10 and 20, of which the first so many are in doubt.
    fn aborted(doubted: usize) -> AbortedTransactions {
        let mut history = [in_transaction(3, 0), in_transaction(3, 10), in_transaction(3, 20), abort(3, 30)];
        let doubt = Doubt { producer: true, transaction: true, presence: false };
        history[..doubted].iter_mut().for_each(|batch| batch.doubt = doubt);
        AbortedTransactions::replayed(&history)
    }

    #[test]
    fn a_transaction_without_a_doubt_is_demanded_as_it_was() {
        let transactions = aborted(0);
        let demanded = Compared { demanded: 1, excused: 0 };
        assert_eq!(transactions.compare(0, 40, &[(3, 0, 30)]), Ok(demanded));
        assert_eq!(transactions.compare(31, 40, &[]), Ok(Compared::default()));
        for wrong in [&[][..], &[(3, 10, 30)], &[(4, 0, 30)], &[(3, 0, 31)], &[(3, 0, 30), (3, 0, 30)]] {
            assert!(transactions.compare(0, 40, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_whose_first_batch_may_be_forgotten_may_look_shorter() {
        let (transactions, excused) = (aborted(1), Compared { demanded: 0, excused: 1 });
        for right in [(3, 0, 30), (3, 10, 30)] {
            assert_eq!(transactions.compare(0, 40, &[right]), Ok(excused));
        }
        assert!(transactions.compare(0, 40, &[(3, 20, 30)]).is_err(), "its second batch is known");
        assert!(transactions.compare(0, 40, &[]).is_err(), "nor is it gone");
        assert_eq!(transactions.compare(0, 10, &[]), Ok(excused), "it may have begun above");
    }

    #[test]
    fn one_that_may_be_forgotten_may_be_missing() {
        let (transactions, excused) = (aborted(3), Compared { demanded: 0, excused: 1 });
        for right in [&[][..], &[(3, 0, 30)], &[(3, 20, 30)]] {
            assert_eq!(transactions.compare(0, 40, right), Ok(excused));
        }
        assert!(transactions.compare(0, 40, &[(3, 15, 30)]).is_err());
    }
}
