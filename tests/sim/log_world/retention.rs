//! What retention drops and clients delete, and what must hold of it.

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::{Ages, Expiry, LogError, Retention};
use tarn_record::{Offset, PartitionIndex, Timestamp};

use super::restart::{PARTITION, TOPIC};
use super::{Broken, Event, LogWorld, now};
use crate::simulation::{Schedule, Violation};

impl LogWorld {
    pub(super) fn retain(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let rules = match self.rng.bool() {
            true => Retention { ms: Some(self.rng.u64(0..4000)), bytes: None },
            false => Retention { ms: None, bytes: Some(self.rng.u64(0..=self.open().log.size_bytes())) },
        };
        let bound = self.oracle.last_stable().max(self.oracle.start);
        let told = if self.broken == Broken::RetentionUnbounded { self.oracle.end } else { bound };
        let (mut ages, now) = (Ages::default(), now(schedule));
        loop {
            self.log_mut().remember(&ages);
            match self.open().log.expiry(&rules, Offset(told), now, &ages) {
                Expiry::Kept => return Ok(()),
                Expiry::Unread(search) => match search.run() {
                    Ok(found) => ages.extend(found),
                    Err(error) => return self.operation_failed(&error, schedule),
                },
                Expiry::UpTo(offset) => {
                    self.check_retention(&rules, offset.0, bound, now)?;
                    if let Err(error) = self.raise_start(offset.0, schedule) {
                        return self.start_failed(&error, offset.0, schedule);
                    }
                    schedule.tally(match rules.ms {
                        Some(_) => "old segments dropped",
                        None => "large log shortened",
                    });
                }
            }
        }
    }

    /// What goes is replicated, and old or too much.
    fn check_retention(
        &self,
        rules: &Retention,
        start: i64,
        bound: i64,
        now: Timestamp,
    ) -> Result<(), Violation> {
        if start > bound {
            return Err(Violation::new("retention", format!("it drops all below {start}, beyond {bound}")));
        }
        let gone = self.oracle.readable(self.oracle.start, start);
        if let Some(ms) = rules.ms
            && let Some(young) =
                gone.iter().flat_map(|batch| &batch.timestamps).find(|at| **at + ms as i64 >= now.0)
        {
            let text = format!("at {now} it drops a record of {young}, {ms} ms are kept");
            return Err(Violation::new("retention", text));
        }
        let left: u64 =
            self.oracle.readable(start, i64::MAX).iter().map(|batch| batch.bytes.len() as u64).sum();
        match rules.bytes {
            Some(bytes) if left < bytes && !gone.is_empty() => {
                Err(Violation::new("retention", format!("it leaves {left} bytes instead of {bytes}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn delete_records(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let highest = self.oracle.last_stable().max(self.oracle.start);
        let offset = self.rng.i64(self.oracle.start..=highest);
        if let Err(error) = self.raise_start(offset, schedule) {
            return self.start_failed(&error, offset, schedule);
        }
        let kept = match self.broken {
            Broken::StartNotKept => true,
            _ => {
                let start = (offset > 0).then_some((TOPIC, PartitionIndex(PARTITION), Offset(offset)));
                self.open().dir.write_offsets(OffsetCheckpoint::LogStart, start).is_ok()
            }
        };
        if kept {
            schedule.tally("records deleted");
            self.start_saved = offset;
        }
        Ok(())
    }

    /// Raises the log start, and drops some of what lies below it.
    fn raise_start(&mut self, offset: i64, schedule: &mut Schedule<Event>) -> Result<(), LogError> {
        let most = self.rng.usize(1..4);
        self.log_mut().raise_start(Offset(offset))?;
        self.oracle.advance_start(offset.max(self.oracle.start));
        if let Some(removal) = self.log_mut().drop_below_start(most, now(schedule))? {
            self.keep_removal(removal, schedule);
        }
        Ok(())
    }

    fn start_failed(
        &mut self,
        error: &LogError,
        offset: i64,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let start = self.open().log.start().0;
        self.oracle.start = start;
        let failed = self.operation_failed(error, schedule);
        if self.disk.power_lost() {
            // What retention asks for may lie below the start, where segments are that go late.
            self.oracle.start = offset.max(start);
        }
        failed
    }
}
