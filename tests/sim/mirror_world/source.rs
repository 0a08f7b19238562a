//! The source's log of the partition: batches with a past, leaders, elections that lose batches, and everything else
//! that a source does to a mirror.
//!
//! Each batch has a number that is never used again and knows the batch before it, so that two logs are one
//! history exactly where each batch follows the one that it followed at the source.
//!
//! What a source answers may be a lie, about where its log begins and ends; what it sends are its batches.

use tarn_mirror::alignment::{BatchThere, EpochEnd};
use tarn_record::{BatchHeader, Epoch, Offset, TimestampType};

use super::fetching::Fetching;
use super::mirrors::Cluster;
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
    pub(super) cluster: Cluster,
    pub(super) fetching: Fetching,
    pub(super) log: Vec<There>,
    /// Its log start.
    start: i64,
    /// Epochs and where they begin.
    epochs: Vec<(i32, i64)>,
    /// The number of its newest batch.
    numbers: u64,
    /// The highest log start that it has ever told, true or not.
    told_start: i64,
    /// How often the topic was created again.
    created_again: u32,
    /// Topics have ids there.
    has_ids: bool,
    /// The topic is compacted, as far as its configuration says.
    pub(super) is_compacted: bool,
    pub(super) is_deleted: bool,
    pub(super) is_gone: bool,
    /// Of a hundred answers about where the log begins and ends.
    pub(super) lies: u32,
    pub(super) lied: u64,
}

/// What it says of its log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) start: i64,
    pub(super) high_watermark: i64,
}

/// Producers with an id: these are idempotent, the others of them transactional as well.
const IDEMPOTENT: i64 = 2;
const WITH_ID: i64 = 6;

impl Source {
    pub(super) fn new(rng: &mut fastrand::Rng, cluster: Cluster) -> Source {
        Source {
            cluster,
            fetching: Fetching::new(rng),
            log: Vec::new(),
            start: 0,
            epochs: vec![(rng.i32(0..8), 0)],
            numbers: (cluster as u64) << 32,
            told_start: 0,
            created_again: 0,
            has_ids: rng.u8(..3) == 0,
            is_compacted: rng.u8(..8) == 0,
            is_deleted: false,
            is_gone: false,
            lies: if rng.u8(..4) == 0 { rng.u32(1..20) } else { 0 },
            lied: 0,
        }
    }

    pub(super) fn epoch(&self) -> i32 {
        self.epochs.last().map_or(-1, |(epoch, _)| *epoch)
    }

    pub(super) fn start(&self) -> i64 {
        self.start
    }

    /// The highest log start that it has told of this topic.
    pub(super) fn told_start(&self) -> i64 {
        self.told_start
    }

    pub(super) fn end(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.stored.last + 1)
    }

    /// Topics have ids there, and this one has another by now.
    pub(super) fn is_another(&self) -> bool {
        self.has_ids && self.created_again > 0
    }

    /// What it told in this epoch it has: it does not lie, and is still what it was.
    pub(super) fn is_as_told(&self, epoch: i32) -> bool {
        let is_proved = self.lies == 0 && !self.is_compacted;
        is_proved && epoch == self.epoch() && !self.is_deleted && !self.is_another()
    }

    pub(super) fn has_ids(&self) -> bool {
        self.has_ids
    }

    /// The batches from an offset on, as a fetch gives them out below the high watermark that is told; `None` where
    /// the offset is out of range.
    pub(super) fn fetch(&self, offset: i64, most: usize, shown: Shown) -> Option<Vec<There>> {
        if offset < self.start || offset > self.end() {
            return None;
        }
        let first = self.log.partition_point(|batch| batch.stored.last < offset);
        let is_committed = |batch: &&There| batch.stored.last < shown.high_watermark;
        Some(self.log[first..].iter().take_while(is_committed).take(most).cloned().collect())
    }

    /// Where the log begins and up to where it is committed, or what else it pleases to say.
    pub(super) fn show(&mut self, rng: &mut fastrand::Rng) -> Shown {
        let (start, end) = (self.start, self.end());
        let (mut shown, some) = (Shown { start, high_watermark: end }, rng.i64(1..10));
        if self.lies(rng) {
            match rng.u8(..4) {
                0 => shown.high_watermark = (end - some).max(start),
                1 => shown.high_watermark = end + some,
                2 => shown.start = (start + some).min(end),
                _ => shown.start = end + some,
            }
        }
        self.told_start = self.told_start.max(shown.start);
        shown
    }

    fn lies(&mut self, rng: &mut fastrand::Rng) -> bool {
        let lies = self.lies > 0 && rng.u32(..100) < self.lies;
        self.lied += u64::from(lies);
        lies
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
        let before = self.log.last().map(|batch| batch.number);
        self.numbers += 1;
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
        self.lose(lost);
        let end = self.end();
        self.epochs.retain(|(_, start)| *start < end);
        self.epochs.push((epoch, end));
    }

    /// It is restored from a backup that lacks the newest `lost` batches, and counts the same epochs again.
    pub(super) fn restore(&mut self, lost: usize) {
        self.lose(lost);
        let end = self.end();
        let first = self.epochs[0];
        self.epochs.retain(|(_, start)| *start <= end);
        if self.epochs.is_empty() {
            self.epochs.push((first.0, end));
        }
    }

    fn lose(&mut self, lost: usize) {
        let kept = self.log.partition_point(|batch| batch.stored.last < self.start);
        self.log.truncate(self.log.len().saturating_sub(lost).max(kept));
        self.start = self.start.min(self.end());
    }

    /// Records are removed from the beginning on, within a batch too.
    pub(super) fn delete_below(&mut self, start: i64) {
        self.start = start.clamp(self.start, self.end());
        let begun = self.epochs.partition_point(|(_, first)| *first <= self.start);
        self.epochs.drain(..begun.saturating_sub(1));
        self.epochs[0].1 = self.epochs[0].1.max(self.start);
    }

    /// The topic is there again, with nothing in it.
    pub(super) fn create_again(&mut self, epoch: i32) {
        self.log.clear();
        (self.start, self.told_start) = (0, 0);
        self.epochs = vec![(epoch, 0)];
        self.created_again += 1;
        self.is_deleted = false;
    }

    /// The answer of OffsetForLeaderEpoch, or a lie.
    pub(super) fn end_of(&mut self, asked: Epoch, rng: &mut fastrand::Rng) -> EpochEnd {
        let found = self.true_end_of(asked);
        if !self.lies(rng) {
            return found;
        }
        match rng.u8(..3) {
            0 => EpochEnd { epoch: Epoch::NONE, end: Offset::NONE },
            1 => EpochEnd { end: Offset((found.end.0 - rng.i64(1..10)).max(0)), ..found },
            _ => EpochEnd { end: found.end.plus(rng.i64(1..10)), ..found },
        }
    }

    pub(super) fn true_end_of(&self, asked: Epoch) -> EpochEnd {
        if asked.0 > self.epoch() {
            return EpochEnd { epoch: Epoch::NONE, end: Offset::NONE };
        }
        let after = self.epochs.partition_point(|(epoch, _)| *epoch <= asked.0);
        let epoch = after.checked_sub(1).map_or(asked.0, |found| self.epochs[found].0);
        let end = self.epochs.get(after).map_or(self.end(), |(_, start)| *start);
        EpochEnd { epoch: Epoch(epoch), end: Offset(end) }
    }

    /// What it has where this batch is; `None` where that is out of range.
    pub(super) fn batch_at(&self, ours: &BatchHeader) -> Option<BatchThere> {
        let asked = ours.last_offset().0;
        if asked < self.start || asked >= self.end() {
            return None;
        }
        let found = self.log.partition_point(|batch| batch.stored.last < asked);
        let found = self.log.get(found).filter(|batch| batch.stored.base <= asked);
        Some(found.map_or(BatchThere::Nothing, |found| BatchThere::Batch(*found.stored.valid().header())))
    }
}
