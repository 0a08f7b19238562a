//! The oracle for producers and transactions, written from Kafka's rules and not from the code.
//!
//! It plays the history batch by batch. What a restart may forget is not demanded: a snapshot keeps only
//! the last batch of a producer, and may be older than the log start.

use std::collections::BTreeMap;

use super::batches::{Meaning, Sent, Stored};

/// How many batches of a producer are recognised when sent again.
const REMEMBERED: usize = 5;

/// And how many are known here, to be sent again too late.
pub(crate) const KNOWN: usize = 7;

#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    known: BTreeMap<i64, Known>,
    /// First offset of each open transaction, with its producer.
    open: BTreeMap<i64, i64>,
    /// Completed transactions whose marker the high watermark has not passed: first offset to marker.
    unreplicated: BTreeMap<i64, i64>,
    /// A restart may have forgotten a transaction, since it began below the log start.
    forgetful: bool,
}

/// What the log knows of one producer.
#[derive(Clone, Debug)]
struct Known {
    epoch: i16,
    /// The newest batches of this epoch: first and last sequence, base offset.
    batches: Vec<(i32, i32, i64)>,
    /// How many of the newest the log cannot have forgotten.
    certain: usize,
    /// False where a restart may have forgotten the producer as a whole.
    sure: bool,
    /// Where the log tells epoch and sequence: the newest batch, or the marker that began the epoch.
    told_at: i64,
    transaction: Option<i64>,
}

/// What the log may answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    New,
    Duplicate {
        base: i64,
    },
    Refused {
        code: i16,
    },
    /// The batch sent again, of which the log may have forgotten that it has it.
    DuplicateOrRefused {
        base: i64,
        code: i16,
    },
    /// The log may have forgotten the producer.
    Any,
}

const OUT_OF_ORDER: i16 = 45;
const STALE_EPOCH: i16 = 47;
const NOT_IN_TRANSACTION: i16 = 48;

impl Producers {
    /// What follows from a whole history. `start` is the log start: what lies below may be forgotten.
    pub(crate) fn replayed(history: &[Stored], start: i64, high_watermark: i64) -> Producers {
        let mut producers = Producers::default();
        history.iter().for_each(|batch| producers.apply(batch));
        for known in producers.known.values_mut() {
            known.certain = known.certain.min(1);
            known.sure = known.told_at >= start;
        }
        producers.on_high_watermark(high_watermark);
        let mut transactions = producers.open.keys().chain(producers.unreplicated.keys());
        producers.forgetful = transactions.any(|first| *first < start);
        producers
    }

    pub(crate) fn apply(&mut self, batch: &Stored) {
        match batch.meaning {
            Meaning::Records(sent) if sent.id < 0 => {}
            Meaning::Records(sent) => self.apply_records(batch, sent),
            Meaning::Marker { id, epoch, .. } => {
                let known = self.at_epoch(id, epoch, batch.last);
                if let Some(first) = known.transaction.take() {
                    self.open.remove(&first);
                    self.unreplicated.insert(first, batch.base);
                }
            }
            Meaning::Reset => {
                self.known.clear();
                self.open.clear();
            }
        }
    }

    fn apply_records(&mut self, batch: &Stored, sent: Sent) {
        let known = self.at_epoch(sent.id, sent.epoch, batch.last);
        if !known.sure {
            known.certain = 0;
            known.sure = true;
        }
        known.told_at = batch.last;
        if known.batches.len() == KNOWN {
            known.batches.remove(0);
        }
        known.batches.push((sent.first_sequence, sent.last_sequence(), batch.base));
        known.certain = REMEMBERED.min(known.certain + 1);
        if sent.transactional && known.transaction.is_none() {
            known.transaction = Some(batch.base);
            self.open.insert(batch.base, sent.id);
        }
    }

    fn at_epoch(&mut self, id: i64, epoch: i16, offset: i64) -> &mut Known {
        let known = self.known.entry(id).or_insert_with(|| Known {
            epoch,
            batches: Vec::new(),
            certain: 0,
            sure: true,
            told_at: offset,
            transaction: None,
        });
        if known.epoch != epoch {
            known.epoch = epoch;
            known.batches.clear();
            known.certain = 0;
            known.told_at = offset;
            known.sure = true;
        }
        known
    }

    pub(crate) fn on_high_watermark(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|_, marker| *marker >= high_watermark);
    }

    /// True where it is certain which transactions the log knows.
    pub(crate) fn transactions_are_known(&self) -> bool {
        !self.forgetful
    }

    /// The last stable offset of a log that starts at `start`.
    pub(crate) fn last_stable(&self, high_watermark: i64, start: i64) -> i64 {
        let unstable = self.open.keys().chain(self.unreplicated.keys()).min();
        unstable.map_or(high_watermark, |&first| first.max(start).min(high_watermark))
    }

    /// What the log may answer to a client's batch.
    pub(crate) fn judge(&self, sent: &Sent) -> Verdict {
        let Some(known) = self.known.get(&sent.id) else { return Verdict::New };
        if !known.sure {
            return Verdict::Any;
        }
        let refused = known.refuses(sent);
        if self.forgetful && refused == Some(NOT_IN_TRANSACTION) {
            return Verdict::Any;
        }
        let same = |&(first, last, _): &(i32, i32, i64)| {
            (known.epoch, first, last) == (sent.epoch, sent.first_sequence, sent.last_sequence())
        };
        let again = known.batches.iter().rev().take(REMEMBERED).position(same);
        match (again, refused) {
            (Some(age), _) if age < known.certain => Verdict::Duplicate { base: known.base_of(age) },
            (Some(age), Some(code)) => Verdict::DuplicateOrRefused { base: known.base_of(age), code },
            (_, Some(code)) => Verdict::Refused { code },
            (_, None) => Verdict::New,
        }
    }

    /// The epoch and the next sequence of a producer that goes on as it should.
    pub(crate) fn next_of(&self, id: i64) -> (i16, i32) {
        let Some(known) = self.known.get(&id) else { return (0, 0) };
        let next = |&(_, last, _): &(i32, i32, i64)| if last == i32::MAX { 0 } else { last + 1 };
        (known.epoch, known.batches.last().map_or(0, next))
    }

    /// One of the newest batches of a producer: its first sequence and its length.
    pub(crate) fn earlier_of(&self, id: i64, age: usize) -> Option<(i32, i32)> {
        let known = self.known.get(&id)?;
        let &(first, last, _) = known.batches.iter().rev().nth(age)?;
        Some((first, ((i64::from(last) - i64::from(first)).rem_euclid(1 << 31) + 1) as i32))
    }

    pub(crate) fn has_open(&self, id: i64) -> bool {
        self.open.values().any(|&open| open == id)
    }
}

impl Known {
    fn base_of(&self, age: usize) -> i64 {
        self.batches[self.batches.len() - 1 - age].2
    }

    fn refuses(&self, sent: &Sent) -> Option<i16> {
        if sent.epoch < self.epoch {
            return Some(STALE_EPOCH);
        }
        let expected = match self.batches.last() {
            Some(&(_, last, _)) if sent.epoch == self.epoch => (i64::from(last) + 1) % (1 << 31),
            _ => 0,
        };
        if i64::from(sent.first_sequence) != expected {
            return Some(OUT_OF_ORDER);
        }
        (self.transaction.is_some() && !sent.transactional).then_some(NOT_IN_TRANSACTION)
    }
}

/// An aborted transaction: producer, first offset and marker.
pub(crate) type Aborted = (i64, i64, i64);

/// What a history says of transactions that were aborted.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbortedTransactions {
    /// Of each producer, where the transaction began that is open.
    began: BTreeMap<i64, i64>,
    /// By marker.
    aborted: Vec<Aborted>,
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
                self.began.entry(sent.id).or_insert(batch.base);
            }
            Meaning::Marker { id, aborted: is_aborted, .. } => {
                if let Some(first) = self.began.remove(&id).filter(|_| is_aborted) {
                    self.aborted.push((id, first, batch.base));
                }
            }
            Meaning::Reset => self.began.clear(),
            Meaning::Records(_) => {}
        }
    }

    /// Those that touch `from..upper`, by marker.
    pub(crate) fn touching(&self, from: i64, upper: i64) -> impl Iterator<Item = Aborted> + '_ {
        let below = self.aborted.partition_point(|&(_, _, marker)| marker < from);
        self.aborted[below..].iter().copied().filter(move |&(_, first, _)| first < upper)
    }
}
