//! Topics that a mirror shall begin with and that are here already: what can be said before they are bound.
//!
//! A courtesy: it spares a topic that cannot be mirrored the binding. The leader of each partition decides
//! again once nobody can write any more (`alignment`).
//!
//! Invariant: what a coordinator does not say is never taken for somebody's own records.

use std::collections::HashMap;

use tarn_record::TopicIdPartition;
use tarn_wire::ErrorCode;
use tarn_wire::messages::start_mirror_topics_response::MirrorTruncation;

use crate::alignment::{Content, local_records};
use crate::coordinator::PartitionState;
use crate::local_cluster::LogEnds;

/// What can be said of a topic before it is bound.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is against it.
    Begin,
    /// A coordinator does not answer: whose records these are will be known later.
    Unanswered(ErrorCode),
    /// It holds records of its own: the ranges, and the first of them in words.
    LocalRecords(Vec<MirrorTruncation>, String),
}

/// True where a partition has, or had, records that a mirror must not be laid over unasked.
pub fn holds_records(ends: &HashMap<TopicIdPartition, LogEnds>, partition: TopicIdPartition) -> bool {
    ends.get(&partition).is_some_and(|ends| local_records(ends).is_some())
}

/// Judges by the partitions that hold records.
pub fn judge(
    filled: &[TopicIdPartition],
    known: &HashMap<TopicIdPartition, Result<Option<PartitionState>, ErrorCode>>,
    ends: &HashMap<TopicIdPartition, LogEnds>,
) -> Verdict {
    let mut truncations = Vec::new();
    let mut first = None;
    for partition in filled {
        let state = match known.get(partition) {
            Some(Ok(state)) => state.as_ref(),
            Some(Err(error)) => return Verdict::Unanswered(*error),
            None => return Verdict::Unanswered(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
        let is_mirrored =
            state.is_some_and(|known| Content::of(known.state, known.previous_state) == Content::Mirrored);
        let Some(ends) = ends.get(partition).filter(|_| !is_mirrored) else { continue };
        let Some(why) = local_records(ends) else { continue };
        truncations.push(MirrorTruncation {
            partition_index: partition.partition.0,
            from_offset: ends.log_start.0,
            to_offset: ends.log_end.0,
        });
        first.get_or_insert_with(|| format!("partition {}: {why}", partition.partition));
    }
    let Some(first) = first else { return Verdict::Begin };
    let more = match truncations.len() {
        1 => String::new(),
        count => format!(" (and {} more partitions)", count - 1),
    };
    Verdict::LocalRecords(truncations, format!("{first}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MirrorState;
    use tarn_record::{Epoch, Offset, PartitionIndex, TopicId};

    #[test]
    fn a_coordinator_that_does_not_answer_makes_no_record_a_local_one() {
        for error in [ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR] {
            assert_eq!(verdict(Err(error)), Verdict::Unanswered(error), "it is asked again, and then known");
        }
    }

    #[test]
    fn records_are_local_unless_the_mirror_brought_them() {
        let Verdict::LocalRecords(truncations, why) = verdict(Ok(None)) else {
            panic!("nobody brought them")
        };
        assert_eq!((truncations[0].from_offset, truncations[0].to_offset), (2, 9));
        assert!(why.starts_with("partition 0: "), "{why}");
        let brought = PartitionState { state: Some(MirrorState::Mirroring), ..PartitionState::default() };
        assert_eq!(verdict(Ok(Some(brought))), Verdict::Begin);
    }

    /// What is said of a topic whose one partition holds the offsets from 2 to 9.
    fn verdict(known: Result<Option<PartitionState>, ErrorCode>) -> Verdict {
        let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) };
        let ends = LogEnds {
            log_start: Offset(2),
            log_end: Offset(9),
            high_watermark: Offset(9),
            latest_epoch: Epoch(0),
            leader_epoch: Epoch(0),
            compacted: false,
        };
        judge(&[partition], &[(partition, known)].into(), &[(partition, ends)].into())
    }
}
