//! Dropping the beginning of a log: what retention lets go, and what clients delete.
//!
//! Invariants:
//! * the log start never rises above the high watermark;
//! * of a mirrored log nothing goes by itself, and clients delete nothing, unless they may write to it: its source says
//!   where it starts (mirroring.md §2).

use tarn_log::{AgeSearch, Ages, Expiry, LogError};
use tarn_record::{Offset, Timestamp};
use tarn_wire::ErrorCode;
use thiserror::Error;

use super::{Replica, WriteRefused};
use crate::limits::SEGMENTS_DROPPED_AT_ONCE;

/// Up to where a client deletes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteUpTo {
    /// All that is committed.
    HighWatermark,
    /// What is below this.
    Offset(Offset),
}

/// Why records are not deleted.
#[derive(Debug, Error)]
pub enum NotDeleted {
    /// A mirror rules the partition.
    #[error(transparent)]
    Refused(#[from] WriteRefused),
    /// The topic is compacted only.
    #[error("cleanup.policy does not include delete")]
    Policy,
    /// There is no such offset, or not yet.
    #[error("offset {asked} is above the high watermark {high_watermark}, or none")]
    OutOfRange {
        /// The offset.
        asked: Offset,
        /// What is committed.
        high_watermark: Offset,
    },
    /// The disk refused.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl NotDeleted {
    /// The error code of the protocol.
    pub fn code(&self) -> ErrorCode {
        match self {
            NotDeleted::Refused(refused) => refused.code(),
            NotDeleted::Policy => ErrorCode::POLICY_VIOLATION,
            NotDeleted::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            NotDeleted::Storage(_) => ErrorCode::KAFKA_STORAGE_ERROR,
        }
    }
}

/// What a look of retention came to.
#[derive(Debug)]
pub enum Retained {
    /// Nothing goes any more.
    Done,
    /// Something went, and more may have to.
    Dropped,
    /// Ages are to be looked up first.
    Unread(AgeSearch),
}

impl Replica {
    /// Deletes the records below an offset. An offset at or below the log start deletes nothing, as in Kafka.
    ///
    /// # Errors
    /// Why it may not, or cannot. With `Storage` the log starts there, but some of its files may not have gone.
    pub fn delete_records(&mut self, upto: DeleteUpTo, now: Timestamp) -> Result<(), NotDeleted> {
        if let Some(binding) = &self.binding {
            binding.check_write(&self.topic)?;
        }
        if self.rules.retention.is_none() && self.rules.compaction.is_some() {
            return Err(NotDeleted::Policy);
        }
        let asked = match upto {
            DeleteUpTo::HighWatermark => self.high_watermark,
            DeleteUpTo::Offset(offset) => offset,
        };
        if asked < Offset(0) || asked > self.high_watermark {
            return Err(NotDeleted::OutOfRange { asked, high_watermark: self.high_watermark });
        }
        if self.log.raise_start(asked)? {
            self.removals.extend(self.log.drop_below_start(SEGMENTS_DROPPED_AT_ONCE, now)?);
        }
        Ok(())
    }

    /// Drops some of what retention lets go. `ages` is what was looked up because this asked for it.
    ///
    /// # Errors
    /// The disk's refusal.
    pub fn drop_expired(&mut self, ages: &Ages, now: Timestamp) -> Result<Retained, LogError> {
        self.log.remember(ages);
        let rules = if self.is_released() { self.rules.retention } else { None };
        match self.log.expiry(&rules.unwrap_or_default(), self.high_watermark, now, ages) {
            Expiry::Kept => Ok(Retained::Done),
            Expiry::Unread(search) => Ok(Retained::Unread(search)),
            Expiry::UpTo(offset) => {
                self.log.raise_start(offset)?;
                self.removals.extend(self.log.drop_below_start(SEGMENTS_DROPPED_AT_ONCE, now)?);
                Ok(Retained::Dropped)
            }
        }
    }

    /// True where no mirror has a say in what the log holds.
    fn is_released(&self) -> bool {
        self.binding.as_ref().is_none_or(|binding| binding.check_write(&self.topic).is_ok())
    }
}
