//! Topics that a mirror shall begin with or try again, and that are here already: what can be said before.
//!
//! A courtesy: it spares a topic that cannot be mirrored the binding. The leader of each partition decides
//! again once nobody can write any more (`alignment`, `divergence`). It is answered within a client's request, so all
//! topics are looked at together, and no more is counted than that allows.
//!
//! Invariants:
//! * what a coordinator does not say is never taken for somebody's own records;
//! * what could not be read is never taken for nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tarn_record::{Offset, TopicId, TopicIdPartition};
use tarn_runtime::timeout;
use tarn_wire::ErrorCode;

use crate::alignment::Content;
use crate::coordinator::PartitionState;
use crate::limits;
use crate::local_cluster::{CountOrder, LocalCluster, LocalError, LogEnds, Suffix};
use crate::reasons::Reason;
use crate::state::MirrorState;

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

/// Why it is not known what a topic holds: it is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The error of the protocol.
    pub error: ErrorCode,
    /// The reason.
    pub reason: Reason,
    /// A sentence.
    pub why: String,
}

/// What coordinators know of partitions; an error where one does not answer.
pub type Known = HashMap<TopicIdPartition, Result<Option<PartitionState>, ErrorCode>>;

/// What was found in each topic that was looked at: the ranges that hold records of its own.
pub type Found = BTreeMap<TopicId, Result<Vec<LocalRange>, Unknown>>;

/// Of which partitions something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Of all.
    All,
    /// Of those that have failed.
    Failed,
}

/// Looks for records that no mirror has brought, in the partitions of these topics that are led here: what others lead
/// is theirs to say. `read` asks the coordinators; counting ends `within` this time.
pub async fn look<R: Future<Output = Known>>(
    cluster: &impl LocalCluster,
    topics: &[TopicId],
    which: Which,
    within: Duration,
    read: impl FnOnce(Vec<TopicIdPartition>) -> R,
) -> Found {
    let mut found: Found = topics.iter().map(|topic| (*topic, Ok(Vec::new()))).collect();
    let led = led_here(cluster, topics);
    let mut filled = Vec::new();
    for (partition, ends) in led.iter().zip(cluster.ends(led.clone()).await) {
        match ends {
            Ok(ends) if ends.log_start < ends.log_end => filled.push((*partition, ends)),
            Ok(_) => {}
            Err(error) => not_known(&mut found, *partition, Unknown::of_log(&error)),
        }
    }
    if filled.is_empty() {
        return found;
    }
    let known = read(filled.iter().map(|(partition, _)| *partition).collect()).await;
    let mut ranges = Vec::new();
    for (partition, ends) in filled {
        match place(known.get(&partition), &ends, which) {
            Ok(Some(from)) => ranges.push((partition, from, ends.log_end)),
            Ok(None) => {}
            Err(error) => not_known(&mut found, partition, Unknown::of_coordinator(error)),
        }
    }
    count(cluster, ranges, within, &mut found).await;
    found
}

/// A sentence about ranges; `None` where there is none.
pub fn said(ranges: &[LocalRange]) -> Option<String> {
    let LocalRange { partition, from, to, suffix } = ranges.first()?;
    let more = match ranges.len() {
        1 => String::new(),
        2 => " (and 1 more partition)".to_owned(),
        count => format!(" (and {} more partitions)", count - 1),
    };
    // The leader counts from where both logs part, which it asks the source for.
    Some(format!(
        "partition {}: offsets {from} to {} ({suffix}) were not brought by the mirror and would be dropped, with what \
         the source has lost before them, if anything{more}; --allow-truncation exports and drops them",
        partition.partition,
        to.plus(-1)
    ))
}

/// Counts what is in these ranges: the first offset, and the one after the last.
async fn count(
    cluster: &impl LocalCluster,
    ranges: Vec<(TopicIdPartition, Offset, Offset)>,
    within: Duration,
    found: &mut Found,
) {
    if ranges.is_empty() {
        return;
    }
    let records_max = counted_max(ranges.len());
    let order = |&(partition, from, _): &(TopicIdPartition, Offset, Offset)| CountOrder {
        partition,
        from,
        records_max,
    };
    let suffixes = match timeout(within, cluster.suffixes(ranges.iter().map(order).collect())).await {
        Ok(suffixes) => suffixes,
        Err(elapsed) => {
            for (partition, ..) in ranges {
                not_known(found, partition, Unknown::not_within(elapsed.0));
            }
            return;
        }
    };
    for ((partition, from, to), suffix) in ranges.into_iter().zip(suffixes) {
        match suffix {
            Ok(suffix) if suffix.holds_no_records() => {}
            Ok(suffix) => {
                if let Some(Ok(of_topic)) = found.get_mut(&partition.topic_id) {
                    of_topic.push(LocalRange { partition, from, to, suffix });
                }
            }
            Err(error) => not_known(found, partition, Unknown::of_log(&error)),
        }
    }
}

/// How many records are counted at most in each of so many partitions.
fn counted_max(partitions: usize) -> u64 {
    let each = limits::COUNTED_TOGETHER_MAX / u64::try_from(partitions).unwrap_or(u64::MAX).max(1);
    each.clamp(1, limits::COUNTED_RECORDS_MAX)
}

fn led_here(cluster: &impl LocalCluster, topics: &[TopicId]) -> Vec<TopicIdPartition> {
    let (image, us) = (cluster.image(), cluster.broker_id());
    let mut led = Vec::new();
    for topic in topics.iter().filter_map(|topic| image.topics().by_id(*topic)) {
        let of_topic = topic.partitions.iter().filter(|(_, registration)| registration.leader == us);
        led.extend(of_topic.map(|(&partition, _)| TopicIdPartition { topic_id: topic.id, partition }));
    }
    led
}

/// Where what no mirror has brought begins in a log that is not its mirror's alone: behind its last position, or at
/// its start.
fn place(
    known: Option<&Result<Option<PartitionState>, ErrorCode>>,
    ends: &LogEnds,
    which: Which,
) -> Result<Option<Offset>, ErrorCode> {
    let state = match known {
        Some(Ok(state)) => state.as_ref(),
        Some(Err(error)) => return Err(*error),
        None => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    };
    let has_failed = state.is_some_and(|known| known.state == Some(MirrorState::Failed));
    let content = state.map_or(Content::Local, |known| Content::of(known.state, known.previous_state));
    if content == Content::Mirrored || (which == Which::Failed && !has_failed) {
        return Ok(None);
    }
    let position = state.and_then(|known| known.position).map(|position| position.offset);
    Ok(Some(position.unwrap_or(ends.log_start).max(ends.log_start)))
}

fn not_known(found: &mut Found, partition: TopicIdPartition, why: Unknown) {
    if let Some(of_topic) = found.get_mut(&partition.topic_id) {
        *of_topic = Err(why);
    }
}

impl Unknown {
    fn of_coordinator(error: ErrorCode) -> Unknown {
        let why = "what the mirror has brought of the topic before is not known now; try again";
        Unknown { error, reason: Reason::CoordinatorUnavailable, why: why.to_owned() }
    }

    fn of_log(error: &LocalError) -> Unknown {
        let code = match error {
            LocalError::NotLeader(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            _ => ErrorCode::KAFKA_STORAGE_ERROR,
        };
        let why = format!("what the topic holds is not known now: {error}; try again");
        Unknown { error: code, reason: error.reason(), why }
    }

    fn not_within(time: Duration) -> Unknown {
        let why = format!("what the topic holds could not be looked through within {time:?}; try again");
        Unknown { error: ErrorCode::REQUEST_TIMED_OUT, reason: Reason::DestinationStorage, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Position;
    use tarn_record::{Epoch, PartitionIndex};

    #[test]
    fn a_coordinator_that_does_not_answer_makes_no_record_a_local_one() {
        for error in [ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NOT_COORDINATOR] {
            assert_eq!(place(Some(&Err(error)), &ends(), Which::All), Err(error), "it is asked again");
        }
        let nothing = place(None, &ends(), Which::Failed);
        assert_eq!(nothing, Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
    }

    #[test]
    fn records_are_local_unless_the_mirror_brought_them() {
        let of = |state, which| place(Some(&Ok(state)), &ends(), which).expect("it is known");
        assert_eq!(of(None, Which::All), Some(Offset(2)), "nobody brought them");
        let state = |state, offset| {
            Some(PartitionState {
                state: Some(state),
                position: Some(Position {
                    epoch: Epoch(0),
                    offset: Offset(offset),
                    version: 1,
                    source_offset: Offset(7),
                    source_known_at_ms: 1,
                    source_lag_ms: 1,
                }),
                ..PartitionState::default()
            })
        };
        assert_eq!(of(state(MirrorState::Mirroring, 7), Which::All), None);
        assert_eq!(of(state(MirrorState::Stopped, 7), Which::All), Some(Offset(7)));
        assert_eq!(of(state(MirrorState::Stopped, 0), Which::All), Some(Offset(2)), "the rest is gone");
        assert_eq!(of(state(MirrorState::Stopped, 7), Which::Failed), None);
        assert_eq!(of(state(MirrorState::Failed, 7), Which::Failed), Some(Offset(7)));
    }

    #[test]
    fn what_is_said_of_ranges_names_the_first() {
        let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) };
        let suffix = Suffix { records: 1, control_records: 2, has_more: true };
        let range = LocalRange { partition, from: Offset(7), to: Offset(9), suffix };
        let said = super::said(&[range, range]).unwrap_or_default();
        let first = "partition 0: offsets 7 to 8 (more than 1 record) were not brought";
        assert!(said.starts_with(first) && said.contains("(and 1 more partition)"), "{said}");
        let said = super::said(&[range, range, range]).unwrap_or_default();
        assert!(said.contains("(and 2 more partitions)"), "{said}");
        assert_eq!(super::said(&[]), None);
    }

    #[test]
    fn of_many_partitions_less_is_counted_in_each() {
        assert_eq!(counted_max(1), limits::COUNTED_RECORDS_MAX);
        let many = 100_000;
        assert!(counted_max(many) * many as u64 <= limits::COUNTED_TOGETHER_MAX);
        assert_eq!(counted_max(usize::MAX), 1);
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
