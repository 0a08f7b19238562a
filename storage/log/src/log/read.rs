//! Reading: which bytes answer a fetch, and which transactions in them were aborted.

use tarn_record::Offset;

use super::Log;
use crate::error::{LogError, ReadError};
use crate::read_plan::{FileSlice, FirstBatch, ReadPlan};
use crate::segment::Found;
use crate::segment::txn_index::AbortedTransaction;

impl Log {
    /// Plans a read from `from` on: whole batches below `upper`, about `max_bytes` of them; the last may
    /// be cut short. A first batch that may be larger is returned whole, however large it is; one that must
    /// fit and does not gives an empty plan.
    ///
    /// # Errors
    /// `OutOfRange` below the log start and above the log end; or the disk's refusal.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        first_batch: FirstBatch,
        upper: Offset,
    ) -> Result<ReadPlan, ReadError> {
        if from < self.start || from > self.end {
            return Err(ReadError::OutOfRange { asked: from, start: self.start, end: self.end });
        }
        let upper = upper.min(self.end);
        if from >= upper {
            return Ok(ReadPlan::empty(from));
        }
        let Some((index, first)) = self.find(from)? else { return Ok(ReadPlan::empty(from)) };
        let first_bytes = first.header.size();
        let budget = match first_batch {
            FirstBatch::MayBeLarger => max_bytes.max(first_bytes),
            FirstBatch::MustFit => max_bytes,
        };
        if first.header.last_offset() >= upper || first_bytes > budget {
            return Ok(ReadPlan::empty(from));
        }
        Ok(self.plan(index, &first, budget, upper)?)
    }

    /// The plan that begins with a batch that was found.
    fn plan(&self, index: usize, first: &Found, budget: usize, upper: Offset) -> Result<ReadPlan, LogError> {
        let mut plan = ReadPlan::empty(first.header.base_offset);
        let mut begin = first.position;
        for index in index..self.segments.len() {
            let segment = &self.segments[index];
            let is_last = self.segment_end(index) >= upper;
            let end = if self.segment_end(index) > upper {
                let beyond = segment.view().locate(upper)?;
                beyond.map_or(u64::from(segment.size()), |beyond| beyond.position)
            } else {
                u64::from(segment.size())
            };
            let available = end.saturating_sub(begin);
            let len = available.min((budget - plan.bytes) as u64);
            if len > 0 {
                let slice = FileSlice::new(segment.file().clone(), begin, len as u32, self.generation);
                plan.slices.push(slice);
                plan.bytes += len as usize;
            }
            if is_last || plan.bytes == budget {
                break;
            }
            begin = 0;
        }
        Ok(plan)
    }

    /// The first batch that ends at `offset` or above, and its segment.
    pub(super) fn find(&self, offset: Offset) -> Result<Option<(usize, Found)>, LogError> {
        for index in self.segment_of(offset)..self.segments.len() {
            if let Some(found) = self.segments[index].view().locate(offset)? {
                return Ok(Some((index, found)));
            }
        }
        Ok(None)
    }

    /// The aborted transactions that touch what a plan reads from `from` on: what a reader of committed
    /// records has to leave out of it. The plan is one that [`Log::read`] just made.
    ///
    /// # Errors
    /// As for [`Log::aborted_transactions`].
    pub fn aborted_in(&self, plan: &ReadPlan, from: Offset) -> Result<Vec<AbortedTransaction>, LogError> {
        let segments = &self.segments[self.segment_of(from)..];
        let has_some = segments.iter().any(|segment| segment.txn_index().is_some());
        match plan.slices.last() {
            Some(last) if has_some || !self.unnoted_aborts.is_empty() => {
                self.aborted_transactions(from, self.end_of(last)?)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Where the batch begins that follows the slice, or its segment ends.
    fn end_of(&self, slice: &FileSlice) -> Result<Offset, LogError> {
        let index = self.segment_of(slice.base());
        let end = slice.position() + u64::from(slice.len());
        let next = self.segments[index].view().locate_position(end)?;
        Ok(next.map_or(self.segment_end(index), |next| next.header.base_offset))
    }

    /// The aborted transactions that touch the offsets from `from` up to, not including, `upper`.
    ///
    /// # Errors
    /// Where a transaction index cannot be read or is damaged.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let mut aborted = Vec::new();
        for segment in &self.segments[self.segment_of(from)..] {
            let Some(index) = segment.txn_index() else { continue };
            let collected = index.collect(from, upper)?;
            aborted.extend(collected.transactions);
            if collected.complete {
                return Ok(aborted);
            }
        }
        let touches = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < upper;
        aborted.extend(self.unnoted_aborts.iter().filter(touches));
        Ok(aborted)
    }
}
