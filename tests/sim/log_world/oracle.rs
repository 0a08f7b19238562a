//! The oracle for the log: the batches that were acknowledged, and what a crash may leave of them.
//!
//! Beside the history as it is, it keeps the ends of histories that a crash may bring back: what a
//! truncation dropped, and what an append wrote without success. A flush that began later ends their
//! chances.

use std::collections::BTreeMap;

use super::batches::Stored;
use super::doubts::{Doubt, Learnt, Recalls};
use super::producers::Producers;
use super::transactions::{Aborted, AbortedTransactions};
use crate::simulation::Compared;

#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// The history, from long before the log start.
    pub(crate) batches: Vec<Stored>,
    pub(crate) start: i64,
    /// The highest log start so far: a crash may undo it, but epochs below may be forgotten.
    pub(crate) start_highest: i64,
    pub(crate) end: i64,
    pub(crate) high_watermark: i64,
    /// Where a truncation that leaves nothing, and may not be finished, lets the log start.
    start_begun: i64,
    /// Batches below were promised to survive.
    pub(crate) flushed: i64,
    pub(crate) producers: Producers,
    aborted: AbortedTransactions,
    others: Vec<Other>,
    others_seen: u64,
    /// What an append wrote without success lies behind the history until the log goes on.
    behind: Vec<Stored>,
}

/// Another end of the history, from batch number `at` on.
#[derive(Clone, Debug)]
struct Other {
    number: u64,
    at: usize,
    tail: Vec<Stored>,
    start: i64,
}

/// What a log holds after it was opened.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its batches: base offset and bytes.
    pub(crate) batches: Vec<(i64, bytes::Bytes)>,
    /// Of each producer with an open transaction, where that began.
    pub(crate) open: BTreeMap<i64, i64>,
}

impl Oracle {
    pub(crate) fn append(&mut self, batch: Stored) {
        self.go_on();
        self.end = batch.last + 1;
        self.producers.apply(&batch);
        self.aborted.apply(&batch);
        self.batches.push(batch);
    }

    /// Batches were written, in whole or in part, and not acknowledged.
    pub(crate) fn append_failed(&mut self, attempted: Vec<Stored>) {
        self.go_on();
        self.behind = attempted;
    }

    /// The log goes on at its end: what lies behind is cut off, which a crash may undo until it is flushed.
    fn go_on(&mut self) {
        if !self.behind.is_empty() {
            let (at, start, tail) = (self.batches.len(), self.start, std::mem::take(&mut self.behind));
            self.add_other(at, tail, start);
        }
    }

    pub(crate) fn advance_start(&mut self, start: i64) {
        self.start = start;
        self.start_highest = self.start_highest.max(start);
    }

    /// Compares the epoch of a batch with what `epoch_at` has for an offset: true where it had to be known.
    pub(crate) fn compare_epoch(
        &self,
        batch: &Stored,
        epoch_at: impl Fn(i64) -> Option<i32>,
    ) -> Result<bool, String> {
        let offset = batch.base.max(self.start_highest).min(batch.last);
        let (is_demanded, found) = (offset >= self.start_highest, epoch_at(offset));
        if found == Some(batch.epoch) || !is_demanded && found.is_none() {
            return Ok(is_demanded);
        }
        Err(format!("offset {offset} is of epoch {}, found {found:?}", batch.epoch))
    }

    pub(crate) fn truncate(&mut self, end: i64) {
        self.go_on();
        self.start_begun = 0;
        let keep = self.batches.partition_point(|batch| batch.last < end);
        self.branch_at(keep);
        self.end = end;
        self.high_watermark = self.high_watermark.min(end);
        self.flushed = self.flushed.min(end);
        self.learn(&Learnt { looked_from: self.start, noted_from: end, recalls: Recalls::Last });
    }

    pub(crate) fn start_anew_at(&mut self, offset: i64) {
        self.go_on();
        self.branch_at(0);
        (self.start, self.end, self.high_watermark) = (offset, offset, offset);
        (self.start_highest, self.start_begun, self.flushed) = (offset, 0, 0);
        (self.producers, self.aborted) = (Producers::default(), AbortedTransactions::default());
    }

    /// A truncation to `end` has begun and may not have been finished.
    pub(crate) fn may_be_truncated(&mut self, end: i64) {
        self.flushed = self.flushed.min(end);
        if self.readable(self.start, end).is_empty() {
            // Without a batch the log may start at its end.
            self.start_begun = end;
        }
    }

    /// The log may be empty from `offset` on, or as it was, or some of it is gone from the end.
    pub(crate) fn may_start_anew_at(&mut self, offset: i64) {
        self.flushed = 0;
        self.add_other(0, Vec::new(), offset);
        self.start_highest = self.start_highest.max(offset);
        self.start_begun = offset;
    }

    /// The number to hand to [`Oracle::flush_done`] by a flush that begins now.
    pub(crate) fn flush_begins(&self) -> u64 {
        self.others_seen
    }

    pub(crate) fn flush_done(&mut self, upto: i64, began: u64) {
        self.flushed = self.flushed.max(upto);
        self.others.retain(|other| other.number >= began);
    }

    /// The end of the last batch that was promised to survive.
    pub(crate) fn promised_end(&self) -> i64 {
        let promised = self.batches.partition_point(|batch| batch.last < self.flushed);
        promised.checked_sub(1).map_or(0, |last| self.batches[last].last + 1)
    }

    pub(crate) fn set_high_watermark(&mut self, high_watermark: i64) {
        self.high_watermark = high_watermark;
        self.producers.on_high_watermark(high_watermark);
    }

    pub(crate) fn last_stable(&self) -> i64 {
        self.producers.last_stable(self.high_watermark, self.start)
    }

    /// The highest that the log may tell for it.
    pub(crate) fn last_stable_max(&self) -> i64 {
        self.producers.last_stable_max(self.high_watermark, self.start)
    }

    /// The batches that end at `from` or above and lie below `upper`.
    pub(crate) fn readable(&self, from: i64, upper: i64) -> &[Stored] {
        let first = self.batches.partition_point(|batch| batch.last < from);
        let after = self.batches.partition_point(|batch| batch.last < upper);
        &self.batches[first..after.max(first)]
    }

    /// Compares the aborted transactions that touch `from..upper` with those found.
    pub(crate) fn compare_aborted(
        &self,
        from: i64,
        upper: i64,
        found: &[Aborted],
    ) -> Result<Compared, String> {
        self.aborted.compare(from, upper, found)
    }

    /// The first record with this timestamp or a later one.
    pub(crate) fn first_at(&self, timestamp: i64) -> Option<(i64, i64)> {
        let records = self.readable(self.start, self.end).iter().flat_map(|batch| {
            batch.timestamps.iter().enumerate().map(|(delta, &found)| (batch.base + delta as i64, found))
        });
        records.into_iter().find(|&(offset, found)| offset >= self.start && found >= timestamp)
    }

    /// Makes what was found after a crash, and learnt from it, the history, if it is one that the crash can have left.
    /// Where nothing that is read tells which of several it is, the open transactions do.
    pub(crate) fn accept(&mut self, found: &Found, learnt: &Learnt) -> Result<(), String> {
        self.go_on();
        let of_other = |other: &Other| ([&self.batches[..other.at], &other.tail].concat(), other.start);
        let now = (self.batches.clone(), self.start);
        let (mut possible, mut refusal) = (Vec::new(), None);
        for (history, start) in std::iter::once(now).chain(self.others.iter().map(of_other)) {
            match self.with_history(history, start, found, learnt) {
                Ok(oracle) => possible.push(oracle),
                Err(text) => {
                    refusal.get_or_insert(text);
                }
            }
        }
        if let (true, Some(refusal)) = (possible.is_empty(), refusal) {
            return Err(refusal);
        }
        let agrees = possible.iter().position(|oracle| oracle.producers.may_have_open(&found.open));
        *self = possible.swap_remove(agrees.unwrap_or(0));
        Ok(())
    }

    /// The same with what was found of one history, which may start at `start`.
    fn with_history(
        &self,
        mut history: Vec<Stored>,
        start: i64,
        found: &Found,
        learnt: &Learnt,
    ) -> Result<Oracle, String> {
        let kept = self.judge(&history, self.start.max(self.start_begun).max(start), found)?;
        history.truncate(kept);
        let mut oracle = Oracle { batches: history, others: Vec::new(), ..self.clone() };
        oracle.adopt(found, learnt);
        Ok(oracle)
    }

    /// How many batches of a history were found; or why they are not its beginning.
    fn judge(&self, history: &[Stored], start_max: i64, found: &Found) -> Result<usize, String> {
        let promised = history.partition_point(|batch| batch.last < self.flushed);
        let promised_end = promised.checked_sub(1).map_or(0, |last| history[last].last + 1);
        if found.end < promised_end {
            return Err(format!("offsets up to {promised_end} were flushed, the log ends at {}", found.end));
        }
        if found.start > start_max {
            return Err(format!("the log starts at {} instead of {start_max}", found.start));
        }
        let needed = history.partition_point(|batch| batch.last < start_max);
        let Some((first_base, _)) = found.batches.first() else {
            if promised > needed {
                let from = found.start;
                return Err(format!("the log is empty from {from} on, but {promised_end} was flushed"));
            }
            return check_hole(history, history.partition_point(|batch| batch.last < found.start), found);
        };
        let first = history.partition_point(|batch| batch.base < *first_base);
        if first > needed {
            return Err(format!("batches below offset {first_base} are gone, from {start_max} on"));
        }
        for (known, (base, bytes)) in history[first..].iter().zip(&found.batches) {
            if (known.base, &known.bytes) != (*base, bytes) {
                return Err(format!("another batch is found at offset {base}, expected {}", known.base));
            }
        }
        let kept = first + found.batches.len();
        if kept > history.len() {
            return Err(format!("batches beyond the history are found, the log ends at {}", found.end));
        }
        if kept < promised {
            return Err(format!("the batch at offset {} was flushed and is gone", history[kept].base));
        }
        check_hole(history, kept, found)
    }

    /// The process starts with what was found; one replica: what is there is replicated.
    fn adopt(&mut self, found: &Found, learnt: &Learnt) {
        (self.start, self.end, self.high_watermark) = (found.start, found.end, found.end);
        self.start_begun = 0;
        self.start_highest = self.start_highest.max(found.start);
        self.flushed = self.flushed.min(found.end);
        self.others.clear();
        if found.batches.is_empty() {
            // What lies below the start may be lost like any other batch, and nobody sees it.
            let flushed = self.flushed;
            for batch in self.batches.iter_mut().filter(|batch| batch.last >= flushed) {
                batch.doubt = Doubt { producer: true, transaction: true, presence: true };
            }
        }
        self.learn(learnt);
    }

    fn learn(&mut self, learnt: &Learnt) {
        learnt.doubt(&mut self.batches);
        self.producers = Producers::replayed(&self.batches, learnt.recalls, self.high_watermark);
        self.aborted = AbortedTransactions::replayed(&self.batches);
    }

    /// The history goes on from batch number `at`; what follows there now becomes another history.
    fn branch_at(&mut self, at: usize) {
        let dropped = self.batches.split_off(at);
        for other in &mut self.others {
            if other.at > at {
                other.tail.splice(..0, dropped[..other.at - at].iter().cloned());
                other.at = at;
            }
        }
        if !dropped.is_empty() {
            let start = self.start;
            self.add_other(at, dropped, start);
        }
    }

    fn add_other(&mut self, at: usize, tail: Vec<Stored>, start: i64) {
        self.others.push(Other { number: self.others_seen, at, tail, start });
        self.others_seen += 1;
    }
}

/// A log may lose its end, but then it ends there: no batch of the history is gone below the log end.
fn check_hole(history: &[Stored], kept: usize, found: &Found) -> Result<usize, String> {
    match history.get(kept) {
        Some(gone) if gone.last < found.end => {
            Err(format!("the batch at offset {} is gone, but the log ends at {}", gone.base, found.end))
        }
        _ => Ok(kept),
    }
}
