//! When a replica's log is flushed, and what an acknowledgement promises of it.

use tarn_log::{FlushJob, FlushPolicy, Flushed, LogError};
use tarn_record::Timestamp;

use super::Replica;

impl Replica {
    /// A flush of what is not yet on the disk, for another thread; `None` where there is nothing to do.
    pub fn flush_job(&mut self) -> Option<FlushJob> {
        self.unflushed_since = None;
        self.log.flush_job()
    }

    /// The same for the batches alone, where somebody waits for these.
    pub fn flush_batches_job(&mut self) -> Option<FlushJob> {
        self.unflushed_since = None;
        self.log.flush_batches_job()
    }

    /// The flush has ended: what it promises may now be seen; true where that is more than before.
    ///
    /// # Errors
    /// Where it failed, or does not fit the log.
    pub fn flushed(&mut self, result: Result<Flushed, LogError>) -> Result<bool, LogError> {
        if result.is_err() {
            // It is as old as can be, and due again.
            self.unflushed_since = Some(Timestamp(0));
        }
        self.log.flushed(result?)?;
        Ok(self.advance_high_watermark())
    }

    /// Something was appended.
    pub fn note_unflushed(&mut self, now: Timestamp) {
        self.unflushed_since.get_or_insert(now);
    }

    /// Whether an append has to be flushed before it is committed.
    pub fn waits_for_flush(&self) -> bool {
        self.rules.log.flush != FlushPolicy::None && !self.is_filled_by_a_mirror()
    }

    /// Whether the leader's own acknowledgement, too, promises a flush: without it `acks=1` is answered from memory.
    pub fn acknowledges_flushed(&self) -> bool {
        self.rules.log.flush == FlushPolicy::Each && !self.is_filled_by_a_mirror()
    }

    /// True where so many records are unflushed that the topic asks for a flush (`flush.messages`).
    pub fn has_many_unflushed(&self) -> bool {
        self.log.end().0.saturating_sub(self.log.flushed_to().0) >= self.rules.flush_messages
    }

    /// True where all is on the disk, and a crash now would leave nothing to read again.
    pub fn is_clean(&self) -> bool {
        let log = &self.log;
        self.unflushed_since.is_none()
            && log.unflushed_bytes() == 0
            && log.recovery_point() >= log.flushed_to()
    }

    /// True where records are unflushed for so long that the topic asks for a flush (`flush.ms`).
    pub fn is_unflushed_for_long(&self, now: Timestamp) -> bool {
        let age = |since: Timestamp| now.0.saturating_sub(since.0);
        self.unflushed_since.is_some_and(|since| age(since) >= self.rules.flush_ms)
    }
}
