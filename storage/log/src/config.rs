//! The configuration of one log: the topic's keys that storage acts on, with Kafka's defaults.

/// What an acknowledgement promises about the disk (`flush.policy`). Appends that come in while a flush runs share
/// the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushPolicy {
    /// Nothing: replication alone protects what is acknowledged, and the background flusher bounds what a crash can
    /// lose.
    #[default]
    None,
    /// `acks=all` is answered after a flush, and consumers see nothing earlier; `acks=1` is answered from memory.
    Group,
    /// `acks=1` too is answered after a flush.
    Each,
}

/// What is deleted once it is old, or too much; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// `retention.ms`: segments whose newest record is older go.
    pub ms: Option<u64>,
    /// `retention.bytes`: the oldest segments go while more than this stays.
    pub bytes: Option<u64>,
}

/// What a log needs to know of its topic. Sizes in bytes, times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment that would grow beyond it is rolled. A single batch may be larger.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment whose first record is older is rolled.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: how much earlier, at most, so that not all partitions roll at once.
    pub segment_jitter_ms: i64,
    /// `index.interval.bytes`: about how much of a segment lies between two index entries.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: an index that would grow beyond it rolls the segment.
    pub segment_index_bytes: u32,
    /// `producer.id.expiration.ms`: how long the state of an idle producer is kept.
    pub producer_expiration_ms: i64,
    /// What an acknowledgement promises about the disk.
    pub flush: FlushPolicy,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            segment_index_bytes: 10 * 1024 * 1024,
            producer_expiration_ms: 24 * 60 * 60 * 1000,
            flush: FlushPolicy::None,
        }
    }
}
