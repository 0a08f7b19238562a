//! One round of compaction, on a thread of the cleaner.
//!
//! What the thread has written for a log that has changed meanwhile it removes before it lets go of the log: the
//! files of the next round have the same names.

use std::ops::ControlFlow;

use tarn_log::{CleanError, Cleaned, Cleaning, LogError, OffsetMap, RemovalJob, Spent};
use tarn_record::Offset;

use super::owner::Swap;
use super::shared::{Shared, Unwanted};
use crate::limits;

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

/// What a round did, as far as it came.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    pub(super) map_fullness: f64,
    pub(super) bytes_before: u64,
    pub(super) bytes_after: u64,
}

/// Compacts a log with so much memory for its keys. `swap` hands a segment to the log's core.
pub(super) fn run(
    cleaning: Cleaning,
    map_bytes: usize,
    shared: &Shared,
    unwanted: &Unwanted,
    mut swap: impl FnMut(Cleaned) -> Swap,
) -> Ran {
    let mut ran = Ran { outcome: Outcome::GivenUp, map_fullness: 0.0, bytes_before: 0, bytes_after: 0 };
    let mut watch = |spent: Spent| -> ControlFlow<()> { shared.paid(spent, unwanted) };
    let mut round = match cleaning.map(OffsetMap::new(map_bytes), &mut watch) {
        Ok(round) => round,
        Err(error) => return Ran { outcome: Outcome::of(error), ..ran },
    };
    ran.map_fullness = round.map_fullness();
    let outcome = loop {
        let cleaned = match round.next(&mut watch) {
            Ok(Some(cleaned)) => cleaned,
            Ok(None) => break Outcome::Compacted(round.end()),
            Err(error) => break Outcome::of(error),
        };
        let (before, after) = (cleaned.bytes_before(), cleaned.bytes_after());
        match swap_when_free(cleaned, shared, unwanted, &mut swap) {
            Swap::Done => {
                (ran.bytes_before, ran.bytes_after) = (ran.bytes_before + before, ran.bytes_after + after)
            }
            Swap::Stale(removal) => break discarded(removal),
            Swap::Busy(given_up) => break discarded(given_up.discard()),
            Swap::Refused(error) => break Outcome::Failed(error.into()),
            Swap::Unanswered => break Outcome::GivenUp,
        }
    };
    Ran { outcome, ..ran }
}

/// Hands a segment over until nobody is opening a file that leaves the log: their disk may not answer. Still busy where
/// the round has ended meanwhile.
fn swap_when_free(
    mut cleaned: Cleaned,
    shared: &Shared,
    unwanted: &Unwanted,
    swap: &mut impl FnMut(Cleaned) -> Swap,
) -> Swap {
    loop {
        cleaned = match swap(cleaned) {
            Swap::Busy(again) if shared.pause(limits::SWAP_PAUSE, unwanted).is_continue() => *again,
            swapped => return swapped,
        };
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
