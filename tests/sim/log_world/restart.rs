//! How the world's process ends and begins again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_log::checkpoints::{CleanShutdown, OffsetCheckpoint};
use tarn_log::producers::ProducerStates;
use tarn_log::{Descriptors, Disk, Log, LogDir, Opening};
use tarn_record::{Offset, PartitionIndex, Timestamp, TopicId};

use super::doubts::{Learnt, Recalls};
use super::{Broken, Event, Flush, LogWorld, Open, count_damage, now};
use crate::simulation::{Schedule, Violation};

pub(super) const TOPIC: &str = "simulated";
pub(super) const PARTITION: i32 = 0;
/// Where the files of the log are.
pub(super) const DIR: &str = "/data/simulated-0";

/// Few, so that files are closed and opened again.
const OPEN_FILES_MAX: usize = 3;

impl LogWorld {
    /// A new log in a new directory; what is created is flushed.
    pub(super) fn create(&mut self) {
        let dir = self.open_dir().expect("nothing has failed yet");
        let partition = PartitionIndex(PARTITION);
        let created =
            Log::create(&dir, TOPIC, partition, TopicId::METADATA, self.config.clone(), Timestamp(0));
        let mut log = created.expect("nothing has failed yet");
        if let Some(job) = log.flush_job() {
            let flushed = job.run().expect("nothing has failed yet");
            log.flushed(flushed).expect("nothing has failed yet");
        }
        // Who makes a log directory is not the log.
        self.disk.sync_dir(Path::new("/")).expect("nothing has failed yet");
        self.disk.watch_logs();
        self.open = Some(Open { log, dir, flush: Flush::None, plans: Vec::new(), removals: Vec::new() });
    }

    /// The machine stops, and the process starts on what is left.
    pub(super) fn crash(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.tally("crash");
        self.open = None;
        count_damage(&self.disk.crash(), schedule);
        self.start_again(schedule)
    }

    /// The log is closed in order. Then the process starts again, and sometimes the machine too.
    pub(super) fn close(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        self.run_flush(schedule)?;
        if self.disk.power_lost() {
            return Ok(());
        }
        self.end_flush(schedule)?;
        let began = self.oracle.flush_begins();
        let not_closed = self.broken == Broken::CleanMarkWithoutClose;
        if !not_closed && let Err(error) = self.log_mut().close() {
            return self.operation_failed(&error, schedule).and_then(|()| match self.disk.power_lost() {
                true => Ok(()),
                // Nothing may be appended after a close, also after one that failed.
                false => self.crash(schedule),
            });
        }
        self.write_checkpoints()?;
        let mark = CleanShutdown { broker_epoch: 7, metadata_end: None };
        if self.open().dir.mark_clean(mark).is_err() {
            return if self.disk.power_lost() { Ok(()) } else { self.crash(schedule) };
        }
        schedule.tally("clean restart");
        self.oracle.flush_done(self.oracle.end, began);
        self.open = None;
        if self.rng.bool() {
            count_damage(&self.disk.crash(), schedule);
        } else {
            self.disk.restart();
        }
        self.start_again(schedule)
    }

    /// Opens the log, again and again while the power goes meanwhile, and compares what it holds.
    fn start_again(&mut self, schedule: &mut Schedule<Event>) -> Result<(), Violation> {
        schedule.retain(|event| !is_of_the_process(event));
        self.disk.set_faults(self.quiet());
        if !self.at_rest && self.rng.u8(..6) == 0 {
            self.disk.lose_power_after(self.rng.u32(..25));
        }
        let mut tried = false;
        let (log, dir, clean) = loop {
            match self.open_log(now(schedule)) {
                Ok(opened) => break opened,
                Err(_) if self.disk.power_lost() => {
                    tried = true;
                    schedule.tally("power loss while opening");
                    count_damage(&self.disk.crash(), schedule);
                    self.disk.set_faults(self.quiet());
                }
                Err(text) => return Err(Violation::new("recovery", text)),
            }
        };
        self.disk.watch_logs();
        self.open = Some(Open { log, dir, flush: Flush::None, plans: Vec::new(), removals: Vec::new() });
        let learnt = self.learnt(clean, tried);
        self.compare_with_history(&learnt, schedule)
    }

    /// From what the log, which was just opened, has learnt its producers.
    fn learnt(&self, clean: bool, was_tried_before: bool) -> Learnt {
        let log = &self.open().log;
        let (start, end) = (log.start().0, log.end().0);
        let recalls = if clean { Recalls::Last } else { Recalls::LookedAt };
        let (looked_from, noted_from) = match clean {
            // One that was not finished may have taken its recovery point for another.
            _ if was_tried_before => (start, 0),
            true => (start, end),
            false => {
                let (earliest, latest) = self.recovered_from(log.recovery_point().0);
                (start.min(latest), earliest)
            }
        };
        Learnt { looked_from, noted_from, recalls }
    }

    /// Where the segment that has the recovery point begins, which is read again from there on; after a truncation, so
    /// is the one before.
    fn recovered_from(&self, recovery_point: i64) -> (i64, i64) {
        let names = self.disk.list(Path::new(DIR)).unwrap_or_default();
        let base = |name: &str| name.strip_suffix(".log").and_then(|base| base.parse().ok());
        let mut bases: Vec<i64> = names.iter().filter_map(|entry| base(&entry.name)).collect();
        bases.sort_unstable();
        let last = bases.partition_point(|base| *base < recovery_point).saturating_sub(1);
        (bases[last.saturating_sub(1)], bases[last])
    }

    fn compare_with_history(
        &mut self,
        learnt: &Learnt,
        schedule: &mut Schedule<Event>,
    ) -> Result<(), Violation> {
        let found = self.read_all().map_err(|text| Violation::new("recovery", text))?;
        if found.start < self.start_saved {
            let text = format!("the log starts at {}, {} was saved", found.start, self.start_saved);
            return Err(Violation::new("durability", text));
        }
        let before = self.oracle.batches.len();
        self.oracle.accept(&found, learnt).map_err(|text| Violation::new("durability", text))?;
        let newest = self.oracle.batches.iter().map(|batch| batch.epoch).max();
        self.leader_epoch = self.leader_epoch.max(newest.unwrap_or(0));
        if self.oracle.batches.len() < before {
            schedule.tally("history lost in part");
        }
        let high_watermark = Offset(self.oracle.high_watermark);
        self.log_mut().on_high_watermark(high_watermark);
        self.compare_all(schedule)
    }

    fn open_dir(&self) -> Result<Arc<LogDir>, String> {
        let disk = Arc::new(self.disk.clone());
        LogDir::open(disk, PathBuf::from("/data"), Descriptors::new(OPEN_FILES_MAX))
            .map_err(|error| error.to_string())
    }

    /// The log, its directory, and whether it was closed in order.
    fn open_log(&self, now: Timestamp) -> Result<(Log, Arc<LogDir>, bool), String> {
        let dir = self.open_dir()?;
        let key = (TOPIC.to_owned(), PartitionIndex(PARTITION));
        let offset = |checkpoint| {
            let offsets = dir.offsets(checkpoint).map_err(|error| error.to_string())?;
            Ok::<_, String>(offsets.get(&key).copied().unwrap_or(Offset(0)))
        };
        let opening = Opening {
            clean: dir.was_clean(),
            recovery_point: offset(OffsetCheckpoint::RecoveryPoint)?,
            log_start: offset(OffsetCheckpoint::LogStart)?,
        };
        let opened = Log::open(&dir, TOPIC, PartitionIndex(PARTITION), self.config.clone(), opening, now);
        let (mut log, report) = opened.map_err(|error| error.to_string())?;
        let promised = opening.recovery_point <= Offset(self.oracle.promised_end());
        if report.distrusted_recovery_point && promised && self.broken == Broken::Nothing {
            return Err(format!("the recovery point {} was not believed", opening.recovery_point));
        }
        let rebuilt = !report.rebuilt_txn_indexes.is_empty();
        let mended = rebuilt || report.cut_from.is_some() || report.reread_epochs.is_some();
        let is_told = matches!(self.broken, Broken::Nothing | Broken::CleanMarkWithoutClose);
        if opening.clean && mended && is_told {
            return Err(format!("a log that was closed in order had to be mended: {report:?}"));
        }
        if log.topic_id() != TopicId::METADATA {
            return Err(format!("the log has the topic id {}", log.topic_id()));
        }
        if self.broken == Broken::EarlierBatchesForgotten {
            let snapshot = log.producers().snapshot();
            *log.producers_mut() = ProducerStates::load(&snapshot).map_err(|error| error.to_string())?;
        }
        Ok((log, dir, opening.clean))
    }
}

/// True for what does not outlive the process.
fn is_of_the_process(event: &Event) -> bool {
    matches!(
        event,
        Event::UsePlan | Event::FlushRuns | Event::FlushComesBack | Event::Remove | Event::DiskHasRoom
    )
}
