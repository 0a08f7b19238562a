//! Produce requests with `acks=-1` that wait until the high watermark has passed what they appended.
//!
//! A request may wait on several partitions of a core; it is answered when the last of them is done, or
//! when its time is up, with REQUEST_TIMED_OUT for the partitions that were not.
//!
//! Invariants:
//! * a waiting request is answered exactly once;
//! * there are never more than `limit` waiting requests: the next is refused, not queued;
//! * nothing here reads a clock: `now` comes with the call.

use std::collections::{BTreeSet, HashMap};

use tarn_record::{Offset, TopicIdPartition};
use tarn_wire::ErrorCode;

/// One request that waits, as this core sees it.
#[derive(Debug)]
struct Ticket<A> {
    answer: A,
    deadline_ms: u64,
    partitions: Vec<(TopicIdPartition, Offset)>,
    open: usize,
    errors: Vec<(TopicIdPartition, ErrorCode)>,
}

/// A waiting request that is done: its answer slot, and the partitions that failed while it waited.
#[derive(Debug, PartialEq, Eq)]
pub struct Done<A> {
    /// Whatever the caller left here to answer with.
    pub answer: A,
    /// The partitions for which the append was not confirmed, and why.
    pub errors: Vec<(TopicIdPartition, ErrorCode)>,
}

/// The waiting requests of one core. Owned by that core.
#[derive(Debug)]
pub struct Waiting<A> {
    limit: usize,
    next_ticket: u64,
    tickets: HashMap<u64, Ticket<A>>,
    by_deadline: BTreeSet<(u64, u64)>,
    by_partition: HashMap<TopicIdPartition, BTreeSet<(Offset, u64)>>,
}

impl<A> Waiting<A> {
    /// Room for `limit` requests.
    pub fn new(limit: usize) -> Waiting<A> {
        Waiting {
            limit,
            next_ticket: 0,
            tickets: HashMap::new(),
            by_deadline: BTreeSet::new(),
            by_partition: HashMap::new(),
        }
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// True where no request waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Waits until the high watermark of every partition has reached the offset given with it, at the
    /// longest until `deadline_ms`.
    ///
    /// # Errors
    /// Gives `answer` back where the limit is reached.
    pub fn park(
        &mut self,
        answer: A,
        partitions: &[(TopicIdPartition, Offset)],
        deadline_ms: u64,
    ) -> Result<(), A> {
        if self.tickets.len() >= self.limit {
            return Err(answer);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        for (partition, required) in partitions {
            self.by_partition.entry(*partition).or_default().insert((*required, ticket));
        }
        self.by_deadline.insert((deadline_ms, ticket));
        let (open, partitions) = (partitions.len(), partitions.to_vec());
        let waiting = Ticket { answer, deadline_ms, partitions, open, errors: Vec::new() };
        self.tickets.insert(ticket, waiting);
        Ok(())
    }

    /// The high watermark of `partition` has reached `high_watermark`.
    pub fn high_watermark(&mut self, partition: TopicIdPartition, high_watermark: Offset) -> Vec<Done<A>> {
        let Some(waiting) = self.by_partition.get_mut(&partition) else { return Vec::new() };
        let still = waiting.split_off(&(high_watermark, u64::MAX));
        let reached = std::mem::replace(waiting, still);
        if waiting.is_empty() {
            self.by_partition.remove(&partition);
        }
        reached.into_iter().filter_map(|(_, ticket)| self.close_one(ticket, None)).collect()
    }

    /// `partition` will not confirm what waits on it: its leadership, its epoch or its log has changed.
    pub fn fail(&mut self, partition: TopicIdPartition, error: ErrorCode) -> Vec<Done<A>> {
        let waiting = self.by_partition.remove(&partition).unwrap_or_default();
        waiting
            .into_iter()
            .filter_map(|(_, ticket)| self.close_one(ticket, Some((partition, error))))
            .collect()
    }

    /// Answers the requests whose time is up at `now_ms`.
    pub fn expire(&mut self, now_ms: u64) -> Vec<Done<A>> {
        let later = self.by_deadline.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut self.by_deadline, later);
        due.into_iter().filter_map(|(_, ticket)| self.time_out(ticket)).collect()
    }

    /// When `expire` has something to do next, in the clock of its argument.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    fn close_one(&mut self, ticket: u64, error: Option<(TopicIdPartition, ErrorCode)>) -> Option<Done<A>> {
        let waiting = self.tickets.get_mut(&ticket)?;
        waiting.errors.extend(error);
        waiting.open -= 1;
        if waiting.open > 0 {
            return None;
        }
        let done = self.tickets.remove(&ticket)?;
        self.by_deadline.remove(&(done.deadline_ms, ticket));
        Some(Done { answer: done.answer, errors: done.errors })
    }

    fn time_out(&mut self, ticket: u64) -> Option<Done<A>> {
        let mut done = self.tickets.remove(&ticket)?;
        for (partition, required) in done.partitions {
            let Some(waiting) = self.by_partition.get_mut(&partition) else { continue };
            if waiting.remove(&(required, ticket)) {
                done.errors.push((partition, ErrorCode::REQUEST_TIMED_OUT));
            }
            if waiting.is_empty() {
                self.by_partition.remove(&partition);
            }
        }
        Some(Done { answer: done.answer, errors: done.errors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn a_request_is_answered_when_its_last_partition_is_confirmed() {
        let mut waiting = Waiting::new(10);
        waiting.park("a", &[(p(0), Offset(5)), (p(1), Offset(9))], 100).expect("there is room");
        assert_eq!(waiting.high_watermark(p(0), Offset(4)), []);
        assert_eq!(waiting.high_watermark(p(0), Offset(5)), []);
        assert_eq!(waiting.high_watermark(p(1), Offset(20)), [done("a", &[])]);
        assert!(waiting.is_empty());
        assert_eq!(waiting.next_deadline_ms(), None);
    }

    #[test]
    fn what_is_not_confirmed_in_time_is_timed_out_by_partition() {
        let mut waiting = Waiting::new(10);
        waiting.park("a", &[(p(0), Offset(5)), (p(1), Offset(9))], 100).expect("there is room");
        waiting.high_watermark(p(0), Offset(5));
        assert_eq!(waiting.expire(99), []);
        assert_eq!(waiting.expire(100), [done("a", &[(p(1), ErrorCode::REQUEST_TIMED_OUT)])]);
        assert_eq!(waiting.high_watermark(p(1), Offset(9)), []);
    }

    #[test]
    fn a_lost_partition_fails_what_waits_on_it_and_only_that() {
        let mut waiting = Waiting::new(10);
        waiting.park("a", &[(p(0), Offset(5))], 100).expect("there is room");
        waiting.park("b", &[(p(1), Offset(5))], 100).expect("there is room");
        let lost = waiting.fail(p(0), ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(lost, [done("a", &[(p(0), ErrorCode::NOT_LEADER_OR_FOLLOWER)])]);
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn beyond_the_limit_a_request_is_refused() {
        let mut waiting = Waiting::new(1);
        waiting.park("a", &[(p(0), Offset(5))], 100).expect("there is room");
        assert_eq!(waiting.park("b", &[(p(0), Offset(6))], 100), Err("b"));
    }

    #[test]
    fn requests_on_one_partition_are_answered_in_the_order_of_their_offsets() {
        let mut waiting = Waiting::new(10);
        for (name, offset) in [("a", 5), ("b", 6), ("c", 7)] {
            waiting.park(name, &[(p(0), Offset(offset))], 100).expect("there is room");
        }
        assert_eq!(waiting.high_watermark(p(0), Offset(6)), [done("a", &[]), done("b", &[])]);
    }

    fn p(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(partition) }
    }

    fn done(answer: &'static str, errors: &[(TopicIdPartition, ErrorCode)]) -> Done<&'static str> {
        Done { answer, errors: errors.to_vec() }
    }
}
