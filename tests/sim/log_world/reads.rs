//! What is read, and what the log must return.

use std::collections::BTreeMap;

use tarn_log::{AbortedTransaction, FirstBatch, Log, Read, ReadError, ReadFrom, ReadOrder};
use tarn_record::{Offset, Timestamp, batches};

use super::batches::Stored;
use super::demands::{ABORTS, EPOCHS};
use super::oracle::Found;
use super::transactions::Aborted;
use super::{Broken, Event, HeldPlan, LogWorld};
use crate::simulation::{Compared, Schedule, Violation};

/// Of each producer that has one, where its open transaction began, as the log tells it.
pub(super) fn open_transactions(log: &Log) -> BTreeMap<i64, i64> {
    let open = log.producers().open_transactions();
    open.map(|transaction| (transaction.producer_id.0, transaction.first_offset.0)).collect()
}

impl LogWorld {
    pub(super) fn read_somewhere(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("read");
        let (start, end) = (self.oracle.start, self.oracle.end);
        let from = self.rng.i64((start - 3).max(0)..=end + 2);
        let upper = self.rng.i64(start..=end);
        let max_bytes = self.rng.usize(..3000);
        let first = if self.rng.bool() { FirstBatch::MayBeLarger } else { FirstBatch::MustFit };
        let order = ReadOrder {
            from: Offset(from),
            max_bytes,
            first_batch: first,
            upper: Offset(upper),
            aborted: tarn_log::Aborted::Named,
        };
        let Read { plan, aborted } = match self.open().log.read_from(&order, ReadFrom::Disk) {
            Err(ReadError::OutOfRange { .. }) if from < start || from > end => return Ok(()),
            Err(error) => return self.read_failed(&error.to_string(), schedule),
            Ok(_) if from < start || from > end => return wrong(format!("offset {from} is out of range")),
            Ok(read) => read,
        };
        let expected = expected(self.oracle.readable(from, upper), max_bytes, first);
        if plan.bytes != expected.len() {
            let text = format!("{} bytes from {from} up to {upper}, not {}", expected.len(), plan.bytes);
            return wrong(text);
        }
        let readable = self.oracle.readable(from, upper);
        let end = touched(readable, expected.len()).map_or(from, |batch| batch.last + 1);
        match plan.read() {
            Ok(bytes) if bytes == expected => {
                self.compare_aborted_in(&aborted, (from, end), schedule)?;
                self.compare_aborted(from, upper, schedule)
            }
            Ok(_) => wrong(format!("other bytes are read from offset {from} up to {upper}")),
            Err(error) => self.read_failed(&error.to_string(), schedule),
        }
    }

    /// Of a read, the aborted transactions that touch the batches in it.
    fn compare_aborted_in(
        &self,
        aborted: &[AbortedTransaction],
        (from, end): (i64, i64),
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        if from == end && aborted.is_empty() {
            return Ok(());
        }
        self.aborted_compared((from, end), aborted, schedule)
    }

    fn compare_aborted(
        &mut self,
        from: i64,
        upper: i64,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let found = match self.open().log.aborted_transactions(Offset(from), Offset(upper)) {
            Ok(found) => found,
            Err(error) => return self.read_failed(&error.to_string(), schedule),
        };
        self.aborted_compared((from, upper), &found, schedule)
    }

    fn aborted_compared(
        &self,
        (from, upper): (i64, i64),
        found: &[AbortedTransaction],
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let compared = self.oracle.compare_aborted(from, upper, &aborted_as_found(found));
        let wrong = |text| Violation::new("aborted", format!("of {from} up to {upper}: {text}"));
        ABORTS.tally(compared.map_err(wrong)?, schedule);
        Ok(())
    }

    pub(super) fn hold_plan(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let (start, end) = (self.oracle.start, self.oracle.end);
        let (from, max_bytes) = (self.rng.i64(start..=end), self.rng.usize(1..2000));
        let plan = match self.open().log.read(Offset(from), max_bytes, FirstBatch::MayBeLarger, Offset(end)) {
            Ok(plan) => plan,
            Err(error) => return self.read_failed(&error.to_string(), schedule),
        };
        let readable = self.oracle.readable(from, end);
        let bytes = expected(readable, max_bytes, FirstBatch::MayBeLarger);
        let (Some(first), false) = (readable.first().map(|batch| batch.base), bytes.is_empty()) else {
            return Ok(());
        };
        let last = touched(readable, bytes.len()).map_or(first, |batch| batch.last);
        self.open_mut().plans.push(HeldPlan { plan, bytes, first, last, cut_at: i64::MAX });
        schedule.after_ms(self.rng.i64(1..600), Event::UsePlan);
        Ok(())
    }

    /// A sender comes to the plan: it must see that the plan is stale, or get the bytes.
    pub(super) fn use_plan(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.open().plans.is_empty() {
            return Ok(());
        }
        let held = self.open_mut().plans.remove(0);
        let read = held.plan.read();
        let is_current = held.plan.slices.iter().all(|slice| slice.is_current());
        let dropped = held.last >= held.cut_at;
        let accepted = is_current || self.broken == Broken::StalePlanAccepted;
        let text =
            |what: &str| format!("{what}: offsets {} to {}, cut at {}", held.first, held.last, held.cut_at);
        match (accepted, dropped, read) {
            (true, true, _) => {
                Err(Violation::new("stale plan", text("a plan of dropped batches is current")))
            }
            (false, false, _) => Err(Violation::new("stale plan", text("a plan is stale for no reason"))),
            (false, true, _) => {
                schedule.tally("plan found stale");
                Ok(())
            }
            (true, false, Ok(bytes)) if bytes == held.bytes => {
                schedule.tally("plan used");
                Ok(())
            }
            (true, false, Ok(_)) => Err(Violation::new("stale plan", text("a plan gives other bytes"))),
            // Its segment lies below the log start and was removed.
            (true, false, Err(_)) if held.first < self.oracle.start => Ok(()),
            (true, false, Err(error)) => self.read_failed(&error.to_string(), schedule),
        }
    }

    pub(super) fn search(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("search");
        let wanted = self.rng.i64(0..=schedule.now_ms() + 20);
        let upper = self.rng.i64(self.oracle.start..=self.oracle.end);
        let searched = self.open().log.search_timestamp(Timestamp(wanted), Offset(upper)).run();
        let found = match searched {
            Ok(found) => found.map(|found| (found.offset.0, found.timestamp.0)),
            Err(error) => return self.read_failed(&error.to_string(), schedule),
        };
        let expected = self.oracle.first_at(wanted).filter(|(offset, _)| *offset < upper);
        if found != expected {
            let text = format!("timestamp {wanted} below {upper}: {found:?} instead of {expected:?}");
            return Err(Violation::new("search", text));
        }
        Ok(())
    }

    /// Everything that the log has.
    pub(super) fn read_all(&self) -> Result<Found, String> {
        let log = &self.open().log;
        let plan = log
            .read(log.start(), usize::MAX, FirstBatch::MayBeLarger, log.end())
            .map_err(|error| format!("reading from the start: {error}"))?;
        let bytes = plan.read().map_err(|error| format!("reading everything: {error}"))?;
        let mut read = batches(bytes);
        let mut found = Vec::new();
        for batch in read.by_ref() {
            let batch = batch.map_err(|error| format!("what is read is damaged: {error}"))?;
            found.push((batch.header().base_offset.0, batch.bytes().clone()));
        }
        if !read.remaining().is_empty() {
            return Err(format!("{} bytes at the end are no batch", read.remaining().len()));
        }
        let (start, end) = (log.start().0, log.end().0);
        Ok(Found { start, end, batches: found, open: open_transactions(log) })
    }

    /// Compares every byte, the epoch of every batch and all aborted transactions.
    pub(super) fn compare_all(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let found = self.read_all().map_err(|text| Violation::new("read", text))?;
        let expected = self.oracle.readable(self.oracle.start, self.oracle.end);
        if found.batches.len() != expected.len() {
            return wrong(format!("{} batches instead of {}", found.batches.len(), expected.len()));
        }
        let mut epochs = Compared::default();
        for (known, (base, bytes)) in expected.iter().zip(&found.batches) {
            if (known.base, &known.bytes) != (*base, bytes) {
                return wrong(format!("another batch at offset {base}"));
            }
            epochs.count(self.compare_epoch(known)?);
        }
        EPOCHS.tally(epochs, schedule);
        let (start, end) = (self.oracle.start, self.oracle.end);
        let aborted = self.open().log.aborted_transactions(Offset(start), Offset(end));
        let aborted = aborted.map_err(|error| Violation::new("aborted", error.to_string()))?;
        self.aborted_compared((start, end), &aborted, schedule)
    }

    /// True where the epoch of the batch had to be known.
    pub(super) fn compare_epoch(&self, batch: &Stored) -> Result<bool, Violation> {
        let epochs = self.open().log.epochs();
        let compared = self.oracle.compare_epoch(batch, |at| epochs.at(Offset(at)).map(|epoch| epoch.0));
        compared.map_err(|text| Violation::new("epochs", text))
    }

    /// A read may fail only where the power did.
    fn read_failed(&mut self, error: &str, _: &mut Schedule<Event>) -> Result<(), Violation> {
        if self.disk.power_lost() { Ok(()) } else { wrong(error.to_owned()) }
    }
}

/// What a read returns of these batches: about `max_bytes`, but the first batch in full or not at all.
fn expected(readable: &[Stored], max_bytes: usize, first_batch: FirstBatch) -> Vec<u8> {
    let Some(first) = readable.first() else { return Vec::new() };
    let budget = match first_batch {
        FirstBatch::MayBeLarger => max_bytes.max(first.bytes.len()),
        FirstBatch::MustFit => max_bytes,
    };
    if first.bytes.len() > budget {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(budget);
    for batch in readable {
        let room = budget - bytes.len();
        bytes.extend_from_slice(&batch.bytes[..room.min(batch.bytes.len())]);
    }
    bytes
}

/// The last batch of which the first `bytes` bytes have some.
fn touched(readable: &[Stored], bytes: usize) -> Option<&Stored> {
    if bytes == 0 {
        return None;
    }
    let mut seen = 0;
    readable.iter().find(|batch| {
        seen += batch.bytes.len();
        seen >= bytes
    })
}

fn aborted_as_found(found: &[AbortedTransaction]) -> Vec<Aborted> {
    let plain = |entry: &AbortedTransaction| (entry.producer_id.0, entry.first_offset.0, entry.last_offset.0);
    found.iter().map(plain).collect()
}

fn wrong(text: impl Into<String>) -> Result<(), Violation> {
    Err(Violation::new("read", text))
}
