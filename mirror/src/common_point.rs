//! Where the log here and the source's part: the search for the last batch that both have.
//!
//! It goes back from the end of what this mirror has filled. The batch just below is looked at: the source must
//! know its leader epoch and must not end it before that batch does, else everything from there on is given up and
//! the search goes on below. Epochs alone do not prove it, for a source that was restored from a backup counts the
//! same ones again; so the batch must be the same at the source, to its CRC, unless a cleaner may have removed or
//! rewritten it. If it is another one, the last that is the same is found by halving what both logs still hold.
//! Sans-IO: the driver asks what `next` says, and many searches share one request.
//!
//! Invariants:
//! * each answer lowers what is still open, and `limits::SEARCH_ANSWERS_MAX` answers end every search;
//! * what is found was confirmed last: its epoch by the source, and its CRC where that can be compared;
//! * where nothing is confirmed nothing is common.

use tarn_record::{BatchHeader, Epoch, Offset};

use crate::alignment::{BatchThere, EpochEnd, SameBatch, compare_batch};
use crate::limits;

/// The end of what both logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonPoint {
    /// The leader epoch of the last batch before it.
    pub epoch: Epoch,
    /// The offset after that batch.
    pub offset: Offset,
}

/// What can prove that a batch is the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Its leader epoch, and its CRC where the source still has the batch.
    Crcs,
    /// Its leader epoch, while no other batch has its offsets at the source that no cleaner has touched: one of the
    /// logs is compacted, and batches that are missing or rewritten say nothing.
    Epochs,
}

/// Both logs, as far as a search needs them.
#[derive(Clone, Copy, Debug)]
pub struct Logs {
    /// Where the log here begins.
    pub log_start: Offset,
    /// Up to where this mirror has filled it.
    pub mirrored_end: Offset,
    /// Where the source's log begins.
    pub source_start: Offset,
    /// The leader epoch at the source, `Epoch::NONE` where that is not known.
    pub source_epoch: Epoch,
    /// What can be compared.
    pub proof: Proof,
}

/// What a search has to know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The last batch here that begins below this offset.
    BatchHere(Offset),
    /// Where this epoch ends at the source.
    EpochThere(Epoch),
    /// The newest epoch here that is not above this one, and where it ends.
    EpochHere(Epoch),
    /// What the source has where this batch is.
    BatchThere(BatchHeader),
    /// Nothing more. `None` where the logs have nothing in common, as far as that can be told.
    Found(Option<CommonPoint>),
}

/// A search in the log of one partition.
#[derive(Clone, Debug)]
pub struct Search {
    logs: Logs,
    /// Whatever is here from this offset on is not the source's, or was not brought by this mirror.
    below: Offset,
    step: Step,
    answers: u32,
    gave_up: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Which batch ends at `below`, or reaches beyond it?
    Batch,
    /// Does the source know the epoch of this batch, up to its end?
    Epoch(BatchHeader),
    /// It does not. Where does the newest epoch begin that both can have had, which is not above this?
    OlderEpoch(BatchHeader, Epoch),
    /// Is this batch the same there?
    Compare(BatchHeader),
    /// Which batch is in the middle of what is open?
    Middle(Halves),
    /// Is this one the same there?
    CompareMiddle(Halves, BatchHeader),
    Found(Option<CommonPoint>),
}

/// What is still open while the last batch is looked for that is the same.
#[derive(Clone, Copy, Debug)]
struct Halves {
    /// No batch below this is open.
    low: Offset,
    /// Every batch from here on is another one there.
    high: Offset,
    /// The last batch that is the same, of those that were compared.
    same: Option<BatchHeader>,
}

impl Search {
    /// Begins.
    pub fn new(logs: Logs) -> Search {
        let mut search =
            Search { logs, below: logs.mirrored_end, step: Step::Batch, answers: 0, gave_up: false };
        search.go_below(logs.mirrored_end);
        search
    }

    /// What it has to know next.
    pub fn next(&self) -> Ask {
        match self.step {
            Step::Batch => Ask::BatchHere(self.below),
            Step::Epoch(batch) => Ask::EpochThere(batch.leader_epoch),
            Step::OlderEpoch(_, not_above) => Ask::EpochHere(not_above),
            Step::Compare(batch) | Step::CompareMiddle(_, batch) => Ask::BatchThere(batch),
            Step::Middle(halves) => Ask::BatchHere(halves.middle()),
            Step::Found(point) => Ask::Found(point),
        }
    }

    /// True where it ended before it was known whether the logs have anything in common.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The last batch here that begins below the offset that was asked for.
    pub fn batch_here(&mut self, batch: Option<BatchHeader>) {
        self.count();
        match (self.step, batch.filter(|batch| batch.next_offset() > self.logs.log_start)) {
            (Step::Batch, None) => self.step = Step::Found(None),
            // It is dropped whole.
            (Step::Batch, Some(batch)) if batch.next_offset() > self.below => {
                self.go_below(batch.base_offset.min(self.below.plus(-1)));
            }
            (Step::Batch, Some(batch)) => self.step = Step::Epoch(batch),
            (Step::Middle(halves), batch) => match batch.filter(|batch| batch.next_offset() > halves.low) {
                Some(batch) if batch.base_offset < halves.high => {
                    self.step = Step::CompareMiddle(halves, batch)
                }
                _ => self.halve(Halves { low: halves.middle(), ..halves }),
            },
            _ => {}
        }
    }

    /// Where the epoch that was asked for ends at the source.
    pub fn epoch_there(&mut self, answer: EpochEnd) {
        self.count();
        let Step::Epoch(batch) = self.step else { return };
        let EpochEnd { epoch, end } = answer;
        if epoch == batch.leader_epoch && end >= batch.next_offset() {
            let is_removed = batch.next_offset() <= self.logs.source_start;
            self.step =
                if is_removed { Step::Found(Some(point_after(&batch))) } else { Step::Compare(batch) };
        } else if epoch == batch.leader_epoch {
            self.go_below(end);
        } else {
            let is_known = epoch != Epoch::NONE && epoch < batch.leader_epoch;
            let older = Epoch(batch.leader_epoch.0.saturating_sub(1));
            let not_above = match self.logs.source_epoch {
                _ if is_known => epoch,
                // Asked for an epoch above all it knows, a source answers that it knows none.
                Epoch::NONE => older,
                newest => older.min(newest),
            };
            self.step = if not_above.0 < 0 { Step::Found(None) } else { Step::OlderEpoch(batch, not_above) };
        }
    }

    /// The newest epoch here that is not above the one that was asked for, and where it ends.
    pub fn epoch_here(&mut self, answer: EpochEnd) {
        self.count();
        let Step::OlderEpoch(batch, _) = self.step else { return };
        match answer.epoch {
            Epoch::NONE => self.step = Step::Found(None),
            // At least the batch whose epoch the source has not goes.
            _ => self.go_below(answer.end.min(batch.base_offset)),
        }
    }

    /// What the source has where the batch is that was asked for.
    pub fn batch_there(&mut self, theirs: &BatchThere) {
        self.count();
        match self.step {
            Step::Compare(batch) => match compare_batch(&batch, theirs) {
                SameBatch::Same | SameBatch::Cleaned => self.step = Step::Found(Some(point_after(&batch))),
                SameBatch::Another(_) if self.logs.proof == Proof::Epochs => {
                    self.step = Step::Found(Some(point_after(&batch)));
                }
                SameBatch::Another(_) | SameBatch::Replaced(_) => {
                    let low = self.logs.log_start.max(self.logs.source_start);
                    self.halve(Halves { low, high: batch.base_offset, same: None });
                }
            },
            Step::CompareMiddle(halves, batch) => match compare_batch(&batch, theirs) {
                SameBatch::Same => {
                    let low = batch.next_offset().max(halves.middle());
                    self.halve(Halves { low, same: Some(batch), ..halves });
                }
                // A batch that a cleaner has rewritten proves nothing, and it is known that the histories differ.
                SameBatch::Cleaned | SameBatch::Another(_) | SameBatch::Replaced(_) => {
                    self.halve(Halves { high: batch.base_offset, ..halves });
                }
            },
            _ => {}
        }
    }

    /// Gives up everything from `offset` on.
    fn go_below(&mut self, offset: Offset) {
        self.below = offset;
        self.step = if offset > self.logs.log_start { Step::Batch } else { Step::Found(None) };
        self.end_if_too_long();
    }

    fn halve(&mut self, halves: Halves) {
        self.step = match halves.same {
            _ if halves.low < halves.high => Step::Middle(halves),
            // Whether its epoch is the source's as well is still to be seen.
            Some(batch) => {
                self.below = batch.next_offset();
                Step::Epoch(batch)
            }
            None => Step::Found(None),
        };
        self.end_if_too_long();
    }

    fn count(&mut self) {
        self.answers = self.answers.saturating_add(1);
        self.end_if_too_long();
    }

    fn end_if_too_long(&mut self) {
        if self.answers > limits::SEARCH_ANSWERS_MAX && !matches!(self.step, Step::Found(_)) {
            self.step = Step::Found(None);
            self.gave_up = true;
        }
    }
}

impl Halves {
    /// Above `low`, so that each step leaves less.
    fn middle(&self) -> Offset {
        let open = self.high.0.saturating_sub(self.low.0);
        self.low.plus(open / 2 + open % 2)
    }
}

fn point_after(batch: &BatchHeader) -> CommonPoint {
    CommonPoint { epoch: batch.leader_epoch, offset: batch.next_offset() }
}

#[cfg(test)]
mod tests;
