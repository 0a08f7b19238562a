//! How the world's process ends and begins again, and what it has to find.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_log::checkpoints::{CleanShutdown, OffsetCheckpoint};
use tarn_log::{Descriptors, Disk, FirstBatch, Log, LogDir, Opening};
use tarn_record::{Offset, PartitionIndex, Timestamp, TopicId, ValidBatch, batches};

use super::super::reads::open_transactions;
use super::oracle::{Batches, Expected};
use super::rounds::RETENTION_MS;
use super::{CompactedWorld, DRAWN, Event, Flush, Open, Step, count_damage, now};
use crate::simulation::{Schedule, Violation};

pub(super) const TOPIC: &str = "compacted";
pub(super) const PARTITION: PartitionIndex = PartitionIndex(0);

/// Few, so that files are closed and opened again.
const OPEN_FILES_MAX: usize = 3;

impl CompactedWorld {
    /// A new log in a new directory; what is created is flushed.
    pub(super) fn create(&mut self) {
        let dir = self.open_dir().expect("nothing has failed yet");
        let created =
            Log::create(&dir, TOPIC, PARTITION, TopicId::METADATA, self.config.clone(), Timestamp(0));
        let mut log = created.expect("nothing has failed yet");
        if let Some(job) = log.flush_job() {
            let flushed = job.run().expect("nothing has failed yet");
            log.flushed(flushed).expect("nothing has failed yet");
        }
        self.disk.sync_dir(Path::new("/")).expect("nothing has failed yet");
        self.disk.watch_logs();
        let (flush, step, removals, plans) = (Flush::None, Step::None, Vec::new(), Vec::new());
        self.open = Some(Open { log, dir, flush, step, removals, plans });
    }

    pub(super) fn close(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.run_flush(schedule)?;
        self.end_flush(schedule)?;
        if let Err(error) = self.log_mut().close() {
            return self.failed(&error);
        }
        self.write_checkpoints()?;
        let mark = CleanShutdown { broker_epoch: 7, metadata_end: None };
        if self.open().dir.mark_clean(mark).is_err() {
            return Ok(());
        }
        schedule.tally("clean restart");
        self.flushed = self.end();
        self.others.clear();
        self.open = None;
        if self.rng.bool() {
            count_damage(&self.disk.crash(), schedule);
        } else {
            self.disk.restart();
        }
        self.start_again(schedule)
    }

    pub(super) fn crash(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("crash");
        self.open = None;
        count_damage(&self.disk.crash(), schedule);
        self.start_again(schedule)
    }

    /// Opens the log, again and again while the power goes meanwhile, and compares what it holds.
    pub(super) fn start_again(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.retain(|event| DRAWN.iter().any(|(drawn, _)| drawn == event));
        if !self.at_rest && self.rng.u8(..4) == 0 {
            self.disk.lose_power_after(self.rng.u32(..25));
        }
        loop {
            match self.open_log(schedule) {
                Ok(()) => break,
                Err(_) if self.disk.power_lost() => {
                    schedule.tally("power loss while opening");
                    count_damage(&self.disk.crash(), schedule);
                }
                Err(text) => return Err(Violation::new("recovery", text)),
            }
        }
        self.disk.watch_logs();
        let (start, end) = (self.open().log.start().0, self.open().log.end().0);
        if self.flushed == 0 && start < end && end < self.cleaned_to {
            // A cut of everything was stopped midway, and what is left is less than compaction had left. It goes on.
            self.disk.keep_power();
            self.others.clear();
            (self.batches, self.start) = (Batches::default(), end);
            return self.begin_anew_at(end, schedule);
        }
        self.accept()
    }

    pub(super) fn open_log(&mut self, schedule: &mut Schedule<Event>) -> Result<(), String> {
        let dir = self.open_dir()?;
        let key = (TOPIC.to_owned(), PARTITION);
        let offset = |checkpoint| {
            let offsets = dir.offsets(checkpoint).map_err(|error| error.to_string())?;
            Ok::<_, String>(offsets.get(&key).copied().unwrap_or(Offset(0)))
        };
        let (recovery_point, log_start) =
            (offset(OffsetCheckpoint::RecoveryPoint)?, offset(OffsetCheckpoint::LogStart)?);
        let opening = Opening { clean: dir.was_clean(), recovery_point, log_start };
        let (saved, first_dirty) = (recovery_point.0, offset(OffsetCheckpoint::Cleaner)?.0);
        let opened = Log::open(&dir, TOPIC, PARTITION, self.config.clone(), opening, now(schedule));
        let (log, report) = opened.map_err(|error| error.to_string())?;
        schedule.tally_many("swap completed by an opening", report.completed_swaps as u64);
        // What was cut since it was written has lowered it.
        (self.saved, self.first_dirty) = (saved, first_dirty.min(self.first_dirty));
        self.first_dirty_flushed = self.first_dirty;
        let (flush, step, removals, plans) = (Flush::None, Step::None, Vec::new(), Vec::new());
        self.open = Some(Open { log, dir, flush, step, removals, plans });
        Ok(())
    }

    pub(super) fn open_dir(&self) -> Result<Arc<LogDir>, String> {
        let disk = Arc::new(self.disk.clone());
        LogDir::open(disk, PathBuf::from("/data"), Descriptors::new(OPEN_FILES_MAX))
            .map_err(|error| error.to_string())
    }

    /// Makes what was found after a crash the history, if it is one that the crash can have left.
    pub(super) fn accept(&mut self) -> Result<(), Violation> {
        let (start, end) = (self.open().log.start().0, self.open().log.end().0);
        let start_max = self.others.iter().map(|(_, start)| *start).fold(self.start, i64::max);
        if start > start_max {
            return Err(Violation::new(
                "durability",
                format!("the log starts at {start} instead of {start_max}"),
            ));
        }
        if end < self.flushed {
            let text = format!("offsets up to {} were flushed, the log ends at {end}", self.flushed);
            return Err(Violation::new("durability", text));
        }
        self.log_mut().on_high_watermark(Offset(end));
        let found = self.read_all().map_err(|text| Violation::new("read", text))?;
        let now = (self.batches.clone(), self.start);
        let others = std::mem::take(&mut self.others);
        let open = open_transactions(&self.open().log);
        let (mut possible, mut refusals) = (Vec::new(), Vec::new());
        for (mut batches, _) in [now].into_iter().chain(others) {
            batches.truncate(end);
            if batches.end(start) != end && end != start {
                refusals.push(format!("the log ends at {end}, which is within a batch"));
                continue;
            }
            match batches.compare(&self.open().log, &found, &self.expected()) {
                Ok(_) => possible.push(batches),
                Err(text) => refusals.push(text),
            }
        }
        if possible.is_empty() {
            return Err(Violation::new("durability", refusals.join("; or ")));
        }
        // Where nothing that is read tells which of several it is, the open transactions do.
        let agrees = possible.iter().position(|batches| batches.open() == open);
        self.batches = possible.swap_remove(agrees.unwrap_or(0));
        (self.start, self.high_watermark) = (start, end);
        Ok(())
    }

    /// Compares everything.
    pub(super) fn compare(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        let found = match self.read_all() {
            Ok(found) => found,
            Err(text) => return self.read_failed(text),
        };
        let compared = self.batches.compare(&self.open().log, &found, &self.expected());
        schedule.tally_many("tombstone gone", compared.map_err(|text| Violation::new("read", text))?);
        Ok(())
    }

    pub(super) fn expected(&self) -> Expected<'_> {
        Expected {
            cleaned_to: self.cleaned_to,
            start_highest: self.start_highest,
            high_watermark: self.high_watermark,
            cleaned_at: self.cleaned_at,
            first_cleaned: &self.first_cleaned,
            retention_ms: RETENTION_MS,
        }
    }

    /// Everything that the log has.
    pub(super) fn read_all(&self) -> Result<Vec<ValidBatch>, String> {
        let log = &self.open().log;
        let plan = log.read(log.start(), usize::MAX, FirstBatch::MayBeLarger, log.end());
        let bytes = plan.map_err(|error| error.to_string())?.read().map_err(|error| error.to_string())?;
        let mut read = batches(bytes);
        let found = read.by_ref().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        match read.remaining().is_empty() {
            true => Ok(found),
            false => Err(format!("{} bytes at the end are no batch", read.remaining().len())),
        }
    }
}
