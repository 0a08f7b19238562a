//! Cutting the end off a log that its mirror's source has not (mirroring.md §3): the part that only the log's
//! owner can decide and do.
//!
//! Sans-IO but for the partition's log. Three steps: what is to be done is looked up, on the owning core; the copy
//! is made and what the cut needs is read, on any thread; the log is cut, on the owning core again, if it is still
//! what it was.
//!
//! Invariants:
//! * no record is dropped that the order does not have copied;
//! * nothing is dropped before the copy is on the disk, and the note where it is, or after anything was appended to the
//!   log, or of a log that was closed and opened again meanwhile.

use std::ops::ControlFlow;

use tarn_image::DesiredState;
use tarn_log::{
    ExportDir, ExportJob, Exported, FoundTruncation, Log, LogBatches, LogError, LogIdentity, TruncationSearch,
};
use tarn_mirror::local_cluster::{LocalError, Truncate, TruncateOrder};
use tarn_record::{BatchHeader, Offset, Timestamp};
use thiserror::Error;

use super::Replica;
use super::ordered::NotOrdered;

/// Why a log is not cut.
#[derive(Debug, Error)]
pub enum NotTruncated {
    /// It may not be changed by this order.
    #[error(transparent)]
    NotOrdered(#[from] NotOrdered),
    /// It is not what the order was decided for.
    #[error("it ends at offset {end}, and the order is of a log that ends at {ordered}")]
    LogEnd {
        /// The log end.
        end: Offset,
        /// The log end in the order.
        ordered: Offset,
    },
    /// There are records that the order drops and does not have copied.
    #[error("the order drops the records at offsets {from} to {last} and does not export them")]
    NotExported {
        /// The first offset of the batch.
        from: Offset,
        /// Its last.
        last: Offset,
    },
    /// Another order, or the metadata, was faster.
    #[error("the log has changed meanwhile")]
    Changed,
    /// What is to be dropped cannot be copied.
    #[error(transparent)]
    Export(LogError),
    /// The log cannot be read or cut.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl NotTruncated {
    /// The same for mirroring.
    pub fn of(self, order: &TruncateOrder) -> LocalError {
        let (partition, reason) = (order.partition, self.to_string());
        match self {
            NotTruncated::Export(_) => LocalError::Export { partition, reason },
            NotTruncated::Storage(_) => LocalError::Storage { partition, reason },
            _ => LocalError::NotTruncated { partition, reason },
        }
    }
}

/// What comes before a cut, for a thread that may wait for the disk.
#[derive(Debug)]
#[must_use = "nothing is copied before it is run"]
pub struct TruncationWork {
    of: LogIdentity,
    /// The version of the order.
    version: i64,
    /// What is dropped and must hold no record that the copy has not.
    dropped: LogBatches,
    export_from: Option<Offset>,
    export: Option<ExportJob>,
    truncation: Option<TruncationSearch>,
}

/// What a cut needs. The copy, if any, is on the disk.
#[derive(Debug)]
pub struct ReadyToTruncate {
    of: LogIdentity,
    /// The copy.
    pub exported: Option<Exported>,
    truncation: Option<FoundTruncation>,
}

impl TruncationWork {
    fn of(log: &Log, order: &TruncateOrder) -> TruncationWork {
        let (dropped_from, truncation) = match order.truncate {
            Truncate::To(offset) => (offset.max(log.start()), Some(log.search_truncation(offset))),
            Truncate::Fully { .. } => (log.start(), None),
        };
        TruncationWork {
            of: log.identity(),
            version: order.version,
            dropped: log.batches(dropped_from, log.end()),
            export_from: order.export_from,
            export: order.export_from.map(|from| log.export_job(from)),
            truncation,
        }
    }

    /// Copies what is to be dropped into a new directory in `dir`, as long as `is_wanted`, notes beside the log where
    /// that is, and reads what the cut needs.
    ///
    /// # Errors
    /// Where it cannot be copied, or not all records are; there is no copy then. Or where it cannot be noted.
    pub fn run(
        self,
        dir: &ExportDir,
        now: Timestamp,
        is_wanted: impl Fn() -> bool,
    ) -> Result<ReadyToTruncate, NotTruncated> {
        let TruncationWork { of, version, dropped, export_from, export, truncation } = self;
        check_exported(&dropped, export_from)?;
        // What can fail without a copy comes first.
        let truncation = truncation.map(TruncationSearch::run).transpose()?;
        let exported = match export {
            Some(job) => job.run(dir, now, is_wanted).map_err(NotTruncated::Export)?,
            None => None,
        };
        if let Some(exported) = &exported
            && let Err(error) = exported.note(version)
        {
            // The copy stays; it is taken over by the next try.
            return Err(NotTruncated::Storage(error));
        }
        Ok(ReadyToTruncate { of, exported, truncation })
    }
}

/// That what is dropped and not copied holds no records.
fn check_exported(dropped: &LogBatches, export_from: Option<Offset>) -> Result<(), NotTruncated> {
    let is_exported = |header: &BatchHeader| export_from.is_some_and(|from| header.last_offset() >= from);
    let mut lacking = None;
    dropped.visit(|header, _| {
        if is_exported(header) {
            return ControlFlow::Break(());
        }
        if header.is_control() || header.record_count <= 0 {
            return ControlFlow::Continue(());
        }
        lacking = Some(NotTruncated::NotExported { from: header.base_offset, last: header.last_offset() });
        ControlFlow::Break(())
    })?;
    lacking.map_or(Ok(()), Err)
}

impl Replica {
    /// What has to be done before the log is cut.
    ///
    /// # Errors
    /// Where it may not be cut by this order, or not yet.
    pub fn truncation_work(&self, order: &TruncateOrder) -> Result<TruncationWork, NotTruncated> {
        self.check_truncation(order)?;
        Ok(TruncationWork::of(&self.log, order))
    }

    /// Cuts the log; durable after a flush. The log end.
    ///
    /// # Errors
    /// Where it may not be cut by this order any more, or the disk refuses. Only then may a part of it be gone.
    pub fn truncate(
        &mut self,
        order: &TruncateOrder,
        ready: ReadyToTruncate,
        now: Timestamp,
    ) -> Result<Offset, NotTruncated> {
        self.check_truncation(order)?;
        if ready.of != self.log.identity() {
            return Err(NotTruncated::Changed);
        }
        let truncated = match (order.truncate, ready.truncation) {
            (Truncate::Fully { start_at }, _) => self.log.truncate_fully_and_start_at(start_at, now),
            (Truncate::To(_), Some(found)) => self.log.truncate_as_found(found, now),
            (Truncate::To(offset), None) => self.log.truncate_to(offset, now),
        };
        self.retract_watermarks();
        let truncated = truncated?;
        self.removals.push(truncated.removal);
        Ok(truncated.end)
    }

    /// Nothing is committed, or known of the source, above the log end; also where a cut came only half-way.
    fn retract_watermarks(&mut self) {
        let end = self.log.end();
        self.high_watermark = self.high_watermark.min(end);
        self.produced_to = self.produced_to.min(end);
        if let Some(binding) = &mut self.binding {
            binding.source_high_watermark = binding.source_high_watermark.min(end);
        }
        self.advance_high_watermark();
        self.log.on_high_watermark(self.high_watermark);
    }

    /// Checks that the log may be cut by this order.
    ///
    /// # Errors
    /// Why not, or not any more.
    pub fn check_truncation(&self, order: &TruncateOrder) -> Result<(), NotTruncated> {
        self.check_ordered(order.version, |desired| desired != DesiredState::Stopped)?;
        let (end, ordered) = (self.log.end(), order.log_end);
        if end != ordered { Err(NotTruncated::LogEnd { end, ordered }) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
