//! One producer on one partition.
//!
//! Kept small, since a mirror may hold a few for each of its hundred thousand partitions: the batches are
//! inline and the whole is one allocation.

use tarn_record::{BatchHeader, Offset, ProducerEpoch, Sequence, Timestamp};

/// How many batches are remembered, so that a batch sent again is recognised: as many as a producer may
/// have in flight.
const REMEMBERED_BATCHES: usize = 5;

/// What a producer did last on a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    epoch: ProducerEpoch,
    /// How many of `batches` are in use.
    remembered: u8,
    coordinator_epoch: i32,
    last_timestamp: Timestamp,
    /// The first offset of the open transaction, or [`Offset::NONE`].
    transaction: Offset,
    /// Oldest first.
    batches: [AppendedBatch; REMEMBERED_BATCHES],
}

/// A batch of a producer that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedBatch {
    /// The sequence of its last record.
    pub last_sequence: Sequence,
    /// Its last offset less its first, and its last sequence less its first.
    pub offset_delta: i32,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// The largest timestamp in it.
    pub timestamp: Timestamp,
}

impl Default for Producer {
    /// A producer of which nothing is known.
    fn default() -> Producer {
        Producer {
            epoch: ProducerEpoch::NONE,
            remembered: 0,
            coordinator_epoch: -1,
            last_timestamp: Timestamp::NONE,
            transaction: Offset::NONE,
            batches: [AppendedBatch::NONE; REMEMBERED_BATCHES],
        }
    }
}

impl Producer {
    /// The producer's epoch.
    pub fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    /// The epoch of the coordinator that wrote the producer's last marker; −1 before any.
    pub fn coordinator_epoch(&self) -> i32 {
        self.coordinator_epoch
    }

    /// The largest timestamp of the newest batch or marker.
    pub fn last_timestamp(&self) -> Timestamp {
        self.last_timestamp
    }

    /// The first offset of the open transaction.
    pub fn transaction_start(&self) -> Option<Offset> {
        (self.transaction != Offset::NONE).then_some(self.transaction)
    }

    /// The batches that are remembered of the current epoch, oldest first.
    pub fn batches(&self) -> &[AppendedBatch] {
        &self.batches[..usize::from(self.remembered)]
    }

    /// The newest batch of the current epoch.
    pub fn last_batch(&self) -> Option<&AppendedBatch> {
        self.batches().last()
    }

    /// The sequence of the last record of the current epoch; [`Sequence::NONE`] before any.
    pub fn last_sequence(&self) -> Sequence {
        self.last_batch().map_or(Sequence::NONE, |batch| batch.last_sequence)
    }

    /// A producer as a snapshot tells it.
    pub(super) fn restored(
        epoch: ProducerEpoch,
        last: Option<AppendedBatch>,
        coordinator_epoch: i32,
        last_timestamp: Timestamp,
        transaction: Offset,
    ) -> Producer {
        let mut producer =
            Producer { epoch, coordinator_epoch, last_timestamp, transaction, ..Producer::default() };
        if let Some(last) = last {
            producer.remember(last);
        }
        producer
    }

    /// Takes note of a batch of records.
    pub(super) fn add(&mut self, stored: &BatchHeader) {
        self.move_to_epoch(stored.producer_epoch);
        self.remember(AppendedBatch {
            last_sequence: stored.last_sequence(),
            offset_delta: stored.last_offset_delta,
            last_offset: stored.last_offset(),
            timestamp: Timestamp(stored.max_timestamp),
        });
        self.last_timestamp = Timestamp(stored.max_timestamp);
    }

    /// True where no older batch would be remembered beside those that are: there are as many as can be, or the epoch
    /// began with them.
    pub(super) fn remembers_all(&self) -> bool {
        let is_first = |batch: &AppendedBatch| batch.base_sequence() == Sequence(0);
        usize::from(self.remembered) == REMEMBERED_BATCHES || self.batches().first().is_some_and(is_first)
    }

    /// Takes over the batches that another state of the same producer remembers, where it knows of more before the last.
    pub(super) fn remember_batches_of(&mut self, other: &Producer) {
        let last =
            |producer: &Producer| producer.last_batch().map(|batch| (batch.last_sequence, batch.last_offset));
        if other.epoch == self.epoch && last(other) == last(self) && other.remembered > self.remembered {
            (self.batches, self.remembered) = (other.batches, other.remembered);
        }
    }

    /// Opens a transaction; false where one is open already.
    pub(super) fn begin_transaction(&mut self, first_offset: Offset) -> bool {
        let begins = self.transaction_start().is_none();
        if begins {
            self.transaction = first_offset;
        }
        begins
    }

    /// The batch that its transaction began with is not in the log any more.
    pub(super) fn lose_transaction(&mut self) {
        self.transaction = Offset::NONE;
    }

    /// Takes note of a marker; returns where the transaction that it ends began. A marker may end nothing.
    pub(super) fn end_transaction(
        &mut self,
        marker: &BatchHeader,
        coordinator_epoch: Option<i32>,
    ) -> Option<Offset> {
        self.move_to_epoch(marker.producer_epoch);
        self.coordinator_epoch = coordinator_epoch.unwrap_or(self.coordinator_epoch);
        self.last_timestamp = Timestamp(marker.max_timestamp);
        let began = self.transaction_start();
        self.transaction = Offset::NONE;
        began
    }

    fn move_to_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.remembered = 0;
        }
    }

    fn remember(&mut self, batch: AppendedBatch) {
        if usize::from(self.remembered) == REMEMBERED_BATCHES {
            self.batches.rotate_left(1);
        } else {
            self.remembered += 1;
        }
        self.batches[usize::from(self.remembered) - 1] = batch;
    }
}

impl AppendedBatch {
    pub(super) const NONE: AppendedBatch = AppendedBatch {
        last_sequence: Sequence::NONE,
        offset_delta: 0,
        last_offset: Offset::NONE,
        timestamp: Timestamp::NONE,
    };

    /// The offset of its first record.
    pub fn base_offset(&self) -> Offset {
        self.last_offset.plus(-i64::from(self.offset_delta))
    }

    /// The sequence of its first record.
    pub fn base_sequence(&self) -> Sequence {
        if self.last_sequence == Sequence::NONE {
            return Sequence::NONE;
        }
        let base = i64::from(self.last_sequence.0) - i64::from(self.offset_delta);
        Sequence(base.rem_euclid(1 << 31) as i32)
    }
}
