//! The source's log of the partition: batches with a past, leaders, and elections that lose batches.
//!
//! Each batch has a number that is never used again and knows the batch before it, so that two logs are one
//! history exactly where each batch follows the one that it followed at the source.

use tarn_mirror::alignment::EpochEnd;
use tarn_record::{Epoch, Offset, TimestampType};

use crate::log_world::batches::{self, Meaning, Place, Sent, Stored};

/// A batch of the source.
#[derive(Clone, Debug)]
pub(super) struct There {
    pub(super) number: u64,
    /// The batch before it at the source; `None` for the first.
    pub(super) before: Option<u64>,
    pub(super) stored: Stored,
}

#[derive(Debug)]
pub(super) struct Source {
    pub(super) log: Vec<There>,
    /// Epochs and where they begin.
    epochs: Vec<(i32, i64)>,
    numbers: u64,
    pub(super) is_gone: bool,
}

/// Producers with an id: these are idempotent, the others of them transactional as well.
const IDEMPOTENT: i64 = 2;
const WITH_ID: i64 = 6;

impl Source {
    pub(super) fn new(epoch: i32) -> Source {
        Source { log: Vec::new(), epochs: vec![(epoch, 0)], numbers: 0, is_gone: false }
    }

    pub(super) fn epoch(&self) -> i32 {
        self.epochs.last().map_or(-1, |(epoch, _)| *epoch)
    }

    pub(super) fn end(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.stored.last + 1)
    }

    /// The batches from an offset on; `None` beyond the end.
    pub(super) fn from(&self, offset: i64) -> Option<&[There]> {
        let first = self.log.partition_point(|batch| batch.stored.last < offset);
        (offset <= self.end()).then(|| &self.log[first..])
    }

    /// Some producer sends a batch, or ends its transaction.
    pub(super) fn write(&mut self, rng: &mut fastrand::Rng, now_ms: i64) {
        let place = Place { base: self.end(), epoch: self.epoch(), now_ms };
        let id = rng.i64(-1..WITH_ID);
        let stored = match self.transaction_of(id) {
            true if rng.u8(..3) == 0 => batches::marker(id, 0, rng.bool(), place),
            _ => {
                let first_sequence = if id < 0 { -1 } else { self.next_sequence(id) };
                let sent = Sent {
                    id,
                    epoch: if id < 0 { -1 } else { 0 },
                    first_sequence,
                    records: rng.i32(1..4),
                    transactional: id >= IDEMPOTENT,
                };
                batches::records(rng, sent, place, TimestampType::CreateTime).stored
            }
        };
        self.numbers += 1;
        let before = self.log.last().map(|batch| batch.number);
        self.log.push(There { number: self.numbers, before, stored });
    }

    fn next_sequence(&self, id: i64) -> i32 {
        let last = self.log.iter().rev().find_map(|batch| match batch.stored.meaning {
            Meaning::Records(sent) if sent.id == id => Some(sent.last_sequence()),
            _ => None,
        });
        last.map_or(0, |last| last + 1)
    }

    fn transaction_of(&self, id: i64) -> bool {
        let newest = self.log.iter().rev().find_map(|batch| match batch.stored.meaning {
            Meaning::Records(sent) if sent.id == id => Some(sent.transactional),
            Meaning::Marker { id: ended, .. } if ended == id => Some(false),
            _ => None,
        });
        newest.unwrap_or(false)
    }

    /// Another leader, which lacks the newest `lost` batches.
    pub(super) fn elect(&mut self, raise: i32, lost: usize) {
        let epoch = self.epoch() + raise;
        self.log.truncate(self.log.len().saturating_sub(lost));
        let end = self.end();
        self.epochs.retain(|(_, start)| *start < end);
        self.epochs.push((epoch, end));
    }

    /// The answer of OffsetForLeaderEpoch.
    pub(super) fn end_of(&self, asked: Epoch) -> EpochEnd {
        if asked.0 > self.epoch() {
            return EpochEnd { epoch: Epoch::NONE, end: Offset::NONE };
        }
        let after = self.epochs.partition_point(|(epoch, _)| *epoch <= asked.0);
        let epoch = after.checked_sub(1).map_or(asked.0, |found| self.epochs[found].0);
        let end = self.epochs.get(after).map_or(self.end(), |(_, start)| *start);
        EpochEnd { epoch: Epoch(epoch), end: Offset(end) }
    }
}
