//! What the driver around a log does: flushes, truncations, checkpoints, the high watermark.

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::{LogError, Together, flush_together};
use tarn_record::{Offset, PartitionIndex};

use super::restart::{PARTITION, TOPIC};
use super::{Broken, Event, Flush, LogWorld, now};
use crate::disk::Faults;
use crate::simulation::{Schedule, Violation};

impl LogWorld {
    pub(super) fn raise_high_watermark(&mut self) -> Result<(), Violation> {
        let high_watermark = self.rng.i64(self.oracle.high_watermark..=self.oracle.end);
        self.oracle.set_high_watermark(high_watermark);
        let told = if self.broken == Broken::MarkerTrustedEarly { self.oracle.end } else { high_watermark };
        self.log_mut().on_high_watermark(Offset(told));
        Ok(())
    }

    pub(super) fn truncate(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let lowest = (self.oracle.end - 60).max(self.oracle.start);
        let asked = self.rng.i64(lowest..=self.oracle.end + 1);
        let holds = self.oracle.readable(asked, i64::MAX).first();
        let end = match holds {
            Some(batch) => batch.base.min(asked).max(self.oracle.start),
            None => asked.min(self.oracle.end),
        };
        let flushed = self.oracle.flushed;
        self.oracle.may_be_truncated(end);
        match self.log_mut().truncate_to(Offset(asked), now(schedule)) {
            Ok(truncated) if truncated.end.0 != end => {
                let text = format!("a truncation to {asked} ended at {} instead of {end}", truncated.end);
                Err(Violation::new("order", text))
            }
            Ok(truncated) => {
                schedule.tally("truncation");
                self.cut_plans(end);
                self.keep_removal(truncated.removal, schedule);
                if end < self.oracle.end {
                    if end < flushed {
                        schedule.tally("truncation below what was flushed");
                    }
                    self.oracle.truncate(end);
                }
                if self.oracle.readable(self.oracle.start, end).is_empty() {
                    // Without a batch the log may start at its end.
                    let start = self.open().log.start().0;
                    self.oracle.advance_start(start.clamp(self.oracle.start, end));
                }
                Ok(())
            }
            // Of no use before a truncation succeeds.
            Err(_) => self.disk_failed(schedule),
        }
    }

    pub(super) fn truncate_fully(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let offset = self.rng.i64((self.oracle.start - 20).max(0)..=self.oracle.end + 50);
        self.oracle.may_start_anew_at(offset);
        self.start_saved = self.start_saved.min(offset);
        match self.log_mut().truncate_fully_and_start_at(Offset(offset), now(schedule)) {
            Ok(truncated) => {
                schedule.tally("truncation of everything");
                self.cut_plans(i64::MIN);
                self.keep_removal(truncated.removal, schedule);
                self.oracle.start_anew_at(offset);
                if self.rng.bool() {
                    schedule.tally("history begun anew in an older epoch");
                    self.leader_epoch = self.rng.i32(0..=self.leader_epoch);
                }
                Ok(())
            }
            // Of no use before a truncation succeeds.
            Err(_) => self.disk_failed(schedule),
        }
    }

    fn cut_plans(&mut self, end: i64) {
        for held in &mut self.open_mut().plans {
            held.cut_at = held.cut_at.min(end);
        }
    }

    pub(super) fn advance_start(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let highest = self.oracle.last_stable().max(self.oracle.start);
        let offset = self.rng.i64(self.oracle.start..=highest);
        let before = self.oracle.start;
        self.oracle.advance_start(offset);
        match self.log_mut().advance_start(Offset(offset), now(schedule)) {
            Ok(removal) => {
                if offset > before {
                    schedule.tally("log start advanced");
                }
                if let Some(removal) = removal {
                    self.keep_removal(removal, schedule);
                }
                Ok(())
            }
            Err(error) => {
                self.oracle.start = self.open().log.start().0;
                let failed = self.operation_failed(&error, schedule);
                if self.disk.power_lost() {
                    self.oracle.start = offset;
                }
                failed
            }
        }
    }

    pub(super) fn keep_removal(&mut self, removal: tarn_log::RemovalJob, schedule: &mut Schedule<Event>) {
        if removal.files() > 0 {
            self.open_mut().removals.push(removal);
            schedule.after_ms(self.rng.i64(1..500), Event::Remove);
        }
    }

    pub(super) fn remove_files(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.open().removals.is_empty() {
            return Ok(());
        }
        schedule.tally("segments removed");
        let removal = self.open_mut().removals.remove(0);
        match removal.run() {
            Ok(()) => Ok(()),
            Err(error) => self.operation_failed(&error, schedule),
        }
    }

    pub(super) fn begin_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if !matches!(self.open().flush, Flush::None) {
            return Ok(());
        }
        let began = self.oracle.flush_begins();
        let job = match self.rng.bool() {
            true => self.log_mut().flush_job(),
            false => self.log_mut().flush_batches_job(),
        };
        if let Some(job) = job {
            self.open_mut().flush = Flush::Made { job, began };
            schedule.after_ms(self.rng.i64(0..150), Event::FlushRuns);
        }
        Ok(())
    }

    pub(super) fn run_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let Flush::Made { job, began } = std::mem::replace(&mut self.open_mut().flush, Flush::None) else {
            return Ok(());
        };
        let upto = job.upto().0;
        let together = if self.rng.u8(..3) == 0 { Together::Many } else { Together::Few };
        let Some(result) = flush_together(vec![job], together).pop() else { return Ok(()) };
        match result {
            Ok(flushed) => {
                if together == Together::Many {
                    schedule.tally("flush of the whole disk");
                }
                self.open_mut().flush = Flush::Ran { flushed, upto, began };
                schedule.after_ms(self.rng.i64(0..100), Event::FlushComesBack);
                Ok(())
            }
            Err(_) if self.broken == Broken::FailedFlushRetried && !self.disk.power_lost() => Ok(()),
            Err(error) => {
                schedule.tally("flush that failed");
                self.operation_failed(&error, schedule)
            }
        }
    }

    pub(super) fn end_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let Flush::Ran { flushed, upto, began } = std::mem::replace(&mut self.open_mut().flush, Flush::None)
        else {
            return Ok(());
        };
        schedule.tally("flush");
        let before = self.open().log.flushed_to().0;
        if let Err(error) = self.log_mut().flushed(flushed) {
            return self.operation_failed(&error, schedule);
        }
        let promised = self.open().log.flushed_to().0;
        if self.open().log.recovery_point().0 < promised {
            schedule.tally("flush of batches alone");
        }
        if promised >= upto && upto >= before {
            self.oracle.flush_done(upto, began);
        } else {
            schedule.tally("flush that came back after a truncation");
        }
        if promised > upto.max(before) {
            return Err(Violation::new("order", "more is taken for flushed than was"));
        }
        Ok(())
    }

    /// Flushes until nothing is left to flush.
    pub(super) fn flush_all(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.run_flush(schedule)?;
        self.end_flush(schedule)?;
        self.begin_flush(schedule)?;
        self.run_flush(schedule)?;
        self.end_flush(schedule)
    }

    pub(super) fn write_checkpoints(&mut self) -> Result<(), Violation> {
        let log = &self.open().log;
        let (start, end) = (log.start_to_checkpoint(), log.end());
        let recovery_point =
            if self.broken == Broken::RecoveryPointAhead { end } else { log.recovery_point() };
        let start_now = log.start().0;
        let row = |offset| (TOPIC, PartitionIndex(PARTITION), offset);
        let dir = &self.open().dir;
        let saved = dir
            .write_offsets(OffsetCheckpoint::LogStart, start.map(row))
            .and_then(|()| dir.write_offsets(OffsetCheckpoint::RecoveryPoint, [row(recovery_point)]));
        if saved.is_ok() {
            self.start_saved = start_now;
        }
        // A broker tries again later; a failed sync is seen when the next one fails.
        Ok(())
    }

    /// After an error of the disk: a full disk is a state, anything else ends the process.
    pub(super) fn operation_failed(
        &mut self,
        error: &LogError,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        if error.is_full() && !self.disk.power_lost() && self.open().log.end().0 == self.oracle.end {
            return Ok(());
        }
        self.disk_failed(schedule)
    }

    /// The disk failed: the process ends. Where nothing had failed, the log is wrong.
    pub(super) fn disk_failed(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.disk.power_lost() {
            // Seen at the end of the step.
            return Ok(());
        }
        let Faults { full, sync_fails, .. } = self.disk.faults();
        if !full && !sync_fails {
            return Err(Violation::new("disk", "an operation failed on a disk that did not"));
        }
        self.crash(schedule)
    }
}
