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

    /// The producers, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> + '_ {
        self.producers.iter().map(|(&id, producer)| (id, &**producer))
    }

    /// What is known of one producer.
    pub fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.producers.get(&id).map(|producer| &**producer)
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
                self.open.insert(stored.base_offset, stored.producer_id);
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
