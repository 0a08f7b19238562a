//! How far a lane is: written by the lane after each answer, read by whoever asks for offsets.
//!
//! Readers never wait for the lane: it holds the lock only to write down what one answer brought. Times
//! are milliseconds since the node's mirroring began, by the monotonic clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tarn_record::{Offset, TopicIdPartition};

use crate::lag::{Lag, LagNow};
use crate::reasons::Reason;

/// The clock of a node's mirroring.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock { began: Instant::now() }
    }

    /// The clock on the wall, which others read too: milliseconds since 1970. It may be set back.
    pub fn wall_ms(&self) -> i64 {
        tarn_runtime::wall_clock_ms()
    }

    /// Milliseconds since it began.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The progress of one lane; shared by `Arc`.
#[derive(Debug)]
pub struct LaneProgress {
    clock: Clock,
    /// When the source last answered: for every partition of the session, that it is alive.
    alive_at_ms: AtomicU64,
    link: Mutex<Option<LinkTrouble>>,
    partitions: Mutex<BTreeMap<TopicIdPartition, PartitionProgress>>,
}

/// Why a source broker is not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTrouble {
    /// The code.
    pub reason: Reason,
    /// What is wrong.
    pub what: Trouble,
    /// Since when.
    pub since_ms: u64,
    /// How often it was tried since.
    pub attempts: u32,
}

/// What is wrong with a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A sentence.
    Said(Arc<str>),
    /// A question is out, and no answer comes.
    Silent,
}

impl LinkTrouble {
    /// A sentence that is true now.
    pub fn message_at(&self, now_ms: u64) -> String {
        match &self.what {
            Trouble::Said(message) => message.to_string(),
            Trouble::Silent => {
                let silent_ms = now_ms.saturating_sub(self.since_ms);
                format!("the source broker has not answered for {silent_ms} ms")
            }
        }
    }
}

/// The progress of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionProgress {
    lag: Lag,
    high_watermark: Option<Offset>,
    /// The last sign of life of the source that counts for it, where it is not fetched: what the source
    /// answers for others says nothing of it.
    left_at_ms: Option<u64>,
}

impl PartitionProgress {
    /// The source answered; `position` is where the log here goes on.
    pub fn answered(&mut self, now_ms: u64, source_high_watermark: Offset, position: Offset) {
        self.lag.answered(now_ms, source_high_watermark, position);
        self.left_at_ms = None;
    }

    /// What came is appended.
    pub fn appended(&mut self, position: Offset, high_watermark: Offset) {
        self.lag.appended(position);
        self.high_watermark = Some(high_watermark);
    }

    /// The high watermark here after the last append.
    pub fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }
}

impl LaneProgress {
    /// A lane that has not begun.
    pub fn new(clock: Clock) -> Arc<LaneProgress> {
        Arc::new(LaneProgress {
            clock,
            alive_at_ms: AtomicU64::new(0),
            link: Mutex::default(),
            partitions: Mutex::default(),
        })
    }

    /// The clock it is written by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The source has answered.
    pub fn alive(&self) {
        self.alive_at_ms.store(self.clock.now_ms(), Ordering::Relaxed);
    }

    /// The state of the link has changed.
    pub fn set_link(&self, trouble: Option<LinkTrouble>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// What is wrong with the link.
    pub fn link(&self) -> Option<LinkTrouble> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The partitions, to be written down; locked until dropped.
    pub fn partitions(&self) -> MutexGuard<'_, BTreeMap<TopicIdPartition, PartitionProgress>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A partition is not fetched any more: until the source answers for it again, what is known of it ages.
    pub fn left(&self, partition: TopicIdPartition) {
        let alive_at_ms = self.alive_at_ms.load(Ordering::Relaxed);
        if let Some(progress) = self.partitions().get_mut(&partition) {
            progress.left_at_ms.get_or_insert(alive_at_ms);
        }
    }

    /// The lag of a partition now, and the high watermark here.
    pub fn of(&self, partition: TopicIdPartition) -> Option<(Option<LagNow>, Option<Offset>)> {
        let mut progress = self.partitions().get(&partition)?.clone();
        let (now, alive) = (self.clock.now_ms(), self.alive_at_ms.load(Ordering::Relaxed));
        progress.lag.still_alive(progress.left_at_ms.unwrap_or(alive).min(now));
        Some((progress.lag.at(now), progress.high_watermark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_record::{PartitionIndex, TopicId};

    #[test]
    fn an_answer_without_a_partition_says_that_its_source_is_alive() {
        let progress = LaneProgress::new(Clock::start());
        let partition = TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(0) };
        assert_eq!(progress.of(partition), None);
        let mut of = PartitionProgress::default();
        of.answered(0, Offset(7), Offset(7));
        of.appended(Offset(7), Offset(7));
        progress.partitions().insert(partition, of);
        progress.alive();
        let (lag, high_watermark) = progress.of(partition).expect("it is known");
        let lag = lag.expect("it was answered");
        assert_eq!((lag.records, high_watermark), (0, Some(Offset(7))));
        assert!(lag.answer_age_ms <= progress.clock().now_ms());
    }

    #[test]
    fn what_is_known_of_a_partition_ages_from_when_nobody_fetches_it() {
        let progress = LaneProgress::new(Clock::start());
        let [left, fetched] = [0, 1]
            .map(|index| TopicIdPartition { topic_id: TopicId::METADATA, partition: PartitionIndex(index) });
        for partition in [left, fetched] {
            let mut of = PartitionProgress::default();
            of.answered(0, Offset(7), Offset(7));
            progress.partitions().insert(partition, of);
        }
        progress.alive_at_ms.store(1, Ordering::Relaxed);
        progress.left(left);
        await_ms(&progress, 30);
        progress.alive();
        progress.left(left);
        let ages = || [left, fetched].map(|partition| age_ms(&progress, partition));
        let [of_left, of_fetched] = ages();
        assert!(of_left >= 29 && of_left > of_fetched, "{of_left} ms and {of_fetched} ms");
        progress.partitions().get_mut(&left).expect("it is known").answered(30, Offset(7), Offset(7));
        progress.alive();
        let [of_left, of_fetched] = ages();
        assert!(of_left <= of_fetched, "it is fetched again: {of_left} ms and {of_fetched} ms");
    }

    fn age_ms(progress: &LaneProgress, partition: TopicIdPartition) -> u64 {
        progress.of(partition).and_then(|(lag, _)| lag).expect("it was answered").answer_age_ms
    }

    fn await_ms(progress: &LaneProgress, ms: u64) {
        while progress.clock().now_ms() < ms {
            std::thread::yield_now();
        }
    }
}
