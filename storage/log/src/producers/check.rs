//! Whether a producer may append a batch: the rules that keep its records in order and without doubles.

use tarn_record::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use thiserror::Error;

use super::producer::{AppendedBatch, Producer};
use super::{EpochBump, ProducerStates};

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer: everything is checked.
    Client,
    /// A coordinator of this cluster, whose batches carry no sequence: the epoch is checked.
    Coordinator,
    /// Another leader, which has checked: nothing is checked again.
    Replicated,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is to be appended.
    New,
    /// It is in the log already: the producer sent it again and gets the same answer.
    Duplicate {
        /// The offset of its first record.
        base_offset: Offset,
        /// The offset of its last record.
        last_offset: Offset,
        /// The largest timestamp in it.
        timestamp: Timestamp,
    },
}

/// How a marker's producer epoch relates to that of the transaction it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerRule {
    /// It may be the same (transaction versions 0 and 1).
    SameEpoch,
    /// It is higher, since every transaction ends with a new epoch (transaction version 2, KIP-890).
    BumpedEpoch,
}

/// A batch or marker that must not be appended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SequenceError {
    /// The producer was replaced by one with a higher epoch.
    #[error("producer {producer_id} has epoch {epoch}, but epoch {current} is known here")]
    StaleEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The epoch in the batch.
        epoch: ProducerEpoch,
        /// The epoch known.
        current: ProducerEpoch,
    },
    /// Records are missing before the batch, or it is older than what is remembered.
    #[error(
        "producer {producer_id} in epoch {epoch} sent sequence {sequence} where {} was expected",
        last.plus(1)
    )]
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// The first sequence in the batch.
        sequence: Sequence,
        /// The last sequence known.
        last: Sequence,
    },
    /// An earlier batch of the same transaction is still to be verified.
    #[error(
        "producer {producer_id} in epoch {epoch} sent sequence {sequence} while {lowest} is not appended yet"
    )]
    AheadOfVerification {
        /// The producer.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// The first sequence in the batch.
        sequence: Sequence,
        /// The lowest sequence that waits.
        lowest: Sequence,
    },
    /// Records outside a transaction while the producer has one open here.
    #[error(
        "producer {producer_id} in epoch {epoch} sent records outside the transaction that it opened at \
         offset {first_offset}"
    )]
    NotInTransaction {
        /// The producer.
        producer_id: ProducerId,
        /// Its epoch.
        epoch: ProducerEpoch,
        /// Where the transaction began.
        first_offset: Offset,
    },
    /// The coordinator was replaced by one with a higher epoch.
    #[error("the coordinator of producer {producer_id} has epoch {epoch}, but epoch {current} is known here")]
    CoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The epoch in the marker.
        epoch: i32,
        /// The epoch known.
        current: i32,
    },
}

impl SequenceError {
    /// Kafka's error code.
    pub fn code(&self) -> i16 {
        match self {
            SequenceError::StaleEpoch { .. } => 47,
            SequenceError::OutOfOrder { .. } | SequenceError::AheadOfVerification { .. } => 45,
            SequenceError::NotInTransaction { .. } => 48,
            SequenceError::CoordinatorFenced { .. } => 52,
        }
    }
}

impl ProducerStates {
    /// Whether a batch of records may be appended. Markers have [`ProducerStates::check_marker`].
    ///
    /// # Errors
    /// Where the producer is not allowed to append it now; nothing has changed.
    pub fn check(&self, batch: &BatchHeader, origin: Origin) -> Result<Check, SequenceError> {
        if !batch.has_producer_id() || origin == Origin::Replicated {
            return Ok(Check::New);
        }
        let Some(producer) = self.get(batch.producer_id) else {
            if origin == Origin::Client {
                self.check_verified(batch)?;
                self.check_unknown(batch)?;
            }
            return Ok(Check::New);
        };
        if origin == Origin::Client
            && let Some(known) = producer.find(batch)
        {
            return Ok(Check::Duplicate {
                base_offset: known.base_offset(),
                last_offset: known.last_offset,
                timestamp: known.timestamp,
            });
        }
        producer.check_epoch(batch)?;
        if origin == Origin::Client {
            self.check_verified(batch)?;
            producer.check_sequence(batch)?;
        }
        match producer.transaction_start() {
            Some(first_offset) if !batch.is_transactional() => Err(SequenceError::NotInTransaction {
                producer_id: batch.producer_id,
                epoch: batch.producer_epoch,
                first_offset,
            }),
            _ => Ok(Check::New),
        }
    }

    /// Whether a coordinator may append a marker that carries its `coordinator_epoch`.
    ///
    /// # Errors
    /// `StaleEpoch` or `CoordinatorFenced`; nothing has changed.
    pub fn check_marker(
        &self,
        marker: &BatchHeader,
        coordinator_epoch: i32,
        rule: MarkerRule,
    ) -> Result<(), SequenceError> {
        let Some(producer) = self.get(marker.producer_id) else { return Ok(()) };
        producer.check_epoch(marker)?;
        let ends_itself = marker.producer_epoch == producer.epoch() && producer.transaction_start().is_some();
        if rule == MarkerRule::BumpedEpoch && ends_itself {
            return Err(producer.stale(marker));
        }
        if coordinator_epoch < producer.coordinator_epoch() {
            return Err(SequenceError::CoordinatorFenced {
                producer_id: marker.producer_id,
                epoch: coordinator_epoch,
                current: producer.coordinator_epoch(),
            });
        }
        Ok(())
    }

    /// A batch must not overtake an earlier one that waits for the coordinator's word.
    fn check_verified(&self, batch: &BatchHeader) -> Result<(), SequenceError> {
        match self.verifications.lowest_sequence(batch.producer_id) {
            Some(lowest) if batch.base_sequence > lowest => Err(SequenceError::AheadOfVerification {
                producer_id: batch.producer_id,
                epoch: batch.producer_epoch,
                sequence: batch.base_sequence,
                lowest,
            }),
            _ => Ok(()),
        }
    }

    /// A producer of which nothing is known may begin anywhere, since what was known may have expired;
    /// but one that gets a new epoch with each transaction begins each at 0.
    fn check_unknown(&self, batch: &BatchHeader) -> Result<(), SequenceError> {
        let starts_at_zero = self.verifications.epoch_bump(batch.producer_id) == Some(EpochBump::Supported);
        if starts_at_zero && batch.base_sequence != Sequence(0) {
            return Err(out_of_order(batch, Sequence::NONE));
        }
        Ok(())
    }
}

impl Producer {
    /// The remembered batch with the same epoch and the same sequences.
    fn find(&self, batch: &BatchHeader) -> Option<&AppendedBatch> {
        let (base, last) = (batch.base_sequence, batch.last_sequence());
        let same = |known: &&AppendedBatch| known.base_sequence() == base && known.last_sequence == last;
        if self.epoch() == batch.producer_epoch { self.batches().iter().find(same) } else { None }
    }

    fn check_epoch(&self, batch: &BatchHeader) -> Result<(), SequenceError> {
        if batch.producer_epoch < self.epoch() { Err(self.stale(batch)) } else { Ok(()) }
    }

    fn stale(&self, batch: &BatchHeader) -> SequenceError {
        SequenceError::StaleEpoch {
            producer_id: batch.producer_id,
            epoch: batch.producer_epoch,
            current: self.epoch(),
        }
    }

    /// A new epoch begins at 0, and otherwise the sequence follows the last one, wrapping to 0.
    fn check_sequence(&self, batch: &BatchHeader) -> Result<(), SequenceError> {
        let same_epoch = batch.producer_epoch == self.epoch();
        let last = if same_epoch { self.last_sequence() } else { Sequence::NONE };
        if self.epoch() == ProducerEpoch::NONE || batch.base_sequence == last.plus(1) {
            Ok(())
        } else {
            Err(out_of_order(batch, last))
        }
    }
}

fn out_of_order(batch: &BatchHeader, last: Sequence) -> SequenceError {
    SequenceError::OutOfOrder {
        producer_id: batch.producer_id,
        epoch: batch.producer_epoch,
        sequence: batch.base_sequence,
        last,
    }
}
