//! An open loop: producers that send when a batch is due, whatever has become of those before, and consumers at the
//! end of the topic.
//!
//! Latency is counted from the moment a batch was due, not from the moment it was sent: where a server stalls, the
//! batches that should have been sent meanwhile count with all the time that they waited (no coordinated omission).
//!
//! Invariant: each partition has one connection that writes to it, so that the offset of a batch tells its number, and
//! its number when it was due.

use std::io;
use std::num::NonZeroU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::broker_client::bad;
use crate::broker_client::pipeline::{Acks, Answers, Pipeline, Requests};
use crate::clients::{Done, follow, in_threads};

/// Clients are connected and wait before the first batch is due.
const READY_IN: Duration = Duration::from_millis(200);
/// The finest that the kernel has: by default it wakes a sleeper up to 50 µs late.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// When each batch is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Batches a second, of all partitions together, evenly.
    per_second: f64,
    partitions: usize,
    /// Of each partition.
    batches: u64,
    /// What is due earlier is sent and read, and its latency is not counted.
    warm_up: Duration,
}

/// What is sent and who reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery<'a> {
    /// Who has a batch when it is acknowledged.
    pub(crate) acks: Acks,
    /// What is sent each time.
    pub(crate) batch: &'a [u8],
    /// Records in it.
    pub(crate) batch_records: u64,
    /// How many read all of it.
    pub(crate) consumers: usize,
    /// The largest response that they ask for.
    pub(crate) response_bytes: i32,
}

/// What was seen of it: times from the moment when a batch was due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// What consumers have read.
    pub(crate) read: Done,
    /// Until it was sent: how exact the clients are.
    pub(crate) sent: Vec<Duration>,
    /// Until it was acknowledged.
    pub(crate) acknowledged: Vec<Duration>,
    /// Until a consumer had it.
    pub(crate) delivered: Vec<Duration>,
}

/// What a thread does.
enum Part {
    Send(usize, Requests),
    Receive(usize, Answers),
    Follow,
}

impl Schedule {
    /// So many batches a second to so many partitions, for so long, of which the first seconds are not counted.
    pub(crate) fn new(per_second: f64, partitions: usize, warm_up: Duration, counted: Duration) -> Schedule {
        let batches = (warm_up + counted).as_secs_f64() * per_second / partitions as f64;
        Schedule { per_second, partitions, batches: batches.ceil() as u64, warm_up }
    }

    /// Partitions that are written to.
    pub(crate) fn partitions(&self) -> usize {
        self.partitions
    }

    /// Batches of all partitions.
    pub(crate) fn batches(&self) -> u64 {
        self.batches * self.partitions as u64
    }

    /// When this batch of a partition is due, after the beginning.
    fn due(&self, partition: usize, number: u64) -> Duration {
        let before = number * self.partitions as u64 + partition as u64;
        Duration::from_secs_f64(before as f64 / self.per_second)
    }

    /// How long after it was due something happened to it; `None` where that is not counted.
    fn latency(&self, partition: usize, number: u64, after: Duration) -> Option<Duration> {
        let due = self.due(partition, number);
        (due >= self.warm_up).then(|| after.saturating_sub(due))
    }

    /// Where the partitions end then.
    fn ends(&self, batch_records: u64) -> Vec<i64> {
        vec![(self.batches * batch_records) as i64; self.partitions]
    }
}

impl Delivery<'_> {
    /// Sends to a topic without records at the broker at `address`, and reads everything.
    pub(crate) fn run(&self, address: &str, topic: &str, schedule: Schedule) -> io::Result<Seen> {
        let mut parts = Vec::new();
        for partition in 0..schedule.partitions {
            let to = (topic, vec![partition as i32]);
            let (requests, answers) = Pipeline::connect(address, to, self.acks, self.batch)?.halves();
            parts.extend([Part::Send(partition, requests), Part::Receive(partition, answers)]);
        }
        parts.extend((0..self.consumers).map(|_| Part::Follow));
        let began = Instant::now() + READY_IN;
        let each = in_threads(parts, |part| match part {
            Part::Send(partition, requests) => send(requests, partition, schedule, began),
            Part::Receive(partition, answers) => receive(answers, partition, schedule, began),
            Part::Follow => self.follow(address, topic, schedule, began),
        })?;
        Ok(each.into_iter().fold(Seen::default(), Seen::and))
    }

    fn follow(&self, address: &str, topic: &str, schedule: Schedule, began: Instant) -> io::Result<Seen> {
        let ends = schedule.ends(self.batch_records);
        let mut delivered = Vec::new();
        let arrived = |partition: usize, base: i64| {
            let number = base as u64 / self.batch_records;
            delivered.extend(schedule.latency(partition, number, since(began)));
        };
        let topic = (topic, schedule.partitions);
        let read = follow(address, topic, self.response_bytes, |offsets| offsets == ends, arrived)?;
        Ok(Seen { read, delivered, ..Seen::default() })
    }
}

impl Seen {
    fn and(mut self, other: Seen) -> Seen {
        self.read = [self.read, other.read].into_iter().sum();
        self.sent.extend(other.sent);
        self.acknowledged.extend(other.acknowledged);
        self.delivered.extend(other.delivered);
        self
    }
}

fn send(mut requests: Requests, partition: usize, schedule: Schedule, began: Instant) -> io::Result<Seen> {
    rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS))?;
    let mut sent = Vec::new();
    for number in 0..schedule.batches {
        let due = began + schedule.due(partition, number);
        sleep(due.saturating_duration_since(Instant::now()));
        requests.send()?;
        sent.extend(schedule.latency(partition, number, since(began)));
    }
    Ok(Seen { sent, ..Seen::default() })
}

fn receive(mut answers: Answers, partition: usize, schedule: Schedule, began: Instant) -> io::Result<Seen> {
    let mut acknowledged = Vec::new();
    for number in 0..schedule.batches {
        let answer = answers.receive();
        answer.map_err(|error| bad(&format!("batch {number} of partition {partition}: {error}")))?;
        acknowledged.extend(schedule.latency(partition, number, since(began)));
    }
    Ok(Seen { acknowledged, ..Seen::default() })
}

fn since(began: Instant) -> Duration {
    Instant::now().saturating_duration_since(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn batches_of_all_partitions_are_due_one_after_the_other() {
        let schedule = Schedule::new(100.0, 4, SECOND, 2 * SECOND);
        assert_eq!((schedule.batches(), schedule.ends(3)), (300, vec![225; 4]));
        let due = [(0, 0), (1, 0), (3, 0), (0, 1), (3, 74)];
        let due = due.map(|(partition, number)| schedule.due(partition, number));
        assert_eq!(due, [ms(0), ms(10), ms(30), ms(40), ms(2990)]);
    }

    #[test]
    fn latency_is_counted_from_the_moment_a_batch_was_due() {
        let schedule = Schedule::new(100.0, 1, Duration::ZERO, SECOND);
        // A server that answers at once, and not at all in half a second.
        let answered = |number| Duration::max(schedule.due(0, number), ms(500));
        let times: Vec<_> =
            (0..100).filter_map(|number| schedule.latency(0, number, answered(number))).collect();
        assert_eq!((times[0], times[49], times[50]), (ms(500), ms(10), ms(0)));
    }

    #[test]
    fn what_was_due_in_the_warm_up_is_not_counted() {
        let schedule = Schedule::new(10.0, 2, SECOND, SECOND);
        assert_eq!(schedule.latency(1, 4, 5 * SECOND), None);
        assert_eq!(schedule.latency(0, 5, ms(1007)), Some(ms(7)));
    }
}
