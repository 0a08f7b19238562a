//! What is known of a node's compaction in numbers, for whoever reads them from whatever thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module. A number stands alone: two of them may be of different moments.
#[derive(Debug, Default)]
pub struct CleanerNumbers {
    uncleanable: Mutex<BTreeMap<PathBuf, Uncleanable>>,
    last_rounds: Mutex<BTreeMap<usize, LastRound>>,
    dead_threads: AtomicU64,
    max_dirty_percent: AtomicU64,
    max_delay_ms: AtomicU64,
    last_run_ms: AtomicU64,
    rounds: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    panics: AtomicU64,
}

/// What of a log directory cannot be compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncleanable {
    /// Partitions.
    pub partitions: u64,
    /// The bytes of theirs that wait for it.
    pub bytes: u64,
}

/// The last round of a thread that came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastRound {
    /// How long it took.
    pub took: Duration,
    /// How much of the memory for keys it needed, from 0 to 1.
    pub map_fullness: f64,
    /// Bytes of the segments that it replaced.
    pub bytes_before: u64,
    /// Bytes of those that replaced them.
    pub bytes_after: u64,
}

impl CleanerNumbers {
    /// What cannot be compacted, by log directory, where there is any: Kafka's `uncleanable-partitions-count` and
    /// `uncleanable-bytes`.
    pub fn uncleanable(&self) -> BTreeMap<PathBuf, Uncleanable> {
        lock(&self.uncleanable).clone()
    }

    /// The last rounds of the threads: Kafka's `max-clean-time-secs`, `max-buffer-utilization-percent` and
    /// `cleaner-recopy-percent` are of them.
    pub fn last_rounds(&self) -> Vec<LastRound> {
        lock(&self.last_rounds).values().copied().collect()
    }

    /// Threads that are configured and do not run: Kafka's `DeadThreadCount`.
    pub fn dead_threads(&self) -> u64 {
        self.dead_threads.load(Ordering::Relaxed)
    }

    /// The largest dirty part of a log when the logs were last looked at: Kafka's `max-dirty-percent`.
    pub fn max_dirty_percent(&self) -> u64 {
        self.max_dirty_percent.load(Ordering::Relaxed)
    }

    /// By how much the oldest record that waits is overdue, in ms: Kafka's `max-compaction-delay`.
    pub fn max_delay_ms(&self) -> u64 {
        self.max_delay_ms.load(Ordering::Relaxed)
    }

    /// When the logs were last looked at, in ms since 1970; 0 for never. Kafka's `time-since-last-run-ms` is counted
    /// from here.
    pub fn last_run_ms(&self) -> u64 {
        self.last_run_ms.load(Ordering::Relaxed)
    }

    /// Rounds that came to their end.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Bytes read and bytes written since the start.
    pub fn bytes(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }

    /// Rounds that ended in a panic, which is a defect.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn looked(
        &self,
        uncleanable: BTreeMap<PathBuf, Uncleanable>,
        max_dirty_percent: u64,
        max_delay_ms: u64,
        now_ms: u64,
    ) {
        *lock(&self.uncleanable) = uncleanable;
        self.max_dirty_percent.store(max_dirty_percent, Ordering::Relaxed);
        self.max_delay_ms.store(max_delay_ms, Ordering::Relaxed);
        self.last_run_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn spent(&self, read: u64, written: u64) {
        self.read.fetch_add(read, Ordering::Relaxed);
        self.written.fetch_add(written, Ordering::Relaxed);
    }

    /// A round of this thread has ended; `None` where it was not to its end.
    pub(super) fn round_ended(&self, thread: usize, round: Option<LastRound>) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        if let Some(round) = round {
            lock(&self.last_rounds).insert(thread, round);
        }
    }

    pub(super) fn threads_lack(&self, dead: usize) {
        self.dead_threads.store(dead as u64, Ordering::Relaxed);
    }

    /// So many threads are wanted: what others did is not told any more.
    pub(super) fn threads_wanted(&self, threads: usize) {
        lock(&self.last_rounds).retain(|thread, _| *thread < threads);
    }

    pub(super) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// A panic while the lock was held leaves numbers that are whole.
fn lock<T>(numbers: &Mutex<T>) -> MutexGuard<'_, T> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}
