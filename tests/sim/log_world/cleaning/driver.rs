//! Everybody else who works with the log: who appends, flushes, reads and cuts it.

use std::rc::Rc;

use tarn_log::checkpoints::OffsetCheckpoint;
use tarn_log::{FirstBatch, RemovalJob};
use tarn_record::{
    BatchBuilder, Compression, EndTransaction, Epoch, Offset, Outcome, ProducerEpoch, ProducerId, Record,
    Sequence, Timestamp, ValidBatch, end_transaction_marker,
};

use super::oracle::{Appended, Kept, Meaning, NOT_TRANSACTIONAL_MAX};
use super::restart::{PARTITION, TOPIC};
use super::{CompactedWorld, Event, Flush, Held, now};
use crate::simulation::{Schedule, Violation};

const PRODUCERS: i64 = 4;
const KEYS: u8 = 7;

impl CompactedWorld {
    pub(super) fn append(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let (base, now) = (self.end(), schedule.now_ms());
        let producer = self.rng.i64(0..=PRODUCERS);
        let codec = if self.rng.u8(..4) == 0 { Compression::Snappy } else { Compression::None };
        let first_sequence = if producer > 0 { self.batches.next_sequence(producer) } else { -1 };
        let mut builder = BatchBuilder::new(Offset(base), codec).leader_epoch(Epoch(0));
        if producer > 0 {
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(first_sequence));
        }
        if producer > NOT_TRANSACTIONAL_MAX {
            builder = builder.transactional();
        }
        let records: Vec<Kept> = (0..self.rng.usize(1..5))
            .map(|_| Kept {
                key: self.rng.u8(..KEYS),
                value: (self.rng.u8(..5) > 0).then(|| vec![self.rng.u8(..); self.rng.usize(..60)]),
                timestamp: now + self.rng.i64(-20..20),
            })
            .collect();
        for kept in &records {
            let (key, timestamp) = (Some(&[kept.key][..]), Timestamp(kept.timestamp));
            builder.add(&Record { key, value: kept.value.as_deref(), timestamp, headers: &[] });
        }
        schedule.tally("append");
        let last = base + records.len() as i64 - 1;
        let meaning =
            Meaning::Records { producer, last_sequence: first_sequence + records.len() as i32 - 1, records };
        self.append_batch(builder.build(), Appended { base, last, meaning }, schedule)
    }

    pub(super) fn end_transaction(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let open: Vec<i64> = self.batches.open().into_keys().collect();
        if open.is_empty() {
            return Ok(());
        }
        let (producer, aborted, base) = (open[self.rng.usize(..open.len())], self.rng.bool(), self.end());
        schedule.tally(if aborted { "transaction aborted" } else { "transaction committed" });
        let end = EndTransaction {
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(0),
            outcome: if aborted { Outcome::Abort } else { Outcome::Commit },
            coordinator_epoch: 3,
        };
        let bytes = end_transaction_marker(&end, Offset(base), Epoch(0), now(schedule));
        self.append_batch(
            bytes,
            Appended { base, last: base, meaning: Meaning::Marker { producer, aborted } },
            schedule,
        )
    }

    pub(super) fn append_batch(
        &mut self,
        bytes: bytes::Bytes,
        appended: Appended,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let batch = ValidBatch::parse(bytes).expect("the world builds good batches");
        let result = self.log_mut().append_as_is(&[batch], now(schedule));
        if result.is_err() && !self.disk.power_lost() {
            return Err(Violation::new("disk", "an append failed on a disk that did not"));
        }
        // Where the power went, it may be there after the crash.
        self.batches.all.push(Rc::new(appended));
        Ok(())
    }

    pub(super) fn raise_high_watermark(&mut self) -> Result<(), Violation> {
        self.high_watermark = self.rng.i64(self.high_watermark..=self.end());
        let high_watermark = Offset(self.high_watermark);
        self.log_mut().on_high_watermark(high_watermark);
        Ok(())
    }

    pub(super) fn begin_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if !matches!(self.open().flush, Flush::None) {
            return Ok(());
        }
        let first_dirty = self.first_dirty;
        match self.log_mut().flush_job() {
            Some(job) => {
                self.open_mut().flush = Flush::Made(job, first_dirty);
                schedule.after_ms(self.rng.i64(0..150), Event::FlushRuns);
            }
            None => self.first_dirty_flushed = first_dirty,
        }
        Ok(())
    }

    pub(super) fn run_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let Flush::Made(job, first_dirty) = std::mem::replace(&mut self.open_mut().flush, Flush::None) else {
            return Ok(());
        };
        let upto = job.upto().0;
        match job.run() {
            Ok(flushed) => {
                self.open_mut().flush = Flush::Ran(flushed, upto, first_dirty);
                schedule.after_ms(self.rng.i64(0..100), Event::FlushComesBack);
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    pub(super) fn end_flush(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let flush = std::mem::replace(&mut self.open_mut().flush, Flush::None);
        let Flush::Ran(flushed, upto, first_dirty) = flush else { return Ok(()) };
        schedule.tally("flush");
        if let Err(error) = self.log_mut().flushed(flushed) {
            return self.failed(&error);
        }
        // Whoever cuts the log flushes it at once, so what comes back is of this history.
        if self.open().log.flushed_to().0 < upto {
            return Err(Violation::new("flush", format!("a flush up to {upto} does not count")));
        }
        self.flushed = self.flushed.max(upto);
        self.first_dirty_flushed = first_dirty.min(self.first_dirty);
        self.others.clear();
        Ok(())
    }

    /// Flushes until nothing is left to flush.
    pub(super) fn flush_all(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        for _ in 0..2 {
            self.run_flush(schedule)?;
            self.end_flush(schedule)?;
            if !self.disk.power_lost() {
                self.begin_flush(schedule)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_checkpoints(&mut self) -> Result<(), Violation> {
        let (log, dir) = (&self.open().log, &self.open().dir);
        let row = |offset| (TOPIC, PARTITION, offset);
        let (recovery_point, start) = (log.recovery_point(), log.start_to_checkpoint());
        let saved = dir
            .write_offsets(OffsetCheckpoint::LogStart, start.map(row))
            .and_then(|()| dir.write_offsets(OffsetCheckpoint::RecoveryPoint, [row(recovery_point)]))
            .and_then(|()| {
                dir.write_offsets(OffsetCheckpoint::Cleaner, [row(Offset(self.first_dirty_flushed))])
            });
        if saved.is_ok() {
            self.saved = recovery_point.0;
        }
        Ok(())
    }

    pub(super) fn keep_removal(&mut self, removal: RemovalJob, schedule: &mut Schedule<Event>) {
        if removal.files() > 0 {
            self.open_mut().removals.push(removal);
            schedule.after_ms(self.rng.i64(1..500), Event::Remove);
        }
    }

    pub(super) fn remove_files(&mut self, _: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.open().removals.is_empty() {
            return Ok(());
        }
        self.open_mut().removals.remove(0).run().or_else(|error| self.failed(&error))
    }

    pub(super) fn hold_plan(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let (from, max_bytes) = (self.rng.i64(self.start..=self.end()), self.rng.usize(1..600));
        let (log, end) = (&self.open().log, self.open().log.end());
        let plan = match log.read(Offset(from), max_bytes, FirstBatch::MayBeLarger, end) {
            Ok(plan) => plan,
            Err(error) => return self.read_failed(error.to_string()),
        };
        match plan.read() {
            Ok(bytes) => {
                let held = Held { plan, bytes: bytes.to_vec(), cuts: self.cuts };
                self.open_mut().plans.push(held);
                schedule.after_ms(self.rng.i64(1..600), Event::UsePlan);
                Ok(())
            }
            Err(error) => self.read_failed(error.to_string()),
        }
    }

    /// A sender comes to the plan: it gets the bytes of then, or sees that the log was cut, or the file is gone.
    pub(super) fn use_plan(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.open().plans.is_empty() {
            return Ok(());
        }
        let Held { plan, bytes, cuts } = self.open_mut().plans.remove(0);
        let was_cut = cuts != self.cuts;
        let read = plan.read();
        if !plan.slices.iter().all(|slice| slice.is_current()) {
            schedule.tally("plan found stale");
            return if was_cut {
                Ok(())
            } else {
                Err(Violation::new("stale plan", "a plan is stale for no reason"))
            };
        }
        match read {
            Ok(read) if read == bytes => {
                schedule.tally("plan used after a swap");
                Ok(())
            }
            Ok(_) => Err(Violation::new("stale plan", "a plan gives other bytes")),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn truncate(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let least = self.high_watermark.max(self.start);
        let bases = self.batches.all.iter().map(|batch| batch.base).filter(|base| *base >= least);
        let bases: Vec<i64> = bases.collect();
        if bases.is_empty() {
            return Ok(());
        }
        let end = bases[self.rng.usize(..bases.len())];
        schedule.tally("truncation");
        self.others.push((self.batches.clone(), self.start));
        self.batches.truncate(end);
        self.flushed = self.flushed.min(end);
        self.was_cut(end);
        match self.log_mut().truncate_to(Offset(end), now(schedule)) {
            Ok(truncated) => {
                self.keep_removal(truncated.removal, schedule);
                // Without a batch the log may start at its end.
                self.start = self.open().log.start().0;
                self.start_highest = self.start_highest.max(self.start);
                self.flush_all(schedule)
            }
            Err(error) => self.failed(&error),
        }
    }

    pub(super) fn begin_anew(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let offset = self.rng.i64(0..=self.end() + 20);
        self.begin_anew_at(offset, schedule)
    }

    pub(super) fn begin_anew_at(
        &mut self,
        offset: i64,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        schedule.tally("history begun anew");
        self.others.push((std::mem::take(&mut self.batches), self.start));
        (self.flushed, self.high_watermark, self.start) = (0, offset, offset);
        self.start_highest = self.start_highest.max(offset);
        self.was_cut(offset);
        match self.log_mut().truncate_fully_and_start_at(Offset(offset), now(schedule)) {
            Ok(truncated) => {
                self.keep_removal(truncated.removal, schedule);
                self.flush_all(schedule)?;
                if self.others.is_empty() {
                    // Before, a crash could bring the history back of which this was known.
                    self.first_cleaned.clear();
                    (self.cleaned_to, self.start_highest) = (offset, offset);
                }
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    pub(super) fn was_cut(&mut self, end: i64) {
        self.cuts += 1;
        self.first_dirty = self.first_dirty.min(end);
        self.first_dirty_flushed = self.first_dirty_flushed.min(end);
        self.high_watermark = self.high_watermark.min(end);
        self.open_mut().flush = Flush::None;
    }

    pub(super) fn advance_start(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let stable = self.batches.open().values().min().copied().unwrap_or(i64::MAX);
        let offset = self.rng.i64(self.start..=self.high_watermark.min(stable).max(self.start));
        self.start = offset;
        self.start_highest = self.start_highest.max(offset);
        schedule.tally("log start advanced");
        match self.log_mut().advance_start(Offset(offset), now(schedule)) {
            Ok(removal) => {
                removal.into_iter().for_each(|removal| self.keep_removal(removal, schedule));
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }
}
