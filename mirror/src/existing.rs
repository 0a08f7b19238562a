//! Topics that a mirror shall begin with or try again, and that are here already: what can be said before.
//!
//! A courtesy: it spares a topic that cannot be mirrored the binding. The leader of each partition decides
//! again once nobody can write any more (`alignment`, `parted`).
//!
//! Invariant: what a coordinator does not say is never taken for somebody's own records.

use std::collections::HashMap;

use tarn_record::{Offset, TopicIdPartition};
use tarn_wire::ErrorCode;

use crate::alignment::Content;
use crate::coordinator::PartitionState;
use crate::local_cluster::{LogEnds, Suffix};

/// Offsets that no mirror has brought, and that mirroring would drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// The partition.
    pub partition: TopicIdPartition,
    /// The first offset.
    pub from: Offset,
    /// The offset after the last.
    pub to: Offset,
    /// What is in between.
    pub suffix: Suffix,
}

/// True where a partition holds something that a mirror must not be laid over unasked.
pub fn holds_records(ends: &HashMap<TopicIdPartition, LogEnds>, partition: TopicIdPartition) -> bool {
    ends.get(&partition).is_some_and(|ends| ends.log_start < ends.log_end)
}

/// Where what no mirror has brought begins in logs that are not their mirror's alone: behind its last position, or at
/// their start.
///
/// # Errors
/// The error of a coordinator that does not answer: whose records these are will be known later.
pub fn places(
    filled: &[TopicIdPartition],
    known: &HashMap<TopicIdPartition, Result<Option<PartitionState>, ErrorCode>>,
    ends: &HashMap<TopicIdPartition, LogEnds>,
) -> Result<Vec<(TopicIdPartition, Offset)>, ErrorCode> {
    let mut places = Vec::new();
    for partition in filled {
        let state = match known.get(partition) {
            Some(Ok(state)) => state.as_ref(),
            Some(Err(error)) => return Err(*error),
            None => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
        let content = state.map_or(Content::Local, |known| Content::of(known.state, known.previous_state));
        let Some(ends) = ends.get(partition).filter(|_| content == Content::Local) else { continue };
        let position = state.and_then(|known| known.position).map(|position| position.offset);
        places.push((*partition, position.unwrap_or(ends.log_start).max(ends.log_start)));
    }
    Ok(places)
}

/// The ranges that hold records, of those that begin at `places`, with what stands in each.
pub fn ranges(
    places: &[(TopicIdPartition, Offset)],
    ends: &HashMap<TopicIdPartition, LogEnds>,
    suffixes: impl IntoIterator<Item = Option<Suffix>>,
) -> Vec<LocalRange> {
    let range = |(&(partition, from), suffix): (&(TopicIdPartition, Offset), Option<Suffix>)| {
        let (to, suffix) = (ends.get(&partition)?.log_end, suffix?);
        (!suffix.holds_no_records()).then_some(LocalRange { partition, from, to, suffix })
    };
    places.iter().zip(suffixes).filter_map(range).collect()
}

/// A sentence about ranges; `None` where there is none.
pub fn said(ranges: &[LocalRange]) -> Option<String> {
    let LocalRange { partition, from, to, suffix } = ranges.first()?;
    let more = match ranges.len() {
        1 => String::new(),
        count => format!(" (and {} more partitions)", count - 1),
    };
    Some(format!(
        "partition {}: offsets {from} to {} ({suffix}) were not brought by the mirror and would be \
         dropped{more}; --allow-truncation exports and drops them",
        partition.partition,
        to.plus(-1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Position;
    use crate::state::MirrorState;
    use tarn_record::{Epoch, PartitionIndex, TopicId};

    #[test]
    fn a_coordinator_that_does_not_answer_makes_no_record_a_local_one() {
        for error in [ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR] {
            assert_eq!(place(Err(error)), Err(error), "it is asked again, and then known");
        }
    }

    #[test]
    fn records_are_local_unless_the_mirror_brought_them() {
        assert_eq!(place(Ok(None)), Ok(Some(Offset(2))), "nobody brought them");
        let state = |state, offset| PartitionState {
            state: Some(state),
            position: Some(Position {
                epoch: Epoch(0),
                offset: Offset(offset),
                version: 1,
                source_offset: Offset(7),
                source_known_at_ms: 1,
            }),
            ..PartitionState::default()
        };
        assert_eq!(place(Ok(Some(state(MirrorState::Mirroring, 7)))), Ok(None));
        assert_eq!(place(Ok(Some(state(MirrorState::Stopped, 7)))), Ok(Some(Offset(7))));
        assert_eq!(place(Ok(Some(state(MirrorState::Stopped, 0)))), Ok(Some(Offset(2))), "the rest is gone");
    }

    #[test]
    fn what_ended_the_log_for_its_mirror_is_no_range() {
        let suffix = |records| Some(Suffix { records, control_records: 2, has_more: false });
        let places = [(partition(), Offset(7))];
        let found = |suffix| ranges(&places, &[(partition(), ends())].into(), [suffix]);
        assert_eq!(found(suffix(0)), []);
        assert_eq!(found(None), [], "the leader decides");
        let some = found(suffix(1));
        let said = said(&some).unwrap_or_default();
        assert!(said.starts_with("partition 0: offsets 7 to 8 (1 records) were not brought"), "{said}");
        assert_eq!(super::said(&[]), None);
    }

    /// Where local records begin in a partition that holds the offsets from 2 to 8.
    fn place(known: Result<Option<PartitionState>, ErrorCode>) -> Result<Option<Offset>, ErrorCode> {
        let found = places(&[partition()], &[(partition(), known)].into(), &[(partition(), ends())].into())?;
        Ok(found.first().map(|(_, offset)| *offset))
    }

    fn partition() -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) }
    }

    fn ends() -> LogEnds {
        LogEnds {
            log_start: Offset(2),
            log_end: Offset(9),
            high_watermark: Offset(9),
            latest_epoch: Epoch(0),
            leader_epoch: Epoch(0),
            compacted: false,
        }
    }
}
