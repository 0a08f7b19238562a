//! What is known of a node's compaction in numbers, for whoever reads them from whatever thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. A number stands alone: two of them may be of different moments.
#[derive(Debug, Default)]
pub struct CleanerNumbers {
    uncleanable: AtomicU64,
    max_dirty_percent: AtomicU64,
    max_delay_ms: AtomicU64,
    last_run_ms: AtomicU64,
    rounds: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
    panics: AtomicU64,
}

impl CleanerNumbers {
    /// Partitions that cannot be compacted: Kafka's `uncleanable-partitions-count`.
    pub fn uncleanable_partitions(&self) -> u64 {
        self.uncleanable.load(Ordering::Relaxed)
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

    /// Bytes of segments that were replaced since the start, and of those that replaced them: what is left is Kafka's
    /// `cleaner-recopy-percent`.
    pub fn replaced_bytes(&self) -> (u64, u64) {
        (self.before.load(Ordering::Relaxed), self.after.load(Ordering::Relaxed))
    }

    /// Rounds that ended in a panic, which is a defect.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn looked(&self, uncleanable: u64, max_dirty_percent: u64, max_delay_ms: u64, now_ms: u64) {
        self.uncleanable.store(uncleanable, Ordering::Relaxed);
        self.max_dirty_percent.store(max_dirty_percent, Ordering::Relaxed);
        self.max_delay_ms.store(max_delay_ms, Ordering::Relaxed);
        self.last_run_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn spent(&self, read: u64, written: u64) {
        self.read.fetch_add(read, Ordering::Relaxed);
        self.written.fetch_add(written, Ordering::Relaxed);
    }

    pub(super) fn replaced(&self, before: u64, after: u64) {
        self.before.fetch_add(before, Ordering::Relaxed);
        self.after.fetch_add(after, Ordering::Relaxed);
    }

    pub(super) fn round_ended(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}
