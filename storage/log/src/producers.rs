//! What a partition knows of its idempotent and transactional producers (KIP-98, KIP-360, KIP-890).
//!
//! The leader refuses or recognises batches by it; every replica keeps the same state, built from the
//! batches in the log and, after a restart, from the newest `.snapshot` file plus the batches above it.
//! The last stable offset follows from the transactions here. Owned by the partition's log; no memory is
//! taken before the first producer id is seen.
//!
//! Invariants:
//! * a producer has at most one open transaction, and [`ProducerStates`] lists exactly those that have
//!   one, by first offset;
//! * a completed transaction stays until the high watermark is above its marker: before, a new leader
//!   could still not know how it ended;
//! * state changes by batches that are in the log, never by batches that are only checked.

mod check;
mod producer;
mod snapshot;
mod verification;

use std::collections::BTreeMap;

use tarn_record::{BatchHeader, ControlRecord, ControlType, Offset, ProducerEpoch, ProducerId, Timestamp};

pub use check::{Check, MarkerRule, Origin, SequenceError};
pub use producer::{AppendedBatch, Producer};
pub use snapshot::SnapshotError;
pub use verification::{EpochBump, VerificationGuard};

use verification::Verifications;

/// The producers and transactions of one partition.
#[derive(Clone, Debug, Default)]
pub struct ProducerStates {
    producers: BTreeMap<ProducerId, Box<Producer>>,
    /// Open transactions by their first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Completed transactions that the high watermark has not passed: first offset to marker.
    unreplicated: BTreeMap<Offset, Offset>,
    verifications: Verifications,
}

/// A transaction that a marker just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// The base offset of its first batch.
    pub first_offset: Offset,
    /// The offset of the marker.
    pub last_offset: Offset,
    /// The first offset of the oldest transaction that is still open, or the offset after the marker:
    /// what an entry in the transaction index says.
    pub last_stable_offset: Offset,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its records count.
    Committed,
    /// Its records do not count: it has an entry in the transaction index.
    Aborted,
}

/// Which batch of a producer compaction has to leave, so that what is known of it can be read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    /// The last offset of its newest batch of records; `None` where a marker with a newer epoch came after it.
    pub(crate) last_data: Option<Offset>,
    /// Its epoch.
    pub(crate) epoch: ProducerEpoch,
}

/// A transaction without a marker yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose transaction it is.
    pub producer_id: ProducerId,
    /// The producer's epoch, which its marker has to carry.
    pub producer_epoch: ProducerEpoch,
    /// The epoch of the coordinator that wrote the producer's last marker here; −1 before any.
    pub coordinator_epoch: i32,
    /// The base offset of its first batch.
    pub first_offset: Offset,
    /// The largest timestamp of the producer's newest batch.
    pub last_timestamp: Timestamp,
}

impl ProducerStates {
    /// Takes note of a batch that is in the log; `stored` is its header as it is there, and `control` what
    /// [`ControlRecord::parse`] found in it. Returns the transaction that the batch ended, if it had
    /// records.
    pub fn update(
        &mut self,
        stored: &BatchHeader,
        control: Option<&ControlRecord>,
    ) -> Option<CompletedTransaction> {
        match control.map(|control| control.control_type) {
            Some(ControlType::MirrorPidReset) => {
                self.reset();
                None
            }
            _ if !stored.has_producer_id() => None,
            Some(ControlType::Abort) => self.end_transaction(stored, control, Outcome::Aborted),
            Some(ControlType::Commit) => self.end_transaction(stored, control, Outcome::Committed),
            // A marker whose record was compacted away, and kinds that concern no producer.
            Some(_) => None,
            None if stored.is_control() => None,
            None => {
                self.add_batch(stored);
                None
            }
        }
    }

    /// Lets go of the completed transactions whose marker is below the high watermark.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        if !self.unreplicated.is_empty() {
            self.unreplicated.retain(|_, marker| *marker >= high_watermark);
        }
    }

    /// The oldest offset whose fate a reader of committed records cannot know: the last stable offset, if
    /// the high watermark is not lower. May lie below the log start. `None` without such a transaction.
    pub fn first_unstable(&self) -> Option<Offset> {
        let open = self.open.keys().next();
        let unreplicated = self.unreplicated.keys().next();
        open.into_iter().chain(unreplicated).min().copied()
    }

    /// The transactions without a marker, by first offset.
    pub fn open_transactions(&self) -> impl Iterator<Item = OpenTransaction> + '_ {
        self.open.iter().filter_map(|(&first_offset, &producer_id)| {
            let producer = self.producers.get(&producer_id)?;
            Some(OpenTransaction {
                producer_id,
                producer_epoch: producer.epoch(),
                coordinator_epoch: producer.coordinator_epoch(),
                first_offset,
                last_timestamp: producer.last_timestamp(),
            })
        })
    }

    /// Forgets the producers that wrote nothing for `expiration_ms` and have no open transaction.
    pub fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        let lapsed = |since: Timestamp| now.0.saturating_sub(since.0) >= expiration_ms;
        self.producers.retain(|_, producer| {
            producer.transaction_start().is_some() || !lapsed(producer.last_timestamp())
        });
        self.verifications.expire(lapsed);
    }

    /// Forgets everything: before the state is built anew from a snapshot and the log below a truncation.
    pub fn clear(&mut self) {
        self.reset();
        self.unreplicated.clear();
    }

    /// Replaces what was built anew after a truncation to `end` by what is known better: which of the
    /// completed transactions the high watermark had not passed. `before` is the state before.
    pub fn keep_unreplicated(&mut self, before: &ProducerStates, end: Offset) {
        let kept = before.unreplicated.iter().filter(|(_, marker)| **marker < end);
        self.unreplicated = kept.map(|(&first, &marker)| (first, marker)).collect();
    }

    /// True where `others`, which have seen the last batches of the log alone, remember of each producer as many as are
    /// remembered of one. Those whose last batch begins below `farthest` are not looked for.
    pub(crate) fn have_their_batches_in(&self, others: &ProducerStates, farthest: Offset) -> bool {
        self.producers.iter().all(|(id, producer)| {
            let is_out_of_reach = producer.last_batch().is_none_or(|last| last.base_offset() < farthest);
            is_out_of_reach
                || producer.remembers_all()
                || others.get(*id).is_some_and(Producer::remembers_all)
        })
    }

    /// Takes over which batches `others` remember of a producer, where its last one is the same and they know of more.
    pub(crate) fn remember_batches_of(&mut self, others: &ProducerStates) {
        for (id, producer) in &mut self.producers {
            if let Some(other) = others.get(*id) {
                producer.remember_batches_of(other);
            }
        }
    }

    /// The producers, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> + '_ {
        self.producers.iter().map(|(&id, producer)| (id, &**producer))
    }

    /// What is known of one producer.
    pub fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.producers.get(&id).map(|producer| &**producer)
    }

    /// Of each producer, what has to stay in the log.
    pub(crate) fn last_records(&self) -> BTreeMap<ProducerId, LastRecord> {
        let last = |producer: &Producer| LastRecord {
            last_data: producer.last_batch().map(|batch| batch.last_offset),
            epoch: producer.epoch(),
        };
        self.iter().map(|(id, producer)| (id, last(producer))).collect()
    }

    /// How many producers are known.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// True where no producer is known.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Forgets producers and open transactions, as MIRROR_PID_RESET demands (KIP-1279). How completed
    /// transactions ended still has to be replicated before readers may rely on it.
    fn reset(&mut self) {
        self.producers = BTreeMap::new();
        self.open = BTreeMap::new();
        self.verifications.clear();
    }

    fn add_batch(&mut self, stored: &BatchHeader) {
        let producer = self.producers.entry(stored.producer_id).or_default();
        producer.add(stored);
        if stored.is_transactional() {
            self.verifications.end(stored.producer_id);
            if producer.begin_transaction(stored.base_offset) {
                // A log of which nothing is left goes on with a batch that reaches back over what was there: another
                // transaction that began at this offset is of another history.
                let other = self.open.insert(stored.base_offset, stored.producer_id);
                if let Some(other) = other.and_then(|other| self.producers.get_mut(&other)) {
                    other.lose_transaction();
                }
            }
        }
    }

    fn end_transaction(
        &mut self,
        marker: &BatchHeader,
        control: Option<&ControlRecord>,
        outcome: Outcome,
    ) -> Option<CompletedTransaction> {
        let producer_id = marker.producer_id;
        let coordinator_epoch = control.and_then(|control| control.coordinator_epoch);
        let producer = self.producers.entry(producer_id).or_default();
        self.verifications.end(producer_id);
        let first_offset = producer.end_transaction(marker, coordinator_epoch)?;
        self.open.remove(&first_offset);
        self.unreplicated.insert(first_offset, marker.base_offset);
        let oldest_open = self.open.keys().next().copied();
        Some(CompletedTransaction {
            producer_id,
            first_offset,
            last_offset: marker.base_offset,
            last_stable_offset: oldest_open.unwrap_or(marker.base_offset.plus(1)),
            outcome,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bytes::Bytes;
    use tarn_record::{Attributes, Epoch, Sequence};

    #[test]
    fn the_oldest_open_transaction_holds_back_readers() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 0, 0, 2, 10)), None);
        states.update(&in_transaction(data(2, 0, 0, 1, 12)), None);
        assert_eq!(states.first_unstable(), Some(Offset(10)));

        let committed = states.update(&marker(1, 0, 13), Some(&end(ControlType::Commit, 4)));
        assert_eq!(
            committed,
            Some(CompletedTransaction {
                producer_id: ProducerId(1),
                first_offset: Offset(10),
                last_offset: Offset(13),
                last_stable_offset: Offset(12),
                outcome: Outcome::Committed,
            })
        );
        assert_eq!(states.first_unstable(), Some(Offset(10)), "the marker may not be replicated yet");
        states.on_high_watermark(Offset(13));
        assert_eq!(states.first_unstable(), Some(Offset(10)), "the marker itself is not replicated yet");
        states.on_high_watermark(Offset(14));
        assert_eq!(states.first_unstable(), Some(Offset(12)));
    }

    #[test]
    fn a_marker_that_leaves_nothing_open_is_stable_itself() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 0, 0, 2, 10)), None);
        let aborted = states.update(&marker(1, 0, 12), Some(&end(ControlType::Abort, 4))).unwrap();
        assert_eq!((aborted.last_stable_offset, aborted.outcome), (Offset(13), Outcome::Aborted));
        assert_eq!(states.get(ProducerId(1)).unwrap().coordinator_epoch(), 4);
    }

    #[test]
    fn a_marker_without_records_before_it_ends_nothing() {
        let mut states = ProducerStates::default();
        assert_eq!(states.update(&marker(1, 3, 0), Some(&end(ControlType::Abort, 7))), None);
        assert_eq!(states.first_unstable(), None);
        let producer = states.get(ProducerId(1)).unwrap();
        assert_eq!((producer.epoch(), producer.coordinator_epoch()), (ProducerEpoch(3), 7));
    }

    #[test]
    fn a_marker_whose_record_was_compacted_away_changes_nothing() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 0, 0, 1, 0)), None);
        assert_eq!(states.update(&marker(1, 0, 1), None), None);
        assert_eq!(states.first_unstable(), Some(Offset(0)));
    }

    #[test]
    fn batches_before_the_last_are_learnt_from_who_knows_the_same_last_one() {
        let of = |batches: &[BatchHeader]| {
            let mut states = ProducerStates::default();
            for batch in batches {
                states.update(batch, None);
            }
            states
        };
        let (first, last) = (data(1, 0, 0, 4, 9), data(1, 0, 4, 2, 14));
        for (others, known) in [
            (of(&[first, last]), 2),
            (of(&[first]), 1),
            (of(&[first, data(1, 0, 4, 2, 20)]), 1),
            (of(&[data(1, 1, 0, 4, 9), data(1, 1, 4, 2, 14)]), 1),
            (of(&[data(2, 0, 0, 4, 9), data(2, 0, 4, 2, 14)]), 1),
        ] {
            let mut states = of(&[last]);
            states.remember_batches_of(&others);
            assert_eq!(states.get(ProducerId(1)).unwrap().batches().len(), known, "{others:?}");
            assert_eq!(states.len(), 1);
        }
    }

    #[test]
    fn no_more_is_looked_for_once_five_batches_are_known_or_all_of_the_epoch_or_none_is_near() {
        let of = |batches: &[BatchHeader]| {
            let mut states = ProducerStates::default();
            for batch in batches {
                states.update(batch, None);
            }
            states
        };
        let sent = |from: i32, upto: i32| -> Vec<_> {
            (from..upto).map(|number| data(1, 0, number * 2, 2, i64::from(number) * 10)).collect()
        };
        let snapshot = of(&sent(9, 10));
        for (seen, farthest, is_enough) in [
            (sent(5, 10), 0, true),
            (sent(6, 10), 0, false),
            (vec![], 90, false),
            (vec![], 91, true),
            (vec![data(2, 0, 0, 2, 95)], 90, false),
        ] {
            let others = of(&seen);
            assert_eq!(snapshot.have_their_batches_in(&others, Offset(farthest)), is_enough, "{others:?}");
        }
        let begun = of(&sent(0, 3));
        assert!(begun.have_their_batches_in(&of(&[]), Offset(0)), "they are known already");
        let mut ended = begun.clone();
        ended.update(&marker(1, 1, 40), Some(&end(ControlType::Commit, 4)));
        assert!(ended.have_their_batches_in(&of(&[]), Offset(0)), "of the new epoch there is none");
    }

    #[test]
    fn open_transactions_say_what_their_marker_has_to_carry() {
        let mut states = ProducerStates::default();
        states.update(&marker(9, 2, 0), Some(&end(ControlType::Commit, 5)));
        states.update(&in_transaction(data(9, 2, 0, 3, 1)), None);
        states.update(&data(4, 0, 0, 1, 4), None);
        let open: Vec<_> = states.open_transactions().collect();
        assert_eq!(
            open,
            [OpenTransaction {
                producer_id: ProducerId(9),
                producer_epoch: ProducerEpoch(2),
                coordinator_epoch: 5,
                first_offset: Offset(1),
                last_timestamp: Timestamp(1003),
            }]
        );
    }

    #[test]
    fn of_two_transactions_that_began_at_one_offset_the_older_is_gone() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 0, 0, 1, 5)), None);
        states.update(&in_transaction(data(2, 0, 0, 3, 5)), None);
        states.update(&in_transaction(data(1, 0, 0, 1, 9)), None);
        let open: Vec<_> =
            states.open_transactions().map(|open| (open.producer_id.0, open.first_offset.0)).collect();
        assert_eq!(open, [(2, 5), (1, 9)]);
    }

    #[test]
    fn a_mirror_reset_forgets_all_producers_but_not_what_is_still_to_be_replicated() {
        let mut states = ProducerStates::default();
        states.update(&in_transaction(data(1, 0, 0, 1, 5)), None);
        states.update(&data(2, 0, 0, 1, 6), None);
        states.update(&marker(1, 0, 7), Some(&end(ControlType::Abort, 0)));
        let reset = BatchHeader { producer_id: ProducerId::NONE, ..marker(0, 0, 8) };
        states.update(&reset, Some(&end(ControlType::MirrorPidReset, 0)));
        assert!(states.is_empty());
        assert_eq!(states.check(&data(2, 0, 700, 1, 9), Origin::Client), Ok(Check::New));
        assert_eq!(states.first_unstable(), Some(Offset(5)));
        states.on_high_watermark(Offset(9));
        assert_eq!(states.first_unstable(), None);
    }

    #[test]
    fn a_truncation_keeps_back_what_was_not_replicated_before() {
        let mut before = ProducerStates::default();
        for (id, first) in [(1, 0), (2, 10), (3, 20)] {
            before.update(&in_transaction(data(id, 0, 0, 1, first)), None);
            before.update(&marker(id, 0, first + 1), Some(&end(ControlType::Commit, 0)));
        }
        before.on_high_watermark(Offset(5));
        let mut after = ProducerStates::default();
        after.update(&in_transaction(data(1, 0, 0, 1, 0)), None);
        after.update(&marker(1, 0, 1), Some(&end(ControlType::Commit, 0)));
        after.keep_unreplicated(&before, Offset(15));
        assert_eq!(after.first_unstable(), Some(Offset(10)));
        after.on_high_watermark(Offset(12));
        assert_eq!(after.first_unstable(), None);
    }

    #[test]
    fn a_producer_expires_unless_it_has_an_open_transaction() {
        let mut states = ProducerStates::default();
        states.update(&data(1, 0, 0, 1, 10), None);
        states.update(&in_transaction(data(2, 0, 0, 1, 11)), None);
        states.update(&data(3, 0, 0, 1, 500), None);
        states.expire(Timestamp(1110), 100);
        assert_eq!(states.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn batches_without_a_producer_id_leave_no_trace() {
        let mut states = ProducerStates::default();
        states.update(&data(-1, -1, -1, 5, 0), None);
        assert!(states.is_empty());
        assert_eq!(states.first_unstable(), None);
    }

    #[test]
    fn a_producer_costs_little_memory() {
        assert!(size_of::<Producer>() <= 144, "{}", size_of::<Producer>());
        assert!(size_of::<ProducerStates>() <= 112, "{}", size_of::<ProducerStates>());
    }

    /// The header of a batch of `count` records; its timestamp is 1000 more than its last offset.
    pub(crate) fn data(id: i64, epoch: i16, sequence: i32, count: i32, base_offset: i64) -> BatchHeader {
        let last = base_offset + i64::from(count) - 1;
        BatchHeader {
            base_offset: Offset(base_offset),
            length: 100,
            leader_epoch: Epoch(0),
            magic: 2,
            crc: 0,
            attributes: Attributes(0),
            last_offset_delta: count - 1,
            base_timestamp: 1000 + last,
            max_timestamp: 1000 + last,
            producer_id: ProducerId(id),
            producer_epoch: ProducerEpoch(epoch),
            base_sequence: Sequence(sequence),
            record_count: count,
        }
    }

    pub(crate) fn in_transaction(batch: BatchHeader) -> BatchHeader {
        BatchHeader { attributes: batch.attributes.transactional(), ..batch }
    }

    pub(crate) fn marker(id: i64, epoch: i16, offset: i64) -> BatchHeader {
        let batch = in_transaction(data(id, epoch, -1, 1, offset));
        BatchHeader { attributes: batch.attributes.control(), ..batch }
    }

    pub(crate) fn end(control_type: ControlType, coordinator_epoch: i32) -> ControlRecord {
        ControlRecord { control_type, coordinator_epoch: Some(coordinator_epoch), value: Bytes::new() }
    }
}
