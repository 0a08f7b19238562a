//! Counters of a node's mirroring, written by its lanes and read by whoever scrapes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a node; shared by `Arc`.
#[derive(Debug, Default)]
pub struct MirrorMetrics {
    /// Fetch requests answered.
    pub fetches: Counter,
    /// Milliseconds from fetch requests to their answers, summed up.
    pub fetch_ms: Counter,
    /// Bytes of batches appended.
    pub bytes: Counter,
    /// Batches appended.
    pub batches: Counter,
    /// Records in them.
    pub records: Counter,
    /// Answers for a partition that were dropped and asked for again.
    pub dropped: Counter,
    /// Records that the source removed before they were copied.
    pub gap_records: Counter,
    /// Connections to source brokers that failed or broke.
    pub link_failures: Counter,
    /// Failures of partitions that are tried again.
    pub retries: Counter,
}
