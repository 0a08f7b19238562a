//! Counters of a node's mirroring, written by its lanes and read by whoever scrapes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reasons::{REASONS, Reason};

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

/// A number for each reason.
#[derive(Debug)]
pub struct ByReason([Counter; REASONS.len()]);

impl Default for ByReason {
    fn default() -> ByReason {
        ByReason(std::array::from_fn(|_| Counter::default()))
    }
}

impl ByReason {
    /// The number of one reason.
    pub fn of(&self, reason: Reason) -> &Counter {
        &self.0[reason as usize]
    }

    /// Every reason with its number.
    pub fn all(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.iter().map(|&reason| (reason, self.of(reason).get()))
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
    /// Ends of logs that were exported and dropped, because the source has not got them. Nobody removes exports but
    /// the operator.
    pub exports: Counter,
    /// Records in them, control records not counted.
    pub exported_records: Counter,
    /// Bytes in them.
    pub exported_bytes: Counter,
    /// Connections to source brokers that failed or broke.
    pub link_failures: Counter,
    /// Failures of partitions that are tried again.
    pub retries: ByReason,
    /// Failures that an operator is waited for.
    pub terminal_failures: ByReason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_number_of_its_own() {
        let counted = ByReason::default();
        for (index, reason) in REASONS.iter().enumerate() {
            counted.of(*reason).add(index as u64 + 1);
        }
        let numbers: Vec<u64> = counted.all().map(|(_, number)| number).collect();
        assert_eq!(numbers, (1..=REASONS.len() as u64).collect::<Vec<_>>());
    }
}
