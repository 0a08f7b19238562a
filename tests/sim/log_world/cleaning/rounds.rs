//! The cleaner of the world: a round in steps that come late, and what is known to have been compacted.

use std::ops::ControlFlow;
use std::path::Path;

use tarn_log::{CleanBound, CleanError, CleanRules, Disk, OffsetMap, Spent, SwapError};
use tarn_record::Offset;

use super::restart::TOPIC;
use super::{Broken, CompactedWorld, Event, Flush, Step, now};
use crate::disk::Faults;
use crate::simulation::{Schedule, Violation};

/// How long a tombstone is kept for readers.
pub(super) const RETENTION_MS: i64 = 400;

impl CompactedWorld {
    pub(super) fn prepare_round(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if !matches!(self.open().step, Step::None) {
            return Ok(());
        }
        let high_watermark = match self.broken {
            Broken::HighWatermarkIgnored => self.end(),
            _ => self.high_watermark,
        };
        if self.broken == Broken::HighWatermarkIgnored {
            self.log_mut().on_high_watermark(Offset(high_watermark));
        }
        let bound = CleanBound { high_watermark: Offset(high_watermark), recovery_point: Offset(self.saved) };
        let lag = if self.rng.u8(..4) == 0 { 30 } else { 0 };
        let kept = if self.broken == Broken::HorizonIgnored { 0 } else { RETENTION_MS };
        let rules = CleanRules { delete_retention_ms: kept, min_lag_ms: lag, max_lag_ms: i64::MAX };
        let (first_dirty, now) = (Offset(self.first_dirty), now(schedule));
        let found = match self.log_mut().dirtiness(first_dirty, &bound, &rules, now) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => return self.failed(&error),
        };
        schedule.tally("round of compaction");
        self.cleaned_to = self.cleaned_to.max(found.end.0);
        self.cleaned_at = now.0;
        let tombstones: Vec<i64> = self.batches.tombstones(found.end.0).collect();
        for offset in tombstones {
            self.first_cleaned.entry(offset).or_insert(now.0);
        }
        let cleaning = self.open().log.cleaning(&found, &rules, now);
        self.open_mut().step = Step::Prepared(Box::new(cleaning));
        schedule.after_ms(self.rng.i64(0..100), Event::KeysAreMapped);
        Ok(())
    }

    pub(super) fn map_keys(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let step = std::mem::replace(&mut self.open_mut().step, Step::None);
        let Step::Prepared(cleaning) = step else { return Ok(()) };
        let map = OffsetMap::new(if self.rng.bool() { 24 * 12 } else { 1 << 10 });
        match cleaning.map(map, &mut |_: Spent| ControlFlow::Continue(())) {
            Ok(round) => {
                self.open_mut().step = Step::Mapped(Box::new(round));
                schedule.after_ms(self.rng.i64(0..60), Event::CleanGoesOn);
                Ok(())
            }
            Err(CleanError::MapTooSmall { .. }) => Ok(()),
            Err(error) => self.round_failed(error, schedule),
        }
    }

    pub(super) fn write_segment(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let step = std::mem::replace(&mut self.open_mut().step, Step::None);
        let Step::Mapped(mut round) = step else { return Ok(()) };
        let full = self.rng.u8(..20) == 0;
        self.disk.set_faults(Faults {
            full,
            sync_lies: self.broken == Broken::SwapBeforeSync,
            ..Faults::default()
        });
        let written = round.next(&mut |_: Spent| ControlFlow::Continue(()));
        self.disk.set_faults(Faults::default());
        match written {
            Ok(Some(cleaned)) => {
                if cleaned.segments() > 1 {
                    schedule.tally("segments became one");
                }
                self.open_mut().step = Step::Written(Box::new((cleaned, *round)));
                schedule.after_ms(self.rng.i64(0..100), Event::SwapComesBack);
                Ok(())
            }
            Ok(None) => {
                self.first_dirty = round.end().0;
                Ok(())
            }
            Err(CleanError::Storage(error)) if full && error.is_full() => {
                schedule.tally("compaction without room");
                Ok(())
            }
            Err(error) => self.round_failed(error, schedule),
        }
    }

    pub(super) fn round_failed(
        &mut self,
        error: CleanError,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        match error {
            CleanError::Changed => {
                schedule.tally("round of a log that has changed");
                Ok(())
            }
            _ if self.disk.power_lost() => Ok(()),
            error => Err(Violation::new("round", error.to_string())),
        }
    }

    pub(super) fn swap(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let step = std::mem::replace(&mut self.open_mut().step, Step::None);
        let Step::Written(written) = step else { return Ok(()) };
        let (cleaned, round) = *written;
        let base = cleaned.base();
        match self.log_mut().swap(cleaned) {
            Ok(swapped) => {
                schedule.tally("segment swapped in");
                if !matches!(self.open().flush, Flush::None) {
                    schedule.tally("flush that came back after a swap");
                }
                self.keep_removal(swapped.removal, schedule);
                self.open_mut().step = Step::Mapped(Box::new(round));
                schedule.after_ms(self.rng.i64(0..60), Event::CleanGoesOn);
                Ok(())
            }
            Err(SwapError::Stale(removal)) => {
                schedule.tally("swap refused as stale");
                if self.broken == Broken::StaleSwapAccepted {
                    return self.swap_all_the_same(base, schedule);
                }
                removal.run().or_else(|error| self.failed(&error))
            }
            Err(_) if self.disk.power_lost() => Ok(()),
            Err(error) => Err(Violation::new("disk", error.to_string())),
        }
    }

    /// What an opening makes of a segment that was announced although the log is another.
    pub(super) fn swap_all_the_same(
        &mut self,
        base: Offset,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        self.flush_all(schedule)?;
        let name = |kind: &str| format!("/data/{TOPIC}-0/{:020}.{kind}", base.0);
        for kind in ["log", "index", "timeindex", "txnindex"] {
            let renamed = self.disk.rename(
                Path::new(&name(&format!("{kind}.cleaned"))),
                Path::new(&name(&format!("{kind}.swap"))),
            );
            if renamed.is_err() && kind == "log" {
                return Ok(());
            }
        }
        self.open = None;
        self.disk.restart();
        self.start_again(schedule)
    }
}
