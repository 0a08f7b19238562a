//! What a topic's rules say about each record of a batch.
//!
//! One bad record refuses the whole batch, but the client is told of all of them, up to a limit.

use super::client::{ClientBatch, ProduceRules};
use super::refusal::{InvalidBatch, RecordError};
use crate::batch::{BatchHeader, RecordView, TimestampType, ValidBatch};
use crate::ids::Timestamp;

/// How many records of one batch are named in an answer; a batch may hold millions of bad ones.
const RECORD_ERRORS_MAX: usize = 100;
/// How many of them the message of the whole batch repeats.
const RECORD_ERRORS_IN_MESSAGE: usize = 3;

/// What the records so far came to, and at the end the verdict.
#[derive(Debug)]
pub(super) struct Verdict {
    count: i32,
    max_timestamp: i64,
    offset_of_max_timestamp: i32,
    bad: usize,
    worst: RecordError,
    errors: Vec<(i32, String)>,
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict {
            count: 0,
            max_timestamp: Timestamp::NONE.0,
            offset_of_max_timestamp: 0,
            bad: 0,
            worst: RecordError::InvalidRecord,
            errors: Vec::new(),
        }
    }
}

impl Verdict {
    /// Looks at the next record.
    ///
    /// # Errors
    /// Where its offset is not the next; anything else waits for the end.
    pub(super) fn check(
        &mut self,
        record: &RecordView<'_>,
        header: &BatchHeader,
        rules: &ProduceRules,
        now: Timestamp,
    ) -> Result<(), InvalidBatch> {
        let index = self.count;
        if record.offset_delta != index {
            let message = format!("record {index} of the batch has the offset delta {}", record.offset_delta);
            return Err(InvalidBatch::new(RecordError::InvalidRecord, message));
        }
        let timestamp = header.timestamp_of(record.timestamp_delta);
        if rules.compacted && record.key.is_none() {
            let message = || format!("record {index} has no key, which a compacted topic needs");
            self.reject(index, RecordError::InvalidRecord, message);
        } else if rules.timestamp_type == TimestampType::CreateTime && timestamp != Timestamp::NONE.0 {
            if !in_range(timestamp, rules, now) {
                let message = || out_of_range(index, timestamp, rules, now);
                self.reject(index, RecordError::InvalidTimestamp, message);
            }
        } else if header.timestamp_type() == TimestampType::LogAppendTime {
            let message = || format!("record {index} says LogAppendTime, which only the broker may");
            self.reject(index, RecordError::InvalidTimestamp, message);
        }
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.offset_of_max_timestamp = index;
        }
        self.count += 1;
        Ok(())
    }

    fn reject(&mut self, index: i32, error: RecordError, message: impl FnOnce() -> String) {
        self.bad += 1;
        if error == RecordError::InvalidTimestamp {
            self.worst = error;
        }
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push((index, message()));
        }
    }

    /// The end: the batch, or all that is wrong with its records. A bad timestamp outweighs a missing key.
    pub(super) fn pronounce(self, batch: ValidBatch) -> Result<ClientBatch, InvalidBatch> {
        if self.bad == 0 {
            let Verdict { max_timestamp, offset_of_max_timestamp, .. } = self;
            return Ok(ClientBatch { batch, max_timestamp, offset_of_max_timestamp });
        }
        let first: Vec<&str> =
            self.errors.iter().take(RECORD_ERRORS_IN_MESSAGE).map(|(_, message)| &message[..]).collect();
        let message = match self.bad {
            1 => format!("one record was refused: {}", first.join("; ")),
            bad => format!("{bad} records were refused, among them: {}", first.join("; ")),
        };
        Err(InvalidBatch { error: self.worst, message, record_errors: self.errors })
    }
}

fn in_range(timestamp: i64, rules: &ProduceRules, now: Timestamp) -> bool {
    now.0.saturating_sub(timestamp) <= rules.before_max_ms
        && timestamp.saturating_sub(now.0) <= rules.after_max_ms
}

fn out_of_range(index: i32, timestamp: i64, rules: &ProduceRules, now: Timestamp) -> String {
    let earliest = now.0.saturating_sub(rules.before_max_ms);
    let latest = now.0.saturating_add(rules.after_max_ms);
    format!("record {index} has the timestamp {timestamp}, which is not within [{earliest}, {latest}]")
}
