//! Going through the batches of a log by their headers and what its control records say: for who rebuilds
//! what follows from them, and for who wants to know what stands at the end.
//!
//! It takes a copy of what the log knows and runs on any thread, through a window: never the whole is in
//! memory.

use std::ops::ControlFlow;

use tarn_record::{BatchHeader, ControlRecord, Offset};

use super::Log;
use crate::disk::ReadFrom;
use crate::error::LogError;
use crate::segment::{Scan, SegmentView, Step, WIDE};

/// Batches that are ready to be gone through.
#[derive(Debug)]
#[must_use = "nothing is read until they are visited"]
pub struct LogBatches {
    pub(super) segments: Vec<SegmentView>,
    pub(crate) from: Offset,
    pub(super) upper: Offset,
}

/// How many records there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Those of applications.
    pub records: u64,
    /// Those for brokers and clients: ends of transactions and their like.
    pub control_records: u64,
}

impl RecordCounts {
    pub(super) fn add(&mut self, header: &BatchHeader) {
        let count = u64::try_from(header.record_count).unwrap_or(0);
        let sum = if header.is_control() { &mut self.control_records } else { &mut self.records };
        *sum = sum.saturating_add(count);
    }
}

impl Log {
    /// The batches that end at `from` or above and begin below `upper`.
    pub fn batches(&self, from: Offset, upper: Offset) -> LogBatches {
        let upper = upper.min(self.end);
        let first = if from < upper { self.segment_of(from) } else { self.segments.len() };
        let segments = self.segments[first..].iter().filter(|segment| segment.base() < upper);
        LogBatches { segments: segments.map(|segment| segment.view().clone()).collect(), from, upper }
    }

    /// The batches that begin in the last `bytes` of the segments that begin below `upper`, where another one begins. Of
    /// a segment in which the first of them cannot be found there are none.
    pub(crate) fn last_batches(&self, upper: Offset, bytes: u64) -> LogBatches {
        let below = self.segments.partition_point(|segment| segment.base() < upper);
        let (mut from, mut left) = (upper, bytes);
        for segment in self.segments[..below].iter().rev() {
            let size = u64::from(segment.size());
            if size > left {
                let first = segment.view().locate_position(size - left, ReadFrom::Disk);
                from = first.ok().flatten().map_or(from, |first| first.header.base_offset);
                break;
            }
            (from, left) = (segment.base(), left - size);
        }
        self.batches(from, upper)
    }
}

impl LogBatches {
    /// Goes through them in order, until `visit` breaks.
    ///
    /// # Errors
    /// Where a segment cannot be read, also when its offsets were removed meanwhile; or is damaged, as far as headers
    /// tell, and control batches.
    pub fn visit(
        &self,
        mut visit: impl FnMut(&BatchHeader, Option<&ControlRecord>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        for view in &self.segments {
            let Some(first) = view.locate(self.from)? else { continue };
            let file = view.open()?;
            let mut scan = Scan::new(file.as_ref(), view.base(), first.position, u64::from(view.size), WIDE);
            loop {
                match scan.step().map_err(|cause| view.failed("read", cause))? {
                    Step::Batch(found) if found.header.base_offset >= self.upper => return Ok(()),
                    Step::Batch(found) => {
                        let control =
                            scan.check_control(&found).map_err(|cause| view.failed("read", cause))?;
                        let control = control.map_err(|fault| view.damaged(found.position, fault))?;
                        if visit(&found.header, control.as_ref()).is_break() {
                            return Ok(());
                        }
                    }
                    Step::Bad(fault) => return Err(view.damaged(scan.position(), fault)),
                    Step::End => break,
                }
            }
        }
        Ok(())
    }

    /// Counts the records of all of them, by their headers. The first batch counts as a whole, wherever in it
    /// these begin.
    ///
    /// # Errors
    /// As for [`LogBatches::visit`].
    pub fn count(&self) -> Result<RecordCounts, LogError> {
        self.count_while(|_| ControlFlow::Continue(()))
    }

    /// The same until `visit`, which is told what was counted up to each batch, breaks.
    ///
    /// # Errors
    /// As for [`LogBatches::visit`].
    pub fn count_while(
        &self,
        mut visit: impl FnMut(&RecordCounts) -> ControlFlow<()>,
    ) -> Result<RecordCounts, LogError> {
        let mut counts = RecordCounts::default();
        self.visit(|header, _| {
            counts.add(header);
            visit(&counts)
        })?;
        Ok(counts)
    }

    /// Leaves out what begins at `upper` or above.
    pub(crate) fn end_at(&mut self, upper: Offset) {
        self.upper = self.upper.min(upper);
        self.drop_unread();
    }

    /// Leaves out what ends below `from`.
    pub(crate) fn skip_to(&mut self, from: Offset) {
        self.from = self.from.max(from);
        let after = self.segments.partition_point(|segment| segment.base() <= self.from);
        self.segments.drain(..after.saturating_sub(1));
        self.drop_unread();
    }

    /// Between two offsets of which the second is no higher there is no batch, though one may span both.
    fn drop_unread(&mut self) {
        if self.from >= self.upper {
            self.segments.clear();
        }
    }
}
