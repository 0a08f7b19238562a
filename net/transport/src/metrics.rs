//! What one core's connections count. Each core has an instance of its own; a scrape sums them up.
//!
//! Counters only ever rise; what is open is the difference of two of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises. Written by one core, read by any thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// The counters of one core.
#[derive(Debug, Default)]
pub struct TransportMetrics {
    /// Connections that this core took over.
    pub connections_opened: Counter,
    /// Connections that ended, for whatever reason.
    pub connections_closed: Counter,
    /// Those of them that were closed because nothing moved for too long.
    pub connections_closed_idle: Counter,
    /// Those of them that were closed because of what the peer sent.
    pub connections_closed_malformed: Counter,
    /// Those of them whose service panicked.
    pub connections_panicked: Counter,
    /// Requests read, ApiVersions included.
    pub requests: Counter,
    /// Bytes of requests.
    pub bytes_received: Counter,
    /// Bytes of responses.
    pub bytes_sent: Counter,
    /// Bytes of responses that went from a file to a socket without a copy.
    pub bytes_sent_from_files: Counter,
    /// Bytes of responses that were not in the page cache and were read on the blocking pool.
    pub bytes_read_cold: Counter,
}

impl TransportMetrics {
    /// The connections that are open now.
    pub fn connections_open(&self) -> u64 {
        let closed = self.connections_closed.get();
        self.connections_opened.get().saturating_sub(closed)
    }
}
