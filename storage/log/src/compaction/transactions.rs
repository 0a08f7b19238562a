//! What is known of transactions while a round goes through the batches of a log in order.
//!
//! The transaction indexes say beforehand which transactions were aborted. Their records go at once. The
//! marker that ends a transaction is needed as long as a batch of it is there, an emptied one included: a
//! reader of committed records skips what it was told is aborted up to the marker. When none is left the
//! marker may go too, with the delay that tombstones have.
//!
//! All transactions that begin below the end of a round are decided, and replicated.

use std::collections::{BTreeMap, BTreeSet};

use tarn_record::{BatchHeader, ControlRecord, ControlType, ProducerId};

use crate::segment::txn_index::AbortedTransaction;

/// See the module. Made anew for each time that the batches are gone through.
#[derive(Clone, Debug)]
pub(crate) struct Transactions {
    /// Those that have not been met, the first one last.
    aborted: Vec<AbortedTransaction>,
    /// Those that were met and whose marker was not.
    in_aborted: BTreeMap<ProducerId, Met>,
    /// Producers of whose other transactions a batch was met, and the marker was not.
    in_others: BTreeSet<ProducerId>,
}

#[derive(Clone, Debug)]
struct Met {
    entry: AbortedTransaction,
    has_batch: bool,
}

/// What the records of a batch are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Their transaction was committed, or there is none.
    Counts,
    Aborted,
}

/// What a control batch is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It says something that has to stay; with the entry that the transaction index has to have for it.
    Needed(Option<AbortedTransaction>),
    /// Nothing is left of the transaction that it ends.
    Nothing,
}

impl Transactions {
    /// Those that were aborted are known.
    pub(crate) fn new(aborted: &[AbortedTransaction]) -> Transactions {
        let mut aborted = aborted.to_vec();
        aborted.sort_by_key(|entry| std::cmp::Reverse(entry.first_offset));
        Transactions { aborted, in_aborted: BTreeMap::new(), in_others: BTreeSet::new() }
    }

    /// The next batch is one of records.
    pub(crate) fn on_records(&mut self, header: &BatchHeader) -> Fate {
        self.meet(header);
        if !header.is_transactional() || !header.has_producer_id() {
            return Fate::Counts;
        }
        match self.in_aborted.get_mut(&header.producer_id) {
            Some(met) if header.last_offset() <= met.entry.last_offset => {
                met.has_batch = true;
                Fate::Aborted
            }
            _ => {
                self.in_others.insert(header.producer_id);
                Fate::Counts
            }
        }
    }

    /// The next batch is a control batch, which says `control`.
    pub(crate) fn on_control(&mut self, header: &BatchHeader, control: Option<&ControlRecord>) -> Need {
        self.meet(header);
        if header.record_count == 0 {
            return Need::Nothing;
        }
        let ended = match control.map(|control| control.control_type) {
            Some(ControlType::Abort) => self.in_aborted.remove(&header.producer_id),
            Some(ControlType::Commit) => None,
            _ => return Need::Needed(None),
        };
        // An abort that no index knows ends what counts as committed: with its marker it would go unnoticed.
        let ended_another = self.in_others.remove(&header.producer_id);
        match ended {
            Some(met) if met.has_batch => Need::Needed(Some(met.entry)),
            _ if ended_another => Need::Needed(None),
            _ => Need::Nothing,
        }
    }

    /// Takes note of the aborted transactions that have begun where this batch ends.
    fn meet(&mut self, header: &BatchHeader) {
        let last = header.last_offset();
        while let Some(entry) = self.aborted.pop_if(|entry| entry.first_offset <= last) {
            // An earlier one of the same producer has ended, though its marker is gone.
            self.in_aborted.insert(entry.producer_id, Met { entry, has_batch: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{
        BatchBuilder, Compression, EndTransaction, Epoch, Offset, Outcome, ProducerEpoch, Record, Sequence,
        Timestamp, ValidBatch, end_transaction_marker,
    };

    #[test]
    fn records_of_an_aborted_transaction_go_and_its_marker_stays_as_long_as_a_batch_was_there() {
        let mut transactions = Transactions::new(&[aborted(1, 10, 20), aborted(1, 30, 40)]);
        assert_eq!(records(&mut transactions, 1, 5), Fate::Counts, "before it begins");
        assert_eq!(end(&mut transactions, 1, Outcome::Commit, 6), Need::Needed(None));
        assert_eq!(records(&mut transactions, 1, 10), Fate::Aborted);
        assert_eq!(records(&mut transactions, 2, 11), Fate::Counts, "another producer's");
        assert_eq!(end(&mut transactions, 1, Outcome::Abort, 20), Need::Needed(Some(aborted(1, 10, 20))));
        assert_eq!(records(&mut transactions, 1, 21), Fate::Counts, "between the two");
        assert_eq!(end(&mut transactions, 1, Outcome::Commit, 22), Need::Needed(None));
        assert_eq!(end(&mut transactions, 1, Outcome::Abort, 40), Need::Nothing, "nothing is left of it");
    }

    #[test]
    fn a_commit_is_needed_for_what_was_met_of_its_transaction() {
        let mut transactions = Transactions::new(&[]);
        records(&mut transactions, 1, 0);
        assert_eq!(end(&mut transactions, 2, Outcome::Commit, 1), Need::Nothing);
        assert_eq!(end(&mut transactions, 1, Outcome::Commit, 2), Need::Needed(None));
        assert_eq!(end(&mut transactions, 1, Outcome::Commit, 3), Need::Nothing);
    }

    #[test]
    fn an_abort_of_which_the_index_knows_nothing_stays_with_its_records() {
        let mut transactions = Transactions::new(&[]);
        assert_eq!(records(&mut transactions, 1, 0), Fate::Counts);
        assert_eq!(end(&mut transactions, 1, Outcome::Abort, 1), Need::Needed(None));
    }

    #[test]
    fn an_aborted_transaction_whose_marker_is_gone_takes_nothing_of_the_next() {
        let mut transactions = Transactions::new(&[aborted(1, 10, 20)]);
        assert_eq!(records(&mut transactions, 1, 10), Fate::Aborted);
        assert_eq!(records(&mut transactions, 1, 25), Fate::Counts);
    }

    #[test]
    fn an_emptied_marker_and_one_of_another_kind() {
        let mut transactions = Transactions::new(&[]);
        let marker = marker(1, Outcome::Abort, 5).emptied();
        assert_eq!(transactions.on_control(marker.header(), None), Need::Nothing);
        let other = BatchHeader { record_count: 1, ..*marker.header() };
        assert_eq!(transactions.on_control(&other, None), Need::Needed(None), "it is not known what it says");
    }

    fn records(transactions: &mut Transactions, producer: i64, offset: i64) -> Fate {
        let mut builder = BatchBuilder::new(Offset(offset), Compression::None)
            .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
            .transactional();
        builder.add(&Record::default());
        transactions.on_records(ValidBatch::parse(builder.build()).unwrap().header())
    }

    fn end(transactions: &mut Transactions, producer: i64, outcome: Outcome, offset: i64) -> Need {
        let marker = marker(producer, outcome, offset);
        transactions.on_control(marker.header(), ControlRecord::parse(&marker).as_ref())
    }

    fn marker(producer: i64, outcome: Outcome, offset: i64) -> ValidBatch {
        let (producer_id, producer_epoch) = (ProducerId(producer), ProducerEpoch(0));
        let end = EndTransaction { producer_id, producer_epoch, outcome, coordinator_epoch: 1 };
        let bytes = end_transaction_marker(&end, Offset(offset), Epoch(0), Timestamp(0));
        ValidBatch::parse(bytes).unwrap()
    }

    fn aborted(producer: i64, first: i64, last: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }
}
