//! Transactions whose first batch waits for the coordinator's word (KIP-890).
//!
//! Before the first batch of a transaction is appended, the coordinator is asked whether the transaction
//! is really going on; else a batch that comes late could open one that nobody ends. While the question is
//! out, a marker may end the transaction: then the guard that the asking request holds is no longer valid.

use std::collections::BTreeMap;

use tarn_record::{BatchHeader, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::ProducerStates;

/// Held by a produce request while it asks; valid until a batch or marker of the producer is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationGuard(u64);

/// Whether the producer gets a new epoch with each transaction (transaction version 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochBump {
    /// It does, and its sequence begins at 0 with each transaction.
    Supported,
    /// It does not.
    Unsupported,
}

/// The questions that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    waiting: BTreeMap<ProducerId, Waiting>,
    guards_given: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    guard: VerificationGuard,
    since: Timestamp,
    epoch: ProducerEpoch,
    lowest_sequence: Sequence,
    epoch_bump: EpochBump,
}

impl ProducerStates {
    /// True where the coordinator has to be asked before the batch is appended: it would open a
    /// transaction.
    pub fn needs_verification(&self, batch: &BatchHeader) -> bool {
        let ongoing = self.get(batch.producer_id).is_some_and(|producer| {
            producer.transaction_start().is_some() && producer.epoch() == batch.producer_epoch
        });
        batch.has_producer_id() && batch.is_transactional() && !batch.is_control() && !ongoing
    }

    /// Notes that the coordinator is asked about `batch`.
    pub fn begin_verification(
        &mut self,
        batch: &BatchHeader,
        epoch_bump: EpochBump,
        now: Timestamp,
    ) -> VerificationGuard {
        self.verifications.begin(batch, epoch_bump, now)
    }

    /// True where nothing of the producer was appended since `guard` was given.
    pub fn is_verified(&self, batch: &BatchHeader, guard: VerificationGuard) -> bool {
        self.verifications.waiting.get(&batch.producer_id).is_some_and(|waiting| waiting.guard == guard)
    }
}

impl Verifications {
    fn begin(&mut self, batch: &BatchHeader, epoch_bump: EpochBump, now: Timestamp) -> VerificationGuard {
        let guards_given = &mut self.guards_given;
        let waiting = self.waiting.entry(batch.producer_id).or_insert_with(|| {
            *guards_given += 1;
            Waiting {
                guard: VerificationGuard(*guards_given),
                since: now,
                epoch: batch.producer_epoch,
                lowest_sequence: batch.base_sequence,
                epoch_bump,
            }
        });
        if batch.producer_epoch > waiting.epoch {
            waiting.epoch = batch.producer_epoch;
            waiting.lowest_sequence = batch.base_sequence;
        } else if batch.producer_epoch == waiting.epoch {
            waiting.lowest_sequence = waiting.lowest_sequence.min(batch.base_sequence);
        }
        waiting.guard
    }

    pub(super) fn end(&mut self, producer_id: ProducerId) {
        self.waiting.remove(&producer_id);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn expire(&mut self, lapsed: impl Fn(Timestamp) -> bool) {
        self.waiting.retain(|_, waiting| !lapsed(waiting.since));
    }

    pub(super) fn lowest_sequence(&self, producer_id: ProducerId) -> Option<Sequence> {
        self.waiting.get(&producer_id).map(|waiting| waiting.lowest_sequence)
    }

    pub(super) fn epoch_bump(&self, producer_id: ProducerId) -> Option<EpochBump> {
        self.waiting.get(&producer_id).map(|waiting| waiting.epoch_bump)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, end, in_transaction, marker};
    use super::super::{Check, Origin};
    use super::*;
    use tarn_record::ControlType;

    const NOW: Timestamp = Timestamp(0);

    #[test]
    fn only_what_opens_a_transaction_is_verified() {
        let mut states = ProducerStates::default();
        let first = in_transaction(data(1, 0, 0, 1, 0));
        assert!(states.needs_verification(&first));
        assert!(!states.needs_verification(&data(1, 0, 0, 1, 0)));
        assert!(!states.needs_verification(&marker(1, 0, 0)));
        states.update(&first, None);
        assert!(!states.needs_verification(&in_transaction(data(1, 0, 1, 1, 1))));
        assert!(states.needs_verification(&in_transaction(data(1, 1, 0, 1, 1))), "another epoch");
    }

    #[test]
    fn a_marker_ends_the_verification_that_is_out() {
        let mut states = ProducerStates::default();
        let first = in_transaction(data(1, 0, 0, 1, 0));
        let guard = states.begin_verification(&first, EpochBump::Unsupported, NOW);
        assert!(states.is_verified(&first, guard));
        states.update(&marker(1, 0, 0), Some(&end(ControlType::Abort, 0)));
        assert!(!states.is_verified(&first, guard));
        let anew = states.begin_verification(&first, EpochBump::Unsupported, NOW);
        assert!(states.is_verified(&first, anew) && !states.is_verified(&first, guard));
    }

    #[test]
    fn a_batch_does_not_overtake_an_earlier_one_that_waits() {
        let mut states = ProducerStates::default();
        let (first, second) = (in_transaction(data(1, 0, 5, 1, 0)), in_transaction(data(1, 0, 6, 1, 0)));
        states.begin_verification(&second, EpochBump::Unsupported, NOW);
        assert_eq!(states.check(&second, Origin::Client), Ok(Check::New));
        states.begin_verification(&first, EpochBump::Unsupported, NOW);
        assert_eq!(states.check(&second, Origin::Client).unwrap_err().code(), 45);
        assert_eq!(states.check(&first, Origin::Client), Ok(Check::New));
    }

    #[test]
    fn a_producer_with_an_epoch_for_each_transaction_begins_at_zero() {
        let mut states = ProducerStates::default();
        let late = in_transaction(data(1, 0, 3, 1, 0));
        states.begin_verification(&late, EpochBump::Supported, NOW);
        assert_eq!(states.check(&late, Origin::Client).unwrap_err().code(), 45);
        states.update(&marker(1, 0, 0), Some(&end(ControlType::Abort, 0)));
        let first = in_transaction(data(2, 0, 0, 1, 0));
        states.begin_verification(&first, EpochBump::Supported, NOW);
        assert_eq!(states.check(&first, Origin::Client), Ok(Check::New));
    }

    #[test]
    fn a_question_without_an_answer_expires() {
        let mut states = ProducerStates::default();
        let first = in_transaction(data(1, 0, 0, 1, 0));
        let guard = states.begin_verification(&first, EpochBump::Unsupported, NOW);
        states.expire(Timestamp(99), 100);
        assert!(states.is_verified(&first, guard));
        states.expire(Timestamp(100), 100);
        assert!(!states.is_verified(&first, guard));
    }
}
