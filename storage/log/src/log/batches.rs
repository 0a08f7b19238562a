//! Going through the batches of a log by their headers and what its control records say: for who rebuilds
//! what follows from them, and for who wants to know what stands at the end.
//!
//! It takes a copy of what the log knows and runs on any thread, through a window: never the whole is in
//! memory.

use std::ops::ControlFlow;

use tarn_record::{BatchHeader, ControlRecord, Offset};

use super::Log;
use crate::error::LogError;
use crate::segment::{Scan, SegmentView, Step, WIDE};

/// Batches that are ready to be gone through.
#[derive(Debug)]
#[must_use = "nothing is read until they are visited"]
pub struct LogBatches {
    segments: Vec<SegmentView>,
    from: Offset,
    upper: Offset,
}

impl Log {
    /// The batches that end at `from` or above and begin below `upper`.
    pub fn batches(&self, from: Offset, upper: Offset) -> LogBatches {
        let upper = upper.min(self.end);
        let first = if from < upper { self.segment_of(from) } else { self.segments.len() };
        let segments = self.segments[first..].iter().filter(|segment| segment.base() < upper);
        LogBatches { segments: segments.map(|segment| segment.view().clone()).collect(), from, upper }
    }
}

impl LogBatches {
    /// Goes through them in order, until `visit` breaks.
    ///
    /// # Errors
    /// Where a segment cannot be read, also when its offsets were removed meanwhile; or is damaged.
    pub fn visit(
        self,
        mut visit: impl FnMut(&BatchHeader, Option<&ControlRecord>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        for view in &self.segments {
            let Some(first) = view.locate(self.from)? else { continue };
            let file = view.open()?;
            let mut scan = Scan::new(file.as_ref(), first.position, u64::from(view.size), WIDE);
            loop {
                match scan.step().map_err(|cause| view.failed("read", cause))? {
                    Step::Batch(found) if found.header.base_offset >= self.upper => return Ok(()),
                    Step::Batch(found) => {
                        let control =
                            scan.read_control(&found).map_err(|cause| view.failed("read", cause))?;
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
}
