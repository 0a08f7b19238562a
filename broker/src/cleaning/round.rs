//! One round of compaction, on a thread of the cleaner.
//!
//! What the thread has written for a log that has changed meanwhile it removes before it lets go of the log: the
//! files of the next round have the same names.

use std::ops::ControlFlow;

use tarn_log::{CleanError, Cleaned, Cleaning, LogError, OffsetMap, RemovalJob, Spent};
use tarn_record::Offset;

use super::owner::Swap;
use super::shared::{Shared, Unwanted};

/// What became of a round.
#[derive(Debug)]
pub enum Outcome {
    /// The log is compacted up to here.
    Compacted(Offset),
    /// It has changed, or the round was ended: nothing is known of it.
    GivenUp,
    /// It was not compacted, or not to the end.
    Failed(CleanError),
}

/// Compacts a log with so much memory for its keys. `swap` hands a segment to the log's core.
pub(super) fn run(
    cleaning: Cleaning,
    map_bytes: usize,
    shared: &Shared,
    unwanted: &Unwanted,
    mut swap: impl FnMut(Cleaned) -> Swap,
) -> Outcome {
    let mut watch = |spent: Spent| -> ControlFlow<()> { shared.paid(spent, unwanted) };
    let mut round = match cleaning.map(OffsetMap::new(map_bytes), &mut watch) {
        Ok(round) => round,
        Err(error) => return Outcome::of(error),
    };
    loop {
        let cleaned = match round.next(&mut watch) {
            Ok(Some(cleaned)) => cleaned,
            Ok(None) => return Outcome::Compacted(round.end()),
            Err(error) => return Outcome::of(error),
        };
        let (before, after) = (cleaned.bytes_before(), cleaned.bytes_after());
        match swap(cleaned) {
            Swap::Done => shared.numbers().replaced(before, after),
            Swap::Stale(removal) => return discarded(removal),
            Swap::Refused(error) => return Outcome::Failed(error.into()),
            Swap::Unanswered => return Outcome::GivenUp,
        }
    }
}

fn discarded(removal: RemovalJob) -> Outcome {
    removal.run().map_or_else(|error: LogError| Outcome::Failed(error.into()), |()| Outcome::GivenUp)
}

impl Outcome {
    fn of(error: CleanError) -> Outcome {
        match error {
            CleanError::Changed | CleanError::GivenUp => Outcome::GivenUp,
            error => Outcome::Failed(error),
        }
    }
}
