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

#[cfg(test)]
mod tests {
    use super::super::tests::{data, end, in_transaction, marker};
    use super::*;
    use tarn_record::ControlType;

    #[test]
    fn a_batch_sent_again_is_recognised_among_the_last_five() {
        let states = after((0..7).map(|n| data(1, 0, 10 * n, 10, 100 + i64::from(10 * n))));
        for n in 2..7 {
            let known = 100 + i64::from(10 * n);
            assert_eq!(
                states.check(&data(1, 0, 10 * n, 10, 0), Origin::Client),
                Ok(Check::Duplicate {
                    base_offset: Offset(known),
                    last_offset: Offset(known + 9),
                    timestamp: Timestamp(1000 + known + 9),
                })
            );
        }
        assert_eq!(code(&states, &data(1, 0, 10, 10, 0)), 45, "the sixth last is forgotten");
        assert_eq!(code(&states, &data(1, 0, 60, 9, 0)), 45, "another length is another batch");
    }

    #[test]
    fn a_sequence_follows_the_one_before() {
        let states = after([data(1, 0, 0, 3, 0)]);
        assert_eq!(states.check(&data(1, 0, 3, 2, 0), Origin::Client), Ok(Check::New));
        assert_eq!(
            states.check(&data(1, 0, 4, 2, 0), Origin::Client),
            Err(SequenceError::OutOfOrder {
                producer_id: ProducerId(1),
                epoch: ProducerEpoch(0),
                sequence: Sequence(4),
                last: Sequence(2),
            })
        );
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let states = after([data(1, 0, i32::MAX - 4, 5, 0)]);
        assert_eq!(states.check(&data(1, 0, 0, 1, 0), Origin::Client), Ok(Check::New));
        assert_eq!(code(&states, &data(1, 0, 1, 1, 0)), 45);

        let within = after([data(1, 0, i32::MAX - 1, 5, 70)]);
        assert_eq!(within.check(&data(1, 0, 3, 1, 0), Origin::Client), Ok(Check::New));
        let again = within.check(&data(1, 0, i32::MAX - 1, 5, 0), Origin::Client);
        assert!(matches!(again, Ok(Check::Duplicate { base_offset: Offset(70), .. })), "{again:?}");
    }

    #[test]
    fn a_producer_of_which_nothing_is_known_may_begin_anywhere() {
        assert_eq!(after([]).check(&data(1, 6, 1234, 1, 0), Origin::Client), Ok(Check::New));
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old_one() {
        let mut states = after([data(1, 3, 0, 3, 0)]);
        assert_eq!(code(&states, &data(1, 4, 3, 1, 0)), 45);
        assert_eq!(states.check(&data(1, 4, 0, 1, 0), Origin::Client), Ok(Check::New));
        states.update(&data(1, 4, 0, 1, 3), None);
        assert_eq!(code(&states, &data(1, 3, 3, 1, 0)), 47);
        assert_eq!(code(&states, &data(1, 3, 0, 3, 0)), 47, "batches of the old epoch are forgotten");
    }

    #[test]
    fn a_marker_with_a_higher_epoch_begins_the_sequence_anew() {
        let mut states = after([in_transaction(data(1, 3, 0, 3, 0))]);
        states.update(&marker(1, 4, 3), Some(&end(ControlType::Commit, 0)));
        assert_eq!(code(&states, &in_transaction(data(1, 4, 3, 1, 0))), 45);
        assert_eq!(states.check(&in_transaction(data(1, 4, 0, 1, 0)), Origin::Client), Ok(Check::New));
    }

    #[test]
    fn a_marker_with_the_same_epoch_lets_the_sequence_go_on() {
        let mut states = after([in_transaction(data(1, 3, 0, 3, 0))]);
        states.update(&marker(1, 3, 3), Some(&end(ControlType::Commit, 0)));
        assert_eq!(states.check(&in_transaction(data(1, 3, 3, 1, 0)), Origin::Client), Ok(Check::New));
    }

    #[test]
    fn records_outside_an_open_transaction_are_refused() {
        let states = after([in_transaction(data(1, 0, 0, 1, 9))]);
        assert_eq!(code(&states, &data(1, 0, 1, 1, 0)), 48);
        assert_eq!(states.check(&in_transaction(data(1, 0, 1, 1, 0)), Origin::Client), Ok(Check::New));
    }

    #[test]
    fn what_another_leader_appended_is_not_checked_again() {
        let states = after([data(1, 5, 0, 3, 0)]);
        for batch in [data(1, 4, 0, 1, 0), data(1, 5, 90, 1, 0), data(1, 5, 0, 3, 0)] {
            assert_eq!(states.check(&batch, Origin::Replicated), Ok(Check::New));
        }
    }

    #[test]
    fn a_coordinator_is_only_held_to_the_epoch() {
        let states = after([in_transaction(data(1, 5, -1, 3, 0))]);
        let batch = in_transaction(data(1, 5, -1, 3, 0));
        assert_eq!(states.check(&batch, Origin::Coordinator), Ok(Check::New));
        let stale = states.check(&in_transaction(data(1, 4, -1, 3, 0)), Origin::Coordinator);
        assert_eq!(stale.unwrap_err().code(), 47);
    }

    #[test]
    fn a_marker_of_a_replaced_coordinator_is_refused() {
        let mut states = after([]);
        states.update(&marker(1, 3, 0), Some(&end(ControlType::Commit, 8)));
        let check = |epoch, coordinator, rule| states.check_marker(&marker(1, epoch, 0), coordinator, rule);
        assert_eq!(check(3, 8, MarkerRule::SameEpoch), Ok(()));
        assert_eq!(check(3, 7, MarkerRule::SameEpoch).unwrap_err().code(), 52);
        assert_eq!(check(2, 8, MarkerRule::SameEpoch).unwrap_err().code(), 47);
        assert_eq!(check(3, 8, MarkerRule::BumpedEpoch), Ok(()), "the same marker, sent again");
        states.update(&in_transaction(data(1, 3, 0, 1, 1)), None);
        let check = |epoch, rule| states.check_marker(&marker(1, epoch, 0), 8, rule);
        assert_eq!(check(3, MarkerRule::BumpedEpoch).unwrap_err().code(), 47);
        assert_eq!(check(4, MarkerRule::BumpedEpoch), Ok(()));
        assert_eq!(check(3, MarkerRule::SameEpoch), Ok(()));
    }

    fn after(batches: impl IntoIterator<Item = BatchHeader>) -> ProducerStates {
        let mut states = ProducerStates::default();
        for batch in batches {
            states.update(&batch, None);
        }
        states
    }

    fn code(states: &ProducerStates, batch: &BatchHeader) -> i16 {
        states.check(batch, Origin::Client).unwrap_err().code()
    }
}
