//! The batches that were turned away because the log of their partition was not open, so that none overtakes them.
//!
//! A producer with several requests under way sends a batch before it hears that the one before was refused, and the
//! log may open between the two. Were the second one judged then, the producer would be told of a gap in its sequences,
//! and librdkafka writes anew, in a new epoch, what it has no answers for: records that were in the log already are
//! there twice. Or the second one would fit, because the first was in the log before a crash: then nobody is told the
//! offsets of the first. So what comes behind a batch that was turned away is turned away too, until that one is back.
//!
//! Invariants:
//! * of a producer and partition the first such batch is remembered, for `TURNED_AWAY_MS` at the longest: a producer
//!   that gives it up goes on after that, or with another epoch;
//! * no more than `TURNED_AWAY` are remembered; others are turned away without trace.

use std::collections::HashMap;

use tarn_record::{BatchHeader, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicIdPartition};
use tarn_wire::ErrorCode;

use crate::limits::{TURNED_AWAY, TURNED_AWAY_MS};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    batches: HashMap<(TopicIdPartition, ProducerId), First>,
}

/// The first batch of a producer that was turned away.
#[derive(Clone, Copy, Debug)]
struct First {
    epoch: ProducerEpoch,
    sequence: Sequence,
    error: ErrorCode,
    since: Timestamp,
}

impl First {
    fn has_lapsed(&self, now: Timestamp) -> bool {
        now.0.saturating_sub(self.since.0) >= TURNED_AWAY_MS
    }
}

impl TurnedAway {
    /// A batch was turned away with `error`.
    pub(super) fn note(
        &mut self,
        partition: TopicIdPartition,
        batch: &BatchHeader,
        error: ErrorCode,
        now: Timestamp,
    ) {
        let retriable = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::KAFKA_STORAGE_ERROR];
        if !batch.has_producer_id()
            || !retriable.contains(&error)
            || self.before(partition, batch, now).is_some()
        {
            return;
        }
        if self.batches.len() >= TURNED_AWAY {
            self.batches.retain(|_, first| !first.has_lapsed(now));
        }
        if self.batches.len() < TURNED_AWAY {
            let (epoch, sequence) = (batch.producer_epoch, batch.base_sequence);
            self.batches.insert((partition, batch.producer_id), First { epoch, sequence, error, since: now });
        }
    }

    /// Why a batch is to be turned away too: one that belongs before it was, and is not back yet. One that is back is
    /// forgotten.
    pub(super) fn before(
        &mut self,
        partition: TopicIdPartition,
        batch: &BatchHeader,
        now: Timestamp,
    ) -> Option<ErrorCode> {
        if self.batches.is_empty() {
            return None;
        }
        let producer = (partition, batch.producer_id);
        let first = self.batches.get(&producer)?;
        let is_behind = first.epoch == batch.producer_epoch && is_after(batch.base_sequence, first.sequence);
        if is_behind && !first.has_lapsed(now) {
            return Some(first.error);
        }
        self.batches.remove(&producer);
        None
    }
}

/// Whether a sequence comes after another; they begin anew at 0 after the largest.
fn is_after(sequence: Sequence, other: Sequence) -> bool {
    let distance = (i64::from(sequence.0) - i64::from(other.0)).rem_euclid(1 << 31);
    (1..1 << 30).contains(&distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::builder::{BatchBuilder, Record};
    use tarn_record::{Compression, Offset, PartitionIndex, TopicId};

    const NOW: Timestamp = Timestamp(1_000_000);
    const NOT_LEADER: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;

    #[test]
    fn what_comes_behind_is_turned_away_until_the_first_is_back() {
        let mut turned_away = TurnedAway::default();
        turned_away.note(p(0), &batch(7, 0, 5), NOT_LEADER, NOW);
        turned_away.note(p(0), &batch(7, 0, 6), NOT_LEADER, NOW);
        let mut before = |partition, batch: &BatchHeader| turned_away.before(partition, batch, NOW);
        for other in [(p(1), batch(7, 0, 6)), (p(0), batch(8, 0, 6)), (p(0), batch(-1, -1, -1))] {
            assert_eq!(before(other.0, &other.1), None, "another partition, producer, none");
        }
        assert_eq!(before(p(0), &batch(7, 0, 7)), Some(NOT_LEADER));
        assert_eq!(before(p(0), &batch(7, 0, 6)), Some(NOT_LEADER));
        assert_eq!(before(p(0), &batch(7, 0, 5)), None, "it is back");
        assert_eq!(before(p(0), &batch(7, 0, 6)), None);
    }

    #[test]
    fn a_batch_that_belongs_before_the_first_is_not_behind_it() {
        let mut turned_away = TurnedAway::default();
        for (first, earlier) in [(5, 4), (0, i32::MAX), (3, i32::MAX - 10)] {
            turned_away.note(p(0), &batch(7, 0, first), NOT_LEADER, NOW);
            assert_eq!(turned_away.before(p(0), &batch(7, 0, earlier), NOW), None, "{earlier} and {first}");
            turned_away.note(p(0), &batch(7, 0, earlier), NOT_LEADER, NOW);
            assert_eq!(turned_away.before(p(0), &batch(7, 0, first), NOW), Some(NOT_LEADER));
            assert_eq!(turned_away.before(p(0), &batch(7, 0, earlier), NOW), None);
        }
    }

    #[test]
    fn a_new_epoch_or_time_lets_a_producer_go_on_without_it() {
        let mut turned_away = TurnedAway::default();
        turned_away.note(p(0), &batch(7, 0, 5), ErrorCode::KAFKA_STORAGE_ERROR, NOW);
        let later = |ms: i64| Timestamp(NOW.0 + ms);
        let behind = turned_away.before(p(0), &batch(7, 0, 6), later(TURNED_AWAY_MS - 1));
        assert_eq!(behind, Some(ErrorCode::KAFKA_STORAGE_ERROR), "it is told what the first was");
        assert_eq!(turned_away.before(p(0), &batch(7, 0, 6), later(TURNED_AWAY_MS)), None);
        turned_away.note(p(0), &batch(7, 0, 5), NOT_LEADER, NOW);
        assert_eq!(turned_away.before(p(0), &batch(7, 1, 6), NOW), None);
        assert!(turned_away.batches.is_empty());
    }

    #[test]
    fn what_is_refused_for_good_or_has_no_producer_leaves_no_trace_and_there_is_an_end_to_them() {
        let mut turned_away = TurnedAway::default();
        turned_away.note(p(0), &batch(7, 0, 5), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, NOW);
        turned_away.note(p(0), &batch(-1, -1, -1), NOT_LEADER, NOW);
        assert!(turned_away.batches.is_empty());
        for producer in 0..=TURNED_AWAY as i64 {
            turned_away.note(p(0), &batch(producer, 0, 5), NOT_LEADER, NOW);
        }
        assert_eq!(turned_away.batches.len(), TURNED_AWAY);
        let later = Timestamp(NOW.0 + TURNED_AWAY_MS);
        turned_away.note(p(0), &batch(TURNED_AWAY as i64, 0, 5), NOT_LEADER, later);
        assert_eq!(turned_away.batches.len(), 1, "the others have lapsed");
    }

    fn p(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) }
    }

    fn batch(producer: i64, epoch: i16, sequence: i32) -> BatchHeader {
        let mut batch = BatchBuilder::new(Offset(0), Compression::None);
        batch.add(&Record::default());
        let header = BatchHeader::parse(&batch.build()).expect("it was built");
        BatchHeader {
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(epoch),
            base_sequence: Sequence(sequence),
            ..header
        }
    }
}
